"""Sources in float32: kept so, and computed with as if they had been widened."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness, PollingKnapsack
from freshopt.solvers import SeparableNewton, WaterFilling
from tests.contracts.discovery import Cell
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import exhaustive, stratified
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
CASES = [*((Cell(each), "0") for each in OBJECTIVES), *((Cell(each), "1") for each in COMPILED)]
ON_REQUEST = fo.Refresh.ON_REQUEST
OTHERS = [
    Cell(HarmonicStaleness(ON_REQUEST)),
    Cell(BinaryFreshness(ON_REQUEST), "windows"),
    Cell(AccumulatedDelay(fo.Refresh.PERIODIC), "failing"),
    Cell(HarmonicStaleness(), "failing"),
    Cell(BinaryFreshness(), "conditional"),
    Cell(Age(fo.Refresh.PERIODIC), "conditional"),
]
COMPILED_OTHERS = [pytest.param(each, "1", marks=exhaustive) for each in OTHERS]


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


@pytest.mark.parametrize(
    ("cell", "compiled"), [*CASES, *stratified(OTHERS, ["0"], every=2), *COMPILED_OTHERS], ids=repr
)
@pytest.mark.sampled(15)
def test_as_if_widened(cell: Cell, compiled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all(monkeypatch)
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    d, w = columns()
    bandwidth = 0.3 * float(np.sum(d, dtype=float))
    more = cell.columns(1, d.astype(float))
    narrow = fo.solve(fo.Problem(cell.objective, fo.Sources(d, w, **more), bandwidth), WaterFilling())
    widened = fo.Sources(d.astype(float), w.astype(float), **more)
    wide = fo.solve(fo.Problem(cell.objective, widened, bandwidth), WaterFilling())
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
