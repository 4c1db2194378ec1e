"""A planner within hours hands out nothing in blackouts, and the whole bandwidth within them."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import freshopt as fo
from tests.ground_truth.refusals import present, refused

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
