"""Demand that is flat at price 0, or jumps at a price that no float is: what solvers alone once missed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.solvers import SeparableNewton, WaterFilling
from tests.ground_truth.strata import stratified
from tests.ground_truth.tolerances import EXACT, SCALAR


class Declared(fo.Objective):
    """An objective from a function of rate and sources."""

    def __init__(self, form: Callable[[Any, fo.Sources], Any]) -> None:
        self.form = form

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        return cp.multiply(sources.importance, self.form(rate, sources))


CAPPED = Declared(lambda rate, sources: cp.inv_pos(cp.minimum(rate, sources.change_rate)))
SHORTFALL = Declared(lambda rate, sources: cp.square(cp.pos(sources.change_rate - rate)))
DECAY = Declared(lambda rate, sources: cp.exp(-cp.multiply(1.0 / sources.change_rate, rate)))
LINEAR = Declared(lambda rate, _: -rate)


@pytest.mark.parametrize("certify", [True, False])
def test_more_bandwidth_than_is_of_use(certify: bool) -> None:
    """Σ w/min(ρ, Δ): beyond Δ nothing is gained, and half of the bandwidth has no use."""
    d = np.array([0.57109109, 1.45300723, 5.20275408])
    problem = fo.Problem(CAPPED, fo.Sources(d, [1.25876022, 0.0, 0.52145729]), 1.5 * float(d.sum()))
    solution = fo.solve(problem, SeparableNewton(), certify=certify)
    assert solution.value == pytest.approx(1.25876022 / d[0] + 0.52145729 / d[2], rel=EXACT)
    assert solution.price == 0.0
    assert float(solution.rates.sum()) <= problem.bandwidth * (1.0 + EXACT)


@pytest.mark.parametrize("certify", [True, False])
def test_bandwidth_for_all_but_what_a_bound_forbids(certify: bool) -> None:
    d = [5.19347891, 1.01923676, 2.65667445, 0.98963957, 1.07324303]
    w = [0.47590087, 17.28355662, 3.31357261, 3.25653152, 3.18263692]
    top = [2.34691718, 2.34140637, 3.88417771, 1.08756856, 5.06353966]
    problem = fo.Problem(SHORTFALL, fo.Sources(d, w, max_rate=top), 10.932272732977447)
    solution = fo.solve(problem, SeparableNewton(), certify=certify)
    assert solution.value == pytest.approx(w[0] * (d[0] - top[0]) ** 2, rel=EXACT)


@pytest.mark.parametrize("top", [np.inf, 182.62440801])
def test_marginals_that_fall_below_all_that_is_looked_for(top: float) -> None:
    """A source at its cap, the others with e^{−500} to lose: a price of 1e-217, or of 0."""
    sources = fo.Sources([2.0, 6.0], [1.0, 1.0], max_rate=[top, np.inf])
    problem = fo.Problem(DECAY, sources, 4000.0)
    for certify in (True, False):
        rates = fo.solve(problem, SeparableNewton(), certify=certify).rates
        reference = fo.solve(problem, WaterFilling()).rates
        assert rates[0] == pytest.approx(min(top, reference[0]), rel=SCALAR)
        assert rates[1] > 500.0


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("solver", "price"), stratified([WaterFilling(), SeparableNewton()], [0.1, 0.7, 1.0 / 3.0], every=2)
)
def test_constant_marginals_that_are_the_price_but_for_an_ulp(solver: Any, price: float) -> None:  # noqa: ANN401
    rng = np.random.default_rng(4)
    for _ in range(5):
        cost = rng.lognormal(0.0, 2.0, 3)
        sources = fo.Sources(1.0, cost * price, refresh_cost=cost, host=["a", "a", "b"])
        problem = fo.Problem(LINEAR, sources, 3.0, {"a": float(rng.lognormal())})
        solution = fo.solve(problem, solver)
        assert solution.value == pytest.approx(-3.0 * price, rel=EXACT)
        assert fo.certify(problem, solution.rates).relative_gap <= SCALAR
        alone = fo.Problem(LINEAR, sources.take(slice(2)), 1e9, {"a": 2.5})
        assert fo.solve(alone, solver).value == pytest.approx(-2.5 * price, rel=EXACT)


def test_rates_that_break_nothing_but_a_host_limit_are_repaired() -> None:
    problem = fo.Problem(LINEAR, fo.Sources(1.0, host=["a", "a", "b"]), 9.0, {"a": 2.0})
    proof = fo.certify(problem, [2.0, 2.0, 1.0])
    assert proof.infeasibility == pytest.approx(1.0, rel=EXACT)
    assert proof.rates.tolist() == [1.0, 1.0, 1.0]
