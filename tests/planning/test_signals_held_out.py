"""Back-tests with signals: what is learnt before, what is followed, what crawls hid, and the words for it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.noisy_signals import noisy_signals
from freshopt.noisy_signals.signal_table import SignalTable
from freshopt.noisy_signals.with_signals import learnt_signals, rule_of, with_signals
from freshopt.planning.known_changes import drawn_with_signals, known_changes
from freshopt.planning.policy_cost import PolicyCost
from freshopt.problems import BinaryFreshness
from freshopt.simulation.crawler import SimulatedCrawler
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import EXACT, SCALAR

N, DAYS, BANDWIDTH = 100, 160.0, 20.0
RECALL, PRECISION = 0.7, 0.8
Floats = npt.NDArray[np.float64]


class Given(NamedTuple):
    """A log at random times, its signals, and all changes."""

    log: fo.CrawlLog
    signals: pl.DataFrame
    history: fo.ChangeHistory


@pytest.fixture(scope="module")
def given() -> Given:
    rng = np.random.default_rng(0)
    world = fo.World.poisson(fo.Sources(rng.gamma(1.0, 0.2, N) + 0.01), seed=1)
    time = np.sort(rng.uniform(0.0, DAYS, N * 40))
    source = rng.integers(0, N, len(time))
    log = fo.CrawlLog(source, time, SimulatedCrawler(world).refresh(source, time))
    who, when = noisy_signals(world, RECALL, PRECISION, DAYS, seed=3)
    offsets, events = world.events(0.0, DAYS)
    frame = pl.DataFrame({"source": np.repeat(np.arange(N), np.diff(offsets)), "time": events})
    history = fo.ChangeHistory.from_frame(frame, names=np.arange(N), start=0.0, end=DAYS)
    return Given(log, pl.DataFrame({"source": who, "time": when, "kind": "sitemap"}), history)


def held_out(given: Given, **more: Any) -> fo.BackTest:  # noqa: ANN401 - as backtest
    asked: dict[str, Any] = {"objective": "binary", "load_limit": 1.0, "signals": given.signals, **more}
    return fo.backtest(given.log, BANDWIDTH, **asked)


def row(found: fo.BackTest, policy: str) -> PolicyCost:
    return next(each for each in found.means if each.policy == policy)


@pytest.fixture(scope="module")
def known(given: Given) -> fo.BackTest:
    return held_out(given, history=given.history, splits=1)


def followed(rule: fo.noisy_signals.SignalThresholds, times: Floats, last: float, end: float) -> Floats:
    """The crawls of one source, step by step, by the rule as it is written down."""
    crawls, events = [], [*times.tolist(), np.inf]
    while events:
        heard = 0
        while True:
            due = last + float(rule.wait[0] + (rule.signals[0] - heard) * rule.bonus[0])
            signal = events[0] if events else np.inf
            if due < signal:
                break
            heard, due, events = heard + 1, signal, events[1:]
            if signal - last >= float(rule.wait[0] + (rule.signals[0] - heard) * rule.bonus[0]):
                break
        if not due < end:
            break
        crawls.append(due)
        last = due
    return np.array(crawls)


def test_a_rule_goes_on_from_the_last_crawls() -> None:
    rule = fo.noisy_signals.SignalThresholds([2.0], [0.5], [1.0])
    times = np.sort(np.random.default_rng(2).uniform(-3.0, 40.0, 60))
    _, time = rule.crawls(np.zeros(60, np.int64), times, 40.0, last=-3.0)
    assert time.tolist() == pytest.approx(followed(rule, times, -3.0, 40.0).tolist(), rel=EXACT)
    waits = fo.noisy_signals.SignalWaits([[2.5, 1.5, 0.5]])
    assert waits.crawls(np.zeros(60, np.int64), times, 40.0, last=-3.0)[1].tolist() == time.tolist()
    for wrong in (np.nan, np.inf, 40.0):
        refused("after the last crawls", rule.crawls, [], [], 40.0, last=wrong)


def test_the_held_out_crawls_are_those_of_what_was_learnt_before(given: Given, known: fo.BackTest) -> None:
    """Rates, recall, precision of the first half; the rule on the signals of the second, by hand."""
    early = given.log.time <= known.begin
    log = fo.CrawlLog(given.log.source_index[early], given.log.time[early], given.log.changed[early])
    learnt = learnt_signals(log, SignalTable.of(log, given.signals), None)
    sources = fo.Sources(learnt.change_rate_)
    objective = with_signals(BinaryFreshness(), learnt.recall_, learnt.precision_)
    rates = fo.solve(fo.Problem(objective, sources, BANDWIDTH), tolerance=1e-9).rates
    rule = rule_of(objective, rates, sources)
    assert isinstance(rule, fo.noisy_signals.SignalThresholds)
    stale, some, rng = 0.0, np.arange(25), np.random.default_rng(8)
    who, when = given.signals["source"].to_numpy(), given.signals["time"].to_numpy()
    begin, end, world = known.begin, known.end, known_changes(given.history)
    for k in some.tolist():
        own = fo.noisy_signals.SignalThresholds(rule.signals[[k]], rule.wait[[k]], rule.bonus[[k]])
        wait = float(own.threshold[0])
        many = 40 if wait < np.inf else 1
        for _ in range(many):
            crawls = followed(own, when[who == k], -rng.random() * wait if wait < np.inf else 0.0, end)
            ends = (
                fo.simulation.missed_costs(world, np.full(len(crawls), k), crawls, at) for at in (end, begin)
            )
            late, early_on = (float(costs.stale[k]) for costs in ends)
            stale += (late - early_on) / many
    mean = known.details.per_source["with signals"][some] * (end - begin)
    # Both are means over phases, of 9 and of 40.
    assert stale == pytest.approx(float(np.sum(mean)), rel=0.04)
    assert row(known, "with signals").predicted == pytest.approx(
        fo.solve(fo.Problem(objective, sources, BANDWIDTH)).value, rel=SCALAR
    )


def test_nothing_of_the_held_out_time_is_learnt(given: Given, known: fo.BackTest) -> None:
    """Other signals in the second half change the crawls there, and nothing that was planned."""
    late = pl.col("time") > known.begin
    moved = given.signals.with_columns(
        time=pl.when(late).then(DAYS + known.begin - pl.col("time")).otherwise("time")
    )
    other = held_out(Given(given.log, moved, given.history), history=given.history, splits=1)
    own, same = row(known, "with signals"), row(other, "with signals")
    assert same.predicted == own.predicted
    assert same.realised < own.realised - 5.0 * own.error / np.sqrt(2.0)
    assert row(other, "plan").facts() == row(known, "plan").facts()
    # What comes too late to be heard is as good as no signal.
    assert same.realised == pytest.approx(row(known, "plan").realised, rel=0.25)


def test_they_save_what_a_plan_of_as_many_crawls_does_not(given: Given, known: fo.BackTest) -> None:
    own, plan = row(known, "with signals"), row(known, "plan at with signals")
    assert plan.refreshes == pytest.approx(own.refreshes, rel=SCALAR)
    assert own.refreshes == pytest.approx(BANDWIDTH, rel=0.05)
    assert own.predicted == pytest.approx(own.realised, abs=4.0 * own.error)
    assert own.saving == pytest.approx(1.0 - (N - own.realised) / (N - plan.realised), rel=1e-6)
    assert present(own.saving) > 5.0 * present(own.saving_error)
    needed = known.rules["with signals"].needed
    again = fo.backtest(
        given.log, needed, history=given.history, objective="binary", load_limit=1.0, splits=1
    )
    assert N - again.means[0].realised == pytest.approx(N - own.realised, rel=1.001e-3)
    assert needed > 1.5 * own.refreshes
    assert "following signals saves" in known.verdict
    # All other rows are those of a back-test without signals.
    plain = held_out(given, signals=None, history=given.history, splits=1)
    others = [each for each in known.means if "with signals" not in each.policy]
    assert [each.facts() for each in others] == [each.facts() for each in plain.means]
    assert plain.rules == {}


def test_plans_made_again_heed_signals(given: Given, known: fo.BackTest) -> None:
    """Rules learnt again from their own crawls do as well, and from a short log better."""
    again = held_out(given, history=given.history, splits=1, every="20d")
    own, once = row(again, "re-planned with signals"), row(known, "with signals")
    assert row(again, "with signals").facts() == once.facts()
    assert own.refreshes == pytest.approx(BANDWIDTH, rel=0.08)
    assert N - own.realised == pytest.approx(N - once.realised, rel=0.1)
    beside = row(again, "plan at re-planned with signals")
    assert beside.refreshes == pytest.approx(own.refreshes, rel=SCALAR)
    assert present(own.saving) > 0.2
    assert "following signals and re-planning every 20 days saves" in again.verdict
    # One period is no other plan: but for the phases it is what follows signals.
    single = row(held_out(given, history=given.history, splits=1, every="80d"), "re-planned with signals")
    assert single.realised == pytest.approx(once.realised, rel=0.02)
    refused("every is", held_out, given, history=given.history, splits=1, every="1s")


def test_a_log_alone_tells_as_much_as_all_changes(given: Given, known: fo.BackTest) -> None:
    """Changes that crawls hid are drawn given the signals: else most would come after their crawls."""
    alone = row(held_out(given, splits=1), "with signals")
    own = row(known, "with signals")
    assert N - alone.realised == pytest.approx(N - own.realised, abs=3.0 * own.error)
    assert alone.saving == pytest.approx(own.saving, abs=0.06)


@pytest.mark.exhaustive
def test_each_bandwidth_has_its_rows(given: Given) -> None:
    found = fo.backtest(
        given.log,
        [BANDWIDTH, 0.5 * BANDWIDTH],
        history=given.history,
        objective="harmonic",
        signals=given.signals,
        load_limit=1.0,
        splits=2,
    )
    rows = [each for each in found.means if each.policy.endswith("with signals")]
    assert [each.policy for each in rows] == ["with signals", "plan at with signals"] * 2
    assert [each.refreshes for each in rows[::2]] == pytest.approx([20.0, 10.0], rel=0.06)
    assert [each.refreshes for each in rows[1::2]] == pytest.approx(
        [e.refreshes for e in rows[::2]], rel=1e-6
    )
    assert all(each.saving is not None and each.saving > 0.1 for each in rows[::2])
    assert found.facts()["held_out"]["rules"][0]["used"] == pytest.approx(rows[0].refreshes, rel=1e-9)
    assert "following signals saves" in found.verdict


def test_signals_without_news_leave_the_plan(given: Given) -> None:
    rng = np.random.default_rng(4)
    noise = pl.DataFrame({"source": rng.integers(0, N, 900), "time": rng.uniform(0.0, DAYS, 900)})
    found = held_out(given._replace(signals=noise), history=given.history, splits=1)
    plan, own = row(found, "plan"), row(found, "with signals")
    assert own.realised == plan.realised
    assert own.saving == pytest.approx(0.0, abs=1e-9)


@pytest.mark.exhaustive
def test_least_rates_are_compared_at_the_bandwidth(given: Given) -> None:
    found = held_out(given, history=given.history, splits=1, max_interval="60d")
    own, plan = row(found, "with signals"), row(found, "plan")
    assert "plan at with signals" not in {each.policy for each in found.means}
    assert own.saving == pytest.approx(1.0 - (N - own.realised) / (N - plan.realised), rel=1e-6)


def likely(rate: float, p: float, many: int, gap: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Changes of intervals with signals at a third and two thirds, those without any thrown away."""
    silent = rng.poisson(rate * gap, many)
    true = rng.random((many, 2)) < p
    some = (silent > 0) | true.any(axis=1)
    place = np.where(true, gap * np.array([1.0, 2.0]) / 3.0, -np.inf)
    latest = np.array([max([*rng.uniform(0.0, gap, n), -np.inf]) for n in silent.tolist()])
    return (silent + true.sum(axis=1))[some], np.maximum(latest, place.max(axis=1))[some]


@pytest.mark.parametrize(("rate", "p"), [(0.2, 0.3), (1.5, 0.6), (1e-6, 0.9)])
def test_changes_are_drawn_given_signals(rate: float, p: float) -> None:
    """Against Poisson changes and coins of which those without a change are thrown away."""
    days, rng = 4000, np.random.default_rng(5)
    time = np.arange(days + 1.0)
    log = fo.CrawlLog([0] * (days + 1), time, np.append(0.0, np.ones(days)))
    places = np.sort(np.concatenate([time[:-1] + 1.0 / 3.0, time[:-1] + 2.0 / 3.0]))
    table = SignalTable.of(log, pl.DataFrame({"source": [0] * len(places), "time": places}))
    heard = SimpleNamespace(signals_=table, precision_=np.array([p]), silent_rate_=np.array([rate]))
    drawn = drawn_with_signals(log, heard, np.array([rate]), 1)  # type: ignore[arg-type]
    moments = drawn.events(-np.inf, np.inf)[1]
    own = np.searchsorted(time, moments) - 1
    many = np.bincount(own, minlength=days)
    assert many.min() >= 1
    last = np.full(days, -np.inf)
    np.maximum.at(last, own, moments - time[own])
    counts, latest = likely(rate, p, 100_000, 1.0, rng)
    for found, true in ((many, counts), (last, latest), (last > 0.67, latest > 0.67)):
        error = np.std(true) * np.sqrt(1.0 / days + 1.0 / len(true))
        assert float(np.mean(found)) == pytest.approx(float(np.mean(true)), abs=4.0 * error + 1e-12)
    # A change at a signal is at its very moment, so that a crawl there comes after it.
    at = np.isin(moments, places)
    assert np.mean(at) == pytest.approx(2.0 * p / (2.0 * p + rate), abs=0.03)
    # As found there is one change, at the median of the last.
    found = known_changes(log, heard).events(-np.inf, np.inf)[1]  # type: ignore[arg-type]
    assert np.median(latest) == pytest.approx(float(np.mean(found - time[:-1])), abs=0.02)


def test_counts_and_dates_are_kept_beside_signals() -> None:
    days, rng = 3000, np.random.default_rng(6)
    time, p, rate = np.arange(days + 1.0), 0.6, 0.8
    true = rng.random((days, 2)) < p
    silent = rng.poisson(rate, days)
    counts = np.append(0, silent + true.sum(axis=1))
    log = fo.CrawlLog([0] * (days + 1), time, counts > 0, changes=counts)
    places = np.sort(np.concatenate([time[:-1] + 0.25, time[:-1] + 0.75]))
    table = SignalTable.of(log, pl.DataFrame({"source": [0] * len(places), "time": places}))
    heard = SimpleNamespace(signals_=table, precision_=np.array([p]), silent_rate_=np.array([rate]))
    drawn = drawn_with_signals(log, heard, np.array([rate]), 2)  # type: ignore[arg-type]
    moments = drawn.events(-np.inf, np.inf)[1]
    own = np.searchsorted(time, moments) - 1
    np.testing.assert_array_equal(np.bincount(own, minlength=days), counts[1:])
    at = float(np.mean(np.isin(moments, places)))
    assert at == pytest.approx(2.0 * p / (2.0 * p + rate), abs=0.03)
    dates = np.append(np.nan, time[1:] - 0.5)
    log = fo.CrawlLog([0] * (days + 1), time, np.append(0.0, np.ones(days)), last_modified=dates)
    heard.signals_ = SignalTable.of(log, pl.DataFrame({"source": [0] * len(places), "time": places}))
    moments = drawn_with_signals(log, heard, np.array([rate]), 3).events(-np.inf, np.inf)[1]  # type: ignore[arg-type]
    own = np.searchsorted(time, moments) - 1
    last = np.full(days, -np.inf)
    np.maximum.at(last, own, moments - time[own])
    np.testing.assert_array_equal(last, 0.5)
    # Before the date a signal was true as often as any, and other changes came at their rate.
    assert len(moments) / days - 1.0 == pytest.approx(p + 0.5 * rate, abs=0.06)


def test_console_page_and_summary_have_the_row(given: Given, tmp_path: Path) -> None:
    few = pl.col("source") < 30
    given.log.to_frame().filter(few).write_csv(tmp_path / "log.csv")
    given.signals.filter(few).write_csv(tmp_path / "signals.csv")
    words = ["plan", str(tmp_path / "log.csv"), "--signals", str(tmp_path / "signals.csv"), "--replay"]
    words += [
        "--details",
        "--objective",
        "binary",
        "--load-limit",
        "1",
        "-b",
        "6/day",
        "--csv",
        "--draws",
        "0",
    ]
    ran = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "plan")])
    assert ran.exit_code == 0, ran.output
    summary = json.loads((tmp_path / "plan/summary.json").read_text(encoding="utf-8"))["held_out"]
    page, told = (tmp_path / "plan/report.html").read_text(encoding="utf-8"), " ".join(ran.output.split())
    rule = next(each for each in summary["rules"] if each["rule"] == "with signals")
    saves = 1.0 - rule["used"] / rule["needed"]
    sentence = (
        f"bandwidth of {rule['needed']:.4g} in place of {rule['used']:.4g}: they save {100 * saves:.3g} %"
    )
    for text in (page, told):
        assert "planned, following signals" in text
        assert "following signals saves" in text
        assert sentence in text
    assert "planned rates at as many fetches as with signals" in page
    each = pl.read_csv(tmp_path / "plan/held_out.csv")
    assert float(each["with signals"].mean()) < float(each["plan"].mean())  # type: ignore[arg-type]
