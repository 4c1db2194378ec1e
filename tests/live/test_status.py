"""What a planner says of itself: units, meaning, simple rules, certificate."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import BinaryFreshness


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A planner of two sources, one of which changes with every crawl."""
    with fo.Planner(tmp_path, bandwidth="4/day", burst="1d") as planner:
        planner.add_many(["fast", "slow"], importance=[3.0, 1.0])
        for day in np.arange(0.0, 20.0, 0.25).tolist():
            for visit in planner.due(day):
                planner.observed(visit.source, day, changed=visit.source == "fast")
        planner.replan(20.0)
    return tmp_path


def test_numbers_have_units_and_a_meaning(place: Path) -> None:
    with fo.Planner(place) as planner:
        status = planner.status(20.0)
        told = dict(status.rows())
        rates = planner.to_frame()
    assert re.fullmatch(r"(4|3\.99\d*) of 4 refreshes per day in force", told["bandwidth"])
    assert told["objective"].startswith("HarmonicStaleness (lower is better): m-th missed change costs 1/m; ")
    assert told["objective"].endswith("periodic refreshes")
    price = r"per refresh/day: 1 % more bandwidth lowers staleness by at most [\d.]+ %"
    assert re.search(price, told["shadow price"])
    assert f"staleness {status.value:.4g}; no rates do better than {status.bound:.4g}" in told["certificate"]
    # The share of time fresh at equal intervals is (1 - exp(-u))/u with u changes an interval.
    weight, change = np.array([3.0, 1.0]), rates["change_rate"].to_numpy()

    def fresh(rate: np.ndarray) -> float:
        u = change / rate
        return float(np.sum(weight * -np.expm1(-u) / u) / np.sum(weight))

    shapes = {"uniform": np.ones(2), "proportional": change, "square-root": np.sqrt(weight * change)}
    for rule, shape in shapes.items():
        assert status.simple[rule] == pytest.approx(fresh(4.0 * shape / np.sum(shape)), rel=1e-9)
    assert status.freshness == pytest.approx(fresh(rates["rate"].to_numpy()), rel=1e-9)
    assert "; uniform rates " in told["time fresh"]
    assert "square-root" in told["time fresh"]
    # The next hand-out is when the first source is due.
    assert status.next_due == pytest.approx(max(20.0, rates["next_due"].min()), rel=1e-9)  # type: ignore[type-var]
    assert f"next hand-out at {status.next_due:g}" in told["sources"]


def test_rates_of_earlier_settings_have_no_certificate(place: Path) -> None:
    with fo.Planner(place, objective=BinaryFreshness(fo.Refresh.PERIODIC)) as planner:
        told = dict(planner.status(20.0).rows())
        assert told["certificate"] == "none: settings were changed, and the next hand-out plans anew"
        assert "shadow price" not in told
        planner.due(20.0)
        told = dict(planner.status(20.0).rows())
    assert "raises freshness by at most" in told["shadow price"]
    assert "freshness" in told["certificate"]


def test_bandwidth_of_unequal_costs_is_not_of_refreshes(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth="9e6/day") as planner:
        planner.add("a", refresh_cost=2.0)
        planner.due(0.0)
        told = dict(planner.status(0.0).rows())
    assert told["bandwidth"] == "104.2 of 104.2 per second in force"  # 9·10⁶ a day
    assert "per unit/second" in told["shadow price"]


def test_a_bandwidth_of_no_use_is_called_so(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth="100/day") as planner:
        planner.add_many(["a", "b"], max_rate=0.5)
        planner.due(0.0)
        told = dict(planner.status(0.0).rows())
    assert told["bandwidth"] == "1 of 100 refreshes per day in force"
    assert told["shadow price"].startswith("0: more bandwidth gains nothing")


def test_importances_of_zero_leave_freshness_open(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, bandwidth="9/day") as planner:
        planner.add("a", importance=0.0)
        status = planner.status(0.0)
        assert math.isnan(status.freshness)
        assert not status.simple
        assert "plan" in dict(status.rows())
