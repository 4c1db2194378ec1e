"""How fast schedules are made, replayed and exported, on one core.

    python -m benchmarks schedules [--save] [--quick]

Schedules: nanoseconds of CPU per refresh of the methods' ``times`` and of the whole of `fo.schedule`, a
million sources with lognormal rates, seven million refreshes. Replays: nanoseconds per refresh of the
schedule, all runs of the default number together, and per change and refresh that they go through. Exports:
microseconds per source. CPU time, best of three after a first call that compiles. Peak memory of a schedule
beside what it keeps, from the high-water mark of a process of its own.
"""

import importlib
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, apart, best_of
from freshopt import tools
from freshopt.scheduling import Carousel, EarliestDeadline, Greedy, Periodic, PoissonArrivals
from freshopt.scheduling.rate_table import LifetimeTable, RateTable

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


def least(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the least CPU time of some calls, after one that warms up."""
    work()
    return best_of(work, repeats, time.process_time)


def problem_of(n: int) -> fo.Problem:
    """Return n sources with a refresh a day each, on average."""
    rng = np.random.default_rng(0)
    sources = fo.Sources(rng.lognormal(0.0, 1.0, n), importance=rng.lognormal(0.0, 1.0, n))
    return fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.PERIODIC), sources, bandwidth=float(n))


def schedules(n: int) -> Iterator[Row]:
    """Yield the methods on n sources."""
    problem = problem_of(n)
    solution = fo.solve(problem)
    rates = np.array(solution.rates)
    for name, method_of in METHODS.items():
        method = method_of(problem)
        many = len(method.times(rates, float(PER_SOURCE))[0])
        repeats = 1 if name == "Greedy" else REPEATS
        own = least(lambda: method.times(rates, float(PER_SOURCE)), repeats)  # noqa: B023 - called here
        whole = least(lambda: fo.schedule(solution, float(PER_SOURCE), method), repeats)  # noqa: B023
        yield {
            "work": name,
            "sources": n,
            "refreshes": many,
            "times_ns_per_refresh": round(own / many * 1e9, 1),
            "schedule_ns_per_refresh": round(whole / many * 1e9, 1),
            **({} if name == "Greedy" else {"peak_bytes_per_refresh": apart(peak, name, n)}),
        }


def peak(name: str, n: int) -> float:
    """Return by how much a method raises the high-water mark of a fresh process, in bytes per refresh."""
    importlib.import_module("numba")  # not counted: it is loaded once
    rates = np.random.default_rng(0).lognormal(-0.5, 1.0, n)
    method = METHODS[name](problem_of(2))
    method.times(rates[: n // 8], float(PER_SOURCE))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many = len(method.times(rates, float(PER_SOURCE))[0])
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round((after - before) * 1024.0 / many, 1)


def replays(n: int) -> Iterator[Row]:
    """Yield replays of n sources at the default number of runs."""
    problem = problem_of(n)
    solution = fo.solve(problem)
    for method in (Periodic(), PoissonArrivals(seed=1)):
        plan = fo.schedule(solution, float(PER_SOURCE), method)
        world = fo.World.poisson(problem.sources, seed=2)
        found = fo.replay(plan, world)
        seconds = least(lambda: fo.replay(plan, world), 1)  # noqa: B023 - called here
        changes = float(np.sum(problem.sources.change_rate)) * PER_SOURCE
        events = found.runs * (len(plan) + changes)
        yield {
            "work": f"replay of {method!r}",
            "sources": n,
            "refreshes": len(plan),
            "runs": found.runs,
            "ns_per_refresh": round(seconds / len(plan) * 1e9, 1),
            "ns_per_event": round(seconds / events * 1e9, 1),
        }


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


def exports(n: int, in_crontab: int) -> Iterator[Row]:
    """Yield the formats."""
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
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, target, table) in enumerate(formats):

            def write(target: Any = target, table: Any = table, number: int = number) -> None:
                for turn in range(1000):
                    path = Path(folder) / f"{number}-{turn}"
                    if not path.exists():
                        break
                if target.files:
                    path.mkdir()
                target.write(table, path)

            many = len(table.names)
            yield {"work": name, "sources": many, "us_per_source": round(least(write) / many * 1e6, 2)}
        plan = fo.schedule(dict.fromkeys(urls, 1.0), 1.0, PoissonArrivals(seed=1))
        begin, path = datetime(2026, 1, 1, tzinfo=UTC), Path(folder) / "calendar.ics"
        seconds = least(lambda: tools.write_icalendar(plan, begin, path))
        each = round(seconds / len(plan) * 1e6, 2)
        yield {"work": "iCalendar, an event", "sources": n, "us_per_source": each}


def rows(sources: int = SOURCES, exported: int = EXPORTED, in_crontab: int = IN_CRONTAB) -> Iterator[Row]:
    """Yield schedules, replays and exports."""
    yield from schedules(sources)
    yield from replays(sources)
    yield from exports(exported, in_crontab)


def claims(record: Record) -> Claims:
    """Yield that all were timed."""
    works = [row["work"] for row in record["rows"]]
    yield f"{works}", works[: len(METHODS)] == [*METHODS] and works[-1].startswith("iCalendar")
    for row in record["rows"]:
        least = min(each for key, each in row.items() if key.startswith(("us_", "ns_", "times_")))
        yield f"{row['work']}: {least}", least > 0.0


BENCH = Measurement(
    {"rows": rows},
    quick={"sources": 1000, "exported": 100, "in_crontab": 20},
    facts=("python", "numpy"),
    claims=claims,
)
