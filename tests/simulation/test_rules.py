"""Rules of crawlers, held to what their programs compute: transcribed one source at a time, not in arrays."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest

import freshopt as fo
from freshopt.simulation.rules import (
    RULES,
    BackOff,
    FixedInterval,
    Miniflux,
    Nutch,
    Rule,
    RuleCrawls,
    StormCrawler,
    replay_rule,
    rule_crawls,
    rules_of,
    settling,
)
from freshopt.simulation.rules.rule import require_settings
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

DAY = 86400.0
# Times of changes of a source in days, and the end of its record.
Changes = list[float]


def drawn(seed: int, rate: float, days: float) -> Changes:
    rng = np.random.default_rng(seed)
    return [float(each) for each in np.sort(rng.random(rng.poisson(rate * days)) * days)]


def world(*sources: Changes, end: float, unit: str = "day") -> fo.World:
    source = [k for k, own in enumerate(sources) for _ in own]
    time = [moment for own in sources for moment in own]
    n = len(sources)
    return fo.World.from_events(
        {"source": source, "time": time}, names=np.arange(n), start=0.0, horizon=end, time_unit=unit
    )


def nutch_in_java(increase: float, decrease: float, rate: float, most: float) -> Callable[..., float]:
    """CrawlDbReducer with AdaptiveFetchSchedule: milliseconds as longs, intervals as floats of 32 bits."""
    state: dict[str, Any] = {"interval": np.float32(30 * DAY), "modified": 0, "signature": True}

    def gap_after(changed: bool, moment: float, _: float) -> float:
        now, interval, modified = round(moment * DAY * 1000), state["interval"], state["modified"]
        modified = now if modified is None else modified
        if state["signature"]:
            if changed:
                interval, modified = np.float32(interval * np.float32(1 - decrease)), now
            else:
                interval = np.float32(interval * np.float32(1 + increase))
        else:
            modified = now
        reference = now
        if rate > 0.0:
            delta = (now - modified) // 1000
            if delta > interval:
                interval = np.float32(delta)
            reference = now - round(delta * rate * 1000)
        interval = np.float32(min(max(interval, 60.0), 365 * DAY))
        due = reference + round(float(interval) * 1000)
        state.update(interval=interval, modified=modified, signature=True)
        if interval > most:
            # forceRefetch: 0.9 of the largest interval, no signature, no modified time.
            state.update(interval=np.float32(most * 0.9), modified=None, signature=False)
        return min((due - now) / 1000.0, most)

    return gap_after


def stormcrawler_in_java(least: int, most: int, increase: float, decrease: float, first: int) -> Any:  # noqa: ANN401
    state = {"interval": first}

    def gap_after(changed: bool, *_: float) -> float:
        one, interval = np.float32(1.0), state["interval"]
        if changed:
            part = (one - np.float32(decrease)) * np.float32(interval)
            interval = int(part + np.float32(decrease) * np.float32(least))
        else:
            interval = min(int(np.float32(interval) * (one + np.float32(increase))), most)
        state["interval"] = interval
        return 60.0 * interval

    return gap_after


def miniflux_in_go(changes: Changes) -> Callable[..., float]:
    def gap_after(_: bool, moment: float, before: float) -> float:
        # Stored are the entries that earlier checks found; the query takes those of the last week.
        entries = changes[bisect_left(changes, moment - 7.0) : bisect_right(changes, before)]
        if len(entries) < 2 or entries[-1] == entries[0]:
            return DAY
        weekly = math.ceil(604800.0 / ((entries[-1] - entries[0]) * DAY / (len(entries) - 1)))
        return min(max(604800.0 / weekly, 300.0), DAY)

    return gap_after


def back_off() -> Callable[..., float]:
    state = {"gap": 3600.0}

    def gap_after(changed: bool, *_: float) -> float:
        state["gap"] = 3600.0 if changed else min(2.0 * state["gap"], 30.0 * DAY)
        return state["gap"]

    return gap_after


def programs(changes: Changes) -> Iterator[tuple[str, Rule, Callable[..., float], float, float]]:
    """Name, rule, transcription, first gap, and by how much gaps may differ for their units (seconds)."""
    yield "nutch", Nutch(), nutch_in_java(0.4, 0.2, 0.3, 90 * DAY), 30 * DAY, 3.0
    yield "no shift", Nutch(shift=0.0), nutch_in_java(0.4, 0.2, 0.0, 90 * DAY), 30 * DAY, 3.0
    code = Nutch(increase=0.2, shift=0.2, most=np.inf)
    yield "code", code, nutch_in_java(0.2, 0.2, 0.2, np.inf), 30 * DAY, 3.0
    yield "stormcrawler", StormCrawler(), stormcrawler_in_java(60, 20160, 0.5, 0.5, 1440), DAY, 1e-3
    news = stormcrawler_in_java(90, 129600, 0.5, 0.2, 720)
    yield "news-crawl", RULES["news-crawl"], news, DAY / 2.0, 1e-3
    yield "miniflux", Miniflux(), miniflux_in_go(changes), DAY, 1e-3
    yield "backoff", BackOff(), back_off(), 3600.0, 1e-3
    yield "changedetection", FixedInterval(), lambda *_: 10800.0, 10800.0, 1e-3


@pytest.mark.parametrize("rate", [0.0, 0.003, 0.05, 0.7, 6.0])
def test_each_gap_is_that_of_the_program(rate: float) -> None:
    """Given what the fetches before found, of one source among others."""
    end = 250.0 if rate < 0.1 else 50.0
    own = drawn(round(1000 * rate), rate, end)
    together = world(drawn(1, 0.2, end), own, drawn(2, 0.02, end), end=end)
    for name, rule, program, first, within in programs(own):
        crawls = rule_crawls(rule, together, end)
        mine = crawls.time[crawls.source == 1]
        missed = np.diff(np.searchsorted(own, mine, side="right"))
        assert crawls.changed[crawls.source == 1].tolist() == [False, *(missed > 0).tolist()], name
        gaps, steps = [first], zip(missed.tolist(), pairwise(mine.tolist()), strict=True)
        gaps += [program(many > 0, moment, before) for many, (before, moment) in steps]
        assert DAY * np.diff(mine) == pytest.approx(gaps[:-1], rel=1e-6, abs=within), name
        assert mine[-1] + gaps[-1] / DAY > end, name


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_the_same_alone_and_in_another_unit(name: str) -> None:
    own, end = drawn(4, 0.4, 60.0), 60.0
    together = rule_crawls(RULES[name], world(drawn(1, 2.0, end), own, end=end), end)
    hours = world([24.0 * each for each in own], end=24.0 * end, unit="hour")
    alone = rule_crawls(RULES[name], hours, 24.0 * end)
    mine = together.source == 1
    # Where a change falls at a fetch, rounding decides: the times agree before.
    assert alone.time[:40] / 24.0 == pytest.approx(together.time[mine][:40], rel=SCALAR)
    assert alone.interval[:40] / 24.0 == pytest.approx(together.interval[mine][:40], rel=SCALAR)


def test_nutch_fetches_a_page_that_never_changes_blindly_every_other_time() -> None:
    """By hand: 30; 42 - .3·30; 63 - .3·63; 107.1 - .3·107.1, beyond 90 days; then 81 and 1.4·81 - .3·81."""
    gaps = np.diff(rule_crawls(Nutch(), world([], end=600.0), 600.0).time)
    assert gaps[:8] == pytest.approx([30.0, 33.0, 44.1, 74.97, 81.0, 89.1, 81.0, 89.1], rel=EXACT)
    # The change before the blind fetch at 182.07 days is not noticed: there is nothing to compare with.
    changed = rule_crawls(Nutch(), world([150.0], end=600.0), 600.0)
    assert np.diff(changed.time)[:6] == pytest.approx(gaps[:6], rel=EXACT)


def test_failed_fetches_are_tried_again_as_the_programs_do() -> None:
    """The second and third fetch of each find no answer."""

    def two_fail(rule: Rule) -> list[float]:
        count = {"of": 0}

        def answered(source: np.ndarray, _: np.ndarray) -> np.ndarray:
            count["of"] += 1
            return np.full(len(source), count["of"] not in (2, 3))

        times = rule_crawls(rule, world([], end=200.0), 200.0, answered).time
        return [float(each) for each in np.diff(times)]

    assert two_fail(Nutch())[:4] == pytest.approx([30.0, 33.0, 1.0, 1.0], rel=EXACT)
    # An error makes StormCrawler forget its interval: the next answer begins with a day again.
    assert two_fail(StormCrawler())[:6] == pytest.approx([1.0, 1.5, 1 / 12, 1 / 12, 1.0, 1.5], rel=EXACT)
    assert two_fail(FixedInterval())[:4] == pytest.approx([0.125] * 4, rel=EXACT)
    assert two_fail(BackOff())[:5] == pytest.approx(np.array([1.0, 2.0, 2.0, 2.0, 4.0]) / 24.0, rel=EXACT)


def test_a_change_that_a_failed_fetch_missed_is_found_by_the_next() -> None:
    found = rule_crawls(FixedInterval(DAY), world([1.5], end=5.0), 5.0, lambda _, time: time != 2.0)
    assert found.changed.tolist() == [False, False, False, True, False, False]


def test_first_gaps_end_at_random_with_a_seed() -> None:
    many = world(*[[]] * 400, end=3.0)
    one, other, same = (rule_crawls(FixedInterval(DAY), many, 3.0, seed=seed) for seed in (1, 2, 1))
    assert np.array_equal(one.time, same.time)
    assert not np.array_equal(one.time, other.time)
    second = one.time[1:][np.diff(one.source) == 0][::3]
    assert 0.0 < second.min() < second.max() < 1.0
    assert abs(float(second.mean()) - 0.5) < 4.0 * math.sqrt(1.0 / 12.0 / 400.0)


def test_a_replayed_rule_costs_what_its_fetches_cost() -> None:
    """Against the sum over changes: each makes the copy stale until the next fetch."""
    end, skip = 300.0, 100.0
    own = drawn(5, 0.1, end), drawn(6, 1.0, end)
    here = world(*own, end=end)
    found = replay_rule(StormCrawler(), here, skip=skip, importance=[1.0, 3.0], seed=4)
    crawls, stale = rule_crawls(StormCrawler(), here, end, seed=4), []
    for k, changes in enumerate(own):
        edges = [*crawls.time[crawls.source == k].tolist(), np.inf]
        total = 0.0
        for a, b in pairwise(edges):
            first = min((each for each in changes if a < each <= b), default=np.inf)
            total += max(0.0, min(b, end) - max(first, skip))
        stale.append(total / (end - skip))
    assert found.costs["binary"].mean == pytest.approx(1.0 - (stale[0] + 3.0 * stale[1]) / 4.0, rel=SCALAR)
    assert found.refreshes == np.count_nonzero(crawls.time > skip)


def test_intervals_settle_where_they_reach_those_to_come() -> None:
    """By hand: 1, 2, 4, 8, then 8 for ever: within a fifth of 8 at the fourth fetch, 3 after the first."""
    interval = np.array([1.0, 2.0, 4.0, *[8.0] * 9])
    crawls = RuleCrawls(np.zeros(12, np.int64), np.arange(12.0), np.zeros(12, bool), interval)
    assert settling(crawls, 1, 5.0) == (3.0, 6.0)
    # A source with three fetches after the moment tells nothing.
    assert np.isnan(settling(crawls, 1, 8.0)).all()
    # The mean of those to come counts: of 8 (five times), 4, 2 and 1 it is 4.76.
    falling = crawls._replace(interval=crawls.interval[::-1])
    assert settling(falling, 1, 3.5)[0] == 9.0


def test_rules_are_named_or_given() -> None:
    assert list(rules_of("compare_rule", "nutch")) == ["nutch"]
    assert rules_of("compare_rule", ["6h", "miniflux"])["every 6h"] == FixedInterval(21600.0)
    mine = {"ours": StormCrawler(longest=7 * DAY)}
    assert rules_of("compare_rule", mine) == mine
    assert rules_of("compare_rule", []) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nutchh", r"compare_rule is 'nutchh'\. Did you mean 'nutch'\? Pass one of nutch, "),
        (["nutch", 7], "compare_rule is 7"),
        (None, "compare_rule is None"),
        ("6 parsecs", "compare_rule"),
        ("0h", "compare_rule"),
        ("1e-9s", r"the rule 'every 1e-9s' has first=1e-09\. Pass a number from 1\."),
        ({"mine": 3}, "has int as 'mine', which is no rule"),
        ({"mine": Nutch(shift=1.0)}, r"the rule 'mine' has shift=1\.0\. Pass a number from 0 to 0\.99\."),
        ({"mine": Nutch(increase=math.nan)}, "increase=nan"),
        ({"mine": BackOff(factor=0.5)}, "factor=0.5"),
        ({"mine": FixedInterval(cast(Any, "1h"))}, "first='1h'"),
    ],
)
def test_what_is_no_rule_is_named(given: Any, words: str) -> None:  # noqa: ANN401
    refused(words, rules_of, "compare_rule", given)


def test_every_named_rule_has_settings_that_may_be() -> None:
    for name, rule in RULES.items():
        require_settings(name, rule)


def test_too_many_fetches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshopt.simulation.rules.rule.MOST_CRAWLS", 100)
    refused("too many to replay one by one", rule_crawls, FixedInterval(60.0), world([], end=9.0), 9.0)
    monkeypatch.setattr("freshopt.simulation.rules.rule.MOST_CRAWLS", 10**6)
    monkeypatch.setattr("freshopt.simulation.rules.rule.MOST_STEPS", 100)
    refused("too many to replay one by one", rule_crawls, FixedInterval(60.0), world([], end=9.0), 9.0)
