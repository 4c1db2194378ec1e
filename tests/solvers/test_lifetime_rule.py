"""Lifetimes by rule: what they are in proportion to, what they use, and what they lose."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.errors import SolverRefusedError
from freshopt.problems import AccumulatedDelay, BinaryFreshness
from freshopt.solvers import LifetimeRule

ON_REQUEST = fo.Refresh.ON_REQUEST


def ill_scaled(n: int = 20) -> fo.Sources:
    rng = np.random.default_rng(9)
    return fo.Sources(10.0 ** rng.uniform(-6.0, 4.0, n), request_rate=10.0 ** rng.uniform(-4.0, 4.0, n))


@pytest.mark.parametrize(
    "share",
    [pytest.param(1e-3, marks=pytest.mark.exhaustive), 0.3, pytest.param(0.99, marks=pytest.mark.exhaustive)],
)
def test_lifetimes_are_in_proportion(share: float) -> None:
    sources = ill_scaled()
    budget = share * float(sources.asked.sum())
    problem = fo.Problem(BinaryFreshness(ON_REQUEST), sources, bandwidth=budget)
    best = fo.solve(problem).value
    for power in (0.0, 1.0, 0.5):
        found = fo.solve(problem, LifetimeRule(power), certify=power == 0.0)
        # The source with the longest lifetime, in requests, tells it with the most digits.
        k = int(np.argmax(found.lifetimes * sources.asked))
        life = found.lifetimes[k] * (sources.change_rate[k] / sources.change_rate) ** power
        assert found.rates == pytest.approx(1.0 / (life + 1.0 / sources.asked), rel=1e-6)
        assert found.rates.sum() == pytest.approx(budget, rel=1e-9)
        assert found.value <= best * (1.0 + 1e-12)
        if found.certificate is not None:
            assert found.value + found.certificate.gap >= best * (1.0 - 1e-9)


def test_costs_and_bounds() -> None:
    sources = fo.Sources(
        [1.0, 1.0, 1.0], request_rate=[2.0, 2.0, 2.0], refresh_cost=[1.0, 3.0, 1.0], max_rate=0.5
    )
    found = fo.solve(fo.Problem(AccumulatedDelay(ON_REQUEST), sources, bandwidth=1.25), LifetimeRule())
    assert found.lifetimes == pytest.approx([3.5, 3.5, 3.5])
    assert sources.refresh_cost @ found.rates == pytest.approx(1.25)


def test_refuses_what_has_no_lifetimes() -> None:
    problem = fo.Problem(BinaryFreshness(), fo.Sources([1.0, 2.0]), bandwidth=1.0)
    assert "Refresh.ON_REQUEST" in str(LifetimeRule().supports(problem))
    with pytest.raises(SolverRefusedError, match=r"refreshed on request"):
        fo.solve(problem, LifetimeRule())
    with pytest.raises(fo.SourceDataError, match=r"power is nan, not a finite number"):
        LifetimeRule(np.nan)
    with pytest.raises(TypeError, match=r"power of LifetimeRule is of type str"):
        LifetimeRule("one")  # type: ignore[arg-type]
