"""`freshopt solve --engine dask`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from distributed import Client, LocalCluster

import freshopt as fo
from freshopt.problems import HarmonicStaleness
from tests.ground_truth.command_lines import Run
from tests.ground_truth.partitioned import web, write

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
    expected = fo.distributed.solve(HarmonicStaleness(), tmp_path / "in", 50.0).rates().compute()["rate"]
    found = pl.read_parquet("out/part-*.parquet", glob=True)["rate"].to_numpy()
    assert np.array_equal(found, expected.to_numpy())
    assert len(files) == len(found)


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
