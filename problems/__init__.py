"""Declared objectives, one per file. Installs as `freshopt.problems`."""

from freshopt.problems.accumulated_delay import AccumulatedDelay as AccumulatedDelay
from freshopt.problems.age import Age as Age
from freshopt.problems.binary_freshness import BinaryFreshness as BinaryFreshness
from freshopt.problems.expected_penalty import ExpectedPenalty as ExpectedPenalty
from freshopt.problems.harmonic_staleness import HarmonicStaleness as HarmonicStaleness
from freshopt.problems.piecewise_linear_cost import PiecewiseLinearCost as PiecewiseLinearCost
from freshopt.problems.polling_knapsack import PollingKnapsack as PollingKnapsack
from freshopt.problems.power_cost import PowerCost as PowerCost
from freshopt.problems.synchronization_cost import BinaryCost as BinaryCost
from freshopt.problems.synchronization_cost import SynchronizationCost as SynchronizationCost

__all__ = [
    "AccumulatedDelay",
    "Age",
    "BinaryCost",
    "BinaryFreshness",
    "ExpectedPenalty",
    "HarmonicStaleness",
    "PiecewiseLinearCost",
    "PollingKnapsack",
    "PowerCost",
    "SynchronizationCost",
]
