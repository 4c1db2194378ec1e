"""Rules that crawlers run, in a back-test, a replay and on the page."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.logs import ChangeHistory
from freshopt.simulation.rules import FixedInterval, StormCrawler, replay_rule, rule_crawls
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

RATES = np.array([0.01, 0.03, 0.1, 0.1, 0.4, 1.5])
FRESH = fo.problems.BinaryFreshness(fo.Refresh.PERIODIC)
DAYS = 300.0


@pytest.fixture(scope="module")
def history() -> ChangeHistory:
    rng = np.random.default_rng(3)
    many = rng.poisson(RATES * DAYS)
    source = np.repeat(np.arange(len(RATES)), many)
    return ChangeHistory(source, rng.uniform(0.0, DAYS, many.sum()), 0.0, DAYS, names=np.arange(len(RATES)))


@pytest.fixture(scope="module")
def held(history: ChangeHistory) -> fo.BackTest:
    return fo.backtest(
        history.to_log(2.0),
        3.0,
        history=history,
        objective=FRESH,
        splits=2,
        compare_rule=["stormcrawler", "6d"],
    )


def test_a_rule_is_measured_in_what_came_beside_a_plan_of_as_many_fetches(
    history: ChangeHistory, held: fo.BackTest
) -> None:
    """Its fetches are those of the rule in the whole record; its freshness is theirs there."""
    world = _world(history)
    for name, rule in (("stormcrawler", StormCrawler()), ("every 6d", FixedInterval(6 * 86400.0))):
        row, plan = (next(r for r in held.means if r.policy == p) for p in (name, f"plan at {name}"))
        own = replay_rule(rule, world, skip=held.begin, end=held.end, seed=0)
        assert row.realised == pytest.approx(own.costs["binary"].value, rel=SCALAR)
        assert row.fresh == pytest.approx(own.costs["binary"].mean, rel=SCALAR)
        assert row.refreshes * (held.end - held.begin) == pytest.approx(own.refreshes, rel=EXACT)
        assert row.predicted is None
        assert plan.refreshes == pytest.approx(row.refreshes, rel=SCALAR)
        assert row.saving is not None
    assert f"rule {name} at as many crawls" in held.verdict
    # Its fetches begin with the record, not with the windows.
    counts = [np.bincount(rule_crawls(StormCrawler(), world, end, seed=0).source) for end in (150.0, 225.0)]
    before = np.mean([np.median(each) for each in counts])
    assert held.rules["stormcrawler"].before == pytest.approx(before)
    assert held.rules["every 6d"].settled == 0.0
    assert 2.0 <= held.rules["stormcrawler"].settled <= 20.0


def test_the_plan_costs_as_much_with_what_it_is_said_to_need(history: ChangeHistory) -> None:
    log = history.to_log(2.0)
    asked: dict[str, Any] = {"history": history, "objective": FRESH, "splits": 1}
    found = fo.backtest(log, 3.0, compare_rule="stormcrawler", **asked)
    rule, row = found.rules["stormcrawler"], found.means[-2]
    again = fo.backtest(log, rule.needed, **asked).means[0]
    assert row.policy == "stormcrawler"
    assert 0.0 < rule.needed < 4.0 * row.refreshes
    # Secants end where costs, the shares of time that copies are stale, differ by 1e-3 of them.
    assert 6.0 - again.realised == pytest.approx(6.0 - row.realised, rel=1.001e-3)


def test_without_a_history_costs_are_of_drawn_changes(history: ChangeHistory) -> None:
    found = fo.backtest(history.to_log(2.0), 3.0, objective=FRESH, splits=1, compare_rule="nutch", seed=2)
    own = found.means[-2:]
    assert [row.policy for row in own] == ["nutch", "plan at nutch"]
    # The log's own crawls come first, as without rules.
    assert [row.policy for row in found.means[-4:-2]] == ["current", "plan at current"]
    plain = fo.backtest(history.to_log(2.0), 3.0, objective=FRESH, splits=1, seed=2)
    assert [row.facts() for row in plain.means] == [row.facts() for row in found.means[:-2]]
    assert plain.rules == {}


def test_fetches_of_a_rule_fail_and_cost_as_those_of_others(history: ChangeHistory) -> None:
    log, rule = history.to_log(2.0), {"mine": FixedInterval(86400.0)}
    asked: dict[str, Any] = {"history": history, "objective": FRESH, "splits": 1, "compare_rule": rule}
    whole = fo.backtest(log, 3.0, **asked)
    half = fo.backtest(log, 3.0, success=0.5, **asked)
    once = fo.backtest(log, 3.0, success=0.5, retry_at_once=True, **asked)
    dear = fo.backtest(log, 3.0, changed_cost=3.0, **asked)
    rows = [next(row for row in each.means if row.policy == "mine") for each in (whole, half, once, dear)]
    # Attempts come at the same times, and half of them leave the copy as it is.
    assert rows[1].refreshes == pytest.approx(rows[0].refreshes, rel=EXACT)
    assert rows[1].fresh < rows[0].fresh - 0.02
    # Repeated at once all succeed, with two attempts each.
    assert rows[2].fresh == rows[0].fresh
    assert rows[2].bandwidth == pytest.approx(2.0 * rows[0].bandwidth, rel=EXACT)
    found = rule_crawls(rule["mine"], _world(history), DAYS, seed=0)
    late = found.time >= 150.0
    extra = 3.0 * np.count_nonzero(found.changed[late]) / 150.0
    assert rows[3].bandwidth == pytest.approx(rows[0].bandwidth + extra, rel=0.02)


def _world(history: ChangeHistory) -> fo.World:
    events = {"source": history.source_index, "time": history.time}
    return fo.World.from_events(events, names=history.names, start=0.0, horizon=DAYS)


def test_rules_without_a_name_of_their_own_are_refused(history: ChangeHistory) -> None:
    log = history.to_log(2.0)
    refused("compare_rule is 'nutsch'. Did you mean 'nutch'", fo.backtest, log, 3.0, compare_rule=["nutsch"])
    for name in ("plan", "uniform", "plan at nutch", "current"):
        refused(
            f"the name '{name}', which a policy has",
            fo.backtest,
            log,
            3.0,
            compare_rule={name: StormCrawler()},
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, history: ChangeHistory) -> Path:
    path = tmp_path_factory.mktemp("rules")
    log = history.to_log(2.0)
    frame = pl.DataFrame(
        {"source": log.names[log.source_index], "time": log.time, "changed": log.changed * 1}
    )
    frame.write_csv(path / "log.csv")
    pl.DataFrame({"source": history.source_index, "time": history.time}).write_csv(path / "changes.csv")
    return path


def test_the_page_and_the_console_compare_rules(folder: Path) -> None:
    words = ["plan", str(folder / "log.csv"), "--compare-rule", "nutch", "--compare-rule", "2d", "--details"]
    words += ["--draws", "0", "--out", str(folder / "plan")]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 0, ran.output
    summary = json.loads((folder / "plan" / "summary.json").read_text())["held_out"]
    page = (folder / "plan" / "report.html").read_text()
    assert [each["rule"] for each in summary["rules"]] == ["nutch", "every 2d"]
    for name in ("nutch", "every 2d"):
        for text in (ran.output, page):
            assert f"the rule {name} at as many crawls" in " ".join(text.split())
        assert f"planned rates at as many fetches as {name}" in page
    needed, used = ({each["rule"]: each[key] for each in summary["rules"]} for key in ("needed", "used"))
    # A rule of one interval fetches six sources every other day.
    assert used["every 2d"] == pytest.approx(3.0, rel=0.02)
    share, told = abs(1.0 - needed["every 2d"] / used["every 2d"]), " ".join(ran.output.split())
    assert f"every 2d at a bandwidth of {needed['every 2d']:.4g} in place of {used['every 2d']:.4g}" in told
    assert f"{100.0 * share:.3g} % less." in told
    assert 'compare_rule = ["nutch", "2d"]' in (folder / "plan" / "plan.toml").read_text()


def test_a_replay_measures_rules_in_the_same_changes(folder: Path) -> None:
    times = folder / "schedule.csv"
    pl.DataFrame({"source": [0, 5], "time": [1.0, 299.0]}).write_csv(times)
    words = ["replay", str(times), "--history", str(folder / "changes.csv"), "--compare-rule", "backoff"]
    ran = CliRunner().invoke(main, [*words, "--horizon", "250d", "--skip", "50d", "--seed", "3"])
    assert ran.exit_code == 0, ran.output
    row = next(line for line in ran.output.splitlines() if line.startswith("backoff"))
    assert "refreshes in that time: binary" in row
    wrong = CliRunner().invoke(main, [*words[:-1], "backofff"])
    assert wrong.exit_code == 2
    assert "--compare-rule is 'backofff'. Did you mean 'backoff'?" in wrong.stderr


def test_rules_do_not_go_with_declared_constraints(folder: Path) -> None:
    words = ["plan", str(folder / "log.csv"), "--compare-rule", "nutch", "--target", "90%", "--cheapest"]
    ran = CliRunner().invoke(main, [*words, "--out", str(folder / "none")])
    assert ran.exit_code == 2
    assert "does not go with --compare-rule" in ran.stderr
    assert not (folder / "none").exists()
