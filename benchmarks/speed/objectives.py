"""The objectives whose speed is measured, by the names that tables give them."""

from __future__ import annotations

import freshopt as fo
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    PollingKnapsack,
    PowerCost,
    SynchronizationCost,
)

PERIODIC = fo.Refresh.PERIODIC
BUDGET = 0.5  # of the sum of the change rates
OBJECTIVES: dict[str, fo.Objective] = {
    "harmonic": HarmonicStaleness(),
    "harmonic, periodic": HarmonicStaleness(PERIODIC),
    "binary": BinaryFreshness(),
    "binary, periodic": BinaryFreshness(PERIODIC),
    "delay": AccumulatedDelay(),
    "delay, periodic": AccumulatedDelay(PERIODIC),
    "age": Age(),
    "age, periodic": Age(PERIODIC),
    "power 0.5": SynchronizationCost(PowerCost(1.0, 0.5)),
    "polls": PollingKnapsack("polls"),
    "materials": PollingKnapsack("materials"),
}


def some(*names: str) -> dict[str, fo.Objective]:
    """Return some of the objectives."""
    return {name: OBJECTIVES[name] for name in names}
