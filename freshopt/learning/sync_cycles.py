"""The run of a learner that updates rates at fixed times, while refreshes go on across the updates.

Of every source the interval that is under way is known: when it began, how long it is to be, its number
(which decides whether and where it is probed), what a probe of it saw, and whether it is whole, that is
not touched by an update. Between two updates all intervals that end are polled at once; those that are whole
are samples. Then the sources with samples take a step, and their intervals are adapted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from freshopt.arrays import Array, BoolArray, IntArray
from freshopt.errors import SourceDataError
from freshopt.learning.history import History
from freshopt.learning.playing import State, check_horizon, play, settings_of
from freshopt.learning.synchronization import (
    SLACK,
    Descent,
    Polled,
    Synchronization,
    check_rounds,
    journal_of,
    seen_cost,
)
from freshopt.learning.truth import Truth
from freshopt.model import Problem
from freshopt.simulation import Crawler, World
from freshopt.simulation.crawler import as_crawler


class CyclicLearner(Protocol):
    """Settings of a learner that updates at fixed times."""

    @property
    def learning_rate(self) -> float:
        """η."""

    @property
    def cycle(self) -> float:
        """Time between updates."""

    @property
    def exploration(self) -> float:
        """ε."""

    @property
    def seed(self) -> int:
        """Seed of the probes."""


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Intervals between refreshes, source by source in order of time; the last of each is under way.

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
        """Return the intervals that are under way or begin up to `end`, at the state's rates."""
        rates, first = state["rates"], state["begin"] + state["length"]
        ended = np.where(first <= end, (np.maximum(end - first, 0.0) * rates + SLACK).astype(np.int64) + 1, 0)
        source = np.repeat(np.arange(len(rates)), ended + 1)
        j = np.arange(len(source)) - np.repeat(np.cumsum(ended + 1) - ended - 1, ended + 1)
        own, gap = j == 0, 1.0 / rates[source]
        return cls(
            source,
            state["number"][source] + j,
            # Rounding may put the last refresh an ulp behind the window's end.
            np.where(own, state["begin"][source], np.minimum(first[source] + (j - 1) * gap, end)),
            np.where(own, state["length"][source], gap),
            ~own | state["whole"][source],
            j == ended[source],
        )


def run_cycles(
    learner: CyclicLearner,
    descent: Descent,
    world: World | Crawler,
    problem: Problem,
    horizon: float,
    truth: Problem | None,
    checkpoint: str | Path | None,
    *,
    progress: bool,
) -> History:
    """Run a learner; see `freshopt.learning.mirror_sync.MirrorSync.run` for the arguments."""
    terms = Synchronization.of(problem, type(learner).__name__, learner.exploration, learner.seed)
    cycle = float(learner.cycle)
    if not 0.0 < cycle < np.inf:
        raise SourceDataError(f"cycle is {learner.cycle}. Pass a time between updates > 0.")
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
    last = play(
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
    """Probe and refresh the intervals between two updates; return what was seen and how many probes."""
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
    """Adapt the intervals under way of updated sources, in place; return how many are refreshed at once."""
    updated = np.flatnonzero(chosen)
    gap = 1.0 / state["rates"][updated]
    reset = terms.is_reset(updated, state["number"][updated])
    begin = np.where(reset, now, state["begin"][updated])
    state["begin"][updated] = begin
    state["length"][updated] = np.where(reset, gap, np.maximum(begin + gap, now) - begin)
    state["number"][updated] += 1
    state["whole"][updated] = reset
    state["probed"][updated] = np.nan
    at_once = updated[reset]
    crawler.refresh(at_once, np.full(len(at_once), now))
    return len(at_once)
