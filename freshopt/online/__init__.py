"""Online learning policies.

They learn change rates, or rates themselves, while they crawl.
"""

from freshopt.online.adaptive_rates import AdaptiveRates as AdaptiveRates
from freshopt.online.async_sync import AsyncMirrorSync as AsyncMirrorSync
from freshopt.online.async_sync import AsyncProjectedGradientSync as AsyncProjectedGradientSync
from freshopt.online.automata_tree import AutomataTree as AutomataTree
from freshopt.online.exploration_length import best_exploration as best_exploration
from freshopt.online.explore_then_commit import ExploreThenCommit as ExploreThenCommit
from freshopt.online.fixed_polling import FixedPolling as FixedPolling
from freshopt.online.lambda_learn_and_crawl import LambdaLearnAndCrawl as LambdaLearnAndCrawl
from freshopt.online.learner import Learner as Learner
from freshopt.online.mirror_sync import MirrorSync as MirrorSync
from freshopt.online.phased_epsilon_greedy import PhasedEpsilonGreedy as PhasedEpsilonGreedy
from freshopt.online.replan_every import ReplanEvery as ReplanEvery
from freshopt.online.run_history import RunHistory as RunHistory

__all__ = [
    "AdaptiveRates",
    "AsyncMirrorSync",
    "AsyncProjectedGradientSync",
    "AutomataTree",
    "ExploreThenCommit",
    "FixedPolling",
    "LambdaLearnAndCrawl",
    "Learner",
    "MirrorSync",
    "PhasedEpsilonGreedy",
    "ReplanEvery",
    "RunHistory",
    "best_exploration",
]
