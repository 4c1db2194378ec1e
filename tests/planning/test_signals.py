"""Plans from a log and a table of signals: what is learnt, promised, said and written."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import freshopt as fo
from freshopt.cli import main
from freshopt.noisy_signals import NoisySignalFreshness, WithNoisySignals, noisy_signals, replay_signals
from freshopt.problems import BinaryFreshness
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import SCALAR

N, DAYS, GAP = 120, 90.0, 5.0
RECALL, PRECISION = 0.8, 0.7
NAMES = np.array([f"https://{'ab'[k % 2]}.org/{k:03}" for k in range(N)])


@pytest.fixture(scope="module")
def given() -> tuple[fo.Sources, fo.CrawlLog, pl.DataFrame]:
    """Sources, the log of crawls at exponential gaps, and true signals beside noise."""
    rng = np.random.default_rng(1)
    sources = fo.Sources(rng.gamma(0.6, 0.3, N) + 1e-3, names=NAMES)
    world = fo.World.poisson(sources, seed=3)
    who, when = noisy_signals(world, RECALL, PRECISION, DAYS, seed=1)
    offsets, events = world.events(0.0, DAYS)
    rows = []
    for k in range(N):
        times = np.append(0.0, np.cumsum(rng.exponential(GAP, 40)))
        times = times[times < DAYS]
        found = np.diff(np.searchsorted(events[offsets[k] : offsets[k + 1]], times), prepend=0) > 0
        rows += [(NAMES[k], float(at), bool(each)) for at, each in zip(times, found, strict=True)]
    frame = pl.DataFrame({"source": NAMES[who], "time": when, "kind": "sitemap"})
    noise = pl.DataFrame({"source": rng.choice(NAMES, 600), "time": rng.uniform(0, DAYS, 600), "kind": "<b>"})
    source, time, changed = zip(*rows, strict=True)
    return sources, fo.CrawlLog(list(source), list(time), list(changed)), pl.concat([frame, noise])


@pytest.fixture(scope="module")
def plan(given: tuple[fo.Sources, fo.CrawlLog, pl.DataFrame]) -> fo.Plan:
    return fo.plan(given[1], signals=given[2], objective="binary", load_limit=1.0)


def test_the_plan_is_that_of_what_was_learnt(plan: fo.Plan) -> None:
    own, told = plan.problem.objective, plan.signals
    assert isinstance(own, NoisySignalFreshness)
    assert told is not None
    assert np.array_equal(np.asarray(own.recall), told.learnt.recall_)
    assert np.array_equal(plan.sources.change_rate, told.learnt.change_rate_)
    assert present(plan.solution.certificate).relative_gap < SCALAR
    assert told.recall == pytest.approx(RECALL, abs=0.1)
    assert told.precision == pytest.approx(PRECISION, abs=0.15)


def test_what_signals_bring_is_computed(plan: fo.Plan) -> None:
    told = present(plan.signals)
    assert told.fresh is not None
    assert told.needed_without is not None
    flat = fo.Problem(BinaryFreshness(), plan.sources, plan.problem.bandwidth)
    assert present(told.fresh_without) == pytest.approx(fo.solve(flat).value / N, rel=SCALAR)
    assert told.fresh == pytest.approx(plan.solution.value / N, rel=SCALAR)
    assert fo.solve(flat.with_bandwidth(told.needed_without)).value / N == pytest.approx(told.fresh, rel=1e-7)
    assert told.saving == pytest.approx(1.0 - plan.solution.bandwidth_used / told.needed_without, rel=SCALAR)
    # Today's crawls hear nothing, and the plan that is as fresh does.
    assert plan.today is not None
    rates = present(plan.today.needed).solution.rates
    u = plan.sources.change_rate / plan.log.crawl_rate
    assert plan.today.fresh == pytest.approx(float(np.mean(-np.expm1(-u) / u)), rel=SCALAR)
    kernel = present(plan.problem.objective.kernel(plan.sources))
    own = kernel.cost(rates)
    assert 1.0 - float(np.sum(own)) / N == pytest.approx(plan.today.fresh, rel=1e-7)


def test_it_keeps_its_promise(given: tuple[fo.Sources, fo.CrawlLog, pl.DataFrame], plan: fo.Plan) -> None:
    order = [NAMES.tolist().index(name) for name in plan.log.names.tolist()]
    sources = fo.Sources(given[0].change_rate[order])
    assert isinstance(plan.problem.objective, NoisySignalFreshness)
    rule = plan.problem.objective.thresholds(plan.rates, plan.sources)
    found = replay_signals(rule, fo.World.poisson(sources, seed=8), RECALL, PRECISION, 400.0, skip=50.0)
    assert present(plan.signals).fresh == pytest.approx(found.costs["binary"].mean, abs=0.02)
    assert found.refreshes / 350.0 == pytest.approx(plan.problem.bandwidth, rel=0.1)


@pytest.mark.parametrize("objective", ["harmonic", "delay", "age", "log-freshness"])
@pytest.mark.sampled(4)
def test_other_objectives_follow_their_own_rule(
    objective: str, given: tuple[fo.Sources, fo.CrawlLog, pl.DataFrame], tmp_path: Path
) -> None:
    plan = fo.plan(given[1], signals=given[2], objective=objective, load_limit=1.0)
    own, told = plan.problem.objective, plan.signals
    assert isinstance(own, WithNoisySignals)
    assert told is not None
    assert told.mean is not None
    assert told.mean_without is not None
    assert told.needed_without is not None
    assert np.array_equal(np.asarray(own.recall), told.learnt.recall_)
    assert present(plan.solution.certificate).relative_gap < SCALAR
    # What is promised is what the rule brings where signals are as they were learnt.
    order = [NAMES.tolist().index(name) for name in plan.log.names.tolist()]
    world = fo.World.poisson(fo.Sources(given[0].change_rate[order]), seed=8)
    found = replay_signals(own.rule(plan.rates, plan.sources), world, RECALL, PRECISION, 400.0, skip=50.0)
    assert told.fresh == pytest.approx(found.costs["binary"].mean, abs=0.02)
    assert found.refreshes / 350.0 == pytest.approx(plan.problem.bandwidth, rel=0.1)
    # The same mean without signals, at the bandwidth that is told, and less of it at the plan's own.
    flat = fo.Problem(own.objective, plan.sources, plan.problem.bandwidth)
    assert told.mean_without == pytest.approx(fo.solve(flat).value / N, rel=SCALAR)
    assert fo.solve(flat.with_bandwidth(told.needed_without)).value / N == pytest.approx(told.mean, rel=1e-7)
    assert f"{told.mean_without:.4g} without signals" in told.sentence
    assert f"{told.mean:.4g} instead of {told.mean_without:.4g}" in repr(plan)
    plan.write(tmp_path / "plan", csv=True)
    summary = json.loads((tmp_path / "plan/summary.json").read_text(encoding="utf-8"))
    assert summary["objective"] == type(own.objective).__name__
    assert summary["fresh"] == pytest.approx(told.fresh, rel=SCALAR)
    each = pl.read_csv(tmp_path / "plan/per_source.csv")
    assert float(each["fresh"].mean()) == pytest.approx(told.fresh, rel=SCALAR)  # type: ignore[arg-type]
    name = {"log-freshness": "thresholds", "age": "ages"}.get(objective, "waits")
    table = pl.read_csv(tmp_path / f"plan/{name}.csv")
    assert set(table["source"]) == set(plan.log.names.tolist())
    assert bool((table["recall_lower"] < table["recall"]).all())
    if objective != "log-freshness":
        # The schedule is of crawls while nothing is heard: a gap is no shorter than the first wait.
        schedule = pl.read_csv(tmp_path / "plan/schedule.csv").sort("source", "time")
        gaps = schedule.with_columns(gap=pl.col("time").diff().over("source"))
        first = table if objective == "age" else table.filter(pl.col("signals") == 0)
        least = gaps.group_by("source").agg(pl.col("gap").min()).drop_nulls().join(first, on="source")
        assert len(least) > 0
        assert bool((least["gap"] >= least["wait"] * (1.0 - 1e-9)).all())


def test_files_console_and_page_tell_of_signals(plan: fo.Plan, tmp_path: Path) -> None:
    plan.write(tmp_path / "plan", csv=True)
    summary = json.loads((tmp_path / "plan/summary.json").read_text(encoding="utf-8"))
    told = summary["signals"]
    assert [kind["kept"] for kind in told["kinds"]] == [False, True]
    assert told["left_out"].startswith("'<b>' (")
    assert summary["schedule_value"] is None
    table = pl.read_csv(tmp_path / "plan/thresholds.csv")
    rates = pl.read_csv(tmp_path / "plan/rates.csv")
    assert table["source"].to_list() == rates["source"].to_list()
    assert bool((table["recall_lower"] < table["recall"]).all())
    assert bool((table["recall"] < table["recall_upper"]).all())
    # The schedule is of crawls while nothing is heard: a gap is no shorter than the threshold.
    schedule = pl.read_csv(tmp_path / "plan/schedule.csv")
    gaps = schedule.sort("source", "time").with_columns(gap=pl.col("time").diff().over("source"))
    least = gaps.group_by("source").agg(pl.col("gap").min()).drop_nulls().join(table, on="source")
    assert len(least) > 0
    assert bool((least["gap"] >= least["threshold"] * (1.0 - 1e-9)).all())
    page = (tmp_path / "plan/report.html").read_text(encoding="utf-8")
    assert "Kinds of signals" in page
    assert "&lt;b&gt;" in page
    assert "<td><b></td>" not in page
    assert "says nothing about changes, and is left out" in repr(plan).replace("\n", " ")
    assert f"instead of {100 * told['fresh_without']:.3g}" in repr(plan)


def test_signals_that_tell_nothing_leave_the_plan_as_it_is(
    given: tuple[fo.Sources, fo.CrawlLog, pl.DataFrame],
) -> None:
    noise = given[2].filter(pl.col("kind") == "<b>")
    plan = fo.plan(given[1], signals=noise, load_limit=1.0, draws=0)
    without = fo.plan(given[1], load_limit=1.0, draws=0)
    assert np.array_equal(plan.rates, without.rates)
    assert present(plan.signals).fresh is None
    assert "thresholds" not in plan.tables()
    assert plan.summary()["signals"]["sentence"].startswith("'<b>' (")


@pytest.mark.parametrize("objective", ["binary", pytest.param("delay", marks=pytest.mark.exhaustive)])
def test_limits_hold_beside_signals(
    objective: str, given: tuple[fo.Sources, fo.CrawlLog, pl.DataFrame]
) -> None:
    limits = {"a.org": 4.0, "b.org": 6.0}
    plan = fo.plan(
        given[1],
        "20/day",
        signals=given[2],
        objective=objective,
        host_limits=limits,
        min_interval="1d",
        load_limit=1.0,
    )
    used = [float(np.sum(plan.rates[plan.sources.host == host])) for host in limits]
    assert used == pytest.approx([4.0, 6.0], rel=1e-9)
    assert float(plan.rates.max()) <= 1.0 + 1e-12
    assert present(plan.solution.certificate).relative_gap < SCALAR


def test_other_objectives_are_refused_in_a_line(given: tuple[fo.Sources, fo.CrawlLog, pl.DataFrame]) -> None:
    for objective in (fo.problems.LaterThan(1.0), fo.problems.HarmonicStaleness(fo.Refresh.POISSON)):
        with pytest.raises(fo.ObjectiveError, match='pass objective="harmonic", "delay", "age"'):
            fo.plan(given[1], signals=given[2], objective=objective)


def test_the_command_takes_a_file(
    given: tuple[fo.Sources, fo.CrawlLog, pl.DataFrame], tmp_path: Path
) -> None:
    given[1].to_frame().write_csv(tmp_path / "log.csv")
    given[2].write_csv(tmp_path / "signals.csv")
    words = [
        "plan",
        str(tmp_path / "log.csv"),
        "--signals",
        str(tmp_path / "signals.csv"),
        "--load-limit",
        "1",
    ]
    ran = CliRunner().invoke(main, [*words, "--out", str(tmp_path / "plan")])
    assert ran.exit_code == 0, ran.output
    assert "Signals bring" in ran.output
    assert json.loads((tmp_path / "plan/summary.json").read_text())["objective"] == "HarmonicStaleness"
    assert (tmp_path / "plan/waits.parquet").exists()
    for more in (["--half-life", "5d"], ["--prior", "host"], ["--refresh", "poisson"]):
        refused = CliRunner().invoke(main, [*words, *more, "--out", str(tmp_path / "other")])
        assert refused.exit_code != 0
        assert "Error: " in refused.output.strip().split("\n")[-1]
        assert not (tmp_path / "other").exists()
