"""Hold schedules against what happens: predicted and replayed costs, loads per minute, time and memory.

    python -m benchmarks replay [PART ...] [--data FOLDER] [--quick] [--save]

Three questions. Does every discipline cost what it predicts (z is the difference in standard errors), and how
far from the periodic optimum does each method end up in the long run? How flat is the load of a day per
minute, and what time and memory does scheduling 10⁶ sources take? On the second half of real histories, do
rates that were counted in the first half keep their order? --data names a folder as `histories.py` has it;
each source counts until its own stop. What is kept are sums and no data; the picture
is docs/evidence/load.png.
"""

import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import freshopt as fo
from benchmarks.accuracy.histories import second_half
from benchmarks.harness import Claims, Measurement, Record, Row, apart
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from freshopt.scheduling import Carousel, DiscreteCounts, EarliestDeadline, Greedy, Periodic, PoissonArrivals
from freshopt.scheduling.expected_cost import expected_value
from freshopt.scheduling.schedule import Method
from freshopt.simulation.replay_result import Measured

METHODS = ("Periodic", "Carousel", "EarliestDeadline", "Greedy", "DiscreteCounts", "PoissonArrivals")
MINUTES = 1440
HISTORIES = ("scoop_packages", "eol_releases")
OBJECTIVES = (BinaryFreshness, HarmonicStaleness, AccumulatedDelay, Age)
POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC


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


def disciplines(sources_: int = 1000, horizon: float = 60.0) -> Iterator[Row]:
    """Yield predicted and replayed costs of each objective and method, and the way to the optimum."""
    n, sources = sources_, sources_of(sources_)
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
            yield row(kind, f"{name}, as written", predicted, found, excess=settled / optimum - 1.0)
        yield long_run(kind, solution, "equal gaps, in the long run", horizon)
        free = fo.Problem(kind(refresh=POISSON), sources, bandwidth=float(n))
        best = fo.solve(free)
        excess = cost_of(best.value, objective, sources) / optimum - 1.0
        own = long_run(kind, best, "Poisson refreshes at their own optimum, in the long run", horizon)
        yield {**own, "excess": excess}
        announced = sources_of(n, signalled=True)
        signalled = fo.Problem(
            kind(refresh=POISSON), announced, bandwidth=0.6 * float(announced.change_rate.sum())
        )
        yield long_run(kind, fo.solve(signalled), "on signal, in the long run", horizon)


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


def loads(crowd: int = 1_000_000) -> Iterator[Row]:
    """Yield one row per method, each measured in a process of its own; of the replay 10n events."""
    for name in (*(name for name in METHODS if name != "Greedy"), "replay"):
        yield apart(measure_one, name, crowd, (5 if name == "replay" else 2) * crowd)


def greedy(picked: int = 1_000_000) -> Iterator[Row]:
    """Yield the same of greedy picks."""
    yield apart(measure_one, "Greedy", picked, 2 * picked)


def histories(data: Path | None = None, runs: int = 10) -> Iterator[Row]:
    """Yield freshness in the second half of each history under rates of the first."""
    for name in HISTORIES if data else ():
        half = second_half(data, name)
        world = fo.World.from_events(
            half.changes, names=half.sources["source"].to_numpy(), start=half.middle, horizon=half.end
        )
        raw, n = np.maximum(half.counts / half.watched, 1e-6), len(world)
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for run in range(runs):
            weight = np.random.default_rng([run, 7]).pareto(1.5, n)
            sources = fo.Sources(half.smoothed, weight, names=world.names)
            problem = fo.Problem(BinaryFreshness(PERIODIC), sources, bandwidth=n / 7.0)
            unsmoothed, proportional = problem.with_change_rate(raw), fo.solvers.Proportional()
            policies = {
                "uniform": fo.solve(problem, fo.solvers.Uniform(), throw=False),
                "proportional": fo.solve(problem, proportional, throw=False),
                "proportional, not smoothed": fo.solve(unsmoothed, proportional, throw=False),
                "optimal": fo.solve(problem),
            }
            for policy, solution in policies.items():
                # Greedy picks of the large history take ten seconds a run.
                every = ("Periodic", "Carousel", "PoissonArrivals", *(["Greedy"] if n < 1000 else []))
                for method in every if policy == "optimal" else every[:1]:
                    plan = fo.schedule(solution, half.end - half.middle, method_of(method, problem))
                    stop = half.sources["stop"].to_numpy()
                    seen = fo.replay(plan, world, importance=weight, end=stop).costs["binary"]
                    error = seen.error / float(weight.sum())
                    found.setdefault((policy, method), []).append((seen.mean, error))
        for (policy, method), each in found.items():
            mean, error = np.array(each).T
            yield {
                "history": name,
                "sources": n,
                "changes": len(world.events(half.middle, half.end)[1]),
                "rates": policy,
                "schedule": method,
                "runs": len(each),
                "fresh": round(float(np.mean(mean)), 4),
                "spread_over_runs": round(float(np.std(mean)), 4),
                "error_of_one_run": round(float(np.mean(error)), 4),
            }


def claims(record: Record) -> Claims:
    """Yield that costs are as predicted, and of a full run what the page says."""
    rows, measured = record["disciplines"], record["loads"] + record["greedy"]
    told = {(row["objective"], row["schedule"]) for row in rows}
    yield f"{len(told)} disciplines", len(told) == len(rows) == 4 * 9
    for row in rows:
        held = abs(row["z"]) < 4.0 and row["error"] > 0.0
        yield f"{row['objective']}, {row['schedule']}: z {row['z']}", held
    yield "all methods are measured", {row["method"] for row in measured} == {*METHODS, "replay"}
    yield "with their memory", all(row["peak_mb"] > 0 and np.isfinite(row["seconds"]) for row in measured)
    if record["quick"]:
        return
    for row in rows:
        kind, excess = row["schedule"].split(",")[0], row["excess"]
        if kind in ("Periodic", "Carousel"):
            yield f"{row['objective']}, {kind}: {excess:.2%} above the optimum", abs(excess) < 0.01
        if kind.startswith("Poisson"):
            yield f"{row['objective']}, {kind}: {excess:.2%} above the optimum", excess > 0.1
    busiest = {row["method"]: row["busiest_minute"] for row in measured if "busiest_minute" in row}
    order = (busiest["Carousel"], 1.002, busiest["Periodic"], 1.02, busiest["PoissonArrivals"])
    yield f"busiest minutes {busiest}", list(order) == sorted(order)
    yield "of a million sources", {row["sources"] for row in measured} == {1_000_000}
    periodic = (row for row in record["histories"] if row["schedule"] == "Periodic")
    fresh = {(row["history"], row["rates"]): row["fresh"] for row in periodic}
    yield "two histories, four rates", len(fresh) == 8
    for name in HISTORIES:
        best, plain, raw = (
            fresh[name, each] for each in ("optimal", "uniform", "proportional, not smoothed")
        )
        yield f"{name}: fresh {best} at the optimum, {plain} at uniform rates, {raw}", best > plain > raw


def methods(record: Record) -> Iterator[Row]:
    """Yield loads, with what replays are called."""
    for row in (*record["loads"], *record["greedy"]):
        name = "replay, refreshes and changes" if row["method"] == "replay" else row["method"]
        yield (
            {"busiest_minute": None} | row | {"method": name, "many": row.get("refreshes", row.get("events"))}
        )


def draw(record: Record, path: Path) -> None:
    """Draw the load per minute of each method."""
    measured = (row for row in record["greedy"] + record["loads"] if "load" in row)
    rows = sorted(measured, key=lambda row: METHODS.index(row["method"]))
    figure = Figure(figsize=(10.0, 4.6), dpi=90, facecolor="white", layout="constrained")
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    top = max(row["busiest_minute"] for row in rows)
    for axis, each in zip(axes.flat, rows, strict=True):
        load = np.array(each["load"].split(), dtype=np.float64)
        axis.plot(np.arange(MINUTES) / 60.0, load / load.mean(), linewidth=0.5, color="#1f5fa8")
        axis.set_title(f"{each['method']}: busiest minute {each['busiest_minute']:.3f}", fontsize=10)
        axis.axhline(1.0, color="black", linewidth=0.4)
        axis.set_xticks(range(0, 25, 6))
        axis.set_ylim(2.0 - top - 0.05, top + 0.05)
        axis.grid(alpha=0.25)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    figure.supxlabel("hour of the day", fontsize=10)
    figure.supylabel("refreshes in a minute / mean", fontsize=10)
    FigureCanvasAgg(figure).print_png(path)


def by_schedule(record: Record) -> Iterator[Row]:
    """Yield a schedule's cost above the optimum and its distance from what was predicted, by objective."""
    found = {(row["schedule"], row["objective"]): row for row in record["disciplines"]}
    for name in dict.fromkeys(schedule for schedule, _ in found):
        rows = {objective: row for (schedule, objective), row in found.items() if schedule == name}
        above = {key: "" if row["excess"] is None else f"{row['excess']:+.2%}" for key, row in rows.items()}
        yield {"schedule": name} | above | {f"z {key}": f"{row['z']:+.1f}" for key, row in rows.items()}


BENCH = Measurement(
    {"disciplines": disciplines, "loads": loads, "greedy": greedy, "histories": histories},
    quick={"sources_": 60, "horizon": 12.0, "crowd": 2000, "picked": 500, "runs": 2},
    facts=("quick",),
    rows={
        "disciplines": by_schedule,
        "methods": methods,
    },
    pictures={"docs/evidence/load.png": draw},
    claims=claims,
)
