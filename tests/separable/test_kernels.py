"""The ground truth itself: curves by simulation, closed forms by definition; then kernels against both."""

from __future__ import annotations

import numpy as np
import pytest

from freshopt.modelling.sources import Sources
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from tests.ground_truth import cell_truth as truth
from tests.ground_truth.cases import REFRESHES, as_problem
from tests.ground_truth.cell_truth import CURVES, DISCIPLINES, Wide, mp
from tests.ground_truth.strata import exhaustive
from tests.ground_truth.tolerances import EXACT
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
@pytest.mark.parametrize("share", [0.05, 0.4, 1.0])
@pytest.mark.sampled(4)
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


@pytest.mark.parametrize(("curve", "discipline", "success", "asked"), FETCHED)
@pytest.mark.sampled(2)
def test_kernels_of_requests_and_attempts_are_the_truth(
    curve: str, discipline: str, success: float, asked: float
) -> None:
    d, rates = 3.7, np.append(np.logspace(-8.0, 0.8, 10), 6.99 if asked < np.inf else 1e8)
    columns = np.full(len(rates), d)
    numerics = as_problem(instance(curve, discipline, columns, 1.0, success=success, asked=asked)).numerics
    assert numerics is not None
    costs = np.array([float(truth.cost(curve, discipline, d, r, success, asked)) for r in rates])
    slopes = np.array([float(truth.marginal(curve, discipline, d, r, success, asked)) for r in rates])
    assert np.all(np.abs(numerics.cost(rates) - costs) <= EXACT * costs)
    assert np.all(np.abs(numerics.marginal(rates) - slopes) <= EXACT * slopes)
    assert np.all(np.abs(numerics.marginal(numerics.inverse_marginal(slopes)) - slopes) <= EXACT * slopes)


@pytest.mark.parametrize("curve", ["count", *(pytest.param(x, marks=exhaustive) for x in CURVES[:2])])
@pytest.mark.parametrize("window", [0.4, pytest.param(np.inf, marks=exhaustive)])
def test_windows_of_the_truth_are_their_definition(curve: str, window: float) -> None:
    for rate in (0.3, 1.2, 6.9):
        own = curve, "on request", 3.0, rate, 1.0, 7.0, window
        definition = truth.cost_by_definition(*own)
        assert abs(truth.cost(*own) - definition) <= 1e-22 * (1 + definition)
        if curve != "harmonic":
            fast = float(truth.slopes(curve, "on request", *wide(3.0, rate, 1.0, 7.0, window))[0])
            exact = float(truth.marginal(*own))
            assert abs(fast - exact) <= 1e-14 * exact


@pytest.mark.parametrize("curve", [pytest.param("harmonic", marks=exhaustive), "binary", "count"])
@pytest.mark.parametrize("window", [0.4, *(pytest.param(x, marks=exhaustive) for x in (1e-5, 30.0, np.inf))])
def test_kernels_of_windows_are_the_truth(curve: str, window: float) -> None:
    d, rates = 3.7, np.append(np.logspace(-8.0, 0.8, 10), 6.99)
    problem = instance(curve, "on request", np.full(len(rates), d), 1.0, asked=7.0, window=window)
    numerics = as_problem(problem).numerics
    assert numerics is not None
    own = 1.0, 7.0, window
    costs = np.array([float(truth.cost(curve, "on request", d, r, *own)) for r in rates])
    slopes = np.array([float(truth.marginal(curve, "on request", d, r, *own)) for r in rates])
    assert np.all(np.abs(numerics.cost(rates) - costs) <= EXACT * costs)
    assert np.all(np.abs(numerics.marginal(rates) - slopes) <= EXACT * slopes)
    assert np.all(np.abs(numerics.marginal(numerics.inverse_marginal(slopes)) - slopes) <= EXACT * slopes)


@pytest.mark.parametrize(("curve", "discipline"), CELLS)
def test_kernels_are_the_truth_over_sixteen_decades(curve: str, discipline: str) -> None:
    plain = "poisson" if discipline == "on signal" else discipline
    top = 0.0 if discipline == "on signal" else 8.0
    share = np.logspace(-8.0, top, 33)
    d, w = 3.7, 0.6
    problem = instance(curve, plain, np.full(33, d), 1.0, importance=w, signalled=discipline == "on signal")
    numerics = as_problem(problem).numerics
    assert numerics is not None
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
    numerics = as_problem(problem).numerics
    assert numerics is not None
    price = np.array([w * float(truth.marginal(curve, discipline, d, d * x)) for x in shares])
    if (curve, discipline) == ("binary", "on signal"):
        assert np.array_equal(numerics.inverse_marginal(0.5 * price), np.full(len(shares), d))
        assert np.array_equal(numerics.inverse_marginal(2.0 * price), np.zeros(len(shares)))
        return
    rates = numerics.inverse_marginal(price)
    back = np.array([w * float(truth.marginal(curve, discipline, d, r)) for r in rates])
    assert np.all(np.abs(back - price) <= 8e-16 * price + np.spacing(w / d) * (curve == "binary"))


@pytest.mark.parametrize("kind", [AccumulatedDelay, BinaryFreshness, HarmonicStaleness])
@pytest.mark.parametrize("discipline", ["poisson", "periodic"])
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
