"""The objectives that are measured, by the names that tables give them."""

import freshopt as fo
from freshopt import problems

POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC
BUDGET = 0.5  # of the sum of the change rates
OBJECTIVES: dict[str, fo.Objective] = {
    "harmonic": problems.HarmonicStaleness(POISSON),
    "harmonic, periodic": problems.HarmonicStaleness(PERIODIC),
    "binary": problems.BinaryFreshness(POISSON),
    "binary, periodic": problems.BinaryFreshness(PERIODIC),
    "delay": problems.AccumulatedDelay(POISSON),
    "delay, periodic": problems.AccumulatedDelay(PERIODIC),
    "age": problems.Age(POISSON),
    "age, periodic": problems.Age(PERIODIC),
    "power 0.5": problems.SynchronizationCost(problems.PowerCost(1.0, 0.5)),
    "polls": problems.PollingKnapsack("polls"),
    "materials": problems.PollingKnapsack("materials"),
}


# What freshness and staleness cost at equal gaps.
AT_EQUAL_GAPS = {name: OBJECTIVES[f"{name}, periodic"] for name in ("binary", "harmonic")}


def some(*names: str) -> dict[str, fo.Objective]:
    """Return some of the objectives."""
    return {name: OBJECTIVES[name] for name in names}
