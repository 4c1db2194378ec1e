"""Derived numerics of every named objective against kernel and mpmath, and at work in users' objectives."""

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import freshopt as fo
from freshopt.autodiff.compiler import Jet, Node, compile_expression
from freshopt.cvx import cp
from freshopt.modelling.declaration import declare
from freshopt.separable.derived_kernel import PIECE, DerivedNumerics
from freshopt.solvers import Auto, Conic, WaterFilling
from tests.contracts import discovery
from tests.ground_truth.named import BINARY_PERIODIC, HARMONIC, present, written
from tests.ground_truth.own_objectives import AlphaFair
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR
from tests.ground_truth.unknown_atom import stranger

mp = mpmath.MPContext()
mp.dps = 50

OBJECTIVES = discovery.objectives()
RATIOS = np.logspace(-6.0, 6.0, 61)  # ρ/Δ
D = np.logspace(-3.0, 3.0, 61)[np.random.default_rng(1).permutation(61)]
W = np.linspace(0.5, 2.0, 61)
# Declared forms that are sums for part of the range: their stated relative error, and where it holds.
APPROXIMATE = {"ExpectedPenalty": (4e-8, 1e-2, 1e3)}


# Request rates, above all rates, from one per cent to a thousand times.
ASKED = RATIOS * D * np.geomspace(1.01, 1e3, 61)


def suited(objective: fo.Objective, chosen: Any = slice(None)) -> fo.Sources:  # noqa: ANN401 - an index
    """Return some of the 61 sources, with the request rates that the objective needs."""
    asked = ASKED[chosen] if objective.refresh is fo.Refresh.ON_REQUEST else None
    return fo.Sources(D[chosen], importance=W[chosen], request_rate=asked)


def derived(objective: fo.Objective, sources: fo.Sources, *, signalled: bool) -> DerivedNumerics | None:
    """Return the numerics compiled from the declaration alone, None where it has auxiliary variables."""
    rate = cp.Variable(len(sources), nonneg=True)
    method = objective.signalled_per_source if signalled else objective.per_source
    declaration = declare(objective, method, rate, sources)
    if declaration.constraints:
        return None
    sign = 1.0 if objective.sense == "minimise" else -1.0
    return DerivedNumerics(compile_expression(declaration.expression, rate), sign, sources.change_rate)


def declared_exactly() -> dict[str, tuple[fo.Objective, bool]]:
    """Every named objective and kind of source whose declaration is elementwise, without more variables."""
    found = {}
    for name, objective in OBJECTIVES.items():
        one, source = discovery.sized(objective, 1), suited(objective, slice(1))
        for signalled in (False, True):
            if signalled and objective.refuses_signals() is not None:
                continue
            try:
                (one.signalled_kernel if signalled else one.kernel)(source)
                form = derived(one, source, signalled=signalled)
            except fo.ObjectiveError:  # a discipline that this objective does not have, or does not declare
                continue
            if form is not None:
                found[f"{name}{', on signal' if signalled else ''}"] = (objective, signalled)
    return found


FORMS = declared_exactly()


def test_there_are_forms_of_both_kinds() -> None:
    kinds = {type(objective).__name__ for objective, _ in FORMS.values()}
    assert {"HarmonicStaleness", "BinaryFreshness", "AccumulatedDelay", "Age", "SynchronizationCost"} <= kinds
    assert {signalled for _, signalled in FORMS.values()} == {False, True}


def close(found: Any, expected: Any, tolerance: float, slack: Any = 0.0) -> None:  # noqa: ANN401 - arrays
    worst = np.max((np.abs(found - expected) - slack) / np.maximum(np.abs(expected), 1e-300))
    assert worst <= tolerance, worst


@pytest.mark.parametrize("name", FORMS)
def test_the_declared_form_has_the_kernels_numbers(name: str) -> None:
    objective, signalled = FORMS[name]
    tolerance, least, most = APPROXIMATE.get(type(objective).__name__, (EXACT, 0.0, np.inf))
    chosen = np.clip(RATIOS, least, 1.0 if signalled else most) == RATIOS
    sources = suited(objective, chosen)
    sized = discovery.sized(objective, len(sources))
    kernel = (sized.signalled_kernel if signalled else sized.kernel)(sources)
    numerics = derived(sized, sources, signalled=signalled)
    assert kernel is not None
    rates = RATIOS[chosen] * sources.change_rate
    cost, marginal, _ = present(numerics).jet(rates)
    close(marginal, kernel.marginal(rates), 10.0 * tolerance if tolerance > EXACT else tolerance)
    ones = [sources.take(np.array([k])) for k in range(len(sources))]
    lost = kernel.cost(rates)
    value = np.array([objective.value_from_cost(c, one) for c, one in zip(lost, ones, strict=True)])
    # Where importance minus a share is declared, a value near 0 has the rounding of the importance.
    # Delays of requests are declared as what is left of those of refreshes: terms of the size of Δ/ρ.
    waiting = objective.refresh is fo.Refresh.ON_REQUEST
    rounding = 4.0 * np.finfo(float).eps * sources.importance * (1.0 + waiting * sources.change_rate / rates)
    close(cost if objective.sense == "minimise" else -cost, value, tolerance, rounding)


Exact = Callable[[Any, Any, int], Any]
COSTS: dict[str, Exact] = {  # J(ρ; Δ) of source k, for unit importance; a maximised objective is its negative
    "AccumulatedDelay(refresh=Refresh.POISSON)": lambda r, d, _: d / r,
    "AccumulatedDelay(refresh=Refresh.POISSON), on signal": lambda r, d, _: d / r - 1,
    "AccumulatedDelay(refresh=Refresh.PERIODIC)": lambda r, d, _: d / (2 * r),
    "Age(refresh=Refresh.POISSON, nodes=2)": lambda r, d, _: d / (r * (r + d)),
    "Age(refresh=Refresh.POISSON, nodes=2), on signal": lambda r, d, _: 1 / r - 1 / d,
    "BinaryFreshness(refresh=Refresh.POISSON)": lambda r, d, _: -r / (r + d),
    "BinaryFreshness(refresh=Refresh.POISSON), on signal": lambda r, d, _: -r / d,
    "HarmonicStaleness(refresh=Refresh.POISSON, nodes=16)": lambda r, d, _: mp.log1p(d / r),
    "HarmonicStaleness(refresh=Refresh.POISSON, nodes=16), on signal": lambda r, d, _: mp.log(d / r),
    "SynchronizationCost(cost=BinaryCost(), refresh=Refresh.POISSON)": lambda r, d, _: d / (r + d),
    "SynchronizationCost(cost=PowerCost(scale=<2 values>, exponent=1), refresh=Refresh.PERIODIC)": (
        lambda r, _, k: mp.mpf((1, 8)[k % 2]) / (2 * r)
    ),
    "SynchronizationCost(cost=PiecewiseLinearCost(2 pieces), refresh=Refresh.PERIODIC)": (
        lambda r, _d, _k: max(mp.mpf(0), 1 - 2 * r)
    ),
}


@pytest.mark.parametrize("name", COSTS)
def test_value_slope_and_curvature_of_named_objectives_are_the_derivatives(name: str) -> None:
    objective, signalled = FORMS[name]
    numerics = present(derived(discovery.sized(objective, 61), fo.Sources(D, W), signalled=signalled))
    ratios = np.minimum(RATIOS, 0.99) if signalled else RATIOS
    jet = numerics.jet(ratios * D)
    for k, (ratio, d, w) in enumerate(zip(ratios, D, W, strict=True)):
        rate = mp.mpf(ratio * d)
        for order, found in enumerate((jet.cost, -jet.marginal, jet.curvature)):
            expected = mp.mpf(w) * mp.diff(lambda r, k=k, d=d: COSTS[name](r, mp.mpf(d), k), rate, order)
            rounding = 4 * np.finfo(float).eps * w if order == 0 else 1e-30 * abs(expected) + 1e-40
            assert abs(found[k] - float(expected)) <= EXACT * abs(float(expected)) + rounding, (order, ratio)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.sampled(2)
def test_the_inverse_of_the_derived_marginal_leads_back(name: str) -> None:
    objective, signalled = FORMS[name]
    numerics = present(derived(discovery.sized(objective, 61), suited(objective), signalled=signalled))
    rates = np.minimum(RATIOS, 1.0 if signalled else 1e3) * D
    _, price, curvature = numerics.jet(rates)
    back = numerics.inverse_marginal(price)
    # As far as the price tells rates apart: where the marginal is constant it does not.
    told = curvature * rates > 1e-6 * price
    assert np.all(np.abs(back - rates)[told] <= SCALAR * rates[told])


def test_the_inverse_of_a_smooth_marginal_takes_few_evaluations() -> None:
    """A bracket and a few Newton steps; bisection to the last bit would take sixty."""
    numerics = present(derived(HARMONIC, fo.Sources(D, W), signalled=False))
    counted = Counted(numerics.node)
    price = numerics.marginal(RATIOS * D)
    close(DerivedNumerics(counted, 1.0, D).inverse_marginal(price), RATIOS * D, EXACT)
    assert counted.evaluations <= 20


class Counted:
    """A compiled expression that counts its evaluations."""

    def __init__(self, node: Node) -> None:
        self.node, self.evaluations = node, 0

    def evaluate(self, rate: Any, order: int = 2, side: int = 1) -> Jet:  # noqa: ANN401
        self.evaluations += 1
        return self.node.evaluate(rate, order, side)

    def take(self, index: Any) -> Node:  # noqa: ANN401
        return self.node.take(index)


def test_pieces_are_the_whole() -> None:
    n = 2 * PIECE + 17
    rng = np.random.default_rng(3)
    sources = fo.Sources(rng.lognormal(size=n), rng.lognormal(size=n))
    numerics = present(derived(HARMONIC, sources, signalled=False))
    rates = rng.lognormal(size=n)
    whole = numerics.jet(rates)
    ends = np.array([0, PIECE - 1, PIECE, n - 1])
    part = numerics.take(ends).jet(rates[ends])
    for a, b in zip(whole, part, strict=True):
        assert a.shape == (n,)
        assert np.allclose(
            a[ends], b, rtol=1e-15, atol=0.0
        )  # vectorised and scalar logarithms differ by an ulp
    price = numerics.marginal(rates)
    close(numerics.inverse_marginal(price), rates, SCALAR)
    first = numerics.jet(rates, order=1)
    assert np.array_equal(first.marginal, price)
    assert np.all(np.isnan(first.curvature))


def planted(n: int) -> tuple[fo.Problem, np.ndarray[Any, np.dtype[np.float64]], float]:
    """Choose optimal rates and a price; −d/dρ (1+Δ/ρ)² = 2(1+Δ/ρ)Δ/ρ² gives the importances."""
    rng = np.random.default_rng(n)
    d, rates, price = rng.lognormal(0.0, 1.0, n), rng.lognormal(0.0, 1.0, n), 0.8
    w = price / (2.0 * (1.0 + d / rates) * d / rates**2)
    return fo.Problem(AlphaFair(), fo.Sources(d, w), float(rates.sum())), rates, price


@pytest.mark.parametrize("n", [1, 2, 10, 1000])
def test_a_users_objective_is_solved_and_certified(n: int) -> None:
    problem, rates, price = planted(n)
    solution = fo.solve(problem, Auto(), tolerance=SCALAR)
    assert solution.status is fo.Status.OPTIMAL
    assert np.all(np.abs(solution.rates - rates) <= SCALAR * rates)
    assert abs(solution.price - price) <= SCALAR * price
    value = float(np.sum(problem.sources.importance * (1.0 + problem.sources.change_rate / rates) ** 2))
    assert abs(solution.value - value) <= SCALAR * value


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["CLARABEL", "ECOS", "SCS"])
def test_a_users_objective_by_cone_solvers(backend: Any) -> None:  # noqa: ANN401 - a Literal
    problem, rates, _ = planted(10)
    solution = fo.solve(problem, Conic(backend), tolerance=CONIC)
    assert np.all(np.abs(solution.rates - rates) <= 1e3 * CONIC * rates)  # rates: about the root of the gap


# Maximised log-freshness, log(ρ/(ρ+Δ)), is harmonic staleness with the opposite sign.
LogFreshness = written(
    "LogFreshness",
    lambda rate, sources: (
        -cp.multiply(sources.importance, cp.logistic(np.log(sources.change_rate) - cp.log(rate)))
    ),
    sense="maximise",
)


def test_log_freshness_is_harmonic_staleness_upside_down() -> None:
    sources = fo.Sources([0.1, 1.0, 30.0], importance=[1.0, 2.0, 0.3])
    mine = fo.solve(fo.Problem(LogFreshness(), sources, 2.0), tolerance=SCALAR)
    named = fo.solve(fo.Problem(HARMONIC, sources, 2.0), tolerance=SCALAR)
    assert abs(mine.value + named.value) <= EXACT * named.value
    assert np.all(np.abs(mine.rates - named.rates) <= SCALAR * named.rates)


Strange = written("Strange", lambda rate, _sources: stranger(rate - 5.0))


def test_an_unknown_atom_is_solved_but_not_called_optimal() -> None:
    problem = fo.Problem(Strange(), fo.Sources([1.0, 2.0]), 3.0)
    solution = fo.solve(problem, throw=False)
    assert solution.status is fo.Status.INACCURATE
    assert abs(solution.rates.sum() - 3.0) <= 1e-4
    with pytest.raises(fo.CertificateError, match="stranger") as caught:
        fo.solve(problem)
    assert caught.value.solution.status is fo.Status.INACCURATE
    refused = fo.solve(problem, WaterFilling(), throw=False)
    assert refused.status is fo.Status.REFUSED
    assert "stranger" in refused.note


class EpigraphFreshness(fo.Objective):
    """Periodic binary freshness written by a user: an exponential cone, and the kernel that it asks for."""

    sense = "maximise"
    refresh = fo.Refresh.PERIODIC

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        share = cp.multiply(1.0 / sources.change_rate, rate)
        lost = cp.Variable(len(sources), nonneg=True)
        cone = cp.ExpCone(-np.ones(len(sources)), share, lost)  # lost ≥ share·e^{−1/share}
        return cp.multiply(sources.importance, share - lost), [cone]

    def kernel(self, sources: fo.Sources) -> Any:  # noqa: ANN401
        return BINARY_PERIODIC.kernel(sources)

    def value_from_cost(self, cost: float, sources: fo.Sources) -> float:
        return float(np.sum(sources.importance)) - cost


def test_a_users_cone_form_with_a_kernel_is_solved_both_ways() -> None:
    sources = fo.Sources(
        [0.1, 1.0, 3.0, 50.0], importance=[1.0, 2.0, 0.5, 1.0], max_rate=[np.inf, 0.9, 9.0, 9.0]
    )
    problem = fo.Problem(EpigraphFreshness(), sources, 2.0)
    exact = fo.solve(problem, WaterFilling(), tolerance=SCALAR)
    conic = fo.solve(problem, Conic(), tolerance=CONIC)
    named = fo.solve(fo.Problem(BINARY_PERIODIC, sources, 2.0), tolerance=SCALAR)
    assert exact.value == pytest.approx(named.value, rel=EXACT)
    assert conic.value == pytest.approx(named.value, rel=CONIC)
    assert problem.to_cvxpy().solve() == pytest.approx(named.value, rel=10 * CONIC)


class Entropy(fo.Objective):
    """x·log x − 4x, x = ρ/Δ: the marginal is infinite at rate 0, the cost is not."""

    def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
        x = cp.multiply(1.0 / sources.change_rate, rate)
        return cp.multiply(sources.importance, -cp.entr(x) - 4.0 * x)


@pytest.mark.parametrize("bandwidth", [0.5, 4.0, 12.0])
def test_rates_below_all_floats_are_not_0_where_the_marginal_is_infinite(bandwidth: float) -> None:
    """At the optimum log x = 3 − νΔ/w, which is −1000 and less for the fast source."""
    sources = fo.Sources([1.0, 1e4])
    solution = fo.solve(fo.Problem(Entropy(), sources, bandwidth), WaterFilling())
    x = bandwidth
    assert solution.rates[0] == pytest.approx(x, rel=EXACT)
    assert 0.0 < solution.rates[1] <= 1e-300
    assert solution.value == pytest.approx(x * np.log(x) - 4.0 * x, rel=EXACT)
    assert present(solution.certificate).relative_gap <= EXACT
