"""`Estimator`: what every estimator of change rates shows; `OnlineEstimator`: how one learns by batches.

An estimator's own file holds its equation alone: how a batch changes the few numbers that are kept of a
source, and how these give a rate. What is the same for all stands here: sources that come with a batch, the
counts, the flags, and that nothing is kept of a batch that is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, IntArray
from freshopt.errors import FreshoptError, SourceDataError
from freshopt.learning.crawl_log import CrawlLog
from freshopt.learning.evidence import Evidence, Observed
from freshopt.learning.forgetting import Forgetting, moment_of
from freshopt.learning.interval_method import IntervalMethod, Posterior, check_confidence
from freshopt.learning.rate_distribution import RateDistribution

POSTERIOR = Posterior()
Advance: TypeAlias = Callable[[Evidence, IntArray, Array], Array]


class Estimator(ABC):
    """What is known of change rates after a log was read.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log.
    flag_ : ndarray of str, shape (n,)
        "ok", "baseline only" (no gap was observed), "never changed", or "always changed" (every crawl found
        an unknown number of changes).
    sources_ : ndarray, shape (n,)
        The sources seen so far, sorted.
    time_unit_ : str
        The log's time unit.
    """

    change_rate_: Array
    flag_: npt.NDArray[np.str_]
    sources_: npt.NDArray[Any]
    time_unit_: str

    def _publish(
        self, sources: npt.NDArray[Any], time_unit: str, rate: Array, flags: npt.NDArray[np.str_]
    ) -> Self:
        """Set the public attributes."""
        self.sources_, self.time_unit_, self.change_rate_, self.flag_ = sources, time_unit, rate, flags
        return self

    def interval(self, confidence: float = 0.95, method: IntervalMethod = POSTERIOR) -> tuple[Array, Array]:
        """Return intervals of the change rates, one source at a time.

        Parameters
        ----------
        confidence : float
            In (0, 1).
        method : Posterior, LikelihoodRatio, Exact, Hoeffding or Published
            `Posterior` serves all estimators; which others an estimator has, its Notes say.

        Returns
        -------
        lower, upper : ndarray of float, shape (n,)
            Changes per time unit of the log. With `Posterior`, and without a prior, `lower` is 0 for a source
            that never changed, and `upper` is inf for one that had always changed (save of `Naive`, which is
            about changes found); a baseline alone leaves (0, inf). No smoothing or floor enters, so that an
            estimate that is bounded by these alone may lie outside.

        Raises
        ------
        SourceDataError
            If `confidence` is not in (0, 1), or the estimator has no such method.
        FreshoptError
            If nothing was fitted yet.

        Notes
        -----
        Measured on rates spread evenly in ln Δ from 0.05 to 3 changes per gap, `Posterior` covers on average
        within 0.01 of nominal from 20 to 2000 crawls. At a single rate it swings about that, since crawls
        tell yes or no and 20 of them have few outcomes: after 20 equal gaps intervals of 0.8 cover between
        0.60 and 0.93 of the time, those of 0.95 between 0.89 and 0.99; after 200 the swing is 0.75 to 0.84
        and 0.93 to 0.96 (``benchmarks/results/interval_coverage.json``).
        """
        check_confidence(confidence)
        if isinstance(method, type) or not isinstance(method, IntervalMethod):
            raise SourceDataError(f"method is {method!r}. Pass an instance, such as Posterior().")
        return self._interval(confidence, method)

    def draws(self, count: int, seed: int) -> Array:
        """Return change rates drawn from the distribution whose intervals `Posterior` gives.

        Parameters
        ----------
        count : int
        seed : int

        Returns
        -------
        ndarray of float, shape (count, n)
            Independent between sources; NaN for a source with a baseline only, unless there is a prior.
        """
        if not isinstance(count, int | np.integer) or count < 1:
            raise SourceDataError(f"count is {count!r}. Pass how many draws, 1 or more.")
        return self._distribution().draws(int(count), seed)

    @abstractmethod
    def _distribution(self) -> RateDistribution:
        """Return what is left open about the change rates."""

    def _interval(self, confidence: float, method: IntervalMethod) -> tuple[Array, Array]:
        if isinstance(method, Posterior):
            return self._distribution().interval(confidence)
        raise SourceDataError(
            f"{type(self).__name__} has no interval by {method}. Pass Posterior(), or leave method out."
        )

    def _not_fitted(self) -> FreshoptError:
        return FreshoptError(f"{type(self).__name__} has not seen a log yet. Call fit(log) first.")


class OnlineEstimator(Estimator):
    """An estimator that keeps a few numbers per source, and no crawls."""

    _width: ClassVar[int]  # how many numbers it keeps of a source
    _squares: ClassVar[int | None] = None  # which of them is a sum of squared weights
    _forgetting: Forgetting = Forgetting(None)
    _evidence: Evidence | None = None

    @abstractmethod
    def _estimate(self, known: Evidence) -> Array:
        """Return the change rates that the evidence leads to."""

    def _flags(self, known: Evidence) -> npt.NDArray[np.str_]:
        return known.flags()

    def _carry_on(self, earlier: Evidence | None, log: CrawlLog, rows: Observed, advance: Advance) -> Self:
        """Add a batch to what was known before it.

        Parameters
        ----------
        earlier : Evidence or None
            None to begin anew.
        log : CrawlLog
            The batch.
        rows : Observed
            Its rows with a known gap.
        advance : callable
            Takes the evidence before the batch, aged to its newest crawl, the positions in it of the batch's
            sources, and the weights of the rows; returns the state of all sources after the batch, of shape
            (n, width).
        """
        known, at = Evidence.before(log, earlier, self._width)
        newest = max(known.newest, moment_of(log, log.end))
        factor = self._forgetting.factor(newest - known.newest, log.time_unit)
        if factor < 1.0:
            state = known.state * factor
            if self._squares is not None:
                state[:, self._squares] *= factor
            known = replace(known, state=state)
        weights = self._forgetting.weights(log, rows.row, newest)
        state = advance(known, at, np.ones(len(rows.row)) if weights is None else weights)
        known = known.after(rows, at, state, newest)
        rate = self._estimate(known)  # may refuse: the batch is then as if it had never come
        self._evidence = known
        return self._publish(known.sources, known.time_unit, rate, self._flags(known))

    def _fitted(self) -> Evidence:
        if self._evidence is None:
            raise self._not_fitted()
        return self._evidence
