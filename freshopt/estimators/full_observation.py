"""`FullObservation`: change rates from fully observed counts.

Feeds, version numbers and announced changes give the number of changes since the previous crawl. It is
Poisson with mean aΔ for a crawl interval a, so that the number of all changes and the time observed are
sufficient statistics: no equation is to be solved, and the crawl intervals do not matter.

Cost: one pass over a batch; four numbers per source are kept.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.estimators.estimator import OnlineEstimator
from freshopt.estimators.sufficient_statistics import ObservedIntervals, SufficientStatistics, as_the_others
from freshopt.inference.forgetting import Forgetting
from freshopt.inference.interval_methods import (
    Exact,
    IntervalMethod,
    Published,
    check_bounds,
    check_confidence,
)
from freshopt.inference.rate_distribution import RateDistribution
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray, as_number
from freshopt.units import convert_time


class FullObservation(OnlineEstimator):
    """Estimator of Poisson rates from observed counts.

    The estimate is the median of Gamma(U + ½)/S.

    U changes were counted in a time S.

    Parameters
    ----------
    smoothing : float, optional
        Pseudo-observation: changes added to U, and length in *days*, whatever the log's time unit, added to
        S; the estimate is then the quotient of the two. It shrinks those of sources seen for a short time
        towards 1 per day, whatever the scale of the log. 0.5 is that of [1]_, 0 leaves U/S.
    half_life : float, optional
        Age in *days* at which a crawl counts half, for rates that drift. By default all crawls count alike.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log. A source with a baseline only has the median rate of the others,
        NaN if there is none. With a smoothing of 0 a source that never changed has 0, and one with a baseline
        only NaN.
    flag_, sources_, time_unit_
        As `Estimator` has them. A source that had changed at every crawl is "ok": its changes are counted.

    Raises
    ------
    SourceDataError
        If `smoothing` is not 0 or a positive number.

    Notes
    -----
    Consistent for crawl intervals of any kind, but it needs the counts: a crawl that found an unknown number
    of changes is an error. The estimate is the median of the posterior under Jeffreys' prior, about
    (U + ⅙)/S. With smoothing it is line 13 of Algorithm 4 in [1]_, in which the denominator is S, as in
    equation 11, or S + 0.5 without a unit; here it is in days. With a smoothing of 0 it is equation 32 of
    [2]_. Intervals: `Posterior`, which is Gamma(U + ½)/S, `Exact` and `Published`.

    Dates of last change (`last_modified`) are not used; `MaximumLikelihood` uses them.

    Which estimator when, from measurements: ``docs/estimators.md``.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019.
    .. [2] Upadhyay et al., "Learning to Crawl", AAAI 2020, appendix K, doi:10.1609/aaai.v34i04.6075.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 3, time=[0.0, 1.0, 3.0], changed=[0, 1, 1], changes=[0, 2, 5])
    >>> model = FullObservation().fit(log)
    >>> model.change_rate_.round(3)
    array([2.39])
    >>> [float(end.round(3)[0]) for end in model.interval(0.95)]
    [1.044, 4.581]
    """

    _width: ClassVar[int] = 3  # changes, time, Σw²·crawl interval
    _squares: ClassVar[int] = -1

    def __init__(self, smoothing: float | None = None, half_life: float | None = None) -> None:
        if smoothing is not None:
            smoothing = as_number(smoothing, "smoothing", "Pass a number > 0, or 0 for none.")
            if not (smoothing == 0 or SMALLEST <= smoothing <= LARGEST):
                raise SourceDataError(f"smoothing is {smoothing}. Pass a number > 0, or 0 for none.")
        self.smoothing: Final = smoothing
        self.half_life: Final = half_life
        self._forgetting = Forgetting(half_life)

    def __repr__(self) -> str:
        """Return the settings."""
        return f"FullObservation(smoothing={self.smoothing}{self._forgetting.setting})"

    def fit(self, log: CrawlLog) -> Self:
        """Estimate the change rates of a log's sources.

        Results of earlier fits are discarded.

        Parameters
        ----------
        log : CrawlLog
            With `changes` wherever a crawl found a change.

        Returns
        -------
        FullObservation
            This estimator, with its attributes set.

        Raises
        ------
        SourceDataError
            If a crawl found an unknown number of changes; names the source.
        """
        return self._learn(None, log)

    def partial_fit(self, log: CrawlLog) -> Self:
        """Update the estimates with one more batch.

        As `LawOfLargeNumbers.partial_fit` does; equal to `fit` of all.
        """
        return self._learn(self._evidence, log)

    def error_bound(self, bounds: tuple[float, float], confidence: float = 0.95) -> Array:
        """Return the published bound on the error ``|Δ̂ − Δ|``.

        Δ̂ is U/S clipped to bounds that are known to hold Δ.

        Parameters
        ----------
        bounds : (float, float)
            Changes per time unit of the log, 0 < lowest < highest.
        confidence : float
            In (0, 1): the bound holds with at least this probability.

        Returns
        -------
        ndarray of float, shape (n,)
            √(2 Δ_max ln(2/δ)/(S·ψ(Δ_max/Δ_min − 1))), δ = 1 − `confidence` and
            ψ(t) = 2((1+t)ln(1+t) − t)/t²: Lemma 8 of Upadhyay et al., AAAI 2020. inf for a baseline only.

        Raises
        ------
        SourceDataError
            If `confidence` is not in (0, 1), or `bounds` are not as described.
        FreshoptError
            If nothing was fitted yet.
        """
        lowest, highest = check_bounds(bounds)
        delta = 1.0 - check_confidence(confidence)
        if not (lowest > 0 and math.isfinite(highest)):
            raise SourceDataError(f"bounds are {bounds}. The error bound needs a positive and a finite one.")
        t = highest / lowest - 1.0
        psi = 2.0 * ((1.0 + t) * math.log1p(t) - t) / t**2
        with np.errstate(divide="ignore"):
            bound: Array = np.sqrt(2.0 * highest * math.log(2.0 / delta) / (self._effective()[1] * psi))
        return bound

    def _effective(self, known: SufficientStatistics | None = None) -> tuple[Array, Array]:
        """Return the effective number of changes and time.

        They count alike: as many as leave the estimate its variance.
        """
        changes, span, squares = (self._fitted() if known is None else known).state.T
        alike = np.divide(span, squares, out=np.ones_like(span), where=squares > 0)
        return changes * alike, span * alike

    def _distribution(self) -> RateDistribution:
        return RateDistribution.of_counts(*self._effective())

    def _interval(self, confidence: float, method: IntervalMethod) -> tuple[Array, Array]:
        changes, span = self._effective()
        if isinstance(method, Exact):
            from scipy.special import gammainccinv, gammaincinv

            tail = 0.5 * (1.0 - confidence)
            lower, upper = np.zeros(len(changes)), np.full(len(changes), np.inf)
            some, seen = changes > 0, span > 0
            lower[some] = gammaincinv(changes[some], tail) / span[some]
            upper[seen] = gammainccinv(changes[seen] + 1.0, tail) / span[seen]
            return lower, upper
        if isinstance(method, Published):
            if method.bounds is None:
                raise SourceDataError(
                    "Published() of FullObservation has no bounds. Pass Published((low, high))."
                )
            bound = self.error_bound(method.bounds, confidence)
            with np.errstate(invalid="ignore"):
                rate = np.clip(np.nan_to_num(changes / span), *method.bounds)
            return np.clip(rate - bound, *method.bounds), np.clip(rate + bound, *method.bounds)
        return super()._interval(confidence, method)

    def _learn(self, earlier: SufficientStatistics | None, log: CrawlLog) -> Self:
        rows = ObservedIntervals.of(log)
        changes = np.where(rows.changed, np.nan if rows.changes is None else rows.changes, 0.0)
        unknown = np.flatnonzero(np.isnan(changes))
        if len(unknown):
            row = int(rows.row[unknown[0]])
            raise SourceDataError(
                f"source {log.sources_[log.source_index[row]]} changed an unknown number of times before "
                f"time {log.time[row]:g}. Full observation needs all counts; {len(unknown)} are missing. "
                "Give the column changes, or use MaximumLikelihood."
            )

        def advance(known: SufficientStatistics, at: IntArray, weights: Array) -> Array:
            state = known.state.copy()
            each = (weights * changes, weights * rows.interval, weights * weights * rows.interval)
            state[at] += np.stack([rows.sums(values) for values in each], axis=1)
            return state

        return self._carry_on(earlier, log, rows, advance)

    def _estimate(self, known: SufficientStatistics) -> Array:
        if self.smoothing is None:
            return as_the_others(RateDistribution.of_counts(*self._effective(known)).median())
        more = convert_time(self.smoothing, "day", known.time_unit)
        with np.errstate(invalid="ignore"):
            rate: Array = (known.state[:, 0] + self.smoothing) / (known.state[:, 1] + more)
        return rate

    def _flags(self, known: SufficientStatistics) -> npt.NDArray[np.str_]:
        flags = known.flags()
        return np.where(flags == "always changed", "ok", flags)
