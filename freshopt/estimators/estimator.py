"""`Estimator` and `OnlineEstimator`: interfaces of change-rate estimators.

The file of an estimator holds its equation alone: how a batch updates the sufficient statistics of a source,
and how these give a rate. This file holds what all share: new sources of a batch, the counts, the flags, and
that an invalid batch leaves the estimator unchanged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.estimators.sufficient_statistics import ObservedIntervals, SufficientStatistics
from freshopt.inference.forgetting import Forgetting, moment_of
from freshopt.inference.interval_methods import IntervalMethod, Posterior, check_confidence
from freshopt.inference.rate_distribution import RateDistribution
from freshopt.inference.shared_prior import RateDraws
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, IntArray, read_only
from freshopt.numerics.frozen_arrays import frozen_arrays

POSTERIOR = Posterior()
Advance: TypeAlias = Callable[[SufficientStatistics, IntArray, Array], Array]


@frozen_arrays
class Estimator(ABC):
    """Fitted estimator of change rates.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log.
    flag_ : ndarray of str, shape (n,)
        "ok", "baseline only" (no crawl interval was observed), "never changed", or "always changed" (every
        crawl found an unknown number of changes).
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
        """Set the public attributes, arrays read-only."""
        self.time_unit_ = time_unit
        self.sources_, self.change_rate_, self.flag_ = read_only(sources), read_only(rate), read_only(flags)
        return self

    def interval(self, confidence: float = 0.95, method: IntervalMethod = POSTERIOR) -> tuple[Array, Array]:
        """Return intervals of the change rates.

        One source at a time: not simultaneous.

        Notes
        -----
        Measured on rates spread evenly in ln Δ from 0.05 to 3 changes per crawl interval, `Posterior` covers
        on average within 0.01 of nominal from 20 to 2000 crawls. At a single rate the coverage oscillates
        about that, since the outcomes of crawls are binary: after 20 equal crawl intervals, credible
        intervals of 0.8 cover between 0.60 and 0.93 of the time, those of 0.95 between 0.89 and 0.99; after
        200 the range is 0.75 to 0.84 and 0.93 to 0.96 (``benchmarks/results/interval_coverage.json``). After
        5 equal crawl intervals those of 0.9 cover 0.92 on average and between 0.81 and 0.98, after 10 they
        cover 0.91 and between 0.77 and 0.98; `LikelihoodRatio` covers between 0.65 and 0.99 there.
        """
        check_confidence(confidence)
        if isinstance(method, type) or not isinstance(method, IntervalMethod):
            raise SourceDataError(f"method is {method!r}. Pass an instance, such as Posterior().")
        lower, upper = self._interval(confidence, method)
        return np.fmin(lower, self.change_rate_), np.fmax(upper, self.change_rate_)

    def draws(self, count: int, seed: int) -> Array:
        """Return samples of the change rates, of all sources together.

        Notes
        -----
        How rates are distributed is drawn with them, from what the log alone tells of it: totals spread as
        much as is not known of that, too, whatever prior the estimator has. The samples of one source
        therefore spread otherwise than `Posterior` says. One with a baseline only is drawn like the others;
        where the log has nothing else, samples are those of the prior, NaN without one.
        """
        return self._draws(count, seed).rates

    def _draws(self, count: int, seed: int) -> RateDraws:
        """Return samples of the change rates.

        With what is known of each source.
        """
        if not isinstance(count, int | np.integer) or count < 1:
            raise SourceDataError(f"count is {count!r}. Pass how many draws, 1 or more.")
        return RateDraws.of(self._distribution(), int(count), seed)

    def nodes(self, number: int = 8) -> tuple[Array, Array]:
        """Return Gauss nodes and weights of the change rates' posteriors.

        Weighted sums over them are posterior expectations: ``fo.Expected(objective, *estimator.nodes())``
        is the objective's, for sources in the order of the log.

        Notes
        -----
        Posteriors are those whose intervals `Posterior` gives; `RateDistribution.nodes` has the accuracy.
        """
        found = self._distribution().nodes(number)
        return found.nodes, found.weights

    @abstractmethod
    def _distribution(self) -> RateDistribution:
        """Return the posterior distribution of the change rates."""

    def _interval(self, confidence: float, method: IntervalMethod) -> tuple[Array, Array]:
        if isinstance(method, Posterior):
            return self._distribution().interval(confidence)
        raise SourceDataError(
            f"{type(self).__name__} has no interval by {method}. Pass Posterior(), or leave method out."
        )

    def _not_fitted(self) -> FreshoptError:
        return FreshoptError(f"{type(self).__name__} has not seen a log yet. Call fit(log) first.")


class OnlineEstimator(Estimator):
    """Estimator that updates sufficient statistics batch by batch.

    It keeps a few numbers per source, and no crawls.
    """

    _width: ClassVar[int]  # how many numbers it keeps of a source
    _squares: ClassVar[int | None] = None  # which of them is a sum of squared weights
    _forgetting: Forgetting = Forgetting(None)
    _evidence: SufficientStatistics | None = None

    @abstractmethod
    def _estimate(self, known: SufficientStatistics) -> Array:
        """Return the change rates that the evidence leads to."""

    def _flags(self, known: SufficientStatistics) -> npt.NDArray[np.str_]:
        return known.flags()

    def _carry_on(
        self, earlier: SufficientStatistics | None, log: CrawlLog, rows: ObservedIntervals, advance: Advance
    ) -> Self:
        """Add a batch to the sufficient statistics.

        Parameters
        ----------
        earlier : SufficientStatistics or None
            None to begin anew.
        log : CrawlLog
            The batch.
        rows : ObservedIntervals
            Its rows with a known crawl interval.
        advance : callable
            Takes the statistics before the batch, aged to its newest crawl, the positions in it of the
            batch's sources, and the weights of the rows; returns the state of all sources after the batch, of
            shape (n, width).
        """
        known, at = SufficientStatistics.before(log, earlier, self._width)
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

    def _fitted(self) -> SufficientStatistics:
        if self._evidence is None:
            raise self._not_fitted()
        return self._evidence
