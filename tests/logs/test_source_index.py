"""Names told apart by hashes and rows sorted by counting: against NumPy's unique and lexsort."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from freshopt.logs import source_index
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.source_index import code_names, sorted_rows


@pytest.fixture(params=[1, 10**9])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort as long logs are sorted, and as short ones."""
    monkeypatch.setattr(source_index, "MANY", request.param)


NAMES = [
    ["b", "a", "b", "", "ä", "a" * 300, "aa"],
    ["one"] * 5,
    [f"https://site{k % 7}.example/page/{(k * 7919) % 3001}" for k in range(9000)],
    [chr(0x10FFFF), "\ud7ff", "z", "\uffff", "z"],
]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("names", NAMES)
def test_names_are_coded_as_by_numpy(names: list[str]) -> None:
    labels, codes = code_names(pl.Series(names, dtype=pl.String))
    expected, inverse = np.unique(np.array(names), return_inverse=True)
    assert labels.tolist() == expected.tolist()
    assert codes.tolist() == inverse.tolist()
    assert codes.dtype == np.int64


def test_names_of_equal_hashes_are_told_apart_by_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_index, "MANY", 1)
    real = pl.Series.hash

    def short(self: pl.Series, seed: int = 0, *more: Any) -> pl.Series:  # noqa: ANN401
        """Of the first hash only three bits differ, the last ones."""
        hashed = real(self, seed, *more)
        return hashed if seed else pl.Series(hashed.to_numpy() & np.uint64(7))

    monkeypatch.setattr(pl.Series, "hash", short)
    names = [f"name {k % 50}" for k in range(200)]
    labels, codes = code_names(pl.Series(names))
    assert labels.tolist() == sorted(set(names))
    assert labels[codes].tolist() == names


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("mixed", [0.0, 0.2, 1.0])
def test_rows_are_sorted_as_by_lexsort(mixed: float) -> None:
    """Of some sources the rows are in order of time already; some have no rows, some equal times."""
    rng = np.random.default_rng(3)
    n, rows = 300, 5000
    codes = 2 * rng.integers(0, n // 2, rows)
    time = np.sort(rng.integers(0, 900, rows).astype(float))
    moved = np.flatnonzero(rng.random(n)[codes] < mixed)
    time[moved] = rng.permutation(time[moved])
    order, own, later = sorted_rows(codes, time, n)
    expected = np.lexsort((time, codes))
    assert order.tolist() == expected.tolist()
    assert own.tolist() == codes[expected].tolist()
    assert later.tolist() == time[expected].tolist()


@pytest.mark.usefixtures("each_way")
def test_a_log_by_time_is_that_by_source() -> None:
    rng = np.random.default_rng(4)
    names = np.repeat([f"s{k}" for k in range(40)], 25)
    time = np.cumsum(rng.exponential(1.0, (40, 25)), axis=1).ravel()
    changed = rng.random(1000) < 0.5
    order = np.argsort(time)
    by_time = CrawlLog(names[order], time[order], changed[order])
    by_source = CrawlLog(names, time, changed)
    for column in ("sources_", "offsets", "time", "interval", "changed"):
        np.testing.assert_array_equal(getattr(by_time, column), getattr(by_source, column))
