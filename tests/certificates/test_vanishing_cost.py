"""Costs that all but vanish: optimal and without a gap, and no other problem is."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import freshopt as fo
from freshopt.modelling.cost_curve import NO_FORMS, Curve
from freshopt.modelling.objective import Refresh
from freshopt.problems import LaterThan, PiecewiseLinearCost, SynchronizationCost
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present
from tests.ground_truth.strata import stratified
from tests.ground_truth.tolerances import CONIC, EXACT

# The cost without refreshes of LaterThan is the sum of importances.
NOTHING = 1e-15
BANDWIDTHS = [2.0, 8.0, 20.0, 24.0, 48.0, 96.0, 200.0, 1000.0, 1e5]


def consistent(solution: fo.Solution) -> fo.Certificate:
    """Hold status, verdict and relative gap of a solution against each other."""
    proof = present(solution.certificate)
    assert (solution.status is fo.Status.OPTIMAL) == (proof.relative_gap <= CONIC)
    assert proof.confirms(CONIC) == (solution.status is fo.Status.OPTIMAL)
    assert not proof.vanishing or proof.relative_gap == 0.0
    return proof


@pytest.mark.parametrize(
    ("bandwidth", "age", "success"), stratified(BANDWIDTHS, [0.5, 3.0, 30.0], [None, 0.9, 0.5], every=3)
)
@pytest.mark.parametrize("refresh", [fo.Refresh.POISSON, fo.Refresh.PERIODIC])
def test_deadlines_that_are_kept_are_optimal(
    bandwidth: float, age: float, success: float | None, refresh: fo.Refresh
) -> None:
    """A deadline of days and attempts by the hour: costs of 1e-30, 1e-291 and 0."""
    for rates, importance in (([0.5], [1.0]), ([0.5, 1.0, 2.0], [1.0, 1e-3, 4.0])):
        sources = fo.Sources(rates, importance, success=success)
        solution = fo.solve(fo.Problem(LaterThan(age, refresh), sources, bandwidth), throw=False)
        proof = consistent(solution)
        assert solution.status is fo.Status.OPTIMAL
        nothing = solution.value <= NOTHING * sum(importance) and proof.gap <= 10.0 * NOTHING * sum(
            importance
        )
        assert proof.vanishing == nothing or proof.relative_gap <= EXACT


@pytest.mark.parametrize("importance", [[1.0, 0.0, 2.0], [0.0, 0.0, 2.0]])
@pytest.mark.parametrize(
    "objective",
    [
        LaterThan(3.0, refresh=fo.Refresh.POISSON),
        BINARY,
        HARMONIC,
    ],
    ids=repr,
)
def test_a_second_budget_beside_a_source_of_no_importance(
    objective: fo.Objective, importance: list[float]
) -> None:
    for bandwidth in (10.0, 100.0, 1000.0):
        second = fo.Budget(0.5 * bandwidth, cost=[0.0, 1.0, 0.0], name="second")
        sources = fo.Sources([1.0, 2.0, 3.0], importance)
        problem = fo.Problem(objective, sources, bandwidth, constraints=[second])
        solution = fo.solve(problem, throw=False)
        consistent(solution)
        assert solution.status is fo.Status.OPTIMAL


@pytest.mark.parametrize("seed", range(12))
def test_an_optimum_of_zero_has_no_gap_beside_it(seed: int) -> None:
    """Announced changes with bandwidth for all: a status and a relative gap say the same of any rates."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 9))
    objective = [HARMONIC, BINARY, DELAY][seed % 3]
    rates, weight = 10.0 ** rng.uniform(-6, 4, n), 10.0 ** rng.uniform(-6, 6, n)
    sources = fo.Sources(rates, weight, signalled=True)
    ample = float(rng.choice([1.0, 1.5, 20.0]))
    problem = fo.Problem(objective, sources, float(rates.sum()) * ample)
    best = fo.solve(problem, throw=False)
    consistent(best)
    assert best.status is fo.Status.OPTIMAL
    np.testing.assert_allclose(best.rates, rates, rtol=EXACT)
    for off in (1e-3, 1e-9, 1e-13):
        proof = fo.certify(problem, rates * (1.0 - off))
        assert not proof.vanishing
        # Where just enough is there for all, bandwidth has a price, and the loss is small beside it.
        assert proof.relative_gap > (1e-2 if ample > 1.0 else 1e-2 * off)


@dataclass(frozen=True, slots=True)
class Searched(SynchronizationCost):
    """Best responses and costs by the formulas of any curve."""

    def curve(self, sources: fo.Sources) -> Curve:
        return replace(SynchronizationCost.curve(self, sources), on_request=NO_FORMS)


@pytest.mark.parametrize("seed", [13, 141, 217, 347])
def test_what_is_left_by_cancellation_has_its_gap_beside_what_refreshes_save(seed: int) -> None:
    """Tiers of staleness on request, nearly all saved: slopes are differences of terms 1e13 as large."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 40))
    change_rate, importance = rng.lognormal(0.0, 2.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    request_rate, host = change_rate * rng.lognormal(2.0, 1.0, n), rng.integers(0, max(1, n // 5), n)
    sources = fo.Sources(change_rate, importance, request_rate=request_rate, host=host)
    mean = 0.3 * float(change_rate.mean())
    counts = [np.sum(host == k) * mean * 10.0 ** rng.uniform(-0.5, 1.5) for k in np.unique(host)]
    limits = dict(zip(np.unique(host).tolist(), map(float, counts), strict=True))
    bandwidth = sum(limits.values()) * [1.0, 0.9, 2.0][seed % 3]
    tiers = PiecewiseLinearCost([0.0, 1.0, 3.0], [0.0, -1.0, -9.0])
    problem = fo.Problem(Searched(tiers, Refresh.ON_REQUEST), sources, bandwidth, limits)
    solution = fo.solve(problem, throw=False)
    proof = consistent(solution)
    assert solution.status is fo.Status.OPTIMAL
    assert proof.relative_gap <= NOTHING
    assert "refreshes leave" in proof.reason
    # A loss that is no rounding is told beside what is left.
    less = fo.certify(problem, solution.rates * (1.0 - 1e-6))
    assert less.relative_gap > CONIC
    assert not less.reason
    # From the kinks it is proved beside what is left; without refreshes it is 3 a source.
    exact = fo.solve(fo.Problem(SynchronizationCost(tiers, Refresh.ON_REQUEST), sources, bandwidth, limits))
    assert exact.value == pytest.approx(solution.value, rel=0.0, abs=NOTHING * 3.0 * importance.sum())
    assert consistent(exact).relative_gap <= EXACT
    assert not present(exact.certificate).reason


def test_what_a_refresh_costs_is_never_nothing() -> None:
    """The least bandwidth for a target: what is spent is small, and without refreshes nothing is."""
    sources = fo.Sources([1e-9, 2e-9])
    target = fo.Target(DELAY, at_most=1.0)
    problem = fo.Problem(fo.Spend(), sources, constraints=[target])
    solution = fo.solve(problem)
    proof = consistent(solution)
    assert not proof.vanishing
    assert not fo.certify(problem, 2.0 * solution.rates).confirms(1e-2)
