"""Kernels against the truth, programs and rows."""

from dataclasses import fields

import numpy as np
import pytest
from scipy.optimize import linprog

from freshopt.modelling.sources import Sources
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.separable.kernel import Numerics
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.program import implied_upper
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth import cell_truth as truth
from tests.ground_truth.cases import REFRESHES, Floats, as_problem
from tests.ground_truth.cell_truth import CURVES, DISCIPLINES, Wide, mp
from tests.ground_truth.named import present
from tests.ground_truth.strata import exhaustive, matrix, rare
from tests.ground_truth.tolerances import EXACT, SCALAR
from tests.ground_truth.truth import instance

CELLS = [(curve, discipline) for curve in CURVES for discipline in DISCIPLINES]
# Refreshes on request, of rates below the request rate, and fetches that fail: discipline, s and ζ.
FETCHES = [("on request", 1.0, 7.0), ("periodic", 0.9, np.inf)]
FETCHED = [(curve, *fetches) for curve in CURVES for fetches in FETCHES]
HARMONIC = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, 400))])


def simulated_cost(curve: str, discipline: str, d: float, r: float) -> tuple[float, float]:
    """Time-average cost of missed changes in a simulated history, and its standard error from 50 batches."""
    rng = np.random.default_rng([CURVES.index(curve), DISCIPLINES.index(discipline)])
    horizon = 20_000.0
    changes = np.sort(rng.uniform(0.0, horizon, rng.poisson(d * horizon)))
    if discipline == "poisson":
        refreshes = np.sort(rng.uniform(0.0, horizon, rng.poisson(r * horizon)))
    elif discipline == "periodic":
        refreshes = np.arange(0.0, horizon, 1.0 / r)
    else:
        refreshes = changes[rng.random(len(changes)) < r / d]
    kind = np.concatenate([np.ones(len(changes)), np.zeros(len(refreshes))])
    time = np.concatenate([changes, refreshes])
    order = np.lexsort((-kind, time))  # a refresh on a signal comes after its change
    time, kind = time[order], kind[order]
    so_far = np.cumsum(kind)
    missed = (so_far - np.maximum.accumulate(np.where(kind == 0.0, so_far, 0.0))).astype(int)
    level = {"binary": np.minimum(missed, 1), "harmonic": HARMONIC[missed], "count": missed}[curve]
    cuts = np.linspace(0.0, horizon, 51)
    all_times = np.concatenate([time, cuts])
    order = np.argsort(all_times, kind="stable")
    carried = np.concatenate([level, np.zeros(51)])[order]
    known = np.maximum.accumulate(np.where(order < len(level), np.arange(len(order)), 0))
    area = carried[known][:-1] * np.diff(all_times[order])
    batch = np.searchsorted(cuts, all_times[order][:-1], side="right") - 1
    means = np.bincount(batch, weights=area, minlength=50)[:50] / (horizon / 50)
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(50))


@pytest.mark.parametrize(("curve", "discipline"), CELLS)
def test_definition_is_what_a_simulated_history_costs(curve: str, discipline: str) -> None:
    mean, error = simulated_cost(curve, discipline, 2.0, 1.3)
    expected = float(truth.cost_by_definition(curve, discipline, 2.0, 1.3))
    assert abs(mean - expected) <= 4.0 * error
    assert error <= 0.02 * expected


@pytest.mark.parametrize(("curve", "discipline"), CELLS)
@matrix(share=[0.05, 0.4, 1.0], every=4)
def test_closed_form_is_the_definition(curve: str, discipline: str, share: float) -> None:
    definition = truth.cost_by_definition(curve, discipline, 3.0, 3.0 * share)
    assert abs(truth.cost(curve, discipline, 3.0, 3.0 * share) - definition) <= 1e-25 * (1 + definition)


@pytest.mark.parametrize("mean", [1e-3, 0.7, 12.0])
def test_harmonic_curve_is_the_mean_harmonic_number_of_a_poisson_count(mean: float) -> None:
    total = mp.nsum(
        lambda m: mp.exp(-mean) * mp.mpf(mean) ** m / mp.factorial(m) * mp.harmonic(m), [1, mp.inf]
    )
    assert abs(truth.age_cost("harmonic", 1.0, mp.mpf(mean)) - total) <= 1e-25 * total


@pytest.mark.parametrize(("curve", "discipline"), CELLS)
def test_fast_marginals_of_the_truth_are_its_derivatives(curve: str, discipline: str) -> None:
    for share in (1e-7, 1e-3, 0.2, 0.9, *(() if discipline == "on signal" else (1.9, 2.1, 1e3, 1e8))):
        fast = float(truth.slopes(curve, discipline, *wide(5.0, 5.0 * share, 1.0, np.inf))[0])
        exact = float(truth.marginal(curve, discipline, 5.0, 5.0 * share))
        assert abs(fast - exact) <= 1e-15 * exact


@pytest.mark.parametrize(
    ("curve", "discipline", "success", "asked"),
    [
        pytest.param(*cell, marks=[exhaustive] if cell[:2] == ("harmonic", "periodic") else [])
        for cell in FETCHED
    ],
)
def test_cells_of_requests_and_attempts_are_their_definitions(
    curve: str, discipline: str, success: float, asked: float
) -> None:
    definition = truth.cost_by_definition(curve, discipline, 3.0, 1.2, success, asked)
    found = truth.cost(curve, discipline, 3.0, 1.2, success, asked)
    assert abs(found - definition) <= 1e-25 * (1 + definition)


def wide(*values: float) -> list[Wide]:
    return [np.array([value], dtype=np.longdouble) for value in values]


@pytest.mark.parametrize(("curve", "discipline", "success", "asked"), FETCHED)
def test_fast_marginals_of_requests_and_attempts_are_derivatives(
    curve: str, discipline: str, success: float, asked: float
) -> None:
    for rate in (1e-7, 1e-3, 0.3, 4.0, 6.9999, *(() if asked < np.inf else (11.0, 13.0, 1e3, 1e8))):
        fast = float(truth.slopes(curve, discipline, *wide(5.0, rate, success, asked))[0])
        exact = float(truth.marginal(curve, discipline, 5.0, rate, success, asked))
        assert abs(fast - exact) <= 1e-14 * exact, rate


def require_truth(
    numerics: Numerics, rates: Floats, curve: str, discipline: str, d: float, *own: float
) -> None:
    """Require costs and marginals in many digits, and an inverse that undoes the marginal."""
    costs = np.array([float(truth.cost(curve, discipline, d, r, *own)) for r in rates])
    slopes = np.array([float(truth.marginal(curve, discipline, d, r, *own)) for r in rates])
    assert np.all(np.abs(numerics.cost(rates) - costs) <= EXACT * costs)
    assert np.all(np.abs(numerics.marginal(rates) - slopes) <= EXACT * slopes)
    assert np.all(np.abs(numerics.marginal(numerics.inverse_marginal(slopes)) - slopes) <= EXACT * slopes)


@pytest.mark.parametrize(("curve", "discipline", "success", "asked"), FETCHED)
@pytest.mark.sampled(2)
def test_kernels_of_requests_and_attempts_are_the_truth(
    curve: str, discipline: str, success: float, asked: float
) -> None:
    d, rates = 3.7, np.append(np.logspace(-8.0, 0.8, 10), 6.99 if asked < np.inf else 1e8)
    columns = np.full(len(rates), d)
    numerics = present(
        as_problem(instance(curve, discipline, columns, 1.0, success=success, asked=asked)).numerics
    )
    require_truth(numerics, rates, curve, discipline, d, success, asked)


@matrix(curve=["count", *rare(*CURVES[:2])], window=[0.4, *rare(np.inf)])
def test_windows_of_the_truth_are_their_definition(curve: str, window: float) -> None:
    for rate in (0.3, 1.2, 6.9):
        own = curve, "on request", 3.0, rate, 1.0, 7.0, window
        definition = truth.cost_by_definition(*own)
        assert abs(truth.cost(*own) - definition) <= 1e-22 * (1 + definition)
        if curve != "harmonic":
            fast = float(truth.slopes(curve, "on request", *wide(3.0, rate, 1.0, 7.0, window))[0])
            exact = float(truth.marginal(*own))
            assert abs(fast - exact) <= 1e-14 * exact


@matrix(curve=[*rare("harmonic"), "binary", "count"], window=[0.4, *rare(1e-5, 30.0, np.inf)])
def test_kernels_of_windows_are_the_truth(curve: str, window: float) -> None:
    d, rates = 3.7, np.append(np.logspace(-8.0, 0.8, 10), 6.99)
    problem = instance(curve, "on request", np.full(len(rates), d), 1.0, asked=7.0, window=window)
    numerics = present(as_problem(problem).numerics)
    require_truth(numerics, rates, curve, "on request", d, 1.0, 7.0, window)


@pytest.mark.parametrize(("curve", "discipline"), CELLS)
def test_kernels_are_the_truth_over_sixteen_decades(curve: str, discipline: str) -> None:
    plain = "poisson" if discipline == "on signal" else discipline
    top = 0.0 if discipline == "on signal" else 8.0
    share = np.logspace(-8.0, top, 33)
    d, w = 3.7, 0.6
    problem = instance(curve, plain, np.full(33, d), 1.0, importance=w, signalled=discipline == "on signal")
    numerics = present(as_problem(problem).numerics)
    rates = np.minimum(d * share, d) if discipline == "on signal" else d * share
    costs = np.array([w * float(truth.cost(curve, discipline, d, r)) for r in rates])
    slopes = np.array([w * float(truth.marginal(curve, discipline, d, r)) for r in rates])
    near_free = 1e-15 if discipline == "on signal" else 0.0  # at p = 1 the cost is 0, and 1 − p rounds
    assert np.all(np.abs(numerics.cost(rates) - costs) <= EXACT * costs + near_free)
    assert np.all(np.abs(numerics.marginal(rates) - slopes) <= EXACT * slopes)


@pytest.mark.parametrize(("curve", "discipline"), CELLS)
def test_inverse_marginals_solve_the_exact_equation(curve: str, discipline: str) -> None:
    """A relative error e of ρ shows as e times the elasticity of the marginal, which is at most 2."""
    plain = "poisson" if discipline == "on signal" else discipline
    d, w = 0.8, 3.0
    shares = np.logspace(-3.0, -0.01, 13) if discipline == "on signal" else np.logspace(-1.3, 8.0, 25)
    problem = instance(
        curve, plain, np.full(len(shares), d), 1.0, importance=w, signalled=discipline == "on signal"
    )
    numerics = present(as_problem(problem).numerics)
    price = np.array([w * float(truth.marginal(curve, discipline, d, d * x)) for x in shares])
    if (curve, discipline) == ("binary", "on signal"):
        assert np.array_equal(numerics.inverse_marginal(0.5 * price), np.full(len(shares), d))
        assert np.array_equal(numerics.inverse_marginal(2.0 * price), np.zeros(len(shares)))
        return
    rates = numerics.inverse_marginal(price)
    back = np.array([w * float(truth.marginal(curve, discipline, d, r)) for r in rates])
    assert np.all(np.abs(back - price) <= 8e-16 * price + np.spacing(w / d) * (curve == "binary"))


@matrix(kind=[AccumulatedDelay, BinaryFreshness, HarmonicStaleness], discipline=["poisson", "periodic"])
def test_extremes_of_price_and_rate(kind: type, discipline: str) -> None:
    objective = kind(refresh=REFRESHES[discipline])
    kernel = objective.kernel(Sources([1e-98, 1.0, 1e100]))
    assert np.array_equal(kernel.inverse_marginal(np.zeros(3)), np.full(3, np.inf))
    assert np.array_equal(kernel.inverse_marginal(np.full(3, np.inf)), np.zeros(3))
    unimportant = objective.kernel(Sources([1.0, 2.0], importance=0.0))
    assert np.array_equal(unimportant.cost(np.zeros(2)), np.zeros(2))
    assert np.array_equal(unimportant.marginal(np.zeros(2)), np.zeros(2))
    at_rest = kernel.cost(np.zeros(3))
    assert np.array_equal(at_rest, np.ones(3) if kind is BinaryFreshness else np.full(3, np.inf))


def dense(matrix: np.ndarray, limits: np.ndarray) -> Rows:
    row, source = np.nonzero(matrix)
    block = RowBlock.linear("r", tuple(range(len(matrix))), source, row, matrix[row, source], limits)
    return Rows.gather([block], matrix.shape[1])


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(60))
def test_no_feasible_rate_is_beyond_an_implied_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n = rng.integers(1, 8, 2)
    # One source against others in most rows, so that bounds reach from row to row.
    matrix = -rng.lognormal(0.0, 2.0, (m, n)) * (rng.random((m, n)) < 0.25)
    matrix[np.arange(m), rng.integers(0, n, m)] = rng.lognormal(0.0, 2.0, m)
    feasible = rng.lognormal(size=n)
    limits = matrix @ feasible + rng.lognormal(size=m)
    upper = np.where(rng.random(n) < 0.3, feasible * rng.uniform(1.0, 3.0, n), np.inf)
    bounds = implied_upper(dense(matrix, limits), np.zeros(n), upper)
    assert np.all(bounds <= upper)
    for k in range(n):
        most = linprog(-np.eye(n)[k], matrix, limits, bounds=[(0.0, float(u)) for u in upper])
        if most.status == 3:
            assert bounds[k] == np.inf
        else:
            assert most.status == 0
            assert float(present(most.x)[k]) <= bounds[k] * (1.0 + SCALAR)


def test_bounds_reach_along_a_chain_of_any_length() -> None:
    """ρ_k ≤ c_k·ρ_{k−1}, declared in any order: the product of the ratios."""
    rng, n = np.random.default_rng(3), 30_000
    ratio, place = rng.lognormal(0.0, 0.1, n), rng.permutation(n)
    rows = np.arange(n - 1)
    source = np.concatenate((place[1:], place[:-1]))
    weight = np.concatenate((np.ones(n - 1), -ratio[1:]))
    both = np.concatenate((rows, rows))
    block = RowBlock.linear("r", tuple(range(n - 1)), source, both, weight, np.zeros(n - 1))
    upper = np.full(n, np.inf)
    upper[place[0]] = 2.0
    bounds = implied_upper(Rows.gather([block], n), np.zeros(n), upper)
    assert np.allclose(bounds[place[1:]], 2.0 * np.cumprod(ratio[1:]), rtol=SCALAR, atol=0.0)


def budgets(n: int, m: int) -> tuple[list[RowBlock], list[RowBlock]]:
    """Budgets over all sources, and the same with their entries shuffled."""
    rng = np.random.default_rng(n)
    plain, shuffled, row = [], [], np.zeros(n, dtype=np.int64)
    for j in range(m):
        cost, order, limit = rng.lognormal(size=n), rng.permutation(n), rng.lognormal(size=1)
        plain.append(RowBlock.linear(f"{j}", (None,), np.arange(n), row, cost, limit))
        shuffled.append(RowBlock.linear(f"{j}", (None,), order, row, cost[order], limit))
    return plain, shuffled


def test_budgets_of_all_sources_are_gathered_as_their_entries_are() -> None:
    plain, shuffled = budgets(500, 3)
    one, other = Rows.gather(plain, 500), Rows.gather(shuffled, 500)
    for field in fields(Rows):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
        else:
            assert a == b
    assert one.dense
    assert other.dense


def test_rows_that_lack_a_source_are_no_table() -> None:
    plain, _ = budgets(500, 2)
    few = RowBlock.linear(
        "few", (None,), np.arange(499), np.zeros(499, dtype=np.int64), np.ones(499), np.ones(1)
    )
    assert not Rows.gather([*plain, few], 500).dense
    assert not Rows.gather([], 500).dense


def test_implied_bounds_are_twice_what_the_tightest_row_leaves() -> None:
    plain, shuffled = budgets(400, 3)
    lower = np.where(np.arange(400) % 7 == 0, 1e-4, 0.0)
    for least in (np.zeros(400), lower):
        rows = Rows.gather(shuffled, 400)
        room = [block.limits[0] - block.coefficient @ least for block in plain]
        each = [np.maximum(0.0, left) / block.coefficient for left, block in zip(room, plain, strict=True)]
        found = implied_upper(rows, least, np.full(400, np.inf))
        np.testing.assert_allclose(found, least + 2.0 * np.min(each, axis=0), rtol=1e-14)


def test_costs_that_differ_late_are_no_tree_either() -> None:
    n = 3000
    cost, row = np.ones(n), np.zeros(n, dtype=np.int64)
    other = np.where(np.arange(n) < n - 1, 2.0, 3.0)
    blocks = [RowBlock.linear("a", (None,), np.arange(n), row, cost, np.ones(1))]
    twice = RowBlock.linear("b", (None,), np.arange(n), row, 2.0 * cost, np.ones(1))
    differs = RowBlock.linear("b", (None,), np.arange(n), row, other, np.ones(1))
    assert LaminarTree.from_rows(Rows.gather([*blocks, twice], n)) is not None
    assert LaminarTree.from_rows(Rows.gather([*blocks, differs], n)) is None
