"""Certificates of declared rows: gaps, repairs and rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.row_certificate import row_multipliers
from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_repair import repair_rows
from freshopt.certificates.row_scale import relative_row_gap
from freshopt.certificates.strict_interior import interior_points
from freshopt.cvx import Expression, cp
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.exact_gap import exact_gap
from tests.ground_truth.named import present
from tests.ground_truth.proof_programs import blocks, numerics, program_of, tried
from tests.ground_truth.row_truth import Floats, planted
from tests.ground_truth.strata import matrix, rare
from tests.ground_truth.tolerances import EXACT, SCALAR

FAMILIES = ("budgets", "targets", "mixed")
# Rates and multipliers tried on each instance.
TRIALS = 24
BATCHES = [pytest.param(k, marks=[] if k == 0 else pytest.mark.exhaustive) for k in range(30)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch", BATCHES)
def test_the_bound_holds_for_any_feasible_rates_and_multipliers(batch: int) -> None:
    rng = np.random.default_rng(batch)
    checks, halved = 0, 0
    for k in range(18):
        p = planted(
            rng, FAMILIES[k % 3], ill=k % 2 == 0, n=int(rng.integers(1, 60)), m=int(rng.integers(1, 9))
        )
        program = program_of(p)
        best, inside = p.value(p.rates), interior_points(program)
        for _ in range(TRIALS):
            rates, y = tried(rng, p, program)
            repaired = repair_rows(program, rates, inside)
            if repaired is None:
                continue
            rates = repaired.rates
            assert p.feasible(rates)
            gap = RowGap.of(program, rates)
            bound, loss = gap.at(y), p.value(rates) - best
            # F itself is rounded, and rows are met to a few ulp, at their prices.
            rounding = EXACT * 1e-2 * (abs(best) + abs(p.value(rates)) + float(y @ np.abs(p.limits)))
            assert np.all(gap.row_terms(y) >= 0.0)
            assert np.all(gap.source_terms(y) >= 0.0)
            assert loss <= bound + rounding, (k, loss, bound)
            checks += 1
            halved += loss > 0.5 * bound + rounding
    assert checks > 300
    # Half of the sum is no bound, or the test could not fail.
    assert halved > 3


@matrix(family=FAMILIES, ill=[False, True], every=2)
def test_the_planted_optimum_is_proved(family: str, ill: bool) -> None:
    rng = np.random.default_rng(7)
    for _ in range(10):
        p = planted(rng, family, ill=ill, n=int(rng.integers(1, 200)), m=int(rng.integers(1, 12)))
        gap = RowGap.of(program_of(p), p.rates)
        assert gap.cost == pytest.approx(p.value(p.rates), rel=EXACT)
        assert relative_row_gap(gap, p.y).relative <= EXACT


def single(
    costs: tuple[str, float, float] | None,
    rows: list[RowBlock],
    upper: float = np.inf,
    lower: float = 0.0,
    level: Floats | None = None,
) -> Program:
    own = None if costs is None else numerics(costs[0], np.array([costs[1]]), np.array([costs[2]]))
    one = np.ones(1)
    return Program(own, lower * one, upper * one, one, Rows.gather(rows, 1), level)


def row(limit: float, a: float = 1.0, *, at_least: bool = False, label: str = "row") -> RowBlock:
    zero = np.zeros(1, dtype=np.int64)
    return blocks([label], zero, zero, np.array([a]), np.array([limit]), at_least=at_least)[0]


def test_a_reserve_may_make_the_price_of_rate_negative() -> None:
    # min ρ subject to ρ ≥ 3: f' = 1, so y = 1, and the price θ_0 = −1.
    program = single(("rate", 1.0, 1.0), [row(3.0, at_least=True)])
    assert RowGap.of(program, np.array([3.0])).at(np.ones(1)) <= 1e-14
    assert RowGap.of(program, np.array([4.0])).at(np.ones(1)) == pytest.approx(1.0, rel=EXACT)
    # Any other multiplier leaves a best response at 0 or at infinity.
    assert RowGap.of(program, np.array([3.0])).at(np.array([2.0])) == np.inf
    assert RowGap.of(program, np.array([3.0])).at(np.array([0.5])) == pytest.approx(1.5, rel=EXACT)


def test_a_source_of_no_importance_and_no_price_adds_nothing() -> None:
    program = single(("harmonic", 0.0, 1.0), [row(3.0)])
    assert RowGap.of(program, np.zeros(1)).at(np.zeros(1)) == 0.0
    assert RowGap.of(program, np.ones(1)).at(np.zeros(1)) == 0.0


def test_an_infinite_cost_at_rate_zero_proves_nothing() -> None:
    program = single(("harmonic", 1.0, 1.0), [row(3.0)])
    assert RowGap.of(program, np.zeros(1)).at(np.ones(1)) == np.inf


class Kinked:
    """The cost max(2(1 − ρ), (1 − ρ)/2), whose marginal falls from 2 to 1/2 at ρ = 1."""

    def cost(self, rate: Floats) -> Floats:
        return np.maximum(2.0 * (1.0 - rate), 0.5 * (1.0 - rate))

    def marginal(self, rate: Floats) -> Floats:
        return np.where(rate < 1.0, 2.0, 0.5)

    def inverse_marginal(self, price: Floats) -> Floats:
        return np.where(price >= 2.0, 0.0, np.where(price > 0.5, 1.0, np.inf))

    def curvature(self, rate: Floats) -> Floats:
        return 0.0 * rate

    def gain(self, rate: Floats) -> None:  # noqa: ARG002 - a protocol's signature
        return None

    def take(self, index: object) -> Kinked:  # noqa: ARG002 - a protocol's signature
        return self


def test_any_subgradient_will_do_at_a_kink() -> None:
    program = replace(single(None, [row(1.0)], upper=5.0), numerics=Kinked())
    for price in (0.5, 1.0, 1.9, 2.0):
        for rate in (1.0, 1.0 - 2e-16):
            gap = RowGap.of(program, np.array([rate])).at(np.array([price]))
            assert gap <= 1e-13, price
    # With nothing to pay beyond the kink the source would rise to its bound.
    assert RowGap.of(program, np.ones(1)).at(np.array([0.25])) == pytest.approx(1.0, rel=EXACT)


class Entropy(fo.Objective):
    """The cost ρ·log ρ − ρ + 1, which is 1 at rate 0, of infinite slope there."""

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.kl_div(rate, np.ones(len(sources)))


@pytest.mark.parametrize("price", [1e-3, 1.0, 30.0, 800.0])
def test_an_infinite_slope_at_rate_zero_has_a_finite_loss(price: float) -> None:
    own, _ = numerics_of(Entropy(), fo.Sources(columns={"size": np.ones(1)}))
    program = replace(single(None, [row(3.0)]), numerics=own)
    # At rate 0 the limit is not used: 3y, and of the source 1 − min ρ·log ρ − ρ + 1 + yρ = e^−y.
    loss = RowGap.of(program, np.zeros(1)).at(np.array([price]))
    assert loss == pytest.approx(3.0 * price + np.exp(-price), rel=1e-13)


def test_many_sources_are_the_sum_of_their_chunks() -> None:
    rng = np.random.default_rng(3)
    p = planted(rng, "budgets", ill=False, n=40_000, m=3)
    program = program_of(p)
    gap = RowGap.of(program, p.rates)
    halves = [slice(0, 15_000), slice(15_000, 40_000)]
    parts = [RowGap.of(program.take(h), p.rates[h]).source_terms(1.1 * p.y) for h in halves]
    np.testing.assert_allclose(gap.source_terms(1.1 * p.y), np.concatenate(parts), rtol=1e-9)


def test_a_minimax_program_bounds_its_level() -> None:
    # min t: 1/ρ_1 ≤ 2 t, 4/ρ_2 ≤ 2 t, ρ_1 + ρ_2 ≤ 5: ρ = (1, 4), t = 1/2.
    n, index = 2, np.arange(2, dtype=np.int64)
    curve = numerics("delay", np.ones(2), np.array([1.0, 4.0]))
    zeros, ones = np.zeros(2), np.ones(2)
    fair = blocks(["a", "b"], index, index, ones, zeros, curve=curve)
    budget = blocks(["all"], index, 0 * index, ones, np.array([5.0]))
    program = Program(
        None, zeros, np.full(n, np.inf), ones, Rows.gather([*fair, *budget], n), np.array([2.0, 2.0, 0.0])
    )
    # y_1/ρ_1² = 4 y_2/ρ_2², which is the budget's, and 2(y_1 + y_2) = 1.
    y = np.array([0.1, 0.4, 0.1])
    best = RowGap.of(program, np.array([1.0, 4.0]))
    assert best.cost == 0.5
    assert best.at(y) <= 1e-13
    assert best.at(7.0 * y) == pytest.approx(best.at(y), abs=1e-13)
    rng = np.random.default_rng(0)
    for _ in range(300):
        rates = rng.uniform(0.1, 1.0, 2)
        rates *= 5.0 * rng.uniform(0.5, 1.0) / np.sum(rates)
        gap = RowGap.of(program, rates)
        assert gap.cost == pytest.approx(max(0.5 / rates[0], 2.0 / rates[1]), rel=EXACT)
        assert gap.at(y * rng.uniform(0.3, 3.0, 3)) >= gap.cost - 0.5 - 1e-13


class Shifted(Kinked):
    """The cost 1/ρ and a constant."""

    def __init__(self, constant: float) -> None:
        self.own, self.constant = numerics("delay", np.ones(1), np.ones(1)), constant

    def cost(self, rate: Floats) -> Floats:
        return self.own.cost(rate) + self.constant

    def marginal(self, rate: Floats) -> Floats:
        return self.own.marginal(rate)

    def inverse_marginal(self, price: Floats) -> Floats:
        return self.own.inverse_marginal(price)

    def curvature(self, rate: Floats) -> Floats:
        return self.own.curvature(rate)


@pytest.mark.parametrize("constant", [0.0, 1e6, -1e6])
def test_no_constant_of_a_row_hides_a_loss(constant: float) -> None:
    # min ρ subject to 1/ρ ≤ 1 at twice the rate that is needed, with a constant on both sides of the target.
    zero = np.zeros(1, dtype=np.int64)

    curve = Shifted(constant)
    block = blocks(["t"], zero, zero, np.ones(1), np.array([1.0 + constant]), curve=curve)
    program = single(("rate", 1.0, 1.0), block)
    loss = relative_row_gap(RowGap.of(program, np.array([2.0])), np.ones(1))
    assert loss.relative > 0.25


def test_opposing_rows_that_leave_little_do_not_hide_a_loss_in_their_prices() -> None:
    # A budget of 10, of which a reserve takes 9.99 for source 0: source 1 has 0.01, at 0.005 twice its cost.
    index = np.arange(2, dtype=np.int64)
    budget = blocks(["all"], index, 0 * index, np.ones(2), np.array([10.0]))
    reserve = blocks(["first"], index[:1], 0 * index[:1], np.ones(1), np.array([9.99]), at_least=True)
    delay = numerics("delay", np.array([0.0, 1.0]), np.ones(2))
    program = Program(delay, np.zeros(2), np.full(2, 10.0), np.ones(2), Rows.gather([*budget, *reserve], 2))
    y = np.array([1e4, 1e4])
    poor = RowGap.of(program, np.array([9.99, 0.005]))
    assert poor.at(y) >= 100.0
    assert relative_row_gap(poor, y).relative < 0.01
    assert relative_row_gap(poor, y, inside=lambda: np.array([9.993, 0.003])).relative > 0.3


def test_exact_rates_have_no_relative_gap_beyond_rounding() -> None:
    program = single(("delay", 1.0, 1.0), [row(1.0)])
    result = relative_row_gap(RowGap.of(program, np.ones(1)), np.ones(1))
    assert result.relative <= EXACT
    assert relative_row_gap(RowGap.of(replace(program), np.array([0.5])), np.ones(1)).relative > 0.2


@matrix(family=FAMILIES, ill=[False, True], every=4)
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
        found = present(repair_rows(program_of(p), p.rates))
        assert found.infeasibility == 0.0
        assert found.rates is p.rates


def test_only_the_rows_that_are_over_are_shrunk() -> None:
    index = np.arange(4, dtype=np.int64)
    block = blocks(["a", "b"], index, index // 2, np.ones(4), np.array([2.0, 5.0]))
    delay = numerics("delay", np.ones(4), np.ones(4))
    lower = np.array([0.5, 0.0, 0.0, 0.0])
    program = Program(delay, lower, np.full(4, np.inf), np.ones(4), Rows.gather(block, 4))
    found = present(repair_rows(program, np.array([1.5, 2.0, 1.0, 3.0])))
    np.testing.assert_allclose(found.rates, [1.0, 1.0, 1.0, 3.0], rtol=EXACT)
    assert found.infeasibility == pytest.approx(0.75, rel=EXACT)


def test_a_target_raises_its_sources_alone_by_one_factor() -> None:
    index = np.arange(4, dtype=np.int64)
    curve, ones = numerics("delay", np.ones(4), np.ones(4)), np.ones(2)
    block = blocks(["a", "b"], index, index // 2, np.ones(4), 2.0 * ones, curve=curve)
    spend = numerics("rate", np.ones(4), np.ones(4))
    program = Program(spend, np.zeros(4), np.full(4, np.inf), np.ones(4), Rows.gather(block, 4))
    found = present(repair_rows(program, np.array([0.5, 0.5, 2.0, 1.0])))
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
    assert RowGap.of(program, near.rates).cost <= RowGap.of(program, present(swapped).rates).cost
    assert np.max(np.abs(near.rates - rates)) < 1e-4 * np.max(rates)


@matrix(family=FAMILIES, ill=[False, True], off=[0.0, *rare(1e-9)], every=3)
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
    found = present(repair_rows(program, np.array([1.0 - 1e-9, 0.0])))
    assert found.rates[1] == 0.0
    assert found.rates[0] == pytest.approx(1.0, rel=EXACT)


# Rates and multipliers are off by so much; 0 leaves what rounding alone leaves.
OFF = (0.0, 1e-16, 1e-12, 1e-5)
ROUNDING_BATCHES = [pytest.param(k, marks=[] if k == 0 else pytest.mark.exhaustive) for k in range(8)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch", ROUNDING_BATCHES)
def test_bounds_hold_to_the_last_bit(batch: int) -> None:
    checks = beyond = 0
    for seed in range(18 * batch, 18 * batch + 18):
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(1, 6)), int(rng.integers(1, 4))
        p = planted(rng, FAMILIES[seed % 3], ill=seed % 4 != 0, n=n, m=m)
        program = program_of(p)
        for off in OFF:
            rates = np.clip(p.rates * np.exp(off * rng.standard_normal(n)), p.lower, program.upper)
            y = p.y * np.exp(off * rng.standard_normal(m))
            found = repair_rows(program, rates)
            if found is None or bool(np.any(found.rates <= 0.0)):
                continue
            gap = RowGap.of(program, found.rates)
            bound, exact = gap.at(y), exact_gap(p, program.upper, found.rates, y)
            assert exact <= bound, (seed, off)
            checks += 1
            # Without what rounding may add to the rows' parts, some bounds fall short.
            beyond += exact > bound - float(np.sum(gap.row_terms(y) - np.where(y > 0.0, y * gap.slack, 0.0)))
    assert checks > 40
    assert beyond > 0
