"""Optima of synchronization cost and age against brute force: bounds, hosts, signals, jumps, ill scales."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import gamma, gammainc

import freshopt as fo
from freshopt.compiled import backend
from freshopt.compiled.demand_functions import last_kink
from freshopt.problems import BinaryCost, PiecewiseLinearCost, PowerCost, SynchronizationCost
from tests.ground_truth.cost_truth import Floats, Slope, market
from tests.ground_truth.named import AGE, AGE_PERIODIC, present
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import EXACT, SCALAR

N = 8


@dataclass(frozen=True, eq=False)
class Model:
    """An objective with its own cost and marginal, for change rates d, written once more."""

    objective: fo.Objective
    cost: Callable[[Floats, Floats], Floats]
    marginal: Callable[[Floats, Floats], Floats]
    signals: bool = False


def stale(u: Floats) -> Floats:
    return np.where(u < 1e-3, u / 2 - u**2 / 6 + u**3 / 24 - u**4 / 120, 1.0 - gammainc(1.0, u) / u)


def rise_of_age(u: Floats) -> Floats:
    """u²/2 − P(2, u)."""
    series = sum((-1) ** (k + 1) * u ** (k + 2) / (gamma(k + 1) * (k + 2)) for k in range(1, 9))
    return np.where(u < 0.05, series, u * u / 2 - gammainc(2.0, u))


def mean_of_age(u: Floats) -> Floats:
    """u/2 − 1 + (1−e^{−u})/u."""
    series = sum((-1) ** k * u**k / gamma(k + 2) for k in range(2, 10))
    return np.where(u < 0.05, series, u / 2 - stale(u))


EXPONENT = np.array([0.5, 0.9, 1.0, 2.0, 0.2, 0.7, 1.5, 3.0])
SCALE = np.array([1.0, 2.0, 0.1, 5.0, 1.0, 30.0, 0.7, 0.01])
CAP = np.array([0.5, 2.0, 1.0, 4.0, np.inf, 8.0, 0.3, np.inf])
LIMIT = (CAP / SCALE) ** (1.0 / EXPONENT)


def capped(r: Floats, d: Floats) -> Floats:  # noqa: ARG001
    inside = SCALE * r**-EXPONENT / (EXPONENT + 1)
    return np.asarray(np.where(r * LIMIT >= 1.0, inside, CAP - CAP * LIMIT * r * EXPONENT / (EXPONENT + 1)))


def capped_marginal(r: Floats, d: Floats) -> Floats:  # noqa: ARG001
    inside = SCALE * EXPONENT * r ** -(EXPONENT + 1) / (EXPONENT + 1)
    return np.asarray(np.where(r * LIMIT >= 1.0, inside, CAP * LIMIT * EXPONENT / (EXPONENT + 1)))


def lower_gamma(r: Floats) -> Floats:
    """x^{−1−e}·γ(1+e, x) for x = r·t0, where there is a cap; its limit below x = 1e-5 to first order."""
    x = np.where(np.isfinite(LIMIT), r * LIMIT, 1.0)
    exact = gamma(1 + EXPONENT) * gammainc(1 + EXPONENT, x) * np.maximum(x, 1e-5) ** -(1 + EXPONENT)
    return np.asarray(np.where(x < 1e-5, 1 / (1 + EXPONENT) - x / (2 + EXPONENT), exact))


def capped_poisson(r: Floats, d: Floats) -> Floats:  # noqa: ARG001
    x = np.where(np.isfinite(LIMIT), r * LIMIT, 1.0)
    uncapped = SCALE * r**-EXPONENT * gamma(1 + EXPONENT)
    return np.asarray(np.where(np.isfinite(LIMIT), CAP * (x * lower_gamma(r) + np.exp(-x)), uncapped))


def capped_poisson_marginal(r: Floats, d: Floats) -> Floats:  # noqa: ARG001
    uncapped = SCALE * EXPONENT * r ** -(EXPONENT + 1) * gamma(1 + EXPONENT)
    return np.asarray(np.where(np.isfinite(LIMIT), CAP * LIMIT * EXPONENT * lower_gamma(r), uncapped))


SYNC = SynchronizationCost
MODELS: dict[str, Model] = {
    "power": Model(
        SYNC(PowerCost(SCALE, EXPONENT)),
        lambda r, _d: SCALE * r**-EXPONENT / (EXPONENT + 1),
        lambda r, _d: SCALE * EXPONENT * r ** -(EXPONENT + 1) / (EXPONENT + 1),
    ),
    "power poisson": Model(
        SYNC(PowerCost(SCALE, EXPONENT), fo.Refresh.POISSON),
        lambda r, _d: SCALE * gamma(1 + EXPONENT) * r**-EXPONENT,
        lambda r, _d: SCALE * gamma(1 + EXPONENT) * EXPONENT * r ** -(EXPONENT + 1),
    ),
    "capped": Model(SYNC(PowerCost(SCALE, EXPONENT, CAP)), capped, capped_marginal),
    "capped poisson": Model(
        SYNC(PowerCost(SCALE, EXPONENT, CAP), fo.Refresh.POISSON), capped_poisson, capped_poisson_marginal
    ),
    "binary": Model(SYNC(BinaryCost()), lambda r, d: stale(d / r), lambda r, d: gammainc(2.0, d / r) / d),
    "binary poisson": Model(
        SYNC(BinaryCost(), fo.Refresh.POISSON), lambda r, d: d / (d + r), lambda r, d: d / (d + r) ** 2
    ),
    "age": Model(
        AGE,
        lambda r, d: d / (r + d) / r,
        lambda r, d: d / (r + d) * (2 * r + d) / (r + d) / r / r,
        signals=True,
    ),
    "age periodic": Model(
        AGE_PERIODIC, lambda r, d: mean_of_age(d / r) / d, lambda r, d: rise_of_age(d / r) / d / d
    ),
}


def check(
    model: Model,
    d: Floats,
    w: Floats,
    bandwidth: float,
    signalled: npt.ArrayLike = False,
    **limits: Any,  # noqa: ANN401 - bounds, hosts and their limits
) -> fo.Solution:
    """Solve, and compare value, feasibility and certificate with the brute force."""
    signalled = np.broadcast_to(signalled, (N,))
    lower, upper = limits.get("lower", 0.0), limits.get("upper", np.inf)
    host, caps = limits.get("host", -1), limits.get("limits", ())
    sources = fo.Sources(
        d, w, min_rate=lower, max_rate=upper, host=np.broadcast_to(host, (N,)), signalled=signalled
    )
    problem = fo.Problem(model.objective, sources, bandwidth, dict(enumerate(caps)))
    solution = fo.solve(problem, tolerance=SCALAR)

    def cost(r: Floats) -> float:
        with np.errstate(all="ignore"):
            each = np.where(
                signalled, np.maximum(1.0 / r - 1.0 / d, 0.0), model.cost(np.maximum(r, 1e-280), d)
            )
        return float(np.sum(np.where(w > 0.0, w * each, 0.0)))

    def marginal(r: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return w * np.where(signalled, 1.0 / r / r, model.marginal(r, d))

    own: Slope = marginal
    top = np.where(signalled, np.minimum(upper, d), upper)
    best = market(own, bandwidth, N, lower=lower, upper=top, host=host, limits=caps).optimum()
    assert present(solution.certificate).relative_gap <= SCALAR or present(solution.certificate).vanishing
    nothing = 1e-12 * float(np.sum(w))
    scale = cost(best) + solution.price * bandwidth
    assert abs(solution.value - cost(best)) <= SCALAR * scale + nothing * (cost(best) <= nothing)
    assert abs(solution.value - cost(solution.rates)) <= SCALAR * solution.value + nothing
    assert np.all((solution.rates >= lower) & (solution.rates <= top))
    assert np.sum(solution.rates) <= bandwidth * (1 + EXACT)
    for h, cap in enumerate(caps):
        assert np.sum(solution.rates[np.broadcast_to(host, (N,)) == h]) <= cap * (1 + EXACT)
    return solution


D = np.array([0.02, 0.1, 0.5, 1.0, 2.0, 6.0, 20.0, 90.0])
W = np.array([1.0, 0.3, 2.0, 0.7, 5.0, 1.0, 0.2, 3.0])


@matrix(bandwidth=[0.3, 6.0, 400.0], name=MODELS, every=5)
def test_optimum_is_that_of_brute_force(name: str, bandwidth: float) -> None:
    check(MODELS[name], D, W, bandwidth)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MODELS)
def test_bounds_hosts_and_sources_without_importance(name: str) -> None:
    w = np.where(np.arange(N) == 2, 0.0, W)
    host = np.array([0, 0, 1, 1, 1, -1, -1, -1])
    solution = check(
        MODELS[name],
        D,
        w,
        9.0,
        lower=0.2 * (np.arange(N) % 3),
        upper=2.0 + np.arange(N),
        host=host,
        limits=[0.6, 1.4],
    )
    assert max(solution.host_prices.values()) > 0.0  # a limit is worth something


@matrix(seed=range(3), name=MODELS, every=5)
def test_ill_scaled_data(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, w = 10.0 ** rng.uniform(-6.0, 6.0, N), 10.0 ** rng.uniform(-6.0, 6.0, N)
    check(MODELS[name], d, w, float(10.0 ** rng.uniform(-4.0, 4.0)))


@pytest.mark.parametrize("bandwidth", [0.1, 4.0, 60.0])
def test_age_with_sources_that_announce_changes(bandwidth: float) -> None:
    check(MODELS["age"], D, W, bandwidth, signalled=np.arange(N) % 2 == 0)
    check(MODELS["age"], D, W, bandwidth, signalled=True)


def test_following_every_signal_leaves_nothing_to_improve() -> None:
    solution = check(MODELS["age"], D, W, 500.0, signalled=True)
    assert np.array_equal(solution.rates, D)
    assert solution.value == 0.0
    assert solution.price == 0.0


@pytest.mark.exhaustive
def test_bandwidth_that_min_rates_use_up() -> None:
    for model in MODELS.values():
        lower = 0.1 + np.arange(N) / N
        solution = check(model, D, W, float(np.sum(lower)), lower=lower)
        assert np.array_equal(solution.rates, lower)


def test_at_the_price_of_a_cap_one_source_takes_what_is_left() -> None:
    """Ten like sources: below r0 = 1/t0 each is worth sl per refresh, so all but one are at 0 or r0."""
    problem = fo.Problem(SYNC(PowerCost(1.0, 0.5, 2.0)), fo.Sources(np.ones(10)), bandwidth=1.1)
    solution = fo.solve(problem, tolerance=SCALAR)
    t0 = 4.0
    slope = 2.0 * t0 * 0.5 / 1.5
    assert solution.price == pytest.approx(slope, rel=EXACT)
    assert solution.value == pytest.approx(10 * 2.0 - slope * 1.1, rel=EXACT)
    assert np.sum(solution.rates) == pytest.approx(1.1, rel=EXACT)


STEPS = PiecewiseLinearCost([0.0, 1.0, 3.0], [0.0, -2.0, -12.0])


def random_pieces(rng: np.random.Generator, pieces: int) -> PiecewiseLinearCost:
    slopes = np.sort(10.0 ** rng.uniform(-2.0, 2.0, (N, pieces)), axis=1)
    intercepts = -np.sort(10.0 ** rng.uniform(-2.0, 2.0, (N, pieces)), axis=1)
    intercepts[:, 0] = 0.0
    return PiecewiseLinearCost(slopes, intercepts)


@pytest.mark.parametrize("seed", range(8))
def test_piecewise_linear_values_are_those_of_the_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cost = STEPS if seed == 0 else random_pieces(rng, 1 + seed % 5)
    host = np.array([0, 0, 1, 1, -1, -1, -1, -1])
    bandwidth = float(10.0 ** rng.uniform(-1.0, 1.5))
    lower = np.where(rng.random(N) < 0.3, 0.02 * bandwidth, 0.0)
    sources = fo.Sources(D, W, host=host, min_rate=lower, max_rate=0.3 * bandwidth)
    problem = fo.Problem(SYNC(cost), sources, bandwidth, {0: 0.1 * bandwidth, 1: 0.5 * bandwidth})
    solution = fo.solve(problem, tolerance=SCALAR)
    assert present(solution.certificate).relative_gap <= SCALAR
    exact = float(problem.to_cvxpy().solve(solver="HIGHS"))
    assert abs(solution.value - exact) <= SCALAR * (abs(exact) + solution.price * bandwidth)


@matrix(kinks=[pytest.param(1, marks=pytest.mark.exhaustive), 3], share=[1e-6, 0.3, 0.99, 1.5], every=2)
def test_compiled_kinks_are_those_of_the_greedy_knapsack(kinks: int, share: float) -> None:
    """Stretches between kinks, steepest first, are what a linear program buys; weights differ by 1e12."""
    rng = np.random.default_rng(kinks)
    n = 400
    gains = -np.sort(-(10.0 ** rng.uniform(-3.0, 3.0, (n, kinks))), axis=1)
    rates = np.sort(10.0 ** rng.uniform(-6.0, 4.0, (n, kinks)), axis=1)
    gains[: n // 4], rates[: n // 4] = gains[0], rates[0]
    weight = np.where(np.arange(n) < n // 8, 1.0, 10.0 ** rng.uniform(-6.0, 6.0, n))
    stretch = np.diff(rates, axis=1, prepend=0.0)
    level = np.cumsum((gains * stretch)[:, ::-1], axis=1)[:, ::-1]
    # The line of stretch j meets the next one at ρ_j: its height there is what later stretches gain.
    heights = np.where(np.arange(kinks) < kinks - 1, np.roll(level, -1, axis=1), 0.0) + gains * rates
    cost = PiecewiseLinearCost(
        np.concatenate([heights, np.zeros((n, 1))], axis=1),
        np.concatenate([-gains, np.zeros((n, 1))], axis=1),
    )
    bandwidth = share * float(np.sum(rates[:, -1]))
    problem = fo.Problem(SYNC(cost), fo.Sources(np.ones(n), weight), bandwidth)
    with backend.loading():
        assert getattr(problem.numerics, "unit_demand", None) is last_kink
        solution = fo.solve(problem, tolerance=SCALAR)
    worth, size = (weight[:, None] * gains).ravel(), stretch.ravel()
    order = np.argsort(-worth, kind="stable")
    before = np.cumsum(size[order]) - size[order]
    bought = np.clip(bandwidth - before, 0.0, size[order])
    least = float(np.sum(worth[order] * (size[order] - bought)))
    scale = float(np.sum(worth * size))
    assert abs(solution.value - least) <= EXACT * scale
    assert np.sum(solution.rates) <= bandwidth * (1.0 + EXACT)
    assert present(solution.certificate).relative_gap <= SCALAR


def test_flat_tails_leave_bandwidth_unused() -> None:
    """The first 2 days are free: a refresh every 2 days costs nothing, more is worth nothing."""
    solution = fo.solve(fo.Problem(SYNC(STEPS), fo.Sources(np.ones(4)), bandwidth=100.0))
    assert solution.value == 0.0
    assert solution.price == 0.0
    assert np.all(solution.rates >= 0.5)


def test_ties_of_equal_pieces_are_shared_so_that_the_budget_is_used() -> None:
    """Between the kinks 1/5 and 1/2 every source gains 2 per refresh: any split is optimal."""
    solution = fo.solve(fo.Problem(SYNC(STEPS), fo.Sources(np.ones(4)), bandwidth=1.4), tolerance=SCALAR)
    assert solution.value == pytest.approx(4 * 1.0 - 2.0 * 1.4, rel=EXACT)
    assert np.sum(solution.rates) == pytest.approx(1.4, rel=EXACT)


def refused(make: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def solve_with(objective: fo.Objective, **columns: Any) -> Callable[[], object]:  # noqa: ANN401
    return lambda: fo.Problem(objective, fo.Sources(**{"change_rate": [1.0, 2.0], **columns}), bandwidth=1.0)


def test_power_costs_that_are_refused() -> None:
    for key in ("scale", "exponent", "cap"):
        given: dict[str, Any] = {"scale": 1.0, "exponent": 1.0, "cap": 1.0, key: [1.0, -2.0]}
        refused(
            functools.partial(PowerCost, **given),
            fo.SourceDataError,
            rf"{key} must be > 0, got source 1: -2",
        )
    refused(lambda: PowerCost(np.inf, 1.0), fo.SourceDataError, "scale must be > 0, got inf")
    refused(lambda: PowerCost(1.0, -1.0), fo.SourceDataError, "exponent must be > 0, got -1")
    refused(lambda: PowerCost([[1.0]], 1.0), fo.SourceDataError, r"scale has shape \(1, 1\)")
    refused(
        solve_with(SYNC(PowerCost([1.0, 1.0, 1.0], 1.0))), fo.SourceDataError, r"shape \(3,\) but there are 2"
    )
    refused(lambda: PowerCost("much", 1.0), fo.SourceDataError, "PowerCost scale must be numbers")


def test_piecewise_linear_costs_that_are_refused() -> None:
    def pieces(slopes: Any, intercepts: Any) -> Callable[[], object]:  # noqa: ANN401
        return functools.partial(PiecewiseLinearCost, slopes, intercepts)

    refused(pieces([1.0], [0.0, 0.0]), fo.SourceDataError, r"slopes have shape \(1,\), intercepts \(2,\)")
    refused(pieces([], []), fo.SourceDataError, r"Give\s+both the shape \(pieces,\) or \(n, pieces\)")
    three = SYNC(PiecewiseLinearCost([[1.0]] * 3, [[0.0]] * 3))
    refused(solve_with(three), fo.SourceDataError, "3 rows but there are 2 sources")
    refused(pieces([-1.0], [0.0]), fo.SourceDataError, "slopes must be finite and >= 0")
    refused(pieces([1.0], [np.nan]), fo.SourceDataError, "must be finite")
    refused(pieces([1.0], [-1.0]), fo.SourceDataError, "largest intercept must be 0")
    refused(pieces(["a"], [0.0]), fo.SourceDataError, "must be numbers")
    only = "piecewise linear cost is defined for periodic refreshes only"
    cost = PiecewiseLinearCost([1.0], [0.0])
    refused(lambda: SYNC(cost, fo.Refresh.POISSON), fo.ObjectiveError, only)
    refused(
        lambda: cost.declare(None, fo.Sources([1.0]), fo.Refresh.POISSON),
        fo.ObjectiveError,
        only,
    )


def test_disciplines_and_signals_that_are_refused() -> None:
    for cost in (PowerCost(1.0, 0.5), BinaryCost(), STEPS):
        refused(
            functools.partial(SYNC, cost, fo.Refresh.ON_SIGNAL), fo.ObjectiveError, "is a property of sources"
        )
    refused(
        solve_with(SYNC(PowerCost(1.0, 0.5)), signalled=[True, False]),
        fo.ObjectiveError,
        "source 0 is signalled",
    )


def test_declarations_print_on_one_line_without_arrays() -> None:
    assert repr(SYNC(PowerCost(1.0, 0.5))) == (
        "SynchronizationCost(cost=PowerCost(scale=1, exponent=0.5), refresh=Refresh.PERIODIC)"
    )
    assert repr(PowerCost([1.0, 2.0], 0.5, cap=3.0)) == "PowerCost(scale=<2 values>, exponent=0.5, cap=3)"
    assert repr(STEPS) == "PiecewiseLinearCost(3 pieces)"
    assert repr(AGE) == "Age(refresh=Refresh.POISSON, nodes=2)"
