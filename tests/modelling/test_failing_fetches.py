"""Fetches that fail: formulas against sums, events and replay; certificates; cones; refusals."""

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.failing_fetches import retried_at_once
from freshopt.solvers import Conic, SeparableNewton
from tests.ground_truth.named import (
    AGE_PERIODIC,
    BINARY_ON_REQUEST,
    BINARY_PERIODIC,
    DELAY,
    DELAY_PERIODIC,
    HARMONIC_PERIODIC,
    LOG_PERIODIC,
    PERIODIC,
    POISSON,
    present,
)
from tests.ground_truth.strata import exhaustive


def both(refresh: fo.Refresh) -> list[fo.Objective]:
    return [
        fo.problems.HarmonicStaleness(refresh),
        fo.problems.BinaryFreshness(refresh),
        fo.problems.AccumulatedDelay(refresh),
        fo.problems.Age(refresh),
        fo.problems.SynchronizationCost(fo.problems.BinaryCost(), refresh),
        fo.problems.SynchronizationCost(fo.problems.PowerCost(1.0, 0.5), refresh),
        fo.problems.SynchronizationCost(fo.problems.PowerCost(1.0, 2.0), refresh),
        fo.problems.SynchronizationCost(fo.problems.PowerCost(1.0, 0.5, cap=1.0), refresh),
    ]


def periodic() -> list[fo.Objective]:
    lines = fo.problems.PiecewiseLinearCost(slopes=[0.0, 1.0, 3.0], intercepts=[0.0, -2.0, -12.0])
    return [*both(PERIODIC), fo.problems.SynchronizationCost(lines)]


def poisson() -> list[fo.Objective]:
    return [
        *both(POISSON),
        fo.problems.ExpectedPenalty(np.sqrt),
        fo.problems.LaterThan(2.0, refresh=fo.Refresh.POISSON),
    ]


def names(objective: fo.Objective) -> str:
    return repr(objective)


def numerics(objective: fo.Objective, d: object, s: object) -> fo.Problem:
    return fo.Problem(objective, fo.Sources(d, 1.0, success=s), bandwidth=1.0)  # type: ignore[arg-type]


def cost_of(problem: fo.Problem, rate: float) -> float:
    return float(present(problem.numerics).cost(np.full(len(problem.sources), rate))[0])


def summed(period_cost: object, rate: float, s: float) -> float:
    """J = sρ·E C(N/ρ), term by term."""
    terms = [
        s * (1.0 - s) ** (k - 1) * period_cost(k / rate)  # type: ignore[operator]
        for k in range(1, int(60.0 / -math.log1p(-s)) + 2)
    ]
    return s * rate * math.fsum(terms)


@pytest.mark.parametrize("s", [1e-3, 0.05, 0.4, 0.97])
def test_periodic_attempts_are_the_sum_over_gaps(s: float) -> None:
    d, rate = 0.7, 1.3
    for objective, period_cost in (
        (BINARY_PERIODIC, lambda t: t + math.expm1(-d * t) / d),
        (DELAY_PERIODIC, lambda t: d * t * t / 2.0),
        (AGE_PERIODIC, lambda t: t * t / 2.0 - t / d - math.expm1(-d * t) / d**2),
        (fo.problems.SynchronizationCost(fo.problems.PowerCost(1.0, 0.5)), lambda t: t**1.5 / 1.5),
        (
            fo.problems.SynchronizationCost(fo.problems.PowerCost(1.0, 1.0, cap=20.0)),
            lambda t: t * t / 2.0 if t < 20.0 else 20.0 * t - 200.0,
        ),
        (periodic()[-1], lambda t: max(0.0, t - 2.0, 3.0 * t - 12.0)),
    ):
        exact = summed(period_cost, rate, s)
        assert cost_of(numerics(objective, d, s), rate) == pytest.approx(exact, rel=1e-12), objective


def test_closed_forms() -> None:
    """Fresh (s/u)(1 − e^{−u})/(1 − (1−s)e^{−u}), delay Δ(2−s)/(2sρ); Poisson at sρ."""
    for d, rate, s in ((1.0, 2.0, 0.3), (5.0, 0.5, 0.9), (0.01, 3.0, 0.1)):
        u = d / rate
        fresh = s / u * (1.0 - math.exp(-u)) / (1.0 - (1.0 - s) * math.exp(-u))
        assert 1.0 - cost_of(numerics(BINARY_PERIODIC, d, s), rate) == pytest.approx(fresh, rel=1e-12)
        delay = d * (2.0 - s) / (2.0 * s * rate)
        assert cost_of(numerics(DELAY_PERIODIC, d, s), rate) == pytest.approx(delay, rel=1e-14)
        for objective in poisson():
            whole = cost_of(fo.Problem(objective, fo.Sources(d), bandwidth=1.0), s * rate)
            assert cost_of(numerics(objective, d, s), rate) == pytest.approx(whole, rel=1e-11), objective


def test_events_cost_what_the_formulas_say() -> None:
    """A copy whose periodic fetches fail, change by change and fetch by fetch."""
    rng = np.random.default_rng(4)
    d, rate, s, fetches = 1.0, 1.5, 0.4, 20_000
    gaps = rng.geometric(s, fetches) / rate
    parts = np.zeros((3, fetches))
    for k, gap in enumerate(gaps):
        changes = np.sort(rng.uniform(0.0, gap, rng.poisson(d * gap)))
        if len(changes):
            late = gap - changes
            parts[:, k] = late[0], float(np.sum(late)), float(late @ (1.0 / np.arange(1.0, len(late) + 1.0)))
    for own, objective in zip(parts, (BINARY_PERIODIC, DELAY_PERIODIC, HARMONIC_PERIODIC), strict=True):
        mean = own.sum() / gaps.sum()
        error = float(np.std(own - mean * gaps)) * math.sqrt(fetches) / gaps.sum()
        assert abs(cost_of(numerics(objective, d, s), rate) - mean) < 3.0 * error, objective


@pytest.mark.exhaustive
@pytest.mark.parametrize("refresh", [PERIODIC, POISSON])
def test_replay_meets_the_prediction(refresh: fo.Refresh) -> None:
    sources = fo.Sources([1.0, 4.0, 0.2], [1.0, 2.0, 1.0], success=[0.9, 0.3, 0.6])
    world = fo.World.poisson(sources, seed=3)
    method = fo.scheduling.Periodic() if refresh is PERIODIC else fo.scheduling.PoissonArrivals(seed=1)
    solution = fo.solve(fo.Problem(fo.problems.AccumulatedDelay(refresh), sources, bandwidth=6.0))
    plan = fo.schedule(solution, 500.0, method=method)
    found = fo.replay(plan, world, skip=50.0)
    for objective in both(refresh)[:4]:
        own = present(fo.Problem(objective, sources, bandwidth=6.0).numerics)
        cost = float(np.sum(own.cost(solution.rates)))
        predicted = 4.0 - cost if isinstance(objective, fo.problems.BinaryFreshness) else cost
        assert abs(found.of(objective).z(predicted)) < 3.0, objective
    # The same schedule costs less where nothing fails.
    whole = fo.replay(plan, world, skip=50.0, success=1.0)
    assert whole.of(fo.problems.Age(refresh)).value < found.of(fo.problems.Age(refresh)).value


@pytest.mark.parametrize("objective", [*periodic(), *poisson()], ids=names)
def test_success_of_1_changes_no_bit(objective: fo.Objective) -> None:
    rng = np.random.default_rng(2)
    d, rate = 10.0 ** rng.uniform(-6.0, 4.0, 50), 10.0 ** rng.uniform(-4.0, 4.0, 50)
    some = np.where(np.arange(50) < 25, 1.0, 0.5)
    plain = present(fo.Problem(objective, fo.Sources(d), bandwidth=1.0).numerics)
    price = plain.marginal(rate)
    own = (plain.cost(rate), price, plain.inverse_marginal(price))
    # Beside sources that fail the others are a shorter array, whose powers a processor may round otherwise.
    for success, many, rounding in ((np.ones(50), 50, 0.0), (some, 25, 4.0 * np.finfo(np.float64).eps)):
        other = present(numerics(objective, d, success).numerics)
        found = (other.cost(rate), other.marginal(rate), other.inverse_marginal(price))
        for a, b in zip(own, found, strict=True):
            np.testing.assert_allclose(b[:many], a[:many], rtol=rounding, atol=0.0)
    here, there = (
        fo.solve(fo.Problem(objective, fo.Sources(d[:9], success=s), bandwidth=float(d[:9].sum()) / 9.0))
        for s in (None, 1.0)
    )
    assert np.array_equal(here.rates, there.rates)
    assert here.value == there.value


@pytest.mark.parametrize("objective", [*periodic(), *poisson()], ids=names)
def test_marginal_is_the_slope_and_its_inverse_undoes_it(objective: fo.Objective) -> None:
    rng = np.random.default_rng(3)
    n = 60
    d, s = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-1.0, 0.0, n)
    own = present(numerics(objective, d, s).numerics)
    rate = 10.0 ** rng.uniform(-3.0, 2.0, n)
    price, step = own.marginal(rate), 1e-6
    below, here, above = (own.cost(rate * (1.0 + x)) for x in (-step, 0.0, step))
    slack = 1e-9 * below / (rate * step) * 1e-6
    assert np.all(price <= (below - here) / (step * rate) * (1.0 + 1e-5) + slack)
    assert np.all(price >= (here - above) / (step * rate) * (1.0 - 1e-5) - slack)
    some = np.flatnonzero(price > 1e-250)
    back = own.take(some).inverse_marginal(price[some])
    if "Piecewise" not in repr(objective):
        assert np.allclose(own.take(some).marginal(back), price[some], rtol=1e-9)
    else:
        # A marginal that falls in steps: just below its best response it is higher, there it is not.
        at = own.take(some)
        assert np.all(at.marginal(back) <= price[some] * (1.0 + 1e-12))
        assert np.all((at.marginal(back * (1.0 - 1e-9)) > price[some] * (1.0 - 1e-12)) | (back == 0.0))


def ill_scaled(objective: fo.Objective, n: int, budget: float, *, signals: bool = False) -> fo.Problem:
    rng = np.random.default_rng(6)
    d, w = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    s = 10.0 ** rng.uniform(-1.0, 0.0, n)
    s[::3] = 1.0
    w[1::5] = 0.0
    sources = fo.Sources(d, w, success=s, signalled=np.arange(n) % 2 == 0 if signals else False)
    return fo.Problem(objective, sources, bandwidth=budget * float(d.sum()))


@pytest.mark.parametrize("objective", [*both(PERIODIC)[:4], *both(POISSON)[:4], poisson()[8]], ids=names)
@pytest.mark.sampled(2)
def test_ill_scaled_sources_are_certified(objective: fo.Objective) -> None:
    for budget in (1e-3, 0.5, 20.0):
        proof = present(fo.solve(ill_scaled(objective, 20, budget)).certificate)
        assert proof.relative_gap <= 1e-9, budget


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", [*periodic(), *poisson()], ids=names)
def test_all_are_certified(objective: fo.Objective) -> None:
    for n in (1, 40):
        for budget in (1e-3, 0.5):
            proof = present(fo.solve(ill_scaled(objective, n, budget)).certificate)
            assert proof.relative_gap <= 1e-9, (n, budget)


@pytest.mark.parametrize("objective", [*both(POISSON)[:4], poisson()[8]], ids=names)
def test_announced_changes_are_followed_by_fetches_that_fail(objective: fo.Objective) -> None:
    problem = ill_scaled(objective, 20, 0.5, signals=True)
    solution = fo.solve(problem)
    assert present(solution.certificate).relative_gap <= 1e-9
    assert np.all(solution.rates <= problem.upper)
    assert problem.numerics is not None
    followed = fo.Problem(objective, fo.Sources(2.0, signalled=True), bandwidth=1.0).numerics
    failing = fo.Problem(objective, fo.Sources(2.0, signalled=True, success=0.5), bandwidth=1.0).numerics
    assert failing is not None
    rate = np.array([0.8])
    assert failing.cost(rate) == pytest.approx(present(followed).cost(0.5 * rate), rel=1e-12)


def small(objective: fo.Objective) -> fo.Problem:
    rng = np.random.default_rng(11)
    d, s = rng.lognormal(0.0, 1.5, 8), rng.uniform(0.1, 1.0, 8)
    return fo.Problem(objective, fo.Sources(d, success=s), bandwidth=0.4 * float(d.sum()))


# Three of them in every run.
CONED = [*poisson(), *(both(PERIODIC)[k] for k in (2, 5, 6))]


@pytest.mark.parametrize(
    "objective",
    [pytest.param(each, marks=[] if k in (1, 3, 10) else exhaustive) for k, each in enumerate(CONED)],
    ids=names,
)
def test_cones_agree(objective: fo.Objective) -> None:
    problem = small(objective)
    assert fo.solve(problem, Conic()).value == pytest.approx(fo.solve(problem).value, rel=2e-6)


class SquareRoot(fo.Objective):
    """√(Δ/ρ) of one's own, in fetches that succeed."""

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        assert sources.success is None
        return cp.multiply(sources.importance * np.sqrt(sources.change_rate), cp.power(rate, -0.5))


class OfAttempts(fo.Objective):
    """The same, written for attempts."""

    attempts = True

    def per_source(self, rate: Expression, sources: fo.Sources) -> Expression:
        succeeding = sources.change_rate / present(sources.success)
        return cp.multiply(sources.importance * np.sqrt(succeeding), cp.power(rate, -0.5))


class Periodically(SquareRoot):
    refresh = PERIODIC


def test_own_declarations() -> None:
    d, s = np.array([1.0, 8.0, 3.0]), np.array([1.0, 0.5, 0.1])
    first, second = (
        fo.solve(fo.Problem(own, fo.Sources(d, success=s), bandwidth=3.0))
        for own in (SquareRoot(), OfAttempts())
    )
    named = fo.solve(fo.Problem(SquareRoot(), fo.Sources(d / s), bandwidth=3.0))
    assert np.allclose(first.rates, second.rates, rtol=1e-9)
    assert np.allclose(first.rates, named.rates, rtol=1e-9)
    # Of periodic attempts only the numerics are derived (tests/modelling/test_gap_costs.py).
    periodic = fo.Problem(Periodically(), fo.Sources(d, success=s), bandwidth=3.0)
    with pytest.raises(ObjectiveError, match=r"source 1 may fail, and .*periodic attempts\. Use .* fo.solve"):
        periodic.to_cvxpy()


def test_uncertain_change_rates_mix_the_cells() -> None:
    nodes, weights, s = np.array([[0.5, 2.0], [1.0, 5.0]]), np.array([0.3, 0.7]), np.array([0.4, 0.9])
    for objective in (*both(PERIODIC)[:4], *both(POISSON)[:4]):
        mixed = present(numerics(fo.Expected(objective, nodes, weights), [1.0, 1.0], s).numerics)
        rate = np.array([0.7, 1.9])
        parts = []
        for column in nodes.T:
            own = present(numerics(objective, column, s).numerics)
            parts.append(own.cost(rate))
        assert np.allclose(mixed.cost(rate), weights @ np.array(parts), rtol=1e-12), objective


def test_failing_sources_are_tried_more_often_where_that_pays() -> None:
    """Under a delay rates are ∝ √(w·Δ/s), or √(wΔ(2 − s)/s) of periodic attempts."""
    s = np.array([1.0, 0.25])
    rates = fo.solve(fo.Problem(DELAY, fo.Sources([1.0, 1.0], success=s), bandwidth=3.0)).rates
    assert np.allclose(rates, [1.0, 2.0])
    rates = fo.solve(fo.Problem(DELAY_PERIODIC, fo.Sources([1.0, 1.0], success=s), 1.0)).rates
    assert rates[1] / rates[0] == pytest.approx(math.sqrt(7.0))


def test_refusals() -> None:
    for wrong in (0.0, -0.5, 1.5, math.nan):
        with pytest.raises(SourceDataError, match=r"success out of range for source 1: .* at most 1"):
            fo.Sources([1.0, 2.0], success=[0.5, wrong])
    failing = fo.Sources([1.0, 2.0], success=[1.0, 0.5])
    with pytest.raises(ObjectiveError, match=r"source 1 may fail, and .* has no declared form"):
        fo.Problem(BINARY_PERIODIC, failing, bandwidth=1.0).to_cvxpy()
    asked = fo.Sources([1.0, 2.0], request_rate=1.0, success=0.5)
    with pytest.raises(ObjectiveError, match=r"refreshes on request have no cell for that"):
        fo.Problem(BINARY_ON_REQUEST, asked, bandwidth=1.0)
    # A knapsack has no Poisson cell to be told of; log freshness has one.
    for refused, remedy in (
        (LOG_PERIODIC, "Use Refresh.POISSON, or leave"),
        (fo.problems.PollingKnapsack(), "Leave"),
    ):
        with pytest.raises(ObjectiveError, match=rf"periodic attempts\. {remedy} success out\.$"):
            fo.Problem(refused, failing, bandwidth=1.0)


def test_a_solver_of_declarations_refuses_what_has_none() -> None:
    failing = fo.Sources([1.0, 2.0], success=[1.0, 0.5])
    solution = fo.solve(fo.Problem(BINARY_PERIODIC, failing, 1.0), SeparableNewton(), throw=False)
    assert solution.status is fo.Status.REFUSED
    assert "source 1 may fail" in solution.note


def test_columns_travel() -> None:
    sources = fo.Sources([1.0, 2.0], success=[1.0, 0.5])
    back = fo.Sources.from_frame(sources.to_frame())
    assert present(back.success).tolist() == [1.0, 0.5]
    assert fo.Sources([1.0, 2.0]).success is None
    assert sources.take(np.array([1])).success.tolist() == [0.5]  # type: ignore[union-attr]


def test_retries_at_once_are_periodic_refreshes_at_the_rate_of_successes() -> None:
    """Delay Δ/(2sρ) in the place of Δ(2 − s)/(2sρ), for the same attempts."""
    sources = fo.Sources([1.0, 3.0], success=[0.5, 0.2], max_rate=[4.0, np.inf])
    waiting = fo.solve(fo.Problem(DELAY_PERIODIC, sources, bandwidth=6.0))
    retried = retried_at_once(sources)
    assert retried.refresh_cost.tolist() == [2.0, 5.0]
    assert retried.max_rate.tolist() == [2.0, math.inf]
    at_once = fo.solve(fo.Problem(DELAY_PERIODIC, retried, bandwidth=6.0))
    delay = float(np.sum(sources.change_rate / (2.0 * at_once.rates)))
    assert at_once.value == pytest.approx(delay, rel=1e-12)
    assert at_once.value < waiting.value
    # What retries at once save of the same attempts, per source, is the factor 2 − s.
    same = float(np.sum(sources.change_rate / (2.0 * waiting.rates * sources.success)))  # type: ignore[operator]
    assert same < waiting.value
    assert retried_at_once(fo.Sources(1.0)).success is None


def test_a_deadline_of_attempts_is_answered_in_closed_form() -> None:
    rng, n = np.random.default_rng(0), 4000
    late = 10.0 ** rng.uniform(-6, 4, n)
    s = np.where(rng.random(n) < 0.1, 1.0, 10.0 ** rng.uniform(-3, 0, n))
    weight = 10.0 ** rng.uniform(-6, 6, n)
    each = fo.problems.PiecewiseLinearCost(
        np.tile([0.0, 1.0], (n, 1)), np.stack([np.zeros(n), -late], axis=1)
    )
    sources = fo.Sources(np.ones(n), weight, success=s)
    numerics = present(fo.Problem(fo.problems.SynchronizationCost(each), sources, bandwidth=1.0).numerics)
    price = weight * s * late * 10.0 ** rng.uniform(-12, 1, n)
    rate = numerics.inverse_marginal(price)
    # The marginal value falls from step to step: at the answer it is at most the price, just before it above.
    assert np.all(numerics.marginal(rate) <= price)
    before = rate > 0.0
    assert np.mean(before) > 0.5
    assert np.all(numerics.marginal(rate * (1.0 - 1e-12))[before] >= price[before] * (1.0 - 1e-12))
    k = np.floor(rate * late * (1.0 + 1e-15))
    np.testing.assert_allclose(rate, k / late, rtol=1e-14)


def test_shares_later_than_an_age_are_those_of_attempts() -> None:
    rng, n = np.random.default_rng(3), 60
    s, weight = rng.uniform(0.05, 1.0, n), 10.0 ** rng.uniform(-1, 1, n)
    sources = fo.Sources(np.ones(n), weight, success=s)

    def late(rates: np.ndarray) -> float:
        k = np.floor(rates * 2.0 * (1.0 + 1e-15))
        return float(np.sum(weight * (1.0 - s) ** k * (1.0 - s * (2.0 * rates - k))))

    for bandwidth in (1.0, 30.0, 1000.0):
        solution = fo.solve(fo.Problem(fo.problems.LaterThan(2.0, PERIODIC), sources, bandwidth))
        assert present(solution.certificate).relative_gap < 1e-12
        assert solution.value == pytest.approx(late(solution.rates), rel=1e-12, abs=1e-12)
    target = fo.Target(fo.problems.LaterThan(2.0, PERIODIC), at_most=0.05)
    least = fo.solve(fo.Problem(fo.Spend(), sources, constraints=[target]))
    assert late(least.rates) <= 0.05 * weight.sum() * (1.0 + 1e-9)
    bound = fo.solve(fo.Problem(fo.problems.LaterThan(2.0, PERIODIC), sources, least.value))
    assert bound.value == pytest.approx(0.05 * weight.sum(), rel=1e-6)
