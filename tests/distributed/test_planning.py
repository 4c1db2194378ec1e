"""Plans for logs in folders of Parquet files: as in memory, whole or not at all, though workers are lost."""

from __future__ import annotations

import json
import operator
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import polars as pl
import pytest
from distributed import Client, LocalCluster

import freshopt as fo
from freshopt.distributed import dask_passes, plan, planning
from freshopt.estimators import FeaturePriors, MaximumLikelihood
from freshopt.estimators.features import feature_priors
from freshopt.estimators.features.feature_priors import priors_of
from freshopt.estimators.features.source_features import SourceFeatures
from freshopt.planning import plan_files
from freshopt.planning.plan import make_plan
from freshopt.planning.plan_files import write_plan
from tests.ground_truth import plans
from tests.ground_truth.command_lines import Run, refuse
from tests.ground_truth.named import DELAY, DELAY_PERIODIC, HARMONIC, HARMONIC_PERIODIC
from tests.ground_truth.partitioned import featured_files, split
from tests.ground_truth.plans import crawls, dated, plan_request
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as for a notebook: workers cannot import tests


def parts(folder: Path, table: str) -> list[pl.DataFrame]:
    return [pl.read_parquet(file) for file in sorted((folder / table).glob("part-*.parquet"))]


def importance(names: Any) -> Any:  # noqa: ANN401
    """1 to 12, by the number in the name."""
    return np.array([1.0 + int(str(name)[1:]) for name in names])


@pytest.mark.parametrize(
    ("objective", "changes"),
    [
        (HARMONIC_PERIODIC, {}),
        (DELAY, {"importance": importance, "max_rate": 1.0}),
    ],
)
@pytest.mark.parametrize("moments", [False, True])
def test_rates_are_those_of_the_plan_in_memory(
    objective: fo.Objective,
    changes: dict[str, Any],
    moments: bool,
    tmp_path: Path,
) -> None:
    columns = dated(crawls()) if moments else crawls()
    log = split(tmp_path / "in", columns, 3)
    asked = plan_request(objective, **changes)
    write_plan(make_plan(fo.CrawlLog.from_frame(log), asked), tmp_path / "memory")
    plan(tmp_path / "in", asked, tmp_path / "out")
    expected, change_rates, rates, schedule = plans.read(tmp_path / "memory")
    facts = json.loads((tmp_path / "out" / "summary.json").read_text())
    for table, frame, column in (("change_rates", change_rates, "change_rate"), ("rates", rates, "rate")):
        found = pl.concat(parts(tmp_path / "out", table)).sort("source")
        assert found.schema == frame.schema
        assert found["source"].to_list() == frame["source"].to_list()
        assert found[column].to_numpy() == pytest.approx(frame[column].to_numpy(), rel=EXACT)
    assert parts(tmp_path / "out", "schedule")[0].schema == schedule.schema
    # Of all sources at once.
    assert set(expected) - set(facts) == {*("intervals", "moved", "oldest_copies"), *("saving", "fresh", "n")}
    assert set(facts) <= set(expected)
    for key in ("value", "bound", "price", "bandwidth_used", "horizon"):
        assert facts[key] == pytest.approx(expected[key], rel=EXACT)
    assert facts["relative_gap"] < 1e-12
    same = ("sources", "crawls", "crawls_that_found_a_change", "never_refreshed", "at_max_rate", "flags")
    assert [facts["counts"][key] for key in same] == [expected["counts"][key] for key in same]
    if not changes:
        assert facts["baselines"] == pytest.approx(expected["baselines"], rel=EXACT)
    assert facts["change_rate"]["sum"] == pytest.approx(expected["change_rate"]["sum"], rel=EXACT)


@pytest.mark.parametrize("given", ["folder", "url", "file"])
@pytest.mark.sampled(2)
def test_features_tell_what_they_tell_in_memory(given: str, tmp_path: Path) -> None:
    log, features = featured_files(tmp_path)
    if given != "folder":  # whose further sources are in no file
        features = features.filter(~pl.col("source").str.ends_with("new"))
        features.write_parquet(tmp_path / "features.parquet")
    path = {"folder": "features", "file": "features.parquet"}.get(given)
    settings: dict[str, Any] = {"objective": HARMONIC_PERIODIC, "bandwidth": 9.0, "draws": 0}
    near = fo.plan(log, features=features if path else "url", **settings)
    far = plan(tmp_path / "in", plan_request(), tmp_path / "out", features=tmp_path / path if path else "url")
    found = pl.concat(parts(tmp_path / "out", "change_rates")).sort("source")
    frame = near.to_frame().sort("source")
    assert found["source"].to_list() == frame["source"].to_list()
    assert found["flag"].to_list() == frame["flag"].to_list()
    # In memory new sources are in the log when priors are learnt, and move them by the regression's rounding.
    close = 1e-6 if given == "folder" else 1e-9
    for column in ("change_rate", "lower", "upper"):
        assert found[column].to_numpy() == pytest.approx(frame[column].to_numpy(), rel=close)
    assert far.facts["value"] == pytest.approx(near.solution.value, rel=close)
    told, expected = far.facts["features"], near.summary()["features"]
    assert told["columns"][0]["feature"] == "host"
    assert told["sentence"] == expected["sentence"]
    assert told["gain"] == pytest.approx(expected["gain"], rel=close)
    assert told["new"] == (3 if given == "folder" else 0)


def test_effects_are_learnt_from_the_first_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = featured_files(tmp_path)
    monkeypatch.setattr(planning, "ENOUGH", 30)  # two files of three
    plan(tmp_path / "in", plan_request(), tmp_path / "out", features="url")
    last = parts(tmp_path / "out", "change_rates")[2].sort("source")
    first = log.filter(~pl.col("source").is_in(last["source"].to_list()))
    priors = FeaturePriors.from_log(fo.CrawlLog.from_frame(first), "url")
    # The same prior as of a source that is in the features alone.
    also = log.filter(pl.col("source").is_in(last["source"].to_list()))
    told = SourceFeatures.of(np.array(last["source"].to_list()), "url", priors.table)
    made = MaximumLikelihood(prior=priors_of(told, priors)).fit(fo.CrawlLog.from_frame(also))
    assert last["change_rate"].to_numpy() == pytest.approx(made.change_rate_, rel=1e-9)
    level = dict(zip(told.names, priors_of(told, priors).mean, strict=True))
    fast, slow = ([m for name, m in level.items() if f"/{host}." in name] for host in ("fast", "slow"))
    assert min(fast) > 3.0 * max(slow)


def test_features_of_other_kinds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ENOUGH", 1)
    monkeypatch.setattr(feature_priors, "LEAST", 10)
    featured_files(tmp_path)
    file = tmp_path / "features" / "1.parquet"
    table = pl.read_parquet(file)
    # Learnt from the first file alone, so that the others are read as what was learnt.
    for wrong, words in (
        (table.with_columns(size=pl.lit("big") + pl.col("size").cast(pl.String)), "numbers in column 'size'"),
        (table.drop("size"), "no column 'size'"),
    ):
        wrong.write_parquet(file)
        refused(words, plan, tmp_path / "in", plan_request(), tmp_path / "out", features=file.parent)
        assert not (tmp_path / "out").exists()


def test_each_part_is_scheduled_from_the_end_of_the_whole_log(tmp_path: Path) -> None:
    columns = crawls()
    late = (columns["source"] >= "s09") & (columns["time"] < 9.5)  # so that a file begins on a later day
    log = split(
        tmp_path / "in", dated({key: values[~late] for key, values in columns.items()}), 4, ranges=True
    )
    horizon = 14.0
    plan(tmp_path / "in", plan_request(DELAY_PERIODIC, horizon=horizon), tmp_path / "out")
    end, day, cost, refreshes = np.max(log["time"].to_numpy()), np.timedelta64(1, "D"), 0.0, 0
    assert len(parts(tmp_path / "out", "schedule")) == 4
    tables = zip(*(parts(tmp_path / "out", table) for table in plan_files.TABLES), strict=True)
    for change_rates, rates, schedule in tables:
        assert schedule["time"].is_sorted()
        days = (schedule["timestamp"].dt.replace_time_zone(None).to_numpy() - end) / day
        assert days == pytest.approx(schedule["time"].to_numpy(), abs=1e-10)
        refreshes += len(schedule)
        for name, rate in rates.select("source", "rate").iter_rows():
            times = schedule.filter(pl.col("source") == name)["time"].to_numpy()
            assert np.diff(times) == pytest.approx(1.0 / rate, rel=1e-9)
            assert abs(len(times) - rate * horizon) < 1.0
            age = np.min(end - log.filter(pl.col("source") == name)["time"].to_numpy()) / day
            change_rate = change_rates.filter(pl.col("source") == name)["change_rate"][0]
            gaps = np.diff([-age, *times, horizon])  # ∫ Δ·age over a gap, less what was before the horizon
            cost += change_rate * (np.sum(gaps**2) - age**2) / 2.0 / horizon
    facts = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert facts["schedule_value"] == pytest.approx(cost, rel=1e-7)  # ages are whole microseconds here
    assert facts["counts"]["refreshes"] == refreshes


def test_a_source_in_two_files_is_refused_with_both(tmp_path: Path) -> None:
    words: list[str] = []
    split(tmp_path / "in", crawls(), 3, ranges=True)
    plan(tmp_path / "in", plan_request(), tmp_path / "ranges", on_progress=words.append)
    assert "comparing names" not in words  # the ranges tell
    split(tmp_path / "turns", crawls(), 3)
    plan(tmp_path / "turns", plan_request(), tmp_path / "dealt", on_progress=words.append)
    assert "comparing names" in words
    again = pl.read_parquet(tmp_path / "turns" / "1.parquet").filter(pl.col("source") == "s04")
    pl.concat([pl.read_parquet(tmp_path / "turns" / "2.parquet"), again]).write_parquet(
        tmp_path / "turns" / "2.parquet"
    )
    with pytest.raises(
        fo.SourceDataError, match=r"source 's04' is in \S*1\.parquet, \S*2\.parquet\. .*one file"
    ):
        plan(tmp_path / "turns", plan_request(), tmp_path / "out")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dealt", "in", "ranges", "turns"]


def test_integers_are_told_apart_too(tmp_path: Path) -> None:
    columns = crawls()
    columns["source"] = np.array([int(name[1:]) for name in columns["source"]])
    split(tmp_path / "in", columns, 3)
    made = plan(tmp_path / "in", plan_request(), tmp_path / "out")
    assert made.facts["counts"]["sources"] == 12
    (tmp_path / "in" / "3.parquet").write_bytes((tmp_path / "in" / "0.parquet").read_bytes())
    with pytest.raises(fo.SourceDataError, match=r"source \d+ is in \S*0\.parquet, \S*3\.parquet"):
        plan(tmp_path / "in", plan_request(), tmp_path / "twice")


def test_files_that_are_unlike_others_are_refused(tmp_path: Path) -> None:
    split(tmp_path / "in", crawls(), 2)
    log = pl.DataFrame(dated(crawls())).with_columns(source="x" + pl.col("source"))
    log.write_parquet(tmp_path / "in" / "2.parquet")
    with pytest.raises(
        fo.SourceDataError, match=r"2\.parquet has dates as times and \S*0\.parquet has numbers"
    ):
        plan(tmp_path / "in", plan_request(), tmp_path / "out")
    numbered = pl.DataFrame(crawls()).with_columns(source=pl.col("source").str.slice(1).cast(pl.Int64))
    numbered.write_parquet(tmp_path / "in" / "2.parquet")
    with pytest.raises(fo.SourceDataError, match=r"0\.parquet has names as sources and \S*2\.parquet has"):
        plan(tmp_path / "in", plan_request(), tmp_path / "out")
    refused("horizon is -1", plan, tmp_path / "in", plan_request(horizon=-1.0), tmp_path / "out")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        yield client


def deadly(fuse: Path) -> Callable[[fo.CrawlLog], Any]:
    """Return what estimates change rates and kills the worker that is the first to look at s03, once."""

    def fit(log: fo.CrawlLog) -> Any:  # noqa: ANN401
        if "s03" in log.names and fuse.exists():
            fuse.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return MaximumLikelihood().fit(log)

    return fit


@pytest.mark.exhaustive
def test_a_killed_worker_costs_a_retry(client: Any, tmp_path: Path) -> None:  # noqa: ANN401
    split(tmp_path / "in", crawls(), 5)
    (tmp_path / "fuse").touch()
    before = set(client.run(os.getpid).values())
    with client.as_current():
        asked = plan_request(HARMONIC, estimator=deadly(tmp_path / "fuse"), seed=3)
        made = plan(tmp_path / "in", asked, tmp_path / "out")
        again = plan(tmp_path / "in", asked, tmp_path / "again")
    assert not (tmp_path / "fuse").exists()
    client.wait_for_workers(2)
    assert set(client.run(os.getpid).values()) != before  # a process was lost, and replaced
    for table in plan_files.TABLES:
        names = [f"part-{k:05d}.parquet" for k in range(5)]
        assert sorted(file.name for file in (tmp_path / "out" / table).iterdir()) == names
        one, other = parts(tmp_path / "out", table), parts(tmp_path / "again", table)
        assert all(mine.equals(theirs) for mine, theirs in zip(one, other, strict=True))
    assert made.facts["value"] == again.facts["value"]
    starts = [part["time"][0] for part in parts(tmp_path / "out", "schedule")]
    assert len(set(starts)) == 5  # random times are other ones in each part


@pytest.mark.exhaustive
def test_few_partitions_are_in_flight(client: Any) -> None:  # noqa: ANN401
    client.wait_for_workers(2)
    known, squares = [], {}
    with client.as_current():
        for k, result in dask_passes.run_pass(operator.pow, [(k,) for k in range(60)], 2):
            squares[k] = result
            known.append(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
        results = dask_passes.run_behind(
            operator.pow, [(k,) for k in range(9)], 3, lambda found, n: found[n], 7
        )
    assert squares == {k: k * k for k in range(60)}
    assert results == 7**3
    assert max(known) <= 2 * dask_passes.IN_FLIGHT * 2 + 4  # of two threads; the message is a task as well


@pytest.mark.exhaustive
def test_on_the_command_line(run: Run, tmp_path: Path) -> None:
    log = split(tmp_path / "in", crawls(), 3)
    log.write_parquet("all.parquet")
    names = sorted(set(log["source"]))
    weights = pl.DataFrame({"source": names, "importance": importance(names)})
    (tmp_path / "weights").mkdir()
    for k in range(3):  # a table for each file of the log
        weights.filter(pl.col("source").is_in(names[k::3])).write_parquet(f"weights/{k}.parquet")
    weights.write_csv("weights.csv")
    pl.DataFrame({"source": names, "host": ["a", "b"] * 6}).write_csv("hosts.csv")
    pl.DataFrame({"host": ["a"], "limit": [1.0]}).write_csv("limits.csv")
    job = ("--bandwidth", "9/day", "--horizon", "7d", "--hosts", "hosts.csv", "--host-limits", "limits.csv")
    dask = ("plan", "in", *job, "--importance", "weights", "--engine", "dask", "--out", "out")
    shown = run(*dask).output
    assert "12 sources, 40 days of crawls" in shown
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == sorted(
        [*plan_files.TABLES, "plan.toml", "summary.json"]
    )
    run("plan", "all.parquet", *job, "--importance", "weights.csv", "--out", "memory", "--draws", "0")
    found = pl.concat(parts(tmp_path / "out", "rates")).sort("source")
    expected = pl.read_parquet("memory/rates.parquet")
    assert found["rate"].to_numpy() == pytest.approx(expected["rate"].to_numpy(), rel=EXACT)
    refuse(tmp_path, dask, ["already holds a result"])
    files = (f"in/{k}.parquet" for k in range(3))
    assert (
        "in/0.parquet, in/1.parquet, in/2.parquet: " in run("plan", *files, *dask[2:], "--overwrite").output
    )
    assert pl.concat(parts(tmp_path / "out", "rates")).sort("source").equals(found)
    (tmp_path / "in" / "2.parquet").unlink()
    run(*dask, "--overwrite")  # fewer parts than before
    assert len(parts(tmp_path / "out", "rates")) == 2
    (tmp_path / "out" / "rates" / "mine.txt").write_text("kept")
    refuse(tmp_path, (*dask, "--overwrite"), ["rates/mine.txt", "would be lost"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("all.parquet", "--scheduler", "tcp://x:1"), "--scheduler is for --engine dask"),
        (("--example", "debian-uploads", "--engine", "dask"), "Leave --example out"),
        (("in", "--engine", "dask", "--csv"), "Leave --csv out"),
        (("in", "--engine", "dask", "--half-life", "3d"), "--half-life depends on the whole log"),
        (("in", "--engine", "dask", "--reset", "auto"), "--reset depends on the whole log"),
        (("in", "--engine", "dask", "--importance", "absent"), "no file or folder absent"),
        (("absent", "--engine", "dask"), "no file or folder absent"),
        (("--engine", "dask"), "needs LOG, a folder"),
        (("in/0.parquet", "in/9.parquet", "--engine", "dask"), "no file or folder in/9.parquet"),
    ],
)
@pytest.mark.usefixtures("run")
def test_what_partitions_cannot_do_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    split(tmp_path / "in", crawls(), 2)
    job = ("--bandwidth", "9/day", "--horizon", "7d", "--out", "out")
    refuse(tmp_path, ("plan", *arguments, *job), [words])
