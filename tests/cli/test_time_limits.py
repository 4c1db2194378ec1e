"""`freshopt check` is never silent for long, and ends solvers that take too long with their processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from freshopt.terminal import console
from tests.ground_truth.command_lines import COMMAND, Run

# It hangs on one of two objectives, and says from which process.
HANGING = """
import os, pathlib, time
import freshopt as fo

def solve(problem):
    if isinstance(problem.objective, fo.problems.BinaryFreshness):
        part = pathlib.Path("part")
        part.write_text(str(os.getpid()))
        part.rename("pid")
        time.sleep(1000)
    return fo.solve(problem).rates

def leave(problem):
    os._exit(3)
"""
TABLE = ("check", "sources.csv", "--refresh", "poisson")
HANG = (*TABLE, "--objective", "binary", "--solver", "hanging:solve")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "hanging", raising=False)
    (tmp_path / "hanging.py").write_text(HANGING)
    (tmp_path / "sources.csv").write_text("source,change_rate\na,1\nb,4\n")
    return tmp_path


@pytest.mark.exhaustive
def test_a_solver_that_hangs_is_ended_and_the_others_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "SILENCE", 0.2)
    output = run(*TABLE, "--solver", "hanging:solve", "--time-limit", "2", code=1).output
    assert "no answer within 2 s." in output
    assert "1 no answer" in output
    assert "falls short on 1 of 9 problems: 1 no answer" in output
    assert "... binary, poisson: " in output
    assert not multiprocessing.active_children()


def test_a_solver_that_ends_its_process_is_reported(run: Run) -> None:
    output = run(*TABLE, "--objective", "delay", "--solver", "hanging:leave", code=1).output
    assert "it ended its process (exit code 3)." in output


def test_a_cone_solver_that_takes_too_long_is_reported_as_such(run: Run) -> None:
    limited = ("--objective", "delay", "--time-limit", "0.001")
    output = run(*TABLE, *limited, "--solvers", "clarabel,water-filling", code=1).output
    assert "clarabel: no answer within 0.001 s" in output
    assert "water-filling  optimal" in output
    assert "1 solver gave no answer" in output
    assert not multiprocessing.active_children()


def gone(pid: int) -> bool:
    """Return whether a process ends, or has ended, without waiting for ever if it does not."""
    for _ in range(600):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.sampled(2)
def test_no_process_is_left_behind(folder: Path, how: signal.Signals) -> None:
    with subprocess.Popen(
        [COMMAND, *HANG], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
    ) as command:
        pid = folder / "pid"
        while not pid.exists() and command.poll() is None:
            time.sleep(0.1)
        command.send_signal(how)
        output, _ = command.communicate()
    assert command.returncode != 0
    assert "Traceback" not in output
    assert gone(int(pid.read_text()))


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf", "soon"])
def test_a_time_limit_is_a_number_of_seconds(run: Run, limit: str) -> None:
    output = run(*TABLE, "--time-limit", limit, code=2).output
    assert "--time-limit" in output
