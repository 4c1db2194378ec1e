"""Processes that end at any moment, and several at once: nothing acknowledged is lost, nothing doubled."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import pytest

import freshopt as fo
from tests.ground_truth.refusals import present
from tests.ground_truth.strata import exhaustive
from tests.live.worker import changed

NAMES = [f"s{k}" for k in range(60)]
ROOT = Path(__file__).parents[2]


def started(place: str | Path) -> tuple[subprocess.Popen[str], IO[str], IO[str]]:
    """Return a worker that is ready, where it reads and where it writes."""
    command = [sys.executable, "-m", "tests.live.worker", str(place)]
    pipe = subprocess.PIPE
    worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env={**os.environ})
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker, present(worker.stdin), worker.stdout


def crawls(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if line.endswith("\n") and line != "done\n"]


def said(line: str) -> tuple[str, float, bool]:
    source, time, found, _ = line.split()
    return source, float(time), found == "1"


def recorded(folder: Path) -> list[tuple[str, float, bool]]:
    """Return what is in the database, read without freshopt."""
    with sqlite3.connect(folder / "planner.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        sql = "SELECT name, time, changed FROM observation JOIN source ON source.id = observation.source"
        return [(name, time, bool(found)) for name, time, found in database.execute(sql)]


@pytest.mark.parametrize(
    ("rounds", "seed"), [(2, 1), *(pytest.param(15, seed, marks=exhaustive) for seed in (2, 3, 4))]
)
def test_a_process_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, rounds: int, seed: int) -> None:
    """End a crawler by SIGKILL at random moments; check its database after each."""
    rng = random.Random(seed)
    with fo.Planner(tmp_path, bandwidth=40.0, update=0.5, lease=0.2, burst=10.0) as planner:
        planner.add_many(NAMES)
    acknowledged: list[tuple[str, float, bool]] = []
    begin = 0.0
    for _ in range(rounds):
        worker, asked, answers = started(tmp_path)
        asked.writelines(f"{begin + 0.05 * k!r}\n" for k in range(2000))
        asked.flush()
        lines = [answers.readline() for _ in range(rng.randrange(1, 150))]
        worker.send_signal(signal.SIGKILL)
        # What it had said before it ended counts as well; its last line may be cut.
        lines += answers.readlines()
        asked.close()
        answers.close()
        assert worker.wait() == -signal.SIGKILL
        acknowledged += map(said, crawls(lines))
        inside = recorded(tmp_path)
        assert max(Counter((name, time) for name, time, _ in inside).values()) == 1
        missing = set(acknowledged) - set(inside)
        assert not missing
        # What was committed and not yet said when it ended is one observation at most.
        unsaid = set(inside) - set(acknowledged)
        assert len(unsaid) <= 1
        assert all(found == changed(name, time) for name, time, found in unsaid)
        acknowledged += sorted(unsaid)
        begin = max(time for _, time, _ in inside) + 0.05
    with fo.Planner(tmp_path) as planner:
        assert len(planner.log()) == len(acknowledged)
        # Sources that were leased when a process ended are handed out again.
        assert {visit.source for visit in planner.due(begin + 30.0, limit=None)} == set(NAMES)


@pytest.mark.exhaustive
def test_two_processes_share_one_plan(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth=60.0, update=1.0, lease=1000.0, burst=0.05) as planner:
        planner.add_many(NAMES)
    workers = [started(tmp_path) for _ in range(2)]
    lines: list[list[str]] = [[], []]
    for k in range(120):
        # Both are asked at once, and answer when they have done.
        for _, asked, _ in workers:
            asked.write(f"{0.05 * k!r}\n")
            asked.flush()
        for mine, (_, _, answers) in zip(lines, workers, strict=True):
            mine += iter(answers.readline, "done\n")
    for worker, asked, answers in workers:
        asked.close()
        answers.close()
        assert worker.wait() == 0
    own = [list(map(said, each)) for each in lines]
    inside = recorded(tmp_path)
    assert sorted(inside) == sorted(own[0] + own[1])
    # Leases do not end here: what is due once is handed to one of them.
    visits = Counter((line.split()[0], line.split()[3]) for each in lines for line in each)
    assert max(visits.values()) == 1
    assert min(len(each) for each in own) > 0
    # Together they are handed the bandwidth of one planner, and one refresh more.
    assert 0.85 * 360 <= len(inside) <= 361
    assert {name for name, _, _ in inside} == set(NAMES)
