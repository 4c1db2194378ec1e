"""Rules of programs, as their sources have them, and `RULES`, their table.

A rule of another program is a class like `StormCrawler`, and a row of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from freshopt.errors import SourceDataError, suggestion
from freshopt.numerics.arrays import Array
from freshopt.simulation.rules.rule import Fetched, Rule, require_settings
from freshopt.units import SECONDS, duration_of

MINUTE, HOUR, DAY, WEEK = (SECONDS[unit] for unit in ("minute", "hour", "day", "week"))


@dataclass(frozen=True, slots=True)
class Nutch:
    """Longer by a share without a change, shorter by one after one.

    Apache Nutch's ``AdaptiveFetchSchedule``. The next fetch comes earlier by the share `shift` of the time
    since the last change (``sync_delta_rate``; 0 is ``sync_delta`` off). An interval beyond `most` becomes
    0.9 of it, and the next fetch then has nothing to compare with (``forceRefetch``).

    Read in apache/nutch at 79069414 (1.23-SNAPSHOT, July 2026): ``AdaptiveFetchSchedule.setFetchSchedule``,
    ``AbstractFetchSchedule`` and ``CrawlDbReducer`` of src/java/org/apache/nutch/crawl, and the settings of
    conf/nutch-default.xml. The code has others where that file is missing: 0.2 each, and no `most`. A page
    due later than `most` is due in the next cycle there, and after `most` here.
    """

    increase: float = 0.4
    decrease: float = 0.2
    shift: float = 0.3
    shortest: float = 60.0
    longest: float = 365.0 * DAY
    most: float = 90.0 * DAY
    first: float = 30.0 * DAY
    retry: float = DAY

    def after(self, own: Array, seen: Fetched) -> Array:
        """See `Rule.after`; kept are time since a change, and blindness."""
        blind = own[2] > 0.0
        factor = np.where(seen.changed, 1.0 - self.decrease, 1.0 + self.increase)
        since = np.where(blind | seen.changed, 0.0, own[1] + seen.gap)
        interval = np.where(blind, own[0], factor * own[0])
        if self.shift > 0.0:
            interval = np.maximum(interval, since)
        interval = np.clip(interval, self.shortest, self.longest)
        beyond = interval > self.most
        own[:] = np.where(beyond, 0.9 * self.most, interval), since, beyond
        gap: Array = np.minimum(interval - self.shift * since, self.most)
        return gap


@dataclass(frozen=True, slots=True)
class StormCrawler:
    """Longer without a change, after one nearer to the shortest interval.

    Apache StormCrawler's ``AdaptiveScheduler``. As there, intervals are whole minutes, computed in floats of
    32 bits, and an error makes it forget the interval.

    Read in apache/stormcrawler at 384e98c5 (3.4.1-SNAPSHOT, July 2025): ``AdaptiveScheduler`` and
    ``DefaultScheduler`` of core/src/main/java/org/apache/stormcrawler/persistence.
    """

    increase: float = 0.5
    decrease: float = 0.5
    shortest: float = HOUR
    longest: float = 14.0 * DAY
    first: float = DAY
    retry: float = 2.0 * HOUR

    def after(self, own: Array, seen: Fetched) -> Array:
        """See `Rule.after`."""
        one, share, minutes = np.float32(1.0), np.float32(self.decrease), np.float32(own[0] / MINUTE)
        shorter = np.trunc((one - share) * minutes + share * np.float32(self.shortest / MINUTE))
        longer = np.trunc(minutes * (one + np.float32(self.increase)))
        interval = np.where(seen.changed, shorter, np.minimum(longer, self.longest / MINUTE))
        own[0] = gap = np.where(seen.failed, self.first, MINUTE * np.maximum(interval, 1.0))
        return gap


@dataclass(frozen=True, slots=True)
class Miniflux:
    """The mean gap between the entries of seven days.

    Miniflux's scheduler by entry frequency (``POLLING_SCHEDULER=entry_frequency``). Each change of a source
    is taken for a dated entry. Entries that a check finds count from the next check on, as there; those
    before the first check are unknown here. Left out: a feed's ttl and headers, which only lengthen
    intervals.

    Read in miniflux/v2 at 106cdd09 (2.3.3, August 2026): ``Feed.ScheduleNextCheck`` of
    internal/model/feed.go, ``WeeklyFeedEntryCount`` of internal/storage/feed.go, settings of
    internal/config/options.go.
    """

    factor: float = 1.0
    shortest: float = 300.0
    longest: float = DAY
    first: float = DAY
    retry: float = 0.0

    def after(self, own: Array, seen: Fetched) -> Array:
        """See `Rule.after`; a single entry has no gap."""
        many, span = seen.dates.within(WEEK)
        with np.errstate(divide="ignore", invalid="ignore"):
            weekly = np.ceil(WEEK / (span / (many - 1)))
            interval = np.clip(WEEK / (weekly * self.factor), self.shortest, self.longest)
        own[0] = gap = np.where(span > 0.0, interval, self.longest)
        return gap


@dataclass(frozen=True, slots=True)
class FixedInterval:
    """The same interval, whatever a fetch finds.

    As changedetection.io has it. Read in dgtlmoon/changedetection.io at fce24780 (0.55.8, August 2026):
    ``time_between_check`` of three hours and ``jitter_seconds`` of 0 in changedetectionio/model/App.py, and
    the ticker of flask_app.py.
    """

    first: float = 3.0 * HOUR
    retry: float = 0.0

    def after(self, own: Array, _: Fetched) -> Array:
        """See `Rule.after`."""
        return np.array(own[0])


@dataclass(frozen=True, slots=True)
class BackOff:
    """Longer without a change, the first interval again after one.

    Exponential back-off as in many scripts, no program's: doubled where nothing changed, from an hour to
    thirty days, and an hour again after a change.
    """

    factor: float = 2.0
    first: float = HOUR
    longest: float = 30.0 * DAY
    retry: float = 0.0

    def after(self, own: Array, seen: Fetched) -> Array:
        """See `Rule.after`."""
        own[0] = gap = np.where(seen.changed, self.first, np.minimum(self.factor * own[0], self.longest))
        return gap


RULES: Mapping[str, Rule] = {
    "nutch": Nutch(),
    "stormcrawler": StormCrawler(),
    # Two bounds of crawls of news: from 10 minutes to two weeks, and those of Common Crawl's, for feeds
    # (conf/crawler-conf.yaml of commoncrawl/news-crawl at ffdfae3d, August 2026).
    "stormcrawler-news": StormCrawler(shortest=10.0 * MINUTE),
    "news-crawl": StormCrawler(shortest=90.0 * MINUTE, longest=90.0 * DAY, decrease=0.2, first=12.0 * HOUR),
    "miniflux": Miniflux(),
    "changedetection": FixedInterval(),
    "backoff": BackOff(),
}


def rules_of(what: str, given: object) -> dict[str, Rule]:
    """Return rules by the names under which they are told.

    They are given as one or several names of `RULES` or intervals such as "6h", or as a mapping from names to
    rules with settings of their own. Errors name `what`.

    Examples
    --------
    >>> list(rules_of("compare_rule", ["nutch", "6h"]))
    ['nutch', 'every 6h']
    """
    if isinstance(given, Mapping):
        found = {str(name): rule for name, rule in given.items()}
    else:
        several = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
        found = dict(_named(what, each) for each in several)
    for name, rule in found.items():
        if not isinstance(rule, Rule):
            kind = type(rule).__name__
            raise SourceDataError(
                f"{what} has {kind} as {name!r}, which is no rule. Pass such as "
                f"{{{name!r}: freshopt.simulation.rules.Nutch()}}."
            )
        require_settings(name, rule)
    return found


def _named(what: str, name: object) -> tuple[str, Rule]:
    """Return a rule by its name, or that of an interval."""
    if isinstance(name, str) and name in RULES:
        return name, RULES[name]
    if isinstance(name, str) and any(character.isdigit() for character in name):
        return f"every {name}", FixedInterval(duration_of(what, name, "second"))
    meant = suggestion(name, RULES) if isinstance(name, str) else ""
    known = ", ".join(RULES)
    raise SourceDataError(f"{what} is {name!r}.{meant} Pass one of {known}, or an interval such as 6h.")
