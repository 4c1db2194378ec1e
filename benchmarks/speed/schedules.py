"""How fast schedules are made, replayed and exported, on one core.

    python benchmarks/speed/schedules.py [--save] [--small]

Schedules: nanoseconds of CPU per refresh of the methods' ``times`` and of the whole of `fo.schedule`, a
million sources with lognormal rates, seven million refreshes. Replays: nanoseconds per refresh of the
schedule, all runs of the default number together, and per change and refresh that they go through. Exports:
microseconds per source. CPU time, best of three after a first call that compiles. Peak memory of a schedule
beside what it keeps, from the high-water mark of a process of its own. --small divides the sizes by a
hundred. --save writes benchmarks/results/schedules.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt import tools
from freshopt.scheduling import Carousel, EarliestDeadline, Greedy, Periodic, PoissonArrivals
from freshopt.scheduling.lifetime_table import LifetimeTable
from freshopt.scheduling.rate_table import RateTable

RESULTS = Path(__file__).parents[1] / "results" / "schedules.json"
SOURCES, PER_SOURCE, REPEATS = 1_000_000, 7, 3
# Sources of an export; cron keeps 10 000 lines.
EXPORTED, IN_CRONTAB = 100_000, 1_500
METHODS: dict[str, Callable[[fo.Problem], Any]] = {
    "Periodic": lambda _: Periodic(),
    "PoissonArrivals": lambda _: PoissonArrivals(seed=1),
    "Carousel": lambda _: Carousel(),
    "EarliestDeadline": lambda _: EarliestDeadline(age=0.5),
    "Greedy": Greedy,
}


def best_of(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the least CPU time of some calls, after one that warms up."""
    work()
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def problem_of(n: int) -> fo.Problem:
    """Return n sources with a refresh a day each, on average."""
    rng = np.random.default_rng(0)
    sources = fo.Sources(rng.lognormal(0.0, 1.0, n), importance=rng.lognormal(0.0, 1.0, n))
    return fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.PERIODIC), sources, bandwidth=float(n))


def schedules(n: int) -> list[dict[str, Any]]:
    """Time the methods on n sources."""
    problem = problem_of(n)
    solution = fo.solve(problem)
    rates = np.array(solution.rates)
    rows = []
    for name, method_of in METHODS.items():
        method = method_of(problem)
        many = len(method.times(rates, float(PER_SOURCE))[0])
        repeats = 1 if name == "Greedy" else REPEATS
        own = best_of(lambda: method.times(rates, float(PER_SOURCE)), repeats)  # noqa: B023 - called here
        whole = best_of(lambda: fo.schedule(solution, float(PER_SOURCE), method), repeats)  # noqa: B023
        rows.append(
            {
                "work": name,
                "sources": n,
                "refreshes": many,
                "times_ns_per_refresh": round(own / many * 1e9, 1),
                "schedule_ns_per_refresh": round(whole / many * 1e9, 1),
            }
        )
    return rows


def peak(n: int, name: str) -> float:
    """Return the peak bytes per refresh while a method runs, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--peak", name, str(n)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def measure_peak(name: str, n: int) -> None:
    """Print the growth of this process's high-water mark, in bytes per refresh."""
    import numba  # noqa: F401 - not counted: it is loaded once

    rates = np.random.default_rng(0).lognormal(-0.5, 1.0, n)
    method = METHODS[name](problem_of(n)) if name == "Greedy" else METHODS[name](problem_of(2))
    method.times(rates[: n // 8], float(PER_SOURCE))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many = len(method.times(rates, float(PER_SOURCE))[0])
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(round((after - before) * 1024.0 / many, 1))


def replays(n: int) -> list[dict[str, Any]]:
    """Time replays of n sources at the default number of runs."""
    problem = problem_of(n)
    solution = fo.solve(problem)
    rows = []
    for method in (Periodic(), PoissonArrivals(seed=1)):
        plan = fo.schedule(solution, float(PER_SOURCE), method)
        world = fo.World.poisson(problem.sources, seed=2)
        found = fo.replay(plan, world)
        seconds = best_of(lambda: fo.replay(plan, world), 1)  # noqa: B023 - called here
        changes = float(np.sum(problem.sources.change_rate)) * PER_SOURCE
        events = found.runs * (len(plan) + changes)
        rows.append(
            {
                "work": f"replay of {method!r}",
                "sources": n,
                "refreshes": len(plan),
                "runs": found.runs,
                "ns_per_refresh": round(seconds / len(plan) * 1e9, 1),
                "ns_per_event": round(seconds / events * 1e9, 1),
            }
        )
    return rows


def table_of(names: list[str], rates: np.ndarray[Any, Any]) -> RateTable:
    """Return a table of rates by name."""
    return RateTable(rates, np.array(names), "day", None, None)


def lifetimes(n: int) -> list[tuple[str, Any, LifetimeTable]]:
    """Return the formats of caches with a table each."""
    each = np.random.default_rng(0).lognormal(0.0, 1.0, n)
    paths = [f"/path/{k}?page={k % 13}&q=a%20b" for k in range(n)]
    records = [f"host-{k}.example.org. A 192.0.2.{k % 255}" for k in range(n)]
    return [
        ("CacheControl", tools.CacheControl(), LifetimeTable(each, paths, "hour")),
        ("Nginx", tools.Nginx(), LifetimeTable(each, paths, "hour")),
        ("Redis", tools.Redis(), LifetimeTable(each, paths, "hour")),
        ("Dns", tools.Dns(), LifetimeTable(each, records, "hour")),
    ]


def exports(n: int, in_crontab: int) -> list[dict[str, Any]]:
    """Time the formats."""
    rng = np.random.default_rng(0)
    rates = rng.lognormal(0.0, 1.0, n)
    urls = [f"https://site-{k % 997}.example.org/path/{k}?page={k % 13}&q=a%20b" for k in range(n)]
    resources = [f"space-{k % 97}/secret-{k}.example" for k in range(n)]
    formats: list[tuple[str, Any, Any]] = [
        ("Nutch", tools.Nutch(), table_of(urls, rates)),
        ("StormCrawler", tools.StormCrawler(), table_of(urls, rates)),
        ("ChangeDetection", tools.ChangeDetection(), table_of(urls, rates)),
        ("ExternalSecrets", tools.ExternalSecrets(), table_of(resources, rates)),
        ("Crontab", tools.Crontab(), table_of(urls[:in_crontab], rates[:in_crontab])),
        (
            "Crontab, weekly",
            tools.Crontab(),
            table_of(urls[:in_crontab], np.maximum(np.rint(7.0 * rates[:in_crontab]), 1.0) / 7.0),
        ),
        *lifetimes(n),
    ]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, target, table) in enumerate(formats):

            def write(target: Any = target, table: Any = table, number: int = number) -> None:  # noqa: ANN401
                for turn in range(1000):
                    path = Path(folder) / f"{number}-{turn}"
                    if not path.exists():
                        break
                if target.files:
                    path.mkdir()
                target.write(table, path)

            many = len(table.names)
            rows.append(
                {"work": name, "sources": many, "us_per_source": round(best_of(write) / many * 1e6, 2)}
            )
        plan = fo.schedule(dict.fromkeys(urls, 1.0), 1.0, PoissonArrivals(seed=1))
        begin, path = datetime(2026, 1, 1, tzinfo=UTC), Path(folder) / "calendar.ics"
        seconds = best_of(lambda: tools.write_icalendar(plan, begin, path))
        rows.append(
            {
                "work": "iCalendar, an event",
                "sources": n,
                "us_per_source": round(seconds / len(plan) * 1e6, 2),
            }
        )
    return rows


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        measure_peak(options.peak[0], int(options.peak[1]))
        return
    n = SOURCES // 100 if options.small else SOURCES
    rows = schedules(n)
    for row in rows:
        if row["work"] != "Greedy":
            row["peak_bytes_per_refresh"] = peak(n, row["work"])
    rows += replays(n)
    rows += exports(EXPORTED // 100 if options.small else EXPORTED, IN_CRONTAB)
    for row in rows:
        numbers = ", ".join(
            f"{key.replace('_', ' ')} {value:,}" for key, value in row.items() if key != "work"
        )
        print(f"{row['work']:28} {numbers}")
    if options.save:
        record = {"python": platform.python_version(), "numpy": np.__version__, "rows": rows}
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
