"""What goes wrong ends in one line that names culprit and remedy; what is there stays there."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from freshopt.cli import main
from tests.ground_truth.command_lines import (
    COMMAND,
    ESTIMATE,
    LONG,
    PLAN,
    SCHEDULE,
    SOLVE,
    content,
    refusals,
    refuse,
)
from tests.ground_truth.strata import rare

# The content of log.csv, and what is said of it.
LOGS: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("log.csv is empty", "column names")),
    "header only": ("source,time,changed\n", ("log.csv has column names but no rows",)),
    "wrong columns": (
        "url,when,found\na,1,0\n",
        ("no column 'changed'", "--columns url=source,when=time,found=changed"),
    ),
    "time is nan": ("source,time,changed\na,0,0\na,nan,1\n", ("line 3 of log.csv", "'a'", "nan", "Correct")),
    "time is infinite": ("source,time,changed\na,0,0\na,inf,1\n", ("line 3 of log.csv", "inf", "Correct")),
    "time is empty": ("source,time,changed\na,0,0\na,,1\n", ("time is empty", "line 3 of log.csv", "Fill")),
    "source is empty": ("source,time,changed\na,0,0\n,1,1\n", ("source is empty", "line 3", "Fill")),
    "changed is empty": ("source,time,changed\na,0,\na,1,\n", ("changed is empty", "line 3", "Write 1")),
    "changed is 2": ("source,time,changed\na,0,0\na,1,2\n", ("changed is '2'", "line 3", "Write 1")),
    "changed is a word": ("source,time,changed\na,0,often\n", ("changed is 'often'", "line 2", "Write 1")),
    "time is a word": ("source,time,changed\na,today,0\n", ("time is 'today'", "line 2", "ISO 8601")),
    "repeated crawl": ("source,time,changed\na,1,0\na,1,1\n", ("'a'", "repeats", "line 3", "Drop")),
    "two kinds of time": ("source,time,changed\na,1,0\na,2024-01-01,1\n", ("'2024-01-01'", "of one kind")),
    "too many fields": ("source,time,changed\na,0,0\na,1,0,5\n", ("log.csv cannot be read as CSV", "Check")),
    "open quote": ('source,time,changed\n"a,0,0\n', ("log.csv cannot be read as CSV", "Check")),
    "garbage": (bytes(range(256)), ("log.csv is no text", "Pass CSV, JSON or Parquet")),
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
    "horizon in moons": ({"--horizon": "1moon"}, ("'moon'", "second, minute, hour, day")),
    "horizon huge": (
        {"--horizon": "1e12d"},
        ("1e+12 days", "GiB until they are written", "Choose a horizon of at most"),
    ),
    "horizon overflows": ({"--horizon": "1e308w"}, ("--horizon: '1e308w'", "such as 7d")),
    "min-rate is a word": ({"--min-rate": "often"}, ("--min-rate: 'often'", "such as 200/day")),
    "min-rate too high": ({"--min-rate": "1"}, ("need 3 refreshes/day", "bandwidth is 1", "lower min_rate")),
    "min-rate above max-rate": (
        {"--min-rate": "0.2", "--max-rate": "0.1"},
        ("min_rate exceeds max_rate for all sources", "widen"),
    ),
    "max-rate 0": ({"--max-rate": "0"}, ("max_rate is 0 for 'a'", "infinite when never refreshed", "Drop")),
    "max-rate negative": ({"--max-rate": "-1"}, ("--max-rate: '-1' is negative", "such as 200/day")),
    "smoothing negative": ({"--smoothing": "-1"}, ("smoothing is -1", "0 for none")),
    "smoothing nan": ({"--smoothing": "nan"}, ("smoothing is nan", "0 for none")),
    "smoothing is a word": ({"--smoothing": "much"}, ("'--smoothing'", "'much'", "freshopt plan --help")),
    "no smoothing": (
        {"--smoothing": "0"},
        ("'b' (never changed), 'c' (crawled only once)", "Leave smoothing out"),
    ),
    "confidence 2": ({"--confidence": "2"}, ("confidence is 2", "between 0 and 1")),
    "confidence nan": ({"--confidence": "nan"}, ("confidence is nan", "between 0 and 1")),
    "time unit": ({"--time-unit": "month"}, ("'--time-unit'", "'month'", "'day'", "freshopt plan --help")),
    "objective": ({"--objective": "fresh"}, ("'--objective'", "'fresh'", "'harmonic', 'binary', 'delay'")),
    "importance of others": (
        {"--importance": "weights-of-others.csv"},
        ("no importance for 'a', 'b', 'c'; it has 'x', 'y'", "Add a row for each"),
    ),
    "objective mistyped": ({"--objective": "harmonc"}, ("'harmonc' is not", "Did you mean 'harmonic'?")),
    "refresh": ({"--refresh": "often"}, ("'--refresh'", "'often'", "'periodic', 'poisson'")),
    "seed negative": ({"--refresh": "poisson", "--seed": "-1"}, ("'--seed'", "-1", "x>=0")),
    "seed is no integer": ({"--seed": "1.5"}, ("'--seed'", "'1.5'", "integer")),
    "option unknown": ({"--speed": "1"}, ("No such option", "--speed", "freshopt plan --help")),
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
    ("arguments", "words"),
    [
        (["plan", *PLAN], ("LOG or --example", "freshopt plan --help")),
        (["plan", "no.csv", *PLAN], ("there is no file no.csv", "Check the path")),
        (["plan", "log.csv", "--quiet", "--details"], ("--quiet stands in place of --details",)),
        (["plan", "log.csv", "--json", "-q"], ("--json stands in place of --quiet",)),
        (["plan", "log.csv", "--objective", "power:x"], ("--objective power:x has no number", "power:0.5")),
        (["plan", "log.csv", "--objective", "binary:2"], ("'binary' takes no parameter", "':2'")),
        (["plan", "log.csv", "--objective", "power:1", "--exponent", "1"], ("--exponent both give it",)),
        (["plan", "log.csv", "--objective", "deadline"], ("--objective deadline needs one", "deadline:2d")),
        (["plan", "--example", "debian", *PLAN], ("no example 'debian'", "Use one of: debian-uploads")),
        (["plan", f"{LONG}.csv", *PLAN], (LONG, "too long", "Choose another")),
        (["estimate", *ESTIMATE], ("LOG or --example", "freshopt estimate --help")),
        (["estimate", "log.csv", "--out", "out.xlsx"], ("out.xlsx ends in '.xlsx'", "Rename")),
        (["estimate", "log.csv", "--out", "log.csv"], ("log.csv is the file that is read", "another")),
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
        (["plan", "log.csv", "--out", "-"], ("'--out'", "name a folder, such as --out plan")),
        (["pipeline", "log.csv", "-b", "2", "-o", "-"], ("name a folder, such as --out result",)),
        (["report", "plan", "--out", "-"], ("- would be standard output", "Name a file.")),
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
        (["plant"], ("No such command 'plant'", "Did you mean 'plan'?", "freshopt --help")),
        (["check", "--solvers", "leximn"], ("'leximn' is not one of", "Did you mean 'leximin'?")),
        (["plan", "log.csv", "--config", "mistyped.toml"], ("sets 'bandwith'", "Did you mean 'bandwidth'?")),
        (["--verbose"], ("--verbose", "freshopt --help")),
    ],
    ids=lambda value: "-".join(value)[:60] if isinstance(value, list) else "",
)
def test_command_lines(arguments: list[str], words: tuple[str, ...], folder: Path) -> None:
    refuse(folder, arguments, words)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [[], ["import"]])
def test_commands_alone_show_their_help(arguments: list[str]) -> None:
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 2
    assert shown.output.split()[:3] == ["Usage:", "freshopt", *arguments, "[OPTIONS]"][:3]
    assert "Error" not in shown.output
    assert "See freshopt" not in shown.output


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


@pytest.mark.parametrize(
    "arguments", [["plan", "no.csv", *PLAN], *rare(["plan", *PLAN], ["solve", "floors.csv", *SOLVE])]
)
def test_the_installed_command_ends_in_one_line_on_standard_error(folder: Path, arguments: list[str]) -> None:
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


def test_an_interrupt_during_the_imports_is_as_quiet_as_any_other(folder: Path) -> None:
    """Where the heavy imports begin, NumPy's, the interrupt arrives."""
    code = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from freshopt.cli import main
main(["plan", "log.csv", "--bandwidth", "1", "--horizon", "7d", "--out", "out"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.split() == ["Aborted!"]


@pytest.mark.parametrize("name", ["click", "freshopt.cli"])
def test_an_interrupt_before_click_is_quiet_too(name: str, folder: Path) -> None:
    code = f"""
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt
from freshopt.__main__ import main
sys.modules.pop({name!r}, None)
sys.meta_path.insert(0, Interrupting())
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "examples"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.split()) == (1, "", ["Aborted!"])


def test_what_is_read_is_not_written_over(folder: Path) -> None:
    over = ["--bandwidth", "2", "--out", "sources.csv", "--overwrite"]
    refuse(folder, ["solve", "sources.csv", *over], ("is the file that is read", "Choose another name"))
    again = ["--horizon", "7d", "--out", "rates.csv", "--overwrite"]
    refuse(folder, ["schedule", "rates.csv", *again], ("is the file that is read",))


def test_a_column_that_occurs_twice_is_refused(folder: Path) -> None:
    Path("twice.csv").write_text("source,change_rate,change_rate\na,1,2\n")
    refuse(folder, ["solve", "twice.csv", *SOLVE], ("'change_rate' occurs more than once",))


NEAREST = refusals(
    """
plna log.csv -> No such command 'plna' | Did you mean 'plan'? | freshopt --help
quux -> No such command 'quux'. See freshopt --help
plan log.csv --objective harmonc -> 'harmonc' is not one of | Did you mean 'harmonic'? | freshopt plan --help
plan log.csv --prior gama -> Did you mean 'gamma'?
plan log.csv --time-unit dya -> Did you mean 'day'?
plan log.csv --estimator sthg -> '--estimator': 'sthg' is not one of
plan --example debian-upload -> no example 'debian-upload' | Did you mean 'debian-uploads'?
solve sources.csv --bandwidth 1 --solver watr-filling -> Did you mean 'water-filling'?
schedule rates.csv --method carousell -> Did you mean 'carousel'?
check --solvers hihgs -> 'hihgs' is not one of | Did you mean 'highs'?
"""
)


@pytest.mark.parametrize(("arguments", "words"), NEAREST)
def test_a_mistyped_word_gets_the_nearest(
    arguments: tuple[str, ...], words: tuple[str, ...], folder: Path
) -> None:
    refuse(folder, [*filter(None, arguments)], words)
