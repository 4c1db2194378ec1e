"""Crawls in slots and at a distance from others of a host: by programs and by a flow, one optimum."""

import itertools
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling import Periodic, PoissonArrivals, SlotAssignment, slot_program, with_host_gap
from freshopt.scheduling.slot_program import Placed, SlotDemand, SlotProgram, placed
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import CONIC, EXACT


def network(demand: SlotDemand) -> Placed:
    """Return the best assignment of a demand without pauses, in whole numbers, without any solver of ours."""
    hosts, slots = demand.hosts, demand.slots
    wanted = np.zeros((hosts, slots), dtype=np.int64)
    np.add.at(wanted, (demand.host, demand.want), 1)
    dear = slots**2 + 1  # a crawl beyond the capacity: more than any detour
    graph = networkx.DiGraph()
    graph.add_node("out", demand=int(wanted.sum()))
    for s in range(slots):
        graph.add_edge(("slot", s), "out", capacity=demand.capacity, weight=0)
        graph.add_edge(("slot", s), "over", weight=0)
    graph.add_edge("over", "out", weight=dear)
    for h in range(hosts):
        for s in range(slots):
            graph.add_node((h, s), demand=-int(wanted[h, s]))
            if demand.open[h, s]:
                graph.add_edge((h, s), ("slot", s), capacity=int(demand.room[h]), weight=0)
            if s + 1 < slots:
                graph.add_edge((h, s), (h, s + 1), weight=1)
                graph.add_edge((h, s + 1), (h, s), weight=1)
    cost, flow = networkx.network_simplex(graph)
    taken = np.array([[flow[h, s].get(("slot", s), 0) for s in range(slots)] for h in range(hosts)])
    over = np.array([flow["slot", s]["over"] for s in range(slots)])
    slot = np.nonzero(taken)[1]
    return Placed(np.repeat(slot, taken[np.nonzero(taken)]), float(cost - dear * over.sum()), over)


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
@matrix(near=[1, 8], seed=range(6))
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
@pytest.mark.sampled(3)
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


@matrix(way=[network, over_all_slots, placed], every=3)
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
    refused(r"\d+ crawls have \d+ slots .* \(at most 100\)", placed, demand_of(0, pauses=False))


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
        refused(r"crawls", method.assign, np.ones(crawls), float(slots))
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
    refused(words, lambda: SlotAssignment(**settings, preferred=preferred).times(np.ones(6), 3.0))


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


METHODS = [fo.scheduling.Periodic(), PoissonArrivals(seed=3), fo.scheduling.Carousel()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("seed", range(8))
def test_gaps_of_hosts_and_of_sources_are_kept(method: fo.scheduling.Periodic, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, horizon = int(rng.integers(2, 40)), float(rng.uniform(1.0, 5.0))
    rates = rng.gamma(0.5, 4.0, n)
    host = np.array([(None, "a", "b", "", "c")[k] for k in rng.integers(0, 5, n)], dtype=object)
    made = fo.schedule({k: float(rate) for k, rate in enumerate(rates)}, horizon, method)
    busiest = max(sum(made.counts[k] for k in range(n) if host[k] == name) for name in "abc")
    # Up to nine tenths of what fits at the longest gaps.
    gap = float(rng.uniform(0.05, 0.9)) * horizon / 1.5 / max(busiest, 1)
    moved = with_host_gap(made, host, gap, seed=seed)
    assert np.array_equal(moved.counts, made.counts)
    where = {name: [k for k in range(n) if host[k] == name] for name in "abc"}
    for own in where.values():
        times = moved.time[np.isin(moved.source, own)]
        gaps = np.diff(times)
        assert np.all(gaps >= gap * (1.0 - 1e-9))
    for k in range(n):
        if not host[k]:
            assert np.array_equal(moved.time[moved.source == k], made.time[made.source == k])
    # Jitter: gaps that were too short are not all alike.
    short = np.concatenate([np.diff(moved.time[np.isin(moved.source, own)]) for own in where.values()])
    tight = short[short < 1.49 * gap]
    assert len(tight) < 10 or np.std(tight) > 0.05 * gap


@pytest.mark.parametrize("seed", range(4))
def test_what_is_moved_keeps_to_max_rates(seed: int) -> None:
    """Sources at their max_rate are refreshed at their shortest gap before, and no sooner after."""
    rng = np.random.default_rng(seed)
    n = 12
    rates = rng.uniform(0.5, 3.0, n)
    most = np.where(rng.random(n) < 0.7, rates, np.inf)
    made = fo.schedule({k: float(rate) for k, rate in enumerate(rates)}, 10.0)
    moved = with_host_gap(made, ["a"] * n, 0.5 / rates.sum() / 1.5, max_rate=most)
    assert len(moved) > 0.9 * len(made)
    for k in np.flatnonzero(np.isfinite(most)):
        own = moved.time[moved.source == k]
        assert all(later - before >= (1.0 - 1e-9) / most[k] for before, later in pairwise(own.tolist()))


def test_what_does_not_fit_is_refused() -> None:
    made = fo.schedule({"x": 10.0, "y": 10.0}, 2.0)
    with pytest.raises(fo.InfeasibleProblemError, match=r"40 refreshes of host 'a' in 2 days do not fit"):
        with_host_gap(made, ["a", "a"], 0.1)
    refused(r"for 2 sources\. Pass one host each", with_host_gap, made, ["a"], 0.1)
    refused("gap is -1", with_host_gap, made, ["a", "a"], -1.0)
    assert np.array_equal(with_host_gap(made, ["a", "a"], 0.0).time, made.time)


def test_commands_keep_the_gap(tmp_path: Path) -> None:
    """`plan` and `schedule`, with hosts of the URLs or of a table."""
    urls = [f"http://{host}.example/{k}" for host in "ab" for k in range(4)]
    rows = [
        f"{url},{0.3 * k + 0.01 * i},{(k + i) % 3 == 0:d}" for i, url in enumerate(urls) for k in range(20)
    ]
    (tmp_path / "log.csv").write_text("source,time,changed\n" + "\n".join(rows) + "\n")
    how = ["--bandwidth", "100/day", "--horizon", "1d", "--draws", "0", "--csv", "--host-gap", "12min"]
    job = ["plan", str(tmp_path / "log.csv"), *how, "--out", str(tmp_path / "plan")]
    done = CliRunner().invoke(main, job)
    assert done.exit_code == 0, done.output
    out = str(tmp_path / "times.csv")
    words = ["schedule", str(tmp_path / "plan"), "--horizon", "1d", "--host-gap", "12min", "--out", out]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "12 minutes at least between two refreshes of one" in done.output
    for name in ("plan/schedule.csv", "times.csv"):
        table = pl.read_csv(tmp_path / name)
        assert len(table) > 90
        for host in "ab":
            own = table.filter(pl.col("source").str.contains(f"//{host}."))["time"].to_numpy()
            assert np.min(np.diff(own)) >= 12.0 / 1440.0 * (1.0 - 1e-9)
    hosts = tmp_path / "hosts.csv"
    hosts.write_text("source,host\n" + "\n".join(f"{url},one" for url in urls) + "\n")
    done = CliRunner().invoke(main, [*words, "--hosts", str(hosts), "--overwrite"])
    assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
    assert "refreshes of host 'one' in 1 day do not fit with gaps of 12 minutes" in done.output
    slots = [*words, "--method", "slots", "--slot", "1min", "--crawlers", "9", "--overwrite"]
    assert "has --min-gap" in CliRunner().invoke(main, slots).output
