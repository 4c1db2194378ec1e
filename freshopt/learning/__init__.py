"""Change rates from crawl logs, learners that act while they learn, and bounds on what that costs."""

from freshopt.learning.adaptive_rates import AdaptiveRates as AdaptiveRates
from freshopt.learning.async_mirror_sync import AsyncMirrorSync as AsyncMirrorSync
from freshopt.learning.async_projected_gradient_sync import (
    AsyncProjectedGradientSync as AsyncProjectedGradientSync,
)
from freshopt.learning.automata_tree_polling import AutomataTreePolling as AutomataTreePolling
from freshopt.learning.best_exploration import best_exploration as best_exploration
from freshopt.learning.change_history import ChangeHistory as ChangeHistory
from freshopt.learning.etc_regret_bound import etc_regret_bound as etc_regret_bound
from freshopt.learning.explore_then_commit import ExploreThenCommit as ExploreThenCommit
from freshopt.learning.fixed_polling import FixedPolling as FixedPolling
from freshopt.learning.full_observation import FullObservation as FullObservation
from freshopt.learning.gamma_prior import GammaPrior as GammaPrior
from freshopt.learning.history import History as History
from freshopt.learning.host_priors import HostPriors as HostPriors
from freshopt.learning.interval_method import Exact as Exact
from freshopt.learning.interval_method import Hoeffding as Hoeffding
from freshopt.learning.interval_method import LikelihoodRatio as LikelihoodRatio
from freshopt.learning.interval_method import Posterior as Posterior
from freshopt.learning.interval_method import Published as Published
from freshopt.learning.lambda_learn_and_crawl import LambdaLearnAndCrawl as LambdaLearnAndCrawl
from freshopt.learning.law_of_large_numbers import LawOfLargeNumbers as LawOfLargeNumbers
from freshopt.learning.learner import Learner as Learner
from freshopt.learning.maximum_likelihood import MaximumLikelihood as MaximumLikelihood
from freshopt.learning.mirror_sync import MirrorSync as MirrorSync
from freshopt.learning.mirror_sync_regret_bound import mirror_sync_regret_bound as mirror_sync_regret_bound
from freshopt.learning.moment_matching import MomentMatching as MomentMatching
from freshopt.learning.momentum_stochastic_approximation import (
    MomentumStochasticApproximation as MomentumStochasticApproximation,
)
from freshopt.learning.naive import Naive as Naive
from freshopt.learning.noisy_signals import NoisySignals as NoisySignals
from freshopt.learning.phased_epsilon_greedy import PhasedEpsilonGreedy as PhasedEpsilonGreedy
from freshopt.learning.poisson_check import PoissonCheck as PoissonCheck
from freshopt.learning.poisson_check import poisson_check as poisson_check
from freshopt.learning.price_bracket import price_bracket as price_bracket
from freshopt.learning.sensitivity_bound import sensitivity_bound as sensitivity_bound
from freshopt.learning.solution_spread import SolutionSpread as SolutionSpread
from freshopt.learning.solution_spread import solution_spread as solution_spread
from freshopt.learning.stochastic_approximation import StochasticApproximation as StochasticApproximation

__all__ = [
    "AdaptiveRates",
    "AsyncMirrorSync",
    "AsyncProjectedGradientSync",
    "AutomataTreePolling",
    "ChangeHistory",
    "Exact",
    "ExploreThenCommit",
    "FixedPolling",
    "FullObservation",
    "GammaPrior",
    "History",
    "Hoeffding",
    "HostPriors",
    "LambdaLearnAndCrawl",
    "LawOfLargeNumbers",
    "Learner",
    "LikelihoodRatio",
    "MaximumLikelihood",
    "MirrorSync",
    "MomentMatching",
    "MomentumStochasticApproximation",
    "Naive",
    "NoisySignals",
    "PhasedEpsilonGreedy",
    "PoissonCheck",
    "Posterior",
    "Published",
    "SolutionSpread",
    "StochasticApproximation",
    "best_exploration",
    "etc_regret_bound",
    "mirror_sync_regret_bound",
    "poisson_check",
    "price_bracket",
    "sensitivity_bound",
    "solution_spread",
]
