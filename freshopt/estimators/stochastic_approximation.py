"""`StochasticApproximation` and `MomentumStochasticApproximation`: estimates at a known crawl rate.

Each crawl corrects the estimate a little.

When crawls come as a Poisson process of rate p and I tells whether one finds a change, I·(y+p) − y has mean 0
at y = Δ alone. Steps by a decreasing share of it converge there (Robbins and Monro). Where crawls are rarer
than changes the correction is small, since nearly every crawl finds a change; momentum adds corrections of
the same sign up. A source's steps form an affine recursion in y, or in (y, last move of y); those of all
sources are taken at once (`freshopt.numerics.affine_recursion`).

Cost: two or three powers and about two compositions a crawl; three or four numbers per source are kept.
"""

from __future__ import annotations

from abc import abstractmethod
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
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_number, as_positive


class SteppedEstimator(KnownCrawlRate):
    """Estimator whose state is an affine recursion over crawls, the estimate first."""

    def __init__(self, floor: float | None) -> None:
        self.floor: Final = check_floor(floor)

    @abstractmethod
    def _maps(self, crawls: IntArray, found: BoolArray, rate: Array) -> tuple[Array, Array]:
        """Return the matrix and vector of each crawl's step."""

    def _advance(
        self, known: SufficientStatistics, at: IntArray, rows: ObservedIntervals, rate: Array
    ) -> Array:
        source = np.repeat(at, rows.crawls)
        crawls = known.crawls[source] + rows.rank
        state = known.state.copy()
        state[:, :-TALLY] = advance(
            state[:, :-TALLY],
            source,
            lambda part: self._maps(crawls[part], rows.changed[part], rate[part]),
        )
        return state

    def _estimate(self, known: SufficientStatistics) -> Array:
        return at_least(self.floor, known.state[:, 0].copy(), self._time(known), known.time_unit)


class StochasticApproximation(SteppedEstimator):
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

    Which estimator when, from measurements: ``docs/evidence/benchmarks.md``.

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
        super().__init__(floor)

    def _maps(self, crawls: IntArray, found: BoolArray, rate: Array) -> tuple[Array, Array]:
        size = (crawls + 1.0) ** -self.step
        kept = np.where(found, 1.0, 1.0 - size)
        return kept[:, None, None], np.where(found, size * rate, 0.0)[:, None]


class MomentumStochasticApproximation(SteppedEstimator):
    """SAM estimator: stochastic approximation with heavy-ball momentum.

    z_{k+1} = z_k + η_k (I_{k+1} (z_k + p_{k+1}) − z_k) + ζ_k (z_k − z_{k−1}), z_0 = 0.

    I_k indicates that crawl k found a change, p_k is the rate of the Poisson crawling process before it,
    η_k = (k+1)^{−step}, β_k = (k+1)^{−beta} and ζ_k = (β_k − omega·η_k)/β_{k−1}, ζ_0 = 0.

    Parameters
    ----------
    step, beta : float
        Exponents with 0 < beta ≤ 1 and beta ≤ step ≤ 2·beta.
    omega : float
        Friction ω > 0: the smaller, the more momentum.
    floor : float, optional
        Smallest estimate, in changes per *day* whatever the log's time unit; 0 for none. By default it is
        0.23 changes in the time observed, the posterior median of a source that never changed, and a source
        with a baseline only has the median rate of the others. With momentum estimates may
        overshoot below 0. What is carried from crawl to crawl stays as it is.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log. Finite for a source that had always changed; one that never changed
        is at the floor (0 without one).
    flag_, sources_, time_unit_
        As `Estimator` has them.

    Raises
    ------
    SourceDataError
        If an exponent is out of its range, or `omega` or `floor` is not usable.

    Notes
    -----
    Consistent if, and in general only if, the crawl intervals are exponential with the given rates ([1]_,
    Theorem 3, for equations 3 and 10; proved for beta > 1/2 and either step = 2·beta or step > beta + 1/2,
    conjectured for the rest). It does not use the crawl intervals: with fixed ones of 1/p it tends to
    p(e^{Δ/p}−1). Use `MaximumLikelihood` or `MomentMatching` there. In the long run it moves as
    `StochasticApproximation` with step sizes β_k/ω does. With step = beta and omega = 1 the momentum is 0 and
    it is `StochasticApproximation(step)`. For a step above 2·beta nothing is proved, and [1]_, Remark 6,
    reports simulations that run to infinity. By its exact moments the error falls, if slowly, up to a step of
    1 + beta, where the friction omega·η_k/β_k still adds up to infinity, and grows beyond. A step below beta
    makes ζ_k grow without bound. The paper has one p; here each crawl may have its own.

    Dates of last change (`last_modified`) are not used; `MaximumLikelihood` uses them.

    Which estimator when, from measurements: ``docs/evidence/benchmarks.md``.

    References
    ----------
    .. [1] Avrachenkov, Patil, Thoppe, "Online algorithms for estimating change rates of web pages",
       Performance Evaluation 153, 2022, doi:10.1016/j.peva.2021.102261.

    Examples
    --------
    η = 1, 1/4; ζ_1 = 1/2 − 1/4: a change at p = 1 moves z to 1, the next by 1/4 and by 1/4 of the last move.

    >>> from freshopt import CrawlLog
    >>> log = CrawlLog(source=["a"] * 3, time=[0.0, 1.0, 2.0], changed=[0, 1, 1])
    >>> model = MomentumStochasticApproximation(step=2.0, beta=1.0, omega=1.0)
    >>> model.fit(log, crawl_rate=1.0).change_rate_
    array([1.5])
    """

    _width: ClassVar[int] = 2 + TALLY

    def __init__(
        self, step: float = 1.3, beta: float = 0.75, omega: float = 1.0, floor: float | None = None
    ) -> None:
        step, beta = (
            as_number(given, what, "Pass a number.") for given, what in ((step, "step"), (beta, "beta"))
        )
        omega = as_positive(omega, "omega", "Pass a positive number, such as 1.0.")
        if not (0 < beta <= 1 and beta <= step <= 2 * beta):
            raise SourceDataError(
                f"step is {step} and beta is {beta}. The steps lead to the change rate if 0 < beta <= 1 and "
                "beta <= step <= 2*beta. Pass step=1.3, beta=0.75, say."
            )
        self.step: Final = step
        self.beta: Final = beta
        self.omega: Final = omega
        super().__init__(floor)

    def _maps(self, crawls: IntArray, found: BoolArray, rate: Array) -> tuple[Array, Array]:
        # State (z, d), d the last move: d' = ζd − η(1−I)z + ηIp, z' = z + d'. In (z, z_{k−1}) digits of the
        # small difference would be lost.
        eta = (crawls + 1.0) ** -self.step
        zeta = crawls**self.beta * ((crawls + 1.0) ** -self.beta - self.omega * eta)
        back = np.where(found, 0.0, eta)
        push = np.where(found, eta * rate, 0.0)
        linear = np.stack([1.0 - back, zeta, -back, zeta], axis=1).reshape(-1, 2, 2)
        return linear, np.stack([push, push], axis=1)
