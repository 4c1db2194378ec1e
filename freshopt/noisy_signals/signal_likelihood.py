"""Likelihood of change rate and signal quality.

With its maximum, for all sources at once.

A crawl s after the one before, with n signals in between, finds no change with probability e^{−(as+kn)}: a is
the rate of changes without a signal, and a signal leaves the copy as it was with probability e^{−k} = 1−p. So

    l(a, k) = Σ_changed ln(1 − e^{−(as+kn)}) − aS − kN,    S, N the sums of s and n over unchanged crawls,

which is concave, as ln(1 − e^{−x}) is and x is linear. A crawl before which no signal came, and that tells
when the last change was, τ before it, adds ln a − aτ: such a change was not announced, and is counted. The
maximum of l over a, k ≥ 0 lies on an edge or inside.
On an edge it is the likelihood of one rate, with crawl intervals s or n, which `CrawlLikelihood` maximises;
there the sign of the slope across the edge decides whether it is the global maximum. Inside, Newton's
iteration converges from anywhere: a and k both end short of their edges, and steps are halved until the
likelihood rises. Where a step would pass an edge towards which the likelihood does rise, a and k each take
their own step instead: else the edge would keep both from where they have to go ([1]_).

Cost: one exponential per changed crawl and step, five to ten steps.

References
----------
.. [1] Bertsekas, "Projected Newton methods for optimization problems with simple constraints", SIAM Journal
   on Control and Optimization 20 (1982), doi:10.1137/0320018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.errors import FreshoptError
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import Intervals
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_rows, segment_sums

STEPS = 200
# Relative step that ends the iteration. It converges quadratically: after such a step the error is rounding.
CLOSE = 1e-9
# Share of the way to an edge that a step goes at most.
SHORT = 0.9
# Negligible gain in likelihood, beside 1: one hundred-millionth of a standard error.
NOTHING = 1e-16
# Smallest curvature.
LEAST = 1e-280
# Relative slope across an edge that is rounding.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class SignalLikelihood:
    """Log-likelihood l(a, k) of each of n sources.

    - `intervals`, `signals` (m,): s and n of the crawls that found a change, source after source.
    - `offsets` (n+1,): Crawls ``offsets[k]`` up to, not including, ``offsets[k+1]`` are those of source k.
    - `time`, `heard` (n,): S and N, over crawls that found none; S with the times since changes that were
      counted.
    - `counted` (n,): The number of changes that were dated and not announced.
    """

    intervals: Array
    signals: Array
    offsets: IntArray
    time: Array
    heard: Array
    counted: Array

    @property
    def found(self) -> IntArray:
        """The number of crawls that found a change, shape (n,)."""
        return np.diff(self.offsets)

    @property
    def changed(self) -> BoolArray:
        """Which sources were found to have changed, shape (n,)."""
        return (self.found > 0) | (self.counted > 0.0)

    def value(self, a: Array, k: Array) -> Array:
        """Return l(a, k) at finite a and k per source."""
        with np.errstate(divide="ignore"):
            each = np.log(-np.expm1(-self._exponent(a, k)))
            dated = _times(self.counted, np.log(a))
        return segment_sums(each, self.offsets) + dated - a * self.time - k * self.heard

    def slopes(self, a: Array, k: Array) -> tuple[Array, Array]:
        """Return the score ∂l/∂a and ∂l/∂k.

        inf where a crawl that found a change has an exponent of 0.
        """
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            odds = 1.0 / np.expm1(self._exponent(a, k))
            by_signals = np.where(self.signals > 0.0, self.signals * odds, 0.0)
            dated = _times(self.counted, 1.0 / a)
        return (
            segment_sums(self.intervals * odds, self.offsets) + dated - self.time,
            segment_sums(by_signals, self.offsets) - self.heard,
        )

    def information(self, a: Array, k: Array) -> tuple[Array, Array, Array]:
        """Return −∂²l/∂a², −∂²l/∂a∂k and −∂²l/∂k²."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            odds = 1.0 / np.expm1(self._exponent(a, k))
            curve, dated = odds * (1.0 + odds), _times(self.counted, 1.0 / (a * a))
        s, n = self.intervals, self.signals
        first, mixed, second = (segment_sums(x * curve, self.offsets) for x in (s * s, s * n, n * n))
        return first + dated, mixed, second

    def maximum(self) -> tuple[Array, Array]:
        """Return the most likely (a, k), each of shape (n,).

        k is NaN where no crawl had a signal, inf where all crawls with signals found a change; a is inf where
        all crawls found one, and then k is as well; both are NaN where there are no crawls.
        """
        count = len(self.time)
        a, k = np.zeros(count), np.zeros(count)
        some = self.changed
        told = segment_sums(self.signals, self.offsets)  # by crawls that found a change
        a[some & (self.time == 0.0)] = np.inf
        k[(told > 0.0) & (self.heard == 0.0)] = np.inf
        k[(told == 0.0) & (self.heard == 0.0)] = np.nan
        a[~some & (self.time == 0.0)] = np.nan
        usual = some & (self.time > 0.0)

        # Every signal was followed by a change: crawls without one are left to tell a.
        sure = np.flatnonzero(usual & np.isinf(k))
        part = self.select(sure)
        a[sure] = part._one_rate(part.intervals, part.time, part.signals == 0.0)
        silent = np.flatnonzero(usual & (np.isnan(k) | (told == 0.0)))
        part = self.select(silent)
        a[silent] = part._one_rate(part.intervals, part.time)

        rest = np.flatnonzero(usual & (told > 0.0) & (self.heard > 0.0))
        part = self.select(rest)
        along = part._one_rate(part.intervals, part.time)
        a[rest] = along
        rising = part.slopes(along, np.zeros(len(rest)))[1] > ROUNDING * part.heard
        rest, part, along = rest[rising], part.select(np.flatnonzero(rising)), along[rising]
        # On the other edge every change must have had a signal.
        unheard = segment_sums((part.signals == 0.0).astype(np.float64), part.offsets) + part.counted
        able = unheard == 0.0
        up = np.zeros(len(rest))
        edge = part.select(np.flatnonzero(able))
        up[able] = edge._one_rate(edge.signals, edge.heard)
        falling = np.zeros(len(rest), dtype=np.bool_)
        falling[able] = edge.slopes(np.zeros(len(edge.time)), up[able])[0] <= ROUNDING * edge.time
        a[rest[falling]], k[rest[falling]] = 0.0, up[falling]
        inside = np.flatnonzero(~falling)
        a[rest[inside]], k[rest[inside]] = part.select(inside)._inside(along[inside])
        return a, k

    def hidden(self, a: Array, p: Array) -> tuple[Array, Array]:
        """Return the expected unannounced changes and true signals.

        Those behind the crawls that found a change, given the rates a and the precisions p < 1.
        """
        with np.errstate(divide="ignore"):
            certain = -1.0 / np.expm1(-self._exponent(a, -np.log1p(-p)))
        silent = a * segment_sums(self.intervals * certain, self.offsets) + self.counted
        return silent, p * segment_sums(self.signals * certain, self.offsets)

    def select(self, keep: IntArray) -> SignalLikelihood:
        """Return the likelihood of some of the sources."""
        rows, offsets = segment_rows(self.offsets, keep), np.append(0, np.cumsum(self.found[keep]))
        own = self.time[keep], self.heard[keep], self.counted[keep]
        return SignalLikelihood(self.intervals[rows], self.signals[rows], offsets, *own)

    def _exponent(self, a: Array, k: Array) -> Array:
        number = self.found
        exponent: Array = np.repeat(a, number) * self.intervals + np.repeat(k, number) * self.signals
        return exponent

    def _one_rate(self, intervals: Array, exposure: Array, rows: BoolArray | None = None) -> Array:
        """Return the maximum likelihood rate on an edge.

        Of crawl intervals of one kind, those of all crawls or some.
        """
        offsets = self.offsets
        if rows is not None:
            where = np.flatnonzero(rows)
            intervals, offsets = intervals[where], np.searchsorted(where, offsets).astype(np.int64)
        counted = np.zeros(len(exposure)) if self.counted is None else self.counted
        return CrawlLikelihood(Intervals(intervals, offsets), counted, exposure).maximum()

    def _inside(self, along: Array) -> tuple[Array, Array]:
        """Return the interior maxima, on no edge."""
        # At the maximum aS + kN = Σ x/(e^x − 1) over exponents x of changed crawls: their number at most.
        a, k = 0.5 * along, 0.5 * np.minimum(1.0, self.found / self.heard)
        at, part = np.arange(len(along)), self
        for _ in range(STEPS):
            if not len(at):
                return a, k
            now_a, now_k = a[at], k[at]
            up_a, up_k = part.slopes(now_a, now_k)
            first, mixed, second = part.information(now_a, now_k)
            step_a, step_k = _solve(first, mixed, second, up_a, up_k)
            value, gain = part.value(now_a, now_k), step_a * up_a + step_k * up_k
            small = np.maximum(np.abs(step_a) / now_a, np.abs(step_k) / now_k) <= CLOSE
            small |= gain <= NOTHING * (1.0 + np.abs(value))
            # Where the likelihood rises towards an edge that the step would pass, each goes by itself.
            alone = (step_a < -SHORT * now_a) & (up_a < 0.0)
            alone |= (step_k < -SHORT * now_k) & (up_k < 0.0)
            step_a = np.where(alone, up_a / np.maximum(first, LEAST), step_a)
            step_k = np.where(alone, up_k / np.maximum(second, LEAST), step_k)
            size = np.ones(len(at))
            for _ in range(60):
                new_a = np.maximum(now_a + size * step_a, (1.0 - SHORT) * now_a)
                new_k = np.maximum(now_k + size * step_k, (1.0 - SHORT) * now_k)
                hoped = (new_a - now_a) * up_a + (new_k - now_k) * up_k
                poor = ~small & ~(part.value(new_a, new_k) >= value + 1e-4 * hoped - 1e-13 * np.abs(value))
                if not bool(np.any(poor)):
                    break
                size = np.where(poor, 0.5 * size, size)
            a[at], k[at] = new_a, new_k
            moving = np.flatnonzero(~small)
            at, part = at[moving], part.select(moving)
        raise FreshoptError(
            f"recall and precision of {len(at)} sources did not settle in {STEPS} steps. Report their log."
        )


def counted_crawls(crawls: CrawlLog, known: BoolArray, signals: Array) -> SignalLikelihood:
    """Return the likelihood of known crawls and the signals before each."""
    interval, count = np.where(known, crawls.interval, 0.0), np.where(known, signals, 0.0)
    dated = np.zeros(len(crawls), dtype=np.bool_)
    since = interval
    if crawls.last_modified is not None:
        dated = known & crawls.changed & (count == 0.0) & ~np.isnan(crawls.last_modified)
        since = np.where(dated, crawls.time - crawls.last_modified, interval)
    found = np.flatnonzero(known & crawls.changed & ~dated)
    without = known & ~crawls.changed
    return SignalLikelihood(
        intervals=interval[found],
        signals=count[found],
        offsets=np.searchsorted(found, crawls.offsets).astype(np.int64),
        time=segment_sums(np.where(without | dated, since, 0.0), crawls.offsets),
        heard=segment_sums(np.where(without, count, 0.0), crawls.offsets),
        counted=segment_sums(dated.astype(np.float64), crawls.offsets),
    )


def _times(counted: Array, values: Array) -> Array:
    """Return the product, 0 where nothing was counted."""
    return np.multiply(counted, values, out=np.zeros(len(counted)), where=counted > 0.0)


def _solve(first: Array, mixed: Array, second: Array, up_a: Array, up_k: Array) -> tuple[Array, Array]:
    """Solve 2×2 linear systems, with a ridge where singular.

    [[first, mixed], [mixed, second]] x = up; the ridge is a trace.
    """
    # In units of the diagonal; crawls that all have one ratio n/s make the matrix singular.
    # Far above the maximum curvatures vanish: the steps then end where steps end.
    root_a, root_k = (np.sqrt(np.maximum(own, LEAST)) for own in (first, second))
    cosine = np.minimum(mixed / (root_a * root_k), 1.0)
    rest = np.maximum(1.0 - cosine * cosine, 1e-12)
    x, y = up_a / root_a, up_k / root_k
    return (x - cosine * y) / rest / root_a, (y - cosine * x) / rest / root_k
