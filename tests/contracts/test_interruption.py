"""Runs that are killed, side by side, or out of room: the old result or the new one, nothing in between."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import polars as pl
import pytest

from freshopt.errors import SourceDataError
from freshopt.logs.atomic_output import complete_file, complete_folder
from freshopt.logs.file_kinds import parsing
from tests.ground_truth.command_lines import COMMAND, MAIN_JOB, PLAN, crawl_log
from tests.ground_truth.named import present
from tests.ground_truth.strata import stratified

FILES = ("rates.csv",)
HOLD = """
import sys, time
from pathlib import Path
from freshopt.logs.atomic_output import complete_file, complete_folder
kind, target = sys.argv[1:]
made = complete_folder(target, True, files=["rates.csv"]) if kind == "folder" else complete_file(target, True)
with made as part:
    (part / "summary.json" if kind == "folder" else part).write_text("half")
    print("ready", flush=True)
    time.sleep(600.0)
"""


def holding(kind: str, target: Path) -> subprocess.Popen[str]:
    """Return a process in the middle of its work on a target."""
    job = subprocess.Popen([sys.executable, "-c", HOLD, kind, target], stdout=subprocess.PIPE, text=True)
    assert present(job.stdout).readline() == "ready\n"
    return job


def end(job: subprocess.Popen[str]) -> None:
    job.kill()
    job.communicate()


def write(kind: str, target: Path, text: str) -> None:
    if kind == "folder":
        with complete_folder(target, True, files=FILES) as part:
            (part / "summary.json").write_text(text)
    else:
        with complete_file(target, True) as part:
            part.write_text(text)


def read(kind: str, target: Path) -> str:
    return (target / "summary.json" if kind == "folder" else target).read_text()


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_the_next_run_removes_what_a_killed_one_left(kind: str, tmp_path: Path) -> None:
    target, other = tmp_path / "plan", tmp_path / "other"
    write(kind, target, "old")
    end(holding(kind, target))
    end(holding(kind, other))
    assert read(kind, target) == "old"
    left = sorted(path.name.partition(".partial.")[2] for path in tmp_path.glob(".*"))
    assert left == ["other", "plan"]
    write(kind, target, "new")
    assert read(kind, target) == "new"
    assert [path.name.partition(".partial.")[2] for path in tmp_path.glob(".*")] == ["other"]


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_another_run_is_working_on_is_left_alone(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "plan"
    job = holding(kind, target)
    try:
        write(kind, target, "new")
        (part,) = tmp_path.glob(".*.partial.plan")
        assert (part / "summary.json" if kind == "folder" else part).read_text() == "half"
        assert read(kind, target) == "new"
    finally:
        end(job)


def test_names_that_only_look_like_leftovers_are_kept(tmp_path: Path) -> None:
    names = [".0123456.partial.plan", ".01234567.partial.plan2", "01234567.partial.plan", ".partial.plan"]
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".89abcdef.partial.plan").symlink_to(tmp_path / ".partial.plan")
    write("folder", tmp_path / "plan", "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*names, ".89abcdef.partial.plan", "plan"]
    )


@pytest.mark.parametrize(
    ("moment", "sign"), stratified([0.0, 0.1, 0.3], [signal.SIGINT, signal.SIGKILL], every=2)
)
def test_a_signal_at_some_moment(sign: signal.Signals, moment: float, tmp_path: Path) -> None:
    """benchmarks/accuracy/interruption.py does the same at hundreds of moments."""
    crawl_log().write_parquet(tmp_path / "log.parquet")
    job = subprocess.Popen(
        [COMMAND, "plan", "log.parquet", *MAIN_JOB, "--out", "plan"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(tmp_path.glob(".*.partial.plan")):
        assert job.poll() is None
        time.sleep(0.002)
    time.sleep(moment)
    job.send_signal(sign)
    _, error = job.communicate(timeout=60.0)
    assert "Traceback" not in error
    plan, left = tmp_path / "plan", list(tmp_path.glob(".*"))
    if plan.exists():
        assert json.loads((plan / "summary.json").read_text())["status"] == "optimal"
        assert len(pl.read_parquet(plan / "schedule.parquet")) > 0
    assert len(left) <= (sign == signal.SIGKILL)


SIGNALLED_WHILE_POLARS_WAITS = """
import signal, sys, time
import polars
from freshopt.__main__ import interrupt

def trace(frame, event, argument):
    if "datatypes" in frame.f_code.co_filename and frame.f_code.co_name == "__init__":
        sys.settrace(None)
        signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, interrupt)
sys.settrace(trace)
try:
    print(list(polars.read_parquet_schema("times.parquet")), sys.gettrace())
    time.sleep(60.0)
except KeyboardInterrupt:
    print("interrupted")
"""


def times(folder: Path) -> Path:
    """Write a table whose types compiled code has to make in Python."""
    path = folder / "times.parquet"
    pl.DataFrame({"t": pl.Series([1, 2]).cast(pl.Datetime("us"))}).write_parquet(path)
    return path


def test_an_interrupt_waits_for_compiled_code_that_waits_for_python(tmp_path: Path) -> None:
    times(tmp_path)
    command = [sys.executable, "-c", SIGNALLED_WHILE_POLARS_WAITS]
    job = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60.0)
    assert (job.stdout, job.stderr) == ("['t'] None\ninterrupted\n", "")


def test_an_interrupt_of_compiled_code_is_no_damaged_file(tmp_path: Path) -> None:
    path = times(tmp_path)

    def trace(frame: FrameType, _event: str, _argument: object) -> None:
        if "datatypes" in frame.f_code.co_filename and frame.f_code.co_name == "__init__":
            sys.settrace(before)
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt), parsing(path, "Parquet"):
            pl.read_parquet_schema(path)
    finally:
        sys.settrace(before)


def limited(folder: Path, *arguments: str, size: int) -> subprocess.CompletedProcess[str]:
    """Run a command that may write files of so many bytes only: more is refused as on a full disk."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then write() fails with EFBIG, as it does with ENOSPC
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return subprocess.run(
        [COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False, preexec_fn=limit,
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
    )  # fmt: skip


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
@pytest.mark.exhaustive
def test_no_room_for_a_table(ending: str, folder: Path) -> None:
    names = [f"page/{k}" for k in range(20_000)]
    pl.DataFrame({"source": names, "rate": [1.0] * len(names)}).write_csv("many.csv")
    Path(f"out{ending}").write_text("old")
    done = limited(
        folder, "schedule", "many.csv", "--horizon", "3d", "--out", f"out{ending}", "--overwrite", size=20_000
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "cannot be written: File too large" in done.stderr
    assert Path(f"out{ending}").read_text() == "old"
    assert not list(folder.glob(".*"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", stratified([0, 300, 2000, 6000], every=2))
def test_no_room_for_a_plan(size: int, folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    done = limited(folder, "plan", "log.csv", *PLAN, size=size)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "File too large" in done.stderr
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.exhaustive
def test_two_runs_at_once_do_not_mix(folder: Path) -> None:
    """Whoever comes last is refused or, told to overwrite, replaces the whole; a plan is never of both."""
    jobs = [
        subprocess.Popen(
            [COMMAND, "plan", "log.csv", "--bandwidth", f"{k}/day", *PLAN[2:], "--csv", *extra],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for k, extra in ((1, []), (2, ["--overwrite"]), (3, []))
    ]  # fmt: skip
    errors = [job.communicate(timeout=120.0)[1] for job in jobs]
    assert any(job.returncode == 0 for job in jobs)
    assert all(
        job.returncode == 0 or "already holds a result" in error
        for job, error in zip(jobs, errors, strict=True)
    )
    facts = json.loads((folder / "out" / "summary.json").read_text())
    rates = pl.read_csv(folder / "out" / "rates.csv")["rate"].sum()
    assert abs(rates - facts["bandwidth"]) <= 1e-9
    assert not list(folder.glob(".*"))


def test_a_folder_that_cannot_be_swept_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".01234567.partial.plan").mkdir(mode=0)
    write("folder", tmp_path / "plan", "new")
    assert read("folder", tmp_path / "plan") == "new"
    with (
        pytest.raises(SourceDataError, match="not of an earlier result"),
        complete_folder(tmp_path, files=FILES),
    ):
        pytest.fail("the work began")
