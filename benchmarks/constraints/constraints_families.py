"""Families with a known optimum: what is found, how far it is proved, and at what effort."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linprog

import freshopt as fo
from benchmarks.constraints.constraints_declared import (
    nested_problem,
    nested_targets_problem,
    objective_of,
    planted_problem,
)
from freshopt.certificates.row_gap import RowGap
from freshopt.interior_point.solve_rows import solve_rows
from freshopt.modelling.objective import Refresh
from freshopt.problems import BinaryFreshness
from freshopt.solvers import InteriorPoint
from tests.ground_truth.leximin_truth import SUCCESSIVE, Groups, drawn, successive
from tests.ground_truth.nested_truth import costs, forest, residuals, target_gap, with_targets
from tests.ground_truth.planted_rows import stratum
from tests.ground_truth.row_programs import program_of

Row = dict[str, Any]
CERTIFIED, NESTED, MET = 1e-12, 1e-14, 1e-12
# Values of a planted optimum and of an answer are both rounded: twice the gap is allowed between them.
PLANTED = 2e-12
CURVES = ("harmonic", "delay", "binary", "jump")


def summary(family: str, band: dict[str, float], found: list[Row], seconds: float) -> Row:
    """Return a family's record: the worst of every measure, and the instances outside its band.

    Of each instance is found its number, and the measures or an error.
    """
    good = [each for each in found if "error" not in each]
    row: Row = {"family": family, "instances": len(found), "band": band}
    for key in band:
        row[key] = max((each[key] for each in good), default=None)
    for key in ("passes", "newton"):
        counts = [each[key] for each in good if key in each]
        if counts:
            row[f"{key} median"], row[f"{key} max"] = float(np.median(counts)), int(max(counts))
    if values := [each["relative gap"] for each in good if "relative gap" in each]:
        row["relative gap max"] = max(values)
    outside = [each for each in good if not all(each[key] <= limit for key, limit in band.items())]
    row["outside"] = [each["number"] for each in outside]
    row["errors"] = [f"{each['number']}: {each['error']}" for each in found if "error" in each]
    row["met"] = not row["outside"] and not row["errors"]
    row["seconds"] = round(seconds, 1)
    return row


def measured(
    family: str, band: dict[str, float], count: int, measure: Callable[[int], Row], quick: bool
) -> Row:
    """Measure every instance; one that raises is recorded with its error."""
    begun, found = time.perf_counter(), []
    for number in range(0, count, max(1, count // 4) if quick else 1):
        try:
            found.append({"number": number, **measure(number)})
        except (fo.FreshoptError, ArithmeticError, ValueError, IndexError) as error:
            found.append({"number": number, "error": f"{type(error).__name__}: {error}"[:200]})
    return summary(family, band, found, time.perf_counter() - begun)


def planted(name: str, count: int, quick: bool) -> Row:
    """Budgets, targets and ε-constraints, declared and solved by `fo.solve`."""

    def one(seed: int) -> Row:
        p = stratum(name, seed)
        problem = planted_problem(p)
        solution = fo.solve(problem, throw=False)
        proof = solution.certificate
        if proof is None or problem.program is None:
            return {"error": solution.note}
        y = np.array([solution.prices[f"row {j}"] for j in range(len(p.limits))])
        size = abs(p.value(solution.rates)) + float(y @ np.abs(p.limits))
        over = (p.used(solution.rates) - p.limits) / np.abs(p.limits)
        return {
            "certified": proof.gap / size,
            "beside planted": abs(p.value(solution.rates) - p.value(p.rates)) / p.size,
            "limits missed": max(0.0, float(np.max(over))),
            "relative gap": proof.relative_gap,
            "passes": solution.iterations,
            "newton": solve_rows(problem.program).iterations,
        }

    band = {"certified": CERTIFIED, "beside planted": PLANTED, "limits missed": MET}
    return measured({"mixed": "ε-constraint"}.get(name, name), band, count, one, quick)


def minimax(count: int, quick: bool) -> Row:
    """Rows on levels of their own, overlapping: on the general program."""

    def one(seed: int) -> Row:
        p = stratum("minimax", seed)
        program = program_of(p)
        answer = solve_rows(program)
        proof = RowGap.of(program, answer.rates)
        fixed = p.level == 0.0
        over = (p.used(answer.rates) - p.limits)[fixed] / np.abs(p.limits[fixed])
        size = abs(proof.cost) + float(proof.admissible(answer.multipliers) @ np.abs(p.limits))
        return {
            "certified": proof.at(answer.multipliers) / size,
            "beside planted": abs(p.value(answer.rates) - p.value(p.rates)) / p.size,
            "limits missed": max(0.0, float(np.max(over))),
            "passes": answer.passes,
            "newton": answer.iterations,
        }

    band = {"certified": CERTIFIED, "beside planted": PLANTED, "limits missed": MET}
    return measured("minimax", band, count, one, quick)


def nested(quick: bool) -> Row:
    """Nested limits and reserves by `fo.Nested`; the tests' own KKT residuals."""

    def one(number: int) -> Row:
        seed, curve = divmod(number, len(CURVES))
        case = forest(seed, CURVES[curve], ill=seed % 2 == 1)
        solution = fo.solve(nested_problem(case), throw=False)
        if solution.certificate is None:
            return {"error": solution.note}
        groups = range(len(case.limit))
        mu, xi = (
            np.array([solution.prices[f"{name}[{g}]"] if has[g] else 0.0 for g in groups])
            for name, has in (("nested", np.isfinite(case.limit)), ("nested reserve", case.reserve > 0.0))
        )
        found = residuals(case, solution.rates, mu, xi)
        return {
            "certified": found.gap,
            "limits missed": max(0.0, found.limits, found.reserves, found.bounds),
            "relative gap": solution.certificate.relative_gap,
            "passes": solution.iterations,
        }

    band = {"certified": NESTED, "limits missed": MET}
    return measured("nested limits and reserves", band, 39 * len(CURVES), one, quick)


def nested_targets(quick: bool) -> Row:
    """Nested targets by `fo.Target`, one a level; optimality by closed forms.

    Targets of minimised objectives count relative to themselves, freshness relative to 1.
    """

    def one(number: int) -> Row:
        seed, curve = divmod(number, len(CURVES))
        case, targets = with_targets(forest(seed, CURVES[curve], ill=seed % 2 == 1), seed)
        problem, declared = nested_targets_problem(case, targets)
        solution = fo.solve(problem, throw=False)
        if solution.certificate is None or problem.program is None:
            return {"error": solution.note}
        total = case.member @ case.weight
        y = np.zeros(len(targets))
        for label, price in solution.prices.items():
            group = int(label[label.index("[") + 1 : -1])
            y[group] = price / total[group]
        reached = case.member @ costs(case, solution.rates)
        unit = total if problem.constraints[0].at_least is not None else declared
        return {
            "certified": target_gap(case, declared, solution.rates, y),
            "limits missed": max(0.0, float(np.max((reached - declared) / unit))),
            "relative gap": solution.certificate.relative_gap,
            "passes": solution.iterations,
        }

    band = {"certified": NESTED, "limits missed": MET}
    return measured("nested targets", band, 39 * len(CURVES), one, quick)


FORMULAS = ("harmonic", "delay", "binary")


def groups_of(seed: int) -> Groups:
    """Draw groups, some of which cannot be helped beyond a level."""
    return drawn(np.random.default_rng([seed, 5]), FORMULAS[seed % 3], 6)


def leximin(count: int, quick: bool) -> Row:
    """Return every group's level beside those of the cone programs."""

    def one(seed: int) -> Row:
        case = groups_of(seed)
        sources = fo.Sources(
            case.change, case.weight, refresh_cost=case.cost, min_rate=case.lower, max_rate=case.upper
        )
        fairest = fo.Worst(objective_of(case.curve, case.change), by=case.group, then="next")
        solution = fo.solve(fo.Problem(fairest, sources, case.budget), throw=False)
        proof = solution.certificate
        if proof is None:
            return {"error": solution.note}
        levels, expected = case.levels(solution.rates), successive(case)
        return {
            "certified": proof.gap / float(levels.max()),
            "beside successive minimax": float(np.max(np.abs(levels / expected - 1.0))),
            "limits missed": max(0.0, float(case.cost @ solution.rates) / case.budget - 1.0),
            "passes": solution.iterations,
        }

    band = {"certified": CERTIFIED, "beside successive minimax": SUCCESSIVE, "limits missed": MET}
    return measured("leximin", band, count, one, quick)


LINEAR = 1e-10
# HiGHS ends within 1e-7 of feasibility by default; values then agree to less than this.
HIGHS = 1e-6


def linear(count: int, quick: bool) -> Row:
    """Return random linear programs, a third of them with ties, half of them ill-scaled."""

    def one(seed: int) -> Row:
        rng = np.random.default_rng([seed, 9])
        n, m, ill = 300, int(rng.integers(2, 13)), seed % 2 == 1
        d = 10.0 ** rng.uniform(-5.0, 5.0, n) if ill else rng.lognormal(0.0, 1.0, n)
        w, a = rng.lognormal(0.0, 3.0 if ill else 1.0, n), rng.lognormal(0.0, 1.5 if ill else 0.5, (m, n))
        if seed % 3 == 0:
            # Few kinds of sources: whole groups have one marginal value per unit of every budget.
            kind = rng.integers(0, 12, n)
            d, w, a = d[kind], w[kind], a[:, kind]
        limits = (a @ d) * rng.uniform(0.1, 0.7, m)
        sources = fo.Sources(d, w, signalled=np.ones(n, dtype=np.bool_))
        rows = [
            fo.Budget(float(b), cost=c, name=f"row {j}")
            for j, (b, c) in enumerate(zip(limits, a, strict=True))
        ]
        solution = fo.solve(
            fo.Problem(BinaryFreshness(Refresh.POISSON), sources, constraints=rows),
            InteriorPoint(),
            throw=False,
        )
        proof = solution.certificate
        if proof is None:
            return {"error": solution.note}
        y = np.array([solution.prices[f"row {j}"] for j in range(m)])
        lost = float(np.sum(w * (1.0 - solution.rates / d)))
        # Over ρ/Δ; the loss is Σ w less what is fresh.
        other = linprog(
            -w, A_ub=a * d / limits[:, None], b_ub=np.ones(m), bounds=[(0.0, 1.0)] * n, method="highs"
        )
        size = lost + float(y @ limits)
        return {
            "certified": proof.gap / size,
            "beside HiGHS": abs(lost - float(np.sum(w) + other.fun)) / size,
            "limits missed": max(0.0, float(np.max(a @ solution.rates / limits - 1.0))),
            "passes": solution.iterations,
        }

    band = {"certified": LINEAR, "beside HiGHS": HIGHS, "limits missed": MET}
    return measured("linear programs", band, count, one, quick)
