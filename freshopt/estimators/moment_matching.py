"""`MomentMatching`: change rates by the method of moments.

At these rates crawls find no change as often as they did.

A crawl at the end of an interval a finds no change with probability e^{−aΔ}; the rate at which these add up
to the number of crawls that found none is consistent for crawl intervals of any kind. It does not weigh
crawls by their information, as the likelihood does, but its error obeys a finite-sample bound.

The logarithm of Σe^{−aΔ} is convex in Δ, so that Newton's iteration on it, begun left of the root (Jensen:
the mean crawl interval in place of all), increases to it without a safeguard, and is exact at once for equal
crawl intervals.

Cost: two exponentials per crawl interval and Newton step, about five steps. The crawl intervals of the log
are kept for `interval`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.estimators.crawl_rows import Forgetting, Intervals
from freshopt.estimators.estimator import (
    BatchEstimator,
    Hoeffding,
    IntervalMethod,
    Published,
    check_bounds,
    check_confidence,
)
from freshopt.estimators.sufficient_statistics import (
    LEAST,
    ObservedIntervals,
    as_the_others,
    flags_of,
)
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array

# Relative step that ends Newton's iteration. It converges quadratically: the error is then about 1e-16.
STEP = 1e-8
# Largest number of steps, far more than any data needs.
STEPS = 200


class MomentMatching(BatchEstimator):
    """Moment matching estimator of Poisson change rates.

    Σ_j e^{−a_j Δ} = number of crawls without a change.

    The sum is over all crawl intervals a of a source.

    Parameters
    ----------
    bounds : (float, float), optional
        Smallest and largest estimate, in changes per time unit of the log; (0, inf) for none. By default the
        number of crawls without a change counts as 0.23 where it is 0, and as 0.23 less than all where it is
        all: for equal crawl intervals that is the posterior median.
    half_life : float, optional
        Age in *days*, whatever the log's time unit, at which a crawl counts half, for rates that drift; ages
        count from the newest crawl of the log. By default all crawls count alike.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log. By default a source with a baseline only has the median rate of the
        others. With bounds it is at the lower one, as is a source that never changed, and one that had always
        changed is at the upper; if they are 0 and inf so are these, and a baseline alone leaves NaN.
    flag_, sources_, time_unit_
        As `Estimator` has them. Rates of flagged sources are those of the prior or the bounds alone.

    Raises
    ------
    SourceDataError
        If `bounds` are not two numbers, 0 ≤ first < second.

    Notes
    -----
    Consistent for crawl intervals of any kind, as `MaximumLikelihood` is; for equal crawl intervals the two
    are the same. The equation is [1]_ equation 7 and, unclipped, that of section 3.4 in [2]_.

    Intervals: `Posterior`, that of `MaximumLikelihood` from the same crawls, `Hoeffding` and `Published`.

    Dates of last change (`last_modified`) are not used; `MaximumLikelihood` uses them.

    Which estimator when, from measurements: ``docs/evidence/benchmarks.md``.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6067.
    .. [2] Avrachenkov, Patil, Thoppe, "Online algorithms for estimating change rates of web pages",
       Performance Evaluation 153, 2022, doi:10.1016/j.peva.2021.102261.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 4, time=[0.0, 1.0, 2.0, 4.0], changed=[0, 1, 0, 1])
    >>> model = MomentMatching(bounds=(0.01, 10.0)).fit(log)
    >>> model.change_rate_.round(6)  # 2e^{−Δ} + e^{−2Δ} = 1: e^{−Δ} = √2 − 1
    array([0.881374])
    >>> [float(end.round(3)[0]) for end in model.interval(0.5)]
    [0.527, 1.385]
    >>> [float(end.round(3)[0]) for end in model.interval(0.5, Hoeffding())]
    [0.156, 10.0]
    """

    def __init__(self, bounds: tuple[float, float] | None = None, half_life: float | None = None) -> None:
        self.bounds: Final = None if bounds is None else check_bounds(bounds)
        self.half_life: Final = half_life
        self._forgetting = Forgetting(half_life)

    def _solve(self, log: CrawlLog, weights: Array | None) -> tuple[Array, npt.NDArray[np.str_]]:
        rows = ObservedIntervals.of(log)
        flags = flags_of(rows.found > 0, rows.found < rows.crawls)
        alike = np.ones(len(rows.row)) if weights is None else weights[rows.row]
        found = rows.sums(np.where(rows.changed, alike, 0.0))
        if self.bounds is None:
            crawls = rows.sums(alike)
            least = LEAST * crawls / np.maximum(rows.crawls, 1)
            return as_the_others(_match(rows, alike, np.clip(found, least, crawls - least))), flags
        return self._clip(_match(rows, alike, found)), flags

    def _interval(self, confidence: float, method: IntervalMethod) -> tuple[Array, Array]:
        if isinstance(method, Hoeffding):
            rows, weights = self._weighed()
            spread, found = self._spread(confidence), rows.sums(np.where(rows.changed, weights, 0.0))
            lower, upper = (_match(rows, weights, found + sign * spread) for sign in (-1.0, 1.0))
            none = rows.crawls == 0
            lower[none], upper[none] = 0.0, np.inf
            return self._clip(lower), self._clip(upper)
        if isinstance(method, Published):
            bounds = self.bounds if method.bounds is None else check_bounds(method.bounds)
            if bounds is None:
                raise SourceDataError(
                    "Published() of MomentMatching() has no bounds. Pass Published((low, high))."
                )
            bound = self.error_bound(confidence, bounds)
            rate = np.clip(np.nan_to_num(self.change_rate_, nan=bounds[0]), *bounds)
            return np.clip(rate - bound, *bounds), np.clip(rate + bound, *bounds)
        return super()._interval(confidence, method)

    def error_bound(self, confidence: float = 0.95, bounds: tuple[float, float] | None = None) -> Array:
        """Return the published bound on the error ``|Δ̂ − Δ|``.

        Δ is known to lie within `bounds`.

        Parameters
        ----------
        confidence : float
            In (0, 1): the bound holds with at least this probability.
        bounds : (float, float), optional
            Other bounds than the estimator's, to which its estimate is then clipped.

        Returns
        -------
        ndarray of float, shape (n,)
            ε/((1/N) Σ_j a_j e^{−a_j Δ_max}), ε = √(ln(2/δ)/(2N)), δ = 1 − `confidence`, N the number of
            crawls and Δ_max the upper bound: Lemma 3 of Upadhyay et al., AAAI 2020. inf for a baseline only,
            or if there is no upper bound.

        Raises
        ------
        SourceDataError
            If `confidence` is not in (0, 1).
        FreshoptError
            If nothing was fitted yet.

        Notes
        -----
        Very loose where Δ_max·a is large: the slope of the expected share is then next to 0 at Δ_max.
        """
        (rows, weights), spread = self._weighed(), self._spread(confidence)
        known = self.bounds if bounds is None else check_bounds(bounds)
        highest = math.inf if known is None else known[1]
        slope = rows.sums(weights * rows.interval * np.exp(-rows.interval * highest))
        with np.errstate(divide="ignore", invalid="ignore"):
            bound: Array = np.where(slope > 0, spread / slope, np.inf)
        return bound

    def _weighed(self) -> tuple[ObservedIntervals, Array]:
        """Return the crawls and their weights."""
        log = self._kept()
        rows = ObservedIntervals.of(log)
        weights = self._forgetting.weights(log, rows.row)
        return rows, np.ones(len(rows.row)) if weights is None else weights

    def _spread(self, confidence: float) -> Array:
        """Return N·ε of Hoeffding's inequality, √Σw² in place of √N."""
        delta = 1.0 - check_confidence(confidence)
        rows, weights = self._weighed()
        spread: Array = np.sqrt(0.5 * math.log(2.0 / delta) * rows.sums(weights * weights))
        return spread

    def _clip(self, rate: Array) -> Array:
        if self.bounds is None:
            return rate
        clipped = np.clip(rate, *self.bounds)
        return np.fmax(clipped, self.bounds[0]) if self.bounds[0] > 0 else clipped


def _match(rows: ObservedIntervals, weights: Array, found: Array) -> Array:
    """Return the rates that solve the moment equation.

    Under them `found` of each source's crawls, a weighted sum, find a change.

    0 where it is not positive, inf where it is the number of crawls or more, NaN where there are no crawls.
    """
    crawls = rows.sums(weights)
    rate = np.where(found <= 0, 0.0, np.inf)
    rate[rows.crawls == 0] = np.nan
    between = (found > 0) & (found < crawls)
    sources, own = np.flatnonzero(between), Intervals(rows.interval, rows.offsets, weights).select(between)
    share = found[sources] / crawls[sources]
    rate[sources] = -np.log1p(-share) / (own.sums(own.length) / crawls[sources])
    for _ in range(STEPS):
        if len(sources) == 0:
            return rate
        at, missed = rate[sources], crawls[sources] - found[sources]
        x = own.length * np.repeat(at, own.number)
        kept, short = np.exp(-x), x < 1.0
        # Σe^{−x} − missed with the ones of short crawl intervals counted apart: neither few changes among
        # many crawls nor one long crawl interval among short ones costs digits.
        ones = own.sums(short.astype(np.float64)) - missed
        excess = own.sums(np.where(short, np.expm1(-x), kept)) + ones
        move = np.log1p(excess / missed) * (missed + excess) / own.sums(own.length * kept)
        rate[sources] = at + move
        moving = np.abs(move) > STEP * at
        own, sources = own.select(moving), sources[moving]
    raise FreshoptError(
        f"the change rates of {len(sources)} sources did not settle in {STEPS} steps. Report their gaps."
    )
