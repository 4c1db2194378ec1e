"""Declared constraints over partitions: planted optima, the answer in memory, and what is refused."""

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
from freshopt.distributed.rows import row_driver
from freshopt.problems import PowerCost, SynchronizationCost
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present
from tests.ground_truth.partitioned import rates_of, write
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

# Bounds the sources of a solve's sample: what is searched over partitions is then not known beforehand.
FEW = 40


def web(n: int, seed: int, *, ill: bool = False) -> pl.DataFrame:
    """Return sources with a second cost and groups; region "jp" is in the last sources alone."""
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
            "bytes": rng.lognormal(0.0, 1.5, n) * (rng.random(n) < 0.9),
            "region": pl.Series(region.tolist(), dtype=pl.String),
            "tier": pl.Series([None if u < 0.1 else int(4 * u) for u in rng.random(n)], dtype=pl.Int64),
        }
    )


def sources_of(frame: pl.DataFrame) -> fo.Sources:
    return fo.Sources.from_frame(frame.select("source", "change_rate", "importance", "refresh_cost"))


def column(frame: pl.DataFrame, name: str) -> Any:  # noqa: ANN401
    """Return a column as constraints in memory take it."""
    return np.array(frame[name].to_list(), dtype=None if name == "bytes" else object)


def declared(frame: pl.DataFrame, *, by_name: bool) -> list[Any]:
    """Return budgets and targets that bind, by columns or by arrays."""

    def of(name: str) -> Any:  # noqa: ANN401
        return name if by_name else column(frame, name)

    cost, change_rate = frame["refresh_cost"].to_numpy(), frame["change_rate"].to_numpy()
    usual = cost * change_rate
    most = {key: 0.3 * float(usual[column(frame, "region") == key].sum()) for key in ("jp", "eu")}
    return [
        fo.Budget(0.25 * float(column(frame, "bytes") @ change_rate), cost=of("bytes"), name="bytes"),
        fo.Budget(most, by=of("region"), name="region"),
        fo.Target(BINARY, at_least={3: 0.42, 1: 0.2}, by=of("tier"), name="tier"),
    ]


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
    monkeypatch.setattr(row_driver, "SAMPLE", FEW)
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
    assert sum(price > 0.0 for price in memory.prices.values()) >= 3
    assert rates_of(found) == pytest.approx(memory.rates, rel=SCALAR)
    assert dict(found.prices) == pytest.approx(dict(memory.prices), rel=1e-7, abs=EXACT)
    assert found.value == pytest.approx(memory.value, rel=EXACT)
    assert found.status is fo.Status.OPTIMAL
    assert found.relative_gap <= SCALAR
    assert found.infeasibility == 0.0


@pytest.mark.parametrize("ill", [False, True])
def test_planted_multipliers_are_found(ill: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # At delay Σ w·Δ/ρ every rate is √(w·Δ·(1 + y/Σw)/θ); limits are what these use at drawn multipliers.
    monkeypatch.setattr(row_driver, "SAMPLE", FEW)
    frame, rng = web(300, seed=11, ill=ill), np.random.default_rng(3)
    delay = frame["importance"].to_numpy() * frame["change_rate"].to_numpy()
    cost, size = frame["refresh_cost"].to_numpy(), frame["bytes"].to_numpy()
    region, tier = column(frame, "region"), column(frame, "tier")
    price, paid, of_region = rng.uniform(0.5, 2.0), rng.uniform(0.1, 2.0), {"eu": 0.7, "jp": 1.9}
    total = {key: float(frame["importance"].to_numpy()[tier == key].sum()) for key in (0, 2)}
    theta = cost * (price + np.array([of_region.get(key, 0.0) for key in region])) + paid * size
    best = np.sqrt(delay * np.where((tier == 0) | (tier == 2), 1.5, 1.0) / theta)
    constraints = [
        fo.Budget(float(size @ best), cost="bytes", name="bytes"),
        fo.Budget(
            {key: float((cost * best)[region == key].sum()) for key in of_region}, by="region", name="r"
        ),
        fo.Target(
            DELAY,
            at_most={key: float((delay / best)[tier == key].sum()) / total[key] for key in total},
            by="tier",
            name="delay",
        ),
    ]
    folder = files(tmp_path / "in", frame, 3)
    found = fo.distributed.solve(DELAY, folder, float(cost @ best), constraints=constraints)
    assert found.value == pytest.approx(float(np.sum(delay / best)), rel=1e-11)
    assert rates_of(found) == pytest.approx(best, rel=1e-8 if ill else SCALAR)
    expected = {"bandwidth": price, "bytes": paid, "r[eu]": 0.7, "r[jp]": 1.9}
    expected |= {f"delay[{key}]": 0.5 * total[key] for key in total}
    assert dict(found.prices) == pytest.approx(expected, rel=1e-6)
    assert found.relative_gap <= SCALAR
    assert found.infeasibility == 0.0


@pytest.mark.parametrize("sample", [FEW, 100_000])
def test_the_cheapest_rates_need_no_bandwidth(
    sample: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Equal sources have equal rates, and fresh shares s = ρ/(ρ+Δ) of 0.8 and 0.5 need ρ = Δ·s/(1−s).
    monkeypatch.setattr(row_driver, "SAMPLE", sample)
    rate, tier = [2.0] * 40 + [3.0] * 30, [0] * 40 + [1] * 30
    frame = pl.DataFrame({"change_rate": rate, "tier": tier})
    targets = fo.Target(BINARY, at_least={0: 0.8, 1: 0.5}, by="tier")
    found = fo.distributed.solve(fo.Spend(), files(tmp_path / "in", frame, 3), constraints=[targets])
    assert rates_of(found) == pytest.approx([8.0] * 40 + [3.0] * 30, rel=SCALAR)
    assert found.value == pytest.approx(410.0, rel=EXACT)
    assert (found.price, found.bandwidth) == (0.0, np.inf)
    # d(ρ)/ds = Δ/(1−s)², times the sources of the tier.
    assert dict(found.prices) == pytest.approx(
        {"BinaryFreshness[0]": 40 * 2.0 / 0.04, "BinaryFreshness[1]": 30 * 3.0 / 0.25}, rel=1e-7
    )
    assert present(found.rows)["BinaryFreshness[0]"].used >= 0.8
    nothing = fo.distributed.solve(fo.Spend(), tmp_path / "in", 3.0)
    assert (nothing.value, nothing.price, nothing.status) == (0.0, 0.0, fo.Status.OPTIMAL)


def test_a_limit_that_min_rate_uses_up_and_one_that_never_binds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_driver, "SAMPLE", 2)
    frame = pl.DataFrame(
        {"change_rate": [1.0, 1.0, 4.0], "min_rate": [0.25, 0.25, 0.0], "group": ["a", "a", "b"]}
    )
    most = fo.Budget({"a": 0.5, "b": 9.0}, by="group", name="group")
    found = fo.distributed.solve(
        DELAY,
        write(tmp_path / "in", frame, 3),
        2.5,
        constraints=[most, fo.Budget(1e6, cost=2.0)],
    )
    assert rates_of(found) == pytest.approx([0.25, 0.25, 2.0], rel=SCALAR)
    assert dict(found.prices) == pytest.approx(
        {"bandwidth": 1.0, "group[a]": 15.0, "group[b]": 0.0, "budget": 0.0}, rel=SCALAR
    )
    assert found.status is fo.Status.OPTIMAL


def test_many_disjoint_limits_beside_another_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_driver, "SAMPLE", 300)
    frame = web(600, seed=5).with_columns(host=pl.Series([f"h{k % 150}" for k in range(600)]))
    limits = {f"h{k}": 1.0 + k / 150 for k in range(150)}
    size = column(frame, "bytes")
    sources = fo.Sources.from_frame(
        frame.select("source", "change_rate", "importance", "refresh_cost", "host")
    )
    memory = fo.solve(fo.Problem(DELAY, sources, 200.0, limits, [fo.Budget(150.0, cost=size, name="bytes")]))
    found = fo.distributed.solve(
        DELAY,
        write(tmp_path / "in", frame, 2),
        200.0,
        limits,
        constraints=[fo.Budget(150.0, cost="bytes", name="bytes")],
    )
    assert rates_of(found) == pytest.approx(memory.rates, rel=SCALAR)
    assert found.host_prices == pytest.approx(dict(memory.host_prices), rel=1e-7, abs=EXACT)
    assert sum(price > 0.0 for price in found.host_prices.values()) > 20


@pytest.mark.parametrize("sample", [FEW, 100_000])
def test_conflicting_rows_are_named(sample: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A fresh share of 0.5 needs ρ = Δ = 1 of each of 100 sources.
    monkeypatch.setattr(row_driver, "SAMPLE", sample)
    frame = pl.DataFrame({"change_rate": np.ones(100), "bytes": np.ones(100)})
    folder = write(tmp_path / "in", frame, 3)
    rows = [
        fo.Target(BINARY, at_least=0.5, name="fresh"),
        fo.Budget(1e4, cost="bytes", name="bytes"),
    ]
    assert fo.distributed.solve(HARMONIC, folder, 100.1, constraints=rows).value > 0.0
    with pytest.raises(fo.InfeasibleProblemError) as error:
        fo.distributed.solve(HARMONIC, folder, 90.0, constraints=rows)
    assert "fresh >= 0.5" in str(error.value)
    assert "bandwidth <= 90" in str(error.value)
    assert "bytes" not in str(error.value)
    capped = write(tmp_path / "capped", frame.with_columns(max_rate=0.5), 3)
    with pytest.raises(fo.InfeasibleProblemError, match=r"fresh: it is 0\.333333"):
        fo.distributed.solve(HARMONIC, capped, 100.0, constraints=rows)


def test_objectives_with_arrays_give_each_partition_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_driver, "SAMPLE", 30)
    rng, n = np.random.default_rng(4), 60
    cost = SynchronizationCost(PowerCost(scale=rng.uniform(0.5, 2.0, n), exponent=rng.uniform(0.2, 0.8, n)))
    frame = pl.DataFrame({"change_rate": rng.uniform(0.5, 2.0, n), "tier": np.arange(n) % 2})
    sources = fo.Sources.from_frame(frame.select("change_rate"))
    level = 0.95 * fo.solve(fo.Problem(DELAY, sources, 40.0)).value / n
    memory = fo.solve(fo.Problem(cost, sources, 45.0, constraints=[fo.Target(DELAY, at_most=level)]))
    folder = write(tmp_path / "in", frame, 4)
    found = fo.distributed.solve(cost, folder, 45.0, constraints=[fo.Target(DELAY, at_most=level)])
    assert rates_of(found) == pytest.approx(memory.rates, rel=1e-8)
    mean = fo.Target(cost, at_most=1.01 * memory.value / n, name="mean")
    other = fo.solve(fo.Problem(fo.Spend(), sources, constraints=[mean]))
    cheapest = fo.distributed.solve(fo.Spend(), folder, constraints=[mean])
    assert cheapest.value == pytest.approx(other.value, rel=SCALAR)


@pytest.mark.exhaustive
def test_schedulers_change_no_bit_and_files_hold_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_driver, "SAMPLE", FEW)
    frame = web(200, seed=8)
    folder, constraints = write(tmp_path / "in", frame, 5), declared(frame, by_name=True)[:2]
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
    constraints = declared(frame, by_name=True)[:2]
    expected = fo.distributed.solve(DELAY, write(tmp_path / "in", frame, 2), 60.0, constraints=constraints)
    table = dd.from_pandas(frame.to_pandas().astype({"region": "category"}), npartitions=3)
    found = fo.distributed.solve(DELAY, table, 60.0, constraints=constraints)
    assert rates_of(found) == pytest.approx(rates_of(expected), rel=SCALAR)
    bare = fo.distributed.PartitionedSources.from_dask(table)
    refused("others= of from_dask", fo.distributed.solve, DELAY, bare, 60.0, constraints=constraints)
    kept = fo.distributed.PartitionedSources.from_dask(table, others=["bytes", "region"])
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
        (
            fo.Budget(1.0, cost=[1.0, 2.0], name="kB"),
            fo.SolverRefusedError,
            "cost of Budget 'kB' is an array",
        ),
        (fo.Target(BINARY, at_least=0.5, by=["a"]), fo.SolverRefusedError, "by of Target"),
        (fo.Budget({"mars": 1.0}, by="region", name="r"), fo.SourceDataError, "unknown groups 'mars'"),
        (fo.Budget({"eu": 1.0}, by="tier", name="r"), fo.SourceDataError, "groups of 'r' are int64"),
        (fo.Budget(1.0, cost="region", name="r"), fo.SourceDataError, "Make it numbers"),
        (fo.Budget(1.0, cost="negative", name="r"), fo.SourceDataError, "row 3: -1"),
        (fo.Budget(1.0, cost="no", name="r"), fo.SourceDataError, "names the column 'no'"),
        (fo.Budget(1.0), fo.SourceDataError, "two constraints are named 'bandwidth'"),
    ],
)
def test_what_is_refused_and_why(
    constraint: Any,  # noqa: ANN401
    error: type[Exception],
    words: str,
    tmp_path: Path,
) -> None:
    frame = web(8, seed=1).with_columns(negative=pl.Series([1.0, 1.0, 1.0, -1.0] * 2))
    with pytest.raises(error, match=words):
        fo.distributed.solve(DELAY, write(tmp_path / "in", frame, 1), 5.0, constraints=[constraint])


def test_what_else_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", web(8, seed=1), 1)
    worst = fo.Worst(HARMONIC, by="host")
    with pytest.raises(fo.SolverRefusedError, match=r"Worst\("):
        fo.distributed.solve(worst, folder, 5.0, constraints=[fo.Budget(1.0, cost="bytes")])
    with pytest.raises(fo.SourceDataError, match="is the column 'bytes', and there are no columns in memory"):
        fo.Problem(DELAY, fo.Sources([1.0]), 5.0, constraints=[fo.Budget(1.0, cost="bytes")])
    with pytest.raises(fo.SourceDataError, match="is by 'region' but there is no column"):
        fo.Problem(DELAY, fo.Sources([1.0]), 5.0, constraints=[fo.Budget(1.0, by="region", name="r")])
    refused("there is no bandwidth", fo.distributed.solve, DELAY, folder)
    free = web(8, seed=1).with_columns(bytes=0.0)
    without_cost = write(tmp_path / "free", free, 1)
    with pytest.raises(fo.SourceDataError, match="no constraint bounds the rate of row 0"):
        fo.distributed.solve(DELAY, without_cost, constraints=[fo.Budget(1.0, cost="bytes")])
