"""What is told on the way: the library's log with --verbose, and steps that take long, in pipes too."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import freshopt as fo
from freshopt.terminal import console
from tests.ground_truth.command_lines import MAIN_JOB, Run, crawl_log


@pytest.mark.exhaustive
def test_verbose_shows_steps_and_decisions(run: Run) -> None:
    crawl_log().write_parquet("log.parquet")
    job = ("plan", "log.parquet", *MAIN_JOB, "--out", "plan", "--overwrite")
    quiet = run(*job)
    assert quiet.stderr == ""
    told = run(*job, "--verbose").stderr
    assert "freshopt.logs.read_log: read log.parquet: CrawlLog(320 crawls of 8 sources" in told
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
