"""`BatchEstimator`: base of the estimators that need the whole log.

They use all crawl intervals of a log together and keep the log for their confidence intervals.

Their estimating equations have no sufficient statistics of fixed size: each crawl interval enters with the
unknown rate. An update with one more batch is a fit to the longer log.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
import numpy.typing as npt

from freshopt.estimators.estimator import Estimator
from freshopt.inference.dated_crawls import GammaParameters
from freshopt.inference.forgetting import Forgetting, moment_of
from freshopt.inference.rate_distribution import RateDistribution
from freshopt.inference.rate_posterior import RatePosterior
from freshopt.logs.crawl_log import CrawlLog, require_log
from freshopt.numerics.arrays import Array


class BatchEstimator(Estimator):
    """Estimator that keeps the log of its fit."""

    _forgetting: Forgetting = Forgetting(None)
    _log: CrawlLog | None = None

    def fit(self, log: CrawlLog) -> Self:
        """Estimate the change rates of a log's sources."""
        require_log(log)
        weights = self._forgetting.weights(log, slice(None), moment_of(log, log.end))
        rate, flags = self._solve(log, weights)
        self._log = log
        return self._publish(log.sources_, log.time_unit, rate, flags)

    @abstractmethod
    def _solve(self, log: CrawlLog, weights: Array | None) -> tuple[Array, npt.NDArray[np.str_]]:
        """Return the change rates and the flags.

        `weights` has one entry for each row, None for equal ones.
        """

    def _prior(self, log: CrawlLog) -> GammaParameters | None:  # noqa: ARG002 - those that have one need it
        """Return the prior of each source, or None."""
        return None

    def _kept(self) -> CrawlLog:
        if self._log is None:
            raise self._not_fitted()
        return self._log

    def _distribution(self) -> RateDistribution:
        log = self._kept()
        return RatePosterior(log, self._forgetting, self._prior(log)).distribution()
