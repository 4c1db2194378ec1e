"""`AutomataTree`: online polling policy by a tree of learning automata.

It polls a world and learns from what it finds.

It keeps no estimates: what it has learnt is the state of its automata, n − 1 small numbers. It follows
sources whose rates change, without notice, and needs no phase of exploration [1]_.

Cost: 0.5-2 µs a poll in batches of a sixteenth of the sources; simulated sources without a `World`
(`freshopt.automata.SimulatedSources`) take 0.4 µs, one poll at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from freshopt import automata
from freshopt.automata import Feedback, Polling, Update
from freshopt.automata.polls import REACH
from freshopt.automata.settings import check_gain, check_together
from freshopt.automata.twofold import check_resolution
from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import SourceDataError, expect_settings, one_of
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.online.learner import Course, RoundLearner
from freshopt.online.poll_batches import Intervals, TreePolls
from freshopt.online.rate_evaluation import Truth
from freshopt.online.runs import Journal, State
from freshopt.simulation import Crawler
from freshopt.solvers.uniform import Uniform
from freshopt.solving import solve
from freshopt.units import check_horizon

# Largest number of polls of a round: their times take 0.8 GB.
MOST_POLLS = 1e8
# Polls of a batch, unless a sixteenth of the sources is more: 512 sources learn as well as with batches of
# one.
SHORT = 32


@dataclass(frozen=True, slots=True)
class AutomataTree(RoundLearner):
    """Poll by a tree of twofold automata.

    Of the problem, bandwidth and importances are used; its objective only values the rates, and without the
    truth values are the weighted news found per time unit. The history has columns ``found`` (share of the
    polls that found news) and ``probes``. A problem with bounds, limits, costs or signals is refused.

    Parameters
    ----------
    feedback : Feedback
        What a poll tells the automata; it decides what they optimise (`freshopt.automata.settings`).
        ``NEWS`` is as published. Weighted periodic freshness takes ``PROBE``, under Poisson refreshes
        ``NEWS_THEN_NONE``; both want ``update=Update.REWARD_INACTION``.
    polling : Polling
        How shares become polls; feedback on two polls in a row wants ``RANDOM``.
    update : Update
    resolution : int
        States of each automaton.
    gain : float
        As in `automata.AutomataTree.simulate`.
    probing : float
        Share of the poll intervals in which a probe is planned, of which half come before the next poll:
        probes take half of it of the polls.
    rounds : int
        Rows of the history.
    batch : int, optional
        Polls asked for at once. Default: 32, or a sixteenth of the sources if that is more.
    seed : int

    Notes
    -----
    Where most polls find nothing, penalties are mostly noise: there ``update=Update.REWARD_INACTION`` with a
    gain of 5 finds more.

    [1]_ compares with LAKG, an earlier scheme. Neither [1]_ nor the paper on web polling that uses it says
    how LAKG moves; it cannot be rebuilt from them and is not here. Of the other policies of that comparison,
    `FixedPolling` is Uniform or Optimal by the solver that it is given; Proportional and Estimator poll in
    proportion to the probability of an update, not to the change rate as `solvers.Proportional` does.

    References
    ----------
    .. [1] Granmo & Oommen, "Solving stochastic nonlinear resource allocation problems using a hierarchy of
       twofold resource allocation automata", IEEE Transactions on Computers 59(4), 2010,
       doi:10.1109/TC.2009.189.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 0.3, 0.6, 1.0])
    >>> problem = fo.Problem(fo.problems.PollingKnapsack(), sources, bandwidth=1.0)
    >>> history = AutomataTree(seed=1).run(fo.World.poisson(sources, seed=1), problem, 20_000.0)
    >>> bool(history.shortfall[-20:].mean() < 0.02 * history.best[0]), int(history.spent.sum())
    (True, 20000)
    """

    feedback: Feedback = Feedback.NEWS
    polling: Polling = Polling.CREDIT
    update: Update = Update.REWARD_PENALTY
    resolution: int = 500
    gain: float = 1.0
    probing: float = 0.1
    rounds: int = 100
    batch: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise if settings are out of range or incompatible.

        Penalties need a binary feedback, and numbers are ≥ 1.
        """
        expect_settings(self)
        one_of(self.polling, tuple(Polling), "polling")
        check_together(self.feedback, self.update)
        if self.feedback is Feedback.COST:
            raise SourceDataError(
                f"feedback is {self.feedback!r}, but costs are learnt from simulated sources only. "
                "Pass PROBE or NEWS_THEN_NONE."
            )
        check_resolution(self.resolution)
        check_gain(self.gain, self.probing)
        for key in ("rounds", "batch"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise SourceDataError(f"{key} is {value!r}. Pass a whole number >= 1.")

    def _course(self, crawler: Crawler, problem: Problem, horizon: float, truth: Problem | None) -> Course:
        require_plain(problem, type(self).__name__)
        tree = automata.AutomataTree(
            len(problem.sources), self.resolution, polling=self.polling, update=self.update, seed=self.seed
        )
        return tree_course(self, tree, crawler, problem, horizon, Truth.of(problem, crawler, truth))


def tree_course(
    settings: AutomataTree,
    tree: automata.AutomataTree,
    crawler: Crawler,
    problem: Problem,
    horizon: float,
    truth: Truth | None,
    *,
    learns: bool = True,
) -> Course:
    """Return the rounds in which a tree of automata polls."""
    importance, n = problem.sources.importance, len(problem.sources)
    probes_per_poll = settings.probing / REACH if settings.feedback is Feedback.PROBE else 0.0
    horizon = check_horizon(horizon)
    wanted = problem.bandwidth * horizon / settings.rounds / (1.0 + probes_per_poll) + 1e-9
    if wanted > MOST_POLLS:
        raise SourceDataError(
            f"horizon {horizon:g} has {wanted:.3g} polls in each of {settings.rounds} rounds, and at most "
            f"{MOST_POLLS:g} are planned at once. Pass more rounds, or a horizon of at most "
            f"{horizon / wanted * MOST_POLLS:.3g}."
        )
    polls = int(wanted)
    if polls < 1:
        need = settings.rounds * (1.0 + probes_per_poll) / problem.bandwidth
        raise SourceDataError(
            f"horizon is {horizon:g}, too short for a poll in each of {settings.rounds} rounds. Pass at "
            f"least {need:g}, or fewer rounds."
        )
    length = horizon / settings.rounds
    origin = float(getattr(crawler, "clock", 0.0))
    batch = settings.batch or max(SHORT, n // 16)
    asked = TreePolls(
        crawler, tree, importance, settings.feedback, settings.gain, settings.probing, length / polls
    )

    def play(state: State, number: int, journal: Journal) -> State:
        restore(tree, state)
        intervals, rng = Intervals.of(state), np.random.default_rng([settings.seed, number])
        rates = tree.shares() * (polls / length)
        begin, end = origin + number * length, origin + (number + 1) * length
        time = asked.times(begin, end, polls, rng)
        found, worth, probes = 0, 0.0, 0
        for first in range(0, polls, batch):
            done = asked.play(intervals, time[first : first + batch], rng)
            if learns:
                tree.learn(done.source, done.value)
            found += int(np.count_nonzero(done.news))
            worth += float(importance[done.source] @ done.news)
            probes += done.probes
        journal.add(
            end - origin,
            rates,
            value=worth / length if truth is None else truth.value(begin, rates),
            best=None if truth is None else truth.best(begin),
            spent=polls + probes,
            allowed=problem.bandwidth * length,
            found=found / polls,
            probes=probes,
        )
        return state_of(tree, intervals)

    def final(last: State) -> Array:
        restore(tree, last)
        return tree.shares() * (polls / length)

    start = state_of(tree, Intervals.first(n))
    return Course(start, play, settings.rounds, truth is not None, final, None if truth else "maximise")


def restore(tree: automata.AutomataTree, state: State) -> None:
    """Restore a tree from the arrays of `state_of`."""
    tree.restore({key[5:]: column for key, column in state.items() if key.startswith("tree ")})


def state_of(tree: automata.AutomataTree, intervals: Intervals) -> State:
    """Return tree and intervals as arrays by name."""
    arrays = {f"tree {key}": column for key, column in tree.checkpoint().items()}
    return {**arrays, **intervals._asdict()}


def require_plain(problem: Problem, learner: str) -> None:
    """Raise if a tree cannot keep the problem's constraints."""
    sources = problem.sources
    reasons = {
        "bounds on rates": bool(np.any(sources.min_rate > 0.0)) or bool(np.any(sources.max_rate < np.inf)),
        "host limits": len(problem.hosts) > 0,
        "refresh costs other than 1": bool(np.any(sources.refresh_cost != 1.0)),
        "signalled sources": bool(np.any(sources.signalled)),
    }
    for reason, there in reasons.items():
        if there:
            raise SourceDataError(
                f"{learner} does not apply: the problem has {reason}. Pass sources and a problem without."
            )


@dataclass(frozen=True, slots=True)
class FixedPolling(RoundLearner):
    """Poll at fixed rates from a solver.

    They are those for the problem as it is given, and never change.

    Parameters
    ----------
    solver : Solver, optional
        ``Uniform()`` by default. ``Proportional()`` for rates proportional to the change rates, ``Auto()``
        for the best ones.
    polling : Polling
    rounds : int
        Rows of the history.
    seed : int

    Notes
    -----
    The policies Uniform and Optimal of [1]_, the latter with ``Auto()``; it knows the true change rates: pass
    the problem with these. Their Proportional polls in proportion to the probability u of an update in a
    slot. ``Proportional()`` is not that policy: its rates are proportional to the change rates −log(1 − u),
    which on a `PollingKnapsack` of equal importances is Optimal.

    References
    ----------
    .. [1] Granmo & Oommen, "Solving stochastic nonlinear resource allocation problems using a hierarchy of
       twofold resource allocation automata", IEEE Transactions on Computers 59(4), 2010,
       doi:10.1109/TC.2009.189.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 0.3, 0.6, 1.0])
    >>> problem = fo.Problem(fo.problems.PollingKnapsack(), sources, bandwidth=1.0)
    >>> world = fo.World.poisson(sources, seed=1)
    >>> history = FixedPolling(fo.solvers.Auto()).run(world, problem, 10_000.0)
    >>> round(float(history.shortfall[-1]), 9), round(float(history.extra["found"].mean()), 2)
    (0.0, 0.83)
    """

    solver: Solver = field(default_factory=Uniform)
    polling: Polling = Polling.CREDIT
    rounds: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        expect_settings(self)
        AutomataTree(polling=self.polling, rounds=self.rounds)

    def _course(self, crawler: Crawler, problem: Problem, horizon: float, truth: Problem | None) -> Course:
        require_plain(problem, type(self).__name__)
        rates = solve(problem, self.solver).rates
        tree = automata.AutomataTree.from_shares(rates, polling=self.polling, seed=self.seed)
        settings = AutomataTree(polling=self.polling, rounds=self.rounds, seed=self.seed)
        known = Truth.of(problem, crawler, truth)
        return tree_course(settings, tree, crawler, problem, horizon, known, learns=False)
