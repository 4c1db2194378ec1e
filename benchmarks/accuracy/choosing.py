"""What a choice costs: optima of each objective judged by the others, and tables of the evidence.

    python -m benchmarks choosing [--save]

Objectives are compared on seeded lognormal sources: rates that are optimal for one are judged by all, under
periodic refreshes. Nothing is random but the sources, so that the tests compute the table anew. The other
tables of the page are from saved results of other benchmarks.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import Claims, Measurement, Record, Row, saved
from benchmarks.objectives import OBJECTIVES as EVERY
from freshopt.solvers import Proportional, Uniform

SOURCES, BUDGET = 1000, 0.2  # bandwidth over the sum of the change rates: not enough for all
SIZES = (100, 10_000, 1_000_000)
NOTHING = 1e-9  # relative: rounding
FAST = 0.1  # the fastest tenth
OBJECTIVES = {
    type(EVERY[f"{name}, periodic"]).__name__: EVERY[f"{name}, periodic"]
    for name in ("harmonic", "binary", "delay", "age")
} | {"PowerCost, √age": EVERY["power 0.5"]}

WORKS = {
    "budgets3": "3 budgets in units of their own",
    "budgets8": "8 budgets",
    "budgets1000": "999 limits in plain CVXPY, 4 a source, and a bandwidth",
    "targets100": "cheapest with 100 targets, 4 a source",
    "epsilon40": "harmonic staleness under 20 targets of freshness and 20 budgets",
    "nested": "limits of hosts, domains and organisations",
    "hosts": "limits of hosts and 3 budgets",
}


def sources() -> fo.Sources:
    """Return the sources that all objectives share."""
    rng = np.random.default_rng(0)
    return fo.Sources(rng.lognormal(-1.0, 1.5, SOURCES), rng.lognormal(0.0, 1.0, SOURCES))


def measure() -> list[Row]:
    """Return for each way to choose rates what they are like and what they cost beyond each optimum."""
    given = sources()
    bandwidth = BUDGET * float(np.sum(given.change_rate))
    problems = {name: fo.Problem(each, given, bandwidth) for name, each in OBJECTIVES.items()}
    rates = {name: fo.solve(problem, tolerance=1e-9).rates for name, problem in problems.items()}
    anyone = problems["HarmonicStaleness"]  # baselines look at no objective
    best = {name: cost(problem, rates[name]) for name, problem in problems.items()}
    rates["equal rates"] = fo.solve(anyone, Uniform()).rates
    rates["proportional to Δ"] = fo.solve(anyone, Proportional()).rates
    fastest = given.change_rate >= np.quantile(given.change_rate, 1.0 - FAST)
    rows = []
    for name, each in rates.items():
        costs = {key: cost(problem, each) for key, problem in problems.items()}
        extra = {key: value / best[key] - 1.0 if np.isfinite(value) else None for key, value in costs.items()}
        never = int(np.sum(each == 0.0))
        share = float(np.sum(each[fastest]) / np.sum(each))
        rows.append({"rates": name, "never": never, "share_of_fastest": share, "extra": extra})
    return rows


def cost(problem: fo.Problem, rates: Any) -> float:
    """Return Σ w·J at the rates; of a freshness objective the stale part."""
    if problem.numerics is None:
        raise SystemExit(f"{problem.objective!r} has no numerics")
    return float(np.sum(problem.numerics.cost(rates)))


def percent(extra: float | None) -> str:
    """Return a cost above the optimum in percent; None is infinite."""
    return "∞" if extra is None else "0" if extra < NOTHING else f"{100 * extra:.1f}"


def objectives(record: Record) -> Iterator[Row]:
    """Yield what rates that are best for one objective cost under the others."""
    for row in record["rows"]:
        name = f"`{row['rates']}`" if row["rates"] in OBJECTIVES else row["rates"]
        yield {**row, "rates": name, **{key: percent(row["extra"][key]) for key in OBJECTIVES}}


def solvers(_: Record) -> Iterator[Row]:
    """Yield seconds and gaps of solvers at several sizes, of an objective that is declared by a user."""
    rows = (row for row in saved("derived")["rows"] if row["objective"] == "harmonic" and not row["ill"])
    found = {(row["method"], row["n"]): f"{row['processor']:.2g} s, {row['gap']:.0e}" for row in rows}
    for method in ("WaterFilling", "SeparableNewton", "CLARABEL", "ECOS", "SCS"):
        name = f"`{method}`" if method[1].islower() else f'`Conic("{method}")`'
        yield {"solver": name, **{f"{n}": found.get((method, n), "–") for n in SIZES}}


def cones(_: Record) -> Iterator[Row]:
    """Yield how often cone solvers prove the optimum, over all objectives and kinds of instances."""
    every = saved("cone_solvers")["rows"]
    for backend in sorted({row["backend"] for row in every}):
        mine = [row for row in every if row["backend"] == backend]
        counted = (key for key, value in mine[0].items() if isinstance(value, int))
        yield {"backend": backend, **{key: sum(row[key] for row in mine) for key in counted}}


def constraints(_: Record) -> Iterator[Row]:
    """Yield how long declared constraints of a million sources take, certificate included."""
    found = {row["work"]: row for row in saved("constraints_speed")["rows"]}
    for work, words in WORKS.items():
        chosen = found[work]["note"].split("(")[0].removeprefix("Auto chose ")
        yield found[work] | {"words": words, "chosen": chosen}


def rivals(_: Record) -> Iterator[Row]:
    """Yield times beside those of CVXPY, declaration and certificate included."""
    for row in saved("constraints_rivals")["time"]:
        told = "".join(row["CVXPY failures"])
        yield row | {"end": "optimal" if not told else "inaccurate" if "optimal" in told else "an error"}


def claims(record: Record) -> Claims:
    """Yield what the page says of choices, and that optima are optima."""
    extra = {row["rates"]: row["extra"] for row in record["rows"]}
    worse = {name for name in OBJECTIVES if extra["proportional to Δ"][name] > extra["equal rates"][name]}
    yield (
        f"proportional rates are worse than equal ones for {worse}",
        worse == {*OBJECTIVES} - {"AccumulatedDelay"},
    )
    for name in OBJECTIVES:
        yield f"{name} is least at its own optimum", abs(extra[name][name]) < 1e-12
    for row in saved("replay")["disciplines"]:
        if row["schedule"] == "Carousel, as written":
            yield f"{row['objective']}: a carousel costs {row['excess']:.1e} more", row["excess"] < 1e-3
    solved, every = (
        sum(row[key] for row in saved("cone_solvers")["rows"]) for key in ("raw_solved", "instances")
    )
    yield f"cone solvers mostly fail: {solved} of {every}", solved < 0.5 * every


BENCH = Measurement(
    {"rows": measure},
    rows={
        "objectives": objectives,
        "solvers": solvers,
        "cones": cones,
        "constraints": constraints,
        "rivals": rivals,
    },
    claims=claims,
)
