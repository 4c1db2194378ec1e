"""Mirror descent and projected gradients."""

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.separable.kernel import Kernel
from freshopt.solvers import WaterFilling
from freshopt.solvers.mirror_descent import MirrorDescent
from freshopt.solvers.projected_gradient import ProjectedGradient
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present, written
from tests.ground_truth.refusals import refused
from tests.ground_truth.step_truth import StepCase, exact_step, relative_map
from tests.ground_truth.strata import rare
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR
from tests.ground_truth.unknown_atom import stranger

step = MirrorDescent.step


def test_a_common_part_of_all_gradients_cancels_exactly_where_the_budget_binds() -> None:
    q, g = np.array([1.0, 2.0, 0.25]), np.array([-3.0, 1.0, 0.0])
    plain = step(q, g - 8.0, 4.0, 0.0, np.inf, 1.0)
    assert np.array_equal(step(q, g - 2.0**45, 4.0, 0.0, np.inf, 1.0), plain)
    assert len(set(plain.tolist())) == 3


INF = np.inf
# Gradients are equal and cancel; beside ηg or 1/q of tiny rates, no digit is left for 1/q of large ones.
DEGENERATE = [
    ([1.0, 1.0], -3e6, 100_001.25, [1.0, 1e5], [1.0, 100_001.0], [1.0, 100_000.25]),
    ([1e9, 1e7, 5e-8], -3e8, 3.1e8, [3e8, 0.0, 0.0], [300_000_003.0, 1e7, INF], [3e8 + 3, 9_999_997, 5e-8]),
    ([3e9, 2e-9, 2e-9], -7e8, 3e8 + 0.5, [3e8, 1e-5, 2e-9], [INF, INF, 2e-9], [3e8 + 0.49999, 1e-5, 2e-9]),
]


@pytest.mark.parametrize(("q", "g", "bandwidth", "low", "high", "expected"), DEGENERATE)
def test_bounds_too_close_for_their_multipliers_to_be_told_apart(
    q: list[float], g: float, bandwidth: float, low: list[float], high: list[float], expected: list[float]
) -> None:
    rates = step(q, np.full(len(q), g), bandwidth, low, high, 1.0)
    assert np.allclose(rates, expected, rtol=SCALAR, atol=0.0)
    case = StepCase(np.array(q), np.full(len(q), g), bandwidth, np.array(low), np.array(high), 1.0)
    assert np.allclose(exact_step(case, relative_map), expected, rtol=SCALAR, atol=0.0)


def test_a_rest_that_is_tiny_beside_the_bounds_keeps_its_digits() -> None:
    low = np.array([5.0, 0.0, 0.0])
    rates = step([5.0, 1.0, 1.0], [0.0, -1.0, -1.0], 5.0 + 2.0**-30, low, 10.0, 1.0)
    assert np.allclose(rates[1:], 2.0**-31, rtol=EXACT, atol=0.0)


def test_slack_budget_has_multiplier_zero() -> None:
    rates = step([1.0, 2.0, 4.0], [1.0, 0.5, 0.0], 100.0, 0.0, [np.inf, np.inf, 3.0], 2.0)
    assert np.allclose(rates, [1 / 3, 2 / 3, 3.0], rtol=EXACT)


def test_full_bounds_leave_the_others_positive() -> None:
    rates = step([1.0, 1.0], [-1.0, -1.0], 2.0, [2.0, 0.0], [2.0, 5.0], 1.0)
    assert rates[0] == 2.0
    assert 0.0 < rates[1] <= EXACT


def test_a_source_whose_rate_may_only_be_zero_stays_there() -> None:
    assert np.array_equal(step([0.0, 1.0], [-1.0, -1.0], 2.0, 0.0, [0.0, 9.0], 1.0), [0.0, 2.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rates": [0.0, 1.0]}, r"rates \[0\] = 0 must be finite and > 0"),
        ({"rates": [np.inf, 1.0]}, "rates"),
        ({"gradient": [np.nan, 1.0]}, "gradient"),
        ({"gradient": [1.0, 1.0, 1.0]}, "gradient has shape"),
        ({"min_rate": -1.0}, "min_rate"),
        ({"min_rate": 0.5, "max_rate": 0.4}, "max_rate .* must be at least min_rate"),
        ({"max_rate": np.nan}, "max_rate"),
        ({"bandwidth": 0.0}, "bandwidth is 0"),
        ({"bandwidth": np.inf}, "bandwidth"),
        ({"learning_rate": -1.0}, "learning_rate is -1"),
        ({"learning_rate": np.nan}, "learning_rate"),
    ],
)
def test_step_refuses_bad_arguments_by_name(changes: dict[str, Any], words: str) -> None:
    good: dict[str, Any] = {
        "rates": [1.0, 1.0],
        "gradient": [-1.0, 0.0],
        "bandwidth": 2.0,
        "min_rate": 0.0,
        "max_rate": 9.0,
        "learning_rate": 1.0,
    }
    refused(words, step, **{**good, **changes})


def test_step_refuses_floors_beyond_the_bandwidth() -> None:
    with pytest.raises(
        fo.InfeasibleProblemError, match=r"min_rate needs 3 but bandwidth is 2 \(short by 1\)"
    ):
        step([1.0, 1.0], [0.0, 0.0], 2.0, 1.5, 9.0, 1.0)


@pytest.mark.parametrize(("objective", "constant"), [(HARMONIC, 1.0), (BINARY, 8.0 / 27.0)])
def test_relative_smoothness_bounds_every_step(objective: fo.Objective, constant: float) -> None:
    rng = np.random.default_rng(3)
    d, w = rng.lognormal(0.0, 1.0, 50), rng.lognormal(0.0, 1.0, 50)
    numerics = present(fo.Problem(objective, fo.Sources(d, w), bandwidth=25.0).numerics)
    q = rng.lognormal(0.0, 2.0, 50)
    for r in (rng.lognormal(0.0, 2.0, 50), 1.01 * q, 2.0 * d):
        gained = numerics.cost(r) - numerics.cost(q) + numerics.marginal(q) * (r - q)
        assert np.all(gained <= constant * w * (r / q - 1 - np.log(r / q)) + EXACT * w)
    near = 2.0 * d  # where the binary constant is attained
    curvature = near**2 * (numerics.marginal(near * (1 - 1e-6)) - numerics.marginal(near * (1 + 1e-6)))
    assert np.all(curvature / (2e-6 * near) <= constant * w * (1 + CONIC))


@pytest.mark.exhaustive
def test_starved_sources_end_at_rate_zero_exactly() -> None:
    rng = np.random.default_rng(0)
    d, w = rng.lognormal(0.0, 1.0, 300), rng.lognormal(0.0, 1.0, 300)
    problem = fo.Problem(BINARY, fo.Sources(d, w), bandwidth=100.0)
    solution, exact = fo.solve(problem, MirrorDescent()), fo.solve(problem, WaterFilling())
    clear = np.abs(w / d - exact.price) > 0.01 * exact.price
    assert np.array_equal((solution.rates == 0.0)[clear], (w / d < exact.price)[clear])
    assert 50 < np.sum(solution.rates == 0.0) < 250


def test_a_declared_objective_is_solved_from_its_derivatives() -> None:
    SquaredDelay = written(
        "SquaredDelay",
        lambda rate, sources: cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -2)),
    )

    d = np.array([1.0, 8.0, 27.0])
    solution = fo.solve(fo.Problem(SquaredDelay(), fo.Sources(d), bandwidth=6.0), MirrorDescent())
    assert np.allclose(solution.rates, [1.0, 2.0, 3.0], rtol=1e-3)


def test_no_importance_at_all_is_solved() -> None:
    problem = fo.Problem(HARMONIC, fo.Sources([1.0, 2.0], 0.0), bandwidth=1.0)
    assert fo.solve(problem, MirrorDescent()).value == 0.0


def hard() -> fo.Problem:
    rng = np.random.default_rng(1)
    return fo.Problem(HARMONIC, fo.Sources(rng.lognormal(0.0, 3.0, 50), rng.lognormal(0.0, 3.0, 50)), 20.0)


def test_a_gap_within_the_callers_tolerance_is_no_failure_at_the_limit() -> None:
    assert fo.solve(hard(), MirrorDescent(limit=30), tolerance=0.5).status is fo.Status.OPTIMAL


@pytest.mark.exhaustive
def test_its_own_tolerance_ends_the_loop_early() -> None:
    loose = fo.solve(hard(), MirrorDescent(tolerance=1e-2), tolerance=1e-2)
    assert loose.iterations < fo.solve(hard(), MirrorDescent(), throw=False).iterations / 3


def test_floors_that_use_up_the_bandwidth() -> None:
    sources = fo.Sources([1.0, 2.0], min_rate=[0.5, 1.5])
    solution = fo.solve(fo.Problem(DELAY, sources, bandwidth=2.0), MirrorDescent())
    assert np.array_equal(solution.rates, [0.5, 1.5])
    starving = fo.Sources([1.0, 2.0], min_rate=[2.0, 0.0], names=["a", "b"])
    with pytest.raises(fo.InfeasibleProblemError, match="leaves nothing for 'b'"):
        fo.solve(fo.Problem(DELAY, starving, bandwidth=2.0), MirrorDescent())


class Kinked(fo.Objective):
    """The larger of 3 − 2r, 2 − r and 0, whose marginal falls from 2 to 1 at rate 1 and to 0 at rate 2."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance, cp.maximum(3.0 - 2.0 * rate, 2.0 - rate, 0.0))

    def kernel(self, sources: fo.Sources) -> Kernel:
        return Kernel(
            sources.importance,
            (),
            lambda r: np.maximum(np.maximum(3.0 - 2.0 * r, 2.0 - r), 0.0),
            lambda r: np.where(r < 1.0, 2.0, np.where(r < 2.0, 1.0, 0.0)),
            lambda price: np.where(price >= 2.0, 0.0, np.where(price >= 1.0, 1.0, 2.0)),
        )


def test_costs_with_kinks_are_refused() -> None:
    problem = fo.Problem(Kinked(), fo.Sources([1.0, 2.0], names=["a", "b"]), 1.0)
    with pytest.raises(fo.SolverRefusedError, match="the marginal jumps for 'a', 'b'"):
        fo.solve(problem, MirrorDescent())


def test_unknown_atoms_are_refused() -> None:
    Unknown = written("Unknown", lambda rate, sources: cp.multiply(sources.importance, stranger(rate - 5.0)))

    problem = fo.Problem(Unknown(), fo.Sources([1.0]), 2.0)
    assert problem.numerics is None
    refused("MirrorDescent does not apply", fo.solve, problem, MirrorDescent(), error=fo.SolverRefusedError)


step_projected = ProjectedGradient.step


def test_learning_rate_zero_projects() -> None:
    assert np.array_equal(
        step_projected([3.0, 1.0, 0.0], np.zeros(3), 2.0, 0.0, np.inf, 0.0), [2.0, 0.0, 0.0]
    )
    inside = np.array([0.5, 0.25, 1.0])
    assert np.array_equal(step_projected(inside, [4.0, -4.0, 1.0], 2.0, 0.0, 2.0, 0.0), inside)


def test_slack_budget_has_multiplier_zero_projected() -> None:
    assert np.array_equal(step_projected([1.0, 2.0], [0.5, 4.0], 9.0, 0.25, 5.0, 1.0), [0.5, 0.25])


def test_a_common_part_of_all_gradients_cancels_exactly_where_the_budget_binds_projected() -> None:
    q, g = np.array([1.0, 2.0, 0.25]), np.array([-3.0, -1.5, -2.0])
    plain = step_projected(q, g, 4.0, 0.0, np.inf, 1.0)
    assert np.allclose(plain, np.array([4.0, 3.5, 2.25]) - 5.75 / 3, rtol=EXACT)
    assert np.array_equal(step_projected(q, g - 2.0**45, 4.0, 0.0, np.inf, 1.0), plain)


def test_a_rate_of_zero_is_a_start_for_this_map_and_a_negative_one_is_not() -> None:
    assert np.array_equal(step_projected([0.0, 1.0], [-1.0, 0.0], 9.0, 0.0, 9.0, 1.0), [1.0, 1.0])
    with pytest.raises(fo.SourceDataError, match=r"rates \[0\] = -1 must be finite and >= 0"):
        step_projected([-1.0, 1.0], [-1.0, 0.0], 9.0, 0.0, 9.0, 1.0)
    with pytest.raises(fo.InfeasibleProblemError, match="min_rate needs 3"):
        step_projected([1.0, 1.0], [0.0, 0.0], 2.0, 1.5, 9.0, 1.0)


def test_the_unit_of_time_and_of_cost_make_no_difference() -> None:
    rng = np.random.default_rng(2)
    d, w = rng.lognormal(0.0, 1.0, 40), rng.lognormal(0.0, 1.0, 40)
    plain = fo.solve(fo.Problem(HARMONIC, fo.Sources(d, w), 20.0), ProjectedGradient())
    scaled = fo.Problem(HARMONIC, fo.Sources(d * 2.0**60, w * 2.0**-90), 20.0 * 2.0**60)
    other = fo.solve(scaled, ProjectedGradient())
    assert np.allclose(other.rates, plain.rates * 2.0**60, rtol=1e-2)
    assert abs(other.value * 2.0**90 - plain.value) <= CONIC * plain.value


def test_a_cost_of_infinite_slope_at_zero_is_never_asked_for_its_gradient_there() -> None:
    Root = written(
        "Root", lambda rate, sources: cp.multiply(sources.importance, cp.power(rate, 0.5)), sense="maximise"
    )

    w = np.array([1.0, 2.0, 4.0])
    solution = fo.solve(fo.Problem(Root(), fo.Sources([1.0, 1.0, 1.0], w), 21.0), ProjectedGradient())
    assert np.allclose(solution.rates, [1.0, 4.0, 16.0], rtol=1e-2)  # r ∝ w²
    assert abs(solution.value - 21.0) <= CONIC * 21.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", [*rare(HARMONIC), BINARY, DELAY])
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
    problem = fo.Problem(BINARY, fo.Sources(rng.lognormal(0.0, 1.0, 50)), 20.0)
    assert fo.solve(problem, ProjectedGradient(scaled=False)).status is fo.Status.OPTIMAL
