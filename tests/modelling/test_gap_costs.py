"""Costs of gaps and attempts, derived from costs of rates: against costs of age that are known."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.modelling.objective_numerics import gap_costs
from freshopt.problems import AccumulatedDelay, LaterThan, PowerCost, SynchronizationCost
from freshopt.scheduling.expected_cost import expected_value
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import EXACT, SCALAR

PERIODIC = fo.Refresh.PERIODIC


@dataclass(frozen=True)
class Own(fo.Objective):
    """Importance times what a function declares of rates and change rates."""

    declared: Callable[[Expression, fo.Sources], Expression]
    refresh = PERIODIC

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance, self.declared(rate, sources))


def delay(rate: Expression, sources: fo.Sources) -> Expression:
    return cp.multiply(0.5 * sources.change_rate, cp.inv_pos(rate))


def power(rate: Expression, _: fo.Sources, exponent: float) -> Expression:
    return cp.power(rate, -exponent) / (1.0 + exponent)


def deadline(rate: Expression, _: fo.Sources, age: float) -> Expression:
    return cp.maximum(1.0 - age * rate, 0.0)


def logarithm(rate: Expression, _: fo.Sources) -> Expression:
    return -cp.log(rate)


def bill(rate: Expression, sources: fo.Sources, price: float) -> Expression:
    return delay(rate, sources) + price * rate


# What is declared, its cost of age, and what a refresh costs itself.
KNOWN: dict[str, tuple[Callable[..., Expression], Callable[..., Any], float]] = {
    "delay": (delay, lambda s, d: d * s, 0.0),
    "power": (partial(power, exponent=0.3), lambda s, _: s**0.3, 0.0),
    "steep": (partial(power, exponent=3.0), lambda s, _: s**3, 0.0),
    "deadline": (partial(deadline, age=2.0), lambda s, _: mpmath.mpf(s > 2.0), 0.0),
    "logarithm": (logarithm, lambda s, _: mpmath.log(s) + 1, 0.0),
    "bill": (partial(bill, price=0.7), lambda s, d: d * s, 0.7),
}


@pytest.mark.parametrize("gap", [1e-9, 1e-3, 0.7, 5.0, 1e6])
@pytest.mark.parametrize("name", KNOWN)
def test_gaps_cost_the_integral_of_the_cost_of_age(name: str, gap: float) -> None:
    declared, age, own = KNOWN[name]
    sources = fo.Sources([0.3, 40.0], importance=[1.0, 1e3])
    found = gap_costs(Own(declared), sources)
    assert not isinstance(found, str)
    with mpmath.workdps(40):
        ends = [0, *([2] if name == "deadline" and gap > 2 else []), gap]
        spent = [
            float(w * (own + mpmath.quad(lambda s, d=d: age(s, d), ends)))
            for d, w in zip((0.3, 40.0), (1, 1000), strict=True)
        ]
    assert found.gap_cost(np.full(2, gap)) == pytest.approx(spent, rel=EXACT, abs=0.0)
    assert found.gap_cost(np.zeros(2)) == pytest.approx([own, 1e3 * own], rel=EXACT, abs=1e-90)


@pytest.mark.parametrize(
    ("declared", "named", "success"),
    [
        (delay, AccumulatedDelay(PERIODIC), None),
        (delay, AccumulatedDelay(PERIODIC), [0.4, 0.9, 1.0]),
        (partial(power, exponent=0.5), SynchronizationCost(PowerCost(1.0, 0.5), PERIODIC), None),
        (partial(deadline, age=0.3), LaterThan(0.3, PERIODIC), [0.4, 0.9, 1.0]),
    ],
)
def test_schedules_cost_what_the_named_objective_says(
    declared: Callable[..., Expression], named: fo.Objective, success: list[float] | None
) -> None:
    sources = fo.Sources([0.2, 1.0, 9.0], importance=[3.0, 0.0, 1.0], success=success)
    rng = np.random.default_rng(3)
    source, time = rng.integers(0, 3, 60), np.sort(rng.random(60) * 5.0)
    times = fo.Schedule(source=source, time=time, horizon=5.0, rates=[4.0, 4.0, 4.0])
    for age in (0.0, [0.3, 2.0, 0.0]):
        own, known = (expected_value(times, one, sources, age) for one in (Own(declared), named))
        assert own == pytest.approx(known, rel=EXACT)


def test_each_refresh_has_its_own_cost() -> None:
    sources = fo.Sources([1.0, 2.0])
    times = fo.Schedule(source=[0, 0, 1], time=[0.0, 1.0, 2.5], horizon=4.0, rates=[1.0, 1.0])
    free, paid = (expected_value(times, Own(one), sources) for one in (delay, partial(bill, price=0.7)))
    assert paid - free == pytest.approx(3 * 0.7 / 4.0, rel=EXACT)


def test_a_maximised_objective_keeps_its_sense() -> None:
    class Gain(Own):
        sense = "maximise"

    sources = fo.Sources([1.0])
    times = fo.Schedule(source=[0, 0, 0, 0], time=[0.0, 1.0, 2.0, 3.0], horizon=4.0, rates=[1.0])
    gain = Gain(lambda rate, _: cp.log(1.0 + rate))
    assert expected_value(times, gain, sources) == pytest.approx(np.log(2.0), rel=EXACT)


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        (lambda rate, _: cp.square(rate), r"grows faster than the rate"),
        (lambda rate, _: -cp.entr(rate), r"grows faster than the rate"),
        (lambda rate, _: -cp.log(2.0 - rate), r"not finite at high rates"),
    ],
)
def test_what_tells_no_cost_of_age(declared: Callable[..., Expression], why: str) -> None:
    found = gap_costs(Own(declared), fo.Sources([1.0]))
    assert isinstance(found, str)
    assert why in found


def test_poisson_refreshes_tell_no_cost_of_age() -> None:
    class Random(Own):
        refresh = fo.Refresh.POISSON

    times = fo.Schedule(source=[0], time=[0.0], horizon=1.0, rates=[1.0])
    with pytest.raises(fo.ObjectiveError, match=r"under poisson refreshes, which tells no cost of age"):
        expected_value(times, Random(delay), fo.Sources([1.0]))


def attempts_by_sum(rate: float, success: float, cost: Callable[[float], float]) -> float:
    """Return Σ s²k·q^{k−1}·J(ρ/k) term by term."""
    k = np.arange(1, 4000)
    return float(np.sum(success**2 * k * (1.0 - success) ** (k - 1) * np.array([cost(rate / j) for j in k])))


@pytest.mark.parametrize("success", [0.1, 0.5, 0.97])
def test_attempts_that_fail_cost_the_sum_over_their_numbers(success: float) -> None:
    sources = fo.Sources([0.2, 1.0, 9.0], importance=[3.0, 1.0, 1.0], success=[success, 0.8, 1.0])
    problem = fo.Problem(Own(partial(power, exponent=0.3)), sources, bandwidth=4.0)
    found = fo.solve(problem)
    costs = [
        attempts_by_sum(rate, s, lambda r: r**-0.3 / 1.3)
        for rate, s in zip(found.rates, (success, 0.8), strict=False)
    ]
    own = present(problem.numerics)
    assert own.cost(found.rates) == pytest.approx(
        [3.0 * costs[0], costs[1], found.rates[2] ** -0.3 / 1.3], rel=SCALAR
    )
    assert present(found.certificate).relative_gap < EXACT
    slopes = own.marginal(found.rates)
    assert slopes == pytest.approx(np.full(3, found.price), rel=SCALAR)


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        (delay, AccumulatedDelay(PERIODIC)),
        (partial(power, exponent=0.5), SynchronizationCost(PowerCost(1.0, 0.5), PERIODIC)),
    ],
)
def test_plans_of_attempts_are_those_of_the_named_objective(
    declared: Callable[..., Expression], named: fo.Objective
) -> None:
    rng = np.random.default_rng(1)
    n = 6
    sources = fo.Sources(
        rng.lognormal(sigma=2.0, size=n), rng.lognormal(sigma=2.0, size=n), success=rng.uniform(0.4, 1.0, n)
    )
    own, known = (fo.solve(fo.Problem(one, sources, bandwidth=5.0)) for one in (Own(declared), named))
    assert own.value == pytest.approx(known.value, rel=SCALAR)
    assert own.rates == pytest.approx(known.rates, rel=1e-6)


def test_a_cone_solver_says_that_attempts_are_not_declared() -> None:
    problem = fo.Problem(Own(delay), fo.Sources([1.0, 2.0], success=0.5), bandwidth=3.0)
    with pytest.raises(fo.FreshoptError, match=r"no declared form for periodic attempts"):
        fo.solve(problem, fo.solvers.Conic())
