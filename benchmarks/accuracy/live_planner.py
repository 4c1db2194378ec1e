"""A live planner in a simulated world: what it learns in a month, beside the plan that knows the truth.

    python benchmarks/accuracy/live_planner.py [--quick] [--save [ROOT]]

10⁵ sources change as Poisson processes, their rates spread as those of real histories are (a gamma of shape
0.6, two changes a day on average), their importances by a power law; each is crawled once a day on average. A
planner begins in an empty folder, is asked every hour for what is due, and told what each crawl found;
nothing else. After each day its rates in force are valued under the true rates, and what its crawls of that
day cost is summed gap by gap; both are compared with the optimum of the true rates. Uniform rates and the
best rates for sources that change alike are there to see how much there is to be learnt. --save keeps
benchmarks/results/live_planner.json, from which docs/live-planner.md has its numbers; --quick is for tests.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.live.planner import Planner
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.expected_cost import expected_value
from freshopt.simulation import SimulatedCrawler
from freshopt.solvers import Uniform

ROOT = Path(__file__).resolve().parents[2]
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
    names = problem.sources.name
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


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few sources, few days")
    parser.add_argument("--save", nargs="?", type=Path, const=ROOT, metavar="ROOT", help="keep the results")
    options = parser.parse_args()
    setting = Setting(300, 5, 300.0) if options.quick else Setting(100_000, 30, 100_000.0)
    with tempfile.TemporaryDirectory() as folder:
        record = {"quick": options.quick, **run(setting, Path(folder))}
    print({key: each for key, each in record.items() if key != "by_day"})
    if options.save is not None:
        saved = options.save / "benchmarks" / "results" / "live_planner.json"
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
