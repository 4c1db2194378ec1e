"""`EpochLearner`, `EpochRun`: epoch-based certainty-equivalent policies and their runs.

The policy is a list of epochs. In each the sources are crawled at fixed rates: those that are optimal for the
change rates estimated so far, or equal rates, or a mixture for exploration. After an epoch the log of its
crawls goes to an estimator, and the problem is solved for the new estimates as if they were true (certainty
equivalence), with a warm start at the last price.

The rates of an epoch are evaluated under the true change rates where these are known, by the objective's own
cells: the reported values are expectations, without the sampling noise of the changes in the epoch.

Cost: of an epoch, its crawls, one fit, one solve. An estimator without ``partial_fit`` reads the whole log
after each epoch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.certificates.solver_protocol import Solver, check_solver
from freshopt.errors import SourceDataError, expect, expect_settings, list_offenders
from freshopt.estimators.changes_per_time import FullObservation
from freshopt.estimators.estimator import Estimator
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray, exact_sum, total
from freshopt.online.epoch_crawls import (
    NO_ROWS,
    ROUNDED,
    LogReader,
    drawn,
    every_nth,
    periodic_visits,
    serve,
    with_rows,
)
from freshopt.online.learner import Course, Journal, RoundLearner, State, world_of
from freshopt.online.rate_evaluation import achieved_rates, equal_rates, value_under, with_rates
from freshopt.simulation import Crawler
from freshopt.solving import solve
from freshopt.units import check_horizon, convert_time

# Largest number of epochs. Each is a fit and a solve: a quarter of an hour at the very least.
MOST_EPOCHS = 1_000_000
# Largest number of crawls; their log takes 17 GB.
MOST_CRAWLS = 1e9
# Pseudo-observation of announced changes and days watched, [LC] Algorithm 4 line 13.
SMOOTHING = 0.5


@dataclass(frozen=True, slots=True)
class Epoch:
    """Epoch of constant rates.

    - `end`: Time units since the run began.
    - `explore`: Share of equal rates in the mixture with the optimal ones, 0..1.
    - `refresh`: Discipline of sources that are not followed by signals; None is the objective's own.
    """

    end: float
    explore: float = 0.0
    refresh: Refresh | None = None


def equal_epochs(length: float, horizon: float, explore: float, first: float = 1.0) -> list[Epoch]:
    """Return epochs until the horizon, alike but the first one's share."""
    horizon = check_horizon(horizon)
    count = horizon / length * (1.0 - 1e-12)
    if count > MOST_EPOCHS:
        raise SourceDataError(
            f"horizon {horizon:g} takes {count:.3g} rounds of {length:g} each, and at most {MOST_EPOCHS} are "
            f"played. Pass a horizon of at most {MOST_EPOCHS * length:.3g}, or longer rounds."
        )
    ends = [min((k + 1) * length, horizon) for k in range(max(1, math.ceil(count)))]
    return [Epoch(end, explore if k else first) for k, end in enumerate(ends)]


class EpochLearner(RoundLearner):
    """Learner in epochs of constant rates, a round each."""

    __slots__ = ()

    estimator: Estimator
    solver: Solver | None
    seed: int

    @abstractmethod
    def epochs(self, problem: Problem, horizon: float) -> list[Epoch]:
        """Return the epochs until the horizon."""

    def _course(self, crawler: Crawler, problem: Problem, horizon: float, truth: Problem | None) -> Course:
        choice = {"solver": self.solver, "seed": self.seed, "truth": truth, **self._choice(problem)}
        return EpochRun(crawler, problem, **choice).course(self.epochs(problem, horizon))

    def _choice(self, problem: Problem) -> dict[str, Any]:  # noqa: ARG002 - for those with a floor
        """Return the arguments of `EpochRun` by which rates are chosen."""
        return {"estimator": self.estimator}

    def _check(self) -> None:
        """Raise if a common setting is out of range."""
        expect_settings(self)
        check_solver(self.solver)
        if hasattr(self, "estimator"):  # some have one of their own
            expect(self.estimator, Estimator, "estimator", "Pass one, such as MaximumLikelihood()")


def require_time(what: str, value: float | None, *, optional: bool = False) -> None:
    """Raise unless a setting is a length of time."""
    if not (optional and value is None) and not 0.0 < (value or 0.0) < math.inf:
        raise SourceDataError(f"{what} is {value}. Pass a time > 0{', or None' if optional else ''}.")


class EpochRun:
    """Run of epochs in a world.

    Rates are the optimum of `objective`, by default the problem's own, which judges them in any case; every
    source has the rate `floor` at least. The problem's change rates are the first guess; crawls and signals
    are used for as long as `memory`.
    """

    def __init__(
        self,
        crawler: Crawler,
        problem: Problem,
        estimator: Estimator,
        *,
        objective: Objective | None = None,
        solver: Solver | None = None,
        floor: float | Array = 0.0,
        seed: int = 0,
        truth: Problem | None = None,
        memory: float | None = None,
    ) -> None:
        self.problem, self.crawler, self.solver, self.floor = problem, crawler, solver, floor
        self.seed, self.memory = seed, memory
        self.aim = problem.objective if objective is None else objective
        self.world, self.truth = world_of(crawler), truth
        self.signalled = np.array(problem.sources.signalled)
        if self.signalled.any() and not hasattr(self.crawler, "signals"):
            who = list_offenders(map(problem.sources.label, np.flatnonzero(self.signalled)))
            raise SourceDataError(
                f"{who} announces changes, but {type(self.crawler).__name__} has no signals(start, end). "
                "Write that method, or pass signalled=False."
            )
        self.counted = isinstance(estimator, FullObservation)
        if self.counted and not hasattr(self.crawler, "count"):
            raise SourceDataError(
                f"FullObservation needs counts, but {type(self.crawler).__name__} has no "
                "count(source, time). Write that method, or use MaximumLikelihood."
            )
        self.learner = LogReader(estimator, problem.sources.time_unit)
        self._best: tuple[Array, float] | None = None

    def course(self, epochs: Sequence[Epoch]) -> Course:
        """Return the epochs as rounds."""
        horizon = epochs[-1].end
        crawls = horizon * self.problem.bandwidth / float(np.min(self.problem.sources.refresh_cost))
        if not crawls <= MOST_CRAWLS:
            raise SourceDataError(
                f"horizon {horizon:g} holds up to {crawls:.3g} crawls, and at most {MOST_CRAWLS:g} are "
                f"kept. Pass a horizon of at most {horizon / crawls * MOST_CRAWLS:.3g}."
            )

        def play(state: State, number: int, journal: Journal) -> State:
            return self._epoch(state, number, epochs[number], journal)

        return Course(self._start(epochs[0]), play, len(epochs), self._true_rates(0.0) is not None)

    def _start(self, first: Epoch) -> State:
        n, begin = len(self.problem.sources), float(getattr(self.crawler, "clock", 0.0))
        state: State = {
            "begin": np.array(begin),
            "now": np.array(begin),
            **NO_ROWS,
            "last": np.full(n, begin),
            # The signals that the change rates of signalled sources are counted from.
            "announced": np.zeros(n),
            "recent_source": np.empty(0, dtype=np.int64),
            "recent_time": np.empty(0),
            "visited": np.zeros(n),  # expected visits so far: the phases of equal intervals
            "slots": np.zeros(()),
            "change_rate": np.array(self.problem.sources.change_rate),
            "price": np.array(np.nan),
        }
        return self._choose(state, first)

    def _choose(self, state: State, epoch: Epoch) -> State:
        """Choose the rates of an epoch."""
        problem = self._estimated(state["change_rate"])
        if epoch.explore >= 1.0:
            return {**state, "rates": equal_rates(problem)}
        price = float(state["price"])
        solution = solve(problem, self.solver, warm_start=price if price > 0.0 else None)
        rates = solution.rates
        if epoch.explore > 0.0:
            rates = (1.0 - epoch.explore) * rates + epoch.explore * equal_rates(problem)
        return {**state, "rates": rates, "price": np.array(solution.price)}

    def _estimated(self, change_rate: Array) -> Problem:
        """Return the certainty-equivalent problem, with the floor."""
        sources = self.problem.sources
        return self._with(
            self.aim, change_rate, np.minimum(np.maximum(sources.min_rate, self.floor), sources.max_rate)
        )

    def _epoch(self, state: State, number: int, epoch: Epoch, journal: Journal) -> State:
        refresh = epoch.refresh or self.aim.refresh
        if number:
            state = self._choose({**state, "change_rate": self._learn(state)}, epoch)
        start, end = float(state["now"]), float(state["begin"]) + epoch.end
        state, spent = self._crawl(state, number, refresh, end)
        rates, change_rate = state["rates"], state["change_rate"]
        value, best = self._judge(rates, change_rate, refresh, start)
        allowed = self.problem.bandwidth * (end - start)
        journal.add(epoch.end, rates, value=value, best=best, spent=spent, allowed=allowed)
        return {**state, "now": np.array(end)}

    def _crawl(self, state: State, number: int, refresh: Refresh, end: float) -> tuple[State, float]:
        """Crawl until `end`; return the new state and the crawls' cost."""
        start, rates, silent = float(state["now"]), state["rates"], ~self.signalled
        cost = self.problem.sources.refresh_cost
        rng = np.random.default_rng([self.seed, number])
        quiet = np.where(silent, rates, 0.0)
        origin, moment, state = self._signals(state, start, end, rng)
        if refresh is Refresh.PERIODIC:
            source, time = periodic_visits(quiet, state["visited"], start, end)
            state = {**state, "visited": state["visited"] + quiet * (end - start)}
        else:
            drawn_from = quiet if bool(np.any(quiet > 0.0)) else rates
            drawn_rate = total(drawn_from)
            # What one uses in the mean; of rates that are all 0 there are none.
            slot = total(cost * drawn_from) / drawn_rate if drawn_rate > 0.0 else 1.0
            before = float(state["slots"])
            after = before + total(cost * rates) * (end - start) / slot
            # A few ulp short of a whole slot is a whole slot.
            slots = int(np.floor(after + ROUNDED)) - int(np.floor(before + ROUNDED))
            time = np.sort(rng.uniform(start, end, slots))
            debt = float(state.get("debt", 0.0)) / slot
            followed, free, debt = serve(moment, time, cost[origin] / slot, debt)
            origin, moment, time = origin[followed], moment[followed], time[free]
            time = time if drawn_from is quiet else time[:0]  # slots that none but signals could use
            source = drawn(quiet, len(time), rng) if len(time) else np.empty(0, dtype=np.int64)
            state = {**state, "slots": np.array(after), "debt": np.array(debt * slot)}
        source, time = np.concatenate([source, origin]), np.concatenate([time, moment])
        order = np.argsort(time, kind="stable")
        source, time = source[order], time[order]
        if self.counted:
            found = np.asarray(self.crawler.count(source, time), dtype=np.int64)  # type: ignore[attr-defined]
        else:
            found = np.asarray(self.crawler.refresh(source, time), dtype=np.bool_)
        rows = silent[source]
        state = with_rows(state, source[rows], time[rows], found[rows], counted=self.counted)
        return state, exact_sum(cost[source].tolist())

    def _signals(
        self, state: State, start: float, end: float, rng: np.random.Generator
    ) -> tuple[IntArray, Array, State]:
        """Return the followed signals and the updated state.

        Beside equal intervals every N-th is followed, beside random ones each with a probability of its own.
        Signals are sorted by time. The state counts all of them, or those within the memory, whose times it
        then keeps.
        """
        if not self.signalled.any():
            return np.empty(0, dtype=np.int64), np.empty(0), state
        origin, moment = self.crawler.signals(start, end)  # type: ignore[attr-defined]
        chance = np.minimum(state["rates"] / state["change_rate"], 1.0)
        wanted = rng.random(len(origin)) < chance[origin]
        if self.aim.refresh is Refresh.PERIODIC:
            n = len(chance)
            wanted, owed = every_nth(origin, chance, state.get("owed", (np.arange(n) + 0.5) / n))
            state = {**state, "owed": owed}
        if self.memory is None:
            announced = state["announced"] + np.bincount(origin, minlength=len(chance))
            return origin[wanted], moment[wanted], {**state, "announced": announced}
        source = np.concatenate([state["recent_source"], origin])
        time = np.concatenate([state["recent_time"], moment])
        recent = time > end - self.memory
        counts: State = {
            "recent_source": source[recent],
            "recent_time": time[recent],
            "announced": np.bincount(source[recent], minlength=len(chance)).astype(np.float64),
        }
        return origin[wanted], moment[wanted], {**state, **counts}

    def _learn(self, state: State) -> Array:
        """Return the change rates estimated from the epochs within the memory."""
        estimates = state["change_rate"].copy()
        if self.signalled.any():
            watched = float(state["now"] - state["begin"])
            if self.memory is not None:
                watched = min(watched, self.memory)
            half = convert_time(SMOOTHING, "day", self.problem.sources.time_unit)
            counted = (state["announced"] + SMOOTHING) / (watched + half)
            estimates = np.where(self.signalled, counted, estimates)
        estimator = self.learner.fitted(state, self.memory)
        if estimator is not None:
            # Under a prior, what is known of a source without crawls.
            unseen: float | None = getattr(estimator, "unseen_rate_", None)
            if unseen is not None:
                estimates = np.where(self.signalled, estimates, unseen)
            estimates[estimator.sources_.astype(np.int64)] = estimator.change_rate_
        wrong = np.flatnonzero(~((estimates >= SMALLEST) & (estimates <= LARGEST)))
        if len(wrong):
            where = list_offenders(f"{self.problem.sources.label(k)}: {estimates[k]:g}" for k in wrong)
            raise SourceDataError(
                f"{self.learner.prototype!r} estimates change rates that cannot be planned with: {where}. "
                "Leave its smoothing, bounds or floor out."
            )
        return estimates

    def _true_rates(self, time: float) -> Array | None:
        if self.truth is not None:
            return self.truth.sources.change_rate
        if self.world is None or self.world.sources is None:
            return None
        return self.world.change_rate(time)

    def _judge(
        self, rates: Array, estimated: Array, refresh: Refresh, time: float
    ) -> tuple[float, float | None]:
        """Return the value of the rates, and the best, true or estimated."""
        truth = self._true_rates(time)
        if truth is None:
            return value_under(self._plain(estimated), rates, refresh), None
        problem = self._plain(truth)
        carried = achieved_rates(problem, rates, estimated)
        if self._best is None or not np.array_equal(self._best[0], truth):
            self._best = (truth, solve(problem).value)
        return value_under(problem, carried, refresh), self._best[1]

    def _plain(self, change_rate: Array) -> Problem:
        """Return the problem with other change rates, without the floor."""
        return self._with(self.problem.objective, change_rate, self.problem.sources.min_rate)

    def _with(self, objective: Objective, change_rate: Array, lower: Array) -> Problem:
        if self.signalled.any():  # a signalled source cannot be refreshed more often than it changes
            lower = np.where(self.signalled, np.minimum(lower, change_rate), lower)
        return with_rates(self.problem, objective, change_rate, lower)
