"""Every cell through the compiled path: finite at the lowest price, and against NumPy and an own dual.

Optimal rates come from two nested bisections on logarithms: of each rate at its price, and of the prices.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import gammainc

import freshopt as fo
from freshopt.compiled.columns import Columns
from freshopt.dual_search.compiled_water_filling import TINY_PRICE, fill_compiled
from freshopt.dual_search.problem_columns import columns_of
from freshopt.problems import PollingKnapsack, PowerCost, SynchronizationCost
from freshopt.separable.kernel import SMALLEST_PRICE, Kernel
from freshopt.solvers import WaterFilling
from tests.ground_truth.named import (
    AGE,
    AGE_PERIODIC,
    BINARY,
    BINARY_PERIODIC,
    DELAY,
    DELAY_PERIODIC,
    HARMONIC,
    HARMONIC_PERIODIC,
    LOG_PERIODIC,
    present,
)
from tests.ground_truth.routes import compile_all
from tests.ground_truth.tolerances import EXACT

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Logarithm of a rate that counts as 0.
LEAST = -140.0
Marginal = Callable[[Floats, Floats], Floats]


def _age_poisson(r: Floats, d: Floats) -> Floats:
    return (d / (r + d)) * (1.0 + r / (r + d)) / r / r


def _age_periodic(r: Floats, d: Floats) -> Floats:
    u = d / r  # u²/2 − P(2, u) = u²/2·P(1, u) − P(3, u)
    return np.asarray(0.5 * u * u * gammainc(1.0, u) - gammainc(3.0, u), dtype=np.float64) / d / d


def _harmonic_periodic(r: Floats, d: Floats) -> Floats:
    u = d / r
    return (u * gammainc(1.0, u) - gammainc(2.0, u)) / d


def _log_periodic(r: Floats, d: Floats) -> Floats:
    u = d / r  # what falls of the share is P(2, u), of P(1, u)/u
    return u * gammainc(2.0, u) / gammainc(1.0, u) / d


MARGINALS: dict[str, Marginal] = {
    "harmonic poisson": lambda r, d: d / r / (r + d),
    "harmonic periodic": _harmonic_periodic,
    "log periodic": _log_periodic,
    "harmonic signals": lambda r, _: 1.0 / r,
    "binary poisson": lambda r, d: d / (d + r) / (d + r),
    "binary periodic": lambda r, d: gammainc(2.0, d / r) / d,
    "delay poisson": lambda r, d: d / r / r,
    "delay periodic": lambda r, d: 0.5 * d / r / r,
    "delay signals": lambda r, d: d / r / r,
    "age poisson": _age_poisson,
    "age periodic": _age_periodic,
    "age signals": lambda r, _: 1.0 / r / r,
    "polls": lambda r, d: np.asarray(gammainc(2.0, d / r), dtype=np.float64),
    "materials": lambda r, d: -np.expm1(-d / r),
    "power": lambda r, _: 2.0 * 0.7 / 1.7 * r**-1.7,
}


def optimal_rates(
    marginal: Callable[[Floats], Floats],
    cost: Floats,
    lower: Floats,
    upper: Floats,
    bandwidth: float,
    host: Ints,
    limits: Floats,
) -> Floats:
    """Return the rates; marginals include importance, `host` is a position in `limits` or their number."""
    hosts = len(limits)

    def response(price: Floats) -> Floats:
        low, high = np.full(len(cost), LEAST), np.full(len(cost), 40.0)
        for _ in range(50):
            x = 0.5 * (low + high)
            more = marginal(np.exp(x)) > cost * price
            low, high = np.where(more, x, low), np.where(more, high, x)
        found = np.exp(0.5 * (low + high))
        return np.clip(np.where(low == LEAST, 0.0, found), lower, upper)

    def used(rates: Floats) -> Floats:
        sums = np.bincount(host, weights=cost * rates, minlength=hosts + 1)
        return np.asarray(sums[:hosts], dtype=np.float64)

    low, high = np.full(hosts, -200.0), np.full(hosts, 200.0)
    for _ in range(52):
        x = 0.5 * (low + high)
        over = used(response(np.exp(np.append(x, 0.0))[host])) > limits
        low, high = np.where(over, x, low), np.where(over, high, x)
    own = np.append(np.exp(high), 0.0)[host]
    # A price of 52 halvings tells a rate at a plateau to 1e-5: what the limit leaves is mixed of both ends.
    generous, frugal = response(np.exp(np.append(low, 0.0))[host]), response(own)
    limited = frugal + np.append(_share(limits, used(generous), used(frugal)), 0.0)[host] * (
        generous - frugal
    )

    def at(x: float) -> Floats:
        return np.where(own > np.exp(x), limited, response(np.full(len(cost), np.exp(x))))

    begin, end = -200.0, 200.0
    for _ in range(52):
        x = 0.5 * (begin + end)
        begin, end = (x, end) if float(np.sum(cost * at(x))) > bandwidth else (begin, x)
    generous, frugal = at(begin), at(end)
    most, least = (np.array([np.sum(cost * rates)]) for rates in (generous, frugal))
    mixed: Floats = frugal + _share(np.array([bandwidth]), most, least) * (generous - frugal)
    return mixed


def _share(target: Floats, most: Floats, least: Floats) -> Floats:
    """Return the part of the more generous rates in the mixture that uses the target up."""
    between = (most > target) & (target > least)
    return np.asarray(np.where(between, (target - least) / np.where(between, most - least, 1.0), 0.0))


CELLS: dict[str, fo.Objective] = {
    "harmonic poisson": HARMONIC,
    "harmonic periodic": HARMONIC_PERIODIC,
    "log periodic": LOG_PERIODIC,
    "binary poisson": BINARY,
    "binary periodic": BINARY_PERIODIC,
    "delay poisson": DELAY,
    "delay periodic": DELAY_PERIODIC,
    "age poisson": AGE,
    "age periodic": AGE_PERIODIC,
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
            own = kernel.parameters if kernel.demand_parameters is None else kernel.demand_parameters
            value = weight if kernel.demand_parameters is None else np.ones(len(weight))
            for price in (SMALLEST_PRICE, TINY_PRICE, 1.0):
                with np.errstate(all="ignore"):
                    single = [
                        present(kernel.unit_demand)(w * (1.0 / price) / c, *parameters)
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
        own = kernel.parameters if kernel.demand_parameters is None else kernel.demand_parameters
        value = weight if kernel.demand_parameters is None else 1.0
        given = (False, value, tuple(np.ascontiguousarray(column) for column in own))
        for costs in (1e-100, 1.0, 1e100) if name == OFTEN else (cost,):
            table = Columns(n, present(kernel.unit_demand), None, *given, costs, *bounds)
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
    columns = present(columns_of(problem, present(problem.numerics)))
    with np.errstate(all="ignore"):
        answer = fill_compiled(problem, present(problem.numerics), columns, None)
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
    problem = fo.Problem(AGE, sources, 0.3 * n, host_limits={0: 0.1 * n})
    for certify in (False, True):
        solution = fo.solve(problem, certify=certify)
        assert solution.status is fo.Status.OPTIMAL
        assert solution.price + solution.host_prices[0] == pytest.approx(1.2 / 0.11**2, rel=1e-12)


@pytest.mark.exhaustive
def test_hosts_whose_limits_min_rate_uses_up_leave_the_others_to_the_loops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_all(monkeypatch)
    rng, n = np.random.default_rng(4), 60
    (w, d), host, least = rng.lognormal(0.0, 0.3, (2, n)), np.arange(n) % 6, np.full(n, 0.02)
    limits = {0: 0.2, 1: 1.0}
    problem = fo.Problem(DELAY, fo.Sources(d, w, host=host, min_rate=least), 8.0, limits)
    columns = present(columns_of(problem, present(problem.numerics)))
    found = present(fill_compiled(problem, present(problem.numerics), columns, None))
    # Of costs w·Δ/r the best response is √(w·Δ/price); the others have what hosts 0 and 1 leave.
    root = np.sqrt(w * d)
    others = root[host > 1].sum() / (8.0 - 0.2 - 1.0)
    rates = np.where(host == 1, root / root[host == 1].sum(), root / others)
    assert np.all(rates > least)
    np.testing.assert_allclose(present(found.rates), np.where(host == 0, least, rates), rtol=EXACT)
    price, on_top = present(found.price), present(found.host_prices)
    assert price == pytest.approx(others**2, rel=EXACT)
    prices = [(w * d / least**2)[host == 0].max(), root[host == 1].sum() ** 2]
    assert [on_top[k] + price for k in limits] == pytest.approx(prices, rel=EXACT)
