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

The formulas are those of `crawl_formulas`, which large logs leave to compiled loops.

Cost: one expm1 per crawl interval in C and step, usually 4 steps for the maximum and 5 for each end of the
profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numpy as np

from freshopt.compiled import backend
from freshopt.errors import FreshoptError
from freshopt.estimators.crawl_formulas import (
    CUBIC,
    Loops,
    OtherTerms,
    Peaks,
    climbing_step,
    curvature,
    information,
    log_likelihood,
    other_slopes,
    turning,
    with_jeffreys,
)
from freshopt.estimators.crawl_rows import (
    FirstDates,
    GammaParameters,
    Intervals,
    SplitRows,
    first_dates,
    split_rows,
)
from freshopt.logs.crawl_log import CrawlLog, require_log
from freshopt.numerics.arrays import CHUNK, Array, BoolArray, IntArray, chunks
from freshopt.numerics.frozen_arrays import frozen_value

Columns = TypeVar("Columns", bound=tuple[Any, ...])

# Crawl intervals from which loops are used. Loaded they pay from 100 000 on, and from 10 000 for the 170
# evidences of a prior; but compiling them, once per machine, takes the ten seconds that NumPy takes for so
# many, and nobody's first plan should wait for that. The number of rows alone decides: the same log gives the
# same bits.
WORTHWHILE = 500_000
# Relative step that ends the iteration to a maximum, which is of third order.
STEP = 3e-6
# Crawl intervals worked on together: four vectors of 256 KiB stay in the second-level cache.
BLOCK = 32_768
# Relative step that ends Newton's iteration to an end of the profile. It converges quadratically: after such
# a step the error is about 1e-16.
NEAR = 1e-8
# A rate that is none: where the weights of all crawls vanish the profile has no lower end above it.
NONE = 1e-200
# Largest number of steps, far more than any data needs (most seen: 20).
STEPS = 200
# Largest first step in ln Δ: where l is flat at its maximum, as for one long crawl interval among short ones,
# its curvature gives no width.
LEAP = 10.0

Iteration: TypeAlias = Callable[["CrawlLikelihood", Array, IntArray, int], Array]


@frozen_value()
class CrawlLikelihood:
    """Log-likelihood l(Δ) of each of n sources.

    - `rows`: The crawl intervals C after which an unknown number of changes was found.
    - `counted` (n,): The number K of changes that were counted.
    - `exposure` (n,): The sum U of all other crawl intervals. If crawls do not count alike these are weighted
      sums.
    - `dates`: None where no first date is told.
    - `birth_rate` (n,): η of a prior, given which the age of first dates is part of `exposure`; None leaves
      first dates out.
    - `quiet`: The crawl intervals without a change, and without a count: with them the density is under
      Jeffreys' prior.
    - `time` (n,): With these the time in which changes were counted.
    - `loaded`: Whether compiled loops are loaded already, because the log that this is of has many rows. They
      then take samples of it too.

    Examples
    --------
    >>> log = CrawlLog(source=[7, 7, 7], time=[0.0, 1.0, 2.0], changed=[0, 1, 0])
    >>> CrawlLikelihood.of(log).maximum().round(6)
    array([0.693147])
    """

    rows: Intervals
    counted: Array
    exposure: Array
    dates: FirstDates | None = None
    birth_rate: Array | None = None
    quiet: Intervals | None = None
    time: Array | None = None
    loaded: bool = False

    @classmethod
    def of(cls, log: CrawlLog, weight: Array | None = None, *, jeffreys: bool = False) -> CrawlLikelihood:
        """Return a log's likelihood, with row weights, under Jeffreys' prior if asked."""
        require_log(log)
        loaded = worthwhile(len(log))
        split = split_by_loops if loaded else split_rows
        rows, quiet, counted, time, exposure = split(log, weight, quiet=jeffreys)
        return cls(
            rows=rows,
            counted=counted,
            exposure=exposure,
            dates=first_dates(log, None if weight is None else weight[log.offsets[:-1]]),
            quiet=quiet,
            time=time if jeffreys else None,
            loaded=loaded,
        )

    def smoothed(self, length: float) -> CrawlLikelihood:
        """Add a changed and an unchanged crawl interval of a given length."""
        if length == 0.0:
            return self
        return replace(self, rows=self.rows.with_one_more(length), exposure=self.exposure + length)

    def counting(self, changes: float | Array, time: float | Array) -> CrawlLikelihood:
        """Return the likelihood with gamma counts, l(Δ) + changes·ln Δ − time·Δ."""
        return replace(self, counted=self.counted + changes, exposure=self.exposure + time)

    def under(self, prior: GammaParameters) -> CrawlLikelihood:
        """Return the posterior density of ln Δ under gamma priors.

        l(Δ) + a ln Δ − bΔ, with what first dates say given the rate of births.
        """
        posterior = self.counting(prior.shape, prior.exposure)
        if self.dates is None:
            return posterior
        exposure = posterior.exposure + self.dates.age
        return replace(posterior, exposure=exposure, birth_rate=prior.birth_rate)

    def pooled(self) -> tuple[float, float]:
        """Return the changes of all sources, and about the time they took."""
        changes = float(np.sum(self.found + self.counted))
        return changes, float(np.sum(self.exposure) + 0.5 * np.sum(self.rows.length))

    @property
    def found(self) -> IntArray:
        """Number of crawl intervals in C, shape (n,)."""
        return self.rows.number

    @property
    def known(self) -> BoolArray:
        """Sources of which there is any crawl interval, shape (n,)."""
        known: BoolArray = (self.found > 0) | (self.counted > 0.0) | (self.exposure > 0.0)
        return known

    @property
    def terms(self) -> OtherTerms:
        """All but the crawl intervals in C."""
        if self.birth_rate is None or self.dates is None:
            none = np.zeros(len(self.counted))
            return OtherTerms(self.counted, self.exposure, none, none)
        return OtherTerms(self.counted, self.exposure, self.dates.possible, self.birth_rate)

    def density(self, t: Array) -> tuple[Array, Array, Array]:
        """Return l at one t per source, with two derivatives.

        t is ln Δ. Under Jeffreys' prior, where there are `quiet` crawl intervals, those of the log posterior
        density.
        """
        return self._density(t, np.exp(t))

    def _density(self, t: Array, rate: Array) -> tuple[Array, Array, Array]:
        rows = self.rows
        x, odds, q = rows.shares(rate)
        sums = rows.sums(np.log1p(odds)), rows.sums(q), rows.sums(curvature(x, q))
        likelihood: tuple[Array, Array, Array] = log_likelihood(sums, self.terms, t, rate)
        if self.quiet is None or self.time is None:
            return likelihood
        y, _, p = self.quiet.shares(rate)
        counted = self.time * rate
        h = [
            rows.sums(one) + self.quiet.sums(other) + counted
            for one, other in zip(information(x, q), information(y, p), strict=True)
        ]
        posterior: tuple[Array, Array, Array] = with_jeffreys(likelihood, *h)
        return posterior

    def value(self, rate: Array) -> Array:
        """Return l(Δ) at one rate > 0 per source."""
        return self._density(np.log(rate), rate)[0]

    def slope(self, rate: Array) -> tuple[Array, Array]:
        """Return the score S(Δ) and the observed information −S'(Δ) by source."""
        x, _, q = self.rows.shares(rate)
        slope, curve, _ = other_slopes(self.terms, rate)
        slope = slope + self.rows.sums(q)
        # The information at rates of 1e-155 and less is inf.
        with np.errstate(over="ignore"):
            return slope / rate, (slope - curve - self.rows.sums(curvature(x, q))) / rate / rate

    def maximum(self) -> Array:
        """Return the rates of largest likelihood, shape (n,).

        0 where nothing changed, inf where every crawl interval ended with a change, NaN where there is no
        crawl interval.
        """
        if self.loaded or worthwhile(len(self.rows.length)):
            found: Array = self._maximise(described=False).rate
            return found
        rate = np.empty(len(self.counted))
        for part, block in self._blocks():
            start, moving = block._begin()
            rate[part] = block._iterate(start, np.flatnonzero(moving), _step_to_maximum, STEP)
        return rate

    def peaks(self) -> Peaks:
        """Return the maxima, with values and curvatures.

        All > 0 and finite; of l, and of minus its second derivatives in ln Δ.
        """
        if self.loaded or worthwhile(len(self.rows.length)):
            return self._maximise(described=True)
        rate = self.maximum()
        value, _, curve = self._density(np.log(rate), rate)
        return Peaks(rate, value, -curve)

    def _maximise(self, *, described: bool) -> Peaks:
        """Return the maxima by compiled loops, described by values and curvatures."""
        rate, moving = self._begin()
        peaks = Peaks(rate, *np.empty((2, len(rate) if described else 0)))
        given = (plain(self.rows), plain(self.terms), STEP, STEPS, moving, peaks)
        with np.errstate(over="ignore"):
            unsettled = sum(
                crawl_loops()[0](part.start, part.stop, *given) for part in chunks(len(rate), CHUNK)
            )
        if unsettled:
            raise _unsettled(unsettled)
        return peaks

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
        found, span = self.rows.size, self.rows.span
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

        def step_down(part: CrawlLikelihood, at: Array, sources: IntArray, _: int) -> Array:
            value, slope, _curve = part._density(np.log(at), at)
            # Newton in ln Δ, in which l falls linearly far to the left.
            step = np.expm1(np.maximum(_ratio(level[sources] - value, slope), -LEAP))
            return np.where(at > NONE, step, 0.0)

        def step_up(part: CrawlLikelihood, at: Array, sources: IntArray, _: int) -> Array:
            value, slope, _curve = part._density(np.log(at), at)
            # Newton in Δ, in which l falls linearly far to the right.
            return _ratio(level[sources] - value, slope)

        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            lower = rate * np.exp(-np.minimum(width / rate, LEAP))
            # Every crawl interval changed: by Jensen at most N ln(1−e^{−Δ·mean crawl interval}), so this
            # start lies outside.
            found = self.rows.size
            mean = self.rows.span / found
            lower = np.where(np.isinf(rate), -np.log1p(-np.exp(-drop / found)) / mean, lower)
            upper = np.where(inside, rate + width, np.inf)
            upper = np.where(rate == 0, drop / self.exposure, upper)
        lower[rate == 0] = 0.0
        lower[np.isnan(rate)] = 0.0
        # Without a drop the level is that of an infinite rate itself.
        lower = self._iterate(lower, np.flatnonzero((rate > 0) & np.isfinite(lower)), step_down, NEAR)
        return lower, self._iterate(upper, np.flatnonzero(inside), step_up, NEAR)

    def _iterate(self, rate: Array, sources: IntArray, step: Iteration, small: float) -> Array:
        """Iterate a relative step until it is small, source by source."""
        part = self.select(sources)
        for k in range(STEPS):
            if len(sources) == 0:
                return rate
            move = step(part, rate[sources], sources, k)
            rate[sources] *= 1.0 + move
            moving = np.abs(move) > small
            if not moving.all():
                part, sources = part.select(moving), sources[moving]
        raise _unsettled(len(sources))

    def select(self, keep: BoolArray | IntArray) -> CrawlLikelihood:
        """Return the likelihood of sources by a mask or increasing positions."""
        mask = np.zeros(len(self.counted), dtype=np.bool_)
        mask[keep] = True
        if mask.all():
            return self
        return self._of(mask, self.rows.select(mask), None if self.quiet is None else self.quiet.select(mask))

    def _of(self, keep: BoolArray | slice, rows: Intervals, quiet: Intervals | None) -> CrawlLikelihood:
        """Return the likelihood of sources with the given crawl intervals."""
        own = ("counted", "exposure", "birth_rate", "time")
        columns: dict[str, Any] = {
            name: column[keep] for name in own if (column := getattr(self, name)) is not None
        }
        dates = None if self.dates is None else self.dates.of(keep)
        return replace(self, rows=rows, quiet=quiet, dates=dates, **columns)

    def _blocks(self) -> Iterator[tuple[slice, CrawlLikelihood]]:
        """Yield the sources in blocks of about `BLOCK` crawl intervals."""
        n, start = len(self.counted), 0
        ends = self.rows.offsets if self.quiet is None else self.rows.offsets + self.quiet.offsets
        while start < n:
            end = int(np.searchsorted(ends, ends[start] + BLOCK, side="right")) - 1
            part = slice(start, min(max(end, start + 1), start + BLOCK, n))
            quiet = None if self.quiet is None else self.quiet.part(part)
            yield part, self._of(part, self.rows.part(part), quiet)
            start = part.stop


def _step_to_maximum(part: CrawlLikelihood, at: Array, sources: IntArray, k: int) -> Array:  # noqa: ARG001 - an Iteration
    x, _, q = part.rows.shares(at)
    sums = part.rows.sums
    slopes = sums(q), sums(curvature(x, q)), sums(turning(x, q))
    step: Array = climbing_step(slopes, part.terms, at, k < CUBIC)
    return step


def _unsettled(count: int) -> FreshoptError:
    return FreshoptError(
        f"the change rates of {count} sources did not settle in {STEPS} steps. Report their gaps."
    )


def _ratio(numerator: Array, slope: Array) -> Array:
    """Return Newton's step, 0 where the slope vanishes."""
    step: Array = np.divide(numerator, slope, out=np.zeros(len(slope)), where=slope != 0.0)
    return step


def worthwhile(rows: int) -> bool:
    """Return whether so many rows are left to compiled loops."""
    return rows >= WORTHWHILE and backend.compiled()


@cache
def crawl_loops() -> Loops:
    """Return the loops (maximise, split, quantiles); numba loads only if needed."""
    from freshopt.estimators.crawl_loops import build  # noqa: PLC0415

    loops: Loops = build()
    return loops


def plain(columns: Columns) -> Columns:
    """Return read-only contiguous views, of one type, of a tuple's arrays."""
    views = []
    for column in columns:
        view = np.ascontiguousarray(column).view() if isinstance(column, np.ndarray) else column
        if isinstance(view, np.ndarray):
            view.flags.writeable = False
        views.append(view)
    return columns._make(views) if hasattr(columns, "_make") else type(columns)(views)


def split_by_loops(log: CrawlLog, weight: Array | None, *, quiet: bool) -> SplitRows:
    """Return the rows of a log, with optional weights, as `split_rows` does."""
    n, changed = len(log.names), int(np.count_nonzero(log.changed))
    counted, time, exposure = np.empty((3, n))
    # One more: an interval is written before it is known whether it stays.
    rooms = [
        Intervals(np.empty(size), np.zeros(n + 1, np.int64), None if weight is None else np.empty(size))
        for size in (changed + 1, len(log) - changed + 1 if quiet else 0)
    ]
    told = (np.empty(0) if column is None else column for column in (log.changes, log.last_modified))
    # Of booleans the compiler makes jumps.
    columns = plain((log.offsets, log.interval, log.changed.view(np.uint8), *told, log.time, weight))
    sizes = crawl_loops()[1](*columns, counted, time, exposure, *rooms)
    found, others = (
        Intervals(length[:m], offsets, None if own is None else own[:m])
        for (length, offsets, own), m in zip(rooms, sizes, strict=True)
    )
    return found, others if quiet else None, counted, time, exposure
