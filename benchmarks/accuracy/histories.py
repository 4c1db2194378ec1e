"""Histories of sources whose changes are all known, and what crawlers would have seen of them.

A folder of histories holds NAME.events.parquet (source, time in days, kind 0 where a source is first seen, 1
for a change) and NAME.sources.parquet (source, start and stop in days).
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import freshopt as fo
from freshopt.datasets import example_events, load_example
from freshopt.planning.static_rates import best_rates
from freshopt.simulation.static_costs import ChangeWindow, static_costs

Floats = np.ndarray
# Of crawls and of plans, in days; mean crawl gaps in a test window.
GAP, TEST = 7.0, 26
HISTORIES = ("eol_releases", "scoop_packages")


class History(NamedTuple):
    """Changes by source, when each is there in days, and all that tells its age, changes or not."""

    changes: list[Floats]
    start: Floats
    stop: Floats
    seen: list[Floats]

    @property
    def end(self) -> float:
        """When the record ends."""
        return float(self.stop.max())


def grouped(code: Floats, time: Floats, n: int) -> list[Floats]:
    """Return sorted times by source."""
    order = np.lexsort((time, code))
    return np.split(time[order], np.cumsum(np.bincount(code, minlength=n))[:-1])


def frames(folder: Path, name: str) -> tuple[Any, Any]:
    """Return the tables of a history: events, and sources in order."""
    events, sources = (pl.read_parquet(folder / f"{name}.{kind}.parquet") for kind in ("events", "sources"))
    text = pl.col("source").cast(pl.String)
    return events.with_columns(text), sources.sort("source").with_columns(text)


def read(folder: Path, name: str) -> History:
    """Return a history of a folder."""
    events, sources = frames(folder, name)
    codes = {label: k for k, label in enumerate(sources["source"].to_list())}
    code = events["source"].replace_strict(codes, return_dtype=pl.Int64).to_numpy()
    time, change = events["time"].to_numpy(), events["kind"].to_numpy() == 1
    every, changes = grouped(code, time, len(codes)), grouped(code[change], time[change], len(codes))
    return History(changes, sources["start"].to_numpy(), sources["stop"].to_numpy(), every)


def bundled(name: str) -> History:
    """Return a bundled history; a source is there from its first crawl on."""
    log = load_example(name)
    known = fo.ChangeHistory.from_frame(example_events(name), names=log.names, start=log.origin)
    changes = grouped(known.source_index, known.time, len(log.names))
    return History(changes, log.time[log.offsets[:-1]], np.full(len(changes), log.end), changes)


def drawn(seed: int, n: int, length: float = 2_000.0) -> History:
    """Return Poisson sources with gamma rates."""
    rng = np.random.default_rng([7, seed])
    many = rng.poisson(rng.gamma(0.6, 1.0 / 20.0, n) * length)
    changes = [np.sort(rng.random(each) * length) for each in many.tolist()]
    return History(changes, np.zeros(n), np.full(n, length), changes)


def crawl_times(rng: np.random.Generator, n: int, crawls: int, split: float) -> Floats:
    """Return crawls at exponential gaps, the last one at the split, shape (n, crawls + 1)."""
    gaps = rng.exponential(GAP, (n, crawls))
    back = np.cumsum(gaps[:, ::-1], axis=1)[:, ::-1]
    return split - np.concatenate([back, np.zeros((n, 1))], axis=1)


def log_of(changes: list[Floats], times: Floats, last_modified: Floats | None = None) -> fo.CrawlLog:
    """Return the log of crawls at times of shape (sources, crawls), outcomes changed or not."""
    passed = np.array(
        [np.searchsorted(own, at, side="right") for own, at in zip(changes, times, strict=True)]
    )
    changed = np.diff(passed, axis=1, prepend=passed[:, :1]) > 0
    source = np.repeat(np.arange(len(times)), times.shape[1])
    dates = None if last_modified is None else last_modified.ravel()
    return fo.CrawlLog(source, times.ravel(), changed.ravel(), last_modified=dates)


def sampled(
    history: History, split: float, end: float, crawls: int, most: int, rng: np.random.Generator
) -> tuple[fo.CrawlLog, fo.World, Floats] | None:
    """Return a log before a split of sources that last to the end, the world, and importances.

    Sources are drawn anew (bootstrap), with Pareto(1.5) importances; None where fewer than 30 are old enough.
    """
    alive = np.flatnonzero((history.start < split) & (history.stop >= end - 1e-9))
    sample = alive[rng.integers(len(alive), size=min(most, len(alive)))]
    times = crawl_times(rng, len(sample), crawls, split)
    there = history.start[sample] <= times[:, 0]
    sample, times = sample[there], times[there]
    if len(sample) < 30:
        return None
    weight = rng.pareto(1.5, len(sample)) + 1.0
    own = [history.changes[k] for k in sample.tolist()]
    world = world_of(own, np.minimum(history.start[sample], times[:, 0]), end)
    return log_of(own, times), world, weight / weight.sum()


def world_of(changes: list[Floats], start: Floats | float, end: float) -> fo.World:
    """Return the world in which sources changed at known times."""
    source = np.repeat(np.arange(len(changes)), [len(each) for each in changes])
    events = {"source": source, "time": np.concatenate(changes)}
    return fo.World.from_events(events, names=np.arange(len(changes)), start=start, horizon=end)


def in_hindsight(window: ChangeWindow, weight: Floats, objective: fo.Objective, bandwidth: float) -> Floats:
    """Return the static rates that cost least in known changes; nobody who keeps to such gets further."""
    n = len(weight)
    cost = partial(static_costs, window, objective=objective)
    return best_rates(lambda rates: weight * cost(rates), bandwidth, np.zeros(n), np.full(n, np.inf))


class Half(NamedTuple):
    """A history's second half: sources there at its middle, changes, and what the first half counted."""

    sources: Any
    changes: Any
    middle: float
    end: float
    counts: Floats
    watched: Floats

    @property
    def smoothed(self) -> Floats:
        """Change rates counted in the first half, with half a change in half a day."""
        return (self.counts + 0.5) / (self.watched + 0.5)


def second_half(folder: Path, name: str) -> Half:
    """Return a history's second half."""
    events, sources = frames(folder, name)
    end = float(sources["stop"].max())
    middle = end / 2
    there = sources.filter((pl.col("start") < middle) & (pl.col("stop") > middle)).sort("source")
    changes = events.filter((pl.col("kind") == 1) & pl.col("source").is_in(there["source"].to_list()))
    before = changes.filter(pl.col("time") <= middle).group_by("source").len()
    counts = there.join(before, on="source", how="left", maintain_order="left")["len"].fill_null(0)
    return Half(there, changes, middle, end, counts.to_numpy(), middle - there["start"].to_numpy())
