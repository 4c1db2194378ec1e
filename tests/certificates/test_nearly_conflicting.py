"""Rows that nearly conflict have prices of any size, which must hide no loss.

Two sources with cost 1/ρ_1, a budget ρ_0 + ρ_1 ≤ B and a target 1/ρ_0 + v/ρ_1 ≤ 1 with v = 1e-8. The target
alone needs (1 + √v)² of the budget, by Cauchy–Schwarz, and B leaves a share ε more. At the optimum both rows
are met, ρ_1 is the larger root of ρ² − (B − 1 + v)ρ + vB = 0, and the stationarity conditions give prices
beyond 1e7 times the cost.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_scale import relative_row_gap
from freshopt.cvx import cp
from freshopt.problems import AccumulatedDelay

V = 1e-8
# Source 1 has this share of its optimal rate: its cost is .5 % more.
SHARE = 1.0 / 1.005


def conflicting(left: float) -> tuple[fo.Problem, float, dict[str, float]]:
    """Return the problem, its optimal ρ_1, and the prices at the optimum."""
    limit = (1.0 + math.sqrt(V)) ** 2 * (1.0 + left)
    half = 0.5 * (limit - 1.0 + V)
    best = half + math.sqrt(half * half - V * limit)
    first = limit - best
    weights = np.array([1.0, V])
    problem = fo.Problem(
        AccumulatedDelay(),
        fo.Sources(change_rate=[1.0, 1.0], importance=[0.0, 1.0]),
        bandwidth=limit,
        constraints=[
            lambda rate: [(cp.sum(cp.multiply(weights, cp.inv_pos(rate))) <= 1.0).set_label("target")]
        ],
    )
    # y_B = y_T/ρ_0², and y_B − y_T v/ρ_1² = 1/ρ_1².
    target = (1.0 / best**2) / (1.0 / first**2 - V / best**2)
    return problem, best, {"bandwidth": target / first**2, "target": target}


@pytest.mark.parametrize("left", [1e-6, 1e-7])
def test_large_prices_of_a_near_conflict_hide_no_loss(left: float) -> None:
    problem, best, prices = conflicting(left)
    poor = SHARE * best
    # Between what the target asks of source 0 and what the budget leaves.
    rates = np.array([0.5 * (1.0 / (1.0 - V / poor) + problem.bandwidth - poor), poor])
    found = fo.certify(problem, rates, prices=prices)
    assert found.infeasibility == 0.0
    assert found.gap >= 1.0 / poor - 1.0 / best
    loss = best / poor - 1.0
    assert found.relative_gap >= loss
    # Against the prices alone the loss is nothing, or this test could not fail.
    assert problem.program is not None
    gap = RowGap.of(problem.program, rates)
    assert (
        relative_row_gap(gap, np.array([prices[label] for label in problem.program.rows.labels])).relative
        < 1e-3 * loss
    )
    # The optimum itself is proved nevertheless.
    assert (
        fo.certify(problem, np.array([problem.bandwidth - best, best]), prices=prices).gap <= 1e-3 * found.gap
    )
