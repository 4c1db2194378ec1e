"""Proved bounds on regret, estimation cost and price."""

from freshopt.bounds.explore_then_commit_regret import etc_regret_bound as etc_regret_bound
from freshopt.bounds.mirror_sync_regret import mirror_sync_in_policy_bound as mirror_sync_in_policy_bound
from freshopt.bounds.mirror_sync_regret import mirror_sync_regret_bound as mirror_sync_regret_bound
from freshopt.bounds.price_bracket import price_bracket as price_bracket
from freshopt.bounds.sensitivity import sensitivity_bound as sensitivity_bound

__all__ = [
    "etc_regret_bound",
    "mirror_sync_in_policy_bound",
    "mirror_sync_regret_bound",
    "price_bracket",
    "sensitivity_bound",
]
