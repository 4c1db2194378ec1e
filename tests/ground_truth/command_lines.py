"""What the tests of the command line share: logs, tables, and how a refusal looks."""

import math
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl
import pytest
from _pytest.mark import ParameterSet
from click.testing import CliRunner, Result

import freshopt as fo
from freshopt.cli import main
from freshopt.planning.plan_files import told_of
from freshopt.report.page import findings

Run: TypeAlias = Callable[..., Result]
EXAMPLE = ("--example", "debian-uploads", "--bandwidth", "4/day", "--horizon", "90d")
MAIN_JOB = ("--bandwidth", "6/day", "--horizon", "7d")
BEGIN = datetime(2024, 3, 30, tzinfo=UTC)
COMMAND = Path(sys.executable).with_name("freshopt")
LOG = "source,time,changed\na,0,0\na,1,1\na,2,0\nb,0,0\nb,1,0\nb,2,0\nc,0,0\n"
FILES = {
    "log.csv": LOG,
    "log.txt": LOG,
    "weights-of-others.csv": "source,importance\nx,1\ny,2\n",
    "mistyped.toml": "bandwith = 3\n",
    "sources.csv": "source,change_rate\na,1\nb,2\n",
    "capped.csv": "source,change_rate,max_rate\na,1,0.1\nb,2,9\n",
    "floors.csv": "source,change_rate,min_rate\na,1,5\nb,2,6\n",
    "rates.csv": "source,rate\na,1\nb,2\n",
}
LONG = "x" * 300
PLAN = ("--bandwidth", "1/day", "--horizon", "7d", "--out", "out")
ESTIMATE, SOLVE = ("--out", "out.csv"), ("--bandwidth", "2", "--out", "out.csv")
SCHEDULE = ("--horizon", "7d", "--out", "out.csv")


def crawl_log(n: int = 8, crawls: int = 40) -> pl.DataFrame:
    """A log of dates: sources with change rates from 0.1 to 3 per day, crawled about twice a day."""
    rng = np.random.default_rng(2)
    rows = []
    for k, rate in enumerate(np.geomspace(0.1, 3.0, n)):
        gaps = rng.uniform(0.1, 0.9, crawls)
        for day, gap in zip(np.cumsum(gaps).round(4), gaps, strict=True):
            changed = bool(rng.random() < -math.expm1(-rate * gap))
            rows.append((f"page/{k}", BEGIN + timedelta(days=float(day)), changed))
    return pl.DataFrame(rows, schema=["source", "time", "changed"], orient="row")


def unwrapped(output: str) -> str:
    """Return what was printed, wrapped lines joined."""
    return re.sub(r"\n {3,}", " ", output)


def fields(output: str) -> dict[str, str]:
    """Return the labelled rows that a command printed, wrapped lines joined."""
    lines = unwrapped(output).splitlines()
    return dict(re.split(r"  +", line, maxsplit=1) for line in lines if "  " in line)


def refusals(table: str, **beginnings: str) -> list[ParameterSet]:
    """Return the rows of a table: a command line, -> and the words of its refusal, parted by |.

    A row may go on in an indented line; its command line is its id. A first word may stand for a beginning.
    """
    rows = []
    for row in re.sub(r"\n +", " ", table.strip()).splitlines():
        command, _, words = row.partition(" -> ")
        first, _, rest = command.partition(" ")
        whole = f"{beginnings.get(first, first)} {rest}"
        rows.append(pytest.param(tuple(shlex.split(whole)), tuple(words.split(" | ")), id=command))
    return rows


def file_with(path: Path, text: str) -> Path:
    """Write a file, and return where it is."""
    path.write_text(text)
    return path


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


def details(plan: fo.Plan) -> dict[str, str]:
    """Return the labelled rows that `--details` prints of a plan."""
    return dict(row for finding in findings(told_of(plan)) for row in finding.rows())
