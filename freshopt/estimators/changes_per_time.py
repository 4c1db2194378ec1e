"""Changes per time: those found, `Naive`, and all, `FullObservation`.

A crawl that finds a change counts it once, however many there were since the previous crawl: the naive
estimate is biased downwards, since changes hide behind others. It is what monitoring without a model reports,
and the yardstick of every estimator with one.

Feeds, version numbers and announced changes give the number of changes since the previous crawl. It is
Poisson with mean aΔ for a crawl interval a, so that the number of all changes and the time observed are
sufficient statistics: no equation is to be solved, and the crawl intervals do not matter.

Cost: one pass over a batch; three or four numbers per source are kept.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.estimators.crawl_rows import Forgetting
from freshopt.estimators.estimator import (
    Exact,
    IntervalMethod,
    OnlineEstimator,
    Published,
    Rows,
    check_bounds,
    check_confidence,
)
from freshopt.estimators.rate_distribution import RateDistribution
from freshopt.estimators.sufficient_statistics import (
    ObservedIntervals,
    SufficientStatistics,
    as_the_others,
    at_least,
    check_floor,
)
from freshopt.heavy import special
from freshopt.logs.crawl_log import Log
from freshopt.numerics.arrays import Array, as_positive
from freshopt.units import convert_time


class Naive(OnlineEstimator):
    """Naive estimator of change rates, Î/T.

    Changes found over the time observed.

    Parameters
    ----------
    floor : float, optional
        Smallest estimate, in changes per *day* whatever the log's time unit; 0 for none. By default it is
        0.23 changes in the time observed, the posterior median of a source that never changed, and a source
        with a baseline only has the median rate of the others.
    half_life : float, optional
        Age in *days* at which a crawl counts half, for rates that drift. By default all crawls count alike.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log. A source that never changed is at the floor; without a floor it
        is at 0, and a baseline only leaves NaN. Always finite for a source that had always changed.
    flag_, sources_, time_unit_
        As `Estimator` has them.

    Raises
    ------
    SourceDataError
        If `floor` is not 0 or a positive number.

    Notes
    -----
    Not consistent for any crawl intervals: for crawl intervals of length a it tends to the mean of 1−e^{−aΔ}
    over the mean of a, which for exponential crawl intervals of rate p is pΔ/(Δ+p), always below Δ ([1]_,
    section 3.4). With `crawl_rate` the expected crawl interval 1/p takes the place of the observed one, which
    for one p is the p·Î/k of [1]_. Its interval is one of what it estimates, changes *found* per time, and
    does not cover Δ.

    Dates of last change (`last_modified`) are not used; `MaximumLikelihood` uses them.

    Which estimator when, from measurements: ``docs/evidence/benchmarks.md``.

    References
    ----------
    .. [1] Avrachenkov, Patil, Thoppe, "Online algorithms for estimating change rates of web pages",
       Performance Evaluation 153, 2022, doi:10.1016/j.peva.2021.102261.

    Examples
    --------
    >>> from freshopt import CrawlLog
    >>> log = CrawlLog(source=["a"] * 4, time=[0.0, 1.0, 2.0, 4.0], changed=[0, 1, 0, 1])
    >>> Naive().fit(log).change_rate_
    array([0.5])
    >>> Naive().fit(log, crawl_rate=0.9).change_rate_.round(12)
    array([0.6])
    """

    _width: ClassVar[int] = 4  # time, found, Σw, Σw²
    _squares: ClassVar[int] = -1

    def __init__(self, floor: float | None = None, half_life: float | None = None) -> None:
        self.floor: Final = check_floor(floor)
        self.half_life: Final = half_life
        self._forgetting = Forgetting(half_life)

    def fit(self, log: Log, crawl_rate: npt.ArrayLike | None = None) -> Self:
        """Estimate the change rates of a log's sources.

        Results of earlier fits are discarded.

        Parameters
        ----------
        log : CrawlLog, path or dataframe
        crawl_rate : scalar or array_like of shape (n,) or (rows,), optional
            Rate of the crawling process, in crawls per time unit: one number, one per source or one per
            crawl, in the log's order. Not needed; if given, 1/p takes the place of each crawl interval.

        Returns
        -------
        Naive
            This estimator, with its attributes set.

        Raises
        ------
        SourceDataError
            If a crawl rate is not a positive number.
        """
        return self._learn(None, log, crawl_rate)

    def partial_fit(self, log: Log, crawl_rate: npt.ArrayLike | None = None) -> Self:
        """Update the estimates with one more batch.

        As `LawOfLargeNumbers.partial_fit` does; equal to `fit` of all.
        """
        return self._learn(self._evidence, log, crawl_rate)

    def _summands(self, rows: ObservedIntervals, weights: Array, rate: Array) -> Rows:
        time = 1.0 / rate if len(rate) else rows.interval
        return weights * time, np.where(rows.changed, weights, 0.0), weights, weights * weights

    def _estimate(self, known: SufficientStatistics) -> Array:
        with np.errstate(invalid="ignore"):
            rate = known.state[:, 1] / known.state[:, 0]
            time = known.state[:, 0] * (known.state[:, 2] / known.state[:, 3])
        return at_least(self.floor, rate, time, known.time_unit)

    def _distribution(self) -> RateDistribution:
        time, found, crawls, squares = self._fitted().state.T
        with np.errstate(divide="ignore", invalid="ignore"):
            alike = np.nan_to_num(crawls / squares)
            per_time = crawls / time
        return RateDistribution.of_crawls(found * alike, (crawls - found) * alike, per_time, odds=False)


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

    Which estimator when, from measurements: ``docs/evidence/benchmarks.md``.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019.
    .. [2] Upadhyay et al., "Learning to Crawl", AAAI 2020, appendix K, doi:10.1609/aaai.v34i04.6067.

    Examples
    --------
    >>> from freshopt import CrawlLog
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
            smoothing = as_positive(smoothing, "smoothing", "Pass a number > 0, or 0 for none.", zero=True)
        self.smoothing: Final = smoothing
        self.half_life: Final = half_life
        self._forgetting = Forgetting(half_life)

    def fit(self, log: Log) -> Self:
        """Estimate the change rates of a log's sources.

        Results of earlier fits are discarded.

        Parameters
        ----------
        log : CrawlLog, path or dataframe
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

    def partial_fit(self, log: Log) -> Self:
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
        """Return the effective number of changes and time, counted alike."""
        changes, span, squares = (self._fitted() if known is None else known).state.T
        alike = np.divide(span, squares, out=np.ones_like(span), where=squares > 0)
        return changes * alike, span * alike

    def _distribution(self) -> RateDistribution:
        return RateDistribution.of_counts(*self._effective())

    def _interval(self, confidence: float, method: IntervalMethod) -> tuple[Array, Array]:
        changes, span = self._effective()
        if isinstance(method, Exact):
            tail = 0.5 * (1.0 - confidence)
            lower, upper = np.zeros(len(changes)), np.full(len(changes), np.inf)
            some, seen = changes > 0, span > 0
            lower[some] = special.gammaincinv(changes[some], tail) / span[some]
            upper[seen] = special.gammainccinv(changes[seen] + 1.0, tail) / span[seen]
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

    def _summands(self, rows: ObservedIntervals, weights: Array, rate: Array) -> Rows:  # noqa: ARG002
        changes = np.where(rows.changed, np.nan if rows.changes is None else rows.changes, 0.0)
        unknown = np.flatnonzero(np.isnan(changes))
        if len(unknown):
            log, row = rows.log, int(rows.row[unknown[0]])
            raise SourceDataError(
                f"source {log.names[log.source_index[row]]} changed an unknown number of times before "
                f"time {log.time[row]:g}. Full observation needs all counts; {len(unknown)} are missing. "
                "Give the column changes, or use MaximumLikelihood."
            )
        return weights * changes, weights * rows.interval, weights * weights * rows.interval

    def _estimate(self, known: SufficientStatistics) -> Array:
        if self.smoothing is None:
            return as_the_others(RateDistribution.of_counts(*self._effective(known)).median())
        more = convert_time(self.smoothing, "day", known.time_unit)
        with np.errstate(invalid="ignore"):
            rate: Array = (known.state[:, 0] + self.smoothing) / (known.state[:, 1] + more)
        return rate

    def _flags(self, known: SufficientStatistics) -> npt.NDArray[np.str_]:
        flags = super()._flags(known)
        return np.where(flags == "always changed", "ok", flags)
