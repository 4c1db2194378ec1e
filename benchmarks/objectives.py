"""The objectives that are measured, by the names that tables give them."""

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

POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC
BUDGET = 0.5  # of the sum of the change rates
OBJECTIVES: dict[str, fo.Objective] = {
    "harmonic": HarmonicStaleness(POISSON),
    "harmonic, periodic": HarmonicStaleness(PERIODIC),
    "binary": BinaryFreshness(POISSON),
    "binary, periodic": BinaryFreshness(PERIODIC),
    "delay": AccumulatedDelay(POISSON),
    "delay, periodic": AccumulatedDelay(PERIODIC),
    "age": Age(POISSON),
    "age, periodic": Age(PERIODIC),
    "power 0.5": SynchronizationCost(PowerCost(1.0, 0.5)),
    "polls": PollingKnapsack("polls"),
    "materials": PollingKnapsack("materials"),
}


# What freshness and staleness cost at equal gaps.
AT_EQUAL_GAPS = {name: OBJECTIVES[f"{name}, periodic"] for name in ("binary", "harmonic")}


def some(*names: str) -> dict[str, fo.Objective]:
    """Return some of the objectives."""
    return {name: OBJECTIVES[name] for name in names}
