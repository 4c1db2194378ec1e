"""Sources in float32: kept so, and computed with as if they had been widened."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness, PollingKnapsack
from freshopt.solvers import SeparableNewton, WaterFilling
from tests.ground_truth.routes import compile_all
from tests.ground_truth.tolerances import EXACT

N = 3000
OBJECTIVES = [
    HarmonicStaleness(),
    HarmonicStaleness(fo.Refresh.PERIODIC),
    BinaryFreshness(),
    BinaryFreshness(fo.Refresh.PERIODIC),
    AccumulatedDelay(),
    Age(),
    Age(fo.Refresh.PERIODIC),
    PollingKnapsack(),
    PollingKnapsack(form="materials"),
]
COMPILED = [OBJECTIVES[k] for k in (0, 3, 4)]  # compiling takes time
CASES = [*((each, "0") for each in OBJECTIVES), *((each, "1") for each in COMPILED)]


def columns() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    d = rng.lognormal(0.0, 3.0, N).astype(np.float32)
    return d, rng.lognormal(0.0, 2.0, N).astype(np.float32)


def test_narrow_columns_are_kept_and_never_copied() -> None:
    d, w = columns()
    sources = fo.Sources(d, w)
    assert np.shares_memory(sources.column("change_rate"), d)
    assert np.shares_memory(sources.take(slice(10, 20)).column("importance"), w)
    assert not sources.column("importance").flags.writeable
    assert sources.change_rate.dtype == sources.importance.dtype == np.float64
    assert np.array_equal(sources.change_rate, d.astype(np.float64))
    assert sources.to_frame()["change_rate"].to_list() == d.tolist()


@pytest.mark.parametrize(("objective", "compiled"), CASES, ids=repr)
def test_as_if_widened(objective: fo.Objective, compiled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all(monkeypatch)
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    d, w = columns()
    bandwidth = 0.3 * float(np.sum(d, dtype=float))
    narrow = fo.solve(fo.Problem(objective, fo.Sources(d, w), bandwidth), WaterFilling())
    widened = fo.Sources(d.astype(float), w.astype(float))
    wide = fo.solve(fo.Problem(objective, widened, bandwidth), WaterFilling())
    assert narrow.status is fo.Status.OPTIMAL
    assert np.allclose(narrow.rates, wide.rates, rtol=EXACT, atol=0.0)
    assert narrow.value == pytest.approx(wide.value, rel=EXACT)
    assert narrow.certificate is not None
    assert narrow.certificate.relative_gap <= EXACT


@pytest.mark.exhaustive
def test_hosts_signals_and_other_solvers() -> None:
    d, w = columns()
    host, signalled = np.arange(N) % 50, np.arange(N) % 7 == 0
    limits = dict.fromkeys(range(25), 0.004 * float(np.sum(d, dtype=float)))
    for solver in (WaterFilling(), SeparableNewton()):
        found = [
            fo.solve(
                fo.Problem(
                    HarmonicStaleness(),
                    fo.Sources(d.astype(kind), w.astype(kind), host=host, signalled=signalled),
                    0.3 * float(np.sum(d, dtype=float)),
                    limits,
                ),
                solver,
            )
            for kind in (np.float32, np.float64)
        ]
        assert found[0].value == pytest.approx(found[1].value, rel=EXACT)


def test_a_value_out_of_range_is_named() -> None:
    d, w = columns()
    d[7] = np.float32(np.inf)
    with pytest.raises(fo.SourceDataError, match=r"change_rate out of range for source 7: inf"):
        fo.Sources(d, w)
