"""Window of a replay, and integrals of costs over it.

Cost: that of `freshopt.simulation.staleness_integrals`, twice if the window begins later than the refreshes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.compiled import backend
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.cost_curve import Curve
from freshopt.modelling.objective import Objective
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray, as_vector
from freshopt.problems.expected_penalty import ExpectedPenalty
from freshopt.problems.synchronization_cost import SynchronizationCost
from freshopt.simulation.change_columns import Grouped
from freshopt.simulation.change_processes import loops
from freshopt.simulation.replay_result import NAMED
from freshopt.simulation.staleness_integrals import MissedCosts, grouped, grouped_costs
from freshopt.simulation.world import World

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

    def count(self, refreshes: Grouped) -> int:
        """Return the number of refreshes in the window."""
        firsts, times = refreshes
        if backend.compiled():
            inside = np.empty(len(self.first), dtype=np.int64)
            loops()["count_within"](firsts, times, self.first, np.array(self.until), inside)
            return int(np.sum(inside))
        source = sources_of(refreshes)
        return int(np.count_nonzero((times >= self.first[source]) & (times <= self.until[source])))


def window_of(world: World, begin: float, skip: float, end: npt.ArrayLike, horizon: float) -> Window:
    """Return a replay's window, if anything counts in it."""
    until = np.minimum(as_vector(end, len(world), "end"), horizon)
    first, start = np.maximum(world.start, begin + skip), float(np.min(world.start))
    if not (skip >= 0.0 and begin >= start and np.isfinite(until).all() and np.any(first < until)):
        raise SourceDataError(
            f"nothing is left to count from {begin + skip:g} to {float(np.max(until)):g} in a world from "
            f"{start:g} to {world.horizon:g}. Choose another skip or end, or another origin of a schedule."
        )
    return Window(begin, first, until)


def require_measured(objective: Objective | None) -> None:
    """Raise ObjectiveError if an objective cannot be measured in a replay."""
    if objective is not None and type(objective) not in {*NAMED, ExpectedPenalty, SynchronizationCost}:
        raise ObjectiveError(
            f"{objective!r} cannot be measured. Pass an ExpectedPenalty or a SynchronizationCost, or none."
        )


def sources_of(refreshes: Grouped) -> IntArray:
    """Return the source of each refresh."""
    firsts = refreshes.firsts
    return np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))


def integrals(
    world: World, refreshes: Refreshes, window: Window, objective: Objective | None
) -> dict[str, Array]:
    """Return each cost integrated over the window, for unit importance."""
    return grouped_integrals(world, grouped(*refreshes, len(world)), window, objective)


def grouped_integrals(
    world: World, refreshes: Grouped, window: Window, objective: Objective | None
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


def _of_age(curve: Curve, refreshes: Grouped, begin: Array, until: Array) -> Array:
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
