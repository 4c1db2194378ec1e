"""Families with a known optimum: what is found, how far it is proved, and at what effort."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import freshopt as fo
from benchmarks.constraints.constraints_declared import (
    nested_problem,
    nested_targets_problem,
    planted_problem,
)
from freshopt.certificates.row_gap import RowGap
from freshopt.interior_point.solve_rows import solve_rows
from tests.ground_truth.nested_truth import Forest, costs, forest, marginal, residuals, response
from tests.ground_truth.planted_rows import stratum
from tests.ground_truth.row_programs import program_of

Row = dict[str, Any]
CERTIFIED, NESTED, MET = 1e-12, 1e-14, 1e-12
# Values of a planted optimum and of an answer are both rounded: twice the gap is allowed between them.
PLANTED = 2e-12
CURVES = ("harmonic", "delay", "binary", "jump")


def summary(family: str, band: dict[str, float], found: list[Row], seconds: float) -> Row:
    """Return a family's record: the worst of every measure, and the instances outside its band.

    Parameters
    ----------
    family : str
    band : dict
        What each measure is to stay within.
    found : list of dict
        Per instance its number, or its error, and the measures.
    seconds : float
    """
    good = [each for each in found if "error" not in each]
    row: Row = {"family": family, "instances": len(found), "band": band}
    for key in band:
        row[key] = max((each[key] for each in good), default=None)
    for key in ("passes", "newton"):
        counts = [each[key] for each in good if key in each]
        if counts:
            row[f"{key} median"], row[f"{key} max"] = float(np.median(counts)), int(max(counts))
    for key in ("relative gap",):
        values = [each[key] for each in good if key in each]
        if values:
            row[f"{key} max"] = max(values)
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


def targets_of(seed: int, case: Forest) -> tuple[Forest, np.ndarray]:
    """Return groups with targets that random rates meet."""
    rng = np.random.default_rng(1000 + seed)
    rates = np.minimum(np.maximum(case.change * rng.lognormal(size=len(case.cost)), case.lower), case.upper)
    each = case.member @ costs(case, rates)
    targets = each * rng.uniform(1.0, 1.5, len(case.member))
    return replace(case, member=case.member[each > 0.0]), targets[each > 0.0]


def nested_targets(quick: bool) -> Row:
    """Nested targets by `fo.Target`, one a level; optimality by closed forms.

    Targets of minimised objectives count relative to themselves, freshness relative to 1.
    """

    def one(number: int) -> Row:
        seed, curve = divmod(number, len(CURVES))
        case, targets = targets_of(seed, forest(seed, CURVES[curve], ill=seed % 2 == 1))
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
        scaled = replace(case, weight=case.weight * (y @ case.member), limit=np.zeros(0))
        best = response(replace(scaled, member=case.member[:0]), case.cost)
        slope = case.cost - marginal(scaled, solution.rates)
        # Infinite slopes at a rate of 0 that is also the best response add nothing.
        moved = np.abs(best - solution.rates)
        terms = np.where(moved > 0.0, np.abs(slope) * moved, 0.0)
        gap = float(np.sum(terms) + np.sum(np.abs(y * (declared - reached))))
        return {
            "certified": gap / float(np.sum(case.cost * solution.rates) + np.sum(y * declared)),
            "limits missed": max(0.0, float(np.max((reached - declared) / unit))),
            "relative gap": solution.certificate.relative_gap,
            "passes": solution.iterations,
        }

    band = {"certified": NESTED, "limits missed": MET}
    return measured("nested targets", band, 39 * len(CURVES), one, quick)
