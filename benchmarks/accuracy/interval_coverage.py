"""Measure how often intervals of change rates cover: by method, kind of gap, and number of crawls.

    python -m benchmarks interval_coverage [--save] [--crawls 20 50]

With equal gaps, with counted changes and at a known crawl rate an interval depends on one number alone, and
the coverage at a rate is a sum of probabilities: these rows are exact. The others are simulated. "average" is
over rates spread evenly in ln Δ from 0.05 to 3 changes per gap, the sources that one user may have; "at" is
the coverage at single rates, and "lowest" and "highest" the extremes over all of them. Of the intervals of a
plan's cost `cost_interval.py` tells.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import binom, poisson

from benchmarks.harness import Claims, Measurement, Record, by
from freshopt import CrawlLog, estimators
from tests.ground_truth.crawl_logs import found_changes, log_of_gaps

SLOWEST, FASTEST = 0.05, 3.0  # changes per gap
CRAWLS, CONFIDENCES = (5, 10, 20, 50, 200, 2000), (0.8, 0.9, 0.95)
GRID = np.exp(np.linspace(math.log(SLOWEST), math.log(FASTEST), 2001))
AT = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0)
GAPS = 400_000  # simulated for each row
SEED = 9
BOUNDS = (1e-2, 10.0)  # known in advance, for the published bound


def exact_row(interval: tuple[Any, Any], chances: Any, head: dict[str, Any]) -> dict[str, Any]:
    """Return a row from the interval of each outcome, and the outcomes' chances at given rates."""
    lower, upper = interval

    def coverage(rates: Any) -> Any:
        inside = (lower[:, None] <= rates) & (rates <= upper[:, None])
        return np.sum(np.where(inside, chances(rates), 0.0), axis=0)

    over = coverage(GRID)
    spread = np.log(np.minimum(upper, 1e3) / np.maximum(lower, 1e-6))
    width = np.mean(np.sum(spread[:, None] * chances(GRID), axis=0))
    return {
        **head,
        "exact": True,
        "average": float(np.mean(over)),
        "lowest": float(over.min()),
        "highest": float(over.max()),
        "at": dict(zip(map(str, AT), coverage(np.array(AT)).tolist(), strict=True)),
        "log_width": float(width),
    }


def equal_gaps(crawls: int) -> list[dict[str, Any]]:
    """Return exact rows for equal gaps of a day."""
    found = np.arange(crawls + 1)
    log = log_of_gaps(np.ones((crawls + 1, crawls)), np.arange(crawls) < found[:, None])
    likely, matching = (
        estimators.MaximumLikelihood(smoothing=0).fit(log),
        estimators.MomentMatching(BOUNDS).fit(log),
    )
    spread = -np.log1p(-(np.arange(crawls) + 0.5) / crawls)  # as exponential gaps of mean 1 are
    # Its interval depends on the counts alone; a large α would keep the estimate from converging.
    law = estimators.LawOfLargeNumbers(1e-9).fit(
        log_of_gaps(np.tile(spread, (crawls + 1, 1)), log.changed.reshape(-1, crawls)), 1.0
    )
    cases = [
        ("MaximumLikelihood", likely, estimators.Posterior()),
        ("MaximumLikelihood", likely, estimators.LikelihoodRatio()),
        (
            "MaximumLikelihood, smoothed",
            estimators.MaximumLikelihood(smoothing=0.5).fit(log),
            estimators.LikelihoodRatio(),
        ),
        ("MomentMatching", matching, estimators.Hoeffding()),
        ("MomentMatching", matching, estimators.Published()),
    ]
    rows = []
    for confidence in CONFIDENCES:
        head = {"gaps": "equal", "crawls": crawls, "confidence": confidence}
        for name, model, method in cases:
            rows.append(
                exact_row(
                    model.interval(confidence, method),
                    lambda rates: binom.pmf(found[:, None], crawls, -np.expm1(-rates)),
                    {"estimator": name, "method": repr(method), **head},
                )
            )
        rows.append(
            exact_row(
                law.interval(confidence),
                lambda rates: binom.pmf(found[:, None], crawls, rates / (1.0 + rates)),
                {
                    "estimator": "LawOfLargeNumbers",
                    "method": repr(estimators.Posterior()),
                    **head,
                    "gaps": "exponential",
                },
            )
        )
    return rows


def counted(crawls: int) -> list[dict[str, Any]]:
    """Return exact rows for counted changes."""
    most = int(poisson.isf(1e-12, FASTEST * crawls))
    changes = np.arange(most + 1)
    gaps = np.full((most + 1, 1), float(crawls))
    model = estimators.FullObservation().fit(
        log_of_gaps(gaps, (changes > 0)[:, None], changes=changes[:, None])
    )
    return [
        exact_row(
            model.interval(confidence, method),
            lambda rates: poisson.pmf(changes[:, None], rates * crawls),
            {
                "estimator": "FullObservation",
                "method": repr(method),
                "gaps": "any, counted",
                "crawls": crawls,
                "confidence": confidence,
            },
        )
        for confidence in CONFIDENCES
        for method in (estimators.Posterior(), estimators.Exact(), estimators.Published(BOUNDS))
    ]


def simulated(kind: str, crawls: int) -> list[dict[str, Any]]:
    """Return rows for gaps that differ."""
    rng = np.random.default_rng([SEED, crawls, len(kind)])
    n = max(GAPS // crawls, 1000)
    rates = np.exp(rng.uniform(math.log(SLOWEST), math.log(FASTEST), n))
    make = {
        "exponential": lambda: rng.exponential(1.0, (n, crawls)),
        "gamma, shape 1/4": lambda: rng.gamma(0.25, 4.0, (n, crawls)),
    }
    gaps = make.get(kind, lambda: np.ones((n, crawls)))()
    if kind == "equal, Gamma prior":
        rates = rng.gamma(1.5, 0.5 / 1.5, n)
    log = log_of_gaps(gaps, found_changes(rng, rates[:, None], gaps))
    if kind == "equal, half-life of 20 gaps":
        columns = {"source": log.source_index, "time": np.tile(np.arange(crawls), n), "elapsed": log.interval}
        log = CrawlLog.from_columns({**columns, "changed": log.changed})
        model = estimators.MaximumLikelihood(half_life=20.0)
    elif kind == "equal, Gamma prior":
        model = estimators.MaximumLikelihood(prior=estimators.GammaPrior.from_log(log))
    else:
        model = estimators.MaximumLikelihood(smoothing=0)
    model.fit(log)
    rows = []
    for confidence in CONFIDENCES:
        lower, upper = model.interval(confidence)
        covered = (lower <= rates) & (rates <= upper)
        near = {
            str(x): float(np.mean(covered[np.abs(np.log(rates / x)) < 0.1])) for x in AT if x > 0.05 and x < 3
        }
        rows.append(
            {
                "estimator": "MaximumLikelihood",
                "method": repr(estimators.Posterior()),
                "gaps": kind,
                "crawls": crawls,
                "confidence": confidence,
                "exact": False,
                "sources": n,
                "average": float(np.mean(covered)),
                "standard_error": math.sqrt(confidence * (1 - confidence) / n),
                "at": near,
            }
        )
    return rows


def rows(crawls: tuple[int, ...] = CRAWLS) -> Iterator[dict[str, Any]]:
    """Yield the rows of logs of so many crawls; the others stay as saved."""
    for many in crawls:
        yield from equal_gaps(many)
        yield from counted(many)
        kinds = ["exponential", "gamma, shape 1/4", "equal, Gamma prior"]
        for kind in [*kinds, *(["equal, half-life of 20 gaps"] if many == 200 else [])]:
            yield from simulated(kind, many)


def claims(record: Record) -> Claims:
    """Yield coverage within two points of nominal from 20 crawls on, and what is said of others."""
    rows, twenty = record["rows"], [row for row in record["rows"] if row["crawls"] >= 20]
    found = [row for row in twenty if row["method"].startswith("Posterior")]
    told = {row["gaps"] for row in found}
    yield f"gaps {told}", told >= {"equal", "exponential", "gamma, shape 1/4", "any, counted"}
    best = {}
    for row in found:
        off, noise = abs(row["average"] - row["confidence"]), 3.3 * row.get("standard_error", 0.0)
        yield f"{row['estimator']}, {row['gaps']}, {row['crawls']}: off by {off:.4f}", off < 0.01 + noise
        if row["exact"]:
            best[row["estimator"], row["crawls"], row["confidence"]] = row["log_width"]
    for row in (row for row in rows if row["method"].startswith("Exact")):
        yield f"Exact: lowest {row['lowest']:.4f}", row["lowest"] >= row["confidence"] - 1e-9
    for row in (row for row in twenty if row["method"].startswith(("Hoeffding", "Published"))):
        name = row["estimator"].replace("MomentMatching", "MaximumLikelihood")
        narrow = best[name, row["crawls"], row["confidence"]]
        wide = row["lowest"] >= row["confidence"] and row["log_width"] > 1.3 * narrow
        yield f"{row['method']}: {row['log_width']:.3f} beside {narrow:.3f}", wide


BENCH = Measurement(
    {"rows": rows},
    quick={"crawls": (20,)},
    notes={"rates": [SLOWEST, FASTEST]},
    merge=by("estimator", "method", "gaps", "crawls", "confidence"),
    claims=claims,
)
