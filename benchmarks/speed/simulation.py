"""How fast sources can be polled: simulated crawlers, and costs integrated, per second on one core.

    python benchmarks/speed/simulation.py [--save]

Each row is a million polls of random sources at random times, in one call, best of three; "one at a time" are
calls with a single poll. Ratios are to a pass np.add(w, d, out=r) over a million numbers in the same run. The
changes that pass between polls are drawn on the way. --save writes benchmarks/results/simulation.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.simulation import SimulatedCrawler, missed_costs

RESULTS = Path(__file__).parents[1] / "results" / "simulation.json"
POLLS, SINGLY, REPEATS = 1_000_000, 20_000, 3


def best_of(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the shortest of some times."""
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def measure(n: int, horizon: float) -> list[dict[str, Any]]:
    """Time a world of n sources over a horizon."""
    rng = np.random.default_rng(0)
    world = fo.World.poisson(fo.Sources(rng.uniform(0.1, 3.0, n)), seed=3)
    source, at = rng.integers(0, n, POLLS), np.sort(rng.uniform(0.0, horizon, POLLS))
    offsets, events = world.events(0.0, horizon)
    history = {"source": np.repeat(np.arange(n), np.diff(offsets)), "time": events}
    recorded = fo.World.from_events(history, names=np.arange(n), horizon=horizon)
    one, other, result = rng.random(POLLS), rng.random(POLLS), np.empty(POLLS)
    add = best_of(lambda: np.add(one, other, out=result), 20)

    def batch(of: fo.World) -> float:
        crawlers = [SimulatedCrawler(of) for _ in range(REPEATS)]
        return best_of(lambda: crawlers.pop().refresh(source, at))

    def singly() -> None:
        crawler = SimulatedCrawler(world)
        for i in range(SINGLY):
            crawler.refresh(source[i : i + 1], at[i : i + 1])

    seconds = {
        "Poisson, one batch": (batch(world), POLLS),
        "recorded, one batch": (batch(recorded), POLLS),
        "Poisson, one at a time": (best_of(singly, 1), SINGLY),
        "costs between refreshes integrated": (
            best_of(lambda: missed_costs(world, source, at, horizon)),
            POLLS,
        ),
    }
    return [
        {
            "work": work,
            "sources": n,
            "changes_per_poll": round(len(events) / POLLS, 2),
            "polls_per_second": float(f"{polls / spent:.3g}"),
            "add_passes_per_million": float(f"{spent / polls * POLLS / add:.3g}"),
        }
        for work, (spent, polls) in seconds.items()
    ]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    measure(1000, 1.0)  # compiles
    rows = [row for n, horizon in ((1000, 100.0), (1_000_000, 1.0)) for row in measure(n, horizon)]
    for row in rows:
        print(
            f"{row['work']:36} n={row['sources']:<9,} {row['changes_per_poll']:5} changes/poll "
            f"{row['polls_per_second'] / 1e6:8.3g} M polls/s {row['add_passes_per_million']:8.4g} ADD"
        )
    if options.save:
        record = {"python": platform.python_version(), "numpy": np.__version__, "rows": rows}
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
