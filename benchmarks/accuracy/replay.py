"""Hold schedules against what happens: predicted and replayed costs, loads per minute, time and memory.

    python benchmarks/accuracy/replay.py [--data FOLDER] [--parts PARTS] [--quick] [--save [ROOT]]

Three questions. Does every discipline cost what it predicts (z is the difference in standard errors), and how
far from the periodic optimum does each method end up in the long run? How flat is the load of a day per
minute, and what time and memory does scheduling 10⁶ sources take? On the second half of real histories, do
rates that were counted in the first half keep their order? --data names a folder with NAME.events.parquet
(source, time in days, kind 1 for a change) and NAME.sources.parquet (source, start and stop in days); each
source counts until its own stop. --parts measures some of disciplines, loads, greedy and histories anew and
keeps the others as they were saved. --save keeps benchmarks/results/replay.json, sums and no data, draws
docs/load.png and writes docs/schedules.md; --quick is a small instance of everything, for tests.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from replay_page import METHODS, MINUTES, draw, page

import freshopt as fo
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from freshopt.scheduling import Carousel, DiscreteCounts, EarliestDeadline, Greedy, Periodic, PoissonArrivals
from freshopt.scheduling.expected_cost import expected_value
from freshopt.scheduling.schedule import Method
from freshopt.simulation.replay_result import Measured

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = ("scoop_packages", "eol_releases")
OBJECTIVES = (BinaryFreshness, HarmonicStaleness, AccumulatedDelay, Age)
POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC
PARTS = ("disciplines", "loads", "greedy", "histories")


def method_of(name: str, problem: fo.Problem) -> Method:
    """Return a method by name."""
    makers: dict[str, Callable[[], Method]] = {
        "Periodic": Periodic,
        "Carousel": Carousel,
        "EarliestDeadline": EarliestDeadline,
        "Greedy": lambda: Greedy(problem),
        "DiscreteCounts": lambda: DiscreteCounts(problem),
        "PoissonArrivals": lambda: PoissonArrivals(seed=1),
    }
    return makers[name]()


def sources_of(n: int, seed: int = 0, *, signalled: bool = False) -> fo.Sources:
    """Return n sources with lognormal change rates and Pareto importances."""
    random = np.random.default_rng(seed)
    return fo.Sources(random.lognormal(0.0, 1.0, n), random.pareto(1.5, n) + 1.0, signalled=signalled)


def cost_of(value: float, objective: fo.Objective, sources: fo.Sources) -> float:
    """Return the cost that is minimised: of a freshness, the stale part."""
    return float(np.sum(sources.importance)) - value if objective.sense == "maximise" else value


def later_value(plan: fo.Schedule, objective: fo.Objective, sources: fo.Sources, skip: float) -> float:
    """Return the expected value from `skip` on, when copies have the ages that the schedule gives them."""
    last = np.zeros(len(sources))
    early = plan.time < skip
    last[plan.source[early]] = plan.time[early]
    rest = fo.Schedule(plan.source[~early], plan.time[~early] - skip, plan.horizon - skip, rates=plan.rates)
    return expected_value(rest, objective, sources, skip - last)


def disciplines(n: int, horizon: float) -> list[dict[str, Any]]:
    """Return predicted and replayed costs of each objective and method, and the way to the optimum."""
    rows: list[dict[str, Any]] = []
    sources = sources_of(n)
    for kind in OBJECTIVES:
        objective = kind(refresh=PERIODIC)
        problem = fo.Problem(objective, sources, bandwidth=float(n))
        solution = fo.solve(problem)
        optimum = cost_of(solution.value, objective, sources)
        for name in METHODS:
            plan = fo.schedule(solution, horizon, method_of(name, problem))
            found = fo.replay(plan, fo.World.poisson(sources, seed=7), redraw=False).of(objective)
            predicted = expected_value(plan, objective, sources)
            settled = cost_of(later_value(plan, objective, sources, horizon / 3), objective, sources)
            rows.append(row(kind, f"{name}, as written", predicted, found, excess=settled / optimum - 1.0))
        rows.append(long_run(kind, solution, "equal gaps, in the long run", horizon))
        free = fo.Problem(kind(refresh=POISSON), sources, bandwidth=float(n))
        best = fo.solve(free)
        excess = cost_of(best.value, objective, sources) / optimum - 1.0
        rows.append(
            {
                **long_run(kind, best, "Poisson refreshes at their own optimum, in the long run", horizon),
                "excess": excess,
            }
        )
        announced = sources_of(n, signalled=True)
        signalled = fo.Problem(
            kind(refresh=POISSON), announced, bandwidth=0.6 * float(announced.change_rate.sum())
        )
        rows.append(long_run(kind, fo.solve(signalled), "on signal, in the long run", horizon))
    return rows


def long_run(kind: type[fo.Objective], solution: fo.Solution, what: str, horizon: float) -> dict[str, Any]:
    """Return the cell of a discipline and what it cost; refreshes and changes drawn anew in each run."""
    objective = solution.problem.objective
    plan = fo.schedule(
        solution, horizon, Periodic() if objective.refresh is PERIODIC else PoissonArrivals(seed=0)
    )
    world = fo.World.poisson(solution.problem.sources, seed=50)
    found = fo.replay(plan, world, skip=horizon / 3)
    return row(kind, what, solution.value, found.of(objective))


def row(
    kind: type[fo.Objective], what: str, predicted: float, found: Measured, excess: float | None = None
) -> dict[str, Any]:
    """Return one line of the table."""
    return {
        "objective": kind.__name__,
        "schedule": what,
        "predicted": float(predicted),
        "replayed": found.value,
        "error": found.error,
        "z": round(found.z(predicted), 2),
        "excess": excess,
    }


def measure_one(name: str, n: int, refreshes: int) -> dict[str, Any]:
    """Return seconds, memory and load of scheduling n sources for a day, or of replaying such a schedule."""
    sources = sources_of(n)
    objective = BinaryFreshness(PERIODIC)
    problem = fo.Problem(objective, sources, bandwidth=float(refreshes))
    solution = fo.solve(problem)
    if name == "replay":
        faster = fo.Sources(sources.change_rate * (refreshes / float(np.sum(sources.change_rate))))
        plan, world = fo.schedule(solution, 1.0, Carousel()), fo.World.poisson(faster, seed=3)
        fo.replay(plan, fo.World.poisson(faster, seed=3), end=1e-3, runs=1)  # the loops are loaded
    if name == "Greedy":  # the passes are compiled and loaded
        few = fo.Problem(objective, sources_of(2000), bandwidth=2000.0)
        Greedy(few).times(np.ones(2000), 1.0)
    began, used = time.perf_counter(), time.process_time()
    if name == "replay":
        found = fo.replay(plan, world, runs=1)
        changes = world.events(0.0, 1.0, np.arange(1000))[0][-1] * (n / 1000) if n > 1000 else 0.0
        more: dict[str, Any] = {"events": round(found.refreshes + changes)}
    else:
        plan = fo.schedule(solution, 1.0, method_of(name, problem))
        load = np.bincount((plan.time * MINUTES).astype(np.int64), minlength=MINUTES)
        seconds = np.bincount((plan.time * 86_400).astype(np.int64), minlength=86_400)
        more = {
            "refreshes": len(plan),
            "busiest_minute": float(load.max() / load.mean()),
            "busiest_second": float(seconds.max() / seconds.mean()),
            "load": " ".join(map(str, load)),  # refreshes of each minute
        }
    seconds_taken, cpu = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "method": name,
        "sources": n,
        "seconds": round(seconds_taken, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_mb": round(peak / 1024),
        **more,
    }


def loads(n: int, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return one row per method, each measured in a process of its own; of the replay 10n events."""
    rows = []
    for name in names:
        many = (5 if name == "replay" else 2) * n
        command = [sys.executable, __file__, "--one", name, str(n), str(many)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(ran.stdout))
    return rows


def history(folder: Path, name: str, runs: int) -> list[dict[str, Any]]:
    """Return freshness in the second half of a history under rates of the first."""
    import polars as pl

    events = pl.read_parquet(folder / f"{name}.events.parquet").with_columns(pl.col("source").cast(str))
    sources = pl.read_parquet(folder / f"{name}.sources.parquet").with_columns(pl.col("source").cast(str))
    end = float(sources["stop"].max())
    middle = end / 2
    there = sources.filter((pl.col("start") < middle) & (pl.col("stop") > middle)).sort("source")
    changes = events.filter((pl.col("kind") == 1) & pl.col("source").is_in(there["source"].to_list()))
    world = fo.World.from_events(changes, names=there["source"].to_numpy(), start=middle, horizon=end)
    before = changes.filter(pl.col("time") <= middle).group_by("source").len()
    counts = there.join(before, on="source", how="left", maintain_order="left")["len"].fill_null(0)
    watched = middle - there["start"].to_numpy()
    smooth, raw = (counts.to_numpy() + 0.5) / (watched + 0.5), np.maximum(counts.to_numpy() / watched, 1e-6)
    n = len(world)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run in range(runs):
        weight = np.random.default_rng([run, 7]).pareto(1.5, n)
        problem = fo.Problem(
            BinaryFreshness(PERIODIC), fo.Sources(smooth, weight, name=world.names), bandwidth=n / 7.0
        )
        unsmoothed = problem.with_change_rate(raw)
        policies = {
            "uniform": fo.solve(problem, fo.solvers.Uniform(), throw=False),
            "proportional": fo.solve(problem, fo.solvers.Proportional(), throw=False),
            "proportional, not smoothed": fo.solve(unsmoothed, fo.solvers.Proportional(), throw=False),
            "optimal": fo.solve(problem),
        }
        for policy, solution in policies.items():
            # Greedy picks of the large history take ten seconds a run.
            every = ("Periodic", "Carousel", "PoissonArrivals", *(["Greedy"] if n < 1000 else []))
            for method in every if policy == "optimal" else every[:1]:
                plan = fo.schedule(solution, end - middle, method_of(method, problem))
                seen = fo.replay(plan, world, importance=weight, end=there["stop"].to_numpy()).costs["binary"]
                error = seen.error / float(weight.sum())
                found.setdefault((policy, method), []).append((seen.mean, error))
    return [
        {
            "history": name,
            "sources": n,
            "changes": len(world.events(middle, end)[1]),
            "rates": policy,
            "schedule": method,
            "runs": len(each),
            "fresh": round(float(np.mean([mean for mean, _ in each])), 4),
            "spread_over_runs": round(float(np.std([mean for mean, _ in each])), 4),
            "error_of_one_run": round(float(np.mean([error for _, error in each])), 4),
        }
        for (policy, method), each in found.items()
    ]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of real histories")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--quick", action="store_true", help="small instances")
    parser.add_argument("--save", nargs="?", type=Path, const=ROOT, metavar="ROOT", help="keep the results")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "SOURCES", "REFRESHES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, n, refreshes = options.one
        print(json.dumps(measure_one(name, int(n), int(refreshes))))
        return
    parts = set(options.parts.split(","))
    if not parts <= set(PARTS):
        parser.error(f"the parts are {', '.join(PARTS)}")
    small = options.quick
    root = options.save or ROOT
    saved = root / "benchmarks" / "results" / "replay.json"
    record: dict[str, Any] = {"quick": small, **{part: [] for part in PARTS}}
    if parts < set(PARTS) and saved.exists():
        record |= json.loads(saved.read_text(encoding="utf-8"))
    if "disciplines" in parts:
        record["disciplines"] = disciplines(60 if small else 1000, 12.0 if small else 60.0)
    if "loads" in parts:
        names = (*(name for name in METHODS if name != "Greedy"), "replay")
        record["loads"] = loads(2000 if small else 1_000_000, names)
    if "greedy" in parts:
        record["greedy"] = loads(500 if small else 1_000_000, ("Greedy",))
    if "histories" in parts and options.data is not None:
        runs = 2 if small else 10
        record["histories"] = [each for name in HISTORIES for each in history(options.data, name, runs)]
    print(page(record))
    if options.save is not None:
        saved.parent.mkdir(parents=True, exist_ok=True)
        (root / "docs").mkdir(exist_ok=True)
        if len(record["greedy"] + record["loads"]) == len(METHODS) + 1:
            draw(record["greedy"] + record["loads"], root / "docs" / "load.png")
        saved.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (root / "docs" / "schedules.md").write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
