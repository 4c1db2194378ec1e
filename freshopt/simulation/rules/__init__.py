"""Rules that crawlers, feed readers and monitors run.

`RULES` has them by name, with the settings of each program as it comes; a rule of another program is a file
like `stormcrawler` and its row there. None of them knows importances, nor a bandwidth: what a rule uses
follows from its settings and from what its fetches find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from freshopt.errors import SourceDataError, suggestion
from freshopt.simulation.rules.back_off import BackOff as BackOff
from freshopt.simulation.rules.fixed_interval import FixedInterval as FixedInterval
from freshopt.simulation.rules.miniflux import Miniflux as Miniflux
from freshopt.simulation.rules.nutch import Nutch as Nutch
from freshopt.simulation.rules.rule import Rule as Rule
from freshopt.simulation.rules.rule import RuleCrawls as RuleCrawls
from freshopt.simulation.rules.rule import replay_rule as replay_rule
from freshopt.simulation.rules.rule import require_settings
from freshopt.simulation.rules.rule import rule_crawls as rule_crawls
from freshopt.simulation.rules.rule import settling as settling
from freshopt.simulation.rules.stormcrawler import StormCrawler as StormCrawler
from freshopt.units import SECONDS, duration_of

MINUTE, HOUR, DAY = SECONDS["minute"], SECONDS["hour"], SECONDS["day"]
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
