"""Every cell through the compiled path: finite at the lowest price, and against NumPy and an own dual."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled.columns import Columns
from freshopt.dual_search.compiled_water_filling import TINY_PRICE, fill_compiled
from freshopt.dual_search.problem_columns import columns_of
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    LogFreshness,
    PollingKnapsack,
    PowerCost,
    SynchronizationCost,
)
from freshopt.separable.kernel import SMALLEST_PRICE, Kernel
from freshopt.solvers import WaterFilling
from tests.compiled.dual_truth import MARGINALS, Floats, optimal_rates
from tests.ground_truth.routes import compile_all

PERIODIC = fo.Refresh.PERIODIC
CELLS: dict[str, fo.Objective] = {
    "harmonic poisson": HarmonicStaleness(),
    "harmonic periodic": HarmonicStaleness(PERIODIC),
    "log periodic": LogFreshness(PERIODIC),
    "binary poisson": BinaryFreshness(),
    "binary periodic": BinaryFreshness(PERIODIC),
    "delay poisson": AccumulatedDelay(),
    "delay periodic": AccumulatedDelay(PERIODIC),
    "age poisson": Age(),
    "age periodic": Age(PERIODIC),
    "polls": PollingKnapsack("polls"),
    "materials": PollingKnapsack("materials"),
    "power": SynchronizationCost(PowerCost(2.0, 0.7)),
}
# Those of whose signalled sources the optimum is unique.
SIGNALLED = {"harmonic poisson": "harmonic", "delay poisson": "delay", "age poisson": "age"}
N, HOSTS = 2000, 6
OFTEN = "age poisson"
rare = pytest.mark.exhaustive


def kernels(objective: fo.Objective, sources: fo.Sources) -> list[Kernel]:
    """Return the kernels of sources that are silent, and that are signalled."""
    found = [objective.kernel(sources)]
    if not objective.refuses_signals():
        found.append(objective.signalled_kernel(sources))
    return [kernel for kernel in found if isinstance(kernel, Kernel)]


def test_every_demand_is_a_number_at_the_lowest_price() -> None:
    """For all magnitudes that are accepted, one source at a time and in NumPy."""
    sizes = [1e-100, 1e-30, 1e-6, 1.0, 1e4, 1e30, 1e100]
    weight, rate, cost = (
        np.array(column) for column in zip(*itertools.product([0.0, *sizes], sizes, sizes), strict=True)
    )
    sources = fo.Sources(rate, weight)
    for objective in CELLS.values():
        for kernel in kernels(objective, sources):
            assert kernel.unit_demand is not None
            own = kernel.parameters if kernel.demand_parameters is None else kernel.demand_parameters
            value = weight if kernel.demand_parameters is None else np.ones(len(weight))
            for price in (SMALLEST_PRICE, TINY_PRICE, 1.0):
                with np.errstate(all="ignore"):
                    single = [
                        kernel.unit_demand(w * (1.0 / price) / c, *parameters)
                        for w, c, *parameters in zip(value, cost, *own, strict=True)
                    ]
                    assert all(demand >= 0.0 for demand in single)
                    assert np.all(kernel.inverse_marginal(price * cost) >= 0.0)


def compiled_cases() -> list[object]:
    """Return all cells, of which every run compiles one.

    Each has loops of one kind of columns in this file: compiling is what takes time. Those of `OFTEN` are
    numbers but for Δ and w, as elsewhere in the suite, the others arrays.
    """
    return [pytest.param(name, marks=[] if name == OFTEN else [rare]) for name in CELLS]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", compiled_cases())
def test_compiled_demands_are_finite_at_the_lowest_price(name: str) -> None:
    sizes = [1e-100, 1e-30, 1e-6, 1.0, 1e4, 1e30, 1e100]
    weight, rate, cost = (
        np.array(column) for column in zip(*itertools.product([0.0, *sizes], sizes, sizes), strict=True)
    )
    n = len(weight)
    bounds = (0.0, np.inf) if name == OFTEN else (np.zeros(n), np.full(n, np.inf))
    for kernel in kernels(CELLS[name], fo.Sources(rate, weight))[: 1 if name == OFTEN else 2]:
        assert kernel.unit_demand is not None
        own = kernel.parameters if kernel.demand_parameters is None else kernel.demand_parameters
        value = weight if kernel.demand_parameters is None else 1.0
        given = (False, value, tuple(np.ascontiguousarray(column) for column in own))
        for costs in (1e-100, 1.0, 1e100) if name == OFTEN else (cost,):
            table = Columns(n, kernel.unit_demand, None, *given, costs, *bounds)
            for price in (TINY_PRICE, 1e-100, 1.0, 1e100):
                rates = np.empty(n)
                assert math.isfinite(table.fill(price, rates))
                assert np.all(np.isfinite(rates) & (rates >= 0.0))
                assert math.isfinite(table.demand(price))
                assert np.all(np.isfinite(table.by_host(price, np.arange(n) % 2, 2)))


def instance(name: str, kind: str, budget: float) -> fo.Problem:
    """Return ill-scaled sources with ties and zeros."""
    rng = np.random.default_rng(sum(map(ord, name + kind)))
    tied = rng.random(N) < 0.2
    d = np.where(tied, 1.0, 10.0 ** rng.uniform(-6, 4, N))
    w = np.where(tied, 1.0, 10.0 ** rng.uniform(-6, 6, N)) * (rng.random(N) > 0.05)
    host = rng.integers(0, HOSTS, N)
    bandwidth = budget * float(d.sum())
    share = bandwidth / N
    limits = N / HOSTS * share * 10 ** rng.uniform(-0.7, 0.7, HOSTS - 2)
    some = rng.random(N) < 0.3
    columns: dict[str, Any] = {
        "min_rate": np.where(some, 0.1 * np.minimum(share * rng.random(N), d), 0.0),
        "max_rate": np.where(rng.random(N) < 0.3, share * 10 ** rng.uniform(0, 2, N), np.inf),
        "refresh_cost": 10 ** rng.uniform(-0.2, 0.2, N),
    }
    if "signals" in kind:
        columns["signalled"] = rng.random(N) < 0.5
    sources = fo.Sources(d, w, host=host, **(columns if "bounds" in kind else {}))
    named = dict(enumerate(limits.tolist())) if "hosts" in kind else None
    return fo.Problem(CELLS[name], sources, bandwidth, named)


def truth(name: str, problem: fo.Problem) -> Floats:
    """Return the optimal rates by the ground truth."""
    sources, hosts = problem.sources, len(problem.hosts)
    plain, w, d = MARGINALS[name], sources.importance, sources.change_rate
    announced = MARGINALS[f"{SIGNALLED[name]} signals"] if name in SIGNALLED else plain

    def marginal(rates: Floats) -> Floats:
        with np.errstate(all="ignore"):
            each = np.where(sources.signalled, announced(rates, d), plain(rates, d))
            return np.where(w > 0.0, w * each, 0.0)

    codes = np.array(problem.hosts.codes) if hosts else np.zeros(len(w), dtype=np.int64)
    return optimal_rates(
        marginal,
        np.array(sources.refresh_cost),
        np.array(problem.lower),
        np.array(problem.upper),
        problem.bandwidth,
        codes,
        problem.hosts.limits,
    )


KINDS = ("hosts", "bounds", "hosts bounds", "hosts bounds signals")


def solver_cases() -> list[object]:
    cases: list[object] = []
    for place, (name, kind) in enumerate(itertools.product(CELLS, KINDS)):
        if ("signals" in kind and name not in SIGNALLED) or (kind == "hosts" and name != OFTEN):
            continue
        marks = [] if (name, kind) == (OFTEN, "hosts") else [rare]
        cases.append(pytest.param(name, kind, (1e-3, 0.3, 20.0)[place % 3], marks=marks))
    return cases


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "kind", "budget"), solver_cases())
def test_both_paths_and_an_own_dual(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: str, budget: float
) -> None:
    problem = instance(name, kind, budget)
    compile_all(monkeypatch)
    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    assert problem.numerics is not None
    columns = columns_of(problem, problem.numerics)
    assert columns is not None
    with np.errstate(all="ignore"):
        answer = fill_compiled(problem, columns, None)
    fast = fo.solve(problem, WaterFilling(), tolerance=1e-9)
    monkeypatch.setenv("FRESHOPT_COMPILED", "0")
    plain = fo.solve(problem, WaterFilling(), tolerance=1e-9)
    cost, exact = problem.sources.refresh_cost, truth(name, problem)
    found = [fast.rates, plain.rates, *([] if answer is None or answer.rates is None else [answer.rates])]
    for rates in found:
        assert float(np.sum(cost * np.abs(rates - exact))) <= 1e-10 * float(np.sum(cost * exact))
        within(problem, rates)


def within(problem: fo.Problem, rates: Floats) -> None:
    """Check bandwidth and limits by exactly rounded sums."""
    used, hosts = problem.sources.refresh_cost * rates, problem.hosts
    assert math.fsum(used) <= problem.bandwidth * (1.0 + 1e-14)
    for k, limit in enumerate(hosts.limits):
        assert math.fsum(used[hosts.codes == k]) <= limit * (1.0 + 1e-14)


@pytest.mark.exhaustive
@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("name", compiled_cases())
def test_limits_hold_exactly_where_sources_are_alike(
    monkeypatch: pytest.MonkeyPatch, name: str, compiled: str
) -> None:
    """Equal and nearly equal sources: the rounding of a long sum of them has one sign."""
    compile_all(monkeypatch)
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    rng = np.random.default_rng(3)
    for each, hosts in ((500, 8), (512, 8), (4000, 3)):
        n = each * hosts
        host = np.arange(n) % hosts
        for d in (0.3 + np.arange(hosts)[host], 0.3 * (1.0 + 1e-13 * rng.random(n))):
            bandwidth = 0.7 * float(np.sum(d))
            limits = 10 ** rng.uniform(-1.0, -0.2, hosts) * bandwidth / hosts
            bounds: dict[str, Any] = {
                "min_rate": np.zeros(n),
                "max_rate": np.where(host == 1, limits[1] / each, np.inf),
                "refresh_cost": np.ones(n),
            }
            sources = fo.Sources(d, np.ones(n), host=host, **({} if name == OFTEN else bounds))
            for problem in (
                fo.Problem(CELLS[name], sources, bandwidth, dict(enumerate(limits.tolist()))),
                fo.Problem(CELLS[name], sources, bandwidth),
            ):
                for certify in (False, True):
                    within(problem, fo.solve(problem, WaterFilling(), certify=certify).rates)


def test_the_price_of_one_limited_host_of_many_equal_sources() -> None:
    """The marginal of age at ρ = 0.1, Δ = 1, where nothing else binds."""
    n = 65_536
    sources = fo.Sources(np.ones(n), np.ones(n), host=np.zeros(n, dtype=np.int64))
    problem = fo.Problem(Age(), sources, 0.3 * n, host_limits={0: 0.1 * n})
    for certify in (False, True):
        solution = fo.solve(problem, certify=certify)
        assert solution.status is fo.Status.OPTIMAL
        assert solution.price + solution.host_prices[0] == pytest.approx(1.2 / 0.11**2, rel=1e-12)
