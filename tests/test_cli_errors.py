"""What goes wrong ends in one line that names the culprit and the remedy, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from freshopt.cli import main

COMMAND = Path(sys.executable).with_name("freshopt")
LOG = "source,time,changed\na,0,0\na,1,1\na,2,0\nb,0,0\nb,1,0\nb,2,0\nc,0,0\n"
FILES = {
    "log.csv": LOG,
    "log.txt": LOG,
    "sources.csv": "source,change_rate\na,1\nb,2\n",
    "capped.csv": "source,change_rate,max_rate\na,1,0.1\nb,2,9\n",
    "floors.csv": "source,change_rate,min_rate\na,1,5\nb,2,6\n",
    "rates.csv": "source,rate\na,1\nb,2\n",
}
LONG = "x" * 300
PLAN = ("--bandwidth", "1/day", "--horizon", "7d", "--out", "out")
ESTIMATE, SOLVE = ("--out", "out.csv"), ("--bandwidth", "2", "--out", "out.csv")
SCHEDULE = ("--horizon", "7d", "--out", "out.csv")


def content(folder: Path) -> dict[str, bytes | None]:
    """All there is in a folder, hidden files too."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def refuse(folder: Path, arguments: Sequence[str], words: Sequence[str]) -> None:
    """Check that a command line ends in one line with these words, and changes nothing."""
    before = content(folder)
    result = CliRunner().invoke(main, arguments)
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert len(lines) == 1, result.output
    assert lines[0].startswith("Error: ")
    for word in words:
        assert word in lines[0]
    assert lines[0].endswith((".", "?", ")"))
    assert ".partial." not in lines[0].split(" (")[0]
    assert content(folder) == before


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    return tmp_path


# The content of log.csv, and what is said of it.
LOGS: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("log.csv is empty", "column names")),
    "header only": ("source,time,changed\n", ("log.csv has column names but no rows",)),
    "wrong columns": ("url,when,found\na,1,0\n", ("'source', 'changed', 'time'", "'url'", "Rename")),
    "semicolons": ("source;time;changed\na;1;0\n", ("'source;time;changed'", "separated by commas")),
    "time is nan": ("source,time,changed\na,0,0\na,nan,1\n", ("line 3 of log.csv", "'a'", "nan", "Correct")),
    "time is infinite": ("source,time,changed\na,0,0\na,inf,1\n", ("line 3 of log.csv", "inf", "Correct")),
    "time is empty": ("source,time,changed\na,0,0\na,,1\n", ("time is empty", "line 3 of log.csv", "Fill")),
    "source is empty": ("source,time,changed\na,0,0\n,1,1\n", ("source is empty", "line 3", "Fill")),
    "changed is empty": ("source,time,changed\na,0,0\na,1,\n", ("changed is empty", "line 3", "Write 1")),
    "changed is 2": ("source,time,changed\na,0,0\na,1,2\n", ("changed is '2'", "line 3", "Write 1")),
    "changed is a word": ("source,time,changed\na,0,no\n", ("changed is 'no'", "line 2", "Write 1")),
    "time is a word": ("source,time,changed\na,today,0\n", ("time is 'today'", "line 2", "ISO 8601")),
    "repeated crawl": ("source,time,changed\na,1,0\na,1,1\n", ("'a'", "repeats", "line 3", "Drop")),
    "two kinds of time": ("source,time,changed\na,1,0\na,2024-01-01,1\n", ("'2024-01-01'", "of one kind")),
    "too many fields": ("source,time,changed\na,0,0\na,1,0,5\n", ("log.csv cannot be read as CSV", "Check")),
    "open quote": ('source,time,changed\n"a,0,0\n', ("log.csv cannot be read as CSV", "Check")),
    "not UTF-8": (b"source,time,changed\n\xe9,0,0\n", ("log.csv cannot be read as CSV", "UTF-8")),
    "garbage": (bytes(range(256)), ("log.csv has no column", "A log has a header with source, time")),
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("command", ["plan", "estimate"])
def test_logs(command: str, name: str, folder: Path) -> None:
    text, words = LOGS[name]
    Path("log.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    refuse(folder, [command, "log.csv", *(PLAN if command == "plan" else ESTIMATE)], words)


@pytest.mark.parametrize("size", [0, 3, 200, -1])
def test_damaged_parquet(size: int, folder: Path) -> None:
    pl.read_csv("log.csv").write_parquet("log.parquet")
    whole = Path("log.parquet").read_bytes()
    Path("log.parquet").write_bytes(whole[:size])
    refuse(folder, ["plan", "log.parquet", *PLAN], ("log.parquet", "Parquet file"))


# Arguments of `plan log.csv`, replacing those of PLAN, and what is said of them.
OPTIONS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "bandwidth is a word": ({"--bandwidth": "abc"}, ("--bandwidth: 'abc'", "such as 200/day")),
    "bandwidth is empty": ({"--bandwidth": ""}, ("--bandwidth: ''", "such as 200/day")),
    "bandwidth 0": ({"--bandwidth": "0"}, ("bandwidth is 0", "> 0")),
    "bandwidth negative": ({"--bandwidth": "-3/day"}, ("--bandwidth: '-3/day' is negative", "200/day")),
    "bandwidth nan": ({"--bandwidth": "nan"}, ("--bandwidth: 'nan'", "200/day")),
    "bandwidth infinite": ({"--bandwidth": "1e999/day"}, ("--bandwidth: '1e999/day'", "200/day")),
    "bandwidth huge": ({"--bandwidth": "1e200/s"}, ("bandwidth is 8.64e+204", "1e+100")),
    "bandwidth per fortnight": ({"--bandwidth": "2/fortnight"}, ("'fortnight'", "second, minute, hour, day")),
    "bandwidth is a time": ({"--bandwidth": "7d"}, ("'7d' is a duration, not a rate", "200/day")),
    "horizon is a word": ({"--horizon": "abc"}, ("--horizon: 'abc'", "such as 7d")),
    "horizon 0": ({"--horizon": "0"}, ("--horizon: '0'", "> 0", "such as 7d")),
    "horizon negative": ({"--horizon": "-1d"}, ("--horizon: '-1d' is negative", "such as 7d")),
    "horizon is a rate": ({"--horizon": "3/day"}, ("'3/day' is a rate, not a duration", "such as 7d")),
    "horizon in months": ({"--horizon": "1month"}, ("'month'", "second, minute, hour, day")),
    "horizon huge": ({"--horizon": "1e12d"}, ("1e+12 days", "limit is 16 GiB", "at most 3.58e+08 days")),
    "horizon overflows": ({"--horizon": "1e308w"}, ("--horizon: '1e308w'", "such as 7d")),
    "min-rate is a word": ({"--min-rate": "often"}, ("--min-rate: 'often'", "such as 200/day")),
    "min-rate too high": ({"--min-rate": "1"}, ("need 3 refreshes/day", "bandwidth is 1", "lower min_rate")),
    "min-rate above max-rate": (
        {"--min-rate": "0.2", "--max-rate": "0.1"},
        ("exceeds max_rate for 'a'", "widen"),
    ),
    "max-rate 0": ({"--max-rate": "0"}, ("max_rate is 0 for 'a'", "infinite when never refreshed", "Drop")),
    "max-rate negative": ({"--max-rate": "-1"}, ("--max-rate: '-1' is negative", "such as 200/day")),
    "smoothing negative": ({"--smoothing": "-1"}, ("smoothing is -1", "0 for none")),
    "smoothing nan": ({"--smoothing": "nan"}, ("smoothing is nan", "0 for none")),
    "smoothing is a word": ({"--smoothing": "much"}, ("'--smoothing'", "'much'", "freshopt plan --help")),
    "no smoothing": ({"--smoothing": "0"}, ("'b' (never changed), 'c' (baseline only)", "smoothing > 0")),
    "confidence 2": ({"--confidence": "2"}, ("confidence is 2", "between 0 and 1")),
    "confidence nan": ({"--confidence": "nan"}, ("confidence is nan", "between 0 and 1")),
    "time unit": ({"--time-unit": "month"}, ("'--time-unit'", "'month'", "'day'", "freshopt plan --help")),
    "objective": ({"--objective": "fresh"}, ("'--objective'", "'fresh'", "'harmonic', 'binary', 'delay'")),
    "refresh": ({"--refresh": "often"}, ("'--refresh'", "'often'", "'periodic', 'poisson'")),
    "seed negative": ({"--refresh": "poisson", "--seed": "-1"}, ("'--seed'", "-1", "x>=0")),
    "seed is no integer": ({"--seed": "1.5"}, ("'--seed'", "'1.5'", "integer")),
    "option unknown": ({"--speed": "1"}, ("No such option '--speed'", "freshopt plan --help")),
    "both logs": ({"--example": "debian-uploads"}, ("LOG or --example", "freshopt plan --help")),
    "importance missing": ({"--importance": "no.csv"}, ("there is no file no.csv", "Check the path")),
    "out is a file": ({"--out": "log.csv"}, ("log.csv is a file, not a folder", "Choose another")),
    "out below a file": ({"--out": "log.csv/plan"}, ("log.csv is a file", "Choose another")),
    "out where nothing can be": ({"--out": "/proc/plan"}, ("/proc/plan cannot be written", "Choose another")),
    "out is the working folder": ({"--out": "."}, ("is the working folder", "Name a folder inside it")),
    "out too long": ({"--out": LONG}, (LONG, "too long", "Choose another")),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_plan(name: str, folder: Path) -> None:
    changes, words = OPTIONS[name]
    options = {**dict(zip(PLAN[::2], PLAN[1::2], strict=True)), **changes}
    refuse(folder, ["plan", "log.csv", *(text for pair in options.items() for text in pair)], words)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("source,importance\na,1\nb,1\n", ("weights.csv has no importance for 'c'", "Add a row")),
        ("source,importance\na,1\nb,-2\nc,1\n", ("weights.csv", "'b': -2", "Correct")),
        ("source,importance\na,1\nb,nan\nc,1\n", ("weights.csv", "'b': nan", "Correct")),
        ("source,importance\na,1\nb,inf\nc,1\n", ("importance out of range for 'b': inf", "Correct")),
        ("source,importance\na,1\nb,1\nc,1\nb,2\n", ("weights.csv names 'b' more than once", "Keep one")),
        (
            "source,importance\na,1\nb,high\nc,1\n",
            ("importance in weights.csv is 'high'", "line 3", "a number"),
        ),
        ("source,importance\na,1\nb,\nc,1\n", ("'importance' of weights.csv has empty cells", "Fill")),
        ("source,importance\na,1\n,1\nc,1\n", ("'source' of weights.csv has empty cells", "Fill")),
        ("source,weight\na,1\n", ("weights.csv has no column 'importance'", "source, weight", "Rename")),
        ("", ("weights.csv is empty", "column names")),
    ],
    ids=["lacking", "negative", "nan", "inf", "twice", "word", "empty", "no name", "no column", "no table"],
)
def test_importances(table: str, words: tuple[str, ...], folder: Path) -> None:
    Path("weights.csv").write_text(table)
    refuse(folder, ["plan", "log.csv", *PLAN, "--importance", "weights.csv"], words)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("source,change_rate\na,1\nb,-1\n", ("bad.csv", "'b': -1", "Correct")),
        ("source,change_rate\na,1\nb,0\n", ("bad.csv", "'b': 0", "a change rate is > 0")),
        ("source,change_rate\na,1\nb,nan\n", ("bad.csv", "'b': nan", "Correct")),
        ("source,change_rate\na,1\nb,fast\n", ("bad.csv", "'fast' in row 2, line 3", "Write a number")),
        ("source,change_rate\na,1\nb,\n", ("bad.csv", "'change_rate' has 1 empty", "Fill")),
        ("source,change_rate\na,1\na,2\n", ("bad.csv", "'a'", "unique")),
        ("source,change_rate,min_rate,max_rate\na,1,2,1\n", ("bad.csv", "exceeds max_rate for 'a'", "widen")),
        (
            "source,change_rate,importance\na,1,-1\n",
            ("bad.csv", "importance out of range for 'a'", "Correct"),
        ),
        (
            "source,change_rate,signalled\na,1,maybe\n",
            ("bad.csv", "'maybe' in row 1, line 2", "true or false"),
        ),
        ("source,change_rate,signalled\na,1,1\n", ("'a' is signalled", "signalled=False")),
        ("source,rate\na,1\n", ("bad.csv", "no column 'change_rate'", "Add it")),
        ("source,change_rate\n", ("bad.csv", "no sources", "Pass at least one")),
    ],
    ids=[
        *("negative", "zero", "nan", "word", "empty", "twice", "bounds"),
        *("importance", "flag", "signalled", "no column", "no rows"),
    ],
)
@pytest.mark.parametrize("command", ["solve", "check"])
def test_sources(command: str, table: str, words: tuple[str, ...], folder: Path) -> None:
    Path("bad.csv").write_text(table)
    options = SOLVE if command == "solve" else ("--bandwidth", "2", "--objective", "harmonic")
    refuse(folder, [command, "bad.csv", *options], words)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("source,rate\na,1\nb,-1\n", ("'b': -1", "Correct")),
        ("source,rate\na,1\nb,inf\n", ("'b': inf", "Correct")),
        ("source,rate\na,1\nb,often\n", ("rate in bad.csv is 'often' in row 2, line 3", "Write a number")),
        ("source,rate\na,1\nb,\n", ("'rate' has 1 empty", "Fill")),
        ("source,rate\na,1\n,2\n", ("'source' has 1 empty", "Fill")),
        ("source,rate\na,1\na,1\n", ("more than one rate for 'a'", "one row per source")),
        ("source,change_rate\na,1\n", ("no column 'rate'", "Add or rename")),
        ("source,rate\n", ("there are no rates", "Pass at least one")),
        ("source,rate\na,1e9\n", ("1e+09 refreshes per day", "16 GiB", "at most 0.358 days")),
    ],
    ids=["negative", "inf", "word", "empty", "no name", "twice", "no column", "no rows", "too many"],
)
def test_rates(table: str, words: tuple[str, ...], folder: Path) -> None:
    Path("bad.csv").write_text(table)
    refuse(folder, ["schedule", "bad.csv", *SCHEDULE], words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan", *PLAN], ("LOG or --example", "freshopt plan --help")),
        (["plan", "no.csv", *PLAN], ("there is no file no.csv", "Check the path")),
        (["plan", "log.txt", *PLAN], ("log.txt ends in '.txt'", ".csv, .csv.gz or .parquet", "Rename")),
        (["plan", "log.csv", "rates.csv", *PLAN], ("(rates.csv)", "freshopt plan --help")),
        (["plan", "log.csv", *PLAN[2:]], ("'--bandwidth'", "freshopt plan --help")),
        (["plan", "log.csv", *PLAN[:2], *PLAN[4:]], ("'--horizon'", "freshopt plan --help")),
        (["plan", "log.csv", *PLAN[:4]], ("'--out'", "freshopt plan --help")),
        (["plan", "--example", "debian", *PLAN], ("no example 'debian'", "Use one of: debian-uploads")),
        (["plan", f"{LONG}.csv", *PLAN], (LONG, "too long", "Choose another")),
        (["estimate", *ESTIMATE], ("LOG or --example", "freshopt estimate --help")),
        (["estimate", "log.csv", "--out", "out.xlsx"], ("out.xlsx ends in '.xlsx'", "Rename")),
        (["estimate", "log.csv", "--out", "log.csv"], ("log.csv already exists", "--overwrite")),
        (["estimate", "log.csv", *ESTIMATE, "--confidence", "1"], ("confidence is 1", "between 0 and 1")),
        (["solve", "no.csv", *SOLVE], ("there is no file no.csv", "Check the path")),
        (["solve", "floors.csv", *SOLVE], ("need 11 refreshes/day", "short by 9", "largest: 'b' 6")),
        (["solve", "sources.csv", *SOLVE, "--solver", "simplex"], ("'simplex'", "'water-filling'")),
        (["solve", "sources.csv", *SOLVE, "--solver", "closed-form"], ("ClosedForm", "HarmonicStaleness")),
        (
            ["solve", "capped.csv", *SOLVE, "--solver", "closed-form", "--objective", "delay"],
            ("ClosedForm does not apply", "bounds bind for 'a'"),
        ),
        (["solve", "sources.csv", "--bandwidth", "2d", "--out", "out.csv"], ("--bandwidth: '2d'", "200/day")),
        (["solve", "sources.csv", "--bandwidth", "2", "--out", "out"], ("out has no ending", "Rename")),
        (["solve", "sources.csv", "--bandwidth", "2", "--out", "/proc/o.csv"], ("/proc/o.csv cannot be",)),
        (["solve", "sources.csv", "--bandwidth", "2", "--out", "log.csv/o.csv"], ("log.csv is a file",)),
        (["schedule", "no.csv", *SCHEDULE], ("there is no file no.csv", "Check the path")),
        (["schedule", "rates.csv", *SCHEDULE, "--start", "soon"], ("--start: 'soon'", "such as 2026-01-31")),
        (["schedule", "rates.csv", *SCHEDULE, "--start", "2024-13-01"], ("'2024-13-01'", "2026-01-31")),
        (["schedule", "rates.csv", "--horizon", "0d", "--out", "o.csv"], ("--horizon: '0d'", "such as 7d")),
        (["check", "no.csv"], ("there is no file no.csv", "Check the path")),
        (["check", "--solvers", "simplex"], ("'--solvers'", "'simplex'", "water-filling")),
        (["check", "--solvers", ""], ("'--solvers'", "''", "water-filling")),
        (["check", "--objective", "fresh"], ("'--objective'", "'fresh'", "'harmonic'")),
        (["check", "--tolerance", "0"], ("--tolerance: 0.0", "such as 1e-6")),
        (["check", "--tolerance", "nan"], ("--tolerance: nan", "such as 1e-6")),
        (["check", "--tolerance", "small"], ("'--tolerance'", "'small'", "freshopt check --help")),
        (["check", "--bandwidth", "0"], ("bandwidth is 0", "> 0")),
        (["examples", "debian"], ("no example 'debian'", "Use one of: debian-uploads")),
        (["examples", "--out", "log.parquet"], ("Name the example", "freshopt examples --help")),
        (["examples", "debian-uploads", "--out", "out.xlsx"], ("out.xlsx ends in '.xlsx'", "Rename")),
        (["plant"], ("'plant'", "freshopt --help")),
        (["--verbose"], ("'--verbose'", "freshopt --help")),
    ],
    ids=lambda value: "-".join(value)[:60] if isinstance(value, list) else "",
)
def test_command_lines(arguments: list[str], words: tuple[str, ...], folder: Path) -> None:
    refuse(folder, arguments, words)


def test_an_earlier_plan_is_kept(folder: Path) -> None:
    assert CliRunner().invoke(main, ["plan", "log.csv", *PLAN]).exit_code == 0
    refuse(folder, ["plan", "log.csv", *PLAN], ("already holds a result", "--overwrite"))
    # Told to overwrite it, a plan that fails has not touched it.
    wrong = ["plan", "log.csv", *PLAN, "--overwrite", "--min-rate", "1"]
    refuse(folder, wrong, ("need 3 refreshes/day",))


def test_foreign_files_are_never_replaced(folder: Path) -> None:
    Path("out").mkdir()
    Path("out", "thesis.tex").write_text("years of work")
    arguments = ["plan", "log.csv", *PLAN, "--overwrite"]
    refuse(folder, arguments, ("holds files that are not of an earlier result: thesis.tex", "Choose"))
    Path("out", "summary.json").write_text("{}")
    refuse(folder, arguments, ("thesis.tex", "Choose"))


def test_an_earlier_table_is_kept(folder: Path) -> None:
    Path("out.csv").write_text("kept")
    refuse(folder, ["solve", "sources.csv", *SOLVE], ("out.csv already exists", "--overwrite"))
    refuse(folder, ["solve", "floors.csv", *SOLVE, "--overwrite"], ("short by 9",))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_the_installed_command_ends_in_one_line_on_standard_error(folder: Path) -> None:
    for arguments in (["plan", "no.csv", *PLAN], ["plan", *PLAN], ["solve", "floors.csv", *SOLVE]):
        done = run(folder, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("Error: ")
        assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error_to_report(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        command: list[str | Path] = [COMMAND, "plan", "log.csv", *PLAN]
        done = subprocess.run(
            command, cwd=folder, stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == ""
    assert Path("out", "summary.json").exists()


def test_an_interrupt_leaves_nothing_behind(folder: Path) -> None:
    n, rng = 1_500_000, np.random.default_rng(0)
    rows = {"source": rng.integers(0, 5000, n), "time": rng.random(n), "changed": rng.integers(0, 2, n)}
    pl.DataFrame(rows).write_csv("large.csv")
    before = content(folder).keys()
    command: list[str | Path] = [COMMAND, "plan", "large.csv", *PLAN]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as job:
        deadline = time.monotonic() + 60.0
        while not list(folder.glob(".*.partial.out")):
            assert job.poll() is None, job.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(0.05)
        job.send_signal(signal.SIGINT)
        output, error = job.communicate(timeout=60.0)
    assert job.returncode == 1
    assert output == ""
    assert error.split() == ["Aborted!"]
    assert content(folder).keys() == before
