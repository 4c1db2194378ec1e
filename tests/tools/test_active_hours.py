"""Active hours and tags of watches: intervals against a clock that ticks each minute, and a server."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

from freshopt.tools.changedetection_api import ActiveHours
from tests.cli.test_sync import FakeServer
from tests.ground_truth.command_lines import Run, unwrapped
from tests.ground_truth.http_servers import serving
from tests.ground_truth.refusals import present, refused

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
HOUR, DAY = 3600, 86_400


def limit(begin: str, hours: int, minutes: int = 0, days: int = 5) -> dict[str, Any]:
    """Hours of the first days of the week, as changedetection.io has them: numbers as text."""
    day = {
        "enabled": True,
        "start_time": begin,
        "duration": {"hours": str(hours), "minutes": f"{minutes:02d}"},
    }
    off = {**day, "enabled": False}
    return {"enabled": True, **{name: day if k < days else off for k, name in enumerate(DAYS)}}


LIMITS = {
    "office": limit("09:00", 8, 30),
    "all but Sunday": limit("00:00", 24, days=6),
    "past midnight": limit("20:00", 9, days=7),  # of which what is after midnight is another day's
    "a minute": limit("12:00", 0, 1, days=1),
}


def ticked(told: dict[str, Any], interval: int, weeks: int) -> float:
    """Mean seconds between checks of a server that looks each minute whether it is time, in these hours."""
    now, checks, last = datetime(2026, 5, 4), [], -(10**9)
    for minute in range((weeks + 1) * 7 * 1440):
        if minute * 60 - last < interval:
            continue
        moment = now + timedelta(minutes=minute)
        day = told[DAYS[moment.weekday()]]
        hour, begin = map(int, day["start_time"].split(":"))
        opens = moment.replace(hour=hour, minute=begin)
        shuts = opens + timedelta(
            hours=int(day["duration"]["hours"]), minutes=int(day["duration"]["minutes"])
        )
        if day["enabled"] and opens <= moment <= shuts:
            last = minute * 60
            checks.append(last)
    # From the first to the first of the last week that has one: whole rounds of the week.
    week = checks[-1] // (7 * DAY) * 7 * DAY
    final = min(check for check in checks if check >= week)
    return (final - checks[0]) / checks.index(final)


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("interval", [7 * 60, 3 * HOUR, 30 * HOUR])
def test_the_mean_time_between_checks_is_that_of_a_clock(name: str, interval: int) -> None:
    found = ActiveHours.of(LIMITS[name], "a watch").mean(float(interval))
    assert found == pytest.approx(ticked(LIMITS[name], interval, 4), rel=1e-12)


@pytest.mark.parametrize("name", LIMITS)
def test_an_interval_is_the_shortest_that_has_no_more_checks(name: str) -> None:
    hours = ActiveHours.of(LIMITS[name], "a watch")
    for wanted in (hours.mean(60.0) * 1.5, 2 * DAY, 5.3 * DAY, 20 * DAY):
        found = hours.interval(wanted, 60)
        assert 60 <= found <= wanted + 1
        assert hours.mean(found) >= wanted * (1.0 - 1e-9)
        assert found == 60 or hours.mean(found - 1) < wanted


def test_hours_that_are_always_never_or_wrong() -> None:
    always = ActiveHours()
    for told in (
        None,
        {},
        {"enabled": False, **limit("09:00", 8)} | {"enabled": False},
        limit("00:00", 24, days=7),
    ):
        assert ActiveHours.of(told, "a watch") == always
    assert (always.mean(90.0), always.interval(90.5, 60), always.interval(3.0, 60)) == (90.0, 91, 60)
    never = ActiveHours.of(limit("09:00", 8, days=0), "a watch")
    assert never.times == ()
    assert never.mean(60.0) == np.inf
    for wrong in ("25:00", "9", "", "09:00:00"):
        refused("watch/u, monday, has no hours such as", ActiveHours.of, limit(wrong, 8), "watch/u")
    refused("watch/u, monday", ActiveHours.of, {"enabled": True, "monday": {"enabled": True}}, "watch/u")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving(FakeServer()) as made:
        made.told = {
            "u1": {"tags": ["t1", "gone"]},
            "u2": {"tags": ["t1", "t2"], "time_schedule_limit": LIMITS["office"]},
            "u3": {"tags": []},
        }
        yield made


def test_tags_bound_intervals(run: Run, server: FakeServer) -> None:
    tags = ["--tag-interval", "News=2h..1d", "--tag-interval", "Slow=5h.."]
    said = run(*server.arguments, "--key", "key", *tags, "--tag-interval", "*=..3d").output
    assert "3 intervals set" in said
    seconds = server.seconds()
    assert 2 * HOUR <= seconds["u1"] <= DAY
    hours = ActiveHours.of(LIMITS["office"], "a watch")
    assert seconds["u2"] >= 5 * HOUR
    assert hours.mean(seconds["u2"]) <= max(DAY, hours.mean(5 * HOUR)) * 1.01
    assert seconds["u3"] <= 3 * DAY


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tag-interval", "news=1h..2h"], "no source has the tag 'news'. Did you mean 'News'?"),
        (["--tag-interval", "News=1h"], "has no TAG=TIME..TIME"),
        (
            ["--tag-interval", "News=..1h", "--tag-interval", "Slow=2h.."],
            "with the tags 'News', 'Slow', has no interval",
        ),
        (["--tag-interval", "*=..2min", "--bandwidth", "9/day"], "checks per day are too few for 3 sources"),
    ],
)
def test_tags_that_cannot_be_kept(run: Run, server: FakeServer, options: list[str], words: str) -> None:
    before = server.seconds()
    said = run(*server.arguments, "--key", "key", *options, code=2).output
    assert words in unwrapped(said)
    assert said.count("\n") == 1
    assert server.seconds() == before


def test_checks_within_hours_are_as_many_as_planned(run: Run, server: FakeServer) -> None:
    """One in office hours has fewer checks today, and keeps to its share by a shorter interval."""
    hours = ActiveHours.of(LIMITS["office"], "a watch")
    today = DAY / HOUR + DAY / hours.mean(HOUR) + DAY / HOUR
    said = unwrapped(run(*server.arguments, "--key", "key").output)
    seconds = server.seconds()
    after = {key: hours.mean(own) if key == "u2" else own for key, own in seconds.items()}
    total = sum(DAY / gap for gap in after.values())
    assert 0.98 * today < total <= today * (1.0 + 1e-9)
    told = present(re.search(r"checks\s+([\d.]+) per day, as today", said))
    assert float(told[1]) == pytest.approx(total, rel=0.01)
    assert seconds["u2"] < after["u2"]
    server.told["u3"]["time_schedule_limit"] = limit("09:00", 8, days=0)
    assert "1 without history" in unwrapped(run(*server.arguments, "--key", "key").output)
