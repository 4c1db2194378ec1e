"""What beliefs that reset find, in estimates and in plans made anew.

    python benchmarks/accuracy/resets.py --save

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

--save keeps benchmarks/results/resets.json and writes the tables of docs/estimators.md from it; --page writes
the tables alone. A run takes some ten minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.estimators import GammaPrior, MaximumLikelihood, resetting_prior
from freshopt.inference.reset_filter import ResetFilter
from freshopt.online import LambdaLearnAndCrawl, ReplanEvery

ROOT = Path(__file__).resolve().parents[2]
SAVED, PAGE = ROOT / "benchmarks" / "results" / "resets.json", ROOT / "docs" / "estimators.md"
DAYS, WEEKS = 700.0, 52
SETTINGS = ((0.6, 20.0, 7.0), (1.5, 20.0, 7.0), (0.6, 5.0, 1.0))  # shape, exposure, mean crawl interval
RESETS = (0.0, 1 / 600, 1 / 150, 1 / 50)
SIX = 1 / np.array([1200.0, 600.0, 300.0, 150.0, 75.0, 37.5])
Floats = np.ndarray


def simulated(n: int, gap: float, reset: float, prior: GammaPrior, seed: int) -> tuple[fo.CrawlLog, Floats]:
    """Return a log, and the rates in force at its end."""
    rng = np.random.default_rng([seed, round(1e6 * reset), round(gap)])
    source, moment, changed, last = [], [], [], []
    for k in range(n):
        inside = np.cumsum(rng.exponential(gap, int(DAYS / gap + 10.0 * np.sqrt(DAYS / gap) + 20.0)))
        crawl = np.concatenate([[0.0], inside[inside < DAYS]])
        edge = np.concatenate([[0.0], np.sort(rng.uniform(0.0, DAYS, rng.poisson(reset * DAYS))), [DAYS]])
        rate = rng.gamma(prior.shape, 1.0 / prior.exposure, len(edge) - 1)
        expected = np.interp(crawl, edge, np.concatenate([[0.0], np.cumsum(rate * np.diff(edge))]))
        source.append(np.full(len(crawl), k))
        moment.append(crawl)
        changed.append(np.append(False, rng.random(len(crawl) - 1) < -np.expm1(-np.diff(expected))))
        last.append(rate[-1])
    log = fo.CrawlLog(np.concatenate(source), np.concatenate(moment), np.concatenate(changed))
    return log, np.array(last)


def estimates(n: int, setting: tuple[float, float, float], reset: float, seed: int) -> dict[str, Any]:
    """Return the resets chosen and root mean square errors of one log."""
    shape, exposure, gap = setting
    true = GammaPrior(shape, exposure)
    log, rate = simulated(n, gap, reset, true, seed)
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


def world_of(n: int, reset: float, seed: int) -> tuple[fo.World, Floats]:
    """Return a world of Gamma(0.6, 10) rates, drawn anew from week to week, and importances."""
    rng = np.random.default_rng([seed, round(1e6 * reset)])
    rates = [rng.gamma(0.6, 0.1, n)]
    for _ in range(WEEKS):
        anew = rng.random(n) < -np.expm1(-7.0 * reset)
        rates.append(np.where(anew, rng.gamma(0.6, 0.1, n), rates[-1]))
    each = np.maximum(rates, 1e-9)
    sources = fo.Sources(each[0], rng.pareto(1.5, n) + 1.0)
    jumps = {"times": 7.0 * np.arange(1, WEEKS + 1), "change_rate": each[1:]} if reset else {}
    return fo.World.poisson(sources, seed=seed, **jumps), sources.importance


def plans(n: int, harmonic: bool, reset: float, seed: int) -> dict[str, float]:
    """Return the late cost of each policy in one world, binary as staleness."""
    world, importance = world_of(n, reset, seed)
    periodic = fo.Refresh.PERIODIC
    objective = fo.problems.HarmonicStaleness(periodic) if harmonic else fo.problems.BinaryFreshness(periodic)
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


def page(text: str, found: dict[str, Any]) -> str:
    """Return the page with the tables of a saved run."""
    heads = ("rates", "crawls", "resets", "found, prior known", "found", "error, rates last", "error, resets")
    rows = ["| " + " | ".join(heads) + " |", "| --- " * 7 + "|"]
    for row in found.get("estimates", ()):
        days = "none" if row["reset"] == 0 else f"1 in {1 / row['reset']:.0f} d"
        cells = [f"Gamma({row['shape']:g}, {row['exposure']:g})", f"every {row['gap']:g} d", days]
        for name in ("true", "learnt"):
            chosen = row[f"reset {name}"][0]
            cells.append("none" if chosen < 1e-5 else f"1 in {1 / chosen:.0f} d")
        cells += [f"{row['rmse lasting averaged'][0]:.4f}", f"{row['rmse learnt'][0]:.4f}"]
        rows.append("| " + " | ".join(cells) + " |")
    names = ("with resets", "resets and prior known", "LambdaLearnAndCrawl")
    saved = ["| objective | resets | " + " | ".join(names) + " | gap to the optimum |", "| --- " * 6 + "|"]
    for row in found.get("plans", ()):
        days = "none" if row["reset"] == 0 else f"1 in {1 / row['reset']:.0f} d"
        cells = [row["objective"], days]
        cells += [f"{row[name][0]:.1f} ± {row[name][1]:.1f}".replace("-", "−") for name in names]
        cells.append(f"{row['optimum'][0]:.1f}")
        saved.append("| " + " | ".join(cells) + " |")
    for name, table in (("resets", rows), ("re-planning", saved)):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = before + begin + "\n".join(table) + "\n" + end + rest.partition(end)[2]
    return text


def main() -> None:
    """Run what the options ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources", type=int, default=500)
    parser.add_argument("--planned", type=int, default=60, help="sources of a plan")
    parser.add_argument("--seeds", type=int, default=2, help="logs per row")
    parser.add_argument("--worlds", type=int, default=10, help="worlds per row")
    parser.add_argument("--part", choices=("estimates", "plans"), help="this one only; the other stays")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if arguments.page:
        found = json.loads(SAVED.read_text(encoding="utf-8"))
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
        return
    new: dict[str, Any] = {"python": platform.python_version()}
    if arguments.part != "plans":
        new["estimates"] = estimate_rows(arguments.sources, arguments.seeds)
        new |= {"sources": arguments.sources, "seeds": arguments.seeds}
    if arguments.part != "estimates":
        new["plans"] = plan_rows(arguments.planned, arguments.worlds)
        new |= {"planned": arguments.planned, "worlds": arguments.worlds}
    found = (json.loads(SAVED.read_text(encoding="utf-8")) if SAVED.exists() else {}) | new
    if arguments.save:
        SAVED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
        print(f"saved {SAVED}")


def estimate_rows(n: int, seeds: int) -> list[dict[str, Any]]:
    """Return one row of estimates per setting and rate of resets."""
    rows = []
    for setting in SETTINGS:
        for reset in RESETS:
            runs = [estimates(n, setting, reset, seed) for seed in range(seeds)]
            row = {"shape": setting[0], "exposure": setting[1], "gap": setting[2], "reset": reset}
            every = {"every": [[run["reset true"], run["reset learnt"], run["best of six"]] for run in runs]}
            rows.append({**row, **summary(runs), **every})
            kept = ("reset", "rmse", "rmse lasting", "cover", "seconds")
            words = [f"{key} {rows[-1][f'{key} learnt'][0]:.4g}" for key in kept]
            words.append(f"with the true prior {[round(run['reset true'], 5) for run in runs]}")
            words.append(f"best of six {[round(1 / run['best of six']) for run in runs]}")
            print(setting, f"resets {reset:.5f}:", "; ".join(words), flush=True)
    return rows


def plan_rows(n: int, worlds: int) -> list[dict[str, Any]]:
    """Return one row of plans per objective and rate of resets."""
    rows = []
    for harmonic in (True, False):
        for reset in (0.0, 0.01):
            costs = [plans(n, harmonic, reset, seed) for seed in range(worlds)]
            gains = [
                {name: 100.0 * (1.0 - cost / run["re-planned"]) for name, cost in run.items()}
                for run in costs
            ]
            row = {"objective": "harmonic" if harmonic else "binary", "reset": reset}
            rows.append({**row, **summary(gains)})
            words = [f"{name} {mean:.2f} ± {spread:.2f}" for name, (mean, spread) in summary(gains).items()]
            print(row, "; ".join(words), flush=True)
    return rows


if __name__ == "__main__":
    main()
