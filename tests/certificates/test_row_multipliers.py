"""Prices that certificates find for rates that come without any."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_multipliers import row_multipliers
from freshopt.certificates.row_scale import relative_row_gap
from freshopt.modelling.objective import Objective
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.proof_programs import program_of
from tests.ground_truth.row_truth import planted
from tests.ground_truth.tolerances import EXACT, SCALAR


@pytest.mark.parametrize("objective", [AccumulatedDelay(), HarmonicStaleness(), BinaryFreshness()])
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.exhaustive) for k in range(1, 12))])
def test_fairest_rates_are_proved_without_prices(objective: Objective, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 300))
    change, weight, group = rng.lognormal(0.0, 1.5, n), rng.lognormal(0.0, 1.0, n), rng.integers(0, 5, n)
    kilobytes = fo.Budget(float(np.sum(change)), cost=rng.lognormal(0.0, 0.5, n), name="kB")
    worst = fo.Worst(objective, by=[f"group {k}" for k in group])
    bandwidth = float(np.sum(change)) * rng.uniform(0.1, 2.0)
    problem = fo.Problem(worst, fo.Sources(change, weight), bandwidth, constraints=[kilobytes])
    solution = fo.solve(problem)
    assert fo.certify(problem, solution.rates).relative_gap <= SCALAR
    # Rates off by 1 % lose about as much, and no prices say that they lose nothing.
    poor = fo.certify(problem, 0.99 * solution.rates)
    assert 1e-3 < poor.relative_gap < 0.1


@pytest.mark.parametrize(
    ("family", "seed"),
    [("targets", 454), *(pytest.param("mixed", 2 + 6 * k, marks=pytest.mark.exhaustive) for k in range(40))],
)
def test_a_first_guess_at_a_price_of_an_immense_limit_is_not_the_last(family: str, seed: int) -> None:
    # A target of 1e44 at nearly no price: the first fit pays 1e26 for it, beside which any gap is small.
    rng = np.random.default_rng(seed)
    p = planted(rng, family, ill=True, n=int(rng.integers(1, 200)), m=int(rng.integers(1, 20)))
    gap = RowGap.of(program_of(p), p.rates)
    assert relative_row_gap(gap, row_multipliers(gap)).relative <= EXACT
