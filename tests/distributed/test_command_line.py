"""`freshopt solve --engine dask`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from distributed import Client, LocalCluster

import freshopt as fo
from tests.ground_truth.command_lines import Run
from tests.ground_truth.named import HARMONIC
from tests.ground_truth.partitioned import featured_files, web, write

DASK = ("--engine", "dask", "--bandwidth", "50/day", "--out", "out")


@pytest.fixture
def files(tmp_path: Path) -> pl.DataFrame:
    frame, limits = web(600, seed=17, hosts=6)
    write(tmp_path / "in", frame, 4)
    table = {"host": list(limits), "limit": list(limits.values())}
    pl.DataFrame(table).write_csv(tmp_path / "limits.csv")
    return frame


def test_rates_of_a_folder_are_those_of_a_table(run: Run, files: pl.DataFrame) -> None:
    files.write_parquet("all.parquet")
    shown = run("solve", "in", *DASK, "--host-limits", "limits.csv", "--refresh", "poisson").output
    assert "optimal, in 4 partitions" in shown
    assert "wrote: out" in shown
    memory = ("--bandwidth", "50/day", "--out", "rates.parquet", "--host-limits", "limits.csv")
    run("solve", "all.parquet", *memory, "--refresh", "poisson")
    expected = pl.read_parquet("rates.parquet")["rate"].to_numpy()
    found = pl.read_parquet("out/part-*.parquet", glob=True)
    assert found["source"].to_list() == files["source"].to_list()
    assert found["rate"].to_numpy() == pytest.approx(expected, rel=1e-9)
    assert json.loads(Path("out/summary.json").read_text())["n"] == 600
    run("solve", "in", *DASK, code=2)  # the folder holds a result
    run("solve", "in", *DASK, "--overwrite")


@pytest.mark.exhaustive
def test_on_a_scheduler(run: Run, files: pl.DataFrame, tmp_path: Path) -> None:
    absolute = (
        "--engine",
        "dask",
        "--bandwidth",
        "50",
        "--refresh",
        "poisson",
        "--out",
        str(tmp_path / "out"),
    )
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster:
        run("solve", "in", *absolute, "--scheduler", cluster.scheduler_address)
        with Client(cluster) as client:
            tasks = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.task_prefixes))
    assert tasks > 0
    expected = fo.distributed.solve(HARMONIC, tmp_path / "in", 50.0).rates().compute()["rate"]
    found = pl.read_parquet("out/part-*.parquet", glob=True)["rate"].to_numpy()
    assert np.array_equal(found, expected.to_numpy())
    assert len(files) == len(found)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engine", "dask", "--solver", "ecos"), "solves by water-filling, not by ecos"),
        (("--scheduler", "tcp://x:1"), "--scheduler is for --engine dask"),
        (("--engine", "dask", "--scheduler", "tcp://127.0.0.1:9"), "cannot be reached"),
    ],
)
def test_what_does_not_go_together(
    run: Run, files: pl.DataFrame, arguments: tuple[str, ...], message: str
) -> None:
    assert len(files)
    result = run("solve", "in", "--bandwidth", "2", "--out", "out", *arguments, code=2)
    assert message in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_the_time_unit_is_the_tables_or_the_options(run: Run, files: pl.DataFrame) -> None:
    shown = run("solve", "in", *DASK[:2], "--bandwidth", "1200/day", "--time-unit", "hour", "--out", "out")
    assert "bandwidth=50 per hour" in shown.output
    assert pl.read_parquet("out/part-*.parquet", glob=True)["time_unit"].unique().to_list() == ["hour"]
    write(Path("named"), files.with_columns(time_unit=pl.lit("hour")), 2)
    shown = run("solve", "named", *DASK[:2], "--bandwidth", "1200/day", "--out", "other")
    assert "bandwidth=50 per hour" in shown.output
    refused = run("solve", "named", *DASK, "--time-unit", "week", code=2)
    assert "per hour, and not per week" in refused.output


def test_columns_of_parameters_are_refused_and_options_are_not(run: Run, files: pl.DataFrame) -> None:
    shown = run("solve", "in", *DASK, "--objective", "power", "--exponent", "0.3")
    assert "exponent=0.3" in shown.output
    write(Path("own"), files.with_columns(scale=2.0), 2)
    refused = run("solve", "own", *DASK, "--objective", "power", code=2)
    assert "columns scale for --objective power" in refused.output


NESTED = ("--bandwidth", "20", "--nested", "host,domain", "--nested-limits", "nested.csv")


def declared_files() -> pl.DataFrame:
    """Write sources in three files and in one, and nested limits of groups that are texts and integers."""
    rng, n = np.random.default_rng(5), 90
    host = rng.integers(0, 12, n)
    frame = pl.DataFrame(
        {
            "source": [f"s{k}" for k in range(n)],
            "change_rate": rng.gamma(1.0, 1.0, n) + 0.01,
            "size": rng.uniform(0.5, 2.0, n),
            "host": [f"h{k}" for k in host],
            "domain": host // 4,
        }
    )
    write(Path("web"), frame, 3)
    frame.write_parquet("web.parquet")
    Path("nested.csv").write_text("group,at_most,at_least\n0,5,\nh1,0.5,\n2,,8\nh9,,3\n", encoding="utf-8")
    return frame


def test_declared_constraints_are_those_in_memory(run: Run) -> None:
    frame, job = declared_files(), ("--refresh", "poisson", *NESTED)
    shown = run("solve", "web", *job, "--engine", "dask", "--out", "out").output
    memory = run("solve", "web.parquet", *job, "--out", "rates.parquet").output
    expected = pl.read_parquet("rates.parquet")["rate"].to_numpy()
    found = pl.read_parquet("out/part-*.parquet", glob=True)
    assert found["source"].to_list() == frame["source"].to_list()
    assert found["rate"].to_numpy() == pytest.approx(expected, rel=1e-6)
    table = pl.read_parquet("out.constraints.parquet").rows_by_key("row", named=True, unique=True)
    rows = pl.read_parquet("rates.constraints.parquet").rows_by_key("row", named=True, unique=True)
    assert set(table) == set(rows)
    for label, row in rows.items():
        assert table[label]["price"] == pytest.approx(row["price"], rel=1e-5, abs=1e-9)
    assert any(row["price"] > 0.0 for row in rows.values())
    first = next(line for line in memory.splitlines() if "which binds" in line)
    assert first.split(";")[0] in shown
    assert "wrote: out, out.constraints.parquet" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "kB=size:9"), "does not solve for --budget, but for nested limits. Leave it out, or"),
        (("--target", "50%:domain"), "does not solve for --target"),
        (("--cheapest", "--target", "50%:domain"), "does not solve for --target, --cheapest"),
        (("--nested", "size", "--nested-limits", "nested.csv"), "holds Float64. Write groups as text or"),
        (("--nested", "no", "--nested-limits", "nested.csv"), "--nested: web has no column 'no'"),
        (("--nested", "host,", "--nested-limits", "nested.csv"), "has an empty name"),
    ],
)
def test_constraints_that_are_none(run: Run, arguments: tuple[str, ...], message: str) -> None:
    declared_files()
    result = run(
        *("solve", "web", "--bandwidth", "9", "--engine", "dask", "--out", "out"), *arguments, code=2
    )
    assert message in " ".join(result.output.split())
    assert not Path("out").exists()


@pytest.mark.exhaustive
def test_a_plan_with_constraints_is_that_in_memory(run: Run) -> None:
    frame, rng = declared_files(), np.random.default_rng(6)
    time = np.tile(np.arange(30.0), len(frame))
    log = pl.DataFrame(
        {
            "source": np.repeat(frame["source"].to_numpy(), 30),
            "time": time,
            "changed": rng.random(len(time)) < 0.4,
        }
    ).with_columns(pl.col("changed").cast(pl.Int8))
    write(Path("log"), log, 3)
    log.write_parquet("log.parquet")
    write(Path("columns"), frame.select("source", "size", "host", "domain"), 3)
    frame.select("source", "size", "host", "domain").write_parquet("columns.parquet")
    # Each source's rate is learnt with a prior of its own file, or of the whole log: the estimator has none.
    common = ("--horizon", "7", "--estimator", "naive")
    more = (*common, *NESTED, "--overwrite")
    shown = run(
        *("plan", "log", "--engine", "dask", "--source-columns", "columns", "--out", "far"), *more
    ).output
    run(
        *("plan", "log.parquet", "--source-columns", "columns.parquet", "--out", "near", "--draws", "0"),
        *more,
    )
    far, near = (json.loads(Path(f"{one}/summary.json").read_text()) for one in ("far", "near"))
    assert far["value"] == pytest.approx(near["value"], rel=1e-9)
    assert far["method"] == near["method"]
    assert far["constraints"]["binding"] == near["constraints"]["binding"]
    assert {row["label"] for row in far["constraints"]["listed"]} == {
        row["label"] for row in near["constraints"]["listed"]
    }
    table = pl.read_parquet("far/constraints.parquet")
    assert (
        table["row"].sort().to_list() == pl.read_parquet("near/constraints.parquet")["row"].sort().to_list()
    )
    assert "which binds" in shown


def test_features_of_partitions_are_told(run: Run, tmp_path: Path) -> None:
    featured_files(tmp_path)
    asked = ("plan", "in", "--engine", "dask", "--bandwidth", "9/day", "--features")
    shown = " ".join(run(*asked, "features").output.split())
    assert "they tell 98.3 % of how change rates differ, most by 'host'" in shown
    assert "3 sources not crawled yet: expected to change once in" in shown
    # What was used is asked for again by the file of settings.
    told = json.loads(Path("plan/summary.json").read_text())["features"]
    run("plan", "--config", "plan/plan.toml", "--overwrite")
    assert json.loads(Path("plan/summary.json").read_text())["features"] == told
    run(*asked, "url", "--overwrite")
    assert json.loads(Path("plan/summary.json").read_text())["features"]["new"] == 0
    result = run(*asked, "nowhere", "--overwrite", code=2)
    assert "there is no file or folder nowhere" in result.output
