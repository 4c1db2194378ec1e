"""Machine code on disk: found by a second process, and done without where the disk will not have it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import caching

from freshopt.compiled.kept_code import compile_loop

START = """
import numpy as np, freshopt as fo
from contextlib import ExitStack
from freshopt.compiled import backend
from freshopt.dual_search.batch_water_filling import SMALL
kind, p, rows = fo.problems, fo.Refresh.PERIODIC, np.arange(1200)
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
    "warm": "fo.warm()",
    "age": "solve(kind.Age()); solve(kind.Age(p))",
    "log": "solve(kind.LogFreshness(p))",
    "knapsack": "solve(kind.PollingKnapsack('polls')); solve(kind.PollingKnapsack('materials'))",
    "power": "solve(kind.SynchronizationCost(kind.PowerCost(2.0, 0.7)))",
    "signals": "solve(kind.HarmonicStaleness(), lambda n: {'signalled': np.arange(n) % 3 == 0})",
    "success": "solve(kind.HarmonicStaleness(), lambda n: {'success': np.full(n, 0.9)})",
    "changed cost": "solve(kind.HarmonicStaleness(), lambda n: {'changed_cost': np.full(n, 0.5)})",
    "hosts": "solve(kind.BinaryFreshness(p), lambda n: {'host': np.arange(n) % 200})",
    "rows": "fo.solve(fo.Problem(kind.HarmonicStaleness(), sources(3000), constraints=["
    "fo.Budget(1200.0), fo.Budget(3000.0, cost=1.0 + np.arange(3000) % 7)]))",
    "declared": DECLARED,
    "plan": "fo.plan(log(), bandwidth=100.0, horizon=7.0, draws=2)",
    "dated": "fo.plan(log(last_modified=rows // 200 - 0.5), bandwidth=100.0, horizon=7.0, draws=2)",
    "certify": "problem = fo.Problem(kind.HarmonicStaleness(p), sources(3000), 1200.0)\n"
    "fo.certify(problem, np.full(3000, 0.4))",
}


def ran(job: str, folder: Path) -> dict[str, tuple[int, int]]:
    """Return the files of machine code that there are once a process has done its job."""
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(folder),
        "XDG_CACHE_HOME": str(folder),
        "FRESHOPT_COMPILED": "1",
    }
    command = [sys.executable, "-c", START + job]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    files = [path for path in folder.rglob("*") if path.suffix in (".nbc", ".nbi", ".py")]
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def require_found_again(job: str, folder: Path) -> None:
    first = ran(job, folder)
    assert any(name.endswith(".nbc") for name in first)
    assert ran(job, folder) == first


def test_a_second_process_writes_no_machine_code(tmp_path: Path) -> None:
    require_found_again(ONE, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("job", JOBS)
def test_a_second_process_writes_none_of_any_kind(job: str, tmp_path: Path) -> None:
    require_found_again(JOBS[job], tmp_path)


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


@pytest.mark.parametrize("kind", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("rest", [b"", b"\x80", b"no pickle"])
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
