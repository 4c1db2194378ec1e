"""Expected penalties: sums over missed changes against closed forms, and what cannot be summed."""

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.special import digamma

import freshopt as fo
from freshopt.autodiff.compiler import compile_expression
from freshopt.cvx import cp
from freshopt.numerics.exponential_sums import PenaltyIncrements
from freshopt.numerics.gauss_quadrature import gauss
from freshopt.numerics.octave_cache import MANY
from freshopt.problems import BinaryFreshness, ExpectedPenalty
from freshopt.separable.derived_kernel import DerivedNumerics
from tests.ground_truth.cost_truth import Floats, market
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix, stratified
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

mp = mpmath.MPContext()
mp.dps = 60
Exact = Callable[[Any], Any]
Penalty = Callable[[Floats], Floats]
RATIOS = np.concatenate([10.0 ** np.arange(-14.0, 9.0), [3e-9, 4e-7, 6e-6, 2e-5, 5e-5, 0.3]])


def harmonic_number(m: Floats) -> Floats:
    return np.asarray(digamma(m + 1.0)) + np.euler_gamma


def steps(m: Floats) -> Floats:
    return np.asarray(1.0 * (m >= 2) + 5.0 * (m >= 1000) + 7.0 * (m >= 123_456_789))


# Σ d_m q^m as a function of q = 1 − p, and of 1 − q, in which the digits are.
CASES: dict[str, tuple[Penalty, Exact]] = {
    "count": (lambda m: m, lambda p: (1 - p) / p),
    "harmonic": (harmonic_number, lambda p: -mp.log(p)),
    "binary": (lambda m: np.minimum(m, 1.0), lambda p: 1 - p),
    "square": (lambda m: m * m, lambda p: (1 - p) * (2 - p) / p**2),
    "fourth power": (
        lambda m: m**4,
        lambda p: (1 - p) * (2 - p) * (p * p - 12 * p + 12) / p**4,
    ),
    "square root": (np.sqrt, lambda p: p * mp.polylog(-mp.mpf(1) / 2, 1 - p)),
    "three at most": (lambda m: np.minimum(m, 3.0), lambda p: sum((1 - p) ** m for m in (1, 2, 3))),
    "hundred free": (lambda m: np.maximum(m - 100.0, 0.0), lambda p: (1 - p) ** 101 / p),
    "steps": (
        steps,
        lambda p: (1 - p) ** 2 + 5 * (1 - p) ** 1000 + 7 * (1 - p) ** 123_456_789,
    ),
}


def poisson(name: str, ratio: float) -> Any:  # noqa: ANN401 - mpmath numbers
    """J at x = ρ/Δ: 1/(1+x) = 1 − p for p = x/(1+x)."""
    x = mp.mpf(ratio)
    return CASES[name][1](x / (1 + x))


def slope(cost: Exact, ratio: float) -> Any:  # noqa: ANN401
    """−J' numerically, in 60 digits."""
    x = mp.mpf(ratio)
    h = x * mp.mpf(10) ** -20
    return (cost(x - h) - cost(x + h)) / (2 * h)


@pytest.mark.parametrize("name", CASES)
def test_closed_forms_are_the_sums(name: str) -> None:
    penalty, exact = CASES[name]
    for p in (0.2, 0.7):
        m = np.arange(1.0, 3000.0)
        increments = np.diff(penalty(np.arange(3000.0)))
        assert float(np.sum(increments * (1 - p) ** m)) == pytest.approx(float(exact(mp.mpf(p))), rel=EXACT)


@matrix(name=CASES, every=4)
def test_poisson_cost_and_marginal_over_twenty_decades(name: str) -> None:
    d = np.geomspace(1e-5, 1e5, len(RATIOS))
    kernel = ExpectedPenalty(CASES[name][0]).kernel(fo.Sources(d))
    rates = RATIOS * d
    cost, marginal = kernel.cost(rates), kernel.marginal(rates)
    for k, ratio in enumerate(rates / d):
        expected = poisson(name, ratio)
        if expected > 1e-250:
            assert abs(cost[k] / expected - 1) <= EXACT, ratio
            worth = slope(lambda x: poisson(name, x), ratio) / d[k]
            assert abs(marginal[k] / worth - 1) <= EXACT, ratio


@matrix(name=CASES, every=3)
def test_on_signal_cost_and_marginal(name: str) -> None:
    shares = np.array([1e-14, 1e-10, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.99])
    kernel = ExpectedPenalty(CASES[name][0]).signalled_kernel(fo.Sources(np.full(len(shares), 4.0)))
    cost, marginal = kernel.cost(4.0 * shares), kernel.marginal(4.0 * shares)
    exact = CASES[name][1]
    for k, share in enumerate(shares):
        assert abs(cost[k] / exact(mp.mpf(share)) - 1) <= EXACT, share
        assert abs(marginal[k] / (slope(exact, share) / 4) - 1) <= EXACT, share
    assert np.all(kernel.cost(np.full(len(shares), 4.0)) == 0.0)


@matrix(signalled=[False, True], name=CASES, every=4)
def test_inverse_marginal_is_the_inverse(name: str, signalled: bool) -> None:
    objective = ExpectedPenalty(CASES[name][0])
    rates = np.concatenate([np.logspace(-12.0, -0.01, 40), [] if signalled else np.logspace(0.1, 6.0, 20)])
    sources = fo.Sources(np.ones(len(rates)))
    kernel = objective.signalled_kernel(sources) if signalled else objective.kernel(sources)
    prices = kernel.marginal(rates)
    sensible = prices > 1e-280
    back = kernel.inverse_marginal(np.where(sensible, prices, 1.0))
    assert np.all(np.abs(kernel.marginal(back) - prices)[sensible] <= EXACT * prices[sensible])
    further = kernel.marginal(np.minimum(rates * 1.01, 1.0 if signalled else np.inf))
    curved = sensible & (further < 0.9999 * prices)
    assert np.all(np.abs(back - rates)[curved] <= 1e-10 * rates[curved])


def test_prices_beyond_all_marginals() -> None:
    sources = fo.Sources([1.0, 2.0])
    bounded = ExpectedPenalty(lambda m: np.minimum(m, 3.0))  # J'(0) = −6/Δ, on signal J'(Δ) = −1/Δ
    assert np.array_equal(bounded.kernel(sources).inverse_marginal(np.array([6.001, 3.001])), np.zeros(2))
    assert np.all(bounded.kernel(sources).inverse_marginal(np.array([5.999, 2.999])) > 0.0)
    assert np.array_equal(
        bounded.signalled_kernel(sources).inverse_marginal(np.array([0.999, 0.499])), [1.0, 2.0]
    )
    assert np.all(bounded.signalled_kernel(sources).inverse_marginal(np.array([1.001, 0.501])) < [1.0, 2.0])
    assert np.all(bounded.kernel(sources).inverse_marginal(np.zeros(2)) == np.inf)


def test_never_refreshed_costs_the_largest_penalty() -> None:
    zero, sources = np.zeros(1), fo.Sources([2.0])
    assert ExpectedPenalty(lambda m: np.minimum(m, 3.0)).kernel(sources).cost(zero)[0] == 3.0
    assert ExpectedPenalty(lambda m: np.minimum(m, 3.0)).kernel(sources).marginal(zero)[0] == 3.0
    assert ExpectedPenalty(np.log1p).kernel(sources).cost(zero)[0] == np.inf
    assert ExpectedPenalty(np.log1p).kernel(sources).marginal(zero)[0] == np.inf
    saturating = ExpectedPenalty(lambda m: m / (m + 1.0)).kernel(sources)
    assert saturating.cost(zero)[0] == pytest.approx(1.0, rel=EXACT)


@pytest.mark.exhaustive
def test_it_is_the_named_objectives_where_it_coincides_with_them() -> None:
    rng = np.random.default_rng(0)
    d, w = 10.0 ** rng.uniform(-6.0, 6.0, 60), 10.0 ** rng.uniform(-6.0, 6.0, 60)
    for signalled in (False, rng.random(60) < 0.5):
        sources = fo.Sources(d, w, signalled=signalled)
        for penalty, named in (
            (harmonic_number, HARMONIC),
            (lambda m: m, DELAY),
            (lambda m: 1.0 * (m >= 1), BINARY),
        ):
            ours = fo.solve(fo.Problem(ExpectedPenalty(penalty), sources, 1e3), tolerance=SCALAR)
            theirs = fo.solve(fo.Problem(named, sources, 1e3), tolerance=SCALAR)
            value = float(np.sum(w)) - theirs.value if isinstance(named, BinaryFreshness) else theirs.value
            slack = 1e-15 * float(np.sum(w)) * isinstance(named, BinaryFreshness)
            assert abs(ours.value - value) <= 10 * EXACT * value + slack


@pytest.mark.parametrize(
    ("name", "seed"), stratified(["square", "three at most", "hundred free"], range(4), every=2)
)
@pytest.mark.sampled(5)
def test_optimum_is_that_of_brute_force(name: str, seed: int) -> None:
    rng, n = np.random.default_rng(seed), 8
    spread = (1.0, 1.0, 3.0, 5.0)[seed]
    d, w = 10.0 ** rng.uniform(-spread, spread, n), 10.0 ** rng.uniform(-spread, spread, n)
    signalled = rng.random(n) < (0.0, 0.5, 0.5, 0.0)[seed]
    bandwidth = float(0.3 * d.sum())
    lower = np.where(rng.random(n) < 0.3, 0.01 * np.minimum(d, bandwidth / n), 0.0)
    upper = np.where(signalled, d, np.where(rng.random(n) < 0.3, 0.1 * bandwidth, np.inf))
    host = np.where(np.arange(n) < 3, 0, -1)
    sources = fo.Sources(d, w, min_rate=lower, max_rate=upper, host=host, signalled=signalled)
    problem = fo.Problem(ExpectedPenalty(CASES[name][0]), sources, bandwidth, {0: 0.1 * bandwidth})
    solution = fo.solve(problem, tolerance=SCALAR)

    def share(r: Floats) -> tuple[Floats, Floats, Floats]:
        """p, dp/dρ and q = 1 − p, of either discipline."""
        x = r / d
        return (
            np.where(signalled, np.minimum(x, 1.0), x / (1 + x)),
            np.where(signalled, 1.0, (1 + x) ** -2.0) / d,
            np.where(signalled, np.maximum(1.0 - x, 0.0), 1 / (1 + x)),
        )

    def marginal(r: Floats) -> Floats:
        p, dp, q = share(r)
        each = {
            "square": (1 + 3 * q) / p**3,
            "three at most": 1 + 2 * q + 3 * q * q,
            "hundred free": q**100 * (101 / p + q / p**2),
        }[name]
        return np.asarray(w * each * dp)

    def cost(r: Floats) -> float:
        p, _, q = share(np.maximum(r, 1e-100))
        each = {
            "square": q * (1 + q) / p**2,
            "three at most": q + q**2 + q**3,
            "hundred free": q**101 / p,
        }[name]
        return float(np.sum(w * each))

    best = market(
        marginal, bandwidth, n, lower=lower, upper=upper, host=host, limits=[0.1 * bandwidth]
    ).optimum()
    assert present(solution.certificate).relative_gap <= SCALAR
    assert abs(solution.value - cost(best)) <= SCALAR * (cost(best) + solution.price * bandwidth)


@pytest.mark.parametrize(("name", "stated"), [("count", 4e-8), ("square", 4e-7), ("fourth power", 1e-5)])
def test_declared_sum_is_as_accurate_as_stated(name: str, stated: float) -> None:
    """For ρ/Δ ≥ smallest_ratio; and the numerics derived from it have its marginal."""
    for smallest in (1e-2, 1e-4):
        objective = ExpectedPenalty(CASES[name][0], smallest_ratio=smallest)
        rates = np.geomspace(smallest, 1e3, 200)
        sources = fo.Sources(np.ones(200))
        rate = cp.Variable(200, nonneg=True)
        expression = objective.per_source(rate, sources)
        assert expression.is_convex()
        derived = DerivedNumerics(compile_expression(expression, rate), 1.0, np.ones(200))
        kernel = objective.kernel(sources)
        assert np.all(np.abs(derived.cost(rates) / kernel.cost(rates) - 1.0) <= stated)
        assert np.all(np.abs(derived.marginal(rates) / kernel.marginal(rates) - 1.0) <= 10 * stated)


def test_declared_sum_starts_where_the_sources_start() -> None:
    """A min_rate makes nodes superfluous, none of them needed above it."""
    objective = ExpectedPenalty(lambda m: m)
    rate = cp.Variable(2, nonneg=True)
    rate.value = np.array([1.0, 2.0])
    long, short = (
        objective.per_source(rate, fo.Sources([1.0, 2.0], min_rate=least)) for least in (0.0, [1.0, 2.0])
    )
    assert len(str(short)) < 0.5 * len(str(long))
    assert np.allclose(short.value, 1.0, rtol=CONIC)


@pytest.mark.parametrize("signalled", [False, [True, False, True]])
def test_declared_problem_has_the_optimum_of_the_kernel(signalled: bool | list[bool]) -> None:
    sources = fo.Sources([1.0, 3.0, 0.5], [1.0, 2.0, 4.0], signalled=signalled)
    problem = fo.Problem(ExpectedPenalty(lambda m: np.minimum(m, 5.0)), sources, bandwidth=1.5)
    declared = float(problem.to_cvxpy().solve(solver="CLARABEL"))
    assert abs(declared - fo.solve(problem).value) <= CONIC * declared


def test_irregular_penalties_are_summed_term_by_term() -> None:
    """Σ q^{10k} = q^10/(1 − q^10) for C(m) = ⌊m/10⌋, as far down as the docstring says."""
    ratios = np.array([1.1e-5, 1e-4, 1e-3, 0.1, 1.0])
    kernel = ExpectedPenalty(lambda m: m // 10).kernel(fo.Sources(np.ones(5)))
    exact = [1 / mp.expm1(10 * mp.log1p(mp.mpf(x))) for x in ratios]
    assert np.all(np.abs(kernel.cost(ratios) / np.array(exact, dtype=float) - 1.0) <= EXACT)


@pytest.mark.exhaustive
def test_thousands_of_steps_are_found() -> None:
    """C(m) = ⌊√m⌋ steps at the squares: Σ q^{k²}."""
    ratios = np.array([3e-9, 1e-7])
    kernel = ExpectedPenalty(lambda m: np.floor(np.sqrt(m))).kernel(fo.Sources(np.ones(2)))
    for ratio, found in zip(ratios, kernel.cost(ratios), strict=True):
        k = np.arange(1.0, 150_000.0)
        assert abs(found / np.sum(np.exp(-k * k * np.log1p(ratio))) - 1.0) <= EXACT


def refusal(penalty: Penalty, change_rate: Any = 1.0, bandwidth: float = 1.0, **columns: Any) -> str:  # noqa: ANN401
    with pytest.raises(fo.ObjectiveError) as error:
        fo.solve(fo.Problem(ExpectedPenalty(penalty), fo.Sources(change_rate, **columns), bandwidth))
    return str(error.value)


def test_functions_that_are_no_penalties() -> None:
    assert "penalty of no missed change is 1. It must be 0" in refusal(lambda m: m + 1.0)
    assert "falls to -0.756802 at 4 missed changes, from 0.909297" in refusal(np.sin)
    assert "falls to 2 at" in refusal(lambda m: np.where(m == 40_000, 2.0, np.sqrt(m)), 1e6)
    assert "0 for any number of missed changes" in refusal(lambda m: 0.0 * m)
    assert "penalty of 4 missed changes is nan" in refusal(lambda m: np.where(m < 3, m, np.nan))
    assert "penalty of 3 missed changes is infinite" in refusal(lambda m: np.where(m < 3, 0.0, np.inf))
    assert "returned shape () for 1 numbers" in refusal(lambda m: np.zeros(()))  # noqa: ARG005
    refused(r"penalty 3 is not a function of m", ExpectedPenalty, 3, error=fo.ObjectiveError)
    with pytest.raises(fo.ObjectiveError, match=r"nodes=0 and smallest_ratio=0.01 must be > 0"):
        ExpectedPenalty(np.sqrt, nodes=0)


def test_sums_that_do_not_converge_are_refused_by_name() -> None:
    text = refusal(np.expm1, [1.0, 8.0], 10.0, names=["a", "b"])
    assert "cannot be summed at the refreshes per change of 'b':" in text
    assert "grows too fast" in text
    assert "Raise min_rate" in text
    assert "source 1: 5e-31" in refusal(np.sqrt, [1.0, 1e30])


def test_irregular_sums_that_are_too_long_are_refused_unless_min_rate_keeps_clear() -> None:
    penalty = ExpectedPenalty(lambda m: m // 10)
    with pytest.raises(
        fo.ObjectiveError, match=r"of source 1: .* too many irregular steps beyond m = 4\.19e\+06"
    ):
        fo.solve(fo.Problem(penalty, fo.Sources([1.0, 1e9]), bandwidth=10.0))
    kept = fo.Sources([1.0, 1e9], min_rate=[0.0, 2e4])
    assert fo.solve(fo.Problem(penalty, kept, bandwidth=3e4), tolerance=SCALAR).status is fo.Status.OPTIMAL
    unimportant = fo.Sources([1.0, 1e9], importance=[1.0, 0.0])
    assert fo.solve(fo.Problem(penalty, unimportant, bandwidth=10.0)).rates[1] == 0.0


def test_disciplines_that_are_refused() -> None:
    refusals = {
        fo.Refresh.PERIODIC: "no periodic cell of its own",
        fo.Refresh.ON_SIGNAL: "is a property of sources",
    }
    for refresh, reason in refusals.items():
        with pytest.raises(fo.ObjectiveError, match=reason):
            fo.Problem(ExpectedPenalty(np.sqrt, refresh), fo.Sources([1.0]), bandwidth=1.0)


def test_declarations_print_the_name_of_the_penalty() -> None:
    assert (
        repr(ExpectedPenalty(harmonic_number)) == "ExpectedPenalty(harmonic_number, refresh=Refresh.POISSON)"
    )


def test_gauss_quadrature_has_the_moments_of_its_measure() -> None:
    rng = np.random.default_rng(1)
    points, masses = np.sort(rng.uniform(1.0, 2.0, 500)), rng.exponential(size=500)
    nodes, weights = gauss(points, masses, 6)
    assert len(nodes) == 6
    assert np.all((nodes > 1.0) & (nodes < 2.0) & (weights > 0.0))
    for k in range(12):
        assert np.sum(weights * nodes**k) == pytest.approx(np.sum(masses * points**k), rel=EXACT)
    few = gauss(np.repeat([1.0, 4.0], 20), np.ones(40), 12)  # forty points in two places
    assert np.allclose(few.nodes, [1.0, 4.0])
    assert np.allclose(few.weights, [20.0, 20.0])


def test_sums_are_positive_and_complete_for_every_theta() -> None:
    increments = PenaltyIncrements(np.sqrt)
    theta = np.logspace(-16.0, 3.0, 2000)
    sums = increments.sums(theta)
    assert np.all(sums.known)
    assert np.all(np.diff(np.log(sums.zeroth) - theta) < 0.0)  # Σ d e^{−jθ} falls, also where octaves change


@matrix(name=CASES, every=3)
def test_tables_for_many_sources_are_the_sums(name: str) -> None:
    few = RATIOS[::6]
    ratios = np.tile(few, 1 + MANY // len(few))
    d = np.geomspace(1e-5, 1e5, len(ratios))
    kernel = ExpectedPenalty(CASES[name][0]).kernel(fo.Sources(d))
    rates = ratios * d
    cost, marginal = kernel.cost(rates), kernel.marginal(rates)
    for k, ratio in enumerate(few):
        expected = poisson(name, float(rates[k] / d[k]))
        if expected > 1e-250:
            assert abs(cost[k] / expected - 1) <= EXACT, ratio
            worth = slope(lambda x: poisson(name, x), float(rates[k] / d[k])) / d[k]
            assert abs(marginal[k] / worth - 1) <= EXACT, ratio
    sensible = (marginal > 1e-280) & (marginal < 1e280)
    back = kernel.inverse_marginal(np.where(sensible, marginal, 1.0))
    assert np.all(np.abs(kernel.marginal(back) - marginal)[sensible] <= EXACT * marginal[sensible])


@matrix(seed=range(3), every=3)
def test_certificates_by_tables_bound_the_true_gap(seed: int) -> None:
    # Without bounds the least Σ wΔ/ρ is (Σ √(wΔ))²/B.
    rng = np.random.default_rng(seed)
    n = 2 * MANY
    d, w = 10.0 ** rng.uniform(-6, 4, n), 10.0 ** rng.uniform(-6, 6, n)
    bandwidth = float(np.sum(d)) * 10.0 ** rng.uniform(-3, 1)
    problem = fo.Problem(ExpectedPenalty(lambda m: m), fo.Sources(d, w), bandwidth)
    roots = np.sqrt(np.longdouble(w) * np.longdouble(d))
    least = np.sum(roots) ** 2 / np.longdouble(bandwidth)
    best = roots / np.sum(roots)
    price = float((np.sum(roots) / np.longdouble(bandwidth)) ** 2)
    for size in (1e-12, 1e-6, 1e-2, 1.0):
        shares = best * np.exp(np.longdouble(size * rng.standard_normal(n)))
        rates = np.asarray(shares / np.sum(shares) * bandwidth * (1 - 1e-15), dtype=np.float64)
        paid = np.sum(np.longdouble(w) * np.longdouble(d) / np.longdouble(rates))
        certificate = fo.certify(problem, rates, price * (1.0 + 0.1 * size))
        # The slack is a difference of float64 sums: half an ulp of the bandwidth, at its price.
        unresolved = 0.5 * price * float(np.spacing(bandwidth))
        assert certificate.gap >= float(paid - least) * (1.0 - EXACT) - unresolved
    solution = fo.solve(problem)
    assert present(solution.certificate).relative_gap < EXACT
    assert solution.value == pytest.approx(float(least), rel=EXACT)
