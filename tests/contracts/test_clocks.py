"""Times that can be read and look wrong: one line with the row, the source and a remedy, and no more."""

import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.datasets import load_example
from freshopt.datasets.change_histories import EXAMPLES, example_events
from freshopt.logs.read_events import read_history
from tests.ground_truth.command_lines import PLAN, Run
from tests.ground_truth.strata import matrix

DAYS = [f"2026-01-0{day}" for day in range(1, 7)]
JUMP = ("time jumps", "source 'a'", "correct or drop")
YEAR = ("not in the years 1971 to 2100", "source 'a'", "correct or drop")
MIXED = ("an offset (or Z) in", "taken as UTC", "Write an offset")


def changed(days: list[str], **others: str) -> list[str]:
    """Return the days with others in the places that their names end in."""
    return [others.get(f"row{k}", day) for k, day in enumerate(days)]


# Times of six crawls of source a, and what is said of them.
COLUMNS: dict[str, tuple[list[Any], tuple[str, ...]]] = {
    "days": ([0, 1, 2, 3, 4, 5], ()),
    "a jump at the end": ([0, 1, 2, 3, 4, 1e9], (*JUMP, "day 4 to day 1e+09 in row {5}")),
    "a jump in the middle": ([0, 1, 2, 1e9, 1e9 + 1, 1e9 + 2], (*JUMP, "in row {3}")),
    "a jump back": ([0, 1, 2, 3, -1e9, 4], (*JUMP, "in row {0}")),
    "two jumps": ([0, 1, 2, 3, 1e9, 2e9], (*JUMP, "in row {4}", "in row {5}")),
    "a pause of a year": ([0, 1, 2, 3, 4, 369], ()),
    "crawls ten years apart": ([0, 4000, 8000, 12000, 16000, 20000], ()),
    "dates": (DAYS, ()),
    "all in 2846": ([day.replace("2026", "2846") for day in DAYS], (*YEAR, "row {0}", "and 1 more")),
    "a clock that was never set": (changed(DAYS, row0="1970-01-01"), (*YEAR, "row {0}", "1970-01-01")),
    "36 years ahead": (changed(DAYS, row5="2062-01-06"), (*JUMP, "2026-01-05", "2062-01-06", "row {5}")),
    "offsets": ([f"{day}T00:00+01:00" for day in DAYS], ()),
    "Z and offsets": ([*(f"{day}T00:00Z" for day in DAYS[:5]), "2026-01-06T00:00+01:00"], ()),
    "naive and Z": (
        changed(DAYS, row2="2026-01-03T00:00Z"),
        (*MIXED, "in 1 row and none in 5", "in row {0}"),
    ),
    "Z and naive": (
        [*(f"{day}T00:00Z" for day in DAYS[:4]), *DAYS[4:]],
        (*MIXED, "in 4 rows and none in 2", "'2026-01-05' in row {4}"),
    ),
}
ROWS = 6


def told(build: Callable[[], object]) -> list[str]:
    """Return the warnings of a call, each of which is one line and names this file."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        build()
    for warning in found:
        assert issubclass(warning.category, fo.SourceDataWarning)
        assert warning.filename == __file__
        assert "\n" not in str(warning.message)
        assert str(warning.message).endswith(".")
    return [str(warning.message) for warning in found]


def require(messages: list[str], words: tuple[str, ...], first: int) -> None:
    """Check that there is one warning with these words, rows counted from `first`, or none."""
    assert len(messages) == bool(words), messages
    for word in words:
        row = word if "{" not in word else f"{word.partition('{')[0]}{int(word[-2]) + first}"
        assert row in messages[0]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_times(name: str) -> None:
    times, words = COLUMNS[name]
    flags = [0, 1, 0, 1, 0, 1]
    require(told(lambda: fo.CrawlLog(["a"] * ROWS, times, flags)), words, 0)
    frame = pl.DataFrame({"source": ["a"] * ROWS, "time": pl.Series(times, strict=False), "changed": flags})
    require(told(lambda: fo.CrawlLog.from_frame(frame)), words, 0)
    require(told(lambda: fo.ChangeHistory(["a"] * ROWS, times)), words, 0)


@matrix(name=COLUMNS, ending=["csv", "parquet"], every=2)
def test_files_on_the_command_line(name: str, ending: str, run: Run) -> None:
    """One line on standard error, however often the log is read; nothing else changes."""
    times, words = COLUMNS[name]
    columns = {"source": ["a"] * ROWS, "time": pl.Series(times, strict=False), "changed": [0, 1, 0, 1, 0, 1]}
    frame = pl.DataFrame(columns)
    frame.write_csv("log.csv") if ending == "csv" else frame.write_parquet("log.parquet")
    done = run("estimate", f"log.{ending}", "--out", "rates.csv")
    lines = done.stderr.splitlines()
    assert all(line.startswith("Warning: ") for line in lines)
    require(lines, words, 1)
    if words:
        assert f"log.{ending}" in lines[0]
    assert "Warning" not in done.stdout


@pytest.mark.parametrize("name", COLUMNS)
def test_a_history_in_a_file(name: str, tmp_path: Path) -> None:
    times, words = COLUMNS[name]
    pl.DataFrame({"source": ["a"] * ROWS, "time": pl.Series(times, strict=False)}).write_csv(
        tmp_path / "h.csv"
    )
    messages = told(lambda: read_history(tmp_path / "h.csv"))
    assert len(messages) == bool(words)
    assert all(word in messages[0] for word in words[:3])


@pytest.mark.parametrize("year", [2101, 2846, 9999])
def test_a_row_of_the_future_among_others_is_refused(year: int, run: Run) -> None:
    times = changed(DAYS, row0="1970-01-01", row4=f"{year}-01-05")
    words = ("later than the year 2100", "row {4}", f"(source 'a'): {year}-01-05 00:00", "Correct or drop")
    for first, build in (
        (0, lambda: fo.CrawlLog(["a"] * ROWS, times, [0, 1] * 3)),
        (0, lambda: fo.ChangeHistory(["a"] * ROWS, times)),
        (1, lambda: fo.read_log("log.csv")),
    ):
        pl.DataFrame({"source": ["a"] * ROWS, "time": times, "changed": [0, 1] * 3}).write_csv("log.csv")
        with pytest.raises(fo.SourceDataError) as refusal:
            build()
        require([str(refusal.value)], words, first)
    done = run("estimate", "log.csv", "--out", "rates.csv", code=2)
    assert "row 5, line 6 of log.csv (source 'a')" in done.stderr


def test_the_last_moment_of_the_calendar_is_told() -> None:
    """Its microseconds round up to a year that no calendar has."""
    with pytest.raises(fo.SourceDataError, match=r"row 4 \(source 'a'\): 9999-12-31 23:59"):
        fo.CrawlLog(["a"] * ROWS, changed(DAYS, row4="9999-12-31T23:59:59.999999999"), [0, 1] * 3)


def test_objects_with_and_without_a_zone() -> None:
    times = [datetime(2026, 1, 1), datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3)]
    require(told(lambda: fo.CrawlLog(["a"] * 3, times, [0, 1, 0])), (*MIXED, "in 1 row and none in 2"), 0)
    assert told(lambda: fo.CrawlLog(["a"] * 2, times[::2], [0, 1])) == []
    assert told(lambda: fo.CrawlLog(["a"], times[1:2], [0])) == []


def test_intervals_without_times_have_no_clock() -> None:
    def log(*elapsed: float) -> Callable[[], object]:
        columns = {"source": ["a"] * len(elapsed), "elapsed": elapsed, "changed": [0] * len(elapsed)}
        return lambda: fo.CrawlLog.from_columns(columns)

    assert told(log(1.0, 1.0, 1.0, 1e9, 1.0)) == []


def test_two_rounds_of_many_sources_are_no_jump() -> None:
    """All crawls of a round are within minutes, and the rounds eleven years apart."""
    n = 100
    time = np.concatenate([np.linspace(0.0, 0.01, n), 4000.0 + np.linspace(0.0, 0.01, n)])
    assert told(lambda: fo.CrawlLog([*range(n)] * 2, time, [0] * n + [1] * n)) == []


def test_what_is_made_of_a_log_warns_no_second_time(run: Run) -> None:
    """Daily crawls of a history, the first part of a log, a command that holds out a part."""
    with pytest.warns(fo.SourceDataWarning, match="1970"):
        history = fo.ChangeHistory(["a"] * 6, [*DAYS[:5], "1970-01-05"])
    with pytest.warns(fo.SourceDataWarning, match="jumps"):
        jump = fo.CrawlLog(["a"] * 6 + ["b"] * 6, [0, 1, 2, 3, 4, 9e3] * 2, [0, 1] * 6)
    assert told(lambda: history.to_log(1000.0)) == []
    assert told(lambda: fo.backtest(jump, bandwidth=0.01, share=0.9)) == []
    pl.DataFrame({"source": ["a"] * 6, "time": [0.0, 1, 2, 3, 4, 9e3], "changed": [0, 1] * 3}).write_csv(
        "l.csv"
    )
    done = run("plan", "l.csv", *PLAN, "--replay")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Warning: time jumps from day 4 to day 9,000 in row 6, line 7 of l.csv")


def test_real_and_ordinary_logs_are_taken_in_silence() -> None:
    """The bundled histories; logs of 1 s to 60 years, crawled at regular and at random times, with pauses."""
    for name in EXAMPLES:
        assert told(partial(load_example, name)) == []
        assert told(partial(fo.ChangeHistory.from_frame, example_events(name))) == []
    rng = np.random.default_rng(7)
    for span in (1.0, 3600.0, 86400.0, 1e7, 1e8, 1.9e9):
        for crawls in (2, 3, 10, 300):
            time = np.sort(rng.uniform(0.0, span, (20, crawls)), axis=1)
            time[:, crawls // 2 :] += rng.choice([0.0, 3.0]) * min(span, 3e8)
            source = np.repeat(np.arange(20), crawls)
            seconds = [timedelta(seconds=at) for at in time.ravel().tolist()]
            moments = [datetime(1975, 1, 1, tzinfo=UTC) + at for at in seconds]
            flags = [0] * source.size
            assert told(partial(fo.CrawlLog, source, time.ravel(), flags, time_unit="second")) == []
            assert told(partial(fo.CrawlLog, source, moments, flags)) == []
