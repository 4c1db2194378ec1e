import numpy as np
import pytest

from freshopt.certificates.row_slopes import RowSlopes
from freshopt.interior_point.infeasibility import Tangents
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.proof_programs import program_of
from tests.ground_truth.row_truth import Floats, Planted, best_response, cost, planted, slope


def dual(p: Planted, upper: Floats, y: Floats) -> tuple[float, float]:
    """Return D(y) and the size of its parts, by bisection."""
    weights = [y @ matrix for matrix in p.matrices]

    def whole(r: Floats) -> Floats:
        own = [np.where(w != 0.0, w * slope(t, r, p.d), 0.0) for t, w in zip(p.types, weights, strict=True)]
        return np.asarray(np.sum(own, axis=0), dtype=np.float64)

    r = best_response(whole, p.lower, upper)
    with np.errstate(all="ignore"):
        each = [w * cost(t, r, p.d) for t, w in zip(p.types, weights, strict=True)]
    parts = np.array([np.where(w != 0.0, e, 0.0) for w, e in zip(weights, each, strict=True)])
    return float(np.sum(parts) - y @ p.limits), float(np.sum(np.abs(parts)) + y @ np.abs(p.limits))


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
        exact, size = dual(p, program.upper, y)
        rates = np.clip(p.rates * np.exp(rng.normal(0.0, 1.0, len(p.d))), program.lower, program.upper)
        assert Tangents(program, rates).bound(y) <= exact + 1e-13 * size
    # At the planted multipliers the planted rates are best responses.
    exact, size = dual(p, program.upper, p.y)
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
