"""Interfaces of change-rate estimators, and the methods of intervals that they take.

The file of an estimator holds its equation alone: how a batch updates the sufficient statistics of a source,
and how these give a rate. This file holds what all share: new sources of a batch, the counts, the flags, and
that an invalid batch leaves the estimator unchanged. `BatchEstimator` keeps the log instead: its equation has
no sufficient statistics of fixed size, as each crawl interval enters with the unknown rate.

Interval methods are passed as instances. `Posterior` is the default of all estimators and the one to use: it
covers as often as it says, also after 20 crawls. The others are what statistics and the papers offer beside
it: `LikelihoodRatio` is right for many crawls only, `Exact` covers at least as often as it says and mostly
more, `Hoeffding` and `Published` cover nearly always and are several times as wide
(`benchmarks/accuracy/interval_coverage.py`).
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import FreshoptError, SourceDataError
from freshopt.estimators.crawl_rows import Forgetting, GammaParameters, moment_of
from freshopt.estimators.rate_distribution import RateDistribution, rate_posterior
from freshopt.estimators.shared_prior import RateDraws
from freshopt.estimators.sufficient_statistics import ObservedIntervals, SufficientStatistics, flags_of
from freshopt.frames import POLARS, framed
from freshopt.heavy import polars
from freshopt.logs.crawl_log import CrawlLog, Log, as_log
from freshopt.logs.tables import with_unit
from freshopt.numerics.arrays import Array, IntArray, as_number, read_only
from freshopt.numerics.frozen_arrays import frozen_arrays


@dataclass(frozen=True, slots=True)
class Posterior:
    """Central credible interval of the posterior distribution.

    Under Jeffreys' prior unless the estimator has a prior.

    No smoothing enters. What never changed has an interval from 0, what had always changed one without end.
    """


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """Likelihood-ratio confidence interval.

    The rates with 2(l(Δ̂)−l(Δ)) ≤ the χ²₁ quantile.

    Of `MaximumLikelihood`: l is what it maximised, with its pseudo-observation or its prior.
    """


@dataclass(frozen=True, slots=True)
class Exact:
    """Garwood's exact confidence interval for counted changes.

    The rates under which neither so few nor so many changes would be too rare.

    Of `FullObservation`. It covers with at least the confidence, for any number of crawls.
    """


@dataclass(frozen=True, slots=True)
class Hoeffding:
    """Confidence interval by Hoeffding's inequality.

    The rates at which the expected share of crawls without a change is near the observed one.

    Of `MomentMatching`: within √(ln(2/δ)/(2N)). Lemma 3 of Upadhyay et al., "Learning to Crawl", AAAI 2020,
    doi:10.1609/aaai.v34i04.6067, without its last step, in which the curve of expected shares is replaced by
    its smallest slope: never wider than `Published`.
    """


@dataclass(frozen=True, slots=True)
class Published:
    """Confidence interval by the published error bound.

    The estimate and the bound on its error to either side, clipped to bounds.

    Of `MomentMatching`, Lemma 3, and of `FullObservation`, Lemma 8 of Upadhyay et al., "Learning to Crawl",
    AAAI 2020, doi:10.1609/aaai.v34i04.6067; see their `error_bound`.

    Parameters
    ----------
    bounds : (float, float) or None
        Changes per time unit between which the rate is known to lie; None for those of `MomentMatching`.
    """

    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.bounds is not None:
            check_bounds(self.bounds)


IntervalMethod: TypeAlias = Posterior | LikelihoodRatio | Exact | Hoeffding | Published


def check_bounds(bounds: tuple[float, float]) -> tuple[float, float]:
    """Return bounds of change rates as two floats, or refuse them."""
    try:
        lowest, highest = (as_number(bound, "a bound", "Pass a number.") for bound in bounds)
    except (TypeError, ValueError):
        lowest = highest = math.nan
    if not 0 <= lowest < highest:
        raise SourceDataError(
            f"bounds are {bounds}. Pass the smallest and the largest change rate, 0 <= first < second."
        )
    return lowest, highest


def check_confidence(confidence: float) -> float:
    """Return a confidence in (0, 1), or raise."""
    return check_share(confidence, "confidence", 0.95)


def check_share(share: float, what: str, usual: float) -> float:
    """Return a number in (0, 1), or raise."""
    share = as_number(share, what, f"Pass a number between 0 and 1, such as {usual}.")
    if not 0 < share < 1:
        raise SourceDataError(f"{what} is {share}. Pass a number between 0 and 1, such as {usual}.")
    return share


POSTERIOR = Posterior()
# Numbers of each row of a batch.
Rows: TypeAlias = tuple[Array, ...]


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
    library : str
        Of the dataframe that the log was made of, and so of `to_frame`.
    """

    change_rate_: Array
    flag_: npt.NDArray[np.str_]
    sources_: npt.NDArray[Any]
    time_unit_: str
    library: str = POLARS
    _forgetting: Forgetting = Forgetting(None)

    def __repr__(self) -> str:
        given = {name: getattr(of, "__name__", of) for name, of in self.get_params().items()}
        told = (f"{name}={of}" for name, of in given.items() if name != "half_life" or of is not None)
        return f"{type(self).__name__}({', '.join(told)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's
        """Return the settings by name, as scikit-learn clones estimators.

        Examples
        --------
        >>> import freshopt as fo
        >>> fo.estimators.Naive().set_params(floor=0.1).get_params()
        {'floor': 0.1, 'half_life': None}
        """
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **settings: Any) -> Self:  # noqa: ANN401 - as the constructor takes them
        """Take other settings; return the estimator, not fitted."""
        made = type(self)(**{**self.get_params(), **settings})
        vars(self).clear()
        vars(self).update(vars(made))
        return self

    @framed
    def to_frame(self, confidence: float = 0.95) -> polars.DataFrame:
        """Return a dataframe with one row per source.

        It has the columns source, change_rate, lower and upper (as `interval` has them) and flag, and is of
        polars, or of the library of the dataframe that the log was made of.

        Examples
        --------
        >>> import freshopt as fo
        >>> log = fo.CrawlLog(["a", "a", "a"], [0.0, 1.0, 2.0], [0, 0, 1])
        >>> fo.estimators.MaximumLikelihood().fit(log).to_frame().columns
        ['source', 'change_rate', 'lower', 'upper', 'flag']
        """
        if not hasattr(self, "change_rate_"):
            raise self._not_fitted()
        lower, upper = self.interval(confidence)
        columns = {
            "source": self.sources_.tolist(),
            "change_rate": self.change_rate_,
            "lower": lower,
            "upper": upper,
            "flag": self.flag_,
        }
        return with_unit(polars.DataFrame(columns), self.time_unit_)

    def _read(self, log: Log) -> CrawlLog:
        log = as_log(log)
        self.library = log.library
        return log

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
    _known_rates: ClassVar[bool] = False  # whether the rates of the crawling process are required
    _squares: ClassVar[int | None] = None  # which of them is a sum of squared weights
    _evidence: SufficientStatistics | None = None

    @abstractmethod
    def _estimate(self, known: SufficientStatistics) -> Array:
        """Return the change rates that the evidence leads to."""

    def _flags(self, known: SufficientStatistics) -> npt.NDArray[np.str_]:
        return flags_of(known.found > 0, known.found < known.crawls)

    @abstractmethod
    def _summands(self, rows: ObservedIntervals, weights: Array, rate: Array) -> Rows:
        """Return what is summed over the rows of a batch.

        There are no rates where the estimator takes none. The sums go to the last columns of the state.
        """

    def _advance(
        self,
        known: SufficientStatistics,
        at: IntArray,  # noqa: ARG002 - those whose state is no sum need it
        rows: ObservedIntervals,  # noqa: ARG002
        rate: Array,  # noqa: ARG002
    ) -> Array:
        """Return the state of sources `at` after a batch, sums excepted."""
        return known.state.copy()

    def _learn(
        self, earlier: SufficientStatistics | None, log: Log, crawl_rate: npt.ArrayLike | None = None
    ) -> Self:
        """Add a batch to the sufficient statistics; None to begin anew."""
        log = self._read(log)
        rows = ObservedIntervals.of(log)
        given = self._known_rates or crawl_rate is not None
        each = rows.crawl_rates(crawl_rate) if given else np.empty(0)
        known, at = SufficientStatistics.before(log, earlier, self._width)
        newest = max(known.newest, moment_of(log, log.end))
        factor = self._forgetting.factor(newest - known.newest, log.time_unit)
        if factor < 1.0:
            state = known.state * factor
            if self._squares is not None:
                state[:, self._squares] *= factor
            known = replace(known, state=state)
        weights = self._forgetting.weights(log, rows.row, newest)
        summands = self._summands(rows, np.ones(len(rows.row)) if weights is None else weights, each)
        state = self._advance(known, at, rows, each)
        state[at, -len(summands) :] += np.stack([rows.sums(values) for values in summands], axis=1)
        known = known.after(rows, at, state, newest)
        rate = self._estimate(known)  # may refuse: the batch is then as if it had never come
        self._evidence = known
        return self._publish(known.sources, known.time_unit, rate, self._flags(known))

    def _fitted(self) -> SufficientStatistics:
        if self._evidence is None:
            raise self._not_fitted()
        return self._evidence


class BatchEstimator(Estimator):
    """Estimator that keeps the log of its fit."""

    _log: CrawlLog | None = None

    def fit(self, log: Log) -> Self:
        """Estimate the change rates of a log's sources.

        Parameters
        ----------
        log : CrawlLog, path or dataframe
            What `freshopt.read_log` takes, or what it returns.
        """
        log = self._read(log)
        rate, flags = self._solve(log, self._forgetting.weights(log))
        self._log = log
        return self._publish(log.names, log.time_unit, rate, flags)

    @abstractmethod
    def _solve(self, log: CrawlLog, weights: Array | None) -> tuple[Array, npt.NDArray[np.str_]]:
        """Return the change rates and the flags, by rows' weights if any."""

    def _prior(self, log: CrawlLog) -> GammaParameters | None:  # noqa: ARG002 - those that have one need it
        """Return the prior of each source, or None."""
        return None

    def _kept(self) -> CrawlLog:
        if self._log is None:
            raise self._not_fitted()
        return self._log

    def _distribution(self) -> RateDistribution:
        log = self._kept()
        return rate_posterior(log, self._forgetting, self._prior(log))
