"""Solve the objectives of docs/gallery.md: two cone solvers at 50 sources, Newton at a million.

    python benchmarks/pages/gallery.py [--large 1000000] [--save]

The declarations are those of the page: its code is executed, nothing is repeated here. Cone solvers run
without their ladder, so that no answer comes from a second attempt or from the dual. --save writes
benchmarks/results/gallery.json and the page's table from it.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

import freshopt as fo
from freshopt.solvers import Conic, SeparableNewton, WaterFilling

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "gallery.md"
RESULTS = ROOT / "benchmarks" / "results" / "gallery.json"
OBJECTIVES = ("AlphaFairFreshness", "FairBlend", "StalenessAndBill")
SMALL, LARGE = 50, 1_000_000
BEGIN, END = "<!-- measured -->\n", "<!-- end -->"


def declared() -> list[fo.Objective]:
    """Return the page's objectives with their defaults."""
    names: dict[str, Any] = {"__name__": "gallery"}
    declarations, _, _ = PAGE.read_text(encoding="utf-8").partition("\n## Solved\n")
    for block in re.findall(r"^```python\n(.*?)^```$", declarations, re.MULTILINE | re.DOTALL):
        exec(compile(block, PAGE.name, "exec", dont_inherit=True), names)
    return [names[name]() for name in OBJECTIVES]


def problem(objective: fo.Objective, n: int) -> fo.Problem:
    """Return the seeded problem with n sources."""
    rng = np.random.default_rng(0)
    d, w, cost = rng.lognormal(-1.0, 1.5, n), rng.lognormal(0.0, 1.0, n), rng.uniform(0.2, 5.0, n)
    return fo.Problem(objective, fo.Sources(d, w, refresh_cost=cost), 0.5 * float(np.sum(d)))


def row(solution: fo.Solution, against: fo.Solution) -> dict[str, Any]:
    """Return what is kept of a solution."""
    proof = solution.certificate
    if proof is None:
        raise SystemExit(f"{solution!r}\nhas no certificate")
    return {
        "solver": type(solution.solver).__name__,
        "backend": getattr(solution.solver, "backend", None),
        "value": solution.value,
        "relative_gap": proof.relative_gap,
        "difference": abs(solution.value - against.value) / abs(against.value),
        "iterations": solution.iterations,
        "seconds": solution.seconds,
    }


def measure(objective: fo.Objective, large: int) -> dict[str, Any]:
    """Solve small and large."""
    solvers = {
        SMALL: (Conic("CLARABEL", ladder=False), Conic("ECOS", ladder=False)),
        large: (WaterFilling(),),
    }
    sizes = []
    for n, others in solvers.items():
        given = problem(objective, n)
        newton = fo.solve(given, SeparableNewton(), tolerance=1e-9)
        found = [newton, *(fo.solve(given, solver) for solver in others)]
        sizes.append({"n": n, "price": newton.price, "rows": [row(each, newton) for each in found]})
        for each in found:
            print(f"{objective!r} n={n}\n{each!r}", flush=True)
    return {"objective": repr(objective), "sizes": sizes}


def table(results: list[dict[str, Any]]) -> str:
    """Return the page's table."""
    lines = [
        "| objective | n | solver | value | gap | difference | iterations | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for size in result["sizes"]:
            for each in size["rows"]:
                solver = each["backend"] or each["solver"]
                cells = (
                    f"`{result['objective']}`",
                    f"{size['n']:,}",
                    solver,
                    f"{each['value']:.9g}",
                    f"{each['relative_gap']:.0e}",
                    f"{each['difference']:.0e}",
                    str(each["iterations"]),
                    f"{each['seconds']:.2g}",
                )
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def filled(page: str, results: list[dict[str, Any]]) -> str:
    """Return the page with its table between the marks replaced."""
    head, rest = page.split(BEGIN)
    return head + BEGIN + table(results) + END + rest.split(END, 1)[1]


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", type=int, default=LARGE)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    results = [measure(objective, options.large) for objective in declared()]
    print(table(results))
    if options.save:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")


if __name__ == "__main__":
    main()
