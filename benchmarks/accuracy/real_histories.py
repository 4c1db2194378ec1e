"""How far learners get from the best static schedule on change histories that are no Poisson processes.

    python -m benchmarks real_histories --data FOLDER [--runs 5] [--save]

FOLDER is as `histories.py` has it. The second half of each history is the world: sources that were there at
its middle, one refresh per source and week on average, importances Pareto(1.5), drawn anew in each run. A
learner knows nothing at first but importances and bandwidth. Its visits are held against the true changes:
binary freshness, weighted, averaged over the half.

The best static schedule knows the changes. Under Poisson refreshes of rate ρ a source is stale for
(1 − e^{−ρg})/ρ of a gap g between changes, in expectation over the visits; under equal gaps with a random
phase for g − ρg²/2 while ρg < 1, and for 1/(2ρ) beyond. Both are convex in ρ, so that one price decides all
rates: nobody who keeps to fixed rates gets further on average.

The share of the way is (learner − equal rates)/(best − equal rates), all three under the learner's own
discipline. --save keeps benchmarks/results/real_histories.json and writes its tables
of docs/evidence/benchmarks.md from it; --page writes the tables alone.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

import freshopt as fo
from benchmarks.accuracy.histories import second_half
from benchmarks.harness import Claims, Measurement, Record, Row
from freshopt.estimators import LawOfLargeNumbers, MaximumLikelihood, MomentMatching
from freshopt.modelling.objective import Refresh
from freshopt.online import (
    AdaptiveRates,
    AsyncMirrorSync,
    ExploreThenCommit,
    LambdaLearnAndCrawl,
    PhasedEpsilonGreedy,
)
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from freshopt.simulation import SimulatedCrawler, missed_costs

HISTORIES = ("scoop_packages", "eol_releases")
POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC
EPOCH = 28.0  # days; every source is visited four times in one, on average
# Smoothed as in the papers, and bounded: pages that hardly change are not abandoned.
LIKELY, MATCHING = MaximumLikelihood(smoothing=0.5), MomentMatching((1e-3, 1e3))
LEARNERS: dict[str, tuple[Any, fo.Objective]] = {
    "ExploreThenCommit, 26 sweeps": (ExploreThenCommit(182.0, estimator=MATCHING), BinaryFreshness(PERIODIC)),
    "PhasedEpsilonGreedy, ε = 0.1": (PhasedEpsilonGreedy(0.1, EPOCH, MATCHING), BinaryFreshness(PERIODIC)),
    "AdaptiveRates, maximum likelihood": (
        AdaptiveRates(EPOCH, LIKELY),
        BinaryFreshness(PERIODIC),
    ),
    "LambdaLearnAndCrawl, binary, floor 0.3": (
        LambdaLearnAndCrawl(estimator=LIKELY, epoch=EPOCH, floor=0.3),
        BinaryFreshness(PERIODIC),
    ),
    "LambdaLearnAndCrawl, harmonic at equal gaps": (
        LambdaLearnAndCrawl(estimator=LIKELY, epoch=EPOCH),
        HarmonicStaleness(PERIODIC),
    ),
    "AsyncMirrorSync, η = 3": (AsyncMirrorSync(3.0, EPOCH), BinaryFreshness(PERIODIC)),
    "AdaptiveRates, law of large numbers": (
        AdaptiveRates(EPOCH, LawOfLargeNumbers(floor=1e-3)),
        BinaryFreshness(Refresh.POISSON),
    ),
    "LambdaLearnAndCrawl, binary, floor 0.3 (Poisson)": (
        LambdaLearnAndCrawl(estimator=LIKELY, epoch=EPOCH, floor=0.3),
        BinaryFreshness(Refresh.POISSON),
    ),
    "LambdaLearnAndCrawl, harmonic (Poisson)": (
        LambdaLearnAndCrawl(estimator=LIKELY, epoch=EPOCH),
        HarmonicStaleness(Refresh.POISSON),
    ),
}


class Recorder:
    """A crawler that remembers where it was sent."""

    def __init__(self, crawler: SimulatedCrawler) -> None:
        self.crawler, self.clock = crawler, crawler.clock
        self.source: list[np.ndarray] = []
        self.time: list[np.ndarray] = []

    def refresh(self, source: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Refresh, and write it down."""
        self.source.append(source)
        self.time.append(time)
        return self.crawler.refresh(source, time)

    def probe(self, source: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Probe."""
        return self.crawler.probe(source, time)


def world_of(folder: Path, name: str) -> tuple[fo.World, np.ndarray]:
    """Return the world of a history's second half, from time 0, and change rates counted in the first."""
    half = second_half(folder, name)
    later = half.changes.filter(pl.col("time") > half.middle).with_columns(pl.col("time") - half.middle)
    # Whole epochs, of which some learners have only such.
    whole = EPOCH * ((half.end - half.middle) // EPOCH)
    names = half.sources["source"].to_numpy()
    return fo.World.from_events(later, names=names, start=0.0, horizon=whole), half.smoothed


def gaps(world: fo.World) -> tuple[np.ndarray, np.ndarray]:
    """Return source and length of each stretch from a change to the next, or to the end."""
    start, end = float(np.min(world.start)), world.horizon
    offsets, times = world.events(start, end)
    source = np.repeat(np.arange(len(world)), np.diff(offsets))
    following = np.append(times[1:], end)
    following[offsets[1:][np.diff(offsets) > 0] - 1] = end
    return source, following - times


def stale_poisson(rate: np.ndarray, gap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return expected stale time in each gap, and its decrease per unit of rate."""
    x = rate * gap
    return -np.expm1(-x) / rate, (-np.expm1(-x) - x * np.exp(-x)) / rate**2


def stale_periodic(rate: np.ndarray, gap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the same under equal gaps with a random phase."""
    short = rate * gap < 1.0
    return np.where(short, gap - rate * gap**2 / 2, 0.5 / rate), np.where(short, gap**2, rate**-2.0) / 2


Stale = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def best_static(world: fo.World, weight: np.ndarray, bandwidth: float, stale: Stale) -> np.ndarray:
    """Return the static rates that are best for the true changes: one price, two nested bisections."""
    source, gap = gaps(world)
    n = len(weight)
    low, high = np.full(n, np.log(1e-9)), np.full(n, np.log(1e3))

    def rates(price: float) -> np.ndarray:
        below, above = low.copy(), high.copy()
        for _ in range(45):
            middle = (below + above) / 2
            _, each = stale(np.exp(middle)[source], gap)
            worth = weight * np.bincount(source, weights=each, minlength=n)
            below, above = np.where(worth > price, middle, below), np.where(worth > price, above, middle)
        return np.exp(below)

    least, most = np.log(1e-12), np.log(1e12)
    for _ in range(45):
        middle = (least + most) / 2
        least, most = (middle, most) if rates(float(np.exp(middle))).sum() > bandwidth else (least, middle)
    found = rates(float(np.exp(most)))
    return found * (bandwidth / found.sum())


def expected_freshness(world: fo.World, weight: np.ndarray, rates: np.ndarray, stale: Stale) -> float:
    """Return the weighted share of fresh time of static rates, in expectation over the visits."""
    source, gap = gaps(world)
    span = world.horizon - float(np.min(world.start))
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(rates[source] > 0.0, stale(rates[source], gap)[0], gap)
    return 1.0 - float(weight[source] @ each) / (span * float(weight.sum()))


def measure(folder: Path, name: str, runs: int) -> list[dict[str, Any]]:
    """Return one row per schedule and learner of a history."""
    world, counted = world_of(folder, name)
    n, begin, end = len(world), float(np.min(world.start)), world.horizon
    bandwidth = n / 7.0
    forms = {"Poisson": (POISSON, stale_poisson), "equal gaps": (PERIODIC, stale_periodic)}
    found: dict[tuple[str, str], list[float]] = {}
    seconds: dict[tuple[str, str], float] = {}
    for run in range(runs):
        weight = np.random.default_rng([run, 7]).pareto(1.5, n) + 1.0
        for kind, (refresh, stale) in forms.items():
            static = {
                "equal rates": np.full(n, bandwidth / n),
                "optimal for rates counted in the first half": fo.solve(
                    fo.Problem(BinaryFreshness(refresh), fo.Sources(counted, weight), bandwidth)
                ).rates,
                "best static in hindsight": best_static(world, weight, bandwidth, stale),
            }
            for policy, rates in static.items():
                fresh = expected_freshness(world, weight, rates, stale)
                found.setdefault((policy, kind), []).append(fresh)
        for policy, (learner, objective) in LEARNERS.items():
            started = time.process_time()
            kind = "Poisson" if objective.refresh is POISSON else "equal gaps"
            recorder = Recorder(SimulatedCrawler(world))
            told = fo.Problem(objective, told_to(learner, weight, bandwidth), bandwidth)
            learner.run(recorder, told, end - begin)
            visits = np.concatenate(recorder.source), np.concatenate(recorder.time)
            cost = missed_costs(world, *visits, end, begin=begin)
            fresh = 1.0 - float(weight @ cost.stale) / ((end - begin) * float(weight.sum()))
            found.setdefault((policy, kind), []).append(fresh)
            seconds[policy, kind] = seconds.get((policy, kind), 0.0) + time.process_time() - started
    rows = []
    for (policy, kind), values in found.items():
        fresh = np.array(values)
        uniform, best = (np.array(found[each, kind]) for each in ("equal rates", "best static in hindsight"))
        way = (fresh - uniform) / (best - uniform)
        rows.append(
            {
                "history": name,
                "sources": n,
                "days": round(end - begin, 1),
                "refresh": kind,
                "policy": policy,
                "learns": policy in LEARNERS,
                "runs": runs,
                "freshness": interval(fresh),
                "share_of_the_way": interval(way),
                "seconds": round(seconds.get((policy, kind), 0.0) / runs, 2),
            }
        )
    return rows


def told_to(learner: object, weight: np.ndarray, bandwidth: float) -> fo.Sources:
    """Return what a learner knows: importances, a guess of one change a day, and bounds if it needs them."""
    if not isinstance(learner, AsyncMirrorSync):
        return fo.Sources(1.0, weight)
    mean = bandwidth / len(weight)
    return fo.Sources(1.0, weight / weight.sum(), min_rate=0.2 * mean, max_rate=20.0 * mean)


def interval(values: np.ndarray) -> list[float]:
    """Return the mean and half the width of its 95 % interval."""
    half = stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(len(values))
    return [round(float(np.mean(values)), 5), round(float(half), 5)]


def rows(data: Path | None = None, runs: int = 5) -> Iterator[Row]:
    """Yield the schedules and learners on each history."""
    if data is None or runs < 2:
        raise SystemExit("--data is needed, and two runs at least")
    for name in HISTORIES:
        yield from measure(data, name, runs)


def claims(record: Record) -> Claims:
    """Yield that nobody gets further than the best static rates, and that all learners are there."""
    for row in record["rows"]:
        share = row["share_of_the_way"][0]
        yield f"{row['history']}, {row['policy']}: {share} of the way", share <= 1.0
        yield f"{row['runs']} runs", row["runs"] == record["runs"]
    yield "all learners", {row["policy"] for row in record["rows"] if row["learns"]} == set(LEARNERS)


def shown(name: str) -> Callable[[Record], Iterator[Row]]:
    """Return the rows of a history's table; what is fixed has no interval."""

    def of(record: Record) -> Iterator[Row]:
        mine = (row for row in record["rows"] if row["history"] == name)
        for row in sorted(mine, key=lambda row: (row["refresh"], row["learns"], row["freshness"][0])):
            way, wide = row["share_of_the_way"]
            fixed = not row["learns"] and way in (0.0, 1.0)
            part = f"{round(100.0 * way) + 0} %" + ("" if fixed else f" ± {round(100.0 * wide)}")
            yield row | {"part": part}

    return of


BENCH = Measurement(
    {"rows": rows},
    facts=("runs",),
    notes={"refreshes_per_source_and_day": 1 / 7},
    rows={name: shown(name) for name in HISTORIES},
    claims=claims,
)
