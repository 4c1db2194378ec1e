"""How many observations a live planner records a second, beside bare inserts into the same kind of file.

    python -m benchmarks planner [--quick] [--save]

10⁵ sources in a folder, planned for. Observations come one by one (a transaction each, committed before the
call returns), in batches of a hundred and of ten thousand; what is due is handed out a hundred at a time.
Beside it what SQLite alone does on this machine with the same journal: one insert a transaction into a table
with the same key, and ten thousand in one. Seconds are of the process (CPU) and of the clock; the clock also
counts what else the machine does.
"""

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Claims, Measurement, Record, Row
from freshopt.live.planner import Planner

ROUNDS = 5


def timed(work: Callable[[int], int]) -> dict[str, float]:
    """Return the best round's operations per second, of the process and of the clock."""
    found = []
    for turn in range(ROUNDS):
        began, used = time.perf_counter(), time.process_time()
        many = work(turn)
        found.append((many / (time.process_time() - used), many / (time.perf_counter() - began)))
    cpu, wall = map(max, zip(*found, strict=True))
    return {"per_cpu_second": round(cpu), "per_second": round(wall)}


def bare(folder: Path, many: int) -> dict[str, dict[str, float]]:
    """Return what SQLite does without a planner."""
    base = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    base.execute("PRAGMA journal_mode = WAL")
    base.execute("PRAGMA synchronous = NORMAL")
    base.execute(
        "CREATE TABLE observation (id INTEGER PRIMARY KEY, source INTEGER, time REAL, changed INTEGER, "
        "UNIQUE (source, time))"
    )
    insert = "INSERT INTO observation (source, time, changed) VALUES (?, ?, ?)"
    rng = np.random.default_rng(0)

    def single(turn: int) -> int:
        for k, source in enumerate(rng.integers(100_000, size=many).tolist()):
            base.execute("BEGIN IMMEDIATE")
            base.execute(insert, (source, turn + k / many, 1))
            base.execute("COMMIT")
        return many

    def together(turn: int) -> int:
        base.execute("BEGIN IMMEDIATE")
        rows = enumerate(rng.integers(100_000, size=many).tolist())
        base.executemany(insert, ((source, 100.0 + turn + k / many, 1) for k, source in rows))
        base.execute("COMMIT")
        return many

    try:
        return {"inserts_one_by_one": timed(single), "inserts_together": timed(together)}
    finally:
        base.close()


def measured(folder: Path, sources: int, many: int) -> dict[str, Any]:
    """Return what a planner does a second."""
    names = [f"https://example.org/page/{k}" for k in range(sources)]
    rng = np.random.default_rng(1)
    with Planner(folder / "state", bandwidth=float(sources)) as planner:
        began = time.process_time()
        planner.add_many(names)
        added = time.process_time() - began
        planner.due(0.0)

        def single(turn: int) -> int:
            for k, source in enumerate(rng.integers(sources, size=many).tolist()):
                planner.observed(names[source], 1e-3 * (turn + k / many), k % 3 == 0)
            return many

        def batches(size: int, begin: float) -> Callable[[int], int]:
            def work(turn: int) -> int:
                for part in range(many // size):
                    own = [names[source] for source in rng.integers(sources, size=size).tolist()]
                    moments = begin + 1e-3 * (turn + (part * size + np.arange(size)) / many)
                    planner.observed_many(own, moments, np.arange(size) % 3 == 0)
                return many

            return work

        def handed(turn: int) -> int:
            found = 0
            for k in range(many // 1000):
                # A lease is an hour: each moment finds some that have not been handed out.
                found += len(planner.due(0.5 + 0.01 * (turn * many // 1000 + k), limit=100))
            return found

        found = {
            "sources": sources,
            "add_many_cpu_seconds": round(added, 2),
            "observed": timed(single),
            "observed_many_100": timed(batches(100, 0.006)),
            f"observed_many_{many}": timed(batches(many, 0.012)),
        }
        planner.due(0.5, limit=0)
        return found | {"due_100": timed(handed)}


def run(sources: int = 100_000, many: int = 10_000) -> Record:
    """Return operations a second, bare and of a planner."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        return {"sqlite": sqlite3.sqlite_version, "bare": bare(place, many), **measured(place, sources, many)}


def claims(record: Record) -> Claims:
    """Yield what is held at 10⁵ sources."""
    for key in ("observed", "observed_many_100") if not record["quick"] else ():
        each = record[key]["per_cpu_second"]
        yield (
            f"{key}: {each} a second of {record['sources']} sources",
            each >= 5000 and record["sources"] == 10**5,
        )


def shown(record: Record) -> Iterator[Row]:
    """Yield works of the planner beside SQLite's."""
    one, many = (
        f"{record['bare'][key]['per_cpu_second']:,}" for key in ("inserts_one_by_one", "inserts_together")
    )
    size = max(int(key.rpartition("_")[2]) for key in record if key.startswith("observed_many_"))
    for work, key, alone in (
        ("`observed`, one transaction each", "observed", one),
        ("`observed_many`, 100 together", "observed_many_100", ""),
        (f"`observed_many`, {size:,} together", f"observed_many_{size}", many),
        ("`due`, 100 at a time", "due_100", ""),
    ):
        yield {"work": work, "planner": record[key]["per_cpu_second"], "alone": alone}


BENCH = Measurement(
    {"": run}, quick={"sources": 500, "many": 1000}, facts=("quick",), rows={"works": shown}, claims=claims
)
