"""Rows of curves that rise with the rate, or fall first: CVXPY's optimum, whatever else is slack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.interior_point.row_presolve import entry_directions, range_of
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

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


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("objective", [BinaryFreshness(), HarmonicStaleness(), AccumulatedDelay()])
@pytest.mark.parametrize("bandwidth", [12.0, 400.0])
@pytest.mark.sampled(4)
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
        problem = fo.Problem(
            AccumulatedDelay(), sources, 400.0, constraints=lambda rate, name=name: [CURVES[name](rate)]
        )
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
