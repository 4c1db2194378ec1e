"""`freshopt run`: a crawler of commands."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import freshopt as fo
from freshopt.cli import main

FETCH = """#!/bin/sh
[ "$1" = bad ] && { echo "no such page" >&2; exit 22; }
[ "$1" = a ] && date +%s%N
cat "$2/$1"
"""


@pytest.fixture
def pages(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text("first\n")
    script = tmp_path / "fetch"
    script.write_text(FETCH)
    script.chmod(0o755)
    (tmp_path / "sources.txt").write_text("# pages\na\nb\n\nbad\n")


def run(tmp_path: Path, *options: str) -> Result:
    words = ["run", str(tmp_path / "state"), "--command", f"{tmp_path}/fetch {{source}} {tmp_path}/pages"]
    return CliRunner().invoke(main, [*words, *options])


def begin(tmp_path: Path, *options: str) -> Result:
    own = ("--bandwidth", "20/second", "--sources", str(tmp_path / "sources.txt"), "--once", *options)
    return run(tmp_path, *own)


@pytest.mark.usefixtures("pages")
def test_fetches_are_recorded_and_failures_are_not(tmp_path: Path) -> None:
    first = begin(tmp_path)
    assert first.exit_code == (1 if "bad: exit code" in first.output else 0), first.output
    deadline = time.monotonic() + 30.0
    with fo.Planner(tmp_path / "state") as planner:
        while planner.status().observations < 4 and time.monotonic() < deadline:
            again = run(tmp_path, "--once")
            assert again.exit_code == (1 if "bad: exit code" in again.output else 0), again.output
        log = planner.log()
        assert planner.status().leased == 0
    assert log.sources_.tolist() == ["a", "b"]
    of_a, of_b = (log.changed[log.offsets[k] : log.offsets[k + 1]].tolist() for k in (0, 1))
    assert of_a[1:] == [True] * (len(of_a) - 1)
    assert not any(of_b)
    assert "bad: exit code 22 (no such page)" in first.output or "0 failed" in first.output


@pytest.mark.usefixtures("pages")
def test_refusals_are_one_line_and_leave_nothing(tmp_path: Path) -> None:
    lost = run(tmp_path, "--once")
    assert (lost.exit_code, lost.output.count("\n")) == (2, 1)
    assert "Give --bandwidth" in lost.output
    without = run(tmp_path, "--bandwidth", "5/day", "--once")
    assert (without.exit_code, without.output.count("\n")) == (2, 1)
    assert "--sources" in without.output
    assert not (tmp_path / "state").exists()
    empty = tmp_path / "none.txt"
    empty.write_text("\n# nothing\n")
    none = run(tmp_path, "--bandwidth", "2/day", "--sources", str(empty))
    assert "lists no sources. Write one a line." in none.output
    table = tmp_path / "sources.csv"
    table.write_text("url\na\n")
    unnamed = run(tmp_path, "--bandwidth", "2/day", "--sources", str(table))
    assert "source" in unnamed.output
    assert unnamed.exit_code == 2
    assert not (tmp_path / "state").exists()
    for own in (False, True):  # an empty folder of the user's own stays, empty
        if own:
            (tmp_path / "state").mkdir()
        for values, culprit in (("max_rate\na,-1\n", "max_rate"), ("min_rate\na,9\n", "min_rate")):
            table.write_text(f"source,{values}")
            refused = run(tmp_path, "--bandwidth", "2/day", "--sources", str(table))
            assert (refused.exit_code, refused.output.count("\n")) == (2, 1)
            assert culprit in refused.output
            assert (tmp_path / "state").is_dir() is own
            assert not list(tmp_path.rglob("state/*"))


@pytest.mark.usefixtures("pages")
def test_an_interrupt_finishes_what_runs_and_hands_back_the_rest(tmp_path: Path) -> None:
    begin(tmp_path)
    slow = "sh -c 'sleep 1; echo {source}'"
    words = [sys.executable, "-m", "freshopt", "run", str(tmp_path / "state"), "--command", slow, "--quiet"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with fo.Planner(tmp_path / "state") as planner:
        deadline = time.monotonic() + 30.0
        while planner.status().leased == 0 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30.0)
        assert process.returncode == 0, err
        assert "Finishing what is running" in err
        assert planner.status().leased == 0
        assert "fetched" in out
