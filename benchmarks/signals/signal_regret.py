"""Regret of plans that learn from a log and signals, for each objective, recall and precision.

    python -m benchmarks signal_regret [PART ...] [--quick] [--save]

60 Poisson sources with lognormal change rates (median one change in seven days, standard deviation of the
logarithm 1) and lognormal importances, each crawled 20 times at exponential gaps of seven days on average; a
share of their changes is announced (recall), a share of the announcements is true (precision). At recall 0
all signals are false, as many as true ones would bring. Three worlds a cell, seeds fixed.

The plan learns from log and signals. Its rule is then evaluated exactly, under the true rates and qualities
(`tests.ground_truth.signal_cycles`): what it costs, and how often it really crawls, which is not quite what
it was allowed. The oracle knows rates and qualities and crawls as often as that, so that no regret can be
negative. The unit of costs is that of an oracle of as many crawls that hears no signals: 0.4 means that
signals save six tenths of it. Regret is the plan's cost less the oracle's, in this unit.

`plans` holds the rates to those of `fo.plan` itself, in one cell for each objective. `STATEMENTS` were
written before the first run and are left as they were.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np
import polars as pl

import freshopt as fo
from benchmarks.accuracy.histories import GAP, crawl_times, log_of
from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.signals.learning import OBJECTIVES, Floats, Truth, learnt
from benchmarks.statements import Statement, judged
from freshopt.noisy_signals import AgeThresholds, noisy_signals
from freshopt.noisy_signals.with_signals import rule_of
from tests.ground_truth.signal_cycles import age_cycles

RECALLS, PRECISIONS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0), (0.1, 0.25, 0.5, 0.75, 1.0)
TELLING = RECALLS[1:]
CRAWLS = 20
SPLIT = 2.0 * CRAWLS * GAP
# Regret below 0 by rounding: of a certified optimum and an exact cost.
ROUNDING = 1e-8

# With rates known to a quarter each, costs of a plan without signals are some hundredths above the oracle's;
# signals tell rates besides, and two more numbers are learnt, pooled over all sources.
STATEMENTS = (
    *(
        Statement(f"{name}: regret in every cell", "cells", "regret", {"objective": (name,)}, 0.0, high)
        for name, high in (("harmonic", 0.05), ("delay", 0.05), ("binary", 0.06), ("log-freshness", 0.05))
    ),
    Statement("false signals alone: regret", "cells", "regret", {"recall": (0.0,)}, 0.0, 0.05),
    # The test that drops them errs in one of twenty.
    Statement(
        "false signals alone: kept, share of the worlds", "kept", "kept", {"recall": (0.0,)}, 0.0, 0.34
    ),
    Statement("other signals: kept, share of the worlds", "kept", "kept", {"recall": TELLING}, 1.0, 1.0),
    Statement(
        "recall from 0.5, precision from 0.5: cost of the plan, 1 that of all knowledge but signals",
        "cells",
        "learnt",
        {"recall": (0.5, 0.75, 0.9, 1.0), "precision": (0.5, 0.75, 1.0)},
        0.0,
        0.95,
    ),
    Statement(
        "perfect signals: regret", "cells", "regret", {"recall": (1.0,), "precision": (1.0,)}, 0.0, 0.03
    ),
    # Fewer sources and cells, and costs drawn to some .3 %: age loses about what delay does.
    Statement("age: regret in each world", "ages", "regret", {}, -0.01, 0.06),
    Statement(
        "age, recall 0.9 and precision 0.75: cost of the plan",
        "ages",
        "learnt",
        {"recall": (0.9,), "precision": (0.75,)},
        0.2,
        0.6,
    ),
    Statement("crawls over those allowed, each world", "regret", "used", {}, 0.9, 1.1),
)


def world_of(seed: int, many: int) -> tuple[fo.Sources, fo.World, fo.CrawlLog]:
    """Return sources, their world, and a log of crawls up to `SPLIT`."""
    random = np.random.default_rng([41, seed])
    rates, importance = random.lognormal(0.0, 1.0, many) / GAP, random.lognormal(0.0, 1.0, many)
    sources = fo.Sources(rates, importance)
    world, times = fo.World.poisson(sources, seed=seed), crawl_times(random, many, CRAWLS, SPLIT)
    offsets, events = world.events(0.0, SPLIT)
    return sources, world, log_of(np.split(events, offsets[1:-1]), times)


def signals_of(world: fo.World, rates: Floats, recall: float, precision: float, seed: int) -> pl.DataFrame:
    """Return signals; at recall 0 false ones alone, 1/p - 1 to a change."""
    if recall > 0.0:
        who, when = noisy_signals(world, recall, precision, SPLIT, seed)
        return pl.DataFrame({"source": who, "time": when})
    random = np.random.default_rng([43, seed])
    who = np.repeat(np.arange(len(rates)), random.poisson(rates * SPLIT * (1.0 / precision - 1.0)))
    return pl.DataFrame({"source": who, "time": random.uniform(0.0, SPLIT, len(who))})


def regret(many: int = 60, worlds: int = 3) -> Iterator[Row]:
    """Yield what plans cost in each world, by objective, recall and precision."""
    for seed in range(worlds):
        sources, world, log = world_of(seed, many)
        rates, importance = np.asarray(sources.change_rate), np.asarray(sources.importance)
        bandwidth, deaf = many / GAP, learnt(log)
        for recall, precision in product(RECALLS, PRECISIONS):
            table = signals_of(world, rates, recall, precision, seed)
            truth = Truth(sources, np.full(many, recall), np.full(many, precision))
            found = learnt(log, table)
            kept = found.heard is not None and any(kind.tells for kind in found.heard.kinds_)
            for name in OBJECTIVES:
                cost, crawls = truth.of(name, found.solution(name, importance, bandwidth))
                unit = truth.best(name, crawls, heard=False)
                least = truth.best(name, crawls)
                alone = truth.of(name, deaf.solution(name, importance, bandwidth))[0]
                yield {
                    "objective": name,
                    "recall": recall,
                    "precision": precision,
                    "world": seed,
                    "signals": len(table),
                    "kept": kept,
                    "used": crawls / bandwidth,
                    "oracle": least / unit,
                    "learnt": cost / unit,
                    "regret": (cost - least) / unit,
                    "without": alone / truth.best(name, bandwidth, heard=False),
                }


def plans(many: int = 60) -> Iterator[Row]:
    """Yield by how much rates differ from those of `fo.plan`."""
    sources, world, log = world_of(0, many)
    table = signals_of(world, np.asarray(sources.change_rate), 0.75, 0.5, 0)
    importance = np.asarray(sources.importance)
    for name in OBJECTIVES:
        own = learnt(log, table).solution(name, importance, many / GAP)
        plan = fo.plan(
            log, many / GAP, objective=name, signals=table, importance=importance, load_limit=1.0, draws=0
        )
        apart = np.max(np.abs(own.rates - plan.rates)) / np.max(plan.rates)
        yield {"objective": name, "apart": float(apart)}


def ages(aged: int = 40, drawn: int = 3000) -> Iterator[Row]:
    """Yield what plans for age cost in two worlds, signals of each cycle drawn."""
    for seed, recall, precision in product(range(2), (0.5, 0.9), (0.25, 0.5, 0.75)):
        sources, world, log = world_of(seed, aged)
        importance, bandwidth = np.asarray(sources.importance), aged / GAP
        found = learnt(log, signals_of(world, np.asarray(sources.change_rate), recall, precision, seed))
        solution = found.solution("age", importance, bandwidth)
        rule = rule_of(solution.problem.objective, solution.rates, solution.problem.sources)
        assert isinstance(rule, AgeThresholds)
        truth = Truth(sources, np.full(aged, recall), np.full(aged, precision))
        given = rule.threshold, rule.unheard, rule.precision
        length, cost = age_cycles(given, sources.change_rate, truth.recall, truth.precision, drawn, seed)
        crawls = float(np.sum(1.0 / length))
        unit, least = truth.best("age", crawls, heard=False), truth.best("age", crawls)
        own = float(importance @ (cost / length))
        yield {
            "recall": recall,
            "precision": precision,
            "world": seed,
            "used": crawls / bandwidth,
            "oracle": least / unit,
            "learnt": own / unit,
            "regret": (own - least) / unit,
        }


def cells(record: Record) -> Iterator[Row]:
    """Yield the means of each objective, recall and precision, with the standard error of the regret."""
    for name, recall, precision in product(OBJECTIVES, RECALLS, PRECISIONS):
        own = [
            row
            for row in record["regret"]
            if (row["objective"], row["recall"], row["precision"]) == (name, recall, precision)
        ]
        means = {
            key: float(np.mean([row[key] for row in own]))
            for key in ("kept", "used", "oracle", "learnt", "regret", "without")
        }
        off = np.std([row["regret"] for row in own], ddof=1) / np.sqrt(len(own)) if len(own) > 1 else 0.0
        yield {"objective": name, "recall": recall, "precision": precision, **means, "error": float(off)}


def tabled(record: Record) -> Iterator[Row]:
    """Yield a row for each objective and recall: the oracle's cost and the plan's regret, by precision."""
    found = {(row["objective"], row["recall"], row["precision"]): row for row in cells(record)}
    for name, recall in product(OBJECTIVES, RECALLS):
        row: Row = {"objective": name, "recall": recall}
        for precision in PRECISIONS:
            own = found[name, recall, precision]
            row[f"at {precision:g}"] = f"{own['oracle']:.2f} + {own['regret']:.3f}"
        yield row


def statements(record: Record) -> Iterator[Row]:
    """Yield each statement, and whether it held."""
    kept = [
        {"recall": row["recall"], "precision": row["precision"], "kept": row["kept"]}
        for row in cells(record)
        if row["objective"] == "binary" and (row["recall"] > 0.0 or row["precision"] < 1.0)
    ]
    yield from judged(STATEMENTS, {**record, "cells": list(cells(record)), "kept": kept})


def claims(record: Record) -> Claims:
    """Yield that no plan is below its oracle, and that rates are those of `fo.plan`."""
    for row in record["regret"]:
        where = ", ".join(str(row[key]) for key in ("objective", "recall", "precision", "world"))
        yield f"{where}: regret {row['regret']:.3g}", row["regret"] > -ROUNDING
    for row in record["plans"]:
        yield f"{row['objective']}: rates apart by {row['apart']:.3g}", row["apart"] <= 1e-9
    yield "all cells", len(record["regret"]) % (len(OBJECTIVES) * len(RECALLS) * len(PRECISIONS)) == 0


BENCH = Measurement(
    {"regret": regret, "plans": plans, "ages": ages},
    quick={"many": 12, "worlds": 1, "aged": 6, "drawn": 50},
    facts=("quick", "seconds"),
    rows={"tabled": tabled, "statements": statements},
    claims=claims,
)
