"""Values of objectives in words: unit, mean of a source, meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from freshopt.formatting import count, number, percent
from freshopt.numerics.arrays import Array
from freshopt.units import duration, per_unit, rate_text, rate_unit


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


# Objectives whose mean over the sources is a share of time or of requests.
_SHARES = ("BinaryFreshness", "NoisySignalFreshness", "LaterThan")
# Relative differences of values below this are lost in a sum of float64.
_RESOLVED = 1e-15
# What one missed change or unit of time costs, short enough for a line.
_MEANINGS = {
    "HarmonicStaleness": "m-th missed change costs 1/m",
    "BinaryFreshness": "1 while a copy is up to date",
    "NoisySignalFreshness": "1 while a copy is up to date, with signals",
    "LogFreshness": "minus the logarithm of the share of time up to date",
    "AccumulatedDelay": "each missed change costs 1",
    "Age": "the time since the first missed change",
    "SynchronizationCost": "costs grow with the time since the last refresh",
    "ExpectedPenalty": "a penalty on the number of missed changes",
    "LaterThan": "1 while a copy is older than an age",
    "PollingKnapsack": "updates that polls find, per poll slot",
}


def meaning(objective: str) -> str:
    """Return what an objective counts, in a few words; empty if unknown.

    Examples
    --------
    >>> meaning("AccumulatedDelay"), meaning("MyOwn")
    ('each missed change costs 1', '')
    """
    return _MEANINGS.get(objective, "")


def less_fresh(objective: str, shares: Mapping[str, float | None]) -> str:
    """Return that copies are less fresh than at equal rates, or nothing."""
    own, other = shares.get("plan"), shares.get("uniform")
    # To the tenth of a per cent that is shown.
    if own is None or other is None or not round(own, 3) < round(other, 3):
        return ""
    return f"less than at equal rates, as it is {goal_of(objective).noun} that is optimised"


def amount(objective: str, value: float, time_unit: str) -> str:
    """Return a value, or a difference of values, with its unit.

    Examples
    --------
    >>> amount("Age", 3.5, "day"), amount("Spend", 4.0, "day"), amount("HarmonicStaleness", 104.94, "day")
    ('3.5 days', '4 refreshes per day', '104.9')
    """
    if objective == "Spend":
        return rate_text(value, time_unit, "refresh")
    return duration(value, time_unit) if objective == "Age" and value > 0.0 else number(value)


def mean_amount(objective: str, value: float, importance: float | None, time_unit: str) -> str:
    """Return the mean of a source by importance, or nothing.

    Examples
    --------
    >>> mean_amount("Age", 8.0, 32.0, "day"), mean_amount("BinaryFreshness", 3.0, 4.0, "day")
    ('6 hours', '75 %')
    """
    if not importance or objective in ("Spend", "PollingKnapsack"):
        return ""
    if objective in _SHARES:
        return percent(value / importance, space=" ")
    return amount(objective, value / importance, time_unit)


def measured(objective: str, time_unit: str) -> str:
    """Return what a value is of, with its unit.

    Examples
    --------
    >>> measured("Age", "day"), measured("HarmonicStaleness", "day")
    ('age in days', 'staleness')
    """
    noun = goal_of(objective).noun
    return {"Age": f"{noun} in {time_unit}s", "Spend": f"{noun} in refreshes per {time_unit}"}.get(
        objective, noun
    )


def value_unit(objective: str, time_unit: str) -> str:
    """Return the unit of an objective's value, as ``summary.json`` has it.

    Examples
    --------
    >>> value_unit("Age", "hour"), value_unit("Spend", "day")
    ('hours of age, summed over sources by importance', 'refreshes per day')
    """
    if objective == "Spend":
        return f"refreshes per {time_unit}"
    if objective == "PollingKnapsack":
        return "updates found per poll slot"
    noun = goal_of(objective).noun
    each = f"{time_unit}s of age" if objective == "Age" else noun
    return f"{each}, summed over sources by importance"


def units(objective: str, time_unit: str, words: FetchWords | None = None) -> dict[str, str]:
    """Return the unit of each number of ``summary.json``, by name.

    Examples
    --------
    >>> units("Age", "day", FetchWords("refresh", "unit"))["bandwidth"]
    'units of what asking uses per day'
    """
    value = value_unit(objective, time_unit)
    rate = f"per {time_unit}"
    words = FetchWords() if words is None else words
    uses = "units of what asking uses" if words.bandwidth == "unit" else words.uses
    return {
        "value": value,
        "bound": value,
        "gap": value,
        "schedule_value": value,
        "baselines": value,
        "price": f"value per {words.bandwidth}/{time_unit}",
        "bandwidth": f"{uses} {rate}",
        "bandwidth_used": f"{uses} {rate}",
        "change_rate": f"changes {rate}",
        "rate": f"{words.rates} {rate}",
        "horizon": f"{time_unit}s",
        "saving": "share of the log's own fetches, at its own freshness",
        "fresh": "share of time that copies are up to date, by importance",
        "relative_gap": "share of cost + price * bandwidth",
        "seconds": "seconds",
    }


def ends_in_words(low: float | None, high: float | None, shown: Callable[[float], str]) -> str:
    """Return an interval in words; an end that is None has none.

    Examples
    --------
    >>> ends_in_words(1.5, None, str), ends_in_words(None, 2.5, str), ends_in_words(1.5, 2.5, str)
    ('at least 1.5', 'at most 2.5', '1.5 to 2.5')
    """
    if low is None:
        return "of any size" if high is None else f"at most {shown(high)}"
    return f"at least {shown(low)}" if high is None else f"{shown(low)} to {shown(high)}"


def expected_text(
    expected: float,
    low: float | None,
    high: float | None,
    ratios: Sequence[float],
    shown: Callable[[float], str],
) -> str:
    """Return the expected value, its interval, and what back-tests say.

    Examples
    --------
    >>> expected_text(3.0, 2.0, None, [], str)
    '3.0 is expected; 90 % interval at least 2.0, if sources change at random'
    """
    text = f"{shown(expected)} is expected; 90 % interval {ends_in_words(low, high, shown)}"
    if not ratios:
        return f"{text}, if sources change at random"
    least, most = (f"{end(ratios):.2g}" for end in (min, max))
    tests = f"{count(len(ratios), 'plan')} tested on the log's own past"
    return f"{text}, from {tests}, which cost {least} to {most} of what was predicted"


def proved_text(
    status: str, gap: float, relative: float | None, reason: str = "", *, given: bool = False
) -> str:
    """Return what a certificate proves, for the change rates `given` or estimated.

    A relative gap smaller than float64 resolves in the value itself is given as a bound.

    Examples
    --------
    >>> proved_text("optimal", 6e-15, 3e-17)
    'optimal for the estimated change rates: no other plan is better by more than 1e-15 of cost and price'
    >>> proved_text("inaccurate", 6e-3, 3e-5)
    'inaccurate: no other plan is better by more than 3.0e-05 of cost and price'
    """
    which = "change rates of the objective" if given else "estimated change rates"
    text = f"optimal for the {which}" if status == "optimal" else status
    if relative is None:
        most = f"{gap:.1e}"
    else:
        most = f"{f'{relative:.1e}' if relative > _RESOLVED else f'{_RESOLVED:.0e}'} of cost and price"
    return f"{text}: no other plan is better by more than {most}{f'; {reason}' if reason else ''}"


def spread_text(least: float, median: float, most: float, unit: str) -> str:
    """Return how far apart the refreshes of a source are.

    Examples
    --------
    >>> spread_text(1 / 48, 2.0, 4.0, "day"), spread_text(1.0, 2.0, 4.0, "day")
    ('from 30 minutes to 4 days, median 2 days', 'from 1 day to 4 days, median 2 days')
    """
    low, middle, high = (duration(each, unit) for each in (least, median, most))
    if low == high:
        return high
    if low.split()[1] == high.split()[1]:
        low = low.split()[0]
    return f"from {low} to {high}, median {middle}"


def spread(rates: Array, unit: str) -> str:
    """Return how far apart a source's refreshes are, by rate."""
    some = rates[rates > 0.0]
    if len(some) == 0:
        return "none"
    least, median, most = np.quantile(1.0 / some, [0.0, 0.5, 1.0]).tolist()
    return spread_text(least, median, most, unit)


def span_text(begin: float, end: float, first: datetime | None, last: datetime | None, unit: str) -> str:
    """Return the time that a log covers, as dates or numbers."""
    if first is None or last is None:
        return f"times as plain numbers of {unit}s, from {number(begin)} to {number(end)}"
    return f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"


def price_text(
    objective: str,
    price: float,
    bandwidth: float,
    value: float,
    time_unit: str,
    *,
    maximised: bool,
    optimal: bool = True,
    fetch: str = "refresh",
) -> str:
    """Return a shadow price and what it says of more bandwidth.

    The gain is at most price times bandwidth added, as the optimal value is concave in the bandwidth. Of
    rates that are not optimal at that price it says nothing.

    Examples
    --------
    >>> price_text("HarmonicStaleness", 22.76, 4.0, 104.9, "day", maximised=False)
    '22.76 per refresh/day: 1 % more bandwidth lowers staleness by at most 0.868 %'
    """
    unit = rate_unit(bandwidth, time_unit)
    told = number(price / per_unit(1.0, time_unit, unit))
    if objective == "Age":
        told = duration(price / per_unit(1.0, time_unit, unit), time_unit)
    if not optimal:
        return f"{told} per {fetch}/{unit} of the best rates"
    gain, verb = 0.01 * bandwidth * price, "raises" if maximised else "lowers"
    most = percent(gain / abs(value), space=" ") if value != 0.0 else amount(objective, gain, time_unit)
    return f"{told} per {fetch}/{unit}: 1 % more bandwidth {verb} {goal_of(objective).noun} by at most {most}"


class FetchWords(NamedTuple):
    """Nouns of a plan's rates and of its bandwidth.

    Where fetches may fail, rates are of attempts; of a crawler that repeats what failed at once they are of
    successes, and the bandwidth is of attempts. Where fetches cost what they bring, the bandwidth is in units
    of what asking uses.
    """

    rate: str = "refresh"
    bandwidth: str = "refresh"

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> FetchWords:
        """Return the words of a plan's summary.

        Examples
        --------
        >>> FetchWords.of({}), FetchWords.of({"success": {"retry_at_once": True}}).bandwidth
        (FetchWords(rate='refresh', bandwidth='refresh'), 'attempt')
        """
        if facts.get("discipline") == "on request":
            return cls("fetch", "fetch")
        success = facts.get("success")
        fails = isinstance(success, Mapping)
        rate = "attempt" if isinstance(success, Mapping) and not success.get("retry_at_once") else "refresh"
        return cls(rate, "unit" if facts.get("changed_cost") else "attempt" if fails else "refresh")

    @property
    def alike(self) -> bool:
        """Whether a rate is what it uses of the bandwidth."""
        return self.rate == self.bandwidth

    @property
    def rates(self) -> str:
        """The noun of the rates in the plural."""
        return plural(self.rate)

    @property
    def uses(self) -> str:
        """The noun of the bandwidth in the plural."""
        return plural(self.bandwidth)

    @property
    def fetch(self) -> str:
        """What uses the bandwidth, in the words of who crawls."""
        return {"refresh": "fetch"}.get(self.bandwidth, self.bandwidth)

    @property
    def fetches(self) -> str:
        """The same in the plural."""
        return plural(self.fetch)

    @property
    def every(self) -> str:
        """The head of intervals between refreshes."""
        return {"refresh": "Refresh every", "fetch": "Fetch every"}.get(self.rate, "Attempt every")

    @property
    def done(self) -> str:
        """What happens to a source at its rate."""
        return {"refresh": "refreshed", "fetch": "fetched"}.get(self.rate, "attempted")


def plural(noun: str) -> str:
    """Return the plural of a noun.

    Examples
    --------
    >>> plural("refresh"), plural("attempt")
    ('refreshes', 'attempts')
    """
    return count(2, noun).partition(" ")[2]
