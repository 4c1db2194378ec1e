"""Prices that are not unique: the least is the answer, on every path and in whatever order sums are taken."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import freshopt as fo
from freshopt.dual_search.batch_water_filling import SMALL
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import IntArray, total
from freshopt.problems import BinaryFreshness
from freshopt.solvers import SeparableNewton, WaterFilling
from tests.ground_truth.partitioned import frame_of, write
from tests.ground_truth.routes import compile_all
from tests.ground_truth.strata import stratified
from tests.ground_truth.tolerances import EXACT

FOURS = SMALL // 4 + 300  # sources come in fours, so many that loops are compiled
TOP = 0.1  # no binary fraction: what equal rates add up to depends on how they are added


class Flat(NamedTuple):
    """A market with demand that is flat in the price, in units of `FOURS`.

    All sources have change rate 1 and max_rate `TOP`. Of importance w, a source buys max_rate up to the price
    w/1.1², half of it at w/1.05², and nothing from the price w on.
    """

    importance: tuple[float, ...]
    bandwidth: float
    price: float
    hosts: tuple[int, ...] = (0, 0, 0, 0)
    limits: tuple[tuple[int, float], ...] = ()
    host_prices: tuple[float, ...] = ()


CASES = {
    # Demand is 2·TOP from 1 to 4/1.1².
    "interval": Flat((4, 4, 1, 1), 2 * TOP, 1.0),
    "interval beside a host": Flat(
        (4, 4, 1, 1), 1.5 * TOP, 1.0, (0, 1, 1, 1), ((0, 0.5 * TOP),), (4 / 1.05**2 - 1,)
    ),
    "everyone at max_rate": Flat((4, 3, 2, 1), 4 * TOP, 0.0),
    "a host and all others": Flat((4, 4, 1, 1), 3 * TOP, 0.0, (0, 0, 1, 1), ((0, TOP),), (4 / 1.05**2,)),
    "all hosts": Flat(
        (4, 4, 1, 1), 2 * TOP, 0.0, (0, 0, 1, 1), ((0, TOP), (1, TOP)), (4 / 1.05**2, 1 / 1.05**2)
    ),
    "a host at max_rate": Flat((4, 4, 1, 1), 8 * TOP, 0.0, (0, 0, 1, 1), ((0, 2 * TOP),), (0.0,)),
    "a host's interval": Flat((4, 4, 1, 1), 8 * TOP, 0.0, (0, 1, 0, 1), ((0, TOP),), (1.0,)),
    "both intervals": Flat((4, 4, 2, 1), 2 * TOP, 1.0, (0, 1, 0, 1), ((0, TOP),), (1.0,)),
}
ORDERS = ("in turn", "by kind", "shuffled", "shuffled again")


def order_of(name: str, n: int) -> IntArray:
    if name == "in turn":
        return np.arange(n)
    if name == "by kind":
        return np.argsort(np.arange(n) % 4, kind="stable")
    return np.random.default_rng(len(name)).permutation(n)


def market(case: Flat, order: str, fours: int = FOURS) -> fo.Problem:
    index = order_of(order, 4 * fours) % 4
    sources = fo.Sources(
        np.ones(4 * fours),
        np.array(case.importance, dtype=float)[index],
        max_rate=np.full(4 * fours, TOP),
        host=np.array(case.hosts)[index],
    )
    limits = {host: limit * fours for host, limit in case.limits}
    return fo.Problem(BinaryFreshness(), sources, case.bandwidth * fours, limits)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "compiled", "order"), stratified(CASES, ["0", "1"], ORDERS, every=3))
def test_the_least_price_in_any_order(
    monkeypatch: pytest.MonkeyPatch, name: str, compiled: str, order: str
) -> None:
    compile_all(monkeypatch)
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    case = CASES[name]
    for fours in (1, 25, FOURS):
        task = market(case, order, fours)
        solution = fo.solve(task, WaterFilling())
        assert solution.price == pytest.approx(case.price, rel=EXACT, abs=EXACT)
        assert [*solution.host_prices.values()] == pytest.approx(case.host_prices, rel=EXACT, abs=EXACT)
        assert solution.certificate is not None
        assert solution.certificate.relative_gap <= EXACT
        assert solution.certificate.infeasibility == 0.0
        assert total(solution.rates) <= task.bandwidth * (1.0 + FEW_ULP)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "order"), stratified(CASES, ORDERS, every=3))
def test_the_least_price_by_newton_steps(name: str, order: str) -> None:
    case = CASES[name]
    for fours in (1, 25, 2500):
        task = market(case, order, fours)
        for start in (None, 0.3, 2.9):
            solution = fo.solve(task, SeparableNewton(), warm_start=start)
            assert solution.price == pytest.approx(case.price, rel=EXACT, abs=EXACT)
            assert [*solution.host_prices.values()] == pytest.approx(case.host_prices, rel=EXACT, abs=EXACT)
            assert solution.certificate is not None
            assert solution.certificate.relative_gap <= EXACT
            assert solution.certificate.infeasibility == 0.0
            assert total(solution.rates) <= task.bandwidth * (1.0 + FEW_ULP)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_starting_elsewhere_among_the_prices_ends_at_the_least(name: str) -> None:
    case = CASES[name]
    task = market(case, "shuffled")
    for start in (0.3, 1.7, 2.9, 40.0):
        assert fo.solve(task, warm_start=start).price == pytest.approx(case.price, rel=EXACT, abs=EXACT)


@pytest.mark.parametrize("order", ["in turn", "shuffled"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(4)
def test_the_least_price_over_partitions(tmp_path: Path, name: str, order: str) -> None:
    case = CASES[name]
    task = market(case, order, 250)
    files = write(tmp_path, frame_of(task), 3)
    found = fo.distributed.solve(task.objective, files, task.bandwidth, task.host_limits or None)
    assert found.price == pytest.approx(case.price, rel=EXACT, abs=EXACT)
    prices = [found.host_prices[host] for host in task.hosts.names]
    assert prices == pytest.approx(case.host_prices, rel=EXACT, abs=EXACT)
    assert found.relative_gap <= EXACT
    assert found.infeasibility == 0.0
