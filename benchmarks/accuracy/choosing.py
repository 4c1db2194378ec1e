"""What a choice costs: optima of each objective judged by the others, and the tables of docs/choosing.md.

    python benchmarks/accuracy/choosing.py [--save]

Objectives are compared on seeded lognormal sources: rates that are optimal for one are judged by all, under
periodic refreshes. Nothing is random but the sources, so that the tests compute the table anew. The other
tables of the page are from saved results of other benchmarks. --save writes benchmarks/results/choosing.json
and the page.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    PowerCost,
    SynchronizationCost,
)
from freshopt.solvers import Proportional, Uniform

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "choosing.md"
FOLDER = ROOT / "benchmarks" / "results"
SOURCES, BUDGET = 1000, 0.2  # bandwidth over the sum of the change rates: not enough for all
SIZES = (100, 10_000, 1_000_000)
NOTHING = 1e-9  # relative: rounding
FAST = 0.1  # the fastest tenth
PERIODIC = fo.Refresh.PERIODIC
HEADS = ("harmonic", "binary", "delay", "age", "√age")
OBJECTIVES: dict[str, fo.Objective] = {
    "HarmonicStaleness": HarmonicStaleness(PERIODIC),
    "BinaryFreshness": BinaryFreshness(PERIODIC),
    "AccumulatedDelay": AccumulatedDelay(PERIODIC),
    "Age": Age(PERIODIC),
    "PowerCost, √age": SynchronizationCost(PowerCost(1.0, 0.5)),
}

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


def measure() -> list[dict[str, Any]]:
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


def cost(problem: fo.Problem, rates: Any) -> float:  # noqa: ANN401 - an array
    """Return Σ w·J at the rates; of a freshness objective the stale part."""
    if problem.numerics is None:
        raise SystemExit(f"{problem.objective!r} has no numerics")
    return float(np.sum(problem.numerics.cost(rates)))


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def objectives(saved: dict[str, Any]) -> str:
    """Return what rates that are best for one objective cost under the others."""
    rows = [
        [
            f"`{row['rates']}`" if row["rates"] in OBJECTIVES else row["rates"],
            str(row["never"]),
            f"{100 * row['share_of_fastest']:.0f}",
            *(percent(row["extra"][name]) for name in OBJECTIVES),
        ]
        for row in saved["choosing"]
    ]
    return table(["rates are best for", "never refreshed", "% to the fastest tenth", *HEADS], rows)


def percent(extra: float | None) -> str:
    """Return a cost above the optimum in percent; None is infinite."""
    return "∞" if extra is None else "0" if extra < NOTHING else f"{100 * extra:.1f}"


def solvers(saved: dict[str, Any]) -> str:
    """Return seconds and gaps of solvers at several sizes, of an objective that is declared by a user."""
    found = {
        (r["method"], r["n"]): r
        for r in saved["derived"]["rows"]
        if r["objective"] == "harmonic" and not r["ill"]
    }
    rows = []
    for method in ("WaterFilling", "SeparableNewton", "CLARABEL", "ECOS", "SCS"):
        row = [f"`{method}`" if method[1].islower() else f'`Conic("{method}")`']
        for n in SIZES:
            each = found.get((method, n))
            row.append(f"{each['processor']:.2g} s, {each['gap']:.0e}" if each else "–")
        rows.append(row)
    return table(["solver", *(f"{n:,} sources" for n in SIZES)], rows)


def cones(saved: dict[str, Any]) -> str:
    """Return how often cone solvers prove the optimum, over all objectives and kinds of instances."""
    rows = []
    every = saved["cone_solvers"]["rows"]
    for backend in sorted({row["backend"] for row in every}):
        mine = [row for row in every if row["backend"] == backend]
        sums = {
            k: sum(row[k] for row in mine)
            for k in ("instances", "raw_solved", "raw_false_claims", "solved_at_first", "solved")
        }
        rows.append([f"`{backend}`", *(f"{value:,}" for value in sums.values())])
    head = [
        "backend",
        "instances",
        "proved, plain CVXPY",
        "falsely called optimal",
        "proved, `Conic` at first",
        "proved, `Conic`",
    ]
    return table(head, rows)


def constraints(saved: dict[str, Any]) -> str:
    """Return how long declared constraints of a million sources take, certificate included."""
    found = {row["work"]: row for row in saved["constraints_speed"]["rows"]}
    rows = [
        [
            words,
            f"{found[work]['rows']:,}",
            f"`{found[work]['note'].split('(')[0].removeprefix('Auto chose ')}`",
            f"{found[work]['full passes']}",
            f"{found[work]['certified']:.2g}",
            f"{found[work]['gap']:.0e}",
        ]
        for work, words in WORKS.items()
    ]
    return table(["constraints", "rows", "solver", "passes", "seconds", "gap"], rows)


def rivals(saved: dict[str, Any]) -> str:
    """Return times beside those of CVXPY, declaration and certificate included."""
    rows = []
    for row in saved["constraints_rivals"]["time"]:
        failures = {each.split(" failed")[0].strip("'") for each in row["CVXPY failures"]}
        end = (
            "optimal" if not failures else "an error" if "optimal" not in "".join(failures) else "inaccurate"
        )
        times = (f"{row[key]:.2g}" for key in ("seconds", "CVXPY seconds"))
        rows.append([row["kind"], f"{row['n']:,}", f"{row['rows']:,}", *times, f"{row['ratio']:.0f}", end])
    return table(["constraints", "sources", "rows", "seconds", "CVXPY", "ratio", "CLARABEL ended"], rows)


def estimators(saved: dict[str, Any]) -> str:
    """Return what estimators ask for and how far they err."""
    data = saved["estimators"]
    error = {
        (row["estimator"], row["crawls"]): row["error"] for row in data["accuracy"] if row["rate"] == 1.0
    }
    rows = []
    for name, kinds in data["consistency"].items():
        asks = data["cost"]["rows"][name]
        right = [kind for kind, row in kinds.items() if row["consistent"]]
        rows.append(
            [
                f"`{name}`",
                {0: "none", 4: "any kind"}.get(len(right), ", ".join(right)),
                "yes" if asks["asks_crawl_rate"] else "no",
                "yes" if asks["online"] else "no",
                *(f"{100 * error[name, crawls]:.0f} %" for crawls in (20, 200, 2000)),
                f"{asks['nanoseconds']:.0f}",
            ]
        )
    head = [
        "estimator",
        "consistent for intervals",
        "needs crawl rates",
        "learns online",
        "20 crawls",
        "200 crawls",
        "2000 crawls",
        "ns per crawl",
    ]
    return table(head, rows)


def schedules(saved: dict[str, Any]) -> str:
    """Return what methods cost above the periodic optimum, and what making them takes."""
    replayed, names = saved["replay"], [name for name in OBJECTIVES if "√" not in name]
    above = {(row["objective"], row["schedule"]): row["excess"] for row in replayed["disciplines"]}
    made = {row["method"]: row for row in replayed["loads"] + replayed["greedy"] if "busiest_minute" in row}
    rows = []
    for method, each in made.items():
        cells = [f"{100 * above[name, f'{method}, as written']:+.2f}" for name in names]
        rows.append(
            [
                f"`{method}`",
                *cells,
                f"{each['busiest_minute']:.3f}",
                f"{each['cpu_seconds']:.1f}",
                str(each["peak_mb"]),
            ]
        )
    return table(["method", *HEADS[:4], "busiest minute / mean", "seconds", "MB"], rows)


TABLES = {
    "objectives": objectives,
    "solvers": solvers,
    "cones": cones,
    "constraints": constraints,
    "rivals": rivals,
    "estimators": estimators,
    "schedules": schedules,
}


def load() -> dict[str, Any]:
    """Return the saved results that the tables are made from."""
    names = ("choosing", "derived", "cone_solvers", "estimators", "replay")
    names += ("constraints_speed", "constraints_rivals")
    return {name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in names}


def filled(page: str, saved: dict[str, Any]) -> str:
    """Return the page with its tables made anew."""
    for name, made in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        head, rest = page.split(begin)
        page = head + begin + made(saved) + end + rest.split(end, 1)[1]
    return page


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    measured = measure()
    print(objectives({"choosing": measured}))
    if options.save:
        (FOLDER / "choosing.json").write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), load()), encoding="utf-8")


if __name__ == "__main__":
    main()
