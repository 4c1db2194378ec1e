"""Measure what crawling at good hours of the week saves: on real histories and on a placebo.

    python benchmarks/accuracy/phases.py [--data FOLDER] [--seeds 5] [--save | --page]

FOLDER holds NAME.events.parquet (source, time in days, timestamp, kind 1 for a change) and
NAME.sources.parquet (source, start and stop in days). Two histories are bundled: of GStreamer's plugins, and
as a placebo the Debian uploads, which have days without hours: their hours are drawn, evenly.

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

--save keeps benchmarks/results/phases.json and writes the table of docs/weekly-profile.md from it; --page
writes the table alone.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.datasets.change_histories import example_events
from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.weekly import WeeklyProfile

ROOT = Path(__file__).resolve().parents[2]
SAVED, PAGE = ROOT / "benchmarks" / "results" / "phases.json", ROOT / "docs" / "weekly-profile.md"
HISTORIES = ("eol_releases", "scoop_packages")
PLACEBO, BUNDLED = "debian-uploads, hours drawn", "gstreamer-plugins"
GAPS = (1.0, 7.0, 14.0)
LOAD_LIMIT = 2.0
CRAWLS, CRAWL_GAP = 60, 7.0
BOOTSTRAPS = 200
MONDAY = np.datetime64("1970-01-05")
Floats = np.ndarray


class Record:
    """Changes of one data set by source, in days since a Monday 00:00 UTC."""

    def __init__(self, changes: list[Floats], start: Floats, stop: Floats) -> None:
        self.changes, self.start, self.stop = changes, start, stop
        self.begin, self.end = (
            max(float(start.min()), min(each[0] for each in changes if len(each))),
            stop.max(),
        )
        self.split = 0.5 * (self.begin + self.end)


def grouped(code: Floats, time: Floats, n: int) -> list[Floats]:
    """Split times by source."""
    order = np.lexsort((time, code))
    return np.split(time[order], np.cumsum(np.bincount(code, minlength=n))[:-1])


def history(folder: Path, name: str) -> Record:
    """Read a history; its clock is moved to begin on a Monday."""
    import polars as pl

    events = pl.read_parquet(folder / f"{name}.events.parquet").with_columns(pl.col("source").cast(pl.String))
    sources = pl.read_parquet(folder / f"{name}.sources.parquet").sort("source")
    first = events.row(0, named=True)
    moment = (np.datetime64(first["timestamp"]) - MONDAY) / np.timedelta64(1, "D")
    shift = (moment - first["time"]) % 7.0
    changes = events.filter(pl.col("kind") == 1)
    codes = {label: k for k, label in enumerate(sources["source"].to_list())}
    code = changes["source"].replace_strict(codes, return_dtype=pl.Int64).to_numpy()
    each = grouped(code, changes["time"].to_numpy() + shift, len(codes))
    return Record(each, sources["start"].to_numpy() + shift, sources["stop"].to_numpy() + shift)


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
    gaps = rng.exponential(CRAWL_GAP, (len(chosen), CRAWLS))
    back = np.concatenate([np.cumsum(gaps[:, ::-1], axis=1)[:, ::-1], np.zeros((len(chosen), 1))], axis=1)
    times = record.split - back
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


def page(text: str, found: dict[str, Any]) -> str:
    """Return the page with the table of a saved run."""
    rows = [
        "| history | gap, days | all changes | log | promised | dated log | promised |",
        "| --- " * 7 + "|",
    ]
    for name, row in found["histories"].items():
        for one in row["gaps"]:
            cells = [f"{one['all changes']:.1f} ± {one['all changes, error']:.1f}"]
            for kind in ("log", "dated log"):
                # Phases without evidence are not used, whatever they would have saved.
                on, seeds = one[f"{kind}, on"], len(row[f"{kind}, evidence"])
                used = "" if on == seeds else f" (on in {on} of {seeds})" if on else " (off)"
                cells.append(f"{one[kind]:.1f} ± {one[f'{kind}, error']:.1f}{used}")
                cells.append(f"{one[f'{kind}, promised']:.1f}")
            cells = [cell.replace("-0.0", "0.0").replace("-", "−") for cell in cells]
            rows.append(f"| {name} | {one['gap']:g} | {' | '.join(cells)} |")
    rows += [
        "",
        "| history | sources | log, nats | of the day | dated log, nats | of the day |",
        "| --- " * 6 + "|",
    ]
    for name, row in found["histories"].items():
        nats = (
            " to ".join(f"{each:.0f}" for each in np.rint([min(values), max(values)]) + 0.0).replace("-", "−")
            for kind in ("log", "dated log")
            for values in (row[f"{kind}, evidence"], row[f"{kind}, daily evidence"])
        )
        rows.append(f"| {name} | {row['sources']} | {' | '.join(nats)} |")
    begin, end = "<!-- phases -->\n", "<!-- end of phases -->"
    head, _, rest = text.partition(begin)
    return head + begin + "\n".join(rows) + "\n" + end + rest.partition(end)[2]


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if arguments.page:
        saved_run = json.loads(SAVED.read_text(encoding="utf-8"))
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), saved_run), encoding="utf-8")
        return
    window = (np.datetime64("2016-09-05"), np.datetime64("2020-08-31"))
    records = {PLACEBO: placebo(1), BUNDLED: bundled(BUNDLED, *window)}
    for name in HISTORIES if arguments.data else ():
        records[name] = history(arguments.data, name)
    found: dict[str, Any] = {"python": platform.python_version(), "load_limit": LOAD_LIMIT, "histories": {}}
    for name, record in records.items():
        row = measure(record, arguments.seeds)
        found["histories"][name] = row
        kinds = ("log", "dated log")
        evidence = [(kind, row[f"{kind}, evidence"], row[f"{kind}, daily evidence"]) for kind in kinds]
        nats = ", ".join(
            f"{kind} {np.mean(week):.0f}, day {np.mean(day):.0f}" for kind, week, day in evidence
        )
        print(f"{name}: {row['sources']} sources, {row['changes']} changes; nats {nats}")
        for one in row["gaps"]:
            cells = (
                f"{kind} {one[kind]:.1f} ± {one[f'{kind}, error']:.1f} %, "
                f"gated {one[f'{kind}, gated']:.1f} %, promised {one[f'{kind}, promised']:.1f} %"
                for kind in kinds
            )
            every = f"all changes {one['all changes']:.1f} ± {one['all changes, error']:.1f} %"
            print(f"  gap {one['gap']:g} d: {every}; {'; '.join(cells)}", flush=True)
    if arguments.save:
        SAVED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
        print(f"saved {SAVED.name}")


if __name__ == "__main__":
    main()
