"""Calendar times without separators: every form in every column and by every reader, against `datetime`."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import freshopt as fo
from freshopt.logs.clock import Clock
from freshopt.logs.last_modified import since_birth
from freshopt.logs.read_crawls import fetch_statuses, read_log
from freshopt.logs.read_events import read_history, read_requests
from freshopt.terminal.own_crawls import with_own_crawls
from freshopt.units import convert_time
from tests.ground_truth.refusals import present, refused, refusing
from tests.ground_truth.strata import matrix

_RNG = np.random.default_rng(20230307)
# In eight months of two years, of which a leap day is one and the last second of a year another.
MOMENTS = sorted(
    [datetime(2024, 2, 29, 23, 59, 58, 987_000), datetime(2023, 12, 31, 23, 59, 59, 1_000)]
    + [
        datetime(2023, month, day, hour, minute, second, 1000 * millisecond)
        for month, day, hour, minute, second, millisecond in zip(
            range(3, 10),
            *(_RNG.integers(0, most, 7).tolist() for most in (28, 24, 60, 60, 1000)),
            strict=True,
        )
        if day
    ]
)
# Digits alone, which are numbers too; what is finer than a form is cut off.
NUMBERS = {
    "%Y%j": timedelta(days=1),
    "%Y%m%d": timedelta(days=1),
    "%Y%m%d%H": timedelta(hours=1),
    "%Y%m%d%H%M": timedelta(minutes=1),
    "%Y%m%d%H%M%S": timedelta(seconds=1),
    "%Y%m%d%H%M%S.%f": timedelta(microseconds=1),
    "%Y%m%d%H%M%S%f": timedelta(microseconds=1),  # cut to 17 digits
}
TEXTS = {
    "%Y%m%dT%H": timedelta(hours=1),
    "%Y%m%dT%H%MZ": timedelta(minutes=1),
    "%Y%m%dT%H%M%SZ": timedelta(seconds=1),
    "%Y%m%d %H%M%S": timedelta(seconds=1),
    "%Y%m%d-%H%M%S": timedelta(seconds=1),
    "%Y%m%d_%H%M%S": timedelta(seconds=1),
    "%Y%m%d%H%M%SZ": timedelta(seconds=1),
    "%Y%m%d%H%M%S+0000": timedelta(seconds=1),
    "%Y%m%dT%H%M%S,%f": timedelta(microseconds=1),
    "%Y%m%dT%H%M%S.%fZ": timedelta(microseconds=1),
}


def written(form: str) -> list[str]:
    texts = [moment.strftime(form) for moment in MOMENTS]
    return [text[:17] for text in texts] if form.endswith("%S%f") else texts


def expected(step: timedelta) -> list[datetime]:
    start = datetime(1970, 1, 1)
    return [start + (moment - start) // step * step for moment in MOMENTS]


def table(times: Any) -> pl.DataFrame:  # noqa: ANN401 - a column of any type
    return pl.DataFrame({"source": ["a"] * len(MOMENTS), "time": times, "changed": [0] * len(MOMENTS)})


def moments_of(log: fo.CrawlLog | fo.ChangeHistory) -> list[datetime]:
    assert log.origin is not None, "numbers of days"
    assert log.time_unit == "hour"
    return [(log.origin + timedelta(hours=hours)).replace(tzinfo=None) for hours in log.time.tolist()]


def assert_moments(found: list[datetime], step: timedelta, within: float = 2e-6) -> None:
    wanted = expected(step)
    assert len(found) == len(wanted)
    assert max(abs((one - other).total_seconds()) for one, other in zip(found, wanted, strict=True)) <= within


def parquet(folder: Path, times: Any) -> fo.CrawlLog:  # noqa: ANN401
    table(times).write_parquet(folder / "log.parquet")
    return read_log(folder / "log.parquet", "hour")


def text_file(folder: Path, times: list[str], name: str) -> fo.CrawlLog:
    frame = table(times)
    frame.write_csv(folder / name) if name.endswith("csv") else frame.write_ndjson(folder / name)
    return read_log(folder / name, "hour")


def in_lists(times: Any) -> fo.CrawlLog:  # noqa: ANN401
    return fo.CrawlLog(["a"] * len(MOMENTS), times, [0] * len(MOMENTS), time_unit="hour")


def pandas_frame(times: Any, dtype: str) -> fo.CrawlLog:  # noqa: ANN401
    frame = table(np.zeros(len(MOMENTS))).to_pandas()
    frame["time"] = pd.Series(times, dtype=dtype)
    return fo.CrawlLog.from_frame(frame, time_unit="hour")


AS_TEXT: dict[str, Callable[[Path, list[str]], fo.CrawlLog]] = {
    "CSV": lambda folder, times: text_file(folder, times, "log.csv"),
    "JSON lines": lambda folder, times: text_file(folder, times, "log.jsonl"),
    "Parquet": parquet,
    "list": lambda _, times: in_lists(times),
    "NumPy": lambda _, times: in_lists(np.array(times)),
    "polars": lambda _, times: fo.CrawlLog.from_frame(table(times), time_unit="hour"),
    "pandas": lambda _, times: pandas_frame(times, "object"),
    "pandas string": lambda _, times: pandas_frame(times, "string"),
}
AS_INTEGER: dict[str, Callable[[Path, list[int]], fo.CrawlLog]] = {
    "Parquet": parquet,
    "Parquet UInt64": lambda folder, times: parquet(folder, pl.Series(times, dtype=pl.UInt64)),
    "Parquet Int128": lambda folder, times: parquet(folder, pl.Series(times, dtype=pl.Int128)),
    "Parquet Decimal": lambda folder, times: parquet(folder, pl.Series(times).cast(pl.Decimal(38, 0))),
    "JSON lines": lambda folder, times: text_file(folder, times, "log.jsonl"),  # type: ignore[arg-type]
    "list": lambda _, times: in_lists(times),
    "NumPy": lambda _, times: in_lists(np.array(times)),
    "objects": lambda _, times: in_lists(np.array(times, dtype=object)),
    "decimals": lambda _, times: in_lists(np.array(list(map(Decimal, times)), dtype=object)),
    "polars": lambda _, times: fo.CrawlLog.from_frame(table(times), time_unit="hour"),
    "pandas": lambda _, times: pandas_frame(times, "int64"),
    "pandas Int64": lambda _, times: pandas_frame(times, "Int64"),
}
AS_FLOAT: dict[str, Callable[[Path, list[float]], fo.CrawlLog]] = {
    "CSV": lambda folder, times: text_file(folder, list(map(str, times)), "log.csv"),
    "Parquet": parquet,
    "list": lambda _, times: in_lists(times),
    "polars": lambda _, times: fo.CrawlLog.from_frame(table(times), time_unit="hour"),
    "pandas": lambda _, times: pandas_frame(times, "float64"),
}


@matrix(column=AS_TEXT, form=[*NUMBERS, *TEXTS])
def test_text_is_the_moment_that_it_is(form: str, column: str, tmp_path: Path) -> None:
    step = (NUMBERS | TEXTS)[form]
    assert_moments(moments_of(AS_TEXT[column](tmp_path, written(form))), step)


@matrix(column=AS_INTEGER, form=[form for form in NUMBERS if "." not in form])
def test_an_integer_is_the_moment_that_it_is(form: str, column: str, tmp_path: Path) -> None:
    numbers = list(map(int, written(form)))
    assert_moments(moments_of(AS_INTEGER[column](tmp_path, numbers)), NUMBERS[form])


@matrix(column=AS_FLOAT, form=NUMBERS)
def test_a_float_is_the_moment_that_it_is(form: str, column: str, tmp_path: Path) -> None:
    numbers = list(map(float, written(form)))
    # Of 14 digits float64 resolves four milliseconds, of 17 digits as many.
    assert_moments(moments_of(AS_FLOAT[column](tmp_path, numbers)), NUMBERS[form], 5e-3)


def read_requests_of(folder: Path, times: list[Any]) -> list[datetime]:
    """The span of requests is all that is told of their times: the last beside each of the others."""
    table(times).write_parquet(folder / "edge.parquet")
    found = read_requests(folder / "edge.parquet", time_unit="hour")
    span = timedelta(hours=(len(times) + 0.5) / found["request_rate"][0])
    whole = expected(NUMBERS["%Y%m%d%H%M%S"])
    assert abs(span - (whole[-1] - whole[0])) < timedelta(milliseconds=10)
    return whole


def history_of(folder: Path, times: list[Any]) -> list[datetime]:
    table(times).drop("changed").write_parquet(folder / "changes.parquet")
    return moments_of(read_history(folder / "changes.parquet", times[0], times[-1], time_unit="hour"))


def beside_dates(folder: Path, times: list[Any]) -> list[datetime]:
    """Dates of changes in compact form, crawled a year later."""
    crawl = datetime(2025, 3, 1)
    frame = pl.DataFrame(
        {"source": [f"s{k}" for k in range(len(times))], "time": crawl, "changed": 0, "last_modified": times}
    )
    frame.write_parquet(folder / "log.parquet")
    log = read_log(folder / "log.parquet", "hour")
    assert log.last_modified is not None
    return [present(log.origin).replace(tzinfo=None) + timedelta(hours=t) for t in log.last_modified.tolist()]


def born(_: Path, times: list[Any]) -> list[datetime]:
    crawl, names = datetime(2025, 3, 1), [f"s{k}" for k in range(len(times))]
    dates = [crawl - timedelta(hours=1)] * len(times)
    log = fo.CrawlLog(names, [crawl] * len(times), [0] * len(times), last_modified=dates, time_unit="hour")
    return [crawl - timedelta(hours=hours) for hours in since_birth(log, times).interval.tolist()]


def started(_: Path, times: list[Any]) -> list[datetime]:
    crawl, names = datetime(2025, 3, 1), [f"s{k}" for k in range(len(times))]
    log = fo.CrawlLog(names, [crawl] * len(times), [0] * len(times), start=times, time_unit="hour")
    return [crawl - timedelta(hours=hours) for hours in log.interval.tolist()]


def clocked(_: Path, times: list[Any]) -> list[datetime]:
    clock = Clock.beginning("hour", times[0])
    found = [clock.moment(clock.number(time, "time")) for time in times]
    assert clock.numbers(times, "time").tolist() == [clock.number(time, "time") for time in times]
    return [moment.replace(tzinfo=None) for moment in found if isinstance(moment, datetime)]


def fetched(folder: Path, times: list[Any]) -> list[datetime]:
    table(times).rename({"changed": "status"}).write_parquet(folder / "log.parquet")
    found = present(fetch_statuses(folder / "log.parquet", dated=True))
    moments: list[datetime] = found.time.astype("datetime64[us]").tolist()
    return moments


def own_crawls(folder: Path, times: list[Any]) -> list[datetime]:
    table(times).write_parquet(folder / "own.parquet")
    log = with_own_crawls(fo.CrawlLog(["a"], ["2022-01-01"], [0], time_unit="hour"), [folder / "own.parquet"])
    return moments_of(log)[1:]


READERS: dict[str, Callable[[Path, list[Any]], list[datetime]]] = {
    "read_requests": read_requests_of,
    "read_history": history_of,
    "ChangeHistory": lambda _, times: moments_of(fo.ChangeHistory(["a"] * 9, times, time_unit="hour")),
    "ChangeHistory.from_frame": lambda _, times: moments_of(
        fo.ChangeHistory.from_frame(table(times), times[0], times[-1], time_unit="hour")
    ),
    "last_modified": beside_dates,
    "births": born,
    "start": started,
    "planner": clocked,
    "statuses": fetched,
    "own crawls": own_crawls,
}


@matrix(kind=[str, int, float], reader=READERS)
def test_every_reader_takes_them(reader: str, kind: type, tmp_path: Path) -> None:
    times = list(map(kind, written("%Y%m%d%H%M%S")))
    assert_moments(READERS[reader](tmp_path, times), NUMBERS["%Y%m%d%H%M%S"])


@pytest.mark.parametrize("reader", ["last_modified", "births", "start", "statuses", "own crawls"])
def test_one_short_date_beside_dates_is_a_date(reader: str, tmp_path: Path) -> None:
    times = [20230307] * 9 if reader != "own crawls" else list(range(20230301, 20230310))
    found = READERS[reader](tmp_path, times)
    # A log's dates of change that tell the day alone stand for its middle.
    into = timedelta(hours=12 if reader == "last_modified" else 0)
    assert found == [datetime.strptime(str(time), "%Y%m%d") + into for time in times]


def log_of(times: list[Any], unit: str) -> fo.CrawlLog:
    return fo.CrawlLog([f"s{k}" for k in range(len(times))], times, [0] * len(times), time_unit=unit)


@pytest.mark.parametrize(
    ("times", "unit", "words"),
    [
        # What can be both is named with both readings, and what to do.
        ([20230307, 20230308], "second", ["20230307 in row 0", "2023-03-07", "20,230,307 seconds", "near 0"]),
        ([20230307, 20230308], "minute", ["2023-03-07 00:00 (YYYYMMDD)", "minutes", "2026-01-31T06"]),
        ([2023066], "second", ["2023-03-07 00:00 (YYYYDDD)", "2,023,066 seconds"]),
        (["2023030709"], "day", ["2023-03-07 09:00 (YYYYMMDDHH)", "2034-02-08T16:58:29 in seconds since"]),
        ([2023030709], "second", ["2023-03-07 09:00 (YYYYMMDDHH)", "in seconds since 1970"]),
        # Years of two digits have no century, and may be years of four and a month.
        ([230307, 230308], "day", ["230307 in row 0", "year of two digits (YYMMDD)", "2026-01-31T06"]),
        (["030709", "030710"], "second", ["030709", "year of two digits"]),
        ([200703], "day", ["2007-03-01 00:00 (YYYYMM) or a date with a year of two digits (YYMMDD)"]),
        ([200307092216], "day", ["2003-07-09 22:16 (YYYYMMDDHHMM) or", "YYMMDDHHMMSS"]),
        ([990307092216], "second", ["YYMMDDHHMMSS"]),
        # Among dates, what is none is no number either.
        ([20230307092216, 20231307092216], "day", ["20231307092216 in row 1", "no date"]),
        ([0, 20230307092216, 20230308092216], "day", ["is 0 in row 0", "no date"]),
        (["20230307092216", "2.02303E+13"], "day", ["20230300000000 in row 1", "spreadsheets round"]),
        ([2.02303e13, 2.02303e13], "second", ["no date", "spreadsheets"]),
        (["202303070922161"], "day", ["202303070922161 in row 0", "no date as YYYYMMDDHHMMSS"]),
        ([20230307, 20230308, 0], "day", ["is 0 in row 2", "no date as others are (YYYYMMDD)"]),
        ([20230307, 20230308, 20230231], "hour", ["20230231 in row 2", "no date"]),
        (["20230307T092216", "20230307T992216"], "day", ["'20230307T992216' in row 1", "ISO 8601"]),
        (np.array([20230307, 20230310], dtype=np.float32), "day", ["20230308 in row 0", "float32", "rounds"]),
    ],
)
def test_numbers_that_can_be_both_are_refused(times: list[Any], unit: str, words: list[str]) -> None:
    with refusing(*words):
        log_of(times, unit)


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([0.0, 20230307.0, 20230308.0], "second"),  # a log of 234 days, which begins with 0
        ([230307, 230308], "second"),
        ([2460010, 2460011], "day"),  # Julian days
        ([738586, 738587], "day"),  # days since the year 1
        ([44992, 44993], "hour"),  # days of a spreadsheet, or five years
        ([20230307.5, 20230308.0], "second"),
        ([1678180936, 1678180999], "second"),
        ([0.0, 5e12], "day"),
        ([-20230307.0, 0.0], "day"),
    ],
)
def test_numbers_that_count_time_stay_numbers(times: list[Any], unit: str) -> None:
    for given in (times, [str(time) for time in times]):
        log = log_of(given, unit)
        assert log.origin is None
        assert sorted(log.time.tolist()) == sorted(times)


def test_numbers_on_a_clock_of_numbers_are_no_dates() -> None:
    clock = Clock.beginning("second", [0.0])
    assert clock.number(20230307, "time") == 20230307.0
    assert clock.numbers([20230307092216], "time").tolist() == [20230307092216.0]


def test_the_column_decides_in_many_months() -> None:
    few = [20230307, 20230407, 20230507, 20230607]
    refused("which can be", log_of, few, "second")
    log = log_of([*few, 20230707], "second")
    assert log.origin == datetime(2023, 3, 7, tzinfo=UTC)
    assert log.time[-1] == timedelta(days=122).total_seconds()


def test_moments_with_and_without_separators_stand_together(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("source,time,changed\na,20230307,0\na,2023-03-08T06:00,1\na,20230309T120000,1\n")
    assert read_log(path).interval[1:].tolist() == [1.25, 1.25]


def test_dates_in_32_bits_are_refused_in_files(tmp_path: Path) -> None:
    table(pl.Series([20230307] * len(MOMENTS), dtype=pl.Float32)).write_parquet(tmp_path / "log.parquet")
    refused("a date in float32, which rounds it", read_log, tmp_path / "log.parquet")


@pytest.mark.parametrize(
    ("ticks", "unit", "name"),
    [
        (1, "day", "seconds"),
        (10**3, "day", "milliseconds"),
        (10**6, "hour", "microseconds"),
        (10**9, "second", "nanoseconds"),
    ],
)
def test_unix_time_is_read_as_dates_and_told(ticks: int, unit: str, name: str) -> None:
    for times in (
        [1678180936 * ticks, 1678267336 * ticks],
        [str(1678180936 * ticks), str(1678267336 * ticks)],
    ):
        with pytest.warns(
            fo.SourceDataWarning, match=rf"time is in {name} since 1970 \(2023-03-07 to 2023-03-08\)"
        ):
            log = log_of(times, unit)
        assert log.origin == datetime(2023, 3, 7, tzinfo=UTC)
        assert convert_time(float(np.ptp(log.time)), unit, "day") == 1.0


def test_requests_in_unix_time_are_counted_in_time(tmp_path: Path) -> None:
    (tmp_path / "edge.csv").write_text("source,time\na,1678180936\na,1678267336\n")
    with pytest.warns(fo.SourceDataWarning, match="seconds since 1970"):
        assert read_requests(tmp_path / "edge.csv")["request_rate"][0] == 2.5
    assert read_requests(tmp_path / "edge.csv", time_unit="second")["request_rate"][0] == 2.5 / 86_400.0


@pytest.mark.parametrize("wrong", [[np.inf, np.inf], [np.inf, np.nan], [-np.inf, 1.0], [np.inf, 20230307.5]])
def test_times_without_end_are_refused_as_such(wrong: list[float]) -> None:
    refused("time is", fo.CrawlLog, ["a", "b"], wrong, [0, 0])
