"""Measure what noisy change signals bring: exactness, speed, predicted and replayed freshness, learning.

    python benchmarks/accuracy/noisy_signals.py [--quick] [--save [ROOT]]

How far are cycles from the sums of their definition in 45 digits, at usual and at extreme recalls and
precisions? How long does it take to solve and to certify? Do thresholds and greedy picks reach the predicted
freshness in worlds whose signals are drawn, and what does a plan lose whose qualities were learnt from a log?
--save keeps benchmarks/results/noisy_signals.json and writes docs/noisy-signals.md; --quick is a small
instance of everything, for tests.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

import freshopt as fo
from freshopt.noisy_signals import (
    NoisySignalFreshness,
    NoisySignals,
    SignalGreedy,
    noisy_signals,
    replay_signals,
)
from freshopt.noisy_signals.renewal_cycle import cycle
from freshopt.numerics.arrays import Array
from freshopt.problems import BinaryFreshness

ROOT = Path(__file__).resolve().parents[2]
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
INTRODUCTION = """# Noisy change signals

Of all changes a share is announced (the recall), and of the announcements a share is true (the
precision). This page evaluates `NoisySignalFreshness`, its thresholds, `SignalGreedy` and the estimator
`NoisySignals` in simulated worlds. The mathematics is in the docstring of
`freshopt.noisy_signals.renewal_cycle`.

## From a log to thresholds

A row of the log is a crawl: how long after the crawl before, how many signals in between, and whether the
source had changed.

```python
import freshopt as fo
from freshopt.noisy_signals import NoisySignalFreshness, NoisySignals

log = {  # or a dataframe
    "source": ["page"] * 6,
    "elapsed": [1.0, 2.0, 1.0, 3.0, 1.0, 2.0],
    "signals": [0, 1, 0, 1, 1, 0],
    "changed": [0, 1, 0, 0, 1, 1],
}
model = NoisySignals().fit(log)
change_rate, recall, precision = model.for_planning()
sources = fo.Sources(change_rate, name=model.sources_)
objective = NoisySignalFreshness(recall, precision)
solution = fo.solve(fo.Problem(objective, sources, bandwidth=0.5))
thresholds = objective.thresholds(solution.rates, sources).to_frame()
```

A source is crawled when the time since its last crawl, plus `bonus` for each signal since, reaches
`threshold`.
"""
EXACTNESS = """
Length, stale time and marginal value (V) of cycles against the sums of their definition, in 45 digits;
thresholds of up to 150 signals. The largest relative error of each.
"""
SPEED = """
Seconds of the wall clock on two cores that were busy with other work, loops compiled: of solving alone, of
solving with the certificate, and of certifying the rates without a given price. "Extreme" are recalls of
which half are within a thousandth of 1 and precisions from 10⁻⁶ to 1.
"""
REPLAY = """
Sources with lognormal change rates and Pareto importances; 0.3 crawls per source and day. Share of time
that copies are fresh, weighted by importance: as predicted, as replayed in 4 to 21 worlds with signals
simulated for each (z is the difference in standard errors), with greedy picks at a constant total rate
in four worlds, and at the optimum of crawls without signals. Costs are integrated between the times of
changes and crawls. In the last row all sources but one are crawled always or never: its error is that of
one source in 21 runs. Sources share the greedy picks: their error is that of four totals.
"""
LEARNING = """
Recall 0-1, precision 0.05-1. Each source is crawled at random times, once a day on average, its signals
are counted, and `NoisySignals` estimates change rate, recall and precision; greedy picks that use the
estimates (on an edge of the parameter space, `for_planning`) get the true signals, at the same total
rate. Regret is the additional freshness of picks with the true qualities in the same worlds (0.001 is a
standard error); the last column is that of picks with the true change rates and without signals.
"""
CLOSING = "`python benchmarks/accuracy/noisy_signals.py --save` measures this anew and writes this page."


def summed(number: int, wait: float, recall: float, precision: float) -> tuple[float, float, float]:
    """Return length, stale time and worth of a cycle by the sums of the definition, in 45 digits."""
    with mpmath.workdps(45):
        told, p = mpmath.mpf(recall), mpmath.mpf(precision)
        a, g = 1 - told, told / p
        v, b = g - told, -mpmath.log(1 - p) / a
        length = fresh = mpmath.mpf(0)
        for k in range(number + 1):
            y = (number - k) * b + mpmath.mpf(wait)
            length += mpmath.gammainc(k + 1, 0, g * y, regularized=True) / g
            more = v**k / (1 + v) ** (k + 1) * mpmath.gammainc(k + 1, 0, (1 + v) * y, regularized=True)
            fresh += more
            if more < mpmath.mpf(10) ** -35:
                break
        at_end = mpmath.exp(-a * (number * b + mpmath.mpf(wait)))
        return float(length), float(length - fresh), float(fresh - at_end * length)


def exactness(many: int) -> list[dict[str, Any]]:
    """Return the largest relative errors of cycles in each family of qualities."""
    rows = []
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
            found = cycle(*(np.array([float(x)]) for x in (number, wait, recall, precision)))
            exact = summed(number, wait, recall, precision)
            off = [abs(float(x[0]) / y - 1.0) for x, y in zip(found, exact, strict=False)]
            worst = np.maximum(worst, off)
        rows.append(
            {
                "family": family,
                "cycles": many,
                **dict(zip(("length", "stale", "worth"), worst.tolist(), strict=True)),
            }
        )
    return rows


def speed(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """Return the seconds of solving and certifying."""
    rows = []
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
            began = time.perf_counter()
            alone = fo.solve(problem, certify=False)
            middle = time.perf_counter()
            solution = fo.solve(problem)
            later = time.perf_counter()
            proof = fo.certify(problem, solution.rates)
            ended = time.perf_counter()
            rows.append(
                {
                    "qualities": qualities,
                    "sources": n,
                    "evaluations": alone.iterations,
                    "solve": round(middle - began, 3),
                    "solve_and_certify": round(later - middle, 3),
                    "certify_without_price": round(ended - later, 3),
                    "relative_gap": max(
                        proof.relative_gap, solution.certificate.relative_gap if solution.certificate else 1.0
                    ),
                }
            )
    return rows


def sources_of(n: int, seed: int = 0) -> fo.Sources:
    """Return n sources with lognormal change rates and Pareto importances."""
    random = np.random.default_rng(seed)
    return fo.Sources(random.lognormal(0.0, 1.0, n), random.pareto(1.5, n) + 1.0)


def replayed(n: int, horizon: float) -> list[dict[str, Any]]:
    """Return predicted and replayed freshness of thresholds and of greedy picks."""
    rows, sources = [], sources_of(n)
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
        rows.append(
            {
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
        )
    return rows


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


def learning(n: int, lengths: tuple[int, ...], horizon: float) -> list[dict[str, Any]]:
    """Return what plans lose whose qualities were learnt."""
    sources, random = sources_of(n), np.random.default_rng(3)
    recall, precision = ANY(random, n), USUAL(random, n)
    world = fo.World.poisson(sources, seed=5)

    def achieved(change_rate: Array, told: Array, true: Array) -> float:
        believed = fo.Sources(change_rate, sources.importance)
        greedy = SignalGreedy(fo.Problem(NoisySignalFreshness(told, true), believed, SHARE * n))
        found = replay_signals(greedy, world, recall, precision, horizon, skip=0.2 * horizon, runs=4)
        return found.costs["binary"].mean

    best = achieved(sources.change_rate, recall, precision)
    deaf = achieved(sources.change_rate, np.zeros(n), np.ones(n))
    rows = []
    for crawls in lengths:
        model = NoisySignals().fit(
            crawl_log(fo.World.poisson(sources, seed=77), recall, precision, crawls, 1)
        )
        fresh = achieved(*model.for_planning())
        ok = model.flag_ == "ok"
        rows.append(
            {
                "crawls": crawls,
                "estimable": int(np.count_nonzero(ok)),
                "sources": n,
                "recall_error": float(np.median(np.abs(model.recall_ - recall)[ok])),
                "precision_error": float(np.median(np.abs(model.precision_ - precision)[ok])),
                "fresh": fresh,
                "best": best,
                "deaf": deaf,
            }
        )
    return rows


def page(record: dict[str, Any]) -> str:
    """Return docs/noisy-signals.md as the measurement gives it."""
    parts = [INTRODUCTION.rstrip(), "## Predicted and replayed", REPLAY.strip()]
    lines = [
        "| signals | predicted | thresholds | z | greedy | without signals |",
        "|---|---|---|---|---|---|",
    ]
    for each in record["replayed"]:
        lines.append(
            f"| {each['signals']} | {each['predicted']:.4f} | {each['thresholds']:.4f} ± "
            f"{each['thresholds_error']:.1g} | {each['z']:+.1f} | {each['greedy']:.4f} ± "
            f"{each['greedy_error']:.1g} | {each['no_signals']:.4f} |"
        )
    parts += ["\n".join(lines), "## Learnt from a log", LEARNING.strip()]
    lines = [
        "| crawls of each | estimates not on an edge | median error of recall | of precision | fresh | "
        "regret | without signals |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in record["learning"]:
        lines.append(
            f"| {each['crawls']} | {each['estimable']} of {each['sources']} | {each['recall_error']:.3f} | "
            f"{each['precision_error']:.3f} | {each['fresh']:.4f} | {each['best'] - each['fresh']:.4f} | "
            f"{each['deaf']:.4f} |"
        )
    parts += ["\n".join(lines), "## Exactness", EXACTNESS.strip()]
    lines = ["| | cycles | length | stale time | marginal value |", "|---|---|---|---|---|"]
    for each in record["exactness"]:
        lines.append(
            f"| {each['family']} | {each['cycles']} | {each['length']:.0e} | {each['stale']:.0e} | "
            f"{each['worth']:.0e} |"
        )
    parts += ["\n".join(lines), "## Speed", SPEED.strip()]
    lines = [
        "| qualities | sources | solve | and certify | certify without a price | relative duality gap |",
        "|---|---|---|---|---|---|",
    ]
    for each in record["speed"]:
        lines.append(
            f"| {each['qualities']} | {each['sources']:,} | {each['solve']:.2f} | "
            f"{each['solve_and_certify']:.2f} | {each['certify_without_price']:.2f} | "
            f"{each['relative_gap']:.0e} |"
        )
    return "\n\n".join([*parts, "\n".join(lines), CLOSING]) + "\n"


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small instances")
    parser.add_argument("--save", nargs="?", type=Path, const=ROOT, metavar="ROOT", help="keep the results")
    options = parser.parse_args()
    small = options.quick
    record: dict[str, Any] = {
        "quick": small,
        "exactness": exactness(4 if small else 100),
        "speed": speed((300,) if small else (1000, 10_000, 100_000)),
        "replayed": replayed(40 if small else 300, 40.0 if small else 200.0),
        "learning": learning(
            30 if small else 300, (30,) if small else (20, 100, 500), 40.0 if small else 200.0
        ),
    }
    print(page(record))
    if options.save is not None:
        saved = options.save / "benchmarks" / "results" / "noisy_signals.json"
        saved.parent.mkdir(parents=True, exist_ok=True)
        (options.save / "docs").mkdir(exist_ok=True)
        saved.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (options.save / "docs" / "noisy-signals.md").write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
