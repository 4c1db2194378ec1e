"""Costs with endless kinks, of attempts that fail: against linear programs of all kinks and water-filling."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import linprog

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.problems import PiecewiseLinearCost, SynchronizationCost
from freshopt.solvers import InteriorPoint, WaterFilling
from tests.ground_truth.named import present
from tests.ground_truth.tolerances import SCALAR

Floats = npt.NDArray[np.float64]
# Attempts beyond these fail with a chance below 1e-17, of the chances of success drawn here.
ATTEMPTS = 400
MOST = 6.0
KINKED = [pytest.param(k, marks=[] if k == 1 else pytest.mark.exhaustive) for k in range(12)]
SCALES = [pytest.param(k, marks=pytest.mark.exhaustive) for k in range(12)]


def cost(rate: float, success: float, slopes: Floats, intercepts: Floats) -> float:
    """s*rate*E[C(N/rate)], N geometric, term by term; at rate 0 its limit."""
    if rate == 0.0:
        return float(np.max(slopes))
    k = np.arange(1, ATTEMPTS)
    chance = success * (1.0 - success) ** (k - 1.0)
    whole = np.max(slopes[:, None] * (k / rate) + intercepts[:, None], axis=0)
    return float(success * rate * np.sum(chance * whole))


def least_cost(weight: Floats, success: Floats, late: Floats, costs: Floats, limits: Floats) -> float:
    """Return the optimum of max(0, age - late) summed over periods, as a linear program over all kinks."""
    value, slopes, lengths, owner = 0.0, [], [], []
    for j, (w, s, t) in enumerate(zip(weight, success, late, strict=True)):
        ends = np.append(np.arange(0, int(MOST * t) + 1) / t, MOST)
        at = [w * cost(end, s, np.array([0.0, 1.0]), np.array([0.0, -t])) for end in ends]
        value += at[0]
        slopes.append(np.diff(at) / np.maximum(np.diff(ends), 1e-300))
        lengths.append(np.diff(ends))
        owner.append(np.full(len(ends) - 1, j))
    where = np.concatenate(owner)
    found = linprog(
        np.concatenate(slopes),
        A_ub=costs[:, where],
        b_ub=limits,
        bounds=[(0.0, float(length)) for length in np.concatenate(lengths)],
        method="highs",
    )
    assert found.status == 0
    return value + float(present(found.fun))


@pytest.mark.parametrize("seed", KINKED)
def test_optima_are_those_of_the_linear_program_of_all_kinks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 5
    weight, success = 10.0 ** rng.uniform(-1.0, 1.0, n), rng.uniform(0.1, 0.9, n)
    late, other = rng.uniform(2.0, 30.0, n), rng.uniform(0.5, 2.0, n)
    limits = np.array([0.5 * n, 0.45 * n])
    zero = np.zeros(n)
    lines = PiecewiseLinearCost(np.stack([zero, zero + 1.0], 1), np.stack([zero, -late], 1))
    problem = fo.Problem(
        SynchronizationCost(lines),
        fo.Sources(np.ones(n), weight, success=success, max_rate=MOST),
        bandwidth=float(limits[0]),
        constraints=[fo.Budget(float(limits[1]), cost=other, name="kB")],
    )
    solution = fo.solve(problem, InteriorPoint())
    best = least_cost(weight, success, late, np.stack([np.ones(n), other]), limits)
    assert solution.value == pytest.approx(best, rel=1e-7)
    assert present(solution.certificate).relative_gap < SCALAR


@pytest.mark.parametrize("seed", SCALES)
def test_values_are_those_of_water_filling_at_any_scale(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = (1, 2, 30, 200)[seed % 4]
    weight = 10.0 ** rng.uniform(-1.0, 1.0, n) if seed < 6 else 10.0 ** rng.uniform(-6.0, 6.0, n)
    success = rng.uniform(0.02, 1.0, n)
    unit = 10.0 ** rng.uniform(-3.0, 3.0)
    late = unit * rng.uniform(0.5, 4.0, n)
    zero = np.zeros(n)
    slopes, intercepts = np.stack([zero, zero + 1.0, zero + 3.0], 1), np.stack([zero, -late, -6.0 * late], 1)
    sources = fo.Sources(np.ones(n), weight, success=success, refresh_cost=rng.uniform(0.5, 2.0, n))
    problem = fo.Problem(
        SynchronizationCost(PiecewiseLinearCost(slopes, intercepts)), sources, bandwidth=0.8 * n / unit
    )
    solution, filled = fo.solve(problem, InteriorPoint()), fo.solve(problem, WaterFilling())
    assert solution.value == pytest.approx(filled.value, rel=SCALAR)
    assert present(solution.certificate).relative_gap < SCALAR


@dataclass(frozen=True)
class NearTwice(fo.Objective):
    """w·huber(2Δ − ρ): straight, then curved, then flat."""

    sense = "minimise"

    def per_source(self, rate: cp.Variable, sources: fo.Sources) -> Expression:
        """Declare the cost."""
        short = cp.pos(2.0 * sources.change_rate - rate)
        return cp.multiply(sources.importance, cp.huber(short, 0.5))


def test_a_curved_piece_between_straight_ones_is_no_crowd_of_kinks() -> None:
    """Sources straight but for a curved piece were all searched in windows, narrowed for kinks in vain."""
    rng, n = np.random.default_rng(0), 2000
    sources = fo.Sources(rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n))
    size = rng.uniform(1.0, 9.0, n)
    budget = fo.Budget(0.6 * float(np.sum(sources.change_rate * size)), cost=size, name="kB")
    most = 0.7 * float(np.sum(sources.change_rate))
    problem = fo.Problem(NearTwice(), sources, most, constraints=[budget])
    solution = fo.solve(problem, InteriorPoint(), throw=False)
    assert present(solution.certificate).relative_gap <= 1e-11
