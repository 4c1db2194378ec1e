"""What a rule is, and its crawls in a world.

A rule sees of each source what its program sees: whether a fetch found a change, and the dates of entries
that it knew. It answers with the time to the next fetch. Sources do not influence each other: all are fetched
first when they begin, and politeness, queues and cycles of a crawler take no time.
Cost: some 50 µs and 50 ns a source for the k-th fetches of all sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import first_beyond
from freshopt.simulation.staleness_integrals import grouped, grouped_integrals, window_of
from freshopt.simulation.standard_errors import Run, drawn_world, measured_runs, runs_wanted, weights_of
from freshopt.simulation.world import World
from freshopt.units import SECONDS

if TYPE_CHECKING:
    from freshopt.modelling.objective import Objective
    from freshopt.simulation.replay_result import Replay

# Fetches of a rule, some GiB; and of one source, some minutes.
MOST_CRAWLS, MOST_STEPS = 30_000_000, 2_000_000
# An interval has settled once it comes within this factor of the mean of the later ones, or crosses it.
NEAR = 1.2
# What settings may be, besides times of a second or more and factors from 1.
BOUNDS = {"increase": (0.0, 100.0), "decrease": (0.0, 0.99), "shift": (0.0, 0.99), "retry": (0.0, np.inf)}
# Fetches from which such a mean is taken.
FEWEST = 4


class Dates(NamedTuple):
    """Dates of changes that were known before the fetches of some sources."""

    times: Array
    recent: IntArray
    known: IntArray
    found: IntArray
    moment: Array
    second: float

    def within(self, seconds: float) -> tuple[IntArray, Array]:
        """Return how many are so recent, and the seconds they span."""
        own, end = self.found, self.known[self.found]
        first = first_beyond(self.times, self.recent[own], end, self.moment - self.second * seconds)
        self.recent[own] = first
        with np.errstate(invalid="ignore"):
            span = self.times[end - 1] - self.times[first]
        return end - first, np.where(end > first, span, 0.0) / self.second


class Fetched(NamedTuple):
    """What fetches that were answered tell, one each of some sources.

    Whether there was a change since the last one that was, how many seconds that is ago, whether one failed
    since, and dates.
    """

    changed: BoolArray
    gap: Array
    failed: BoolArray
    dates: Dates


@runtime_checkable
class Rule(Protocol):
    """From what a fetch found to the time of the next.

    Settings are seconds and factors.
    """

    @property
    def first(self) -> float:
        """The interval after the first fetch."""

    @property
    def retry(self) -> float:
        """The time to the next after a failed one; 0: the interval."""

    def after(self, own: Array, seen: Fetched) -> Array:
        """Return the seconds to the next fetches.

        Of each source there are three numbers to be kept in `own`, shape (3, m), first the interval.
        """


class RuleCrawls(NamedTuple):
    """Crawls of a rule, source by source, with the interval after each."""

    source: IntArray
    time: Array
    changed: BoolArray
    interval: Array


def require_settings(name: str, rule: Rule) -> None:
    """Raise SourceDataError if a setting of a rule is out of bounds."""
    for key, value in {each.name: getattr(rule, each.name) for each in fields(cast(Any, rule))}.items():
        low, high = BOUNDS.get(key, (1.0, np.inf))
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            until = "" if high == np.inf else f" to {high:g}"
            raise SourceDataError(
                f"the rule {name!r} has {key}={value!r}. Pass a number from {low:g}{until}."
            )


def rule_crawls(
    rule: Rule,
    world: World,
    end: npt.ArrayLike,
    answered: Callable[[IntArray, Array], BoolArray] | None = None,
    seed: int | None = None,
) -> RuleCrawls:
    """Return the crawls that a rule makes in a world.

    They go on to the end of each source. `answered` says which fetches are, of given sources at given times;
    by default all. With a seed the first gap of each source ends at random, so that no clock of the changes
    keeps step with the fetches.

    Examples
    --------
    >>> world = World.from_events({"source": [0], "time": [2.0]}, horizon=9.0)
    >>> from freshopt.simulation.rules import BackOff
    >>> rule_crawls(BackOff(first=86400.0), world, 9.0).time
    array([0., 1., 3., 4., 6.])
    """
    n, second = len(world), 1.0 / SECONDS[world.time_unit]
    until = np.broadcast_to(np.asarray(end, dtype=np.float64), n)
    offsets, times = world.events(-np.inf, float(np.max(until, initial=-np.inf)))
    # Behind the changes of each source stands one that never comes.
    times, first = np.insert(times, offsets[1:], np.inf), offsets[:-1] + np.arange(n)
    last = offsets[1:] + np.arange(n)
    now = np.array(np.broadcast_to(world.start, n), dtype=np.float64)
    known, recent, own = first_beyond(times, first, last, now), first.copy(), np.zeros((3, n))
    own[0], latest, failed = rule.first, now.copy(), np.zeros(n, dtype=np.bool_)
    gap = rule.first * (np.ones(n) if seed is None else np.random.default_rng([seed, 37]).random(n))
    at = np.flatnonzero(now <= until)
    rows, total = [RuleCrawls(at, now[at], failed[at], own[0, at])], len(at)
    while True:
        moment = now[at] + second * gap[at]
        there = moment <= until[at]
        at, moment = at[there], moment[there]
        if not len(at):
            break
        told = np.ones(len(at), dtype=np.bool_) if answered is None else answered(at, moment)
        changed = told & (times[known[at]] <= moment)
        found, lost, late = at[told], at[~told], at[changed]
        dates = Dates(times, recent, known, found, moment[told], second)
        seen = Fetched(changed[told], (moment[told] - latest[found]) / second, failed[found], dates)
        kept = own[:, found]
        gap[found] = rule.after(kept, seen)
        own[:, found], gap[lost] = kept, rule.retry or own[0, lost]
        known[late] = first_beyond(times, known[late], last[late], moment[changed])
        now[at], latest[found], failed[at] = moment, moment[told], ~told
        rows.append(RuleCrawls(at, moment, changed, own[0, at]))
        total += len(at)
        if total > MOST_CRAWLS or len(rows) > MOST_STEPS:
            raise SourceDataError(
                f"{rule!r} makes more than {total:,} fetches of {n} sources, too many to replay one by one. "
                "Leave it out, or compare on fewer sources or a shorter log."
            )
    source, time, changes, interval = (np.concatenate(each) for each in zip(*rows, strict=True))
    order = np.lexsort((time, source))
    return RuleCrawls(source[order], time[order], changes[order], second * interval[order])


def settling(crawls: RuleCrawls, n: int, begin: float) -> tuple[float, float]:
    """Return after how many fetches intervals settle.

    With it comes how many there were before a moment; both are medians over the n sources, NaN where none has
    four fetches after it. An interval has settled once it comes within a fifth of the geometric mean of those
    after the moment, or crosses it.
    """
    source, later = crawls.source, crawls.time > begin
    many = np.bincount(source[later], minlength=n)
    known = many >= FEWEST
    if not np.any(known):
        return float("nan"), float("nan")
    size = np.log(crawls.interval)
    level = np.bincount(source[later], size[later], n) / np.maximum(many, 1)
    firsts = np.searchsorted(source, np.arange(n))
    turn, off = np.arange(len(source)) - firsts[source], size - level[source]
    there = (np.abs(off) <= np.log(NEAR)) | (np.sign(off) != np.sign(off[firsts[source]]))
    settled = np.full(n, np.inf)
    np.minimum.at(settled, source[there], turn[there])
    before = np.bincount(source[~later], minlength=n)
    return float(np.median(settled[known])), float(np.median(before[known]))


def replay_rule(
    rule: Rule,
    world: World,
    *,
    origin: float | None = None,
    skip: float = 0.0,
    end: npt.ArrayLike | None = None,
    importance: npt.ArrayLike | None = None,
    objective: Objective | None = None,
    runs: int | None = None,
    seed: int = 0,
) -> Replay:
    """Measure what a rule costs in a world.

    As `freshopt.replay` measures a schedule. The rule begins with the world; costs count from `skip` after
    the origin, which is when all copies are fresh.
    """
    begin = float(np.min(world.start)) if origin is None else float(origin)
    window = window_of(world, begin, skip, world.horizon if end is None else end, world.horizon)
    drawn, wanted = runs_wanted(world, runs)
    own = 1.0 if world.sources is None else world.sources.importance
    weight = weights_of(own if importance is None else importance, len(world))

    def one(run: int) -> Run:
        here = drawn_world(world, run)
        crawls = rule_crawls(rule, here, window.until, seed=seed + run)
        refreshes = grouped(crawls.source, crawls.time, len(world))
        return Run(grouped_integrals(here, refreshes, window, objective), window.count(refreshes))

    found = measured_runs(one, weight, window, drawn=drawn, wanted=wanted)
    return found.replay(begin + skip, float(np.max(window.until)), world.time_unit)
