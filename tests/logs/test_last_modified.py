"""Dates of last change, as they are sent: which are read and used, and which are left out and counted."""

import re
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import SourceDataError, SourceDataWarning
from freshopt.logs.last_modified import since_birth
from tests.ground_truth.refusals import present, refused

NAN = np.nan


def dates_of(time: list[float], changed: list[int], told: list[Any], **settings: Any) -> list[float]:  # noqa: ANN401
    """The dates that a log of one source keeps."""
    log = fo.CrawlLog(["a"] * len(time), time, changed, last_modified=told, **settings)
    return [NAN] * len(time) if log.last_modified is None else log.last_modified.tolist()


def assert_dates(found: list[float], expected: list[float]) -> None:
    np.testing.assert_array_equal(found, expected)


def test_a_state_has_the_first_date_that_its_rows_tell() -> None:
    # Baseline told by a later row; changed row told by itself, by the row after it, and not at all.
    time = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    changed = [0, 0, 1, 1, 0, 1, 0]
    told = [None, -2.0, 1.5, None, 2.25, None, None]
    assert_dates(dates_of(time, changed, told), [-2.0, NAN, 1.5, 2.25, NAN, NAN, NAN])


def test_dates_before_the_gap_or_at_the_crawl_are_left_out() -> None:
    assert_dates(dates_of([0, 1, 2, 3], [0, 1, 1, 1], [0.0, 0.0, 2.0, 2.5]), [NAN, NAN, NAN, 2.5])
    times = ["2026-01-01T00:00:00.4Z", "2026-01-02T00:00:00.4Z", "2026-01-03T00:00:00.4Z"]
    http = [None, "Fri, 02 Jan 2026 00:00:00 GMT", "Fri, 02 Jan 2026 00:00:01 GMT"]
    found = dates_of(times, [0, 1, 1], http)  # type: ignore[arg-type]
    assert np.isnan(found[:2]).all()
    assert found[2] == pytest.approx(1.0 + 1.0 / 86_400.0, rel=1e-15)


def test_counted_rows_need_no_date() -> None:
    log = fo.CrawlLog(["a"] * 2, [0.0, 2.0], [0, 1], changes=[0, 3], last_modified=[-1.0, 1.0])
    assert_dates(present(log.last_modified).tolist(), [-1.0, NAN])


def test_dates_that_contradict_a_crawl_are_left_out_and_counted() -> None:
    with pytest.warns(
        SourceDataWarning, match=r"after the crawl in 1 row, such as row 1 \(source 'a'\): 1.5"
    ):
        assert_dates(dates_of([0, 1, 2], [0, 1, 1], [-1, 1.5, 1.9]), [-1.0, NAN, 1.9])
    with pytest.warns(SourceDataWarning, match=r"found the same state in 1 row, such as row 2 .*'a'\): 1.5"):
        assert_dates(dates_of([0, 1, 2], [0, 1, 0], [-1, 0.5, 1.5]), [-1.0, 0.5, NAN])
    with pytest.warns(SourceDataWarning, match=r"last_modified is no date in 1 row, such as -inf in row 0"):
        assert_dates(dates_of([0, 1], [0, 1], [-np.inf, 0.5]), [NAN, 0.5])
    with pytest.raises(SourceDataError, match="last_modified needs the times"):
        fo.CrawlLog.from_columns({"source": ["a"], "elapsed": [1.0], "changed": [1], "last_modified": [0.0]})
    refused(r"dates but the log's times are numbers", dates_of, [0, 1], [0, 1], ["2026-01-01", None])


def test_pages_dated_now_lose_their_dates_with_one_warning() -> None:
    source = np.repeat(["now", "once", "good"], 5)
    time = np.tile(np.arange(5.0), 3)
    changed = np.tile([0, 0, 0, 0, 1], 3)
    told = np.tile([-1.0, -1.0, -1.0, -1.0, 3.5], 3)
    told[[1, 2]] = [0.999, 1.999]  # two of three unchanged rows
    with pytest.warns(SourceDataWarning, match=r"last_modified of 1 source .* in 2 rows: 'now'") as caught:
        log = fo.CrawlLog(source, time, changed, last_modified=told)
    assert len(caught) == 1
    kept = present(log.last_modified).reshape(3, 5)  # good, now, once
    assert_dates(kept[0].tolist(), [-1.0, NAN, NAN, NAN, 3.5])
    assert np.isnan(kept[1]).all()
    assert_dates(kept[2].tolist(), kept[0].tolist())
    told[[1, 2, 6]] = [-1.0, -1.0, 0.5]  # one lie alone is left out
    with pytest.warns(SourceDataWarning, match=r"row 6 \(source 'once'\)"):
        fo.CrawlLog(source, time, changed, last_modified=told)


def test_a_deployment_is_neither_change_nor_birth() -> None:
    n, sent = 100, 2.5 + 1e-4
    source, time = np.repeat(np.arange(n), 3), np.tile([4.0, 5.0, 6.0], n)
    changed, told = np.tile([0, 0, 1], n), np.tile([sent, sent, sent + 3.0], n)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log = fo.CrawlLog(source, time, changed, last_modified=told)
    assert log.last_modified is None
    np.testing.assert_allclose(log.interval.reshape(n, 3), np.tile([4.0 - sent, 1.0, 1.0], (n, 1)))
    assert not log.changed[::3].any()
    assert log.changed[2::3].all()  # a change that was found stays one, without a date
    # A deployment comes before the other rules: inside a gap found unchanged it is no contradiction.
    fo.CrawlLog(source, time, np.tile([0, 0, 0], n), last_modified=np.tile([-1.0, 4.25, 4.25], n))
    few = fo.CrawlLog(source[3:], time[3:], changed[3:], last_modified=told[3:])
    assert few.last_modified is not None
    days = np.tile([2.0, 2.0, 5.0], n)  # shared by chance
    whole = fo.CrawlLog(source, time, changed, last_modified=days)
    assert whole.last_modified is not None
    assert np.isnan(whole.interval[::3]).all()


def test_start_replaces_the_guess() -> None:
    settings = {"start": [-3.0, -3.0], "last_modified": [-1.0, 0.5, -3.0, None]}
    log = fo.CrawlLog(["a", "a", "b", "b"], [0.0, 1.0, 0.0, 1.0], [0, 1, 0, 0], **settings)  # type: ignore[arg-type]
    assert_dates(present(log.last_modified).tolist(), [-1.0, 0.5, NAN, NAN])
    assert log.changed.tolist() == [True, True, False, False]
    assert log.interval.tolist() == [3.0, 1.0, 3.0, 1.0]


def test_clocks_that_were_never_set_tell_nothing() -> None:
    times = ["2026-01-01T06:00:00Z", "2026-01-02T06:00:00Z"]
    assert np.isnan(dates_of(times, [0, 0], ["1970-01-01T00:00:00Z", None])).all()  # type: ignore[arg-type]


def test_files_have_the_column_in_every_form(tmp_path: Any) -> None:  # noqa: ANN401
    expected = [-1.0, 0.75, NAN]
    rows = 'a,2026-01-01T00:00Z,0,"{}"\na,2026-01-02T00:00Z,1,"{}"\na,2026-01-03T00:00Z,0,\n'
    forms = (
        ("2025-12-31", "2026-01-01T18:00:00Z"),
        ("Wed, 31 Dec 2025 00:00:00 GMT", "Thu, 01 Jan 2026 18:00:00 GMT"),
        ("31 Dec 2025 00:00 +0000", "2026-01-01T19:00:00+01:00"),
    )
    for form in forms:
        (tmp_path / "log.csv").write_text("source,time,changed,last_modified\n" + rows.format(*form))
        log = fo.read_log(tmp_path / "log.csv")
        assert_dates(present(log.last_modified).tolist(), expected)
    frame = pl.read_csv(tmp_path / "log.csv", try_parse_dates=True).with_columns(
        pl.col("last_modified").str.slice(0, 0).replace("", None)
    )
    frame.write_parquet(tmp_path / "log.parquet")
    assert fo.read_log(tmp_path / "log.parquet").last_modified is None
    (tmp_path / "log.csv").write_text("source,time,changed,last_modified\n" + rows.format("soon", ""))
    with pytest.warns(SourceDataWarning, match=r"no date in 1 row, such as 'soon' in row 1, line 2 of"):
        assert fo.read_log(tmp_path / "log.csv").last_modified is None


def test_frames_and_round_trips_keep_the_dates() -> None:
    frame = pl.DataFrame(
        {"source": ["a", "a"], "time": [0.0, 2.0], "changed": [0, 1], "last_modified": [None, 1.5]}
    )
    log = fo.CrawlLog.from_frame(frame)
    assert repr(log) == "CrawlLog(2 crawls of 1 source over 2 days, 1 found a change, 1 dated)"
    again = fo.CrawlLog(log.source_index, log.time, log.changed, last_modified=log.last_modified)
    np.testing.assert_array_equal(again.last_modified, log.last_modified)


def test_known_births_decide_what_first_dates_are() -> None:
    log = fo.CrawlLog(
        ["a", "b", "c", "d"], [9.0] * 4, [0] * 4, last_modified=[2.0, 1.0, None, 3.0], time_unit="hour"
    )
    born = since_birth(log, [0.0, 1.0, 4.0, NAN])
    assert_dates(born.interval.tolist(), [9.0, 8.0, NAN, NAN])
    assert born.changed.tolist() == [True, False, False, False]
    assert_dates(present(born.last_modified).tolist(), [2.0, NAN, NAN, 3.0])
    assert np.isnan(log.interval).all()
    refused("start is after the first crawl of 'b'", since_birth, log, [0.0, 10.0, 4.0, NAN])
    dated = fo.CrawlLog(["a"], ["2026-01-05"], [0], last_modified=["2026-01-04"])
    assert since_birth(dated, ["2026-01-01T12:00Z"]).interval.tolist() == [3.5]


def test_dates_in_messages_are_written_as_dates() -> None:
    times, dates = ["2026-01-05T06:00Z", "2026-01-12T06:00Z"], ["2026-03-01", None]
    with pytest.warns(SourceDataWarning, match=r"'a'\): 2026-03-01T00:00:00Z\. It is not used"):
        fo.CrawlLog(["a", "a"], times, [0, 0], last_modified=dates)


def test_days_among_moments_need_no_offset() -> None:
    """Warnings are errors here."""
    dates = ["2025-12-13T09:12:44Z", "2025-12-13"]
    log = fo.CrawlLog(["a", "b"], ["2026-01-05T06:00Z"] * 2, [0, 0], last_modified=dates)
    assert log.last_modified is not None
    assert log.last_modified[0] - log.last_modified[1] == pytest.approx(33164 / 86400, rel=1e-12)
    with pytest.warns(SourceDataWarning, match="offset"):
        fo.CrawlLog(["a", "b"], ["2026-01-05T06:00Z", "2026-01-05 06:00"], [0, 0])


TRUE = datetime(2023, 10, 4, 13, 44, 28, tzinfo=UTC)
# What a server sends for that moment.
READ = {
    "fixdate": "Wed, 04 Oct 2023 13:44:28 GMT",
    "one digit": "Wed, 4 Oct 2023 13:44:28 GMT",
    "RFC 850": "Wednesday, 04-Oct-23 13:44:28 GMT",
    "RFC 850, four digits": "Wed, 04-Oct-2023 13:44:28 GMT",
    "asctime": "Wed Oct  4 13:44:28 2023",
    "asctime, GMT": "Wed Oct 04 13:44:28 GMT 2023",
    "no zone": "Wed, 04 Oct 2023 13:44:28",
    "another zone": "Wed, 04 Oct 2023 15:44:28 +0200",
    "UTC": "wed, 04 oct 2023 13:44:28 UTC",
    "ISO": "2023-10-04T13:44:28Z",
    "ISO, another zone": "2023-10-04T15:44:28.000+02:00",
    "ISO, no zone": "2023-10-04 13:44:28",
    "seconds": "1696427068",
    "seconds, a fraction": "1696427068.0",
    "milliseconds": "1696427068000",
    "microseconds": "1696427068000000",
    "nanoseconds": "1696427068000000000",
}
# What is no date; counted, but where it stands for nothing.
LOST = {
    "zero": "0",
    "minus one": "-1",
    "30 February": "Thu, 30 Feb 2023 13:44:28 GMT",
    "29 February": "2023-02-29T13:44:28Z",
    "25 o'clock": "Wed, 04 Oct 2023 25:44:28 GMT",
    "8 000 years ahead": "Wed, 04 Oct 10023 13:44:28 GMT",
    "before all calendars": "0000-00-00 00:00:00",
    "word": "yesterday",
    "format": "%a, %d %b %Y %H:%M:%S GMT",
    "infinite": "inf",
    "huge": "1e300",
    "script": "<?php echo date('r'); ?>",
    "another script's digits": "٢٠٢٣-١٠-٠٤",
    "zero byte": "2023\0-10-04",
}
ABSENT = ("", "-", "null", "None", "NaN")
CONTRADICTING = {"an hour ahead": "Fri, 06 Oct 2023 01:00:00 GMT", "the last day": "9999-12-31T23:59:59Z"}


def columns(value: str | None) -> dict[str, list[object]]:
    """Two pages; the second is crawled three times, and its last crawl is told `value`."""
    return {
        "source": ["a", "a", "b", "b", "b"],
        "time": [f"2023-10-0{day}T00:00:00Z" for day in (1, 5, 1, 4, 6)],
        "changed": [0, 1, 0, 1, 1],
        "last_modified": [
            "2023-09-30T00:00:00Z",
            "2023-10-03T12:00:00Z",
            None,
            "2023-10-03T06:00:00Z",
            value,
        ],
    }


def logs(value: str | None, folder: Path) -> list[fo.CrawlLog]:
    """The same log from files, arrays and a dataframe."""
    frame = pl.DataFrame(columns(value))
    frame.write_csv(folder / "log.csv")
    frame.write_parquet(folder / "log.parquet")
    frame.write_ndjson(folder / "log.jsonl")
    found = [fo.read_log(folder / name) for name in ("log.csv", "log.parquet", "log.jsonl")]
    return [*found, fo.CrawlLog(**columns(value)), fo.CrawlLog.from_frame(frame)]  # type: ignore[arg-type]


@pytest.mark.parametrize("form", READ)
def test_every_form_of_a_moment_is_read(form: str, tmp_path: Path) -> None:
    for log in logs(READ[form], tmp_path):
        expected = (TRUE - present(log.origin)).total_seconds() / 86_400.0
        assert present(log.last_modified)[-1] == pytest.approx(expected, rel=1e-12)
        assert log.warnings == ()


@pytest.mark.parametrize("form", LOST)
def test_what_is_no_date_is_left_out_and_counted(form: str, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for log in logs(LOST[form], tmp_path):
            assert log.last_modified is not None
            assert np.isnan(log.last_modified[-1])
            assert np.count_nonzero(~np.isnan(log.last_modified)) == 3
            assert log.changed.tolist() == [False, True, False, True, True]
            assert len(log.warnings) == 1
            assert log.warnings[0].startswith("last_modified is no date in 1 row, such as ")
    texts = [str(each.message) for each in caught]
    assert len(texts) == 5
    # Rows of files are counted from 1, of arrays from 0.
    assert all(re.search(rf" in (row|line) {row}\b", text) for text, row in zip(texts, "55544", strict=True))


@pytest.mark.parametrize("value", ABSENT)
def test_what_stands_for_nothing_is_not_counted(value: str, tmp_path: Path) -> None:
    for log in logs(value, tmp_path):
        assert np.isnan(present(log.last_modified)[-1])
        assert log.warnings == ()


@pytest.mark.parametrize("form", CONTRADICTING)
@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
def test_dates_after_their_crawl_are_left_out_and_counted(form: str, tmp_path: Path) -> None:
    for log in logs(CONTRADICTING[form], tmp_path):
        assert np.isnan(present(log.last_modified)[-1])
        (heard,) = log.warnings
        assert heard.startswith("last_modified is after the crawl in 1 row, such as ")


def test_a_column_of_unix_time_is_read_beside_dates(tmp_path: Path) -> None:
    frame = pl.DataFrame(columns(None)).with_columns(
        pl.Series("last_modified", [1696032000, None, None, -1, 1696427068]),
        pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%SZ"),
    )
    frame.write_parquet(tmp_path / "log.parquet")
    for in_file in (True, False):
        with pytest.warns(SourceDataWarning, match="no date in 1 row, such as '-1' in row"):
            log = fo.read_log(tmp_path / "log.parquet") if in_file else fo.CrawlLog.from_frame(frame)
        np.testing.assert_allclose(
            present(log.last_modified), [-1.0, np.nan, np.nan, np.nan, 3.0 + 49468.0 / 86_400.0], rtol=1e-12
        )


def test_moments_beyond_all_calendars_are_left_out(tmp_path: Path) -> None:
    told = pl.Series("last_modified", [2**62, None, None, None, 1696427068 * 10**6]).cast(pl.Datetime("us"))
    frame = pl.DataFrame(columns(None)).with_columns(
        told, pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%SZ")
    )
    frame.write_parquet(tmp_path / "log.parquet")
    with pytest.warns(SourceDataWarning, match="no date in 1 row, such as 4611686018427387904 in row 1 of"):
        log = fo.read_log(tmp_path / "log.parquet")
    assert np.isnan(present(log.last_modified)).tolist() == [True, True, True, True, False]


def test_logs_of_numbers_have_dates_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('source,time,changed,last_modified\na,1,0,-4\na,2,1,1.5\na,3,0,"04 Oct 2023 00:00:00"\n')
    with pytest.warns(
        SourceDataWarning, match="no date in 1 row, such as '04 Oct 2023 00:00:00' in row 3, line 4"
    ):
        log = fo.read_log(path)
    np.testing.assert_array_equal(log.last_modified, [-4.0, 1.5, np.nan])
    path.write_text("source,time,changed,last_modified\na,1,0,2023-10-04\na,2,1,\n")
    refused("last_modified has dates but the log's times are numbers", fo.read_log, path)


def test_what_the_owner_wrote_is_still_refused() -> None:
    told = columns(None)
    for key, value, words in (
        ("time", "30 Feb 2023", "time is '30 Feb 2023' in row 2"),
        ("changed", 2, "row 2"),
    ):
        wrong: dict[str, Any] = {**told, key: [*told[key][:2], value, *told[key][3:]]}
        refused(words, fo.CrawlLog, **wrong)


@pytest.mark.parametrize("many", [False, True])
def test_a_live_planner_takes_the_crawl_and_leaves_out_the_date(many: bool, tmp_path: Path) -> None:
    with fo.Planner(tmp_path / "state", bandwidth="4/day") as planner:
        planner.add("a")
        planner.observed("a", "2023-10-01T00:00:00Z", False, last_modified="Sat, 30 Sep 2023 00:00:00 GMT")
        for time, told in (("2023-10-05T00:00:00Z", READ["RFC 850"]), ("2023-10-08T00:00:00Z", "-1")):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                if many:
                    planner.observed_many(["a"], [time], [True], last_modified=[told])
                else:
                    planner.observed("a", time, True, last_modified=told)
            texts = [str(each.message) for each in caught]
            assert len(texts) == (told == "-1")
            assert all("no date in 1 row, such as '-1'" in text for text in texts)
        log = planner.log()
    assert log.changed.tolist() == [False, True, True]
    assert log.last_modified is not None
    np.testing.assert_allclose(log.last_modified, [-1.0, 3.0 + 49468.0 / 86_400.0, np.nan], rtol=1e-12)


def test_a_live_planner_learns_nothing_where_nothing_is_known(tmp_path: Path) -> None:
    with fo.Planner(tmp_path / "state", bandwidth="4/day") as planner:
        planner.add("a")
        planner.observed_many(["a"] * 4, [0.0, 1.0, 2.0, 4.0], [0, 1, np.nan, 0])
        np.testing.assert_array_equal(planner.log().interval, [np.nan, 1.0, np.nan, 2.0])
