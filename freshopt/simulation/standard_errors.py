"""`measured_runs`: costs of a replay, with standard errors.

Every replay goes this way, of schedules, of lifetimes and of rules with signals: it says what one sample of
its world brought each source (`Run`), integrals over time or sums over requests.

Runs are independent samples of everything that is random: changes, signals, refresh times. Where sources do
not influence each other, a few runs give each source's variance, and the variances of a weighted sum add up.
Where they share slots the runs' totals are compared instead.

A variance estimate has ν degrees of freedom, and z-scores then follow Student's t, of standard deviation
√(ν/(ν−2)). Of a sum Σ w·c over sources with sample variances v of R runs it is ν = (R−1)·(Σw²v)²/Σ(w²v)²
(Satterthwaite [1]_): three for one source in four runs (standard deviation 1.7), three hundred for a hundred
equal ones. Hence there are as many runs as make it `FREEDOM`.

Of a recorded history there is one run; its error is that of a mean over sources that are a sample of more
such ones.

References
----------
.. [1] Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics 2, 1946.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import LARGEST, Array, as_vector, as_whole, chunks
from freshopt.simulation.change_processes import Changes, PoissonChanges
from freshopt.simulation.replay_result import Measured, Replay
from freshopt.simulation.staleness_integrals import Window
from freshopt.simulation.world import World

# Fewest runs unless their number is given.
RUNS = 4
# Degrees of freedom of every standard error: z-scores then have a standard deviation of at most 1.054.
FREEDOM = 20
# Most runs that are asked for at once.
MOST_RUNS = 1_000_000
NOTHING: Mapping[str, Array] = MappingProxyType({})


class Run(NamedTuple):
    """What one sample of a world brought each source, for unit importance.

    Costs are integrals over its window, `seen` sums over its requests, of which there were `asked`; refreshes
    are counted in the window.
    """

    costs: Mapping[str, Array] = NOTHING
    refreshes: int = 0
    on_signal: int = 0
    seen: Mapping[str, Array] = NOTHING
    asked: Array | None = None


class CostSums:
    """Mean and squared deviations of a cost over runs, per source.

    `shared` is whether sources influence each other within a run.
    """

    def __init__(self, weight: Array, *, shared: bool = False) -> None:
        n = len(weight)
        self.weight, self.shared, self.runs = weight, shared, 0
        self.mean, self.squares, self.squares_of_total = np.zeros(n), np.zeros(n), 0.0

    def add(self, cost: Array) -> None:
        """Add the integrals of one more run."""
        self.runs += 1
        before = float(self.weight @ (cost - self.mean)) if self.shared else 0.0
        for part in chunks(len(cost)):
            step = cost[part] - self.mean[part]
            self.mean[part] += step / self.runs
            self.squares[part] += step * (cost[part] - self.mean[part])
        if self.shared:
            self.squares_of_total += before * float(self.weight @ (cost - self.mean))

    @property
    def variance(self) -> float:
        """Estimated variance of the weighted mean; NaN for a single run."""
        if self.runs < 2:
            return float("nan")
        squares = self.squares_of_total if self.shared else float(np.sum(self.weight**2 * self.squares))
        return squares / (self.runs - 1) / self.runs

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance; infinite if nothing varies."""
        own = self.weight**2 * self.squares
        whole = float(np.sum(own))
        if whole <= 0.0:
            return np.inf if self.runs > 1 else 0.0
        shares = 1.0 if self.shared else float(np.sum((own / whole) ** 2))
        return (self.runs - 1) / shares

    def ratio(self, span: Array, *, drawn: bool) -> tuple[float, float]:
        """Return the weighted cost over the weighted span, with its standard error.

        Where runs are samples, `drawn`, that is over runs; if not, or of a single run, over sources.
        """
        whole = float(self.weight @ span)
        if whole <= 0.0:
            raise SourceDataError("no source of importance > 0 is there in the window. Choose another.")
        mean = float(self.weight @ self.mean) / whole
        if drawn and self.runs > 1:
            return mean, float(np.sqrt(self.variance)) / whole
        return mean, error_over_sources(self.weight, self.mean, span)

    def measured(self, span: Array, *, drawn: bool) -> Measured:
        """Return the cost of all sources that are there; see `ratio`."""
        mean, error = self.ratio(span, drawn=drawn)
        total = float(np.sum(self.weight[span > 0.0]))
        return Measured(total * mean, total * error, mean)


class Runs(NamedTuple):
    """What all runs brought: means over time and over requests."""

    times: dict[str, Measured]
    seen: dict[str, Measured]
    per_time: dict[str, Array]
    per_request: dict[str, Array]
    everything: float
    refreshes: float
    on_signal: float
    requests: float
    runs: int

    def replay(self, begin: float, end: float, time_unit: str, *, over_requests: bool = False) -> Replay:
        """Return it as a replay, of means over time or requests."""
        times, seen = (
            {
                name: Measured(self.everything - one.value, one.error, 1.0 - one.mean)
                if name == "binary"
                else one
                for name, one in costs.items()
            }
            for costs in (self.times, self.seen)
        )
        counts = self.refreshes, self.on_signal, self.runs
        if over_requests:
            return Replay(seen, self.per_request, begin, end, time_unit, *counts, self.requests, times)
        return Replay(times | seen, self.per_time, begin, end, time_unit, *counts)


def measured_runs(
    one: Callable[[int], Run],
    weight: Array,
    window: Window,
    *,
    drawn: bool,
    wanted: int | None,
    each_request: Array | None = None,
    shared: bool = False,
) -> Runs:
    """Return what as many runs bring as are wanted, or needed.

    `drawn` says whether they are samples of something random, `each_request` what a request of each source
    counts, by default 1.
    """
    each = np.ones(len(weight)) if each_request is None else each_request
    times: dict[str, CostSums] = {}
    seen: dict[str, CostSums] = {}
    first: dict[str, float] = {}
    number = CostSums(each)
    run = refreshes = on_signal = 0
    while not enough_runs([*times.values(), *seen.values()], run, wanted):
        found = one(run)
        refreshes, on_signal = refreshes + found.refreshes, on_signal + found.on_signal
        for name, cost in found.costs.items():
            times.setdefault(name, CostSums(weight, shared=shared)).add(cost)
        if found.asked is not None:
            number.add(found.asked)
            for name, cost in found.seen.items():
                # Relative to the first run's mean: how many requests a source has then adds no variance.
                mean = first.setdefault(name, _mean(cost, number.mean, each))
                seen.setdefault(name, CostSums(each)).add(cost - mean * found.asked)
        run += 1
    everything, met = float(np.sum(weight[window.span > 0.0])), {}
    for name, sums in seen.items():
        more, error = sums.ratio(number.mean, drawn=drawn)
        met[name] = Measured(everything * (first[name] + more), everything * error, first[name] + more)
    there = np.where(window.span > 0.0, window.span, np.nan)
    asked = np.where(number.mean > 0.0, number.mean, np.nan)
    return Runs(
        {name: sums.measured(window.span, drawn=drawn) for name, sums in times.items()},
        met,
        {name: sums.mean / there for name, sums in times.items()},
        {name: sums.mean / asked + first[name] for name, sums in seen.items()},
        everything,
        refreshes / run,
        on_signal / run,
        float(np.sum(number.mean)),
        run,
    )


def _mean(cost: Array, asked: Array, weight: Array) -> float:
    """Return the weighted mean over requests, of which there must be some."""
    whole = float(weight @ asked)
    if whole <= 0.0:
        raise SourceDataError("there are no requests in the window. Choose a later end.")
    return float(weight @ cost) / whole


def drawn_world(world: World, run: int) -> World:
    """Return the world, or an independent sample: the next seeds."""

    def sampled(process: Changes | None) -> Changes | None:
        if run == 0 or not isinstance(process, PoissonChanges):
            return process
        return replace(process, seed=(process.seed + run) % 2**64)

    changes = sampled(world.changes)
    return world if changes is None else replace(world, changes=changes, requests=sampled(world.requests))


def runs_wanted(world: World, runs: int | None) -> tuple[bool, int | None]:
    """Return whether a world is drawn, and how many runs are wanted."""
    drawn = isinstance(world.changes, PoissonChanges) or isinstance(world.requests, PoissonChanges)
    if runs is None:
        return drawn, None if drawn else 1
    wanted = as_whole(runs, "runs", 1, MOST_RUNS)
    if wanted > 1 and not drawn:
        raise SourceDataError(f"runs is {runs}. Pass 1; a recorded history happened once.")
    return drawn, wanted


def weights_of(importance: npt.ArrayLike, n: int) -> Array:
    """Return importances as numbers, some of them > 0."""
    weight = as_vector(importance, n, "importance")
    if not bool(np.all((weight >= 0.0) & (weight <= LARGEST))) or not np.any(weight > 0.0):
        raise SourceDataError(f"importance must be numbers in 0..{LARGEST:g}, not all 0. Correct them.")
    return weight


def error_over_sources(weight: Array, cost: Array, span: Array) -> float:
    """Return the standard error of Σw·cost/Σw·span for a sample of independent sources.

    NaN if there is only one.

    Examples
    --------
    >>> error_over_sources(np.ones(2), np.array([1.0, 3.0]), np.ones(2))
    1.0
    """
    there = span > 0.0
    n, whole = int(np.count_nonzero(there)), float(weight @ span)
    if n < 2:
        return float("nan")
    off = (weight * (cost - float(weight @ cost) / whole * span))[there]
    return float(np.sqrt(n / (n - 1) * np.sum(off**2))) / whole


def enough_runs(sums: Iterable[CostSums], run: int, wanted: int | None) -> bool:
    """Return whether so many runs were wanted, or suffice for all errors."""
    if wanted is not None:
        return run >= wanted
    return run > FREEDOM or (run >= RUNS and all(found.freedom >= FREEDOM for found in sums))
