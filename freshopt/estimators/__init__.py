"""Estimators of change rates from crawl logs.

With the priors and interval methods that they take.
"""

from freshopt.estimators.default_prior import resetting_prior as resetting_prior
from freshopt.estimators.full_observation import FullObservation as FullObservation
from freshopt.estimators.law_of_large_numbers import LawOfLargeNumbers as LawOfLargeNumbers
from freshopt.estimators.maximum_likelihood import MaximumLikelihood as MaximumLikelihood
from freshopt.estimators.moment_matching import MomentMatching as MomentMatching
from freshopt.estimators.naive import Naive as Naive
from freshopt.estimators.stochastic_approximation import (
    MomentumStochasticApproximation as MomentumStochasticApproximation,
)
from freshopt.estimators.stochastic_approximation import (
    StochasticApproximation as StochasticApproximation,
)
from freshopt.inference.gamma_prior import GammaPrior as GammaPrior
from freshopt.inference.host_prior import HostPriors as HostPriors
from freshopt.inference.interval_methods import Exact as Exact
from freshopt.inference.interval_methods import Hoeffding as Hoeffding
from freshopt.inference.interval_methods import LikelihoodRatio as LikelihoodRatio
from freshopt.inference.interval_methods import Posterior as Posterior
from freshopt.inference.interval_methods import Published as Published
from freshopt.inference.success_rates import SuccessRates as SuccessRates

__all__ = [
    "Exact",
    "FullObservation",
    "GammaPrior",
    "Hoeffding",
    "HostPriors",
    "LawOfLargeNumbers",
    "LikelihoodRatio",
    "MaximumLikelihood",
    "MomentMatching",
    "MomentumStochasticApproximation",
    "Naive",
    "Posterior",
    "Published",
    "StochasticApproximation",
    "SuccessRates",
    "resetting_prior",
]
