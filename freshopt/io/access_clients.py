"""Clients of an access log: a chosen one, or evidence of all.

A client is an address with an agent, as far as the lines tell. What is chosen by either counts as one client,
as a crawler's machines do that share their copies.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SHOWN, SourceDataError, list_offenders, shown, warn
from freshopt.formatting import count
from freshopt.logs.client_copies import CopyEvidence, evidence_of_copies
from freshopt.logs.timestamps import Moments
from freshopt.numerics.arrays import Array, IntArray
from freshopt.units import SECONDS

if TYPE_CHECKING:
    import polars

WHOSE = ("client", "agent")
_CHOOSE = "--client ADDRESS or --agent TEXT (client=, agent= in Python)"


class Client(NamedTuple):
    """Choice of a client, by address, agent, or both."""

    address: str | None = None
    agent: str | None = None

    def __bool__(self) -> bool:
        """Whether one is chosen."""
        return self.address is not None or self.agent is not None


ALL = Client()


def requests_of_client(
    requests: polars.DataFrame, client: Client, path: Path
) -> tuple[polars.DataFrame, IntArray]:
    """Return the requests of a client, or all, and their rows.

    The columns client (the address) and agent are kept where several clients are left to be told apart.

    Raises
    ------
    SourceDataError
        If the log has no request of the chosen client.

    Warns
    -----
    SourceDataWarning
        If it has several agents.
    """
    import polars
    from polars import col

    whose = [col(key) if key in requests.columns else polars.lit(None).alias(key) for key in WHOSE]
    requests = requests.with_columns(each.cast(polars.String) for each in whose)
    row = np.arange(requests.height)
    if not client:
        one = all(requests[key].n_unique() == 1 for key in WHOSE)
        return requests.drop(WHOSE) if one and _told(requests) else requests, row
    is_own = polars.lit(value=True)
    if client.address is not None:
        is_own &= col("client") == client.address
    if client.agent is not None:
        is_own &= col("agent").str.contains(client.agent, literal=True)
    kept = requests.with_columns(row=row).filter(is_own)
    if kept.height == 0:
        key = "client" if client.agent is None else "agent"
        told = {"address": client.address, "agent": client.agent}
        wanted = " with ".join(f"{what} {value!r}" for what, value in told.items() if value is not None)
        raise SourceDataError(
            f"{path} has no request of {wanted}. There are {_most(requests[key])}. Choose one of these."
        )
    agents = kept["agent"]
    if agents.n_unique() > 1:
        warn(
            f"{path}: the requests of {count(agents.n_unique(), 'agent')} are taken as one client's: "
            f"{_most(agents)}. If each has copies of its own, choose one by more of its name."
        )
    return kept.drop(*WHOSE, "row"), kept["row"].to_numpy()


def evidence_of_clients(
    whose: polars.DataFrame,
    source: npt.NDArray[np.int32],
    time: Moments,
    status: Array,
    path: Path,
    time_unit: str,
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a log that several clients' requests make.

    Parameters
    ----------
    whose : DataFrame
        Columns client and agent.
    source, time, status : ndarray, shape (rows,)
    path : Path
        For messages.
    time_unit : str
        Of the column elapsed, and of times that are numbers.

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

    if not _told(whose):
        raise SourceDataError(
            f"{path} does not tell whose requests these are (no address, no agent), and a client's first "
            "visit looks like a change. Log addresses, or say --client - (client='-' in Python) if all are "
            "one crawler's."
        )
    codes = whose.select(
        col("agent").rank("dense").fill_null(0).cast(int).alias("agent"),
        (struct(WHOSE).rank("dense") - 1).cast(int).alias("client"),
    )
    tick = SECONDS[time_unit] * 1e3
    dated = time.dtype.kind == "M"
    found = evidence_of_copies(
        source.astype(np.int64),
        codes["client"].to_numpy(),
        codes["agent"].to_numpy(),
        time.astype("datetime64[ms]").astype(np.int64) if dated else np.rint(time * tick).astype(np.int64),
        status,
    )
    sharing = whose["agent"].filter(codes["agent"].is_in(found.shared.tolist()))
    _tell(path, whose, status, found, int(codes["client"].n_unique()), sharing)
    return {
        "source": found.source,
        "time": found.time.astype("datetime64[ms]") if dated else found.time / tick,
        "changed": found.changed,
        "elapsed": np.where(found.elapsed > 0, found.elapsed / tick, np.nan),
    }


def _tell(
    path: Path,
    whose: polars.DataFrame,
    status: Array,
    found: CopyEvidence,
    clients: int,
    sharing: polars.Series,
) -> None:
    """Warn of what counts, or raise if nothing does."""
    head = f"{path} has requests of {count(clients, 'client')}, each with copies of its own"
    shared = f"; addresses share the copies of {_most(sharing)}, which are left out" if len(sharing) else ""
    if found.clients == 0:
        asked = whose["agent"].filter(status == 304.0)
        best = f"; most answers 304 went to {_most(asked)}" if len(asked) else ""
        raise SourceDataError(
            f"{head}, and none tells of changes: a client counts after its first 304, which shows that it "
            f"asks conditionally, unless others contradict it{shared or best}. Choose one with {_CHOOSE}."
        )
    void = f"; {count(found.ruled_out, 'answer')} 200 left out where others show no change"
    warn(
        f"{head}. {found.clients:,} count, after their first 304{void if found.ruled_out else ''}{shared}. "
        f"Choose one with {_CHOOSE}."
    )


def _told(requests: polars.DataFrame) -> bool:
    """Return whether any line tells its client."""
    return any(bool((requests[key] != "-").any()) for key in WHOSE)


def _most(values: polars.Series) -> str:
    """Return the most frequent values in words, with their numbers."""
    counts = values.fill_null("-").value_counts(sort=True).head(SHOWN)
    few = [f"{shown(value)} ({many:,})" for value, many in counts.iter_rows()]
    return list_offenders(few + [""] * (values.n_unique() - len(few)))
