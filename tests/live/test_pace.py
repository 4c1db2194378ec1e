"""Hosts that ask to be asked less: what is lowered, by how much, and that it comes back by itself."""

import math
import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.live.pace import crawl_delay_of
from tests.ground_truth.refusals import present, refused


def planner_of(place: Path, n: int = 20, **settings: float | str) -> fo.Planner:
    """Return a planner of two hosts, a and b, whose sources change alike, after two crawls of each."""
    wishes: dict[str, Any] = {"bandwidth": 4.0 * n, "burst": 1.0, **settings}
    planner = fo.Planner(place, **wishes)
    names = [f"{host}{k}" for k in range(n // 2) for host in "ab"]
    planner.add_many(names, host=np.array([name[0] for name in names], dtype=object))
    rng = random.Random(1)
    for day in (-2.0, -1.5, -1.0, -0.5):
        planner.observed_many(names, day, [rng.random() < 0.5 for _ in names])
    planner.due(0.0, limit=0)
    return planner


def used(planner: fo.Planner, host: str) -> float:
    """Return the crawls of a host that are planned for, per day."""
    return float(planner.to_frame().filter(pl.col("source").str.starts_with(host))["rate"].sum())


def turns(planner: fo.Planner) -> dict[str, float]:
    """Return the limits of hosts in force, as the certified solution has them."""
    hosts = planner.solution().problem.hosts
    return dict(zip(hosts.names, hosts.limits.tolist(), strict=True))


@pytest.mark.parametrize("status", [429, 503, 500])
def test_a_busy_answer_halves_the_crawls_of_its_host(tmp_path: Path, status: int) -> None:
    with planner_of(tmp_path) as planner:
        before = used(planner, "a")
        assert turns(planner) == {}
        planner.observed("a1", 0.2, status=status)
        planner.due(0.2, limit=0)
        # A day brings back all of it: the share of a moment is that of the moments since.
        assert turns(planner) == {"a": pytest.approx(before / 2, rel=1e-9)}
        assert used(planner, "a") == pytest.approx(before / 2, rel=1e-9)
        # Others have what it leaves.
        assert used(planner, "b") == pytest.approx(80.0 - before / 2, rel=1e-6)
        status_now = planner.status(0.2)
        assert status_now.slowed == 1
        assert "1 host slowed at its request" in dict(status_now.rows())["sources"]
        proof = planner.solution().certificate
        assert 0.0 <= proof.relative_gap <= 0.01
        assert proof.infeasibility <= 1e-9


def test_limits_come_back_linearly_and_then_are_gone(tmp_path: Path) -> None:
    with planner_of(tmp_path) as planner:
        before = used(planner, "a")
        planner.observed("a1", 0.2, status=429)
        for day, share in ((0.3, 0.6), (0.45, 0.75), (0.65, 0.95)):
            planner.replan(day)
            assert turns(planner) == {"a": pytest.approx(share * before, rel=1e-9)}
        planner.replan(0.71)
        assert turns(planner) == {}
        assert planner.status(0.71).slowed == 0
        assert used(planner, "a") == pytest.approx(before, rel=0.02)


def test_decreases_multiply_once_a_gap_down_to_a_floor(tmp_path: Path) -> None:
    with planner_of(tmp_path, bandwidth=4e5) as planner:
        before = used(planner, "a")
        # Answers to what was asked at the same time count once, also those of other sources.
        for name in ("a1", "a2", "a3"):
            planner.failed(name, 0.2, status=429)
        planner.replan(0.2)
        assert turns(planner)["a"] == pytest.approx(before / 2, rel=1e-9)
        now, limit = 0.2, before / 2
        for _ in range(8):
            later = now + 1.01 / limit
            limit = max((limit + before * (later - now)) / 2, before / 64)
            now = later
            planner.failed("a1", now, status=503)
            planner.replan(now)
            assert turns(planner)["a"] == pytest.approx(limit, rel=1e-6)
        assert limit == pytest.approx(before / 64, rel=1e-9)


def test_a_page_that_is_broken_slows_its_host_once(tmp_path: Path) -> None:
    with planner_of(tmp_path) as planner:
        before = used(planner, "a")
        for day in (0.2, 0.3, 0.4, 0.5):
            planner.failed("a1", day, status=500)
        planner.failed("b1", 0.5, status=404)
        planner.replan(0.5)
        assert turns(planner) == {"a": pytest.approx(0.8 * before, rel=1e-9)}


def test_slow_answers_count_and_usual_ones_do_not(tmp_path: Path) -> None:
    with planner_of(tmp_path) as planner:
        rng = random.Random(3)
        for k in range(40):
            planner.observed("a1", 0.001 * k, k % 2 == 0, latency=rng.uniform(0.5, 1.5))
            planner.observed("b1", 0.001 * k, k % 2 == 0, latency=rng.uniform(0.01, 0.02))
        # Below a second nothing is slow.
        planner.observed("b1", 0.05, True, latency=0.9)
        planner.replan(0.05)
        assert turns(planner) == {}
        planner.observed("a1", 0.05, True, latency=10.0)
        planner.replan(0.05)
        assert set(turns(planner)) == {"a"}
        # One that is slow for good is the usual one after some time.
        for k in range(300):
            planner.observed("b1", 0.06 + 0.001 * k, True, latency=8.0)
        planner.replan(2.0)
        assert turns(planner) == {}


def test_hand_outs_of_a_slowed_host_keep_their_gap_from_then_on(tmp_path: Path) -> None:
    with planner_of(tmp_path, update=1e6, replan=1e6) as planner:
        before = used(planner, "a")
        planner.failed("a1", 0.2, status=429)
        handed: dict[str, list[float]] = {"a": [], "b": []}
        for step in range(400):
            now = 0.2 + step / 2000
            for visit in planner.due(now, limit=None):
                handed[str(visit.host)].append(now)
                planner.observed(visit.source, now, changed=False)
        # The rest after the decrease, then gaps that shrink with the growing pace.
        assert handed["a"][0] >= 0.2 + 2.0 / before
        for one, other in pairwise(handed["a"]):
            assert other - one >= 1.0 / (1.25 * before * (0.5 + (one - 0.2))) * (1.0 - 1e-9)
        assert len(handed["a"]) >= 3
        # The other host is not held up.
        assert len(handed["b"]) > 2 * len(handed["a"])


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (3600, 3600.0),
        ("3600", 3600.0),
        ("date", 7200.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        (1e12, 86_400.0),
        ("9" * 90, 86_400.0),
        ("soon", 0.0),
        ("-5", 0.0),
    ],
)
def test_retry_after_is_obeyed_up_to_a_day(tmp_path: Path, told: str | float, seconds: float) -> None:
    begin = datetime.now(UTC)
    if told == "date":
        told = format_datetime(begin + timedelta(seconds=7200), usegmt=True)
    with fo.Planner(tmp_path, bandwidth="1000/second", burst="1d") as planner:
        planner.add_many(["a1", "a2", "alone"], host=np.array(["a", "a", None], dtype=object))
        planner.due(begin)
        planner.observed("a1", begin, status=200, content="x", retry_after=told)
        rest = begin + timedelta(seconds=seconds)
        early = planner.due(rest - timedelta(seconds=5), limit=None) if seconds else []
        assert {visit.source for visit in early} <= {"alone"}
        found: set[str] = set()
        for k in range(25):
            found |= {visit.source for visit in planner.due(rest + timedelta(seconds=5 + 3601 * k))}
        assert found >= {"a1", "a2"}


def test_a_source_without_a_host_rests_alone(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth=1000.0, burst=1.0) as planner:
        planner.add_many(["x", "y"])
        planner.due(0.0)
        planner.failed("x", 0.1, status=429, retry_after=43_200)
        planner.observed("y", 0.1, False)
        assert [visit.source for visit in planner.due(0.55)] == ["y"]
        assert "x" in [visit.source for visit in planner.due(0.61)]


def test_max_age_is_the_shortest_gap_while_it_is_told(tmp_path: Path) -> None:
    with planner_of(tmp_path, n=4) as planner:
        planner.add("a1", max_rate=1000.0, min_rate=1.0)
        planner.observed("a1", 0.1, True, max_age=21_600)
        planner.replan(0.1)
        frame = planner.to_frame().filter(pl.col("source") == "a1")
        assert frame["rate"][0] <= 4.0 * (1.0 + 1e-12)
        assert planner.solution().problem.sources.max_rate.tolist().count(4.0) == 1
        # Not below what the user asks for, and never longer than a day.
        planner.observed("a1", 0.2, True, max_age=1e9)
        assert planner.solution().problem.sources.max_rate.tolist().count(1.0) == 1
        # The latest counts; none is none, and the user's own bound is back.
        planner.observed("a1", 0.3, True, max_age=0)
        assert planner.solution().problem.sources.max_rate.tolist().count(1000.0) == 1
        planner.observed("a1", 0.4, True, max_age=21_600)
        planner.add("a1", max_rate=2.0)
        planner.observed("a1", 0.5, True, max_age=21_600)
        assert planner.solution().problem.sources.max_rate.tolist().count(2.0) == 1


def test_least_rates_of_a_slowed_host_give_way_alike(tmp_path: Path) -> None:
    with planner_of(tmp_path) as planner:
        planner.add_many([f"a{k}" for k in range(10)], min_rate=4.0)
        planner.replan(0.1)
        before = used(planner, "a")
        assert before >= 40.0
        for k in range(6):
            planner.failed("a1", 0.2 + 0.05 * k, status=503)
        planner.replan(0.45)
        (limit,) = turns(planner).values()
        assert limit < 40.0
        assert used(planner, "a") == pytest.approx(limit, rel=1e-6)
        assert planner.solution().certificate.relative_gap <= 0.01


def test_crawl_delays_are_limits_and_gaps(tmp_path: Path) -> None:
    with planner_of(tmp_path) as planner:
        planner.crawl_delay("a", 0.1)
        planner.replan(0.2)
        assert turns(planner) == {"a": pytest.approx(1.0 / 0.125, rel=1e-9)}
        handed = []
        for step in range(200):
            now = 0.2 + step / 200
            for visit in planner.due(now, limit=None):
                handed += [now] if visit.host == "a" else []
                planner.observed(visit.source, now, changed=False)
        assert len(handed) > 5
        assert all(other - one >= 0.1 * (1.0 - 1e-9) for one, other in pairwise(handed))
        planner.crawl_delay("a", 0)
        planner.replan(2.0)
        assert turns(planner) == {}
        refused("delay is -1", planner.crawl_delay, "a", -1)


def test_robots_txt_is_read_by_protego() -> None:
    text = "User-agent: *\nCrawl-delay: 5\n\nUser-agent: mine\nCrawl-delay: 2.5\nRequest-rate: 1/10s\n"
    assert crawl_delay_of(text, "other") == 5.0
    assert crawl_delay_of(text, "mine") == 10.0
    for odd in (
        "",
        "\0\0<html>",
        "Crawl-delay: 5",
        "User-agent: *\nCrawl-delay: -3",
        "User-agent: *\nCrawl-delay: nan",
    ):
        assert crawl_delay_of(odd, "mine") == 0.0


@pytest.mark.parametrize(
    ("answered", "words"),
    [
        ({"status": 99}, "status of 'a1' is 99"),
        ({"status": True}, "status of 'a1' is True"),
        ({"status": 200, "latency": -1.0}, "latency of 'a1' is -1"),
        ({"status": 200, "latency": math.nan}, "latency of 'a1' is nan"),
        ({"status": 200, "max_age": math.inf}, "max_age of 'a1' is inf"),
        ({"status": 200, "retry_after": -1.0}, "retry_after of 'a1' is -1"),
        ({"status": 429, "retry_after": 5}, "has failed and has an outcome"),
    ],
)
def test_what_cannot_be_used_is_refused_whole(tmp_path: Path, answered: dict[str, Any], words: str) -> None:
    with planner_of(tmp_path, n=4) as planner:
        many = len(planner.log())
        refused(words, planner.observed, "a1", 0.3, True, **answered)
        assert len(planner.log()) == many


def test_an_answer_that_is_told_again_slows_nobody_twice(tmp_path: Path) -> None:
    with planner_of(tmp_path) as planner:
        before = used(planner, "a")
        for _ in range(3):
            planner.observed("a1", 0.2, True, latency=0.1)
        assert planner.observed("a1", 0.2, True, latency=0.1) is False
        planner.observed("a2", 0.2, status=429)
        planner.observed("a2", 0.2, status=429)
        planner.replan(0.2)
        assert turns(planner)["a"] == pytest.approx(before / 2, rel=1e-9)


MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def test_hours_hold_and_the_bandwidth_is_used(tmp_path: Path) -> None:
    words, seen, rng = "workdays 8-20; not Wed 12-13", [], np.random.default_rng(0)
    with fo.Planner(tmp_path / "p", bandwidth="24/day", hours=words, burst="1h", replan="30d") as planner:
        planner.add_many([f"s{k}" for k in range(10)], max_rate=[*[np.inf] * 9, 1.0])
        now = MONDAY
        while now < MONDAY + timedelta(days=14):
            for visit in planner.due(now):
                seen.append((visit.source, now))
                planner.observed(visit.source, now, changed=bool(rng.random() < 0.3))
            now += timedelta(minutes=30)
        assert planner.next_due(now) == MONDAY + timedelta(days=14, hours=8)
    hours = {(time.weekday(), time.hour) for _, time in seen}
    assert all(day < 5 and 8 <= hour < 20 and (day, hour) != (2, 12) for day, hour in hours)
    assert {day for day, _ in hours} == set(range(5))
    assert len(seen) == pytest.approx(14 * 24, rel=0.08)
    slow = [time for name, time in seen if name == "s9"]
    assert min(after - before for before, after in pairwise(slow)) >= timedelta(days=1)
    # They are kept, and ended by none.
    with fo.Planner(tmp_path / "p") as planner:
        assert present(planner.settings.hours).words == words
    with fo.Planner(tmp_path / "p", hours="") as planner:
        assert planner.settings.hours is None


def test_hours_need_dates(tmp_path: Path) -> None:
    with fo.Planner(tmp_path / "p", bandwidth="2/day", hours="8-20") as planner:
        planner.add("a")
        refused("Pass dates", planner.due, 1.0)
    refused("no day", fo.Planner, tmp_path / "q", bandwidth="2/day", hours="nights")
    assert not (tmp_path / "q").exists()
