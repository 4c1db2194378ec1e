"""What is wrong with partitions ends in one line that names file and row; output is complete or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest

import freshopt as fo
from freshopt.distributed import PartitionedSources
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth.partitioned import rates_of, write

GOOD = pl.DataFrame({"source": list("abcdef"), "change_rate": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})


def solve(folder: Path, **options: Any) -> fo.distributed.DistributedSolution:  # noqa: ANN401
    return fo.distributed.solve(HarmonicStaleness(), folder, options.pop("bandwidth", 3.0), **options)


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
    with pytest.raises(fo.SourceDataError, match="row 37: -1"):
        fo.distributed.solve(HarmonicStaleness(), sources, 3.0)


def test_files_that_do_not_fit_together(tmp_path: Path) -> None:
    with pytest.raises(fo.SourceDataError, match="no file or folder"):
        solve(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(fo.SourceDataError, match=r"holds no \*\.parquet files"):
        solve(tmp_path / "empty")
    with pytest.raises(fo.SourceDataError, match="holds no rows"):
        solve(write(tmp_path / "rowless", GOOD[:0], 2))
    with pytest.raises(fo.SourceDataError, match=r"000\.parquet has no column 'change_rate'"):
        solve(write(tmp_path / "other", GOOD.rename({"change_rate": "rate"}), 2))
    files = write(tmp_path / "odd", GOOD, 2)
    GOOD.with_columns(importance=2.0).write_parquet(files / "001.parquet")
    with pytest.raises(fo.SourceDataError, match="do not both have the columns importance"):
        solve(files)
    (files / "001.parquet").write_bytes(b"PAR1 this is not PAR1")
    with pytest.raises(fo.SourceDataError, match=r"001\.parquet cannot be read as Parquet"):
        solve(files)
    with pytest.raises(fo.SourceDataError, match=r"'change_rate' holds .*string\. Make it numbers"):
        solve(write(tmp_path / "text", GOOD.with_columns(change_rate=pl.lit("fast")), 2))


def test_partitions_without_rows_are_passed_over(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD, 2)
    GOOD[:0].write_parquet(files / "0005.parquet")
    found = solve(files, out=tmp_path / "out")
    frame = dd.from_pandas(pd.DataFrame({"change_rate": GOOD["change_rate"].to_numpy()}), npartitions=3)
    lazy = fo.distributed.solve(HarmonicStaleness(), frame[frame["change_rate"] > 2.0], 3.0)
    assert found.rates().compute()["source"].tolist() == list("abcdef")
    assert lazy.n == 4
    assert rates_of(lazy).sum() == pytest.approx(3.0, rel=1e-14)


def test_hosts_may_be_numbers_and_must_be_known(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD.with_columns(host=pl.Series([1, 1, 2, 2, 1, 1], dtype=pl.Int32)), 3)
    found = solve(files, host_limits={1: 0.5})
    assert rates_of(found)[[0, 1, 4, 5]].sum() == pytest.approx(0.5, rel=1e-14)
    with pytest.raises(fo.SourceDataError, match="unknown hosts 7"):
        solve(files, host_limits={1: 0.5, 7: 1.0})
    with pytest.raises(fo.SourceDataError, match="hosts are int32"):
        solve(files, host_limits={"one": 0.5})
    with pytest.raises(fo.SourceDataError, match="must be numbers > 0, got 1: -2"):
        solve(files, host_limits={1: -2})
    with pytest.raises(fo.SourceDataError, match="have no column 'host'"):
        solve(write(tmp_path / "hostless", GOOD, 2), host_limits={1: 1.0})


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
    with pytest.raises(fo.SourceDataError, match="already holds a result"):
        solve(files, out=tmp_path / "out")
    solve(write(tmp_path / "fewer", frame, 2), out=tmp_path / "out", overwrite=True)
    assert len(list((tmp_path / "out").iterdir())) == 3  # nothing is left of the earlier three
    with pytest.raises(fo.SourceDataError, match="are per hour, and not per day"):
        solve(files, time_unit="day")


def test_an_interval_is_null_where_nothing_is_refreshed(tmp_path: Path) -> None:
    frame = GOOD.with_columns(importance=pl.Series([1.0, 1.0, 1.0, 1.0, 1.0, 0.0]))
    found = fo.distributed.solve(
        AccumulatedDelay(), write(tmp_path / "in", frame, 3), 3.0, out=tmp_path / "o"
    )
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

    with pytest.raises(fo.SourceDataError, match="had 2 rows at first and has 1 now"):
        solve(files, out=tmp_path / "out", on_progress=report)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*"))


def test_arguments_that_are_none(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD, 1)
    with pytest.raises(fo.ObjectiveError, match="is not an Objective instance"):
        fo.distributed.solve(HarmonicStaleness, files, 3.0)  # type: ignore[arg-type]
    with pytest.raises(fo.SourceDataError, match="bandwidth is -1"):
        solve(files, bandwidth=-1.0)
    with pytest.raises(fo.SourceDataError, match="not a Dask DataFrame"):
        fo.distributed.solve(HarmonicStaleness(), GOOD, 3.0)


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
    with pytest.raises(fo.SourceDataError, match=rf"has a column '{column}', and .* use fo\.solve\.$"):
        solve(files)
    frame = dd.from_pandas(GOOD.with_columns(pl.lit(0.5).alias(column)).to_pandas(), npartitions=2)
    with pytest.raises(fo.SourceDataError, match=rf"the Dask DataFrame has a column '{column}'"):
        PartitionedSources.from_dask(frame)


def test_refreshes_on_request_are_refused(tmp_path: Path) -> None:
    files = write(tmp_path / "in", GOOD, 2)
    asked = BinaryFreshness(fo.Refresh.ON_REQUEST)
    with pytest.raises(fo.SolverRefusedError, match=r"know no requests\. Use fo\.solve\.$"):
        fo.distributed.solve(asked, files, 3.0)
    with pytest.raises(fo.SolverRefusedError, match=r"know no requests\. Use fo\.solve\.$"):
        fo.distributed.solve(HarmonicStaleness(), files, 3.0, constraints=[fo.Target(asked, at_least=0.1)])
