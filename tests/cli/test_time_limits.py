"""`freshopt check` is never silent for long; what is told on the way, with --verbose and in pipes."""

import logging
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import freshopt as fo
from freshopt.cli.bounded_runs import BoundedRuns, bounded, solving
from freshopt.cvx import Expression, cp
from freshopt.solvers import Conic
from freshopt.terminal import console
from tests.ground_truth.command_lines import COMMAND, MAIN_JOB, Run, crawl_log

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
    assert re.search(r"falls short on 1 of [1-9]\d* problems: 1 no answer", output)
    assert "... binary, poisson: " in output
    assert not multiprocessing.active_children()


def test_a_solver_that_ends_its_process_is_reported(run: Run) -> None:
    output = run(*TABLE, "--objective", "delay", "--solver", "hanging:leave", code=1).output
    assert "it ended its process (exit code 3)." in output


def test_what_no_other_process_can_be_sent_is_solved_in_this_one() -> None:
    class Delay(fo.Objective):
        def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
            return cp.multiply(sources.change_rate, cp.inv_pos(rate))

    problem = fo.Problem(Delay(), fo.Sources([1.0, 4.0]), 3.0)
    with BoundedRuns(solving, 60.0) as runs:
        solution = bounded(Conic(), runs).solve(problem)
    assert solution.status is fo.Status.OPTIMAL
    assert not multiprocessing.active_children()


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


@pytest.mark.exhaustive
def test_verbose_shows_steps_and_decisions(run: Run) -> None:
    crawl_log().write_parquet("log.parquet")
    job = ("plan", "log.parquet", *MAIN_JOB, "--out", "plan", "--overwrite")
    quiet = run(*job)
    assert quiet.stderr == ""
    told = run(*job, "--verbose").stderr
    assert "freshopt.logs.read_crawls: read log.parquet: CrawlLog(320 crawls of 8 sources" in told
    assert "freshopt.planning.plan: change rates: " in told
    assert "freshopt.planning.plan: refresh rates: " in told
    assert "Auto chose WaterFilling()" in told
    assert run(*job).stderr == ""  # nobody listens any more
    assert logging.getLogger("freshopt").level == logging.NOTSET


def test_the_library_logs_to_whoever_listens(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    crawl_log().write_parquet(tmp_path / "log.parquet")
    with caplog.at_level(logging.INFO, logger="freshopt"):
        fo.plan(tmp_path / "log.parquet", bandwidth="6/day", horizon="7d", draws=0)
    steps = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert [step for step in ("change rates", "refresh rates", "schedule", "findings") if step in steps] == [
        *("change rates", "refresh rates", "schedule", "findings")
    ]
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert any(isinstance(each, logging.NullHandler) for each in logging.getLogger("freshopt").handlers)


@pytest.mark.parametrize("pipe", ["progress", "working"])
def test_long_steps_are_named_on_standard_error(
    pipe: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "SILENCE", 0.02)
    if pipe == "progress":
        with console.progress(3) as announce:
            announce("waiting")
            _until_told(capsys, "... waiting: 0 s")
    else:
        with console.working("waiting"):
            _until_told(capsys, "... waiting: 0 s")


def _until_told(capsys: pytest.CaptureFixture[str], line: str) -> None:
    """Wait until a line was printed on standard error, a minute at most."""
    told = ""
    for _ in range(6000):
        time.sleep(0.01)
        shown = capsys.readouterr()
        assert shown.out == ""
        told += shown.err
        if line in told.splitlines():
            return
    pytest.fail(f"only {told!r} was told")
