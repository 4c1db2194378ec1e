"""Crawls in slots: against all assignments of small cases, what crawlers and hosts can take, and refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling import SlotAssignment
from tests.ground_truth.tolerances import EXACT


class Wanted:
    """Requests at given times."""

    def __init__(self, source: list[int], time: list[float]) -> None:
        order = np.lexsort((source, time))
        self.source, self.time = np.array(source)[order], np.array(time)[order]

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:  # noqa: ARG002
        return self.source, self.time


def least_moved(
    host: list[int], slot: list[int], slots: int, capacity: int, room: int, pause: int, closed: set[int]
) -> float:
    """The smallest total movement, by trying all assignments."""
    best = np.inf
    for trial in itertools.product([s for s in range(slots) if s not in closed], repeat=len(slot)):
        if max(trial.count(s) for s in trial) > capacity:
            continue
        good = True
        for h in set(host):
            own = sorted(s for s, other in zip(trial, host, strict=True) if other == h)
            good &= all(own.count(s) <= room for s in own)
            good &= pause == 1 or all(b - a >= pause for a, b in itertools.pairwise(own))
        if good:
            best = min(best, sum(abs(a - b) for a, b in zip(trial, slot, strict=True)))
    return float(best)


@pytest.mark.parametrize("seed", range(25))
def test_nothing_moves_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots, crawls, hosts = 6, 5, 2
    host = rng.integers(0, hosts, crawls)
    wish = rng.integers(0, slots, crawls)
    capacity, pause = int(rng.integers(1, 3)), int(rng.integers(1, 3))
    room = 1 if pause > 1 else int(rng.integers(1, 3))
    closed = {int(rng.integers(0, slots))} if seed % 2 else set()
    expected = least_moved(host.tolist(), wish.tolist(), slots, capacity, room, pause, closed)
    method = SlotAssignment(
        slot=1.0,
        capacity=capacity,
        host=[f"h{k}" for k in host],
        host_capacity=room,
        min_gap=float(pause) if pause > 1 else 0.0,
        blackouts=[(float(s), s + 1.0) for s in closed],
        preferred=Wanted(list(range(crawls)), (wish + 0.5).tolist()),
    )
    if not np.isfinite(expected):
        with pytest.raises(fo.SourceDataError, match=r"crawls"):
            method.assign(np.ones(crawls), float(slots))
        return
    found = method.assign(np.ones(crawls), float(slots))
    assert found.moved == pytest.approx(expected)
    assert found.bound <= found.moved + 1e-9
    assert sorted(found.source.tolist()) == list(range(crawls))


def test_crawlers_hosts_pauses_and_nights_are_respected() -> None:
    rng = np.random.default_rng(3)
    n = 150
    host = np.array([f"host {k}" for k in rng.integers(0, 8, n)])
    gap, slot = 0.6 / 24, 1 / 48
    method = SlotAssignment(
        slot=slot,
        capacity=6,
        host=host,
        host_capacity={"host 1": 1},
        min_gap={"host 0": gap, "host 2": slot / 3},
        blackouts=[(0.0, 0.25), (0.5, 0.6, "host 3")],
    )
    rates = {f"s{k}": 0.8 for k in range(n)}
    plan = fo.schedule(rates, 1.0, method)
    assert np.array_equal(plan.counts, fo.schedule(rates, 1.0, fo.scheduling.Periodic()).counts)
    used = np.bincount((plan.time / slot + 1e-9).astype(int), minlength=48)
    assert used.max() <= 6
    assert used[:12].sum() == 0
    for name, least in (("host 0", gap), ("host 2", slot / 3), ("host 1", slot)):
        own = plan.time[host[plan.source] == name]
        assert len(own) > 5
        assert np.diff(own).min() >= least - 1e-9
    late = plan.time[host[plan.source] == "host 3"]
    assert not np.any((late >= 0.5 - 1e-9) & (late < 0.6 - 1e-9))


def test_room_enough_moves_nothing() -> None:
    preferred = Wanted([0, 1, 2], [0.1, 1.2, 1.3])
    found = SlotAssignment(slot=1.0, capacity=5, preferred=preferred).assign(np.ones(3), 3.0)
    assert found.moved == found.bound == 0.0
    assert found.time.tolist() == [0.0, 1.0, 1.2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"capacity": 1, "slot": 1.0}, r"too many crawls of 'all sources': 6 crawls, room for 3"),
        (
            {
                "capacity": 9,
                "slot": 1.0,
                "host": list("aabbbc"),
                "host_capacity": {"b": 1},
                "min_gap": {"b": 2},
            },
            r"too many crawls of 'b': 3 crawls, room for 2",
        ),
        ({"capacity": 9, "slot": 0.0}, "slot is 0"),
        ({"capacity": 0, "slot": 1.0}, "capacity is 0"),
        ({"capacity": 9, "slot": 1.0, "host": list("ab")}, "host has shape"),
        ({"capacity": 9, "slot": 1.0, "host": list("aabbbc"), "min_gap": {"z": 1.0}}, "unknown hosts 'z'"),
        ({"capacity": 9, "slot": 1.0, "blackouts": [(2.0, 1.0)]}, "blackout"),
        ({"capacity": 9, "slot": 1.0, "blackouts": [(0.0, 1.0, "z")]}, "unknown host 'z'"),
        ({"capacity": 9, "slot": 1e-9, "host": list("aabbbc")}, "are too many"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings: dict[str, Any], words: str) -> None:
    preferred = Wanted(list(range(6)), [0.0, 0.0, 1.0, 1.0, 2.0, 2.0])
    with pytest.raises(fo.SourceDataError, match=words):
        SlotAssignment(**settings, preferred=preferred).times(np.ones(6), 3.0)


@pytest.mark.parametrize("horizon", [2.05, 2.3, 2.55, 2.8, 3.0])
def test_pauses_hold_where_the_horizon_cuts_the_last_slot_short(horizon: float) -> None:
    host = np.array([0, 0, 0, 1, 1])
    preferred = Wanted([0, 1, 2, 3, 4], [2.01] * 5)
    method = SlotAssignment(slot=1.0, capacity=9, host=host, min_gap={0: 0.25}, preferred=preferred)
    found = method.assign(np.ones(5), horizon)
    assert np.all((found.time >= 0.0) & (found.time < horizon))
    paused = np.sort(found.time[host[found.source] == 0])
    assert np.min(np.diff(paused)) >= 0.25 - EXACT
    free = np.sort(found.time[host[found.source] == 1])
    assert np.min(np.diff(free)) > 0.0


@pytest.mark.parametrize("given", [1.5, {"a": 2.0, "b": 2.5}])
def test_a_part_of_a_crawl_fits_into_no_slot(given: Any) -> None:  # noqa: ANN401 - a number or a mapping
    with pytest.raises(fo.SourceDataError, match=r"host_capacity is .*5\. A slot holds whole crawls"):
        SlotAssignment(slot=0.25, capacity=3, host_capacity=given)
