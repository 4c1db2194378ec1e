"""Exact integrals of staleness over time.

From the times of changes and of refreshes.

Between two refreshes the number m of missed changes is a step function of time, and every cost of age and of
missed changes is an integral over its steps:

    stale      ∫ 1[m>0] dt             the time a copy was stale
    harmonic   ∫ H(m) dt               H(m) = 1 + 1/2 + ... + 1/m
    count      ∫ m dt
    age        ∫ (t − t₁)⁺ dt          t₁ the oldest missed change
    penalty    ∫ C(m) dt               C any function of the count

Each step adds a positive term to its integral, so that short steps late in a long history lose no digits.
Expected costs do not enter: the predictions of the objectives can be tested against these integrals.

Cost: 0.1 µs a refresh, compiled; changes of a Poisson world are drawn on the way and not kept. In Python they
are collected for some sources at a time, as they are from a recorded world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.compiled import backend
from freshopt.errors import ObjectiveError, SourceDataError, expect
from freshopt.modelling.cost_curve import Curve
from freshopt.modelling.objective import Objective
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray, as_number, as_numbers, as_vector, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.problems.expected_penalty import ExpectedPenalty
from freshopt.problems.synchronization_cost import SynchronizationCost
from freshopt.simulation.change_processes import Changes, PoissonChanges
from freshopt.simulation.loops import Events, PoissonTables, loops
from freshopt.simulation.replay_result import NAMED
from freshopt.simulation.world import World

# C(counts of missed changes), vectorised.
Penalty: TypeAlias = Callable[[IntArray], npt.ArrayLike]
# Changes collected at a time: 32 MB.
_TOGETHER = 4_000_000.0
# A pass over changes that are drawn has none recorded, and one over recorded changes draws from no tables.
NOTHING_RECORDED = Events(np.empty(0, dtype=np.int64), np.empty(0))
# Read-only, as those of a world are: the pass would else be compiled once more.
NO_TABLES = PoissonTables(np.uint64(0), read_only(np.empty(0)), *[read_only(np.empty((0, 0)))] * 2)


@frozen_value(repr=False)
class MissedCosts:
    """Integrals over [begin, end] per source, each of shape (n,).

    Attributes
    ----------
    begin : ndarray
        From when each source counts: the beginning asked for, or its own start if that is later.
    end : ndarray
        Until when each source counts.
    stale, harmonic, count, age : ndarray
        See the module. In time units, age in time units squared.
    penalty : ndarray or None
        Integral of the penalty asked for.
    most : ndarray of int
        The largest number of changes missed at once.
    """

    begin: Array
    end: Array
    stale: Array
    harmonic: Array
    count: Array
    age: Array
    penalty: Array | None
    most: IntArray

    def __repr__(self) -> str:
        with np.errstate(invalid="ignore", divide="ignore"):
            fresh = 1.0 - np.sum(self.stale) / np.sum(self.span)
        size = f"{len(self.stale)} sources until {np.max(self.end):g}"
        return f"MissedCosts({size}, fresh {fresh:.4f} of the time)"

    @property
    def span(self) -> Array:
        """Length of each source's time, shape (n,)."""
        return np.maximum(self.end - self.begin, 0.0)


def missed_costs(
    world: World,
    source: npt.ArrayLike,
    time: npt.ArrayLike,
    end: npt.ArrayLike,
    *,
    begin: float = 0.0,
    penalty: Penalty | None = None,
) -> MissedCosts:
    """Integrate the costs of staleness between refreshes, exactly.

    Parameters
    ----------
    world : World
    source : array_like of int, shape (m,)
    time : array_like, shape (m,)
        The refreshes, in any order. A refresh at the time of a change comes after it.
    end : scalar or array_like of shape (n,)
        At most the world's horizon; one per source where they are not all there until the same moment.
    begin : float
        All copies are fresh then; what was before does not count.
    penalty : callable, optional
        C(counts 0, 1, 2, ...), vectorised.

    Raises
    ------
    SourceDataError
        If a refresh is of no source, or the window is not one of the world.

    Examples
    --------
    >>> world = World.from_events({"source": [0, 0], "time": [1.0, 2.0]}, horizon=10.0)
    >>> costs = missed_costs(world, [0], [4.0], end=10.0)
    >>> costs.stale, costs.harmonic, costs.count, costs.age
    (array([3.]), array([4.]), array([5.]), array([4.5]))
    """
    expect(world, World, "world", "Pass a freshopt.World")
    n = len(world)
    given, times = as_numbers(source, "source"), as_numbers(time, "time")
    with np.errstate(invalid="ignore"):
        sources = given.astype(np.int64)
    if not np.array_equal(sources, given):
        raise SourceDataError("source has entries that are no positions. Pass whole numbers.")
    begin = as_number(begin, "begin", "Pass a time.")
    until = as_vector(end, n, "end")
    latest = float(np.max(until))
    if not (np.isfinite(until).all() and latest <= world.horizon and begin <= latest):
        raise SourceDataError(
            f"costs are asked for from {begin:g} to {latest:g}, but the world ends at {world.horizon:g}. "
            "Choose a finite window inside it."
        )
    if sources.shape != times.shape or sources.ndim != 1 or not np.isfinite(times).all():
        raise SourceDataError(
            f"refreshes have sources of shape {sources.shape} and times of shape {times.shape}. "
            "Give each refresh a source and a finite time."
        )
    if len(sources) and not (sources.min() >= 0 and sources.max() < n):
        raise SourceDataError(
            f"refreshed sources range over {sources.min()}..{sources.max()}. Use 0..{n - 1}."
        )
    refreshes = grouped(sources, times, n)
    return grouped_costs(world, refreshes, until, begin=begin, penalty=penalty)


def grouped(source: IntArray, time: Array, n: int) -> Events:
    """Return refreshes in any order source by source, increasing in each."""
    firsts = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(source, minlength=n), out=firsts[1:])
    if ((source[1:] > source[:-1]) | ((source[1:] == source[:-1]) & (time[1:] >= time[:-1]))).all():
        return Events(firsts, time)
    if not (time[1:] >= time[:-1]).all():
        order = np.argsort(time)
        source, time = source[order], time[order]
    out = np.empty(len(time))
    loops()["group"](source, time, firsts[:-1].copy(), out)
    return Events(firsts, out)


def grouped_costs(
    world: World,
    refreshes: Events,
    until: Array,
    *,
    begin: float,
    penalty: Penalty | None = None,
) -> MissedCosts:
    """Integrate costs between refreshes that are grouped and in order."""
    n, first, until = len(world), np.maximum(world.start, begin), np.array(until)
    out, most = np.zeros((5, n)), np.zeros(n, dtype=np.int64)
    changes, latest, tables = world.changes, float(np.max(until)), NO_TABLES
    drawn = backend.compiled() and isinstance(changes, PoissonChanges)
    for part in parts_of(expected_events(changes, latest)):
        index, recorded = np.arange(part.start, part.stop), NOTHING_RECORDED
        if drawn and isinstance(changes, PoissonChanges):
            changes.require_few(np.zeros(1), index, latest, np.sum)
            tables = changes.tables()
        else:
            recorded = Events(*world.events(-np.inf, latest, index))
        here = Events(refreshes.firsts[part.start : part.stop + 1], refreshes.times)
        columns = here, first[part], until[part], recorded, tables, part.start
        sums = np.zeros((5, len(index)))
        if penalty is not None:
            loops()["integrate"](*columns, np.empty(0), sums, most[part])
        loops()["integrate"](*columns, _table(penalty, most[part]), sums, most[part])
        out[:, part] = sums
    return MissedCosts(
        first, until, out[0], out[1], out[2], out[3], None if penalty is None else out[4], most
    )


def _table(penalty: Penalty | None, most: IntArray) -> Array:
    """Return a penalty of 0, 1, ... missed changes; empty for none."""
    if penalty is None:
        return np.empty(0)
    return np.ascontiguousarray(penalty(np.arange(most.max(initial=0) + 1)), dtype=np.float64)


def expected_events(process: Changes, end: float) -> Array:
    """Return how many events of Poisson sources are expected."""
    if not isinstance(process, PoissonChanges):
        return np.zeros(len(process))
    epoch = max(int(np.searchsorted(process.edges, end, side="right")) - 1, 0)
    with np.errstate(over="ignore", invalid="ignore"):  # too many to sample: raises when they are
        length = max(end - process.edges[epoch], 0.0)
        return np.asarray(process.before[:, epoch] + process.rates[:, epoch] * length)


def parts_of(expected: Array) -> Iterator[slice]:
    """Yield slices of sources whose events are sampled at a time."""
    with np.errstate(over="ignore", invalid="ignore"):
        turn = np.floor(np.cumsum(expected + 1.0) / _TOGETHER)
        edges = [0, *(np.flatnonzero(np.diff(turn)) + 1).tolist(), len(expected)]
    for a, b in pairwise(edges):
        if b > a:
            yield slice(a, b)


def after(begin: Array, offsets: IntArray, times: Array) -> Events:
    """Return the events of each source after its beginning."""
    late = times > np.repeat(begin, np.diff(offsets))
    if late.all():
        return Events(offsets, times)
    return Events(np.concatenate([[0], np.cumsum(late)])[offsets], times[late])


Refreshes: TypeAlias = tuple[IntArray, Array]  # sources and times, source by source and then by time


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """When a replay begins, and from when until when sources count."""

    begin: float
    first: Array
    until: Array

    @property
    def span(self) -> Array:
        """Length of each source's window, shape (n,)."""
        return np.maximum(self.until - self.first, 0.0)

    def count(self, refreshes: Events) -> int:
        """Return the number of refreshes in the window."""
        inside = np.empty(len(self.first), dtype=np.int64)
        loops()["count_within"](*refreshes, self.first, np.array(self.until), inside)
        return int(np.sum(inside))


def window_of(world: World, begin: float, skip: float, end: npt.ArrayLike, horizon: float) -> Window:
    """Return a replay's window, if anything counts in it."""
    until = np.minimum(as_vector(end, len(world), "end"), horizon)
    first, start = np.maximum(world.start, begin + skip), float(np.min(world.start))
    if not (skip >= 0.0 and begin >= start and np.isfinite(until).all() and np.any(first < until)):
        raise SourceDataError(
            f"nothing is left to count from {begin + skip:g} to {float(np.max(until)):g} in a world from "
            f"{start:g} to {world.horizon:g}. Replay a schedule in a log or history that goes on "
            "after it began, or choose another skip, end or origin."
        )
    return Window(begin, first, until)


def is_measured(objective: Objective) -> bool:
    """Return whether known changes and crawls show what an objective costs."""
    return type(objective) in {*NAMED, ExpectedPenalty, SynchronizationCost}


def require_measured(objective: Objective | None) -> None:
    """Raise ObjectiveError if an objective cannot be measured in a replay."""
    if objective is not None and not is_measured(objective):
        raise ObjectiveError(
            f"{objective!r} cannot be measured. Pass an ExpectedPenalty or a SynchronizationCost, or none."
        )


def sources_of(events: Events) -> IntArray:
    """Return the source of each event."""
    return np.repeat(np.arange(len(events.firsts) - 1), np.diff(events.firsts))


def integrals(
    world: World, refreshes: Refreshes, window: Window, objective: Objective | None
) -> dict[str, Array]:
    """Return each cost integrated over the window, for unit importance."""
    return grouped_integrals(world, grouped(*refreshes, len(world)), window, objective)


def grouped_integrals(
    world: World, refreshes: Events, window: Window, objective: Objective | None
) -> dict[str, Array]:
    """Return what `integrals` does, of refreshes that are grouped."""
    penalty = None
    if isinstance(objective, ExpectedPenalty):
        of_number = objective.penalty

        def penalty(missed: IntArray) -> Array:
            return of_number(missed.astype(np.float64))

    def costs(until: Array) -> dict[str, Array]:
        found: MissedCosts = grouped_costs(world, refreshes, until, begin=window.begin, penalty=penalty)
        own = {"binary": found.stale, "harmonic": found.harmonic, "delay": found.count, "age": found.age}
        if found.penalty is not None:
            own[repr(objective)] = found.penalty
        elif isinstance(objective, SynchronizationCost):
            curve = objective.curve(world.sources or Sources(np.ones(len(world))))
            own[repr(objective)] = _of_age(curve, refreshes, found.begin, until)
        return own

    require_measured(objective)
    whole = costs(np.maximum(window.until, window.begin))
    if bool(np.all(window.first <= np.maximum(world.start, window.begin))):
        return whole
    early = costs(np.clip(window.first, window.begin, np.maximum(window.until, window.begin)))
    return {name: whole[name] - early[name] for name in whole}


def _of_age(curve: Curve, refreshes: Events, begin: Array, until: Array) -> Array:
    """Return ∫c(age) of each source from a fresh copy."""
    source, time = sources_of(refreshes), refreshes.times
    inside = (time >= begin[source]) & (time <= until[source])
    source, time = source[inside], time[inside]
    before = np.concatenate([[0.0], time[:-1]])
    leading = np.ones(len(source), dtype=np.bool_)
    leading[1:] = source[1:] != source[:-1]
    before[leading] = begin[source[leading]]
    last = np.array(begin)
    last[source] = time  # the last assignment to a source stays
    n = len(begin)
    spent = np.bincount(source, weights=curve.take(source).gap_cost(time - before), minlength=n)
    return np.asarray(spent + curve.gap_cost(np.maximum(until - last, 0.0)), dtype=np.float64)
