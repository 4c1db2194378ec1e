"""Machine code: the account that loads numba, threads, and code kept on disk."""

from __future__ import annotations

import errno
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import caching

import freshopt as fo
from freshopt.compiled import backend, threads
from freshopt.compiled.kept_code import compile_loop, told
from freshopt.compiled.threads import run_chunks_in_threads
from freshopt.numerics.arrays import Array
from freshopt.problems import PowerCost, SynchronizationCost
from tests.ground_truth.named import HARMONIC
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import exhaustive, matrix
from tests.ground_truth.tolerances import EXACT


def task(n: int) -> fo.Problem:
    rng = np.random.default_rng(n)
    d = rng.lognormal(size=n)
    return fo.Problem(HARMONIC, fo.Sources(d, rng.lognormal(size=n)), 0.5 * float(d.sum()))


def test_numba_is_loaded_once_numpy_has_worked_as_long() -> None:
    half = int(backend.LOADING) // 20
    assert not backend.takes("a", half, 10.0)
    assert not backend.takes("b", half - 1, 10.0)
    assert backend.takes("a", 100, 1.0)
    assert backend.takes("a", backend.AT_HAND, 1.0)
    assert not backend.takes("a", backend.AT_HAND - 1, 1.0)
    assert backend.takes("b", 100, 1.0), "its own work has made up for another loop"
    assert not backend.takes("c", 100, 1.0)
    assert backend.takes("c", int(backend.ANOTHER), 1.0)


def test_one_problem_may_be_enough() -> None:
    assert not backend.takes("a", int(backend.LOADING) - 1, 1.0, entered=False)
    assert backend.account.done == {}
    assert backend.takes("a", int(backend.LOADING), 1.0)


def test_loading_asks_for_loops_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    with backend.loading():
        assert backend.takes("a", 1000, 1.0)
    assert backend.takes("a", 1000, 1.0)
    assert not backend.takes("b", 1000, 1.0)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    assert not backend.takes("a", 1000, 1.0)


def test_the_same_calls_take_the_same_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "LOADING", 50_000.0)
    problem = task(1000)
    runs = []
    for _ in range(2):
        monkeypatch.setattr(backend, "account", backend.Account())
        runs.append([fo.solve(problem).rates.tolist() for _ in range(6)])
    assert runs[0] == runs[1]
    assert runs[0][0] == runs[0][1]
    assert np.allclose(runs[0][0], runs[0][-1], rtol=EXACT, atol=0.0)
    assert backend.account.loaded


def test_few_solves_load_no_numba() -> None:
    code = (
        "import sys, numpy as np, freshopt as fo; "
        "d = np.linspace(1.0, 2.0, 70_000); "
        "fo.solve(fo.Problem(fo.problems.HarmonicStaleness(), fo.Sources(d), 1e4)); "
        "print('numba' in sys.modules)"
    )
    environment = {**os.environ, "FRESHOPT_COMPILED": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert ran.stdout.strip() == "False"


def test_loops_that_were_loaded_for_something_else_make_the_next_ones_cheap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "_compiled", lambda function: function)
    assert not backend.takes("a", int(backend.ANOTHER), 1.0)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    backend.fast(task)
    assert not backend.account.has_numba
    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    backend.fast(task)
    assert backend.takes("b", int(backend.ANOTHER), 1.0)
    assert not backend.takes("c", 1000, 1.0)


@pytest.mark.exhaustive
def test_warm_loads_what_a_problem_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = task(300)
    fo.warm(problem)
    loaded = set(backend.account.loaded)
    assert len(loaded) == 1
    fo.solve(problem)
    assert backend.account.loaded == loaded
    assert backend.account.done == {}
    fo.warm(HARMONIC)
    assert len(backend.account.loaded) == 3, "small problems, the search of large ones, and their proof"
    refused("problem is 3", fo.warm, 3, error=TypeError)
    monkeypatch.setattr(backend, "account", backend.Account())
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    fo.warm()
    assert not backend.account.loaded


def test_settings_for_each_source_ask_for_a_problem() -> None:
    own = SynchronizationCost(PowerCost(np.ones(5), 0.5))
    refused(r"settings for each source. Pass a problem", fo.warm, own, error=fo.ObjectiveError)


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


START = """
import numpy as np, freshopt as fo
from contextlib import ExitStack
from freshopt.compiled import backend
from freshopt.dual_search.batch_water_filling import SMALL
kind, p, r, rows = fo.problems, fo.Refresh.PERIODIC, fo.Refresh.POISSON, np.arange(1200)
stack = ExitStack()
stack.enter_context(backend.loading())
def sources(n, **more):
    return fo.Sources(np.linspace(0.5, 2.0, n), np.linspace(2.0, 1.0, n), **more)
def log(**more):
    return fo.CrawlLog(rows % 200, rows // 200 + 0.1 + rows % 7 / 10, rows % 2, **more)
def solve(objective, of=lambda n: {}, **more):
    # Few and many sources have loops of their own.
    for n in (3000, SMALL + 1):
        limits = {k: 0.002 * n for k in range(200)} if "host" in of(n) else None
        fo.solve(fo.Problem(objective, sources(n, **of(n)), 0.4 * n, limits), **more)
"""
# One loop with the intrinsics that numba would give another id in each process.
ONE = """
from freshopt.dual_search.problem_columns import columns_of
problem = fo.Problem(kind.BinaryFreshness(p), sources(200), 10.0)
print(columns_of(problem, problem.numerics).demand(0.1))
"""
DECLARED = """
from freshopt.cvx import cp
class Declared(fo.Objective):
    def per_source(self, rate, sources):
        return cp.multiply(sources.importance, cp.inv_pos(rate) + cp.exp(-rate))
solve(Declared())
"""
JOBS = {
    "one": ONE,
    "warm": "fo.warm()",
    "age": "solve(kind.Age(r)); solve(kind.Age(p))",
    "log": "solve(kind.LogFreshness(p))",
    "knapsack": "solve(kind.PollingKnapsack('polls')); solve(kind.PollingKnapsack('materials'))",
    "power": "solve(kind.SynchronizationCost(kind.PowerCost(2.0, 0.7)))",
    "signals": "solve(kind.HarmonicStaleness(r), lambda n: {'signalled': np.arange(n) % 3 == 0})",
    "success": "solve(kind.HarmonicStaleness(r), lambda n: {'success': np.full(n, 0.9)})",
    "changed cost": "solve(kind.HarmonicStaleness(r), lambda n: {'changed_cost': np.full(n, 0.5)})",
    "hosts": "solve(kind.BinaryFreshness(p), lambda n: {'host': np.arange(n) % 200})",
    "rows": "fo.solve(fo.Problem(kind.HarmonicStaleness(r), sources(3000), constraints=["
    "fo.Budget(1200.0), fo.Budget(3000.0, cost=1.0 + np.arange(3000) % 7)]))",
    "declared": DECLARED,
    "plan": "fo.plan(log(), bandwidth=100.0, horizon=7.0, draws=2)",
    "dated": "fo.plan(log(last_modified=rows // 200 - 0.5), bandwidth=100.0, horizon=7.0, draws=2)",
    "certify": "problem = fo.Problem(kind.HarmonicStaleness(p), sources(3000), 1200.0)\n"
    "fo.certify(problem, np.full(3000, 0.4))",
}


def ran(job: str, folder: Path, **settings: str) -> dict[str, tuple[int, int]]:
    """Return the files of machine code that there are once a process has done its job."""
    environment = (
        os.environ
        | settings
        | {
            "NUMBA_CACHE_DIR": str(folder),
            "XDG_CACHE_HOME": str(folder),
            "FRESHOPT_COMPILED": "1",
        }
    )
    command = [sys.executable, "-c", START + job]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    files = [path for path in folder.rglob("*") if path.suffix in (".nbc", ".nbi", ".py")]
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


@pytest.mark.parametrize(
    "job", [pytest.param(job, marks=exhaustive) if job != "one" else job for job in JOBS]
)
def test_a_second_process_writes_no_machine_code(job: str, tmp_path: Path) -> None:
    first = ran(JOBS[job], tmp_path)
    assert any(name.endswith(".nbc") for name in first)
    assert ran(JOBS[job], tmp_path) == first
    # Nor one that compiles all of Python's own code anew.
    assert ran(JOBS[job], tmp_path, PYTHONPYCACHEPREFIX=str(tmp_path / "bytecode")) == first


def scaled(factor: float, table: Array) -> Callable[[float], float]:
    def inner(value: float) -> float:
        return factor * value + float(table[0])

    return inner


def test_what_loops_are_closures_over_is_told_apart() -> None:
    def other(value: float) -> float:
        return 2.0 * value + 2.0

    one = told((scaled(2.0, np.ones(3)), 1.0))
    assert told((scaled(2.0, np.ones(3)), 1.0)) == one
    unlike = (scaled(3.0, np.ones(3)), scaled(2.0, np.zeros(3)), scaled(2.0, np.ones(4)), other, double)
    assert len({one, told((scaled(2.0, np.ones(3)), 2.0)), *(told((each, 1.0)) for each in unlike)}) == 7


def double(values: Any) -> Any:  # noqa: ANN401 - what numba compiles
    return 2.0 * values


def refusing(code: int) -> Callable[..., Any]:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def require_works() -> Any:  # noqa: ANN401 - numba's
    loop = compile_loop(nogil=True)(double)
    np.testing.assert_array_equal(loop(np.ones(3)), np.full(3, 2.0))
    return loop


@pytest.mark.parametrize(
    "code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES], ids=errno.errorcode.get
)
@pytest.mark.parametrize("step", ["_save_index", "_save_data", "_load_index"])
@pytest.mark.sampled(5)
def test_a_disk_that_refuses_is_done_without(
    step: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    with monkeypatch.context() as broken:
        broken.setattr(caching.IndexDataCacheFile, step, refusing(code))
        require_works()
    assert not list(tmp_path.rglob("*.nbc"))
    assert sum(require_works().stats.cache_misses.values()) == 1
    assert sum(require_works().stats.cache_hits.values()) == 1


def test_without_a_folder_for_it_code_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refusing(errno.EROFS))
    assert not require_works().stats.cache_hits


@matrix(kind=["*.nbi", "*.nbc"], rest=[b"", b"\x80", b"no pickle"], every=5)
def test_a_file_that_was_cut_off_is_no_code(
    kind: str, rest: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    require_works()
    (file,) = tmp_path.rglob(kind)
    file.write_bytes(rest)
    require_works()


@pytest.mark.exhaustive
def test_a_full_disk_ends_no_solve(tmp_path: Path) -> None:
    broken = """
import errno
from numba.core import caching
def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")
caching.IndexDataCacheFile._save_data = full
"""
    assert not any(name.endswith(".nbc") for name in ran(broken + JOBS["hosts"] + "\n" + DECLARED, tmp_path))
