"""Promises on the age of copies: kept in drawn histories, and at the price that is told."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.errors import InfeasibleProblemError, SourceDataError
from freshopt.numerics.arrays import LARGEST, Array
from freshopt.planning.request import Clock
from freshopt.questions.promises import promise_price, promises_of, rates_for_gaps
from freshopt.report.context import Context, Facts
from freshopt.report.plan_findings import load
from freshopt.scheduling.appointments import spare_fetches
from freshopt.scheduling.hours import Hours
from tests.ground_truth.refusals import present, refused

PERIODIC, POISSON = fo.Refresh.PERIODIC, fo.Refresh.POISSON
AT_RANDOM = fo.problems.HarmonicStaleness(POISSON)
NAMES = np.array(["news/1", "news/2", "docs/1"], dtype=object)
CHANGES = np.array([0.05, 1.0, 40.0])
DAY, DAYS = 86_400.0, Clock("day")


def is_open(hours: str | None, time: Array) -> np.ndarray:
    """Return which moments, in days since a Monday, are open; written by hand for each text."""
    day, hour = np.floor(time) % 7, (time % 1.0) * 24.0
    known = {
        None: np.ones(len(time), dtype=bool),
        "not 22-6": (hour >= 6) & (hour < 22),
        "workdays 8-20; not Wed 12-13": (day < 5)
        & (hour >= 8)
        & (hour < 20)
        & ~((day == 2) & (hour >= 12) & (hour < 13)),
    }
    return np.asarray(known[hours])


def drawn_lateness(
    rate: float, change_rate: float, age: float, *, behind: bool, hours: str | None, success: float, seed: int
) -> tuple[float, float]:
    """Return the late share of a drawn copy and its standard error, minute by minute of open time."""
    rng = np.random.default_rng(seed)
    # Minutes, or tens of them where gaps are long, so that hours are whole.
    step = 1.0 / (1440.0 if rate > 4.0 else 144.0)
    clock = np.arange(0.0, 7.0 * (40 + 500.0 / max(rate, 1.0)), step) + step / 2
    passed = np.cumsum(is_open(hours, clock)) / np.sum(is_open(hours, clock[: int(7.0 / step)])) * 7.0
    tick = np.floor(passed * rate + rng.random())
    attempts = clock[1:][np.diff(tick) > 0.0]
    fetches = attempts[rng.random(len(attempts)) < success]
    begin, end = fetches[:-1], fetches[1:]
    since = begin + rng.exponential(1.0 / change_rate, len(begin)) if behind else begin
    lost, whole = np.maximum(end - np.maximum(since + age, begin), 0.0), end - begin
    share = float(lost.sum() / whole.sum())
    # Blocks of gaps hold whole cycles of the week, nearly.
    blocks = np.array_split(lost - share * whole, 30)
    error = float(np.std([block.sum() for block in blocks]) * np.sqrt(30.0) / whole.sum())
    return share, error


@pytest.mark.parametrize(
    ("text", "hours", "success"),
    [
        ("95% younger than 2h", None, 1.0),
        ("80% younger than 5h", None, 0.6),
        ("90% less than 1d behind", None, 1.0),
        pytest.param("60% less than 6h behind", None, 0.7, marks=pytest.mark.exhaustive),
        ("70% younger than 9h", "not 22-6", 1.0),
        pytest.param("80% less than 1d behind", "not 22-6", 0.8, marks=pytest.mark.exhaustive),
        ("60% younger than 2d", "workdays 8-20; not Wed 12-13", 1.0),
    ],
)
def test_a_promise_holds_in_drawn_histories_and_asks_for_no_more(
    text: str, hours: str | None, success: float
) -> None:
    [promise] = promises_of("promise", text, DAYS)
    known = None if hours is None else Hours.of("hours", hours)
    chance = None if success == 1.0 else np.full(3, success)
    rates = promise.least_rates(NAMES, CHANGES, chance, PERIODIC, known, "day")
    for k in (1, 2):
        share, error = drawn_lateness(
            rates[k],
            CHANGES[k],
            promise.age,
            behind=promise.behind,
            hours=hours,
            success=success,
            seed=5,
        )
        # Fetches stand at whole steps, which moves a share by a part of a gap.
        assert (
            abs(share - (1.0 - promise.share))
            < 4.0 * error + 2e-4 + rates[k] / (1440.0 if rates[k] > 4.0 else 144.0) * 0.2
        )


def test_missed_changes_are_those_of_quadrature() -> None:
    [promise] = promises_of("promise", "97% less than 3d behind", DAYS)
    for refresh in (PERIODIC, POISSON):
        rates = promise.least_rates(NAMES, CHANGES, None, refresh, None, "day")
        for rate, change_rate in zip(rates.tolist(), CHANGES.tolist(), strict=True):
            r, d = mpmath.mpf(rate), mpmath.mpf(change_rate)

            def missed(s: mpmath.mpf, d: mpmath.mpf = d) -> mpmath.mpf:
                return -mpmath.expm1(-d * (s - 3)) if s > 3 else mpmath.mpf(0)

            if refresh is PERIODIC:
                late = r * mpmath.quad(missed, mpmath.linspace(3, 1 / r, 20)) if 1 / r > 3 else 0
            else:
                ends = [3, *(3 + x / (r + d) for x in (1, 5, 20, 60)), 3 + 60 / r]
                late = mpmath.quad(lambda s, r=r: r * mpmath.exp(-r * s) * missed(s), ends)
            assert abs(late - mpmath.mpf("0.03")) < 1e-13


def test_simple_ages_have_simple_rates() -> None:
    [share, always] = promises_of("promise", ["95% younger than 2h", "docs/*: always younger than 1d"], DAYS)
    at_random = share.least_rates(NAMES, CHANGES, None, POISSON, None, "day")
    np.testing.assert_allclose(share.least_rates(NAMES, CHANGES, None, PERIODIC, None, "day"), 0.95 * 12.0)
    np.testing.assert_allclose(at_random, np.log(20.0) * 12.0)
    assert always.least_rates(NAMES, CHANGES, None, PERIODIC, None, "day").tolist() == pytest.approx(
        [0, 0, 1]
    )


def test_gaps_of_open_hours_are_no_longer_by_the_clock() -> None:
    hours = Hours.of("hours", "workdays 8-20; not Wed 12-13")
    longest = np.array([2.7, 3.0, 9.0])
    rates = rates_for_gaps(longest, hours, "day")
    for rate, most in zip(rates.tolist(), longest.tolist(), strict=True):
        for phase in (0.0, 0.21, 0.77):
            opened = (np.arange(4_000) + phase) / rate * hours.share * DAY
            gaps = np.diff(hours.moments(opened)) / DAY
            assert gaps.max() < most + 1e-6
        slower = (np.arange(40_000)) / (0.99 * rate) * hours.share * DAY
        assert np.diff(hours.moments(slower)).max() / DAY > most
    refused("out of reach", rates_for_gaps, np.array([2.0]), hours, "day", error=InfeasibleProblemError)


@pytest.mark.parametrize(
    "words", ["not 22-6", "workdays 8-20; not Wed 12-13", "Sat,Sun Europe/Berlin", "daily"]
)
def test_lengths_of_gaps_have_the_shares_of_drawn_ones(words: str) -> None:
    hours, rng = Hours.of("hours", words), np.random.default_rng(0)
    week = hours.share * 7 * DAY
    begin = 1_700_000_000.0 + rng.uniform(0.0, 10 * 7 * DAY, 20_000)
    begin = hours.moments(hours.opened(begin)) if hours.zone else hours.moments(rng.uniform(0, week, 20_000))
    for open_gap in (600.0, 0.3 * DAY, 1.7 * week):
        length, share = hours.gaps(np.array([open_gap]))
        assert share.sum() == pytest.approx(1.0)
        assert (length * share).sum() == pytest.approx(open_gap / hours.share)
        if hours.zone is None:
            drawn = hours.moments(hours.opened(begin) + open_gap) - begin
            for power in (2, 3):
                mean, error = np.mean(drawn**power), np.std(drawn**power) / np.sqrt(len(drawn))
                assert abs((length**power * share).sum() - mean) < 5.0 * error + 1e-9 * mean


def test_hours_are_on_their_own_clock() -> None:
    hours = Hours.of("hours", "Mon-Fri 8:00-20:00 Europe/Berlin")
    summer, winter = (datetime(2026, month, 5, 6, 30, tzinfo=UTC).timestamp() for month in (8, 1))
    assert hours.allow(summer)
    assert not hours.allow(winter)
    assert hours.following(winter) == datetime(2026, 1, 5, 7, 0, tzinfo=UTC).timestamp()


def log_of(days: int = 60) -> fo.CrawlLog:
    rng = np.random.default_rng(3)
    names = [f"{kind}/{k}" for kind in ("news", "docs") for k in range(6)]
    rate = rng.lognormal(-1.5, 1.0, len(names))
    rows = [
        (name, day, rng.random() < -np.expm1(-own))
        for name, own in zip(names, rate, strict=True)
        for day in range(days)
    ]
    start = datetime(2026, 3, 2, tzinfo=UTC)
    source, day, changed = zip(*rows, strict=True)
    return fo.CrawlLog(source, [start + timedelta(days=d) for d in day], changed)


def test_a_plan_keeps_its_promises_and_their_price_is_right() -> None:
    log = log_of()
    promises = ["news/*: 95% younger than 16h", "97% less than 3d behind"]
    plain = fo.plan(log, bandwidth="15/day", draws=0)
    made = fo.plan(log, bandwidth="15/day", promise=promises, draws=0)
    news = np.array([str(name).startswith("news/") for name in log.names])
    assert np.all(1.0 - np.maximum(0.0, 1.0 - made.rates[news] * 16 / 24) >= 0.95 - 1e-12)
    only, behind, both = made.promises
    assert (only.sources, behind.sources) == (6, 12)
    assert only.needs == pytest.approx(6 * 0.95 * 1.5)
    extra = present(both.extra)
    assert extra >= max(present(only.extra), present(behind.extra)) > 0.0
    # With so much more the promised plan is as good as that without, and with less it is not.
    enough = fo.plan(log, bandwidth=15.0 + extra, promise=promises, draws=0)
    less = fo.plan(log, bandwidth=15.0 + 0.9 * extra, promise=promises, draws=0)
    assert enough.solution.value == pytest.approx(plain.solution.value, rel=1e-7)
    assert less.solution.value > plain.solution.value * (1.0 + 1e-6)
    assert [each["text"] for each in made.summary()["promises"]] == [*promises, "all 2 promises"]
    assert "Promised" in repr(made)


def test_a_promise_is_priced_where_fetches_cost_what_they_bring() -> None:
    log = log_of()
    given: dict[str, Any] = {"changed_cost": 3.0, "draws": 0}
    made = fo.plan(log, bandwidth=30.0, promise="news/*: 95% younger than 16h", **given)
    (price,) = made.promises
    plain = fo.plan(log, bandwidth=30.0, **given)
    news = np.array([str(name).startswith("news/") for name in log.names])
    least = np.where(news, 0.95 * 1.5, 0.0)
    assert price.needs == pytest.approx(np.sum(made.problem.used_by_source(least)), rel=1e-9)
    extra = present(price.extra)
    for more, worse in ((1.0, False), (0.9, True)):
        found = fo.plan(log, bandwidth=30.0 + more * extra, promise="news/*: 95% younger than 16h", **given)
        assert (found.solution.value > plain.solution.value * (1.0 + 1e-8)) is worse


@pytest.mark.parametrize("kind", ["Age", "HarmonicStaleness", "BinaryFreshness"])
@pytest.mark.parametrize("refresh", [fo.Refresh.PERIODIC, fo.Refresh.POISSON])
def test_a_price_takes_no_solve_at_endless_bandwidth(kind: str, refresh: fo.Refresh) -> None:
    objective = getattr(fo.problems, kind)(refresh)
    # At 1e100 rates may not be certified.
    change, weight = np.array([0.1, 0.5, 2.0, 9.0]), np.array([1.0, 5.0, 0.3, 2.0])
    least = np.array([0.0, 3.0, 2.0, 0.0])
    cost: Any = [0.0, 3.0, 50.0, 3.0]
    free, promised = (fo.Sources(change, weight, changed_cost=cost, min_rate=low) for low in (0.0, least))
    without = fo.solve(fo.Problem(objective, free, 40.0), tolerance=1e-9)
    bound = fo.Problem(objective, promised, LARGEST)
    extra = present(promise_price("x", least, bound, without).extra)
    for more, worse in ((1.0, False), (0.999, True)):
        found = fo.solve(bound.with_bandwidth(40.0 + more * extra), tolerance=1e-9)
        sign = 1.0 if objective.sense == "minimise" else -1.0
        assert (sign * (found.value - without.value) > 1e-8 * abs(without.value)) is worse


def test_the_cheapest_plan_and_a_freshness_go_with_promises() -> None:
    log = log_of()
    target = [fo.Target(fo.problems.BinaryFreshness(), at_least=0.6, name="fresh")]
    given: dict[str, Any] = {"objective": fo.Spend(), "constraints": target, "draws": 0}
    cheapest, bare = fo.plan(log, promise="always younger than 2d", **given), fo.plan(log, **given)
    extra = cheapest.solution.value - bare.solution.value
    assert cheapest.promises[0].extra == pytest.approx(extra, rel=1e-6)
    assert extra > 0.1
    fresh = fo.plan(log, freshness="80%", promise="docs/*: always younger than 1d", draws=0)
    alone = fo.plan(log, freshness="80%", draws=0)
    assert fresh.promises[0].extra == pytest.approx(fresh.problem.bandwidth - alone.problem.bandwidth)


def test_limits_of_groups_go_with_promises() -> None:
    log = log_of()
    kind = [str(name).partition("/")[0] for name in log.names]
    asked: dict[str, Any] = {"bandwidth": "15/day", "promise": "news/*: 95% younger than 20h", "draws": 0}
    ways = [
        fo.plan(log, constraints=[limit], **asked).promises[0]
        for limit in (
            fo.Nested([kind], at_most={"news": 8.0}),
            fo.Budget({"news": 8.0}, by=kind, name="kind"),
        )
    ]
    hosts: dict[str, Any] = {
        "hosts": dict(zip(log.names.tolist(), kind, strict=True)),
        "host_limits": {"news": 8.0},
    }
    assert present(ways[0].extra) > 0.0
    for one in ways:
        assert one.extra == pytest.approx(present(fo.plan(log, **asked, **hosts).promises[0].extra), rel=1e-6)
    tight = fo.Budget({"news": 5.0}, by=kind, name="kind")
    refused(
        "the limit of kind 'news'", fo.plan, log, constraints=[tight], **asked, error=InfeasibleProblemError
    )


def test_a_plan_within_hours_fetches_in_no_blackout() -> None:
    log = log_of()
    words = "workdays 8-20; not Wed 12-13"
    made = fo.plan(log, bandwidth="40/day", horizon="14d", hours=words, max_interval="3d", draws=0)
    clock = (log.end + made.schedule.time) + (datetime(2026, 3, 2).weekday())
    assert is_open(words, clock - log.clock.number(datetime(2026, 3, 2, tzinfo=UTC), "t")).all()
    assert len(made.schedule) == pytest.approx(14 * 40, rel=0.05)
    for k in range(len(made.rates)):
        assert np.diff(made.schedule.time[made.schedule.source == k]).max() <= 3.0 + 1e-9
    # The schedule's value counts the closed hours, which the long run's does not.
    assert made.schedule_value > made.solution.value


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"promise": "95 younger"}, "cannot be read"),
        ({"promise": "9.5.1% younger than 2h"}, "cannot be read"),
        ({"promise": "0% younger than 2h"}, "up to 100 %"),
        ({"promise": "95% younger than soon"}, "promise"),
        ({"promise": "blog/*: 95% younger than 2h"}, "no source is called 'blog/\\*'"),
        (
            {"promise": "95% younger than 1h", "bandwidth": "15/day"},
            r"what is promised needs .* or promise less \(most often: 'docs/0', each 1.05 hours\)",
        ),
        (
            {"promise": "95% younger than 1h", "bandwidth": "15/day", "max_interval": "9d"},
            "max_interval asks for",
        ),
        ({"promise": "95% younger than 1h", "max_rate": "1/day"}, "shorten the least"),
        ({"promise": "95% younger than 1h", "hours": "not 22-6"}, "out of reach"),
        ({"promise": "at 25:00 younger than 2h"}, "no time of day"),
        ({"promise": "at 7:00 on payday younger than 2h"}, "no day"),
        ({"promise": "at 7:00 Europe/Nowhere younger than 2h"}, "time_zone"),
        ({"promise": "fresh by 7:00 on workdays"}, "at 7:00 on workdays younger than 2h"),
        ({"promise": "at 7:00 younger than 2h", "success": 0.5}, "some fetches fail"),
        ({"promise": "at 7:00 younger than 2h", "hours": "not 22-6"}, "does not go with hours"),
        ({"promise": "at 7:00 younger than 2h", "objective": AT_RANDOM}, "nothing holds always"),
        ({"promise": "90% at 7:00 younger than 2h", "objective": AT_RANDOM}, "does not go with random times"),
        (
            {"promise": "at 7:00, 8:00 younger than 2h", "min_interval": "2h", "bandwidth": "40/day"},
            "closer to each other",
        ),
        ({"promise": ["at 7:00 younger than 2h", "news/*: 50% younger than 1d"]}, "several promises are of"),
        (
            {
                "promise": "at 7:00 younger than 2h",
                "host_gap": "2s",
                "hosts": dict.fromkeys([*log_of(2).names.tolist()], "a"),
            },
            "which moves fetches",
        ),
        ({"hours": "Mon-Fri 25:00-26:00"}, "no time of day"),
        ({"hours": "not daily"}, "no time at all"),
        ({"hours": "sometimes 8-9"}, "no day"),
        ({"hours": "8-9 Europe/Nowhere"}, "time_zone"),
        (
            {"hours": "8-9", "host_gap": "2s", "hosts": dict.fromkeys([*log_of(2).names.tolist()], "a")},
            "which moves fetches",
        ),
    ],
)
def test_what_cannot_be_promised_is_said(given: dict[str, Any], words: str) -> None:
    refused(words, fo.plan, log_of(20), draws=0, **given, error=(SourceDataError, InfeasibleProblemError))


def test_numbers_for_times_have_no_hours() -> None:
    log = fo.CrawlLog(["a", "a", "b", "b"], [0.0, 2.0, 0.0, 1.0], [0, 1, 0, 1])
    refused("Pass dates", fo.plan, log, hours="8-9", draws=0)
    refused("Pass dates", fo.plan, log, bandwidth=5.0, promise="at 8:00 younger than 1h", draws=0)


def test_what_is_to_be_fresh_by_seven_on_workdays_is_fetched_before() -> None:
    log = log_of(30)
    words = "news/*: at 7:00 on workdays younger than 2h"
    made = fo.plan(log, bandwidth="15/day", horizon="21d", promise=words, draws=0)
    news = np.array([str(name).startswith("news/") for name in log.names])
    assert made.promises[0].needs == pytest.approx(6 * 5 / 7)
    # A pattern at the beginning of a sentence is no word that gets a capital.
    assert made.summary()["promises"][0]["sentence"].startswith(f"“{words}”: ")
    clock, ages = made.schedule.time + log.end, []
    for k in np.flatnonzero(news):
        own = clock[made.schedule.source == k]
        moments = [day + 7 / 24 for day in range(int(log.end) + 1, int(log.end) + 20) if day % 7 < 5]
        ages.append([(moment - own[own <= moment].max()) * 24 for moment in moments])
        # As many fetches as its rate is, and none of the gaps is longer than a weekend.
        assert abs(len(own) - 21 * made.rates[k]) < 2.0
        assert np.diff(own).max() <= 3.0 + 1e-9
    assert np.max(ages) <= 2.0 + 1e-9
    # What changes more, weighed by importance, is fetched later.
    order = np.argsort(made.problem.sources.change_rate[news], kind="stable")
    assert np.all(np.diff(np.mean(ages, axis=1)[order]) < 0.0)
    # Gaps that differ cost more than equal ones, which the long run's value knows nothing of.
    assert made.schedule_value > made.solution.value


def test_appointments_keep_their_zone_least_interval_and_share() -> None:
    log = log_of(30)
    given: dict[str, Any] = {"horizon": "28d", "draws": 0}
    words = "docs/*: 90% by 6:00, 18:00 Europe/Berlin on Mon-Thu younger than 90min"
    # In the night to March 29 clocks go forward: 6:00 is 5:00 UTC before, and 4:00 after.
    made = fo.plan(log_of(20), bandwidth="90/day", promise=words, success=0.6, **given)
    moments = [
        np.datetime64(f"2026-{month:02}-{day:02}T{hour:02}:00")
        for month, day, summer in ((3, 26, False), (3, 30, True), (4, 2, True))
        for hour in (5 - summer, 17 - summer)
    ]
    start = made.schedule.start
    assert start is not None
    for moment in moments:
        end = (moment - start) / np.timedelta64(1, "us") / 86_400e6
        found = np.bincount(made.schedule.between(end - 1.5 / 24, end).source, minlength=12)
        # Two attempts of .6 succeed with .84, three with .936.
        assert np.all(found[[str(name).startswith("docs/") for name in log.names]] >= 3)
    apart = fo.plan(
        log, bandwidth="9/day", promise="at 7:00 on Mon, Wed younger than 1d", min_interval="20h", **given
    )
    for k in range(12):
        assert np.diff(apart.schedule.time[apart.schedule.source == k]).min() >= 20 / 24 - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_spare_fetches_leave_the_longest_interval_shortest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    gap = rng.lognormal(0.0, 2.0, (20, 7))
    fetches = 7.0 + rng.lognormal(0.0, 3.0, 20) * rng.integers(0, 2, 20)
    spare = spare_fetches(gap, fetches)
    np.testing.assert_allclose(np.sum(1.0 + spare, axis=1), fetches, rtol=1e-12)
    for k in range(20):
        low, high = 1e-12, float(gap[k].max())
        for _ in range(200):
            middle = 0.5 * (low + high)
            enough = np.maximum(gap[k] / middle, 1.0).sum() <= fetches[k]
            low, high = (low, middle) if enough else (middle, high)
        np.testing.assert_allclose(spare[k], np.maximum(gap[k] / high, 1.0) - 1.0, atol=1e-9, rtol=1e-9)


def test_a_plan_within_hours_tells_how_fresh_copies_are_with_the_closed_ones() -> None:
    """Daily on workdays is five gaps a week: four of a day, and one of three."""
    made = fo.plan(log_of(), bandwidth="99/day", hours="workdays", max_rate=1.0, draws=0)
    change = made.sources.change_rate
    assert made.solution.rates == pytest.approx(5 / 7)
    fresh = float(np.mean(-(4.0 * np.expm1(-change) + np.expm1(-3.0 * change)) / (7.0 * change)))
    told = made.summary()
    assert told["fresh_within_hours"] == pytest.approx(fresh, rel=1e-12)
    assert told["fresh_within_hours"] < told["fresh"] - 0.01
    assert f"Within your hours {100 * fresh:.3g} % of the time up to date" in " ".join(repr(made).split())
    spread = present(load(Context.of(Facts(Path("summary.json"), told)))).sentence
    assert "at equal intervals within workdays" in spread
    assert "fresh_within_hours" not in fo.plan(log_of(), bandwidth="99/day", draws=0).summary()
