"""The barrier form against HiGHS, planted optima and CLARABEL."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.interior_point.barrier_rows import solve_barrier
from freshopt.interior_point.linear_pieces import jumps, linear_pieces, sampled_pieces
from freshopt.interior_point.solve_rows import CONFLICT, solve_rows
from freshopt.problems.later_than import LaterThan
from freshopt.problems.piecewise_linear_cost import PiecewiseLinearCost
from freshopt.problems.synchronization_cost import SynchronizationCost
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from freshopt.solvers.interior_point import InteriorPoint
from tests.ground_truth.named import BINARY, HARMONIC, present
from tests.ground_truth.planted_rows import stratum
from tests.ground_truth.proof_programs import program_of as conflicting_program
from tests.ground_truth.row_programs import program_of
from tests.ground_truth.row_truth import conflicting
from tests.ground_truth.strata import rare
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR
from tests.interior_point.linear_programs import LinearProgram, best_value, drawn

LPS = [
    pytest.param(k, marks=[] if k % 20 == 3 or k % 59 == 2 else pytest.mark.exhaustive) for k in range(180)
]
KINKED = [pytest.param(k, marks=[] if k % 8 == 1 else pytest.mark.exhaustive) for k in range(48)]
CONFLICTS = [pytest.param(k, marks=[] if k % 20 == 7 else pytest.mark.exhaustive) for k in range(60)]
COUNTS = {"budgets": 186, "targets": 96, "mixed": 48, "minimax": 112}
PLANTED = [
    pytest.param(name, k, marks=[] if k % 90 == 7 else pytest.mark.exhaustive)
    for name, count in COUNTS.items()
    for k in range(count)
]
# Feasibility and optimality that HiGHS asks for, absolutely; at ill scales its values are off by more.
HIGHS = 1e-6


def linear(lp: LinearProgram) -> Program:
    j, k = np.nonzero(lp.a)
    block = RowBlock.linear("row", range(len(lp.b)), k, j, lp.a[j, k], lp.b)
    return Program(LinearCost(lp.c), lp.lower, lp.upper, lp.upper, Rows.gather([block], len(lp.c)))


@pytest.mark.parametrize("seed", LPS)
def test_linear_programs_agree_with_a_simplex_solver(seed: int) -> None:
    lp = drawn(seed)
    program = linear(lp)
    answer = solve_barrier(program)
    assert answer.why is None
    assert answer.gap <= EXACT
    assert answer.iterations <= 20
    rates = answer.rates
    assert np.all((lp.lower <= rates) & (rates <= lp.upper))
    assert np.all(lp.a @ rates - lp.b <= 1e-14 * (np.abs(lp.a) @ rates + np.abs(lp.b)))
    # The dual's value at the multipliers, by its own formula, bounds every feasible value.
    price = lp.c + lp.a.T @ answer.multipliers
    bound = np.sum(np.minimum(price * lp.lower, price * lp.upper)) - answer.multipliers @ lp.b
    value, size = float(lp.c @ rates), float(np.abs(lp.c) @ rates + answer.multipliers @ np.abs(lp.b))
    assert value - bound <= 2.0 * EXACT * size
    found = best_value(lp)
    assert value <= found + SCALAR * size
    if not lp.ill:
        assert value == pytest.approx(found, rel=HIGHS)


# Of all planted instances the barrier form stalls at this one, which the search over the multipliers solves.
STALLS = ("targets", 59)


@pytest.mark.parametrize(("name", "seed"), PLANTED)
def test_curved_sources_are_solved_too(name: str, seed: int) -> None:
    instance = stratum(name, seed)
    answer = solve_barrier(program_of(instance))
    if (name, seed) == STALLS:
        assert answer.why is not None
        assert solve_rows(program_of(instance)).why is None
        return
    assert answer.why is None
    level = instance.value(answer.rates) if np.any(instance.level > 0.0) else 0.0
    over = instance.used(answer.rates) - instance.limits - instance.level * level
    assert np.all(over <= 1e-14 * (np.abs(instance.limits) + instance.level * abs(level)))
    assert abs(instance.value(answer.rates) - instance.value(instance.rates)) <= 2.0 * EXACT * instance.size


def kinked(seed: int) -> tuple[fo.Problem, bool]:
    """Return a declared problem with kinks, signalled sources or targets; every other one of ill scale."""
    r = np.random.default_rng(seed)
    n, ill, kind = 60, seed % 2 == 1, seed % 6
    w, d = (
        np.exp(r.normal(0.0, 3.0 if ill else 1.0, n)),
        10.0 ** (r.uniform(-1.0, 1.0, n) * (5.0 if ill else 1.0)),
    )
    signalled = r.random(n) < 0.5 if kind in (2, 3) else False
    sources = fo.Sources(d, importance=w, signalled=signalled)
    constraints: list[object] = []
    for j in range(int(r.integers(1, 5))):
        a = np.exp(r.normal(0.0, 1.5 if ill else 0.3, n))
        constraints.append(fo.Budget(float(a @ d) * r.uniform(0.1, 0.4), cost=a, name=f"unit{j}"))
        if seed % 4 >= 2 and j == 0:
            constraints.append(replace(constraints[0], name="again"))  # type: ignore[type-var]
    bandwidth = 0.3 * float(np.sum(d))
    if kind in (2, 3):
        return fo.Problem(BINARY, sources, bandwidth, constraints=constraints), ill
    if kind in (4, 5):
        late = LaterThan(float(np.median(1.0 / d)), fo.Refresh.PERIODIC)
        reach = np.minimum(1.0, late.age * 0.05 * d) @ w / np.sum(w)
        constraints.append(fo.Target(late, at_most=float(1.0 - reach)))
        return fo.Problem(fo.Spend(), sources, constraints=constraints), ill
    slopes, drops = np.broadcast_to([0.0, 0.3, 1.0], (n, 3)), np.stack((0.0 * d, -0.1 / d, -2.0 / d), axis=1)
    cost = PiecewiseLinearCost(slopes, drops)
    return fo.Problem(SynchronizationCost(cost), sources, bandwidth, constraints=constraints), ill


@pytest.mark.parametrize("seed", KINKED)
def test_kinks_signals_and_equal_rows_are_proved(seed: int) -> None:
    problem, ill = kinked(seed)
    solution = fo.solve(problem, InteriorPoint())
    assert solution.status is fo.Status.OPTIMAL
    assert present(solution.certificate).relative_gap <= 1e-10
    assert "rates and multipliers" in solution.note
    if not ill:
        declared = problem.to_cvxpy()
        declared.solve(solver=cp.CLARABEL)
        assert solution.value == pytest.approx(declared.value, rel=CONIC)


def test_pieces_are_the_ones_declared() -> None:
    problem, _ = kinked(0)
    program = present(problem.program)
    pieces = linear_pieces(program)
    d = np.asarray(problem.sources.change_rate)
    # max(0, 0.3 - 0.1 r/d, 1 - 2 r/d) has its kinks at r = 0.7 d/1.9 and 3 d, where the bounds have room.
    inside = np.sum(program.upper > 0.7 * d / 1.9) + np.sum(program.upper > 3.0 * d)
    assert bool(np.all(pieces.linear))
    assert len(pieces.source) == len(d) + inside
    assert jumps(sampled_pieces(program))
    assert not jumps(sampled_pieces(program_of(stratum("budgets", 0))))


@pytest.mark.parametrize("seed", CONFLICTS)
def test_conflicts_end_a_search_and_feasible_twins_do_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    family, ill = ("linear" if seed % 3 == 0 else "mixed"), seed % 2 == 0
    short, m = 10.0 ** rng.uniform(-4.0, np.log10(0.43)), int(rng.integers(6, 31))
    tight, loose = conflicting(rng, family, ill=ill, n=300, m=m, short=short)
    over_multipliers = solve_rows(conflicting_program(tight))
    # Searches over the multipliers may stall at their start; then there is no proof, nor an answer.
    assert over_multipliers.gap == np.inf
    # One search goes on to its limit without a proof; the barrier form ends it.
    assert over_multipliers.iterations <= (100 if seed == 12 else 40)
    feasible = conflicting_program(loose)
    assert not (solve_rows(feasible, iterations=40).why or "").startswith(CONFLICT)
    assert solve_barrier(feasible).why is None


@pytest.mark.parametrize("n", [300, *rare(10_000)])
def test_infeasible_problems_are_refused_with_a_conflict(n: int) -> None:
    r = np.random.default_rng(n)
    d, w = 10.0 ** r.uniform(-5.0, 5.0, n), np.exp(r.normal(0.0, 3.0, n))
    rates = 0.5 * np.minimum(d, 1.0)
    costs = np.exp(r.normal(0.0, 1.5, (3, n)))
    budgets = [fo.Budget(float(a @ rates), cost=a, name=f"unit{j}") for j, a in enumerate(costs)]
    sources = fo.Sources(d, importance=w)
    best = fo.solve(fo.Problem(HARMONIC, sources, constraints=budgets)).value / np.sum(w)
    for share, holds in ((1.001, True), (0.98, False)):
        target = fo.Target(HARMONIC, at_most=share * best)
        problem = fo.Problem(fo.Spend(), sources, constraints=[*budgets, target])
        if holds:
            assert fo.solve(problem).status is fo.Status.OPTIMAL
            continue
        with pytest.raises(fo.InfeasibleProblemError) as refused:
            fo.solve(problem)
        conflict = present(refused.value.conflict)
        assert any("HarmonicStaleness" in label for label in conflict.labels)
