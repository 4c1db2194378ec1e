"""Tangents checked by values: wrong slopes are found, right ones never, however ill-scaled the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.autodiff.compiler import compile_expression
from freshopt.cvx import cp
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.numerics.arrays import Array
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.tangents import FEW, Contradiction, checkable, contradiction
from tests.autodiff import test_compiler
from tests.compiled import test_extreme_arguments
from tests.contracts.discovery import objectives

OBJECTIVES = objectives()


def looked_at(
    numerics: Numerics, rates: Array, upper: Array | float = np.inf, wrong: Array | float = 1.0
) -> Contradiction | None:
    """Return what is found at rates, their marginals multiplied by `wrong`."""
    n = len(rates)
    with np.errstate(all="ignore"):
        cost, marginal = numerics.cost(rates), wrong * numerics.marginal(rates)
    bounds = np.zeros(n), np.broadcast_to(upper, n)
    return contradiction(numerics, rates, cost, np.asarray(marginal), *bounds, np.ones(n))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_kernels_hold_at_any_scale(name: str) -> None:
    """Δ over 16 decades, importance over 24, rates up to 10^±12 times Δ."""
    rng, n = np.random.default_rng(5), 2000
    change_rate, importance = 10.0 ** rng.uniform(-8, 8, n), 10.0 ** rng.uniform(-12, 12, n)
    asked = change_rate * 10.0 ** rng.uniform(-3, 3, n)
    on_request = OBJECTIVES[name].refresh is fo.Refresh.ON_REQUEST
    try:
        sources = fo.Sources(change_rate, importance, request_rate=asked if on_request else None)
        numerics, _ = numerics_of(OBJECTIVES[name], sources)
    except fo.SourceDataError:
        assert "2 values" in name  # the settings of two sources
        return
    assert numerics is not None
    if not checkable(numerics):
        return
    upper = asked if on_request else np.full(n, np.inf)
    for spread in (1, 6, 12):
        rates = np.minimum(change_rate * 10.0 ** rng.uniform(-spread, spread, n), upper)
        assert looked_at(numerics, rates, upper) is None


@pytest.mark.parametrize("cases", [test_extreme_arguments, test_compiler])
def test_declared_expressions_hold_at_any_scale(cases: Any) -> None:  # noqa: ANN401 - a module
    """Values cancel as they are written: log(1 + 1e-30), squares of differences, an exponent of 700."""
    n = len(cases.D)
    for written, _ in cases.EXPRESSIONS.values():
        rate = cp.Variable(n, nonneg=True)
        expression = written(rate)
        if not expression.is_dcp():
            continue
        sign = 1.0 if expression.is_convex() else -1.0
        numerics = DerivedNumerics(compile_expression(expression, rate), sign, np.ones(n))
        for seed in range(10):
            rng = np.random.default_rng(seed)
            near = 10.0 ** rng.uniform(-30, 30, n) if seed % 2 else cases.RATES * rng.uniform(0.5, 2.0, n)
            assert looked_at(numerics, near) is None, expression


@pytest.mark.parametrize("wrong", [0.0, -1.0, 0.99, 1.01, 100.0])
@pytest.mark.parametrize("n", [1, 2, FEW + 100])
def test_one_wrong_slope_among_many_is_found(n: int, wrong: float) -> None:
    """Up or down, of few sources: both sides are looked at. Of many, a share of them is wrong."""
    change_rate = np.full(n, 2.0)
    rate = cp.Variable(n, nonneg=True)
    declared = cp.multiply(change_rate, cp.inv_pos(rate)) + rate
    derived = DerivedNumerics(compile_expression(declared, rate), 1.0, np.ones(n))
    written = Kernel(
        np.ones(n), (change_rate,), lambda r, d: d / r, lambda r, d: d / r**2, lambda p, d: np.sqrt(d / p)
    )
    factor = np.ones(n)
    factor[-30:] = wrong
    for numerics in (derived, written):
        for rates in (np.ones(n), np.full(n, 1e-6), np.linspace(0.3, 1.1, n)):
            assert looked_at(numerics, rates) is None
            found = looked_at(numerics, rates, wrong=factor)
            assert found is not None
            assert found.source >= n - 30
            assert found.cost < found.least


def test_a_source_at_its_bound_is_looked_at_inside() -> None:
    class Sharp(fo.Objective):
        """Defined up to the rate 1 only."""

        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return -cp.multiply(sources.importance, cp.sqrt(1.0 - rate))

    numerics, _ = numerics_of(Sharp(), fo.Sources([1.0, 1.0, 1.0], max_rate=1.0))
    assert numerics is not None
    assert looked_at(numerics, np.array([1.0, 0.0, 0.999999]), 1.0) is None
    one = numerics.take(slice(0, 1))
    # Costs below the rate show a slope that is too low; what only rates beyond the bound show is no harm.
    assert looked_at(one, np.array([0.5]), 0.5, wrong=0.5) is not None
    assert looked_at(one, np.array([0.5]), 0.5, wrong=2.0) is None


def test_a_cost_that_is_not_convex_is_found() -> None:
    """No slope is wrong here: the cost is 1 − ρ², and its tangents lie above it."""
    concave = Kernel(np.ones(1), (np.ones(1),), lambda r, _: 1 - r**2, lambda r, _: 2 * r, lambda p, _: p / 2)
    found = looked_at(concave, np.array([0.5]))
    assert found is not None
    assert "not convex" in found.sentence("a")


@pytest.mark.parametrize("kind", ["Age", "AccumulatedDelay", "HarmonicStaleness", "BinaryFreshness"])
def test_costs_that_are_small_differences_are_no_contradiction(kind: str) -> None:
    """Announced changes nearly all of which are followed: 1/p − 1, over Δ from 1e-6 to 1e4."""
    rate, off = map(np.ravel, np.meshgrid(10.0 ** np.arange(-6.0, 5.0), 10.0 ** np.arange(-15.0, -2.0)))
    for weight in (1e-6, 1.0, 1e6):
        sources = fo.Sources(rate, weight, signalled=True)
        problem = fo.Problem(getattr(fo.problems, kind)(), sources, 2.0 * float(rate.sum()))
        with np.errstate(all="raise"):
            assert np.isfinite(fo.certify(problem, rate * (1.0 - off)).gap)
