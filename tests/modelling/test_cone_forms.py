"""Cone forms near their typical rates: how the total changes with the rate, against the definitions.

A cone form may miss a constant and may be an approximation, but only near y = 1, where a solver uses it. So
differences between y = 1 and a rate somewhat below or above are compared, for typical rates over ten decades:
every branch of every form is met.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.problems import ExpectedPenalty, PollingKnapsack, PowerCost, SynchronizationCost
from tests.ground_truth import cost_truth as truth
from tests.ground_truth import named
from tests.ground_truth.cost_truth import mp
from tests.ground_truth.named import present
from tests.ground_truth.strata import stratified
from tests.problems.test_expected_penalty import CASES

CHANGE_RATE, WEIGHT = 2.0, 3.0
DECADES = (-5.0, -3.5, -2.5, -1.7, -1.2, -0.6, -0.2, 0.3, 0.8, 1.5, 2.5, 4.0)  # of rates per change
SHIFTS = (0.8, 1.3)  # relative rates; a crude price within a factor of 2 puts them about here
SHAPE = 5e-4  # of a difference; a slope that is off by ε costs ε² of the optimum


@dataclass(frozen=True, eq=False)
class Form:
    """An objective and its exact cost (or minus its gain) of a source of change rate 2 at a rate."""

    objective: fo.Objective
    cost: Callable[[Any], Any]
    signalled: bool = False


def share(rate: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    """p = x/(1+x), for Poisson refreshes."""
    return rate / (rate + CHANGE_RATE)


def periodic(cost: truth.AgeCost) -> Callable[[Any], Any]:
    return lambda rate: rate * cost.integral(1 / rate)


def penalty(name: str, *, signalled: bool) -> Form:
    given, exact = CASES[name]
    if signalled:
        return Form(ExpectedPenalty(given), lambda rate: exact(rate / CHANGE_RATE), signalled=True)
    return Form(ExpectedPenalty(given), lambda rate: exact(share(rate)))


def harmonic_mean_cost(rate: Any) -> Any:  # noqa: ANN401
    """Ein(u) − 1 + (1−e^{−u})/u."""
    u = CHANGE_RATE / rate
    return mp.expint(1, u) + mp.log(u) + mp.euler - 1 - mp.expm1(-u) / u


ROOT, STEEP = PowerCost(2.0, 0.5, 3.0), PowerCost(0.1, 3.0, 3.0)
FORMS: dict[str, Form] = {
    "harmonic": Form(named.HARMONIC, lambda r: mp.log1p(CHANGE_RATE / r)),
    "harmonic periodic": Form(named.HARMONIC_PERIODIC, harmonic_mean_cost),
    "harmonic signalled": Form(named.HARMONIC, lambda r: -mp.log(r / CHANGE_RATE), signalled=True),
    "log": Form(named.LOG, lambda r: mp.log1p(CHANGE_RATE / r)),
    "log periodic": Form(
        named.LOG_PERIODIC, lambda r: mp.log(CHANGE_RATE / r) - mp.log(-mp.expm1(-CHANGE_RATE / r))
    ),
    "log signalled": Form(named.LOG, lambda r: -mp.log(r / CHANGE_RATE), signalled=True),
    "binary": Form(named.BINARY, lambda r: 1 - share(r)),
    "binary periodic": Form(named.BINARY_PERIODIC, periodic(truth.binary(CHANGE_RATE))),
    "binary signalled": Form(named.BINARY, lambda r: 1 - r / CHANGE_RATE, signalled=True),
    "delay": Form(named.DELAY, lambda r: CHANGE_RATE / r),
    "delay periodic": Form(named.DELAY_PERIODIC, lambda r: CHANGE_RATE / r / 2),
    "delay signalled": Form(named.DELAY, lambda r: CHANGE_RATE / r - 1, signalled=True),
    "age": Form(named.AGE, lambda r: CHANGE_RATE / (r * (r + CHANGE_RATE))),
    "age periodic": Form(named.AGE_PERIODIC, periodic(truth.age(CHANGE_RATE))),
    "age signalled": Form(named.AGE, lambda r: 1 / r - 1 / mp.mpf(CHANGE_RATE), signalled=True),
    "power": Form(SynchronizationCost(PowerCost(2.0, 0.5), named.POISSON), truth.power(2.0, 0.5).poisson),
    "power periodic": Form(SynchronizationCost(PowerCost(2.0, 0.5)), periodic(truth.power(2.0, 0.5))),
    "capped root": Form(SynchronizationCost(ROOT, named.POISSON), truth.power(2.0, 0.5, 3.0).poisson),
    "capped cube": Form(SynchronizationCost(STEEP, named.POISSON), truth.power(0.1, 3.0, 3.0).poisson),
    "capped periodic": Form(SynchronizationCost(ROOT), periodic(truth.power(2.0, 0.5, 3.0))),
    "polls": Form(PollingKnapsack(), lambda r: r * mp.expm1(-CHANGE_RATE / r)),
    "materials": Form(
        PollingKnapsack("materials"), lambda r: -mp.quad(lambda x: -mp.expm1(-CHANGE_RATE / x), [0, r])
    ),
    **{
        f"penalty {name}{' signalled' * signalled}": penalty(name, signalled=signalled)
        for name in ("count", "square root", "square", "three at most")
        for signalled in (False, True)
    },
    "penalty hundred free": penalty("hundred free", signalled=False),
}


def formed(form: Form, typical: float) -> list[float]:
    """Return the cone form's total at y = 1 and at the shifts, as a cost."""
    sources = fo.Sources([CHANGE_RATE], WEIGHT, signalled=form.signalled)
    method = form.objective.signalled_cone_form if form.signalled else form.objective.cone_form
    sign = 1.0 if form.objective.sense == "minimise" else -1.0
    unit = WEIGHT * float(abs(form.cost(mp.mpf(typical) * SHIFTS[0]) - form.cost(mp.mpf(typical))))
    values = []
    for shift in (1.0, *SHIFTS):
        y = cp.Variable(1, nonneg=True)
        made = present(method(y, sources, np.array([typical])))
        program = cp.Problem(cp.Minimize(sign * made[0] / unit), [*made[1], y == shift])
        with warnings.catch_warnings():  # the value itself is compared
            warnings.filterwarnings("ignore", message="Solution may be inaccurate", category=UserWarning)
            found = program.solve(solver="CLARABEL", tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
        values.append(float(found) * unit)
    return values


@pytest.mark.parametrize(("name", "decades"), stratified(FORMS, DECADES, every=7))
@pytest.mark.sampled(5)
def test_cone_form_changes_with_the_rate_as_the_cost_does(name: str, decades: float) -> None:
    form, ratio = FORMS[name], 10.0**decades
    if form.signalled and ratio >= 0.7:
        return
    typical = CHANGE_RATE * ratio
    exact = [form.cost(mp.mpf(typical) * y) for y in (1.0, *SHIFTS)]
    if abs(exact[1] - exact[0]) < 1e-30:
        return  # a hundred missed changes do not happen at ten refreshes per change
    here, *others = formed(form, typical)
    for found, expected in zip(others, exact[1:], strict=True):
        difference = WEIGHT * float(expected - exact[0])
        assert abs(found - here - difference) <= SHAPE * abs(difference)


def test_a_source_that_follows_all_signals_has_a_form() -> None:
    """At p = 1 nothing is missed, and (1−p)^m has no logarithm."""
    form = penalty("count", signalled=True)
    sources = fo.Sources([CHANGE_RATE], WEIGHT, signalled=True)
    y = cp.Variable(1, nonneg=True)
    total, cones = form.objective.signalled_cone_form(y, sources, np.array([CHANGE_RATE]))  # type: ignore[misc]
    values = [
        float(cp.Problem(cp.Minimize(total), [*cones, y == p]).solve(solver="CLARABEL")) for p in (0.9, 0.99)
    ]
    exact = [WEIGHT * float(form.cost(mp.mpf(p) * CHANGE_RATE)) for p in (0.9, 0.99)]
    assert abs((values[1] - values[0]) / (exact[1] - exact[0]) - 1.0) <= 1e-3
