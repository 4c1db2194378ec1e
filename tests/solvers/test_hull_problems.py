"""Problems with a profile: optima against a dual bound on grids, certificates, ends of segments, CVXPY."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import freshopt as fo
from freshopt.dual_search.segment_ends import hull_of
from freshopt.modelling import phased_objective
from freshopt.problems import HarmonicStaleness
from freshopt.solvers import ClosedForm, Conic, LambdaCrawl, MirrorDescent, SeparableNewton, Uniform
from tests.ground_truth.hull_truth import NAMES, Floats, Grid, Savings
from tests.ground_truth.named import HARMONIC_PERIODIC, present
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import CONIC
from tests.separable.test_hulls import OBJECTIVES, WEEKS


def resting(problem: fo.Problem, rates: Floats) -> tuple[int, int]:
    """Sources at a point of their hull, and those inside a segment."""
    hull = present(hull_of(problem.numerics))
    low, high = hull.segment(rates)
    return int(np.sum(hull.corner(rates))), int(np.sum((low < rates) & (rates < high)))


@matrix(name=NAMES, bandwidth=[0.2, 1.0, 6.0], every=2)
def test_optima_are_those_of_the_dual_on_grids(name: str, bandwidth: float) -> None:
    change, weight, cost = [0.02, 0.1, 0.4, 1.5, 9.0], [1.0, 3.0, 0.5, 1.0, 2.0], [1.0, 1.0, 2.0, 0.5, 1.0]
    low, high = [0.0, 0.05, 0.0, 0.0, 0.0], [np.inf, 0.4, np.inf, 0.5, np.inf]
    sources = fo.Sources(change, weight, refresh_cost=cost, min_rate=low, max_rate=high)
    problem = fo.Problem(OBJECTIVES[name], sources, bandwidth, profile=Savings())
    solution = fo.solve(problem)
    shorter = Savings().saving(WEEKS, 2.0)
    columns = zip(change, weight, low, high, strict=True)
    grids = [Grid.of(name, d, w, WEEKS, shorter, lo, hi) for d, w, lo, hi in columns]

    def dual(log_price: float) -> float:
        price = np.exp(log_price)
        parts = [
            float(grid.lagrangian(np.array([price * c]))[0]) for grid, c in zip(grids, cost, strict=True)
        ]
        return float(bandwidth * price - sum(parts))

    best = -min(
        minimize_scalar(
            dual, bounds=(centre - 1.0, centre + 1.0), method="bounded", options={"xatol": 1e-9}
        ).fun
        for centre in np.arange(-8.0, 10.0, 2.0)
    )
    reached = float(np.sum(present(problem.numerics).cost(solution.rates)))
    assert reached == pytest.approx(best, rel=2e-5)
    assert present(solution.certificate).relative_gap < 1e-12


@matrix(seed=range(18), every=2)
def test_every_instance_is_proved_optimal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 300))
    if seed % 2:
        change, weight = rng.choice([0.01, 0.05, 0.2, 1.0], n), np.ones(n)
    else:
        change, weight = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    cost = rng.choice([1.0, 2.0], n) if seed % 4 < 2 else 10.0 ** rng.uniform(-2.0, 2.0, n)
    low = np.where(rng.random(n) < 0.2, 0.02, 0.0)
    high = np.where(rng.random(n) < 0.2, 0.5, np.inf)
    host = rng.integers(0, 5, n)
    sources = fo.Sources(change, weight, refresh_cost=cost, host=host, min_rate=low, max_rate=high)
    bandwidth = float(np.sum(cost)) / 7.0
    limits = {0: bandwidth / 8.0, 1: bandwidth / 20.0, 2: bandwidth} if n > 50 else None
    problem = fo.Problem(
        OBJECTIVES[NAMES[seed % 3]], sources, bandwidth, limits, profile=Savings(), load_limit=2.5
    )
    solution = fo.solve(problem)
    assert present(solution.certificate).relative_gap < 1e-12
    assert resting(problem, solution.rates)[1] <= 1 + len(limits or {})
    used = cost * solution.rates
    assert np.sum(used) <= bandwidth * (1.0 + 1e-14)
    for code, limit in (limits or {}).items():
        assert np.sum(used[host == code]) <= limit * (1.0 + 1e-14)
    assert np.all((solution.rates >= low) & (solution.rates <= high))


@pytest.mark.parametrize("name", NAMES)
def test_alike_sources_rest_at_two_gaps_but_one(name: str) -> None:
    n = 97
    problem = fo.Problem(OBJECTIVES[name], fo.Sources(np.full(n, 0.05)), 0.11 * n, profile=Savings())
    solution = fo.solve(problem)
    corners, inside = resting(problem, solution.rates)
    assert inside <= 1
    assert len(np.unique(solution.rates)) <= 3
    assert corners > n / 3
    assert present(solution.certificate).relative_gap < 1e-12


def test_rates_at_points_are_exact() -> None:
    rng = np.random.default_rng(5)
    sources = fo.Sources(rng.gamma(0.6, 0.1, 2000) + 1e-6, rng.pareto(1.5, 2000) + 1.0)
    problem = fo.Problem(OBJECTIVES["delay"], sources, 200.0, profile=Savings())
    rates = fo.solve(problem).rates
    near = np.any(np.abs(rates[:, None] * WEEKS - 1.0) < 1e-9, axis=1)
    assert np.mean(near) > 0.3
    assert np.all(np.any(rates[near, None] == 1.0 / WEEKS, axis=1))


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=NAMES)
@matrix(bandwidth=[0.2, 1.0, 4.0], every=5)
def test_the_declared_problem_has_the_same_value(objective: fo.Objective, bandwidth: float) -> None:
    sources = fo.Sources(
        [0.02, 0.1, 0.1, 0.5, 3.0],
        [1.0, 2.0, 1.0, 0.5, 3.0],
        min_rate=[0.0, 0.05, 0.0, 0.0, 0.0],
        max_rate=[np.inf, np.inf, 0.9, 2.0, np.inf],
    )
    problem = fo.Problem(objective, sources, bandwidth, profile=Savings())
    solution = fo.solve(problem)
    if not isinstance(
        objective, HarmonicStaleness
    ):  # whose quadrature is too badly scaled to be solved as it is
        assert problem.to_cvxpy().solve(solver="CLARABEL") == pytest.approx(solution.value, rel=30.0 * CONIC)
    conic = fo.solve(problem, Conic())
    assert conic.value == pytest.approx(solution.value, rel=CONIC)


def test_other_solvers_refuse() -> None:
    problem = fo.Problem(HARMONIC_PERIODIC, fo.Sources([0.1, 1.0]), 0.3, profile=Savings())
    for solver in (
        SeparableNewton(),
        ClosedForm(),
        LambdaCrawl(),
        MirrorDescent(),
    ):
        assert solver.supports(problem)
    baseline = fo.solve(problem, Uniform())
    assert present(baseline.certificate).relative_gap > 1e-6


def test_tabled_ends_are_no_mixtures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phased_objective, "MANY", 10)
    rng = np.random.default_rng(2)
    sources = fo.Sources(rng.gamma(0.6, 0.1, 3000) + 1e-6, rng.pareto(1.5, 3000) + 1.0)
    for bandwidth in np.linspace(50.0, 900.0, 12):
        problem = fo.Problem(OBJECTIVES["delay"], sources, float(bandwidth), profile=Savings())
        solution = fo.solve(problem)
        assert present(solution.certificate).relative_gap < 1e-12
