"""`LawOfLargeNumbers`: change rates from the share of crawls that find a change, at a known crawl rate.

When crawls come as a Poisson process of rate p, the share of those that find a change tends to Δ/(Δ+p), whose
inverse gives Δ. Only counts are kept, so that a crawl costs a few additions and nothing is solved.

Cost: one pass over a batch; three numbers per source are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, IntArray
from freshopt.errors import SourceDataError
from freshopt.learning.crawl_log import CrawlLog
from freshopt.learning.evidence import FLOOR, Evidence, Observed, at_least, check_floor
from freshopt.sources import LARGEST, SMALLEST

Alpha: TypeAlias = float | Callable[[int], float]


class LawOfLargeNumbers:
    """LLN estimator of Poisson change rates: x_k = Σ_j I_j p_j / (k + α_k − Σ_j I_j) after k crawls.

    I_j tells whether crawl j found a change, p_j is the rate of the Poisson crawling process before it.

    Parameters
    ----------
    alpha : float or callable
        α > 0 that keeps the denominator positive: one number, or a function of k = 1, 2, ... with α_k/k → 0.
        By default ln(k+1).
    floor : float
        Smallest estimate, in changes per *day* whatever the log's time unit; 0 for none.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log. Of a source that had always changed Σp_j/α_k, finite; one that never
        changed or has a baseline only is at the floor (0 without one).
    flag_ : ndarray of str, shape (n,)
        "ok", "baseline only", "never changed" or "always changed", as `MaximumLikelihood` flags them.
    sources_ : ndarray, shape (n,)
        The sources seen so far, sorted.
    time_unit_ : str
        The log's time unit.

    Raises
    ------
    SourceDataError
        If `alpha` is a number that is not positive, or `floor` is neither 0 nor positive.

    Notes
    -----
    Consistent if, and in general only if, the gaps are exponential with the rates told ([1]_, Theorem 1): for
    gaps of another kind the share of changes is not Δ/(Δ+p), and fixed gaps of 1/p send the estimate to
    p(e^{Δ/p}−1). Use `MaximumLikelihood` or `MomentMatching` there. With α = 1 its mean is Δ(1−μ^k),
    μ = Δ/(Δ+p). Equation 1 of [1]_ has one p; with one per crawl the sum is the estimate that stays
    consistent when crawl rates are adapted to what was learnt.

    References
    ----------
    .. [1] Avrachenkov, Patil, Thoppe, "Online algorithms for estimating change rates of web pages",
       Performance Evaluation 153, 2022, doi:10.1016/j.peva.2021.102261.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 4, time=[0.0, 1.0, 2.0, 4.0], changed=[0, 1, 0, 1])
    >>> LawOfLargeNumbers(alpha=1.0).fit(log, crawl_rate=0.9).change_rate_
    array([0.9])
    >>> LawOfLargeNumbers()
    LawOfLargeNumbers(alpha=log1p, floor=0.001)
    """

    change_rate_: Array
    flag_: npt.NDArray[np.str_]
    sources_: npt.NDArray[Any]
    time_unit_: str

    def __init__(self, alpha: Alpha = math.log1p, floor: float = FLOOR) -> None:
        if not callable(alpha):
            _require_positive(alpha, "alpha")
        self.alpha: Final = alpha
        self.floor: Final = check_floor(floor)
        self._evidence: Evidence | None = None

    def __repr__(self) -> str:
        """Return the settings."""
        alpha = getattr(self.alpha, "__name__", self.alpha)
        return f"LawOfLargeNumbers(alpha={alpha}, floor={self.floor})"

    def fit(self, log: CrawlLog, crawl_rate: npt.ArrayLike) -> LawOfLargeNumbers:
        """Estimate the change rates of a log's sources, forgetting what was learnt before.

        Parameters
        ----------
        log : CrawlLog
        crawl_rate : scalar or array_like of shape (n,) or (rows,)
            Rate of the Poisson crawling process, in crawls per time unit: one number, one per source or one
            per crawl, in the log's order. Needed: the gaps themselves are not looked at.

        Returns
        -------
        LawOfLargeNumbers
            This estimator, with its attributes set.

        Raises
        ------
        SourceDataError
            If a crawl rate or an α_k is not a positive number.
        """
        return self._learn(None, log, crawl_rate)

    def partial_fit(self, log: CrawlLog, crawl_rate: npt.ArrayLike) -> LawOfLargeNumbers:
        """Learn from one more batch; equal to `fit` of all batches together.

        Parameters
        ----------
        log : CrawlLog
            A batch, whose first row of a source is a baseline unless ``start`` (such as the `last_crawl` of
            the batch before) or ``elapsed`` tells its gap.
        crawl_rate : scalar or array_like of shape (n,) or (rows,)
            As in `fit`; of this batch.

        Returns
        -------
        LawOfLargeNumbers

        Raises
        ------
        SourceDataError
            If a crawl rate or an α_k is not a positive number, or the time unit or the kind of the sources'
            names is not that of the batches before. What was learnt before stays.
        """
        return self._learn(self._evidence, log, crawl_rate)

    def _learn(self, earlier: Evidence | None, log: CrawlLog, crawl_rate: npt.ArrayLike) -> LawOfLargeNumbers:
        known, at = Evidence.before(log, earlier, width=1)
        rows = Observed.of(log)
        state = known.state.copy()
        state[at, 0] += rows.sums(np.where(rows.changed, rows.crawl_rates(log, crawl_rate), 0.0))
        known = known.after(rows, at, state)
        unchanged = known.crawls - known.found
        rate = known.state[:, 0] / (unchanged + self._alpha_at(known.crawls))
        self._evidence = known
        self.change_rate_ = at_least(self.floor, rate, known.time_unit)
        self.flag_, self.sources_, self.time_unit_ = known.flags(), known.sources, known.time_unit
        return self

    def _alpha_at(self, crawls: IntArray) -> Array:
        """Return α_k of each source; 1 where there was no crawl, whose estimate is 0 anyway."""
        if not callable(self.alpha):
            return np.full(len(crawls), float(self.alpha))
        counts, which = np.unique(crawls, return_inverse=True)
        # Once per distinct k, with plain integers: any function will do, not only those of arrays.
        values = [1.0 if k == 0 else _require_positive(self.alpha(k), f"alpha({k})") for k in counts.tolist()]
        return np.array(values)[which]


def _require_positive(value: float, what: str) -> float:
    if not SMALLEST <= value <= LARGEST:
        raise SourceDataError(
            f"{what} is {value}. It must be a positive number, or a source that had always changed would get "
            "an infinite rate. Pass a number such as 1.0, or a function such as math.log1p."
        )
    return float(value)
