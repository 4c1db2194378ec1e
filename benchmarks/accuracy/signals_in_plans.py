"""Plans from a log and a table of signals: regret beside an oracle, and what signals save on real histories.

    python -m benchmarks signals_in_plans [PART ...] [--data FOLDER] [--quick] [--save]

Simulated: 300 Poisson sources, gamma distributed rates, crawled 20 times a week apart on average; a share
of their changes is announced (recall), a share of the announcements is true (precision). `fo.plan` learns
from log and signals; an oracle knows rates, recall and precision; a third plan hears nothing. All are
replayed in the same worlds with the same signals, at one crawl a source and week, and at one in five weeks.

Histories: signals are made of their dates, thinned to a recall of 0.6 and mixed with false ones to a
precision of 0.6, an hour late. The plan is made from crawls and signals of the first half, and replayed in
the second: "saving" is the share of crawls that the plan without signals needs more for the same held-out
freshness. --data names a folder as `histories.py` has it; debian-uploads comes with freshopt.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import freshopt as fo
from benchmarks.accuracy.histories import (
    GAP,
    HISTORIES,
    TEST,
    History,
    bundled,
    crawl_times,
    log_of,
    read,
    sampled,
    world_of,
)
from benchmarks.harness import Claims, Measurement, Record, Row
from freshopt.noisy_signals import NoisySignalFreshness, SignalThresholds, noisy_signals, replay_signals
from freshopt.numerics.arrays import Array

RECALLS, PRECISIONS = (0.0, 0.25, 0.5, 0.75, 1.0), (0.1, 0.3, 0.6, 1.0)
# Days between crawls of a plan.
GAPS = (GAP, 5.0 * GAP)
CRAWLS = 20
TOLD, TRUE, HOUR = 0.6, 0.6, 1.0 / 24.0
# Bandwidths of the plan without signals, as multiples, among which that of equal freshness is interpolated.
MORE = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0)


def table(source: Array, time: Array, kind: str) -> pl.DataFrame:
    """Return signals as a table."""
    return pl.DataFrame({"source": source, "time": time, "kind": [kind] * len(time)})


def clock(solution: fo.Solution) -> SignalThresholds:
    """Return the rule of crawls at equal gaps."""
    objective = NoisySignalFreshness(0.0, 1.0)
    return objective.thresholds(solution.rates, solution.problem.sources)


def rule_of(plan: fo.Plan) -> SignalThresholds:
    """Return the thresholds of a plan, of one without signals its clock."""
    own = plan.problem.objective
    return (
        own.thresholds(plan.rates, plan.sources)
        if isinstance(own, NoisySignalFreshness)
        else clock(plan.solution)
    )


def simulated(many: int = 300, horizon: float = 1_000.0) -> Iterator[Row]:
    """Yield freshness of learnt, omniscient and deaf plans for each recall and precision."""
    random = np.random.default_rng(5)
    rates = np.maximum(random.gamma(0.6, 1.0 / 20.0, many), 1e-4)
    sources, split = fo.Sources(rates), GAP * CRAWLS * 2.0
    times, world = crawl_times(random, many, CRAWLS, split), fo.World.poisson(sources, seed=11)
    offsets, events = world.events(0.0, split)
    changes = np.split(events, offsets[1:-1])
    log = log_of(changes, times)
    for gap in GAPS:
        bandwidth = many / gap
        deaf = clock(fo.plan(log, bandwidth, objective="binary", load_limit=1.0, draws=0).solution)
        for recall, precision in product(RECALLS, PRECISIONS):
            who, when = noisy_signals(world, recall, precision, split, seed=3)
            true = NoisySignalFreshness(recall, precision)
            best = fo.solve(fo.Problem(true, sources, bandwidth))
            learnt = deaf
            if len(when):
                heard = table(who, when, "sitemap")
                learnt = rule_of(fo.plan(log, bandwidth, objective="binary", signals=heard, load_limit=1.0))
            shares = {}
            rules = {"learnt": learnt, "oracle": true.thresholds(best.rates, sources), "deaf": deaf}
            for name, rule in rules.items():
                found = replay_signals(rule, fo.World.poisson(sources, seed=12), recall, precision, horizon)
                shares[name] = found.costs["binary"].mean
                shares[f"{name}_crawls"] = found.refreshes / (horizon * bandwidth)
            regret = shares["oracle"] - shares["learnt"]
            yield {
                "gap": gap,
                "recall": recall,
                "precision": precision,
                "signals": len(when),
                **shares,
                "regret": regret,
            }


def histories(data: Path | None = None, draws: int = 3, sources: int = 1_000) -> Iterator[Row]:
    """Yield held-out freshness with and without signals made of real dates."""
    known: dict[str, History] = {"debian-uploads": bundled("debian-uploads")}
    if data is not None:
        known |= {name: read(Path(data), name) for name in HISTORIES}
    for name, history in known.items():
        rows = [row for seed in range(draws) if (row := _held_out(history, seed, sources)) is not None]
        yield {
            "history": name,
            "draws": len(rows),
            **{key: float(np.mean([row[key] for row in rows])) for key in rows[0]},
            "saving_error": float(np.std([row["saving"] for row in rows], ddof=1) / np.sqrt(len(rows))),
        }


def _held_out(history: History, seed: int, most: int) -> dict[str, Any] | None:
    """Return what one bootstrap of a history's sources gives."""
    end = history.end
    split, random = end - TEST * GAP, np.random.default_rng([17, seed])
    drawn = sampled(history, split, end, CRAWLS, most, random)
    if drawn is None:
        return None
    log, world, _ = drawn
    n = len(log.names)
    bandwidth = n / GAP
    who, when = noisy_signals(world, TOLD, TRUE, end, seed, delay=HOUR)
    early = when < split
    deaf = fo.plan(log, bandwidth, objective="binary", load_limit=1.0, draws=0)
    dates = table(who[early], when[early], "dates")
    heard = fo.plan(log, bandwidth, objective="binary", signals=dates, load_limit=1.0)
    offsets, events = world.events(split, end)
    later = world_of(np.split(events - split, offsets[1:-1]), 0.0, end - split)
    signals = (who[~early], when[~early] - split)

    def replayed(rule: SignalThresholds) -> tuple[float, float]:
        found = replay_signals(rule, later, None, None, end - split, signals=signals)
        return found.costs["binary"].mean, found.refreshes / ((end - split) * bandwidth)

    fresh, crawls = replayed(rule_of(heard))
    curve = [replayed(clock(fo.solve(deaf.problem.with_bandwidth(more * bandwidth)))) for more in MORE]
    needed = float(np.interp(fresh, *zip(*curve, strict=True)))
    told = heard.signals
    assert told is not None
    return {
        "sources": n,
        "signals": int(np.count_nonzero(early)),
        "recall": told.recall,
        "precision": told.precision,
        "promised": told.fresh,
        "fresh": fresh,
        "crawls": crawls,
        "without": curve[0][0],
        "crawls_without": curve[0][1],
        "saving": 1.0 - crawls / needed,
    }


def claims(record: Record) -> Claims:
    """Yield that plans come near the oracle, and that signals save crawls of real sources."""
    for row in record["simulated"]:
        where = f"a crawl in {row['gap']:g} days, recall {row['recall']}, precision {row['precision']}"
        yield f"{where}: regret {row['regret']:.4f}", row["regret"] < 0.03
        gained = row["learnt"] - row["deaf"]
        yield f"{where}: {gained:+.4f} beside no signals", gained > -0.01
    for row in record["histories"]:
        yield f"{row['history']}: {row['saving']:.1%} fewer crawls", row["saving"] > 0.1
    yield "all worlds", len(record["simulated"]) == len(GAPS) * len(RECALLS) * len(PRECISIONS)


BENCH = Measurement(
    {"simulated": simulated, "histories": histories},
    quick={"many": 60, "horizon": 100.0, "draws": 2, "sources": 60},
    facts=("quick",),
    claims=claims,
    large=True,
)
