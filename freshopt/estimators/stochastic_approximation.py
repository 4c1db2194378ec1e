"""`StochasticApproximation`: Robbins-Monro estimates at a known crawl rate.

Each crawl corrects the estimate a little.

When crawls come as a Poisson process of rate p and I tells whether one finds a change, I·(y+p) − y has mean 0
at y = Δ alone. Steps by a decreasing share of it converge there (Robbins and Monro). A source's steps form an
affine recursion in y; those of all sources are taken at once (`recursion`).

Cost: two powers and about two compositions a crawl; three numbers per source are kept.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.estimators.known_crawl_rate import TALLY, KnownCrawlRate
from freshopt.estimators.sufficient_statistics import (
    ObservedIntervals,
    SufficientStatistics,
    at_least,
    check_floor,
)
from freshopt.numerics.affine_recursion import advance
from freshopt.numerics.arrays import Array, IntArray, as_number


class StochasticApproximation(KnownCrawlRate):
    """SA estimator: stochastic approximation of Poisson change rates.

    y_{k+1} = y_k + η_k (I_{k+1} (y_k + p_{k+1}) − y_k), y_0 = 0.

    I_k indicates that crawl k found a change, p_k is the rate of the Poisson crawling process before it, and
    η_k = (k+1)^{−step}.

    Parameters
    ----------
    step : float
        Exponent η in (0, 1] of the step sizes. Small: fast and noisy. Steps that shrink like 1/k, η = 1, are
        very slow where crawls are rarer than changes.
    floor : float, optional
        Smallest estimate, in changes per *day* whatever the log's time unit; 0 for none. By default it is
        0.23 changes in the time observed, the posterior median of a source that never changed, and a source
        with a baseline only has the median rate of the others. What is carried from crawl to
        crawl stays as it is.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log. Of a source that had always changed Ση_j p_j, finite; one that never
        changed is at the floor (0 without one).
    flag_, sources_, time_unit_
        As `Estimator` has them.

    Raises
    ------
    SourceDataError
        If `step` is not in (0, 1], or `floor` is neither 0 nor positive.

    Notes
    -----
    Consistent if, and in general only if, the crawl intervals are exponential with the given rates ([1]_,
    Theorem 2, for equation 2). It does not use the crawl intervals: with fixed ones of 1/p it tends to
    p(e^{Δ/p}−1). Use `MaximumLikelihood` or `MomentMatching` there. The paper has one p; here each crawl may
    have its own, which leaves Δ the only rate at which the mean correction is 0. Steps go on counting over
    batches: starting anew with each batch would keep the noise of the first steps for good. There is no
    half-life: a small `step` follows rates that drift, and its interval counts all crawls alike.

    Dates of last change (`last_modified`) are not used; `MaximumLikelihood` uses them.

    Which estimator when, from measurements: ``docs/estimators.md``.

    References
    ----------
    .. [1] Avrachenkov, Patil, Thoppe, "Online algorithms for estimating change rates of web pages",
       Performance Evaluation 153, 2022, doi:10.1016/j.peva.2021.102261.

    Examples
    --------
    Steps 1, 1/2, 1/3 after a change, none, and a change, at p = 1: 1, then 1/2, then 1/2 + 1/3.

    >>> from freshopt import CrawlLog
    >>> log = CrawlLog(source=["a"] * 4, time=[0.0, 1.0, 2.0, 4.0], changed=[0, 1, 0, 1])
    >>> StochasticApproximation(step=1.0).fit(log, crawl_rate=1.0).change_rate_.round(6)
    array([0.833333])
    """

    _width: ClassVar[int] = 1 + TALLY

    def __init__(self, step: float = 0.75, floor: float | None = None) -> None:
        step = as_number(step, "step", "Pass 0.75.")
        if not 0 < step <= 1:
            raise SourceDataError(
                f"step is {step}. Steps (k+1)^−step lead to the change rate if it is in (0, 1]. Pass 0.75."
            )
        self.step: Final = step
        self.floor: Final = check_floor(floor)

    def __repr__(self) -> str:
        """Return the settings."""
        return f"StochasticApproximation(step={self.step}, floor={self.floor})"

    def _advance(
        self, known: SufficientStatistics, at: IntArray, rows: ObservedIntervals, rate: Array
    ) -> Array:
        source = np.repeat(at, rows.crawls)
        k = known.crawls[source] + rows.rank

        def maps(part: slice) -> tuple[Array, Array]:
            size, found = (k[part] + 1.0) ** -self.step, rows.changed[part]
            kept = np.where(found, 1.0, 1.0 - size)
            return kept[:, None, None], np.where(found, size * rate[part], 0.0)[:, None]

        return advance(known.state[:, :1], source, maps)

    def _estimate(self, known: SufficientStatistics) -> Array:
        return at_least(self.floor, known.state[:, 0].copy(), self._time(known), known.time_unit)
