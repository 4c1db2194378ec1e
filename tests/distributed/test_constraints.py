"""Declared limits by group over partitions: planted optima, the answer in memory, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.cvx import Expression
from freshopt.problems import PowerCost, SynchronizationCost
from tests.ground_truth.named import BINARY, DELAY, HARMONIC
from tests.ground_truth.partitioned import rates_of, write
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR


def web(n: int, seed: int, *, ill: bool = False) -> pl.DataFrame:
    """Return sources in groups; region "jp" is in the last sources alone."""
    rng = np.random.default_rng(seed)
    change_rate = 10.0 ** rng.uniform(-5.0, 5.0, n) if ill else rng.gamma(1.0, 1.0, n) + 1e-3
    region = rng.choice(["eu", "us", "cn"], n).astype(object)
    region[-max(1, n // 10) :] = "jp"
    return pl.DataFrame(
        {
            "source": [f"s{k}" for k in range(n)],
            "change_rate": change_rate,
            "importance": rng.lognormal(0.0, 3.0 if ill else 0.5, n),
            "refresh_cost": rng.uniform(0.5, 2.0, n),
            "region": pl.Series(region.tolist(), dtype=pl.String),
            "tier": pl.Series([None if u < 0.1 else int(4 * u) for u in rng.random(n)], dtype=pl.Int64),
        }
    )


def sources_of(frame: pl.DataFrame) -> fo.Sources:
    return fo.Sources.from_frame(frame.select("source", "change_rate", "importance", "refresh_cost"))


def column(frame: pl.DataFrame, name: str) -> Any:  # noqa: ANN401
    """Return a column as constraints in memory take it."""
    return np.array(frame[name].to_list(), dtype=object)


def declared(frame: pl.DataFrame, *, by_name: bool) -> list[Any]:
    """Return limits of regions that bind, by a column or by an array."""
    region = column(frame, "region")
    usual = frame["refresh_cost"].to_numpy() * frame["change_rate"].to_numpy()
    most = {key: 0.3 * float(usual[region == key].sum()) for key in ("jp", "eu")}
    return [fo.Budget(most, by="region" if by_name else region, name="region")]


def files(folder: Path, frame: pl.DataFrame, parts: int) -> Path:
    """Write a table in files of very different lengths, one of them empty."""
    folder.mkdir()
    ends = [round(len(frame) * (k / parts) ** 2) for k in range(parts + 1)]
    for k in range(parts):
        frame[ends[k] : ends[k + 1]].write_parquet(folder / f"{2 * k:03d}.parquet")
    frame[:0].write_parquet(folder / "001.parquet")
    return folder


@pytest.mark.parametrize("compiled", ["1", "0"])
@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.sampled(3)
def test_the_answer_is_that_of_memory(
    parts: int, compiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    frame = web(400, seed=parts)
    bandwidth = 0.4 * float(frame["refresh_cost"].to_numpy() @ frame["change_rate"].to_numpy())
    memory = fo.solve(
        fo.Problem(HARMONIC, sources_of(frame), bandwidth, constraints=declared(frame, by_name=False))
    )
    found = fo.distributed.solve(
        HARMONIC,
        files(tmp_path / "in", frame, parts),
        bandwidth,
        constraints=declared(frame, by_name=True),
    )
    assert sum(price > 0.0 for price in memory.prices.values()) == 3
    assert rates_of(found) == pytest.approx(memory.rates, rel=SCALAR)
    assert dict(found.prices) == pytest.approx(dict(memory.prices), rel=1e-7, abs=EXACT)
    assert found.value == pytest.approx(memory.value, rel=EXACT)
    assert found.status is fo.Status.OPTIMAL
    assert found.relative_gap <= SCALAR
    assert found.infeasibility == 0.0


@pytest.mark.parametrize("ill", [False, True])
def test_planted_multipliers_are_found(ill: bool, tmp_path: Path) -> None:
    # At delay Σ w·Δ/ρ every rate is √(w·Δ/θ); limits are what these use at drawn multipliers.
    frame, rng = web(300, seed=11, ill=ill), np.random.default_rng(3)
    delay = frame["importance"].to_numpy() * frame["change_rate"].to_numpy()
    cost, region = frame["refresh_cost"].to_numpy(), column(frame, "region")
    price, of_region = rng.uniform(0.5, 2.0), {"eu": 0.7, "jp": 1.9}
    best = np.sqrt(delay / (cost * (price + np.array([of_region.get(key, 0.0) for key in region]))))
    most = {key: float((cost * best)[region == key].sum()) for key in of_region}
    found = fo.distributed.solve(
        DELAY,
        files(tmp_path / "in", frame, 3),
        float(cost @ best),
        constraints=[fo.Budget(most, by="region", name="r")],
    )
    assert found.value == pytest.approx(float(np.sum(delay / best)), rel=1e-11)
    assert rates_of(found) == pytest.approx(best, rel=SCALAR)
    assert dict(found.prices) == pytest.approx({"bandwidth": price, "r[eu]": 0.7, "r[jp]": 1.9}, rel=1e-8)
    assert found.relative_gap <= SCALAR
    assert found.infeasibility == 0.0


def test_a_limit_that_min_rate_uses_up_and_one_that_never_binds(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"change_rate": [1.0, 1.0, 4.0], "min_rate": [0.25, 0.25, 0.0], "group": ["a", "a", "b"]}
    )
    most = fo.Budget({"a": 0.5, "b": 9.0}, by="group", name="group")
    found = fo.distributed.solve(
        DELAY,
        write(tmp_path / "in", frame, 3),
        2.5,
        constraints=[most, fo.Budget(1e6, name="budget")],
    )
    assert rates_of(found) == pytest.approx([0.25, 0.25, 2.0], rel=SCALAR)
    assert dict(found.prices) == pytest.approx(
        {"bandwidth": 1.0, "group[a]": 15.0, "group[b]": 0.0, "budget": 0.0}, rel=SCALAR
    )
    assert found.status is fo.Status.OPTIMAL


def test_objectives_with_arrays_give_each_partition_its_part(tmp_path: Path) -> None:
    rng, n = np.random.default_rng(4), 60
    cost = SynchronizationCost(PowerCost(scale=rng.uniform(0.5, 2.0, n), exponent=rng.uniform(0.2, 0.8, n)))
    frame = pl.DataFrame({"change_rate": rng.uniform(0.5, 2.0, n), "tier": np.arange(n) % 2})
    sources, tier = fo.Sources.from_frame(frame.select("change_rate")), frame["tier"].to_numpy()
    memory = fo.solve(fo.Problem(cost, sources, 45.0, constraints=[fo.Budget({1: 12.0}, by=tier, name="t")]))
    folder = write(tmp_path / "in", frame, 4)
    found = fo.distributed.solve(cost, folder, 45.0, constraints=[fo.Budget({1: 12.0}, by="tier", name="t")])
    assert rates_of(found) == pytest.approx(memory.rates, rel=1e-8)
    assert found.prices["t[1]"] == pytest.approx(memory.prices["t[1]"], rel=1e-7)


@pytest.mark.exhaustive
def test_schedulers_change_no_bit_and_files_hold_what_was_found(tmp_path: Path) -> None:
    frame = web(200, seed=8)
    folder, constraints = write(tmp_path / "in", frame, 5), declared(frame, by_name=True)
    one = fo.distributed.solve(DELAY, folder, 90.0, constraints=constraints)
    with dask.config.set(scheduler="synchronous"):
        other = fo.distributed.solve(DELAY, folder, 90.0, constraints=constraints, out=tmp_path / "out")
    assert (one.value, dict(one.prices), one.gap) == (other.value, dict(other.prices), other.gap)
    assert np.array_equal(rates_of(one), rates_of(other))
    saved = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert saved["prices"] == dict(one.prices)
    assert other.rates().compute()["source"].tolist() == frame["source"].to_list()


def test_a_dask_data_frame_keeps_the_columns_that_constraints_name(tmp_path: Path) -> None:
    frame = web(120, seed=9)
    constraints = declared(frame, by_name=True)
    expected = fo.distributed.solve(DELAY, write(tmp_path / "in", frame, 2), 60.0, constraints=constraints)
    table = dd.from_pandas(frame.to_pandas().astype({"region": "category"}), npartitions=3)
    found = fo.distributed.solve(DELAY, table, 60.0, constraints=constraints)
    assert rates_of(found) == pytest.approx(rates_of(expected), rel=SCALAR)
    bare = fo.distributed.PartitionedSources.from_dask(table)
    refused("others= of from_dask", fo.distributed.solve, DELAY, bare, 60.0, constraints=constraints)
    kept = fo.distributed.PartitionedSources.from_dask(table, others=["region"])
    again = fo.distributed.solve(DELAY, kept, 60.0, constraints=constraints)
    assert np.array_equal(rates_of(again), rates_of(found))


def at_most_one(rate: Expression) -> list[Expression]:
    return [rate <= 1.0]


@pytest.mark.parametrize(
    ("constraint", "error", "words"),
    [
        (fo.Nested([["a"] * 8], at_most={"a": 1.0}, name="tree"), fo.SolverRefusedError, "a level of Nested"),
        (fo.Tied("host", name="maps"), fo.SolverRefusedError, "Tied 'maps'"),
        (fo.Ratio(of=[0], at_most=2.0, name="pair"), fo.SolverRefusedError, "Ratio 'pair'"),
        (at_most_one, fo.SolverRefusedError, "a function of the rate"),
        (fo.Budget(1.0, cost="size", name="kB"), fo.SolverRefusedError, "Budget 'kB' with a cost of its own"),
        (
            fo.Budget(1.0, cost=[1.0, 2.0], name="kB"),
            fo.SolverRefusedError,
            r"solve in memory with fo\.solve",
        ),
        (fo.Target(BINARY, at_least=0.5, by="tier"), fo.SolverRefusedError, "Target 'BinaryFreshness'"),
        (fo.Budget(1.0, by=["a"], name="r"), fo.SolverRefusedError, "by of Budget 'r' is an array"),
        (fo.Budget(1.0, at_least=0.5, name="r"), fo.SourceDataError, "no limit alone"),
        (fo.Budget({"mars": 1.0}, by="region", name="r"), fo.SourceDataError, "unknown groups 'mars'"),
        (fo.Budget({"eu": 1.0}, by="tier", name="r"), fo.SourceDataError, "groups of 'r' are int64"),
        (fo.Budget(1.0, by="none", name="r"), fo.SourceDataError, "a column without values"),
        (fo.Budget(1.0, by="no", name="r"), fo.SourceDataError, "names the column 'no'"),
        (fo.Budget(1.0), fo.SourceDataError, "two constraints are named 'bandwidth'"),
    ],
)
def test_what_is_refused_and_why(
    constraint: Any,  # noqa: ANN401
    error: type[Exception],
    words: str,
    tmp_path: Path,
) -> None:
    frame = web(8, seed=1).with_columns(none=pl.Series([None] * 8, dtype=pl.String))
    with pytest.raises(error, match=words):
        fo.distributed.solve(DELAY, write(tmp_path / "in", frame, 1), 5.0, constraints=[constraint])


def test_what_else_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", web(8, seed=1), 1)
    for objective in (fo.Worst(HARMONIC, by="host"), fo.Spend()):
        with pytest.raises(fo.SolverRefusedError, match=r"is not solved for over partitions.* fo\.solve"):
            fo.distributed.solve(objective, folder, 5.0)
    with pytest.raises(fo.SourceDataError, match="have no column 'bytes', but none of your own"):
        fo.Problem(DELAY, fo.Sources([1.0]), 5.0, constraints=[fo.Budget(1.0, cost="bytes")])
    with pytest.raises(fo.SourceDataError, match="is by 'region' but there is no column"):
        fo.Problem(DELAY, fo.Sources([1.0]), 5.0, constraints=[fo.Budget(1.0, by="region", name="r")])
    refused("there is no bandwidth", fo.distributed.solve, DELAY, folder)
