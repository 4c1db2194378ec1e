"""Measure which estimator is right when: bias, error, gaps of four kinds, cost. Writes docs/estimators.md.

    python benchmarks/reproduce/estimators.py [--save] [--page]

All estimators have their default settings, crawls come once a day on average. What they cost is the least CPU
time of three rounds over 10⁵ sources with 100 crawls each, in units of one copy of the log's gaps, outcomes
and offsets. --save writes benchmarks/results/estimators.json and the tables of the page from it and from
benchmarks/results/held_out.json (`rate_prediction.py`); --page writes the tables and measures nothing.
"""

from __future__ import annotations

import argparse
import inspect
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from claims import mean_interval
from estimator_runs import GAPS, log_of, sampled

from freshopt.estimators import (
    LawOfLargeNumbers,
    MaximumLikelihood,
    MomentMatching,
    MomentumStochasticApproximation,
    Naive,
    StochasticApproximation,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE, RESULTS = ROOT / "docs" / "estimators.md", ROOT / "benchmarks" / "results"
ESTIMATORS = {
    type(each).__name__: each
    for each in (
        Naive(),
        MaximumLikelihood(),
        MomentMatching(),
        LawOfLargeNumbers(),
        StochasticApproximation(),
        MomentumStochasticApproximation(),
    )
}
RATES, CRAWLS = (0.2, 1.0, 5.0), (20, 200, 2000)
LONG, CHANGE_RATE, TOLERANCE = 20_000, 1.0, 0.01  # who is within 1 % of Δ after 20 000 crawls is consistent
SEED, SOURCES, LONG_SOURCES = 7, 4000, 200
COST_SOURCES, COST_CRAWLS, ROUNDS = 100_000, 100, 3


def consistency() -> dict[str, Any]:
    """Return each estimator's relative bias after very many crawls, and whether it is consistent."""
    found: dict[str, Any] = {name: {} for name in ESTIMATORS}
    for number, kind in enumerate(GAPS):
        rng = np.random.default_rng([SEED, 0, number])
        estimates = sampled(rng, LONG_SOURCES, LONG, (CHANGE_RATE, 1.0), ESTIMATORS, kind)
        for name, values in estimates.items():
            mean, low, high = mean_interval(values / CHANGE_RATE - 1)
            told = rounded({"bias": mean, "low": low, "high": high})
            found[name][kind] = told | {"consistent": low >= -TOLERANCE and high <= TOLERANCE}
    return found


def accuracy() -> list[dict[str, Any]]:
    """Return relative bias and root mean square error at exponential gaps."""
    rows = []
    for number, (rate, crawls) in enumerate((rate, crawls) for rate in RATES for crawls in CRAWLS):
        rng = np.random.default_rng([SEED, 1, number])
        for name, values in sampled(rng, SOURCES, crawls, (rate, 1.0), ESTIMATORS).items():
            relative = values / rate - 1
            measured = {"bias": float(np.mean(relative)), "error": float(np.sqrt(np.mean(relative**2)))}
            rows.append({"estimator": name, "rate": rate, "crawls": crawls, **rounded(measured)})
    return rows


def cost() -> dict[str, Any]:
    """Return what a fit costs per crawl, and what an estimator asks for."""
    rng = np.random.default_rng([SEED, 2])
    shape = (COST_SOURCES, COST_CRAWLS)
    gaps = rng.exponential(1.0, shape)
    changed = rng.random(shape) < -np.expm1(-CHANGE_RATE * gaps)
    log, evened = log_of(gaps, changed), np.repeat(gaps[:5].mean(axis=1, keepdims=True), COST_CRAWLS, axis=1)
    few = [log_of(each, changed[:5]) for each in (gaps[:5], evened)]  # the same outcomes in the same time

    def copy() -> None:
        for array in (log.interval, log.changed, log.offsets):
            array.copy()

    def asks(name: str) -> bool:
        parameters = inspect.signature(ESTIMATORS[name].fit).parameters
        return "crawl_rate" in parameters and parameters["crawl_rate"].default is inspect.Parameter.empty

    seconds = dict.fromkeys(("copy", *ESTIMATORS), np.inf)
    for _ in range(ROUNDS):
        for name in seconds:
            start = time.process_time()
            if name == "copy":
                copy()
            else:
                ESTIMATORS[name].fit(log, *((1.0,) if asks(name) else ()))
            seconds[name] = min(seconds[name], time.process_time() - start)
    rows = {}
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


def markdown(rows: list[list[str]]) -> str:
    """Return a table, its first row the headings."""
    return "".join(f"| {' | '.join(row)} |\n" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def tables(record: dict[str, Any], held_out: list[dict[str, Any]]) -> dict[str, str]:
    """Return the tables of the page, by the names of their marks."""
    gaps = [["estimator", *(f"{kind} intervals" for kind in GAPS)]]
    for name, kinds in record["consistency"].items():
        cells = (
            f"**{percent(x['bias'])}**" if x["consistent"] else percent(x["bias"]) for x in kinds.values()
        )
        gaps.append([f"`{name}`", *cells])
    columns = [(rate, crawls) for rate in RATES for crawls in CRAWLS]
    errors = [["estimator", *(f"Δ = {rate:g}, {crawls} crawls" for rate, crawls in columns)]]
    found = {(row["estimator"], row["rate"], row["crawls"]): row for row in record["accuracy"]}
    for name in ESTIMATORS:
        each = [found[name, *column] for column in columns]
        errors.append([f"`{name}`", *(f"{percent(x['bias'])} / {percent(x['error'])}" for x in each)])
    asks = [
        ["estimator", "learns online", "needs crawl rates", "uses interval lengths", "ns per crawl", "copies"]
    ]
    for name, row in record["cost"]["rows"].items():
        flags = ("yes" if row[key] else "no" for key in ("online", "asks_crawl_rate", "reads_gaps"))
        asks.append([f"`{name}`", *flags, f"{row['nanoseconds']:.3g}", f"{row['copies']:.3g}"])
    return {name: markdown(rows) for name, rows in (("gaps", gaps), ("errors", errors), ("cost", asks))} | {
        "held out": held_out_table(held_out)
    }


def held_out_table(records: list[dict[str, Any]]) -> str:
    """Return what rates of first halves are worth in second halves."""
    shown = {
        "MaximumLikelihood": "smoothing",
        "MaximumLikelihood, floor": "floor",
        "MaximumLikelihood, prior": "prior",
        "prior, half-life": "prior and half-life",
        "LawOfLargeNumbers": "`LawOfLargeNumbers`",
    }
    rows = [
        [
            "log",
            "sources",
            "crawls scored",
            *shown.values(),
            "wins : losses of the prior",
            "of sources that had changed",
        ]
    ]
    for record in records:
        every, moved = (record["groups"][key]["estimators"] for key in ("all", "changed before"))
        gains = [every[key] for key in shown]
        cells = [
            f"{x['gain_per_1000']:.2f} ({x['low']:.2f} to {x['high']:.2f})".replace("-", "−") for x in gains
        ]
        counts = [
            f"{x['wins']} : {x['losses']}"
            for x in (each["MaximumLikelihood, prior"] for each in (every, moved))
        ]
        group = record["groups"]["all"]
        rows.append([record["log"], f"{group['sources']:,}", f"{group['scored']:,}", *cells, *counts])
    return markdown(rows)


def filled(page: str, record: dict[str, Any], held_out: list[dict[str, Any]]) -> str:
    """Return the page with its tables, each between its marks, written anew."""
    for name, table in tables(record, held_out).items():
        head, rest = page.split(f"<!-- {name} -->\n")
        end = f"<!-- end of {name} -->"
        page = f"{head}<!-- {name} -->\n{table}{end}{rest.split(end, 1)[1]}"
    return page


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    held_out = json.loads((RESULTS / "held_out.json").read_text(encoding="utf-8"))
    path = RESULTS / "estimators.json"
    if options.page:
        record = json.loads(path.read_text(encoding="utf-8"))
    else:
        record = {"seed": SEED, "consistency": consistency(), "accuracy": accuracy(), "cost": cost()}
        for name, table in tables(record, held_out).items():
            print(f"\n{name}\n{table}")
    if options.save:
        path.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    if options.save or options.page:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), record, held_out), encoding="utf-8")


if __name__ == "__main__":
    main()
