"""Projected gradient: degenerate projections, the metric of the curvature, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import WaterFilling
from freshopt.solvers.projected_gradient import ProjectedGradient
from tests.ground_truth.tolerances import CONIC, EXACT

step = ProjectedGradient.step


def test_learning_rate_zero_projects() -> None:
    assert np.array_equal(step([3.0, 1.0, 0.0], np.zeros(3), 2.0, 0.0, np.inf, 0.0), [2.0, 0.0, 0.0])
    inside = np.array([0.5, 0.25, 1.0])
    assert np.array_equal(step(inside, [4.0, -4.0, 1.0], 2.0, 0.0, 2.0, 0.0), inside)


def test_slack_budget_has_multiplier_zero() -> None:
    assert np.array_equal(step([1.0, 2.0], [0.5, 4.0], 9.0, 0.25, 5.0, 1.0), [0.5, 0.25])


def test_a_common_part_of_all_gradients_cancels_exactly_where_the_budget_binds() -> None:
    q, g = np.array([1.0, 2.0, 0.25]), np.array([-3.0, -1.5, -2.0])
    plain = step(q, g, 4.0, 0.0, np.inf, 1.0)
    assert np.allclose(plain, np.array([4.0, 3.5, 2.25]) - 5.75 / 3, rtol=EXACT)
    assert np.array_equal(step(q, g - 2.0**45, 4.0, 0.0, np.inf, 1.0), plain)


def test_a_rate_of_zero_is_a_start_for_this_map_and_a_negative_one_is_not() -> None:
    assert np.array_equal(step([0.0, 1.0], [-1.0, 0.0], 9.0, 0.0, 9.0, 1.0), [1.0, 1.0])
    with pytest.raises(fo.SourceDataError, match=r"rates \[0\] = -1 must be finite and >= 0"):
        step([-1.0, 1.0], [-1.0, 0.0], 9.0, 0.0, 9.0, 1.0)
    with pytest.raises(fo.InfeasibleProblemError, match="min_rate needs 3"):
        step([1.0, 1.0], [0.0, 0.0], 2.0, 1.5, 9.0, 1.0)


def test_the_unit_of_time_and_of_cost_make_no_difference() -> None:
    rng = np.random.default_rng(2)
    d, w = rng.lognormal(0.0, 1.0, 40), rng.lognormal(0.0, 1.0, 40)
    plain = fo.solve(fo.Problem(HarmonicStaleness(), fo.Sources(d, w), 20.0), ProjectedGradient())
    scaled = fo.Problem(HarmonicStaleness(), fo.Sources(d * 2.0**60, w * 2.0**-90), 20.0 * 2.0**60)
    other = fo.solve(scaled, ProjectedGradient())
    assert np.allclose(other.rates, plain.rates * 2.0**60, rtol=1e-2)
    assert abs(other.value * 2.0**90 - plain.value) <= CONIC * plain.value


def test_a_cost_of_infinite_slope_at_zero_is_never_asked_for_its_gradient_there() -> None:
    class Root(fo.Objective):
        sense = "maximise"

        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return cp.multiply(sources.importance, cp.power(rate, 0.5))

    w = np.array([1.0, 2.0, 4.0])
    solution = fo.solve(fo.Problem(Root(), fo.Sources([1.0, 1.0, 1.0], w), 21.0), ProjectedGradient())
    assert np.allclose(solution.rates, [1.0, 4.0, 16.0], rtol=1e-2)  # r ∝ w²
    assert abs(solution.value - 21.0) <= CONIC * 21.0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "objective",
    [pytest.param(HarmonicStaleness(), marks=pytest.mark.exhaustive), BinaryFreshness(), AccumulatedDelay()],
)
def test_the_metric_of_the_curvature_solves_what_the_plain_method_does_not(objective: fo.Objective) -> None:
    rng = np.random.default_rng(1)
    d, w = rng.lognormal(0.0, 3.0, 200), rng.lognormal(0.0, 3.0, 200)
    problem = fo.Problem(objective, fo.Sources(d, w), 80.0)
    plain = fo.solve(problem, ProjectedGradient(limit=2000, scaled=False), throw=False)
    assert plain.status is fo.Status.ITERATION_LIMIT
    scaled = fo.solve(problem, ProjectedGradient(limit=2000))
    assert scaled.status is fo.Status.OPTIMAL
    assert fo.cross_check(problem, [WaterFilling(), ProjectedGradient()]).agrees


def test_the_plain_method_is_exact_on_benign_data() -> None:
    rng = np.random.default_rng(3)
    problem = fo.Problem(BinaryFreshness(), fo.Sources(rng.lognormal(0.0, 1.0, 50)), 20.0)
    assert fo.solve(problem, ProjectedGradient(scaled=False)).status is fo.Status.OPTIMAL
