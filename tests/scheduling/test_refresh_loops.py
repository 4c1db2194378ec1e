"""Compiled orders of refreshes: against Python's own sorts, and NumPy's schedules to the bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from freshopt.compiled.backend import fast
from freshopt.scheduling import Carousel, EarliestDeadline, Periodic, PoissonArrivals, refresh_loops
from freshopt.scheduling import refresh_order as order_module
from freshopt.scheduling.schedule import Method

Floats = npt.NDArray[np.float64]


def bunched(kind: str, many: int) -> Floats:
    """Times of refreshes, more or less alike."""
    random = np.random.default_rng(many)
    if kind == "uniform":
        return random.random(many) * 7.0
    if kind == "equal":
        return np.full(many, 3.5)
    if kind == "ties":
        return np.asarray(random.integers(0, 5, many) * 0.25)
    if kind == "clusters":
        return random.choice([0.0, 1.0, 1e9], many) + random.random(many) * 1e-3
    if kind == "outlier":
        return np.where(np.arange(many) == many // 2, 1e300, random.random(many))
    if kind == "neighbours":  # distances whose reciprocals are beyond all floats
        return np.asarray(random.integers(0, 3, many) * 5e-324)
    return np.sort(random.exponential(1.0, many) ** 9)[::-1] - 0.5


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["uniform", "equal", "ties", "clusters", "outlier", "neighbours", "falling"])
@pytest.mark.parametrize("many", [0, 1, 2, 17, 100, 5000, 40_000])
def test_refreshes_come_by_time_then_source(kind: str, many: int) -> None:
    time = bunched(kind, many)
    cuts = np.sort(np.random.default_rng(1).integers(0, many + 1, 300))
    count = np.diff([0, *cuts.tolist(), many]).astype(np.int64)
    source, ordered = np.empty(many, dtype=np.int64), np.empty(many)
    fast(refresh_loops.order_by_time)(count, time, source, ordered)
    owner = [k for k, own in enumerate(count.tolist()) for _ in range(own)]
    assert list(zip(ordered.tolist(), source.tolist(), strict=True)) == sorted(
        zip(time.tolist(), owner, strict=True)
    )


@pytest.mark.parametrize("many", [0, 1, 2, 3000])
def test_the_order_of_keys_is_stable(many: int) -> None:
    random = np.random.default_rng(many)
    for values in (random.lognormal(0.0, 9.0, many), random.integers(0, 7, many) * 1.0, np.zeros(many)):
        order = fast(refresh_loops.radix_order)(values.view(np.uint64))
        assert order.tolist() == sorted(range(many), key=values.tolist().__getitem__)


def rates_of(family: str, n: int) -> Floats:
    random = np.random.default_rng(n)
    if family == "lognormal":
        return random.lognormal(0.0, 1.5, n)
    if family == "ties":
        return random.integers(0, 4, n).astype(np.float64)
    if family == "wide":
        return np.asarray(10.0 ** random.uniform(-6.0, 2.0, n))
    return np.where(random.random(n) < 0.5, -0.0, 1.0)


@pytest.mark.parametrize("family", ["lognormal", "ties", "wide", "signed zeros"])
@pytest.mark.parametrize(("n", "horizon"), [(1, 5.0), (1, 0.01), (40, 365.0), (3000, 7.0)])
@pytest.mark.parametrize(
    "method", [Periodic(), PoissonArrivals(seed=4), Carousel(), EarliestDeadline(age=0.7)], ids=repr
)
@pytest.mark.sampled(5)
def test_compiled_and_numpy_have_the_same_bits(
    family: str, n: int, horizon: float, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = rates_of(family, n)
    found = []
    for least in (0, 10**9):
        monkeypatch.setattr(order_module, "AT_HAND", least)
        monkeypatch.setattr(order_module, "WORTHWHILE", least)
        found.append([array.tobytes() for array in method.times(rates, horizon)])
    assert found[0] == found[1]
