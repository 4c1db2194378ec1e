"""Signalled sources beside equal gaps: every N-th signal, against definitions, brute force and CVXPY."""

from typing import Any

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq

import freshopt as fo
from freshopt.problems import AccumulatedDelay, HarmonicStaleness
from freshopt.solvers import ClosedForm, Conic, LambdaCrawl, WaterFilling
from tests.ground_truth import cell_truth
from tests.ground_truth.refusals import present
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

COUNTED = {"harmonic": HarmonicStaleness(), "count": AccumulatedDelay()}
MISSED = {"harmonic": mpmath.harmonic, "count": mpmath.mpf}
# Past the 2^50 signals from which on the number of a cycle is no whole number any more.
CYCLES = (1, 2, 3, 7, 8, 9, 16, 17, 100, 12345, 10**7, 10**12)


def cost_of_cycle(curve: str, n: int) -> mpmath.mpf:
    """Return the mean cost of crawling at every n-th signal: m changes are missed for a share 1/n of time."""
    if n <= 100:
        return mpmath.fsum(MISSED[curve](m) for m in range(n)) / n
    return mpmath.harmonic(n) - 1 if curve == "harmonic" else mpmath.mpf(n - 1) / 2


@matrix(curve=COUNTED, scale=[1e-9, 1.0, 1e9])
def test_costs_are_those_of_the_definition_and_linear_between(curve: str, scale: float) -> None:
    sources = fo.Sources(np.full(2, scale), importance=[1.0, 3.0], signalled=True)
    kernel = present(COUNTED[curve].signalled_kernel(sources))
    with mpmath.workdps(40):
        for n in CYCLES:
            ends = [mpmath.mpf(scale) / k for k in (n, n + 1)]
            costs = [cost_of_cycle(curve, k) for k in (n, n + 1)]
            for share in (0.0, 0.3, 0.5, 0.9):
                rate = np.full(2, float(ends[0] + share * (ends[1] - ends[0])))
                # As the rate was rounded: on the straight line through the two.
                part = (mpmath.mpf(rate[0]) - ends[0]) / (ends[1] - ends[0])
                expected = costs[0] + part * (costs[1] - costs[0])
                true = cell_truth.cost(curve, "n-th signal", scale, float(rate[0]))
                assert abs(true - expected) <= EXACT * max(expected, 1e-3)
                found = kernel.cost(rate)
                assert abs(found[0] - expected) <= EXACT * max(expected, 1e-3), (n, share)
                assert found[1] == pytest.approx(3.0 * found[0], rel=EXACT)
                if share > 0.0:
                    slope = (costs[1] - costs[0]) / (ends[0] - ends[1])
                    assert abs(kernel.marginal(rate)[0] - slope) <= SCALAR * slope, (n, share)


@pytest.mark.parametrize("curve", COUNTED)
def test_best_responses_are_those_of_brute_force(curve: str) -> None:
    rng = np.random.default_rng(4)
    n = np.arange(1, 20001)
    costs = np.cumsum([0.0, *np.cumsum(1.0 / n[:-1])] if curve == "harmonic" else n - 1.0) / n
    d, w = 10.0 ** rng.uniform(-6, 6, 400), 10.0 ** rng.uniform(-3, 3, 400)
    price = w / d * 10.0 ** rng.uniform(-1.0, 3.5, 400)
    kernel = present(COUNTED[curve].signalled_kernel(fo.Sources(d, importance=w, signalled=True)))
    found = kernel.inverse_marginal(price)
    best = np.array([np.argmin(w[k] * costs + price[k] * d[k] / n) + 1 for k in range(400)])
    assert np.all(np.abs(found * best / d - 1.0) <= EXACT)
    assert len(set(best.tolist())) > 50


@pytest.mark.parametrize("curve", COUNTED)
def test_no_share_of_signals_and_no_equal_gaps_cost_less(curve: str) -> None:
    # A convex cost below two others is below their lower convex hull.
    shares = np.unique(np.concatenate([1.0 / np.arange(1, 101), np.geomspace(1e-4, 1.0, 700)]).round(12))
    kernel = present(COUNTED[curve].signalled_kernel(fo.Sources(np.ones(len(shares)), signalled=True)))
    counted = kernel.cost(shares)
    for discipline in ("on signal", "periodic"):
        other = np.array([float(cell_truth.cost(curve, discipline, 1.0, p)) for p in shares])
        assert np.all(counted <= other + EXACT)
        assert np.max(np.divide(other, counted, where=counted > 0.0, out=np.ones_like(other))) > 1.3
    slopes = np.diff(counted) / np.diff(shares)
    assert np.all(np.diff(slopes) >= -1e-6 * np.abs(slopes[1:]))


def mixture(objective: fo.Objective, seed: int, n: int = 40) -> fo.Problem:
    """Return half signalled and half silent sources, with unequal costs, bounds and a limited host."""
    rng = np.random.default_rng(seed)
    d, w = rng.lognormal(0.0, 1.5, n), rng.lognormal(0.0, 1.0, n)
    signalled = np.arange(n) % 2 == 0
    lower = np.where(np.arange(n) % 5 == 0, 0.05 * d, 0.0)
    upper = np.where(np.arange(n) % 7 == 0, 0.4 * d, np.inf)
    host = np.where(np.arange(n) < 10, "slow", "fast")
    cost = rng.choice([1.0, 2.0, 0.5], n)
    sources = fo.Sources(
        d, w, signalled=signalled, min_rate=lower, max_rate=upper, refresh_cost=cost, host=host
    )
    return fo.Problem(objective, sources, 0.4 * float(d.sum()), {"slow": 0.15 * float(d[:10].sum())})


def test_a_mixture_with_hosts_and_bounds_is_the_optimum_that_cvxpy_finds() -> None:
    problem = mixture(AccumulatedDelay(), 1)
    sources, n = problem.sources, len(problem.sources)
    rate = cp.Variable(n)
    p = cp.multiply(1.0 / sources.change_rate, rate)
    pieces = [k - k * (k + 1) / 2.0 * p for k in range(1, 200)]
    counted, silent = cp.maximum(*pieces), 0.5 * cp.inv_pos(p)
    loud = sources.signalled
    goal = sources.importance[loud] @ counted[loud] + sources.importance[~loud] @ silent[~loud]
    used = cp.multiply(sources.refresh_cost, rate)
    limits = [cp.sum(used) <= problem.bandwidth, cp.sum(used[:10]) <= float(problem.hosts.limits[0])]
    bounds = [rate >= problem.lower, rate <= np.minimum(problem.upper, 1e6)]
    expected = cp.Problem(cp.Minimize(goal), [*limits, *bounds]).solve(solver="CLARABEL")
    solution = fo.solve(problem)
    assert present(solution.certificate).relative_gap < SCALAR
    assert solution.value == pytest.approx(expected, rel=CONIC)


@pytest.mark.parametrize("objective", COUNTED.values(), ids=lambda objective: type(objective).__name__)
def test_mixtures_are_certified_at_one_price(objective: fo.Objective) -> None:
    for seed in range(5):
        problem = mixture(objective, seed, 3000)
        solution = fo.solve(problem, WaterFilling())
        assert solution.status is fo.Status.OPTIMAL
        assert present(solution.certificate).relative_gap < SCALAR
        few = fo.solve(mixture(objective, seed))
        assert present(few.certificate).relative_gap < SCALAR


@matrix(spread=[1.0, 6.0], kind=["Algorithm 2", "Algorithm 3"])
def test_perfect_signals_beside_random_gaps_are_those_of_lambda_crawl(kind: str, spread: float) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        d, w = rng.lognormal(0.0, spread, 60), rng.lognormal(0.0, spread, 60)
        signalled = np.ones(60, dtype=bool) if kind == "Algorithm 2" else np.arange(60) % 2 == 0
        sources, bandwidth = fo.Sources(d, w, signalled=signalled), float(0.2 * d.sum())
        problem = fo.Problem(HarmonicStaleness(fo.Refresh.POISSON), sources, bandwidth)
        found, theirs = fo.solve(problem), fo.solve(problem, LambdaCrawl(tolerance=1e-13))
        # As gaps are measured: where all is followed but little, the cost itself is all cancellation.
        scale = found.value + found.price * bandwidth
        assert abs(found.value - theirs.value) <= SCALAR * scale

        def rates(log_price: float, w: Any = w, d: Any = d, signalled: Any = signalled) -> Any:  # noqa: ANN401
            worth = w / np.exp(log_price)
            return np.where(
                signalled, np.minimum(worth, d), 2.0 * worth / (1.0 + np.sqrt(1.0 + 4.0 * worth / d))
            )

        def excess(log_price: float, rates: Any = rates, bandwidth: float = bandwidth) -> float:  # noqa: ANN401
            return float(np.log(np.sum(rates(log_price)) / bandwidth))

        # Each rate by itself, at the one price; golden section leaves the split of Algorithm 3 to 1e-8.
        exact = rates(brentq(excess, -60.0, 60.0, xtol=1e-15, rtol=1e-15))
        assert np.max(np.abs(found.rates / exact - 1.0)) <= SCALAR
        if kind == "Algorithm 2":
            assert np.max(np.abs(theirs.rates / exact - 1.0)) <= SCALAR
        if spread == 1.0:
            # Counted, the same bandwidth brings more from the same signals.
            regular = fo.solve(fo.Problem(HarmonicStaleness(), sources, bandwidth))
            assert regular.value < 0.9 * found.value


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", [1.0, 0.5, 0.4, 0.13])
def test_a_simulation_by_hand_costs_as_much(share: float) -> None:
    # States by numbers of changes: every N-th, where a sum of shares passes a whole number.
    rng = np.random.default_rng(8)
    gaps = rng.exponential(size=400_000)
    crawl = np.floor(np.arange(1, len(gaps) + 1) * share) > np.floor(np.arange(len(gaps)) * share)
    last = np.maximum.accumulate(np.where(crawl, np.arange(1, len(gaps) + 1), 0))
    missed = np.arange(len(gaps)) - np.concatenate([[0], last[:-1]])
    harmonic = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, missed.max() + 1))])
    for curve, costs in (("harmonic", harmonic[missed]), ("count", missed)):
        kernel = present(COUNTED[curve].signalled_kernel(fo.Sources([1.0], signalled=True)))
        measured = float(np.sum(gaps * costs) / np.sum(gaps))
        assert measured == pytest.approx(float(kernel.cost(np.array([share]))[0]), abs=0.02)


def test_what_counted_signals_have_no_cell_for_is_refused_in_one_line() -> None:
    failing = fo.Sources([1.0, 2.0], signalled=True, success=0.5)
    with pytest.raises(fo.ObjectiveError, match="every N-th signal") as refused:
        fo.solve(fo.Problem(HarmonicStaleness(), failing, 1.0))
    assert "\n" not in str(refused.value)
    assert "Refresh.POISSON" in str(refused.value)
    problem = fo.Problem(AccumulatedDelay(), fo.Sources([1.0, 2.0], signalled=True), 1.0)
    for solver in (Conic(), ClosedForm()):
        assert solver.supports(problem) is not None
