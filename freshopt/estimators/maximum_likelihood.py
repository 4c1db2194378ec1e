"""`MaximumLikelihood`: maximum likelihood, posterior median or mode of change rates.

A crawl observes only whether the Poisson process had an event since the previous crawl (interval-censored
data). The share of crawls that find a change saturates as crawl intervals grow; the likelihood accounts for
it, and its maximum is consistent for crawl intervals of any distribution. The equation to solve is decreasing
in the rate and each source has its own, so all are solved together, vectorised (`crawl_likelihood`).

Cost: with a prior or a pseudo-observation the log is read once; then one exponential per changed crawl and
Newton step, about five steps. The posterior median costs what an interval does, some 30 times as much.
"""

from __future__ import annotations

from types import NoneType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, expect
from freshopt.estimators.crawl_likelihood import CrawlLikelihood
from freshopt.estimators.crawl_rows import Forgetting, GammaParameters
from freshopt.estimators.estimator import BatchEstimator, IntervalMethod, LikelihoodRatio
from freshopt.estimators.features.feature_priors import FeaturePriors
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.estimators.host_prior import HostPriors
from freshopt.estimators.marginal_likelihood import posterior_mode
from freshopt.estimators.rate_distribution import RateDistribution, rate_posterior
from freshopt.estimators.reset_filter import ResetFilter, Resets, check_reset
from freshopt.estimators.sufficient_statistics import as_the_others, flags_of
from freshopt.heavy import special
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, as_positive
from freshopt.units import convert_time

Prior: TypeAlias = GammaPrior | HostPriors | FeaturePriors


class MaximumLikelihood(BatchEstimator):
    """Maximum likelihood estimator of Poisson change rates.

    The likelihood of a source is largest where Σ_{changed} a/(e^{aΔ}−1) = Σ_{unchanged} a over the crawl
    intervals a between crawls. A crawl interval in which the number of changes k is known contributes the
    Poisson likelihood instead: k/Δ to the left side and a to the right. One whose last change is dated, a
    time τ before the crawl, contributes 1/Δ and τ; the date of a source's first crawl, which may be its
    birth, counts under a prior alone. By default estimates are the median of the posterior that this
    likelihood and Jeffreys' prior have, so that they are positive and finite.

    Parameters
    ----------
    smoothing : float, optional
        Length in *days*, whatever the log's time unit, of the two crawl intervals of a pseudo-observation
        added to each source, one with a change and one without, in place of Jeffreys' prior: estimates are
        then of maximum likelihood, and those of sources with few crawls are shrunk towards ln 2/smoothing per
        day, whatever the scale of the log. 0.5 is that of [1]_, 0 adds none.
    prior : GammaPrior, HostPriors or FeaturePriors, optional
        Prior of the change rates over all sources, such as ``GammaPrior.from_log(log)``, over those of each
        host, ``HostPriors.from_log(log, host)``, or by features, ``FeaturePriors.from_log(log, features)``.
        It takes the place of the smoothing: estimates are the posterior mode of ln Δ given the crawls and the
        prior.
    half_life : float, optional
        Age in *days*, whatever the log's time unit, at which a crawl counts half, for rates that drift; ages
        count from the newest crawl of the log, which must have times. By default all crawls count alike. The
        pseudo-observation is not forgotten, and weighs more beside few recent crawls: prefer a prior, and
        `reset`.
    reset : float or "auto", optional
        Rate per *day*, whatever the log's time unit, at which each source's rate is drawn anew from the
        prior, which it needs. Estimates are then E[Δ] at the log's end, given all crawls; with 0 the
        posterior mean of rates that last. "auto" takes the rate that predicts the log best, crawl by crawl.
        By default rates last, and estimates are modes.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log. A source with a baseline only has the median rate of the others,
        NaN if there is none. With a smoothing of 0 a source that never changed has 0, one that had always
        changed inf, and one with a baseline only NaN.
    reset_ : float or None
        Resets per time unit of the log: `reset`, or the rate chosen; None without.
    flag_, sources_, time_unit_
        As `Estimator` has them. Rates of flagged sources are bounded by the prior or the smoothing alone.

    Raises
    ------
    SourceDataError
        If `smoothing` is not 0 or a positive number, `reset` is not a rate or "auto", or comes without a
        prior, or with a smoothing or a half-life.

    Notes
    -----
    The equation is [1]_ equation 10 and [2]_ equation 16, with a smoothing as in line 11 of Algorithm 4 in
    [1]_. In [1]_ the pseudo-observation is 0.5 without a unit, and the estimate depends on it: half a day is
    much to a source that is crawled every minute, whose estimate it divides by 50. The posterior median
    scales with the log, lies within every interval of the posterior, and of the remedies that were
    compared, pseudo-observations in units of the source's mean or median crawl interval and weak Gamma priors
    among them, it had the smallest error of ln Δ wherever crawl intervals differ.

    Where every crawl found a change, only the prior tells how fast the source may be: at 100 changes per
    crawl interval any rate above some 5 is as likely. The median is then that at which crawls would have
    missed 0.23 changes, about 4.9 per crawl interval after 29 equal ones, the interval has no upper end, and
    the flag says so. Shorter crawl intervals are the remedy.

    Counted changes are not in [1]_, whose equation 11 serves sources that announce every change; nor is the
    prior, which is conjugate: the estimate is that with a changes more in a time b more.

    Intervals: `Posterior` and `LikelihoodRatio`, that of the crawls alone, or with the pseudo-observation.
    With a prior both are intervals of the posterior of ln Δ. With a half-life and no prior an interval is
    that of the effective number of equal crawls; it covers a rate that did not drift. With a prior the weight
    of old crawls passes to it.

    With `reset` a crawl is forgotten with a probability that grows with its age, and only as far as newer
    crawls do not confirm it (`reset_filter`); what a source returns to is its prior, between its last crawl
    and the log's end as well. The belief is held on a grid of rates: means and quantiles come out to 1e-3.

    Which estimator when, from measurements: ``docs/evidence/benchmarks.md``.

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019.
    .. [2] Avrachenkov, Patil, Thoppe, "Online algorithms for estimating change rates of web pages",
       Performance Evaluation 153, 2022, doi:10.1016/j.peva.2021.102261.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 4, time=[0.0, 1.0, 2.0, 4.0], changed=[0, 1, 0, 1])
    >>> model = MaximumLikelihood(smoothing=0).fit(log)
    >>> model.change_rate_.round(6), model.flag_
    (array([0.940614]), array(['ok'], dtype='<U14'))
    >>> [float(end.round(3)[0]) for end in model.interval(0.95)]
    [0.16, 2.927]

    After changes in each of twenty crawls and none in the ten since, the rate has probably been drawn anew.

    >>> log = CrawlLog(source=["a"] * 31, time=range(31), changed=[0] + [1] * 20 + [0] * 10)
    >>> prior = GammaPrior(shape=1.0, exposure=2.0)
    >>> [MaximumLikelihood(prior=prior, reset=rate).fit(log).change_rate_.round(2) for rate in (0, 0.02)]
    [array([1.04]), array([0.1])]
    """

    reset_: float | None = None

    def __init__(
        self,
        smoothing: float | None = None,
        prior: Prior | None = None,
        half_life: float | None = None,
        reset: Resets | None = None,
    ) -> None:
        if smoothing is not None:
            remedy = "Pass a length in days > 0, or 0 for none."
            smoothing = as_positive(smoothing, "smoothing", remedy, zero=True)
        kinds = (GammaPrior, HostPriors, FeaturePriors, NoneType)
        expect(prior, kinds, "prior", "Pass a GammaPrior, HostPriors, FeaturePriors or None")
        self.smoothing = smoothing
        self.prior = prior
        reset = check_reset(reset)
        if reset is not None:
            _check_alone(prior, smoothing, half_life)
        self.half_life = half_life
        self.reset = reset
        self._forgetting = Forgetting(half_life)
        self._likelihood: CrawlLikelihood | None = None

    def __repr__(self) -> str:
        if self.prior is not None:
            resets = "" if self.reset is None else f", reset={self.reset!r}"
            return f"MaximumLikelihood(prior={self.prior}{self._forgetting.setting}{resets})"
        return f"MaximumLikelihood(smoothing={self.smoothing}{self._forgetting.setting})"

    def _solve(self, log: CrawlLog, weights: Array | None) -> tuple[Array, npt.NDArray[np.str_]]:
        observed = CrawlLikelihood.of(log, weights)
        prior = self._prior(log)
        if prior is not None and self.reset is not None:
            likelihood = observed.under(prior)
            beliefs = ResetFilter(log, prior)
            per_unit = convert_time(1.0, log.time_unit, "day")
            self.reset_ = beliefs.chosen() if isinstance(self.reset, str) else per_unit * self.reset
            rate = beliefs.expected(self.reset_)
        elif prior is not None:
            likelihood = observed.under(prior)
            rate = posterior_mode(observed, prior)
        elif self.smoothing is not None:
            likelihood = observed.smoothed(convert_time(self.smoothing, "day", log.time_unit))
            rate = likelihood.maximum()
        else:
            likelihood = observed
            rate = as_the_others(rate_posterior(log, self._forgetting, None).median())
        self._likelihood = likelihood
        changed = (observed.found > 0) | (observed.counted > 0)
        return rate, flags_of(changed, observed.exposure > 0)

    def _prior(self, log: CrawlLog) -> GammaParameters | None:
        return None if self.prior is None else self.prior.parameters(log)

    def _distribution(self) -> RateDistribution:
        log = self._kept()
        prior = self._prior(log)
        if prior is None or self.reset_ is None:
            return super()._distribution()
        return ResetFilter(log, prior).distribution(self.reset_)

    def _interval(self, confidence: float, method: IntervalMethod) -> tuple[Array, Array]:
        if not isinstance(method, LikelihoodRatio):
            return super()._interval(confidence, method)
        if self._likelihood is None:
            raise self._not_fitted()
        if self.reset is not None:
            raise SourceDataError(
                f"{method} is of rates that last, and reset is {self.reset!r}. Pass Posterior(), or leave "
                "reset out."
            )
        rate = self._likelihood.maximum()
        return self._likelihood.profile(rate, 0.5 * float(special.chdtri(1, 1.0 - confidence)))


def _check_alone(prior: Prior | None, smoothing: float | None, half_life: float | None) -> None:
    """Raise unless resets come with a prior and nothing else."""
    if prior is None:
        raise SourceDataError(
            "reset needs a prior, from which rates are drawn anew, and prior is None. Pass "
            "prior=GammaPrior.from_log(log)."
        )
    for name, value in (("smoothing", smoothing), ("half_life", half_life)):
        if value is not None:
            raise SourceDataError(f"{name} is {value}, and reset takes its place. Leave one of them out.")
