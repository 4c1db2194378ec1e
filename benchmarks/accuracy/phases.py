"""Measure what crawling at good hours of the week saves: on real histories and on a placebo.

    python -m benchmarks phases [--data FOLDER] [--seeds 5]

FOLDER is as `histories.py` has it, events also with a timestamp. Two histories are bundled: of GStreamer's
plugins, and as a placebo the Debian uploads, which have days without hours: their hours are drawn, evenly.

Every source is refreshed at the same gap, 1, 7 or 14 days. A profile learnt on the first half of a record is
tried on its second half: refreshes spread evenly over that half of the phases of which it promises least
waiting, a load of twice the mean, against refreshes spread over all of them. The cost is the share of time in
which copies are stale, of sources that lasted throughout the test, replayed exactly: for each phase a sum
over changes, phases an hour apart (a quarter of an hour for a gap of a day). "All changes" takes the profile
from the hours of all changes of the first half, "log" from `WeeklyProfile.from_log` of a censored log of 60
crawls per source before the split, gaps exponential of mean 7 days, 56 bins, whatever its evidence, and
"dated log" of one whose crawls are told when the source last changed; "gated" saves nothing where the
evidence is too small, "promised" is what `WeeklyProfile.saving` says of the waiting time. Means over seeds;
errors are those of a bootstrap of sources, with the seeds in turn.

Expected at a load of twice the mean, set down before the first run. Histories of product releases
(eol_releases): −15 ± 2 % at a gap of 7 days, from all changes and from a log. Package manifests
(scoop_packages): −7 ± 1 %. Placebo: 0 ± 1.5 %.

--save keeps benchmarks/results/phases.json and writes the table of the evidence from it; --page
writes the table alone.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.accuracy.histories import HISTORIES, Floats, crawl_times, frames, grouped, read
from benchmarks.harness import Claims, Measurement, Row
from benchmarks.harness import Record as Kept
from freshopt.datasets.change_histories import example_events
from freshopt.estimators import GammaPrior, MaximumLikelihood, WeeklyProfile

PLACEBO, BUNDLED = "debian-uploads, hours drawn", "gstreamer-plugins"
GAPS = (1.0, 7.0, 14.0)
LOAD_LIMIT = 2.0
CRAWLS = 60
BOOTSTRAPS = 200
MONDAY = np.datetime64("1970-01-05")


class Record:
    """Changes of one data set by source, in days since a Monday 00:00 UTC."""

    def __init__(self, changes: list[Floats], start: Floats, stop: Floats) -> None:
        self.changes, self.start, self.stop = changes, start, stop
        self.begin, self.end = (
            max(float(start.min()), min(each[0] for each in changes if len(each))),
            stop.max(),
        )
        self.split = 0.5 * (self.begin + self.end)


def history(folder: Path, name: str) -> Record:
    """Read a history; its clock is moved to begin on a Monday."""
    first = frames(folder, name)[0].row(0, named=True)
    moment = (np.datetime64(first["timestamp"]) - MONDAY) / np.timedelta64(1, "D")
    shift, known = (moment - first["time"]) % 7.0, read(folder, name)
    return Record([each + shift for each in known.changes], known.start + shift, known.stop + shift)


def bundled(name: str, begin: np.datetime64, end: np.datetime64) -> Record:
    """Return a bundled history; a source that is not older than the window was born with its first change."""
    table = example_events(name)
    first = (begin - MONDAY) / np.timedelta64(1, "D")
    week = 7.0 * np.floor(first / 7.0)
    time = (table["time"].to_numpy().astype("datetime64[us]") - MONDAY) / np.timedelta64(1, "D") - week
    names, code = np.unique(table["source"].to_numpy().astype(str), return_inverse=True)
    begin_at, end_at = first - week, (end - MONDAY) / np.timedelta64(1, "D") - week
    start = np.array([own[0] for own in grouped(code, time, len(names))])
    changes = [own[1:] for own in grouped(code, time, len(names))]
    return Record(changes, np.maximum(start, begin_at), np.full(len(names), end_at))


def placebo(seed: int) -> Record:
    """Return the Debian uploads at hours drawn evenly."""
    table = example_events("debian-uploads")
    day = (table["time"].to_numpy().astype("datetime64[us]") - MONDAY) / np.timedelta64(1, "D")
    day = np.floor(day) - 7.0 * np.floor(day.min() / 7.0)
    names, code = np.unique(table["source"].to_numpy().astype(str), return_inverse=True)
    time = day + np.random.default_rng(seed).uniform(size=len(day))
    return Record(
        grouped(code, time, len(names)), np.full(len(names), day.min()), np.full(len(names), day.max() + 1.0)
    )


def log_of(record: Record, chosen: Floats, rng: np.random.Generator, dated: bool = False) -> fo.CrawlLog:
    """Return the log of crawls before the split, with dates of last change or without."""
    times = crawl_times(rng, len(chosen), CRAWLS, record.split)
    source, time, changed, date = [], [], [], []
    for row, k in enumerate(chosen.tolist()):
        own = times[row][times[row] >= record.start[k]]
        seen = np.searchsorted(record.changes[k], own, side="right")
        source.append(np.full(len(own), row))
        time.append(own)
        changed.append(np.diff(seen, prepend=seen[:1]) > 0)
        known = np.append(record.changes[k], np.nan)  # none before the first
        date.append(known[seen - 1])
    columns = [np.concatenate(each) for each in (source, time, changed)]
    return fo.CrawlLog(*columns, last_modified=np.concatenate(date) if dated else None)


def hours_of(record: Record, chosen: Floats) -> Floats:
    """Count changes by hour of the week before the split, shape (n, 168)."""
    counts = np.zeros((len(chosen), 168))
    for row, k in enumerate(chosen.tolist()):
        own = record.changes[k][record.changes[k] < record.split]
        counts[row] = np.bincount(np.minimum((own % 7.0 * 24.0).astype(int), 167), minlength=168)
    return counts


def phases_of(gap: float) -> Floats:
    """Return phases in [0, gap) that stand for all."""
    step = 1.0 / 96.0 if gap < 7.0 else 1.0 / 24.0
    return (np.arange(round(gap / step)) + 0.5) * step


def costs_of(record: Record, chosen: Floats, gap: float) -> Floats:
    """Return the share of the test in which each copy is stale, shape (phases, n).

    A refresh at phase p falls on p + j·gap. Of the changes between two refreshes the first makes the copy
    stale until the second.
    """
    begin, end = record.split, float(record.end)
    each = [record.changes[k] for k in chosen.tolist()]
    each = [own[(own > begin - gap) & (own <= end)] for own in each]
    time, row = np.concatenate(each), np.repeat(np.arange(len(each)), [len(own) for own in each])
    found = []
    for phase in phases_of(gap):
        slot = np.floor((time - phase) / gap)
        first = np.concatenate(([True], (slot[1:] != slot[:-1]) | (row[1:] != row[:-1])))
        until = np.minimum(phase + (slot + 1.0) * gap, end)
        stale = np.where(first, np.maximum(until - np.maximum(time, begin), 0.0), 0.0)
        found.append(np.bincount(row, stale, len(each)) / (end - begin))
    return np.array(found)


def saved(profile: WeeklyProfile, gap: float, cost: Floats) -> float:
    """Return the cost saved in percent at the best phases of a profile, of costs by phase."""
    phases = phases_of(gap)
    best = np.argsort(profile.waiting(gap, phases), kind="stable")[: math.ceil(len(phases) / LOAD_LIMIT)]
    return 100.0 * (1.0 - float(cost[best].mean()) / float(cost.mean()))


def measure(record: Record, seeds: int) -> dict[str, Any]:
    """Return what profiles of one record save."""
    chosen = np.flatnonzero((record.start < record.split) & (record.stop >= record.end - 1e-9))
    hours = hours_of(record, chosen)
    cost = {gap: costs_of(record, chosen, gap) for gap in GAPS}
    rng = np.random.default_rng(7)
    profile = WeeklyProfile(hours.sum(axis=0))
    samples = [
        np.bincount(rng.integers(len(chosen), size=len(chosen)), minlength=len(chosen))
        for _ in range(BOOTSTRAPS)
    ]
    found: dict[str, Any] = {"sources": len(chosen), "changes": int(hours.sum()), "gaps": []}
    learnt: dict[str, list[WeeklyProfile]] = {"log": [], "dated log": []}
    for seed in range(seeds):
        for kind, profiles in learnt.items():
            log = log_of(record, chosen, np.random.default_rng([11, seed]), kind == "dated log")
            profiles.append(WeeklyProfile.from_log(log, MaximumLikelihood(prior=GammaPrior.from_log(log))))
    for kind, profiles in learnt.items():
        found[f"{kind}, evidence"] = [each.evidence for each in profiles]
        found[f"{kind}, daily evidence"] = [each.daily_evidence for each in profiles]
    for gap in GAPS:
        every = [saved(WeeklyProfile(m @ hours), gap, cost[gap] @ m) for m in samples]
        total = cost[gap].sum(axis=1)
        row: dict[str, Any] = {
            "gap": gap,
            "all changes": saved(profile, gap, total),
            "all changes, error": float(np.std(every, ddof=1)),
        }
        for kind, profiles in learnt.items():
            logs = [saved(each, gap, total) for each in profiles]
            drawn = [saved(profiles[k % seeds], gap, cost[gap] @ m) for k, m in enumerate(samples)]
            used = [each.saving([gap], LOAD_LIMIT)[0] > 0.0 for each in profiles]
            freely = [replace(each, evidence=np.inf, daily_evidence=np.inf) for each in profiles]
            promised = [200.0 * float(each.saving([gap], LOAD_LIMIT)[0]) / gap for each in freely]
            row[kind] = float(np.mean(logs))
            row[f"{kind}, error"] = float(np.std(drawn, ddof=1))
            row[f"{kind}, gated"] = float(np.mean(np.where(used, logs, 0.0)))
            row[f"{kind}, on"] = int(np.sum(used))
            row[f"{kind}, promised"] = float(np.mean(promised))
        found["gaps"].append(row)
    return found


def histories(data: Path | None = None, seeds: int = 5) -> Kept:
    """Return what profiles save on each history."""
    window = (np.datetime64("2016-09-05"), np.datetime64("2020-08-31"))
    records = {PLACEBO: placebo(1), BUNDLED: bundled(BUNDLED, *window)}
    records |= {name: history(data, name) for name in HISTORIES} if data else {}
    return {
        "load_limit": LOAD_LIMIT,
        "histories": {name: measure(each, seeds) for name, each in records.items()},
    }


def claims(record: Kept) -> Claims:
    """Yield what was expected at a gap of seven days."""
    found, expected = record["histories"], {"eol_releases": (15.0, 2.0), "scoop_packages": (7.0, 1.0)}
    for name, (center, width) in {**expected, PLACEBO: (0.0, 1.5)}.items():
        for kind in ("all changes", "log", "dated log") if name in found else ():
            (saves,) = (one[kind] for one in found[name]["gaps"] if one["gap"] == 7.0)
            yield (
                f"{name}, {kind}: {saves:.1f} %, expected {center:g} ± {width:g}",
                abs(saves - center) <= width,
            )
    for kind in ("log", "dated log"):
        nats = found[PLACEBO][f"{kind}, evidence"]
        yield f"placebo, {kind}: evidence {max(nats):.0f} nats, below 8", max(nats) < 8.0
        yield "nothing is done on it", all(one[f"{kind}, gated"] == 0.0 for one in found[PLACEBO]["gaps"])
        if "eol_releases" in found:
            nats = found["eol_releases"][f"{kind}, evidence"]
            yield f"eol_releases, {kind}: evidence {min(nats):.0f} nats, above 30", min(nats) > 30.0


def savings(record: Kept) -> Iterator[Row]:
    """Yield what is saved, by history and gap; phases without evidence are not used."""
    for name, row in record["histories"].items():
        for one in row["gaps"]:
            cells = {"history": name, "gap": f"{one['gap']:g}"}
            for kind in ("all changes", "log", "dated log"):
                cells[kind] = f"{one[kind]:.1f} ± {one[f'{kind}, error']:.1f}"
            for kind in ("log", "dated log"):
                on, seeds = one[f"{kind}, on"], len(row[f"{kind}, evidence"])
                cells[kind] += "" if on == seeds else f" (on in {on} of {seeds})" if on else " (off)"
                cells[f"{kind}, promised"] = f"{one[f'{kind}, promised']:.1f}"
            yield {
                key: each.replace("-0.0", "0.0").replace("-", "−") if key != "history" else each
                for key, each in cells.items()
            }


def evidence(record: Kept) -> Iterator[Row]:
    """Yield the range of evidence over seeds, in nats."""
    for name, row in record["histories"].items():
        ranges = {
            key: " to ".join(f"{each:.0f}" for each in np.rint([min(row[key]), max(row[key])]) + 0.0)
            for key in (f"{kind}, {of}evidence" for kind in ("log", "dated log") for of in ("", "daily "))
        }
        yield {"history": name, "sources": row["sources"], **ranges}


BENCH = Measurement(
    {"": histories},
    {"seeds": 1},
    ("python",),
    rows={"savings": savings, "evidence": evidence},
    claims=claims,
)
