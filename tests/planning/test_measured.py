"""The measured table: all that a back-test tells is a sum over its rows."""

from __future__ import annotations

import polars as pl
import pytest

import freshopt as fo
from freshopt.planning.backtest import backtest
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from tests.ground_truth.tolerances import SCALAR
from tests.planning.test_backtest import PERIODIC, poisson_log

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


@pytest.mark.parametrize("objective", [HarmonicStaleness(PERIODIC), BinaryFreshness()])
@pytest.mark.sampled(2)
def test_rows_of_policies_are_sums_over_the_table(objective: fo.Objective) -> None:
    found = backtest(
        ragged_log(), [3.0, 8.0], objective=objective, importance=IMPORTANCE, every=9.0, splits=2
    )
    assert found.details is not None
    rows = found.details.rows()
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
    assert found.details is not None
    rows = found.details.rows()
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
