"""Certificates of slopes that are not the cost's: refused by the values, on every road."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.autodiff.kinked_atoms import RIGHT
from freshopt.cvx import cp
from freshopt.separable.derived_kernel import CostJet, DerivedNumerics
from freshopt.solvers import WaterFilling
from tests.ground_truth.named import HARMONIC, written
from tests.ground_truth.tolerances import EXACT


class Churn(fo.Objective):
    """Delay, and a penalty for leaving today's plan, in which two sources are new."""

    def __init__(self, today: Any) -> None:  # noqa: ANN401
        self.today = np.asarray(today)

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.change_rate, cp.inv_pos(rate)) + cp.kl_div(rate, self.today)


def cancelled(self: DerivedNumerics, rate: Any, order: int = 2, side: int = RIGHT) -> CostJet:  # noqa: ANN401
    """Return jets whose slopes have lost what is 1e-16 of the largest ratio of rate and reference."""
    value, slope, curvature = self._evaluate(rate, order, side)
    return CostJet(value, -np.where(rate > 1e-3, 0.0, slope), curvature)


def test_relative_entropy_far_from_its_reference_is_solved_and_proved() -> None:
    """The optimum in 80 bits: −Δ/ρ² + log(ρ/q) + λ = 0."""
    change_rate = np.array([1.0, 4.0, 2.0])
    for floor in (1e-3, 1e-12, 1e-16, 1e-20, 1e-60, 1e-300):
        today = np.array([1.0, floor, floor])
        problem = fo.Problem(Churn(today), fo.Sources(change_rate), bandwidth=1e3)
        d, q = change_rate.astype(np.longdouble), today.astype(np.longdouble)
        low, high = np.full(3, np.longdouble(1e-30)), np.full(3, np.longdouble(1e30))
        for _ in range(400):
            middle = np.sqrt(low * high)
            falling = -d / middle**2 + np.log(middle / q) < 0.0
            low, high = np.where(falling, middle, low), np.where(falling, high, middle)
        found = fo.solve(problem, WaterFilling())
        assert np.allclose(found.rates, low.astype(float), rtol=EXACT, atol=0.0)
        least = float(np.sum(d / low + low * np.log(low / q) - low + q))
        assert found.value == pytest.approx(least, rel=EXACT)
        off = fo.certify(problem, 1.01 * found.rates)
        assert off.bound <= least * (1.0 + EXACT)


@pytest.mark.parametrize("rates", [[0.5], [1e-18]])
def test_rates_far_above_a_reference_are_not_optimal(rates: list[float]) -> None:
    Projection = written("Projection", lambda rate, _sources: cp.kl_div(rate, 1e-20))

    found = fo.certify(fo.Problem(Projection(), fo.Sources([1.0]), bandwidth=1.0), rates)
    assert not found.confirms(1e-9)


SOURCES = fo.Sources([1.0, 4.0, 2.0])
ROWS: dict[str, Callable[[], fo.Problem]] = {
    "bandwidth": lambda: fo.Problem(Churn([1, 1e-20, 1e-20]), SOURCES, bandwidth=2.0),
    "hosts": lambda: fo.Problem(
        Churn([1, 1e-20, 1e-20]), fo.Sources([1.0, 4.0, 2.0], host=["a", "a", "b"]), 2.0, {"a": 1.5}
    ),
    "two budgets": lambda: fo.Problem(
        Churn([1, 1e-20, 1e-20]),
        SOURCES,
        bandwidth=2.0,
        constraints=[fo.Budget(5.0, cost=np.array([1.0, 2.0, 3.0]), name="bytes")],
    ),
    "a target": lambda: fo.Problem(
        HARMONIC, SOURCES, bandwidth=9.0, constraints=[fo.Target(Churn([1, 1e-20, 1e-20]), at_most=99.0)]
    ),
    "tied": lambda: fo.Problem(
        Churn([1, 1e-20, 1e-20]), SOURCES, bandwidth=2.0, constraints=[fo.Tied(np.array([0, 1, 1]))]
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_every_road_refuses_slopes_that_cancelled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ROWS[name]()
    solved = fo.solve(problem)
    rates = solved.rates
    prices = (solved.price, solved.host_prices) if problem.program is None else ()
    assert fo.certify(problem, rates, *prices).reason == ""
    monkeypatch.setattr(DerivedNumerics, "jet", cancelled)
    for given in (rates, 0.7 * rates):
        found = fo.certify(problem, given, *prices)
        assert not found.confirms(1e-3)
        assert found.gap == np.inf
        assert "below its tangent" in found.reason


@pytest.mark.parametrize("compiled", ["0", "1"])
def test_a_named_kernel_is_held_against_its_values_too(
    compiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many sources a compiled pass proves the gap, and a sample the slopes."""
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    rng = np.random.default_rng(1)
    problem = fo.Problem(HARMONIC, fo.Sources(rng.lognormal(0.0, 2.0, 100_000)), bandwidth=2e4)
    found = fo.solve(problem)
    assert fo.certify(problem, found.rates, found.price).confirms(1e-9)
    kernel: Any = problem.numerics
    wrong = dataclasses.replace(kernel, unit_marginal=lambda r, d: 0.9 * kernel.unit_marginal(r, d))
    object.__setattr__(problem, "numerics", wrong)
    refused = fo.certify(problem, found.rates, found.price)
    assert refused.gap == np.inf
    assert "below its tangent" in refused.reason
