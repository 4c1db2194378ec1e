"""Prices of sums: what is used where sums are dear, or their sources at bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from tests.ground_truth.named import DELAY


@pytest.mark.parametrize("host", [False, True])
def test_what_is_dearer_than_any_gain_is_not_used(host: bool) -> None:
    """Beside a bandwidth, of which nothing is used then."""
    own, by = fo.Sources([1.0, 2.0], importance=[0.5, 1.0]), ["a", "b"]
    rules: list[Any] = [fo.Priced(fo.Budget(by=by), {0.0: 5.0, 1.0: 9.0})]
    rules += [fo.Budget({"a": 0.3, "b": 1.0}, by=by, name="hosts")] if host else []
    kind = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    solution = fo.solve(fo.Problem(kind, own, 1.0, constraints=rules))
    assert (solution.status, solution.rates.tolist(), solution.value) == (fo.Status.OPTIMAL, [0.0, 0.0], 0.0)


@pytest.mark.parametrize("bandwidth", [35.0, 86.0, 1e6])
@pytest.mark.parametrize("steep", [0.1, 34.0])
def test_sources_at_their_bounds_take_no_more_however_cheap_it_is(bandwidth: float, steep: float) -> None:
    """One of no group, so that the bandwidth has no price, beside one in a group with a cost."""
    own = fo.Sources([3.5, 0.4], importance=[1.6, 1.5], max_rate=[31.0, np.inf])
    cost = fo.Priced(fo.Budget(by=[None, "a"]), lambda u: steep * cp.power(u, 1.5))
    solution = fo.solve(fo.Problem(DELAY, own, bandwidth, constraints=[cost]))
    # wΔ/ρ² = 3/2·cρ^½
    best = (0.6 / (1.5 * steep)) ** 0.4
    assert solution.rates == pytest.approx([31.0, best], rel=1e-9)
    assert solution.value == pytest.approx(5.6 / 31.0 + 0.6 / best + steep * best**1.5, rel=1e-12)
    assert solution.prices["bandwidth"] == pytest.approx(0.0, abs=1e-12)
    assert "the price of each sum" in solution.note
    assert solution.iterations <= 12
