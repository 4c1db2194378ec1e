"""Programs of rows: solved, rising, and infeasible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.interior_point.newton_systems import Arrow, arrow_of
from freshopt.interior_point.row_passes import NumpyRowPasses
from freshopt.interior_point.row_presolve import entry_directions, range_of
from freshopt.interior_point.solve_rows import RowAnswer, solve_rows
from freshopt.numerics.arrays import Index
from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present
from tests.ground_truth.planted_rows import Array, Formula, Planted, planted, stratum
from tests.ground_truth.row_programs import numerics, program_of
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

COUNTS = {"budgets": 186, "targets": 96, "mixed": 48, "minimax": 112}
SAMPLE = [(name, seed) for name, count in COUNTS.items() for seed in range(count // 10, count, count // 5)]
# What the sums of a few hundred numbers in another order may differ by, relative to their size.
ULPS = 1e-14
# Newton steps that any of the planted instances needs.
STEPS = 25


def hold(instance: Planted, answer: RowAnswer) -> None:
    """Check feasibility, gap and value against the planted optimum."""
    assert answer.why is None
    assert 0.0 <= answer.gap <= EXACT
    assert np.all(answer.multipliers >= 0.0)
    assert np.all((instance.lower <= answer.rates) & (answer.rates <= instance.upper))
    level = instance.value(answer.rates) if np.any(instance.level > 0.0) else 0.0
    over = instance.used(answer.rates) - instance.limits - instance.level * level
    assert np.all(over <= ULPS * (np.abs(instance.limits) + instance.level * abs(level)))
    rows, fixed = program_of(instance).rows, instance.level == 0.0
    assert np.all((rows.used(answer.rates) <= rows.limits)[fixed])
    # The optimal value is unique, multipliers and rates need not be.
    assert instance.value(answer.rates) - instance.value(instance.rates) == pytest.approx(
        0.0, abs=2.0 * EXACT * instance.size
    )


@pytest.mark.parametrize(("name", "seed"), SAMPLE)
@pytest.mark.sampled(4)
def test_planted_optima_are_found(name: str, seed: int) -> None:
    instance = stratum(name, seed)
    answer = solve_rows(program_of(instance))
    hold(instance, answer)
    assert answer.iterations <= STEPS


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COUNTS)
def test_all_planted_optima_are_found(name: str) -> None:
    for seed in range(COUNTS[name]):
        instance = stratum(name, seed)
        answer = solve_rows(program_of(instance))
        hold(instance, answer)
        assert answer.iterations <= STEPS


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("objective", "rows"), [("harmonic", ("rate",) * 3), ("rate", ("harmonic", "binary", "tail"))]
)
def test_a_cone_solver_agrees(objective: Formula, rows: tuple[Formula, ...], seed: int) -> None:
    instance = planted(seed, objective, rows, 60, ill=False)
    answer = solve_rows(program_of(instance))
    assert conic(instance) == pytest.approx(instance.value(answer.rates), rel=CONIC)


def conic(instance: Planted) -> float:
    """Return CLARABEL's optimal value."""
    rate, d = cp.Variable(len(instance.d)), instance.d
    atoms = {
        "rate": rate,
        "harmonic": cp.logistic(np.log(d) - cp.log(rate)),
        "binary": cp.inv_pos(1.0 + cp.multiply(1.0 / d, rate)),
        "tail": cp.exp(-cp.multiply(1.0 / d, rate)),
    }
    constraints = [
        a @ atoms[t] <= b
        for t, a, b in zip(instance.formulas, instance.coefficients, instance.limits, strict=True)
    ]
    finite = np.isfinite(instance.upper)
    constraints += [rate >= instance.lower, rate[finite] <= instance.upper[finite]]
    problem = cp.Problem(cp.Minimize(instance.weight @ atoms[instance.objective]), constraints)
    return float(problem.solve(solver=cp.CLARABEL))


def one(coefficient: Array, limit: float, *, at_least: bool = False) -> RowBlock:
    """Return one row over all sources."""
    n = len(coefficient)
    zero = np.zeros(n, dtype=np.int64)
    limits = np.array([limit])
    return RowBlock.linear("row", (None,), np.arange(n), zero, coefficient, limits, at_least=at_least)


def target_row(name: str, coefficient: Array, curve: Numerics, limit: float) -> RowBlock:
    """Return one row of a curve over all sources."""
    n, plus = len(coefficient), np.ones(1)
    zero = np.zeros(n, dtype=np.int64)
    limits = np.array([limit])
    return RowBlock(
        name, (None,), np.arange(n), zero, zero + 1, coefficient, (curve,), limits, plus, 0.0 * plus
    )


def harmonic(blocks: list[RowBlock], n: int, *, upper: float = np.inf) -> Program:
    """Return harmonic staleness of n like sources under rows."""
    ones = np.ones(n)
    rows = Rows.gather(blocks, n)
    return Program(numerics("harmonic", ones, ones), 0.0 * ones, upper * ones, ones, rows)


def test_one_source_and_one_target() -> None:
    ones = np.ones(1)
    rows = Rows.gather([target_row("stale", ones, numerics("harmonic", ones, ones), np.log(3.0))], 1)
    answer = solve_rows(Program(LinearCost(ones), 0.0 * ones, np.full(1, np.inf), ones, rows))
    assert answer.rates == pytest.approx([0.5], rel=1e-11)
    # The reciprocal of the marginal value d/(r(r + d)).
    assert answer.multipliers == pytest.approx([0.75], rel=SCALAR)


def test_one_source_and_one_budget() -> None:
    answer = solve_rows(harmonic([one(np.array([4.0]), 2.0)], 1))
    assert answer.rates == pytest.approx([0.5], rel=EXACT)
    # The shadow price of a limit b is -d/db log(1 + 4/b) = 4/(b(b + 4)).
    assert answer.multipliers == pytest.approx([1.0 / 3.0], rel=SCALAR)


def test_equal_rows_share_one_price() -> None:
    budget = one(np.ones(5), 10.0)
    once = solve_rows(harmonic([budget], 5))
    thrice = solve_rows(harmonic([budget, budget, budget], 5))
    assert thrice.why is None
    assert thrice.rates == pytest.approx(once.rates, rel=EXACT)
    assert np.sum(thrice.multipliers) == pytest.approx(once.multipliers[0], rel=SCALAR)


def test_a_limit_of_zero_stops_its_sources() -> None:
    first, last = np.array([1.0, 1.0, 0.0, 0.0]), np.ones(4)
    rows = Rows.gather([one(last, 4.0), one(first, 0.0)], 4)
    program = Program(numerics("binary", last, last), 0.0 * last, 3.0 * last, last, rows)
    answer = solve_rows(program)
    assert answer.why is None
    assert answer.rates == pytest.approx([0.0, 0.0, 2.0, 2.0], rel=1e-11)
    # Every source kept at 0 is at its best there: y_1 + y_2 is no less than its marginal value 1/d at rate 0.
    assert np.sum(answer.multipliers) >= 1.0 - EXACT


def test_a_reserve_and_a_limit_of_zero_between_rates() -> None:
    # At least as much for source 0 as for source 1, which has four times the importance.
    weight, ones = np.array([1.0, 4.0]), np.ones(2)
    rows = Rows.gather([one(ones, 2.0), one(np.array([1.0, -1.0]), 0.0, at_least=True)], 2)
    program = Program(numerics("harmonic", weight, ones), 0.0 * ones, np.full(2, np.inf), ones, rows)
    answer = solve_rows(program)
    assert answer.why is None
    assert answer.rates == pytest.approx([1.0, 1.0], rel=1e-11)


def test_rows_that_always_hold_cost_nothing() -> None:
    slack, unlimited = one(np.ones(3), 1e6), one(np.ones(3), np.inf)
    answer = solve_rows(harmonic([one(np.ones(3), 3.0), slack, unlimited], 3, upper=5.0))
    assert answer.rates == pytest.approx(np.ones(3), rel=EXACT)
    assert np.all(answer.multipliers[1:] == 0.0)


def test_no_binding_row_at_all() -> None:
    answer = solve_rows(harmonic([one(np.ones(3), 100.0)], 3, upper=5.0))
    assert answer.why is None
    assert np.all(answer.rates == 5.0)


def test_a_target_below_zero() -> None:
    # A freshness of 1.5 in total: minus it is a convex cost, with a limit of -1.5.
    ones = np.ones(3)
    stale = numerics("binary", ones, ones)
    assert isinstance(stale, Kernel)
    minus_fresh = replace(stale, unit_cost=lambda rate, d: -rate / (d + rate))
    rows = Rows.gather([target_row("fresh", ones, minus_fresh, -1.5)], 3)
    program = Program(LinearCost(ones), 0.0 * ones, np.full(3, np.inf), ones, rows)
    answer = solve_rows(program)
    assert answer.why is None
    assert answer.rates == pytest.approx(ones, rel=1e-11)
    # dF/db at freshness f of each: 1/(1 - f)^2.
    assert answer.multipliers == pytest.approx([4.0], rel=SCALAR)


def test_what_cannot_hold_is_not_called_solved() -> None:
    ones = np.ones(2)
    target = target_row("fresh", ones, numerics("harmonic", ones, ones), 0.1)
    answer = solve_rows(harmonic([one(ones, 2.0), target], 2), iterations=40)
    assert answer.why is not None
    assert answer.gap == np.inf


def test_feasible_rates_of_the_path_are_kept() -> None:
    instance = stratum("mixed", 1)
    answer = solve_rows(program_of(instance))
    assert len({rates.tobytes() for rates in answer.path}) == len(answer.path) >= 2
    for rates in answer.path:
        assert np.all(instance.used(rates) < instance.limits)


def test_a_start_near_the_answer_saves_steps() -> None:
    instance = stratum("budgets", 4)
    program = program_of(instance)
    cold = solve_rows(program)
    warm = solve_rows(program, start=cold.multipliers)
    hold(instance, warm)
    assert warm.passes < cold.passes


def hosts(seed: int, n: int, count: int) -> Program:
    """Return harmonic staleness under limits of hosts and three budgets."""
    random = np.random.default_rng(seed)
    weight, d = np.exp(random.normal(0.0, 2.0, n)), 10.0 ** random.uniform(-3.0, 3.0, n)
    host = random.integers(0, count, n)
    load = np.bincount(host, weights=np.minimum(d, 1.0), minlength=count)
    limits = np.maximum(load, 1e-3) * random.uniform(0.1, 2.0, count)
    blocks = [RowBlock.linear("host", range(count), np.arange(n), host, np.ones(n), limits)]
    for _ in range(3):
        a = np.exp(random.normal(0.0, 1.0, n))
        blocks.append(one(a, 0.4 * float(a @ np.minimum(d, 1.0))))
    rows = Rows.gather(blocks, n)
    return Program(numerics("harmonic", weight, d), np.zeros(n), np.full(n, np.inf), d, rows)


def test_hosts_and_budgets_are_an_arrow() -> None:
    program = hosts(1, 900, 150)
    arrow = present(arrow_of(program.rows))
    assert np.array_equal(arrow.others, [150, 151, 152])
    in_parts = solve_rows(program)
    whole = solve_rows(program, passes=NumpyRowPasses)
    assert in_parts.why is None
    assert whole.why is None
    assert program.cost(in_parts.rates).sum() == pytest.approx(program.cost(whole.rates).sum(), rel=EXACT)


def test_an_arrow_of_rows_in_any_order() -> None:
    instance = planted(5, "delay", ("rate",) * 6, 40, ill=False)
    program = program_of(instance, order=[3, 0, 5, 1, 4, 2])
    arrow = Arrow.of(program.rows)
    assert len(arrow.hosts) + len(arrow.others) == 6
    answer = solve_rows(program, passes=lambda own: NumpyRowPasses(own, Arrow.of(own.rows)))
    assert answer.why is None
    assert instance.value(answer.rates) == pytest.approx(instance.value(instance.rates), rel=2.0 * EXACT)


def test_a_sample_of_many_sources_starts_the_search() -> None:
    random = np.random.default_rng(2)
    n = 30_000
    weight, d = np.exp(random.normal(0.0, 1.0, n)), 10.0 ** random.uniform(-1.0, 1.0, n)
    blocks = [one(random.uniform(0.5, 2.0, n), 0.3 * n), one(random.uniform(0.5, 2.0, n), 0.4 * n)]
    rows = Rows.gather(blocks, n)
    program = Program(numerics("harmonic", weight, d), np.zeros(n), np.full(n, np.inf), d, rows)
    answer = solve_rows(program)
    assert answer.why is None
    assert answer.passes <= 12


def test_kinks_of_the_objective() -> None:
    # Cost max(1 - r, 0.1(1 - r)) has its kink at rate 1: of 8 like sources with a budget of 6, none passes
    # it.
    class Kinked:
        def __init__(self, weight: Array) -> None:
            self.weight = weight

        def cost(self, rate: Array) -> Array:
            return self.weight * (np.maximum(1.0 - rate, 0.1 * (1.0 - rate)) + 0.01 / (1.0 + rate))

        def marginal(self, rate: Array) -> Array:
            return self.weight * (np.where(rate < 1.0, 1.0, 0.1) + 0.01 / (1.0 + rate) ** 2)

        def curvature(self, rate: Array) -> Array:
            return self.weight * 0.02 / (1.0 + rate) ** 3

        def inverse_marginal(self, price: Array) -> Array:
            raise NotImplementedError(price)

        def gain(self, rate: Array) -> None:  # noqa: ARG002
            return None

        def take(self, index: Index) -> Kinked:
            return Kinked(self.weight[index])

    weight = np.linspace(1.0, 2.0, 8)
    ones = np.ones(8)
    rows = Rows.gather([one(ones, 8.5), one(weight, 20.0)], 8)
    program = Program(Kinked(weight), 0.0 * ones, 4.0 * ones, ones, rows)
    answer = solve_rows(program)
    assert answer.why is None
    assert answer.rates[:7] == pytest.approx(np.ones(7), rel=EXACT)


def test_limits_scaled_by_ten_decades_change_nothing() -> None:
    instance = stratum("budgets", 10)
    program = program_of(instance)
    factor = 10.0 ** np.random.default_rng(0).uniform(-10.0, 10.0, len(program.rows))
    rows = program.rows
    scaled = replace(rows, coefficient=rows.coefficient * factor[rows.row], limits=rows.limits * factor)
    answer = solve_rows(replace(program, rows=scaled))
    assert answer.why is None
    assert instance.value(answer.rates) == pytest.approx(instance.value(instance.rates), rel=2.0 * EXACT)


N = 20
RNG = np.random.default_rng(11)
SOURCES = fo.Sources(RNG.lognormal(size=N), RNG.lognormal(size=N))

# Each is one row, with its limit.
LIMITS = {"power": 4.0, "exponential": 2.0, "distance": 1.0, "kink": 1.0}
CURVES: dict[str, Callable[[Any], Any]] = {
    "power": lambda rate: cp.sum(cp.power(rate, 1.5)) <= LIMITS["power"],
    "exponential": lambda rate: cp.sum(cp.exp(0.3 * rate) - 1.0) <= LIMITS["exponential"],
    "distance": lambda rate: cp.sum(cp.square(rate - 0.5)) <= LIMITS["distance"],
    "kink": lambda rate: cp.sum(cp.pos(rate - 0.25)) <= LIMITS["kink"],
}


@matrix(name=CURVES, objective=[BINARY, HARMONIC, DELAY], bandwidth=[12.0, 400.0], every=4)
def test_curves_that_rise_bind(name: str, objective: fo.Objective, bandwidth: float) -> None:
    problem = fo.Problem(objective, SOURCES, bandwidth, constraints=lambda rate: [CURVES[name](rate)])
    solution = fo.solve(problem, tolerance=SCALAR)
    program = problem.to_cvxpy()
    program.solve(solver=cp.CLARABEL)
    assert solution.value == pytest.approx(program.value, rel=CONIC)
    assert solution.prices["constraint 1"] > 0.0


def test_ranges_are_those_of_a_grid() -> None:
    sources = fo.Sources(RNG.lognormal(size=N), min_rate=0.1, max_rate=RNG.uniform(0.2, 2.0, N))
    grid = np.linspace(sources.min_rate, sources.max_rate, 100_001)
    for name, term in {
        "power": grid**1.5,
        "exponential": np.exp(0.3 * grid) - 1.0,
        "distance": (grid - 0.5) ** 2,
        "kink": np.maximum(grid - 0.25, 0.0),
    }.items():
        problem = fo.Problem(DELAY, sources, 400.0, constraints=lambda rate, name=name: [CURVES[name](rate)])
        assert problem.program is not None
        least, most, _ = range_of(problem.program)
        offset = (
            problem.program.rows.limits
            - {"power": 4.0, "exponential": 2.0, "distance": 1.0, "kink": 1.0}[name]
        )
        assert least[1] - offset[1] == pytest.approx(term.min(axis=0).sum(), rel=SCALAR, abs=1e-8)
        assert most[1] - offset[1] == pytest.approx(term.max(axis=0).sum(), rel=EXACT)
        rising, turning = entry_directions(problem.program)
        own = problem.program.rows.row == 1
        assert np.any(turning[own]) == (name == "distance")
        assert np.any(rising[own]) == (name != "distance")


@pytest.mark.parametrize("bandwidth", [64.0, 90.0, 400.0])
def test_a_cost_of_0_takes_no_further_steps(bandwidth: float) -> None:
    """Where limits leave all deadlines met no gap is small beside the price of the limits: none is paid."""
    deadline = fo.problems.LaterThan(2.0)
    change = np.geomspace(0.03, 5.0, 32)
    kinds = np.arange(32) % 2
    fresh = fo.Target(fo.problems.BinaryFreshness(fo.Refresh.PERIODIC), at_least=0.6, by=kinds)
    problem = fo.Problem(deadline, fo.Sources(change), bandwidth, constraints=[fresh])
    assert problem.program is not None
    answer = solve_rows(problem.program)
    assert answer.why is None
    assert answer.passes <= 40
    assert not np.any(answer.multipliers)
    assert np.all(problem.program.rows.used(answer.rates) <= problem.program.rows.limits)
    solution = fo.solve(problem)
    assert solution.value == 0.0
    assert solution.certificate is not None
    assert solution.certificate.relative_gap == 0.0
