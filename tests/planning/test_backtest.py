"""Plans held against the part of the log that they have not seen, and the table of all that is told."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.estimators import GammaPrior, MaximumLikelihood
from freshopt.formatting import WIDTH
from freshopt.logs.crawl_log import CrawlLog
from freshopt.planning.backtest import backtest, hold_out
from freshopt.planning.known_changes import known_changes
from freshopt.planning.wishes import Wishes
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.command_lines import MAIN_JOB, Run, refuse
from tests.ground_truth.crawl_logs import found_changes, log_at, poisson_events
from tests.ground_truth.refusals import present, refused
from tests.ground_truth.tolerances import EXACT, SCALAR

PERIODIC = fo.Refresh.PERIODIC
RATES = np.array([0.02, 0.05, 0.3, 0.3, 1.0, 4.0])


def poisson_log(days: float = 1600.0, every: float = 0.5, seed: int = 3) -> fo.CrawlLog:
    """Crawls at equal gaps of sources that change at the rates; what they find is drawn."""
    rng = np.random.default_rng(seed)
    time = np.arange(0.0, days, every)
    return log_at(time, found_changes(rng, RATES[:, None], np.full((len(RATES), len(time)), every)))


def events(rates: np.ndarray, days: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return poisson_events(np.random.default_rng(seed), rates, days)


def freshness(rates: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """The share of time that a copy refreshed at equal gaps is fresh, of a Poisson source."""
    u = rates * gaps
    share: np.ndarray = -np.expm1(-u) / u
    return share


@pytest.mark.exhaustive
def test_costs_are_those_of_poisson_sources() -> None:
    """With all changes known, each policy's freshness is what the formula says of its rates."""
    days, copies = 4000.0, 20
    rates = np.tile(RATES, copies)
    history = fo.ChangeHistory(*events(rates, days, 1), 0.0, days, names=np.arange(len(rates)))
    request = Wishes(BinaryFreshness(PERIODIC), bandwidth=len(rates), horizon=1.0)
    held = hold_out(history.to_log(8.0), request, history, share=0.25, splits=1)
    rows = {row.policy: row for row in held.rows}
    assert list(rows) == ["plan", "uniform", "proportional", "∝ √(w·Δ)", "best static in hindsight"]
    assert (held.begin, held.end) == pytest.approx((3000.0, 4000.0), rel=EXACT)
    past = np.bincount(history.source_index[history.time <= 3000.0], minlength=len(rates)) / 3000.0
    root = np.sqrt(past)
    gaps = {
        "uniform": np.ones(len(rates)),
        "proportional": past.sum() / past / len(rates),
        "∝ √(w·Δ)": root.sum() / root / len(rates),
    }
    for name, gap in gaps.items():
        # N = 1000·Δ changes, each stale for some time up to the gap: a deviation of √(N/3)·gap of 1000 days.
        spread = np.sqrt(np.sum(1000.0 * rates / 3.0 * gap**2)) / 1000.0
        assert abs(rows[name].realised - freshness(rates, gap).sum()) < 4.0 * spread, name
        assert rows[name].predicted == pytest.approx(freshness(past, gap).sum(), rel=0.01)
        assert rows[name].refreshes == pytest.approx(len(rates), rel=SCALAR)
        assert rows["plan"].realised > rows[name].realised + 4.0 * spread
    assert rows["best static in hindsight"].predicted is None
    assert rows["best static in hindsight"].realised > rows["plan"].realised
    assert held.verdict.startswith("The plan saves ")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "objective",
    [HarmonicStaleness(PERIODIC), AccumulatedDelay(fo.Refresh.POISSON), BinaryFreshness(fo.Refresh.POISSON)],
)
def test_what_was_predicted_comes_true_of_poisson_sources(objective: fo.Objective) -> None:
    """Sources whose rates are known from a long log, in three windows; the ratio of a window is near 1."""
    days, rates = 1500.0, np.random.default_rng(0).gamma(2.0, 0.2, 60) + 0.02
    history = fo.ChangeHistory(*events(rates, days, 8), 0.0, days, names=np.arange(60))
    request = Wishes(objective, bandwidth=20.0, horizon=1.0)
    held = hold_out(history.to_log(3.0), request, history)
    plan = held.means[0]
    assert plan.realised == pytest.approx(present(plan.predicted), rel=0.03)
    assert [round(row.begin) for row in held.rows if row.policy == "plan"] == [750, 1000, 1250]
    each = [row for row in held.rows if row.policy == "plan"]
    assert plan.realised == pytest.approx(np.mean([row.realised for row in each]), rel=EXACT)


@pytest.mark.exhaustive
def test_nothing_of_a_window_is_known_to_its_plan() -> None:
    """Whatever changes in the last quarter, the plan's prediction is the same; its cost is not."""
    log = poisson_log()
    late = log.time > 1600.0 - 0.25 * 1599.5 - 0.5
    twisted = fo.CrawlLog(log.source_index, log.time, np.where(late, ~log.changed, log.changed))
    request = Wishes(HarmonicStaleness(PERIODIC), bandwidth=3.0, horizon=1.0)
    one, other = (hold_out(each, request, share=0.25, splits=1) for each in (log, twisted))
    for mine, theirs in zip(one.rows[:5], other.rows[:5], strict=True):
        assert (mine.refreshes, mine.predicted) == (theirs.refreshes, theirs.predicted)
    assert other.rows[0].realised > 2.0 * one.rows[0].realised


def test_the_current_policy_is_the_logs_own_crawls() -> None:
    log = poisson_log(every=0.5)
    request = Wishes(BinaryFreshness(PERIODIC), bandwidth=3.0, horizon=1.0)
    held = hold_out(log, request, share=0.25, splits=1)
    rows = {row.policy: row for row in held.rows}
    assert rows["current"].refreshes == pytest.approx(12.0, rel=0.01)
    assert rows["plan at current"].refreshes == pytest.approx(rows["current"].refreshes, rel=EXACT)
    # What the formula says of half a day, though a crawl shows one change where there were several.
    assert rows["current"].realised == pytest.approx(freshness(RATES, np.full(6, 0.5)).sum(), abs=0.06)
    # All are crawled alike: their rates in force are equal rates.
    assert rows["rates in force"].realised == pytest.approx(rows["uniform"].realised, rel=SCALAR)


def test_fetches_without_a_hash_are_among_the_logs_own_crawls() -> None:
    log = poisson_log(every=0.5)
    version = np.cumsum(log.changed)  # of all sources together: another one after each change
    hashes = pl.DataFrame({"source": log.source_index, "time": log.time, "hash": version.astype(str)})
    lost = np.random.default_rng(2).random(len(log)) < 0.5
    some = hashes.with_columns(hash=pl.when(pl.lit(pl.Series(~lost))).then("hash"))
    with pytest.warns(fo.SourceDataWarning, match="have no hash: they count as fetches"):
        half = fo.read_log(some)
    assert len(half) == np.count_nonzero(~lost)
    request = Wishes(BinaryFreshness(PERIODIC), bandwidth=3.0, horizon=1.0)
    held = hold_out(half, request, share=0.25, splits=1)
    row = {row.policy: row for row in held.rows}["current"]
    assert row.refreshes == pytest.approx(12.0, rel=0.01)
    # Copies are refreshed every half day, with a hash or without one.
    assert row.realised == pytest.approx(freshness(RATES, np.full(6, 0.5)).sum(), abs=0.06)


def test_several_bandwidths_and_windows_side_by_side() -> None:
    log = poisson_log(100.0)
    held = backtest(log, ["3/day", 12.0], objective=HarmonicStaleness(PERIODIC), splits=2, every="5d")
    frame = held.to_frame()
    assert frame.columns[:7] == ["policy", "begin", "end", "bandwidth", "predicted", "realised", "error"]
    policies = ["plan", "re-planned", "rates in force", "uniform", "proportional", "∝ √(w·Δ)"]
    policies.append("best static in hindsight")
    assert [row.policy for row in held.means] == [*policies * 2, "current", "plan at current"]
    assert frame.height == 2 * 16
    told = {(row.policy, row.bandwidth): row for row in held.means}
    for bandwidth in (3.0, 12.0):
        best, plan = told["best static in hindsight", bandwidth], told["plan", bandwidth]
        assert best.realised < plan.realised
        for name in policies:
            row = told[name, bandwidth]
            assert row.refreshes == pytest.approx(bandwidth, rel=0.03)
            assert row.saving == pytest.approx(1.0 - row.realised / plan.realised, abs=SCALAR)
        assert told["re-planned", bandwidth].predicted is None
    assert "re-planning every 5 days" in held.verdict
    assert told["plan", 12.0].realised < told["plan", 3.0].realised


def test_without_a_plan_of_as_many_crawls_the_current_ones_are_not_judged() -> None:
    """Least rates leave no plan at another bandwidth; or nobody crawls in the middle window."""
    log = poisson_log(100.0)
    held = backtest(log, 12.0, min_rate=0.5)
    assert held.means[-1].policy == "current"
    assert held.means[-1].saving is None
    assert "own crawls" not in held.verdict
    kept = (log.time < 60.0) | (log.time > 90.0)
    rare = fo.CrawlLog(log.source_index[kept], log.time[kept], log.changed[kept])
    some = backtest(rare, 12.0, share=0.6, splits=3)
    assert [row.policy for row in some.rows if row.begin == pytest.approx(59.7)].count("current") == 1
    assert some.means[-1].policy == "current"


def test_windows_with_nothing_before_them_are_left_out() -> None:
    """All but one crawl of each source are in the last quarter."""
    rows = [(k, t, (k + int(t)) % 2) for k in range(4) for t in (0.0, 80.0, 85.0, 90.0, 95.0, 100.0)]
    request = Wishes(HarmonicStaleness(PERIODIC), bandwidth=1.0, horizon=1.0)
    source, time, changed = zip(*rows, strict=True)
    held = hold_out(fo.CrawlLog(source, time, changed), request, share=0.8, splits=8)
    assert (held.splits, held.begin, held.end) == (2, 80.0, 100.0)


def test_sources_that_begin_in_the_held_out_part_are_left_out() -> None:
    rows = [("old", float(t), t % 2) for t in range(100)] + [("new", float(t), 1) for t in range(80, 100)]
    source, time, changed = zip(*rows, strict=True)
    request = Wishes(
        HarmonicStaleness(PERIODIC),
        bandwidth=1.0,
        horizon=1.0,
        importance=lambda names: np.where(names == "old", 2.0, 7.0),
    )
    held = hold_out(fo.CrawlLog(source, time, changed), request, share=0.25, splits=1)
    assert (held.sources, held.left_out) == (1, 1)
    old = fo.CrawlLog(source[:100], time[:100], changed[:100])
    alone = hold_out(old, request, share=0.25, splits=1)
    # As the crawls found them; what they hid is drawn from a posterior whose prior all sources share.
    one, other = ((1.0 - each.rows[0].hidden) * each.rows[0].realised for each in (held, alone))
    assert one == pytest.approx(other, rel=SCALAR)


def test_a_source_counts_until_its_last_crawl() -> None:
    """It changes once a day until day 85 and is stale half of the time; then nothing is known."""
    rows = [("dead", float(t), 1) for t in range(86)] + [("live", float(t), 0) for t in range(101)]
    source, time, changed = zip(*rows, strict=True)
    request = Wishes(
        BinaryFreshness(PERIODIC),
        bandwidth=1.0,
        horizon=1.0,
        importance=lambda names: np.where(names == "dead", 1.0, 0.0),
    )
    log = fo.CrawlLog(source, time, changed, changes=changed)
    held = hold_out(log, request, share=0.25, splits=1)
    rows_of = {row.policy: row for row in held.rows}
    assert rows_of["current"].fresh == pytest.approx(0.5, abs=0.1)


def test_several_changes_of_a_gap_are_spread_over_it() -> None:
    log = fo.CrawlLog(["a"] * 3, [0.0, 4.0, 10.0], [0, 1, 1], changes=[0, 2, 3])
    np.testing.assert_allclose(
        known_changes(log).events(-1.0, 10.0)[1], [1.0, 3.0, 5.0, 7.0, 9.0], rtol=EXACT
    )


def test_a_history_with_dates_keeps_its_clock() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    _, days = events(np.array([1.0]), 400.0, 2)
    moments = [begin + timedelta(days=10.0 + float(day)) for day in days]
    history = fo.ChangeHistory(["a"] * len(days), moments, begin, begin + timedelta(days=420))
    request = Wishes(AccumulatedDelay(PERIODIC), bandwidth=1.0, horizon=1.0)
    held = hold_out(history.to_log(1.0), request, history, share=0.25, splits=1)
    assert (held.begin, held.end) == pytest.approx((315.0, 420.0), rel=EXACT)
    inside = np.sum((days > 305.0) & (days < 410.0)) / 105.0
    assert held.rows[0].realised == pytest.approx(0.5 * inside, abs=0.15)  # half a gap after each change


@pytest.mark.exhaustive
def test_every_objective_and_host_limits(run: Run, log: Path) -> None:
    names = [f"page/{k}" for k in range(8)]
    Path("hosts.csv").write_text(
        "source,host\n" + "".join(f"{name},{k % 2}\n" for k, name in enumerate(names))
    )
    Path("limits.csv").write_text("host,limit\n0,2\n1,9\n")
    own = (("power", "--exponent", "0.5"), ("deadline", "--deadline", "6h"), ("age",), ("binary-cost",))
    for name, *more in own:
        how = (
            *MAIN_JOB,
            "--objective",
            name,
            *more,
            "--draws",
            "0",
            "--replay",
            "--overwrite",
            "--out",
            "plan",
        )
        run("plan", str(log), *how, "--hosts", "hosts.csv", "--host-limits", "limits.csv")
        told = json.loads(Path("plan/summary.json").read_text())["held_out"]["policies"]
        assert [row["policy"] for row in told][:3] == ["plan", "rates in force", "uniform"]
        assert [row["policy"] for row in told][-2:] == ["current", "plan at current"]
        assert ("best static in hindsight" in {row["policy"] for row in told}) == (name == "age")
        assert all(np.isfinite(row["realised"]) for row in told)


def test_a_limit_of_a_host_that_begins_late_is_no_obstacle() -> None:
    rows = [("old", float(t), t % 2) for t in range(100)] + [("new", float(t), 1) for t in range(80, 100)]
    source, time, changed = zip(*rows, strict=True)
    request = Wishes(
        HarmonicStaleness(PERIODIC),
        bandwidth=1.0,
        horizon=1.0,
        hosts=lambda names: np.array([f"host of {name}" for name in names]),
        host_limits={"host of old": 0.5, "host of new": 0.5},
    )
    held = hold_out(fo.CrawlLog(source, time, changed), request)
    assert held.rows[0].refreshes == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    request = Wishes(HarmonicStaleness(fo.Refresh.POISSON), bandwidth=1.0, horizon=1.0)
    refused(r"held out is .* between 0 and 1", hold_out, poisson_log(10.0), request, share=share)


def test_plan_tells_what_it_would_have_achieved(run: Run, log: Path) -> None:
    output = run("plan", str(log), *MAIN_JOB, "--draws", "0", "--replay", "--details", "--out", "plan").output
    told = json.loads(Path("plan/summary.json").read_text())["held_out"]
    assert (told["sources"], told["splits"]) == (8, 3)
    policies = {row["policy"]: row for row in told["policies"]}
    assert next(iter(policies)) == "plan"
    assert list(policies)[-2:] == ["current", "plan at current"]
    assert len(told["windows"]) == 3 * len(policies)
    found = next(
        part for part in output.split("\n\n") if part.startswith("Rates planned from the first part")
    )
    table = found.splitlines()
    assert " in 3 windows (8 sources)" in " ".join(found.split())
    begin = next(k for k, line in enumerate(table) if line.startswith("planned rates "))
    assert table[begin - 1].split()[-1] == "date"
    lines = [line for line in table[begin:] if line.endswith(" %")]  # a long name goes on in the next line
    for line, row in zip(lines, policies.values(), strict=True):
        assert f"{row['realised']:.4g}" in line
        assert row["predicted"] is None or f"{row['predicted']:.4g}" in line
        assert f"{100 * row['fresh']:.1f} %" in line
    assert told["verdict"] in " ".join(output.split())
    assert "the log's own crawls" in told["verdict"]
    assert max(len(line) for line in output.splitlines() if not line.startswith("Page: ")) <= WIDTH
    page = Path("plan/report.html").read_text(encoding="utf-8")
    assert told["verdict"].partition(" ± ")[0] in page.replace("\xa0", " ")
    # Eight sources crawled about twice a day, each until its own last crawl.
    assert policies["current"]["refreshes"] == pytest.approx(16.0, rel=0.03)
    run("plan", str(log), *MAIN_JOB, "--draws", "0", "--out", "without")
    assert "held_out" not in json.loads(Path("without/summary.json").read_text())


def test_logs_too_short_to_hold_anything_out(folder: Path) -> None:
    request = Wishes(HarmonicStaleness(fo.Refresh.POISSON), bandwidth=1.0, horizon=1.0)
    with pytest.raises(fo.SourceDataError, match=r"no time to hold out.* more than one crawl"):
        hold_out(fo.CrawlLog(["a", "b"], [1.0, 1.0], [0, 1], start=0.0), request)
    Path("twice.csv").write_text("source,time,changed\na,1,0\na,2,1\n")
    how = ["--bandwidth", "1/day", "--horizon", "7d", "--out", "out", "--replay"]
    refuse(folder, ["plan", "twice.csv", *how], ("has a second crawl before 1.83333 days", "longer log"))


def test_settings_that_cannot_be_used() -> None:
    log = poisson_log(20.0)
    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"splits": 0}, "splits"),
        ({"every": "0d"}, "every: '0d' is no time"),
        ({"every": -1.0}, "every is -1"),
        ({"bandwidth": []}, "no bandwidth"),
        ({"history": fo.ChangeHistory(["x"], [1.0], 0.0, 20.0)}, "history knows none"),
    )
    for asked, words in refusals:
        refused(words, backtest, log, **{"bandwidth": 2.0, **asked})


def test_dated_changes_are_replayed_when_they_were_and_teach_the_plan() -> None:
    time, changed = [0.0, 2.0, 4.0, 6.0, 8.0], [0, 1, 0, 1, 1]
    log = CrawlLog(["a"] * 5, time, changed, last_modified=[-3.0, 0.5, None, 5.5, None])
    assert known_changes(log).events(0.0, 8.0)[1].tolist() == [0.5, 5.5, 7.0]
    rows = [(k, day, day > 0 and day % (k + 2) == 0) for k in range(4) for day in range(24)]
    source, day, found = (np.array(column) for column in zip(*rows, strict=True))
    told = np.where(found, day - 0.25, np.where(day == 0, -40.0, np.nan))
    dated = CrawlLog(source, day.astype(float), found, last_modified=told)
    seen: list[CrawlLog] = []

    def estimate(part: CrawlLog) -> MaximumLikelihood:
        seen.append(part)
        return MaximumLikelihood(prior=GammaPrior.weak(part)).fit(part)

    backtest(dated, "2/day", estimator=estimate, share=0.25, splits=1)
    past = dated.time <= 17.25
    np.testing.assert_array_equal(seen[0].last_modified, present(dated.last_modified)[past])
    np.testing.assert_array_equal(seen[0].interval, dated.interval[past])
    assert backtest(dated, "2/day").facts()["held_out"]["dated"] is True
    assert backtest(CrawlLog(source, day.astype(float), found), "2/day").facts()["held_out"]["dated"] is False


IMPORTANCE = [1.0, 2.0, 3.0, 0.0, 5.0, 0.5]


def ragged_log() -> fo.CrawlLog:
    """Six sources of which two are crawled no more in the last window."""
    log = poisson_log(90.0)
    kept = log.time < pl.Series([90.0, 80.0, 70.0, 90.0, 60.0, 89.0]).to_numpy()[log.source_index]
    return fo.CrawlLog(log.source_index[kept], log.time[kept], log.changed[kept])


def by_window(rows: pl.DataFrame) -> pl.DataFrame:
    """Return what each policy cost in each window, by the definitions of a back-test."""
    w, span = pl.col("weight"), pl.col("span")
    whole = w.sum() / (w * span).sum()
    return rows.group_by("policy", "bandwidth", "window", maintain_order=True).agg(
        ((w * pl.col("cost")).sum() * whole).alias("cost"),
        ((w * pl.col("shown")).sum() * whole).alias("shown"),
        (pl.col("predicted").sum() * whole).alias("predicted"),
        (1.0 - (w * pl.col("stale")).sum() / (w * span).sum()).alias("fresh"),
        (pl.col("used").sum() / span.sum() * pl.len()).alias("refreshes"),
        whole.alias("scale"),
        w.sum().alias("everything"),
    )


@pytest.mark.parametrize("objective", [HarmonicStaleness(PERIODIC), BinaryFreshness(fo.Refresh.POISSON)])
@pytest.mark.sampled(2)
def test_rows_of_policies_are_sums_over_the_table(objective: fo.Objective) -> None:
    found = backtest(
        ragged_log(), [3.0, 8.0], objective=objective, importance=IMPORTANCE, every=9.0, splits=2
    )
    rows = present(found.details).rows()
    windows = by_window(rows)
    maximised = objective.sense == "maximise"
    told = found.to_frame()
    assert windows.height == told.height
    for one in windows.iter_rows(named=True):
        begin = (found.begin, 0.5 * (found.begin + found.end))[one["window"]]
        row = told.filter(
            pl.col("policy") == one["policy"],
            (pl.col("bandwidth") - one["bandwidth"]).abs() < 1e-9,
            (pl.col("begin") - begin).abs() < 1e-9,
        ).row(0, named=True)
        least = one["everything"] if maximised else 0.0
        sign = -1.0 if maximised else 1.0
        assert row["realised"] == pytest.approx(least + sign * one["cost"], rel=SCALAR)
        assert row["hidden"] == pytest.approx(1.0 - one["shown"] / one["cost"], rel=SCALAR)
        assert row["fresh"] == pytest.approx(one["fresh"], rel=SCALAR)
        assert row["refreshes"] == pytest.approx(one["refreshes"], rel=SCALAR)
        if row["predicted"] is not None:
            assert row["predicted"] == pytest.approx(least + sign * one["predicted"], rel=SCALAR)


def test_savings_and_their_errors_are_those_of_differences_source_by_source() -> None:
    found = backtest(ragged_log(), 3.0, objective=HarmonicStaleness(PERIODIC), importance=IMPORTANCE)
    rows = present(found.details).rows()
    windows = by_window(rows)
    w = pl.col("weight")
    mean = pl.col("cost_right") / pl.col("everything")
    parts = rows.join(windows, on=["policy", "bandwidth", "window"]).with_columns(
        residual=w * (pl.col("cost") - mean * pl.col("span")) * pl.col("scale") / found.splits
    )
    each = parts.group_by("policy", "source").agg(pl.col("residual").sum())
    plan = each.filter(policy="plan").select("source", own="residual")
    cost = windows.group_by("policy").agg(pl.col("cost", "shown").mean())
    whole = cost.filter(policy="plan").row(0, named=True)
    n = plan.height
    for row in found.means:
        if row.policy in ("current", "plan at current"):
            continue
        mine = each.filter(policy=row.policy).join(plan, on="source")
        own = cost.filter(policy=row.policy).row(0, named=True)
        assert row.saving == pytest.approx(1.0 - own["cost"] / whole["cost"], abs=SCALAR)
        hidden = 0.5 * (own["cost"] - own["shown"])
        sampled = (mine["residual"] ** 2).sum() * n / (n - 1)
        assert row.error == pytest.approx((sampled + hidden**2) ** 0.5, rel=SCALAR)
        if whole["shown"] > 0.5 * whole["cost"]:
            paired = ((mine["own"] - mine["residual"]) ** 2).sum() * n / (n - 1)
            more = 0.5 * (whole["cost"] - whole["shown"]) - hidden
            error = (paired + more**2) ** 0.5 / whole["cost"]
            assert row.saving_error == pytest.approx(error, abs=SCALAR)
