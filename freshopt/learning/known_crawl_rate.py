"""`KnownCrawlRate`: estimators that are told the rate of the crawling process, and do not look at the gaps.

When crawls come as a Poisson process of rate p, a crawl finds a change with probability Δ/(Δ+p), whatever
came before. Such estimators need which crawls found a change, and p; the rate may differ from crawl to crawl.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy.typing as npt

from freshopt.arrays import Array, IntArray
from freshopt.learning.crawl_log import CrawlLog
from freshopt.learning.estimator import OnlineEstimator
from freshopt.learning.evidence import Evidence, Observed


class KnownCrawlRate(OnlineEstimator):
    """An estimator for crawls at known rates."""

    @abstractmethod
    def _advance(self, known: Evidence, at: IntArray, rows: Observed, rate: Array) -> Array:
        """Return the state of all sources after a batch whose crawls had these rates, shape (n, width)."""

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
        return self._carry_on(earlier, log, rows, lambda known, at: self._advance(known, at, rows, rate))
