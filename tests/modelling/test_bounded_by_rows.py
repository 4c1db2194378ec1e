"""Rates that only rows bound, by curves or by other rates: solved, proved, and not cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.numerics.arrays import Array
from tests.ground_truth.tolerances import SCALAR

CHANGE_RATE = np.array([1.0, 4.0, 2.0])
SOURCES = fo.Sources(CHANGE_RATE)
Rule = Callable[[Any], Any]


class Delay(fo.Objective):
    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance * sources.change_rate, cp.inv_pos(rate))


def under(rule: Rule, sources: fo.Sources = SOURCES) -> fo.Problem:
    return fo.Problem(Delay(), sources, constraints=rule)


# A row Σ g(ρ) ≤ limit: how it is written, g, g' and the limit.
CURVES: dict[str, tuple[Rule, Callable[[Any], Any], Callable[[Any], Any], float]] = {
    "power": (lambda r: cp.sum(cp.power(r, 1.5)) <= 10, lambda r: r**1.5, lambda r: 1.5 * r**0.5, 10.0),
    "energy": (lambda r: cp.sum(cp.exp(r)) <= 20, np.exp, np.exp, 20.0),
    "energy, huge rates": (
        lambda r: cp.sum(cp.exp(1e-9 * r)) <= 20,
        lambda r: np.exp(1e-9 * r),
        lambda r: 1e-9 * np.exp(1e-9 * r),
        20.0,
    ),
    "energy, tiny rates": (
        lambda r: cp.sum(cp.exp(1e9 * r)) <= 20,
        lambda r: np.exp(1e9 * r),
        lambda r: 1e9 * np.exp(1e9 * r),
        20.0,
    ),
    "square": (lambda r: cp.sum(cp.square(r)) <= 10, lambda r: r * r, lambda r: 2 * r, 10.0),
    "beyond a threshold": (
        lambda r: cp.sum(cp.pos(r - 1)) <= 2,
        lambda r: np.maximum(r - 1, 0),
        lambda r: 1.0 * (r > 1),
        2.0,
    ),
}


def best_at(price: Any, slope: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - long double
    """Return where Δ/ρ² = price·g'(ρ), by bisection."""
    low, high = np.full(3, np.longdouble(1e-30)), np.full(3, np.longdouble(1e30))
    for _ in range(75):
        middle = np.sqrt(low * high)
        more = CHANGE_RATE / middle**2 > price * slope(middle)
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return low


@pytest.mark.parametrize("name", CURVES)
def test_rates_that_a_curve_bounds_are_solved_and_proved(name: str) -> None:
    written, curve, slope, limit = CURVES[name]
    found = fo.solve(under(written))
    low, high = np.longdouble(1e-60), np.longdouble(1e60)
    with np.errstate(over="ignore"):
        for _ in range(75):
            price = np.sqrt(low * high)
            over = np.sum(curve(best_at(price, slope))) > limit
            low, high = (price, high) if over else (low, price)
        expected = best_at(high, slope).astype(float)
    assert np.allclose(found.rates, expected, rtol=1e-6, atol=0.0)
    assert found.value == pytest.approx(float(np.sum(CHANGE_RATE / expected)), rel=SCALAR)
    assert found.certificate is not None
    assert found.certificate.confirms(SCALAR)


# Rates that other rates bound, and what they are at the optimum.
COMPARED: dict[str, tuple[Rule, Array | None]] = {
    "bought": (lambda r: [cp.sum(r[:2]) <= r[2], r[2] <= 5], np.array([5 / 3, 10 / 3, 5.0])),
    "bought by energy": (
        lambda r: [cp.sum(r[:2]) <= r[2], cp.square(r[2]) <= 25],
        np.array([5 / 3, 10 / 3, 5.0]),
    ),
    "one after the other": (lambda r: [r[0] <= 2, r[1] <= 3 * r[0], cp.exp(r[2]) <= r[1]], None),
    "a sum of both kinds": (lambda r: [r[0] + cp.exp(r[1]) <= 5, r[2] <= r[0] + r[1]], None),
    "weighted": (lambda r: [2 * r[0] + 3 * r[1] <= 4 * r[2] + 1, r[2] <= 5], None),
}


@pytest.mark.parametrize("name", COMPARED)
def test_rates_that_other_rates_bound_are_solved_and_proved(name: str) -> None:
    rule, expected = COMPARED[name]
    found = fo.solve(under(rule))
    assert found.certificate is not None
    assert found.certificate.confirms(SCALAR)
    capped = fo.solve(under(rule, fo.Sources(CHANGE_RATE, max_rate=1e3)))
    assert found.value == pytest.approx(capped.value, rel=SCALAR)
    if expected is not None:
        assert np.allclose(found.rates, expected, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("name", [*CURVES, *COMPARED])
def test_no_feasible_rate_is_beyond_the_bounds(name: str) -> None:
    """Bounds are no rows: one that cuts rates off would be a wrong answer."""
    rule = CURVES[name][0] if name in CURVES else COMPARED[name][0]
    problem = under(rule)
    program = problem.program
    assert program is not None
    assert bool(np.all(np.isfinite(program.upper)))
    rng, bounded = np.random.default_rng(3), np.flatnonzero(np.isinf(problem.upper))
    for _ in range(1000):
        beyond = program.upper * rng.uniform(0.0, 1.0, 3) ** 2
        k = rng.choice(bounded)
        beyond[k] = 1.000001 * program.upper[k]
        with np.errstate(all="ignore"):
            over = program.rows.used(beyond) > program.rows.limits
        assert bool(np.any(over))


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (lambda r: cp.sum(r[:2]) <= r[2], "source 0, source 1, source 2"),
        (lambda r: r[0] <= 5, "source 1, source 2"),
        (lambda r: [cp.exp(r[0]) <= r[1], r[2] <= 1], "source 0, source 1"),
        (lambda r: cp.sum(cp.exp(-r)) <= 1, "source 0, source 1, source 2"),
        (lambda r: [cp.exp(r[0]) + r[1] <= r[2], cp.inv_pos(r[2]) <= 5], "source 0, source 1, source 2"),
    ],
)
def test_what_nothing_bounds_is_still_refused(rule: Rule, named: str) -> None:
    with pytest.raises(
        fo.SourceDataError, match=f"no constraint bounds the rate of {named}, and more always"
    ):
        under(rule)


def test_rows_that_exclude_all_rates_are_told_as_such() -> None:
    with pytest.raises(fo.InfeasibleProblemError, match="bounds on the rates exclude"):
        under(lambda r: cp.sum(cp.exp(r)) <= 2)
    opposed = fo.solve(under(lambda r: [cp.sum(cp.exp(r)) <= 20, cp.sum(r) >= 50]), throw=False)
    assert opposed.status is fo.Status.INFEASIBLE


def test_tied_sources_are_bounded_together() -> None:
    tied = fo.Problem(Delay(), SOURCES, constraints=[fo.Tied([0, 0, 1]), lambda r: cp.sum(cp.exp(r)) <= 20])
    found = fo.solve(tied)
    assert found.rates[0] == found.rates[1]
    assert float(np.sum(np.exp(found.rates))) == pytest.approx(20.0, rel=SCALAR)


def test_constraints_without_rows_are_left_to_a_cone_solver() -> None:
    """A norm couples sources: nothing is proved, and nothing says that rates have no bound."""
    found = fo.solve(under(lambda r: cp.norm(r) <= np.sqrt(10.0)), throw=False)
    expected = fo.solve(under(CURVES["square"][0])).rates
    assert np.allclose(found.rates, expected, rtol=1e-3, atol=0.0)
