"""Crawls in slots by a linear program over few slots, over all, and by a flow in NetworkX: one optimum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import freshopt as fo
from freshopt.scheduling import Periodic, SlotAssignment, slot_program
from freshopt.scheduling.slot_program import Placed, SlotDemand, SlotProgram, placed
from tests.ground_truth.tolerances import CONIC
from tests.scheduling.slot_network import network


def demand_of(seed: int, *, pauses: bool, hosts: int = 6, slots: int = 96, capacity: int = 3) -> SlotDemand:
    """Crawls of hosts of unequal sizes, nights of some, up to nine tenths of the room."""
    rng = np.random.default_rng(seed)
    share = rng.pareto(1.5, hosts) + 1.0
    pause = rng.integers(2, 5, hosts) if pauses else np.ones(hosts, dtype=np.int64)
    room = np.ones(hosts, dtype=np.int64) if pauses else rng.integers(1, 3, hosts)
    size = np.minimum(0.8 * capacity * slots * share / share.sum(), 0.8 * slots * room / pause)
    size = np.maximum(size.astype(np.int64), 1)
    open_ = np.ones((hosts, slots), dtype=np.bool_)
    open_[0, : slots // 6] = False
    open_[:, 40:43] = False
    want = [np.sort(rng.integers(0, slots, many)) for many in size]
    first = np.concatenate(([0], np.cumsum(size)))
    return SlotDemand(first, np.concatenate(want), open_, room, pause, capacity)


def check(demand: SlotDemand, slot: np.ndarray) -> int:
    """Refuse an assignment that breaks a rule, and return how far it moves crawls."""
    assert np.bincount(slot, minlength=demand.slots).max() <= demand.capacity
    moved = 0
    for h, (a, b) in enumerate(itertools.pairwise(demand.first.tolist())):
        own = slot[a:b]
        assert demand.open[h, own].all()
        assert np.bincount(own).max() <= demand.room[h]
        assert demand.pause[h] == 1 or len(own) < 2 or np.diff(own).min() >= demand.pause[h]
        assert np.all(np.diff(own) >= 0)
        moved += int(np.abs(own - demand.want[a:b]).sum())
    return moved


def over_all_slots(demand: SlotDemand) -> Placed:
    """Return the best assignment by branch and bound over every slot, to the last slot."""
    program = SlotProgram.of(demand, demand.near(demand.slots))
    return program.read(program.solve(whole=True).taken, program.solve().bound)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(4))
def test_three_ways_to_one_optimum(seed: int) -> None:
    demand = demand_of(seed, pauses=False)
    found = [way(demand) for way in (network, over_all_slots, placed)]
    moved = {check(demand, one.slot) for one in found}
    assert len(moved) == 1
    assert moved.pop() > 50
    for one in found:
        assert not one.over.any()
        assert one.bound == pytest.approx(check(demand, one.slot), rel=CONIC)


@pytest.mark.exhaustive
@pytest.mark.parametrize("near", [1, 8])
@pytest.mark.parametrize("seed", range(6))
def test_few_slots_prove_what_all_slots_do(seed: int, near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_program, "NEAR", near)
    monkeypatch.setattr(slot_program, "GAP", 0.0)
    demand = demand_of(seed, pauses=True)
    whole, found = over_all_slots(demand), placed(demand)
    least = check(demand, whole.slot)
    assert check(demand, found.slot) == least, (found.bound, whole.bound)
    assert whole.bound - CONIC <= found.bound <= least + CONIC  # no less than that of the relaxation
    assert least - 3 < found.bound


@pytest.mark.parametrize("seed", range(20))
def test_a_bound_holds_and_is_reached_by_trying_all_slots(seed: int) -> None:
    rng = np.random.default_rng(seed)
    open_ = rng.random((2, 7)) < 0.8
    demand = SlotDemand(
        np.array([0, 2, 5]), np.array([1, 1, 0, 3, 3]), open_, np.array([1, 2]), np.array([2, 1]), 2
    )
    best = None
    for trial in itertools.product(range(7), repeat=5):
        load, own = np.bincount(trial, minlength=7), (list(trial[:2]), list(trial[2:]))
        fits = load.max() <= 2 and all(open_[h, slot].all() for h, slot in enumerate(own))
        if fits and trial[1] - trial[0] >= 2 and list(trial[2:]) == sorted(trial[2:]):
            moved = demand.moved(np.array(trial))
            best = moved if best is None else min(best, moved)
    if bool(np.any(np.diff(demand.first) > demand.most())):
        assert best is None
        return
    found = placed(demand)
    assert found.over.any() == (best is None)
    if best is not None:
        assert check(demand, found.slot) == best
        assert best - 1 < found.bound <= best + CONIC


@pytest.mark.parametrize("way", [network, over_all_slots, placed])
@pytest.mark.sampled(3)
def test_crawls_that_do_not_fit_together_are_counted(way: object) -> None:
    """Three hosts have a night apart from one hour, and 5 crawls each that need 5 slots of capacity 2."""
    open_ = np.zeros((3, 40), dtype=np.bool_)
    open_[:, 20:25] = True
    want = np.tile([1, 8, 22, 24, 39], 3)
    demand = SlotDemand(
        np.array([0, 5, 10, 15]), want, open_, np.ones(3, dtype=np.int64), np.ones(3, dtype=np.int64), 2
    )
    found = way(demand)  # type: ignore[operator]
    assert found.over.sum() == 5
    assert np.flatnonzero(found.over).tolist() == [20, 21, 22, 23, 24]


def test_the_most_that_a_host_takes_is_exact() -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        open_ = rng.random((1, 9)) < 0.6
        pause = int(rng.integers(2, 4))
        demand = SlotDemand(
            np.array([0, 0]),
            np.array([], dtype=np.int64),
            open_,
            np.ones(1, dtype=np.int64),
            np.array([pause]),
            9,
        )
        best = max(
            len(trial)
            for k in range(10)
            for trial in itertools.combinations(np.flatnonzero(open_[0]).tolist(), k)
            if all(t - s >= pause for s, t in itertools.pairwise(trial))
        )
        assert demand.most().tolist() == [best]


def test_what_does_not_fit_is_named_with_its_time() -> None:
    nights = [(0.0, 0.8, "a"), (0.0, 0.8, "b"), (0.5, 1.0, "c")]
    method = SlotAssignment(slot=0.1, capacity=1, host=list("abc"), blackouts=nights)
    with pytest.raises(
        fo.SourceDataError, match=r"1 too many, between 0\.[89] and [01.9]+ \(most .* 'a' 2, 'b' 1, 'c' 1\)"
    ):
        method.times(np.array([2.0, 1.0, 1.0]), 1.0)


def test_hosts_without_limits_are_taken_together() -> None:
    rates = np.full(500, 1.0)
    host = np.arange(500) % 50
    apart = SlotAssignment(slot=1 / 288, capacity=2, host=host, preferred=Periodic()).assign(rates, 1.0)
    alone = SlotAssignment(slot=1 / 288, capacity=2, preferred=Periodic()).assign(rates, 1.0)
    assert apart.moved == alone.moved > 0.0
    assert apart.time.tolist() == alone.time.tolist()


@pytest.mark.exhaustive
def test_a_day_with_pauses_is_proved_to_the_last_slot() -> None:
    demand = demand_of(11, pauses=True, hosts=20, slots=1440, capacity=1)
    found = placed(demand)
    moved = check(demand, found.slot)
    assert moved - 1 < np.ceil(found.bound - CONIC) <= moved


def test_wishes_far_from_all_open_slots_find_room() -> None:
    """Nights of most of a day, and pauses that few slots near the wishes leave no room for."""
    open_ = np.ones((2, 3000), dtype=np.bool_)
    open_[:, :2500] = False
    want = np.tile(np.arange(15) * 100, 2)
    demand = SlotDemand(np.array([0, 15, 30]), want, open_, np.ones(2, dtype=np.int64), np.array([9, 7]), 1)
    found = placed(demand)
    moved = check(demand, found.slot)
    assert moved * (1.0 - slot_program.GAP) <= found.bound <= moved
    assert moved > 50_000
    assert not found.over.any()


def test_programs_of_too_many_slots_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_program, "MOST_NODES", 100)
    with pytest.raises(fo.SourceDataError, match=r"\d+ crawls have \d+ slots .* \(at most 100\)"):
        placed(demand_of(0, pauses=False))
