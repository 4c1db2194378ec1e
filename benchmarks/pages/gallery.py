"""Solve the objectives that a guide declares: two cone solvers at 50 sources, Newton at a million.

    python -m benchmarks gallery [--large 1000000] [--save]

The declarations are those of the page: its code is executed, nothing is repeated here. Cone solvers run
without their ladder, so that no answer comes from a second attempt or from the dual.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.harness import ROOT, Claims, Measurement, Record, Row
from freshopt.solvers import Conic, SeparableNewton, WaterFilling

PAGE = ROOT / "docs" / "guides" / "your-own-objective.md"
OBJECTIVES = ("AlphaFairFreshness", "FairBlend", "StalenessAndBill")
SMALL = 50


def declared() -> list[fo.Objective]:
    """Return the page's objectives with their defaults."""
    names: dict[str, Any] = {"__name__": "gallery"}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for k, block in enumerate(blocks):
        # The first has the imports.
        if k == 0 or any(f"class {name}(" in block for name in OBJECTIVES):
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


def objectives(large: int = 10**6) -> Iterator[Row]:
    """Yield the objectives."""
    for objective in declared():
        yield measure(objective, large)


def claims(record: Record) -> Claims:
    """Yield that all solvers agree, and prove it, with a bandwidth that binds."""
    yield "three objectives", [row["objective"] for row in record["objectives"]] == [*map(repr, declared())]
    for row in record["objectives"]:
        small, large = row["sizes"]
        backends = [each["backend"] for each in small["rows"]]
        yield f"{backends}", small["n"] == SMALL and backends == [None, "CLARABEL", "ECOS"]
        for size in (small, large):
            yield f"{row['objective']}: price {size['price']}", size["price"] > 0.0
            for each in size["rows"]:
                off = max(each["relative_gap"], each["difference"])
                told = f"{row['objective']}, {each['backend'] or each['solver']}: {off:.0e}"
                yield told, off <= (1e-6 if each["backend"] else 1e-9)


def solved(record: Record) -> Iterator[Row]:
    """Yield a row for each objective, size and solver."""
    for row in record["objectives"]:
        for size in row["sizes"]:
            for each in size["rows"]:
                name = each["backend"] or each["solver"]
                yield each | {"objective": row["objective"], "n": size["n"], "name": name}


BENCH = Measurement({"objectives": objectives}, quick={"large": 1000}, rows={"solved": solved}, claims=claims)
