"""`Naive`: number of changes found, per time.

It is biased downwards, since changes hide behind others.

A crawl that finds a change counts it once, however many there were since the previous crawl. The estimate is
what monitoring without a model reports, and the yardstick of every estimator with one.

Cost: one pass over a batch; two numbers per source are kept.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from freshopt.estimators.estimator import OnlineEstimator
from freshopt.estimators.sufficient_statistics import (
    ObservedIntervals,
    SufficientStatistics,
    at_least,
    check_floor,
)
from freshopt.inference.forgetting import Forgetting
from freshopt.inference.rate_distribution import RateDistribution
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, IntArray


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

    Which estimator when, from measurements: ``docs/estimators.md``.

    References
    ----------
    .. [1] Avrachenkov, Patil, Thoppe, "Online algorithms for estimating change rates of web pages",
       Performance Evaluation 153, 2022, doi:10.1016/j.peva.2021.102261.

    Examples
    --------
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

    def __repr__(self) -> str:
        """Return the settings."""
        return f"Naive(floor={self.floor}{self._forgetting.setting})"

    def fit(self, log: CrawlLog, crawl_rate: npt.ArrayLike | None = None) -> Self:
        """Estimate the change rates of a log's sources.

        Results of earlier fits are discarded.

        Parameters
        ----------
        log : CrawlLog
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

    def partial_fit(self, log: CrawlLog, crawl_rate: npt.ArrayLike | None = None) -> Self:
        """Update the estimates with one more batch.

        As `LawOfLargeNumbers.partial_fit` does; equal to `fit` of all.
        """
        return self._learn(self._evidence, log, crawl_rate)

    def _learn(
        self, earlier: SufficientStatistics | None, log: CrawlLog, crawl_rate: npt.ArrayLike | None
    ) -> Self:
        rows = ObservedIntervals.of(log)
        time = rows.interval if crawl_rate is None else 1.0 / rows.crawl_rates(log, crawl_rate)

        def advance(known: SufficientStatistics, at: IntArray, weights: Array) -> Array:
            state = known.state.copy()
            each = (weights * time, np.where(rows.changed, weights, 0.0), weights, weights * weights)
            state[at] += np.stack([rows.sums(values) for values in each], axis=1)
            return state

        return self._carry_on(earlier, log, rows, advance)

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
        return RateDistribution.of_shares(found * alike, (crawls - found) * alike, per_time)
