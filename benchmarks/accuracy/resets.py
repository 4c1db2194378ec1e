"""What beliefs that reset find, in estimates and in plans made anew.

    python -m benchmarks resets --save

Bands, set before the runs:

* the rate of resets chosen is within a factor of 2 of the simulated one, under the true prior and under the
  one learnt with resets; of six candidates the true 1/150 per day is best in every run;
* at 1/150 per day the error of E[Δ] at the log's end is at most 0.8 of that of the mode of rates that last;
* where rates last nothing is lost: errors and costs within 1 %;
* plans made anew with resets cost less where rates reset, by more than two standard errors.

Estimates: sources of Gamma(shape, exposure) rates per day, each drawn anew at a rate of resets, crawled at
Poisson times for 700 days. Plans: sources of Gamma(0.6, 10) rates that reset from week to week, planned every
other week for a year from their own crawls alone, at one crawl a week per source and Pareto importances;
costs are expectations under the true rates, means over the second half.

--save keeps benchmarks/results/resets.json and writes its tables of docs/evidence/benchmarks.md from it;
--page writes the tables alone. A run takes some ten minutes on one core.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.accuracy.histories import Floats
from benchmarks.harness import Claims, Measurement, Record, Row
from benchmarks.objectives import AT_EQUAL_GAPS
from freshopt.estimators import GammaPrior, MaximumLikelihood, resetting_prior
from freshopt.estimators.reset_filter import ResetFilter
from freshopt.online import LambdaLearnAndCrawl, ReplanEvery
from tests.ground_truth.resetting_sources import resetting_log, resetting_world

DAYS, WEEKS = 700.0, 52
SETTINGS = ((0.6, 20.0, 7.0), (1.5, 20.0, 7.0), (0.6, 5.0, 1.0))  # shape, exposure, mean crawl interval
RESETS = (0.0, 1 / 600, 1 / 150, 1 / 50)
SIX = 1 / np.array([1200.0, 600.0, 300.0, 150.0, 75.0, 37.5])


def estimates(n: int, setting: tuple[float, float, float], reset: float, seed: int) -> dict[str, Any]:
    """Return the resets chosen and root mean square errors of one log."""
    shape, exposure, gap = setting
    true = GammaPrior(shape, exposure)
    draw = [seed, round(1e6 * reset), round(gap)]
    log, rate = resetting_log(n, DAYS, gap, reset, shape, exposure, draw)
    found: dict[str, Any] = {}
    priors = {"true": true, "averaged": GammaPrior.from_log(log), "learnt": resetting_prior(log)}
    for name, prior in priors.items():
        begun = time.process_time()
        model = MaximumLikelihood(prior=prior, reset="auto").fit(log)
        found[f"seconds {name}"] = time.process_time() - begun
        lasting = MaximumLikelihood(prior=prior).fit(log)
        found[f"shape {name}"] = prior.shape
        found[f"reset {name}"] = model.reset_
        found[f"rmse {name}"] = error(model.change_rate_, rate)
        found[f"rmse lasting {name}"] = error(lasting.change_rate_, rate)
        lower, upper = model.interval(0.9)
        found[f"cover {name}"] = float(np.mean((lower <= rate) & (rate <= upper)))
        lower, upper = lasting.interval(0.9)
        found[f"cover lasting {name}"] = float(np.mean((lower <= rate) & (rate <= upper)))
    evidence = ResetFilter(log, true.parameters(log)).evidence(SIX)
    found["best of six"] = float(SIX[int(np.argmax(evidence))])
    found["rows"] = len(log)
    return found


def error(estimate: Floats, truth: Floats) -> float:
    """Return the root mean square error."""
    return float(np.sqrt(np.mean((estimate - truth) ** 2)))


def plans(n: int, harmonic: bool, reset: float, seed: int) -> dict[str, float]:
    """Return the late cost of each policy in one world, binary as staleness."""
    world, importance = resetting_world(n, WEEKS, reset, seed, [seed, round(1e6 * reset)])
    objective = AT_EQUAL_GAPS["harmonic" if harmonic else "binary"]
    guess = fo.Problem(objective, fo.Sources(0.06, importance), n / 7.0)
    policies = {
        "re-planned": ReplanEvery(14.0),
        "with resets": ReplanEvery(14.0, reset="auto"),
        "resets and prior known": ReplanEvery(14.0, reset=reset, prior=GammaPrior(0.6, 10.0)),
        "LambdaLearnAndCrawl": LambdaLearnAndCrawl(epoch=14.0, floor=0.1),
    }
    total = float(np.sum(importance))
    found = {}
    for name, policy in policies.items():
        history = policy.run(world, guess, 7.0 * WEEKS)
        late = history.time > 7.0 * WEEKS / 2
        value, best = float(np.mean(history.value[late])), float(np.mean(history.best[late]))
        found[name] = value if harmonic else total - value
        found.setdefault("optimum", best if harmonic else total - best)
    return found


def summary(runs: list[dict[str, float]]) -> dict[str, Any]:
    """Return means and standard errors over seeds."""
    table = {key: np.array([run[key] for run in runs], dtype=np.float64) for key in runs[0]}
    root = np.sqrt(len(runs))
    return {key: [float(row.mean()), float(row.std(ddof=1) / root)] for key, row in table.items()}


def estimate_rows(sources: int = 500, seeds: int = 2) -> Iterator[Row]:
    """Yield one row of estimates per setting and rate of resets; `seeds` logs each."""
    for setting in SETTINGS:
        for reset in RESETS:
            runs = [estimates(sources, setting, reset, seed) for seed in range(seeds)]
            row = {"shape": setting[0], "exposure": setting[1], "gap": setting[2], "reset": reset}
            every = {"every": [[run["reset true"], run["reset learnt"], run["best of six"]] for run in runs]}
            yield {**row, **summary(runs), **every}


def plan_rows(planned: int = 60, worlds: int = 10) -> Iterator[Row]:
    """Yield one row of plans per objective and rate of resets, `worlds` each."""
    for harmonic in (True, False):
        for reset in (0.0, 0.01):
            costs = [plans(planned, harmonic, reset, seed) for seed in range(worlds)]
            gains = [
                {name: 100.0 * (1.0 - cost / run["re-planned"]) for name, cost in run.items()}
                for run in costs
            ]
            yield {"objective": "harmonic" if harmonic else "binary", "reset": reset, **summary(gains)}


def claims(record: Record) -> Claims:
    """Yield the bands."""
    for row in record["estimates"]:
        where = f"Gamma({row['shape']:g}, {row['exposure']:g}), resets {row['reset']:.4f}"
        ratio = row["rmse learnt"][0] / row["rmse lasting averaged"][0]
        most = 1.01 if row["reset"] == 0.0 else 0.8 if row["reset"] == 1 / 150 else 1.0
        yield f"{where}: error {ratio:.3f} of that of rates that last", ratio < most
        for *found, six in row["every"] if row["reset"] else ():
            yield f"{where}: found {found}", all(0.5 < each / row["reset"] < 2.0 for each in found)
            yield f"{where}: best of six {six:.4f}", row["reset"] != 1 / 150 or abs(six * 150 - 1.0) < 1e-6
    for row in record["plans"]:
        gain, error = row["with resets"]
        held = abs(gain) < 1.0 if row["reset"] == 0.0 else gain > 2.0 * error
        yield f"{row['objective']}, resets {row['reset']}: {gain:.2f} ± {error:.2f} %", held


def days(rate: float) -> str:
    """Return a rate of resets in words."""
    return "none" if rate < 1e-5 else f"1 in {1 / rate:.0f} d"


def shown(part: str) -> Callable[[Record], Iterator[Row]]:
    """Return the rows of a page's table, with resets in words."""
    keys = ("reset", "reset true", "reset learnt")
    return lambda record: (
        row | {f"{key}, days": days(float(np.ravel(row[key])[0])) for key in keys if key in row}
        for row in record[part]
    )


BENCH = Measurement(
    {"estimates": estimate_rows, "plans": plan_rows},
    {"sources": 30, "planned": 8, "worlds": 2},
    ("python", "sources", "seeds", "planned", "worlds"),
    rows={part: shown(part) for part in ("estimates", "plans")},
    claims=claims,
    large=True,
)
