"""`AutomataTree`: online polling policy by a tree of learning automata.

It polls a world and learns from what it finds.

It keeps no estimates: what it has learnt is the state of its automata, n − 1 small numbers. It follows
sources whose rates change, without notice, and needs no phase of exploration [1]_.

Cost: 0.5-2 µs a poll in batches of a sixteenth of the sources; simulated sources without a `World`
(`freshopt.automata.SimulatedSources`) take 0.4 µs, one poll at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from freshopt import automata
from freshopt.automata import Feedback, Polling, Update
from freshopt.automata.polls import REACH
from freshopt.automata.settings import check_gain, check_together
from freshopt.automata.twofold import check_resolution
from freshopt.errors import SourceDataError, expect, expect_settings, one_of
from freshopt.modelling.problem import Problem
from freshopt.online.oracle import Truth
from freshopt.online.poll_batches import Intervals, TreePolls
from freshopt.online.run_history import RunHistory
from freshopt.online.runs import Journal, State, run_rounds, settings_of
from freshopt.simulation import Crawler, World
from freshopt.simulation.crawler import as_crawler
from freshopt.units import check_horizon

# Largest number of polls of a round: their times take 0.8 GB.
MOST_POLLS = 1e8
# Polls of a batch, unless a sixteenth of the sources is more: 512 sources learn as well as with batches of
# one.
SHORT = 32


@dataclass(frozen=True, slots=True)
class AutomataTree:
    """Poll by a tree of twofold automata.

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

    def run(
        self,
        world: World | Crawler,
        problem: Problem,
        horizon: float,
        *,
        truth: Problem | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> RunHistory:
        """Poll until the horizon; see `Learner.run`.

        Of the problem, bandwidth and importances are used; its objective only values the rates, and without
        the truth values are the weighted news found per time unit. The history has columns ``found`` (share
        of the polls that found news) and ``probes``.

        Raises
        ------
        SourceDataError
            If the problem has bounds, limits, costs or signals, or the horizon is too short.
        """
        require_plain(problem, type(self).__name__)
        n = len(problem.sources)
        tree = automata.AutomataTree(
            n, self.resolution, polling=self.polling, update=self.update, seed=self.seed
        )
        return run_tree(self, tree, world, problem, horizon, truth, checkpoint, progress)


def run_tree(
    learner: AutomataTree,
    tree: automata.AutomataTree,
    world: World | Crawler,
    problem: Problem,
    horizon: float,
    truth: Problem | None,
    checkpoint: str | Path | None,
    progress: bool,
    *,
    name: object = None,
) -> RunHistory:
    """Run the rounds of a tree of automata.

    If another learner's `name` is given, the tree stays as it is.
    """
    crawler, known = as_crawler(world), Truth.of(problem, world, truth)
    shown = learner if name is None else name
    importance, n = problem.sources.importance, len(problem.sources)
    probes_per_poll = learner.probing / REACH if learner.feedback is Feedback.PROBE else 0.0
    horizon = check_horizon(horizon)
    wanted = problem.bandwidth * horizon / learner.rounds / (1.0 + probes_per_poll) + 1e-9
    if wanted > MOST_POLLS:
        raise SourceDataError(
            f"horizon {horizon:g} has {wanted:.3g} polls in each of {learner.rounds} rounds, and at most "
            f"{MOST_POLLS:g} are planned at once. Pass more rounds, or a horizon of at most "
            f"{horizon / wanted * MOST_POLLS:.3g}."
        )
    polls = int(wanted)
    if polls < 1:
        need = learner.rounds * (1.0 + probes_per_poll) / problem.bandwidth
        raise SourceDataError(
            f"horizon is {horizon:g}, too short for a poll in each of {learner.rounds} rounds. Pass at least "
            f"{need:g}, or fewer rounds."
        )
    length = horizon / learner.rounds
    origin = float(getattr(crawler, "clock", 0.0))
    batch = learner.batch or max(SHORT, n // 16)
    asked = TreePolls.of(
        crawler, tree, importance, learner.feedback, learner.gain, learner.probing, length / polls
    )
    sense, unit = problem.objective.sense, problem.sources.time_unit
    journal = Journal(repr(shown), sense if known else "maximise", exact=known is not None, time_unit=unit)

    def next_round(state: State, number: int) -> State:
        tree.restore({key[5:]: column for key, column in state.items() if key.startswith("tree ")})
        intervals, rng = Intervals.of(state), np.random.default_rng([learner.seed, number])
        rates = tree.shares() * (polls / length)
        begin, end = origin + number * length, origin + (number + 1) * length
        time = asked.times(begin, end, polls, rng)
        found, worth, probes = 0, 0.0, 0
        for first in range(0, polls, batch):
            part = time[first : first + batch]
            done = asked.play(intervals, part, rng)
            if name is None:
                tree.learn(done.source, done.value)
            found += int(np.count_nonzero(done.news))
            worth += float(importance[done.source] @ done.news)
            probes += done.probes
        best = {} if known is None else {"best": known.best(begin)}
        value = worth / length if known is None else known.value(begin, rates)
        journal.add(
            end - origin,
            rates,
            value=value,
            spent=polls + probes,
            allowed=problem.bandwidth * length,
            found=found / polls,
            probes=probes,
            **best,
        )
        return state_of(tree, intervals)

    last = run_rounds(
        state_of(tree, Intervals.first(n)),
        next_round,
        learner.rounds,
        journal,
        crawler=crawler,
        checkpoint=checkpoint,
        settings=settings_of(shown, problem, world),
        progress=progress,
    )
    tree.restore({key[5:]: column for key, column in last.items() if key.startswith("tree ")})
    return journal.history(tree.shares() * (polls / length))


def state_of(tree: automata.AutomataTree, intervals: Intervals) -> State:
    """Return tree and intervals as arrays by name."""
    arrays = {f"tree {key}": column for key, column in tree.checkpoint().items()}
    return {**arrays, **intervals._asdict()}


def require_plain(problem: Problem, learner: str) -> None:
    """Raise if a tree cannot keep the problem's constraints."""
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
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
