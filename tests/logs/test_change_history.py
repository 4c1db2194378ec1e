"""Histories of changes: what is accepted, what is refused, and that estimators learn the counts from it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshopt.errors import SourceDataError
from freshopt.estimators import FullObservation, MaximumLikelihood
from freshopt.logs import ChangeHistory, read_history
from freshopt.logs.crawl_log import CrawlLog
from tests.ground_truth.tolerances import SCALAR


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
        np.array(source, dtype=int), np.array(time), 0.0, end, sources=range(5), time_unit=unit
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
        assert log.changes is not None
        assert log.changes[after] > 0 or log.time[after - 1] == pytest.approx(t, abs=1e-9)
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
    assert log.changes is not None
    assert np.nansum(log.changes) == 3
    np.testing.assert_array_equal(log.interval[~np.isnan(log.interval)], [96.0, 96.0])


def test_a_source_watched_for_no_time_has_a_baseline_only() -> None:
    made = ChangeHistory(["a"], [1.0], start=[0.0, 5.0], end=5.0, sources=["a", "b"])
    model = FullObservation().fit(made.to_log())
    assert model.flag_.tolist() == ["ok", "baseline only"]
    empty = ChangeHistory([], [], start="2024-01-01", end="2024-03-01", sources=["q"])
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
        ({"source": ["a"], "time": [1.0], "sources": ["b"]}, "source 'a' changed but is not among sources"),
        ({"source": ["a"], "time": [1.0], "time_unit": "month"}, "time_unit 'month'"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SourceDataError, match=words) as refusal:
        ChangeHistory(**arguments)
    assert "\n" not in str(refusal.value)


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
        assert log.sources_.tolist() == ["a", "b"]
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
        (pl.DataFrame({"source": ["a"]}).lazy(), "collected where it is lazy"),
        (
            pl.DataFrame({"source": ["a"], "time": [1.0]}),
            "the log has no column 'changed'; it has 'source', 'time'",
        ),
        (pl.DataFrame({"source": ["a"], "changed": [1]}), "the log has no column time"),
        (
            pl.DataFrame({"source": ["a", None], "time": [1.0, 2.0], "changed": [1, 1]}),
            "drop rows without a source",
        ),
    ],
)
def test_unusable_frames(frame: object, words: str) -> None:
    with pytest.raises(SourceDataError, match=words):
        CrawlLog.from_frame(frame)


def test_history_files(tmp_path: Path) -> None:
    frame = pl.DataFrame({"source": ["b", "a", "b"], "time": [3.0, 1.0, 2.0], "kind": [0, 1, 2]})
    frame.write_csv(tmp_path / "h.csv")
    frame.write_parquet(tmp_path / "h.parquet")
    for name in ("h.csv", "h.parquet"):
        made = read_history(tmp_path / name, 0.0, 4.0)
        assert (made.sources_.tolist(), made.time.tolist()) == (["a", "b"], [1.0, 2.0, 3.0])
    for text, words in (
        ("source,when\na,1\n", "h.csv has no column 'time'"),
        ("source,time\n", "no rows"),
        ("source,time\na,soon\n", "row 1, line 2 of .*h.csv"),
        ("source,time\na,1\n,2\n", "source is empty in row 2, line 3"),
    ):
        (tmp_path / "h.csv").write_text(text)
        with pytest.raises(SourceDataError, match=words):
            read_history(tmp_path / "h.csv")


@pytest.mark.parametrize("every", [0.0, -1.0, np.nan, np.inf])
def test_gaps_of_its_log_have_a_length(every: float) -> None:
    with pytest.raises(SourceDataError, match="Pass the length of a gap > 0"):
        ChangeHistory(["a"], [1.0], 0.0, 2.0).to_log(every)
