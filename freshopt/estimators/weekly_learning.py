"""Learning a weekly profile from a crawl log.

The rates of the sources are taken as they were estimated with a constant rate. With g the shape, of mean 1, a
span of a source of rate Δ has Λ = Δ∫g changes on average: it contributes ln(1 − e^{−Λ}) where some were
found, k ln Λ − Λ where k were counted, and −Λ where there were none; a dated change contributes ln g at its
date. Each term is concave in g. The shape of the week comes from `ShapeLikelihood.maximising`.

Crawl intervals are often longer than a day, and tell little about hours: smoothed bins would be lost in
noise. Four coefficients θ are not (`daily_shape`). With φ the cosines and sines of one and two turns a day
g = 1 + φ·θ, and Λ = Δ(length + B·θ), B = ∫φ over the span, is linear in θ: the likelihood is concave, and
Newton's iteration finds its maximum. A weak prior, θ ~ N(0, 1), decides where hours leave no trace, as in
gaps of whole days. Where the hours of the day have evidence of their own, the shape of the week gets them if
they then predict other weeks better.

The evidence of either is the log-likelihood that it gains over a constant rate on the log it was learnt from.
Logs of sources without a cycle reach 0.5 to 4 nats with 60 crawls a week apart, but 20 where few changes were
found by crawls hours apart: so many bins then fit noise. A shape that was learnt in every other week must
therefore gain in the weeks between, too; what was done to many sources once, on one day, does not.

An interval covers whole cycles and a remainder from one bin to another. The time that intervals spend in each
bin is a sum over those that end beyond the bin less those that begin beyond it: two counts by bin and one
cumulative sum, however many bins an interval covers. There is no table of intervals and bins.

A row tells about its crawl interval: an unknown number of changes, or a known one. A dated row tells its last
change and that none came after; what was before it in the crawl interval counts neither as exposure nor as
change. First dates, which may be births, are left out.

Cost: learning on all rows, and on each half of them: a few passes over the spans in which changes were found,
and some five Newton steps with four sines and cosines of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.estimators.week_clock import FIRST_MONDAY, WEEK, to_local
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_rows
from freshopt.units import SECONDS

ROUNDS = 25


@dataclass(frozen=True, slots=True, eq=False)
class ShapeLikelihood:
    """Log-likelihood of a piecewise constant shape, over that of a constant rate.

    - `found`: In which an unknown number of changes was found.
    - `found_rate`: Of their sources, per cycle.
    - `counted`: In which a known number > 0 of changes was found.
    - `number`: These numbers.
    - `dated` (bins,): How many dated changes fall in each bin.
    - `exposure` (bins,): Changes that constant rates would have in each bin, over all spans.
    """

    found: CycleSpans
    found_rate: Array
    counted: CycleSpans
    number: Array
    dated: Array
    exposure: Array

    @classmethod
    def of(cls, rows: ObservedSpans, period: float, bins: int) -> ShapeLikelihood:
        """Return the likelihood of shapes over a period in seconds."""
        spans = CycleSpans.of(rows.begin / period, rows.length / period, bins)
        rate = rows.rate * period
        some, known = np.isnan(rows.changes), rows.changes > 0.0
        dated = np.bincount(spans.first[rows.dated], minlength=bins).astype(np.float64)
        return cls(
            found=spans.select(some),
            found_rate=rate[some],
            counted=spans.select(known),
            number=rows.changes[known],
            dated=dated,
            exposure=spans.spread(rate),
        )

    def maximising(self) -> Array:
        """Return the shape that expectation maximisation with smoothing leads to, shape (bins,).

        Expected changes are spread over the bins of their spans as the shape is, N = Λ/(1 − e^{−Λ}) of them
        where their number is unknown, and divided by the exposure. Each round is smoothed over neighbouring
        bins with weights ¼, ½, ¼.
        """
        bins = len(self.exposure)
        g = np.ones(bins)
        for _ in range(ROUNDS if bins > 1 else 0):
            weight = self.found_rate / -np.expm1(-self.found_rate * self.found.integral(g))
            spread = self.found.spread(weight) + self.counted.spread(self.number / self.counted.integral(g))
            ratio = np.divide(
                self.dated + g * spread, self.exposure, out=np.ones(bins), where=self.exposure > 0.0
            )
            g = scaled(0.5 * ratio + 0.25 * (np.roll(ratio, 1) + np.roll(ratio, -1)))
        return g

    def gain(self, g: Array) -> float:
        """Return the log-likelihood less that of g = 1, in nats."""
        with np.errstate(divide="ignore"):
            at_dates = float(self.dated @ np.where(self.dated > 0.0, np.log(g), 0.0))
            counted = float(self.number @ np.log(self.counted.integral(g) / self.counted.length))
            found = float(
                np.sum(
                    _log_found(self.found_rate * self.found.integral(g))
                    - _log_found(self.found_rate * self.found.length)
                )
            )
        others = self.exposure - self.found.spread(self.found_rate)
        return at_dates + counted + found - float(others @ (g - 1.0))


def scaled(g: Array) -> Array:
    """Return a shape with mean 1; constant if it vanishes everywhere."""
    mean = float(np.mean(g))
    return g / mean if mean > 0.0 else np.ones(len(g))


def _log_found(x: Array) -> Array:
    """Return ln(1 − e^{−x})."""
    return np.log(-np.expm1(-x))


DAY = 86_400.0
# Newton steps, far more than the concave likelihood needs (most seen: 5), and halvings of one.
STEPS, HALVINGS = 30, 30
# Changes on average from which on finding one is no news.
CERTAIN = 700.0
# Gain in nats below which it has settled.
SETTLED = 1e-9


def daily_shape(rows: ObservedSpans, bins: int) -> Array:
    """Return the most likely shape of two harmonics over the day.

    As means over its bins, ≥ 0, with mean 1.
    """
    begin, length, rate = rows.begin / DAY, rows.length / DAY, rows.rate * DAY
    waves = wave_integrals(begin, length)
    some, known = np.isnan(rows.changes), rows.changes > 0.0
    none = -(np.where(some, 0.0, rate) @ waves)
    # Counted changes contribute k ln(length + B·θ), dated ones ln(1 + φ·θ).
    number = np.concatenate((rows.changes[known], np.ones(np.count_nonzero(rows.dated))))
    base = np.concatenate((length[known], np.ones(np.count_nonzero(rows.dated))))
    point = np.concatenate((waves[known], wave_values(begin[rows.dated])))
    rate, length, waves = rate[some], length[some], waves[some]

    def value(theta: Array) -> float:
        time, at = length + waves @ theta, base + point @ theta
        if min(np.min(time, initial=1.0), np.min(at, initial=1.0)) <= 0.0:
            return -np.inf
        found = np.sum(np.log(-np.expm1(-rate * time))) + number @ np.log(at)
        return float(none @ theta + found - 0.5 * theta @ theta)

    theta = np.zeros(4)
    best = value(theta)
    for _ in range(STEPS):
        x, at = rate * (length + waves @ theta), base + point @ theta
        odds = 1.0 / np.expm1(np.minimum(x, CERTAIN))
        slope = none + (rate * odds) @ waves + (number / at) @ point - theta
        curve = (waves.T * (rate * rate * odds * (1.0 + odds))) @ waves + (point.T * (number / at**2)) @ point
        step = np.linalg.solve(curve + np.eye(4), slope)
        for _ in range(HALVINGS):
            if value(theta + step) >= best:
                break
            step = 0.5 * step
        now = value(theta + step)
        if not now > best + SETTLED:
            break
        theta, best = theta + step, now
    edge = np.arange(bins) / bins
    return scaled(np.maximum(1.0 + wave_integrals(edge, np.full(bins, 1.0 / bins)) @ theta * bins, 0.0))


def with_hours(g: Array, hours: Array) -> Array:
    """Return a weekly shape with the daily one as its mean.

    Examples
    --------
    >>> with_hours(np.ones(14), np.array([0.5, 1.5]))[:4]
    array([0.5, 1.5, 0.5, 1.5])
    """
    days = g.reshape(7, len(hours))
    own = days.mean(axis=0)
    ratio = np.divide(hours, own, out=np.ones(len(hours)), where=own > 0.0)
    return scaled((days * ratio).reshape(-1))


def wave_values(time: Array) -> Array:
    """Return cosines and sines of one and two turns, (m, 4)."""
    turn = time % 1.0 * (2.0 * np.pi)
    cos, sin = np.cos(turn), np.sin(turn)
    return np.stack((cos, 2.0 * cos * cos - 1.0, sin, 2.0 * cos * sin), axis=1)


def wave_integrals(begin: Array, length: Array) -> Array:
    """Return the integrals of `wave_values` over spans, shape (m, 4)."""
    # sin(b + l) − sin(b) = 2 cos(b + l/2) sin(l/2) keeps its digits for short spans.
    half = np.pi * length
    sin = np.sin(half)
    once, twice = sin / np.pi, sin * np.cos(half) / np.pi
    return wave_values(begin + 0.5 * length) * np.stack((once, twice, once, twice), axis=1)


# Evidence in nats of hours of the day below which they are not used. Placebos reached 7.8 (of 500); with 126
# changed crawls, hours below it came out wrong.
ENOUGH_OF_DAY = 10.0
# Share of a constant rate in a shape that is tried on held-out weeks, where half of a log learnt too much of
# what was chance, and nats that it must gain there. Logs of 60 to 600 crawls a day without a cycle, on which
# the in-sample evidence alone would pass in 13 to 86 % of cases, then pass in 1 to 8 %.
CONSTANT, HELD_OUT = 0.3, 3.0


class LearntShape(NamedTuple):
    """The shape of a week, its evidence and that of the day."""

    g: Array
    evidence: float
    daily_evidence: float


def learnt_shape(
    log: CrawlLog, change_rate: Array, bins: int, zone: str | None, chosen: IntArray | None = None
) -> LearntShape:
    """Return the shape of the week, with its evidence.

    Hours of the day are learnt where the bins are a multiple of 7, above 7.
    """
    rows = ObservedSpans.of(log, change_rate, zone, chosen)
    parts = (rows, *rows.every_other(WEEK))
    weeks = [ShapeLikelihood.of(part, WEEK, bins) for part in parts]
    shapes = [week.maximising() for week in weeks]
    nats, held_out = _evidence(weeks, shapes)
    per_day = bins // 7 if bins % 7 == 0 else 1
    if per_day == 1:
        return LearntShape(shapes[0], nats, 0.0)
    hours = [daily_shape(part, per_day) for part in parts]
    of_day, _ = _evidence([ShapeLikelihood.of(part, DAY, per_day) for part in parts], hours)
    if of_day >= ENOUGH_OF_DAY:
        both = [with_hours(g, day) for g, day in zip(shapes, hours, strict=True)]
        nats_of_both, held_out_of_both = _evidence(weeks, both)
        if held_out_of_both > held_out:
            return LearntShape(both[0], nats_of_both, of_day)
    return LearntShape(shapes[0], nats, of_day)


def _evidence(likelihoods: list[ShapeLikelihood], shapes: list[Array]) -> tuple[float, float]:
    """Return a shape's evidence, and its gain on held-out weeks alone.

    The evidence is the gain in-sample, or that on held-out weeks where this is too small.
    """
    whole, even, odd = likelihoods
    held_out = sum(
        test.gain(CONSTANT + (1.0 - CONSTANT) * g) for test, g in ((even, shapes[2]), (odd, shapes[1]))
    )
    gain = whole.gain(shapes[0])
    return gain if held_out >= HELD_OUT else min(gain, held_out), held_out


@dataclass(frozen=True, slots=True, eq=False)
class CycleSpans:
    """Intervals on a cycle of length 1.

    - `bins`: Equal bins of the cycle.
    - `length` (m,): > 0, in cycles.
    - `whole` (m,): Whole cycles in each interval.
    - `first`, `last` (m,): The bins in which the remainder begins and ends; the second cycle's are bins, ...,
      2·bins − 1.
    - `into_first`, `into_last` (m,): How far into these bins, as a share of their width.
    """

    bins: int
    length: Array
    whole: Array
    first: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    into_first: Array
    into_last: Array

    @classmethod
    def of(cls, begin: Array, length: Array, bins: int) -> CycleSpans:
        """Return the intervals of given lengths from given moments, both in cycles.

        Examples
        --------
        >>> spans = CycleSpans.of(np.array([3.75]), np.array([1.5]), bins=4)
        >>> spans.integral(np.array([4.0, 0.0, 0.0, 0.0])), spans.spread(np.array([1.0]))
        (array([2.]), array([0.5 , 0.25, 0.25, 0.5 ]))
        """
        whole = np.floor(length)
        start = begin % 1.0 * bins
        end = start + (length - whole) * bins
        first = np.minimum(start.astype(np.int32), bins - 1)
        last = np.minimum(end.astype(np.int32), 2 * bins - 1)
        return cls(bins, length, whole, first, last, start - first, end - last)

    def select(self, keep: BoolArray) -> CycleSpans:
        """Return some of the intervals."""
        names = ("length", "whole", "first", "last", "into_first", "into_last")
        return CycleSpans(self.bins, *(getattr(self, name)[keep] for name in names))

    def integral(self, g: Array) -> Array:
        """Return ∫g over each interval, in cycles, for g of mean 1."""
        twice = np.concatenate((g, g)) / self.bins
        before = np.concatenate(([0.0], np.cumsum(twice)))
        between = before[self.last] - before[self.first]
        rest: Array = between + twice[self.last] * self.into_last - twice[self.first] * self.into_first
        return self.whole + np.maximum(rest, 0.0)

    def spread(self, weight: Array) -> Array:
        """Return the weighted time in each bin, in cycles."""
        both = self._beyond(self.last, self.into_last, weight) - self._beyond(
            self.first, self.into_first, weight
        )
        covered = both[: self.bins] + both[self.bins :]
        return np.maximum(covered + float(weight @ self.whole), 0.0) / self.bins

    def _beyond(self, edge: npt.NDArray[np.int32], into: Array, weight: Array) -> Array:
        """Return the weighted share of bins before the edges, shape (2·bins,)."""
        here: Array = np.bincount(edge, weight, 2 * self.bins).astype(np.float64)
        later: Array = np.cumsum(here[::-1])[::-1] - here
        return later + np.bincount(edge, weight * into, 2 * self.bins)


class ObservedSpans(NamedTuple):
    """Spans of time that crawls tell about.

    In seconds since a Monday 00:00.

    - `begin`, `length` (rows,): Of a crawl interval, or of the time since a date.
    - `rate` (rows,): Changes of the source per second.
    - `changes` (rows,): How many there were, NaN for an unknown number > 0.
    - `dated` (rows,): Whether a change happened as the span began, and none in it.
    """

    begin: Array
    length: Array
    rate: Array
    changes: Array
    dated: BoolArray

    @classmethod
    def of(
        cls, log: CrawlLog, change_rate: Array, zone: str | None, chosen: IntArray | None = None
    ) -> ObservedSpans:
        """Return what rows of sources with a finite positive rate tell."""
        if not log.timed:
            raise SourceDataError(
                "the log has no times, only crawl intervals. A weekly profile needs to know when crawls took "
                "place: give the log a column time."
            )
        unit = SECONDS[log.time_unit]
        counts = np.diff(log.offsets)
        if chosen is None:
            chosen = np.arange(len(counts))
        rows, rate = segment_rows(log.offsets, chosen), np.repeat(change_rate[chosen], counts[chosen]) / unit
        known = ~np.isnan(log.interval[rows]) & (rate > 0.0) & (rate < np.inf)
        use, rate = rows[known], rate[known]
        origin = log.clock.epoch(FIRST_MONDAY)
        end, length = log.time[use] * unit, log.interval[use] * unit
        changes = np.where(log.changed[use], np.nan, 0.0)
        if log.changes is not None:
            told = log.changes[use]
            changes = np.where(np.isnan(told), changes, told)
        dated = np.zeros(len(use), dtype=np.bool_)
        if log.last_modified is not None:
            date = log.last_modified[use] * unit
            dated = ~np.isnan(date)
            length = np.where(dated, end - date, length)
            changes = np.where(dated, 0.0, changes)
        begin = to_local(origin + end - length, zone)
        if zone is not None:
            # A span in which the clock is set back may seem to end before it begins: it keeps its length.
            shown = to_local(origin + end, zone) - begin
            length = np.where(shown > 0.0, shown, length)
        return cls(begin - FIRST_MONDAY, length, rate, changes, dated)

    def every_other(self, period: float) -> tuple[ObservedSpans, ObservedSpans]:
        """Return the spans ending in even and in odd periods, in seconds."""
        even = np.floor((self.begin + self.length) / period) % 2.0 == 0.0
        first, second = (ObservedSpans(*(column[own] for column in self)) for own in (even, ~even))
        return first, second
