"""Windows of stale-while-revalidate, and time averages: against events, quadrature and cones."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import exp1

import freshopt as fo
from freshopt.errors import ObjectiveError, SolverRefusedError, SourceDataError
from freshopt.problems import BinaryCost, PiecewiseLinearCost, PowerCost, SynchronizationCost
from freshopt.solvers import Conic, WaterFilling
from tests.contracts.test_contract import check_against_truth
from tests.ground_truth.named import (
    AGE_ON_REQUEST,
    BINARY,
    BINARY_ON_REQUEST,
    DELAY_ON_REQUEST,
    HARMONIC_ON_REQUEST,
    ON_REQUEST,
    present,
)
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import exhaustive
from tests.ground_truth.strategies import sample
from tests.ground_truth.tolerances import SCALAR
from tests.modelling.test_request_cell import objectives

EXACT: dict[str, Any] = {"epsabs": 0.0, "epsrel": 1e-13, "limit": 400}
# Change rate, request rate, lifetime, window: many changes and few, windows of few requests and of all.
CASES = [
    (1.0, 0.5, 3.0, 0.8),
    (1.0, 1.0, 0.2, 40.0),
    (0.05, 2.0, 10.0, 1e-3),
    (5.0, 0.7, 1.0, math.inf),
    (200.0, 0.01, 0.5, 3.0),
    (200.0, 0.01, 0.5, math.inf),
    (1e-3, 30.0, 0.0, 0.2),
]


def age(u: float) -> float:
    return (
        math.fsum((-1) ** k * u**k / math.factorial(k) for k in range(2, 8))
        if u < 0.02
        else u + math.expm1(-u)
    )


def ein(u: float) -> float:
    few = quad(lambda t: -math.expm1(-t) / t, 0.0, min(u, 1.0), **EXACT)[0]
    return few if u < 1.0 else float(exp1(u)) + math.log(u) + float(np.euler_gamma)


CURVES: list[tuple[fo.Objective, Callable[[float, float], float]]] = [
    (BINARY_ON_REQUEST, lambda d, s: -math.expm1(-d * s)),
    (DELAY_ON_REQUEST, lambda d, s: d * s),
    (AGE_ON_REQUEST, lambda d, s: age(d * s) / d),
    (HARMONIC_ON_REQUEST, lambda d, s: ein(d * s)),
    (SynchronizationCost(PowerCost(1.0, 0.5), ON_REQUEST), lambda _, s: math.sqrt(s)),
    (SynchronizationCost(PowerCost(1.0, 2.0), ON_REQUEST), lambda _, s: s * s),
    (SynchronizationCost(PowerCost(1.0, 0.5, cap=1.5), ON_REQUEST), lambda _, s: min(math.sqrt(s), 1.5)),
]


def integral(f: Callable[[float], float], end: float, kinks: list[float]) -> float:
    """Integrate piece by piece, finer towards 0."""
    cuts = {end * 10.0**-k for k in range(8)} | {kink for kink in kinks if 0.0 < kink < end}
    edges = [0.0, *sorted(cuts)]
    return math.fsum(quad(f, a, b, **EXACT)[0] for a, b in itertools.pairwise(edges))


def numerics_of(objective: fo.Objective, case: tuple[float, float, float, float]) -> fo.Problem:
    d, asked, _, window = case
    sources = fo.Sources(d, 1.0, request_rate=asked, stale_while_revalidate=window)
    return fo.Problem(objective, sources, bandwidth=1.0)


@pytest.mark.parametrize(
    ("which", "case"),
    [
        pytest.param(which, CASES[k], marks=[] if which in (0, 1, 4, 6) and k in (0, 3, 6) else exhaustive)
        for which in range(len(CURVES))
        for k in range(len(CASES))
    ],
)
def test_cost_and_marginal_are_those_of_the_integrals(
    which: int, case: tuple[float, float, float, float]
) -> None:
    objective, curve = CURVES[which]
    d, asked, life, window = case
    numerics = present(numerics_of(objective, case).numerics)
    end, kinks = min(window, 60.0 / asked), [1.0 / d, 1.0 / asked, 2.25 - life]
    stored = integral(lambda s: curve(d, s), life, [1.0 / d, 2.25]) if life else 0.0
    late = integral(lambda x: math.exp(-asked * x) * curve(d, life + x), end, kinks)
    rate, left = 1.0 / (life + 1.0 / asked), math.exp(-asked * end)
    slope = left * curve(d, life + end) + asked * late
    cost = float(numerics.cost(np.array([rate]))[0])
    assert cost == pytest.approx(rate * (stored + late), rel=1e-12)
    marginal = float(numerics.marginal(np.array([rate]))[0])
    whole = slope * (life + 1.0 / asked)
    assert marginal == pytest.approx(whole - stored - late, rel=1e-12, abs=1e-12 * whole)
    if marginal > 1e-9 * whole and "cap" not in repr(objective):  # beyond a cap the marginal is level
        back = float(numerics.inverse_marginal(np.array([marginal]))[0])
        assert float(numerics.marginal(np.array([back]))[0]) == pytest.approx(marginal, rel=1e-9)
    gain = numerics.gain(np.array([rate]))
    if gain is not None:
        assert gain[0] == pytest.approx(1.0 - rate * (stored + late), rel=1e-12, abs=1e-15)


def test_fresh_share_is_the_closed_form() -> None:
    """ρ[(1−e^{−ΔT})/Δ + e^{−ΔT}(1−e^{−(ζ+Δ)σ})/(ζ+Δ) + e^{−ζσ}/ζ], of which σ = ∞ is the time average."""
    for d, asked, life, window in CASES:
        rate = 1.0 / (life + 1.0 / asked)
        sources = fo.Sources(d, 1.0, request_rate=asked, stale_while_revalidate=window)
        solution = fo.solve(fo.Problem(BINARY_ON_REQUEST, sources, bandwidth=rate))
        stored = -math.expm1(-d * life) / d
        left = math.exp(-d * life)
        shown = left * -math.expm1(-(asked + d) * window) / (asked + d) + math.exp(-asked * window) / asked
        assert solution.value == pytest.approx(rate * (stored + shown), rel=1e-11)
        time_average = rate * (stored + left / (asked + d))
        assert solution.time_average == pytest.approx(time_average, rel=1e-11)


def test_requests_and_time_are_told_apart() -> None:
    sources = fo.Sources(1.0, 1.0, request_rate=0.5)
    solution = fo.solve(fo.Problem(BINARY_ON_REQUEST, sources, bandwidth=0.2))
    assert solution.lifetimes[0] == pytest.approx(3.0)
    assert (round(solution.value, 3), round(solution.time_average, 3)) == (0.590, 0.197)
    plain = fo.solve(fo.Problem(BINARY, sources, bandwidth=0.2))
    with pytest.raises(ObjectiveError, match=r"refreshes no copies on request: its value is the average"):
        _ = plain.time_average


def test_events_agree() -> None:
    """Cycles from fetch to fetch, request by request: what requests see, and what a clock sees."""
    d, asked, life, window, cycles = 0.8, 0.6, 1.5, 1.2, 40_000
    rng = np.random.default_rng(3)
    first = rng.exponential(1.0 / d, cycles)  # the first change after each fetch
    expired = rng.exponential(1.0 / asked, cycles)  # from then until somebody asks
    within = rng.poisson(asked * life, cycles)
    late = np.array([np.sum(rng.uniform(0.0, life, k) > at) for k, at in zip(within, first, strict=True)])
    served = expired <= window
    stale = late + (served & (life + expired > first))
    requests = within + 1.0
    seen = stale.sum() / requests.sum()
    error = np.std(stale - seen * requests) * math.sqrt(cycles) / requests.sum()
    sources = fo.Sources(d, 1.0, request_rate=asked, stale_while_revalidate=window)
    rate = 1.0 / (life + 1.0 / asked)
    solution = fo.solve(fo.Problem(BINARY_ON_REQUEST, sources, bandwidth=rate))
    assert abs(1.0 - solution.value - seen) < 3.0 * error
    span, fresh = life + expired, np.minimum(first, life + expired)
    average = fresh.sum() / span.sum()
    error = np.std(fresh - average * span) * math.sqrt(cycles) / span.sum()
    assert abs(solution.time_average - average) < 3.0 * error


def windowed(objective: fo.Objective, budget: float) -> fo.Problem:
    rng = np.random.default_rng(1)
    d, asked = rng.lognormal(0.0, 2.0, 12), rng.lognormal(0.0, 1.5, 12)
    window = np.where(rng.random(12) < 0.3, 0.0, rng.lognormal(0.0, 1.0, 12))
    window[0] = np.inf
    sources = fo.Sources(d, request_rate=asked, stale_while_revalidate=window)
    return fo.Problem(objective, sources, budget * float(asked.sum()))


@pytest.mark.parametrize(
    ("which", "budget"),
    [
        pytest.param(which, budget, marks=[] if which in (0, 1, 4) and budget == 0.3 else exhaustive)
        for which in range(len(CURVES))
        for budget in (1e-3, 0.3, 0.9, 2.0)
    ],
)
def test_certified(which: int, budget: float) -> None:
    solution = fo.solve(windowed(CURVES[which][0], budget))
    assert present(solution.certificate).relative_gap <= 1e-9
    assert solution.price > 0.0 or budget > 1.0


@pytest.mark.exhaustive
def test_ill_scaled_windows_are_certified() -> None:
    rng = np.random.default_rng(5)
    n = 200
    d, w = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    asked, window = 10.0 ** rng.uniform(-4.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    sources = fo.Sources(d, w, request_rate=asked, stale_while_revalidate=window)
    for objective, _ in CURVES:
        for budget in (1e-3, 0.5):
            proof = present(fo.solve(fo.Problem(objective, sources, budget * float(asked.sum()))).certificate)
            assert proof.relative_gap <= 1e-9, (objective, budget)


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", [CURVES[0][0], CURVES[1][0]])
def test_cones_agree(objective: fo.Objective) -> None:
    problem = windowed(objective, 0.3)
    assert fo.solve(problem, Conic()).value == pytest.approx(fo.solve(problem).value, rel=2e-6)


# Curve, constraints, ill scales, bandwidth over all requests, window.
OPTIMA = [
    pytest.param(*cell, marks=[] if cell == ("count", "all", True, 0.5, 0.3) else exhaustive)
    for cell in itertools.product(
        ("binary", "count"),
        ("none", "bounds", "all"),
        (False, True),
        (1e-3, 0.5, 20.0),
        (1e-6, 0.3, math.inf),
    )
]


@pytest.mark.parametrize(("curve", "family", "ill", "budget", "window"), OPTIMA)
def test_optima_are_the_truth(curve: str, family: str, ill: bool, budget: float, window: float) -> None:
    for n in (1, 2, 8):
        problem = sample(5, curve, "on request", family, n, ill=ill, budget=budget)
        check_against_truth(replace(problem, window=np.full(n, window)), WaterFilling(), SCALAR)


def test_windows_of_nothing_are_none() -> None:
    sources = fo.Sources([1.0, 2.0], request_rate=1.0, stale_while_revalidate=0.0)
    assert sources.stale_while_revalidate is None
    given = fo.Sources([1.0, 2.0], request_rate=1.0, stale_while_revalidate=[0.0, np.inf])
    back = present(fo.Sources.from_frame(given.to_frame()).stale_while_revalidate)
    assert back.tolist() == [0.0, np.inf]
    # A window so short that nobody asks in it changes nothing.
    short = fo.Sources([1.0, 2.0], request_rate=1.0, stale_while_revalidate=1e-90)
    for objective in objectives()[:3]:
        plain, other = (fo.solve(fo.Problem(objective, some, 0.5)) for some in (sources, short))
        assert other.value == pytest.approx(plain.value, rel=1e-12), objective


def test_refusals() -> None:
    refused(r"stale_while_revalidate needs request rates", fo.Sources, 1.0, stale_while_revalidate=2.0)
    with pytest.raises(SourceDataError, match=r"stale_while_revalidate out of range for source 0: -1"):
        fo.Sources(1.0, request_rate=1.0, stale_while_revalidate=-1.0)
    sources = fo.Sources([1.0, 2.0], request_rate=1.0, stale_while_revalidate=1.0)
    deadline = SynchronizationCost(PiecewiseLinearCost([0.0, 1.0], [0.0, -2.0]), ON_REQUEST)
    with pytest.raises(ObjectiveError, match=r"no cell for stale-while-revalidate windows"):
        fo.Problem(deadline, sources, bandwidth=1.0)
    for objective in (AGE_ON_REQUEST, SynchronizationCost(BinaryCost(), ON_REQUEST)):
        problem = fo.Problem(objective, sources, bandwidth=1.0)
        refused(r"stale-while-revalidate has a cone form for binary", problem.to_cvxpy, error=ObjectiveError)
        with pytest.raises(SolverRefusedError, match=r"knows no stale-while-revalidate windows"):
            fo.solve(problem, Conic())
