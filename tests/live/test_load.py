"""What a planner hands out in simulated time: bounded in every span, gaps kept, whatever happens.

Asks come at any rhythm, machines are off for long, planners are closed and opened again, workers die with
what they were handed, fetches fail. The bounds are computed from hand-outs alone.
"""

import math
import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import freshopt as fo
from tests.ground_truth.strata import matrix


@dataclass
class World:
    """Settings of a planner, and what was handed out: (time, source, cost), without what was released."""

    seed: int
    place: Path
    bandwidth: float = 0.0
    burst: float = 0.0
    gap: float = 0.0
    cost: dict[str, float] = field(default_factory=dict)
    host: dict[str, str | None] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    handed: list[tuple[float, str]] = field(default_factory=list)
    released: set[tuple[float, str]] = field(default_factory=set)

    def run(self, asks: int) -> None:
        """Ask a planner some hundred times; it is opened again at random."""
        rng = random.Random(self.seed)
        n = rng.randint(3, 30)
        self.bandwidth = n * rng.choice([0.5, 2.0, 10.0])
        self.burst = rng.choice([0.01, 0.1, 1.0])
        self.gap = rng.choice([0.0, 0.2, 1.0]) / self.bandwidth
        names = [f"s{k}" for k in range(n)]
        self.cost = {name: rng.choice([1.0, 1.0, 2.5]) for name in names}
        self.host = {name: rng.choice([None, "a", "b", "c"]) for name in names}
        self.most = {name: rng.choice([math.inf, 0.3, 1.0, 3.0]) for name in names}
        refresh = rng.choice([fo.Refresh.PERIODIC, fo.Refresh.POISSON])
        planner = fo.Planner(
            self.place,
            self.bandwidth,
            objective=fo.problems.BinaryFreshness(refresh),
            burst=self.burst,
            host_gap=self.gap,
            lease=0.3,
        )
        planner.add_many(
            names,
            host=np.array([self.host[name] for name in names], dtype=object),
            refresh_cost=[self.cost[name] for name in names],
            max_rate=[None if self.most[name] == math.inf else self.most[name] for name in names],
        )
        now, bad = 0.0, 0.0
        for _ in range(asks):
            now += rng.choice([0.001, 0.02, 0.02, 0.1, 0.5])
            if rng.random() < 0.02:
                now += rng.uniform(2.0, 20.0)
            if rng.random() < 0.05:
                planner.close()
                planner = fo.Planner(self.place)
            if rng.random() < 0.05:
                bad = rng.choice([0.0, 0.5, 1.0])
            for visit in planner.due(now, rng.choice([1, 3, None])):
                self.handed.append((now, visit.source))
                drawn = rng.random()
                if drawn < 0.05:
                    continue  # The worker dies: nobody reports, and the lease ends.
                if drawn < 0.1:
                    planner.release(visit.source)
                    self.released.add((now, visit.source))
                elif rng.random() < bad:
                    planner.failed(visit.source, now)
                else:
                    # As a caller may that records crawls at the moments when they were due.
                    late = rng.random() < 0.3 and isinstance(visit.due, float)
                    when = visit.due if late else now
                    if visit.last_crawl is None or float(str(when)) > float(str(visit.last_crawl)):
                        planner.observed(visit.source, when, changed=rng.random() < 0.4)
        planner.close()


@matrix(seed=range(12), every=3)
def test_load_and_gaps_are_bounded_in_every_span(tmp_path: Path, seed: int) -> None:
    world = World(seed, tmp_path)
    world.run(200)
    kept = [each for each in world.handed if each not in world.released]
    assert len(kept) > 20
    # From any hand-out to any other: the bandwidth of the span and of a burst, and one refresh.
    times = [time for time, _ in kept]
    spent, costs = 0.0, [world.cost[name] for _, name in kept]
    least = math.inf
    for time, cost in zip(times, costs, strict=True):
        least = min(least, spent - world.bandwidth * time)
        spent += cost
        room = world.bandwidth * world.burst + max(costs)
        assert spent - world.bandwidth * time - least <= room * (1.0 + 1e-9)
    # No two of one host within its gap, those that were handed back included.
    for host in ("a", "b", "c"):
        own = [time for time, name in world.handed if world.host[name] == host]
        assert all(later - before >= world.gap * (1.0 - 1e-9) for before, later in pairwise(own))
    # No two of one source within 1/max_rate.
    for name, most in world.most.items():
        own = [time for time, who in kept if who == name]
        assert all(later >= before + (1.0 / most) * (1.0 - 1e-12) for before, later in pairwise(own))


@matrix(seed=range(3), every=3)
def test_a_herd_is_spread_and_stays_spread(tmp_path: Path, seed: int) -> None:
    """After an outage of a cycle the load of every hour is that of the bandwidth, and so in later cycles."""
    rng = random.Random(seed)
    n, off = 48, rng.uniform(1.0, 3.0)
    handed = []
    planner = fo.Planner(tmp_path, f"{n}/day", update=1e6, replan=1e6)
    planner.add_many([f"s{k}" for k in range(n)])
    for step in range(4 * 96):
        now = step / 96 + (off if step > 96 else 0.0)
        if step == 97:
            planner.close()
            planner = fo.Planner(tmp_path)
        for visit in planner.due(now, limit=None):
            planner.observed(visit.source, now, changed=rng.random() < 0.5)
            handed.append(now)
    planner.close()
    hours = [math.floor(24.0 * time) for time in handed]
    # Two an hour, those of ten minutes, and one refresh.
    assert max(hours.count(hour) for hour in set(hours)) <= 2 + 2
    # Nothing is lost by it but the outage.
    assert 0.95 * 4 * n < len(handed) <= 4 * n + 2


@matrix(seed=range(3), every=3)
def test_bandwidth_that_nobody_asked_for_in_time_is_told(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    apart = rng.uniform(0.1, 0.4)
    for burst, told in (("10min", True), ("1d", False)):
        with fo.Planner(tmp_path / burst, "48/day", burst=burst) as planner:
            planner.add_many([f"s{k}" for k in range(60)])
            many = 0
            for step in range(30):
                for visit in planner.due(step * apart, limit=None):
                    planner.observed(visit.source, step * apart, changed=rng.random() < 0.5)
                    many += 1
            status = planner.status()
            assert ("was not handed out" in dict(status.rows())["bandwidth"]) == told
            # First crawls are spread over the first cycle: not all of it was due in time.
            used = many / (48.0 * 29 * apart)
            assert status.unused == pytest.approx(1.0 - used, abs=0.15)


def test_a_loop_that_asks_all_the_time_needs_no_burst(tmp_path: Path) -> None:
    """At four a second 38 sources are overdue after a minute; they come at four a second."""
    names = [f"s{k}" for k in range(38)]
    with fo.Planner(tmp_path, bandwidth=4.0, time_unit="second", update=1e6, replan=1e6) as planner:
        planner.add_many(names)
        for step in range(60):
            for visit in planner.due(0.5 * step):
                planner.observed(visit.source, 0.5 * step, changed=False)
        begin = 90.0
        found = [len(planner.due(begin + 0.1 * step, burst="1s")) for step in range(30)]
    assert found[0] <= 5
    assert sum(found[1:]) <= 4.0 * 2.9 + 1
    assert sum(found) > 10
