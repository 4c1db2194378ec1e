"""What goes wrong ends in one line that names the culprit and the remedy, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.ground_truth.command_lines import ESTIMATE, LONG, PLAN, SCHEDULE, SOLVE, refuse

# The content of log.csv, and what is said of it.
LOGS: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("log.csv is empty", "column names")),
    "header only": ("source,time,changed\n", ("log.csv has column names but no rows",)),
    "wrong columns": (
        "url,when,found\na,1,0\n",
        ("'source', 'changed', 'time'", "'url'", "--columns url=source"),
    ),
    "semicolons": ("source;time;changed\na;1;0\n", ("'source;time;changed'", "parted by commas")),
    "time is nan": ("source,time,changed\na,0,0\na,nan,1\n", ("line 3 of log.csv", "'a'", "nan", "Correct")),
    "time is infinite": ("source,time,changed\na,0,0\na,inf,1\n", ("line 3 of log.csv", "inf", "Correct")),
    "time is empty": ("source,time,changed\na,0,0\na,,1\n", ("time is empty", "line 3 of log.csv", "Fill")),
    "source is empty": ("source,time,changed\na,0,0\n,1,1\n", ("source is empty", "line 3", "Fill")),
    "changed is empty": ("source,time,changed\na,0,\na,1,\n", ("changed is empty", "line 3", "Write 1")),
    "changed is 2": ("source,time,changed\na,0,0\na,1,2\n", ("changed is '2'", "line 3", "Write 1")),
    "changed is a word": ("source,time,changed\na,0,no\n", ("changed is 'no'", "line 2", "Write 1")),
    "time is a word": ("source,time,changed\na,today,0\n", ("time is 'today'", "line 2", "ISO 8601")),
    "repeated crawl": ("source,time,changed\na,1,0\na,1,1\n", ("'a'", "repeats", "line 3", "Drop")),
    "two kinds of time": ("source,time,changed\na,1,0\na,2024-01-01,1\n", ("'2024-01-01'", "of one kind")),
    "too many fields": ("source,time,changed\na,0,0\na,1,0,5\n", ("log.csv cannot be read as CSV", "Check")),
    "open quote": ('source,time,changed\n"a,0,0\n', ("log.csv cannot be read as CSV", "Check")),
    "not UTF-8": (b"source,time,changed\n\xe9,0,0\n", ("log.csv cannot be read as CSV", "UTF-8")),
    "garbage": (bytes(range(256)), ("log.csv has no column", "A log has source, time and changed")),
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
    "horizon huge": (
        {"--horizon": "1e12d"},
        ("1e+12 days", "GiB until they are written", "Choose a horizon of at most"),
    ),
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
    "no smoothing": (
        {"--smoothing": "0"},
        ("'b' (never changed), 'c' (baseline only)", "Leave smoothing out"),
    ),
    "confidence 2": ({"--confidence": "2"}, ("confidence is 2", "between 0 and 1")),
    "confidence nan": ({"--confidence": "nan"}, ("confidence is nan", "between 0 and 1")),
    "time unit": ({"--time-unit": "month"}, ("'--time-unit'", "'month'", "'day'", "freshopt plan --help")),
    "objective": ({"--objective": "fresh"}, ("'--objective'", "'fresh'", "'harmonic', 'binary', 'delay'")),
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
        (["plan", "log.txt", *PLAN], ("log.txt ends in '.txt'", ".csv, .csv.gz, .parquet, .jsonl", "Rename")),
        (["plan", "log.csv", "rates.csv", *PLAN], ("(rates.csv)", "freshopt plan --help")),
        (["plan", "log.csv", *PLAN[2:]], ("'--bandwidth'", "freshopt plan --help")),
        (["plan", "log.csv", *PLAN[:2], *PLAN[4:]], ("'--horizon'", "freshopt plan --help")),
        (["plan", "log.csv", *PLAN[:4]], ("'--out'", "freshopt plan --help")),
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
        (["--verbose"], ("--verbose", "freshopt --help")),
    ],
    ids=lambda value: "-".join(value)[:60] if isinstance(value, list) else "",
)
def test_command_lines(arguments: list[str], words: tuple[str, ...], folder: Path) -> None:
    refuse(folder, arguments, words)
