"""Proofs of infeasibility: planted conflicts are found and explained; tangents bound the dual function."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from freshopt.certificates.strict_interior import RowSlopes
from freshopt.errors import InfeasibleProblemError
from freshopt.interior_point.conflict import Conflict
from freshopt.interior_point.infeasibility import Tangents, explain
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.named import present
from tests.ground_truth.proof_programs import blocks, program_of
from tests.ground_truth.row_truth import Floats, Planted, conflicting, dual_value, excess_proved, planted

Ints = np.typing.NDArray[np.int64]
# Every twentieth instance is in the usual run.
INSTANCES = [pytest.param(k, marks=[] if k % 20 == 3 else pytest.mark.exhaustive) for k in range(60)]


def drawn(seed: int) -> tuple[Planted, Planted, bool]:
    rng = np.random.default_rng(seed)
    ill, short = seed % 2 == 0, 10.0 ** rng.uniform(-4.0, np.log10(0.43))
    m, n = int(rng.integers(6, 31)), 40 if seed % 10 == 3 else 100
    family = "linear" if seed % 3 == 0 else "mixed"
    return (*conflicting(rng, family, ill=ill, n=n, m=m, short=short), ill)


def least_violation(instance: Planted, rows: Ints) -> float:
    """Return the least relative violation of linear rows, by a simplex solver."""
    a, b = instance.matrices[0][rows], instance.limits[rows]
    cost, size = np.append(np.zeros(a.shape[1]), 1.0), np.abs(b)
    return solved(cost, np.column_stack((a / size[:, None], -np.ones(len(b)))), b / size, instance)


def least_use(instance: Planted, rows: Ints, k: int) -> float:
    """Return the least that one of the rows uses under the others."""
    a, b = instance.matrices[0][rows], instance.limits[rows]
    others, size = np.arange(len(b)) != k, np.abs(b)
    cost = np.append(a[k] / size[k], 0.0)
    left = np.column_stack((a / size[:, None], np.zeros(len(b))))[others]
    return solved(cost, left, (b / size)[others], instance) * float(size[k])


def solved(cost: Floats, left: Floats, right: Floats, instance: Planted) -> float:
    bounds = [(float(low), float(high)) for low, high in zip(instance.lower, instance.upper, strict=True)]
    found = linprog(cost, A_ub=left, b_ub=right, bounds=[*bounds, (-0.5, np.inf)], method="highs")
    assert found.status == 0
    return float(present(found.fun))


def proved(instance: Planted, conflict: Conflict) -> float:
    """Return what the conflict's own multipliers prove."""
    y = np.zeros(len(instance.limits))
    y[[int(label[3:]) for label in conflict.labels]] = conflict.weights
    return excess_proved(instance, y)


@pytest.mark.parametrize("seed", INSTANCES)
def test_what_cannot_hold_is_proved_irreducible_and_mended(seed: int) -> None:
    tight, loose, ill = drawn(seed)
    assert explain(program_of(loose, objective=False), upper=loose.upper) is None
    conflict = present(explain(program_of(tight, objective=False), upper=tight.upper))
    assert conflict.excess > 0.0
    assert proved(tight, conflict) > 0.5 * conflict.excess
    rows = np.array([int(label[3:]) for label in conflict.labels])
    chosen = np.zeros(len(tight.limits), dtype=np.bool_)
    chosen[rows] = True
    signs = np.where(conflict.at_least, -1.0, 1.0)
    np.testing.assert_allclose(signs * conflict.limits, tight.limits[rows], rtol=1e-12)
    for k, row in enumerate(rows):
        # With 1 % more than its limit gives the row suffices, with 1 % less it does not.
        enough, had = signs[k] * conflict.sufficient[k], tight.limits[row]
        for share, holds in ((1.01, True), (0.99, False)):
            limits = np.where(chosen, tight.limits, np.inf)
            limits[row] = had + share * (enough - had)
            again = only(replace(tight, limits=limits), chosen)
            found = explain(program_of(again, objective=False), upper=again.upper)
            assert (found is None) is holds, conflict.labels[k]
    if tight.types == ("rate",) and not ill:
        assert least_violation(tight, rows) > 0.0
        for k in range(len(rows)):
            assert len(rows) == 1 or least_violation(tight, np.delete(rows, k)) <= 1e-9
            least = least_use(tight, rows, k)
            short = least - tight.limits[rows[k]]
            assert abs(signs[k] * conflict.sufficient[k] - least) <= 0.01 * short


def only(instance: Planted, chosen: np.typing.NDArray[np.bool_]) -> Planted:
    matrices = tuple(matrix[chosen] for matrix in instance.matrices)
    return replace(instance, matrices=matrices, limits=instance.limits[chosen], y=instance.y[chosen])


def linear(*rows: RowBlock, n: int, lower: Floats | None = None, upper: Floats | None = None) -> Program:
    low = np.zeros(n) if lower is None else lower
    return Program(
        None, low, np.full(n, np.inf) if upper is None else upper, np.ones(n), Rows.gather(rows, n)
    )


def row(label: str, a: list[float], limit: float, *, at_least: bool = False) -> RowBlock:
    n = len(a)
    return blocks(
        [label], np.arange(n), np.zeros(n, dtype=np.int64), np.array(a), np.array([limit]), at_least=at_least
    )[0]


def test_the_sentence_names_the_rows_and_what_each_needs() -> None:
    program = linear(
        row("bytes", [2.0, 1.0], 14.0),
        row("eu", [1.0, 1.0], 12.0, at_least=True),
        row("us", [0.0, 1.0], 3.0),
        n=2,
    )
    conflict = present(explain(program))
    assert conflict.labels == ("bytes", "eu", "us")
    assert conflict.sufficient == pytest.approx((21.0, 8.5, 10.0), rel=1e-2)
    assert str(conflict).startswith(
        "bytes <= 14, eu >= 12 and us <= 3 cannot all hold. Raise bytes to at least 21"
    )
    assert "or lower eu to at most 8.49" in str(conflict)


def test_bounds_that_one_row_cannot_meet_are_named() -> None:
    below = explain(linear(row("bytes", [2.0, 1.0], 10.0), n=2, lower=np.array([6.0, 0.5])))
    assert str(below) == (
        "bytes <= 10 cannot hold with min_rate of source 0, source 1."
        " Raise bytes to at least 12.6, or lower min_rate."
    )
    above = explain(linear(row("eu", [1.0, 1.0], 5.0, at_least=True), n=2, upper=np.array([1.0, 2.0])))
    assert str(above) == (
        "eu >= 5 cannot hold with max_rate of source 1, source 0."
        " Lower eu to at most 2.99, or raise max_rate."
    )


def test_rows_that_just_meet_are_no_conflict() -> None:
    assert explain(linear(row("a", [1.0], 10.0), row("b", [1.0], 10.0, at_least=True), n=1)) is None


def test_given_multipliers_prove_what_they_prove() -> None:
    program = linear(row("a", [1.0], 10.0), row("b", [1.0], 12.0, at_least=True), n=1)
    conflict = present(explain(program, np.array([1.0, 1.0])))
    assert conflict.excess == pytest.approx(2.0 / 22.0, rel=1e-6)
    feasible = linear(row("a", [1.0], 12.0), row("b", [1.0], 10.0, at_least=True), n=1)
    assert explain(feasible, np.array([1.0, 1.0])) is None


def test_the_error_carries_the_conflict_through_a_pickle() -> None:
    conflict = explain(linear(row("a", [1.0], 10.0), row("b", [1.0], 12.0, at_least=True), n=1))
    error = pickle.loads(pickle.dumps(InfeasibleProblemError(str(conflict), conflict)))
    assert error.conflict == conflict
    assert str(error) == str(conflict)
    assert pickle.loads(pickle.dumps(InfeasibleProblemError("no"))).conflict is None


@pytest.mark.parametrize("seed", range(12))
def test_tangents_bound_the_dual_function_from_below_and_meet_it_at_best_responses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = planted(
        rng,
        ("linear", "mixed")[seed % 2],
        ill=seed % 3 == 0,
        n=int(rng.integers(1, 30)),
        m=5,
        weightless=True,
    )
    program = program_of(p, objective=False)
    for _ in range(10):
        y = p.y * np.exp(rng.normal(0.0, 0.5, 5))
        exact, size = dual_value(p, y, program.upper)
        rates = np.clip(p.rates * np.exp(rng.normal(0.0, 1.0, len(p.d))), program.lower, program.upper)
        assert Tangents(program, rates).bound(y) <= exact + 1e-13 * size
    # At the planted multipliers the planted rates are best responses.
    exact, size = dual_value(p, p.y, program.upper)
    assert Tangents(program, p.rates).bound(p.y) == pytest.approx(exact, abs=1e-9 * size)


def test_a_source_without_upper_bound_that_gains_by_more_leaves_no_bound() -> None:
    p = planted(np.random.default_rng(3), "mixed", ill=False, n=4, m=3)
    program = program_of(p, objective=False)
    endless = np.full(4, np.inf)
    open_ = type(program)(None, program.lower, endless, program.typical, program.rows)
    only_reserve = np.array([0.0, 1.0, 0.0])
    assert Tangents(open_, p.rates).bound(only_reserve) == -np.inf


@pytest.mark.parametrize("share", [0.01, 0.6])
def test_dense_and_sparse_slopes_are_the_same_matrix(share: float) -> None:
    rng, n, m = np.random.default_rng(5), 40, 7
    matrix = rng.normal(size=(m, n)) * (rng.random((m, n)) < share)
    row, source = np.nonzero(matrix)
    block = RowBlock.linear("r", range(m), source, row, matrix[row, source], np.ones(m))
    rows = Rows.gather([block], n)
    slopes, w, y, x = RowSlopes(rows, rows.coefficient), rng.random(n), rng.random(m), rng.normal(size=n)
    np.testing.assert_allclose(slopes.by_source(y), matrix.T @ y, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(slopes.by_row(x), matrix @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(slopes.gram(w, y)), (matrix * w) @ matrix.T + np.diag(y), rtol=1e-12, atol=1e-12
    )
