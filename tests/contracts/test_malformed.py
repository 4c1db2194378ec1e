"""Inputs that once were misunderstood, or ended in something else than one line of the library's own."""

import ast
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import freshopt as fo
from freshopt.estimators import MaximumLikelihood, MomentMatching, Naive
from freshopt.logs.read_crawls import read_log
from freshopt.logs.read_events import read_history
from freshopt.scheduling import Periodic
from freshopt.terminal.tables import sources_of
from freshopt.tools.changedetection import read_changedetection
from tests.ground_truth.command_lines import ESTIMATE, PLAN, SCHEDULE, SOLVE, refuse
from tests.ground_truth.named import HARMONIC
from tests.ground_truth.refusals import refused

S, T, C = ["a", "a", "b"], [0.0, 1.0, 2.0], [0, 1, 0]
RATE = [1.0, 2.0, 3.0]
NAMES = ["a", "b", "c"]


def moments(*numbers: int, unit: Any = "us") -> pl.Series:  # noqa: ANN401 - a literal
    return pl.Series(numbers, dtype=pl.Int64).cast(pl.Datetime(unit))


# Columns of a Parquet log, and what is said of them.
LOGS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "year 146,000": (
        {"source": S, "time": moments(2**62, 0, 1), "changed": C},
        ("in the year 148108", "row 1"),
    ),
    "year -144,000": (
        {"source": S, "time": moments(-(2**62), 0, 1), "changed": C},
        ("in the year -144", "row 1"),
    ),
    "milliseconds": (
        {"source": S, "time": moments(0, 2**62, 1, unit="ms"), "changed": C},
        ("row 2", "wrong unit"),
    ),
    "days beyond any calendar": (
        {"source": S, "time": pl.Series([2**31 - 1, 0, 1], dtype=pl.Int32).cast(pl.Date), "changed": C},
        ("in the year 5881580", "row 1"),
    ),
    "zero byte": ({"source": ["a\0", "a", "b"], "time": T, "changed": C}, ("'a\\x00'", "zero bytes")),
    "lists": ({"source": [["a"]] * 3, "time": T, "changed": C}, ("holds List(String)", "Convert")),
    "structs": ({"source": [{"x": 1}] * 3, "time": T, "changed": C}, ("holds Struct", "Convert")),
    "bytes": ({"source": [b"a"] * 3, "time": T, "changed": C}, ("holds Binary", "Convert")),
    "floats": ({"source": RATE, "time": T, "changed": C}, ("holds Float64", "Convert")),
    "list of times": ({"source": S, "time": [[1.0]] * 3, "changed": C}, ("'time'", "holds List(Float64)")),
    "durations": ({"source": S, "time": [timedelta(1)] * 3, "changed": C}, ("'time'", "holds Duration")),
    "categories of times": (
        {"source": S, "time": pl.Series(NAMES, dtype=pl.Categorical), "changed": C},
        ("'time'", "holds Categorical"),
    ),
    "list of flags": ({"source": S, "time": T, "changed": [[0]] * 3}, ("'changed'", "holds List(Int64)")),
    "empty flags": ({"source": S, "time": T, "changed": [None] * 3}, ("changed is empty in row 1",)),
    "count of 1e99": (
        {"source": S, "time": T, "changed": C, "changes": [0.0, 1e99, 0.0]},
        ("1e+99", "not a count"),
    ),
    "no rows": ({"source": [], "time": [], "changed": []}, ("no rows",)),
}


@pytest.mark.parametrize("name", LOGS)
def test_parquet_logs(name: str, folder: Path) -> None:
    columns, words = LOGS[name]
    pl.DataFrame(columns).write_parquet("log.parquet")
    refuse(folder, ["estimate", "log.parquet", *ESTIMATE], words)


# Columns of a Parquet table of sources with rates, and what is said of them.
TABLES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "list of names": ({"source": [["a"], ["b"], ["c"]]}, ("'source'", "List(String)", "to text")),
    "bytes as names": ({"source": [b"a", b"b", b"\xff"]}, ("'source'", "Binary", "to text")),
    "dates as names": (
        {"source": [datetime(2024, 1, k, tzinfo=UTC) for k in (1, 2, 3)]},
        ("'source'", "Datetime"),
    ),
    "zero byte": ({"source": ["a\0", "a", "b"]}, ("'a\\x00'", "row 1", "zero bytes")),
    "list of hosts": ({"source": NAMES, "host": [["x"]] * 3}, ("'host'", "List(String)", "Write text")),
    "bytes as hosts": ({"source": NAMES, "host": [b"\xff"] * 3}, ("'host'", "Binary", "Write text")),
    "list of units": ({"source": NAMES, "time_unit": [["day"]] * 3}, ("'time_unit'", "List(String)")),
    "number as unit": ({"source": NAMES, "time_unit": [1] * 3}, ("t.parquet", "time_unit '1' is not known")),
    "flag 2": ({"source": NAMES, "signalled": [0, 1, 2]}, ("signalled is 2 in row 3", "true or false")),
    "flag 0.5": ({"source": NAMES, "signalled": [0.5, 1.0, 0.0]}, ("signalled is 0.5 in row 1",)),
    "list of flags": (
        {"source": NAMES, "signalled": [[True]] * 3},
        ("'signalled'", "List(Boolean)", "true or false"),
    ),
    "date as flag": (
        {"source": NAMES, "signalled": [datetime(2024, 1, 1, tzinfo=UTC)] * 3},
        ("'signalled'",),
    ),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("command", ["solve", "schedule"])
def test_parquet_tables(command: str, name: str, folder: Path) -> None:
    columns, words = TABLES[name]
    pl.DataFrame({**columns, "change_rate": RATE, "rate": [0.5] * 3}).write_parquet("t.parquet")
    refuse(folder, [command, "t.parquet", *(SOLVE if command == "solve" else SCHEDULE)], words)


def test_a_column_twice_in_parquet(folder: Path) -> None:
    columns = [pa.array(S), pa.array(T), pa.array(C), pa.array(C)]
    pq.write_table(
        pa.Table.from_arrays(columns, names=["source", "time", "changed", "changed"]), "twice.parquet"
    )
    refuse(
        folder, ["plan", "twice.parquet", *PLAN], ("twice.parquet", "'changed' has more than one", "Keep one")
    )


@pytest.mark.parametrize(
    ("name", "text", "command", "words"),
    [
        (
            "h.csv",
            "source,time\na,0\na,nan\n",
            ["import", "history", "h.csv"],
            ("row 2, line 3 of h.csv",),
        ),
        (
            "l.csv",
            "source,time,changed\na,0000-01-01,0\na,0001-01-01,1\n",
            ["estimate", "l.csv", *ESTIMATE],
            ("in the year 0 in row 1, line 2", "from 1 to 9999"),
        ),
        (
            "r.csv",
            "source,rate,signalled,change_rate\na,1,true,0\n",
            ["schedule", "r.csv", *SCHEDULE],
            ("r.csv", "'a': 0", "change_rate of a signalled source"),
        ),
        (
            "r.csv",
            "source,rate,signalled,change_rate\na,1,true,nan\n",
            ["schedule", "r.csv", *SCHEDULE],
            ("'a': nan",),
        ),
        (
            "r.csv",
            "source,rate\na,-1\n",
            ["schedule", "r.csv", *SCHEDULE],
            ("r.csv: rate out of range for 'a': -1",),
        ),
        (
            "r.csv",
            "source,rate,time_unit\na,1,month\n",
            ["schedule", "r.csv", *SCHEDULE],
            ("r.csv: time_unit 'month'",),
        ),
        ("s.csv", "source,change_rate\n\x1b[31mx,-1\n", ["solve", "s.csv", *SOLVE], ("'\\x1b[31mx'",)),
        ("s.csv", f"source,change_rate\n{'x' * 10**6},-1\n", ["solve", "s.csv", *SOLVE], ("xxx...xxx", "-1")),
        (
            "s.csv",
            f"{'x' * 10**6},change\na,1\n",
            ["solve", "s.csv", *SOLVE],
            ("xxx...xxx", "change", "add the columns"),
        ),
        (
            "e.csv",
            "source,elapsed,changed\na,1,0\na,1,1\n",
            ["estimate", "e.csv", "--half-life", "3d", *ESTIMATE],
            ("gaps between them only", "Add the column time"),
        ),
    ],
)
def test_text_tables(name: str, text: str, command: list[str], words: tuple[str, ...], folder: Path) -> None:
    Path(name).write_text(text)
    refuse(folder, command, words)


def test_blank_lines_at_the_end_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("source,change_rate\na,1\nb,2\n\n\n")
    assert len(sources_of(tmp_path / "s.csv", None).sources) == 2
    (tmp_path / "h.csv").write_text("source,time\na,0\na,3\n\n")
    assert len(read_history(tmp_path / "h.csv")) == 2


def test_five_centuries_in_nanoseconds(tmp_path: Path) -> None:
    """NumPy's difference of these wraps around without a word."""
    years = [datetime(year, 1, 1) for year in (1700, 2000, 2100)]
    time = pl.Series(years).cast(pl.Datetime("ns"))
    pl.DataFrame({"source": ["a"] * 3, "time": time, "changed": [0, 1, 1]}).write_parquet(
        tmp_path / "l.parquet"
    )
    with pytest.warns(fo.SourceDataWarning, match="not in the years 1971 to 2100 in row 1"):
        log = read_log(tmp_path / "l.parquet")
    assert log.origin == datetime(1700, 1, 1, tzinfo=UTC)
    assert log.time.tolist() == [float((year - years[0]).days) for year in years]


def test_moments_finer_than_nanoseconds() -> None:
    with pytest.warns(fo.SourceDataWarning, match="1970-01-01"):
        log = fo.CrawlLog(["a", "a"], np.array([10**9, 3 * 10**9], "M8[as]"), [0, 1], time_unit="second")
    assert log.time.tolist() == [1e-9, 3e-9]


def test_daylight_saving_time(tmp_path: Path) -> None:
    """Both clocks of a night on which they change, and one moment by two offsets, are counted in UTC."""
    local = [
        "2024-10-27T02:30+02:00",
        "2024-10-27T02:30+01:00",
        "2024-10-27T04:30:00+0300",
        "2024-10-27 02:45Z",
    ]
    refused("repeats the time of row 1", fo.CrawlLog, ["a"] * 4, local, [0, 1, 0, 1])
    log = fo.CrawlLog(["a"] * 3, [*local[:2], local[3]], [0, 1, 1], time_unit="hour")
    assert log.time.tolist() == [0.5, 1.5, 2.75]
    zoned = pl.Series([datetime(2024, 3, 31, h) for h in (0, 3, 4)]).dt.replace_time_zone("Europe/Berlin")
    pl.DataFrame({"source": ["a"] * 3, "time": zoned, "changed": [0, 1, 0]}).write_parquet(
        tmp_path / "z.parquet"
    )
    assert read_log(tmp_path / "z.parquet", "hour").interval[1:].tolist() == [2.0, 1.0]  # 02:00 did not exist
    leap = fo.CrawlLog(
        ["a"] * 2, ["2016-12-31T23:59:59Z", "2016-12-31T23:59:60Z"], [0, 1], time_unit="second"
    )
    assert leap.interval[1] == 1.0
    for first in ("1890-01-01", "2300-01-01"):
        with pytest.warns(fo.SourceDataWarning, match=f"row 0 .*: {first}"):
            log = fo.CrawlLog(["a"] * 2, [f"{first}T00:00Z", f"{first}T12:00Z"], [0, 1])
        assert log.interval[1] == 0.5
        assert log.origin == datetime.fromisoformat(first).replace(tzinfo=UTC)


def test_gaps_alone_tell_no_ages() -> None:
    columns = {"source": ["a", "a", "b"], "elapsed": [1.0, 1.0, 90.0], "changed": [0, 1, 1]}
    log = fo.CrawlLog.from_columns(columns)
    assert log.age.tolist() == [0.0, 0.0]
    assert fo.CrawlLog(["a", "b"], [1.0, 4.0], [0, 0]).age.tolist() == [3.0, 0.0]
    for estimator in (MaximumLikelihood(half_life=3.0), Naive(half_life=3.0), MomentMatching(half_life=3.0)):
        refused("gaps between them only", estimator.fit, log)


TWO = fo.Sources([1.0, 2.0])
PROBLEM = fo.Problem(HARMONIC, TWO, 3.0)
RAGGED: Any = [[1.0], [1.0, 2.0]]
WORD: Any = "x"
HUGE: Any = 10**400
CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "rate of 400 digits": (lambda: fo.Sources([HUGE]), "change_rate must be numbers"),
    "ragged rates": (lambda: fo.Sources(RAGGED), "entries of different lengths"),
    "dates as rates": (lambda: fo.Sources(np.array(["2024-01-01"], "M8[D]")), "has dates"),
    "complex rates": (lambda: fo.Sources([1j]), "has complex numbers"),
    "masked rates": (lambda: fo.Sources(np.ma.array([1.0, 2.0], mask=[False, True])), "has masked entries"),
    "list as name": (
        lambda: fo.Sources([1.0], names=np.array([["a"], None], dtype=object)[:1]),
        r"a name is \['a'\]",
    ),
    "list as unit": (lambda: fo.Sources([1.0], time_unit=[WORD]), r"time_unit \['x'\]"),  # type: ignore[arg-type]
    "bandwidth of 400 digits": (lambda: fo.Problem(HARMONIC, TWO, HUGE), "not a number"),
    "list of host limits": (lambda: fo.Problem(HARMONIC, TWO, 1.0, RAGGED), "Pass a mapping"),
    "word as tolerance": (lambda: fo.solve(PROBLEM, tolerance=WORD), "tolerance is 'x', not a number"),
    "word as start": (lambda: fo.solve(PROBLEM, warm_start=WORD), "warm_start is 'x', not a number"),
    "words as bandwidths": (lambda: fo.frontier(PROBLEM, [WORD]), "a bandwidth: 'x' cannot be read"),
    "one bandwidth": (lambda: fo.frontier(PROBLEM, 3.0), "limits are 3.0, not a list"),  # type: ignore[arg-type]
    "word as smoothing": (lambda: MaximumLikelihood(smoothing=WORD), "smoothing is 'x', not a number"),
    "words as bounds": (lambda: MomentMatching(bounds=WORD), "Pass the smallest and the largest"),
    "word as horizon": (lambda: fo.schedule({"a": 1.0}, WORD, Periodic()), "horizon: 'x' cannot be read"),
    "name of a method": (lambda: fo.schedule({"a": 1.0}, 7.0, WORD), "method is 'x'. Pass an instance"),
    "class of a method": (lambda: fo.schedule({"a": 1.0}, 7.0, Periodic), "Pass an instance"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    call, words = CALLS[name]
    refused(words, call)


def test_a_panic_of_the_parser_is_a_damaged_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some damaged pages of Parquet end in Rust's assertions, which are no exceptions of Python's kind."""

    def panic(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException("assertion failed: offset + length <= self.length")

    pl.DataFrame({"source": S, "time": T, "changed": C}).write_parquet("log.parquet")
    monkeypatch.setattr(pl, "read_parquet", panic)
    refuse(folder, ["plan", "log.parquet", *PLAN], ("log.parquet is damaged", "write it anew"))


def test_a_watch_stays_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "history.txt").write_text("password\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "url-watches.json").write_text('{"watching": {"../secret": {"url": "http://a/"}}}')
    refused("no name of a folder", read_changedetection, tmp_path / "data")


def test_nothing_is_executed_that_was_read() -> None:
    """No eval, exec or compile, no pickle; NumPy is told to refuse pickles, and no shell is asked.

    Loops over declared expressions, kernels, and what is done to each of several columns are run from a
    source that was generated in the same call, editions for arrays from the package's own functions.
    """
    package = Path(fo.__file__).parent
    folders = (package, package.parent / "problems", package.parent / "solvers")
    written = {
        file for folder in folders for file in folder.rglob("*.py") if file.parent.name != "__pycache__"
    }
    for file in written:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                generated = file.parts[-2:] in (
                    ("tapes", "tape_loops.py"),
                    ("cuda", "kernel_loops.py"),
                    ("cells", "array_edition.py"),
                    ("compiled", "column_access.py"),
                )
                executing = {"eval", "__import__"} | (set() if generated else {"exec", "compile"})
                assert node.func.id not in executing, f"{file}:{node.lineno}"
            if isinstance(node, ast.Import | ast.ImportFrom):
                modules = (
                    [node.module or ""] if isinstance(node, ast.ImportFrom) else [n.name for n in node.names]
                )
                own = file.parts[-2:] == ("distributed", "dask_passes.py")
                # Dask sends a run's own functions to its own workers as pickles; nothing of them is stored.
                banned = (
                    {"shelve"}
                    if own
                    else {"pickle", "cloudpickle", "shelve", "marshal", "dill", "joblib", "code"}
                )
                assert not banned & {module.partition(".")[0] for module in modules}, f"{file}:{node.lineno}"
            if isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle"):
                assert isinstance(node.value, ast.Constant), f"{file}:{node.value.lineno}"
                assert node.value.value is False, f"{file}:{node.value.lineno}"
