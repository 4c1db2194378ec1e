"""`AutomataTree`: online polling policy by a tree of learning automata.

It polls a world and learns from what it finds.

It keeps no estimates: what it has learnt is the state of its automata, n − 1 small numbers. It follows
sources whose rates change, without notice, and needs no phase of exploration [1]_.

Cost: 0.2 ms a batch, and 0.5-2 µs a poll in batches of a sixteenth of the sources; simulated sources without
a `World` (`freshopt.automata.SimulatedSources`) take 0.4 µs, one poll at a time.

The tree chooses one source after the other; a crawler is asked in batches. While a batch is under way nothing
is learnt; that costs little as long as it is short beside the automata's resolution, as each poll moves each
automaton by a state at most. Which feedback means what is derived in `freshopt.automata.settings`; here
intervals between polls are followed across batches: what the poll before had found, and for `Feedback.PROBE`
when the next probe is due and what it saw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from freshopt import automata
from freshopt.automata import Feedback, Polling, Update
from freshopt.automata.polls import REACH
from freshopt.automata.settings import check_gain, check_together, weights_of
from freshopt.automata.twofold import check_resolution
from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import SourceDataError, expect_settings, one_of
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.online.learner import Course, Journal, RoundLearner, State
from freshopt.online.rate_evaluation import Truth
from freshopt.simulation import Crawler
from freshopt.simulation.crawler import poll
from freshopt.solvers.uniform import Uniform
from freshopt.solving import solve
from freshopt.units import check_horizon

# Position of the last poll or probe of a source without any.
NEVER = -1


class Intervals(NamedTuple):
    """Of each source, the interval that is under way.

    ``bit``: whether the poll that began it found news, or NEVER. ``plan`` and ``reach``: when its probe is
    due (inf for none) and from which span that was drawn. ``seen``: whether the probe found the copy stale,
    or NEVER.
    """

    bit: IntArray
    plan: Array
    reach: Array
    seen: IntArray

    @classmethod
    def first(cls, n: int) -> Intervals:
        """Return the intervals before the first polls, not probed."""
        return cls(np.full(n, NEVER), np.full(n, np.inf), np.zeros(n), np.full(n, NEVER))

    @classmethod
    def of(cls, state: State) -> Intervals:
        """Return copies of those in a state."""
        return cls(*(state[key].copy() for key in cls._fields))


class Batch(NamedTuple):
    """Feedback of a batch of polls: sources, news, feedback, probes."""

    source: IntArray
    news: BoolArray
    value: Array
    probes: int


@dataclass(frozen=True, slots=True, eq=False)
class TreePolls:
    """Feedback rule of the polls of a tree.

    - `weight` (n,): Of the sources' importances, by `weights_of`.
    - `gain`, `probing`: As in `automata.AutomataTree.simulate`.
    - `slot`: Mean time between two polls.
    """

    crawler: Crawler
    tree: automata.AutomataTree
    weight: Array
    feedback: Feedback
    gain: float
    probing: float
    slot: float

    def times(self, begin: float, end: float, polls: int, rng: np.random.Generator) -> Array:
        """Return a round's times: slots, or those of a Poisson process."""
        if self.tree.polling is Polling.RANDOM:
            return np.sort(rng.uniform(begin, end, polls))
        return np.linspace(begin, end, polls + 1)[1:]

    def play(self, intervals: Intervals, time: Array, rng: np.random.Generator) -> Batch:
        """Poll at the given times, without learning, and return the feedback."""
        source = self.tree.choose(len(time))
        order = np.argsort(source, kind="stable")  # by source, then time
        at = source[order]
        first = np.append(True, at[1:] != at[:-1])
        last = np.append(first[1:], True)
        if self.feedback is Feedback.PROBE:
            return self._play_probed(intervals, source, time, order, first, last, rng)
        news = np.asarray(poll(self.crawler, source, time, np.zeros(1, dtype=np.bool_)), dtype=np.bool_)
        found = news[order]
        before = np.where(first, intervals.bit[at], np.roll(found, 1).astype(np.int64))
        intervals.bit[at[last]] = found[last]
        value = np.empty(len(time))
        value[order] = self._value(at, found, before, rng)
        return Batch(source, news, value, 0)

    def _value(self, at: IntArray, found: BoolArray, before: IntArray, rng: np.random.Generator) -> Array:
        """Return the feedback of polls of sources `at`, in `order`."""
        if self.feedback is Feedback.NEWS_THEN_NONE:
            share = self.tree.shares()[at]
            return np.where((before == 1) & ~found, self.gain / self.tree.n * self.weight[at] / share, 0.0)
        match self.feedback:
            case Feedback.NEWS:
                hit = found
            case Feedback.NEWS_TWICE:
                hit = found & (before == 1)
            case other:
                raise SourceDataError(
                    f"feedback is {other!r}, which batches of polls do not give. Pass NEWS."
                )
        if self.tree.update.on_penalty:
            return (hit & (rng.random(len(at)) < self.weight[at])).astype(np.float64)
        return np.where(hit, self.gain * self.weight[at], 0.0)

    def _play_probed(
        self,
        intervals: Intervals,
        source: IntArray,
        time: Array,
        order: IntArray,
        first: BoolArray,
        last: BoolArray,
        rng: np.random.Generator,
    ) -> Batch:
        at, when, m = source[order], time[order], len(time)
        reach = REACH * self.slot / self.tree.shares()[at]
        plan = np.where(rng.random(m) < self.probing, when + reach * rng.random(m), np.inf)
        # Of the interval that each poll ends: it began with the poll before, in this batch or an earlier one.
        ends_plan = np.where(first, intervals.plan[at], np.roll(plan, 1))
        ends_reach = np.where(first, intervals.reach[at], np.roll(reach, 1))
        ends_seen = np.where(first, intervals.seen[at], NEVER)
        inside = np.flatnonzero((ends_plan < when) & (ends_seen == NEVER))
        intervals.plan[at[last]], intervals.reach[at[last]] = plan[last], reach[last]
        intervals.seen[at[last]] = NEVER
        after = np.flatnonzero((intervals.plan <= time[-1]) & (intervals.seen == NEVER))
        who = np.concatenate([at[inside], after, source])
        moment = np.concatenate([ends_plan[inside], intervals.plan[after], time])
        keep = np.arange(len(who)) < len(inside) + len(after)
        turn = np.argsort(moment, kind="stable")
        answer = np.empty(len(who), dtype=np.bool_)
        answer[turn] = poll(self.crawler, who[turn], moment[turn], keep[turn])
        ends_seen[inside] = answer[: len(inside)]
        intervals.seen[after] = answer[len(inside) : len(inside) + len(after)]
        news = answer[len(inside) + len(after) :]
        found, value = news[order], np.empty(m)
        intervals.bit[at[last]] = found[last]
        worth = self.gain / self.tree.n * self.weight[at] * ends_reach / self.slot
        value[order] = np.where((ends_seen == 0) & found, worth, 0.0)
        return Batch(source, news, value, int(np.count_nonzero(keep)))


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
    weight = weights_of(importance, settings.feedback, tree.update)
    asked = TreePolls(
        crawler, tree, weight, settings.feedback, settings.gain, settings.probing, length / polls
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
