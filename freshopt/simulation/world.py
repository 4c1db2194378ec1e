"""`World`: change process of every source.

It is the truth, of which a crawler sees what its polls reveal.

A world is a value; polls and copies belong to a crawler (`SimulatedCrawler`). Two crawlers of one world
observe the same changes, whatever they poll and in whatever batches, so that policies are compared with
common random numbers: the variance of their difference is far smaller than with independent changes.

Cost: a Poisson world keeps its rates, a crawler of it 40 bytes per source; no change is stored. A recorded
world keeps its changes, 8 bytes each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, check_seed, expect, list_offenders
from freshopt.logs.source_index import code_sources
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_vector, label_array, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.simulation.change_processes import Changes, PoissonChanges, RecordedChanges
from freshopt.units import check_time_unit

# Key that makes the requests of a Poisson world independent of its changes.
REQUESTS = 0xD1B54A32D192ED03


@frozen_value(repr=False)
class World:
    """Sources that change; made by `World.poisson`, `World.from_events` or `World.on_request`.

    Attributes
    ----------
    changes : Changes
        When they change.
    names : ndarray, shape (n,), or None
    signalled : ndarray of bool, shape (n,)
        Whether a source announces its changes.
    start : ndarray, shape (n,)
        Since when each source is there; its copy is fresh then.
    horizon : float
        Where the changes end; inf for a Poisson world.
    time_unit : str
    sources : Sources or None
        What a Poisson world was made of.
    requests : Changes or None
        When copies are requested, where the world knows.

    Examples
    --------
    >>> import freshopt as fo
    >>> world = fo.World.poisson(fo.Sources([0.5, 2.0], names=["a", "b"]), seed=1)
    >>> offsets, time = world.events(0.0, 10.0)
    >>> len(time) == int(offsets[-1])
    True
    """

    changes: Changes
    names: npt.NDArray[Any] | None
    signalled: BoolArray
    start: Array
    horizon: float
    time_unit: str
    sources: Sources | None
    requests: Changes | None = None

    @classmethod
    def poisson(
        cls,
        sources: Sources,
        seed: int,
        *,
        times: npt.ArrayLike | None = None,
        change_rate: npt.ArrayLike | None = None,
    ) -> World:
        """Make sources that change as Poisson processes.

        Parameters
        ----------
        sources : Sources
            Their change rates, which of them are signalled, the time unit.
        seed : int
            From 0 to 2⁶⁴−1.
        times : array_like, shape (E,), optional
            When the rates jump, > 0 and increasing.
        change_rate : array_like, shape (E, n), optional
            The rates from each of `times` on, ≥ 0; before the first, those of `sources` hold.

        Raises
        ------
        SourceDataError
            If the seed, a time or a rate cannot be used.

        Examples
        --------
        >>> sources = Sources(change_rate=[2.0, 0.5])
        >>> World.poisson(sources, seed=1)
        World(2 Poisson sources, seed 1, per day)
        >>> World.poisson(sources, seed=1, times=[10.0], change_rate=[[0.5, 2.0]]).change_rate(12.0)
        array([0.5, 2. ])
        """
        expect(sources, Sources, "sources", "Pass freshopt.Sources")
        edges, rates = _epochs(sources, times, change_rate)
        return cls(
            PoissonChanges.of(check_seed(seed), edges, rates),
            sources.names,
            sources.signalled,
            np.broadcast_to(np.zeros(()), (len(sources),)),
            np.inf,
            sources.time_unit,
            sources,
        )

    @classmethod
    def from_events(
        cls,
        events: Any,  # noqa: ANN401 - any dataframe library's frame
        *,
        names: npt.ArrayLike | None = None,
        start: npt.ArrayLike | None = None,
        horizon: float | None = None,
        signalled: npt.ArrayLike = False,
        time_unit: str = "day",
    ) -> World:
        """Make a world of recorded changes.

        Parameters
        ----------
        events : dataframe or mapping
            Columns ``source`` (names or integers) and ``time`` (numbers in `time_unit`), one row per change,
            in any order; changes of a source at one time are one change.
        names : array_like, shape (n,), optional
            All sources, also those that never change, in the order wanted. Default: those that occur, sorted.
        start : scalar or array_like of shape (n,), optional
            Since when each source is there (first seen), its copy fresh. Changes at or before it are left
            out, so that the second half of a history is ``start=half``. Default: 0, or the first change if
            that is earlier.
        horizon : float, optional
            Until when changes are known. Default: the last change. Later changes are left out.
        signalled : bool or array_like of bool, shape (n,)
        time_unit : str

        Raises
        ------
        SourceDataError
            If a column is missing, a time is not a finite number, or a source is not among the names.

        Examples
        --------
        >>> World.from_events({"source": ["b", "a", "b"], "time": [3.0, 1.0, 2.0]}, horizon=4.0)
        World(2 sources with 3 recorded changes in 0..4 days)
        """
        source, time = _columns_of(events)
        labels, codes = _codes_of(source, names)
        n = len(labels)
        last = float(time.max(initial=0.0)) if horizon is None else float(horizon)
        begin = as_vector(min(0.0, float(time.min(initial=0.0))) if start is None else start, n, "start")
        if not np.isfinite(begin).all() or not (begin.max(initial=-np.inf) <= last < np.inf):
            raise SourceDataError(
                f"start ranges over {begin.min():g}..{begin.max():g} and the horizon is {last:g}. "
                "Pass finite times with start <= horizon."
            )
        inside = (time > begin[codes] if start is not None else time >= begin[codes]) & (time <= last)
        codes, time = codes[inside], time[inside]
        order = np.lexsort((time, codes))
        codes, time = codes[order], time[order]
        fresh = np.ones(len(codes), dtype=np.bool_)
        fresh[1:] = (codes[1:] != codes[:-1]) | (time[1:] != time[:-1])
        codes, time = codes[fresh], time[fresh]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=n))]).astype(np.int64)
        return cls(
            RecordedChanges(read_only(offsets), read_only(time)),
            read_only(labels),
            np.broadcast_to(np.asarray(signalled, dtype=np.bool_), (n,)),
            begin,
            last,
            check_time_unit(time_unit),
            None,
        )

    @classmethod
    def on_request(
        cls,
        sources: Sources,
        seed: int,
        *,
        changes: Any = None,  # noqa: ANN401 - any dataframe library's frame
        requests: Any = None,  # noqa: ANN401 - any dataframe library's frame
        start: float = 0.0,
        horizon: float | None = None,
    ) -> World:
        """Make sources that change and are requested.

        Changes and requests are independent Poisson processes, or recorded.

        Parameters
        ----------
        sources : Sources
            With `request_rate`.
        seed : int
            From 0 to 2⁶⁴−1, of what is not recorded.
        changes, requests : dataframe or mapping, optional
            Recorded events instead of Poisson processes: columns ``source`` (names or, of sources without
            names, positions) and ``time``, as in `from_events`. Several requests of a source at one time are
            one request.
        start, horizon : float, optional
            Since when and until when recorded events count: by default from 0 to the last event.

        Raises
        ------
        SourceDataError
            If the sources have no request rates, or the seed or an event cannot be used.

        Examples
        --------
        >>> World.on_request(Sources(change_rate=[1.0, 2.0], request_rate=[0.5, 4.0]), seed=1)
        World(2 Poisson sources, Poisson requests, seed 1, per day)
        """
        expect(sources, Sources, "sources", "Pass freshopt.Sources")
        key, asked = check_seed(seed), sources.asked
        names = np.arange(len(sources)) if sources.names is None else sources.names
        told = {"changes": changes, "requests": requests}
        recorded = {
            what: cls.from_events(events, names=names, start=start, horizon=horizon)
            for what, events in told.items()
            if events is not None
        }

        def process(what: str, own: int, rate: Array) -> Changes:
            if what in recorded:
                return recorded[what].changes
            return PoissonChanges.of(own, np.zeros(1), np.ascontiguousarray(rate, dtype=np.float64)[:, None])

        last = max((each.horizon for each in recorded.values()), default=np.inf)
        return cls(
            process("changes", key, sources.change_rate),
            sources.names,
            np.broadcast_to(np.zeros((), dtype=np.bool_), (len(sources),)),
            as_vector(start if recorded else 0.0, len(sources), "start"),
            last,
            sources.time_unit,
            sources,
            process("requests", key ^ REQUESTS, asked),
        )

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.changes)

    def __repr__(self) -> str:
        n = len(self)
        if isinstance(self.changes, PoissonChanges):
            epochs = len(self.changes.edges)
            moving = "" if epochs == 1 else f" with {epochs - 1} jumps of the rates"
            moving += self._requested()
            return f"World({n} Poisson sources{moving}, seed {self.changes.seed}, per {self.time_unit})"
        many = len(self.changes.times) if isinstance(self.changes, RecordedChanges) else 0
        window = f"{float(np.min(self.start)):g}..{self.horizon:g} {self.time_unit}s"
        return f"World({n} sources with {many} recorded changes{self._requested()} in {window})"

    def _requested(self) -> str:
        """Return what is known of requests, in words."""
        if isinstance(self.requests, RecordedChanges):
            return f", {len(self.requests.times)} recorded requests"
        return "" if self.requests is None else ", Poisson requests"

    def change_rate(self, time: float = 0.0) -> Array:
        """Return the true change rates at a time, shape (n,).

        Raises
        ------
        SourceDataError
            If the world is recorded: then there are none.
        """
        if not isinstance(self.changes, PoissonChanges):
            raise SourceDataError(
                "a recorded world has changes but no change rates. Estimate them from a crawl log."
            )
        epoch = int(np.searchsorted(self.changes.edges, time, side="right")) - 1
        return self.changes.rates[:, max(epoch, 0)]

    def events(self, start: float, end: float, index: npt.ArrayLike | None = None) -> tuple[IntArray, Array]:
        """Return the changes in (start, end] of some sources.

        Parameters
        ----------
        start, end : float
        index : array_like of int, optional
            Positions of sources. Default: all.

        Returns
        -------
        offsets : ndarray of int, shape (m+1,)
            Where each source's changes begin in `time`.
        time : ndarray
            Increasing within a source.

        Notes
        -----
        A Poisson source is followed from time 0; the memory is that of the changes up to `end`.

        Examples
        --------
        >>> World.from_events({"source": [0, 1, 0], "time": [1.0, 2.0, 3.0]}).events(1.0, 3.0)
        (array([0, 1, 2]), array([3., 2.]))
        """
        sources = np.arange(len(self)) if index is None else np.asarray(index, dtype=np.int64)
        offsets, time = self.changes.collect(self.changes.begin(sources), sources, min(end, self.horizon))
        late = np.concatenate([[0], np.cumsum(time > start)])
        return late[offsets], time[time > start]


def _epochs(
    sources: Sources, times: npt.ArrayLike | None, change_rate: npt.ArrayLike | None
) -> tuple[Array, Array]:
    """Return the edges and rates of the epochs.

    Edges begin with 0, rates have the shape (n, E).
    """
    if times is None and change_rate is None:
        return np.zeros(1), np.ascontiguousarray(sources.change_rate, dtype=np.float64)[:, None]
    try:
        jumps = np.asarray(() if times is None else times, dtype=np.float64)
        later = np.asarray(() if change_rate is None else change_rate, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SourceDataError(
            "times and change_rate must be numbers. Pass one time, and one row of change rates, per jump."
        ) from None
    if jumps.ndim != 1 or later.shape != (len(jumps), len(sources)):
        raise SourceDataError(
            f"times has shape {jumps.shape} and change_rate {later.shape}, for {len(sources)} sources. "
            "Pass one row of change rates per time."
        )
    edges = np.concatenate([[0.0], jumps])
    if not (np.isfinite(edges).all() and (np.diff(edges) > 0.0).all()):
        raise SourceDataError("times must be finite, > 0 and increasing. Sort them.")
    wrong = ~(np.isfinite(later) & (later >= 0.0))
    if wrong.any():
        row, k = (int(found[0]) for found in np.nonzero(wrong))
        raise SourceDataError(
            f"change_rate is {later[row, k]:g} for {sources.label(k)} from {jumps[row]:g} on. "
            "Rates are finite and 0 or more."
        )
    return edges, np.ascontiguousarray(np.vstack([sources.change_rate, later]).T)


def _columns_of(events: Any) -> tuple[npt.NDArray[Any], Array]:  # noqa: ANN401 - any dataframe library's frame
    """Return the sources and times of a frame or mapping."""
    if isinstance(events, dict):
        columns, given = events, list(events)
    else:
        import narwhals

        table = narwhals.from_native(events, eager_only=True)
        given = table.columns
        columns = {key: table[key].to_numpy() for key in ("source", "time") if key in given}
    missing = [f"'{key}'" for key in ("source", "time") if key not in columns]
    if missing:
        raise SourceDataError(f"the events have no column {list_offenders(missing)}. Add it.")
    source, time = np.asarray(columns["source"]), np.asarray(columns["time"])
    if source.ndim != 1 or source.shape != time.shape:
        raise SourceDataError(f"source has shape {source.shape} and time {time.shape}. Give each event both.")
    if time.dtype.kind not in "iuf" or not np.isfinite(time).all():
        found = f"holds {time.dtype}" if time.dtype.kind not in "iuf" else "is not finite in some rows"
        raise SourceDataError(f"time of the events {found}. Pass numbers in the time unit.")
    return source, time.astype(np.float64)


def _codes_of(source: npt.NDArray[Any], names: npt.ArrayLike | None) -> tuple[npt.NDArray[Any], IntArray]:
    """Return the sources' names and each event's position among them."""
    found, codes = (
        code_sources(source) if source.dtype.kind == "O" else np.unique(source, return_inverse=True)
    )
    if names is None:
        return found, codes.astype(np.int64)
    labels = label_array(names)
    order = np.argsort(labels, kind="stable")
    if len(labels) == 0 or (labels[order][1:] == labels[order][:-1]).any():
        raise SourceDataError("names is empty or has one name twice. Pass each source once.")
    at = np.minimum(np.searchsorted(labels[order], found), len(labels) - 1)
    unknown = labels[order][at] != found
    if unknown.any():
        raise SourceDataError(
            f"events name sources that names does not: {list_offenders(map(repr, found[unknown].tolist()))}. "
            "Add them to names, or drop their events."
        )
    return labels, order[at][codes].astype(np.int64)
