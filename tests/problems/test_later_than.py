"""Ages of each source's own in `LaterThan`: closed forms, and the scalar's numbers."""

import re
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import LaterThan
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT

N = 30
RNG = np.random.default_rng(38)
AGES, WEIGHTS = 10.0 ** RNG.uniform(-3.0, 3.0, N), RNG.lognormal(0.0, 1.0, N)
SOURCES = fo.Sources(np.ones(N), WEIGHTS)
POISSON, PERIODIC = fo.Refresh.POISSON, fo.Refresh.PERIODIC


def test_poisson_rates_are_those_of_search_theory() -> None:
    # Koopman's solution of Σ w·e^{−dρ}: log(w·d/λ)/d where that is > 0.
    solution = fo.solve(fo.Problem(LaterThan(AGES, POISSON), SOURCES, 20.0), tolerance=1e-12)
    rates = np.maximum(0.0, np.log(WEIGHTS * AGES / solution.price) / AGES)
    assert 0 < np.count_nonzero(rates) < N
    assert np.sum(rates) == pytest.approx(20.0, rel=EXACT)
    assert solution.rates == pytest.approx(rates, rel=1e-11, abs=1e-13)
    assert solution.value == pytest.approx(WEIGHTS @ np.exp(-AGES * rates), rel=EXACT)


def test_periodic_rates_are_those_of_the_knapsack() -> None:
    # max(0, 1 − dρ): the w·d largest are served whole, at 1/d, until the bandwidth is used up.
    solution = fo.solve(fo.Problem(LaterThan(AGES, PERIODIC), SOURCES, 20.0), tolerance=1e-12)
    left, cost = 20.0, float(np.sum(WEIGHTS))
    for k in np.argsort(-WEIGHTS * AGES):
        rate = min(left, 1.0 / AGES[k])
        left, cost = left - rate, cost - WEIGHTS[k] * AGES[k] * rate
    assert solution.value == pytest.approx(cost, rel=EXACT)


@pytest.mark.parametrize("refresh", [POISSON, PERIODIC])
@pytest.mark.parametrize("success", [None, 0.7])
def test_equal_ages_are_one_age(refresh: fo.Refresh, success: float | None) -> None:
    sources = fo.Sources(np.ones(N), WEIGHTS, success=success)
    one, each = (fo.Problem(LaterThan(age, refresh), sources, 20.0) for age in (2.0, np.full(N, 2.0)))
    assert fo.solve(each).value == pytest.approx(fo.solve(one).value, rel=EXACT)


@pytest.mark.parametrize("refresh", [POISSON, PERIODIC])
def test_parts_of_the_sources_have_their_own_ages(refresh: fo.Refresh) -> None:
    objective = LaterThan(AGES, refresh)
    found = fo.solve_many(objective, SOURCES, offsets=[0, 10, N], bandwidths=[3.0, 4.0])
    for k, own in enumerate((slice(0, 10), slice(10, N))):
        alone = fo.solve(
            fo.Problem(LaterThan(AGES[own], refresh), SOURCES.take(own), (3.0, 4.0)[k]), tolerance=1e-12
        )
        assert found[k].value == pytest.approx(alone.value, rel=EXACT)
    target = fo.Target(objective, at_most=0.01, by=np.arange(N))
    least = fo.solve(fo.Problem(fo.Spend(), SOURCES, constraints=[target]))
    rates = (np.log(100.0) if refresh is POISSON else 0.99) / AGES
    assert least.rates == pytest.approx(rates, rel=1e-9)


@pytest.mark.parametrize(
    ("age", "words"),
    [
        ([1.0, -2.0], "age of LaterThan of source 1 is -2. Pass a number > 0"),
        ([[1.0]], "Pass a number > 0"),
        (0.0, "age of LaterThan is 0. Pass a number > 0"),
        (True, "age of LaterThan is True. Pass a number > 0"),
    ],
)
def test_ages_that_are_none(age: Any, words: str) -> None:  # noqa: ANN401
    refused(re.escape(words), lambda: LaterThan(age), error=fo.ObjectiveError)


def test_as_many_ages_as_sources_and_a_short_repr() -> None:
    refused(r"age of LaterThan has shape \(2,\)", lambda: fo.Problem(LaterThan([1.0, 2.0]), SOURCES, 1.0))
    assert repr(LaterThan(AGES)) == "LaterThan(age=<30 values>, refresh=Refresh.PERIODIC)"
