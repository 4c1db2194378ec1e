"""`KnownCrawlRate`: estimators that are told the rate of the crawling process, and do not look at the gaps.

When crawls come as a Poisson process of rate p, a crawl finds a change with probability Δ/(Δ+p), whatever
came before. Such estimators need which crawls found a change, and p; the rate may differ from crawl to crawl.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, IntArray
from freshopt.learning.crawl_log import CrawlLog
from freshopt.learning.estimator import OnlineEstimator
from freshopt.learning.evidence import Evidence, Observed
from freshopt.learning.rate_distribution import RateDistribution

TALLY = 5  # Σ I p, Σ p, Σ I, Σ 1 and Σ w·1, each summand weighted by w


class KnownCrawlRate(OnlineEstimator):
    """An estimator for crawls at known rates p, which keeps sums of them beside its own numbers.

    Notes
    -----
    Its interval is that of the share μ = Δ/(Δ+p) of crawls that find a change: Jeffreys' posterior of μ,
    whatever way the estimate goes to Δ. Under rates that differ, f = Σ_found p / p̄ crawls, p̄ the mean rate,
    stand for those that found a change, and f and the number u of the others are both taken (f+u)/k times,
    which makes the variance that of the estimating equation Σ_found p − uΔ = 0. It is closed, and costs
    nothing per crawl.
    """

    _squares: ClassVar[int] = -1

    @abstractmethod
    def _advance(self, known: Evidence, at: IntArray, rows: Observed, rate: Array) -> Array:
        """Return the estimator's own numbers of all sources after a batch whose crawls had these rates."""

    def _distribution(self) -> RateDistribution:
        found_rate, rate, found, crawls, squares = self._fitted().state[:, -TALLY:].T
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = rate / crawls
            like, missed = np.nan_to_num(found_rate / mean), crawls - found
            scale = np.nan_to_num((like + missed) / crawls * (crawls / squares))
        return RateDistribution.of_odds(like * scale, missed * scale, mean)

    def fit(self, log: CrawlLog, crawl_rate: npt.ArrayLike) -> Self:
        """Estimate the change rates of a log's sources, forgetting what was learnt before.

        Parameters
        ----------
        log : CrawlLog
        crawl_rate : scalar or array_like of shape (n,) or (rows,)
            Rate of the Poisson crawling process, in crawls per time unit: one number, one per source or one
            per crawl, in the log's order. Needed: the gaps themselves are not looked at.

        Returns
        -------
        Self
            This estimator, with its attributes set.

        Raises
        ------
        SourceDataError
            If a crawl rate, or an α_k of `LawOfLargeNumbers`, is not a positive number.
        """
        return self._learn(None, log, crawl_rate)

    def partial_fit(self, log: CrawlLog, crawl_rate: npt.ArrayLike) -> Self:
        """Learn from one more batch; equal to `fit` of all batches together.

        Parameters
        ----------
        log : CrawlLog
            A batch, whose first row of a source is a baseline unless ``start`` (such as the `last_crawl` of
            the batch before) or ``elapsed`` tells its gap. Its crawls come after those of earlier batches.
        crawl_rate : scalar or array_like of shape (n,) or (rows,)
            As in `fit`; of this batch.

        Returns
        -------
        Self

        Raises
        ------
        SourceDataError
            As in `fit`, or if the time unit or the kind of the sources' names is not that of the batches
            before. What was learnt before stays.
        """
        return self._learn(self._evidence, log, crawl_rate)

    def _learn(self, earlier: Evidence | None, log: CrawlLog, crawl_rate: npt.ArrayLike) -> Self:
        rows = Observed.of(log)
        rate = rows.crawl_rates(log, crawl_rate)

        def advance(known: Evidence, at: IntArray, weights: Array) -> Array:
            tally = known.state[:, -TALLY:].copy()
            found = np.where(rows.changed, weights, 0.0)
            each = (found * rate, weights * rate, found, weights, weights * weights)
            tally[at] += np.stack([rows.sums(values) for values in each], axis=1)
            return np.concatenate([self._advance(known, at, rows, rate), tally], axis=1)

        return self._carry_on(earlier, log, rows, advance)
