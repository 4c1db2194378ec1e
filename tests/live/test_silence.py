"""Sources that fail or are down: silence from the first failure, what others get, and their return."""

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import pytest

import freshopt as fo
from freshopt.live import planning
from freshopt.live.hand_out import Visit
from freshopt.live.planner import Planner
from tests.ground_truth.strata import matrix

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


@matrix(seed=range(6), every=3)
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


@matrix(seed=range(6), every=3)
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


@matrix(seed=range(6), every=3)
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


@matrix(hosts=[4, 0], every=2)
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


# Sources of four hosts; the first host goes down. Changes are regular, at the rates below.
NAMES = [f"s{k}" for k in range(20)]
RATE = {name: 0.4 * 1.25**k for k, name in enumerate(NAMES)}
HOST = {name: f"host {k % 4}" for k, name in enumerate(NAMES)}
BANDWIDTH, HOST_STEP, LEARNT, SETTLED, BACK, END = 20.0, 0.25, 5, 8, 16, 26
Crawl: TypeAlias = tuple[str, float, bool]


def crawl(planner: Planner, begin: float, end: float, answers: Callable[[str, float], bool]) -> list[Crawl]:
    """Return (name, time, success) of what a planner asks for; a source changes at multiples of 1/rate."""
    done: list[Crawl] = []
    last: dict[str, float] = {}
    for step in range(round(begin / HOST_STEP), round(end / HOST_STEP)):
        now = step * HOST_STEP
        for visit in planner.due(now, limit=None):
            name, success = visit.source, answers(visit.source, now)
            if success:
                before = last.get(name) or float(str(visit.last_crawl or 0.0))
                planner.observed(name, now, math.floor(now * RATE[name]) > math.floor(before * RATE[name]))
                last[name] = now
            else:
                planner.failed(name, now)
            done.append((name, now, success))
    return done


def fresh(done: Sequence[Crawl], names: Sequence[str], begin: float, end: float) -> float:
    """Return the mean expected share of fresh time, under Poisson changes."""
    shares = []
    for name in names:
        own = [time for who, time, success in done if who == name and success]
        known = [time for time in own if time <= begin]
        edges = [known[-1] if known else -math.inf, *(time for time in own if begin < time < end), end]
        share = 0.0
        for last, until in pairwise(edges):
            rate, since = RATE[name], max(last, begin)
            share += (math.exp(-rate * (since - last)) - math.exp(-rate * (until - last))) / rate
        shares.append(share / (end - begin))
    return math.fsum(shares) / len(shares)


def campaign(place: Path, tells: bool) -> tuple[list[Crawl], Planner]:
    """Return what was crawled until a host answers again, and the planner; one that is not told retries."""
    down = [name for name in NAMES if HOST[name] == "host 0"]

    def answers(name: str, now: float) -> bool:
        return not (name in down and LEARNT <= now < BACK)

    planner = Planner(
        place,
        BANDWIDTH,
        objective=fo.problems.BinaryFreshness(fo.Refresh.PERIODIC),
        update=0.5,
        replan=1e9,
        burst=0.5,
    )
    planner.add_many(NAMES, host=[HOST[name] for name in NAMES])
    done = crawl(planner, 0, LEARNT, answers)
    planner.replan(LEARNT)
    # From here on prices and rates move by updates alone.
    planner.close()
    planner = Planner(place, gap_limit=1.0)
    planner.due(LEARNT, limit=0)
    if not tells:
        # A failure that is not told ends with its lease, an hour later: nothing backs off.
        planner.failed = lambda source, _: planner.release(source)  # type: ignore[method-assign,assignment,misc]
    done += crawl(planner, LEARNT, BACK, answers)
    return done, planner


def test_what_a_host_leaves_goes_to_others_before_a_new_solve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is solved anew because there is more to learn from.
    monkeypatch.setattr(planning, "GROWTH", math.inf)
    up = [name for name in NAMES if HOST[name] != "host 0"]
    done, planner = campaign(tmp_path / "tells", tells=True)
    status = planner.status(BACK)
    assert status.planned == LEARNT
    assert status.down == len(NAMES) - len(up)
    assert f"{status.down} down" in repr(status)
    assert status.used == pytest.approx(BANDWIDTH, rel=0.02)
    assert planner.solution().certificate is not None
    retries, other = campaign(tmp_path / "retries", tells=False)
    other.close()
    gain = fresh(done, up, SETTLED, BACK) - fresh(retries, up, SETTLED, BACK)
    # A fifth more bandwidth, and what retries took from others.
    assert gain > 0.02
    moments = sorted(time for _, time, _ in done)
    for begin in range(0, len(moments), 7):
        for end in range(begin, len(moments), 7):
            assert end - begin + 1 <= BANDWIDTH * (moments[end] - moments[begin] + 0.5) + 2.0
    tried = sum(time >= SETTLED for name, time, _ in done if name not in up)
    assert 0 < tried < 0.3 * sum(time >= SETTLED for name, time, _ in retries if name not in up)
    # The host answers again: what is down there is tried as soon as one of it answers.
    after = crawl(planner, BACK, END, lambda *_: True)
    status = planner.status()
    assert status.planned == LEARNT
    assert status.down == 0
    assert 0.8 * BANDWIDTH < status.used <= BANDWIDTH * (1.0 + 1e-9)
    first = {name: next(t for who, t, _ in after if who == name) for name in NAMES if name not in up}
    assert max(first.values()) - min(first.values()) <= 1.0
    assert fresh(done + after, list(first), END - 5, END) > 0.3
    planner.close()


def test_a_source_that_never_answered_is_down_too(tmp_path: Path) -> None:
    """Its silence begins with its first failure; it is taken up where a planner is opened again."""
    with fo.Planner(tmp_path, bandwidth=2.0, explore=0.0) as planner:
        planner.add_many(["down", "up"])
        planner.observed_many(["up", "up"], [0.0, 1.0], [0, 1])
        planner.replan(1.0)
        gap = 1.0 / float(planner.to_frame().filter(source="down")["rate"][0])
    for k in (0.0, 1.0, 2.0):
        with fo.Planner(tmp_path) as planner:
            planner.failed("down", 1.0 + gap * k)
            assert planner.status().down == 0
    with fo.Planner(tmp_path) as planner:
        planner.observed("up", 1.0 + 4.0 * gap, False)
        planner.failed("down", 1.0 + 5.0 * gap)
        assert planner.status().down == 1
        row = planner.to_frame().filter(source="down")
        assert row["next_due"][0] == pytest.approx(1.0 + 10.0 * gap)
        assert row["rate"][0] == pytest.approx(1.0 / (5.0 * gap))
        planner.remove("down")
        planner.add("down")
        assert planner.status().down == 0
