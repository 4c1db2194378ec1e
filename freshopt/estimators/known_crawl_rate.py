"""`KnownCrawlRate`: base of the estimators given the crawl rate.

They are given the rate of the crawling process and do not use the crawl intervals.

When crawls come as a Poisson process of rate p, a crawl finds a change with probability Δ/(Δ+p), whatever
came before. Such estimators need which crawls found a change, and p; the rate may differ from crawl to crawl.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.estimators.estimator import OnlineEstimator
from freshopt.estimators.sufficient_statistics import ObservedIntervals, SufficientStatistics
from freshopt.inference.rate_distribution import RateDistribution
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, IntArray

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

    @abstractmethod
    def _advance(
        self, known: SufficientStatistics, at: IntArray, rows: ObservedIntervals, rate: Array
    ) -> Array:
        """Return the statistics of all sources after a batch.

        The crawls of the batch had these rates.
        """

    def _distribution(self) -> RateDistribution:
        found_rate, rate, found, crawls, span, roots, squares = self._fitted().state[:, -TALLY:].T
        self._require_exponential(crawls, span, roots, squares)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = rate / crawls
            like, missed = np.nan_to_num(found_rate / mean), crawls - found
            scale = np.nan_to_num((like + missed) / crawls * (crawls / squares))
        return RateDistribution.of_odds(like * scale, missed * scale, mean)

    def _require_exponential(self, crawls: Array, span: Array, roots: Array, squares: Array) -> None:
        """Raise if the crawl intervals are not those of Poisson crawls."""
        from scipy.special import gammaln

        # With weights, as many crawls as leave a mean its variance. A single one tells nothing.
        k = np.divide(crawls * crawls, squares, out=np.zeros_like(crawls), where=squares > 0)
        told = k > 1.0
        k, crawls, span, roots = (each[told] for each in (k, crawls, span, roots))
        found = float(np.sum(roots * np.sqrt(k / crawls / span)))
        expected = float(np.sum(0.5 * np.sqrt(np.pi) * k * np.exp(gammaln(k) - gammaln(k + 0.5))))
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

    def fit(self, log: CrawlLog, crawl_rate: npt.ArrayLike) -> Self:
        """Estimate the change rates of a log's sources.

        Results of earlier fits are discarded.

        Parameters
        ----------
        log : CrawlLog
        crawl_rate : scalar or array_like of shape (n,) or (rows,)
            Rate of the Poisson crawling process, in crawls per time unit: one number, one per source or one
            per crawl, in the log's order. Required: the crawl intervals themselves are not used.
        """
        return self._learn(None, log, crawl_rate)

    def partial_fit(self, log: CrawlLog, crawl_rate: npt.ArrayLike) -> Self:
        """Update the estimates with one more batch.

        Equal to `fit` of all batches together.

        Parameters
        ----------
        log : CrawlLog
            A batch, whose first row of a source is a baseline unless ``start`` (such as the `last_crawl` of
            the batch before) or ``elapsed`` tells its crawl interval. Its crawls come after those of earlier
            batches.
        crawl_rate : scalar or array_like of shape (n,) or (rows,)
            As in `fit`; of this batch.
        """
        return self._learn(self._evidence, log, crawl_rate)

    def _learn(self, earlier: SufficientStatistics | None, log: CrawlLog, crawl_rate: npt.ArrayLike) -> Self:
        rows = ObservedIntervals.of(log)
        rate = rows.crawl_rates(log, crawl_rate)

        def advance(known: SufficientStatistics, at: IntArray, weights: Array) -> Array:
            tally = known.state[:, -TALLY:].copy()
            found = np.where(rows.changed, weights, 0.0)
            x = rows.interval * rate
            sums = (found * rate, weights * rate, found, weights, weights * x, weights * np.sqrt(x))
            each = (*sums, weights * weights)
            tally[at] += np.stack([rows.sums(values) for values in each], axis=1)
            return np.concatenate([self._advance(known, at, rows, rate), tally], axis=1)

        return self._carry_on(earlier, log, rows, advance)
