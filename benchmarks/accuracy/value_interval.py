"""Measure how often the interval of a plan's value holds the cost that is realised, on real histories.

    python -m benchmarks value_interval [--data FOLDER] [--seeds 4] [--save]

The bundled histories, and from FOLDER, as `histories.py` has it, eol_releases and scoop_packages. On the
first three the form of the interval was chosen; gstreamer-plugins was held aside, and is its test. A log of m
crawls per source, and a first one, ends at a split; its gaps are exponential with mean 7 days, its outcomes
changed or not. Sources are those alive from before their first crawl until the end of the test, a bootstrap
sample of at most 400 with Pareto(1.5) importances. The plan made at the split, equal gaps at mean gaps of
7/4, 7 and 28 days, meets the true changes of the next 26 mean crawl gaps, replayed exactly. Its value was
told beforehand: at the estimates, expected under the posterior, and by two intervals of 90 %, that of the
posterior alone ("if the model holds") and that which the back-tests inside the log widen.

Band, stated before the run: with back-tests the intervals hold the realised cost in 80 to 95 % of the runs of
the first histories together, and in as many of the one held aside. Runs share their sources' futures: those
of a history and a length are worth far fewer independent ones. Simulated Poisson sources with gamma rates
show what is lost where the model holds.

--save keeps benchmarks/results/value_interval.json and writes the table of the evidence from it;
--page writes the table alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.accuracy.histories import GAP, HISTORIES, TEST, History, bundled, drawn, read, sampled
from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.objectives import AT_EQUAL_GAPS as OBJECTIVES
from freshopt.estimators.estimator import Estimator
from freshopt.planning.request import default_estimate
from freshopt.planning.uncertainty import draws_for, rate_draws
from freshopt.planning.value_forecast import ValueForecast, ratios_or_none, value_forecast
from freshopt.planning.wishes import Wishes
from freshopt.simulation.static_costs import ChangeWindow, static_costs

BUNDLED, SIMULATED, ASIDE = "debian-uploads", "simulated", "gstreamer-plugins"
CRAWLS = (5, 20, 100)
SPLITS = (0.5, 0.6, 0.7, 0.8)  # of the record
MOST = 400  # sources of a run
MEAN_GAPS = (GAP / 4, GAP, 4 * GAP)
REFUTED = ("the one held aside",)


class Fits:
    """Estimators by log, so that requests on the same log share them."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, float], Estimator] = {}

    def __call__(self, log: fo.CrawlLog) -> Estimator:
        """Return the default estimator of a log."""
        key = len(log), float(np.sum(log.time))
        if key not in self.known:
            self.known[key] = default_estimate(log)
        return self.known[key]


def run(history: History, split: float, crawls: int, seed: int, most: int = MOST) -> list[dict[str, Any]]:
    """Return what was told and what was realised, of each objective and bandwidth."""
    rng = np.random.default_rng([crawls, seed, int(split)])
    end = split + TEST * GAP
    made = sampled(history, split, end, crawls, most, rng)
    if made is None:
        return []
    log, world, weight = made
    window, fits, rows = ChangeWindow.of(world, split, end), Fits(), []
    for name, objective in OBJECTIVES.items():
        for mean_gap in MEAN_GAPS:
            request = Wishes(
                objective,
                len(weight) / mean_gap,
                1.0,
                importance=lambda names: weight[names],
                estimator=fits,
                seed=1000 * seed + int(split),
            )
            model = fits(log)
            sources = fo.Sources(model.change_rate_, weight, names=log.names)
            plan = fo.solve(fo.Problem(objective, sources, request.bandwidth))
            ratios = ratios_or_none(log, request)
            realised = float(weight @ static_costs(window, plan.rates, objective)) / (end - split)
            draws = rate_draws(sources, model, draws_for(len(weight)), request.seed)
            alone = value_forecast(objective, sources, plan.rates, draws)
            told = value_forecast(objective, sources, plan.rates, draws, ratios)
            rows.append(
                {
                    "objective": name,
                    "realised": realised,
                    "estimated": plan.value if name == "harmonic" else 1.0 - plan.value,
                    "expected": (told.expected - told.offset) * told.sign,
                    "alone": _of_cost(alone),
                    "back-tested": None if ratios is None else _of_cost(told),
                }
            )
    return rows


def _of_cost(forecast: ValueForecast) -> list[float]:
    """Return the interval of the cost, lowest first."""
    return sorted((end - forecast.offset) * forecast.sign for end in forecast.interval())


def holds(row: dict[str, Any], key: str) -> bool:
    """Return whether an interval holds the realised cost."""
    return bool(row[key][0] <= row["realised"] <= row[key][1])


def gathered(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return coverage, width and ratios of some runs."""
    tested = [row for row in rows if row["back-tested"] is not None]
    return {
        "runs": len(rows),
        "tested": len(tested),
        "alone": float(np.mean([holds(row, "alone") for row in rows])) if rows else None,
        "back-tested": float(np.mean([holds(row, "back-tested") for row in tested])) if tested else None,
        "width": float(np.median([row["back-tested"][1] / row["back-tested"][0] for row in tested]))
        if tested
        else None,
        "realised/expected": np.quantile(
            [row["realised"] / row["expected"] for row in rows], [0.05, 0.5, 0.95]
        ).tolist()
        if rows
        else None,
    }


def rows(
    data: Path | None = None,
    seeds: int = 4,
    crawls: tuple[int, ...] = CRAWLS,
    sources: int = MOST,
) -> Iterator[Row]:
    """Yield each history and length of a log, then the real ones together."""
    every: dict[str, list[Row]] = {"real ones but the last": [], "the one held aside": []}
    for name in (SIMULATED, BUNDLED, *(HISTORIES if data else ()), ASIDE):
        for many in crawls:
            found: list[Row] = []
            for seed in range(seeds):
                own = history_of(name, data, seed)
                for share in SPLITS[:1] if name == SIMULATED else SPLITS:
                    found += run(own, share * own.end, many, seed, sources)
            if not found:
                continue
            if name != SIMULATED:
                every["the one held aside" if name == ASIDE else "real ones but the last"] += found
            yield {"history": name, "crawls": many, **gathered(found)}
    for label, some in every.items():
        yield {"history": label, "crawls": None, **gathered(some)}


def history_of(name: str, data: Path | None, seed: int) -> History:
    """Return a history by name; simulated ones differ by seed."""
    if name == SIMULATED:
        return drawn(seed, MOST)
    return read(data, name) if name in HISTORIES and data else bundled(name)


def claims(record: Record) -> Claims:
    """Yield the band of the intervals with back-tests, where it holds and where it does not."""
    for row in record["rows"]:
        if row["crawls"] is None and row["tested"] > 100:
            share = row["back-tested"]
            yield (
                f"{row['history']}: {share:.0%} held, 80 to 95 % stated",
                (0.8 <= share <= 0.95) != (row["history"] in REFUTED),
            )


def shown(record: Record) -> Iterator[Row]:
    """Yield the rows of the page's table."""
    for row in record["rows"]:
        ratios = ", ".join(f"{each:.2f}" for each in row["realised/expected"])
        tested = "too short" if row["back-tested"] is None else f"{100 * row['back-tested']:.0f} %"
        yield row | {"crawls": row["crawls"] or "all", "ratios": ratios, "tests": tested}


BENCH = Measurement(
    {"rows": rows},
    {"seeds": 1, "crawls": (5,), "sources": 60},
    ("python", "seeds"),
    rows={"rows": shown},
    claims=claims,
)
