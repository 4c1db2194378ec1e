"""Frontiers along any limit: values, prices as slopes, infeasible rows with their reasons."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.tolerances import CONIC

RNG = np.random.default_rng(3)
N = 12
SOURCES = fo.Sources(RNG.lognormal(size=N), RNG.lognormal(size=N))
SIZE = RNG.lognormal(size=N)
LIMITED = fo.Problem(HarmonicStaleness(), SOURCES, 8.0, constraints=[fo.Budget(6.0, cost=SIZE, name="bytes")])


def test_the_frontier_of_a_budget_is_cvxpys() -> None:
    limits = [1.0, 3.0, 9.0, 100.0]
    found = fo.frontier(LIMITED, limits, constraint="bytes")
    rate, limit = cp.Variable(N, nonneg=True), cp.Parameter()
    w, d = np.array(SOURCES.importance), np.array(SOURCES.change_rate)
    # log(1 + d/ρ) in cones: the logistic function of log d − log ρ.
    value = cp.sum(cp.multiply(w, cp.logistic(np.log(d) - cp.log(rate))))
    bytes_used = SIZE @ rate <= limit
    truth = cp.Problem(cp.Minimize(value), [cp.sum(rate) <= 8.0, bytes_used])
    for k, each in enumerate(limits):
        limit.value = each
        truth.solve(solver="CLARABEL")
        solution, price = found.solutions[k], found.prices[k]
        assert solution is not None
        assert price is not None
        assert solution.value == pytest.approx(truth.value, rel=CONIC)
        assert price == pytest.approx(float(bytes_used.dual_value), rel=1e3 * CONIC, abs=1e-5)
    assert found.prices[-1] == 0.0
    table = found.to_frame()
    assert table.columns == ["limit", "status", "value", "price", "relative_gap", "fresh", "cost"]
    rates = [solution.rates for solution in found.solutions if solution is not None]
    # Poisson refreshes: a copy is fresh ρ/(Δ + ρ) of the time.
    fresh = [float(w @ (rate / (rate + d)) / w.sum()) for rate in rates]
    assert table["fresh"].to_list() == pytest.approx(fresh, rel=1e-12)
    assert table["cost"].to_list() == pytest.approx([float(rate.sum()) for rate in rates], rel=1e-12)
    assert table["price"].to_list() == list(found.prices)
    assert repr(found) == "Frontier(4 limits of 'bytes', 1..100)"


def test_the_price_is_the_slope_along_every_kind_of_limit() -> None:
    group = np.where(np.arange(N) % 2 == 0, "even", "odd")
    fresh = fo.Target(BinaryFreshness(), at_least={"even": 0.3, "odd": 0.2}, by=group, name="fresh")
    tree = fo.Nested([group], at_most={"even": 2.0}, at_least={"odd": 1.0})
    for constraint, label, at in ((fresh, "fresh[even]", 0.45), (tree, "nested[even]", 2.0)):
        problem = fo.Problem(AccumulatedDelay(), SOURCES, 8.0, constraints=[constraint])
        h = 1e-4 * at
        points = fo.frontier(problem, [at - h, at, at + h], constraint=label)
        low, middle, high = (each.value for each in points.solutions if each is not None)
        assert points.prices[1] is not None
        assert points.prices[1] > 1e-3
        assert abs(high - low) / (2.0 * h) == pytest.approx(points.prices[1], rel=1e-3)
        assert low != middle != high


def test_one_number_for_several_groups_has_the_sum_of_their_prices() -> None:
    group = np.where(np.arange(N) % 2 == 0, "even", "odd")
    each = fo.Budget(1.0, by=group, cost=SIZE, name="half")
    problem = fo.Problem(AccumulatedDelay(), SOURCES, 8.0, constraints=[each])
    points = fo.frontier(problem, [0.9999, 1.0, 1.0001], constraint="half")
    low, _, high = (solution.value for solution in points.solutions if solution is not None)
    assert points.prices[1] == pytest.approx((low - high) / 2e-4, rel=1e-5)


def test_infeasible_limits_stay_with_the_conflict() -> None:
    fresh = fo.Target(BinaryFreshness(), at_least=0.3, name="fresh")
    problem = fo.Problem(AccumulatedDelay(), SOURCES, 2.0, constraints=[fresh])
    found = fo.frontier(problem, [0.1, 0.95, 0.2], constraint="fresh")
    assert [solution is None for solution in found.solutions] == [False, True, False]
    assert "fresh" in found.reasons[1]
    assert "bandwidth" in found.reasons[1]
    assert found.to_frame()["status"].to_list() == ["optimal", "infeasible", "optimal"]
    assert found.to_frame()["price"].null_count() == 1


def test_later_points_start_from_earlier_prices() -> None:
    limits = np.linspace(3.0, 3.3, 6).tolist()
    cold = [fo.solve(LIMITED.with_limit("bytes", limit)).iterations for limit in limits]
    warm = [each.iterations for each in fo.frontier(LIMITED, limits, constraint="bytes").solutions if each]
    assert sum(warm[1:]) < sum(cold[1:])


@pytest.mark.parametrize(
    ("limits", "constraint", "words"),
    [([], None, "no limits"), ("12", "bytes", "not a list"), ([1.0], "other", "no constraint is labelled")],
)
def test_what_is_no_frontier_is_refused(limits: list[float], constraint: str | None, words: str) -> None:
    with pytest.raises(fo.SourceDataError, match=words):
        fo.frontier(LIMITED, limits, constraint=constraint)
