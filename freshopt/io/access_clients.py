"""Clients of an access log: one that is chosen, or the evidence of all of them.

A client is an address with an agent, as far as the lines tell. What is chosen by either counts as one client,
as a crawler's machines do that share their copies.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SHOWN, SourceDataError, list_offenders, shown, warn
from freshopt.formatting import count
from freshopt.logs.client_copies import CopyEvidence, evidence_of_copies
from freshopt.logs.timestamps import Moments
from freshopt.units import SECONDS

if TYPE_CHECKING:
    import polars

WHOSE = ("address", "agent")
_CHOOSE = "--client ADDRESS or --agent TEXT (client=, agent= in Python)"


class Client(NamedTuple):
    """The choice of a client, by address, by a part of the agent's name, or both."""

    address: str | None = None
    agent: str | None = None

    def __bool__(self) -> bool:
        """Whether one is chosen."""
        return self.address is not None or self.agent is not None


ALL = Client()


def requests_of_client(requests: polars.DataFrame, client: Client, path: Path) -> polars.DataFrame:
    """Return the requests of the chosen client, or of all with what tells them apart.

    The columns address and agent are kept where several clients are left to be told apart.

    Raises
    ------
    SourceDataError
        If the log has no request of the chosen client.
    """
    from polars import col

    if client:
        kept = requests
        if client.address is not None:
            kept = kept.filter(col("address") == client.address)
        if client.agent is not None:
            kept = kept.filter(col("agent").str.contains(client.agent, literal=True).fill_null(value=False))
        if kept.height == 0:
            key, value = ("agent", client.agent) if client.agent is not None else ("address", client.address)
            raise SourceDataError(
                f"{path} has no request of {_words(client)}. {key.capitalize()} {value!r} is none of "
                f"{_most(requests[key])}. Choose one of these."
            )
        return kept.drop(WHOSE)
    one = all(requests[key].n_unique() == 1 for key in WHOSE)
    return requests.drop(WHOSE) if one and _told(requests) else requests


def evidence_of_clients(
    requests: polars.DataFrame,
    source: npt.NDArray[np.int32],
    path: Path,
    time_unit: str,
) -> dict[str, npt.ArrayLike]:
    """Return the columns of a log that several clients' requests make.

    Parameters
    ----------
    requests : DataFrame
        With the columns time, status, address and agent.
    source : ndarray of int, shape (rows,)
    path : Path
        For messages.
    time_unit : str
        Of the column elapsed.

    Raises
    ------
    SourceDataError
        If the lines do not tell the clients apart, or none tells of changes.

    Warns
    -----
    SourceDataWarning
        Of how many clients count.
    """
    from polars import col, struct

    if not _told(requests):
        raise SourceDataError(
            f"{path} does not tell whose requests these are (no address, no agent), and a client's first "
            "visit looks like a change. Log addresses, or say --client - (client='-' in Python) if all are "
            "one crawler's."
        )
    codes = requests.select(
        col("agent").rank("dense").fill_null(0).cast(int).alias("agent"),
        (struct(WHOSE).rank("dense") - 1).cast(int).alias("client"),
    )
    moments: Moments = requests["time"].to_numpy()
    found = evidence_of_copies(
        source.astype(np.int64),
        codes["client"].to_numpy(),
        codes["agent"].to_numpy(),
        moments.astype("datetime64[s]").astype(np.int64),
        requests["status"].to_numpy(),
    )
    clients = int(codes["client"].n_unique())
    sharing = requests["agent"].filter(codes["agent"].is_in(found.shared.tolist()))
    _tell(path, requests, found, clients, sharing)
    elapsed = found.elapsed / SECONDS[time_unit]
    return {
        "source": found.source,
        "time": found.time.astype("datetime64[s]").astype("datetime64[us]"),
        "changed": found.changed,
        "elapsed": np.where(found.elapsed > 0, elapsed, np.nan),
    }


def _tell(
    path: Path, requests: polars.DataFrame, found: CopyEvidence, clients: int, sharing: polars.Series
) -> None:
    """Warn of what counts, or raise if nothing does."""
    from polars import col

    head = f"{path} has requests of {count(clients, 'client')}, each with copies of its own"
    shared = f"; addresses share the copies of {_most(sharing)}, which are left out" if len(sharing) else ""
    if found.clients == 0:
        asked = requests.filter(col("status") == 304.0)
        best = f"; most answers 304 went to {_most(asked['agent'])}" if asked.height else ""
        raise SourceDataError(
            f"{head}, and none tells of changes: a client counts after its first 304, which shows that it asks "
            f"conditionally, unless others contradict it{shared or best}. Choose one with {_CHOOSE}."
        )
    void = f"; {count(found.ruled_out, 'answer')} 200 left out where others show no change"
    warn(
        f"{head}. {found.clients:,} count, after their first 304{void if found.ruled_out else ''}{shared}. "
        f"Choose one with {_CHOOSE}."
    )


def _told(requests: polars.DataFrame) -> bool:
    """Return whether any line tells its client."""
    return any(bool((requests[key] != "-").any()) for key in WHOSE)


def _words(client: Client) -> str:
    parts = (f"{key} {value!r}" for key, value in zip(WHOSE, client, strict=True) if value is not None)
    return " with ".join(parts)


def _most(values: polars.Series) -> str:
    """Return the most frequent values in words, with their numbers."""
    counts = values.fill_null("-").value_counts(sort=True).head(SHOWN)
    few = [f"{shown(value)} ({many:,})" for value, many in counts.iter_rows()]
    return list_offenders(few + [""] * (values.n_unique() - len(few)))
