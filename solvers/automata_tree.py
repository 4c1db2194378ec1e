"""Learning-automata tree, run against simulated sources of a known problem.

The tree of [1]_ hands out polls one after the other and learns from what each of them finds: it is told
neither the change rates nor the objective, only what a poll saw and, between polls, a probe. That it settles
near the optimum all the same is what running it here shows, and its certificate by how much it falls short.
`freshopt.automata.settings` derives which feedback makes it optimise which objective:

=====================================  ===================  ====================  =======
objective                              polling              feedback              weight
=====================================  ===================  ====================  =======
polling knapsack, materials            deadlines            news                  w
polling knapsack, polls                deadlines            cost                  w·a
the same, equal importances            deadlines            news                  1
binary freshness, harmonic staleness,  deadlines: periodic  cost                  w
delay, age, synchronization cost       at random: Poisson   cost                  w
=====================================  ===================  ====================  =======

Costs have no bound that could be declared for all of them: a reward is one in units of the mean reward so
far, and moves automata by that many steps. So units of time, importance and cost do not matter.

A source's `min_rate` is polled whatever the automata have learnt, and they share out the rest. At `max_rate`,
and for the sources of a host together at its limit, a poll's feedback goes no further up: more polls would
gain nothing. Bandwidth that bounds and limits keep from being used is not polled.

The answer is the mean of the shares over the second half of the run, which is better than the last of them,
for the automata never stand still; then it is scaled and clipped to keep all bounds, and what is cut off goes
to the sources that are below theirs.

Cost: 1-1.3 µs a poll by deadlines, 0.5 µs at random, from 500 to 30 000 sources, probes included; costs take
a tenth more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np

from freshopt import automata
from freshopt.automata import Cost, Feedback, Polling, ShareBounds, SimulatedSources, Update
from freshopt.automata.share_bounds import FREE
from freshopt.automata.tree import MOST_POLLS
from freshopt.automata.twofold import check_resolution
from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.errors import check_seed
from freshopt.first_order.bregman_step import bregman_step
from freshopt.first_order.budget_groups import Budgets, HostBudgets
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, IntArray, as_whole
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.age import Age
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.problems.later_than import LaterThan
from freshopt.problems.piecewise_linear_cost import PiecewiseLinearCost
from freshopt.problems.polling_knapsack import PollingKnapsack
from freshopt.problems.power_cost import PowerCost
from freshopt.problems.synchronization_cost import BinaryCost, SynchronizationCost

# So many samples of the shares in the second half of a run: the mean's error is then that of the run.
SAMPLES = 1000


# What a poll sees of a copy, by the objective or the cost of age that it is charged for.
SEEN: dict[type, Cost] = {
    HarmonicStaleness: Cost.HARMONIC,
    AccumulatedDelay: Cost.MISSED,
    Age: Cost.AGE,
    BinaryFreshness: Cost.STALE,
    BinaryCost: Cost.STALE,
    PowerCost: Cost.POWER,
    PiecewiseLinearCost: Cost.PIECES,
    LaterThan: Cost.PIECES,
}
# Shares are scaled up by this before they are clipped: bounds bind, and the bandwidth is used.
AMPLE = 1e30
# Gains of the first and of the second half of a run that learns from costs; the first falls in so many
# geometric steps. So a million polls of 64 sources over two decades had gaps of at most 0.6 % for every cost
# with a continuous marginal.
FIRST_GAIN, LAST_GAIN, STEPS = 1.0, 0.125, 8


@dataclass(frozen=True, slots=True)
class AutomataTree:
    """Tree of twofold automata that learns from polls alone.

    Parameters
    ----------
    polls : int
        Number of polls to simulate. The error falls with their root until the resolution limits it.
    seed : int
        Random seed of the changes and of the automata.
    resolution : int
        States of each automaton. More are more accurate in the end and slower to get there.

    Notes
    -----
    Its rates are those of a finite experiment: their status is inaccurate but for a loose tolerance, and a
    table of solvers judges them statistically. Rates are positive, also of sources that the optimum never
    refreshes. Unlike [1]_, weights are rewards of that size, every objective but the published one has
    feedback of its own, there are bounds and host limits, and the shares are averaged.

    References
    ----------
    .. [1] Granmo & Oommen, "Solving stochastic nonlinear resource allocation problems using a hierarchy of
       twofold resource allocation automata", IEEE Transactions on Computers 59(4), 2010,
       doi:10.1109/TC.2009.189.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.PollingKnapsack(), fo.Sources([0.1, 0.3, 0.6]), bandwidth=1.0)
    >>> solution = fo.solve(problem, AutomataTree(polls=200_000, seed=1))
    >>> solution.rates.round(1), solution.status.value
    (array([0.1, 0.3, 0.6]), 'inaccurate')
    >>> solution.certificate.relative_gap < 1e-2
    True
    """

    polls: int = 1_000_000
    seed: int = 0
    resolution: int = 500
    sampled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "polls", as_whole(self.polls, "polls", 1, MOST_POLLS))
        check_seed(self.seed)
        check_resolution(self.resolution)

    def supports(self, problem: Problem) -> str | None:
        """Return why the objective or the sources are unsupported, or None.

        A tree needs a feedback for the objective, and polls that all cost the same.
        """
        objective, sources = problem.objective, problem.sources
        if type(objective) is not PollingKnapsack and _seen(objective) is None:
            kind = getattr(objective, "cost", objective)
            return f"a poll shows nothing whose mean is the marginal of {type(kind).__name__}"
        if sources.failing is not None:
            return "a tree learns from polls that succeed, and fetches of some sources may fail"
        if objective.refresh is Refresh.ON_REQUEST:
            return "a tree polls at times of its own, and these copies are refreshed on request"
        if bool(np.any(sources.signalled)):
            return "a tree polls, and some sources announce their changes"
        if float(np.ptp(sources.refresh_cost)) > 0.0:
            return "polls take a slot each, and costs differ"
        if not np.isfinite(problem.bandwidth):
            return "polls are slots of the bandwidth, and there is none"
        if not float(np.max(sources.importance)) > 0.0:
            return "no source is of importance, so that there is nothing to learn"
        return None

    def replica(self, number: int, shorter: int = 1) -> Self:
        """Return the solver with another seed and a fraction of its polls."""
        return replace(self, seed=(self.seed + number) % 2**31, polls=max(1, self.polls // shorter))

    def enough(self, problem: Problem) -> bool:
        """Return whether a quarter of the polls can cross all states.

        An automaton takes at most a step a poll where rewards are of their mean size.
        """
        return self.polls >= 4 * self.resolution * len(problem.sources)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Run the tree and certify its mean shares.

        A price to start from is of no use and is ignored.
        """
        return certified_solution(self, problem, options, lambda problem, _: self._run(problem))

    def _run(self, problem: Problem) -> Answer:
        slots_per_time = _usable(problem)
        if float(np.sum(problem.lower)) >= (1.0 - FREE) * slots_per_time:
            return Answer(problem.lower, note="The bounds leave no choice, and nothing was polled.")
        experiment = _experiment(problem, slots_per_time)
        n, bounds = len(problem.sources), _bounds(problem, slots_per_time)
        tree = automata.AutomataTree(
            n,
            self.resolution,
            polling=experiment.polling,
            update=Update.REWARD_INACTION,
            seed=self.seed,
            bounds=bounds,
        )
        sources, feedback = experiment.sources, experiment.feedback
        last = LAST_GAIN if feedback is Feedback.COST else FIRST_GAIN
        half = self.polls // 2
        for k, gain in enumerate(np.geomspace(FIRST_GAIN, last, STEPS)):
            tree.simulate(sources, half * (k + 1) // STEPS - half * k // STEPS, feedback, gain=gain)
        left, samples, sum_of_shares = self.polls - half, 0, np.zeros(n)
        stride = max(1, left // SAMPLES, min(n, left))
        while left > 0:
            tree.simulate(sources, min(stride, left), feedback, gain=last)
            left -= stride
            sum_of_shares += tree.shares()
            samples += 1
        done = f"{self.polls:,} polls" + (f" and {sources.probes:,} probes" if sources.probes else "")
        rates = slots_per_time * (sum_of_shares / samples)
        if bounds is not None:
            rates = _within_bounds(problem, rates)
        return Answer(rates, iterations=self.polls, note=f"{done} were simulated.")


class Experiment(NamedTuple):
    """Polling discipline, feedback and simulated sources of a problem."""

    polling: Polling
    feedback: Feedback
    sources: SimulatedSources


def _usable(problem: Problem) -> float:
    """Return the polls per time unit that bandwidth and limits allow.

    Polls beyond them would teach nothing, and leave a host's sources with shares that no feedback has moved.
    """
    cost, hosts = float(problem.sources.refresh_cost[0]), problem.hosts
    most = np.bincount(hosts.codes, weights=problem.upper, minlength=len(hosts) + 1)
    most[: len(hosts)] = np.minimum(most[: len(hosts)], hosts.limits / cost)
    return min(problem.bandwidth / cost, float(np.sum(most)))


def _experiment(problem: Problem, slots_per_time: float) -> Experiment:
    """Return the experiment whose mean feedback is the problem's marginal."""
    objective, w = problem.objective, problem.sources.importance
    hazard = problem.sources.change_rate / slots_per_time
    deadlines = Polling.EARLIEST_DEADLINE
    seen = _seen(objective)
    if seen is not None:
        polling = deadlines if objective.refresh is Refresh.PERIODIC else Polling.RANDOM
        worth, curve = _curve(objective, problem, slots_per_time)
        return Experiment(polling, Feedback.COST, SimulatedSources(hazard, worth, cost=seen, curve=curve))
    by_polls = isinstance(objective, PollingKnapsack) and objective.form == "polls"
    if by_polls and float(np.ptp(w)) > 0.0:
        return Experiment(deadlines, Feedback.COST, SimulatedSources(hazard, w * hazard))
    return Experiment(deadlines, Feedback.NEWS, SimulatedSources(hazard, w))


def _seen(objective: Objective) -> Cost | None:
    """Return what a poll sees of the objective's cost, or None."""
    charged = objective.cost if type(objective) is SynchronizationCost else objective
    return SEEN.get(type(charged))


def _curve(objective: Objective, problem: Problem, slots_per_time: float) -> tuple[Array, Array | None]:
    """Return importances, to a common factor, and parameters of a known cost."""
    n, w = len(problem.sources), problem.sources.importance
    if isinstance(objective, LaterThan):
        lines = np.tile([0.0, 1.0, 0.0, 0.0], (n, 1))
        lines[:, 3] = -np.asarray(objective.age) * slots_per_time
        return w, lines
    if not isinstance(objective, SynchronizationCost):
        return w, None
    parameters = objective.curve(problem.sources).parameters
    if isinstance(objective.cost, PowerCost):
        a, e, reached = parameters[:3]
        # In logarithms, because scales may be powers beyond the range of numbers, and only ratios count.
        with np.errstate(divide="ignore"):
            worth = np.log(w) + np.log(a) - e * np.log(slots_per_time)
        in_slots = np.maximum(reached * slots_per_time, np.finfo(np.float64).tiny)
        return np.exp(worth - np.max(worth)), np.stack([e, in_slots], axis=1)
    if isinstance(objective.cost, PiecewiseLinearCost):
        lines = parameters[0]
        return w, np.concatenate([lines[:, 0], lines[:, 1] * slots_per_time], axis=1)
    return w, None


def _bounds(problem: Problem, slots_per_time: float) -> ShareBounds | None:
    """Return the bounds as shares of the polls, or None."""
    lower, upper, hosts = problem.lower, problem.upper, problem.hosts
    if not len(hosts) and not bool(np.any(lower > 0.0)) and bool(np.all(np.isinf(upper))):
        return None
    limits = hosts.limits / float(problem.sources.refresh_cost[0])
    return ShareBounds(
        lower / slots_per_time, upper / slots_per_time, np.array(hosts.codes), limits / slots_per_time
    )


def _within_bounds(problem: Problem, rates: Array) -> Array:
    """Return the rates, scaled and clipped, that keep all bounds.

    They are nearest in relative entropy among those that use the bandwidth, or all that the bounds allow.
    """
    cost = float(problem.sources.refresh_cost[0])
    hosts = HostBudgets.of(problem.hosts.codes, problem.hosts.limits) if len(problem.hosts) else None
    wanted = AMPLE * cost * np.maximum(rates, np.finfo(np.float64).tiny)
    lower, upper = cost * problem.lower, cost * problem.upper
    step = bregman_step(
        RelativeEntropy(), wanted, np.zeros(len(rates)), problem.bandwidth, lower, upper, 0.0, hosts
    )
    return np.clip(step.rates / cost, problem.lower, problem.upper)


@dataclass(frozen=True, slots=True)
class RelativeEntropy:
    """Mirror map of relative entropy, with dual φ'(r) = log r."""

    positive: bool = True

    def take(self, _: IntArray, /) -> RelativeEntropy:
        """Return the same mirror map."""
        return self

    def dual(self, rates: Array) -> Array:
        """Return the dual coordinate log r."""
        with np.errstate(divide="ignore"):
            return np.log(rates)

    def primal(self, dual: Array) -> Array:
        """Return the primal coordinate e^θ."""
        with np.errstate(over="ignore"):
            return np.exp(dual)

    def levels(self, behind: Array, budgets: Budgets) -> Array:
        """Return log(amount/Σ e^{−behind}), per group."""
        level: Array = np.log(budgets.amounts / budgets.totals(np.exp(-behind)))
        return level
