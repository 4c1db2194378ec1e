"""Stochastic gradients from costs observed at polls.

What the synchronous and asynchronous policies share: the problem that they step in, and their run.

A copy's cost rate at age τ is a random c(τ) that is observed only when the source is polled. Under periodic
refreshes at rate r the mean cost is J(r) = r∫₀^{1/r} c̄, and its slope −(c̄(1/r) − J(r))/r can be sampled
without knowing c̄: a refresh at the end of an interval observes c(1/r), a probe at a uniform point of it
a cost whose mean is J(r). So with probability ε an interval is probed, and then

    ĝ = (cost at the probe − cost at the refresh) / (ε·r),

otherwise ĝ = 0: unbiased, [1]_ Lemma 2. Probes take the share ε/(1+ε) of the bandwidth, which leaves
B/(1+ε) to refreshes and r_max/(1+ε) to each source.

References
----------
.. [1] Kolobov et al., "Online Learning for Active Cache Synchronization", ICML 2020.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, expect, expect_settings
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, BoolArray, IntArray
from freshopt.numerics.random_streams import uniforms
from freshopt.online.learner import Course, Journal, RoundLearner, State
from freshopt.online.rate_evaluation import Truth
from freshopt.simulation import Crawler
from freshopt.simulation.crawler import poll
from freshopt.solvers.mirror_descent import MirrorDescent
from freshopt.units import check_horizon

# Largest numbers of rounds, which take an hour or more, and of polls of a round, whose columns take 10 GB.
MOST_ROUNDS, MOST_POLLS = 1e7, 1e8
# Share of an interval by which rounding may move its end across the end of a round.
SLACK = 1e-9
# Random numbers per interval: whether it is probed, where, and whether an update ends it.
_DRAWS = 3


class Descent(Protocol):
    """Solver whose exact step is used."""

    def step(
        self,
        rates: npt.ArrayLike,
        gradient: npt.ArrayLike,
        bandwidth: float,
        min_rate: npt.ArrayLike,
        max_rate: npt.ArrayLike,
        learning_rate: float,
    ) -> Array:
        """Return the rates after a step, under Σr ≤ bandwidth."""
        ...


class Spent(NamedTuple):
    """Polls of a round: paid by the bandwidth, probes, resets."""

    spent: int
    probes: int
    resets: int


class Polled(NamedTuple):
    """Costs observed by the polls of some intervals, NaN without one."""

    probed: Array
    refreshed: Array


@dataclass(frozen=True, slots=True, eq=False)
class Synchronization:
    """Checked problem with bandwidth for exploration.

    - `exploration`: ε.
    - `weight` (n,): Importances that add up to 1: gradients are those of the weighted mean cost.
    - `bandwidth`: B/(1+ε), what refreshes may use.
    - `upper` (n,): max_rate/(1+ε).
    """

    problem: Problem
    exploration: float
    seed: int
    weight: Array
    bandwidth: float
    upper: Array

    @classmethod
    def of(cls, problem: Problem, learner: str, exploration: float, seed: int) -> Synchronization:
        """Check that the problem is one of synchronization."""
        expect(problem, Problem, "problem", "Pass a freshopt.Problem")
        sources = problem.sources
        reasons = {
            "has host limits": len(problem.hosts) > 0,
            "has refresh costs other than 1": bool(np.any(sources.refresh_cost != 1.0)),
            "has signalled sources": bool(np.any(sources.signalled)),
            "has sources without a min_rate, which may never be looked at": bool(
                np.any(problem.lower <= 0.0)
            ),
            "has no importance > 0": not np.sum(sources.importance) > 0.0,
            f"predicts the cost of {problem.objective.refresh.value} refreshes, and these are periodic": (
                problem.objective.refresh is not Refresh.PERIODIC
            ),
        }
        for reason, found in reasons.items():
            if found:
                raise SourceDataError(
                    f"{learner} does not apply: the problem {reason}. Pass an objective with "
                    "refresh=Refresh.PERIODIC and sources with min_rate > 0, without host limits, costs or "
                    "signals."
                )
        check_exploration(exploration)
        bandwidth, upper = problem.bandwidth / (1.0 + exploration), problem.upper / (1.0 + exploration)
        if np.sum(problem.lower) > bandwidth or np.any(problem.lower > upper):
            raise SourceDataError(
                f"min_rate leaves no room for a share of {exploration:g} of probes. Lower min_rate or the "
                "exploration, or raise the bandwidth or max_rate."
            )
        weight = np.asarray(sources.importance / np.sum(sources.importance))
        return cls(problem, exploration, seed, weight, bandwidth, upper)

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.weight)

    def first_rates(self) -> Array:
        """Return the rates that minimise −Σ log r, equal where they can."""
        # From rates of the whole bandwidth each, the step is stopped by the bandwidth and nothing else.
        far = np.full(len(self), self.problem.bandwidth)
        return MirrorDescent.step(
            far, np.zeros(len(self)), self.bandwidth, self.problem.lower, self.upper, 0.0
        )

    def step(
        self, descent: Descent, rates: Array, gradient: Array, learning_rate: float, chosen: BoolArray
    ) -> Array:
        """Return the rates after a step that keeps the chosen sources' sum."""
        g, answer = gradient[chosen], rates.copy()
        # Under Σr = b a constant in the gradient changes nothing; without positive entries "≤" binds.
        g = g - max(float(np.max(g, initial=0.0)), 0.0)
        budget = self.bandwidth if chosen.all() else float(np.sum(rates[chosen]))
        lower, upper = self.problem.lower[chosen], self.upper[chosen]
        answer[chosen] = descent.step(rates[chosen], g, budget, lower, upper, learning_rate)
        return answer

    def is_probed(self, source: IntArray, number: IntArray) -> BoolArray:
        """Return which intervals are probed."""
        return uniforms(self.seed, source, _DRAWS * number) < self.exploration

    def probe_point(self, source: IntArray, number: IntArray) -> Array:
        """Return a probe's position in its interval, in (0, 1)."""
        return uniforms(self.seed, source, _DRAWS * number + 1)

    def is_reset(self, source: IntArray, number: IntArray) -> BoolArray:
        """Return which intervals an update ends at once."""
        return uniforms(self.seed, source, _DRAWS * number + 2) < self.exploration

    def play(self, crawler: Crawler, source: IntArray, probe: Array, refresh: Array) -> Polled:
        """Poll intervals: a probe and a refresh each, NaN for none."""
        times = np.concatenate([probe, refresh])
        polled = np.flatnonzero(~np.isnan(times))
        # At equal times the probe comes first.
        order = polled[np.argsort(times[polled], kind="stable")]
        costs = np.full(len(times), np.nan)
        costs[order] = poll(crawler, np.tile(source, 2)[order], times[order], order < len(probe))
        return Polled(costs[: len(probe)], costs[len(probe) :])

    def samples(self, polled: Polled, length: Array) -> Array:
        """Return ĝ of complete intervals, for unit weights."""
        difference = (polled.probed - polled.refreshed) * length / self.exploration
        return np.where(np.isnan(polled.probed), 0.0, difference)

    def record(
        self,
        journal: Journal,
        truth: Truth | None,
        state: State,
        window: tuple[float, float],
        spent: Spent,
    ) -> None:
        """Add a round's rates, value and bandwidth used to the journal."""
        begin, end = window
        since = end - float(state["origin"])
        rates = state["rates"]
        seen = state["seen_cost"]
        known = ~np.isnan(seen)
        best: dict[str, float] = {}
        if truth is not None:
            value, best = truth.value(begin, rates), {"best": truth.best(begin)}
        else:  # a probe at a uniform point of an interval costs J on average
            mean = float(np.mean(seen[known])) if known.any() else np.nan
            cost = float(self.problem.sources.importance @ np.where(known, seen, mean))
            value = self.problem.objective.value_from_cost(cost, self.problem.sources)
        allowed = self.problem.bandwidth * (end - begin)
        journal.add(since, rates, value=value, allowed=allowed, **spent._asdict(), **best)


class SyncLearner(RoundLearner):
    """Learner of rates from observed costs, a step a period.

    Of the problem, bandwidth, importances and bounds (min_rate > 0) are used; its change rates and its
    objective are only used to evaluate the rates. The history has columns ``probes`` and ``resets``.
    """

    __slots__ = ()

    descent: ClassVar[Descent]
    _period: ClassVar[str]  # what it calls a period
    learning_rate: float
    exploration: float
    seed: int

    def _course(self, crawler: Crawler, problem: Problem, horizon: float, truth: Problem | None) -> Course:
        terms = Synchronization.of(problem, type(self).__name__, self.exploration, self.seed)
        length, horizon = self._length(problem), check_horizon(horizon)
        check_rounds(horizon / length, horizon, problem.bandwidth * length)
        rounds = int(horizon / length + SLACK)
        if rounds < 1:
            raise SourceDataError(
                f"horizon is {horizon:g}, shorter than a {self._period}. Pass at least {length:g}."
            )
        known = Truth.of(problem, crawler, truth)

        def play(state: State, number: int, journal: Journal) -> State:
            begin, end = (float(state["origin"]) + k * length for k in (number, number + 1))
            after, spent = self._step(terms, crawler, state, begin, end)
            after = {**after, "origin": state["origin"]}
            # What was seen in the round is known of its rates.
            terms.record(journal, known, {**after, "rates": state["rates"]}, (begin, end), spent)
            return after

        origin, rates = float(getattr(crawler, "clock", 0.0)), terms.first_rates()
        start: State = {
            "origin": np.array(origin),
            "rates": rates,
            "seen_cost": np.full(len(terms), np.nan),
            **self._first(rates, origin),
        }
        return Course(start, play, rounds, known is not None, lambda last: last["rates"])

    @abstractmethod
    def _length(self, problem: Problem) -> float:
        """Return the length of a period."""

    @abstractmethod
    def _first(self, rates: Array, origin: float) -> State:
        """Return what a period's `_step` needs, beside the rates, before the first."""

    @abstractmethod
    def _step(
        self, terms: Synchronization, crawler: Crawler, state: State, begin: float, end: float
    ) -> tuple[State, Spent]:
        """Poll for a period; return the next state and the polls."""

    def _check(self) -> None:
        """Raise if a common setting is out of range."""
        expect_settings(self)
        if not SMALLEST <= self.learning_rate <= LARGEST:
            raise SourceDataError(f"learning_rate is {self.learning_rate}. Pass a number > 0, such as 1.0.")
        check_exploration(self.exploration)


def seen_cost(before: Array, source: IntArray, probed: Array) -> Array:
    """Return the mean observed cost of each source's latest probes."""
    hit = ~np.isnan(probed)
    count = np.bincount(source[hit], minlength=len(before))
    total = np.bincount(source[hit], weights=probed[hit], minlength=len(before))
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, total / count, before)


def check_rounds(rounds: float, horizon: float, polls: float) -> None:
    """Raise if rounds or polls are too many.

    More rounds than ever end, or rounds with more polls than fit into memory.
    """
    if not rounds <= MOST_ROUNDS:
        raise SourceDataError(
            f"horizon {horizon:g} takes {rounds:.3g} rounds, and at most {MOST_ROUNDS:g} are played. Pass at "
            f"most {horizon / rounds * MOST_ROUNDS:.3g}."
        )
    if not polls <= MOST_POLLS:
        raise SourceDataError(
            f"a round has {polls:.3g} polls, and at most {MOST_POLLS:g} are planned at once. Raise min_rate, "
            "or pass a shorter cycle."
        )


def check_exploration(exploration: float) -> None:
    """Raise unless the share of probes is in (0, 1]."""
    if not 0.0 < exploration <= 1.0:
        raise SourceDataError(f"exploration is {exploration}. Pass a probability > 0 and <= 1.")


def with_exploration(problem: Problem, exploration: float) -> Problem:
    """Return the problem that remains beside exploration.

    Bandwidth and max_rate are divided by 1 + ε.

    Its optimum is the best that an exploring policy can reach; its difference from the optimum of `problem`
    is the cost of exploration, at most 2εU [1]_ Lemma 3, U the largest cost of a copy.

    References
    ----------
    .. [1] Kolobov et al., "Online Learning for Active Cache Synchronization", ICML 2020.
    """
    own = problem.sources
    sources = own.with_bounds(own.min_rate, own.max_rate / (1.0 + exploration))
    return Problem(problem.objective, sources, problem.bandwidth / (1.0 + exploration))
