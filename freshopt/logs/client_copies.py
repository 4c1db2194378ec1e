"""Evidence of a server's own log, of several clients that hold copies.

An answer compares the source with the copy of the client that asked: 304 says that it has not changed since
this client's own request before, 200 that it has, if the client asks conditionally. So each client's requests
of a source are a history of their own, whose first answer is a baseline. A client counts after its first 304,
which shows that it asks conditionally. (What came before is left out whatever it says: a client that came
twice would else count where nothing had changed, and not where something had.)

Histories of one source see the same changes. Their evidence is that of one history: time is unchanged where
some client's 304 says so, and a change lies in what remains of an interval that ended with 200. Where nothing
remains the 200 is no answer to a conditional request, and a client with many such is not believed. Of changes
that overlap, which may be one, those are taken that end first.

A client is an address with an agent, as far as the lines tell. One that is chosen by either counts as one
client, as a crawler's machines do that share their copies.

Cost: some sorts of the requests, and a loop over the answers 200.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SHOWN, SourceDataError, list_offenders, shown, warn
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.logs.row_outcomes import NOT_MODIFIED, OK
from freshopt.logs.timestamps import Moments
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.units import SECONDS

# Share of a client's changes which answers to others rule out, above which it is not believed.
_DOUBTED = 0.1
# Clients with one agent that share a copy are answered 304 at their first request about as often as later,
# others hardly ever. They share one if it is more than a quarter as often.
_SHARED = 0.25


class CopyEvidence(NamedTuple):
    """What clients' requests say of the sources, by source and time.

    - `source` (k,)
    - `time`, `elapsed` (k,): In the unit of the requests' times; an elapsed time of 0 is a baseline's.
    - `changed` (k,)
    - `clients`: How many of them count.
    - `ruled_out`: Answers 200 where others show that nothing had changed.
    - `shared`: Agents whose addresses share copies, and do not count.
    """

    source: IntArray
    time: IntArray
    elapsed: IntArray
    changed: BoolArray
    clients: int
    ruled_out: int
    shared: IntArray


class _Requests(NamedTuple):
    """Requests by client, source and time, one for each moment."""

    client: IntArray
    agent: IntArray
    source: IntArray
    time: IntArray
    modified: BoolArray
    first: BoolArray


class _Spans(NamedTuple):
    """Disjoint stretches (start, end] of a line, source after source."""

    start: IntArray
    end: IntArray

    @classmethod
    def of(cls, start: IntArray, end: IntArray) -> _Spans:
        """Return the union of stretches."""
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order])
        begins = np.flatnonzero(np.append(True, start[1:] > reach[:-1]) if len(start) else [])
        return cls(start[begins], reach[np.append(begins[1:], len(start)) - 1] if len(begins) else start)

    def before(self, at: IntArray) -> IntArray:
        """Return the length of the union up to each point."""
        if len(self.start) == 0:
            return np.zeros(len(at), dtype=np.int64)
        total = np.concatenate([[0], np.cumsum(self.end - self.start)])
        k = np.searchsorted(self.start, at, side="right") - 1
        inside = np.minimum(at, self.end[k]) - self.start[k]
        return np.where(k < 0, 0, total[k] + inside)

    def entered(self, at: IntArray) -> IntArray:
        """Return the begin of the stretch around a point, or the point."""
        if len(self.start) == 0:
            return at
        k = np.searchsorted(self.start, at, side="left") - 1
        return np.where((k >= 0) & (at <= self.end[k]), self.start[k], at)


def evidence_of_copies(
    source: IntArray, client: IntArray, agent: IntArray, time: IntArray, status: npt.NDArray[np.float64]
) -> CopyEvidence:
    """Return what the requests of several clients say of the sources.

    Examples
    --------
    One client comes daily, and finds a change on the third day; another comes on that day for the first time.

    >>> source, day = np.zeros(5, dtype=np.int64), 86_400 * np.array([0, 1, 2, 2, 3])
    >>> client = np.array([0, 0, 0, 1, 0])
    >>> found = evidence_of_copies(source, client, client, day, np.array([200, 304, 304, 200, 200.0]))
    >>> (found.time // 86_400).tolist(), (found.elapsed // 86_400).tolist(), found.changed.tolist()
    ([0, 2, 3], [0, 1, 1], [False, False, True])
    """
    asked = _by_copy(source, client, agent, time, status)
    shared = _sharing(asked)
    first_304 = np.full(int(client.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_304, asked.client[~asked.modified], asked.time[~asked.modified])
    begin = int(asked.time.min(initial=0))
    span = int(asked.time.max(initial=0)) - begin + 1
    at = asked.source * span + (asked.time - begin)
    later = np.flatnonzero(~asked.first & ~np.isin(asked.agent, shared))
    start, end, modified = at[later - 1], at[later], asked.modified[later]
    counts = asked.time[later] > first_304[asked.client[later]]
    known = _Spans.of(start[~modified], end[~modified])
    # Positions on a line from which the known time is taken out: what remains of an interval is left there.
    left = [point - known.before(point) for point in (start, end)]
    void = modified & (left[0] == left[1])
    voided, found = (
        np.bincount(asked.client[later[rows]], minlength=len(first_304)) for rows in (void, modified)
    )
    counts &= (voided <= _DOUBTED * found)[asked.client[later]]
    unchanged = _cuts(start[counts & ~modified], end[counts & ~modified])
    rows = np.flatnonzero(counts & modified & ~void)
    rows = rows[_disjoint(left[0][rows], left[1][rows])]
    line = np.sort(at)
    base = line[np.diff(line // span, prepend=-1) != 0]  # each source's first request is its baseline
    place = np.concatenate([base, unchanged[0], known.entered(end[rows])])
    remains = left[1][rows] - left[0][rows]
    elapsed = np.concatenate([np.zeros(len(base), dtype=np.int64), unchanged[1], remains])
    changed = np.arange(len(place)) >= len(base) + len(unchanged[0])
    order = np.argsort(place, kind="stable")
    return CopyEvidence(
        source=place[order] // span,
        time=place[order] % span + begin,
        elapsed=elapsed[order],
        changed=changed[order],
        clients=len(np.unique(asked.client[later[counts]])),
        ruled_out=int(np.count_nonzero(void)),
        shared=shared,
    )


def _by_copy(
    source: IntArray, client: IntArray, agent: IntArray, time: IntArray, status: npt.NDArray[np.float64]
) -> _Requests:
    """Return requests answered 200 or 304, sorted, 200 telling at ties."""
    row = np.flatnonzero((status == OK) | (status == NOT_MODIFIED))
    row = row[np.lexsort((status[row], time[row], source[row], client[row]))]
    new_copy = np.append(True, (np.diff(client[row]) != 0) | (np.diff(source[row]) != 0))[: len(row)]
    new = new_copy | np.append(True, np.diff(time[row]) != 0)[: len(row)]
    row, first, modified = row[new], new_copy[new], status[row[new]] == OK
    return _Requests(client[row], agent[row], source[row], time[row], modified, first)


def _sharing(asked: _Requests) -> IntArray:
    """Return the agents whose clients share copies."""
    order = np.lexsort((asked.time, asked.source, asked.agent))
    agent, source = asked.agent[order], asked.source[order]
    followed = np.zeros(len(order), dtype=np.bool_)
    followed[order] = ~np.append(True, (np.diff(agent) != 0) | (np.diff(source) != 0))[: len(order)]
    n = int(asked.agent.max(initial=-1)) + 1

    def share(rows: BoolArray) -> npt.NDArray[np.float64]:
        total = np.bincount(asked.agent[rows], minlength=n)
        return np.bincount(asked.agent[rows & ~asked.modified], minlength=n) / np.maximum(total, 1)

    # The first requests of a client for what another with this agent had asked for before.
    return np.flatnonzero(share(asked.first & followed) > _SHARED * share(~asked.first))


def _cuts(start: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """Return points that part the union of stretches, and parts' lengths."""
    union = _Spans.of(start, end)
    point = np.unique(np.concatenate([union.start, end]))
    inside = ~np.isin(point, union.start)
    return point[inside], np.diff(point, prepend=0)[inside]


def _disjoint(start: IntArray, end: IntArray) -> IntArray:
    """Return as many intervals as can be of which none overlap."""
    kept, reached = [], -1
    for k in np.lexsort((-start, end)).tolist():
        if start[k] >= reached:
            kept.append(k)
            reached = int(end[k])
    return np.array(kept, dtype=np.int64)


WHOSE = ("client", "agent")
_CHOOSE = "--client ADDRESS or --agent TEXT (client=, agent= in Python)"


class Client(NamedTuple):
    """Choice of a client, by address, agent, or both, with its pattern."""

    address: str | None = None
    agent: str | None = None
    pattern: str | None = None

    def __bool__(self) -> bool:
        """Whether one is chosen."""
        return self.address is not None or self.agent is not None


ALL = Client()


def requests_of_client(
    requests: polars.DataFrame, client: Client, path: Path
) -> tuple[polars.DataFrame, IntArray]:
    """Return the requests of a client, or all, and their rows.

    The columns client (the address) and agent are kept where several clients are left to be told apart.

    - warns if it has several agents.
    """
    whose = [polars.col(key) if key in requests.columns else polars.lit(None).alias(key) for key in WHOSE]
    requests = requests.with_columns(each.cast(polars.String) for each in whose)
    row = np.arange(requests.height)
    if not client:
        one = all(requests[key].n_unique() == 1 for key in WHOSE)
        return requests.drop(WHOSE) if one and _told(requests) else requests, row
    is_own = polars.lit(value=True)
    if client.address is not None:
        is_own &= polars.col("client") == client.address
    if client.agent is not None:
        is_own &= polars.col("agent").str.contains(client.agent, literal=True)
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
    path: str,
    time_unit: str,
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of a log that several clients' requests make.

    - warns of how many clients count.
    """
    if not _told(whose):
        raise SourceDataError(
            f"{path} does not tell whose requests these are (no address, no agent), and a client's first "
            "visit looks like a change. Log addresses, or say --client - (client='-' in Python) if all are "
            "one crawler's."
        )
    codes = whose.select(
        polars.col("agent").rank("dense").fill_null(0).cast(int).alias("agent"),
        (polars.struct(WHOSE).rank("dense") - 1).cast(int).alias("client"),
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
    path: str,
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
        asked = whose["agent"].filter(status == NOT_MODIFIED)
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
    few = (f"{shown(value)} ({many:,})" for value, many in counts.iter_rows())
    return list_offenders(few, values.n_unique())
