"""Measure what noisy change signals bring: exactness, speed, predicted and replayed freshness, learning.

    python -m benchmarks noisy_signals [--quick] [--save [ROOT]]

How far are cycles from the sums of their definition in 45 digits, at usual and at extreme recalls and
precisions? How long does it take to solve and to certify? Do thresholds and greedy picks reach the predicted
freshness in worlds whose signals are drawn, and what does a plan lose whose qualities were learnt from a log?
--save keeps benchmarks/results/noisy_signals.json and writes docs/evidence/benchmarks.md; --quick is a small
instance of everything, for tests.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, clocked
from freshopt.noisy_signals import (
    NoisySignalFreshness,
    NoisySignals,
    SignalGreedy,
    noisy_signals,
    replay_signals,
)
from freshopt.numerics.arrays import Array
from freshopt.problems import BinaryFreshness
from tests.ground_truth.cost_truth import cycle_by_sums
from tests.noisy_signals.cycles import cycle_at

Draw = Callable[[np.random.Generator, int], Array]
NEAR_ZERO: Draw = lambda random, n: 10.0 ** random.uniform(-11, 0, n)  # noqa: E731
NEAR_ONE: Draw = lambda random, n: 1.0 - 10.0 ** random.uniform(-11, 0, n)  # noqa: E731
ANY: Draw = lambda random, n: random.uniform(0.0, 1.0, n)  # noqa: E731
USUAL: Draw = lambda random, n: random.uniform(0.05, 1.0, n)  # noqa: E731
FAMILIES: dict[str, tuple[Draw, Draw]] = {
    "usual": (ANY, USUAL),
    "few signals are true": (ANY, NEAR_ZERO),
    "nearly all changes are announced": (NEAR_ONE, USUAL),
    "nearly all signals are true": (ANY, NEAR_ONE),
    "hardly any signal, hardly any true": (NEAR_ZERO, NEAR_ZERO),
    "nearly perfect signals": (NEAR_ONE, NEAR_ONE),
}
KINDS: dict[str, tuple[Draw, Draw]] = {
    "recall 0-1, precision 0.05-1": (ANY, USUAL),
    "no signals": (lambda _, n: np.zeros(n), lambda _, n: np.ones(n)),
    "recall 0.7, precision 0.01": (lambda _, n: np.full(n, 0.7), lambda _, n: np.full(n, 0.01)),
    "recall 0.7, precision 0.5": (lambda _, n: np.full(n, 0.7), lambda _, n: np.full(n, 0.5)),
    "recall 0.7, precision 1": (lambda _, n: np.full(n, 0.7), lambda _, n: np.ones(n)),
    "recall 1, precision 0.5": (lambda _, n: np.ones(n), lambda _, n: np.full(n, 0.5)),
    "all changes, nothing else": (lambda _, n: np.ones(n), lambda _, n: np.ones(n)),
}
SHARE = 0.3  # crawls per source and day


def exactness(many: int = 100) -> Iterator[Row]:
    """Yield the largest relative errors of cycles in each family of qualities."""
    for family, (recalls, precisions) in FAMILIES.items():
        random = np.random.default_rng(17)
        worst = np.zeros(3)
        told, true = recalls(random, many), precisions(random, many)
        for recall, precision in zip(told.tolist(), true.tolist(), strict=True):
            if not (0.0 < recall < 1.0 and 0.0 < precision < 1.0):
                continue
            loss, a = -math.log1p(-precision), 1.0 - recall
            number = int(random.choice([0, 0, 1, 2, 3, 5, 8, 13, 20, 30, 60, 150]))
            wait = loss / a * float(random.choice([random.random(), 10.0 ** random.uniform(-8, 0)]))
            if number * loss + a * wait > 40.0:
                number, wait = 0, min(wait, 40.0 / a)
            found = cycle_at(number, wait, recall, precision)
            exact = cycle_by_sums(number, wait, recall, precision)
            off = [abs(x / y - 1.0) for x, y in zip(found, exact, strict=False)]
            worst = np.maximum(worst, off)
        length, stale, worth = worst.tolist()
        yield {"family": family, "cycles": many, "length": length, "stale": stale, "marginal": worth}


def speed(sizes: tuple[int, ...] = (1000, 10_000, 100_000)) -> Iterator[Row]:
    """Yield the seconds of solving and certifying."""
    for qualities in ("usual", "extreme"):
        for n in sizes:
            random = np.random.default_rng(2)
            sources = fo.Sources(random.lognormal(0.0, 1.0, n), random.lognormal(0.0, 1.0, n))
            recall, precision = ANY(random, n), USUAL(random, n)
            if qualities == "extreme":
                recall = np.where(random.random(n) < 0.5, 1.0 - 1e-3 * recall, recall)
                precision = 10.0 ** random.uniform(-6, 0, n)
            problem = fo.Problem(
                NoisySignalFreshness(recall, precision), sources, 0.3 * float(np.sum(sources.change_rate))
            )
            fo.solve(problem)  # the loops are loaded
            alone, solve, _ = clocked(lambda: fo.solve(problem, certify=False))  # noqa: B023 - called here
            solution, certified, _ = clocked(lambda: fo.solve(problem))  # noqa: B023 - called here
            proof, certify, _ = clocked(lambda: fo.certify(problem, solution.rates))  # noqa: B023
            own = solution.certificate.relative_gap if solution.certificate else 1.0
            yield {
                "qualities": qualities,
                "sources": n,
                "evaluations": alone.iterations,
                "solve": round(solve, 3),
                "solve_and_certify": round(certified, 3),
                "certify_without_price": round(certify, 3),
                "relative_gap": max(proof.relative_gap, own),
            }


def sources_of(n: int, seed: int = 0) -> fo.Sources:
    """Return n sources with lognormal change rates and Pareto importances."""
    random = np.random.default_rng(seed)
    return fo.Sources(random.lognormal(0.0, 1.0, n), random.pareto(1.5, n) + 1.0)


def replayed(n: int = 300, horizon: float = 200.0) -> Iterator[Row]:
    """Yield predicted and replayed freshness of thresholds and of greedy picks."""
    sources = sources_of(n)
    whole, bandwidth = float(np.sum(sources.importance)), SHARE * n
    clock = fo.solve(fo.Problem(BinaryFreshness(fo.Refresh.PERIODIC), sources, bandwidth)).value / whole
    for kind, (recalls, precisions) in KINDS.items():
        random = np.random.default_rng(3)
        quality = recalls(random, n), precisions(random, n)
        objective = NoisySignalFreshness(*quality)
        problem = fo.Problem(objective, sources, bandwidth)
        solution, world = fo.solve(problem), fo.World.poisson(sources, seed=5)
        rule = objective.thresholds(solution.rates, sources)
        found = replay_signals(rule, world, *quality, horizon, skip=0.2 * horizon)
        picked = replay_signals(SignalGreedy(problem), world, *quality, horizon, skip=0.2 * horizon, runs=4)
        fresh, greedy = found.costs["binary"], picked.costs["binary"]
        yield {
            "signals": kind,
            "predicted": solution.value / whole,
            "thresholds": fresh.mean,
            "thresholds_error": fresh.error / whole,
            "z": round(fresh.z(solution.value), 2),
            "crawls": found.refreshes / (0.8 * horizon * bandwidth),
            "greedy": greedy.mean,
            "greedy_error": greedy.error / whole,
            "no_signals": clock,
        }


def crawl_log(world: fo.World, recall: Array, precision: Array, crawls: int, seed: int) -> dict[str, Any]:
    """Return the log of a crawler that comes at random times, once a day on average, and counts signals."""
    n, random = len(world), np.random.default_rng(seed)
    elapsed = random.exponential(1.0, (n, crawls))
    moments = np.cumsum(elapsed, axis=1)
    end = float(moments.max())
    heard, when = noisy_signals(world, recall, precision, end, seed)
    offsets, changes = world.events(0.0, end)
    columns: dict[str, Any] = {"source": np.repeat(np.arange(n), crawls), "elapsed": elapsed.ravel()}
    counts = np.empty((2, n, crawls))
    order = np.argsort(heard, kind="stable")
    places = np.searchsorted(heard[order], np.arange(n + 1))
    for k in range(n):
        for row, events in enumerate(
            (when[order][places[k] : places[k + 1]], changes[offsets[k] : offsets[k + 1]])
        ):
            counts[row, k] = np.diff(np.searchsorted(events, moments[k], side="right"), prepend=0)
    return columns | {"signals": counts[0].ravel(), "changed": (counts[1].ravel() > 0).astype(np.float64)}


def learning(
    learnt: int = 300, lengths: tuple[int, ...] = (20, 100, 500), horizon: float = 200.0
) -> Iterator[Row]:
    """Yield what plans lose whose qualities were learnt."""
    n, sources, random = learnt, sources_of(learnt), np.random.default_rng(3)
    recall, precision = ANY(random, n), USUAL(random, n)
    world = fo.World.poisson(sources, seed=5)

    def achieved(change_rate: Array, told: Array, true: Array) -> float:
        believed = fo.Sources(change_rate, sources.importance)
        greedy = SignalGreedy(fo.Problem(NoisySignalFreshness(told, true), believed, SHARE * n))
        found = replay_signals(greedy, world, recall, precision, horizon, skip=0.2 * horizon, runs=4)
        return found.costs["binary"].mean

    best = achieved(sources.change_rate, recall, precision)
    deaf = achieved(sources.change_rate, np.zeros(n), np.ones(n))
    for crawls in lengths:
        model = NoisySignals().fit(
            crawl_log(fo.World.poisson(sources, seed=77), recall, precision, crawls, 1)
        )
        fresh = achieved(*model.for_planning())
        ok = model.flag_ == "ok"
        yield {
            "crawls": crawls,
            "estimable": int(np.count_nonzero(ok)),
            "sources": n,
            "recall_error": float(np.median(np.abs(model.recall_ - recall)[ok])),
            "precision_error": float(np.median(np.abs(model.precision_ - precision)[ok])),
            "fresh": fresh,
            "best": best,
            "deaf": deaf,
        }


def claims(record: Record) -> Claims:
    """Yield exactness, proofs and predictions, and of a full run what the page says."""
    yield "all families", [row["family"] for row in record["exactness"]] == list(FAMILIES)
    for row in record["exactness"]:
        worst = max(row["length"], row["stale"], row["marginal"])
        yield f"{row['family']}: off by {worst:.0e}", worst < 1e-13
    yield "all signals", [row["signals"] for row in record["replayed"]] == list(KINDS)
    for row in record["replayed"]:
        yield f"{row['signals']}: z {row['z']}", abs(row["z"]) < 4.0 and row["thresholds_error"] > 0.0
        if not record["quick"]:
            picked = row["greedy"] / row["predicted"] - 1.0
            yield f"{row['signals']}: {row['crawls']:.3f} of the crawls", abs(row["crawls"] - 1.0) < 0.02
            yield f"{row['signals']}: greedy picks {picked:.2%} above", abs(picked) < 0.01
            yield f"{row['signals']}: signals help", row["predicted"] > row["no_signals"] - 1e-9
    for row in record["speed"]:
        yield f"{row['sources']:,} sources: gap {row['relative_gap']:.0e}", row["relative_gap"] < 1e-9
    missing = [row["best"] - row["fresh"] for row in record["learning"]]
    yield f"more crawls, less is missing: {missing}", missing == sorted(missing, reverse=True)
    if not record["quick"]:
        yield "up to 100,000 sources", max(row["sources"] for row in record["speed"]) == 100_000


BENCH = Measurement(
    {"exactness": exactness, "speed": speed, "replayed": replayed, "learning": learning},
    quick={"many": 4, "sizes": (300,), "n": 40, "horizon": 40.0, "learnt": 30, "lengths": (30,)},
    facts=("quick",),
    rows={
        "learning": lambda record: (
            row | {"regret": row["best"] - row["fresh"]} for row in record["learning"]
        )
    },
    claims=claims,
)
