"""Tangent bounds, and the least price in any order."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshopt as fo
from freshopt.cvx import cp
from freshopt.dual_search.batch_water_filling import SMALL
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import IntArray, total
from freshopt.solvers import SeparableNewton, WaterFilling
from tests.ground_truth.named import BINARY, present, written
from tests.ground_truth.partitioned import frame_of, write
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import matrix, stratified
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.solvers.test_separable_newton import Array, of_columns, require_used_up


def by_bisection(
    inverse: Callable[[float], Array], cost: Array, bandwidth: float, top: float
) -> tuple[Array, float]:
    """Return rates that use up the bandwidth and the price, demand given by hand; jumps are mixed."""
    low, high = 0.0, top
    if float(np.sum(cost * inverse(0.0))) <= bandwidth:
        return inverse(0.0), 0.0
    for _ in range(200):
        price = 0.5 * (low + high)
        low, high = (price, high) if float(np.sum(cost * inverse(price))) > bandwidth else (low, price)
    generous, frugal = inverse(low), inverse(high)
    above, below = float(np.sum(cost * generous)), float(np.sum(cost * frugal))
    share = (bandwidth - below) / (above - below) if above > below else 0.0
    return frugal + share * (generous - frugal), high


# Kinked and linear costs: declared, by NumPy, and the smallest rate with marginal ≤ price by hand.
KINKED: dict[
    str,
    tuple[
        Callable[[Any, Array, Array], Any],
        Callable[[Array, Array, Array], Array],
        Callable[[float, Array, Array], Array],
    ],
] = {
    "distance": (
        lambda r, d, w: cp.multiply(w, cp.abs(r - d)),
        lambda r, d, w: w * np.abs(r - d),
        lambda p, d, w: np.where(p >= w, 0.0, d),
    ),
    "three lines": (
        lambda r, d, w: cp.multiply(w, cp.maximum(3 - 4 * r / d, 2 - 1.5 * r / d, 1 - 0.25 * r / d, 0)),
        lambda r, d, w: w * np.maximum.reduce([3 - 4 * r / d, 2 - 1.5 * r / d, 1 - 0.25 * r / d, 0 * r]),
        lambda p, d, w: (
            d * np.select([p * d >= 4 * w, p * d >= 1.5 * w, p * d >= 0.25 * w], [0, 0.4, 0.8], 4.0)
        ),
    ),
    "squared shortfall": (
        lambda r, d, w: cp.multiply(w, cp.square(cp.pos(d - r))),
        lambda r, d, w: w * np.maximum(d - r, 0.0) ** 2,
        lambda p, d, w: np.maximum(d - p / (2.0 * w), 0.0),
    ),
    "delay with a line above": (  # 3 − 2r is above 1/r for 1/2 < r < 1
        lambda r, _, w: cp.multiply(w, cp.maximum(cp.inv_pos(r), 3.0 - 2.0 * r)),
        lambda r, _, w: w * np.maximum(1.0 / r, 3.0 - 2.0 * r),
        lambda p, _, w: np.select(
            [p >= 4.0 * w, p >= 2.0 * w, p >= w],
            [np.sqrt(w / np.maximum(p, 1e-300)), np.full(len(w), 0.5), np.full(len(w), 1.0)],
            np.sqrt(w / np.maximum(p, 1e-300)),
        ),
    ),
}


@pytest.mark.exhaustive
@matrix(bounded=[False, True], name=KINKED)
def test_kinks_and_linear_pieces(name: str, bounded: bool) -> None:
    declared, value, inverse = KINKED[name]
    rng = np.random.default_rng(7)
    n = 60
    d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    cost = rng.uniform(0.3, 3.0, n) if bounded else np.ones(n)
    upper = rng.uniform(0.5, 2.0, n) if bounded else np.full(n, 100.0)
    for budget in (0.05, 0.3, 1.0):
        problem = fo.Problem(
            of_columns(declared),
            fo.Sources(d, w, refresh_cost=cost, max_rate=upper),
            budget * float(np.sum(cost * d)),
        )
        solution = fo.solve(problem, SeparableNewton(), tolerance=SCALAR)
        require_used_up(problem, solution)
        best, _ = by_bisection(
            lambda p: np.minimum(_each(inverse, p * cost, d, w), upper), cost, problem.bandwidth, 1e9
        )
        expected = float(np.sum(value(np.maximum(best, 1e-300), d, w)))
        assert (
            abs(solution.value - expected)
            <= SCALAR * (expected + solution.price * problem.bandwidth) + 1e-12 * w.sum()
        )
        assert solution.iterations <= 80


def _each(inverse: Callable[..., Array], prices: Array, d: Array, w: Array) -> Array:
    return np.array([inverse(float(p), d[k : k + 1], w[k : k + 1])[0] for k, p in enumerate(prices)])


Knapsack = written("Knapsack", lambda rate, sources: cp.multiply(sources.importance, rate), sense="maximise")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
    st.floats(0.1, 1.5),
)
def test_linear_objectives_are_knapsacks_with_ties(worth: list[int], share: float) -> None:
    """Greedy by worth is optimal; ties share a price, and the last one is fractional."""
    w, upper = np.array(worth, dtype=float), np.arange(1.0, len(worth) + 1.0)
    budget = share * float(np.sum(upper))
    problem = fo.Problem(Knapsack(), fo.Sources(np.ones(len(w)), w, max_rate=upper), budget)
    solution = fo.solve(problem, SeparableNewton(), tolerance=SCALAR)
    left, best = budget, 0.0
    for k in np.argsort(-w):
        best, left = best + w[k] * min(upper[k], left), left - min(upper[k], left)
    assert abs(solution.value - best) <= SCALAR * best


# The share of changes that refreshes could keep up with: linear, then flat.
Reached = written(
    "Reached",
    lambda rate, sources: cp.multiply(
        sources.importance, cp.minimum(cp.multiply(1.0 / sources.change_rate, rate), 1.0)
    ),
    sense="maximise",
)


# Delay that counts only above one half.
Floored = written(
    "Floored", lambda rate, sources: cp.maximum(cp.multiply(sources.change_rate, cp.inv_pos(rate)), 0.5)
)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(40))
def test_linear_gains_are_spent_where_they_are_largest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, w = 10 ** rng.uniform(-1, 1, 5), rng.uniform(0.1, 5, 5)
    upper = d * rng.uniform(0.5, 3, 5)
    problem = fo.Problem(Reached(), fo.Sources(d, w, max_rate=upper), float(rng.uniform(0.1, 1) * d.sum()))
    # The greedy rule: gains per refresh in falling order, up to where more gains nothing.
    best, left = 0.0, problem.bandwidth
    for k in np.argsort(-w / d):
        rate = min(left, d[k], upper[k])
        best, left = best + w[k] * rate / d[k], left - rate
    solution = fo.solve(problem, SeparableNewton())
    assert solution.value == pytest.approx(best, rel=1e-9)


def test_a_price_of_nothing_is_believed_only_if_all_fits() -> None:
    problem = fo.Problem(Floored(), fo.Sources([1.0, 1.0], max_rate=[3.0, 0.5]), 3.499)
    solution = fo.solve(problem)  # 2 and 0.5 are enough for all that counts
    assert solution.value == pytest.approx(0.5 + 2.0, rel=1e-9)


FOURS = SMALL // 4 + 300  # sources come in fours, so many that loops are compiled
TOP = 0.1  # no binary fraction: what equal rates add up to depends on how they are added


class Flat(NamedTuple):
    """A market with demand that is flat in the price, in units of `FOURS`.

    All sources have change rate 1 and max_rate `TOP`. Of importance w, a source buys max_rate up to the price
    w/1.1², half of it at w/1.05², and nothing from the price w on.
    """

    importance: tuple[float, ...]
    bandwidth: float
    price: float
    hosts: tuple[int, ...] = (0, 0, 0, 0)
    limits: tuple[tuple[int, float], ...] = ()
    host_prices: tuple[float, ...] = ()


CASES = {
    # Demand is 2·TOP from 1 to 4/1.1².
    "interval": Flat((4, 4, 1, 1), 2 * TOP, 1.0),
    "interval beside a host": Flat(
        (4, 4, 1, 1), 1.5 * TOP, 1.0, (0, 1, 1, 1), ((0, 0.5 * TOP),), (4 / 1.05**2 - 1,)
    ),
    "everyone at max_rate": Flat((4, 3, 2, 1), 4 * TOP, 0.0),
    "a host and all others": Flat((4, 4, 1, 1), 3 * TOP, 0.0, (0, 0, 1, 1), ((0, TOP),), (4 / 1.05**2,)),
    "all hosts": Flat(
        (4, 4, 1, 1), 2 * TOP, 0.0, (0, 0, 1, 1), ((0, TOP), (1, TOP)), (4 / 1.05**2, 1 / 1.05**2)
    ),
    "a host at max_rate": Flat((4, 4, 1, 1), 8 * TOP, 0.0, (0, 0, 1, 1), ((0, 2 * TOP),), (0.0,)),
    "a host's interval": Flat((4, 4, 1, 1), 8 * TOP, 0.0, (0, 1, 0, 1), ((0, TOP),), (1.0,)),
    "both intervals": Flat((4, 4, 2, 1), 2 * TOP, 1.0, (0, 1, 0, 1), ((0, TOP),), (1.0,)),
}
ORDERS = ("in turn", "by kind", "shuffled", "shuffled again")


def order_of(name: str, n: int) -> IntArray:
    if name == "in turn":
        return np.arange(n)
    if name == "by kind":
        return np.argsort(np.arange(n) % 4, kind="stable")
    return np.random.default_rng(len(name)).permutation(n)


def market(case: Flat, order: str, fours: int = FOURS) -> fo.Problem:
    index = order_of(order, 4 * fours) % 4
    sources = fo.Sources(
        np.ones(4 * fours),
        np.array(case.importance, dtype=float)[index],
        max_rate=np.full(4 * fours, TOP),
        host=np.array(case.hosts)[index],
    )
    limits = {host: limit * fours for host, limit in case.limits}
    return fo.Problem(BINARY, sources, case.bandwidth * fours, limits)


def require_least(case: Flat, solution: fo.Solution) -> None:
    assert solution.price == pytest.approx(case.price, rel=EXACT, abs=EXACT)
    assert [*solution.host_prices.values()] == pytest.approx(case.host_prices, rel=EXACT, abs=EXACT)
    assert present(solution.certificate).relative_gap <= EXACT
    assert present(solution.certificate).infeasibility == 0.0
    assert total(solution.rates) <= solution.problem.bandwidth * (1.0 + FEW_ULP)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "compiled", "order"), stratified(CASES, ["0", "1"], ORDERS, every=3))
def test_the_least_price_in_any_order(
    monkeypatch: pytest.MonkeyPatch, name: str, compiled: str, order: str
) -> None:
    compile_all(monkeypatch)
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    case = CASES[name]
    for fours in (1, 25, FOURS):
        task = market(case, order, fours)
        solution = fo.solve(task, WaterFilling())
        require_least(case, solution)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "order"), stratified(CASES, ORDERS, every=3))
def test_the_least_price_by_newton_steps(name: str, order: str) -> None:
    case = CASES[name]
    for fours in (1, 25, 2500):
        task = market(case, order, fours)
        for start in (None, 0.3, 2.9):
            solution = fo.solve(task, SeparableNewton(), warm_start=start)
            require_least(case, solution)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_starting_elsewhere_among_the_prices_ends_at_the_least(name: str) -> None:
    case = CASES[name]
    task = market(case, "shuffled")
    for start in (0.3, 1.7, 2.9, 40.0):
        assert fo.solve(task, warm_start=start).price == pytest.approx(case.price, rel=EXACT, abs=EXACT)


@matrix(order=["in turn", "shuffled"], name=CASES, every=4)
def test_the_least_price_over_partitions(tmp_path: Path, name: str, order: str) -> None:
    case = CASES[name]
    task = market(case, order, 250)
    files = write(tmp_path, frame_of(task), 3)
    found = fo.distributed.solve(task.objective, files, task.bandwidth, task.host_limits or None)
    assert found.price == pytest.approx(case.price, rel=EXACT, abs=EXACT)
    prices = [found.host_prices[host] for host in task.hosts.names]
    assert prices == pytest.approx(case.host_prices, rel=EXACT, abs=EXACT)
    assert found.relative_gap <= EXACT
    assert found.infeasibility == 0.0
