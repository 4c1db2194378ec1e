"""Fetches that cost what they bring: bandwidth against events, optima against brute force, proofs, cones."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq, minimize, minimize_scalar

import freshopt as fo
from freshopt.errors import InfeasibleProblemError, ObjectiveError, SolverRefusedError, SourceDataError
from freshopt.problems import ExpectedPenalty, HarmonicStaleness, LaterThan, PowerCost, SynchronizationCost
from freshopt.solvers import Conic, MirrorDescent, ProjectedGradient, WaterFilling
from freshopt.testing.problem_families import instances, standard_objectives
from tests.ground_truth import named
from tests.ground_truth.named import present
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix, rare

Array = npt.NDArray[np.float64]
CHANGE, WEIGHT = np.array([0.3, 2.0, 9.0]), np.array([1.0, 0.5, 2.0])
FETCH, BROUGHT = np.array([1.0, 0.5, 2.0]), np.array([0.0, 12.0, 40.0])


def sources(**more: object) -> fo.Sources:
    return fo.Sources(CHANGE, WEIGHT, refresh_cost=FETCH, changed_cost=BROUGHT, **more)  # type: ignore[arg-type]


def chance_of_change(rate: float, change: float, refresh: fo.Refresh) -> float:
    """Return the chance that a fetch finds a change, by quadrature over the gap."""
    if refresh is named.PERIODIC:
        return float(-np.expm1(-change / rate))
    ends = (0.0, 1e-4, 1e-2, 1.0, 50.0)
    return sum(
        quad(lambda x: np.exp(-x) * -np.expm1(-change * x / rate), a, b, epsabs=1e-15, epsrel=1e-13)[0]
        for a, b in pairwise(ends)
    )


@pytest.mark.parametrize("refresh", [named.POISSON, named.PERIODIC])
def test_bandwidth_is_that_of_the_fetches_that_find_a_change(refresh: fo.Refresh) -> None:
    problem = fo.Problem(HarmonicStaleness(refresh), sources(), 30.0)
    for rate in (1e-3, 0.7, 40.0):
        expected = [
            c0 * rate + c1 * rate * chance_of_change(rate, d, refresh)
            for d, c0, c1 in zip(CHANGE, FETCH, BROUGHT, strict=True)
        ]
        assert problem.used_by_source(np.full(3, rate)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("refresh", [named.POISSON, named.PERIODIC])
def test_a_simulated_crawl_uses_the_bandwidth(refresh: fo.Refresh) -> None:
    problem = fo.Problem(HarmonicStaleness(refresh), sources(), 30.0)
    solution = fo.solve(problem)
    method = fo.scheduling.Periodic() if refresh is named.PERIODIC else fo.scheduling.PoissonArrivals(seed=3)
    plan = fo.schedule(solution, horizon=1200.0, method=method)
    crawler = fo.simulation.SimulatedCrawler(fo.World.poisson(problem.sources, seed=5))
    changed = crawler.refresh(plan.source, plan.time)
    paid = FETCH[plan.source] + BROUGHT[plan.source] * changed
    blocks = np.bincount((plan.time / 40.0).astype(int), weights=paid, minlength=30)[:30] / 40.0
    error = blocks.std(ddof=1) / np.sqrt(len(blocks))
    assert abs(blocks.mean() - solution.bandwidth_used) < 3.0 * error
    assert solution.bandwidth_used == pytest.approx(30.0, rel=1e-14)
    assert solution.bandwidth_used > 2.0 * float(FETCH @ solution.rates)


def freshness_program(loss: Callable[[Array], Array], bandwidth: float, scale: float) -> float:
    """Return the least Σ w·loss(f) under Poisson refreshes, by sequential quadratic programming in log ρ."""

    def fresh(x: Array) -> Array:
        return np.asarray(1.0 / (1.0 + CHANGE * np.exp(-x)))

    def spare(x: Array) -> float:
        return 1.0 - float((FETCH * np.exp(x) + BROUGHT * CHANGE * fresh(x)).sum()) / bandwidth

    result = minimize(  # type: ignore[call-overload]
        lambda x: float(WEIGHT @ loss(fresh(x))) / scale,
        np.log(CHANGE) - 3.0,
        method="SLSQP",
        bounds=[(-20.0, 10.0)] * 3,
        constraints={"type": "ineq", "fun": spare},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert spare(result.x) > -1e-7
    return float(result.fun) * scale


@pytest.mark.parametrize("bandwidth", [2.0, 60.0, 500.0])
@pytest.mark.parametrize(
    ("objective", "loss"),
    [
        (named.BINARY, lambda f: 1.0 - f),
        (named.HARMONIC, lambda f: -np.log(f)),
        (named.DELAY, lambda f: 1.0 / f - 1.0),
        (named.AGE, lambda f: (1.0 - f) ** 2 / f / CHANGE),
    ],
)
def test_no_freshness_is_better(
    objective: fo.Objective, loss: Callable[[Array], Array], bandwidth: float
) -> None:
    solution = fo.solve(fo.Problem(objective, sources(), bandwidth))
    cost = WEIGHT.sum() - solution.value if objective.sense == "maximise" else solution.value
    # Where it stops short, its freshness is worse; it is never better.
    least = freshness_program(loss, bandwidth, cost)
    assert cost <= least * (1.0 + 1e-6)
    assert cost == pytest.approx(least, rel=1e-4)
    assert present(solution.certificate).relative_gap < 1e-12


def mean_cost(penalty: Callable[[float], float], rate: float) -> float:
    """Return the mean over a period of the cost of a copy of each age, by quadrature."""
    return quad(lambda x: penalty(x / rate), 0.0, 1.0, epsabs=1e-13, epsrel=1e-12)[0]


@pytest.mark.parametrize(
    ("objective", "penalty"),
    [
        (named.BINARY_PERIODIC, lambda d: lambda s: -np.expm1(-d * s)),
        (named.DELAY_PERIODIC, lambda d: lambda s: d * s),
        (named.AGE_PERIODIC, lambda d: lambda s: s + np.expm1(-d * s) / d),
        (SynchronizationCost(PowerCost(1.0, 1.5)), lambda _: lambda s: s**1.5),
        (SynchronizationCost(PowerCost(1.0, 0.8)), lambda _: lambda s: s**0.8),
    ],
)
def test_no_split_of_the_bandwidth_is_better_at_equal_gaps(
    objective: fo.Objective, penalty: Callable[[float], Callable[[float], float]]
) -> None:
    change, weight, brought = (1.0, 6.0), (1.0, 3.0), (5.0, 20.0)
    two = fo.Sources(change, weight, refresh_cost=2.0, changed_cost=brought)
    solution = fo.solve(fo.Problem(objective, two, 40.0))

    def rate_of(used: float, k: int) -> float:
        low, high = 0.0, used / 2.0
        for _ in range(100):
            middle = 0.5 * (low + high)
            spent = 2.0 * middle - brought[k] * middle * np.expm1(-change[k] / middle)
            low, high = (middle, high) if spent < used else (low, middle)
        return low

    def cost(share: float) -> float:
        used = 40.0 * share, 40.0 * (1.0 - share)
        return sum(weight[k] * mean_cost(penalty(change[k]), rate_of(used[k], k)) for k in range(2))

    best = minimize_scalar(cost, bounds=(1e-3, 1.0 - 1e-3), method="bounded", options={"xatol": 1e-10})
    found = sum(weight) - solution.value if objective.sense == "maximise" else solution.value
    assert found == pytest.approx(best.fun, rel=1e-9)
    assert solution.bandwidth_used == pytest.approx(40.0, rel=1e-14)


@pytest.mark.parametrize(
    ("objective", "scale"),
    [
        (named.HARMONIC, "ill"),
        *(
            pytest.param(objective, scale, marks=pytest.mark.exhaustive)
            for objective in standard_objectives()
            for scale in ("benign", "ill")
        ),
    ],
    ids=str,
)
def test_families_are_proved(objective: fo.Objective, scale: str) -> None:
    count = 0
    for name, problem in instances(objective, 5, 7, scale, conditional=True):  # type: ignore[arg-type]
        solution = fo.solve(problem)
        assert present(solution.certificate).relative_gap < 1e-9, name
        assert solution.bandwidth_used <= problem.bandwidth * (1.0 + 1e-14), name
        assert bool(np.all((solution.rates >= problem.lower) & (solution.rates <= problem.upper))), name
        proof = fo.certify(problem, solution.rates, solution.price, solution.host_prices)
        assert proof.relative_gap < 1e-9, name
        count += 1
    assert count in range(0, 22, 3)
    assert count == 21 or not isinstance(objective, HarmonicStaleness)


def test_the_gap_bounds_what_other_rates_lose() -> None:
    rng = np.random.default_rng(4)
    for objective in (named.HARMONIC, named.BINARY_PERIODIC):
        problem = fo.Problem(objective, sources(), 60.0)
        best = fo.solve(problem)
        for _ in range(20):
            proof = fo.certify(problem, best.rates * rng.lognormal(0.0, 0.4, 3), best.price)
            lost = abs(proof.value - best.value)
            assert lost <= proof.gap * (1.0 + 1e-9)
            assert total_used(problem, proof.rates) <= 60.0 * (1.0 + 1e-12)


def total_used(problem: fo.Problem, rates: Array) -> float:
    return float(problem.used_by_source(rates).sum())


def test_hosts_and_bounds_are_kept() -> None:
    given = sources(host=["a", "a", "b"], min_rate=[0.0, 0.2, 0.0], max_rate=[0.4, np.inf, np.inf])
    problem = fo.Problem(named.HARMONIC, given, 60.0, host_limits={"b": 10.0})
    solution = fo.solve(problem)
    used = problem.used_by_source(solution.rates)
    assert used[2] == pytest.approx(10.0, rel=1e-14)
    assert solution.rates[0] == 0.4
    assert solution.host_prices["b"] > 0.0
    assert present(solution.certificate).relative_gap < 1e-12


@pytest.mark.parametrize("objective", [named.HARMONIC, *rare(named.BINARY, named.DELAY, named.AGE)])
def test_the_cone_in_freshness_says_the_same(objective: fo.Objective) -> None:
    given = sources(host=["a", "a", "b"], min_rate=[0.0, 0.2, 0.0], max_rate=[0.4, np.inf, np.inf])
    problem = fo.Problem(objective, given, 60.0, host_limits={"b": 10.0})
    program = problem.to_cvxpy()
    assert program.is_dcp()
    assert [variable.name() for variable in program.variables()] == ["fresh"]
    exact = fo.solve(problem)
    assert program.solve(solver="CLARABEL") == pytest.approx(exact.value, rel=1e-6)
    conic = fo.solve(problem, Conic())
    assert conic.value == pytest.approx(exact.value, rel=1e-6)


@pytest.mark.parametrize("solver", [WaterFilling(), MirrorDescent(), ProjectedGradient()])
def test_solvers_by_numerics_alone_find_it(solver: object) -> None:
    problem = fo.Problem(named.HARMONIC_PERIODIC, sources(), 60.0)
    assert fo.solve(problem, solver).value == pytest.approx(fo.solve(problem).value, rel=1e-6)  # type: ignore[call-overload]


def test_other_solvers_refuse_in_one_line() -> None:
    problem = fo.Problem(named.DELAY, sources(), 60.0)
    for name in ("ClosedForm", "LambdaCrawl", "InteriorPoint", "SeparableNewton"):
        solver = getattr(fo.solvers, name)()
        refused("source has changed", fo.solve, problem, solver, error=SolverRefusedError)
        assert solver.solve(problem).status is fo.Status.REFUSED
    # A solver that is called by itself would take the problem for one of rates.
    assert WaterFilling().solve(problem).status is fo.Status.REFUSED


@matrix(bandwidth=[1e2, 1e9], every=2)
def test_baselines_keep_to_their_proportions_within_the_bandwidth_used(bandwidth: float) -> None:
    rng, n = np.random.default_rng(0), 40
    own = fo.Sources(
        10.0 ** rng.uniform(-4, 3, n),
        10.0 ** rng.uniform(-3, 3, n),
        host=np.arange(n) % 4,
        min_rate=np.where(rng.random(n) < 0.2, 1e-3, 0.0),
        max_rate=np.where(rng.random(n) < 0.3, 5.0, np.inf),
        refresh_cost=10.0 ** rng.uniform(-2, 2, n),
        changed_cost=10.0 ** rng.uniform(-3, 4, n),
    )
    weights = own.column("importance")
    shapes = {
        "Uniform": np.ones(n),
        "Proportional": own.change_rate,
        "SquareRoot": np.sqrt(weights * own.change_rate / own.refresh_cost),
    }
    limited = own.host == 1
    problem = fo.Problem(named.BINARY_PERIODIC, own, bandwidth, {1: bandwidth / 10.0})
    for name, shape in shapes.items():
        rates = fo.solve(problem, getattr(fo.solvers, name)()).rates
        fresh = (rates / own.change_rate) * -np.expm1(-own.change_rate / rates)
        used = own.refresh_cost * rates + present(own.changed_cost) * own.change_rate * fresh
        assert used.sum() == pytest.approx(bandwidth, rel=1e-12)
        assert used[limited].sum() <= bandwidth / 10.0 * (1.0 + 1e-12)
        inside = (rates > own.min_rate) & (rates < own.max_rate)
        for group in (inside & limited, inside & ~limited):
            assert np.ptp(rates[group] / shape[group]) <= 1e-12 * np.max(rates[group] / shape[group])


def test_costs_of_zero_are_the_problem_without_them() -> None:
    plain = fo.Problem(named.HARMONIC, fo.Sources(CHANGE, WEIGHT, refresh_cost=FETCH), 5.0)
    zero = fo.Problem(named.HARMONIC, fo.Sources(CHANGE, WEIGHT, refresh_cost=FETCH, changed_cost=0.0), 5.0)
    assert zero.per_bandwidth is None
    assert zero.sources.changed_cost is None
    assert fo.solve(zero).rates.tobytes() == fo.solve(plain).rates.tobytes()


def test_many_problems_and_other_bandwidths() -> None:
    problem = fo.Problem(named.HARMONIC, sources(), 60.0)
    more = problem.with_bandwidth(90.0)
    found = fo.solve_many([problem, more])
    assert found.rates[3:] == pytest.approx(fo.solve(more, warm_start=found[0]).rates, rel=1e-9)
    groups = fo.solve_many(named.HARMONIC, sources(), offsets=[0, 3], bandwidths=60.0)
    assert groups.rates == pytest.approx(found.rates[:3], rel=1e-9)
    faster = problem.with_change_rate(2.0 * CHANGE)
    assert fo.solve(faster).bandwidth_used == pytest.approx(60.0, rel=1e-14)
    frontier = fo.frontier(problem, [30.0, 60.0]).to_frame()
    assert frontier["cost"].to_list() == pytest.approx([30.0, 60.0], rel=1e-12)
    assert frontier["price"][0] > frontier["price"][1] > 0.0


def test_a_table_has_the_column() -> None:
    again = fo.Sources.from_frame(sources().to_frame())
    assert present(again.changed_cost).tolist() == BROUGHT.tolist()
    assert sources().take(np.array([1])).changed_cost == pytest.approx([12.0])


def dear(objective: fo.Objective = named.HARMONIC, **more: object) -> fo.Problem:
    return fo.Problem(objective, sources(**more), 5.0)


ONE_COST = "fixed cost only"


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: fo.Sources(1.0, changed_cost=-1.0), SourceDataError, "changed_cost out of range for .* 0"),
        (lambda: fo.Sources(1.0, changed_cost=np.nan), SourceDataError, "changed_cost out of range"),
        (lambda: dear(named.HARMONIC_PERIODIC).to_cvxpy(), ObjectiveError, "no cone; use fo.solve"),
        (lambda: dear(ExpectedPenalty(np.sqrt)).to_cvxpy(), ObjectiveError, "ExpectedPenalty of .* no cone"),
        (lambda: dear(LaterThan(2.0, refresh=named.POISSON)), ObjectiveError, "whether LaterThan"),
        (lambda: dear(signalled=[0, 1, 0]), ObjectiveError, "source 1 is signalled"),
        (lambda: dear(success=0.5), ObjectiveError, "Have failures retried at once"),
        (
            lambda: dear(named.HARMONIC_ON_REQUEST, request_rate=2.0),
            ObjectiveError,
            "on request have no such cell",
        ),
        (
            lambda: fo.Problem(named.HARMONIC, sources(), constraints=[fo.Budget(2.0)]),
            ObjectiveError,
            "constraints beside bandwidth",
        ),
        (lambda: dear(min_rate=1.0), InfeasibleProblemError, "lower bounds need"),
        (lambda: fo.solve(dear()).sensitivity(), SourceDataError, f"sensitivity.. knows .* {ONE_COST}"),
        (lambda: fo.bandwidth_for(dear(), freshness=0.5), SourceDataError, ONE_COST),
        (lambda: fo.scheduling.crawl_counts(dear(named.BINARY), horizon=9.0), SourceDataError, ONE_COST),
    ],
)
def test_refusals_are_one_line(call: Callable[[], object], kind: type[Exception], words: str) -> None:
    refused(words, call, error=kind)


@pytest.mark.parametrize(("refresh", "most"), [(named.POISSON, 63.28), (named.PERIODIC, 20.65)])
def test_powers_below_one_are_convex_up_to_a_ratio_of_costs(refresh: fo.Refresh, most: float) -> None:
    objective = SynchronizationCost(PowerCost(1.0, 0.2), refresh)
    x = np.geomspace(1e-3, 1e3, 200_001)
    slope = (1.0 + x) ** -2 if refresh is named.POISSON else 1.0 - (1.0 + 1.0 / x) * np.exp(-1.0 / x)
    for ratio, convex in ((most - 0.05, True), (most + 0.05, False)):
        worth = x**-1.2 / (1.0 + ratio * slope)
        assert bool(np.all(np.diff(worth) < 0.0)) is convex
    assert fo.solve(fo.Problem(objective, fo.Sources(1.0, changed_cost=most - 0.05), 5.0)).price > 0.0


@pytest.mark.parametrize("share", [False, True])
def test_rules_that_pretend_one_cost_lose(share: bool) -> None:
    """People charge every fetch alike: what an unchanged one costs, or what a changed one costs."""
    rng = np.random.default_rng(11)
    change, weight, brought = (
        rng.lognormal(0.0, 1.5, 40),
        rng.lognormal(0.0, 1.0, 40),
        rng.uniform(0.0, 50.0, 40),
    )
    problem = fo.Problem(named.HARMONIC, fo.Sources(change, weight, changed_cost=brought), 200.0)
    best = fo.solve(problem)
    alike = fo.Sources(change, weight, refresh_cost=1.0 + brought * share)
    rule = fo.solve(fo.Problem(named.HARMONIC, alike, 200.0)).rates
    # To be fair to the rule, all its rates are multiplied until they use up the same bandwidth.
    factor = brentq(lambda factor: total_used(problem, factor * rule) - 200.0, 1e-3, 1e3)
    proof = fo.certify(problem, 0.999999 * factor * rule, best.price)
    assert proof.infeasibility == 0.0
    assert proof.value > 1.01 * best.value
    assert proof.bound <= best.value * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("objective", "marginal"),
    [
        (named.BINARY, lambda x: 1.0 / (1.0 + x) ** 2),
        (named.HARMONIC, lambda x: 1.0 / (x * (1.0 + x))),
        (named.DELAY, lambda x: 1.0 / x**2),
    ],
)
def test_best_responses_are_roots(objective: fo.Objective, marginal: Callable[[float], float]) -> None:
    """At Δ = 1, c₀ = 1: −J'(x) = λ(1 + c₁/(1 + x)²), by bisection; b = x + c₁x/(1 + x)."""
    ratios = [1e-3, 1.0, 30.0, 1e6]
    given = fo.Sources([1.0] * 4, changed_cost=ratios)
    twin = present(fo.Problem(objective, given, 1.0).per_bandwidth)
    for price in (1e-9, 1e-3, 0.02, 0.4, 3.0):
        found = present(twin.numerics).inverse_marginal(np.full(4, price))
        for used, ratio in zip(found.tolist(), ratios, strict=True):

            def excess(y: float, ratio: float = ratio, price: float = price) -> float:
                x = float(np.exp(y))
                return float(np.log(marginal(x)) - np.log(price * (1.0 + ratio / (1.0 + x) ** 2)))

            x = 0.0 if excess(-60.0) < 0.0 else float(np.exp(brentq(excess, -60.0, 60.0, xtol=1e-15)))
            assert used == pytest.approx(x + ratio * x / (1.0 + x), rel=1e-12)


@pytest.mark.parametrize("refresh", [fo.Refresh.POISSON, fo.Refresh.PERIODIC])
def test_no_rate_uses_nothing_whatever_the_sign_of_zero(refresh: fo.Refresh) -> None:
    rates, brought = [1.0, 0.2, 4.0, 2.0, 0.1], [3.0, 8.0, 0.0, 2.0, 1.0]
    for zero in (-0.0, np.full(5, -0.0), 0.0):
        sources = fo.Sources(rates, min_rate=zero, refresh_cost=0.5, changed_cost=brought)
        own = fo.Problem(fo.problems.BinaryFreshness(refresh), sources, 0.25)
        assert np.all(own.used_by_source(sources.min_rate) == 0.0)
        assert present(own.per_bandwidth).lower == pytest.approx(np.zeros(5), abs=0.0)
    assert not np.signbit(sources.min_rate).any()  # of a number that earlier sources were given as −0
