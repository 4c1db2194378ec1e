"""What certificates claim of any rates at any prices, and what is said of constraints that conflict."""

import re
import time
from dataclasses import replace

import numpy as np

import freshopt as fo
from benchmarks.constraints.constraints_declared import mixed_problem
from benchmarks.constraints.constraints_families import Row
from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_repair import repair_rows
from freshopt.certificates.strict_interior import interior_points
from freshopt.interior_point.conflict import Conflict
from tests.ground_truth.proof_programs import program_of, tried
from tests.ground_truth.row_truth import Planted, conflicting, excess_proved, planted

FAMILIES = ("budgets", "targets", "mixed")
# Rates and prices tried on each instance.
TRIALS = 40
# Every so many instances one is declared: CVXPY's expressions take ten times as long as closed forms.
DECLARED = 4
# Of |F| and the price of the limits: values and sums of rows are rounded.
ROUNDING = 1e-14
EXCLUDED = re.compile(r"exclude (row\d+):")


def rounding(p: Planted, y: np.ndarray, *values: float) -> float:
    """Return what rounding of values and of limits at their prices amounts to."""
    return ROUNDING * (sum(map(abs, values)) + float(y @ np.abs(p.limits)))


def fuzz(checks: int) -> Row:
    """Certify random rates at random prices, near the optimum and far from it, and count exactly.

    Every `DECLARED`-th instance is a declared problem and goes through `fo.certify`, the others are general
    programs. A violation is a loss against the planted optimum beyond the bound; `halved` counts losses
    beyond half of it, which a count that could not fail would not find.
    """
    rng, begun = np.random.default_rng(11), time.perf_counter()
    row: Row = {"family": "certificate fuzz", "checks": 0, "by fo.certify": 0, "instances": 0}
    row |= dict.fromkeys(("violations", "halved", "infeasible", "unproved", "refused"), 0)
    while row["checks"] < checks:
        n, m, number = int(rng.integers(1, 60)), int(rng.integers(1, 9)), row["instances"]
        p = planted(rng, FAMILIES[number % 3], ill=number % 2 == 0, n=n, m=m)
        row["instances"] += 1
        program, problem = program_of(p), None
        if number % DECLARED == 0:
            try:
                problem = mixed_problem(p)
            except fo.FreshoptError:
                row["refused"] += 1
                continue
            if problem.program is None or not len(problem.program.rows):
                continue
            program = problem.program
        labels, best, inside = set(program.rows.labels), p.value(p.rates), interior_points(program)
        for _ in range(min(TRIALS, checks - row["checks"])):
            rates, y = tried(rng, p, program)
            mended = repair_rows(program, rates, inside)
            if mended is None:
                row["unproved"] += 1
                continue
            rates = mended.rates
            if problem is None:
                gap = RowGap.of(program, rates).at(y)
            else:
                # Rows of one source are bounds and have no price of their own.
                prices = {f"row{j}": float(y[j]) for j in range(m) if f"row{j}" in labels}
                proof = fo.certify(problem, rates, prices=prices)
                rates, gap = proof.rates, proof.gap
                row["by fo.certify"] += int(np.isfinite(gap))
            if not np.isfinite(gap):
                row["unproved"] += 1
                continue
            loss, room = p.value(rates) - best, rounding(p, y, best, p.value(rates))
            row["checks"] += 1
            row["infeasible"] += int(not p.feasible(rates))
            row["violations"] += int(loss > gap + room)
            row["halved"] += int(loss > 0.5 * gap + room)
    false = row["violations"] + row["infeasible"] + row["refused"]
    row["met"] = false == 0 and row["halved"] > checks // 100
    return row | {"seconds": round(time.perf_counter() - begun, 1)}


def pair(seed: int) -> tuple[Planted, Planted]:
    """Return an infeasible instance, short by 1e-4 to 43 %, and its feasible twin; half are ill-scaled."""
    rng = np.random.default_rng(seed)
    short = 10.0 ** rng.uniform(-4.0, np.log10(0.43))
    m, family = int(rng.integers(6, 31)), "linear" if seed % 3 == 0 else "mixed"
    return conflicting(rng, family, ill=seed % 2 == 0, n=100, m=m, short=short)


def named(p: Planted) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return the rows that `fo.solve` names, their multipliers, and the seconds; None if it names none."""
    begun = time.perf_counter()
    try:
        fo.solve(mixed_problem(p))
    except fo.InfeasibleProblemError as error:
        seconds = time.perf_counter() - begun
        y = np.zeros(len(p.limits))
        conflict = error.conflict
        if isinstance(conflict, Conflict):
            for label, weight in zip(conflict.labels, conflict.weights, strict=True):
                y[int(label[3:])] = weight
        else:
            alone = EXCLUDED.search(str(error))
            if alone is None:
                return None
            y[int(alone[1][3:])] = 1.0
        return np.flatnonzero(y), y, seconds
    except fo.FreshoptError:
        return None
    return None


def holds(p: Planted, rows: np.ndarray) -> bool:
    """Return whether there are rates that meet some of the rows, checked by the tests' own formulas."""
    if not len(rows):
        return True
    kept = {"matrices": tuple(m[rows] for m in p.matrices), "limits": p.limits[rows], "y": p.y[rows]}
    fewer = replace(p, **kept)
    try:
        solution = fo.solve(mixed_problem(fewer), throw=False)
    except fo.FreshoptError:
        return False
    return bool(np.isfinite(solution.rates).all()) and fewer.feasible(solution.rates, rounding=1e-13)


def infeasible(count: int, quick: bool) -> Row:
    """Count conflicts proved and named irreducibly, and false alarms on feasible twins."""
    begun, seconds = time.perf_counter(), []
    row: Row = {"family": "infeasible", "instances": 0, "proved": 0, "irreducible": 0, "false alarms": 0}
    row |= {"twins solved": 0, "outside": []}
    for seed in range(0, count, max(1, count // 4) if quick else 1):
        tight, loose = pair(seed)
        row["instances"] += 1
        found = named(tight)
        if found is not None:
            rows, y, took = found
            seconds.append(took)
            row["proved"] += (sure := int(excess_proved(tight, y) > 0.0))
            alone = [holds(tight, np.delete(rows, k)) for k in range(len(rows))]
            row["irreducible"] += int(all(alone))
            if not sure or not all(alone):
                row["outside"].append(seed)
        else:
            row["outside"].append(seed)
        row["false alarms"] += int(named(loose) is not None)
        row["twins solved"] += int(holds(loose, np.arange(len(loose.limits))))
    every = row["instances"]
    row["met"] = (
        row["proved"] == row["irreducible"] == row["twins solved"] == every and not row["false alarms"]
    )
    row["named in seconds median"] = round(float(np.median(seconds)), 3) if seconds else None
    row["named in seconds max"] = round(max(seconds), 3) if seconds else None
    return row | {"seconds": round(time.perf_counter() - begun, 1)}
