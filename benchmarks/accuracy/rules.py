"""How many fetches adaptive rules of crawlers need for a freshness that a plan reaches with fewer.

    python -m benchmarks rules [--save]

Sources change at constant rates, and a rule fetches each of them for two years after a first year. It
lengthens a source's interval where a fetch found no change and shortens it where one did. Its freshness is
then asked of the optimal plan: how many fetches does it need for as much, under the true change rates, and
under those that it learns from the rule's own fetches of the first year? Rules are those of Apache Nutch's
``AdaptiveFetchSchedule`` (read at 0abf9756, with its defaults: 20 % longer, 20 % shorter, first interval 30
days, from a minute to a year; with and without its shift towards the last change, ``sync_delta``, which is
on by default), of Apache StormCrawler's ``AdaptiveScheduler`` (read at 0580fa0d: 50 % longer, half of the
way to the shortest interval shorter, first interval a day, from an hour to two weeks), and of one interval
for all.

`STATEMENTS` were written before the first run and are left as they were, whether they held or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row
from freshopt.planning.request import default_estimate
from freshopt.problems import BinaryFreshness

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
MINUTE, HOUR = 1.0 / 1440.0, 1.0 / 24.0
# One change in 30 days is the median of the lognormal change rates.
MEDIAN = 1.0 / 30.0
OBJECTIVE = BinaryFreshness(fo.Refresh.PERIODIC)


class Rule(NamedTuple):
    """A rule: the first interval, and intervals and gaps after a fetch, from (interval, since, changed).

    `since` is the time since the rule last found a change.
    """

    name: str
    first: float
    after: Callable[[Floats, Floats, Bools], tuple[Floats, Floats]]


def nutch(interval: Floats, since: Floats, changed: Bools) -> tuple[Floats, Floats]:
    """Return what Nutch's rule does, with its shift towards the last change."""
    since = np.where(changed, 0.0, since)
    interval = np.maximum(interval * np.where(changed, 0.8, 1.2), since)
    interval = np.clip(interval, MINUTE, 365.0)
    return interval, np.maximum(interval - 0.2 * since, MINUTE)


def nutch_without_shift(interval: Floats, _: Floats, changed: Bools) -> tuple[Floats, Floats]:
    """Return what Nutch's rule does, with sync_delta off."""
    interval = np.clip(interval * np.where(changed, 0.8, 1.2), MINUTE, 365.0)
    return interval, interval


def stormcrawler(interval: Floats, _: Floats, changed: Bools) -> tuple[Floats, Floats]:
    """Return what StormCrawler's rule does, in whole minutes."""
    shorter, longer = 0.5 * interval + 0.5 * HOUR, np.minimum(1.5 * interval, 14.0)
    interval = np.floor(np.where(changed, shorter, longer) / MINUTE + 1e-9) * MINUTE
    return interval, interval


def one_interval(interval: Floats, _: Floats, __: Bools) -> tuple[Floats, Floats]:
    """Return the same interval."""
    return interval, interval


RULES = (
    Rule("Apache Nutch, adaptive", 30.0, nutch),
    Rule("Apache Nutch, adaptive, sync_delta off", 30.0, nutch_without_shift),
    Rule("Apache StormCrawler, adaptive", 1.0, stormcrawler),
    Rule("one interval for all (7 days)", 7.0, one_interval),
)
FAMILIES = {"equal": 0.0, "lognormal": 1.0}
SPREADS = (1.0, 1.5, 2.0)


class Statement(NamedTuple):
    """A prediction: which rows it is about, of which number, and the band that it allows."""

    words: str
    rule: str
    importances: str
    number: str
    low: float
    high: float


# The balance of longer and shorter intervals, p·ln 1.25 = (1-p)·ln 1.2 and p·ln 2 = (1-p)·ln 1.5, gives the
# share p of fetches that find a change; the savings are those that were found for other sources.
STATEMENTS = (
    Statement("Nutch: fetches that find a change", RULES[1].name, "equal", "finds", 0.43, 0.47),
    Statement("StormCrawler: fetches that find a change", RULES[2].name, "equal", "finds", 0.35, 0.39),
    Statement("Nutch, equal importances: fewer fetches", RULES[1].name, "equal", "saved", 0.33, 0.37),
    Statement("StormCrawler, equal importances: fewer fetches", RULES[2].name, "equal", "saved", 0.33, 0.37),
    Statement("Nutch, lognormal importances: fewer fetches", RULES[1].name, "lognormal", "saved", 0.49, 0.68),
    Statement(
        "StormCrawler, lognormal importances: fewer fetches", RULES[2].name, "lognormal", "saved", 0.49, 0.68
    ),
)


class Crawled(NamedTuple):
    """A rule's log of the first year; then fetches a day, the share that finds a change, freshness."""

    log: fo.CrawlLog
    fetches: float
    finds: float
    fresh: Floats


def crawl(rule: Rule, rates: Floats, seed: int, days: float) -> Crawled:
    """Return what a rule does with sources of constant change rates, after the first third of the days."""
    settling = days / 3.0
    rng, n = np.random.default_rng(seed), len(rates)
    now, found_at = np.zeros(n), np.zeros(n)
    interval, gap = np.full(n, rule.first), np.full(n, rule.first)
    records: list[tuple[npt.NDArray[np.int64], Floats, Bools]] = [
        (np.arange(n), np.zeros(n), np.zeros(n, dtype=bool))
    ]
    fetches, finds, fresh, span = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    active = np.arange(n)
    while active.size:
        own, began, wait = rates[active], now[active], gap[active]
        ends = began + wait
        changed = rng.random(active.size) < -np.expm1(-own * wait)
        settled = began >= settling
        part = active[settled]
        fetches[part] += 1.0
        finds[part] += changed[settled]
        span[part] += wait[settled]
        fresh[part] += -np.expm1(-own[settled] * wait[settled]) / own[settled]
        early = ends < settling
        records.append((active[early], ends[early], changed[early]))
        interval[active], gap[active] = rule.after(interval[active], ends - found_at[active], changed)
        found_at[active] = np.where(changed, ends, found_at[active])
        now[active] = ends
        active = active[ends < days]
    source, time, changes = (np.concatenate(each) for each in zip(*records, strict=True))
    log = fo.CrawlLog(source=source, time=time, changed=changes.astype(float))
    return Crawled(log, float(np.sum(fetches / span)), float(finds.sum() / fetches.sum()), fresh / span)


def freshness(rates: Floats, importance: Floats, refreshes: Floats) -> float:
    """Return the share of time that copies are fresh, refreshed at equal intervals."""
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(refreshes > 0.0, -np.expm1(-rates / refreshes) * refreshes / rates, 0.0)
    return float(importance @ each / importance.sum())


def needed(rates: Floats, known: Floats, importance: Floats, wanted: float, most: float) -> float:
    """Return the bandwidth at which plans for the known rates have a freshness under the true ones."""
    low, high = 0.0, most
    for _ in range(40):
        middle = 0.5 * (low + high)
        problem = fo.Problem(OBJECTIVE, fo.Sources(known, importance), bandwidth=middle)
        reached = freshness(rates, importance, fo.solve(problem).rates)
        low, high = (middle, high) if reached < wanted else (low, middle)
    return high


def runs(n: int = 300, draws: int = 5, days: float = 1095.0) -> Iterator[Row]:
    """Yield what each rule needs, and what plans need for its freshness."""
    for spread in SPREADS:
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            rates = MEDIAN * rng.lognormal(0.0, spread, n)
            normal = rng.normal(size=n)
            for rule in RULES:
                done = crawl(rule, rates, seed, days)
                # Names are numbers, in the order of the rates.
                learnt = np.asarray(default_estimate(done.log).change_rate_)
                for importances, sigma in FAMILIES.items():
                    importance = np.exp(sigma * normal)
                    wanted = float(importance @ done.fresh / importance.sum())
                    best, planned = (
                        needed(rates, known, importance, wanted, 2.0 * done.fetches)
                        for known in (rates, learnt)
                    )
                    yield {
                        "rule": rule.name,
                        "spread": spread,
                        "importances": importances,
                        "seed": seed,
                        "fetches": done.fetches,
                        "finds": done.finds,
                        "fresh": wanted,
                        "saved": 1.0 - best / done.fetches,
                        "saved_learnt": 1.0 - planned / done.fetches,
                    }


def judged(record: Record) -> Iterator[Row]:
    """Yield each statement with the least and the largest number of its runs, and whether it held."""
    for one in STATEMENTS:
        found = [
            row[one.number]
            for row in record["runs"]
            if (row["rule"], row["importances"]) == (one.rule, one.importances)
        ]
        low, high = min(found), max(found)
        held = low >= one.low and high <= one.high
        band = f"{one.low:.0%} to {one.high:.0%}".replace("%", " %")
        yield {
            "words": one.words,
            "predicted": band,
            "runs": len(found),
            "least": low,
            "largest": high,
            "held": held,
        }


def summed(record: Record) -> Iterator[Row]:
    """Yield a row for each rule, with the range of its numbers over all runs."""
    for rule in RULES:
        row: Row = {"rule": rule.name}
        for importances in FAMILIES:
            own = [r for r in record["runs"] if (r["rule"], r["importances"]) == (rule.name, importances)]
            for key in ("finds", "saved", "saved_learnt"):
                values = [100.0 * each[key] for each in own]
                row[f"{key}, {importances}"] = f"{min(values):.0f} to {max(values):.0f}"
        yield row


def in_words(record: Record) -> Iterator[str]:
    """Yield what plans that learn from a rule's own log save of its fetches."""
    rows = {row["rule"]: row for row in summed(record)}
    equal, lognormal = ([rows[rule.name][f"saved_learnt, {kind}"] for rule in RULES] for kind in FAMILIES)
    yield (
        "Simulated, with equal importances and change rates that are lognormal (standard deviation of the "
        f"logarithm {SPREADS[0]:g} to {SPREADS[-1]:g}): for the same share of time fresh, a plan that learnt "
        f"from the rule's own log needs {equal[0]} % fewer fetches than Nutch's default rule ({equal[1]} % "
        f"with `sync_delta` off), {equal[2]} % fewer than StormCrawler's, {equal[3]} % fewer than one "
        f"interval. Where importances differ, it is {lognormal[0]}, {lognormal[2]} and {lognormal[3]} %: "
        "these rules do not know them."
    )


def claims(record: Record) -> Claims:
    """Yield that a plan is never behind a rule, and that statements are judged by their bands."""
    for row in record["runs"]:
        told = f"{row['rule']}, {row['importances']}, {row['spread']}: {row['saved']:.3f}"
        yield told, row["saved"] > 0.0
    for row, one in zip(judged(record), STATEMENTS, strict=True):
        so = row["held"] == (row["least"] >= one.low and row["largest"] <= one.high)
        yield f"{one.words}: {row['least']:.3f} to {row['largest']:.3f}", so


BENCH = Measurement(
    {"runs": runs},
    quick={"n": 20, "draws": 1, "days": 200.0},
    facts=("seconds",),
    rows={"rules": summed, "statements": judged},
    texts={"README": in_words},
    claims=claims,
    large=True,
)
