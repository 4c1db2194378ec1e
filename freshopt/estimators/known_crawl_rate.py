"""Change rates at a known crawl rate: `KnownCrawlRate`, and `LawOfLargeNumbers`.

When crawls come as a Poisson process of rate p, a crawl finds a change with probability Δ/(Δ+p), whatever
came before. Such estimators need which crawls found a change, and p; the rate may differ from crawl to crawl.
They do not use the crawl intervals. The share of crawls that find a change tends to that probability, whose
inverse gives Δ; the counts are sufficient statistics, so that a crawl costs a few additions.

Cost: one pass over a batch; seven sums per source are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.estimators.crawl_rows import Forgetting
from freshopt.estimators.estimator import OnlineEstimator, Rows
from freshopt.estimators.rate_distribution import RateDistribution
from freshopt.estimators.sufficient_statistics import (
    ObservedIntervals,
    SufficientStatistics,
    at_least,
    check_floor,
)
from freshopt.heavy import special
from freshopt.logs.crawl_log import Log
from freshopt.numerics.arrays import Array, IntArray, as_positive

# Number of sums: Σ I p, Σ p, Σ I, Σ 1, Σ x, Σ √x and Σ w·1, each summand weighted by w; x = p·crawl interval.
TALLY = 7
# Standard deviations, and share of its mean, beyond which Σ √x/√Σ x is not that of Poisson crawls. It is 13 %
# above for fixed crawl intervals, 6 % for uniform ones, and 24 % below for Gamma ones of shape ¼; one in
# 16,000 logs of Poisson crawls lies beyond the first.
DEVIATIONS, SHARE = 4.0, 0.03
# Of Σ √x/√Σ x for many Poisson crawls of a source; less for few.
VARIANCE = 1.0 - 5.0 * np.pi / 16.0


class KnownCrawlRate(OnlineEstimator):
    """Online estimator for crawls at known rates p.

    It keeps sums of the rates beside its own statistics.

    Notes
    -----
    Its interval is that of the share μ = Δ/(Δ+p) of crawls that find a change: Jeffreys' posterior of μ,
    whatever the convergence of the estimate to Δ. Under rates that differ, f = Σ_found p / p̄ crawls, p̄ the
    mean rate, stand for those that found a change, and f and the number u of the others are both taken
    (f+u)/k times, which makes the variance that of the estimating equation Σ_found p − uΔ = 0. It is closed,
    and costs nothing per crawl.

    Under crawl intervals of another kind it does not cover: after 1000 fixed ones of 1/Δ never. Intervals
    and posterior samples are therefore refused for a log whose crawl intervals are not exponential. With x
    the crawl intervals times their rates, Σ√x/√Σx over the k crawls of a source then has the mean
    kΓ(3/2)Γ(k)/Γ(k+½), and a variance of at most 1−5π/16, whatever the rate; its sum over sources is tested.
    """

    _squares: ClassVar[int] = -1
    _known_rates: ClassVar[bool] = True

    def _summands(self, rows: ObservedIntervals, weights: Array, rate: Array) -> Rows:
        found = np.where(rows.changed, weights, 0.0)
        x = rows.interval * rate
        sums = (found * rate, weights * rate, found, weights, weights * x, weights * np.sqrt(x))
        return (*sums, weights * weights)

    def _distribution(self) -> RateDistribution:
        found_rate, rate, found, crawls, span, roots, squares = self._fitted().state[:, -TALLY:].T
        self._require_exponential(crawls, span, roots, squares)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = rate / crawls
            like, missed = np.nan_to_num(found_rate / mean), crawls - found
            scale = np.nan_to_num((like + missed) / crawls * (crawls / squares))
        return RateDistribution.of_crawls(like * scale, missed * scale, mean, odds=True)

    def _require_exponential(self, crawls: Array, span: Array, roots: Array, squares: Array) -> None:
        """Raise if the crawl intervals are not those of Poisson crawls."""
        # With weights, as many crawls as leave a mean its variance. A single one tells nothing.
        k = np.divide(crawls * crawls, squares, out=np.zeros_like(crawls), where=squares > 0)
        told = k > 1.0
        k, crawls, span, roots = (each[told] for each in (k, crawls, span, roots))
        found = float(np.sum(roots * np.sqrt(k / crawls / span)))
        expected = float(
            np.sum(0.5 * np.sqrt(np.pi) * k * np.exp(special.gammaln(k) - special.gammaln(k + 0.5)))
        )
        beyond = abs(found - expected)
        if beyond > max(DEVIATIONS * np.sqrt(VARIANCE * len(k)), SHARE * expected):
            kind = "more regular" if found > expected else "more irregular"
            raise SourceDataError(
                f"the crawl intervals of this log are {kind} than those of Poisson crawls. Intervals of "
                f"{type(self).__name__} assume these. Use MaximumLikelihood or MomentMatching, which take "
                "crawl intervals of any kind."
            )

    def _time(self, known: SufficientStatistics) -> Array:
        """Return the time that each source was observed, in time units.

        By its crawls and their mean rate. With weights, of as many crawls as leave a mean its variance.
        """
        _, rate, _, crawls, _, _, squares = known.state[:, -TALLY:].T
        time: Array = crawls * np.divide(
            crawls * crawls, squares * rate, out=np.zeros_like(rate), where=rate > 0
        )
        return time

    def fit(self, log: Log, crawl_rate: npt.ArrayLike) -> Self:
        """Estimate the change rates of a log's sources.

        Results of earlier fits are discarded.

        Parameters
        ----------
        log : CrawlLog, path or dataframe
        crawl_rate : scalar or array_like of shape (n,) or (rows,)
            Rate of the Poisson crawling process, in crawls per time unit: one number, one per source or one
            per crawl, in the log's order. Required: the crawl intervals themselves are not used.
        """
        return self._learn(None, log, crawl_rate)

    def partial_fit(self, log: Log, crawl_rate: npt.ArrayLike) -> Self:
        """Update the estimates with one more batch.

        Equal to `fit` of all batches together.

        Parameters
        ----------
        log : CrawlLog, path or dataframe
            A batch, whose first row of a source is a baseline unless ``start`` (such as the `last_crawl` of
            the batch before) or ``elapsed`` tells its crawl interval. Its crawls come after those of earlier
            batches.
        crawl_rate : scalar or array_like of shape (n,) or (rows,)
            As in `fit`; of this batch.
        """
        return self._learn(self._evidence, log, crawl_rate)


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

    Which estimator when, from measurements: ``docs/evidence/benchmarks.md``.

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

    def _estimate(self, known: SufficientStatistics) -> Array:
        found_rate, _, found, crawls = known.state[:, :4].T
        rate = found_rate / (crawls - found + self._alpha_at(np.rint(crawls).astype(np.int64)))
        return at_least(self.floor, rate, self._time(known), known.time_unit)

    def _alpha_at(self, crawls: IntArray) -> Array:
        """Return α_k of each source, 1 without crawls."""
        if not callable(self.alpha):
            return np.full(len(crawls), float(self.alpha))
        counts, which = np.unique(crawls, return_inverse=True)
        # Once per distinct k, with plain integers: any function will do, not only those of arrays.
        values = [1.0 if k == 0 else _require_positive(self.alpha(k), f"alpha({k})") for k in counts.tolist()]
        return np.array(values)[which]


def _require_positive(value: float, what: str) -> float:
    return as_positive(
        value,
        what,
        "It must be a positive number, or a source that had always changed would get an infinite rate. Pass "
        "a number such as 1.0, or a function such as math.log1p.",
    )
