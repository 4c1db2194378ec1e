"""A live planner in a simulated world: what it learns in a month, beside the plan that knows the truth.

    python -m benchmarks live_planner [--quick] [--save]

10⁵ sources change as Poisson processes, their rates spread as those of real histories are (a gamma of shape
0.6, two changes a day on average), their importances by a power law; each is crawled once a day on average. A
planner begins in an empty folder, is asked every hour for what is due, and told what each crawl found;
nothing else. After each day its rates in force are valued under the true rates, and what its crawls of that
day cost is summed gap by gap; both are compared with the optimum of the true rates. Uniform rates and the
best rates for sources that change alike are there to see how much there is to be learnt. The
evidence has its numbers from it.
"""

import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row
from freshopt.live.planner import Planner
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.expected_cost import expected_value
from freshopt.simulation import SimulatedCrawler
from freshopt.solvers import Uniform

OBJECTIVE = fo.problems.HarmonicStaleness(fo.Refresh.PERIODIC)
# Times a day, and changes a day of a source on average.
ASKED, MEAN = 24, 2.0


@dataclass(frozen=True)
class Setting:
    """A world and how long it is crawled."""

    sources: int
    days: int
    bandwidth: float
    seed: int = 0

    def truth(self) -> fo.Problem:
        """Return the problem with the true change rates."""
        rng = np.random.default_rng([self.seed, self.sources])
        rate = np.maximum(rng.gamma(0.6, MEAN / 0.6, self.sources), 1e-4)
        importance = 1.0 + rng.pareto(2.0, self.sources)
        names = [f"source {k}" for k in range(self.sources)]
        return fo.Problem(OBJECTIVE, fo.Sources(rate, importance, names), self.bandwidth)


def value(problem: fo.Problem, rates: Array) -> float:
    """Return the cost of rates under the true change rates."""
    assert problem.numerics is not None
    return float(np.sum(problem.numerics.cost(np.asarray(rates))))


def crawled(problem: fo.Problem, source: IntArray, moment: Array, day: int) -> float:
    """Return what the crawls of a day cost in expectation; copies that were never fetched are left out."""
    n = len(problem.sources)
    last = np.full(n, -np.inf)
    before = moment < day
    np.maximum.at(last, source[before], moment[before])
    there = np.isfinite(last)
    position = np.cumsum(there) - 1
    today = (moment >= day) & (moment < day + 1) & there[source]
    order = np.lexsort((source[today], moment[today]))
    own = fo.Schedule(
        position[source[today]][order], moment[today][order] - day, 1.0, np.ones(np.count_nonzero(there))
    )
    return expected_value(own, OBJECTIVE, problem.sources.take(there), age=day - last[there])


def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Return what a planner did, day by day."""
    problem = setting.truth()
    best = fo.solve(problem)
    crawler = SimulatedCrawler(fo.World.poisson(problem.sources, setting.seed))
    names = problem.sources.names
    assert names is not None
    position = {name: k for k, name in enumerate(names.tolist())}
    sources: list[IntArray] = []
    moments: list[Array] = []
    days: list[dict[str, Any]] = []
    began, used = time.perf_counter(), time.process_time()
    solves = 0
    with Planner(folder, bandwidth=setting.bandwidth, burst="1d") as planner:
        planner.add_many(names.tolist(), importance=problem.sources.importance)
        for hour in range(setting.days * ASKED):
            now = hour / ASKED
            visits = planner.due(now, limit=None)
            index = np.array([position[visit.source] for visit in visits], dtype=np.int64)
            found = crawler.refresh(index, np.full(len(index), now))
            planner.observed_many([visit.source for visit in visits], now, found)
            sources.append(index)
            moments.append(np.full(len(index), now))
            if (hour + 1) % ASKED == 0:
                day = hour // ASKED
                status = planner.status(now)
                rates = planner.to_frame()["rate"].to_numpy()
                every, when = np.concatenate(sources), np.concatenate(moments)
                days.append(
                    {
                        "day": day + 1,
                        "observations": status.observations,
                        "never_crawled": status.never_crawled,
                        "certified_gap": status.relative_gap,
                        "solves": status.solves - solves,
                        "rates_in_force": value(problem, rates * _feasible(problem, rates)) / best.value
                        - 1.0,
                        "crawled": crawled(problem, every, when, day) / best.value - 1.0
                        if status.never_crawled == 0
                        else None,
                        "load": len(every[when >= day]) / setting.bandwidth,
                    }
                )
                solves = status.solves
                print(days[-1], flush=True)
    alike = fo.solve(problem.with_change_rate(np.full(setting.sources, MEAN)))
    return {
        "sources": setting.sources,
        "days": setting.days,
        "bandwidth": setting.bandwidth,
        "optimum": best.value,
        "uniform": value(problem, Uniform().solve(problem).rates) / best.value - 1.0,
        "rates_alike": value(problem, alike.rates) / best.value - 1.0,
        "by_day": days,
        "megabytes": round(sum(path.stat().st_size for path in folder.iterdir()) / 1e6, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "seconds": round(time.perf_counter() - began, 1),
        "cpu_seconds": round(time.process_time() - used, 1),
    }


def _feasible(problem: fo.Problem, rates: Array) -> float:
    """Return the factor that brings rates which exceed the bandwidth back to it."""
    return float(min(1.0, problem.bandwidth / np.sum(rates)))


def world(sources: int = 100_000, days: int = 30) -> Record:
    """Return what a planner did in a world that is crawled once a day and source."""
    with tempfile.TemporaryDirectory() as folder:
        return run(Setting(sources, days, float(sources)), Path(folder))


def claims(record: Record) -> Claims:
    """Yield loads, and of a full run what was learnt and proved."""
    for day in record["by_day"]:
        yield f"day {day['day']}: load {day['load']:.2f}", day["load"] <= 1.0 + 0.1
        if not record["quick"]:
            yield f"day {day['day']}: gap {day['certified_gap']:.3f}", day["certified_gap"] <= 0.01
    last = record["by_day"][-1]["rates_in_force"]
    if not record["quick"]:
        yield (
            f"{record['sources']} sources: at last {last:.2%} above",
            last < 0.02 and record["sources"] == 10**5,
        )


def shown(record: Record) -> Iterator[Row]:
    """Yield some days, and what rates cost that learn nothing."""
    blank = {"crawls": "", "crawled": "", "gap": ""}
    for day in (day for day in record["by_day"] if day["day"] in {2, 4, 7, 14, 21, record["days"]}):
        cells = {"after": day["day"], "crawls": f"{day['observations'] / record['sources']:.1f}"}
        rates, crawled = day["rates_in_force"], f"+{100 * day['crawled']:.1f} %"
        yield cells | {"rates": rates, "crawled": crawled, "gap": f"{100 * day['certified_gap']:.2f} %"}
    yield blank | {"after": "uniform rates", "rates": record["uniform"]}
    yield blank | {"after": "best if all changed alike", "rates": record["rates_alike"]}


BENCH = Measurement(
    {"": world}, quick={"sources": 300, "days": 5}, facts=("quick",), rows={"days": shown}, claims=claims
)
