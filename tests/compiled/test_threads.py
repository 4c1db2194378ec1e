"""The pool of threads: every share once, whoever calls, also from passes within passes and after a fork."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from freshopt.compiled import threads
from freshopt.compiled.threads import run_chunks_in_threads


def counted(pieces: int, least: int = 1) -> list[int]:
    """Return how many times each piece was visited."""
    visits = np.zeros(pieces, dtype=np.int64)

    def part(begin: int, end: int) -> None:
        np.add(visits[begin:end], 1, out=visits[begin:end])

    run_chunks_in_threads(part, pieces, least)
    return visits.tolist()


def test_each_piece_is_visited_once_whatever_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("1", "2", "7", "64", "3", "", "none", "0"):
        monkeypatch.setenv("FRESHOPT_THREADS", given)
        for pieces, least in ((0, 1), (1, 1), (2, 1), (5, 2), (1000, 1), (1000, 999), (3, 4)):
            assert counted(pieces, least) == [1] * pieces


def test_threads_are_kept_from_pass_to_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHOPT_THREADS", "2")
    seen: set[int] = set()
    together = threading.Barrier(2)

    def part(_: int, __: int) -> None:
        seen.add(threading.get_ident())
        together.wait(30.0)

    for _ in range(50):
        run_chunks_in_threads(part, 2, 1)
    assert 1 <= len(seen - {threading.get_ident()}) <= next(iter(threads._POOL))
    assert len(threads._POOL) == 1


def test_as_many_work_at_once_as_there_are_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (2, 5):
        monkeypatch.setenv("FRESHOPT_THREADS", str(number))
        together = threading.Barrier(number)
        run_chunks_in_threads(lambda _, __, met=together: met.wait(30.0), number, 1)  # type: ignore[misc]


def test_a_pass_within_a_pass_and_many_callers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHOPT_THREADS", "2")
    found: list[list[int]] = []

    def nested(begin: int, end: int) -> None:
        for _ in range(begin, end):
            found.append(counted(10))

    callers = [threading.Thread(target=run_chunks_in_threads, args=(nested, 20, 1)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60.0)
    assert found == [[1] * 10] * 160


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_what_a_share_raises_is_raised_when_all_have_ended(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    monkeypatch.setenv("FRESHOPT_THREADS", "3")
    running: list[int] = []

    def part(begin: int, _: int) -> None:
        running.append(begin)
        if begin == failing:
            raise ZeroDivisionError(begin)
        time.sleep(0.05)
        running.remove(begin)

    with pytest.raises(ZeroDivisionError):
        run_chunks_in_threads(part, 3, 1)
    assert running == [failing]
    assert counted(9) == [1] * 9


def in_a_child(answers: multiprocessing.SimpleQueue[list[int]]) -> None:
    answers.put(counted(100))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_a_pool_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHOPT_THREADS", "4")
    assert counted(100) == [1] * 100
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=in_a_child, args=(answers,))
    child.start()
    child.join(60.0)
    assert child.exitcode == 0
    assert answers.get() == [1] * 100


def test_the_interpreter_ends_with_threads_idle_and_passes_still_work_then() -> None:
    script = (
        "import atexit\n"
        "from freshopt.compiled.threads import run_chunks_in_threads as run\n"
        "run(lambda a, b: None, 4, 1)\n"
        "atexit.register(lambda: run(lambda a, b: print(a, b), 4, 1))\n"
    )
    environment = {**os.environ, "FRESHOPT_THREADS": "4"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert sorted(done.stdout.split("\n")) == ["", "0 1", "1 2", "2 3", "3 4"]
    assert not done.stderr
