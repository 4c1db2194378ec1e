"""Threads, forked and spawned processes that solve at once find what one after the other finds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts import concurrent_solves
from tests.contracts.concurrent_solves import TASKS, WORKERS, answer, difference, silenced, threads
from tests.ground_truth.strata import exhaustive
from tests.ground_truth.tolerances import EXACT

ROOT = Path(__file__).parents[2]


@pytest.mark.exhaustive
def test_threads_find_what_one_after_the_other_finds() -> None:
    assert difference(threads(list(TASKS)), [answer(task) for task in TASKS]) <= EXACT
    threads(["cones CLARABEL"] * WORKERS)
    assert silenced() == []


@exhaustive
@pytest.mark.parametrize("compiled", ["0", "1"])
def test_threads_and_processes_that_begin_cold(compiled: str) -> None:
    environment = {**os.environ, "FRESHOPT_COMPILED": compiled, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", concurrent_solves.__name__]
    ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert {way: off for way, off in found.items() if not off <= EXACT} == {}
