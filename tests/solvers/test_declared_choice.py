"""Declared objectives: which solver they take by themselves, and rates that a price of 0 leaves flat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.solver_protocol import Solver
from freshopt.cvx import cp
from freshopt.solvers import SeparableNewton, WaterFilling
from tests.ground_truth.tolerances import EXACT, SCALAR

N = 200
RNG = np.random.default_rng(4)
CHANGE_RATE, WEIGHT = 10.0 ** RNG.uniform(-5, 5, N), RNG.lognormal(0.0, 3.0, N)
PLAN = 10.0 ** RNG.uniform(-8, 2, N)
HOST = np.arange(N) % 5


def own(written: Callable[[Any, fo.Sources], Any], sense: str = "minimise") -> fo.Objective:
    found: fo.Objective = type(
        "Own",
        (fo.Objective,),
        {"sense": sense, "per_source": lambda _, rate, sources: written(rate, sources)},
    )()
    return found


def delay(rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
    return cp.multiply(sources.importance * sources.change_rate, cp.inv_pos(rate))


def paid(exponent: float) -> fo.Objective:
    """Return the delay and what all refreshes cost, more than in proportion."""
    return own(lambda r, s: delay(r, s) + 0.1 * cp.power(r, exponent))


# Objectives that are least at a finite rate, and that rate.
LEAST: dict[str, tuple[fo.Objective, Any]] = {
    "orders": (
        own(lambda r, s: 5 * r + cp.multiply(s.change_rate, cp.inv_pos(r))),
        np.sqrt(CHANGE_RATE / 5),
    ),
    **{
        f"paid, to the {e:g}": (paid(e), (WEIGHT * CHANGE_RATE / (0.1 * e)) ** (1 / (e + 1)))
        for e in (1.2, 2.0, 3.0)
    },
    "projection": (own(lambda r, _: cp.square(r - PLAN)), PLAN),
    "entropy": (
        own(lambda r, s: cp.multiply(s.importance, cp.entr(r)), "maximise"),
        np.full(N, np.exp(-1.0)),
    ),
}


@pytest.mark.parametrize("name", LEAST)
@pytest.mark.parametrize("solver", [None, SeparableNewton(), WaterFilling()])
@pytest.mark.parametrize("hosts", [False, True])
def test_rates_at_a_price_of_0_are_right_one_by_one(name: str, solver: Solver | None, hosts: bool) -> None:
    """A gap of 1e-13 of the cost would leave rates off by its root, and small ones by any share of them."""
    objective, least = LEAST[name]
    sources = fo.Sources(CHANGE_RATE, WEIGHT, host=HOST)
    limits = {0: 1e12, 3: 0.5 * float(np.sum(least[HOST == 3]))} if hosts else None
    found = fo.solve(fo.Problem(objective, sources, bandwidth=1e20, host_limits=limits), solver)
    assert found.price == 0.0
    free = (HOST != 3) | (not hosts)
    assert np.allclose(found.rates[free], least[free], rtol=SCALAR, atol=0.0)


KINKED: dict[str, Callable[[Any, fo.Sources], Any]] = {
    "maximum": lambda r, s: cp.multiply(s.importance, cp.maximum(1 - cp.multiply(1 / s.change_rate, r), 0)),
    "minimum": lambda r, s: -cp.multiply(s.importance, cp.minimum(cp.multiply(1 / s.change_rate, r), 1)),
    "abs": lambda r, s: cp.multiply(s.importance, cp.abs(r - s.change_rate)),
}


@pytest.mark.parametrize("name", KINKED)
def test_objectives_with_kinks_take_water_filling(name: str) -> None:
    objective = own(lambda r, s: KINKED[name](r, s) + 0.01 * delay(r, s))
    problem = fo.Problem(objective, fo.Sources(CHANGE_RATE, WEIGHT), bandwidth=0.3 * float(CHANGE_RATE.sum()))
    found = fo.solve(problem)
    assert found.note.startswith("Auto chose WaterFilling()")
    assert found.certificate is not None
    assert found.certificate.confirms(SCALAR)
    newton = fo.solve(problem, SeparableNewton(), throw=False)
    assert found.value <= newton.value + SCALAR * abs(newton.value)


def test_entropies_take_water_filling_and_smooth_objectives_newton() -> None:
    sources = fo.Sources(CHANGE_RATE, WEIGHT)
    churn = own(lambda r, s: delay(r, s) + cp.multiply(s.importance, cp.kl_div(r, PLAN)))
    found = fo.solve(fo.Problem(churn, sources, bandwidth=float(PLAN.sum())))
    assert found.note.startswith("Auto chose WaterFilling()")
    assert "kl_div" in found.note
    smooth = fo.solve(fo.Problem(own(delay), sources, bandwidth=3.0))
    assert smooth.note.startswith("Auto chose SeparableNewton(")
    root = np.sqrt(WEIGHT * CHANGE_RATE)
    assert np.allclose(smooth.rates, 3.0 * root / root.sum(), rtol=EXACT, atol=0.0)


def test_a_signalled_kind_with_kinks_counts_too() -> None:
    class Both(fo.Objective):
        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return delay(rate, sources)

        def signalled_per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return KINKED["maximum"](rate, sources)

    mixed = fo.Sources(CHANGE_RATE, WEIGHT, signalled=HOST == 2)
    found = fo.solve(fo.Problem(Both(), mixed, bandwidth=100.0))
    assert found.note.startswith("Auto chose WaterFilling(): the marginals of maximum")
    assert found.status is fo.Status.OPTIMAL


def test_a_cost_that_vanishes_is_not_given_up_for_the_smallest_price() -> None:
    """Refreshes worth less than 1e-290 still lower the cost, to 0 in the end; nothing is proved before."""
    tail = own(lambda r, s: cp.multiply(s.importance, cp.exp(-cp.multiply(1 / s.change_rate, r))))
    found = fo.solve(fo.Problem(tail, fo.Sources([5e-4], [4e-4]), bandwidth=53.0), SeparableNewton())
    assert found.value == 0.0
    assert found.status is fo.Status.OPTIMAL
