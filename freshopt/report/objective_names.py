"""Names of objectives and meanings of their values."""

from __future__ import annotations

from typing import NamedTuple


class Goal(NamedTuple):
    """An objective in words."""

    noun: str
    meaning: str


_SUM = "The value is the mean over time, summed over all copies by their importance."
_GOALS = {
    "HarmonicStaleness": Goal(
        "staleness", f"A copy that missed m changes of its source costs 1 + 1/2 + … + 1/m. {_SUM}"
    ),
    "BinaryFreshness": Goal(
        "freshness",
        f"A copy counts while it is up to date, and not at all after the first change that it missed. {_SUM}",
    ),
    "NoisySignalFreshness": Goal(
        "freshness",
        "A copy counts while it is up to date, and not at all after the first change that it missed; signals "
        f"bring its next fetch forward. {_SUM}",
    ),
    "LogFreshness": Goal(
        "−log freshness",
        "A copy costs minus the logarithm of the share of time that it is up to date. The value is the sum "
        "over all copies by their importance.",
    ),
    "AccumulatedDelay": Goal("missed changes", f"A copy costs the number of changes that it missed. {_SUM}"),
    "Age": Goal("age", f"A copy costs the time since the first change that it missed. {_SUM}"),
    "SynchronizationCost": Goal("cost of age", f"A copy costs more the longer ago it was refreshed. {_SUM}"),
    "ExpectedPenalty": Goal("penalty", f"A copy costs a penalty on the number of changes it missed. {_SUM}"),
    "LaterThan": Goal("share of late requests", f"A copy costs while it is older than an age. {_SUM}"),
    "Spend": Goal(
        "bandwidth", "The value is the bandwidth that is used, which the constraints need at least."
    ),
    "PollingKnapsack": Goal("updates found", "The value is the number of updates found per poll slot."),
}


def goal_of(objective: str) -> Goal:
    """Return the words for an objective's class name.

    Examples
    --------
    >>> goal_of("Age").noun, goal_of("MyOwn").noun
    ('age', 'objective')
    """
    return _GOALS.get(objective, Goal("objective", f"The value is that of {objective}, summed over sources."))
