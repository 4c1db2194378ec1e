import math

import numpy as np
import numpy.typing as npt
import pytest

from freshopt.compiled.rows.row_products import Entries, row_products, source_prices

Floats = npt.NDArray[np.float64]


def drawn(n: int, m: int, kinds: int, seed: int = 0) -> tuple[Entries, Floats]:
    """Return entries of both signs over 1e±8, some of weight 0, and values; sources may have none."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, n)
    first = np.concatenate(([0], np.cumsum(counts)))
    size = int(first[-1])
    entries = Entries(
        first,
        rng.integers(0, m, size).astype(np.int32),
        rng.integers(0, kinds, size).astype(np.int32),
        rng.choice([-1.0, 0.0, 1.0], size, p=[0.3, 0.1, 0.6]) * 10.0 ** rng.uniform(-8.0, 8.0, size),
    )
    return entries, 10.0 ** rng.uniform(-8.0, 8.0, (kinds, n))


@pytest.mark.parametrize("kinds", [1, 3])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (10, 3), (3000, 7), (50, 12_000)])
def test_sums_are_right_to_an_ulp_of_their_parts(n: int, m: int, kinds: int) -> None:
    entries, values = drawn(n, m, kinds)
    used, added = row_products(entries, values, m)
    source = np.repeat(np.arange(n), np.diff(entries.first))
    amounts = entries.coefficient * values[entries.kind, source]
    exact = np.array([math.fsum(amounts[entries.row == j]) for j in range(m)])
    parts = np.array([math.fsum(abs(amounts[entries.row == j])) for j in range(m)])
    # Products are rounded alike; sums lose no more than the rounding of the last addition.
    assert np.all(np.abs(used - exact) <= 4e-16 * np.abs(exact) + 1e-28 * parts)
    np.testing.assert_allclose(added, parts, rtol=1e-12)


@pytest.mark.parametrize("kinds", [1, 3])
def test_prices_are_those_of_a_dense_matrix(kinds: int) -> None:
    entries, values = drawn(400, 9, kinds, seed=1)
    y = np.random.default_rng(2).random(9)
    matrix = np.zeros((kinds, 400, 9))
    source = np.repeat(np.arange(400), np.diff(entries.first))
    np.add.at(matrix, (entries.kind, source, entries.row), entries.coefficient)
    found = source_prices(entries, y, kinds)
    np.testing.assert_allclose(found, matrix @ y, rtol=1e-14, atol=1e-14 * float(np.max(np.abs(matrix))))
    assert found.shape == values.shape


def test_infinite_values_count_unless_their_weight_is_zero() -> None:
    ints = np.zeros(2, dtype=np.int32)
    entries = Entries(np.array([0, 1, 2]), np.array([0, 1], dtype=np.int32), ints, np.array([1.0, 0.0]))
    used, added = row_products(entries, np.full((1, 2), np.inf), 2)
    assert used.tolist() == [np.inf, 0.0]
    assert added.tolist() == [np.inf, 0.0]
    used, _ = row_products(entries, np.array([[np.nan, 1.0]]), 2)
    assert np.isnan(used[0])


def test_bits_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    entries, values = drawn(40_000, 5, 2, seed=3)
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("FRESHOPT_THREADS", threads)
        found.append((*row_products(entries, values, 5), source_prices(entries, np.ones(5), 2)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_read_only_and_strided_columns_are_taken() -> None:
    entries, values = drawn(100, 3, 1)
    expected, _ = row_products(entries, values, 3)
    wide = np.repeat(values, 2, axis=1)[:, ::2]
    for column in entries:
        column.flags.writeable = False
    np.testing.assert_array_equal(row_products(entries, wide, 3)[0], expected)
