"""Bounds hold on thousands of random instances, some nearly attained, and refuse what they are not for.

Optima come from bisection on the price, written here and vectorised over instances.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest

import freshopt as fo
from freshopt import problems
from freshopt.online import (
    etc_regret_bound,
    mirror_sync_in_policy_bound,
    mirror_sync_regret_bound,
    price_bracket,
    sensitivity_bound,
)
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import EXACT, SCALAR

Matrix = np.ndarray
COSTS: dict[str, Callable[[Matrix, Matrix], Matrix]] = {
    "binary": lambda r, d: d / (d + r),
    "harmonic": lambda r, d: np.log1p(d / r),
    "delay": lambda r, d: d / r,
}
DEMANDS: dict[str, Callable[[Matrix, Matrix], Matrix]] = {
    "binary": lambda a, d: np.maximum(np.sqrt(a * d) - d, 0.0),
    "harmonic": lambda a, d: d / 2 * (np.sqrt(1 + 4 * a / d) - 1),
    "delay": lambda a, d: np.sqrt(a * d),
}
OBJECTIVES = {
    "binary": problems.BinaryFreshness(fo.Refresh.POISSON),
    "harmonic": problems.HarmonicStaleness(fo.Refresh.POISSON),
    "delay": problems.AccumulatedDelay(fo.Refresh.POISSON),
}


def optimal(kind: str, w: Matrix, d: Matrix, bandwidth: Matrix) -> Matrix:
    """Return the optimal rates of many instances (rows) at once: bisection on the log of the price."""
    low, high = np.full(len(w), -60.0), np.full(len(w), 60.0)
    for _ in range(90):
        middle = (low + high) / 2
        spent = DEMANDS[kind](w / np.exp(middle)[:, None], d).sum(axis=1)
        low, high = np.where(spent > bandwidth, middle, low), np.where(spent > bandwidth, high, middle)
    rates = DEMANDS[kind](w / np.exp(low)[:, None], d)
    scaled: Matrix = rates * (bandwidth / rates.sum(axis=1))[:, None]
    return scaled


def instances(count: int, n: int, seed: int) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return importances, true and estimated change rates, and bandwidths."""
    rng = np.random.default_rng(seed)
    w = np.exp(rng.normal(0, 1, (count, n)))
    true = 10 ** rng.uniform(-1, 1, (count, n))
    estimated = true * np.exp(rng.normal(0, 1, (count, n)) * 10 ** rng.uniform(-3, 0.3, (count, 1)))
    return w, true, estimated, n * 10 ** rng.uniform(-1.5, 1, count)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_no_loss_exceeds_its_bound(kind: str) -> None:
    ratios: list[float] = []
    for n in (1, 2, 5, 20):
        w, true, estimated, bandwidth = instances(400, n, seed=n)
        best, planned = optimal(kind, w, true, bandwidth), optimal(kind, w, estimated, bandwidth)
        if kind == "binary":
            starved = (best == 0.0).any(), (planned == 0.0).any()
            assert n == 1 or all(starved)  # corners of the simplex are among the instances
        loss = (w * (COSTS[kind](planned, true) - COSTS[kind](best, true))).sum(axis=1)
        scale = (w * COSTS[kind](planned, true)).sum(axis=1)
        for k in range(len(w)):
            problem = fo.Problem(OBJECTIVES[kind], fo.Sources(1.0, w[k]), bandwidth[k])
            tight = sensitivity_bound(problem, estimated[k], true[k], planned[k])
            loose = sensitivity_bound(problem, estimated[k], true[k])
            assert loss[k] <= tight * (1 + SCALAR) + EXACT * scale[k]
            assert tight <= loose * (1 + EXACT)
            if n > 1:
                ratios.append(loss[k] / tight)
    assert max(ratios) > 0.2  # a bound without the square of some error would be far from attained


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.sampled(3)
def test_the_bound_with_rates_holds_under_constraints(kind: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(40):
        n = int(rng.integers(2, 8))
        w, d = np.exp(rng.normal(0, 1, n)), 10 ** rng.uniform(-1, 1, n)
        guess = d * np.exp(rng.normal(0, 1, n))
        cost, bandwidth = 10 ** rng.uniform(-1, 1, n), float(10 ** rng.uniform(-1, 1))
        share = bandwidth / cost.sum()
        low, high = 0.5 * share * rng.random(n), share * 10 ** rng.uniform(0.1, 1, n)
        host = rng.integers(0, 2, n)
        limits = {0: float((cost * low)[host == 0].sum() * 1.1 + 0.2 * bandwidth)} if 0 in host else None

        def given(change_rate: Matrix, w: Matrix = w, low: Matrix = low, high: Matrix = high) -> fo.Sources:
            return fo.Sources(change_rate, w, min_rate=low, max_rate=high, refresh_cost=cost, host=host)  # noqa: B023

        problem = fo.Problem(OBJECTIVES[kind], given(d), bandwidth, limits)
        plan = fo.solve(fo.Problem(OBJECTIVES[kind], given(guess), bandwidth, limits)).rates
        loss = float((w * (COSTS[kind](plan, d) - COSTS[kind](fo.solve(problem).rates, d))).sum())
        assert loss <= sensitivity_bound(problem, guess, d, plan) * (1 + SCALAR) + SCALAR


def test_published_lemmas_by_hand() -> None:
    w, guess, true = np.array([1.0, 4.0]), np.array([1.0, 2.0]), np.array([2.0, 1.5])
    sources = fo.Sources(1.0, w)
    lemma4 = 1 * 1 / (1 * 1) + 4 * 0.25 / (2 * 1.5)
    lemma6 = 2 * (1 + 3) * 9 / 1 * (1 * 1 + 4 * 0.25)
    lemma7 = 4 * (1 + 2) ** 4 / (3 * 1 * 1) * (1 + 0.25)
    for kind, value in zip(OBJECTIVES, (lemma4, lemma6, lemma7), strict=True):
        problem = fo.Problem(OBJECTIVES[kind], sources, bandwidth=3.0)
        assert sensitivity_bound(problem, guess, true) == pytest.approx(value, rel=EXACT)
        assert sensitivity_bound(problem, true, true) == 0.0
    periodic = fo.Problem(problems.AccumulatedDelay(fo.Refresh.PERIODIC), sources, bandwidth=3.0)
    assert sensitivity_bound(periodic, guess, true) == pytest.approx(lemma7 / 2, rel=EXACT)


def test_sources_of_no_importance_do_not_count() -> None:
    for objective in OBJECTIVES.values():
        two = fo.Problem(objective, fo.Sources([1.0, 1.0], [1.0, 0.0]), bandwidth=3.0)
        one = fo.Problem(objective, fo.Sources([1.0], 1.0), bandwidth=3.0)
        for rates, first in ((None, None), ([3.0, 0.0], [3.0])):
            both = sensitivity_bound(two, [2.0, 1e-9], [1.0, 1e9], rates)
            assert both == sensitivity_bound(one, [2.0], [1.0], first)
        none = fo.Problem(objective, fo.Sources([1.0], 0.0), bandwidth=3.0)
        assert sensitivity_bound(none, [2.0], [1.0]) == 0.0


def test_a_starved_source_costs_without_end_where_staleness_does() -> None:
    sources = fo.Sources([1.0, 1.0])
    ends = {
        kind: sensitivity_bound(fo.Problem(o, sources, 1.0), 2.0, 1.0, [1.0, 0.0])
        for kind, o in OBJECTIVES.items()
    }
    assert math.isfinite(ends["binary"])
    assert ends["harmonic"] == ends["delay"] == math.inf


def test_sensitivity_refuses_what_it_is_not_for() -> None:
    plain = fo.Sources([1.0, 2.0], names=["a", "b"])
    periodic = fo.Problem(problems.BinaryFreshness(fo.Refresh.PERIODIC), plain, 1.0)
    with pytest.raises(fo.ObjectiveError, match="no sensitivity bound is known for BinaryFreshness"):
        sensitivity_bound(periodic, 1.0, 2.0)
    signalled = fo.Problem(OBJECTIVES["binary"], fo.Sources([1.0], signalled=True), 1.0)
    refused("do not announce", sensitivity_bound, signalled, 1.0, 2.0, error=fo.ObjectiveError)
    problem = fo.Problem(OBJECTIVES["binary"], plain, 1.0)
    with pytest.raises(fo.SourceDataError, match="estimated change rates out of range for 'b': inf"):
        sensitivity_bound(problem, [1.0, np.inf], 2.0)
    refused("rates out of range for 'a': -1", sensitivity_bound, problem, 1.0, 2.0, [-1.0, 2.0])
    bounded = fo.Problem(OBJECTIVES["delay"], fo.Sources([1.0, 2.0], min_rate=0.1), 1.0)
    refused("square-root rule", sensitivity_bound, bounded, 1.0, 2.0)


@pytest.mark.parametrize(
    "objective",
    [*OBJECTIVES.values(), problems.Age(fo.Refresh.POISSON), problems.HarmonicStaleness(fo.Refresh.PERIODIC)],
)
@pytest.mark.sampled(5)
def test_the_price_lies_in_its_bracket(objective: fo.Objective) -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        n = int(rng.integers(1, 30))
        sources = fo.Sources(
            10 ** rng.uniform(-3, 3, n), 10 ** rng.uniform(-2, 2, n), refresh_cost=10 ** rng.uniform(-1, 1, n)
        )
        problem = fo.Problem(objective, sources, float(sources.change_rate.sum() * 10 ** rng.uniform(-2, 2)))
        low, high = price_bracket(problem)
        price = fo.solve(problem).price
        assert low * (1 - SCALAR) <= price <= high * (1 + SCALAR)


def test_the_bracket_needs_free_rates() -> None:
    with pytest.raises(fo.SourceDataError, match="only the bandwidth bounds"):
        price_bracket(fo.Problem(OBJECTIVES["binary"], fo.Sources([1.0], min_rate=0.1), 1.0))


def test_mirror_sync_constant_is_what_its_proof_gives() -> None:
    count, bandwidth, lowest, largest, rounds = 50, 20.0, 0.01, 3.0, 5000
    spread = math.log(bandwidth / (lowest * count))
    share = (spread / rounds) ** (1 / 3)
    rate = count / largest * math.sqrt(spread * share / rounds)
    assert rate < count * share / (2 * largest)  # the condition of Theorem 5.1
    in_policy = count / rate * spread + rate * largest**2 / (share * count) * rounds
    gap = 2 * share * largest * rounds
    sources = fo.Sources([1.0] * count, importance=1 / count, min_rate=lowest)
    problem = fo.Problem(OBJECTIVES["binary"], sources, bandwidth)
    bound = mirror_sync_regret_bound(problem, rounds, largest)
    assert bound == pytest.approx(in_policy + gap, rel=SCALAR)
    heavy = fo.Problem(OBJECTIVES["binary"], fo.Sources([1.0] * count, min_rate=lowest), bandwidth)
    assert mirror_sync_regret_bound(heavy, rounds, largest) == pytest.approx(count * bound, rel=EXACT)
    for wrong, message in (((20, 1.0), "more than 29"), ((5000, 0.0), "largest_cost is 0.0")):
        refused(message, mirror_sync_regret_bound, problem, *wrong)
    with pytest.raises(fo.SourceDataError, match="source 0 has no min_rate"):
        mirror_sync_regret_bound(fo.Problem(OBJECTIVES["binary"], fo.Sources([1.0]), 1.0), 100, 1.0)


def test_mirror_sync_in_policy_bound_is_theorem_5_1() -> None:
    count, bandwidth, lowest, largest, rounds = 50, 20.0, 0.01, 3.0, 5000
    spread, share = math.log(bandwidth / (lowest * count)), 0.07
    edge = count * share / (2 * largest)
    rate = 0.3 * edge
    printed = count / rate * spread + rate * largest**2 / (share * count) * rounds
    sources = fo.Sources([1.0] * count, importance=1 / count, min_rate=lowest)
    problem = fo.Problem(OBJECTIVES["binary"], sources, bandwidth)

    def bound(problem: fo.Problem, rate: float, share: float, rounds: int = rounds) -> float:
        return mirror_sync_in_policy_bound(problem, rounds, largest, learning_rate=rate, exploration=share)

    assert bound(problem, rate, share) == pytest.approx(printed, rel=EXACT)
    # Learners step along the gradient of the mean cost, so that importances' common scale leaves η alone.
    doubled = fo.Problem(
        OBJECTIVES["binary"], fo.Sources([1.0] * count, 2 / count, min_rate=lowest), bandwidth
    )
    assert bound(doubled, rate, share) == pytest.approx(2 * printed, rel=EXACT)
    # One source with half of the importance: its samples are as large as if there were 2 sources, not 50.
    weight = np.full(count, 0.5 / (count - 1))
    weight[0] = 0.5
    uneven = fo.Problem(OBJECTIVES["binary"], fo.Sources([1.0] * count, weight, min_rate=lowest), bandwidth)
    small = 0.3 * share / largest
    by_hand = count * spread / small + small * count * (0.5 * largest) ** 2 / share * rounds
    assert bound(uneven, small, share) == pytest.approx(by_hand, rel=EXACT)
    idle = fo.Problem(OBJECTIVES["binary"], fo.Sources([1.0] * count, 0.0, min_rate=lowest), bandwidth)
    assert bound(idle, rate, share) == 0.0  # nothing is at stake
    # With the exploration gap of Lemma 3 it is Corollary 1's bound at the η and ε that it asks for.
    for each, heaviest in ((problem, 1 / count), (uneven, 0.5)):
        best_share = (spread / rounds) ** (1 / 3)
        best_rate = math.sqrt(spread * best_share / rounds) / (largest * heaviest)
        gap = 2 * best_share * largest * rounds * count * heaviest
        whole = bound(each, best_rate, best_share) + gap
        assert mirror_sync_regret_bound(each, rounds, largest) == pytest.approx(whole, rel=SCALAR)
    for settings, message in (
        ((edge, share, rounds), "below 0.583333"),
        ((0.0, share, rounds), "learning_rate is 0.0"),
        ((rate, 0.0, rounds), "exploration is 0.0"),
        ((rate, share, 0), "rounds is 0"),
    ):
        refused(message, bound, problem, *settings)


def test_etc_bound_is_theorem_1() -> None:
    n, bandwidth, horizon, sweeps = 4, 8.0, 1e5, 10_000
    w = np.array([1.0, 2.0, 3.0, 4.0])
    problem = fo.Problem(OBJECTIVES["binary"], fo.Sources([0.5] * n, w), bandwidth)
    tau, low, high, delta = sweeps * n / bandwidth, 0.2, 1.0, 0.1
    error = math.exp(2 * high * n / bandwidth) * bandwidth * math.log(2 * n / delta)
    published = tau / n + (horizon - tau) / tau * error / (2 * n**2 * low**2)  # what Theorem 1 has before Σw
    bound = etc_regret_bound(problem, horizon, (low, high), tau, 1 - delta)
    assert bound == pytest.approx(n * published * w.sum(), rel=SCALAR)
    best = etc_regret_bound(problem, horizon, (low, high), confidence=1 - delta)
    every = [
        etc_regret_bound(problem, horizon, (low, high), k * n / bandwidth, 1 - delta)
        for k in range(9_000, 13_000)
    ]
    assert 0 < int(np.argmin(every)) < len(every) - 1
    assert best == pytest.approx(min(every), rel=EXACT)


def test_etc_bound_holds_with_its_probability() -> None:
    """The regret of exploring at equal gaps and committing exceeds it in no more than δ of the runs."""
    rng = np.random.default_rng(8)
    n, bandwidth, horizon, runs, low, high = 5, 20.0, 2e5, 400, 0.3, 1.0
    w, d = np.exp(rng.normal(0, 1, n)), rng.uniform(low, high, n)
    problem = fo.Problem(OBJECTIVES["binary"], fo.Sources(d, w), bandwidth)
    sweeps = 20_000
    tau = sweeps * n / bandwidth
    bound = etc_regret_bound(problem, horizon, (low, high), tau, 0.5)
    assert bound < 0.5 * w.sum() * horizon  # it says something here
    found = rng.binomial(sweeps, 1 - np.exp(-d * n / bandwidth), (runs, n)) / sweeps
    estimates = np.clip(-np.log1p(-found) * bandwidth / n, low, high)
    many = np.broadcast_to(w, (runs, n))
    planned = optimal("binary", many, estimates, np.full(runs, bandwidth))
    best = optimal("binary", w[None], d[None], np.array([bandwidth]))
    stale = (w * (COSTS["binary"](planned, d) - COSTS["binary"](best, d))).sum(axis=1)
    u = d * n / bandwidth
    exploring = (w * (best[0] / (best[0] + d) + np.expm1(-u) / u)).sum()
    regret = exploring * tau + stale * (horizon - tau)
    assert np.mean(regret > bound) <= 0.5
    assert regret.max() < bound


def test_etc_bound_refuses_what_it_is_not_for() -> None:
    problem = fo.Problem(OBJECTIVES["binary"], fo.Sources([1.0, 2.0]), 1.0)
    with pytest.raises(fo.ObjectiveError, match="not HarmonicStaleness"):
        etc_regret_bound(fo.Problem(OBJECTIVES["harmonic"], fo.Sources([1.0]), 1.0), 10.0, (0.1, 1.0))
    refused(r"horizon is 1\.0", etc_regret_bound, problem, 1.0, (0.1, 1.0))
    refused(r"exploration is 1\.0", etc_regret_bound, problem, 10.0, (0.1, 1.0), 1.0)
    refused("a positive and a finite one", etc_regret_bound, problem, 10.0, (0.0, 1.0))
    bounded = fo.Problem(OBJECTIVES["binary"], fo.Sources([1.0, 2.0], max_rate=1.0), 1.0)
    refused("only the bandwidth bounds", etc_regret_bound, bounded, 10.0, (0.1, 1.0), error=fo.ObjectiveError)
