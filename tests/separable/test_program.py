"""Bounds that rows imply: against linear programs, and along chains in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from freshopt.separable.program import implied_upper
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.tolerances import SCALAR


def dense(matrix: np.ndarray, limits: np.ndarray) -> Rows:
    row, source = np.nonzero(matrix)
    block = RowBlock.linear("r", tuple(range(len(matrix))), source, row, matrix[row, source], limits)
    return Rows.gather([block], matrix.shape[1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(60))
def test_no_feasible_rate_is_beyond_an_implied_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = rng.integers(1, 8, 2)
    # One source against others in most rows, so that bounds reach from row to row.
    matrix = -rng.lognormal(0.0, 2.0, (m, n)) * (rng.random((m, n)) < 0.25)
    matrix[np.arange(m), rng.integers(0, n, m)] = rng.lognormal(0.0, 2.0, m)
    feasible = rng.lognormal(size=n)
    limits = matrix @ feasible + rng.lognormal(size=m)
    upper = np.where(rng.random(n) < 0.3, feasible * rng.uniform(1.0, 3.0, n), np.inf)
    bounds = implied_upper(dense(matrix, limits), np.zeros(n), upper)
    assert np.all(bounds <= upper)
    for k in range(n):
        most = linprog(-np.eye(n)[k], matrix, limits, bounds=[(0.0, float(u)) for u in upper])
        if most.status == 3:
            assert bounds[k] == np.inf
        else:
            assert most.status == 0
            assert most.x is not None
            assert float(most.x[k]) <= bounds[k] * (1.0 + SCALAR)


def test_bounds_reach_along_a_chain_of_any_length() -> None:
    """ρ_k ≤ c_k·ρ_{k−1}, declared in any order: the product of the ratios."""
    rng, n = np.random.default_rng(3), 30_000
    ratio, place = rng.lognormal(0.0, 0.1, n), rng.permutation(n)
    rows = np.arange(n - 1)
    source = np.concatenate((place[1:], place[:-1]))
    weight = np.concatenate((np.ones(n - 1), -ratio[1:]))
    both = np.concatenate((rows, rows))
    block = RowBlock.linear("r", tuple(range(n - 1)), source, both, weight, np.zeros(n - 1))
    upper = np.full(n, np.inf)
    upper[place[0]] = 2.0
    bounds = implied_upper(Rows.gather([block], n), np.zeros(n), upper)
    assert np.allclose(bounds[place[1:]], 2.0 * np.cumprod(ratio[1:]), rtol=SCALAR, atol=0.0)
