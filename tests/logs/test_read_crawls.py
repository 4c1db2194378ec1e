"""Logs from files and dataframes: what is accepted, the one line that says what is not, and frames back."""

import gzip
import io
import json
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import SourceDataError, hearing
from freshopt.estimators import MaximumLikelihood
from freshopt.logs.read_crawls import read_log
from tests.ground_truth.command_lines import file_with
from tests.ground_truth.refusals import refused, refusing
from tests.ground_truth.strata import matrix

COLUMNS: dict[str, list[Any]] = {
    "source": ["b", "a", "b", "a"],
    "time": [0.0, 0.25, 2.0, 1.5],
    "changed": [0, 1, 1, 0],
}
LOG = fo.CrawlLog.from_columns(COLUMNS)


def assert_same(one: fo.CrawlLog, other: fo.CrawlLog = LOG) -> None:
    for field in ("names", "offsets", "time", "interval", "changed"):
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
    assert_same(fo.read_log(tmp_path / name))
    assert_same(fo.read_log(str(tmp_path / name)))


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["b", "z", "a"]), pl.String])
@pytest.mark.parametrize("flag", [pl.Int8, pl.Boolean, pl.Float32, pl.UInt64])
def test_parquet_types(
    tmp_path: Path, dtype: pl.DataType | type[pl.DataType], flag: pl.DataType | type[pl.DataType]
) -> None:
    columns = {"source": pl.Series(COLUMNS["source"], dtype=dtype), "time": COLUMNS["time"]}
    frame = pl.DataFrame({**columns, "changed": pl.Series(COLUMNS["changed"]).cast(flag)})
    frame.write_parquet(tmp_path / "log.parquet")
    assert_same(fo.read_log(tmp_path / "log.parquet"))


@pytest.mark.parametrize("dtype", [pl.Int32, pl.UInt8])
def test_integer_sources_keep_their_order(tmp_path: Path, dtype: pl.DataType | type[pl.DataType]) -> None:
    frame = pl.DataFrame({"source": [10, 9, 100], "time": [1, 1, 1], "changed": [0, 0, 0]})
    frame.write_csv(tmp_path / "log.csv")
    frame.cast({"source": dtype}).write_parquet(tmp_path / "log.parquet")
    for name in ("log.csv", "log.parquet"):
        assert fo.read_log(tmp_path / name).names.tolist() == [9, 10, 100]


def test_padded_numbers_are_names(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("source,time,changed\n007,1,0\n7,1,0\n")
    assert fo.read_log(tmp_path / "log.csv").names.tolist() == ["007", "7"]


@matrix(
    times=[
        [datetime(2024, 5, 1), datetime(2024, 5, 1, 6), datetime(2024, 5, 3), datetime(2024, 5, 2, 12)],
        [
            "2024-05-01T01:00+0100",
            "2024-05-01T06:00:00Z",
            "2024-05-03 00:00Z",
            "2024-05-02T14:00:00.000+02:00",
        ],
        ["2024-05-01", "2024-05-01T06:00:00", "2024-05-03 00:00", "2024-05-02T12:00:00.000"],
    ],
    ending=["csv", "parquet"],
)
def test_dates_and_iso_text(tmp_path: Path, times: list[Any], ending: str) -> None:
    frame = pl.DataFrame({**COLUMNS, "time": times})
    path = tmp_path / f"log.{ending}"
    frame.write_csv(path) if ending == "csv" else frame.write_parquet(path)
    log = fo.read_log(path, time_unit="hour")
    assert log.origin == datetime(2024, 5, 1, tzinfo=UTC)
    assert log.time.tolist() == [6.0, 36.0, 0.0, 48.0]


def test_zoned_datetimes_and_dates_in_parquet(tmp_path: Path) -> None:
    zoned = pl.Series([datetime(2024, 5, 1, 1), datetime(2024, 5, 2, 2)]).dt.replace_time_zone("Europe/Paris")
    days = pl.Series([date(2024, 5, 1), date(2024, 5, 3)])
    for name, time, expected in (("zoned", zoned, [23.0, 48.0]), ("days", days, [0.0, 48.0])):
        frame = pl.DataFrame({"source": [1, 1], "time": time, "changed": [False, True]})
        frame.write_parquet(tmp_path / f"{name}.parquet")
        assert fo.read_log(tmp_path / f"{name}.parquet", "hour").time.tolist() == expected


def test_elapsed_and_changes(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("source,time,changed,elapsed,changes\na,1,TRUE,0.5,2\na,2,false,0.75,\nb,2,True,,1\n\n")
    log = fo.read_log(path)
    np.testing.assert_array_equal(log.interval, [0.5, 0.75, np.nan])
    np.testing.assert_array_equal(log.changes, [2.0, np.nan, np.nan])
    assert log.changed.tolist() == [True, False, False]
    path.write_text("source,elapsed,changed\na,1,1\na,2,0\n")
    assert fo.read_log(path).time.tolist() == [1.0, 3.0]


HEAD = "source,time,changed\na,1,0\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["log.csv is empty", "column names"]),
        ("\n", ["log.csv is empty"]),
        ("source,time,changed\n", ["log.csv", "no rows"]),
        ("source,time,changed\n\n\n", ["log.csv", "no rows"]),
        ("source,moved,changed\na,1,0\n", ["no column 'time'", "'moved'", "--columns YOUR_TIME=time"]),
        (HEAD + "a,2,maybe\n", ["changed is 'maybe' in row 2, line 3 of", "log.csv", "Write 1"]),
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
    path = file_with(tmp_path / "log.csv", text)
    with refusing(*words):
        fo.read_log(path)


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
        ({"changed": ["nay", "yea"]}, ["changed is 'nay' in row 1 of", "'yea' in row 2 of"]),
        ({"elapsed": [True, True]}, ["column 'elapsed'", "Boolean"]),
        ({"changes": [-1, 1]}, ["changes is not a count in row 1 of"]),
    ],
)
def test_unusable_parquet(tmp_path: Path, columns: dict[str, Any], words: list[str]) -> None:
    frame = pl.DataFrame({"source": ["a", "a"], "time": [0.0, 1.0], "changed": [0, 1], **columns})
    frame.write_parquet(tmp_path / "log.parquet")
    with refusing(*words):
        fo.read_log(tmp_path / "log.parquet")


def test_unreadable_paths(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("source,time,changed\n")
    (tmp_path / "late.csv").write_bytes(HEAD.encode() * 5000 + b"\xe9,1,0\n")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(HEAD.encode() * 500)[:-20])
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "log.xlsx").write_bytes(b"PK\x03\x04...")
    (tmp_path / "log.db").write_bytes(b"SQLite format 3\0")
    (tmp_path / "log.xml").write_bytes(b'<?xml version="1.0"?><urlset/>')
    (tmp_path / "log.bin").write_bytes(bytes(range(256)))
    (tmp_path / "log").touch()
    for name, words in {
        "missing.csv": "there is no file .*missing.csv",
        "text.parquet": "text.parquet cannot be read as Parquet",
        "late.csv": "late.csv cannot be read as CSV.*UTF-8",
        "cut.csv.gz": r"cut.csv.gz cannot be read.*complete",
        "folder.csv": "folder.csv is a folder without logs",
        "folder": "folder is a folder without logs.*freshopt import",
        "nothing": "there is no file .*nothing",
        "log.xlsx": "log.xlsx is a spreadsheet.*Save it as CSV.*freshopt import changedetection",
        "log.db": "log.db is an SQLite database.*sqlite3 -csv -header",
        "log.xml": "log.xml is XML.*freshopt import sitemap",
        "log.bin": "log.bin is no text",
        "log": "log is empty",
    }.items():
        refused(words, fo.read_log, tmp_path / name)


def test_a_stream_that_is_wound_back_is_read_anew() -> None:
    file = io.StringIO("source,time,changed\na,0,0\na,1,1\n")
    assert len(fo.read_log(file).time) == len(fo.read_log(file).time) == 2
    file.write("a,2,1\n")
    file.seek(0)
    assert len(fo.read_log(file).time) == 3


DAYS = [datetime(2026, 3, 1 + day, 9) for day in range(6)]
SOURCES = ["a"] * 6 + ["b"] * 6
SEEN: dict[str, dict[str, Any]] = {
    "changed": {"changed": [False, True, True, False, None, True] * 2},
    "numbers": {"changed": [0, 1, 1, 0, None, 1] * 2},
    "hash": {"content_hash": ["x", "x", "y", "y", None, "z"] * 2},
    "etag beside status": {
        "ETag": ["1", "1", "2", "2", None, "3"] * 2,
        "HTTP Status": [200] * 4 + [503, 200] + [200] * 6,
    },
    "status": {"status": [200, 304, 200, 304, 503, 304] * 2},
    "last_modified": {
        "changed": [0, 1, 0, 0, 1, 1] * 2,
        "last_modified": [None, DAYS[0] + timedelta(hours=2)] + [None] * 10,
    },
}
LIBRARIES: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda frame: frame,
    "lazy": pl.DataFrame.lazy,
    "pandas": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)),
    "pandas categories": lambda frame: frame.to_pandas().astype({frame.columns[0]: "category"}),
    "pandas arrow": lambda frame: frame.to_pandas(use_pyarrow_extension_array=True),
    "pyarrow": pl.DataFrame.to_arrow,
}


def same(one: fo.CrawlLog, other: fo.CrawlLog) -> bool:
    pairs = (
        (getattr(one, key), getattr(other, key))
        for key in ("time", "interval", "changed", "changes", "last_modified")
    )
    arrays = all(
        (own is None and its is None) or np.array_equal(own, its, equal_nan=own.dtype.kind == "f")
        for own, its in pairs
    )
    return arrays and one.names.tolist() == other.names.tolist() and one.origin == other.origin


@pytest.mark.filterwarnings("ignore::freshopt.SourceDataWarning")
@matrix(library=LIBRARIES, seen=SEEN)
def test_a_frame_is_read_as_the_file_that_it_makes(seen: str, library: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"URL": SOURCES, "Fetched At": DAYS * 2, **SEEN[seen]}, strict=False)
    frame.write_csv(tmp_path / "log.csv")
    from_file = fo.read_log(tmp_path / "log.csv")
    log = fo.read_log(LIBRARIES[library](frame))
    assert same(log, from_file)
    assert log.library == {"lazy": "polars"}.get(library, library.split()[0])
    back = log.to_frame()
    assert type(back).__module__.split(".")[0] == log.library
    assert same(fo.CrawlLog.from_frame(back), log)


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow"])
def test_tables_of_a_plan_are_of_the_callers_library(library: str) -> None:
    frame = pl.DataFrame({"item": SOURCES, "at": DAYS * 2, "etag": ["1", "1", "2", "2", "2", "3"] * 2})
    made = fo.plan(LIBRARIES[library](frame), columns={"item": "source"}, draws=0)
    tables: dict[str, Any] = {
        "plan": made,
        "estimate": made.estimate,
        "solution": made.solution,
        "schedule": made.schedule,
        "log": made.log,
        "sources": made.sources,
    }
    for name, table in tables.items():
        assert type(table.to_frame()).__module__.split(".")[0] == library, name
    whole = (
        pl.DataFrame(made.to_frame())
        if library != "pandas"
        else pl.DataFrame(pd.DataFrame(made.to_frame()).to_dict("list"))
    )
    assert whole["source"].to_list() == ["a", "b"]
    np.testing.assert_array_equal(whole["rate"], made.rates)


def test_offsets_may_differ_from_row_to_row_and_integers_stay_names() -> None:
    moments = [
        datetime(2026, 1, 1, 12, tzinfo=UTC),
        datetime(2026, 1, 1, 15, tzinfo=timezone(timedelta(hours=2))),
    ]
    mixed = pd.DataFrame({"source": [7, 7], "time": pd.Series(moments, dtype=object), "changed": [0, 1]})
    log = fo.read_log(mixed, "hour")
    assert (log.names.tolist(), log.interval.tolist()[1]) == ([7], 1.0)
    zoned = mixed.assign(time=pd.to_datetime(mixed["time"], utc=True).dt.tz_convert("Asia/Tokyo"))
    assert same(fo.read_log(zoned, "hour"), log)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (
            pd.DataFrame({"xyz": ["https://a.example/b"], "time": [1.0], "changed": [1]}),
            r"columns=\{'xyz': 'source'\}",
        ),
        (pd.DataFrame({"source": ["a", 3], "time": [1.0, 2.0], "changed": [1, 1]}), "holds int and str"),
        (pd.DataFrame([["a", 1.0, 1, 1]], columns=["source", "time", "changed", "changed"]), "two columns"),
        ({"source": ["a"]}, "the log is a dict, not a dataframe"),
    ],
)
def test_what_no_log_can_be_made_of_is_told(frame: object, words: str) -> None:
    for read in (fo.read_log, fo.CrawlLog.from_frame, fo.plan):
        refused(words, read, frame, error=(fo.SourceDataError, TypeError))


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_hashes_in_lists_are_refused(library: str) -> None:
    frame = pl.DataFrame({"source": ["a"] * 2, "time": [0.0, 1.0], "hash": [["x"], ["y"]]})
    given = frame if library == "polars" else pd.DataFrame(frame.to_dict(as_series=False))
    refused(r"column 'hash' of the log holds List", fo.read_log, given)


def test_a_name_that_is_a_number_is_refused() -> None:
    frame = pd.DataFrame([["a", 1.0, 1]], columns=[0, "time", "changed"])
    refused("column 0 of the log has a name that is no text", fo.read_log, frame, columns={"0": "source"})


def test_estimators_are_fitted_to_frames_and_files(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"source": SOURCES, "time": np.tile(np.arange(6.0), 2), "changed": [0, 1, 1, 0, 0, 1] * 2}
    )
    frame.to_csv(tmp_path / "log.csv", index=False)
    fitted = MaximumLikelihood().fit(frame)
    from_file = MaximumLikelihood().fit(tmp_path / "log.csv")
    np.testing.assert_array_equal(fitted.change_rate_, from_file.change_rate_)
    assert list(fitted.to_frame()["lower"]) == fitted.interval()[0].tolist()
    assert isinstance(from_file.to_frame(), pl.DataFrame)


@pytest.mark.parametrize(
    ("head", "rows", "sources"),
    [
        ("host,path", (("a.example", "/x"), ("b.example", "/x")), ["a.example/x", "b.example/x"]),
        ("Schema,Table", (("sales", "t"), ("web", "t")), ["sales.t", "web.t"]),
        ("table,schema,database", (("t", "s", "one"), ("t", "s", "two")), ["one.s.t", "two.s.t"]),
        ("host,path", (("a.example", "/x"), ("b.example", "/y")), ["/x", "/y"]),
    ],
)
def test_a_name_that_stands_in_several_hosts_is_told_with_them(
    head: str, rows: tuple[tuple[str, ...], ...], sources: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    lines = (f"{','.join(row)},{day},{row[0]}{day}" for row in rows for day in (1, 2))
    path.write_text("\n".join([f"{head},time,hash", *lines]))
    with warnings.catch_warnings(action="ignore"), hearing() as heard:
        assert read_log(path).names.tolist() == sources
    assert len(heard) == (sources[0] != "/x")
    if heard:
        with pytest.raises(SourceDataError, match="stands beside several values"):
            read_log([path, path])


def test_keys_of_late_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    early = [{"url": f"a{k}", "at": 1.0, "hash": "x"} for k in range(1200)]
    late = {"url": "a0", "at": 2.0, "hash": "x", "changed": True}
    path.write_text("\n".join(map(json.dumps, [*early, late])))
    with warnings.catch_warnings(action="ignore"):
        assert np.count_nonzero(read_log(path).changed) == 1
    # A key that holds what does not go together is no reason to refuse the others.
    odd = [{**late, "more": 1}, {**late, "at": 3.0, "more": {"b": 1}}]
    path.write_text("\n".join(map(json.dumps, [*early, *odd])))
    with warnings.catch_warnings(action="ignore"):
        assert len(read_log(path)) == 1202
