"""Rows of all sources as one table, against the same entries in any order."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from freshopt.separable.laminar import LaminarTree
from freshopt.separable.program import implied_upper
from freshopt.separable.rows import RowBlock, Rows


def budgets(n: int, m: int) -> tuple[list[RowBlock], list[RowBlock]]:
    """Budgets over all sources, and the same with their entries shuffled."""
    rng = np.random.default_rng(n)
    plain, shuffled, row = [], [], np.zeros(n, dtype=np.int64)
    for j in range(m):
        cost, order, limit = rng.lognormal(size=n), rng.permutation(n), rng.lognormal(size=1)
        plain.append(RowBlock.linear(f"{j}", (None,), np.arange(n), row, cost, limit))
        shuffled.append(RowBlock.linear(f"{j}", (None,), order, row, cost[order], limit))
    return plain, shuffled


def test_budgets_of_all_sources_are_gathered_as_their_entries_are() -> None:
    plain, shuffled = budgets(500, 3)
    one, other = Rows.gather(plain, 500), Rows.gather(shuffled, 500)
    for field in fields(Rows):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        else:
            assert a == b
    assert one.dense
    assert other.dense


def test_rows_that_lack_a_source_are_no_table() -> None:
    plain, _ = budgets(500, 2)
    few = RowBlock.linear(
        "few", (None,), np.arange(499), np.zeros(499, dtype=np.int64), np.ones(499), np.ones(1)
    )
    assert not Rows.gather([*plain, few], 500).dense
    assert not Rows.gather([], 500).dense


def test_implied_bounds_are_twice_what_the_tightest_row_leaves() -> None:
    plain, shuffled = budgets(400, 3)
    lower = np.where(np.arange(400) % 7 == 0, 1e-4, 0.0)
    for least in (np.zeros(400), lower):
        rows = Rows.gather(shuffled, 400)
        room = [block.limits[0] - block.coefficient @ least for block in plain]
        each = [np.maximum(0.0, left) / block.coefficient for left, block in zip(room, plain, strict=True)]
        found = implied_upper(rows, least, np.full(400, np.inf))
        np.testing.assert_allclose(found, least + 2.0 * np.min(each, axis=0), rtol=1e-14)


def test_costs_that_differ_late_are_no_tree_either() -> None:
    n = 3000
    cost, row = np.ones(n), np.zeros(n, dtype=np.int64)
    other = np.where(np.arange(n) < n - 1, 2.0, 3.0)
    blocks = [RowBlock.linear("a", (None,), np.arange(n), row, cost, np.ones(1))]
    twice = RowBlock.linear("b", (None,), np.arange(n), row, 2.0 * cost, np.ones(1))
    differs = RowBlock.linear("b", (None,), np.arange(n), row, other, np.ones(1))
    assert LaminarTree.from_rows(Rows.gather([*blocks, twice], n)) is not None
    assert LaminarTree.from_rows(Rows.gather([*blocks, differs], n)) is None
