"""Compiled passes against the NumPy path, which is held against the truth elsewhere; bits, threads, edges."""

import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.compiled import demand_functions
from freshopt.compiled.cells import counted_signals
from freshopt.compiled.column_access import copied, room, written
from freshopt.compiled.columns import HostGroups
from freshopt.compiled.kept_code import compile_loop
from freshopt.compiled.source_columns import Data
from freshopt.dual_search.batch_water_filling import SMALL
from freshopt.dual_search.problem_columns import columns_of
from freshopt.dual_search.sampled_search import sampled_search
from freshopt.numerics.arrays import Array
from freshopt.separable.kernel import Kernel
from freshopt.solvers import WaterFilling
from tests.ground_truth import named
from tests.ground_truth.named import present
from tests.ground_truth.strata import exhaustive, stratified
from tests.ground_truth.tolerances import EXACT

pytestmark = pytest.mark.usefixtures("all_compiled")
OBJECTIVES = [
    named.HARMONIC,
    named.HARMONIC_PERIODIC,
    named.BINARY,
    named.BINARY_PERIODIC,
    named.LOG_PERIODIC,
    named.DELAY,
    named.DELAY_PERIODIC,
    named.AGE_PERIODIC,
    named.AGE,
    fo.problems.PollingKnapsack("polls"),
    fo.problems.PollingKnapsack("materials"),
    fo.problems.SynchronizationCost(fo.problems.PowerCost(2.0, 0.7)),
    fo.problems.SynchronizationCost(fo.problems.PowerCost(2.0, 0.7), fo.Refresh.POISSON),
    fo.problems.SynchronizationCost(fo.problems.BinaryCost()),
]
FAMILIES = ("plain", "lower", "upper", "cost", "hosts", "signals")
N = SMALL + 1234


def problem(objective: fo.Objective, family: str, budget: float, *, ill: bool, n: int = N) -> fo.Problem:
    rng = np.random.default_rng(n)
    if ill:
        d, w = 10 ** rng.uniform(-6, 4, n), 10 ** rng.uniform(-6, 6, n)
    else:
        d, w = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n)
    share = budget * float(d.sum()) / n
    hosts = rng.integers(0, n // 10, n)
    extra = {
        "plain": {},
        "lower": {"min_rate": 0.5 * share * rng.random(n)},
        "upper": {"max_rate": share * 10 ** rng.uniform(-1, 2, n)},
        "cost": {"refresh_cost": 10 ** rng.uniform(-1, 1, n)},
        "hosts": {"host": hosts},
        "signals": {"signalled": rng.random(n) < 0.5},
    }[family]
    known = np.unique(hosts)[::2]
    tight = 10.0 * share * 10 ** rng.uniform(-1, 1, len(known))
    limits = dict(zip(known.tolist(), tight.tolist(), strict=True)) if family == "hosts" else None
    return fo.Problem(objective, fo.Sources(d, w, **extra), share * n, limits)  # type: ignore[arg-type]


def solved(
    monkeypatch: pytest.MonkeyPatch, task: fo.Problem, compiled: str, threads: str = "1"
) -> fo.Solution:
    monkeypatch.setenv("FRESHOPT_COMPILED", compiled)
    monkeypatch.setenv("FRESHOPT_THREADS", threads)
    return fo.solve(task, WaterFilling(), certify=False)


def apart(task: fo.Problem, a: Array, b: Array) -> float:
    """Return the share of the bandwidth that two vectors of rates spend differently."""
    return float(np.sum(task.sources.refresh_cost * np.abs(a - b)) / task.bandwidth)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_demands_are_the_inverse_marginals(objective: fo.Objective) -> None:
    worth = 10 ** np.linspace(-6.0, 6.0, 400)
    for d in (1e-6, 1.0, 3.7e4):
        sources = fo.Sources(np.full(len(worth), d))
        kernels = [
            objective.kernel(sources),
            *([] if objective.refuses_signals() else [objective.signalled_kernel(sources)]),
        ]
        for kernel in kernels:
            assert isinstance(kernel, Kernel)
            exact = kernel.unit_inverse(1.0 / worth, *kernel.parameters)
            own = kernel.parameters if kernel.demand_parameters is None else kernel.demand_parameters
            found = np.array(
                [present(kernel.unit_demand)(float(a), *(float(column[0]) for column in own)) for a in worth]
            )
            # 1/worth is rounded; near the price at which a source starves that ulp is all there is.
            steep = kernel.unit_inverse((1.0 - 4e-16) / worth, *kernel.parameters)
            assert np.all(np.abs(found - exact) <= 4e-15 * exact + 2.0 * np.abs(steep - exact))


@pytest.mark.parametrize(
    ("objective", "family", "budget"),
    stratified([named.HARMONIC, named.BINARY_PERIODIC], FAMILIES, [1e-3, 0.5, 20.0], every=9),
    ids=repr,
)
def test_both_paths_give_the_same_rates(
    monkeypatch: pytest.MonkeyPatch, objective: fo.Objective, family: str, budget: float
) -> None:
    task = problem(objective, family, budget, ill=budget == 0.5)
    plain, fast = solved(monkeypatch, task, "0"), solved(monkeypatch, task, "1")
    if not (family == "signals" and isinstance(objective, fo.problems.BinaryFreshness)):
        # Either search leaves 1e-12 to a few sources; elsewhere equals may be split differently.
        assert apart(task, plain.rates, fast.rates) <= 2.0 * EXACT
    assert fast.value == pytest.approx(plain.value, rel=10 * EXACT)
    assert fast.price == pytest.approx(plain.price, rel=10 * EXACT)
    assert np.sum(task.sources.refresh_cost * fast.rates) <= task.bandwidth * (1 + EXACT)
    spent = task.hosts.totals(task.sources.refresh_cost * fast.rates)
    assert np.all(spent <= task.hosts.limits * (1 + EXACT))


def test_the_compiled_path_is_the_one_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    task = problem(named.HARMONIC_PERIODIC, "plain", 0.5, ill=True)
    assert columns_of(task, present(task.numerics)) is not None
    fast, plain = solved(monkeypatch, task, "1"), solved(monkeypatch, task, "0")
    assert columns_of(task, present(task.numerics)) is None
    assert fast.iterations <= 5 < plain.iterations
    again = fo.solve(task, WaterFilling())
    assert present(again.certificate).relative_gap < EXACT


@pytest.mark.parametrize(
    ("objective", "family"),
    [
        (named.BINARY, "plain"),
        *(
            pytest.param(objective, family, marks=pytest.mark.exhaustive)
            for objective in OBJECTIVES
            for family in ("plain", "hosts")
        ),
    ],
    ids=repr,
)
def test_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, objective: fo.Objective, family: str
) -> None:
    task = problem(objective, family, 0.5, ill=True)
    found, proofs = [], []
    for threads in ("1", "2", "4"):
        found.append(solved(monkeypatch, task, "1", threads))
        proofs.append(fo.solve(task, WaterFilling(), throw=False).certificate)
    for other in found[1:]:
        assert np.array_equal(found[0].rates, other.rates)
        assert (found[0].price, found[0].value) == (other.price, other.value)
        assert found[0].host_prices == other.host_prices
    assert proofs[0] is not None
    for proof in proofs[1:]:
        assert proof is not None
        assert (proofs[0].gap, proofs[0].value, proofs[0].price) == (proof.gap, proof.value, proof.price)


def test_yesterdays_price_saves_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    task = problem(named.HARMONIC, "plain", 0.5, ill=False)
    before = solved(monkeypatch, task, "1")
    again = fo.solve(task, WaterFilling(), certify=False, warm_start=before)
    assert again.iterations <= 2
    assert apart(task, before.rates, again.rates) <= EXACT
    more = task.with_bandwidth(1.01 * task.bandwidth)
    assert fo.solve(more, WaterFilling(), certify=False, warm_start=before).iterations <= before.iterations


@pytest.mark.exhaustive
def test_a_price_that_tells_nothing_is_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESHOPT_COMPILED", "1")
    sources = fo.Sources(np.random.default_rng(3).lognormal(size=N), max_rate=np.ones(N))
    plenty = fo.Problem(named.HARMONIC, sources, 2.0 * N)
    before = fo.solve(plenty)
    assert before.price == 0.0  # the bandwidth did not bind
    scarce = plenty.with_bandwidth(0.5 * N)
    fresh = fo.solve(scarce)
    for start in (before, 0.0, -1.0, np.nan, np.inf, 1e-300, 1e300):
        assert fo.solve(scarce, warm_start=start).price == pytest.approx(fresh.price, rel=EXACT)


@pytest.mark.exhaustive
def test_hosts_whose_demand_jumps_or_vanishes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    d, host = 10 ** rng.uniform(-6, 4, N), rng.integers(0, 3000, N)
    w = 10 ** rng.uniform(-6, 6, N) * (rng.random(N) > 0.1)
    known = np.unique(host)[::7]
    held = np.bincount(host, weights=d)[known]
    limits = dict(zip(known.tolist(), (held * 10 ** rng.uniform(-2, 0.3, len(known))).tolist(), strict=True))
    sources = fo.Sources(d, w, host=host, signalled=rng.random(N) < 0.5)
    task = fo.Problem(named.BINARY, sources, 0.5 * float(d.sum()), limits)
    fast, plain = solved(monkeypatch, task, "1"), solved(monkeypatch, task, "0")
    assert np.all(np.isfinite([*fast.host_prices.values()]))
    assert fast.value == pytest.approx(plain.value, rel=10 * EXACT)
    certified = fo.solve(task, WaterFilling())
    assert present(certified.certificate).relative_gap < EXACT


@exhaustive
def test_hosts_whose_sources_are_all_at_max_rate_or_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # What they buy is the same far below the price at which their limit binds, and nothing far above it.
    k = np.arange(N)
    d, host = np.where(k % 4 == 1, 2.0, 1.0), k % 2
    sources = fo.Sources(d, max_rate=np.ones(N), host=host)
    for budget, limits in ((3.0, {0: 0.25}), (0.75, {0: 0.25, 1: 1e9}), (0.75, {1: 0.25})):
        scaled = {name: limit * N for name, limit in limits.items()}
        task = fo.Problem(named.BINARY, sources, budget * N, scaled)
        fast, plain = solved(monkeypatch, task, "1"), solved(monkeypatch, task, "0")
        np.testing.assert_allclose(fast.rates, plain.rates, rtol=10 * EXACT)
        # Several prices are optimal here, and both paths return the least.
        assert fast.price == plain.price == 0.0
        np.testing.assert_allclose([*fast.host_prices.values()], [*plain.host_prices.values()], rtol=EXACT)


@pytest.mark.exhaustive
def test_where_demand_jumps_the_sample_gives_no_answer() -> None:
    d = np.full(N, 2.0)
    task = fo.Problem(named.BINARY, fo.Sources(d, signalled=np.arange(N) % 2 == 0), 0.6 * float(d.sum()))
    columns = present(columns_of(task, present(task.numerics)))
    # Half of the sources follow every signal or none, at one price.
    assert sampled_search(columns, 0.3 * float(d.sum())) is None
    solution = fo.solve(task)
    assert present(solution.certificate).relative_gap < EXACT


@exhaustive
def test_scalar_columns_are_not_unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    d = np.random.default_rng(5).lognormal(0.0, 1.0, N)
    bare = fo.Problem(named.HARMONIC, fo.Sources(d), 1000.0)
    full = fo.Problem(named.HARMONIC, fo.Sources(d, np.ones(N), min_rate=np.zeros(N)), 1000.0)
    a, b = solved(monkeypatch, bare, "1"), solved(monkeypatch, full, "1")
    # Two specialisations of one loop: each has the bits of its own machine code.
    np.testing.assert_allclose(a.rates, b.rates, rtol=EXACT)


def test_every_demand_belongs_to_a_cell() -> None:
    used = set()
    # Rates of sources alike at a kink are not unique: those optima are in tests/problems.
    kinked = fo.problems.SynchronizationCost(fo.problems.PiecewiseLinearCost([0.0, 1.0], [0.0, -2.0]))
    capped = fo.problems.SynchronizationCost(fo.problems.PowerCost(1.0, 0.5, 2.0))
    for objective in (*OBJECTIVES, kinked, capped, fo.problems.LaterThan(1.0, fo.Refresh.POISSON)):
        sources = fo.Sources([1.0])
        for kernel in (objective.kernel(sources), objective.signalled_kernel(sources)):
            if kernel is not None and kernel.unit_demand is not None:
                used.add(kernel.unit_demand.__name__)
    written = {
        name
        for module in (demand_functions, counted_signals)
        for name, member in inspect.getmembers(module, inspect.isfunction)
        if member.__module__ == module.__name__
        and list(inspect.signature(member).parameters)[1:]
        and next(iter(inspect.signature(member).parameters)) == "worth"
    }
    assert used == written


def corners() -> list[fo.Problem]:
    """Problems whose demand is flat where the price is sought."""
    rng = np.random.default_rng(1)
    w, d = rng.random(N), rng.random(N) + 0.1
    rare = w * (rng.random(N) < 0.01)
    few = np.where(np.arange(N) < 3, 1.0 + np.arange(N), 0.0)
    heavy = np.where(np.arange(N) % 2, 1.0, 1e3)
    held = fo.Sources(1.0, heavy, host=np.arange(N) // 700, max_rate=rng.uniform(1, 2, N))
    hosts = range(N // 700 + 1)
    harmonic = named.HARMONIC
    return [
        fo.Problem(harmonic, held, 1e6, dict.fromkeys(hosts, 900.0)),
        fo.Problem(
            harmonic,
            fo.Sources(d, rare, host=np.arange(N) % 1000),
            100.0,
            dict.fromkeys(range(1000), 0.05),
        ),
        fo.Problem(harmonic, fo.Sources(d, w, max_rate=0.01), 0.01 * N * (1.0 - 1e-12)),
        fo.Problem(harmonic, fo.Sources(d, 0.0, min_rate=0.5 * w), 20_000.0),
        fo.Problem(named.AGE, fo.Sources(np.full(N, 1.3), few, host=np.zeros(N)), 20_000.0, {0.0: 2900.0}),
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "task", stratified(corners(), every=3), ids=["held", "rare", "capped", "unimportant", "few"]
)
def test_flat_demand_is_solved_like_any_other(monkeypatch: pytest.MonkeyPatch, task: fo.Problem) -> None:
    fast, plain = solved(monkeypatch, task, "1"), solved(monkeypatch, task, "0")
    assert fast.value == pytest.approx(plain.value, rel=10 * EXACT)
    certified = fo.solve(task, WaterFilling())
    assert present(certified.certificate).relative_gap < EXACT
    assert present(certified.certificate).infeasibility <= EXACT


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", [named.HARMONIC, named.BINARY, named.DELAY_PERIODIC], ids=repr)
def test_sums_do_not_depend_on_where_arrays_lie(objective: fo.Objective) -> None:
    rng, n = np.random.default_rng(11), 1000
    memory = np.empty(4 * n + 64)
    importance, beside = memory[:n], memory[n : 2 * n]
    importance[:] = rng.lognormal(0.0, 2.0, n)
    task = fo.Problem(
        objective, fo.Sources(rng.lognormal(0.0, 2.0, n), max_rate=rng.lognormal(size=n)), float(n)
    )
    columns = present(columns_of(task, present(task.numerics)))
    columns = replace(columns, importance=importance)
    for price in (0.01, 0.1, 1.0):
        sums = {
            columns.fill(price, out)
            for out in (beside, memory[n + 2 : 2 * n + 2], memory[n + 64 : 2 * n + 64], memory[-n:])
        }
        assert len(sums) == 1


@pytest.mark.exhaustive
def test_hosts_whose_demand_has_steps_alone_are_solved_for() -> None:
    rng, hosts, each = np.random.default_rng(5), 400, 3
    n = hosts * each
    d, w = rng.lognormal(size=n), rng.lognormal(size=n)
    task = fo.Problem(named.BINARY, fo.Sources(d, w, signalled=True, max_rate=d), float(n))
    columns = present(columns_of(task, present(task.numerics)))
    index = np.arange(n)
    totals = d.reshape(hosts, each).sum(axis=1)
    groups = HostGroups(0.69 * totals, index // each, index, np.arange(0, n + 1, each))
    rates = np.array(d)
    for floor in (1e-290, 1e-3):
        used = columns.by_host(floor, groups.codes, hosts)
        prices = columns.settle_hosts(groups, used, floor, 0.13, 1.0, floor > 1e-9, rates)
        assert np.all(prices[used > groups.limits] > floor)
        np.testing.assert_allclose(rates.reshape(hosts, each).sum(axis=1), groups.limits, rtol=EXACT)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_copies_of_a_source_are_made_of_columns_of_any_precision(dtype: type[np.floating[Any]]) -> None:
    @compile_loop()
    def copies(columns: Data, k: int) -> Data:
        memory = room(columns, 16)
        copied(columns, k, memory)
        return memory, written(memory[0], 16, 1.0), written(memory[0], 3, 7.0), written(memory[1], 0, 7.0)

    columns = (np.array([1.0, 2.0]), np.array([3.0, 0.1], dtype=dtype), 5.0)
    memory, beyond, there, narrow = copies(columns, 1)
    assert memory[0].tolist() == [2.0] * 3 + [7.0] + [2.0] * 12
    assert memory[1][1:].tolist() == [float(dtype(0.1))] * 15
    assert memory[2] == 5.0
    # A price between two of float32 cannot be told by them.
    assert (beyond, there, narrow) == (False, True, dtype is np.float64)
