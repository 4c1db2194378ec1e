"""Logs from files: what is accepted, and the one line that says what is not."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from freshopt.errors import SourceDataError
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_log import read_log

COLUMNS: dict[str, list[Any]] = {
    "source": ["b", "a", "b", "a"],
    "time": [0.0, 0.25, 2.0, 1.5],
    "changed": [0, 1, 1, 0],
}
LOG = CrawlLog.from_columns(COLUMNS)


def assert_same(one: CrawlLog, other: CrawlLog = LOG) -> None:
    for field in ("sources_", "offsets", "time", "interval", "changed"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
    assert (one.origin, one.time_unit) == (other.origin, other.time_unit)


def write_gz(frame: pl.DataFrame, path: Path) -> None:
    path.write_bytes(gzip.compress(frame.write_csv().encode()))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("log.csv", pl.DataFrame.write_csv),
        ("log.csv.gz", write_gz),
        ("log[1].CSV", pl.DataFrame.write_csv),
        ("log.parquet", pl.DataFrame.write_parquet),
    ],
)
def test_formats(tmp_path: Path, name: str, write: Callable[[pl.DataFrame, Path], None]) -> None:
    frame = pl.DataFrame(COLUMNS).with_columns(remark=pl.lit("ignored"))
    write(frame, tmp_path / name)
    assert_same(read_log(tmp_path / name))
    assert_same(read_log(str(tmp_path / name)))


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["b", "z", "a"]), pl.String])
@pytest.mark.parametrize("flag", [pl.Int8, pl.Boolean, pl.Float32, pl.UInt64])
def test_parquet_types(
    tmp_path: Path, dtype: pl.DataType | type[pl.DataType], flag: pl.DataType | type[pl.DataType]
) -> None:
    columns = {"source": pl.Series(COLUMNS["source"], dtype=dtype), "time": COLUMNS["time"]}
    frame = pl.DataFrame({**columns, "changed": pl.Series(COLUMNS["changed"]).cast(flag)})
    frame.write_parquet(tmp_path / "log.parquet")
    assert_same(read_log(tmp_path / "log.parquet"))


@pytest.mark.parametrize("dtype", [pl.Int32, pl.UInt8])
def test_integer_sources_keep_their_order(tmp_path: Path, dtype: pl.DataType | type[pl.DataType]) -> None:
    frame = pl.DataFrame({"source": [10, 9, 100], "time": [1, 1, 1], "changed": [0, 0, 0]})
    frame.write_csv(tmp_path / "log.csv")
    frame.cast({"source": dtype}).write_parquet(tmp_path / "log.parquet")
    for name in ("log.csv", "log.parquet"):
        assert read_log(tmp_path / name).sources_.tolist() == [9, 10, 100]


def test_padded_numbers_are_names(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("source,time,changed\n007,1,0\n7,1,0\n")
    assert read_log(tmp_path / "log.csv").sources_.tolist() == ["007", "7"]


@pytest.mark.parametrize(
    "times",
    [
        [datetime(2024, 5, 1), datetime(2024, 5, 1, 6), datetime(2024, 5, 3), datetime(2024, 5, 2, 12)],
        [
            "2024-05-01T01:00+0100",
            "2024-05-01T06:00:00Z",
            "2024-05-03 00:00Z",
            "2024-05-02T14:00:00.000+02:00",
        ],
        ["2024-05-01", "2024-05-01T06:00:00", "2024-05-03 00:00", "2024-05-02T12:00:00.000"],
    ],
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_dates_and_iso_text(tmp_path: Path, times: list[Any], ending: str) -> None:
    frame = pl.DataFrame({**COLUMNS, "time": times})
    path = tmp_path / f"log.{ending}"
    frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    log = read_log(path, time_unit="hour")
    assert log.origin == datetime(2024, 5, 1, tzinfo=UTC)
    assert log.time.tolist() == [6.0, 36.0, 0.0, 48.0]


def test_zoned_datetimes_and_dates_in_parquet(tmp_path: Path) -> None:
    zoned = pl.Series([datetime(2024, 5, 1, 1), datetime(2024, 5, 2, 2)]).dt.replace_time_zone("Europe/Paris")
    days = pl.Series([date(2024, 5, 1), date(2024, 5, 3)])
    for name, time, expected in (("zoned", zoned, [23.0, 48.0]), ("days", days, [0.0, 48.0])):
        frame = pl.DataFrame({"source": [1, 1], "time": time, "changed": [False, True]})
        frame.write_parquet(tmp_path / f"{name}.parquet")
        assert read_log(tmp_path / f"{name}.parquet", "hour").time.tolist() == expected


def test_elapsed_and_changes(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("source,time,changed,elapsed,changes\na,1,TRUE,0.5,2\na,2,false,0.75,\nb,2,True,,1\n\n")
    log = read_log(path)
    np.testing.assert_array_equal(log.interval, [0.5, 0.75, np.nan])
    np.testing.assert_array_equal(log.changes, [2.0, np.nan, np.nan])
    assert log.changed.tolist() == [True, False, False]
    path.write_text("source,elapsed,changed\na,1,1\na,2,0\n")
    assert read_log(path).time.tolist() == [1.0, 3.0]


HEAD = "source,time,changed\na,1,0\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["log.csv is empty", "column names"]),
        ("\n", ["log.csv is empty"]),
        ("source,time,changed\n", ["log.csv", "no rows"]),
        ("source,time,changed\n\n\n", ["log.csv", "no rows"]),
        ("source;time;changed\na;1;0\n", ["'source', 'changed', 'time'", "'source;time;changed'", "comma"]),
        ("source,when,changed\na,1,0\n", ["no column 'time'", "'when'"]),
        (HEAD + "a,2,yes\n", ["changed is 'yes' in row 2, line 3 of", "log.csv", "Write 1"]),
        (HEAD + "a,2,2\n", ["changed is '2' in row 2, line 3"]),
        ("source,time,changed\na,1,\na,2\n", ["changed is empty in row 1, line 2", "row 2, line 3"]),
        (HEAD + ",2,1\n", ["source is empty in row 2, line 3", "Fill"]),
        (HEAD + "a,,1\n", ["time is empty in row 2, line 3"]),
        (HEAD + "\na,2,1\n", ["source is empty in row 2, line 3"]),
        (HEAD + ",,\n" * 7 + "a,9,1\n", ["line 7 of", "and 2 more"]),
        (HEAD + "a,soon,1\n", ["time is 'soon' in row 2, line 3", "ISO 8601"]),
        (HEAD.replace("1,0", "2026-01-01T00:00+٣٤,0"), ["time is '2026-01-01T00:00+٣٤'", "ISO 8601"]),
        (HEAD + "a,nan,1\n", ["time is not a finite number in row 2, line 3", "'a'"]),
        (HEAD + "a,1,1\n", ["row 2, line 3", "repeats the time of row 1, line 2"]),
        (HEAD + "a,2,1,7\n", ["log.csv cannot be read as CSV", "more fields"]),
        ("source,time,changed,elapsed\na,1,0,x\n", ["elapsed is 'x' in row 1, line 2"]),
        ("source,time,changed,elapsed\na,1,0,0\n", ["elapsed is out of range in row 1, line 2"]),
        ("source,time,changed,changes\na,1,0,\na,2,1,0\n", ["changes contradicts changed in row 2, line 3"]),
        ("source,time,changed,changes\na,1,0,many\n", ["changes is 'many' in row 1, line 2"]),
    ],
)
def test_unusable_csv(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(SourceDataError) as refusal:
        read_log(path)
    message = str(refusal.value)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"source": [1.0, 2.0]}, ["column 'source'", "Float64", "log.parquet"]),
        ({"source": ["a", None]}, ["source is empty in row 2 of"]),
        ({"time": [True, False]}, ["column 'time'", "Boolean"]),
        ({"time": [0.0, None]}, ["time is empty in row 2 of"]),
        ({"time": [0.0, float("nan")]}, ["time is not a finite number in row 2 of"]),
        ({"changed": [0, 3]}, ["changed is 3 in row 2 of"]),
        ({"changed": [date(2024, 1, 1)] * 2}, ["column 'changed'", "Date"]),
        ({"changed": ["no", "yes"]}, ["changed is 'no' in row 1 of", "'yes' in row 2 of"]),
        ({"elapsed": [True, True]}, ["column 'elapsed'", "Boolean"]),
        ({"changes": [-1, 1]}, ["changes is not a count in row 1 of"]),
    ],
)
def test_unusable_parquet(tmp_path: Path, columns: dict[str, Any], words: list[str]) -> None:
    frame = pl.DataFrame({"source": ["a", "a"], "time": [0.0, 1.0], "changed": [0, 1], **columns})
    frame.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(SourceDataError) as refusal:
        read_log(tmp_path / "log.parquet")
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_unreadable_paths(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("source,time,changed\n")
    (tmp_path / "latin.csv").write_bytes(b"source,time,changed\n\xe9,1,0\n")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(HEAD.encode() * 500)[:-20])
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "log.xlsx").touch()
    (tmp_path / "log").touch()
    for name, words in {
        "missing.csv": "there is no file .*missing.csv",
        "text.parquet": "text.parquet cannot be read as Parquet",
        "latin.csv": "latin.csv cannot be read as CSV.*UTF-8",
        "cut.csv.gz": r"cut.csv.gz cannot be read.*complete",
        "folder.csv": "folder.csv is a folder",
        "folder": "folder is a folder, not a file",
        "nothing": "there is no file .*nothing",
        "log.xlsx": r"log.xlsx ends in '.xlsx'.*\.parquet",
        "log": "has no ending",
    }.items():
        with pytest.raises(SourceDataError, match=words):
            read_log(tmp_path / name)
