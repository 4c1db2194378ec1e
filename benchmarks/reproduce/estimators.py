"""Measure which estimator is right when: bias, error, gaps of four kinds, cost.

    python -m benchmarks estimators [--save]

All estimators have their default settings, crawls come once a day on average. What they cost is the least CPU
time of three rounds over 10⁵ sources with 100 crawls each, in units of one copy of the log's gaps, outcomes
and offsets.
"""

import inspect
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Claims, Measurement, Record, Row, turns
from benchmarks.reproduce.claims import mean_interval
from benchmarks.reproduce.estimator_runs import GAPS, sampled
from freshopt import estimators
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps

ESTIMATORS = {
    type(each).__name__: each
    for each in (
        estimators.Naive(),
        estimators.MaximumLikelihood(),
        estimators.MomentMatching(),
        estimators.LawOfLargeNumbers(),
        estimators.StochasticApproximation(),
        estimators.MomentumStochasticApproximation(),
    )
}
RATES, CRAWLS = (0.2, 1.0, 5.0), (20, 200, 2000)
LONG, CHANGE_RATE, TOLERANCE = 20_000, 1.0, 0.01  # who is within 1 % of Δ after 20 000 crawls is consistent
SEED, SOURCES, LONG_SOURCES = 7, 4000, 200
COST_SOURCES, COST_CRAWLS, ROUNDS = 100_000, 100, 3


def consistency(crawls: int = LONG) -> dict[str, Any]:
    """Return each estimator's relative bias after very many crawls, and whether it is consistent."""
    found: dict[str, Any] = {name: {} for name in ESTIMATORS}
    for number, kind in enumerate(GAPS):
        rng = np.random.default_rng([SEED, 0, number])
        estimates = sampled(rng, LONG_SOURCES, crawls, (CHANGE_RATE, 1.0), ESTIMATORS, kind)
        for name, values in estimates.items():
            mean, low, high = mean_interval(values / CHANGE_RATE - 1)
            told = rounded({"bias": mean, "low": low, "high": high})
            found[name][kind] = told | {"consistent": low >= -TOLERANCE and high <= TOLERANCE}
    return found


def accuracy(sources: int = SOURCES) -> Iterator[Row]:
    """Yield relative bias and root mean square error at exponential gaps."""
    for number, (rate, crawls) in enumerate((rate, crawls) for rate in RATES for crawls in CRAWLS):
        rng = np.random.default_rng([SEED, 1, number])
        for name, values in sampled(rng, sources, crawls, (rate, 1.0), ESTIMATORS).items():
            relative = values / rate - 1
            measured = {"bias": float(np.mean(relative)), "error": float(np.sqrt(np.mean(relative**2)))}
            yield {"estimator": name, "rate": rate, "crawls": crawls, **rounded(measured)}


def cost(fitted: int = COST_SOURCES) -> dict[str, Any]:
    """Return what a fit costs per crawl, and what an estimator asks for."""
    rng = np.random.default_rng([SEED, 2])
    shape = (fitted, COST_CRAWLS)
    gaps = rng.exponential(1.0, shape)
    changed = found_changes(rng, CHANGE_RATE, gaps)
    log, evened = (
        log_of_gaps(gaps, changed),
        np.repeat(gaps[:5].mean(axis=1, keepdims=True), COST_CRAWLS, axis=1),
    )
    few = [
        log_of_gaps(each, changed[:5]) for each in (gaps[:5], evened)
    ]  # the same outcomes in the same time

    def copy() -> None:
        for array in (log.interval, log.changed, log.offsets):
            array.copy()

    def asks(name: str) -> bool:
        parameters = inspect.signature(ESTIMATORS[name].fit).parameters
        return "crawl_rate" in parameters and parameters["crawl_rate"].default is inspect.Parameter.empty

    fits = {
        name: partial(each.fit, log, *((1.0,) if asks(name) else ())) for name, each in ESTIMATORS.items()
    }
    seconds, rows = turns({"copy": copy, **fits}, ROUNDS, time.process_time), {}
    for name, model in ESTIMATORS.items():
        one, other = (model.fit(each, *((1.0,) if asks(name) else ())).change_rate_ for each in few)
        rows[name] = {
            "nanoseconds": float(f"{1e9 * seconds[name] / len(log):.3g}"),
            "copies": float(f"{seconds[name] / seconds['copy']:.3g}"),
            "online": hasattr(model, "partial_fit"),
            "asks_crawl_rate": asks(name),
            "reads_gaps": not np.allclose(one, other, rtol=1e-9),
        }
    return {"crawls": len(log), "rows": rows}


def rounded(values: dict[str, float]) -> dict[str, float]:
    """Return values to four digits."""
    return {key: float(f"{value:.4g}") for key, value in values.items()}


def percent(value: float) -> str:
    """Return a share in percent, to two digits or to whole percents."""
    text = f"{100 * value:.0f}" if abs(value) >= 0.1 else f"{100 * value:.1f}"
    return {"-0.0": "0.0", "-0": "0"}.get(text, text.replace("-", "−"))


def claims(record: Record) -> Claims:
    """Yield what the page says of gaps, errors and costs."""
    known = {"LawOfLargeNumbers", "StochasticApproximation", "MomentumStochasticApproximation"}
    for name, kinds in record["consistency"].items():
        right = {kind for kind, row in kinds.items() if row["consistent"]}
        expected = {"exponential"} if name in known else set(GAPS) if name != "Naive" else set()
        yield f"{name} is consistent for {right}", right == expected
        row = record["cost"]["rows"][name]
        for key in ("asks_crawl_rate", "online", "reads_gaps") if name != "Naive" else ():
            yield f"{name}: {key} {row[key]}", row[key] is ((name in known) != (key == "reads_gaps"))
    errors = {(row["estimator"], row["rate"], row["crawls"]): row["error"] for row in record["accuracy"]}
    copies = {name: row["copies"] for name, row in record["cost"]["rows"].items()}
    for (name, rate, crawls), error in errors.items():
        if name in known - {"LawOfLargeNumbers"}:
            yield f"{name}: {copies[name]} copies", copies[name] > copies["LawOfLargeNumbers"]
            # Where sources change faster than they are crawled, once a day, these are ahead.
            ahead = (error > errors["LawOfLargeNumbers", rate, crawls]) is not (rate > 1.0)
            yield f"{name} at {rate:g}, {crawls} crawls: {error}", ahead
    for name in ("MomentMatching", "MaximumLikelihood"):  # the prior alone bounds where all crawls found one
        yield f"{name}: {errors[name, 5.0, 20]}", 0.5 < errors[name, 5.0, 20] < 1.5


def gaps(record: Record) -> Iterator[Row]:
    """Yield biases by kind of gap, in bold where consistent."""
    for name, kinds in record["consistency"].items():
        told = ((kind, percent(row["bias"]), row["consistent"]) for kind, row in kinds.items())
        yield {"name": name, **{kind: f"**{text}**" if right else text for kind, text, right in told}}


def errors(record: Record) -> Iterator[Row]:
    """Yield bias and error of each estimator by rate and crawls."""
    for name in ESTIMATORS:
        own = (row for row in record["accuracy"] if row["estimator"] == name)
        cells = {
            f"{row['rate']:g}, {row['crawls']}": f"{percent(row['bias'])} / {percent(row['error'])}"
            for row in own
        }
        yield {"name": name, **cells}


BENCH = Measurement(
    {"consistency": consistency, "accuracy": accuracy, "cost": cost},
    quick={"crawls": 2000, "sources": 400, "fitted": 1000},
    notes={"seed": SEED},
    rows={
        "gaps": gaps,
        "errors": errors,
        "cost": lambda record: ({"name": name, **row} for name, row in record["cost"]["rows"].items()),
    },
    claims=claims,
    large=True,
)
