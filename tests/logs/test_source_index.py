"""Names told apart by hashes and rows sorted by counting: against NumPy's unique and lexsort."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from freshopt.errors import SourceDataError, SourceDataWarning
from freshopt.logs import source_index
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.source_index import code_integers, code_names, sorted_rows
from freshopt.numerics.arrays import CHUNK


@pytest.fixture(params=[(1, "1"), (1, "0"), (10**9, "1")], ids=["compiled", "NumPy", "few"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort as long logs are sorted, compiled and not, and as short ones; the table grows on the way."""
    monkeypatch.setenv("FRESHOPT_COMPILED", request.param[1])
    monkeypatch.setattr(source_index, "MANY", request.param[0])
    monkeypatch.setattr(source_index, "TOGETHER", 1000)
    monkeypatch.setattr(source_index, "BITS", 2)


NAMES = [
    ["b", "a", "b", "", "ä", "a" * 300, "aa"],
    ["one"] * 5,
    [f"https://site{k % 7}.example/page/{(k * 7919) % 3001}" for k in range(9000)],
    [chr(0x10FFFF), "\ud7ff", "z", "\uffff", "z"],
]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.sampled(2)
def test_names_are_coded_as_by_numpy(names: list[str]) -> None:
    labels, codes = code_names(pl.Series(names, dtype=pl.String))
    expected, inverse = np.unique(np.array(names), return_inverse=True)
    assert labels.tolist() == expected.tolist()
    assert codes.tolist() == inverse.tolist()
    assert codes.dtype == np.int32


@pytest.mark.usefixtures("each_way")
def test_names_of_equal_hashes_are_told_apart_by_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    "numbers",
    [
        np.array([3, 3, 5, 4, 3], dtype=np.int32),
        np.array([9, -9, 7], dtype=np.int64),
        np.array([-(2**63), 2**63 - 1, 0]),
        np.array([2**64 - 1, 2**64 - 3], dtype=np.uint64),
        np.tile(np.arange(-128, 128, 3), 5).astype(np.int8),
        np.tile(np.arange(-128, 128), 5).astype(np.int8),
    ],
)
def test_integers_are_coded_as_by_numpy(numbers: np.typing.NDArray[np.int64]) -> None:
    labels, codes = code_integers(numbers)
    expected, inverse = np.unique(numbers, return_inverse=True)
    assert labels.dtype == numbers.dtype
    assert labels.tolist() == expected.tolist()
    assert codes.tolist() == inverse.tolist()


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("mixed", [0.0, 0.2, 1.0])
def test_rows_are_sorted_as_by_lexsort(mixed: float) -> None:
    """Of some sources the rows are in order of time already; some have no rows, some equal times."""
    rng = np.random.default_rng(3)
    n, rows = 300, 5000
    codes = (2 * rng.integers(0, n // 2, rows)).astype(np.int32)
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
    for column in ("names", "offsets", "time", "interval", "changed"):
        np.testing.assert_array_equal(getattr(by_time, column), getattr(by_source, column))


@pytest.mark.parametrize("place", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK])
def test_what_is_wrong_between_two_stretches_is_seen(place: int) -> None:
    """A time that is repeated, and rows of a source that stand apart."""
    rows = 2 * CHUNK + 5
    time, source = np.arange(float(rows)), np.zeros(rows, dtype=np.int64)
    time[place] = time[place - 1]
    with pytest.raises(SourceDataError, match=f"row {place} .* repeats the time of row {place - 1}"):
        CrawlLog(source, time, np.arange(rows) == place)
    with pytest.warns(SourceDataWarning, match=rf"1 row repeated and left out, such as row {place} \("):
        assert len(CrawlLog(source, time, np.zeros(rows, dtype=np.bool_))) == rows - 1
    source[place:] = 1
    assert CrawlLog(source, time, np.zeros(rows, dtype=np.bool_)).offsets.tolist() == [0, place, rows]
    other = CrawlLog(1 - source, time, np.zeros(rows, dtype=np.bool_))
    assert other.offsets.tolist() == [0, rows - place, rows]
    assert other.time.tolist() == [*time[place:].tolist(), *time[:place].tolist()]


def test_times_of_many_moments_are_those_of_each() -> None:
    ticks = np.arange(3 * CHUNK) * 86_400_000_001
    moments = ticks.view("datetime64[us]")
    moments[[0, CHUNK, 3 * CHUNK - 1]] = np.datetime64("NaT")
    found = Clock.beginning("day", "1969-12-31").offsets(moments, "time")
    assert np.flatnonzero(np.isnan(found)).tolist() == [0, CHUNK, 3 * CHUNK - 1]
    for k in (1, CHUNK - 1, CHUNK + 1, 2 * CHUNK, 3 * CHUNK - 2):
        assert found[k] == (86_400_000_001 * k + 86_400_000_000) / 86_400e6
