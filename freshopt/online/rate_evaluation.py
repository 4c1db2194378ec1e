"""Value of rates under other change rates or disciplines.

Other than they were chosen for.

`Truth`: oracle value of rates under the true parameters. It is known in simulations only. A Poisson world's
change rates take the place of those in the problem that the policy was given, at every moment that they
change; the best rates are then solved for, certified.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.modelling.objective import Objective, Refresh, value_at
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, total
from freshopt.online.learner import world_of
from freshopt.simulation import Crawler, World
from freshopt.simulation.change_processes import PoissonChanges
from freshopt.solvers.proportional import share
from freshopt.solving import solve

# Of equal rates, where an objective starves. Binary freshness learnt from a guess of one rate for all: a
# tenth leaves the least of what equal rates lose, of 0, .02, .05, .1, .2 and .4 (.095 and .035 in the mean of
# 16 worlds at a fifth of all changes and at as many refreshes as changes; without a floor .177 and .068).
FLOOR = 0.1


def with_rates(problem: Problem, objective: Objective, change_rate: Array, min_rate: Array) -> Problem:
    """Return a problem with new objective, change rates and bounds."""
    sources = problem.sources.with_change_rate(change_rate).with_bounds(min_rate, problem.sources.max_rate)
    return problem.restated(sources, objective=objective)


def is_bounded(problem: Problem) -> bool:
    """Return whether bounds or hosts limit rates beside the bandwidth."""
    bounds = np.any(problem.lower > 0.0) | np.any(np.isfinite(problem.upper))
    return len(problem.hosts) > 0 or bool(bounds)


def equal_rates(problem: Problem) -> Array:
    """Return one rate for all, within bandwidth, bounds and limits."""
    answer = None if problem.program or problem.couplings else share(problem, np.ones(len(problem.sources)))
    if answer is None or answer.rates is None:
        raise SourceDataError(
            "equal rates keep to bandwidth, bounds and host limits, and the problem has other constraints. "
            "Leave these out, or use LambdaLearnAndCrawl, which explores without equal rates."
        )
    return answer.rates


def require_floor(floor: float | None) -> None:
    """Raise unless a floor is a share, or None."""
    if floor is not None and not 0.0 <= floor <= 1.0:
        raise SourceDataError(f"floor is {floor}. Pass a share of the mean rate in 0..1.")


def floor_rates(problem: Problem, objective: Objective, floor: float | None) -> float | Array:
    """Return lower bounds that keep sources from being lost.

    They are shares of equal rates. None is `FLOOR` where the objective starves silent sources, as one whose
    marginal value at rate 0 is finite does, and 0 elsewhere; it leaves the bounds and limits of hosts room.
    """
    cost = problem.sources.refresh_cost
    if floor is not None:
        return floor * problem.bandwidth / total(cost)
    n = len(problem.sources)
    aimed = with_rates(problem, objective, problem.sources.change_rate, problem.sources.min_rate)
    if aimed.numerics is None:
        return 0.0
    with np.errstate(all="ignore"):
        starves = np.isfinite(aimed.numerics.marginal(np.zeros(n))) & ~problem.sources.signalled
    if not bool(np.any(starves)):
        return 0.0
    kept = cost * problem.lower
    equal = np.full(n, (problem.bandwidth - total(kept)) / total(cost))
    if len(problem.hosts):
        free, asked = (
            problem.hosts.limits - problem.hosts.totals(kept),
            problem.hosts.totals(cost * np.ones(n)),
        )
        equal = np.minimum(equal, problem.hosts.broadcast_to_sources(free / asked, np.inf))
    return np.where(starves, problem.lower + FLOOR * np.maximum(equal, 0.0), 0.0)


def value_under(problem: Problem, rates: Array, refresh: Refresh) -> float:
    """Return the value of silent sources' rates under a discipline."""
    objective, signalled = problem.objective, problem.sources.signalled
    if problem.numerics is None:
        return float("nan")
    costs = problem.numerics.cost(rates)
    if refresh is not objective.refresh:
        silent = np.flatnonzero(~signalled)
        other = dataclasses.replace(objective.take(silent), refresh=refresh)  # type: ignore[type-var]
        numerics = Problem(other, problem.sources.take(silent), LARGEST).numerics
        costs[silent] = np.nan if numerics is None else numerics.cost(rates[silent])
    return objective.value_from_cost(total(costs), problem.sources)


def achieved_rates(problem: Problem, rates: Array, estimated: Array) -> Array:
    """Return the rates that crawling achieves under the truth.

    If it keeps to its bandwidth.

    Signals come as often as sources change, and each is followed with the probability that was planned for
    the estimated change rates; silent sources share the remaining bandwidth.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([1.0, 2.0], signalled=[False, True])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.POISSON), sources, bandwidth=2.0)
    >>> achieved_rates(problem, np.array([1.5, 0.5]), np.array([1.0, 1.0]))
    array([1., 1.])
    """
    signalled, cost = problem.sources.signalled, problem.sources.refresh_cost
    if not signalled.any():
        return rates
    truth = problem.sources.change_rate
    followed = np.where(signalled, np.minimum(rates / estimated, 1.0) * truth, 0.0)
    silent = np.where(signalled, 0.0, rates)
    bandwidth, used, wanted = (total(cost * part) for part in (rates, followed, silent))
    if used > bandwidth:
        return followed * (bandwidth / used)
    return followed + (silent * ((bandwidth - used) / wanted) if wanted > 0.0 else silent)


@dataclass(slots=True, eq=False)
class Truth:
    """True problem behind a run, at each time."""

    problem: Problem
    world: World | None
    _epoch: int = -1
    _now: Problem = field(init=False)
    _best: float = field(init=False)

    @classmethod
    def of(cls, problem: Problem, world: World | Crawler, truth: Problem | None = None) -> Truth | None:
        """Return the truth behind a run, or None if unknown."""
        if truth is not None:
            return cls(truth, None)
        inside = world_of(world)
        return (
            None if inside is None or not isinstance(inside.changes, PoissonChanges) else cls(problem, inside)
        )

    def value(self, time: float, rates: Array) -> float:
        """Return the value of rates at a time, in the objective's sense."""
        return value_of(self._at(time), rates)

    def best(self, time: float) -> float:
        """Return the value of the best rates at a time."""
        self._at(time)
        return self._best

    def _at(self, time: float) -> Problem:
        """Return the problem that holds at a time."""
        epoch = 0
        if self.world is not None and isinstance(self.world.changes, PoissonChanges):
            epoch = max(int(np.searchsorted(self.world.changes.edges, time, side="right")) - 1, 0)
        if epoch != self._epoch:
            now = self.problem
            if self.world is not None:
                # A source that has stopped changing counts as one that hardly ever changes.
                now = now.with_change_rate(np.maximum(self.world.change_rate(time), SMALLEST))
            self._epoch, self._now, self._best = epoch, now, solve(now).value
        return self._now


def value_of(problem: Problem, rates: Array) -> float:
    """Return an objective's value at rates, in its own sense."""
    if problem.numerics is None:
        raise SourceDataError(f"the objective cannot be evaluated: {problem.unknown_atom}.")
    cost = total(problem.numerics.cost(rates))
    return value_at(problem.objective, problem.numerics, problem.sources, rates, cost)
