"""Promises of a live planner: kept for two weeks by another process, within the bandwidth."""

import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import freshopt as fo
from freshopt.errors import InfeasibleProblemError, ObjectiveError, SourceDataError
from freshopt.planning.request import Clock
from freshopt.questions.promises import promises_of
from freshopt.scheduling.appointments import Appointments, AppointmentsOnClock, longest_interval
from freshopt.scheduling.hours import Hours
from tests.ground_truth.command_lines import Run
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix

ROOT = Path(__file__).parents[2]
# A Thursday; in the night to March 29 clocks in Berlin go forward.
BEGIN = datetime(2026, 3, 19, tzinfo=UTC)
NAMES = [f"{kind}/{k}" for k in range(10) for kind in ("news", "docs")]
PROMISES = ["news/*: 90% younger than 6h", "docs/*: at 7:00 Europe/Berlin on workdays younger than 2h"]
AT_RANDOM = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
# Begins a planner, in a process of its own.
FIRST = f"""
import sys, freshopt as fo
with fo.Planner(sys.argv[1], "80/day", promise={PROMISES}, update="6h") as planner:
    planner.add_many({NAMES}, host={[f"h{k % 3}" for k in range(len(NAMES))]})
"""


def first_process(place: object) -> None:
    """Begin the planner that promises."""
    subprocess.run([sys.executable, "-c", FIRST, str(place)], cwd=ROOT, check=True)


def fetched(
    planner: fo.Planner, days: float, step: timedelta, seed: int = 0, failing: float = 0.0
) -> dict[str, np.ndarray]:
    """Return when a crawler fetches, in days, that asks at steps while something may be due."""
    rng = np.random.default_rng(seed)
    change = dict(zip(NAMES, rng.lognormal(0.0, 1.2, len(NAMES)).tolist(), strict=True))
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    now, end = BEGIN, BEGIN + timedelta(days=days)
    while now < end:
        time = (now - BEGIN) / timedelta(days=1)
        for visit in planner.due(now, limit=None):
            if rng.random() < failing:
                planner.failed(visit.source, now)
                continue
            own = found[visit.source]
            gap = time - own[-1] if own else time
            planner.observed(visit.source, now, bool(rng.random() < -np.expm1(-change[visit.source] * gap)))
            own.append(time)
        later = planner.next_due(now)
        assert isinstance(later, datetime)
        now += step * max(1, -((now - later) // step))
    return {name: np.array(own) for name, own in found.items()}


def ages_at(fetches: np.ndarray, hour: int, zone: str, days: range) -> np.ndarray:
    """Return ages in hours at a local hour of workdays."""
    local = [(BEGIN + timedelta(days=day)).date() for day in days]
    moments = [
        datetime(day.year, day.month, day.day, hour, tzinfo=ZoneInfo(zone))
        for day in local
        if day.weekday() < 5
    ]
    times = [(moment - BEGIN) / timedelta(days=1) for moment in moments]
    return np.array([24.0 * (time - fetches[fetches <= time].max(initial=-np.inf)) for time in times])


def check_two_weeks(place: Any) -> None:  # noqa: ANN401 - a folder or an address
    """Hold a planner, which another process began, to its promises and its bandwidth."""
    step = timedelta(minutes=2)
    with fo.Planner(place) as planner:
        assert [each.text for each in planner.settings.promise] == PROMISES
        found = fetched(planner, 14.0, step)
        status = planner.status()
    # 90 % are gaps of 6 h and 40 minutes. The crawler may be late by a step, and two wait for bandwidth.
    late_by = step / timedelta(days=1) + 2.0 / 70.0
    places = []
    for name, times in found.items():
        if name.startswith("news/"):
            gap = np.diff(times[times > 1.0])
            assert gap.max() <= 0.25 / 0.9 + late_by + 1e-9
            late = np.maximum(gap - 0.25, 0.0).sum() / gap.sum()
            # Lateness is made up at the next gap, but for the last one.
            assert late <= 0.1 + late_by / 13.0
        else:
            ages = ages_at(times, 7, "Europe/Berlin", range(1, 14))
            assert len(ages) == 9
            assert 0.0 <= ages.min() <= ages.max() <= 2.0 + 1e-9
            places.append(np.median(ages))
    # Windows are used evenly, but for a burst at the end: every tenth of them has a fetch.
    assert np.diff(np.sort(places)).max() < 2.0 * (110.0 / 60.0) / len(places)
    every = np.sort(np.concatenate(list(found.values())))
    assert 0.9 * 80 * 14 < len(every) <= 80 * 14 + 1
    for begin in range(14 - 7):
        # A week has as many fetches as its bandwidth, a burst, one more, and those of one window.
        week = np.count_nonzero((every >= begin) & (every < begin + 7))
        assert week <= 80 * 7 + 80 * 10 / 1440 + 1 + 10
    assert status.infeasibility < 1e-9
    assert status.relative_gap <= 0.01
    told = "\n".join(status.promises)
    assert "for 10 sources; " in told
    assert "“all 2 promises”: 43.14 fetches per day at least for 20 sources" in told
    assert "promised" in dict(status.rows())


def test_promises_are_kept_for_two_weeks_within_the_bandwidth(tmp_path: Path) -> None:
    first_process(tmp_path)
    check_two_weeks(tmp_path)


def test_a_host_that_rests_between_fetches_has_them_spread(tmp_path: Path) -> None:
    given: Any = {"promise": "at 7:00 on workdays younger than 2h", "host_gap": "5min", "burst": "1min"}
    given["update"] = "6h"
    with fo.Planner(tmp_path, "60/day", **given) as planner:
        planner.add_many(NAMES, host=["h"] * 18 + ["i"] * 2)
        found = fetched(planner, 8.0, timedelta(minutes=1))
    # 18 rests of 6 minutes in the mean are 112 minutes of 119.
    for times in found.values():
        assert ages_at(times, 7, "UTC", range(1, 8)).max() <= 2.0 + 1e-9


def test_a_crawler_that_comes_each_hour_is_told_early(tmp_path: Path) -> None:
    given: Any = {
        "promise": ["docs/*: by 7:00 younger than 2h", "news/*: always younger than 8h"],
        "burst": "1h",
        "update": "6h",
    }
    with fo.Planner(tmp_path, "80/day", **given) as planner:
        planner.add_many(NAMES)
        found = fetched(planner, 7.0, timedelta(minutes=59))
    for name, times in found.items():
        if name.startswith("docs/"):
            assert ages_at(times, 7, "UTC", range(1, 7)).max() <= 2.0
        else:
            assert np.diff(times[times > 1.0]).max() <= 8.0 / 24.0


def test_what_fails_in_a_window_is_tried_again_in_it(tmp_path: Path) -> None:
    words = "docs/*: at 7:00 on workdays younger than 2h"
    with fo.Planner(tmp_path, "80/day", promise=words, update="6h") as planner:
        planner.add_many(NAMES)
        found = fetched(planner, 14.0, timedelta(minutes=2), failing=0.3)
    ages = [ages_at(times, 7, "UTC", range(1, 14)) for name, times in found.items() if name[0] == "d"]
    # One try leaves 30 % late; those in the second half have less time left.
    assert np.mean(np.concatenate(ages) > 2.0 + 1e-9) < 0.12


def test_least_rates_are_those_of_a_plan_by_the_rates_learnt(tmp_path: Path) -> None:
    words = ["news/*: 95% less than 3h behind", "docs/1: 95% younger than 1d"]
    with fo.Planner(tmp_path, "50/day", promise=words, update="6h") as planner:
        planner.add_many(NAMES)
        fetched(planner, 2.0, timedelta(minutes=5))
        frame, log = planner.to_frame().sort("source"), planner.log()
        assert planner.status().infeasibility < 1e-9
    names, change = np.array(frame["source"].to_list(), dtype=object), frame["change_rate"].to_numpy()
    least = [
        each.least_rates(names, change, None, fo.Refresh.PERIODIC, None, "day")
        for each in promises_of("promise", words, Clock("day"))
    ]
    assert np.all(frame["rate"].to_numpy() >= np.max(least, axis=0) * (1.0 - 1e-9))
    assert np.any(np.isclose(frame["rate"].to_numpy(), least[0], rtol=1e-9) & (least[0] > 0.0))
    # A plan of the same log promises the same of the same rates.
    made = fo.plan(log, bandwidth="50/day", promise=words, draws=0)
    own = [
        each.least_rates(log.names, made.problem.sources.change_rate, None, fo.Refresh.PERIODIC, None, "day")
        for each in promises_of("promise", words, Clock("day"))
    ]
    np.testing.assert_allclose(made.problem.sources.min_rate, np.max(own, axis=0), rtol=1e-9)


def test_what_limits_do_not_leave_is_kept_in_part_and_said(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, "30/day", promise="always less than 4h behind", update="6h") as planner:
        planner.add_many(NAMES)
        fetched(planner, 3.0, timedelta(minutes=5))
        status = planner.status()
        assert status.used == pytest.approx(30.0, rel=1e-6)
        assert status.infeasibility < 1e-9
        assert status.promises[-1].startswith("20 sources fetched less than promised")
        # All have the same share of what is promised.
        assert np.ptp(planner.to_frame()["rate"].to_numpy()) < 1e-6


def test_a_promise_of_some_leaves_others_something(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, "10/day", promise="docs/*: at 7:00 younger than 1d") as planner:
        planner.add_many(NAMES, importance=[2.0] * 20)
        fetched(planner, 2.0, timedelta(minutes=5))
        status, rates = planner.status(), dict(planner.to_frame().select("source", "rate").iter_rows())
        assert status.promises[-1].startswith("10 sources fetched less than promised")
        assert sum(rates[name] for name in NAMES if name.startswith("docs/")) == pytest.approx(9.9, rel=1e-6)


def test_a_price_that_cannot_be_told_stops_nothing(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, "90/day", promise="news/*: always younger than 1d") as planner:
        planner.add_many(NAMES, importance=[0.0] * 20)
        planner.due(BEGIN)
        assert planner.status().promises == ("news/*: always younger than 1d",)


def test_promises_are_changed_and_ended(tmp_path: Path, run: Run) -> None:
    first_process(tmp_path)
    with fo.Planner(tmp_path) as planner:
        planner.due(BEGIN, limit=None)
        assert len(planner.status().promises) == 3
        with fo.Planner(tmp_path, promise="news/*: 95% younger than 1d") as other:
            assert other.status().promises == ()
        planner.due(BEGIN + timedelta(minutes=1), limit=None)
        assert ["95%" in words for words in planner.status().promises] == [True]
        run("run", str(tmp_path), "--no-promise")
        assert planner.settings.promise == ()
        planner.due(BEGIN + timedelta(minutes=2), limit=None)
        assert planner.status().promises == ()
        run(
            "run",
            str(tmp_path),
            "--promise",
            "docs/1: at 7:00 younger than 1h",
            "--promise",
            "news/*: 9% younger than 1d",
        )
        assert len(planner.settings.promise) == 2
    Path("run.toml").write_text('promise = ["docs/*: always younger than 2d"]\n', encoding="utf-8")
    run("run", str(tmp_path), "--config", "run.toml")
    with fo.Planner(tmp_path) as planner:
        assert [each.text for each in planner.settings.promise] == ["docs/*: always younger than 2d"]
    clash = run("run", str(tmp_path), "--promise", "always younger than 1d", "--no-promise", code=2)
    assert "stands in place of" in clash.output
    heard = ("--signals-from", "x", "--command", "echo {source}")
    clash = run("run", str(tmp_path), "--promise", "always younger than 1d", *heard, code=2)
    assert "--promise does not go with --signals-from" in clash.output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"promise": "huh"}, "cannot be read"),
        ({"promise": "always younger than 6h"}, "min_rate and promises need 82.* but bandwidth is 50"),
        ({"promise": "at 7:00, 8:00, 9:00 younger than 1h"}, "need 60 refreshes per day but bandwidth is 50"),
        (
            {"promise": "docs/*: 90% younger than 6h", "host_limits": {"h": "20/day"}},
            "of host 'h' need 36 refreshes per day but its limit is 20",
        ),
        ({"promise": ["docs/*: 5% younger than 1h", "at 7:00 younger than 1h"]}, "several promises are of"),
        ({"promise": "news/1: 90% younger than 6h"}, "more than the largest rate of 'news/1'"),
        ({"promise": "news/1: at 7:00, 8:00 younger than 1h"}, "more than the largest rate of 'news/1'"),
        ({"promise": "at 7:00 younger than 1h", "hours": "not 22-6"}, "does not go with hours"),
        ({"promise": "always younger than 1h", "hours": "not 22-6"}, "in closed hours"),
        (
            {
                "promise": "always younger than 2d",
                "objective": fo.problems.HarmonicStaleness(fo.Refresh.POISSON),
            },
            "gaps are random, and nothing holds always",
        ),
    ],
)
def test_what_cannot_be_promised_is_refused(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    wrong = (SourceDataError, InfeasibleProblemError, ObjectiveError)
    listed: dict[str, Any] = {"host": ["h"] * 20}
    if "news/1" in str(given["promise"]):
        listed["max_rate"] = [1.0 if name == "news/1" else None for name in NAMES]

    def told(**settings: Any) -> None:  # noqa: ANN401
        with fo.Planner(tmp_path / "state", "50/day", **settings) as planner:
            planner.add_many(NAMES, **listed)

    refused(words, told, **given, error=wrong)
    # The same is refused of sources that are there.
    with fo.Planner(tmp_path / "there", "50/day") as planner:
        planner.add_many(NAMES, **listed)
    refused(words, fo.Planner, tmp_path / "there", **given, error=wrong)
    with fo.Planner(tmp_path / "there") as planner:
        assert planner.settings.promise == ()


def test_signals_numbers_and_promises(tmp_path: Path) -> None:
    with fo.Planner(tmp_path / "a", "50/day", promise="always younger than 2d") as planner:
        planner.add_many(NAMES)
        refused("signals do not go with the promise of", planner.signal, NAMES[0], BEGIN)
    with fo.Planner(tmp_path / "b", "50/day") as planner:
        planner.add_many(NAMES)
        planner.signal(NAMES[0], BEGIN)
        refused(
            "promise does not go with signals", fo.Planner, tmp_path / "b", promise="always younger than 2d"
        )
        assert planner.settings.promise == ()
    with fo.Planner(tmp_path / "c", "50/day", promise="at 7:00 younger than 2h") as planner:
        planner.add_many(NAMES)
        refused("this planner counts numbers. Pass dates", planner.due, 1.0)


def test_new_sources_are_promised_and_handed_back_ones_cost_nothing(tmp_path: Path) -> None:
    with fo.Planner(tmp_path, "500/day", promise="new/*: at 7:00 younger than 2h", lease="3h") as planner:
        planner.add_many([f"old/{k}" for k in range(200)])
        planner.due(BEGIN, limit=None)
        planner.add("new/1")
        seven = BEGIN + timedelta(hours=7)
        seen = [
            visit.source
            for k in range(420)
            for visit in planner.due(BEGIN + timedelta(minutes=k), limit=None)
        ]
        assert seen.count("new/1") == 1
        planner.release("new/1")
        assert planner.due(seven, limit=None)[0].source == "new/1"
        planner.remove("new/1")
        planner.replan(seven)
        assert planner.status(seven).infeasibility < 1e-9


def test_a_promise_wins_over_what_an_answer_says(tmp_path: Path) -> None:
    words = ["docs/*: 90% younger than 3h", "news/*: at 7:00 younger than 2h"]
    with fo.Planner(tmp_path, "90/day", promise=words) as planner:
        planner.add_many(NAMES)
        for minute in range(0, 1440, 5):
            now = BEGIN + timedelta(minutes=minute)
            for visit in planner.due(now, limit=None):
                planner.observed(visit.source, now, changed=False, max_age=86_400.0)
        rates = dict(planner.to_frame().select("source", "rate").iter_rows())
    assert min(rates[name] for name in NAMES if name.startswith("docs/")) >= 7.2 * (1.0 - 1e-9)
    assert min(rates[name] for name in NAMES if name.startswith("news/")) >= 1.0 - 1e-9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.sampled(3)
def test_fetches_between_appointments_are_as_many_as_the_rate(seed: int) -> None:
    rng = np.random.default_rng(seed)
    moments = np.sort(rng.uniform(0.0, 604_800.0, 4))
    kept = AppointmentsOnClock(Appointments(tuple(moments.tolist()), 7200.0), 0.0, 86_400.0, 0.0)
    n, weeks = 50, 100
    number, place = np.arange(1, n + 1), rng.random(n)
    rate = (4.0 + rng.lognormal(0.0, 2.0, n) * rng.integers(0, 2, n)) / 7.0
    offset = kept.appointments.offsets(place, 1) / 86_400.0
    gap = np.diff(offset, append=offset[:, :1] + 7.0)
    longest = longest_interval(gap, 7.0 * rate)
    for k in range(0, n, 10):
        one = np.array([k])
        last, many = np.array([20.0]), 0
        while last[0] < 20.0 + 7.0 * weeks:
            due, slot, *_ = kept.due(number[one], place[one], rate[one], last, last, last, np.zeros(1))
            assert last < due <= slot
            # Intervals within a gap are of one number, the longest or one that is shorter by one fetch more.
            assert due - last <= max(longest[k] * 2.0, gap[k].max()) + 1e-9
            last, many = due, many + 1
        assert many == pytest.approx(7.0 * weeks * rate[k], rel=0.01, abs=2.0)
    # Another's fetch within a window keeps it, and least intervals are kept.
    opens, end = moments[0] - 7200.0 + 604_800.0, moments[0] + 604_800.0
    inside = np.array([(opens + 60.0) / 86_400.0])
    due, slot, *_ = kept.due(number[:1], place[:1], np.array([4 / 7]), inside, inside, inside, np.zeros(1))
    assert due == slot > end / 86_400.0
    due, *_ = kept.due(number[:1], place[:1], np.array([50.0]), inside, inside, inside, np.array([0.3]))
    assert due - inside >= 0.3 - 1e-9


def test_gaps_of_open_hours_are_promised(tmp_path: Path) -> None:
    given: dict[str, Any] = {"promise": "70% younger than 9h", "hours": "not 22-6", "update": "6h"}
    with fo.Planner(tmp_path, "80/day", **given) as planner:
        planner.add_many(NAMES)
        found = fetched(planner, 5.0, timedelta(minutes=4))
    assert Hours.of("hours", "not 22-6").share == pytest.approx(2 / 3)
    for times in found.values():
        gap = np.diff(times[times > 1.0])
        assert np.maximum(gap - 9.0 / 24.0, 0.0).sum() / gap.sum() <= 0.30 + 0.01


@matrix(seed=range(12), every=6)
def test_whatever_happens_is_planned_for(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    words = [*PROMISES, "news/*: 80% less than 6h behind", "docs/1: by 6:00, 18:00 younger than 3h"]
    given: dict[str, Any] = {"burst": rng.choice(["1min", "2h"]), "host_gap": rng.choice([None, "1min"])}
    given |= {"changed_cost": rng.choice([None, 20.0]), "promise": rng.sample(words[:3], 2)}
    with fo.Planner(tmp_path, "300/day", **given) as planner:
        planner.add_many(NAMES, host=[f"h{k % 3}" for k in range(20)], refresh_cost=[1.0, 2.0] * 10)
        now = BEGIN
        for step in range(100 if seed % 6 else 18):  # those of every run are short
            now += timedelta(minutes=rng.choice([1, 30, 200]))
            for visit in planner.due(now, limit=rng.choice([None, 1])):
                event = rng.random()
                if event < 0.1:
                    planner.failed(visit.source, now, status=503)
                elif event < 0.2:
                    planner.release(visit.source)
                elif event < 0.9:
                    age = rng.choice([None, 0.0, 86_400.0])
                    planner.observed(visit.source, now, rng.random() < 0.3, max_age=age)
            event = rng.random()
            if event < 0.1:
                planner.add(f"news/new{step}", host="h1")
            elif event < 0.2:
                planner.remove(planner.to_frame()["source"][0])
            elif event < 0.3:
                fo.Planner(tmp_path, promise=rng.choice(words)).close()
            elif event < 0.4:
                later = planner.next_due(now)
                assert isinstance(later, datetime)
                assert "planner" in repr(planner.status(now))
        planner.replan(now)
        status = planner.status(now)
        assert status.used <= 300.0 * (1.0 + 1e-9)
        assert status.relative_gap <= 0.01
