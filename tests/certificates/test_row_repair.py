from __future__ import annotations

import numpy as np
import pytest

from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_multipliers import row_multipliers
from freshopt.certificates.row_repair import repair_rows
from freshopt.certificates.row_scale import relative_row_gap
from freshopt.certificates.strict_interior import interior_points
from freshopt.separable.program import Program
from freshopt.separable.rows import Rows
from tests.ground_truth.proof_programs import blocks, numerics, program_of
from tests.ground_truth.row_truth import planted
from tests.ground_truth.tolerances import EXACT, SCALAR

FAMILIES = ("budgets", "targets", "mixed")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ill", [False, True])
@pytest.mark.sampled(4)
def test_infeasible_rates_become_feasible_and_stay_near(family: str, ill: bool) -> None:
    rng = np.random.default_rng(11)
    for _ in range(12):
        p = planted(rng, family, ill=ill, n=int(rng.integers(5, 120)), m=int(rng.integers(1, 9)))
        program = program_of(p)
        inside = interior_points(program)
        for off in (1e-9, 1e-4, 1e-1, 2.0):
            rates = p.rates * np.exp(off * rng.standard_normal(len(p.rates)))
            found = repair_rows(program, rates, inside)
            if found is None:
                # Rows that leave no room at all have no rates strictly inside.
                assert family == "mixed"
                assert not inside
                continue
            assert p.feasible(found.rates)
            assert found.infeasibility <= 1.0 or off == 2.0
            if family == "budgets":
                assert np.all(found.rates <= np.maximum(rates, p.lower))
                # A row is over by as much as its rates were, and they are shrunk by no more than that.
                shrunk = (rates - found.rates) / np.maximum(rates, 1e-300)
                assert np.max(shrunk[rates > p.lower * (1.0 + 10.0 * off)], initial=0.0) <= 1.0
            if family == "targets":
                assert np.all(found.rates >= np.minimum(rates, p.upper))


def test_feasible_rates_are_returned_as_they_are() -> None:
    rng = np.random.default_rng(2)
    for family in FAMILIES:
        p = planted(rng, family, ill=False, n=50, m=4)
        found = repair_rows(program_of(p), p.rates)
        assert found is not None
        assert found.infeasibility == 0.0
        assert found.rates is p.rates


def test_only_the_rows_that_are_over_are_shrunk() -> None:
    index = np.arange(4, dtype=np.int64)
    block = blocks(["a", "b"], index, index // 2, np.ones(4), np.array([2.0, 5.0]))
    delay = numerics("delay", np.ones(4), np.ones(4))
    lower = np.array([0.5, 0.0, 0.0, 0.0])
    program = Program(delay, lower, np.full(4, np.inf), np.ones(4), Rows.gather(block, 4))
    found = repair_rows(program, np.array([1.5, 2.0, 1.0, 3.0]))
    assert found is not None
    np.testing.assert_allclose(found.rates, [1.0, 1.0, 1.0, 3.0], rtol=EXACT)
    assert found.infeasibility == pytest.approx(0.75, rel=EXACT)


def test_a_target_raises_its_sources_alone_by_one_factor() -> None:
    index = np.arange(4, dtype=np.int64)
    curve, ones = numerics("delay", np.ones(4), np.ones(4)), np.ones(2)
    block = blocks(["a", "b"], index, index // 2, np.ones(4), 2.0 * ones, curve=curve)
    spend = numerics("rate", np.ones(4), np.ones(4))
    program = Program(spend, np.zeros(4), np.full(4, np.inf), np.ones(4), Rows.gather(block, 4))
    found = repair_rows(program, np.array([0.5, 0.5, 2.0, 1.0]))
    assert found is not None
    np.testing.assert_allclose(found.rates, [1.0, 1.0, 2.0, 1.0], rtol=EXACT)
    assert np.all(program.rows.used(found.rates) <= 2.0 * (1.0 + 1e-14))


def test_rates_that_no_repair_meets_are_refused() -> None:
    index = np.zeros(1, dtype=np.int64)
    rows = [
        *blocks(["a"], index, index, np.ones(1), np.ones(1)),
        *blocks(["b"], index, index, np.ones(1), np.array([2.0]), at_least=True),
    ]
    delay, one = numerics("delay", np.ones(1), np.ones(1)), np.ones(1)
    program = Program(delay, 0.0 * one, 9.0 * one, one, Rows.gather(rows, 1))
    assert repair_rows(program, one) is None


def test_the_interior_point_of_least_cost_wins() -> None:
    # ρ° at the limits by rounding would put itself in the place of the rates that were given.
    rng = np.random.default_rng(5)
    p = planted(rng, "mixed", ill=False, n=60, m=6)
    program = program_of(p)
    inside = interior_points(program)
    rates = p.rates * (1.0 + 1e-6 * rng.standard_normal(60))
    near = repair_rows(program, rates, inside)
    swapped = repair_rows(program, rates, [inside[0]])
    assert near is not None
    assert swapped is not None
    assert RowGap.of(program, near.rates).cost <= RowGap.of(program, swapped.rates).cost
    assert np.max(np.abs(near.rates - rates)) < 1e-4 * np.max(rates)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ill", [False, True])
@pytest.mark.parametrize("off", [0.0, pytest.param(1e-9, marks=pytest.mark.exhaustive)])
@pytest.mark.sampled(3)
def test_rates_without_multipliers_are_proved_all_the_same(family: str, ill: bool, off: float) -> None:
    rng = np.random.default_rng(13)
    for _ in range(8):
        p = planted(rng, family, ill=ill, n=int(rng.integers(40, 200)), m=int(rng.integers(1, 12)))
        program = program_of(p)
        rates = np.clip(p.rates * (1.0 + off * rng.standard_normal(len(p.rates))), p.lower, program.upper)
        gap = RowGap.of(program, rates)
        y = row_multipliers(gap)
        assert np.all(y >= 0.0)
        assert relative_row_gap(gap, y).relative <= (SCALAR if off == 0.0 else 1e-6)


def test_a_poor_answer_stays_poor_at_the_multipliers_that_flatter_it_most() -> None:
    rng = np.random.default_rng(17)
    p = planted(rng, "budgets", ill=False, n=60, m=3)
    gap = RowGap.of(program_of(p), 0.5 * p.rates + 0.5 * p.lower)
    y = row_multipliers(gap)
    assert gap.at(y) >= p.value(gap.rates) - p.value(p.rates)
    assert relative_row_gap(gap, y).relative > 1e-3


def test_rates_of_zero_stay_where_the_others_suffice() -> None:
    # 1/(1 + ρ) twice, at most 1.5 in total: source 0 alone meets it at 1.
    index = np.arange(2, dtype=np.int64)
    curve = numerics("binary", np.ones(2), np.ones(2))
    block = blocks(["fresh"], index, 0 * index, np.ones(2), np.array([1.5]), curve=curve)
    own = numerics("rate", np.ones(2), np.ones(2))
    program = Program(own, np.zeros(2), np.full(2, np.inf), np.ones(2), Rows.gather(block, 2))
    found = repair_rows(program, np.array([1.0 - 1e-9, 0.0]))
    assert found is not None
    assert found.rates[1] == 0.0
    assert found.rates[0] == pytest.approx(1.0, rel=EXACT)
