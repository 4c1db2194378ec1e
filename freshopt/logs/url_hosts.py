"""`hosts_of_urls`: the host in each of many URLs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.numerics.arrays import label_array

# With a scheme, or a host's name before a path as virtual hosts write it; user and port are no part.
_URL = r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?:[^/?#@]*@)?(\[[^\]]+\]|[^/?#:\[\]]+)"
_BARE = r"^([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?::[0-9]+)?/"


def hosts_of_urls(names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the hosts of sources that are URLs, in small letters.

    Parameters
    ----------
    names : ndarray, shape (n,)
        Such as ``https://example.org/a`` or ``example.org/a``.

    Raises
    ------
    SourceDataError
        If one is no URL.

    Examples
    --------
    >>> hosts_of_urls(np.array(["https://Example.org:8080/a?b", "www.example.org/c"])).tolist()
    ['example.org', 'www.example.org']
    """
    hosts = known_hosts(names)
    wrong = np.asarray(names)[hosts == ""]
    if len(wrong):
        each = "it is no URL" if len(wrong) == 1 else "they are no URLs"
        raise SourceDataError(
            f"no host can be read from {list_offenders(map(repr, wrong.tolist()))}: {each}."
            " Give a table with columns source, host (--hosts, hosts=...), or the log a column host."
        )
    return hosts


def known_hosts(names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the hosts of sources, empty where one is no URL."""
    import polars

    text = polars.Series(np.asarray(names).tolist(), dtype=polars.String, strict=False)
    hosts = text.str.extract(_URL).fill_null(text.str.extract(_BARE)).str.to_lowercase()
    return label_array(hosts.fill_null("").to_list())
