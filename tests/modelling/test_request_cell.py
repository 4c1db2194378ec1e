"""Refreshes on request, and windows: against events, quadrature, periodic cells and cones; certificates."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import exp1

import freshopt as fo
from freshopt.errors import ObjectiveError, SolverRefusedError, SourceDataError
from freshopt.problems import BinaryCost, ExpectedPenalty, PiecewiseLinearCost, PowerCost, SynchronizationCost
from freshopt.solvers import AutomataTree, ClosedForm, Conic, SeparableNewton, WaterFilling
from tests.contracts.test_contract import check_against_truth
from tests.ground_truth import named
from tests.ground_truth.named import present
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import exhaustive
from tests.ground_truth.strategies import sample
from tests.ground_truth.tolerances import SCALAR
from tests.modelling.test_failing_fetches import both, names

# Change rate, request rate, lifetime: more changes than requests, as many, fewer; lifetimes short and long.
TRIPLES = [(1.0, 0.5, 3.0), (1.0, 1.0, 0.2), (0.05, 2.0, 10.0), (5.0, 0.7, 1.0)]


def objectives(refresh: fo.Refresh = named.ON_REQUEST) -> list[fo.Objective]:
    late = PiecewiseLinearCost(slopes=[0.0, 1.0], intercepts=[0.0, -2.0])
    return [*both(refresh), SynchronizationCost(late, refresh)]


def cost_of(objective: fo.Objective, change_rate: float, request_rate: float, rate: float) -> float:
    sources = fo.Sources(change_rate, 1.0, request_rate=request_rate)
    numerics = present(fo.Problem(objective, sources, bandwidth=1.0).numerics)
    return float(numerics.cost(np.array([rate]))[0])


def requests_see(
    change_rate: float, request_rate: float, lifetime: float, seed: int
) -> dict[str, tuple[float, float]]:
    """Simulate a cache event by event; return means and standard errors of what requests see.

    Requests after a refresh are independent of those before it: a cycle is one observation, and the mean
    is the ratio of sums.
    """
    rng = np.random.default_rng(seed)
    cycles = 10_000
    sums = {key: np.zeros(cycles) for key in ("requests", "stale", "missed", "harmonic", "age")}
    for k in range(cycles):
        changes = np.cumsum(
            rng.exponential(1.0 / change_rate, rng.poisson(change_rate * lifetime * 1.5) + 60)
        )
        at = 0.0
        sums["requests"][k] = 1.0  # the one that fetched, which sees the copy fresh
        while True:
            at += rng.exponential(1.0 / request_rate)
            if at > lifetime:
                break
            missed = int(np.searchsorted(changes, at))
            sums["requests"][k] += 1.0
            sums["stale"][k] += missed > 0
            sums["missed"][k] += missed
            sums["harmonic"][k] += sum(1.0 / m for m in range(1, missed + 1))
            sums["age"][k] += at - changes[0] if missed else 0.0
    total = sums["requests"].sum()
    found = {}
    for key in ("stale", "missed", "harmonic", "age"):
        mean = sums[key].sum() / total
        error = float(np.std(sums[key] - mean * sums["requests"]) * math.sqrt(cycles) / total)
        found[key] = (float(mean), error)
    return found


@pytest.mark.parametrize("triple", TRIPLES[:2])
def test_requests_see_what_the_formulas_say(triple: tuple[float, float, float]) -> None:
    d, asked, life = triple
    seen = requests_see(d, asked, life, seed=7)
    rate = 1.0 / (life + 1.0 / asked)
    for key, objective in (
        ("stale", named.BINARY_ON_REQUEST),
        ("missed", named.DELAY_ON_REQUEST),
        ("harmonic", named.HARMONIC_ON_REQUEST),
        ("age", named.AGE_ON_REQUEST),
    ):
        mean, error = seen[key]
        assert abs(cost_of(objective, d, asked, rate) - mean) < 4.0 * error, key


@pytest.mark.parametrize("triple", TRIPLES)
def test_cost_is_the_integral_of_the_cost_of_age(triple: tuple[float, float, float]) -> None:
    d, asked, life = triple
    rate = 1.0 / (life + 1.0 / asked)
    for objective, curve in (
        (named.BINARY_ON_REQUEST, lambda s: 1.0 - math.exp(-d * s)),
        (named.DELAY_ON_REQUEST, lambda s: d * s),
        (named.AGE_ON_REQUEST, lambda s: s - (1.0 - math.exp(-d * s)) / d),
        (SynchronizationCost(PowerCost(1.0, 2.0), named.ON_REQUEST), lambda s: s * s),
        (SynchronizationCost(PowerCost(1.0, 1.0, cap=0.5), named.ON_REQUEST), lambda s: min(s, 0.5)),
    ):
        integral, _ = quad(curve, 0.0, life, points=[min(0.5, life)], epsabs=0.0, epsrel=1e-13)
        assert cost_of(objective, d, asked, rate) == pytest.approx(rate * integral, rel=1e-12), objective


def test_closed_forms() -> None:
    """Fresh share ρ/ζ + (ρ/Δ)(1 − e^{−ΔT}), .590 at ζ = .5, Δ = 1, T = 3; delay Δ(ζ − ρ)²/(2ζ²ρ)."""
    for d, asked, life in TRIPLES:
        rate = 1.0 / (life + 1.0 / asked)
        fresh = rate / asked + rate / d * -math.expm1(-d * life)
        assert 1.0 - cost_of(named.BINARY_ON_REQUEST, d, asked, rate) == pytest.approx(fresh, rel=1e-12)
        delay = d * (asked - rate) ** 2 / (2.0 * asked**2 * rate)
        assert cost_of(named.DELAY_ON_REQUEST, d, asked, rate) == pytest.approx(delay, rel=1e-12)
    assert 1.0 - cost_of(named.BINARY_ON_REQUEST, 1.0, 0.5, 0.2) == pytest.approx(0.590, abs=5e-4)


@pytest.mark.parametrize("objective", objectives(), ids=names)
def test_marginal_is_the_slope_and_its_inverse_undoes_it(objective: fo.Objective) -> None:
    rng = np.random.default_rng(3)
    n = 400
    d, asked = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-5.0, 5.0, n)
    share = 10.0 ** rng.uniform(-4.0, -0.01, n)
    numerics = present(fo.Problem(objective, fo.Sources(d, 1.0, request_rate=asked), bandwidth=1.0).numerics)
    rate = share * asked
    price = numerics.marginal(rate)
    step = 1e-6
    below, above = numerics.cost(rate * (1.0 - step)), numerics.cost(rate * (1.0 + step))
    # A convex cost: the marginal value lies between the slopes of the two chords.
    here, slack = numerics.cost(rate), 1e-9 * np.maximum(below, 1e-300) / (rate * step) * 1e-6
    assert np.all(price <= (below - here) / (step * rate) * (1.0 + 1e-5) + slack)
    assert np.all(price >= (here - above) / (step * rate) * (1.0 - 1e-5) - slack)
    some = price > 1e-250
    back = numerics.take(np.flatnonzero(some)).inverse_marginal(price[some])
    again = numerics.take(np.flatnonzero(some)).marginal(back)
    # Where the marginal jumps or is level, other rates answer the same price.
    strict = "Piecewise" not in repr(objective) and "cap" not in repr(objective)
    if strict:
        assert np.allclose(again, price[some], rtol=1e-9)
    assert np.all((back >= 0.0) & (back <= asked[some]))


@pytest.mark.parametrize("objective", objectives(), ids=names)
def test_many_requests_make_it_periodic(objective: fo.Objective) -> None:
    plain = objectives(named.PERIODIC)[[repr(each) for each in objectives()].index(repr(objective))]
    d, rates = np.array([0.1, 1.0, 30.0]), np.array([0.5, 0.05, 2.0])
    asked = fo.Problem(objective, fo.Sources(d, 1.0, request_rate=1e14), bandwidth=9.0).numerics
    periodic = present(fo.Problem(plain, fo.Sources(d, 1.0), bandwidth=9.0).numerics)
    assert np.allclose(present(asked).cost(rates), periodic.cost(rates), rtol=1e-11)


def small_problem(objective: fo.Objective, budget: float) -> fo.Problem:
    rng = np.random.default_rng(11)
    d, asked = rng.lognormal(0.0, 2.0, 12), rng.lognormal(0.0, 1.5, 12)
    return fo.Problem(objective, fo.Sources(d, request_rate=asked), bandwidth=budget * float(asked.sum()))


@pytest.mark.parametrize("budget", [1e-3, 0.3, 0.9])
@pytest.mark.parametrize("objective", objectives(), ids=names)
@pytest.mark.sampled(4)
def test_certified(objective: fo.Objective, budget: float) -> None:
    problem = small_problem(objective, budget)
    solution = fo.solve(problem)
    assert present(solution.certificate).gap <= 1e-9 * max(
        abs(solution.value), 1e-3 * problem.bandwidth / budget
    )
    assert np.all(solution.rates <= problem.upper)


@pytest.mark.exhaustive
@pytest.mark.parametrize("budget", [1e-3, 0.3, 0.9])
@pytest.mark.parametrize("objective", objectives(), ids=names)
def test_cones_agree(objective: fo.Objective, budget: float) -> None:
    """The cone solver's answer is certified to 1e-6, and has the same value."""
    problem = small_problem(objective, budget)
    conic = fo.solve(problem, Conic())
    assert conic.value == pytest.approx(fo.solve(problem).value, rel=2e-6, abs=1e-9)


def test_more_bandwidth_than_requests_leaves_nothing_stale() -> None:
    sources = fo.Sources([1.0, 2.0], request_rate=[0.5, 4.0])
    solution = fo.solve(fo.Problem(named.BINARY_ON_REQUEST, sources, bandwidth=9.0))
    assert solution.value == pytest.approx(4.5)  # Σ importance, which is the request rate
    assert solution.price == 0.0


def test_lifetimes_and_the_table() -> None:
    sources = fo.Sources([1.0, 1.0, 1e6], [1.0, 1.0, 1e-9], request_rate=[0.5, 4.0, 1.0])
    solution = fo.solve(fo.Problem(named.BINARY_ON_REQUEST, sources, bandwidth=1.0))
    assert solution.rates[2] == 0.0
    assert solution.lifetimes[2] == math.inf
    assert np.allclose(1.0 / (solution.lifetimes[:2] + 1.0 / np.array([0.5, 4.0])), solution.rates[:2])
    assert solution.to_frame()["lifetime"].to_list()[2] is None
    refused(r"no refresh times.*solution.lifetimes", fo.schedule, solution, 7.0)
    periodic = fo.solve(fo.Problem(named.BINARY_PERIODIC, sources, bandwidth=1.0))
    with pytest.raises(fo.ObjectiveError, match=r"refreshes no copies on request"):
        _ = periodic.lifetimes


def test_formulas_of_rates_and_learners_that_poll_refuse_requests() -> None:
    """Square roots are not optimal here (a fifth was lost), and polls do not see what requests see."""
    problem = fo.Problem(named.DELAY_ON_REQUEST, fo.Sources([1.0, 4.0], 1.0, request_rate=1.0), 1.0)
    for solver, words in ((ClosedForm(), "wait for no request"), (AutomataTree(), "refreshed on request")):
        solution = fo.solve(problem, solver, throw=False)
        assert solution.status is fo.Status.REFUSED
        assert words in solution.note


def test_no_declaration_of_windows_is_a_refusal() -> None:
    sources = fo.Sources([1.0, 4.0], request_rate=1.0, stale_while_revalidate=1.0)
    cost = SynchronizationCost(PowerCost(1.0, 1.0), named.ON_REQUEST)
    solution = fo.solve(fo.Problem(cost, sources, 1.0), SeparableNewton(), throw=False)
    assert solution.status is fo.Status.REFUSED
    assert "stale-while-revalidate has a cone form for" in solution.note


def test_importance_is_the_request_rate_unless_given() -> None:
    assert fo.Sources(1.0, request_rate=[2.0, 3.0]).importance.tolist() == [2.0, 3.0]
    assert fo.Sources(1.0, 7.0, request_rate=[2.0, 3.0]).importance.tolist() == [7.0, 7.0]
    assert fo.Sources([1.0, 2.0]).importance.tolist() == [1.0, 1.0]
    table = fo.Sources([1.0, 2.0], request_rate=[2.0, 3.0]).to_frame()
    assert fo.Sources.from_frame(table).request_rate.tolist() == [2.0, 3.0]  # type: ignore[union-attr]


def test_refusals() -> None:
    asked = fo.Sources([1.0, 2.0], request_rate=[0.5, 4.0])
    fresh = named.BINARY_ON_REQUEST
    refused(r"request_rate out of range for source 0: -1", fo.Sources, [1.0, 2.0], request_rate=[-1.0, 1.0])
    with pytest.raises(fo.SourceDataError, match=r"change_rate has length 2 but request_rate has 3"):
        fo.Sources([1.0, 2.0], request_rate=[1.0, 1.0, 1.0])
    with pytest.raises(fo.ObjectiveError, match=r"needs request rates"):
        fo.Problem(fresh, fo.Sources([1.0, 2.0]), bandwidth=1.0)
    with pytest.raises(fo.ObjectiveError, match=r"ExpectedPenalty has no cell for refreshes on request"):
        ExpectedPenalty(np.sqrt, named.ON_REQUEST)
    announced = fo.Sources([1.0, 2.0], request_rate=1.0, signalled=[True, False])
    with pytest.raises(fo.ObjectiveError, match=r"waits for requests, not for signals"):
        fo.Problem(fresh, announced, bandwidth=1.0)
    needy = fo.Sources([1.0, 2.0], request_rate=[0.5, 4.0], min_rate=1.0)
    with pytest.raises(
        fo.InfeasibleProblemError, match=r"min_rate exceeds the request rate of source 0: 1 > 0.5"
    ):
        fo.Problem(fresh, needy, bandwidth=9.0)
    assert fo.Problem(fresh, asked, bandwidth=9.0).upper.tolist() == [0.5, 4.0]


EXACT: dict[str, Any] = {"epsabs": 0.0, "epsrel": 1e-13, "limit": 400}
# Change rate, request rate, lifetime, window: many changes and few, windows of few requests and of all.
WINDOWS = [
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
    (named.BINARY_ON_REQUEST, lambda d, s: -math.expm1(-d * s)),
    (named.DELAY_ON_REQUEST, lambda d, s: d * s),
    (named.AGE_ON_REQUEST, lambda d, s: age(d * s) / d),
    (named.HARMONIC_ON_REQUEST, lambda d, s: ein(d * s)),
    (SynchronizationCost(PowerCost(1.0, 0.5), named.ON_REQUEST), lambda _, s: math.sqrt(s)),
    (SynchronizationCost(PowerCost(1.0, 2.0), named.ON_REQUEST), lambda _, s: s * s),
    (
        SynchronizationCost(PowerCost(1.0, 0.5, cap=1.5), named.ON_REQUEST),
        lambda _, s: min(math.sqrt(s), 1.5),
    ),
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
        pytest.param(which, WINDOWS[k], marks=[] if which in (0, 1, 4, 6) and k in (0, 3, 6) else exhaustive)
        for which in range(len(CURVES))
        for k in range(len(WINDOWS))
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


@pytest.mark.parametrize("exponent", [9.5, 12.0, 30.0])
@pytest.mark.parametrize("level_from", [math.inf, 70.0, 4.0])
def test_steep_powers_are_counted_to_the_end_of_the_window(exponent: float, level_from: float) -> None:
    """∫ e^{−ζx}(T + x)^e dx is a difference of incomplete gamma functions, up to the age of the cap."""
    asked, life, window = 0.5, 3.0, 300.0
    cost = SynchronizationCost(PowerCost(1.0, exponent, cap=level_from**exponent), named.ON_REQUEST)
    numerics = present(numerics_of(cost, (1.0, asked, life, window)).numerics)
    e, z, begin = mpmath.mpf(exponent), mpmath.mpf(asked), mpmath.mpf(life)
    bend = min(begin + window, mpmath.mpf(level_from))
    powers = mpmath.gammainc(1 + e, z * begin, z * bend) * mpmath.exp(z * begin) / z ** (1 + e)
    level = (mpmath.exp(z * (begin - bend)) - mpmath.exp(-z * window)) / z * bend**e
    stored, late = begin ** (1 + e) / (1 + e), powers + level
    end, rate = mpmath.exp(-z * window) * bend**e, 1 / (begin + 1 / z)
    whole = (end + z * late) / rate
    found = np.array([float(rate)])
    assert numerics.cost(found)[0] == pytest.approx(float(rate * (stored + late)), rel=1e-11)
    assert numerics.marginal(found)[0] == pytest.approx(float(whole - stored - late), rel=1e-11)


def test_fresh_share_is_the_closed_form() -> None:
    """ρ[(1−e^{−ΔT})/Δ + e^{−ΔT}(1−e^{−(ζ+Δ)σ})/(ζ+Δ) + e^{−ζσ}/ζ], of which σ = ∞ is the time average."""
    for d, asked, life, window in WINDOWS:
        rate = 1.0 / (life + 1.0 / asked)
        sources = fo.Sources(d, 1.0, request_rate=asked, stale_while_revalidate=window)
        solution = fo.solve(fo.Problem(named.BINARY_ON_REQUEST, sources, bandwidth=rate))
        stored = -math.expm1(-d * life) / d
        left = math.exp(-d * life)
        shown = left * -math.expm1(-(asked + d) * window) / (asked + d) + math.exp(-asked * window) / asked
        assert solution.value == pytest.approx(rate * (stored + shown), rel=1e-11)
        time_average = rate * (stored + left / (asked + d))
        assert solution.time_average == pytest.approx(time_average, rel=1e-11)


def test_requests_and_time_are_told_apart() -> None:
    sources = fo.Sources(1.0, 1.0, request_rate=0.5)
    solution = fo.solve(fo.Problem(named.BINARY_ON_REQUEST, sources, bandwidth=0.2))
    assert solution.lifetimes[0] == pytest.approx(3.0)
    assert (round(solution.value, 3), round(solution.time_average, 3)) == (0.590, 0.197)
    plain = fo.solve(fo.Problem(named.BINARY, sources, bandwidth=0.2))
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
    solution = fo.solve(fo.Problem(named.BINARY_ON_REQUEST, sources, bandwidth=rate))
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
def test_windows_are_certified(which: int, budget: float) -> None:
    solution = fo.solve(windowed(CURVES[which][0], budget))
    assert present(solution.certificate).relative_gap <= 1e-9
    assert solution.price > 0.0 or budget > 1.0


@pytest.mark.parametrize(
    ("n", "costs", "windows"),
    [(300, objectives()[:4], False), pytest.param(200, [each for each, _ in CURVES], True, marks=exhaustive)],
)
def test_ill_scaled_sources_are_certified(n: int, costs: list[fo.Objective], windows: bool) -> None:
    rng = np.random.default_rng(5)
    d, w = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    asked = 10.0 ** rng.uniform(-4.0, 4.0, n)
    window = 10.0 ** rng.uniform(-6.0, 6.0, n) if windows else None
    sources = fo.Sources(d, w, request_rate=asked, stale_while_revalidate=window)
    for objective in costs:
        for budget in (1e-3, 0.5):
            proof = present(fo.solve(fo.Problem(objective, sources, budget * float(asked.sum()))).certificate)
            assert proof.relative_gap <= 1e-9, (objective, budget)


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", [CURVES[0][0], CURVES[1][0]])
def test_cones_agree_on_windows(objective: fo.Objective) -> None:
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


def test_refusals_of_windows() -> None:
    refused(r"stale_while_revalidate needs request rates", fo.Sources, 1.0, stale_while_revalidate=2.0)
    with pytest.raises(SourceDataError, match=r"stale_while_revalidate out of range for source 0: -1"):
        fo.Sources(1.0, request_rate=1.0, stale_while_revalidate=-1.0)
    sources = fo.Sources([1.0, 2.0], request_rate=1.0, stale_while_revalidate=1.0)
    deadline = SynchronizationCost(PiecewiseLinearCost([0.0, 1.0], [0.0, -2.0]), named.ON_REQUEST)
    with pytest.raises(ObjectiveError, match=r"no cell for stale-while-revalidate windows"):
        fo.Problem(deadline, sources, bandwidth=1.0)
    for objective in (named.AGE_ON_REQUEST, SynchronizationCost(BinaryCost(), named.ON_REQUEST)):
        problem = fo.Problem(objective, sources, bandwidth=1.0)
        refused(r"stale-while-revalidate has a cone form for binary", problem.to_cvxpy, error=ObjectiveError)
        with pytest.raises(SolverRefusedError, match=r"knows no stale-while-revalidate windows"):
            fo.solve(problem, Conic())
