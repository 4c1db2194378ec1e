"""Tables of rows: multipliers, many rows, and rows that nearly conflict."""

import math
import pickle

import numpy as np
import pytest

import freshopt as fo
from freshopt.certificates.row_certificate import row_multipliers
from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_scale import relative_row_gap
from freshopt.certificates.row_table import RowPrices, RowTable
from freshopt.certificates.strict_interior import interior_points
from freshopt.cvx import cp
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present
from tests.ground_truth.proof_programs import program_of
from tests.ground_truth.row_truth import Planted, planted
from tests.ground_truth.strata import matrix, rare
from tests.ground_truth.tolerances import EXACT, SCALAR


@pytest.fixture(scope="module")
def instance() -> Planted:
    return planted(np.random.default_rng(1), "mixed", ill=False, n=40, m=20)


@pytest.fixture(scope="module")
def table(instance: Planted) -> RowTable:
    return RowTable.of(RowGap.of(program_of(instance), instance.rates), instance.y)


def test_rows_are_shown_as_they_were_declared(table: RowTable, instance: Planted) -> None:
    reserves = np.any(instance.matrices[0] < 0.0, axis=1)
    assert reserves.any()
    sign = np.where(reserves, -1.0, 1.0)
    used = instance.used(instance.rates)
    np.testing.assert_allclose(table.used, sign * used, rtol=EXACT)
    np.testing.assert_allclose(table.limit, sign * instance.limits, rtol=EXACT)
    assert np.all(table.slack >= 0.0)
    np.testing.assert_allclose(table.slack, instance.limits - used, atol=1e-12 * np.max(np.abs(used)))
    np.testing.assert_array_equal(table.price, instance.y)


def test_shares_are_of_the_whole_gap(instance: Planted) -> None:
    gap = RowGap.of(program_of(instance), instance.rates)
    y = instance.y + 0.1
    shares = RowTable.of(gap, y).gap_share
    terms = y * np.maximum(0.0, instance.limits - instance.used(instance.rates))
    np.testing.assert_allclose(shares, terms / gap.at(y), rtol=1e-9, atol=1e-12)
    assert 0.0 < np.sum(shares) <= 1.0 + EXACT


def test_a_row_is_found_by_label_and_by_position(table: RowTable) -> None:
    assert table["row3"] == table[3] == list(table)[3]
    assert len(table) == 20
    with pytest.raises(KeyError):
        table["none"]
    frame = table.to_frame()
    assert frame.columns == ["row", "used", "limit", "slack", "price", "gap_share"]
    assert frame["row"].to_list() == list(table.labels)


def test_text_shows_the_most_priced_rows_and_counts_the_others(table: RowTable) -> None:
    lines = repr(table).split("\n")
    assert len(lines) == 14
    assert lines[-1] == "and 8 more"
    assert len({len(line) for line in lines[:-1]}) == 1
    first = max(table, key=lambda row: row.price * abs(row.limit))
    assert lines[1].split()[0] == first.label


def test_prices_are_a_mapping_that_costs_no_more_than_an_array() -> None:
    labels = tuple(f"row{k}" for k in range(100_000))
    prices = RowPrices(labels, np.arange(100_000.0))
    assert prices["row99999"] == 99999.0
    assert len(prices) == 100_000
    assert next(iter(prices)) == "row0"
    assert "none" not in prices
    assert repr(prices).endswith("and 99995 more}")
    again = pickle.loads(pickle.dumps(RowPrices(labels[:7], np.arange(7.0))))
    assert dict(again) == {f"row{k}": float(k) for k in range(7)}
    assert not again.values_.flags.writeable


@matrix(objective=[DELAY, HARMONIC, BINARY], seed=[0, *rare(*range(1, 12))])
def test_fairest_rates_are_proved_without_prices(objective: fo.Objective, seed: int) -> None:
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


def test_rates_inside_a_tree_of_many_groups() -> None:
    hosts, rng = 3000, np.random.default_rng(4)
    host = np.repeat(np.arange(hosts), 2)
    sources = fo.Sources(rng.lognormal(size=2 * hosts), rng.lognormal(size=2 * hosts))
    reserve = dict(enumerate((10.0 ** rng.uniform(-3.0, 3.0, hosts)).tolist()))
    limit = {key: 3.0 * value for key, value in reserve.items()}
    problem = fo.Problem(HARMONIC, sources, constraints=[fo.Nested([host], at_most=limit, at_least=reserve)])
    program = present(problem.program)
    deepest = interior_points(program)[-1]
    used = np.add.reduceat(deepest, np.arange(0, 2 * hosts, 2))
    least = np.array(list(reserve.values()))
    assert np.all((used > least) & (used < 3.0 * least))
    # Halfway, every group is a whole reserve away from both.
    assert np.all(np.minimum(used / least - 1.0, 3.0 - used / least) > 0.1)


V = 1e-8
# Source 1 has this share of its optimal rate: its cost is .5 % more.
SHARE = 1.0 / 1.005


def conflicting(left: float) -> tuple[fo.Problem, float, dict[str, float]]:
    """Return the problem, its optimal ρ_1, and the prices at the optimum."""
    limit = (1.0 + math.sqrt(V)) ** 2 * (1.0 + left)
    half = 0.5 * (limit - 1.0 + V)
    best = half + math.sqrt(half * half - V * limit)
    first = limit - best
    weights = np.array([1.0, V])
    problem = fo.Problem(
        DELAY,
        fo.Sources(change_rate=[1.0, 1.0], importance=[0.0, 1.0]),
        bandwidth=limit,
        constraints=[
            lambda rate: [(cp.sum(cp.multiply(weights, cp.inv_pos(rate))) <= 1.0).set_label("target")]
        ],
    )
    # y_B = y_T/ρ_0², and y_B − y_T v/ρ_1² = 1/ρ_1².
    target = (1.0 / best**2) / (1.0 / first**2 - V / best**2)
    return problem, best, {"bandwidth": target / first**2, "target": target}


@pytest.mark.parametrize("left", [1e-6, 1e-7])
def test_large_prices_of_a_near_conflict_hide_no_loss(left: float) -> None:
    problem, best, prices = conflicting(left)
    poor = SHARE * best
    # Between what the target asks of source 0 and what the budget leaves.
    rates = np.array([0.5 * (1.0 / (1.0 - V / poor) + problem.bandwidth - poor), poor])
    found = fo.certify(problem, rates, prices=prices)
    assert found.infeasibility == 0.0
    assert found.gap >= 1.0 / poor - 1.0 / best
    loss = best / poor - 1.0
    assert found.relative_gap >= loss
    # Against the prices alone the loss is nothing, or this test could not fail.
    gap = RowGap.of(present(problem.program), rates)
    assert (
        relative_row_gap(
            gap, np.array([prices[label] for label in present(problem.program).rows.labels])
        ).relative
        < 1e-3 * loss
    )
    # The optimum itself is proved nevertheless.
    assert (
        fo.certify(problem, np.array([problem.bandwidth - best, best]), prices=prices).gap <= 1e-3 * found.gap
    )
