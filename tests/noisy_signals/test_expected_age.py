"""Age with signals: cycles by the definition, other rules, ends, ill scales, waits by hand, and refusals."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import gamma

import freshopt as fo
from freshopt.noisy_signals import AgeThresholds, WithNoisySignals, replay_signals
from freshopt.noisy_signals.age_thresholds import due_after
from freshopt.noisy_signals.expected_age import PLAIN, age_moments, time_left
from freshopt.noisy_signals.expected_costs import Cost, cost_and_value
from freshopt.problems import AccumulatedDelay, Age
from tests.ground_truth.refusals import present
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

POINTS, WEIGHTS = (values for values in np.polynomial.legendre.leggauss(6))
UNIT, SHARE = np.polynomial.legendre.leggauss(60)
UNIT, SHARE = 0.5 * (UNIT + 1.0), 0.5 * SHARE


def rise(time: float, fresh: float, a: float) -> float:
    """Expected age that a time without signals adds."""
    return float(time - fresh * (-np.expm1(-a * time)) / a) if a else (1.0 - fresh) * time


def wait(left: float, fresh: float, a: float) -> float:
    """The time in which it adds so much, by root finding."""
    if a == 0.0:
        return left / (1.0 - fresh) if fresh < 1.0 else np.inf
    return float(brentq(lambda s: rise(s, fresh, a) - left, 0.0, left + 1.0 / a, xtol=1e-16, rtol=1e-15))


def by_definition(left: float, fresh: float, a: float, g: float, p: float, depth: int) -> tuple[float, float]:
    """E T and E ∫ (η − c) of what is left, signal after signal; after the last one none comes."""
    until = wait(left, fresh, a)
    end = min(until, 60.0 / g)
    length, value = 0.0, 0.0
    for x, weight in zip(0.5 * end * (1.0 + POINTS), 0.5 * end * WEIGHTS, strict=True):
        over = left - rise(x, fresh, a)
        if depth == 0:
            length, value = length + weight, value + weight * over
            continue
        later = by_definition(max(over, 1e-300), fresh * np.exp(-a * x) * (1.0 - p), a, g, p, depth - 1)
        share = weight * np.exp(-g * x)
        length, value = length + share * (1.0 + g * later[0]), value + share * (over + g * later[1])
    return length, value


@pytest.mark.parametrize(
    ("recall", "precision", "eta", "depth"),
    [(0.05, 0.5, 0.1, 3), (0.02, 0.3, 0.05, 3), (0.7, 1.0, 0.9, 1), (0.99, 1.0, 0.05, 1), (0.5, 1.0, 6.0, 1)],
)
def test_cycles_are_those_of_the_definition(recall: float, precision: float, eta: float, depth: int) -> None:
    a, g = 1.0 - recall, recall / precision
    length, value = by_definition(eta, 1.0, a, g, precision, depth)
    if precision == 1.0:  # after the first signal the age is that of a clock
        tau = wait(eta, 1.0, a)
        length = quad(lambda s: np.exp(-g * s) * (1.0 + g * (eta - rise(s, 1.0, a))), 0.0, tau, epsabs=1e-13)[
            0
        ]
        value = quad(
            lambda s: np.exp(-g * s) * ((eta - rise(s, 1.0, a)) + 0.5 * g * (eta - rise(s, 1.0, a)) ** 2),
            0.0,
            tau,
            epsabs=1e-13,
        )[0]
    found = age_moments(eta, a, g, precision)
    assert found.length == pytest.approx(length, rel=SCALAR)
    assert found.value == pytest.approx(value, rel=SCALAR)
    # The same through the cells, in another unit of time.
    d, w = 4.0, 3.0
    kernel = WithNoisySignals(Age(), recall, precision).kernel(fo.Sources([d], importance=[w]))
    rate = np.array([d / length])
    assert kernel.cost(rate)[0] == pytest.approx(w * (eta - value / length) / d, rel=SCALAR)
    assert kernel.marginal(rate)[0] == pytest.approx(w * value / d**2, rel=SCALAR)
    assert kernel.inverse_marginal(np.array([w * value / d**2]))[0] == pytest.approx(rate[0], rel=SCALAR)


@pytest.mark.parametrize(
    ("recall", "precision"), [(0.5, 0.5), (0.9, 0.3), (0.3, 0.95), (0.6, 0.2), (1.0, 0.4)]
)
def test_both_roads_and_derivatives_agree(recall: float, precision: float) -> None:
    a, g = 1.0 - recall, recall / precision
    edges = [0.01, 0.5, 2.0, 44.9] if a == 0.0 else [1e-6, 0.01, PLAIN / a, 44.9]
    for eta in edges:
        # A threshold where one way of summing, or one formula, takes over from the other.
        h = 1e-5 * eta
        low, high = (age_moments(eta + side * h, a, g, precision) for side in (-1.0, 1.0))
        middle = age_moments(eta, a, g, precision)
        assert (high.value - low.value) / (2.0 * h) == pytest.approx(middle.length, rel=1e-7)
        assert (high.length - low.length) / (2.0 * h) == pytest.approx(middle.slope, rel=1e-5)
    far, near = age_moments(45.0, a, g, precision), age_moments(44.999999999, a, g, precision)
    assert far.length == pytest.approx(near.length, rel=1e-10)
    assert far.value == pytest.approx(near.value, rel=1e-10)


def counted(recall: float, precision: float, eta: float) -> tuple[float, float]:
    """Length and cost of crawling by the number of signals, whenever they came, at an expected age η."""
    a, g, length, cost = 1.0 - recall, recall / precision, 0.0, 0.0

    def age(s: Any, n: int) -> Any:  # noqa: ANN401 - numbers or arrays
        kept = np.exp(-a * np.multiply.outer(s, UNIT)) * (1.0 - precision * UNIT) ** n
        return s * ((1.0 - kept) @ SHARE)

    for n in range(100):
        tau = brentq(lambda s, n=n: float(age(s, n)) - eta, 0.0, 1e3)
        lasting = gamma.cdf(tau, n + 1, scale=1.0 / g) / g
        if lasting < 1e-13:
            break
        s = tau * UNIT
        length += lasting
        cost += float(tau * SHARE @ (gamma.pdf(s, n + 1, scale=1.0 / g) / g * age(s, n)))
    return length, cost


def test_the_number_of_signals_alone_is_a_worse_rule() -> None:
    for recall, precision, least in ((0.9, 0.9, 1.2), (0.5, 0.5, 1.001), (0.9, 0.3, 1.001)):
        length, cost = counted(recall, precision, 0.45)
        kernel = WithNoisySignals(Age(), recall, precision).kernel(fo.Sources([1.0]))
        ratio = cost / length / kernel.cost(np.array([1.0 / length]))[0]
        assert least < ratio < 1.6


def test_both_ends_are_equal_gaps_and_a_wait_after_the_first_signal() -> None:
    rate = np.geomspace(0.02, 0.97, 30)
    sources = fo.Sources(np.ones(30), importance=np.linspace(1.0, 2.0, 30))
    silent, perfect = Age().kernel(sources), Age().signalled_kernel(sources)
    assert silent is not None
    assert perfect is not None
    for end, recall, precision in ((silent, 0.0, 0.3), (perfect, 1.0, 1.0)):
        whole = WithNoisySignals(Age(), recall, precision).kernel(sources)
        assert np.array_equal(whole.cost(rate), end.cost(rate))
        assert np.array_equal(whole.inverse_marginal(rate), end.inverse_marginal(rate))
    low = WithNoisySignals(Age(), 1e-14, 0.3).kernel(sources)
    assert low.cost(rate) == pytest.approx(silent.cost(rate), rel=EXACT)
    assert low.marginal(rate) == pytest.approx(silent.marginal(rate), rel=EXACT)
    assert low.inverse_marginal(silent.marginal(rate)) == pytest.approx(rate, rel=EXACT)
    for recall, precision in ((1.0, 1.0 - 1e-14), (1.0 - 1e-14, 1.0 - 1e-14)):
        near = WithNoisySignals(Age(), recall, precision).kernel(sources)
        assert near.cost(rate) == pytest.approx(perfect.cost(rate), rel=1e-9, abs=1e-12)


def test_perfect_signals_are_the_best_wait_after_one() -> None:
    d, w = 10.0 ** np.linspace(-6.0, 4.0, 11), 10.0 ** np.linspace(6.0, -6.0, 11)
    kernel = present(Age().signalled_kernel(fo.Sources(d, importance=w, signalled=True)))
    for share in (1e-9, 0.3, 0.999, 1.0 - 1e-9, 1.0):
        with mpmath.workdps(40):
            for k, rate in enumerate((share * d).tolist()):
                own, late = mpmath.mpf(d[k]), 1 / mpmath.mpf(rate) - 1 / mpmath.mpf(d[k])
                cost, value = rate * late**2 / 2, late / own + late**2 / 2
                found = kernel.cost(share * d)[k] / w[k], kernel.marginal(share * d)[k] / w[k]
                assert abs(found[0] - cost) <= EXACT * cost
                assert abs(found[1] - value) <= EXACT * value
    # No other wait costs less at the price, and neither a share of signals nor equal gaps do at the rate.
    price = w / d**2 * 10.0 ** np.linspace(-6.0, 6.0, 11)
    waits = np.geomspace(1e-9, 1e9, 200_001)
    for k, rate in enumerate((kernel.inverse_marginal(price) / d).tolist()):
        own = price[k] * d[k] ** 2 / w[k]
        costs = (0.5 * waits**2 + own) / (1.0 + waits)
        assert 0.5 * rate * (1.0 / rate - 1.0) ** 2 + own * rate == pytest.approx(np.min(costs), rel=1e-8)
    one = fo.Sources(np.ones(40))
    rates = np.geomspace(1e-3, 0.99, 40)
    best, gaps = Age().signalled_kernel(one), Age().kernel(one)
    assert best is not None
    assert np.all(best.cost(rates) < 0.5 * (1.0 / rates - 1.0) * (1.0 + EXACT))
    assert np.all(best.cost(rates) < present(gaps).cost(rates))


def test_a_mixture_with_signalled_sources_is_the_optimum_that_cvxpy_finds() -> None:
    rng = np.random.default_rng(3)
    n = 40
    d, w, loud = rng.lognormal(0.0, 1.5, n), rng.lognormal(0.0, 1.0, n), np.arange(n) % 2 == 0
    host = np.where(np.arange(n) < 10, "slow", "fast")
    upper, cost = np.where(np.arange(n) % 7 == 0, 0.4 * d, np.inf), rng.choice([1.0, 2.0, 0.5], n)
    sources = fo.Sources(d, w, signalled=loud, max_rate=upper, refresh_cost=cost, host=host)
    problem = fo.Problem(Age(), sources, 0.4 * float(d.sum()), {"slow": 0.15 * float(d[:10].sum())})
    solution = fo.solve(problem)
    assert solution.status is fo.Status.OPTIMAL
    assert present(solution.certificate).relative_gap < SCALAR
    rate = cp.Variable(int(loud.sum()))
    own, most = d[loud], np.minimum(upper, d)[loud]
    price = np.where(host == "slow", solution.price + solution.host_prices["slow"], solution.price)[loud]
    late = 0.5 * cp.inv_pos(rate) - 1.0 / own + 0.5 * cp.multiply(own**-2.0, rate)
    goal = w[loud] @ late + cp.multiply(price, cost[loud]) @ rate
    expected = cp.Problem(cp.Minimize(goal), [rate <= most]).solve(solver="CLARABEL")
    rate.value = solution.rates[loud]
    assert goal.value == pytest.approx(expected, rel=CONIC)


@pytest.mark.parametrize("budget", [1e-3, 0.3, 20.0])
def test_ill_scaled_mixtures_are_certified(budget: float) -> None:
    rng = np.random.default_rng(7)
    n = 24
    d, w = 10.0 ** rng.uniform(-6.0, 4.0, n), 10.0 ** rng.uniform(-6.0, 6.0, n)
    recall, precision = rng.uniform(0.0, 1.0, n), rng.uniform(0.2, 1.0, n)
    recall[:8], precision[:8] = (
        [0.0, 1.0, 1.0, 1e-12, 1.0 - 1e-12, 0.5, 0.5, 1.0],
        [1, 1, 0.5, 0.5, 1, 1, 1, 1],
    )
    d[5:7], w[5:7], w[9], recall[10:12], precision[10:12] = 1.0, 2.0, 0.0, 0.4, 0.4
    d[10:12], w[10:12] = 3.0, 1.0
    objective = WithNoisySignals(Age(), recall, precision)
    # More than the signalled sources can use is left over.
    solution = fo.solve(fo.Problem(objective, fo.Sources(d, w), budget * float(d.sum())))
    assert solution.status is fo.Status.OPTIMAL, solution
    assert present(solution.certificate).relative_gap < SCALAR
    assert solution.rates[9] == 0.0
    assert solution.rates[10] == pytest.approx(solution.rates[11], rel=SCALAR)
    for k in (0, 2, 12):
        alone = fo.solve(fo.Problem(objective.take(np.array([k])), fo.Sources(d[[k]], w[[k]]), budget * d[k]))
        assert alone.status is fo.Status.OPTIMAL
        assert present(alone.certificate).relative_gap < SCALAR


def test_runs_of_sources_that_are_crawled_by_age_are_as_few_as_by_waits() -> None:
    many = fo.Sources(np.ones(100))
    world = fo.World.poisson(many, seed=1)
    by_waits = WithNoisySignals(AccumulatedDelay(), 0.5, 0.5).rule(np.ones(100), many)
    rules = AgeThresholds(np.full(100, 0.5), 0.5, 0.5), by_waits
    assert [replay_signals(rule, world, 0.5, 0.5, 20.0).runs for rule in rules] == [4, 4]


def test_waits_by_hand_and_crawls_that_follow_them() -> None:
    rng = np.random.default_rng(5)
    for unheard, precision in ((0.0, 0.5), (0.7, 0.3), (1e-9, 1.0), (30.0, 0.9)):
        for _ in range(20):
            times = np.sort(rng.exponential(2.0, rng.integers(0, 5)))
            eta = float(rng.lognormal())
            due = due_after(times.tolist(), eta, unheard, precision)
            if not np.isfinite(due):
                assert unheard == 0.0
                assert len(times) == 0
                continue

            def stale(s: float, times: Any = times, a: float = unheard, p: float = precision) -> float:  # noqa: ANN401
                return 1.0 - float(np.exp(-a * s) * (1.0 - p) ** np.count_nonzero(times <= s))

            cuts = [0.0, *times[times < due].tolist(), due]
            age = sum(quad(stale, *ends, epsabs=1e-13)[0] for ends in pairwise(cuts))
            assert age == pytest.approx(eta, rel=1e-7)
    rule = AgeThresholds([1.0, 2.0, np.inf], [0.0, 0.0, 1.0], [1.0, 0.5, 0.5], names=list("abc"))
    # a: one day after a signal, whatever comes then. b: age grows by 1/2, 3/4 and 7/8 a day. c: never.
    signals = [(0, 0.5), (0, 0.7), (1, 1.0), (2, 1.1), (0, 2.0), (1, 3.0), (0, 3.0), (0, 3.5)]
    who, when = zip(*signals, strict=True)
    source, time = rule.crawls(who, when, 8.0)
    assert {k: time[source == k].tolist() for k in range(3)} == {
        0: [1.5, 3.0, 4.5],
        1: [pytest.approx(3.0 + 4.0 / 3.0)],
        2: [],
    }
    assert rule.waiting().tolist() == [np.inf, np.inf, np.inf]
    assert rule.waiting([[0.5], [1.0, 3.0], []]).tolist() == [1.5, pytest.approx(13.0 / 3.0), np.inf]
    assert rule.due([[0.5], [], []], [2.0, 9.0, 9.0]).tolist() == [True, False, False]
    assert rule.to_frame().rows()[1:] == [("b", 2.0, 0.0, None), ("c", None, 1.0, None)]


@pytest.mark.parametrize("of_age", [True, False])
def test_copies_always_refreshed_cost_nothing_in_plain_python(of_age: bool) -> None:
    cost = Cost(1.0, np.array([]), np.array([]), of_age)
    assert cost_and_value(np.inf, 0.5, 0.5, cost) == (0.0, 0.0)


@pytest.mark.parametrize("left", [1e-300, 1e-40, 1e-20])
def test_short_times_without_signals_in_plain_python(left: float) -> None:
    # c(τ) = aτ²/2 for short ones
    assert time_left(left, 1.0, 0.5) == pytest.approx(np.sqrt(2.0 * left / 0.5), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: WithNoisySignals(Age(fo.Refresh.POISSON), 0.5, 0.5), fo.ObjectiveError, "Refresh.PERIODIC"),
        (lambda: WithNoisySignals(Age(), 0.5, 0.02), fo.ObjectiveError, "0.02 is below 0.05"),
        (lambda: WithNoisySignals(Age(), [0.5, 0.4], 0.02), fo.ObjectiveError, "0.02 is below 0.05"),
        (lambda: WithNoisySignals(Age(), [0.5] * 3, [0.5] * 2), fo.ObjectiveError, "for each of 3 sources"),
        (lambda: AgeThresholds([-1.0], 0.0, 0.5), fo.SourceDataError, "threshold of source 0 is -1"),
        (lambda: AgeThresholds([1.0], 0.0, 1.5), fo.SourceDataError, "precision of source 0 is 1.5"),
        (lambda: AgeThresholds([1.0], 0.0, 1.0, ["a", "b"]), fo.SourceDataError, "1 ages and names"),
        (lambda: AgeThresholds([1.0], 0.0, 1.0).waiting(2), fo.SourceDataError, "when they came"),
        (lambda: AgeThresholds([1.0], 0.0, 1.0).waiting([2.0]), fo.SourceDataError, "when they came"),
        (
            lambda: fo.schedule(
                fo.solve(fo.Problem(Age(), fo.Sources([1.0], signalled=True), 0.5)), horizon=3.0
            ),
            fo.SourceDataError,
            "after the first signal missed",
        ),
        (
            lambda: fo.solve(fo.Problem(Age(), fo.Sources([1.0], signalled=True, success=0.5), 0.5)),
            fo.ObjectiveError,
            "waits after one",
        ),
    ],
)
def test_refusals(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)
