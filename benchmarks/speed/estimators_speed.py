"""Measure what learning change rates costs: time against a copy, memory, and building a log.

    python -m benchmarks estimators_speed [fits] [builds] [memory] [--rows 100000000] [--save]

Times are the least of some rounds, the copy of the log's gaps, outcomes and offsets taken in turn with the
fit, on one core. Memory is the largest resident set of a process of its own that builds a log and fits it.
"""

import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars

from benchmarks.harness import Claims, Measurement, Record, apart, turns
from freshopt import CrawlLog, read_log
from freshopt.estimators import MaximumLikelihood, MomentMatching, Naive

SOURCES, CRAWLS, ROUNDS = 100_000, 100, 7
ROWS = 10**8
HELD = {"maximum likelihood, copies": 25.0, "memory, GiB": 10.0}


def columns(sources: int, crawls: int, share: float) -> dict[str, Any]:
    """Return a sorted log's columns; `share` sets how many crawls find a change."""
    rng = np.random.default_rng(5)
    rows = sources * crawls
    gap = rng.exponential(1.0, rows)
    time_ = np.cumsum(gap.reshape(sources, crawls), axis=1).ravel()
    changed = rng.random(rows) < share
    return {"source": np.repeat(np.arange(sources), crawls), "time": time_, "changed": changed}


WORKS: dict[str, Callable[[CrawlLog], object]] = {
    "copy": lambda log: (log.interval.copy(), log.changed.copy(), log.offsets.copy()),
    "maximum likelihood": lambda log: MaximumLikelihood(smoothing=0.5).fit(log),
    "moment matching": lambda log: MomentMatching().fit(log),
    "naive": lambda log: Naive().fit(log),
}


def fits(sources: int = SOURCES) -> Record:
    """Return the time of each estimator in copies, by the share of crawls that found a change."""
    found: dict[str, Any] = {}
    for share in (0.1, 0.5, 0.9):
        log = CrawlLog.from_columns(columns(sources, CRAWLS, share), start=0.0)
        best = turns({name: partial(work, log) for name, work in WORKS.items()}, ROUNDS)
        model = MaximumLikelihood(smoothing=0.5).fit(log)
        begun = time.process_time()
        model.interval(0.95)
        row: dict[str, Any] = {"seconds": best, "interval_cpu_seconds": time.process_time() - begun}
        row["copies"] = {name: best[name] / best["copy"] for name in WORKS if name != "copy"}
        found[str(share)] = row
    return found


def builds(built: int = 10**7) -> dict[str, float]:
    """Return seconds to build a log of so many rows from a Parquet file and from a sorted frame."""
    given = columns(built // 100, 100, 0.5)
    frame = polars.DataFrame({**given, "changed": given["changed"].astype(np.int8)})
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        frame.write_parquet(path)
        named = Path(folder) / "named.parquet"
        text = polars.col("source").cast(polars.String).str.zfill(6)
        frame.with_columns(source="https://example.org/" + text).write_parquet(named)
        for key, what in (("parquet", path), ("parquet, names", named)):
            begun = time.perf_counter()
            read_log(what, "day")
            found[key] = time.perf_counter() - begun
    begun = time.perf_counter()
    CrawlLog.from_columns({key: frame[key].to_numpy() for key in frame.columns})
    found["sorted frame"] = time.perf_counter() - begun
    return found


def peak(rows: int) -> Record:
    """Build a log of so many rows and fit it; return the largest resident set, in GiB."""
    log = CrawlLog.from_columns(columns(rows // 100, 100, 0.5))
    built = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    begun = time.perf_counter()
    MaximumLikelihood(smoothing=0.5).fit(log)
    seconds = time.perf_counter() - begun
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"rows": rows, "built_gib": built, "peak_gib": most, "fit_seconds": seconds}


def memory(rows: int = ROWS) -> Record:
    """Return the peak of a process of its own."""
    found: Record = apart(peak, rows)
    return found


def claims(record: Record) -> Claims:
    """Yield what is held."""
    held = record["held"]
    for share, row in record["fits"].items():
        copies = row["copies"]
        likely = copies["maximum likelihood"]
        yield f"{share}: {likely:.1f} copies", likely <= held["maximum likelihood, copies"] == 25.0
        yield f"{share}: the naive estimator is the fastest", copies["naive"] < copies["moment matching"]
    peak_gib, rows = record["memory"]["peak_gib"], record["memory"]["rows"]
    yield f"{rows} rows take {peak_gib:.1f} GiB", peak_gib <= held["memory, GiB"] == 10.0
    slowest = max(record["builds"].values())
    yield f"ten million rows are built in {slowest:.1f} s", slowest < 10.0


BENCH = Measurement(
    {"fits": fits, "builds": builds, "memory": memory},
    quick={"sources": 2000, "built": 10_000, "rows": 10_000},
    notes={"held": HELD},
    claims=claims,
    large=True,
    alone=True,
)
