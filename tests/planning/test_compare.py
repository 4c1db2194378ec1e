"""Plans beside the rates in force or a crawler's rule: what changes, what it brings, how few may do."""

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
from freshopt.planning.plan_files import told_of
from freshopt.problems import BinaryFreshness
from freshopt.report.page import findings
from freshopt.simulation.rules import FixedInterval, StormCrawler, replay_rule, rule_crawls
from freshopt.terminal.tables import rates_in_force_of
from tests.ground_truth.command_lines import MAIN_JOB, Run, crawl_log, fields, refuse
from tests.ground_truth.crawl_logs import poisson_events
from tests.ground_truth.named import PERIODIC
from tests.ground_truth.plans import crawls
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import EXACT, SCALAR

JOB = ("plan", "log.parquet", *MAIN_JOB, "--draws", "0")


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**crawls())


def test_a_plan_beside_earlier_rates(log: fo.CrawlLog) -> None:
    old = {f"s{k:02d}": 0.5 for k in range(1, 12)} | {"gone": 1.0}
    made = fo.plan(log, 6.0, 14.0, draws=0, compare=old, load_limit=1.0)
    found = present(made.changes)
    assert made.few is None
    assert (found.new, found.gone) == (1, 1)
    assert np.isnan(found.old[0])
    assert found.bandwidth == pytest.approx(5.5, rel=EXACT)
    # The new source has its new rate in the value at the old rates.
    numerics = present(made.problem.numerics)
    rates = np.where(np.arange(12) == 0, made.solution.rates, 0.5)
    assert found.value == pytest.approx(float(np.sum(numerics.cost(rates))), rel=EXACT)
    best = fo.solve(made.problem.with_bandwidth(float(rates.sum())))
    assert present(found.certificate).gap == pytest.approx(found.value - best.value, rel=SCALAR)


@pytest.mark.parametrize("share", [0.8, 0.3, 1.2])
@pytest.mark.sampled(2)
def test_old_rates_beyond_limits_are_cut_to_them(log: fo.CrawlLog, share: float, tmp_path: Path) -> None:
    """What is said to be no better than a bound is within the limits that the bound is for."""
    hosts = {f"s{k:02d}": "ab"[k % 2] for k in range(12)}
    old = {name: 0.4 if host == "a" else 0.6 for name, host in hosts.items()}
    limits = {"a": f"{share * 2.4}/day", "b": "9/day"}
    made = fo.plan(
        log, 6.0, 14.0, draws=0, compare=old, load_limit=1.0, hosts=hosts, host_limits=limits, max_rate=5.0
    )
    found = present(made.changes)
    assert found.bandwidth == pytest.approx(6.0, rel=EXACT)
    numerics = present(made.problem.numerics)
    cut = np.array([min(share, 1.0) * 0.4 if host == "a" else 0.6 for host in hosts.values()])
    value = float(np.sum(numerics.cost(cut)))
    assert (found.cut is None) == (share > 1.0)
    if found.cut is not None:
        assert found.cut == pytest.approx((float(cut.sum()), value), rel=EXACT)
        assert found.value < value
    assert found.certificate is not None
    assert found.certificate.value == pytest.approx(value, rel=EXACT)
    best = fo.solve(made.problem.with_bandwidth(float(cut.sum())))
    assert found.certificate.bound == pytest.approx(best.value, rel=SCALAR)
    # This plan is within the limits too, and no worse than what was cut to them.
    assert made.solution.value <= value * (1.0 + SCALAR)
    (told,) = (each for each in findings(told_of(made)) if each.key == "earlier")
    assert ("they exceed maximum rates or host limits" in told.sentence) == (share < 1.0)
    made.write(tmp_path / "plan")
    page = (tmp_path / "plan" / "report.html").read_text()
    assert ("they exceed maximum rates or host limits" in page) == (share < 1.0)


def test_few_changes_of_a_plan(log: fo.CrawlLog, tmp_path: Path) -> None:
    earlier = fo.plan(log, 5.0, 14.0, draws=0, objective=BinaryFreshness(PERIODIC))
    made = fo.plan(log, 6.0, 14.0, draws=0, compare=earlier, max_churn="25 %")
    assert made.few is not None
    assert made.few.most == 3
    kept = made.solution.rates == earlier.solution.rates
    assert np.count_nonzero(~kept) == made.few.changed <= 3
    free = fo.plan(log, 6.0, 14.0, draws=0, load_limit=1.0)
    loss = made.solution.value - free.solution.value
    assert made.few.loss == pytest.approx(loss, rel=SCALAR)
    assert made.phases is None
    made.write(tmp_path / "plan")
    facts = json.loads((tmp_path / "plan" / "summary.json").read_text())
    assert facts["few_changes"]["changed"] == facts["changes"]["changed"] == made.few.changed
    assert facts["status"] == "inaccurate"
    table = pl.read_parquet(tmp_path / "plan" / "changes.parquet")
    assert table.columns == ["source", "old_rate", "rate", "old_interval", "interval", "gain"]
    assert len(table.filter(pl.col("gain") > 0.0)) == made.few.changed
    assert "Most old intervals are kept" in repr(made)


@pytest.mark.exhaustive
def test_the_command_compares_with_folders_and_tables(run: Run) -> None:
    crawl_log().write_parquet("log.parquet")
    run(*JOB, "--out", "old")
    same = fields(run(*JOB, "--details", "--out", "new", "--compare", "old", "--load-limit", "1").output)
    assert same["changes"].startswith("0 of ")
    again = fields(run(*JOB, "--details", "--out", "new", "--overwrite", "--compare", "new").output)
    assert again["changes"].startswith("0 of ")
    rates = pl.read_parquet("old/rates.parquet")
    rates.select("source", interval=pl.lit("240h")).write_csv("old.csv")
    few = ("--out", "few", "--compare", "old.csv", "--max-churn", "50%")
    output = run(*JOB, "--details", *few).output
    assert "The 4 changes that bring most:" in output
    assert "4 of 8 intervals changed, at most 4;" in " ".join(output.split())
    assert output.count("10 days") >= 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--max-churn", "10%"), ("--compare OLD",)),
        (("--compare", "missing"), ("there is no folder or file missing",)),
        (("--compare", "rates.csv", "--max-churn", "2"), ("--max-churn 2 has no %. Write 2% or 0.02.",)),
        (("--compare", "rates.csv", "--max-churn", "200%"), ("--max-churn", "not between 0 and 100 %")),
        (("--compare", "rates.csv", "--max-churn", "x"), ("--max-churn", "cannot be read")),
        (("--compare", "rates.csv"), ("no source has an earlier rate", "'other'")),
        (("--compare", "zero.csv"), ("interval in row 1, line 2 of zero.csv", "no time > 0")),
        (("--compare", "empty"), ("holds no table rates. Name the folder of a plan",)),
        (("--compare", "parts"), ("holds no table rates. Name one of its parts", "rates/part-0.parquet")),
        (("--compare", "rates.csv", "--engine", "dask"), ("--compare is for --engine memory",)),
        (("--freshness", "99%"), ("--freshness stands in place of --bandwidth",)),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(
    arguments: tuple[str, ...], words: tuple[str, ...], here: Path
) -> None:
    crawl_log().write_parquet("log.parquet")
    Path("rates.csv").write_text("source,rate\nother,1\n")
    Path("zero.csv").write_text("source,interval\npage/1,0\n")
    Path("empty").mkdir()
    Path("parts/rates").mkdir(parents=True)
    Path("parts/rates/part-0.parquet").touch()
    refuse(here, [*JOB, "--out", "plan", *arguments], words)


@pytest.mark.parametrize(
    ("text", "unit", "rates"),
    [
        ("source,interval\na,12h\nb,\nc,4\n", "day", [2.0, 0.0, 0.25]),
        ("source,rate\na,2/week\nb,0\nc,3\n", "week", [2.0, 0.0, 3.0]),
        ("source,rate,time_unit\na,1/day,hour\nb,2,hour\nc,0,hour\n", "day", [1.0 / 24.0, 2.0, 0.0]),
    ],
)
def test_rates_in_force_are_read_with_units(text: str, unit: str, rates: list[float], tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(text)
    table = rates_in_force_of(path, unit)
    assert table.rates.tolist() == pytest.approx(rates, rel=1e-15)
    assert table.time_unit == ("hour" if "time_unit" in text else unit)


def test_freshness_on_the_command_line(run: Run) -> None:
    crawl_log().write_parquet("log.parquet")
    job = ("plan", "log.parquet", "--horizon", "7d", "--draws", "0", "--freshness")
    shown = " ".join(run(*job, "80%", "--details", "--out", "plan").output.split())
    facts = json.loads(Path("plan/summary.json").read_text())
    assert facts["objective"] == "BinaryFreshness"
    assert "80 % fresh needs " in shown
    today = run(*job, "today", "--details", "--out", "today").output
    assert "as fresh as today" not in today
    facts = json.loads(Path("today/summary.json").read_text())
    assert facts["bandwidth"] == facts["today"]["needed"]
    for more, word in (("--objective", "age"), ("--target", "99%"), ("--engine", "dask")):
        refuse(Path(), [*job, "80%", "--out", "no", more, word], ("--freshness",))
    capped = [*job, "99%", "--max-rate", "0.001", "--out", "no"]
    refuse(Path(), capped, ("out of reach", "max_rate everywhere"))


RATES = np.array([0.01, 0.03, 0.1, 0.1, 0.4, 1.5])
FRESH = fo.problems.BinaryFreshness(fo.Refresh.PERIODIC)
DAYS = 300.0


@pytest.fixture(scope="module")
def history() -> ChangeHistory:
    rng = np.random.default_rng(3)
    return ChangeHistory(*poisson_events(rng, RATES, DAYS), 0.0, DAYS, names=np.arange(len(RATES)))


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
