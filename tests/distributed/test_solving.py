"""Solving in partitions: against the ground truth, certificates in memory, and both engines there."""

from __future__ import annotations

import math
from pathlib import Path

import dask
import numpy as np
import polars as pl
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.distributed import driver
from freshopt.distributed.column_rows import column_rows
from freshopt.distributed.partition import PartitionedProblem
from freshopt.distributed.tree import partitioned_tree
from freshopt.distributed.worker_passes import Scan
from freshopt.distributed.write_rates import Finished, Proof, judge
from freshopt.problems import PowerCost, SynchronizationCost
from tests.ground_truth import truth
from tests.ground_truth.cases import as_cost, as_problem
from tests.ground_truth.cell_truth import CURVES
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, written
from tests.ground_truth.partitioned import frame_of, rates_of, solved, web, write
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import stratified
from tests.ground_truth.strategies import BUDGETS, FAMILIES, PLAIN, sample
from tests.ground_truth.tolerances import EXACT, SCALAR

HOLD = 6  # passes over the files until the rates are written


@pytest.mark.parametrize(("family", "budget"), list(zip(FAMILIES, BUDGETS * 2, strict=True)))
@pytest.mark.parametrize("discipline", PLAIN)
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("gathered", [0, 10**6])
@pytest.mark.sampled(8)
def test_optimal_by_the_ground_truth(
    curve: str,
    discipline: str,
    family: str,
    budget: float,
    gathered: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "COLLECTED", gathered)
    instance = sample(7, curve, discipline, family, 8, budget=budget)
    best = truth.best(instance)
    found = solved(instance, tmp_path / "in", 5)
    rates = rates_of(found)
    assert abs(as_cost(instance, found.value) - best.value) <= EXACT * best.scale
    assert abs(truth.total_cost(instance, rates) - best.value) <= EXACT * best.scale
    assert math.fsum(instance.cost * rates) <= instance.bandwidth * (1 + 1e-14)
    for h, limit in enumerate(instance.limits):
        members = instance.host == h
        assert math.fsum((instance.cost * rates)[members]) <= limit * (1 + 1e-14)
    assert found.infeasibility == 0.0
    assert found.gap <= EXACT * best.scale


@pytest.mark.parametrize("scale", ["all", "none"])
def test_ill_scaled_data_are_solved_to_the_same_proof(scale: str, tmp_path: Path) -> None:
    instance = sample(3, "harmonic", "poisson", scale, 40, ill=True, budget=1e-3)
    best, found = truth.best(instance), solved(instance, tmp_path / "in", 7)
    assert abs(found.value - best.value) <= EXACT * best.scale
    assert found.relative_gap <= EXACT


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("objective", "compiled"),
    stratified([HARMONIC, BINARY, DELAY], ["1", "0"], every=2),
    ids=str,
)
def test_rates_are_those_of_memory_on_both_paths(
    objective: fo.Objective, compiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, _ = web(240_000, seed=5)
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    found = fo.distributed.solve(objective, write(tmp_path / "in", frame, 3), 20_000.0, out=tmp_path / "out")
    problem = fo.Problem(objective, fo.Sources.from_frame(frame), 20_000.0)
    memory = fo.solve(problem)
    rates = rates_of(found)
    differently = math.fsum(problem.sources.refresh_cost * np.abs(rates - memory.rates)) / problem.bandwidth
    assert differently <= EXACT
    assert found.price == pytest.approx(memory.price, rel=1e-10)
    assert found.value == pytest.approx(memory.value, rel=EXACT)
    assert found.passes <= HOLD


def test_the_certificate_is_that_of_memory(tmp_path: Path) -> None:
    frame, limits = web(3_000, seed=11, hosts=40)
    objective = HARMONIC
    found = fo.distributed.solve(objective, write(tmp_path / "in", frame, 4), 250.0, limits)
    problem = fo.Problem(objective, fo.Sources.from_frame(frame), 250.0, limits)
    proof = fo.certify(problem, rates_of(found), found.price, found.host_prices)
    assert found.value == pytest.approx(proof.value, rel=EXACT)
    assert found.bound == pytest.approx(proof.bound, rel=EXACT)
    assert found.infeasibility == proof.infeasibility == 0.0
    assert proof.relative_gap <= EXACT
    assert sum(price > 0.0 for price in found.host_prices.values()) > 5


@pytest.mark.parametrize("gathered", [0, 10**6])
@pytest.mark.parametrize("objective", [HARMONIC, BINARY], ids=str)
def test_many_hosts_over_partitions_in_few_passes(
    objective: fo.Objective, gathered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "COLLECTED", gathered)
    frame, limits = web(60_000, seed=2, hosts=3_000)
    files = write(tmp_path / "in", frame, 6)
    found = fo.distributed.solve(objective, files, 6_000.0, limits, out=tmp_path / "out")
    cost, rates = frame["refresh_cost"].to_numpy(), rates_of(found)
    used = frame.select("host").with_columns(used=cost * rates).group_by("host").agg(pl.col("used").sum())
    by_host = dict(used.iter_rows())
    assert max(by_host[host] / limit for host, limit in limits.items()) <= 1.0 + 1e-14
    binding = [host for host, price in found.host_prices.items() if price > 0.0]
    assert len(binding) > 500
    assert min(by_host[host] / limits[host] for host in binding) >= 1.0 - 1e-14  # filled where priced
    assert math.fsum(cost * rates) == pytest.approx(6_000.0, rel=1e-14)
    assert found.relative_gap <= EXACT
    assert found.passes <= (HOLD if gathered else HOLD + 2)


@pytest.mark.parametrize("gathered", [0, 10**6])
def test_a_jump_shared_by_half_the_sources_is_mixed(
    gathered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "COLLECTED", gathered)
    n = 1_000
    frame = pl.DataFrame({"change_rate": np.full(n, 2.0), "signalled": np.arange(n) % 2 == 0})
    found = fo.distributed.solve(BINARY, write(tmp_path / "in", frame, 4), 400.0)
    rates = rates_of(found)
    assert math.fsum(rates) == pytest.approx(400.0, rel=EXACT)
    # A signalled refresh is worth 1/Δ = 0.5 whatever the rate, the first unsignalled one no more than that.
    assert found.price == pytest.approx(0.5, rel=EXACT)
    assert found.value == pytest.approx(200.0, rel=EXACT)
    assert found.passes <= HOLD


@pytest.mark.parametrize("importance", [1e-3, 1.0, 1e5])
def test_a_price_between_neighbouring_floats_is_not_sought(
    importance: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Demand falls there from 470 times the bandwidth to nearly nothing."""
    monkeypatch.setattr(driver, "COLLECTED", 0)
    columns = {"change_rate": [3e-6, 140.0], "importance": [0.1, importance], "signalled": [True, True]}
    found = fo.distributed.solve(BINARY, write(tmp_path / "in", pl.DataFrame(columns), 2), 0.3)
    assert rates_of(found) == pytest.approx([3e-6, 0.3 - 3e-6], rel=SCALAR)
    assert found.price == pytest.approx(importance / 140.0, rel=SCALAR)
    assert found.relative_gap <= EXACT
    assert found.passes <= HOLD + 2


@pytest.mark.parametrize("bandwidth", [1e4, 1e9])
def test_limits_of_all_hosts_below_a_bandwidth_to_spare_take_few_passes(
    bandwidth: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "COLLECTED", 0)
    frame, limits = web(3_000, seed=2, hosts=150)
    frame = frame.filter(pl.col("host") != "h0")
    found = fo.distributed.solve(HARMONIC, write(tmp_path / "in", frame, 2), bandwidth, limits)
    assert found.price == 0.0
    assert found.used == pytest.approx(math.fsum(limits.values()), rel=SCALAR)
    assert found.relative_gap <= EXACT
    assert found.passes <= HOLD + 2


def test_bandwidth_to_spare_has_no_price(tmp_path: Path) -> None:
    frame = pl.DataFrame({"change_rate": [1.0, 2.0, 3.0], "signalled": [True, True, True]})
    found = fo.distributed.solve(BINARY, write(tmp_path / "in", frame, 2), 10.0)
    assert rates_of(found).tolist() == [1.0, 2.0, 3.0]
    assert (found.price, found.value, found.status) == (0.0, 3.0, fo.Status.OPTIMAL)


def test_lower_bounds_that_use_up_the_bandwidth(tmp_path: Path) -> None:
    frame = pl.DataFrame({"change_rate": [1.0, 2.0, 4.0], "min_rate": [1.0, 0.5, 0.5]})
    found = fo.distributed.solve(DELAY, write(tmp_path / "in", frame, 3), 2.0)
    assert rates_of(found).tolist() == [1.0, 0.5, 0.5]
    assert found.value == 1.0 + 4.0 + 8.0
    assert found.price == 16.0  # 4/0.5², what one more refresh of the third would be worth
    assert found.status is fo.Status.OPTIMAL


def test_a_host_whose_limit_min_rate_uses_up(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"change_rate": [1.0, 1.0, 4.0], "min_rate": [0.25, 0.25, 0.0], "host": ["a", "a", "b"]}
    )
    found = fo.distributed.solve(DELAY, write(tmp_path / "in", frame, 3), 2.5, {"a": 0.5})
    assert rates_of(found) == pytest.approx([0.25, 0.25, 2.0], rel=EXACT)
    assert found.price == pytest.approx(1.0, rel=EXACT)
    assert found.host_prices["a"] == pytest.approx(15.0, rel=EXACT)  # 1/0.25² − 1
    assert found.status is fo.Status.OPTIMAL


@pytest.mark.parametrize("signalled", [False, True])
def test_a_host_that_leaves_nothing_for_sources_of_infinite_cost_is_named(
    signalled: bool, tmp_path: Path
) -> None:
    columns = {"change_rate": [5.0, 1.0], "min_rate": [0.0, 0.5], "signalled": [signalled] * 2}
    frame = pl.DataFrame({**columns, "host": ["a", "a"]})
    delay = fo.problems.AccumulatedDelay(fo.Refresh.PERIODIC)
    with pytest.raises(fo.InfeasibleProblemError, match=r"use up 'host\[a\]' and leave nothing"):
        fo.distributed.solve(delay, write(tmp_path / "in", frame, 2), 3.0, {"a": 0.5})


def test_an_objective_with_arrays_gives_each_partition_its_part(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    n = 50
    cost = PowerCost(scale=rng.uniform(0.5, 2.0, n), exponent=rng.uniform(0.2, 0.8, n))
    frame = pl.DataFrame({"change_rate": np.ones(n)})
    objective = SynchronizationCost(cost)
    found = fo.distributed.solve(objective, write(tmp_path / "in", frame, 7), 25.0)
    memory = fo.solve(fo.Problem(objective, fo.Sources.from_frame(frame), 25.0))
    assert rates_of(found) == pytest.approx(memory.rates, rel=SCALAR)
    with pytest.raises(fo.ObjectiveError, match="more entries than there are sources"):
        fo.distributed.solve(objective, write(tmp_path / "less", frame[:-1], 7), 25.0)
    with pytest.raises(fo.FreshoptError, match=r"00\d\.parquet"):
        fo.distributed.solve(objective, write(tmp_path / "more", pl.concat([frame, frame]), 7), 25.0)


# Σ w·Δ/ρ²: at the optimum ρ ∝ (w·Δ)^{1/3}.
SquaredDelay = written(
    "SquaredDelay",
    lambda rate, sources: cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -2)),
)


def test_a_declared_objective_without_kernels(tmp_path: Path) -> None:
    frame = pl.DataFrame({"change_rate": [1.0, 8.0, 27.0, 64.0]})
    found = fo.distributed.solve(SquaredDelay(), write(tmp_path / "in", frame, 2), 20.0)
    assert rates_of(found) == pytest.approx([2.0, 4.0, 6.0, 8.0], rel=EXACT)


def test_partitions_and_schedulers_change_no_bit(tmp_path: Path) -> None:
    frame, limits = web(2_000, seed=8, hosts=20)
    files = write(tmp_path / "in", frame, 9)
    one = fo.distributed.solve(HARMONIC, files, 150.0, limits)
    with dask.config.set(scheduler="synchronous"):
        other = fo.distributed.solve(HARMONIC, files, 150.0, limits, out=tmp_path / "out")
    assert (one.value, one.price, one.gap) == (other.value, other.price, other.gap)
    assert np.array_equal(rates_of(one), rates_of(other))


def test_single_precision_is_what_it_says(tmp_path: Path) -> None:
    frame, _ = web(500, seed=9)
    single = frame.with_columns(pl.col("change_rate", "importance", "refresh_cost").cast(pl.Float32))
    double = single.with_columns(pl.col("change_rate", "importance", "refresh_cost").cast(pl.Float64))
    a = fo.distributed.solve(HARMONIC, write(tmp_path / "a", single, 2), 40.0)
    b = fo.distributed.solve(HARMONIC, write(tmp_path / "b", double, 2), 40.0)
    assert np.array_equal(rates_of(a), rates_of(b))


def test_problems_in_memory_and_in_files_agree_on_infeasibility(tmp_path: Path) -> None:
    instance = sample(1, "count", "poisson", "bounds", 9)
    problem = as_problem(instance)
    need = float(np.sum(problem.lower))
    files = write(tmp_path / "in", frame_of(problem), 3)
    refused("lower bounds need", problem.with_bandwidth, 0.5 * need, error=fo.InfeasibleProblemError)
    with pytest.raises(fo.InfeasibleProblemError, match=f"lower bounds need {need:.6g}"):
        fo.distributed.solve(problem.objective, files, 0.5 * need)


def test_least_rates_hide_no_gap_beside_a_huge_price() -> None:
    """Rates [1 − 1e-30, 1e-30] of two sources, of which min_rate leaves 1e-7 of a bandwidth of 1."""
    terms = PartitionedProblem(HARMONIC, column_rows((), 1.0, {}), ("change_rate",), "day")
    one, bounds = np.zeros(1, dtype=np.int64), (np.array([1.0 - 1e-7]), np.array([np.inf]))
    whole = partitioned_tree([Scan(2, (), {}, (None,), one[:, None], one + 2, *bounds, one - 1)], terms)
    cost, best = math.log(2.0) + math.log(1e30), math.log(2.0) + math.log(1e7)
    # At the rates, half-way to the lower bounds, and at doubled ones.
    used, costs = np.array([[1.0], [1.0 - 5e-8], [2.0]]), (cost, cost + math.log(2.0), cost - math.log(4.0))
    assert 1e23 / (cost + 1e30) < 1e-6  # small beside λB, though the cost is four times the best
    assert cost > 4.0 * best
    judged = judge(whole, [Finished(used, Proof(costs, cost, 1e23), 0, 1, 0)], used, np.array([1e30]), 1e-6)
    assert judged.status is fo.Status.INACCURATE
    assert judged.relative_gap > 0.5
