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

Cost: 0.1 µs a refresh, compiled; changes of a Poisson world are drawn on the way and not kept. In NumPy they
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
from freshopt.errors import SourceDataError, expect
from freshopt.numerics.arrays import Array, IntArray, as_number, as_numbers, as_vector
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.simulation.change_columns import Grouped, Histories
from freshopt.simulation.change_processes import Changes, PoissonChanges, loops
from freshopt.simulation.world import World

# C(counts of missed changes), vectorised.
Penalty: TypeAlias = Callable[[IntArray], npt.ArrayLike]
# Changes collected at a time: 32 MB.
_TOGETHER = 4_000_000.0


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
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
        """Return means, never arrays."""
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


def grouped(source: IntArray, time: Array, n: int) -> Grouped:
    """Return refreshes in any order source by source, increasing in each."""
    firsts = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(source, minlength=n), out=firsts[1:])
    if ((source[1:] > source[:-1]) | ((source[1:] == source[:-1]) & (time[1:] >= time[:-1]))).all():
        return Grouped(firsts, time)
    if not (time[1:] >= time[:-1]).all():
        order = np.argsort(time)
        source, time = source[order], time[order]
    if not backend.compiled():
        return Grouped(firsts, time[np.argsort(source, kind="stable")])
    out = np.empty(len(time))
    loops()["group"](source, time, firsts[:-1].copy(), out)
    return Grouped(firsts, out)


def grouped_costs(
    world: World,
    refreshes: Grouped,
    until: Array,
    *,
    begin: float,
    penalty: Penalty | None = None,
) -> MissedCosts:
    """Integrate costs between refreshes that are grouped and in order."""
    n, first, until = len(world), np.maximum(world.start, begin), np.array(until)
    out, most = np.zeros((5, n)), np.zeros(n, dtype=np.int64)
    drawn = backend.compiled() and isinstance(world.changes, PoissonChanges)
    integrate = _integrate_drawn if drawn else _integrate_collected
    integrate(world, refreshes, first, until, penalty, out, most)
    return MissedCosts(
        first, until, out[0], out[1], out[2], out[3], None if penalty is None else out[4], most
    )


def _integrate_drawn(
    world: World,
    refreshes: Grouped,
    first: Array,
    until: Array,
    penalty: Penalty | None,
    out: Array,
    most: IntArray,
) -> None:
    """Integrate while changes of a Poisson world are drawn; none is kept."""
    changes = world.changes
    if not isinstance(changes, PoissonChanges):
        raise TypeError(f"changes of type {type(changes).__name__} are not drawn. Collect them.")
    for part in parts_of(expected_events(changes, float(np.max(until)))):
        changes.require_few(np.zeros(1), np.arange(part.start, part.stop), float(np.max(until)), np.sum)
    run, columns = loops()["integrate_drawn"], (*refreshes, first, until, changes.tables())
    if penalty is not None:
        run(*columns, np.empty(0), out, most)
    run(*columns, _table(penalty, most), out, most)


def _integrate_collected(
    world: World,
    refreshes: Grouped,
    first: Array,
    until: Array,
    penalty: Penalty | None,
    out: Array,
    most: IntArray,
) -> None:
    """Integrate between changes that are collected for some sources at a time."""
    latest = float(np.max(until))
    for part in parts_of(expected_events(world.changes, latest)):
        index = np.arange(part.start, part.stop)
        offsets, changes = after(first[part], *world.events(-np.inf, latest, index))
        firsts = refreshes.firsts[part.start : part.stop + 1]
        here = Histories(firsts, refreshes.times, offsets, changes, first[part], until[part])
        sums = np.zeros((5, part.stop - part.start))
        if penalty is not None:
            _integrate(here, np.empty(0), np.zeros_like(sums), most[part])
        _integrate(here, _table(penalty, most[part]), sums, most[part])
        out[:, part] = sums


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


def after(begin: Array, offsets: IntArray, times: Array) -> tuple[IntArray, Array]:
    """Return the events of each source after its beginning."""
    late = times > np.repeat(begin, np.diff(offsets))
    if late.all():
        return offsets, times
    return np.concatenate([[0], np.cumsum(late)])[offsets], times[late]


def _integrate(histories: Histories, penalty: Array, out: Array, most: IntArray) -> None:
    """Integrate the steps of every source."""
    if backend.compiled():
        loops()["integrate"](histories, penalty, out, most)
        return
    firsts, refreshes, offsets, changes, begin, end = histories
    at = np.flatnonzero(begin <= end)
    now, oldest = begin.copy(), np.zeros(len(begin))
    missed, harmonic = np.zeros(len(begin), dtype=np.int64), np.zeros(len(begin))
    owner = np.repeat(np.arange(len(begin)), np.diff(firsts))
    early = np.bincount(owner[refreshes[firsts[0] : firsts[-1]] < begin[owner]], minlength=len(begin))
    r, c = firsts[:-1] + early, offsets[:-1].copy()
    last_change, last_refresh = max(len(changes) - 1, 0), max(len(refreshes) - 1, 0)
    changes = changes if len(changes) else np.full(1, np.inf)
    refreshes = refreshes if len(refreshes) else np.full(1, np.inf)
    while len(at):
        change = np.where(c[at] < offsets[at + 1], changes[np.minimum(c[at], last_change)], np.inf)
        refresh = np.where(r[at] < firsts[at + 1], refreshes[np.minimum(r[at], last_refresh)], np.inf)
        to = np.minimum(np.minimum(change, refresh), end[at])
        span = to - now[at]
        behind = missed[at] > 0
        late, length = at[behind], span[behind]
        out[0, late] += length
        out[1, late] += harmonic[late] * length
        out[2, late] += missed[late] * length
        out[3, late] += 0.5 * (to[behind] - oldest[late] + (now[late] - oldest[late])) * length
        if len(penalty):
            out[4, late] += penalty[missed[late]] * length
        now[at] = to
        changing = (change <= refresh) & (change <= end[at])
        refreshing = ~changing & (refresh <= end[at])
        hit = at[changing]
        c[hit] += 1
        missed[hit] += 1
        harmonic[hit] += 1.0 / missed[hit]
        oldest[hit] = np.where(missed[hit] == 1, to[changing], oldest[hit])
        most[hit] = np.maximum(most[hit], missed[hit])
        hit = at[refreshing]
        r[hit] += 1
        missed[hit] = 0
        harmonic[hit] = 0.0
        at = at[changing | refreshing]
