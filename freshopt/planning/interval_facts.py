"""Intervals between refreshes, and how they differ from the log's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.formatting import plain_name
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.report.source_sample import MOVED

# Sources that are listed with their intervals before and after.
LISTED = 10
# Relative difference of intervals that are the same but for rounding.
_SAME = 1e-9


def interval_facts(rates: Array, names: npt.NDArray[Any], flags: npt.NDArray[np.str_]) -> dict[str, Any]:
    """Return the shortest, median and longest interval, with whose the ends are.

    Examples
    --------
    >>> names, flags = np.array(["a", "b", "c"]), np.array(["ok", "never changed", "never changed"])
    >>> found = interval_facts(np.array([1.0, 0.25, 0.25]), names, flags)
    >>> found["shortest"], found["longest"]
    ({'interval': 1.0, 'whose': 'a'}, {'interval': 4.0, 'whose': 'never changed'})
    """
    some = rates > 0.0
    if not np.any(some):
        return {}
    low, high = float(np.min(rates[some])), float(np.max(rates))
    return {
        "shortest": {
            "interval": 1.0 / high,
            "whose": _whose(rates >= high * (1.0 - _SAME), names, flags),
        },
        "median": float(np.median(1.0 / rates[some])),
        "longest": {
            "interval": 1.0 / low,
            "whose": _whose(some & (rates <= low * (1.0 + _SAME)), names, flags),
        },
    }


def moved_facts(rates: Array, crawled: Array, names: npt.NDArray[Any]) -> dict[str, Any] | None:
    """Return how many sources are refreshed more and less often.

    Examples
    --------
    >>> found = moved_facts(np.array([2.0, 0.5, 0.0]), np.array([1.0, 1.0, 1.0]), np.array(["a", "b", "c"]))
    >>> [found[key] for key in ("more", "less", "about", "never")], found["sources"][0]["source"]
    ([1, 1, 0, 1], 'a')
    """
    known = crawled > 0.0
    if not np.any(known):
        return None
    where = np.flatnonzero(known)
    ratio = rates[where] / crawled[where]
    more, less, never = ratio > MOVED, (ratio < 1.0 / MOVED) & (ratio > 0.0), ratio == 0.0
    # Those first whose number of fetches changes most.
    first = np.argsort(-np.abs(rates[where] - crawled[where]), kind="stable")[:LISTED]
    listed = where[[k for k in first.tolist() if more[k] or less[k] or never[k]]]
    return {
        "crawled": float(np.sum(crawled[where])),
        "more": int(np.count_nonzero(more)),
        "less": int(np.count_nonzero(less)),
        "never": int(np.count_nonzero(never)),
        "about": int(np.count_nonzero(~(more | less | never))),
        "sources": [
            {"source": plain_name(names[k]), "crawl_rate": float(crawled[k]), "rate": float(rates[k])}
            for k in listed.tolist()
        ],
    }


def _whose(which: BoolArray, names: npt.NDArray[Any], flags: npt.NDArray[np.str_]) -> str | int:
    """Return the only source's name, or what several have in common."""
    where = np.flatnonzero(which)
    if len(where) == 1:
        return str(names[where[0]])
    kinds = set(flags[where].tolist())
    return kinds.pop() if len(kinds) == 1 and "ok" not in kinds else len(where)
