"""What runs on a device, or in numba's simulator: `test_no_device` runs this file in a process of its own.

On a device:

    python -m pytest -o addopts=--import-mode=importlib tests/cuda/on_device.py
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numba import cuda

import freshopt as fo
from freshopt.cuda import DeviceProblem, price_search, transfers
from freshopt.cuda.kernel_loops import SIMULATED
from freshopt.problems import ExpectedPenalty, PowerCost, SynchronizationCost
from freshopt.solvers import WaterFilling, WaterFillingCuda
from tests.ground_truth.named import (
    AGE,
    AGE_PERIODIC,
    BINARY,
    BINARY_PERIODIC,
    DELAY,
    DELAY_PERIODIC,
    HARMONIC,
    HARMONIC_PERIODIC,
    PERIODIC,
    present,
)
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT

OBJECTIVES: list[fo.Objective] = [
    HARMONIC,
    HARMONIC_PERIODIC,
    BINARY,
    BINARY_PERIODIC,
    DELAY,
    DELAY_PERIODIC,
    AGE,
    AGE_PERIODIC,
    SynchronizationCost(PowerCost(2.0, 0.5)),
    SynchronizationCost(PowerCost(0.5, 1.5), PERIODIC),
]
WEIGHTED = [OBJECTIVES[k] for k in (0, 3, 6, 8)]
# What float32 leaves of a bandwidth for some hundred sources is a part of one rate's last bit.
NARROW_GAP = 1e-9
ULPS = 8 * float(np.finfo(float).eps)


class OneEach(dict[Any, Any]):
    """Shared arrays by the line that asks for them, of which the threads of a block get one.

    The simulator's own look-up lets two threads that come at once have an array each.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def get(self, key: Any, default: Any = None) -> Any:  # noqa: ANN401
        """Return the array; hold up other threads until it is entered if there is none."""
        self.lock.acquire()
        found = super().get(key, default)
        if found is not None:
            self.lock.release()
        return found

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401
        super().__setitem__(key, value)
        self.lock.release()


def share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give all threads of a block in the simulator one array of shared memory."""
    from numba.cuda.simulator import kernelapi  # noqa: PLC0415 - it is not a device's

    class SharedOnce(kernelapi.FakeCUDAShared):
        def __init__(self, size: int) -> None:
            super().__init__(size)  # type: ignore[no-untyped-call]
            self._allocations = OneEach()

    monkeypatch.setattr(kernelapi, "FakeCUDAShared", SharedOnce)


@pytest.fixture(autouse=True)
def _in_the_simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the simulator threads of a block share memory, and are quiet.

    In Python what a device does without a word warns: each thread of the simulator does. It waits for its
    threads in a loop, which other threads are to interrupt soon.
    """
    if not SIMULATED:
        yield
        return
    share_memory(monkeypatch)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
    sys.setswitchinterval(before)


class OnDevice:
    """An array on the device, as other libraries show it."""

    def __init__(self, array: np.ndarray) -> None:
        # What is refused is not looked at, and stays on the host.
        there = not SIMULATED and array.size and array.flags.c_contiguous
        self.array = cuda.to_device(array) if there else array
        self.shape = array.shape

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if isinstance(self.array, np.ndarray):
            return {**self.array.__array_interface__, "version": 3}
        shown: dict[str, Any] = self.array.__cuda_array_interface__
        return shown


def columns(n: int, seed: int = 0, spread: float = 1.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.lognormal(0.0, spread, n), rng.lognormal(0.0, spread, n)


def check_feasible(rates: np.ndarray, problem: fo.Problem) -> None:
    used = float(np.sum(problem.sources.refresh_cost * rates, dtype=np.longdouble))
    assert used <= problem.bandwidth * (1.0 + ULPS)
    assert np.all((rates >= problem.lower) & (rates <= problem.upper))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_every_cell_as_on_the_host(objective: fo.Objective) -> None:
    d, w = columns(90)
    problem = fo.Problem(objective, fo.Sources(d, w), 0.3 * float(d.sum()))
    host, found = fo.solve(problem, WaterFilling()), fo.solve(problem, WaterFillingCuda())
    assert found.price == pytest.approx(host.price, rel=EXACT)
    assert found.value == pytest.approx(host.value, rel=EXACT)
    np.testing.assert_allclose(found.rates, host.rates, rtol=1e-11, atol=1e-13 * float(host.rates.max()))
    assert present(found.certificate).relative_gap <= EXACT
    assert fo.certify(problem, found.rates, found.price).relative_gap <= EXACT
    check_feasible(found.rates, problem)


@pytest.mark.parametrize("objective", WEIGHTED, ids=repr)
def test_rates_in_float32_are_proved_as_they_are(objective: fo.Objective) -> None:
    d, w = columns(90)
    problem = fo.Problem(objective, fo.Sources(d, w), 0.3 * float(d.sum()))
    found = fo.solve(problem, WaterFillingCuda(dtype="float32"))
    assert np.array_equal(found.rates, found.rates.astype(np.float32))
    assert present(found.certificate).relative_gap <= NARROW_GAP
    assert fo.certify(problem, found.rates).relative_gap <= NARROW_GAP
    check_feasible(found.rates, problem)


@pytest.mark.parametrize(
    ("objective", "share"),
    [
        (OBJECTIVES[0], 1e-3),
        (OBJECTIVES[0], 20.0),
        (OBJECTIVES[3], 1e-3),
        (OBJECTIVES[6], 20.0),
        (OBJECTIVES[8], 1e-3),
    ],
    ids=repr,
)
def test_ill_scaled_columns_in_float32_are_computed_in_float64(objective: fo.Objective, share: float) -> None:
    rng = np.random.default_rng(3)
    d = (10.0 ** rng.uniform(-6.0, 4.0, 60)).astype(np.float32)
    w = (10.0 ** rng.uniform(-6.0, 6.0, 60)).astype(np.float32)
    bandwidth = share * float(np.sum(d, dtype=float))
    host = fo.solve(fo.Problem(objective, fo.Sources(d.astype(float), w.astype(float)), bandwidth))
    found = fo.solve(DeviceProblem(objective, OnDevice(d), bandwidth, OnDevice(w)))
    assert found.value == pytest.approx(host.value, rel=EXACT)
    assert present(found.certificate).relative_gap <= EXACT
    assert float(np.sum(found.rates_on_host())) <= bandwidth * (1.0 + ULPS)


@pytest.mark.parametrize("n", [1, 4101])
def test_sizes_about_a_block(n: int) -> None:
    d, w = columns(n)
    problem = fo.Problem(HARMONIC, fo.Sources(d, w), 0.5 * float(d.sum()))
    found = fo.solve(problem, WaterFillingCuda())
    assert found.price == pytest.approx(fo.solve(problem, WaterFilling()).price, rel=EXACT)
    check_feasible(found.rates, problem)


def test_the_price_of_harmonic_sources_by_bisection() -> None:
    d, w = columns(200, spread=3.0)
    bandwidth = 0.01 * float(d.sum())

    def rates(price: float) -> np.ndarray:
        product = w / price * d
        found: np.ndarray = 2.0 * product / (d + np.sqrt(d * d + 4.0 * product))
        return found

    low, high = 1e-30, 1e30
    for _ in range(400):
        middle = np.sqrt(low) * np.sqrt(high)
        low, high = (middle, high) if rates(middle).sum() > bandwidth else (low, middle)
    found = fo.solve(DeviceProblem(HARMONIC, OnDevice(d), bandwidth, OnDevice(w)))
    assert found.price == pytest.approx(high, rel=EXACT)
    np.testing.assert_allclose(found.rates_on_host(), rates(high), rtol=1e-11)


def test_the_same_input_gives_the_same_bits() -> None:
    d, w = columns(300)
    problem = DeviceProblem(BINARY_PERIODIC, OnDevice(d), 30.0, OnDevice(w))
    first, second = fo.solve(problem), fo.solve(problem)
    assert first.rates_on_host().tobytes() == second.rates_on_host().tobytes()
    assert (first.price, first.value) == (second.price, second.value)


@pytest.mark.parametrize("objective", WEIGHTED, ids=repr)
def test_bounds_costs_and_weights_of_zero(objective: fo.Objective) -> None:
    d, w = columns(120, seed=1)
    rng = np.random.default_rng(2)
    w[::9] = 0.0
    lower = np.where(rng.random(120) < 0.3, 0.2 * d, 0.0)
    upper = np.where(rng.random(120) < 0.3, d, np.inf)
    cost = rng.lognormal(0.0, 1.0, 120)
    bandwidth = 1.5 * float(np.sum(cost * lower))
    problem = fo.Problem(
        objective, fo.Sources(d, w, min_rate=lower, max_rate=upper, refresh_cost=cost), bandwidth
    )
    host, found = fo.solve(problem, WaterFilling()), fo.solve(problem, WaterFillingCuda())
    assert found.price == pytest.approx(host.price, rel=EXACT)
    assert found.value == pytest.approx(host.value, rel=EXACT)
    check_feasible(found.rates, problem)
    there = DeviceProblem(objective, OnDevice(d), bandwidth, OnDevice(w), lower, upper, OnDevice(cost))
    on_device = fo.solve(there)
    assert on_device.value == pytest.approx(host.value, rel=EXACT)
    assert present(on_device.certificate).relative_gap <= EXACT


@pytest.mark.parametrize("objective", [HARMONIC, BINARY, DELAY, AGE], ids=repr)
def test_signalled_sources(objective: fo.Objective) -> None:
    d, w = columns(120, seed=4)
    sources = fo.Sources(d, w, signalled=np.arange(120) % 3 == 0)
    problem = fo.Problem(objective, sources, 0.3 * float(d.sum()))
    host, found = fo.solve(problem, WaterFilling()), fo.solve(problem, WaterFillingCuda())
    assert found.value == pytest.approx(host.value, rel=EXACT)
    assert present(found.certificate).relative_gap <= EXACT
    check_feasible(found.rates, problem)


@pytest.mark.parametrize("kind", ["all alike", "two kinds", "weights as rates", "constant marginals"])
def test_demand_that_jumps_is_met_by_a_mixture(kind: str) -> None:
    n = 90
    d, w = columns(n, seed=5)
    d, w = {
        "all alike": (np.full(n, 2.0), np.full(n, 3.0)),
        "two kinds": (np.where(np.arange(n) % 2, 1.0, 4.0), np.where(np.arange(n) % 2, 2.0, 8.0)),
        "weights as rates": (d, d),
        "constant marginals": (d, w),
    }[kind]
    signalled = kind == "constant marginals"
    objective = BINARY if signalled else BINARY_PERIODIC
    problem = fo.Problem(objective, fo.Sources(d, w, signalled=signalled), 0.05 * float(d.sum()))
    host, found = fo.solve(problem, WaterFilling()), fo.solve(problem, WaterFillingCuda())
    assert found.value == pytest.approx(host.value, rel=EXACT)
    assert present(found.certificate).relative_gap <= EXACT
    check_feasible(found.rates, problem)


def test_demand_of_one_amount_has_the_least_price() -> None:
    """All sources at a bound: every price of an interval is optimal."""
    d, w = np.array([1.0, 1.0, 1.0, 1.0]), np.array([4.0, 4.0, 1e-3, 1e-3])
    problem = fo.Problem(BINARY, fo.Sources(d, w, max_rate=0.5), 1.0)
    host, found = fo.solve(problem, WaterFilling()), fo.solve(problem, WaterFillingCuda())
    np.testing.assert_allclose(found.rates, [0.5, 0.5, 0.0, 0.0], atol=1e-13)
    assert found.price == pytest.approx(host.price, rel=1e-12)


def test_a_bandwidth_for_all_costs_nothing() -> None:
    d, w = columns(50)
    w[7] = 0.0
    problem = fo.Problem(HARMONIC, fo.Sources(d, w, max_rate=d), 2.0 * float(d.sum()))
    found = fo.solve(problem, WaterFillingCuda())
    assert found.price == 0.0
    assert np.array_equal(found.rates[w > 0.0], d[w > 0.0])
    there = fo.solve(DeviceProblem(HARMONIC, OnDevice(d), problem.bandwidth, OnDevice(w), max_rate=d))
    assert (there.status, there.price) == (fo.Status.OPTIMAL, 0.0)
    idle = fo.solve(DeviceProblem(HARMONIC, OnDevice(d), 1.0, 0.0))
    assert (idle.status, idle.price, idle.value) == (fo.Status.OPTIMAL, 0.0, 0.0)


def test_many_sources_are_sampled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_search, "SAMPLE", 200)
    d, w = columns(600, spread=1.0)
    problem = DeviceProblem(HARMONIC, OnDevice(d), 0.4 * float(d.sum()), OnDevice(w))
    found = fo.solve(problem)
    host = fo.solve(fo.Problem(HARMONIC, fo.Sources(d, w), problem.bandwidth))
    assert found.price == pytest.approx(host.price, rel=EXACT)
    assert found.iterations <= 7
    again = fo.solve(problem.with_bandwidth(1.001 * problem.bandwidth), warm_start=found.price)
    assert again.status is fo.Status.OPTIMAL
    assert again.iterations <= found.iterations


def test_large_arrays_are_copied_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "PART", 4 * transfers.PAGE)
    there = np.random.default_rng(0).random(20_000)[3:]
    assert len(transfers.parts_of(there.ctypes.data, 8, len(there), transfers.PART)) >= 9
    for given in (there, there.astype(np.float32)):
        assert np.array_equal(transfers.on_host(transfers.uploaded(given)), given)
    there.flags.writeable = False  # as a file's that is read
    assert np.array_equal(transfers.on_host(transfers.uploaded(there)), there)


def test_few_rates_carry_what_rounding_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshopt.cuda.bandwidth_correction.SOURCES", 60)
    d, w = columns(200)
    problem = fo.Problem(HARMONIC, fo.Sources(d, w), 0.4 * float(d.sum()))
    found = fo.solve(problem, WaterFillingCuda("float32"))
    check_feasible(found.rates, problem)
    assert float(found.rates.sum()) == pytest.approx(problem.bandwidth, rel=1e-9)


D = np.array([1.0, 2.0, 3.0])


def replaced(k: int, value: float) -> OnDevice:
    found = D.copy()
    found[k] = value
    return OnDevice(found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"change_rate": replaced(1, np.nan)}, "change_rate out of range for source 1: nan"),
        ({"change_rate": replaced(0, 0.0)}, "source 0: 0. It must be > 0"),
        ({"change_rate": replaced(2, np.inf)}, "source 2: inf"),
        ({"importance": replaced(2, -1.0)}, "importance out of range for source 2: -1"),
        (
            {"importance": replaced(0, 0.0), "max_rate": replaced(1, np.nan)},
            "max_rate out of range for source 1",
        ),
        ({"min_rate": replaced(1, 5.0), "max_rate": 4.0}, "min_rate exceeds max_rate for source 1"),
        ({"min_rate": 5.0, "max_rate": 4.0}, "min_rate exceeds max_rate for all sources"),
        ({"refresh_cost": 0.0}, "refresh_cost out of range for all sources: 0"),
        ({"importance": OnDevice(np.ones(2))}, "importance has length 2 but there are 3 sources"),
        ({"change_rate": OnDevice(np.ones(0))}, "there are no sources"),
        ({"change_rate": []}, r"change_rate has shape \(0,\)"),
        ({"change_rate": OnDevice(np.ones((3, 1)))}, r"is float64 of shape \(3, 1\)"),
        ({"change_rate": OnDevice(np.ones(3, dtype=np.int32))}, "is int32"),
        ({"change_rate": OnDevice(np.ones(6)[::2])}, "is not contiguous"),
        ({"bandwidth": -1.0}, "bandwidth is -1"),
        ({"time_unit": "fortnight"}, "fortnight"),
    ],
)
def test_wrong_columns_are_named(settings: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "objective": HARMONIC,
        "change_rate": OnDevice(D),
        "bandwidth": 1.0,
    }
    refused(message, DeviceProblem, **{**given, **settings})


def test_a_wrong_entry_beyond_the_first_block_is_named() -> None:
    d = np.ones(5000)
    d[4500] = np.nan
    refused("source 4500: nan", DeviceProblem, HARMONIC, OnDevice(d), 1.0)


def test_what_a_device_does_not_carry_is_refused() -> None:
    sources = fo.Sources(D, host=["a", "a", "b"])
    limited = fo.Problem(HARMONIC, sources, 1.0, {"a": 0.1})
    with pytest.raises(fo.SolverRefusedError, match="devices carry no host limits; use WaterFilling"):
        fo.solve(limited, WaterFillingCuda())
    with pytest.raises(fo.SolverRefusedError, match="no demand function and proof for devices"):
        fo.solve(fo.Problem(ExpectedPenalty(np.sqrt), fo.Sources(D), 1.0), WaterFillingCuda())
    with pytest.raises(fo.ObjectiveError, match="no kernels for devices"):
        DeviceProblem(ExpectedPenalty(np.sqrt), OnDevice(D), 1.0)
    with pytest.raises(fo.ObjectiveError, match="Pass numbers for all sources"):
        DeviceProblem(SynchronizationCost(PowerCost(D, 1.0)), OnDevice(D), 1.0)
    problem = DeviceProblem(HARMONIC, OnDevice(D), 1.0, min_rate=1.0 / 3.0)
    refused("min_rate uses up the bandwidth", fo.solve, problem, error=fo.SolverRefusedError)
    with pytest.raises(fo.InfeasibleProblemError, match=r"lower bounds need 1\.5 .*short by 0\.5"):
        fo.solve(DeviceProblem(HARMONIC, OnDevice(D), 1.0, min_rate=0.5))
    with pytest.raises(fo.SolverRefusedError, match="does not solve problems on a device"):
        fo.solve(problem, WaterFilling())
    refused(r"is on a CUDA device\. Give it to fo\.cuda\.DeviceProblem", fo.Sources, OnDevice(D))


def test_bounds_that_float32_does_not_hold_prove_nothing() -> None:
    problem = DeviceProblem(HARMONIC, OnDevice(D), 1.0, min_rate=0.1, max_rate=[0.1, 5.0, 5.0])
    found = fo.solve(problem, WaterFillingCuda("float32"), throw=False)
    assert found.status is fo.Status.INACCURATE
    assert "float64" in found.note
    assert fo.solve(problem).status is fo.Status.OPTIMAL


def test_without_a_certificate_nothing_is_claimed() -> None:
    found = fo.solve(DeviceProblem(AGE, OnDevice(D), 2.0), certify=False)
    assert found.certificate is None
    assert "Not certified" in repr(found)
    assert len(repr(found).splitlines()) <= 8
    assert (
        repr(found.problem)
        == "DeviceProblem(Age(refresh=Refresh.POISSON, nodes=2), n=3, bandwidth=2 per day)"
    )


@pytest.mark.parametrize("objective", [HARMONIC, BINARY, DELAY_PERIODIC], ids=repr)
def test_attempts_that_fail(objective: fo.Objective) -> None:
    sources = fo.Sources([0.5, 1.0, 2.0, 8.0], success=[1.0, 0.9, 0.5, 0.1])
    problem = fo.Problem(objective, sources, bandwidth=3.0)
    there, here = fo.solve(problem, WaterFillingCuda()), fo.solve(problem, WaterFilling())
    np.testing.assert_allclose(there.rates, here.rates, rtol=1e-12)
    assert present(there.certificate).relative_gap < 1e-12
