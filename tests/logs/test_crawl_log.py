"""Crawl logs and histories of changes."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshopt.errors import SourceDataError
from freshopt.estimators import FullObservation, GammaPrior, MaximumLikelihood
from freshopt.logs import ChangeHistory, read_history, source_index
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.source_index import code_sources
from tests.ground_truth.refusals import present, refused, refusing
from tests.ground_truth.tolerances import EXACT, SCALAR


def test_rows_are_sorted_by_source_and_time() -> None:
    log = CrawlLog(
        source=["b", "a", "b", "a"],
        time=[3.0, 2.0, 1.0, 0.5],
        changed=[1, 0, 0, 1],
        changes=[4, 0, 9, np.nan],
    )
    assert log.names.tolist() == ["a", "b"]
    assert log.offsets.tolist() == [0, 2, 4]
    assert log.time.tolist() == [0.5, 2.0, 1.0, 3.0]
    assert log.changed.tolist() == [False, False, False, True]  # a's first row is a baseline
    np.testing.assert_array_equal(log.interval, [np.nan, 1.5, np.nan, 2.0])
    np.testing.assert_array_equal(log.changes, [np.nan, 0.0, np.nan, 4.0])
    assert log.source_index.tolist() == [0, 0, 1, 1]
    assert (log.end, log.last_crawl.tolist(), len(log), log.origin) == (3.0, [2.0, 3.0], 4, None)


@given(st.data())
def test_any_row_order_gives_the_same_log(data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.tuples(st.integers(-3, 3), st.integers(-50, 50)), unique=True, min_size=1))
    shuffled = data.draw(st.permutations(range(len(keys))))
    source, time = np.array(keys, dtype=np.int64).T
    changed = source + time > 0
    one = CrawlLog(source, time / 7, changed)
    other = CrawlLog(source[shuffled], time[shuffled] / 7, changed[shuffled])
    for field in ("names", "offsets", "time", "interval", "changed"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    assert np.isnan(one.interval).sum() == len(one.names)
    expected = sorted(keys)
    assert list(zip(one.names[one.source_index], np.rint(one.time * 7), strict=True)) == expected


def test_arrays_are_read_only_and_the_callers_are_untouched() -> None:
    time, changed = np.array([0.0, 1.0]), np.array([True, True])
    log = CrawlLog(np.array([5, 5]), time, changed)
    for field in ("names", "offsets", "time", "interval", "changed"):
        assert not getattr(log, field).flags.writeable
    assert time.flags.writeable
    assert changed.tolist() == [True, True]
    with pytest.raises(AttributeError):
        log.time_unit = "hour"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("start", "gaps"),
    [
        (0.0, [1.0, 1.0, 3.0]),
        ([0.5, np.nan], [0.5, 1.0, np.nan]),
        ([1.0, 0.0], [np.nan, 1.0, 3.0]),  # a crawl at the start is the baseline
    ],
)
def test_start_gives_the_first_gaps(start: npt.ArrayLike, gaps: list[float]) -> None:
    log = CrawlLog(["a", "a", "b"], [1.0, 2.0, 3.0], [1, 0, 1], start=start)
    np.testing.assert_array_equal(log.interval, gaps)
    np.testing.assert_array_equal(log.changed, [not np.isnan(gaps[0]), False, not np.isnan(gaps[2])])


@pytest.mark.parametrize(
    "time",
    [
        np.array(["2024-03-01T18:00:00", "2024-03-03T06:00:00"], dtype="datetime64[s]"),
        np.array(["2024-03-01T18", "2024-03-03T06"], dtype="datetime64[h]"),
        np.array(["2024-03-01T18", "2024-03-03T06"], dtype="datetime64[6h]"),
        np.array(["2024-03-01T18", "2024-03-03T06"], dtype="datetime64[ns]"),
        [datetime(2024, 3, 1, 18), datetime(2024, 3, 3, 6)],  # naive is UTC
        [datetime(2024, 3, 1, 18, tzinfo=UTC), datetime(2024, 3, 3, 8, tzinfo=timezone(timedelta(hours=2)))],
        ["2024-03-01T18:00Z", "2024-03-03 08:00:00.000+0200"],
        np.array(["2024-03-01T18:00:00Z", "2024-03-03T06:00:00+00:00"]),
    ],
)
def test_dates_count_from_midnight_of_the_first_day(time: npt.NDArray[Any] | list[Any]) -> None:
    log = CrawlLog(["a", "a"], time, [0, 1], time_unit="hour", start=time[0])
    assert log.origin == datetime(2024, 3, 1, tzinfo=UTC)
    assert log.time.tolist() == [18.0, 54.0]
    np.testing.assert_array_equal(log.interval, [np.nan, 36.0])


def test_plain_dates_are_midnights() -> None:
    log = CrawlLog(["a", "b"], [date(2024, 3, 1), date(2024, 3, 4)], [0, 0])
    assert (log.origin, log.time.tolist()) == (datetime(2024, 3, 1, tzinfo=UTC), [0.0, 3.0])


def test_nanoseconds_survive_in_days() -> None:
    time = np.datetime64("2026-07-01T12:00", "ns") + np.array([0, 1, 1_000_000_001])
    log = CrawlLog(["a"] * 3, time, [0, 0, 0])
    np.testing.assert_allclose(log.interval[1:] * 86400e9, [1, 1e9], rtol=1e-1 * EXACT, atol=0.02)


def test_elapsed_takes_the_place_of_time_differences() -> None:
    columns: dict[str, Any] = {
        "source": [7, 8, 7, 8],
        "changed": [1, 1, 0, 1],
        "elapsed": [2.0, np.nan, 0.25, 3.0],
        "remark": ["ignored"] * 4,
    }
    log = CrawlLog.from_columns(columns)
    np.testing.assert_array_equal(log.interval, [2.0, 0.25, np.nan, 3.0])
    np.testing.assert_array_equal(log.time, [2.0, 2.25, 0.0, 3.0])
    assert log.changed.tolist() == [True, False, False, True]
    timed = CrawlLog.from_columns({**columns, "time": [9.0, 1.0, 5.0, 2.0]})
    np.testing.assert_array_equal(timed.interval, [0.25, 2.0, np.nan, 3.0])
    assert timed.time.tolist() == [5.0, 9.0, 1.0, 2.0]


def test_added_up_times_do_not_mix_sources() -> None:
    rng = np.random.default_rng(3)
    source, gaps = rng.integers(0, 40, 5000), rng.exponential(1.0, 5000) + 1e-3
    log = CrawlLog.from_columns({"source": source, "changed": np.zeros(5000), "elapsed": gaps})
    for k, name in enumerate(log.names):
        part = slice(log.offsets[k], log.offsets[k + 1])
        np.testing.assert_allclose(log.time[part], np.cumsum(gaps[source == name]), rtol=EXACT)


@pytest.mark.parametrize("few", [0, 10**9])
@pytest.mark.parametrize("kind", [list, np.array, lambda names: np.array(names, dtype=object)])
def test_names_are_coded_as_by_sorting(
    monkeypatch: pytest.MonkeyPatch, few: int, kind: Callable[[list[str]], npt.ArrayLike]
) -> None:
    monkeypatch.setattr(source_index, "FEW", few)
    names = ["b", "b", "ä", "a", "B", "", "b", "🦊", "~"]
    labels, codes = code_sources(kind(names))
    assert labels.tolist() == sorted(set(names))
    assert labels[codes].tolist() == names


@pytest.mark.parametrize("few", [0, 10**9])
def test_names_that_numpy_or_utf8_cannot_hold(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(source_index, "FEW", few)
    names = ["b", "\ud800", "a", "b", "\uffff", "\U0001f98a"]
    labels, codes = code_sources(names)
    assert labels.tolist() == sorted(set(names))
    assert labels[codes].tolist() == names
    with pytest.raises(SourceDataError, match=r"source 'a\\x00' ends in a zero byte"):
        code_sources(["a", "a\0"])  # as an array of NumPy both are "a"


TEXT = "T" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "U"  # strings of any length, since NumPy 2


@pytest.mark.parametrize(
    ("source", "labels"),
    [
        (np.array([10, 9], dtype=object), [9, 10]),
        (np.array([10, 9], dtype=np.uint8), [9, 10]),
        (
            np.array(["b", "a"], dtype=TEXT),
            ["a", "b"],
        ),
    ],
)
def test_other_columns_of_labels(source: npt.NDArray[Any], labels: list[Any]) -> None:
    time = np.array([1, 2.5], dtype=object)
    log = CrawlLog(source, time, [0, 0])
    assert (log.names.tolist(), log.time.tolist()) == (labels, [2.5, 1.0])


A2 = {"source": ["a", "a"], "time": [0.0, 1.0], "changed": [0, 1]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"time": [0.0, np.nan]}, ["time", "row 1", "'a'", "nan", "drop"]),
        ({"time": [np.inf, 1.0]}, ["time", "row 0", "'a'", "inf"]),
        ({"time": [2.0, 2.0]}, ["row 1", "'a'", "repeats the time of row 0", "Drop"]),
        ({"time": np.array(["2024-01-01", "NaT"], dtype="M8[D]")}, ["time", "row 1"]),
        ({"time": ["2024-01-01", "soon"]}, ["time", "'soon'", "row 1", "ISO 8601"]),
        ({"time": ["2024-01-01", "2024-02-30"]}, ["2024-02-30", "row 1"]),
        ({"time": ["1.5", "2024-02-03"]}, ["2024-02-03", "row 1", "one kind"]),
        ({"time": [date(2024, 1, 1), "2024-01-02"]}, ["row 1", "one kind"]),
        ({"time": [None, 1.0]}, ["time", "None", "row 0"]),
        ({"time": [True, False]}, ["time", "bool"]),
        ({"changed": [0, 2]}, ["changed", "row 1", "'a'", "2"]),
        ({"changed": [np.nan, None]}, ["changed is empty in all rows", "Write 1"]),
        ({"changed": ["no", "yes"]}, ["changed", "numbers"]),
        ({"changes": [np.nan, -1]}, ["changes", "row 1", "'a'", "-1"]),
        ({"changes": [np.nan, 1.5]}, ["changes", "row 1", "1.5"]),
        ({"changes": [np.nan, np.inf]}, ["changes", "row 1", "inf"]),
        ({"changes": [np.nan, 0]}, ["changes contradicts changed", "row 1", "'a'"]),
        ({"changed": [0, 0], "changes": [np.nan, 2]}, ["changes contradicts changed", "row 1"]),
        ({"changed": [1]}, ["(1,)", "(2,)"]),
        ({"source": [], "time": [], "changed": []}, ["no rows"]),
        ({"source": ["a", None]}, ["source", "NoneType"]),
        ({"source": ["a", 1]}, ["source", "int", "str"]),
        ({"source": [1.0, 2.0]}, ["source", "float64"]),
        ({"source": [2**70, 1]}, ["source", "64 bits"]),
        ({"source": [["a"], ["b"]]}, ["source (2, 1)"]),
        ({"start": 0.5}, ["start", "'a'", "0.5 > 0", "earlier"]),
        ({"start": -np.inf}, ["start", "'a'"]),
        ({"start": [0.0, 0.0]}, ["start", "(2,)"]),
        ({"start": "2024-01-01"}, ["start has dates", "numbers"]),
        ({"time_unit": "month"}, ["month", "day"]),
    ],
)
def test_refusals_name_the_row_and_the_source(change: dict[str, Any], words: list[str]) -> None:
    with refusing(*words):
        CrawlLog(**{**A2, **change})


@pytest.mark.parametrize(
    ("columns", "start", "words"),
    [
        ({"source": ["a"], "changed": [0]}, None, ["no column time"]),
        ({"time": [0.0]}, None, ["no column source, changed"]),
        ({**A2, "elapsed": [1.0, 0.0]}, None, ["elapsed", "row 1", "> 0"]),
        ({**A2, "elapsed": [-1.0, 1.0]}, None, ["elapsed", "row 0"]),
        ({**A2, "elapsed": [1.0, np.nan]}, None, ["elapsed is missing", "row 1"]),
        ({**A2, "elapsed": [1.0, 1.0]}, 0.0, ["both start and elapsed"]),
    ],
)
def test_refused_columns(columns: dict[str, Any], start: float | None, words: list[str]) -> None:
    with refusing(*words):
        CrawlLog.from_columns(columns, start=start)


@pytest.mark.parametrize(
    ("time", "unit"),
    [
        ([1_788_220_800, 1_788_307_200], "second"),
        ([20_697, 20_698], "day"),  # days since 1970
        ([0.0, 2e9], "day"),  # a simulated log that runs for long
    ],
)
def test_numbers_that_may_be_what_they_say_are_accepted(time: list[float], unit: str) -> None:
    assert CrawlLog(["a", "a"], time, [0, 1], time_unit=unit).interval[1] == time[1] - time[0]


def test_a_frame_in_place_of_a_log_is_told_what_makes_one_of_it() -> None:
    for learn, wrong in ((MaximumLikelihood().fit, [1]), (GammaPrior.from_log, pl.DataFrame(A2))):
        refused(r"log is of type .*freshopt.read_log makes one", learn, wrong)


def test_a_long_list_of_offenders_is_cut_and_keeps_the_original_rows() -> None:
    source = ["b"] * 4 + ["a"] * 4
    with pytest.raises(SourceDataError, match=r"row 0 \(source 'b'\): 5, row 1.* and 3 more"):
        CrawlLog(source, np.arange(8.0)[::-1], [0, 1] * 4, changes=[5.0, 0.0] * 4, start=-1.0)


def test_repr_is_one_line() -> None:
    assert repr(CrawlLog([3], [1.0], [0])) == "CrawlLog(1 crawl of 1 source over 0 days, 0 found a change)"


def test_crawl_rates_are_counts_over_sums() -> None:
    """With baselines and without, the last source crawled once: source by source, in exact sums."""
    rng = np.random.default_rng(8)
    for last in (1, 3):
        sizes = [*rng.choice([1, 1, 2, 7], 30).tolist(), last]
        source = np.repeat(np.arange(31), sizes)
        elapsed = rng.exponential(1.0, len(source))
        first = np.cumsum(sizes) - sizes
        elapsed[first[::2]] = np.nan
        log = CrawlLog.from_columns({"source": source, "elapsed": elapsed, "changed": np.zeros(len(source))})
        for k, rate in enumerate(log.crawl_rate.tolist()):
            known = [gap for gap in elapsed[source == k].tolist() if gap == gap]
            if known:
                assert rate == pytest.approx(len(known) / math.fsum(known), rel=1e-14)
            else:
                assert math.isnan(rate)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(0.0, 10.0)), max_size=30),
    st.sampled_from(["second", "hour", "day", "week"]),
    st.none() | st.floats(0.05, 20.0),
)
def test_full_observation_learns_counts_over_time_watched(
    rows: list[tuple[int, float]], unit: str, every: float | None
) -> None:
    source, time = [k for k, _ in rows], [t for _, t in rows]
    end = np.array([10.0, 11.0, 12.0, 13.0, 14.0])
    made = ChangeHistory(
        np.array(source, dtype=int), np.array(time), 0.0, end, names=range(5), time_unit=unit
    )
    assert made.changes.tolist() == [source.count(k) for k in range(5)]
    log = made.to_log(every)
    if every is not None:
        assert np.nanmax(log.interval) <= every * (1 + 1e-5)
    at = log.offsets[:-1][np.array(source, dtype=int)].tolist()
    for k, t, begin in zip(
        source, time, at, strict=True
    ):  # each change is counted by the crawl that follows it
        after = begin + max(1, int(np.searchsorted(log.time[begin : log.offsets[k + 1]], t)))
        assert present(log.changes)[after] > 0 or log.time[after - 1] == pytest.approx(t, abs=1e-9)
    model = FullObservation(smoothing=0).fit(log)
    np.testing.assert_allclose(model.change_rate_, made.changes / end, rtol=SCALAR)
    also = MaximumLikelihood(smoothing=0).fit(log)
    np.testing.assert_allclose(also.change_rate_, made.changes / end, rtol=SCALAR)


def test_rows_are_sorted_and_dates_are_counted_from_a_midnight() -> None:
    times = [datetime(2024, 1, 3, 12), datetime(2024, 1, 2, 6), datetime(2024, 1, 2, 18)]
    made = ChangeHistory(
        ["b", "a", "b"], times, start=date(2024, 1, 1), end=date(2024, 1, 5), time_unit="hour"
    )
    assert made.origin == datetime(2024, 1, 2, tzinfo=UTC)
    assert made.offsets.tolist() == [0, 1, 3]
    assert made.time.tolist() == [6.0, 18.0, 36.0]
    assert (made.start.tolist(), made.end.tolist()) == ([-24.0, -24.0], [72.0, 72.0])
    log = made.to_log()
    assert log.origin == datetime(2024, 1, 1, tzinfo=UTC)
    assert np.nansum(present(log.changes)) == 3
    np.testing.assert_array_equal(log.interval[~np.isnan(log.interval)], [96.0, 96.0])


def test_a_source_watched_for_no_time_has_a_baseline_only() -> None:
    made = ChangeHistory(["a"], [1.0], start=[0.0, 5.0], end=5.0, names=["a", "b"])
    model = FullObservation().fit(made.to_log())
    assert model.flag_.tolist() == ["ok", "baseline only"]
    empty = ChangeHistory([], [], start="2024-01-01", end="2024-03-01", names=["q"])
    assert repr(empty) == "ChangeHistory(0 changes of 1 source over 60 days)"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": ["a"], "time": [1.0, 2.0]}, "source has 1 entries but time has shape"),
        ({"source": [], "time": []}, "no changes. Pass at least one"),
        ({"source": ["a", "b"], "time": [1.0, np.nan]}, r"row 1 \(source 'b'\)"),
        (
            {"source": ["a"], "time": [1.0], "start": 2.0, "end": 3.0},
            r"outside the time watched in row 0 \(source 'a'\): 1",
        ),
        ({"source": ["a"], "time": [1.0], "start": 3.0, "end": 2.0}, "'a' has start 3 after its end 2"),
        ({"source": ["a"], "time": [1.0], "start": np.inf}, "start is not a finite time"),
        ({"source": ["a"], "time": [1.0], "start": [0.0, 0.0]}, "start has shape"),
        (
            {"source": ["a"], "time": [1.0], "start": "2024-01-01"},
            "start has dates but the log's times are numbers",
        ),
        ({"source": ["a"], "time": [1.0], "names": ["b"]}, "source 'a' changed but is not among names"),
        ({"source": ["a"], "time": [1.0], "time_unit": "month"}, "time_unit 'month'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(arguments: dict[str, Any], words: str) -> None:
    refused(words, ChangeHistory, **arguments)


def test_frames_of_every_library() -> None:
    zoned = pl.Series([datetime(2024, 1, 1, 2), datetime(2024, 1, 3, 2)]).dt.replace_time_zone("Europe/Paris")
    frame = pl.DataFrame(
        {"source": ["b", "a"], "time": zoned, "changed": [True, False], "colour": ["red", "blue"]}
    )
    frames = [
        frame,
        frame.with_columns(pl.col("source").cast(pl.Categorical)),
        frame.to_pandas(),
        frame.to_arrow(),
    ]
    frames.append(frame.to_pandas().astype({"source": "category"}))
    for each in frames:
        log = CrawlLog.from_frame(each, time_unit="hour")
        assert log.names.tolist() == ["a", "b"]
        assert log.origin == datetime(2024, 1, 1, tzinfo=UTC)
        assert log.time.tolist() == [49.0, 1.0]
        made = ChangeHistory.from_frame(each)
        assert (made.changes.tolist(), made.origin) == ([1, 1], log.origin)
    elapsed = pl.DataFrame(
        {"source": [1, 1], "elapsed": [0.5, 0.25], "changed": [1, 1], "changes": [2.0, None]}
    )
    np.testing.assert_array_equal(CrawlLog.from_frame(elapsed).interval, [0.5, 0.25])
    np.testing.assert_array_equal(CrawlLog.from_frame(elapsed.to_pandas()).changes, [2.0, np.nan])


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"source": ["a"]}, "the log is a dict, not a dataframe"),
        (pl.DataFrame({"source": ["a"]}).lazy(), "the log has no column 'changed', 'time'"),
        (
            pl.DataFrame({"source": ["a"], "time": [1.0]}),
            "the log has no column 'changed'; it has 'source', 'time'",
        ),
        (pl.DataFrame({"source": ["a"], "changed": [1]}), "the log has no column 'time'"),
        (
            pl.DataFrame({"source": ["a", None], "time": [1.0, 2.0], "changed": [1, 1]}),
            "source is empty in row 1",
        ),
    ],
)
def test_unusable_frames(frame: object, words: str) -> None:
    refused(words, CrawlLog.from_frame, frame)


def test_history_files(tmp_path: Path) -> None:
    frame = pl.DataFrame({"source": ["b", "a", "b"], "time": [3.0, 1.0, 2.0], "kind": [0, 1, 2]})
    frame.write_csv(tmp_path / "h.csv")
    frame.write_parquet(tmp_path / "h.parquet")
    for name in ("h.csv", "h.parquet"):
        made = read_history(tmp_path / name, 0.0, 4.0)
        assert (made.names.tolist(), made.time.tolist()) == (["a", "b"], [1.0, 2.0, 3.0])
    for text, words in (
        ("source,moved\na,1\n", "h.csv has no column 'time'"),
        ("source,time\n", "no rows"),
        ("source,time\na,soon\n", "row 1, line 2 of .*h.csv"),
        ("source,time\na,1\n,2\n", "source is empty in row 2, line 3"),
    ):
        (tmp_path / "h.csv").write_text(text)
        refused(words, read_history, tmp_path / "h.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("changed\na,1,1\na,2,0\n", "changed is 0 in row 2, line 3"),
        ("status\na,1,304\nb,1,304\n", "status is 304 in row 1, line 2"),
        ("status\na,1,200\na,3,200\na,2,304\n", "status is 304 in row 3, line 4"),
        ("HTTP Status,hash\na,1,200,x\na,2,200,x\n", "hash is x in row 2, line 3"),
        ('etag,changed\na,1,W/"x",1\na,2,x,\n', "etag is x in row 2, line 3"),
    ],
)
def test_crawls_that_found_no_change_are_no_history(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(f"source,time,{text}")
    refused(f"{words} of .*without change.* as a log, as freshopt plan", read_history, tmp_path / "h.csv")


@pytest.mark.parametrize(
    "text",
    [
        "changed,status\na,1,1,304\na,2,yes,200\n",
        "status,sha\na,1,M,1\na,2,M,2\na,2,M,2\n",
        "http_status,status_code\na,1,304,1\na,2,304,2\n",
    ],
)
def test_changes_with_other_columns_are_a_history(text: str, tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text(f"source,time,{text}")
    assert len(read_history(tmp_path / "h.csv")) == text.count("a,")


@pytest.mark.parametrize("every", [0.0, -1.0, np.nan, np.inf])
def test_gaps_of_its_log_have_a_length(every: float) -> None:
    refused("Pass the length of a gap > 0", ChangeHistory(["a"], [1.0], 0.0, 2.0).to_log, every)
