"""`MaximumLikelihood`: maximum likelihood or posterior mode of change rates.

A crawl observes only whether the Poisson process had an event since the previous crawl (interval-censored
data). The share of crawls that find a change saturates as crawl intervals grow; the likelihood accounts for
it, and its maximum is consistent for crawl intervals of any distribution. The equation to solve is decreasing
in the rate and each source has its own, so all are solved together, vectorised (`crawl_likelihood`).

Cost: the log is read once; then one exponential per changed crawl and Newton step, about five steps.
"""

from __future__ import annotations

from types import NoneType

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, expect
from freshopt.estimators.batch_estimator import BatchEstimator
from freshopt.inference.crawl_likelihood import CrawlLikelihood
from freshopt.inference.forgetting import Forgetting
from freshopt.inference.gamma_prior import GammaPrior
from freshopt.inference.host_prior import HostPriors
from freshopt.inference.interval_methods import IntervalMethod, LikelihoodRatio
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, as_number
from freshopt.units import convert_time


class MaximumLikelihood(BatchEstimator):
    """Maximum likelihood estimator of Poisson change rates.

    For each source it solves Σ_{changed} a/(e^{aΔ}−1) = Σ_{unchanged} a over the crawl intervals a between
    crawls. A crawl interval in which the number of changes k is known contributes the Poisson likelihood
    instead: k/Δ to the left side and a to the right.

    Parameters
    ----------
    smoothing : float
        Length in *days*, whatever the log's time unit, of the two crawl intervals of a pseudo-observation
        added to each source, one with a change and one without. They keep estimates positive and finite, and
        shrink those of sources with few crawls towards ln 2/smoothing per day. 0 disables it.
    prior : GammaPrior or HostPriors, optional
        Prior of the change rates over all sources, such as ``GammaPrior.from_log(log)``, or over those of
        each host, ``HostPriors.from_log(log, host)``. It takes the place of the smoothing: estimates are the
        posterior mode of ln Δ given the crawls and the prior.
    half_life : float, optional
        Age in *days*, whatever the log's time unit, at which a crawl counts half, for rates that drift; ages
        count from the newest crawl of the log, which must have times. By default all crawls count alike. The
        pseudo-observation is not forgotten, and weighs more beside few recent crawls: prefer a prior then.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log. Without smoothing 0 for a source that never changed, inf for one
        that had always changed, NaN for one with a baseline only.
    flag_, sources_, time_unit_
        As `Estimator` has them. Rates of flagged sources are bounded by the smoothing alone.

    Raises
    ------
    SourceDataError
        If `smoothing` is not 0 or a positive number.

    Notes
    -----
    The equation is [1]_ equation 10 and [2]_ equation 16, smoothed as in line 11 of Algorithm 4 in [1]_. In
    [1]_ the pseudo-observation is 0.5 without a unit, and the estimate depends on it; here it is half a
    day. Counted changes are not in [1]_, whose equation 11 serves sources that announce every change; nor is
    the prior, which is conjugate: the estimate is that with a changes more in a time b more.

    Intervals: `Posterior` and `LikelihoodRatio`. With a prior both are intervals of the posterior of ln Δ.
    With a half-life and no prior an interval is that of the effective number of equal crawls; it covers a
    rate that did not drift. With a prior the weight of old crawls passes to it.

    Which estimator when, from measurements: ``docs/estimators.md``.

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
    """

    def __init__(
        self,
        smoothing: float = 0.5,
        prior: GammaPrior | HostPriors | None = None,
        half_life: float | None = None,
    ) -> None:
        smoothing = as_number(smoothing, "smoothing", "Pass a length in days > 0, or 0 for none.")
        if not (smoothing == 0 or SMALLEST <= smoothing <= LARGEST):
            raise SourceDataError(f"smoothing is {smoothing}. Pass a length in days > 0, or 0 for none.")
        expect(prior, (GammaPrior, HostPriors, NoneType), "prior", "Pass a GammaPrior, HostPriors or None")
        self.smoothing = smoothing
        self.prior = prior
        self.half_life = half_life
        self._forgetting = Forgetting(half_life)
        self._likelihood: CrawlLikelihood | None = None

    def __repr__(self) -> str:
        """Return the settings."""
        if self.prior is not None:
            return f"MaximumLikelihood(prior={self.prior}{self._forgetting.setting})"
        return f"MaximumLikelihood(smoothing={self.smoothing}{self._forgetting.setting})"

    def _solve(self, log: CrawlLog, weights: Array | None) -> tuple[Array, npt.NDArray[np.str_]]:
        observed = CrawlLikelihood.of(log, weights)
        prior = self._prior(log)
        if prior is None:
            likelihood = observed.smoothed(convert_time(self.smoothing, "day", log.time_unit))
        else:
            likelihood = observed.counting(*prior)
        rate = likelihood.maximum()
        self._likelihood = likelihood
        return rate, _flags(observed)

    def _prior(self, log: CrawlLog) -> tuple[Array, Array] | None:
        return None if self.prior is None else self.prior.parameters(log)

    def _interval(self, confidence: float, method: IntervalMethod) -> tuple[Array, Array]:
        if not isinstance(method, LikelihoodRatio):
            return super()._interval(confidence, method)
        if self._likelihood is None:
            raise self._not_fitted()
        from scipy.special import chdtri

        return self._likelihood.profile(self.change_rate_, 0.5 * float(chdtri(1, 1.0 - confidence)))


def _flags(observed: CrawlLikelihood) -> npt.NDArray[np.str_]:
    """Return the flag of each source, without the smoothing."""
    unchanged = observed.exposure > 0
    changed = (observed.found > 0) | (observed.counted > 0)
    kinds = ["baseline only", "never changed", "always changed"]
    return np.select([~changed & ~unchanged, ~changed, ~unchanged], kinds, default="ok")
