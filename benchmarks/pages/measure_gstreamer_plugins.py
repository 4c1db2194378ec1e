"""What the bundled history `gstreamer-plugins` rewards: good hours of the week, and dates of last change.

It prints the second and third table of numbers that `freshopt/datasets/gstreamer-plugins.md` quotes::

    python benchmarks/pages/measure_gstreamer_plugins.py

The week. A profile is learnt on the first half of the window and tested on the second. Its evidence is
the gain in log likelihood over a flat week, in nats, of independent moments. Commits of one minute to
several plugins of a repository would count several times; so the moments are those in which anything
changed.

The saving is that of crawling every plugin at one gap (a day, a week, two weeks). All phases within the
gap cost the same if changes have no cycle. The crawler's load may be twice its mean in every hour: then
all crawls fit into the better half of the phases, those at which changes of the first half wait least.
Its cost is held against that of all phases, on the second half: the time that each change waits for its
crawl (delay), and the time that copies are out of date (staleness). In the placebo a plugin's changes of
one calendar week are moved together, by a random part of a week: nothing but the cycle is lost.

Dates. From a log of the first m crawls of each plugin, change rates are estimated with the learnt prior,
without and with the dates of last change. The error is the root mean square of the logarithm of the ratio
to the number of changes per day in the whole window, over plugins that are older than it and changed in
it. The gain is what dates bring of the way from the plan without them to the best static one in hindsight
(rates = changes of the time in which plans are tested, at least 0.3): plans refresh once a week on
average, equal importances, and are replayed on the next 26 weeks; the mean over logs that begin at six
moments of the window, ± its standard error. Replayed cost is the time out of date, exact for equal gaps
in the mean over their phases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import freshopt as fo
from freshopt.datasets import example_events, load_example
from freshopt.estimators import MaximumLikelihood
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.modelling.objective import Refresh
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.problems import BinaryFreshness

NAME = "gstreamer-plugins"
SPAN = 1456.0  # days of the window
HALF = SPAN / 2  # whole weeks, as the window is
GAPS = (1, 7, 14)
LENGTHS = (2, 5, 20)  # crawls per source
AHEAD = 182.0
SPLITS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Changes by source and time, in days since the window's first Monday 00:00 UTC."""

    source: IntArray
    time: Array
    n: int

    def between(self, begin: float, end: float) -> Changes:
        """Return those in a time."""
        inside = (self.time >= begin) & (self.time < end)
        return Changes(self.source[inside], self.time[inside], self.n)


def read_changes(log: fo.CrawlLog) -> Changes:
    """Return the changes in the window, of the sources of a log."""
    events = example_events(NAME)
    assert log.origin is not None
    time = (events["time"].dt.epoch("s").to_numpy() - log.origin.timestamp()) / 86_400.0
    source = np.searchsorted(log.names, events["source"].to_numpy())
    order = np.lexsort((time, source))
    return Changes(source[order], time[order], len(log.names))


def evidence(time: Array, bins: int, period: float) -> float:
    """Return the nats that a profile of the first half gains over a flat one on the second."""
    late = time >= HALF
    which = np.floor(time % period / period * bins + 1e-9).astype(np.int64) % bins
    learnt = np.bincount(which[~late], minlength=bins) + 0.5
    seen = np.bincount(which[late], minlength=bins)
    return float(seen @ np.log(bins * learnt / learnt.sum()))


def waiting(changes: Changes, phase: float, gap: float, stale: bool) -> Array:
    """Return the days that each source's changes, or its copy, wait for crawls at phase + k·gap."""
    crawl = np.ceil((changes.time - phase) / gap)
    wait = phase + crawl * gap - changes.time
    if stale:  # from the first change after a crawl on
        first = np.ones(len(wait), dtype=np.bool_)
        first[1:] = (np.diff(crawl) != 0) | (np.diff(changes.source) != 0)
        wait = wait * first
    return np.bincount(changes.source, wait, changes.n)


def saving(changes: Changes, gap: int, stale: bool) -> tuple[float, float]:
    """Return the percentage of cost that good phases save, and its bootstrap standard error over sources."""
    phases = (np.arange(gap * 24) + 0.5) / 24
    known, coming = changes.between(0.0, HALF), changes.between(HALF, SPAN)
    # With gaps longer than a week the first half decides on the hour of the week.
    learnt = [waiting(known, phase % 7, min(gap, 7), False).sum() for phase in phases]
    best = np.argsort(learnt, kind="stable")[: len(phases) // 2]
    cost = np.array([waiting(coming, phase, gap, stale) for phase in phases])
    good, usual = cost[best].mean(axis=0), cost.mean(axis=0)
    rng = np.random.default_rng(1)
    again = rng.multinomial(changes.n, np.full(changes.n, 1 / changes.n), size=400)
    drawn = 1 - again @ good / (again @ usual)
    return 100 * float(1 - good.sum() / usual.sum()), 100 * float(np.std(drawn))


def placebo(changes: Changes) -> Changes:
    """Return the changes, each source's of each week moved by a random part of a week."""
    weeks = int(SPAN // 7)
    drawn = np.random.default_rng(2).uniform(0.0, 7.0, (changes.n, weeks))
    moved = changes.time + drawn[changes.source, (changes.time // 7).astype(np.int64)]
    order = np.lexsort((moved, changes.source))
    return Changes(changes.source[order], moved[order], changes.n)


def part_of(log: fo.CrawlLog, keep: BoolArray, dated: bool) -> fo.CrawlLog:
    """Return some rows of the log, with or without the dates."""
    columns = {"source": log.source_index[keep], "time": log.time[keep], "changed": log.changed[keep]}
    if dated:
        assert log.last_modified is not None
        columns["last_modified"] = state_dates(log)[keep]
    return fo.CrawlLog.from_columns(columns)


def state_dates(log: fo.CrawlLog) -> Array:
    """Return the date of last change in every row: a log keeps that of the first row of each state only."""
    assert log.last_modified is not None
    told = ~np.isnan(log.last_modified)
    assert told[log.offsets[:-1]].all()
    latest = np.maximum.accumulate(np.where(told, np.arange(len(told)), 0))
    return log.last_modified[latest]


def learnt_rates(log: fo.CrawlLog) -> Array:
    """Return the estimates with the prior learnt from the log."""
    return MaximumLikelihood(prior=GammaPrior.from_log(log)).fit(log).change_rate_


def rate_error(log: fo.CrawlLog, changes: Changes, length: int, dated: bool) -> float:
    """Return the root mean square error of the logarithm of the rates of short logs."""
    crawl = np.arange(len(log)) - log.offsets[:-1][log.source_index]
    short = part_of(log, crawl < length, dated)
    count = np.bincount(changes.source, minlength=changes.n)
    use = (count > 0) & (first_dates(log) < 0.0)
    ratio = learnt_rates(short)[use] / (count[use] / SPAN)
    return float(np.sqrt(np.mean(np.log(ratio) ** 2)))


def first_dates(log: fo.CrawlLog) -> Array:
    """Return the date that each source's first crawl was told."""
    assert log.last_modified is not None
    return log.last_modified[log.offsets[:-1]]


def replayed(rates: Array, sources: IntArray, changes: Changes, begin: float) -> float:
    """Return the time out of date, in days, of equal gaps from `begin` on, in the mean over their phases."""
    seen = changes.between(begin, begin + AHEAD)
    place = np.full(changes.n, -1)
    place[sources] = np.arange(len(sources))
    which = place[seen.source]
    quiet = np.diff(seen.time, append=begin + AHEAD)
    last = np.diff(seen.source, append=-1) != 0
    quiet[last] = begin + AHEAD - seen.time[last]
    gap = np.where(which >= 0, 1.0 / rates[which], np.inf)
    wait = np.minimum(quiet, gap)
    # u days after a change the copy is still out of date with probability 1 − u/gap.
    return float(np.sum((wait - wait**2 / (2.0 * gap))[which >= 0]))


def gain_of_dates(log: fo.CrawlLog, changes: Changes, length: int, begin: float) -> float:
    """Return the share, in percent, of the way to the best static plan that dates bring."""
    split = begin + 7.0 * length
    known = np.flatnonzero(first_dates(log) < begin)
    keep = (log.time >= begin) & (log.time < split) & np.isin(log.source_index, known)
    sources = np.unique(log.source_index[keep])
    test = changes.between(split, split + AHEAD)
    count = np.bincount(test.source, minlength=changes.n)[sources]
    costs = []
    for rates in (
        *(learnt_rates(part_of(log, keep, d)) for d in (False, True)),
        np.maximum(count, 0.3) / AHEAD,
    ):
        problem = fo.Problem(
            BinaryFreshness(Refresh.POISSON), fo.Sources(rates, np.ones(len(rates))), len(rates) / 7.0
        )
        costs.append(replayed(fo.solve(problem).rates, sources, changes, split))
    return 100.0 * (costs[0] - costs[1]) / (costs[0] - costs[2])


def cycle_numbers(changes: Changes) -> list[tuple[str, str]]:
    """Return the second table."""
    moments = np.unique(changes.time)
    rows = [
        ("evidence of the day of the week, nats", f"{evidence(moments, 7, 7.0):.0f}"),
        ("evidence of the hour of the day, nats", f"{evidence(moments, 24, 1.0):.0f}"),
        ("evidence of 56 parts of the week, nats", f"{evidence(moments, 56, 7.0):.0f}"),
        ("evidence of the day of the week, placebo, nats", f"{evidence(placebo(changes).time, 7, 7.0):.0f}"),
    ]
    weekend = np.mean(moments % 7.0 >= 5.0)
    rows.append(("share of moments on Saturdays and Sundays, %", f"{100 * weekend:.1f}"))
    for name, told in (("", changes), (", placebo", placebo(changes))):
        for gap in GAPS:
            for what, stale in (("delay", False), ("staleness", True)):
                value, error = saving(told, gap, stale)
                rows.append((f"{what} saved at a gap of {gap} d{name}, %", f"{value:.1f} ± {error:.1f}"))
    return rows


def date_numbers(log: fo.CrawlLog, changes: Changes) -> list[tuple[str, str, str, str]]:
    """Return the third table."""
    rows = []
    for length in LENGTHS:
        errors = [f"{rate_error(log, changes, length, dated):.2f}" for dated in (False, True)]
        begins = np.linspace(0.0, SPAN - AHEAD - 7.0 * length, SPLITS)
        gain = [gain_of_dates(log, changes, length, float(begin)) for begin in begins]
        error = np.std(gain, ddof=1) / np.sqrt(SPLITS)
        rows.append((str(length), *errors, f"{np.mean(gain):.0f} ± {error:.0f}"))
    errors = [f"{rate_error(log, changes, len(log), dated):.2f}" for dated in (False, True)]
    return [*rows, ("all", *errors, "")]


def main() -> None:
    """Print the tables."""
    log = load_example(NAME)
    changes = read_changes(log)
    print("| the week | number |\n|---|---|")
    for what, number in cycle_numbers(changes):
        print(f"| {what} | {number} |")
    print("\n| crawls per source | error without dates | with dates | gain of dates, % |\n|---|---|---|---|")
    for row in date_numbers(log, changes):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
