"""`Campaign`: what learners of schedules have in common. Crawl for a while, re-estimate, solve again.

A learner here is a list of legs. In each leg the sources are crawled at fixed rates: those that are optimal
for the change rates estimated so far, or equal rates, or a mixture. After a leg the log of its crawls goes to
an estimator, and the problem is solved for the new estimates, beginning at the last price.

The rates of a leg are judged under the true change rates where these are known, by the objective's own cells:
what is reported has no noise of what happened to be missed in the leg.

Cost: of a leg, its crawls, one fit, one solve. An estimator without ``partial_fit`` reads the whole log after
each leg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from freshopt.arrays import Array, IntArray, exact_sum, total
from freshopt.errors import SourceDataError, expect, list_offenders
from freshopt.learning.crawl_rows import NO_ROWS, LogReader, with_rows
from freshopt.learning.estimator import Estimator
from freshopt.learning.history import History
from freshopt.learning.judging import carried_out, with_rates, worth
from freshopt.learning.playing import Journal, State, play
from freshopt.learning.visits import drawn, periodic_visits, serve
from freshopt.model import Problem
from freshopt.objective import Objective, Refresh
from freshopt.simulation import Crawler, World
from freshopt.simulation.crawler import as_crawler
from freshopt.solving import solve
from freshopt.sources import LARGEST, SMALLEST
from freshopt.units import convert_time
from freshopt.verdict import Solver

MOST_CRAWLS = 1e9  # their log takes 17 GB
SMOOTHING = 0.5  # of announced changes and days watched, [LC] Algorithm 4 line 13


@dataclass(frozen=True, slots=True)
class Leg:
    """Part of a campaign in which the rates stay the same.

    Parameters
    ----------
    end : float
        Time units since the campaign began.
    explore : float
        Share of equal rates in the mixture with the optimal ones, 0..1.
    refresh : Refresh or None
        Discipline of sources that are not followed by signals; None is the objective's own.
    """

    end: float
    explore: float = 0.0
    refresh: Refresh | None = None


class Campaign:
    """A run of legs in a world.

    Parameters
    ----------
    world : World or Crawler
    problem : Problem
        What is to be optimised. Its change rates are the first guess.
    estimator : Estimator
        Copied, so that it stays as it is.
    objective : Objective, optional
        Whose optimum the rates are to be; by default the problem's own, which judges them in any case.
    solver : Solver, optional
    floor : float
        Least rate of every source while rates are chosen, per time unit.
    seed : int
        Of the visits and of which signals are followed.
    truth : Problem, optional
        With the true change rates; known anyway in a Poisson world.
    memory : float, optional
        How far back crawls are used for estimation, in time units.
    """

    def __init__(
        self,
        world: World | Crawler,
        problem: Problem,
        estimator: Estimator,
        *,
        objective: Objective | None = None,
        solver: Solver | None = None,
        floor: float = 0.0,
        seed: int = 0,
        truth: Problem | None = None,
        memory: float | None = None,
    ) -> None:
        expect(problem, Problem, "problem", "Pass a freshopt.Problem")
        self.problem, self.crawler, self.solver, self.floor = problem, as_crawler(world), solver, floor
        self.seed, self.memory = seed, memory
        self.aim = problem.objective if objective is None else objective
        self.world = world if isinstance(world, World) else getattr(world, "world", None)
        n = len(problem.sources)
        if self.world is not None and len(self.world) != n:
            raise SourceDataError(
                f"the world has {len(self.world)} sources but the problem {n}. Pass the world of its sources."
            )
        names, called = None if self.world is None else self.world.names, problem.sources.name
        if names is not None and called is not None and not np.array_equal(names, called):
            k = int(np.flatnonzero(np.asarray(names) != np.asarray(called))[0])
            raise SourceDataError(
                f"source {k} is '{names[k]}' in the world but '{called[k]}' in the problem. Give both their "
                "sources in one order (World.from_events(..., names=...))."
            )
        if self.world is not None and self.world.time_unit != problem.sources.time_unit:
            raise SourceDataError(
                f"the world's clock counts {self.world.time_unit}s but the problem's "
                f"{problem.sources.time_unit}s. Give both one time_unit."
            )
        self.signalled = np.array(problem.sources.signalled)
        if self.signalled.any() and not hasattr(self.crawler, "signals"):
            who = list_offenders(map(problem.sources.label, np.flatnonzero(self.signalled)))
            raise SourceDataError(
                f"{who} announces changes, but {type(self.crawler).__name__} has no signals(start, end). "
                "Write that method, or pass signalled=False."
            )
        self.truth = truth
        self.uniform = np.clip(problem.bandwidth / total(problem.sources.cost), problem.lower, problem.upper)
        self.learner = LogReader(estimator, problem.sources.time_unit)
        self._best: tuple[Array, float] | None = None

    def run(
        self,
        learner: object,
        legs: Sequence[Leg],
        checkpoint: str | Path | None,
        progress: bool,
    ) -> History:
        """Play the legs; the journal has one round per leg.

        Raises
        ------
        SourceDataError
            If there would be more crawls than fit into memory, before the first.
        """
        crawls = legs[-1].end * self.problem.bandwidth / float(np.min(self.problem.sources.cost))
        if not crawls <= MOST_CRAWLS:
            raise SourceDataError(
                f"horizon {legs[-1].end:g} holds up to {crawls:.3g} crawls, and at most {MOST_CRAWLS:g} are "
                f"kept. Pass a horizon of at most {legs[-1].end / crawls * MOST_CRAWLS:.3g}."
            )
        objective = self.problem.objective
        known = self._true_rates(0.0) is not None
        unit = self.problem.sources.time_unit
        journal = Journal(repr(learner), objective.sense, exact=known, time_unit=unit)
        settings = f"{learner!r} on {self.problem!r} in {self.crawler_name}"
        play(
            self._start(legs[0]),
            lambda state, number: self._leg(state, number, legs, journal),
            len(legs),
            journal,
            crawler=self.crawler,
            checkpoint=checkpoint,
            settings=settings,
            progress=progress,
        )
        return journal.history()

    @property
    def crawler_name(self) -> str:
        """How the world prints, for the check that a checkpoint is of this run."""
        return type(self.crawler).__name__ if self.world is None else repr(self.world)

    def _start(self, first: Leg) -> State:
        n, begin = len(self.problem.sources), float(getattr(self.crawler, "clock", 0.0))
        state: State = {
            "begin": np.array(begin),
            "now": np.array(begin),
            **NO_ROWS,
            "last": np.full(n, begin),
            "announced": np.zeros(n),
            "visited": np.zeros(n),  # expected visits so far: the phases of equal gaps
            "slots": np.zeros(()),
            "change_rate": np.array(self.problem.sources.change_rate),
            "price": np.array(np.nan),
        }
        return self._choose(state, first)

    def _choose(self, state: State, leg: Leg) -> State:
        """Set the rates of a leg."""
        if leg.explore >= 1.0:
            return {**state, "rates": self.uniform}
        problem = self._believed(state["change_rate"])
        price = float(state["price"])
        solution = solve(problem, self.solver, start=price if price > 0.0 else None)
        rates = solution.rates
        if leg.explore > 0.0:
            rates = (1.0 - leg.explore) * rates + leg.explore * np.minimum(self.uniform, problem.upper)
        return {**state, "rates": rates, "price": np.array(solution.price)}

    def _believed(self, change_rate: Array) -> Problem:
        """Return the problem with other change rates, and with the floor."""
        lower = np.minimum(
            np.maximum(self.problem.sources.min_rate, self.floor), self.problem.sources.max_rate
        )
        if self.signalled.any():  # a signalled source cannot be refreshed more often than it changes
            lower = np.where(self.signalled, np.minimum(lower, change_rate), lower)
        return with_rates(self.problem, self.aim, change_rate, lower)

    def _leg(self, state: State, number: int, legs: Sequence[Leg], journal: Journal) -> State:
        leg = legs[number]
        refresh = leg.refresh or self.aim.refresh
        if number:
            state = self._choose({**state, "change_rate": self._learn(state)}, leg)
        start, end = float(state["now"]), float(state["begin"]) + leg.end
        state, spent = self._crawl(state, number, refresh, end)
        rates, change_rate = state["rates"], state["change_rate"]
        value, best = self._judge(rates, change_rate, refresh, start)
        allowed = self.problem.bandwidth * (end - start)
        journal.add(leg.end, rates, value=value, best=best, spent=spent, allowed=allowed)
        return {**state, "now": np.array(end)}

    def _crawl(self, state: State, number: int, refresh: Refresh, end: float) -> tuple[State, float]:
        """Crawl until `end`; return the state with the new rows, and what the crawls cost."""
        start, rates, silent = float(state["now"]), state["rates"], ~self.signalled
        rng = np.random.default_rng([self.seed, number])
        quiet = np.where(silent, rates, 0.0)
        origin, moment, state = self._signals(state, start, end, rng)
        if refresh is Refresh.PERIODIC:
            source, time = periodic_visits(quiet, state["visited"], start, end)
            state = {**state, "visited": state["visited"] + quiet * (end - start)}
        else:
            before = float(state["slots"])
            after = before + total(rates) * (end - start)
            # A few ulp short of a whole slot is a whole slot.
            slots = int(np.floor(after + 1e-6)) - int(np.floor(before + 1e-6))
            time = np.sort(rng.uniform(start, end, slots))
            followed, free = serve(moment, time)
            origin, moment, time = origin[followed], moment[followed], time[free]
            time = time if bool(np.any(quiet > 0.0)) else time[:0]  # slots that none but signals could use
            source = drawn(quiet, len(time), rng) if len(time) else np.empty(0, dtype=np.int64)
            state = {**state, "slots": np.array(after)}
        source, time = np.concatenate([source, origin]), np.concatenate([time, moment])
        order = np.argsort(time, kind="stable")
        source, time = source[order], time[order]
        changed = np.asarray(self.crawler.refresh(source, time), dtype=np.bool_)
        rows = silent[source]
        state = with_rows(state, source[rows], time[rows], changed[rows])
        return state, exact_sum(self.problem.sources.cost[source].tolist())

    def _signals(
        self, state: State, start: float, end: float, rng: np.random.Generator
    ) -> tuple[IntArray, Array, State]:
        """Return the signals that are to be followed, by time, and the state with all of them counted."""
        if not self.signalled.any():
            return np.empty(0, dtype=np.int64), np.empty(0), state
        origin, moment = self.crawler.signals(start, end)  # type: ignore[attr-defined]
        chance = state["rates"] / state["change_rate"]
        wanted = rng.random(len(origin)) < chance[origin]
        announced = state["announced"] + np.bincount(origin, minlength=len(chance))
        return origin[wanted], moment[wanted], {**state, "announced": announced}

    def _learn(self, state: State) -> Array:
        """Return the change rates estimated from all legs so far."""
        estimates = state["change_rate"].copy()
        if self.signalled.any():
            watched = float(state["now"] - state["begin"])
            half = convert_time(SMOOTHING, "day", self.problem.sources.time_unit)
            counted = (state["announced"] + SMOOTHING) / (watched + half)
            estimates = np.where(self.signalled, counted, estimates)
        estimator = self.learner.fitted(state, self.memory)
        if estimator is not None:
            estimates[estimator.sources_.astype(np.int64)] = estimator.change_rate_
        wrong = np.flatnonzero(~((estimates >= SMALLEST) & (estimates <= LARGEST)))
        if len(wrong):
            where = list_offenders(f"{self.problem.sources.label(k)}: {estimates[k]:g}" for k in wrong)
            raise SourceDataError(
                f"{self.learner.prototype!r} estimates change rates that cannot be planned with: {where}. "
                "Use one with smoothing, bounds or a floor."
            )
        return estimates

    def _true_rates(self, time: float) -> Array | None:
        if self.truth is not None:
            return self.truth.sources.change_rate
        if self.world is None or self.world.sources is None:
            return None
        return self.world.change_rate(time)

    def _judge(
        self, rates: Array, believed: Array, refresh: Refresh, time: float
    ) -> tuple[float, float | None]:
        """Return what the rates are worth under the truth, and the best; without truth as believed."""
        truth = self._true_rates(time)
        if truth is None:
            return worth(self._plain(believed), rates, refresh), None
        problem = self._plain(truth)
        carried = carried_out(problem, rates, believed)
        if self._best is None or not np.array_equal(self._best[0], truth):
            self._best = (truth, solve(problem).value)
        return worth(problem, carried, refresh), self._best[1]

    def _plain(self, change_rate: Array) -> Problem:
        lower = self.problem.sources.min_rate
        if self.signalled.any():
            lower = np.where(self.signalled, np.minimum(lower, change_rate), lower)
        return with_rates(self.problem, self.problem.objective, change_rate, lower)
