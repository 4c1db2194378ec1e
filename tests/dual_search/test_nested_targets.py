"""Nested targets at the least cost: optimality conditions, a conic solver, and edges."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import freshopt as fo
from freshopt.autodiff.compiler import compile_expression
from freshopt.cvx import cp
from freshopt.dual_search.nested_targets import fill_nested_targets
from freshopt.numerics.arrays import Array, Index
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Numerics
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.dual_search.test_nested_limits import numerics_of
from tests.ground_truth.named import HARMONIC, present
from tests.ground_truth.nested_truth import Bools, Floats, Forest, costs, forest, target_gap, with_targets
from tests.ground_truth.strata import matrix, rare
from tests.ground_truth.tolerances import CONIC, EXACT

GAP = 1e-14


@dataclass(frozen=True)
class Linear:
    """Numerics of Σ price·ρ."""

    price: Array

    def cost(self, rate: Array) -> Array:
        return self.price * rate

    def marginal(self, rate: Array) -> Array:
        return np.broadcast_to(-self.price, rate.shape)

    def inverse_marginal(self, price: Array) -> Array:
        return np.where(price > -self.price, 0.0, np.inf)

    def curvature(self, rate: Array) -> Array:
        return np.zeros(rate.shape)

    def gain(self, rate: Array) -> None:
        del rate

    def take(self, index: Index) -> Linear:
        return Linear(self.price[index])


def target_program(
    price: Floats,
    lower: Floats,
    upper: Floats,
    typical: Floats,
    curve: Numerics,
    member: Bools,
    targets: Floats,
) -> Program:
    row, source = np.nonzero(member)
    m = len(member)
    entries = source, row, np.ones(len(row), dtype=np.int64), np.ones(len(row))
    block = RowBlock("target", tuple(range(m)), *entries, (curve,), targets, np.ones(m), np.zeros(m))
    return Program(Linear(price), lower, upper, typical, Rows.gather([block], len(price)))


def drawn(seed: int, curve: str, *, ill: bool, groups: int | None = None) -> tuple[Forest, Floats]:
    """Return a case and targets around random rates."""
    return with_targets(forest(seed, curve, ill=ill, groups=groups), seed)


def solved(case: Forest, targets: Floats) -> tuple[Floats, Floats]:
    program = target_program(
        case.cost, case.lower, case.upper, case.change, numerics_of(case), case.member, targets
    )
    tree = present(LaminarTree.from_rows(program.rows))
    rates, multipliers, evaluations = fill_nested_targets(program, tree)
    assert evaluations > 0
    return rates, multipliers


SAMPLE = [
    pytest.param(curve, seed, marks=[] if seed % 13 == c else [pytest.mark.exhaustive])
    for c, curve in enumerate(("harmonic", "delay", "binary", "jump"))
    for seed in range(39)
]


@pytest.mark.parametrize(("curve", "seed"), SAMPLE)
def test_optimality_conditions(curve: str, seed: int) -> None:
    case, targets = drawn(seed, curve, ill=seed % 2 == 1)
    rates, y = solved(case, targets)
    assert np.all(y >= 0.0)
    assert np.all(rates >= case.lower)
    assert np.all(rates <= case.upper)
    reached = case.member @ costs(case, rates)
    # What is 1 − ρ/Δ in full is added from parts of up to the weight.
    room = EXACT * (targets if curve != "jump" else case.member @ case.weight)
    assert np.all(reached <= targets + room)
    assert target_gap(case, targets, rates, y) <= GAP


@matrix(seed=[0, 2, *rare(*range(4, 24))], curve=["harmonic", "delay", "binary"])
def test_a_conic_solver_agrees(curve: str, seed: int) -> None:
    case, targets = drawn(seed, curve, ill=False, groups=10)
    rates, _ = solved(case, targets)
    unit = cp.Variable(len(rates), nonneg=True)
    own = np.flatnonzero(case.weight)
    each = {
        "harmonic": lambda: cp.logistic(-cp.log(unit[own])),
        "delay": lambda: cp.inv_pos(unit[own]),
        "binary": lambda: cp.inv_pos(unit[own] + 1.0),
    }[curve]()
    bounded = np.flatnonzero(np.isfinite(case.upper))
    problem = cp.Problem(
        cp.Minimize((case.cost * case.change) @ unit),
        [
            (case.member[:, own] * case.weight[own]) @ each <= targets,
            unit >= case.lower / case.change,
            unit[bounded] <= (case.upper / case.change)[bounded],
        ],
    )
    problem.solve(solver=cp.CLARABEL)
    assert float(case.cost @ rates) == pytest.approx(problem.value, rel=CONIC)


@pytest.mark.parametrize("depth", [300.0, 640.0])
def test_multipliers_near_the_end_of_floats(depth: float) -> None:
    """−log ρ ≤ s at the least cost: ρ = e^−s, and the multiplier is the price times that."""
    on_signal = present(HARMONIC.signalled_kernel(fo.Sources(np.ones(2))))
    member, ones = np.eye(2, dtype=bool), np.ones(2)
    program = target_program(ones, 0 * ones, ones, ones, on_signal, member, np.array([depth, 3.0]))
    tree = present(LaminarTree.from_rows(program.rows))
    rates, multipliers, _ = fill_nested_targets(program, tree)
    assert rates == pytest.approx(np.exp([-depth, -3.0]), rel=depth * EXACT)
    assert multipliers == pytest.approx(np.exp([-depth, -3.0]), rel=depth * EXACT)


def test_targets_beyond_all_floats_are_met() -> None:
    on_signal = present(HARMONIC.signalled_kernel(fo.Sources(np.ones(1))))
    ones = np.ones(1)
    program = target_program(
        ones, 0 * ones, ones, ones, on_signal, np.ones((1, 1), dtype=bool), 2000.0 * ones
    )
    tree = present(LaminarTree.from_rows(program.rows))
    rates, multipliers, _ = fill_nested_targets(program, tree)
    assert 0.0 < rates[0] < 1e-280
    assert 0.0 <= multipliers[0] < 1e-280


def test_targets_below_zero_and_at_zero() -> None:
    """Σ −log ρ_k over two sources; a total of 0 is ρ = 1 each, −2 is e each."""

    rate = cp.Variable(4, nonneg=True)
    curve = DerivedNumerics(compile_expression(-cp.log(rate), rate), 1.0, np.ones(4))
    ones, member = np.ones(4), np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=bool)
    program = target_program(ones, 0 * ones, np.full(4, np.inf), ones, curve, member, np.array([0.0, -2.0]))
    tree = present(LaminarTree.from_rows(program.rows))
    rates, multipliers, _ = fill_nested_targets(program, tree)
    assert rates == pytest.approx([1.0, 1.0, np.e, np.e], rel=EXACT)
    assert multipliers == pytest.approx([1.0, np.e], rel=EXACT)


def test_bounds_that_only_just_meet_a_target_or_miss_it() -> None:
    case, ones = forest(0, "delay", ill=False, groups=3), np.ones(2)
    case = replace(
        case,
        weight=ones,
        change=ones,
        cost=ones,
        lower=0 * ones,
        upper=2 * ones,
        member=np.ones((1, 2), dtype=bool),
    )
    rates, y = solved(case, np.ones(1))
    assert rates == pytest.approx([2.0, 2.0], rel=EXACT)
    assert y == pytest.approx([4.0])
    with pytest.raises(
        fo.InfeasibleProblemError, match=r"'target\[0\]' asks for at most 0\.9 and max_rate leaves 1"
    ):
        solved(case, np.array([0.9]))
