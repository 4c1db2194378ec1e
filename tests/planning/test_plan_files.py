"""`write_plan`: what the files say, and that they appear as a whole or not at all."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.errors import SourceDataError
from freshopt.planning import plan_files
from freshopt.planning.plan import Plan, make_plan
from freshopt.planning.plan_files import write_plan
from freshopt.problems import BinaryFreshness
from tests.ground_truth.plans import BEGIN, PERIODIC, crawls, dated, plan_request, read
from tests.ground_truth.tolerances import SCALAR


@pytest.fixture(scope="module")
def log() -> fo.CrawlLog:
    return fo.CrawlLog(**crawls())


def write_bytes(made: Plan, folder: Path) -> dict[str, bytes]:
    write_plan(made, folder, overwrite=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_log_with_dates_gives_moments_counted_from_its_end(tmp_path: Path) -> None:
    columns = crawls()
    write_plan(make_plan(fo.CrawlLog(**dated(columns)), plan_request()), tmp_path / "dated")
    write_plan(make_plan(fo.CrawlLog(**columns), plan_request()), tmp_path / "numbers")
    _, _, rates, schedule = read(tmp_path / "dated")
    _, _, same_rates, same_schedule = read(tmp_path / "numbers")
    assert same_schedule.columns == ["source", "time"]
    assert schedule.schema == {
        "source": pl.String(),
        "time": pl.Float64(),
        "timestamp": pl.Datetime("us", "UTC"),
    }
    np.testing.assert_allclose(rates["rate"].to_numpy(), same_rates["rate"].to_numpy(), rtol=1e-6)
    end = BEGIN + timedelta(days=float(np.max(columns["time"])))
    for time, moment in schedule.select("time", "timestamp").iter_rows():
        assert abs(moment - (end + timedelta(days=time))) <= timedelta(microseconds=2)


def test_in_hours_everything_is_the_same_but_the_unit() -> None:
    days, hours = (fo.CrawlLog(**dated(crawls()), time_unit=unit) for unit in ("day", "hour"))
    one = make_plan(days, plan_request())
    other = make_plan(hours, plan_request(bandwidth=9.0 / 24.0, horizon=14.0 * 24.0))
    np.testing.assert_allclose(other.solution.rates * 24.0, one.solution.rates, rtol=SCALAR)
    np.testing.assert_allclose(other.schedule.time / 24.0, one.schedule.time, rtol=SCALAR)
    assert other.solution.value == pytest.approx(one.solution.value, rel=SCALAR)
    assert other.schedule_value == pytest.approx(one.schedule_value, rel=SCALAR)
    frames = [plan_files.tables(plan)["schedule"]["timestamp"].to_list() for plan in (one, other)]
    assert all(abs(a - b) <= timedelta(microseconds=2) for a, b in zip(*frames, strict=True))


@pytest.mark.parametrize("csv", [False, True])
@pytest.mark.sampled(2)
def test_the_order_of_the_rows_does_not_show(csv: bool, tmp_path: Path) -> None:
    columns = dated(crawls())
    shuffled = np.random.default_rng(0).permutation(len(columns["time"]))
    for name, order in (("one", np.arange(len(shuffled))), ("two", shuffled)):
        log = fo.CrawlLog(**{key: value[order] for key, value in columns.items()})
        write_plan(make_plan(log, plan_request()), tmp_path / name, csv=csv)
    for path in sorted((tmp_path / "one").iterdir()):
        one, two = path.read_bytes(), (tmp_path / "two" / path.name).read_bytes()
        if path.name == "summary.json":
            facts, others = json.loads(one), json.loads(two)
            assert facts.pop("seconds").keys() == others.pop("seconds").keys()
            assert facts == others
        else:
            assert one == two, path.name


def test_integers_stay_integers(tmp_path: Path) -> None:
    columns = crawls()
    columns["source"] = np.array([int(name[1:]) * 10 for name in columns["source"]])
    write_plan(make_plan(fo.CrawlLog(**columns), plan_request()), tmp_path / "plan")
    for frame in read(tmp_path / "plan")[1:]:
        assert frame["source"].dtype.is_integer()
        assert set(frame["source"].to_list()) <= set(range(0, 120, 10))


def test_a_plan_replaces_an_earlier_one_only_when_told_and_then_as_a_whole(
    log: fo.CrawlLog, tmp_path: Path
) -> None:
    folder = tmp_path / "plan"
    made = make_plan(log, plan_request())
    before = write_bytes(made, folder)
    with pytest.raises(SourceDataError, match="already holds a result"):
        write_plan(made, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(write_plan(made, folder, csv=True, overwrite=True)) == sorted(
        path.name for path in folder.iterdir()
    )
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_nothing_appears_and_nothing_is_lost_if_writing_fails(
    log: fo.CrawlLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "plan"
    made = make_plan(log, plan_request())
    before = write_bytes(made, folder)

    def fail(plan: Plan) -> dict[str, Any]:
        raise OSError(28, f"No space left on device, {len(plan.log)} rows")

    monkeypatch.setattr(plan_files, "summary", fail)  # the tables are there by then
    for target in (folder, tmp_path / "new"):
        with pytest.raises(fo.SourceDataError, match=r"No space left.*Make room"):
            write_plan(made, target, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_sources_that_are_never_refreshed_have_no_interval(log: fo.CrawlLog, tmp_path: Path) -> None:
    write_plan(make_plan(log, plan_request(BinaryFreshness(PERIODIC), bandwidth=0.3)), tmp_path / "plan")
    facts, _, rates, schedule = read(tmp_path / "plan")
    never = rates.filter(pl.col("rate") == 0.0)
    assert facts["counts"]["never_refreshed"] == len(never) > 0
    assert never["interval"].null_count() == len(never)
    assert not set(never["source"].to_list()) & set(schedule["source"].to_list())
