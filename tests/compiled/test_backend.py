"""The account of work: when numba is loaded, always the same; and `fo.warm`."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled import backend
from freshopt.problems import HarmonicStaleness, PowerCost, SynchronizationCost
from tests.ground_truth.tolerances import EXACT


def task(n: int) -> fo.Problem:
    rng = np.random.default_rng(n)
    d = rng.lognormal(size=n)
    return fo.Problem(HarmonicStaleness(), fo.Sources(d, rng.lognormal(size=n)), 0.5 * float(d.sum()))


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
    fo.warm(HarmonicStaleness())
    assert len(backend.account.loaded) == 3, "small problems, the search of large ones, and their proof"
    with pytest.raises(TypeError, match="problem is 3"):
        fo.warm(3)  # type: ignore[arg-type]
    monkeypatch.setattr(backend, "account", backend.Account())
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    fo.warm()
    assert not backend.account.loaded


def test_settings_for_each_source_ask_for_a_problem() -> None:
    own = SynchronizationCost(PowerCost(np.ones(5), 0.5))
    with pytest.raises(fo.ObjectiveError, match=r"settings for each source. Pass a problem"):
        fo.warm(own)
