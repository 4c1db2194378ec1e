"""SeparableNewton where Newton's lines do not lead: kinks, linear pieces and satiation, by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.solvers import SeparableNewton
from tests.ground_truth.tolerances import SCALAR
from tests.solvers.test_separable_newton import Array, Declared, require_used_up


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
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("name", KINKED)
def test_kinks_and_linear_pieces(name: str, bounded: bool) -> None:
    declared, value, inverse = KINKED[name]
    rng = np.random.default_rng(7)
    n = 60
    d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    cost = rng.uniform(0.3, 3.0, n) if bounded else np.ones(n)
    upper = rng.uniform(0.5, 2.0, n) if bounded else np.full(n, 100.0)
    for budget in (0.05, 0.3, 1.0):
        problem = fo.Problem(
            Declared(declared),
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


class Knapsack(fo.Objective):
    sense: ClassVar[Literal["minimise", "maximise"]] = "maximise"

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance, rate)


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


class Reached(fo.Objective):
    """The share of changes that refreshes could keep up with: linear, then flat."""

    sense = "maximise"

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance, cp.minimum(cp.multiply(1.0 / sources.change_rate, rate), 1.0))


class Floored(fo.Objective):
    """Delay that counts only above one half."""

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.maximum(cp.multiply(sources.change_rate, cp.inv_pos(rate)), 0.5)


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
