"""Partitioned data, copies of it, and a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from distributed import Client, LocalCluster

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.distributed import DistributedPlan, PartitionedSources
from freshopt.problems import HarmonicStaleness
from freshopt.separable.kernel import Kernel
from tests.contracts.test_copies import WAYS, difference, writable
from tests.ground_truth.named import BINARY_ON_REQUEST, DELAY, HARMONIC, POISSON
from tests.ground_truth.partitioned import rates_of, solved, web, write
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import rare
from tests.ground_truth.strategies import sample

GOOD = pl.DataFrame({"source": list("abcdef"), "change_rate": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})


def solve(folder: Path, **options: Any) -> fo.distributed.DistributedSolution:  # noqa: ANN401
    return fo.distributed.solve(HARMONIC, folder, options.pop("bandwidth", 3.0), **options)


def spoilt(folder: Path, column: str, value: object, row: int = 4) -> Path:
    """Write the good sources with one cell changed, in three files of two rows."""
    cells: list[Any] = GOOD[column].to_list() if column in GOOD.columns else [1.0] * 6
    cells[row] = value
    return write(folder, GOOD.with_columns(pl.Series(column, cells)), 3)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("change_rate", float("nan"), "change_rate out of range for row 0: nan"),
        ("change_rate", None, "column 'change_rate' is empty or no number in row 0"),
        ("change_rate", 0.0, "change_rate out of range for row 0: 0"),
        ("importance", -1.0, "importance out of range for row 0: -1"),
        ("refresh_cost", float("inf"), "refresh_cost out of range for row 0: inf"),
        ("source", None, "column 'source' is empty in row 0"),
        ("source", "f", "'f' occurs more than once"),
    ],
)
def test_a_bad_cell_is_told_by_file_and_row(column: str, value: object, message: str, tmp_path: Path) -> None:
    files = spoilt(tmp_path / "in", column, value)
    with pytest.raises(fo.SourceDataError) as caught:
        solve(files, out=tmp_path / "out")
    assert "002.parquet" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_rows_are_counted_from_the_start_of_the_file(tmp_path: Path) -> None:
    frame = pl.DataFrame({"change_rate": np.where(np.arange(50) == 37, -1.0, 1.0)})
    frame.write_parquet(tmp_path / "all.parquet", row_group_size=10)
    sources = PartitionedSources.from_parquet(tmp_path / "all.parquet", rows=20)
    assert len(sources.parts) == 3
    refused("row 37: -1", fo.distributed.solve, HARMONIC, sources, 3.0)


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    refused("no file or folder", solve, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    refused(r"holds no \*\.parquet files", solve, tmp_path / "empty")
    refused("no rows are in .*000.parquet, ", solve, write(tmp_path / "rowless", GOOD[:0], 2))
    with pytest.raises(fo.SourceDataError, match=r"000\.parquet has no column 'change_rate'"):
        solve(write(tmp_path / "other", GOOD.rename({"change_rate": "rate"}), 2))
    files = write(tmp_path / "odd", GOOD, 2)
    GOOD.with_columns(importance=2.0).write_parquet(files / "001.parquet")
    refused("do not both have the columns importance", solve, files)
    (files / "001.parquet").write_bytes(b"PAR1 this is not PAR1")
    refused(r"001\.parquet cannot be read as Parquet", solve, files)
    with pytest.raises(fo.SourceDataError, match=r"'change_rate' holds .*string\. Make it numbers"):
        solve(write(tmp_path / "text", GOOD.with_columns(change_rate=pl.lit("fast")), 2))


def test_partitions_without_rows_are_passed_over(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD, 2)
    GOOD[:0].write_parquet(files / "0005.parquet")
    found = solve(files, out=tmp_path / "out")
    frame = dd.from_pandas(pd.DataFrame({"change_rate": GOOD["change_rate"].to_numpy()}), npartitions=3)
    lazy = fo.distributed.solve(HARMONIC, frame[frame["change_rate"] > 2.0], 3.0)
    assert found.rates().compute()["source"].tolist() == list("abcdef")
    assert lazy.n == 4
    assert rates_of(lazy).sum() == pytest.approx(3.0, rel=1e-14)


def test_hosts_may_be_numbers_and_must_be_known(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD.with_columns(host=pl.Series([1, 1, 2, 2, 1, 1], dtype=pl.Int32)), 3)
    found = solve(files, host_limits={1: 0.5})
    assert rates_of(found)[[0, 1, 4, 5]].sum() == pytest.approx(0.5, rel=1e-14)
    refused("unknown hosts 7", solve, files, host_limits={1: 0.5, 7: 1.0})
    refused("hosts are int32", solve, files, host_limits={"one": 0.5})
    refused("must be numbers > 0, got 1: -2", solve, files, host_limits={1: -2})
    refused("have no column 'host'", solve, write(tmp_path / "hostless", GOOD, 2), host_limits={1: 1.0})


def test_what_is_written(tmp_path: Path) -> None:
    frame = GOOD.with_columns(signalled=pl.Series([True] + 5 * [False]), time_unit=pl.lit("hour"))
    files = write(tmp_path / "in", frame, 3)
    found = solve(files, out=tmp_path / "out")
    written = pl.read_parquet(tmp_path / "out" / "part-*.parquet", glob=True)
    assert written.columns == ["source", "rate", "interval", "signalled", "change_rate", "time_unit"]
    assert written["time_unit"].unique().to_list() == ["hour"]
    assert (written["interval"] * written["rate"]).to_numpy() == pytest.approx(np.ones(6), rel=1e-15)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["n"], summary["status"], summary["time_unit"]) == (6, "optimal", "hour")
    assert summary["value"] == found.value
    refused("already holds a result", solve, files, out=tmp_path / "out")
    solve(write(tmp_path / "fewer", frame, 2), out=tmp_path / "out", overwrite=True)
    assert len(list((tmp_path / "out").iterdir())) == 3  # nothing is left of the earlier three
    refused("are per hour, and not per day", solve, files, time_unit="day")


def test_an_interval_is_null_where_nothing_is_refreshed(tmp_path: Path) -> None:
    frame = GOOD.with_columns(importance=pl.Series([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]))
    found = fo.distributed.solve(DELAY, write(tmp_path / "in", frame, 3), 3.0, out=tmp_path / "o")
    written = pl.read_parquet(tmp_path / "o" / "part-*.parquet", glob=True)
    assert written["rate"][5] == 0.0
    assert written["interval"].null_count() == 1
    assert found.never == 1


def test_sources_that_change_meanwhile_are_noticed(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD, 3)
    words: list[str] = []

    def report(word: str) -> None:
        words.append(word)
        if len(words) == 2:
            GOOD[:1].write_parquet(files / "001.parquet")

    refused("had 2 rows at first and has 1 now", solve, files, out=tmp_path / "out", on_progress=report)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*"))


def test_rates_of_sources_that_have_changed_since_are_refused(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD, 3)
    rates = solve(files).rates()
    GOOD[:1].write_parquet(files / "001.parquet")
    refused("had 2 rows at first and has 1 now", rates.compute)


def test_arguments_that_are_none(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD, 1)
    with pytest.raises(fo.ObjectiveError, match="is not an Objective instance"):
        fo.distributed.solve(HarmonicStaleness, files, 3.0)  # type: ignore[arg-type]
    refused("bandwidth is -1", solve, files, bandwidth=-1.0)
    refused("not a Dask DataFrame", fo.distributed.solve, HARMONIC, GOOD, 3.0)


def test_an_answer_that_is_not_proved_is_not_written(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD, 2)
    with pytest.raises(fo.CertificateError) as caught:
        solve(files, out=tmp_path / "out", tolerance=0.0)
    assert caught.value.solution.relative_gap > 0.0
    assert not (tmp_path / "out").exists()
    assert solve(files, tolerance=0.0, throw=False).status is fo.Status.INACCURATE


@pytest.mark.parametrize("column", ["success", "changed_cost", "request_rate", "stale_while_revalidate"])
def test_columns_that_passes_do_not_carry_are_refused(column: str, tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD.with_columns(pl.lit(0.5).alias(column)), 2)
    refused(rf"has a column '{column}', and .* use fo\.solve\.$", solve, files)
    frame = dd.from_pandas(GOOD.with_columns(pl.lit(0.5).alias(column)).to_pandas(), npartitions=2)
    refused(rf"the Dask DataFrame has a column '{column}'", PartitionedSources.from_dask, frame)


def test_refreshes_on_request_are_refused(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD, 2)
    asked = BINARY_ON_REQUEST
    with pytest.raises(fo.SolverRefusedError, match=r"know no requests\. Use fo\.solve\.$"):
        fo.distributed.solve(asked, files, 3.0)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """A solution with its sources, an error with it, and a plan."""
    folder = tmp_path_factory.mktemp("in")
    found = solved(sample(7, "harmonic", "poisson", "hosts", 8, budget=1.0), folder, 2)
    return [found, fo.CertificateError("It is so. Because.", found), DistributedPlan(Path("out"), {"n": 8})]


def test_values_of_partitions_come_back_equal_and_read_only(values: list[Any]) -> None:
    for value in values:
        assert writable(value, "it") == []
        for way, copied in WAYS.items():
            again = copied(value)
            assert difference(value, again) == "", way
            assert writable(again, "it") == [], way


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as for a notebook: workers cannot import tests


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster,
        Client(cluster) as client,
    ):
        yield client


@dataclass(frozen=True)
class Deadly(HarmonicStaleness):
    """Harmonic staleness on a worker that kills itself at the given call, once."""

    folder: str = ""
    call: int = 0

    def kernel(self, sources: fo.Sources) -> Kernel:
        folder = Path(self.folder)
        (folder / f"call-{os.getpid()}-{len(list(folder.iterdir()))}").touch()
        calls = len(list(folder.glob("call-*")))
        fuse = folder / "fuse"
        if calls >= self.call:
            with contextlib.suppress(FileNotFoundError):  # another worker was first, and is the one killed
                fuse.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().kernel(sources)


@pytest.mark.exhaustive
# Of 8 partitions a pass makes 8 calls: at the first look, while prices are searched, while rates are written.
@pytest.mark.parametrize("call", [*rare(4), 12, *rare(22)])
def test_a_killed_worker_costs_a_retry_and_no_bit(call: int, client: Any, tmp_path: Path) -> None:  # noqa: ANN401
    frame, limits = web(4_000, seed=13, hosts=30)
    files = write(tmp_path / "in", frame, 8)
    expected = fo.distributed.solve(HARMONIC, files, 300.0, limits)
    (tmp_path / "calls").mkdir()
    (tmp_path / "calls" / "fuse").touch()
    before = set(client.run(os.getpid).values())
    objective = Deadly(POISSON, folder=str(tmp_path / "calls"), call=call)
    found = fo.distributed.solve(objective, files, 300.0, limits, out=tmp_path / "out")
    assert not (tmp_path / "calls" / "fuse").exists()
    client.wait_for_workers(2)
    assert set(client.run(os.getpid).values()) != before  # a process was lost, and replaced
    assert (found.value, found.price, found.gap) == (expected.value, expected.price, expected.gap)
    assert found.passes == expected.passes
    assert np.array_equal(rates_of(found), rates_of(expected))
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == [*(f"part-{k:05d}.parquet" for k in range(8)), "summary.json"]


@pytest.mark.exhaustive
def test_processes_and_threads_agree_to_the_bit(client: Any, tmp_path: Path) -> None:  # noqa: ANN401
    frame, limits = web(3_000, seed=21, hosts=10)
    files = write(tmp_path / "in", frame, 5)
    with client.as_current():
        there = fo.distributed.solve(HARMONIC, files, 200.0, limits)
        lazy = dd.from_pandas(pd.DataFrame(frame.to_dict(as_series=False)), npartitions=5)
        framed = fo.distributed.solve(HARMONIC, lazy, 200.0, limits, out=tmp_path / "out")
    assert framed.value == pytest.approx(there.value, rel=1e-13)
    assert rates_of(framed) == pytest.approx(rates_of(there), rel=1e-12)
    with dask.config.set(scheduler="threads"):
        assert PartitionedSources.from_dask(lazy).rows is None


@pytest.mark.exhaustive
def test_an_error_on_a_worker_is_the_same_line(client: Any, tmp_path: Path) -> None:  # noqa: ANN401, ARG001
    frame, _ = web(100, seed=1)
    files = write(tmp_path / "in", frame, 4)
    bad = frame.with_columns(change_rate=-frame["change_rate"])
    write(tmp_path / "bad", bad, 1)
    (tmp_path / "bad" / "000.parquet").replace(files / "002.parquet")
    with pytest.raises(fo.SourceDataError, match=r"002\.parquet .*change_rate out of range for row 0: -"):
        fo.distributed.solve(HARMONIC, files, 10.0)


@pytest.mark.exhaustive
def test_what_is_on_the_client_is_small(client: Any, tmp_path: Path) -> None:  # noqa: ANN401, ARG001
    frame, _ = web(20_000, seed=3)
    files = write(tmp_path / "in", frame, 10)
    found = fo.distributed.solve(HARMONIC, files, 2_000.0, out=tmp_path / "out")
    assert len(pickle.dumps(found)) < 20_000  # nothing in it grows with the sources


class Sized(fo.Objective):
    """Of a column of its own."""

    columns = ("size",)

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        return cp.multiply(sources.importance * sources["size"], cp.inv_pos(rate))


@pytest.mark.parametrize("limits", [{}, {"a": 0.5}])
def test_columns_of_ones_own_are_read_from_partitions(limits: dict[str, float], tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    size = rng.lognormal(sigma=2.0, size=60)
    frame = pl.DataFrame({"change_rate": 1.0, "size": size, "host": ["a", "b", "c"] * 20, "note": ["x"] * 60})
    folder = write(tmp_path / "in", frame, 3)
    found = fo.distributed.solve(Sized(), folder, 9.0, limits, out=tmp_path / "out")
    sources = fo.Sources.from_frame(frame, columns=["size"])
    known = fo.solve(fo.Problem(Sized(), sources, 9.0, limits or None))
    assert found.value == pytest.approx(known.value, rel=1e-12)
    assert rates_of(found) == pytest.approx(known.rates, rel=1e-9)
    missing = write(tmp_path / "without", frame.drop("size"), 2)
    refused(r"Sized reads the column 'size', which not all", fo.distributed.solve, Sized(), missing, 9.0)
