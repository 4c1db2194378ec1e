"""How fast sources can be polled: simulated crawlers, and costs integrated, per second on one core.

    python -m benchmarks simulation [--save]

Each row is a million polls of random sources at random times, in one call, best of three; "one at a time" are
calls with a single poll. Ratios are to a pass np.add(w, d, out=r) over a million numbers in the same run. The
changes that pass between polls are drawn on the way.
"""

from collections.abc import Iterator

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, best_of
from freshopt.simulation import SimulatedCrawler, missed_costs

POLLS, SINGLY, REPEATS = 1_000_000, 20_000, 3
WORLDS = ((1000, 100.0), (1_000_000, 1.0))


def measure(n: int, horizon: float) -> list[Row]:
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
        return best_of(lambda: crawlers.pop().refresh(source, at), REPEATS)

    def singly() -> None:
        crawler = SimulatedCrawler(world)
        for i in range(SINGLY):
            crawler.refresh(source[i : i + 1], at[i : i + 1])

    seconds = {
        "Poisson, one batch": (batch(world), POLLS),
        "recorded, one batch": (batch(recorded), POLLS),
        "Poisson, one at a time": (best_of(singly, 1), SINGLY),
        "costs between refreshes integrated": (
            best_of(lambda: missed_costs(world, source, at, horizon), REPEATS),
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


def rows(worlds: int = len(WORLDS)) -> Iterator[Row]:
    """Yield the works of each world, after one that compiles."""
    measure(1000, 1.0)
    for n, horizon in WORLDS[:worlds]:
        yield from measure(n, horizon)


def claims(record: Record) -> Claims:
    """Yield that a batch is faster than polls one at a time."""
    speed = {(row["work"], row["sources"]): row["polls_per_second"] for row in record["rows"]}
    for n in {n for _, n in speed}:
        batch, single = speed["Poisson, one batch", n], speed["Poisson, one at a time", n]
        yield (
            f"{n} sources: {batch:.3g} polls a second in a batch, {single:.3g} one at a time",
            batch > single,
        )


BENCH = Measurement({"rows": rows}, quick={"worlds": 1}, facts=("python", "numpy"), claims=claims)
