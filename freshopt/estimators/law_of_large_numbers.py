"""`LawOfLargeNumbers`: change rates from the share of crawls with change.

The crawl rate is known.

When crawls come as a Poisson process of rate p, the share of those that find a change tends to Δ/(Δ+p), whose
inverse gives Δ. The counts are sufficient statistics, so that a crawl costs a few additions and nothing is
solved.

Cost: one pass over a batch; three numbers per source are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.estimators.known_crawl_rate import TALLY, KnownCrawlRate
from freshopt.estimators.sufficient_statistics import (
    ObservedIntervals,
    SufficientStatistics,
    at_least,
    check_floor,
)
from freshopt.inference.forgetting import Forgetting
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, IntArray, as_number

Alpha: TypeAlias = float | Callable[[int], float]


class LawOfLargeNumbers(KnownCrawlRate):
    """LLN estimator of Poisson change rates.

    x_k = Σ_j I_j p_j / (k + α_k − Σ_j I_j) after k crawls.

    I_j indicates that crawl j found a change, p_j is the rate of the Poisson crawling process before it.

    Parameters
    ----------
    alpha : float or callable
        α > 0 that keeps the denominator positive: one number, or a function of k = 1, 2, ... with α_k/k → 0.
        By default ln(k+1).
    floor : float, optional
        Smallest estimate, in changes per *day* whatever the log's time unit; 0 for none. By default it is
        0.23 changes in the time observed, the posterior median of a source that never changed, and a source
        with a baseline only has the median rate of the others.
    half_life : float, optional
        Age in *days* at which a crawl counts half, for rates that drift. Then k is the sum of the crawls'
        weights, rounded where α is a function. By default all crawls count alike.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log. Of a source that had always changed Σp_j/α_k, finite; one that never
        changed is at the floor (0 without one).
    flag_, sources_, time_unit_
        As `Estimator` has them.

    Raises
    ------
    SourceDataError
        If `alpha` is a number that is not positive, or `floor` is neither 0 nor positive.

    Notes
    -----
    Consistent if, and in general only if, the crawl intervals are exponential with the given rates ([1]_,
    Theorem 1): for crawl intervals of another kind the share of changes is not Δ/(Δ+p), and fixed crawl
    intervals of 1/p send the estimate to p(e^{Δ/p}−1). Use `MaximumLikelihood` or `MomentMatching` there.
    With α = 1 its mean is Δ(1−μ^k), μ = Δ/(Δ+p). Equation 1 of [1]_ has one p; with one per crawl the sum is
    the estimate that stays consistent when crawl rates are adapted to the estimates.

    Dates of last change (`last_modified`) are not used; `MaximumLikelihood` uses them.

    Which estimator when, from measurements: ``docs/estimators.md``.

    References
    ----------
    .. [1] Avrachenkov, Patil, Thoppe, "Online algorithms for estimating change rates of web pages",
       Performance Evaluation 153, 2022, doi:10.1016/j.peva.2021.102261.

    Examples
    --------
    >>> from freshopt import CrawlLog
    >>> log = CrawlLog(source=["a"] * 4, time=[0.0, 1.0, 2.0, 4.0], changed=[0, 1, 0, 1])
    >>> LawOfLargeNumbers(alpha=1.0).fit(log, crawl_rate=0.9).change_rate_
    array([0.9])
    >>> LawOfLargeNumbers()
    LawOfLargeNumbers(alpha=log1p, floor=None)
    """

    _width: ClassVar[int] = TALLY

    def __init__(
        self, alpha: Alpha = math.log1p, floor: float | None = None, half_life: float | None = None
    ) -> None:
        if not callable(alpha):
            _require_positive(alpha, "alpha")
        self.alpha: Final = alpha
        self.floor: Final = check_floor(floor)
        self.half_life: Final = half_life
        self._forgetting = Forgetting(half_life)

    def __repr__(self) -> str:
        """Return the settings."""
        alpha = getattr(self.alpha, "__name__", self.alpha)
        return f"LawOfLargeNumbers(alpha={alpha}, floor={self.floor}{self._forgetting.setting})"

    def _advance(  # the sums that are kept anyway are all it needs
        self,
        known: SufficientStatistics,
        at: IntArray,  # noqa: ARG002
        rows: ObservedIntervals,  # noqa: ARG002
        rate: Array,  # noqa: ARG002
    ) -> Array:
        return known.state[:, :0]

    def _estimate(self, known: SufficientStatistics) -> Array:
        found_rate, _, found, crawls = known.state[:, :4].T
        rate = found_rate / (crawls - found + self._alpha_at(np.rint(crawls).astype(np.int64)))
        return at_least(self.floor, rate, self._time(known), known.time_unit)

    def _alpha_at(self, crawls: IntArray) -> Array:
        """Return α_k of each source, 1 without crawls.

        The estimate of those is 0 anyway.
        """
        if not callable(self.alpha):
            return np.full(len(crawls), float(self.alpha))
        counts, which = np.unique(crawls, return_inverse=True)
        # Once per distinct k, with plain integers: any function will do, not only those of arrays.
        values = [1.0 if k == 0 else _require_positive(self.alpha(k), f"alpha({k})") for k in counts.tolist()]
        return np.array(values)[which]


def _require_positive(value: float, what: str) -> float:
    value = as_number(value, what, "Pass a number such as 1.0, or a function such as math.log1p.")
    if not SMALLEST <= value <= LARGEST:
        raise SourceDataError(
            f"{what} is {value}. It must be a positive number, or a source that had always changed would get "
            "an infinite rate. Pass a number such as 1.0, or a function such as math.log1p."
        )
    return value
