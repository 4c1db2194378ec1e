"""Measure what learning change rates costs: time against a copy, memory, and building a log.

    python benchmarks/speed/estimators_speed.py [--save] [--only fits builds memory] [--rows 100000000]

Times are the least of some rounds, the copy of the log's gaps, outcomes and offsets taken in turn with the
fit, on one core. Memory is the largest resident set of a process of its own that builds a log and fits it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", POLARS_MAX_THREADS="1")  # before NumPy and polars are loaded

import numpy as np

from freshopt import CrawlLog, read_log
from freshopt.estimators import MaximumLikelihood, MomentMatching, Naive

RESULTS = Path(__file__).parents[1] / "results" / "estimators_speed.json"
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


def fits() -> dict[str, Any]:
    """Return the time of each estimator in copies, by the share of crawls that found a change."""
    found: dict[str, Any] = {}
    for share in (0.1, 0.5, 0.9):
        log = CrawlLog.from_columns(columns(SOURCES, CRAWLS, share), start=0.0)
        makers = {
            "maximum likelihood": lambda: MaximumLikelihood(smoothing=0.5),
            "moment matching": MomentMatching,
            "naive": Naive,
        }
        best = dict.fromkeys(("copy", *makers), float("inf"))
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            _ = log.interval.copy(), log.changed.copy(), log.offsets.copy()
            best["copy"] = min(best["copy"], time.perf_counter() - begun)
            for name, make in makers.items():
                begun = time.perf_counter()
                make().fit(log)
                best[name] = min(best[name], time.perf_counter() - begun)
        model = MaximumLikelihood(smoothing=0.5).fit(log)
        begun = time.process_time()
        model.interval(0.95)
        row: dict[str, Any] = {"seconds": best, "interval_cpu_seconds": time.process_time() - begun}
        row["copies"] = {name: best[name] / best["copy"] for name in makers}
        found[str(share)] = row
    return found


def builds(rows: int = 10**7) -> dict[str, float]:
    """Return seconds to build a log of so many rows from a Parquet file and from a sorted frame."""
    import polars

    given = columns(rows // 100, 100, 0.5)
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


def memory(rows: int) -> dict[str, Any]:
    """Return the peak of a process that builds a log of so many rows and fits it, in GiB."""
    code = [sys.executable, __file__, "--child", str(rows)]
    told = subprocess.run(code, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(told.stdout)
    return measured


def child(rows: int) -> None:
    """Build, fit, and tell the peak."""
    sources = rows // 100
    log = CrawlLog.from_columns(columns(sources, 100, 0.5))
    built = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    begun = time.perf_counter()
    MaximumLikelihood(smoothing=0.5).fit(log)
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"rows": rows, "built_gib": built, "peak_gib": peak, "fit_seconds": seconds}))


def main() -> None:
    """Measure, print, and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--only", nargs="+", default=["fits", "builds", "memory"], help="these parts alone")
    parser.add_argument("--rows", type=int, default=ROWS, help="observations for the peak of memory")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    parts: dict[str, Callable[[], Any]] = {
        "fits": fits,
        "builds": builds,
        "memory": lambda: memory(options.rows),
    }
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    record = {**kept, "held": HELD, **{name: parts[name]() for name in options.only}}
    text = json.dumps(record, indent=1)
    print(text)
    if options.save:
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    main()
