"""Prices of nested limits and reserves."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.autodiff.compiler import compile_expression
from freshopt.cvx import cp
from freshopt.dual_search import nested_prices
from freshopt.dual_search.nested_prices import fill_nested
from freshopt.dual_search.row_structure import RowStructure
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Numerics
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.laminar_feasibility import require_feasible
from freshopt.separable.program import Program, implied_upper
from freshopt.separable.rows import RowBlock, Rows
from freshopt.solvers.nested_water_filling import TREE, tree_of
from tests.ground_truth.named import BINARY, chosen, present
from tests.ground_truth.nested_truth import Drawn, Floats, Forest, forest, residuals, total_cost
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix, rare
from tests.ground_truth.tolerances import CONIC, EXACT

OBJECTIVES = {
    **chosen("harmonic", "delay", "binary"),
    "jump": BINARY,
}


def rows_of(case: Forest) -> Rows:
    """Return limits, then reserves; those that bind nothing are left out."""
    blocks = []
    for has, bound, least in (
        (np.isfinite(case.limit), case.limit, False),
        (case.reserve > 0.0, case.reserve, True),
    ):
        groups = np.flatnonzero(has)
        row, source = np.nonzero(case.member[groups])
        name = "reserve" if least else "limit"
        blocks.append(
            RowBlock.linear(
                name, groups.tolist(), source, row, case.cost[source], bound[groups], at_least=least
            )
        )
    return Rows.gather(blocks, len(case.cost))


def numerics_of(case: Drawn) -> Numerics:
    sources = fo.Sources(case.change, case.weight)
    objective = OBJECTIVES[case.curve]
    found = objective.signalled_kernel(sources) if case.curve == "jump" else objective.kernel(sources)
    assert found is not None
    return found


def program_of(case: Forest) -> Program:
    rows = rows_of(case)
    upper = implied_upper(rows, case.lower, case.upper)
    return Program(numerics_of(case), case.lower, upper, case.change, rows)


def by_group(case: Forest, multipliers: Floats) -> tuple[Floats, Floats]:
    """Return the multipliers of limits and of reserves, shape (G,) each."""
    mu, xi = np.zeros(len(case.limit)), np.zeros(len(case.limit))
    limited, reserved = np.flatnonzero(np.isfinite(case.limit)), np.flatnonzero(case.reserve > 0.0)
    mu[limited], xi[reserved] = multipliers[: len(limited)], multipliers[len(limited) :]
    return mu, xi


# The gap that rounding of prices leaves: measured, 7e-15 at most of 312 instances and both paths.
GAP = 1e-14
SEEDS = range(39)


def solved(case: Forest) -> tuple[Floats, Floats, Floats]:
    program = program_of(case)
    tree = present(LaminarTree.from_rows(program.rows))
    rates, multipliers, evaluations = fill_nested(program, tree)
    assert evaluations > 0
    return rates, *by_group(case, multipliers)


def cells() -> list[Any]:
    """Every curve and path; compiling takes seconds per curve, so that the usual run compiles none."""
    found = []
    for (c, curve), seed, path in itertools.product(enumerate(OBJECTIVES), SEEDS, ("arrays", "compiled")):
        usual = seed % 8 == c and path == "arrays"
        marks = [] if usual else [pytest.mark.exhaustive]
        found.append(pytest.param(curve, seed, path, marks=marks))
    return found


@pytest.mark.parametrize(("curve", "seed", "path"), cells())
def test_optimality_conditions(monkeypatch: pytest.MonkeyPatch, curve: str, seed: int, path: str) -> None:
    monkeypatch.setattr(nested_prices, "_COMPILED_FROM", 0 if path == "compiled" else 10**9)
    case = forest(seed, curve, ill=seed % 2 == 1)
    rates, mu, xi = solved(case)
    assert np.all(mu >= 0.0)
    assert np.all(xi >= 0.0)
    residuals(case, rates, mu, xi).require(EXACT, GAP)


@matrix(seed=[0, 2, *rare(*range(4, 30))], curve=["harmonic", "delay", "binary"])
def test_a_conic_solver_agrees(curve: str, seed: int) -> None:
    case = forest(seed, curve, ill=False, groups=12, fixed=0.0)
    rates, _, _ = solved(case)
    unit = cp.Variable(len(rates), nonneg=True)
    rate = cp.multiply(case.change, unit)
    # A cone of no weight has no interior in the dual.
    own = np.flatnonzero(case.weight)
    w = case.weight[own]
    cost = {
        "harmonic": lambda: w @ (cp.logistic(-cp.log(unit[own]))),
        "delay": lambda: w @ cp.inv_pos(unit[own]),
        "binary": lambda: w @ cp.inv_pos(unit[own] + 1.0),
    }[curve]()
    used = cp.multiply(case.cost, rate)
    limited, bounded = np.isfinite(case.limit), np.isfinite(case.upper)
    problem = cp.Problem(
        cp.Minimize(cost),
        [
            case.member[limited].astype(float) @ used <= case.limit[limited],
            case.member.astype(float) @ used >= case.reserve,
            rate >= case.lower,
            rate[np.flatnonzero(bounded)] <= case.upper[bounded],
        ],
    )
    problem.solve(solver=cp.CLARABEL)
    assert total_cost(case, rates) == pytest.approx(problem.value, rel=CONIC)


def star(reserve: float, limits: tuple[float, float], curve: str = "delay") -> Forest:
    """Four equal sources in two groups within one."""
    ones = np.ones(4)
    member = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]], dtype=bool)
    upper = ones if curve == "jump" else np.full(4, np.inf)
    return Forest(
        curve,
        ones,
        ones,
        ones,
        0.0 * ones,
        upper,
        member,
        np.array([*limits, 4.0]),
        np.array([0.0, reserve, 0.0]),
    )


def test_multipliers_are_the_derivatives_of_the_optimal_cost() -> None:
    rates, mu, xi = solved(star(2.5, (1.0, np.inf)))
    assert rates == pytest.approx([0.5, 0.5, 1.5, 1.5])
    assert mu == pytest.approx([4.0 - 1.0 / 2.25, 0.0, 1.0 / 2.25])
    assert np.all(xi == 0.0)
    rates, mu, xi = solved(star(3.6, (1.0, np.inf)))
    assert rates == pytest.approx([0.2, 0.2, 1.8, 1.8])
    assert mu == pytest.approx([0.0, 0.0, 25.0])
    assert xi == pytest.approx([0.0, 25.0 - 1.0 / 3.24, 0.0])


def test_a_limit_that_is_a_reserve_has_one_price() -> None:
    rates, mu, xi = solved(star(3.0, (np.inf, 3.0)))
    assert rates == pytest.approx([0.5, 0.5, 1.5, 1.5])
    assert xi == pytest.approx([0.0, 4.0 - 1.0 / 2.25, 0.0])
    assert mu == pytest.approx([0.0, 0.0, 4.0])


def test_a_source_alone_in_its_group_is_held_by_the_limit() -> None:
    case = replace(
        star(0.0, (1.0, np.inf)), member=np.array([[1, 0, 0, 0], [0, 1, 1, 1], [1] * 4], dtype=bool)
    )
    case = replace(case, limit=np.array([0.1, np.inf, 4.0]))
    rates, mu, _ = solved(case)
    assert rates == pytest.approx([0.1, 1.3, 1.3, 1.3])
    assert mu == pytest.approx([100.0 - 1.0 / 1.69, 0.0, 1.0 / 1.69])


@pytest.mark.parametrize("path", ["arrays", *rare("compiled")])
def test_reserves_beyond_what_gains_anything(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """At the price 0 sources that gain nothing more take what the reserve asks for, within limits."""
    monkeypatch.setattr(nested_prices, "_COMPILED_FROM", 0 if path == "compiled" else 10**9)
    case = star(5.0, (np.inf, 6.0), "jump")
    case = replace(case, upper=np.full(4, 9.0), limit=np.array([np.inf, 6.0, 20.0]))
    rates, mu, xi = solved(case)
    assert rates == pytest.approx([1.0, 1.0, 2.5, 2.5])
    assert np.all(mu == 0.0)
    assert np.all(xi == 0.0)


def test_sources_are_paid_to_go_beyond_their_minimum() -> None:
    """An expression with its minimum at rate 1, under a reserve of 3 for two sources: multiplier 1."""
    rate = cp.Variable(2, nonneg=True)

    numerics = DerivedNumerics(compile_expression(cp.square(rate - 1.0), rate), 1.0, np.ones(2))
    source, zero = np.arange(2), np.zeros(2, dtype=np.int64)
    rows = Rows.gather(
        [
            RowBlock.linear("all", [None], source, zero, np.ones(2), np.array([9.0])),
            RowBlock.linear("some", [None], source, zero, np.ones(2), np.array([3.0]), at_least=True),
        ],
        2,
    )
    program = Program(
        numerics, np.zeros(2), implied_upper(rows, np.zeros(2), np.full(2, np.inf)), np.ones(2), rows
    )
    tree = present(LaminarTree.from_rows(rows))
    rates, multipliers, _ = fill_nested(program, tree)
    assert rates == pytest.approx([1.5, 1.5], rel=EXACT)
    assert multipliers == pytest.approx([0.0, 1.0], rel=EXACT)


def test_lower_bounds_that_use_up_a_limit() -> None:
    case = replace(star(0.0, (1.0, np.inf)), lower=np.array([0.5, 0.5, 0.0, 0.0]))
    rates, mu, _ = solved(case)
    assert rates == pytest.approx([0.5, 0.5, 1.5, 1.5])
    assert mu[0] == pytest.approx(4.0 - 1.0 / 2.25)
    starved = replace(case, lower=np.array([1.0, 0.0, 0.0, 0.0]))
    refused("leave nothing for the other sources", solved, starved, error=fo.InfeasibleProblemError)


def test_one_source() -> None:
    one = np.ones(1)
    member = np.ones((1, 1), dtype=bool)
    case = Forest("harmonic", 2 * one, 3 * one, 0.5 * one, 0 * one, np.inf * one, member, one, 0 * one)
    rates, mu, _ = solved(case)
    assert rates == pytest.approx([2.0], rel=EXACT)
    assert mu == pytest.approx([2.0 * 3.0 / 2.0 / 5.0 / 0.5], rel=EXACT)


def feasible_by_program(case: Forest) -> bool:
    rate = cp.Variable(len(case.cost))
    used = case.member.astype(float) @ cp.multiply(case.cost, rate)
    limited, bounded = np.flatnonzero(np.isfinite(case.limit)), np.flatnonzero(np.isfinite(case.upper))
    short = cp.Variable(nonneg=True)
    problem = cp.Problem(
        cp.Minimize(short),
        [
            used[limited] <= case.limit[limited] + short,
            used >= case.reserve - short,
            rate >= case.lower,
            rate[bounded] <= case.upper[bounded],
        ],
    )
    problem.solve(solver=cp.CLARABEL)
    return float(present(short.value)) < CONIC


@pytest.mark.parametrize("seed", range(12))
def test_infeasible_groups_are_found_and_named(seed: int) -> None:
    case = forest(seed, "delay", ill=False, groups=8)
    rng = np.random.default_rng(seed)
    case = replace(case, reserve=case.reserve * np.where(rng.random(len(case.reserve)) < 0.5, 1.0, 1.4))
    expected = feasible_by_program(case)
    tree = present(LaminarTree.from_rows(rows_of(case)))
    if expected:
        require_feasible(tree, case.lower, case.upper)
    else:
        with pytest.raises(fo.InfeasibleProblemError, match=r"must use .* and may use"):
            require_feasible(tree, case.lower, case.upper)


def test_the_message_names_the_frontier() -> None:
    case = replace(star(3.0, (2.0, np.inf)), reserve=np.array([1.5, 3.0, 0.0]))
    tree = present(LaminarTree.from_rows(rows_of(case)))
    with pytest.raises(fo.InfeasibleProblemError) as caught:
        require_feasible(tree, case.lower, case.upper)
    assert str(caught.value) == (
        "the sources of 'limit[2]' must use 4.5 ('reserve[1]', 'reserve[0]') and may use 4 ('limit[2]'). "
        "The two cannot both hold, by 0.5. Raise limits or lower reserves by as much."
    )


def test_signalled_and_silent_sources() -> None:
    """Mixed sources under one tree: every source pays its marginal, whichever its kind."""
    sources = fo.Sources(np.array([1.0, 2.0, 3.0, 4.0]), signalled=np.array([True, False, True, False]))
    problem = fo.Problem(OBJECTIVES["harmonic"], sources, bandwidth=3.0)
    case = star(0.0, (1.0, np.inf))
    rows = rows_of(case)
    numerics = present(problem.numerics)
    program = Program(
        numerics,
        np.zeros(4),
        implied_upper(rows, np.zeros(4), np.array([1.0, np.inf, 3.0, np.inf])),
        sources.change_rate,
        rows,
    )
    tree = present(LaminarTree.from_rows(rows))
    rates, y, _ = fill_nested(program, tree)
    price = np.array([y[0] + y[1], y[0] + y[1], y[1], y[1]])
    assert numerics.marginal(rates) == pytest.approx(price, rel=EXACT)
    assert np.sum(rates[:2]) == pytest.approx(1.0, rel=EXACT)
    assert np.sum(rates) == pytest.approx(4.0, rel=EXACT)
    assert numerics_of(case) is not None


def test_a_tree_is_looked_for_once() -> None:
    """`Auto`, the solver's own refusal and its solve ask for the same tree."""
    asked = []

    def find(program: Program) -> LaminarTree | None:
        asked.append(program)
        return tree_of(program)

    shape = RowStructure(find, TREE.fill, TREE.otherwise)
    sources, levels = fo.Sources([1.0, 2.0, 3.0, 4.0]), [["a", "a", "b", "b"], ["x", "x", "y", "y"]]
    problems = [
        fo.Problem(
            OBJECTIVES["harmonic"],
            sources,
            4.0,
            constraints=[fo.Nested(levels, {"a": limit, "x": 2.0, "b": 3.0})],
        )
        for limit in (1.0, 0.5)
    ]
    for problem in problems:
        assert shape.refusal(problem) is None
        assert shape.refusal(problem) is None
        rates = present(shape.answer(problem).rates)
        assert rates == pytest.approx(fo.solve(problem).rates, rel=EXACT)
    assert asked == [problem.program for problem in problems]
