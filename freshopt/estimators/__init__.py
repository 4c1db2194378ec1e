"""Estimators of change rates from crawl logs.

With the priors and interval methods that they take. A crawl shows whether a source has changed since the
crawl before, not how often; the estimators differ in how they use that.

* ``MaximumLikelihood(prior=GammaPrior.from_log(log))`` for the rates of many sources; `fo.plan` does so by
  default, with ``GammaPrior.weak(log)`` below 30 sources. For a single source ``MaximumLikelihood()``, whose
  estimates are posterior medians under Jeffreys' prior and scale with the log.
* ``reset="auto"`` beside a prior if rates do not last; `HostPriors` if hosts differ,
  `FeaturePriors` if other features tell how often sources change.
* `LawOfLargeNumbers` where crawls cannot be stored, and their intervals are exponential at known rates;
  `StochasticApproximation` and `MomentumStochasticApproximation` need the same and err more unless changes
  outrun crawls.
* `FullObservation` where changes are counted, `MomentMatching` for the interval that was published with it,
  `Naive` as the baseline.

Rates that were drawn anew every 175 days, and what a fit that expects it gains:

>>> import numpy as np
>>> from freshopt.estimators import GammaPrior, MaximumLikelihood, resetting_prior
>>> from freshopt.logs import CrawlLog
>>> rng = np.random.default_rng(0)
>>> rate = np.repeat(rng.gamma(0.6, 0.05, (100, 4)), 25, axis=1)
>>> changed = rng.random((100, 100)) < 1.0 - np.exp(-7.0 * rate)
>>> log = CrawlLog(np.repeat(np.arange(100), 100), np.tile(7.0 * np.arange(100), 100), changed.ravel())
>>> model = MaximumLikelihood(prior=resetting_prior(log), reset="auto").fit(log)
>>> lasting = MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log)
>>> print(f"one reset in {1 / model.reset_:.0f} days")
one reset in 140 days
>>> for each in (model, lasting):
...     print(f"error {np.sqrt(np.mean((each.change_rate_ - rate[:, -1]) ** 2)):.4f} per day")
error 0.0152 per day
error 0.0323 per day

To go on, fit the log anew, or carry the posterior of a source's rate on a grid from crawl to crawl: over a
gap it returns to the prior by the share of resets, and a crawl multiplies it by its likelihood.

>>> grid = np.geomspace(1e-5, 10.0, 500)
>>> drawn = grid**model.prior.shape * np.exp(-model.prior.exposure * grid)  # the prior of ln(rate)
>>> posterior = drawn = drawn / drawn.sum()
>>> for found in changed[0, 1:]:
...     kept, unchanged = np.exp(-model.reset_ * 7.0), np.exp(-grid * 7.0)
...     posterior = (kept * posterior + (1.0 - kept) * drawn) * (1.0 - unchanged if found else unchanged)
...     posterior = posterior / posterior.sum()
>>> print(f"{posterior @ grid:.4f} carried on, {model.change_rate_[0]:.4f} from the whole log")
0.0309 carried on, 0.0309 from the whole log
"""

from typing import TYPE_CHECKING

from freshopt.heavy import on_first_use

# A schedule needs the week of these, and not what is learnt from logs.
if TYPE_CHECKING:
    from freshopt.estimators.changes_per_time import FullObservation as FullObservation
    from freshopt.estimators.changes_per_time import Naive as Naive
    from freshopt.estimators.default_prior import resetting_prior as resetting_prior
    from freshopt.estimators.estimator import Exact as Exact
    from freshopt.estimators.estimator import Hoeffding as Hoeffding
    from freshopt.estimators.estimator import LikelihoodRatio as LikelihoodRatio
    from freshopt.estimators.estimator import Posterior as Posterior
    from freshopt.estimators.estimator import Published as Published
    from freshopt.estimators.features.feature_priors import FeaturePriors as FeaturePriors
    from freshopt.estimators.gamma_prior import GammaPrior as GammaPrior
    from freshopt.estimators.host_prior import HostPriors as HostPriors
    from freshopt.estimators.known_crawl_rate import LawOfLargeNumbers as LawOfLargeNumbers
    from freshopt.estimators.maximum_likelihood import MaximumLikelihood as MaximumLikelihood
    from freshopt.estimators.moment_matching import MomentMatching as MomentMatching
    from freshopt.estimators.stochastic_approximation import (
        MomentumStochasticApproximation as MomentumStochasticApproximation,
    )
    from freshopt.estimators.stochastic_approximation import (
        StochasticApproximation as StochasticApproximation,
    )
    from freshopt.estimators.success_rates import SuccessRates as SuccessRates
    from freshopt.estimators.weekly_profile import WeeklyProfile as WeeklyProfile
    from freshopt.estimators.weekly_profile import peak_hours as peak_hours

_HOMES, __getattr__, __dir__ = on_first_use(__name__, __file__)
__all__ = sorted(_HOMES)
