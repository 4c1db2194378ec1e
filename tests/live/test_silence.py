"""Sources that fail: silence counts from the first failure, and a first success ends it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import freshopt as fo
from freshopt.live.hand_out import Visit
from freshopt.live.planner import Planner

STEP = 0.04


def learnt(place: Path, rng: random.Random, hosts: int) -> tuple[list[str], float]:
    """Return the sources of a planner that has crawled them for some time, and when that was over."""
    names = [f"s{k}" for k in range(rng.randint(2, 16))]
    bandwidth = len(names) * rng.choice([1.0, 4.0])
    with fo.Planner(place, bandwidth, burst=0.1, update=1.0 / 24.0) as planner:
        planner.add_many(names, host=[f"h{k % hosts}" for k in range(len(names))] if hosts else None)
        now = 0.0
        while now < 4.0:
            now += STEP
            for visit in planner.due(now, limit=None):
                planner.observed(visit.source, now, changed=rng.random() < 0.4)
    return names, now


def used(planner: Planner) -> float:
    return float(planner.to_frame()["rate"].sum())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(3)
def test_the_crawlers_own_outage_says_nothing_of_a_source(tmp_path: Path, seed: int) -> None:
    """Off for long, each fails once as the network is not up yet: in one cycle all are crawled again."""
    rng = random.Random(seed)
    names, now = learnt(tmp_path, rng, rng.choice([0, 3]))
    off = rng.choice([1.0, 10.0, 100.0])
    now += off
    failed: set[str] = set()
    seen: dict[str, float] = {}
    with fo.Planner(tmp_path) as planner:
        cycle = 1.0 / float(planner.to_frame()["rate"].min())  # type: ignore[arg-type]
        bandwidth = planner.settings.bandwidth
        back, end = now, now + 2.0 * cycle + 2.0 * len(names) / bandwidth
        while now < end:
            for visit in planner.due(now, limit=None):
                if visit.source not in failed:
                    failed.add(visit.source)
                    planner.failed(visit.source, now)
                    assert planner.status(now).down == 0
                    assert used(planner) == pytest.approx(bandwidth, rel=0.03)
                else:
                    planner.observed(visit.source, now, changed=True)
                    seen.setdefault(visit.source, now)
            now += STEP
    assert set(seen) == failed == set(names)
    # Each was to be asked twice, within the bandwidth.
    assert max(seen.values()) - back <= 1.5 * cycle + 2.0 * len(names) / bandwidth


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(3)
def test_a_first_retry_comes_early(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    _, now = learnt(tmp_path, rng, 0)
    with fo.Planner(tmp_path) as planner:
        visits: list[Visit] = []
        while not visits:
            now += STEP
            visits = planner.due(now, limit=1)
        name = visits[0].source
        planner.failed(name, now)
        row = planner.to_frame().filter(source=name)
        assert row["next_due"][0] - now == pytest.approx(1.0 / row["rate"][0] / 8.0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(3)
def test_bandwidth_returns_with_the_first_success(tmp_path: Path, seed: int) -> None:
    """What fell silent for long has its rate again at once, also in a process that was started since."""
    rng = random.Random(seed)
    names, now = learnt(tmp_path, rng, rng.choice([0, 2]))
    gone = set(names[: rng.randint(1, len(names) - 1)])
    with fo.Planner(tmp_path) as planner:
        before = dict(planner.to_frame().select("source", "rate").iter_rows())
        bandwidth, end = planner.settings.bandwidth, now + 9.0
        while now < end:
            now += STEP
            for visit in planner.due(now, limit=None):
                if visit.source in gone:
                    planner.failed(visit.source, now)
                else:
                    planner.observed(visit.source, now, changed=rng.random() < 0.4)
        assert planner.status(now).down == len(gone)
        assert used(planner) == pytest.approx(bandwidth, rel=0.03)
    with fo.Planner(tmp_path) as planner:
        back: set[str] = set()
        while not back and now < end + 20.0:
            now += STEP
            for visit in planner.due(now, limit=None):
                planner.observed(visit.source, now, changed=True)
                if visit.source in gone:
                    back.add(visit.source)
                    rate = planner.to_frame().filter(source=visit.source)["rate"][0]
                    assert rate == pytest.approx(before[visit.source], rel=0.5)
        assert back
        planner.due(now, limit=0)
        # The next hand-out has made room for it.
        assert used(planner) <= bandwidth * 1.011
        assert planner.status(now).down <= len(gone) - len(back)


@pytest.mark.parametrize("hosts", [4, 0])
@pytest.mark.sampled(2)
def test_what_was_silent_as_long_as_all_around_it_is_tried_at_once(tmp_path: Path, hosts: int) -> None:
    """Without a network everything falls silent; the first that answers wakes what fell silent with it."""
    rng = random.Random(3)
    names, now = learnt(tmp_path, rng, hosts)
    never = "s0"
    with fo.Planner(tmp_path) as planner:
        for days, up in ((6.0, True), (9.0, False)):
            end = now + days
            while now < end:
                now += STEP
                for visit in planner.due(now, limit=None):
                    if up and visit.source != never:
                        planner.observed(visit.source, now, changed=rng.random() < 0.4)
                    else:
                        planner.failed(visit.source, now)
        assert planner.status(now).down == len(names)
        seen: dict[str, float] = {}
        while not seen:
            now += STEP
            for visit in planner.due(now, limit=1):
                if visit.source == never:
                    planner.failed(never, now)
                    continue
                waits = planner.to_frame().filter(source=never)["next_due"][0]
                planner.observed(visit.source, now, changed=True)
                seen[visit.source] = now
        # What had been silent before stays down.
        assert planner.status(now).down == 1
        assert planner.to_frame().filter(source=never)["next_due"][0] == waits
        first = now
        while len(seen) < len(names) - 1 and now < first + 40.0:
            now += STEP
            for visit in planner.due(now, limit=None):
                planner.failed(never, now) if visit.source == never else planner.observed(
                    visit.source, now, changed=True
                )
                seen.setdefault(visit.source, now)
        assert now - first <= 2.0 * len(names) / planner.settings.bandwidth
