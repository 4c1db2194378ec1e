"""Solving in partitions on a Dask cluster of two processes; one of them is killed in the middle of a pass."""

from __future__ import annotations

import contextlib
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
import pytest
from distributed import Client, LocalCluster

import freshopt as fo
from freshopt.distributed import PartitionedSources
from freshopt.problems import HarmonicStaleness
from freshopt.separable.kernel import Kernel
from tests.ground_truth.partitioned import rates_of, web, write
from tests.ground_truth.strata import exhaustive

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
@pytest.mark.parametrize("call", [pytest.param(4, marks=exhaustive), 12, pytest.param(29, marks=exhaustive)])
def test_a_killed_worker_costs_a_retry_and_no_bit(call: int, client: Any, tmp_path: Path) -> None:  # noqa: ANN401
    frame, limits = web(4_000, seed=13, hosts=30)
    files = write(tmp_path / "in", frame, 8)
    expected = fo.distributed.solve(HarmonicStaleness(), files, 300.0, limits)
    (tmp_path / "calls").mkdir()
    (tmp_path / "calls" / "fuse").touch()
    before = set(client.run(os.getpid).values())
    objective = Deadly(folder=str(tmp_path / "calls"), call=call)
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
        there = fo.distributed.solve(HarmonicStaleness(), files, 200.0, limits)
        lazy = dd.from_pandas(pd.DataFrame(frame.to_dict(as_series=False)), npartitions=5)
        framed = fo.distributed.solve(HarmonicStaleness(), lazy, 200.0, limits, out=tmp_path / "out")
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
        fo.distributed.solve(HarmonicStaleness(), files, 10.0)


@pytest.mark.exhaustive
def test_what_is_on_the_client_is_small(client: Any, tmp_path: Path) -> None:  # noqa: ANN401, ARG001
    frame, _ = web(20_000, seed=3)
    files = write(tmp_path / "in", frame, 10)
    found = fo.distributed.solve(HarmonicStaleness(), files, 2_000.0, out=tmp_path / "out")
    assert len(pickle.dumps(found)) < 20_000  # nothing in it grows with the sources
