"""Online learning policies, and proved bounds.

The policies learn change rates, or rates themselves, while they crawl; the bounds are on regret, on the cost
of estimation error, and on the price.
"""

from freshopt.online.automata_tree import AutomataTree as AutomataTree
from freshopt.online.automata_tree import FixedPolling as FixedPolling
from freshopt.online.certainty_equivalence import AdaptiveRates as AdaptiveRates
from freshopt.online.certainty_equivalence import LambdaLearnAndCrawl as LambdaLearnAndCrawl
from freshopt.online.certainty_equivalence import PhasedEpsilonGreedy as PhasedEpsilonGreedy
from freshopt.online.certainty_equivalence import ReplanEvery as ReplanEvery
from freshopt.online.explore_then_commit import ExploreThenCommit as ExploreThenCommit
from freshopt.online.explore_then_commit import best_exploration as best_exploration
from freshopt.online.learner import Learner as Learner
from freshopt.online.mirror_sync import AsyncMirrorSync as AsyncMirrorSync
from freshopt.online.mirror_sync import AsyncProjectedGradientSync as AsyncProjectedGradientSync
from freshopt.online.mirror_sync import MirrorSync as MirrorSync
from freshopt.online.regret_bounds import etc_regret_bound as etc_regret_bound
from freshopt.online.regret_bounds import mirror_sync_in_policy_bound as mirror_sync_in_policy_bound
from freshopt.online.regret_bounds import mirror_sync_regret_bound as mirror_sync_regret_bound
from freshopt.online.regret_bounds import price_bracket as price_bracket
from freshopt.online.run_history import RunHistory as RunHistory
from freshopt.online.sensitivity import sensitivity_bound as sensitivity_bound
from freshopt.renamed import exports

__all__ = exports(globals())
