"""Learning-automata tree, run against simulated sources of a known problem.

The tree of [1]_ hands out polls one after the other and learns from what each of them finds: it is told
neither the change rates nor the objective, only whether a poll found news (or, between polls, whether a probe
did). That it settles near the optimum all the same is what running it here shows, and its certificate by how
much it falls short. `freshopt.automata.settings` derives which feedback makes it optimise which objective:

==============================  ===================  ====================  =======
objective                       polling              feedback              weight
==============================  ===================  ====================  =======
polling knapsack, materials     deadlines            news                  w
polling knapsack, polls         deadlines            probe                 w·a
the same, equal importances     deadlines            news                  1
binary freshness, periodic      deadlines            probe                 w
binary freshness, Poisson       at random            news and then none    w
==============================  ===================  ====================  =======

The answer is the mean of the shares over the second half of the run, which is better than the last of them:
the automata never stand still. Cost: 1-1.3 µs a poll by deadlines, 0.5 µs at random, from 500 to 30 000
sources, probes included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshopt import automata
from freshopt.automata import Feedback, Polling, SimulatedSources, Update
from freshopt.automata.twofold import check_resolution
from freshopt.certificates.solution import Answer, Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.errors import SourceDataError, check_seed
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.polling_knapsack import PollingKnapsack

# So many samples of the shares in the second half of a run: the mean's error is then that of the run.
SAMPLES = 1000


@dataclass(frozen=True, slots=True)
class AutomataTree:
    """Tree of twofold automata for polling knapsack and binary freshness.

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
    Its rates are those of a finite experiment: their status is inaccurate but for a loose tolerance, and in a
    table of solvers it is "sampled" and not held against the agreement. Rates are positive, also of sources
    that the optimum never refreshes. Unlike [1]_, weights are rewards of that size, the number of news under
    weights and freshness have feedback of their own, and the shares are averaged.

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
        """Raise SourceDataError unless there are polls and automaton states."""
        if isinstance(self.polls, bool) or not isinstance(self.polls, int) or not 1 <= self.polls < 2**62:
            raise SourceDataError(f"polls is {self.polls!r}. Pass a number of polls >= 1, such as 1_000_000.")
        check_seed(self.seed)
        check_resolution(self.resolution)

    def supports(self, problem: Problem) -> str | None:
        """Return why the objective or a constraint is unsupported, or None.

        A tree needs a feedback for the objective, and keeps no constraint but the bandwidth.
        """
        objective, sources = problem.objective, problem.sources
        if not isinstance(objective, BinaryFreshness | PollingKnapsack):
            return f"no feedback of a poll is the marginal of {type(objective).__name__}"
        if bool(np.any(sources.signalled)):
            return "a tree polls, and some sources announce their changes"
        if bool(np.any(problem.lower > 0.0)) or bool(np.any(problem.upper < np.inf)):
            return "a tree of automata keeps no bounds on rates"
        if len(problem.hosts.names):
            return "a tree of automata keeps no host limits"
        if float(np.ptp(sources.refresh_cost)) > 0.0:
            return "polls take a slot each, and costs differ"
        if not float(np.max(sources.importance)) > 0.0:
            return "no source is of importance, so that there is nothing to learn"
        return None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Run the tree and certify its mean shares.

        A price to start from is of no use and is ignored.
        """
        return certified_solution(self, problem, options, lambda problem, _: self._run(problem))

    def _run(self, problem: Problem) -> Answer:
        slots_per_time = problem.bandwidth / float(problem.sources.refresh_cost[0])
        hazard = problem.sources.change_rate / slots_per_time
        polling, feedback, weight = _experiment(problem, hazard)
        n = len(hazard)
        tree = automata.AutomataTree(
            n, self.resolution, polling=polling, update=Update.REWARD_INACTION, seed=self.seed
        )
        sources = SimulatedSources(hazard, weight)
        tree.simulate(sources, self.polls // 2, feedback)
        left, samples, sum_of_shares = self.polls - self.polls // 2, 0, np.zeros(n)
        stride = max(1, left // SAMPLES, min(n, left))
        while left > 0:
            tree.simulate(sources, min(stride, left), feedback)
            left -= stride
            sum_of_shares += tree.shares()
            samples += 1
        done = f"{self.polls:,} polls" + (f" and {sources.probes:,} probes" if sources.probes else "")
        rates = slots_per_time * (sum_of_shares / samples)
        return Answer(rates, iterations=self.polls, note=f"{done} were simulated.")


def _experiment(problem: Problem, hazard: Array) -> tuple[Polling, Feedback, Array]:
    """Return the problem's polling discipline, feedback and weights."""
    objective, w = problem.objective, problem.sources.importance
    if isinstance(objective, BinaryFreshness):
        if objective.refresh is Refresh.PERIODIC:
            return Polling.EARLIEST_DEADLINE, Feedback.PROBE, w
        return Polling.RANDOM, Feedback.NEWS_THEN_NONE, w
    by_polls = isinstance(objective, PollingKnapsack) and objective.form == "polls"
    if by_polls and float(np.ptp(w)) > 0.0:
        return Polling.EARLIEST_DEADLINE, Feedback.PROBE, w * hazard
    return Polling.EARLIEST_DEADLINE, Feedback.NEWS, w
