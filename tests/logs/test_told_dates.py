"""Dates of last change as strangers' servers send them: read, or left out and counted."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import SourceDataError, SourceDataWarning
from freshopt.logs.read_log import read_log

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
    found = [read_log(folder / name) for name in ("log.csv", "log.parquet", "log.jsonl")]
    return [*found, fo.CrawlLog(**columns(value)), fo.CrawlLog.from_frame(frame)]  # type: ignore[arg-type]


@pytest.mark.parametrize("form", READ)
def test_every_form_of_a_moment_is_read(form: str, tmp_path: Path) -> None:
    for log in logs(READ[form], tmp_path):
        assert log.origin is not None
        assert log.last_modified is not None
        expected = (TRUE - log.origin).total_seconds() / 86_400.0
        assert log.last_modified[-1] == pytest.approx(expected, rel=1e-12)
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
        assert log.last_modified is not None
        assert np.isnan(log.last_modified[-1])
        assert log.warnings == ()


@pytest.mark.parametrize("form", CONTRADICTING)
@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
def test_dates_after_their_crawl_are_left_out_and_counted(form: str, tmp_path: Path) -> None:
    for log in logs(CONTRADICTING[form], tmp_path):
        assert log.last_modified is not None
        assert np.isnan(log.last_modified[-1])
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
            log = read_log(tmp_path / "log.parquet") if in_file else fo.CrawlLog.from_frame(frame)
        assert log.last_modified is not None
        np.testing.assert_allclose(
            log.last_modified, [-1.0, np.nan, np.nan, np.nan, 3.0 + 49468.0 / 86_400.0], rtol=1e-12
        )


def test_moments_beyond_all_calendars_are_left_out(tmp_path: Path) -> None:
    told = pl.Series("last_modified", [2**62, None, None, None, 1696427068 * 10**6]).cast(pl.Datetime("us"))
    frame = pl.DataFrame(columns(None)).with_columns(
        told, pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%SZ")
    )
    frame.write_parquet(tmp_path / "log.parquet")
    with pytest.warns(SourceDataWarning, match="no date in 1 row, such as 4611686018427387904 in row 1 of"):
        log = read_log(tmp_path / "log.parquet")
    assert log.last_modified is not None
    assert np.isnan(log.last_modified).tolist() == [True, True, True, True, False]


def test_logs_of_numbers_have_dates_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text('source,time,changed,last_modified\na,1,0,-4\na,2,1,1.5\na,3,0,"04 Oct 2023 00:00:00"\n')
    with pytest.warns(
        SourceDataWarning, match="no date in 1 row, such as '04 Oct 2023 00:00:00' in row 3, line 4"
    ):
        log = read_log(path)
    np.testing.assert_array_equal(log.last_modified, [-4.0, 1.5, np.nan])
    path.write_text("source,time,changed,last_modified\na,1,0,2023-10-04\na,2,1,\n")
    with pytest.raises(SourceDataError, match="last_modified has dates but the log's times are numbers"):
        read_log(path)


def test_what_the_owner_wrote_is_still_refused() -> None:
    told = columns(None)
    for key, value, words in (
        ("time", "30 Feb 2023", "time is '30 Feb 2023' in row 2"),
        ("changed", 2, "row 2"),
    ):
        wrong = {**told, key: [*told[key][:2], value, *told[key][3:]]}
        with pytest.raises(SourceDataError, match=words):
            fo.CrawlLog(**wrong)  # type: ignore[arg-type]


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
