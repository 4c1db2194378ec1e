"""`KeptLog`: estimators that look at all gaps of a log together, and keep it for their intervals.

Their equations have no sums that could be carried from batch to batch: each gap enters with the rate that is
sought. Learning from one more batch is fitting the longer log.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array
from freshopt.learning.crawl_log import CrawlLog, require_log
from freshopt.learning.estimator import Estimator
from freshopt.learning.forgetting import Forgetting, moment_of
from freshopt.learning.rate_distribution import RateDistribution
from freshopt.learning.rate_posterior import RatePosterior


class KeptLog(Estimator):
    """An estimator that keeps the log that it was fitted to."""

    _forgetting: Forgetting = Forgetting(None)
    _log: CrawlLog | None = None

    def fit(self, log: CrawlLog) -> Self:
        """Estimate the change rates of a log's sources.

        Parameters
        ----------
        log : CrawlLog

        Returns
        -------
        Self
            This estimator, with its attributes set.
        """
        require_log(log)
        weights = self._forgetting.weights(log, slice(None), moment_of(log, log.end))
        rate, flags = self._solve(log, weights)
        self._log = log
        return self._publish(log.sources_, log.time_unit, rate, flags)

    @abstractmethod
    def _solve(self, log: CrawlLog, weights: Array | None) -> tuple[Array, npt.NDArray[np.str_]]:
        """Return the change rates and the flags; `weights` has one for each row, None for all alike."""

    def _prior(self, log: CrawlLog) -> tuple[Array, Array] | None:  # noqa: ARG002 - those that have one need it
        """Return shape and exposure of each source's prior, None if there is none."""
        return None

    def _kept(self) -> CrawlLog:
        if self._log is None:
            raise self._not_fitted()
        return self._log

    def _distribution(self) -> RateDistribution:
        log = self._kept()
        return RatePosterior(log, self._forgetting, self._prior(log)).distribution()
