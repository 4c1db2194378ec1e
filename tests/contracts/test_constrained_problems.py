"""Random problems with declared constraints: certified, or infeasible with a conflict that CVXPY confirms."""

from __future__ import annotations

import re

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import freshopt as fo
from freshopt.cvx import quiet
from tests.ground_truth.constrained_strategies import Drawn, constrained_problems
from tests.ground_truth.tolerances import CONIC

BOUNDED = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def row_values(drawn: Drawn, rates: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    """Return by how much of its limit each row is over, from CVXPY's evaluation."""
    rate = cp.Variable(len(rates), nonneg=True)
    rate.value = np.array(rates)
    found = []
    for constraint, (*_, limit) in zip(drawn.constraints(rate), drawn.rows, strict=True):
        found.append(float(np.max(constraint.violation())) / limit)
    return found


def least_excess(drawn: Drawn) -> float:
    """Return the least t for which every limit, raised by the factor 1 + t, can be met."""
    rate, t = cp.Variable(len(drawn.change_rate), nonneg=True), cp.Variable()
    raised = []
    for constraint, (*_, limit) in zip(drawn.constraints(rate), drawn.rows, strict=True):
        left = constraint.args[0]
        raised.append(left / limit <= 1.0 + t)
    program = cp.Problem(cp.Minimize(t), raised)
    with quiet:  # "may be inaccurate" is no error of ours
        program.solve(solver="CLARABEL")
    return float(program.value)


@settings(BOUNDED, max_examples=18)
@given(constrained_problems())
def test_every_problem_is_certified_or_its_conflict_is(drawn: Drawn) -> None:
    solution = fo.solve(drawn.problem, throw=False)
    if solution.status is fo.Status.INFEASIBLE:
        assert "\n" not in solution.note
        assert re.search(r"\d", solution.note)
        if drawn.benign:
            assert least_excess(drawn) > -CONIC
        return
    assert solution.certificate is not None
    assert solution.certificate.relative_gap <= 1e-6
    assert max(row_values(drawn, solution.rates)) <= 1e-9
    assert solution.certificate.rows is None or np.all(solution.certificate.rows.slack >= 0.0)


@settings(BOUNDED, max_examples=8)
@given(constrained_problems(benign=True))
def test_benign_problems_agree_with_cvxpy(drawn: Drawn) -> None:
    program, _ = drawn.program()
    with quiet:  # "may be inaccurate" is no error of ours
        program.solve(solver="CLARABEL")
    solution = fo.solve(drawn.problem, throw=False)
    if solution.status is fo.Status.INFEASIBLE:
        assert program.status in ("infeasible", "infeasible_inaccurate") or least_excess(drawn) > -CONIC
        return
    if program.status != "optimal":  # nothing to compare with, and the certificate says it all
        assert solution.certificate is not None
        assert solution.certificate.relative_gap <= 1e-6
        return
    value = solution.value
    if drawn.problem.objective.sense == "maximise":
        value = float(np.sum(drawn.importance)) - value
    assert value == pytest.approx(program.value, rel=1e-5)
