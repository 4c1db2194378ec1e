"""Likelihood of Poisson change rates given a crawl log.

Its maximum and its profile are found for all sources at once.

A crawl at the end of an interval a finds a change with probability 1−e^{−aΔ}. With C the crawl intervals
after which an unknown number of changes was found, K the changes that were counted and U the sum of all other
crawl intervals,

    l(Δ) = Σ_C ln(1−e^{−aΔ}) + K ln Δ − UΔ,      l'(Δ) = S(Δ) − U,   S(Δ) = Σ_C a/(e^{aΔ}−1) + K/Δ.

S is completely monotone (a mixture of e^{−tΔ}), hence log-convex: Newton's iteration on ln S(Δ) = ln U, begun
left of the root, increases to it without a safeguard, and where one crawl interval length rules it is exact
after one step. l is concave in Δ and in ln Δ, so that Newton's iteration for an end of the profile, once
outside, moves inwards to it in the same way.

A crawl that found a change and tells when the last one was, τ before the crawl, contributes Δe^{−Δτ}: a
counted change in the time τ. The date of a source's first crawl, of age A, is its last change or its birth.
With lives exponential of rate η its density is (Δ+η)e^{−(Δ+η)A}: A more in U, and P ln(Δ+η) more in l, P = 1.
That adds P/(Δ+η) to S, which is completely monotone too. What a first date says depends on η, which a prior
brings (`under`); without one it is left out.

Cost: one expm1 per crawl interval in C and step, usually 4 steps for the maximum and 5 for each end of the
profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from freshopt.errors import FreshoptError
from freshopt.inference.compiled_likelihood import Peaks, maximise, split_rows, worthwhile
from freshopt.inference.dated_crawls import GammaParameters, counted_changes, first_dates
from freshopt.logs.crawl_log import CrawlLog, require_log
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.numerics.segments import segment_sums

# Crawl intervals worked on together: four vectors of 256 KiB stay in the second-level cache.
BLOCK = 32_768
# Relative step that ends the iteration. It converges quadratically: after such a step the error is about
# 1e-16.
STEP = 1e-8
# Largest number of steps, far more than any data needs (most seen: 20).
STEPS = 200
# Largest first step in ln Δ: where l is flat at its maximum, as for one long crawl interval among short ones,
# its curvature gives no width.
LEAP = 10.0

Iteration: TypeAlias = Callable[["CrawlLikelihood", Array, IntArray], Array]


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False)
class CrawlLikelihood:
    """Log-likelihood l(Δ) of each of n sources.

    Attributes
    ----------
    intervals : ndarray of float, shape (m,)
        The crawl intervals C after which an unknown number of changes was found, source after source.
    offsets : ndarray of int, shape (n+1,)
        Crawl intervals ``offsets[k]`` up to, not including, ``offsets[k+1]`` are those of source k.
    counted : ndarray of float, shape (n,)
        The number K of changes that were counted.
    exposure : ndarray of float, shape (n,)
        The sum U of all other crawl intervals.
    pseudo : float
        Length of the pseudo-observation, one more crawl interval in C, the same for every source; 0 for none.
    weight : ndarray of float, shape (m,), or None
        Of each crawl interval in C, if crawls do not count alike; then `counted` and `exposure` are weighted
        sums.
    possible, age : ndarray of float, shape (n,), or None
        Of sources whose first crawl tells a date P, 1 or the crawl's weight, and its weighted age; 0 of
        others. None where no first date is told.
    birth_rate : ndarray of float, shape (n,), or None
        η of a prior, given which `age` is part of `exposure`; None leaves first dates out.
    loaded : bool
        Whether compiled loops are loaded already, because the log that this is of has many rows. They then
        take samples of it too.

    Examples
    --------
    >>> log = CrawlLog(source=[7, 7, 7], time=[0.0, 1.0, 2.0], changed=[0, 1, 0])
    >>> CrawlLikelihood.of(log).maximum().round(6)
    array([0.693147])
    """

    intervals: Array
    offsets: IntArray
    counted: Array
    exposure: Array
    pseudo: float = 0.0
    weight: Array | None = None
    possible: Array | None = None
    age: Array | None = None
    birth_rate: Array | None = None
    loaded: bool = False

    @classmethod
    def of(cls, log: CrawlLog, weight: Array | None = None) -> CrawlLikelihood:
        """Return the likelihood of a log, with optional row weights."""
        require_log(log)
        if worthwhile(len(log)):
            return cls(**split_rows(log, weight), loaded=True)
        changes, time = counted_changes(log)
        known = ~np.isnan(changes)
        found = log.changed & ~known
        other = np.where(found | np.isnan(time), 0.0, time)
        number = np.where(known, changes, 0.0)
        where = np.flatnonzero(found)
        if weight is not None:
            other *= weight
            number *= weight
        possible, age = first_dates(log, weight=None if weight is None else weight[log.offsets[:-1]])
        return cls(
            intervals=log.interval[where],
            offsets=np.searchsorted(where, log.offsets).astype(np.int64),
            counted=segment_sums(number, log.offsets),
            exposure=segment_sums(other, log.offsets),
            weight=None if weight is None else weight[where],
            possible=possible,
            age=age,
        )

    def smoothed(self, pseudo: float) -> CrawlLikelihood:
        """Add a pseudo-observation to the likelihood.

        It is one changed and one unchanged crawl interval of the given length; 0 for none.
        """
        return replace(self, exposure=self.exposure + pseudo, pseudo=pseudo)

    def counting(self, changes: float | Array, time: float | Array) -> CrawlLikelihood:
        """Return the likelihood with conjugate gamma counts added.

        l(Δ) + changes·ln Δ − time·Δ: some counted changes more, in some time more.
        """
        return replace(self, counted=self.counted + changes, exposure=self.exposure + time)

    def under(self, prior: GammaParameters) -> CrawlLikelihood:
        """Return the posterior density of ln Δ under gamma priors.

        l(Δ) + a ln Δ − bΔ, with what first dates say given the rate of births.
        """
        posterior = self.counting(prior.shape, prior.exposure)
        if self.age is None:
            return posterior
        exposure = posterior.exposure + self.age
        return replace(posterior, exposure=exposure, birth_rate=prior.birth_rate)

    @property
    def found(self) -> IntArray:
        """Number of crawl intervals in C, shape (n,).

        Without the pseudo-observation.
        """
        return np.diff(self.offsets)

    def value(self, rate: Array) -> Array:
        """Return l(Δ) at one rate > 0 per source."""
        value = self._sums(_log_found(self.intervals * np.repeat(rate, self.found)))
        if self.pseudo:
            value += _log_found(self.pseudo * rate)
        if self.birth_rate is not None and self.possible is not None:
            value += self.possible * np.log(rate + self.birth_rate)
        return value + self.counted * np.log(rate) - self.exposure * rate

    def slope(self, rate: Array) -> tuple[Array, Array]:
        """Return the score S(Δ) and the observed information −S'(Δ).

        −S'(Δ) = −l''(Δ), at one rate > 0 per source.
        """
        # A crawl interval of 700/Δ and more adds 0; the information at rates of 1e-155 and less is inf.
        with np.errstate(over="ignore"):
            share = self.intervals / np.expm1(self.intervals * np.repeat(rate, self.found))
            one = self.pseudo / np.expm1(self.pseudo * rate) if self.pseudo else np.zeros(len(rate))
            total = self._sums(share) + one
            share *= share + self.intervals
            curve = self._sums(share) + one * (one + self.pseudo)
            each = self.counted / rate
            total, curve = total + each, curve + each / rate
        if self.birth_rate is not None and self.possible is not None:
            either = 1.0 / (rate + self.birth_rate)
            total, curve = total + self.possible * either, curve + self.possible * either * either
        return total, curve

    def maximum(self) -> Array:
        """Return the rates of largest likelihood, shape (n,).

        0 where nothing changed, inf where every crawl interval ended with a change, NaN where there is no
        crawl interval.
        """
        if self.loaded or worthwhile(len(self.intervals)):
            return maximise(self, *self._begin()).rate
        rate = np.empty(len(self.counted))
        for part, block in self._blocks():
            start, moving = block._begin()
            rate[part] = block._iterate(start, np.flatnonzero(moving), _step_to_maximum)
        return rate

    def peaks(self) -> Peaks:
        """Return the maxima, with values and curvatures.

        All > 0 and finite; of l, and of minus its second derivatives in ln Δ.
        """
        if self.loaded or worthwhile(len(self.intervals)):
            return maximise(self, *self._begin(), described=True)
        rate = self.maximum()
        return Peaks(rate, self.value(rate), rate * rate * self.slope(rate)[1])

    def profile(self, rate: Array, drop: float) -> tuple[Array, Array]:
        """Return the ends of the likelihood interval.

        {Δ: l(Δ) ≥ l(rate) − drop}, `rate` being the maximum.

        Where nothing changed the lower end is 0, where every crawl interval ended with a change the upper end
        is inf, and where there is no crawl interval they are 0 and inf.
        """
        lower, upper = np.zeros(len(rate)), np.full(len(rate), np.inf)
        for part, block in self._blocks():
            lower[part], upper[part] = block._profile(rate[part], drop)
        return lower, upper

    def _begin(self) -> tuple[Array, BoolArray]:
        """Return starts left of the maxima, and which are not there yet."""
        found, span = self._number(), self._span()
        changed = (found > 0) | (self.counted > 0)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            # Both bound the root from below: 1/(e^x−1) ≥ 1/x − 1/2, and Jensen with the mean crawl interval.
            linear = (found + self.counted) / (self.exposure + 0.5 * span)
            jensen = np.where(found > 0, np.log1p(span / self.exposure) * (found / span), 0.0)
        rate = np.where(changed, np.maximum(linear, jensen), 0.0)
        rate[~changed & (self.exposure == 0)] = np.nan
        return rate, changed & (self.exposure > 0)

    def _profile(self, rate: Array, drop: float) -> tuple[Array, Array]:
        inside = np.isfinite(rate) & (rate > 0)
        level, width = np.full(len(rate), -drop), np.zeros(len(rate))  # sup l = 0 at 0 and inf
        at = self.select(inside)
        level[inside] = at.value(rate[inside]) - drop
        width[inside] = np.sqrt(2.0 * drop / at.slope(rate[inside])[1])

        def step_down(part: CrawlLikelihood, at: Array, sources: IntArray) -> Array:
            total, _ = part.slope(at)  # Newton in ln Δ, in which l falls linearly far to the left
            step = _ratio(level[sources] - part.value(at), at * (total - part.exposure))
            return at * np.expm1(np.maximum(step, -LEAP))

        def step_up(part: CrawlLikelihood, at: Array, sources: IntArray) -> Array:
            total, _ = part.slope(at)  # Newton in Δ, in which l falls linearly far to the right
            return _ratio(level[sources] - part.value(at), total - part.exposure)

        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            lower = rate * np.exp(-np.minimum(width / rate, LEAP))
            # Every crawl interval changed: by Jensen at most N ln(1−e^{−Δ·mean crawl interval}), so this
            # start lies outside.
            mean = self._span() / self._number()
            lower = np.where(np.isinf(rate), -np.log1p(-np.exp(-drop / self._number())) / mean, lower)
            upper = np.where(inside, rate + width, np.inf)
            upper = np.where(rate == 0, drop / self.exposure, upper)
        lower[rate == 0] = 0.0
        lower[np.isnan(rate)] = 0.0
        # Without a drop the level is that of an infinite rate itself.
        lower = self._iterate(lower, np.flatnonzero((rate > 0) & np.isfinite(lower)), step_down)
        return lower, self._iterate(upper, np.flatnonzero(inside), step_up)

    def _iterate(self, rate: Array, sources: IntArray, step: Iteration) -> Array:
        """Iterate a step until convergence, source by source.

        It is applied to those sources only that still move.
        """
        part = self.select(sources)
        for _ in range(STEPS):
            if len(sources) == 0:
                return rate
            at = rate[sources]
            move = step(part, at, sources)
            rate[sources] = at + move
            moving = np.abs(move) > STEP * at
            if not moving.all():
                part, sources = part.select(moving), sources[moving]
        raise FreshoptError(
            f"the change rates of {len(sources)} sources did not settle in {STEPS} steps. Report their gaps."
        )

    def select(self, keep: BoolArray | IntArray) -> CrawlLikelihood:
        """Return the likelihood of some of the sources.

        They are given as a mask or as increasing positions.
        """
        mask = np.zeros(len(self.counted), dtype=np.bool_)
        mask[keep] = True
        if mask.all():
            return self
        return CrawlLikelihood(
            intervals=self.intervals[np.repeat(mask, self.found)],
            offsets=np.concatenate([[0], np.cumsum(self.found[mask])]).astype(np.int64),
            counted=self.counted[mask],
            exposure=self.exposure[mask],
            pseudo=self.pseudo,
            weight=None if self.weight is None else self.weight[np.repeat(mask, self.found)],
            loaded=self.loaded,
            **self._first(mask),
        )

    def _first(self, keep: BoolArray | slice) -> dict[str, Any]:
        """Return what first dates tell of some of the sources."""
        parts = {"possible": self.possible, "age": self.age, "birth_rate": self.birth_rate}
        return {key: None if part is None else part[keep] for key, part in parts.items()}

    def _span(self) -> Array:
        """Sum the crawl intervals in C, with the pseudo-observation."""
        return self._sums(self.intervals) + self.pseudo

    def _number(self) -> Array:
        """Return the weighted number of crawl intervals in C.

        With the pseudo-observation.
        """
        number = (
            self.found.astype(np.float64) if self.weight is None else segment_sums(self.weight, self.offsets)
        )
        return number + 1.0 * (self.pseudo > 0)

    def _sums(self, values: Array) -> Array:
        return segment_sums(values if self.weight is None else self.weight * values, self.offsets)

    def _blocks(self) -> Iterator[tuple[slice, CrawlLikelihood]]:
        """Yield the sources in blocks of about `BLOCK` crawl intervals."""
        n, start = len(self.counted), 0
        while start < n:
            end = int(np.searchsorted(self.offsets, self.offsets[start] + BLOCK, side="right")) - 1
            end = min(max(end, start + 1), start + BLOCK, n)
            offsets = self.offsets[start : end + 1]
            block = CrawlLikelihood(
                intervals=self.intervals[offsets[0] : offsets[-1]],
                offsets=offsets - offsets[0],
                counted=self.counted[start:end],
                exposure=self.exposure[start:end],
                pseudo=self.pseudo,
                weight=None if self.weight is None else self.weight[offsets[0] : offsets[-1]],
                **self._first(slice(start, end)),
            )
            yield slice(start, end), block
            start = end


def _step_to_maximum(part: CrawlLikelihood, at: Array, sources: IntArray) -> Array:  # noqa: ARG001 - an Iteration
    total, curve = part.slope(at)
    return np.log(total / part.exposure) * (total / curve)


def _log_found(x: Array) -> Array:
    """Return ln(1−e^{−x}), accurate to a few ulp."""
    return np.log(-np.expm1(-x))


def _ratio(numerator: Array, slope: Array) -> Array:
    """Return Newton's step, 0 where the slope vanishes.

    It vanishes at the maximum itself.
    """
    step: Array = np.divide(numerator, slope, out=np.zeros(len(slope)), where=slope != 0.0)
    return step
