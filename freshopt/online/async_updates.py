"""Run of a policy with asynchronous rate updates.

Updates are at fixed times, while refreshes go on across them.

Of every source the interval that is under way is known: when it began, how long it is to be, its number
(which decides whether and where it is probed), what a probe of it saw, and whether it is whole, that is
not touched by an update. Between two updates all intervals that end are polled at once; those that are whole
are samples. Then the sources with samples take a step, and their intervals are adapted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from freshopt.errors import SourceDataError, expect_settings
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.online.gradient_probes import (
    SLACK,
    Descent,
    Polled,
    Synchronization,
    check_exploration,
    check_rate,
    check_rounds,
    journal_of,
    seen_cost,
)
from freshopt.online.oracle import Truth
from freshopt.online.run_history import RunHistory
from freshopt.online.runs import State, run_rounds, settings_of
from freshopt.simulation import Crawler, World
from freshopt.simulation.crawler import as_crawler
from freshopt.units import check_horizon


@dataclass(frozen=True, slots=True)
class CyclicPolicy:
    """Settings and run of a policy with cyclic updates.

    It updates at fixed times, by the step of its `descent`.
    """

    learning_rate: float
    cycle: float
    exploration: float = 0.05
    seed: int = 0
    descent: ClassVar[Descent]

    def __post_init__(self) -> None:
        """Raise if a setting is out of range."""
        expect_settings(self)
        check_rate(self.learning_rate)
        check_cycle(self.cycle)
        check_exploration(self.exploration)

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
        """Run up to a horizon, in whole cycles; see `Learner.run` and `MirrorSync.run`."""
        return run_cycles(self, self.descent, world, problem, horizon, truth, checkpoint, progress=progress)


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Refresh intervals, source by source in order of time.

    The last of each is under way.

    Attributes
    ----------
    source, number : ndarray of int
    begin, length : ndarray
    whole : ndarray of bool
        Whether no update touched it.
    last : ndarray of bool
        Whether it ends after the window.
    """

    source: IntArray
    number: IntArray
    begin: Array
    length: Array
    whole: BoolArray
    last: BoolArray

    @classmethod
    def until(cls, state: State, end: float) -> Intervals:
        """Return the intervals under way or beginning before `end`.

        At the state's rates.
        """
        rates, first = state["rates"], state["begin"] + state["length"]
        ended = np.where(first <= end, (np.maximum(end - first, 0.0) * rates + SLACK).astype(np.int64) + 1, 0)
        source = np.repeat(np.arange(len(rates)), ended + 1)
        j = np.arange(len(source)) - np.repeat(np.cumsum(ended + 1) - ended - 1, ended + 1)
        own, interval = j == 0, 1.0 / rates[source]
        return cls(
            source,
            state["number"][source] + j,
            # Rounding may put the last refresh an ulp behind the window's end.
            np.where(own, state["begin"][source], np.minimum(first[source] + (j - 1) * interval, end)),
            np.where(own, state["length"][source], interval),
            ~own | state["whole"][source],
            j == ended[source],
        )


def check_cycle(cycle: float) -> None:
    """Raise unless the time between updates is positive."""
    if not 0.0 < cycle < np.inf:
        raise SourceDataError(f"cycle is {cycle}. Pass a time between updates > 0.")


def run_cycles(
    learner: CyclicPolicy,
    descent: Descent,
    world: World | Crawler,
    problem: Problem,
    horizon: float,
    truth: Problem | None,
    checkpoint: str | Path | None,
    *,
    progress: bool,
) -> RunHistory:
    """Run a learner; see `freshopt.online.mirror_sync.MirrorSync.run` for the arguments."""
    terms = Synchronization.of(problem, type(learner).__name__, learner.exploration, learner.seed)
    cycle = float(learner.cycle)
    horizon = check_horizon(horizon)
    check_rounds(horizon / cycle, horizon, problem.bandwidth * cycle)
    cycles = int(horizon / cycle + SLACK)
    if cycles < 1:
        raise SourceDataError(f"horizon is {horizon:g}, shorter than a cycle. Pass at least {cycle:g}.")
    crawler, known = as_crawler(world), Truth.of(problem, world, truth)
    journal = journal_of(learner, problem, known)

    def next_cycle(state: State, number: int) -> State:
        begin, end = (float(state["origin"]) + k * cycle for k in (number, number + 1))
        intervals = Intervals.until(state, end)
        polled, probes = _polls(terms, crawler, state, intervals, begin, end)
        done = ~intervals.last & intervals.whole
        source = intervals.source[done]
        ended = Polled(polled.probed[done], polled.refreshed[done])
        sums = np.bincount(source, weights=terms.samples(ended, intervals.length[done]), minlength=len(terms))
        counts = np.bincount(source, minlength=len(terms))
        chosen = counts > 0
        share = terms.weight * (len(terms) / max(int(np.count_nonzero(chosen)), 1))
        gradient = share * sums / np.maximum(counts, 1)
        rates = state["rates"]
        if chosen.any():
            rates = terms.step(descent, rates, gradient, learner.learning_rate, chosen)
        last = intervals.last
        after: State = {
            "origin": state["origin"],
            "rates": rates,
            "begin": intervals.begin[last],
            "length": intervals.length[last],
            "number": intervals.number[last],
            "whole": intervals.whole[last],
            "probed": polled.probed[last],
            "seen_cost": seen_cost(state["seen_cost"], source, ended.probed),
        }
        reset = _adapt(terms, crawler, after, chosen, end)
        refreshes = int(np.count_nonzero(~last))
        terms.record(
            journal,
            known,
            {**after, "rates": state["rates"]},
            (begin, end),
            spent=refreshes + probes + reset,
            probes=probes,
            resets=reset,
        )
        return after

    rates = terms.first_rates()
    origin = float(getattr(crawler, "clock", 0.0))
    start: State = {
        "origin": np.array(origin),
        "rates": rates,
        "begin": np.full(len(terms), origin),
        "length": 1.0 / rates,
        "number": np.zeros(len(terms), dtype=np.int64),
        "whole": np.ones(len(terms), dtype=np.bool_),
        "probed": np.full(len(terms), np.nan),
        "seen_cost": np.full(len(terms), np.nan),
    }
    last = run_rounds(
        start,
        next_cycle,
        cycles,
        journal,
        crawler=crawler,
        checkpoint=checkpoint,
        settings=settings_of(learner, problem, world),
        progress=progress,
    )
    return journal.history(last["rates"])


def _polls(
    terms: Synchronization, crawler: Crawler, state: State, intervals: Intervals, begin: float, end: float
) -> tuple[Polled, int]:
    """Probe and refresh the intervals between two updates.

    Returns what was seen and how many probes there were.
    """
    source, number = intervals.source, intervals.number
    probe = intervals.begin + terms.probe_point(source, number) * intervals.length
    # Of the interval under way at `begin`, an earlier window has seen to a probe that lies before.
    now = intervals.whole & terms.is_probed(source, number) & (probe > begin) & (probe <= end)
    refresh = np.where(intervals.last, np.nan, np.minimum(intervals.begin + intervals.length, end))
    polled = terms.play(crawler, source, np.where(now, probe, np.nan), refresh)
    own = np.flatnonzero(np.diff(source, prepend=-1))
    earlier = np.isnan(polled.probed[own])
    polled.probed[own[earlier]] = state["probed"][earlier]
    return polled, int(np.count_nonzero(now))


def _adapt(terms: Synchronization, crawler: Crawler, state: State, chosen: BoolArray, now: float) -> int:
    """Adapt the intervals under way to updated rates.

    In place; returns how many sources are refreshed at once.
    """
    updated = np.flatnonzero(chosen)
    interval = 1.0 / state["rates"][updated]
    reset = terms.is_reset(updated, state["number"][updated])
    begin = np.where(reset, now, state["begin"][updated])
    state["begin"][updated] = begin
    state["length"][updated] = np.where(reset, interval, np.maximum(begin + interval, now) - begin)
    state["number"][updated] += 1
    state["whole"][updated] = reset
    state["probed"][updated] = np.nan
    at_once = updated[reset]
    crawler.refresh(at_once, np.full(len(at_once), now))
    return len(at_once)
