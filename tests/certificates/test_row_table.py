from __future__ import annotations

import pickle

import numpy as np
import pytest

from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_table import RowPrices, RowTable
from tests.ground_truth.proof_programs import program_of
from tests.ground_truth.row_truth import Planted, planted
from tests.ground_truth.tolerances import EXACT


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
