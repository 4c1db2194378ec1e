"""Declared objectives, one per file; installed as `freshopt.problems`.

A line here is all that a new file needs: the names of the command line, the tests and the reference take what
is exported, in the order of these lines.
"""

# ruff: noqa: I001 - the order of the command line, and not of the alphabet
from freshopt.problems.harmonic_staleness import HarmonicStaleness as HarmonicStaleness
from freshopt.problems.binary_freshness import BinaryFreshness as BinaryFreshness
from freshopt.problems.log_freshness import LogFreshness as LogFreshness
from freshopt.problems.accumulated_delay import AccumulatedDelay as AccumulatedDelay
from freshopt.problems.age import Age as Age
from freshopt.problems.power_cost import PowerCost as PowerCost
from freshopt.problems.piecewise_linear_cost import PiecewiseLinearCost as PiecewiseLinearCost
from freshopt.problems.synchronization_cost import BinaryCost as BinaryCost
from freshopt.problems.synchronization_cost import SynchronizationCost as SynchronizationCost
from freshopt.problems.polling_knapsack import PollingKnapsack as PollingKnapsack
from freshopt.problems.expected_penalty import ExpectedPenalty as ExpectedPenalty
from freshopt.problems.later_than import LaterThan as LaterThan

__all__ = [name for name in list(globals()) if name[0].isupper()]
