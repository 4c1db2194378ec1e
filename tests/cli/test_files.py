"""What is there stays there: earlier results, foreign files, and nothing half done after an interrupt."""

from __future__ import annotations

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
from tests.ground_truth.command_lines import COMMAND, PLAN, SOLVE, content, refuse


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)


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
