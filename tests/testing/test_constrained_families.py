"""Families with declared constraints: feasible, binding, judged, cut down, and refused by who cannot."""

import numpy as np
import pytest

import freshopt as fo
from freshopt.solvers import Conic, InteriorPoint
from freshopt.testing import Instance, Recipe, assert_optimal, instances, validate_on
from freshopt.testing.constrained_families import CONSTRAINED
from tests.contracts import discovery
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import CONIC

DELAY = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
HARMONIC = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
FAMILIES = list(instances(HARMONIC, 8, 1, constraints=True))
SOLVERS = discovery.solvers()


def named(case: Instance) -> str:
    return case.name


def test_every_kind_is_there_at_every_budget() -> None:
    kinds = {name.split(", bandwidth")[0] for name, _ in FAMILIES}
    assert kinds == set(CONSTRAINED)
    assert len(FAMILIES) == 3 * len(CONSTRAINED)


@pytest.mark.parametrize("case", FAMILIES, ids=named)
def test_what_is_solved_is_judged_optimal_and_what_is_moved_is_not(case: Instance) -> None:
    solution = fo.solve(case.problem, InteriorPoint())
    minimax = isinstance(case.problem.objective, fo.Worst)
    if not minimax:  # without its prices the proof of a minimax is much weaker
        assert_optimal(case.problem, solution.rates, CONIC)
    with pytest.raises(AssertionError, match=r"not feasible|not proved optimal|neither"):
        assert_optimal(case.problem, 0.7 * solution.rates, CONIC)
    with pytest.raises(AssertionError, match=r"not feasible|not proved optimal|neither"):
        assert_optimal(case.problem, 1.5 * solution.rates, CONIC)


@pytest.mark.parametrize("case", FAMILIES, ids=named)
def test_a_recipe_is_the_problem(case: Instance) -> None:
    recipe = Recipe.from_problem(case.problem)
    namespace: dict[str, fo.Problem] = {}
    exec(recipe.code(), namespace)
    value = fo.solve(case.problem).value
    for again in (recipe.problem(), namespace["problem"]):
        assert fo.solve(again).value == pytest.approx(value, rel=1e-10)
        assert again.row_labels == case.problem.row_labels
    part = recipe.take(np.array([0, 2, 3]))
    assert len(part.problem().sources) == 3
    assert len(part.constraints) <= len(recipe.constraints)


@pytest.mark.parametrize("name", sorted(SOLVERS))
@pytest.mark.sampled(3)
def test_solvers_that_carry_no_rows_refuse_them(name: str) -> None:
    """No solver leaves a constraint out: it is optimal with all rows met, or refused in one line."""
    few = 3 if name.startswith("Conic") else 1  # cone solvers take long, and see a bandwidth of each family
    for _, problem in FAMILIES[1 % few :: few]:
        solution = fo.solve(problem, SOLVERS[name], throw=False)
        if solution.status is fo.Status.REFUSED:
            assert "\n" not in solution.note
            assert solution.certificate is None
            continue
        assert getattr(SOLVERS[name], "declared_constraints", False) or "Auto" in name
        if isinstance(SOLVERS[name], InteriorPoint):
            assert solution.status is fo.Status.OPTIMAL
        rows = present(present(solution.certificate).rows)
        assert np.all(rows.slack >= 0.0)


@pytest.mark.parametrize("kind", CONSTRAINED)
def test_cross_checks_compare_constrained_problems(kind: str) -> None:
    (case,) = [each for each in FAMILIES if each.name.startswith(f"{kind}, bandwidth 0.5")]
    found = fo.cross_check(case.problem, [InteriorPoint(), Conic(), fo.solvers.WaterFilling()])
    assert [solution.status for solution in found.solutions][2] is fo.Status.REFUSED
    assert found.proved
    assert not found.contradictions()
    assert found.rate_differences()[1] < 1e-2
    assert "WaterFilling" in repr(found)


def test_a_foreign_solver_that_leaves_constraints_out_falls_short() -> None:
    def without_rows(problem: fo.Problem) -> object:
        bandwidth = problem.bandwidth if np.isfinite(problem.bandwidth) else 1.0
        return fo.solve(fo.Problem(DELAY, problem.sources, bandwidth)).rates

    report = validate_on(without_rows, [(case.name, case.problem) for case in FAMILIES[:6]])
    assert not report.passed
    assert {each.outcome.verdict.value for each in report.runs} <= {"infeasible", "not optimal"}
    assert "constraints=[Budget" in repr(report.smallest[0]) or "Budget" in report.smallest[0].recipe.code()
    right = validate_on(fo.solve, [(case.name, case.problem) for case in FAMILIES[:6]])
    assert right.passed
