"""Cost curves against their definitions: c, mean, index, inverse index, the Poisson and on-signal cells."""

import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

import freshopt as fo
from freshopt import Refresh, Sources
from freshopt.autodiff.compiler import compile_expression
from freshopt.cvx import cp
from freshopt.modelling.cost_curve import Curve
from freshopt.modelling.objective import Objective
from freshopt.problems import Age, BinaryCost, PiecewiseLinearCost, PowerCost, SynchronizationCost
from freshopt.problems.age import _mixture
from freshopt.problems.synchronization_cost import AgeCost
from freshopt.separable.derived_kernel import DerivedNumerics
from tests.ground_truth import cost_truth as truth
from tests.ground_truth.cost_truth import Floats, mp
from tests.ground_truth.named import AGE, AGE_PERIODIC, present
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix, rare
from tests.ground_truth.tolerances import CONIC, EXACT

AGES = np.logspace(-8.0, 8.0, 13) * 1.3  # none of them on a kink
SLOPES, KINKS = [0.0, 1.0, 3.0], [2.0, 5.0]
INTERCEPTS = [0.0, -2.0, -12.0]  # the lines meet at the kinks


def curve_of(change_rate: float, cost: AgeCost) -> Curve:
    return cost.curve(Sources(np.full(len(AGES), change_rate)))


def age_curve(change_rate: float) -> Curve:
    return AGE.curve(Sources(np.full(len(AGES), change_rate)))


CURVES: dict[str, tuple[Curve, truth.AgeCost]] = {
    "square root": (curve_of(1.0, PowerCost(2.0, 0.5)), truth.power(2.0, 0.5)),
    "quadratic": (curve_of(1.0, PowerCost(0.3, 2.0)), truth.power(0.3, 2.0)),
    "capped root": (curve_of(1.0, PowerCost(2.0, 0.5, 3.0)), truth.power(2.0, 0.5, 3.0)),
    "capped power": (curve_of(1.0, PowerCost(1.0, 1.7, 0.5)), truth.power(1.0, 1.7, 0.5)),
    "binary": (curve_of(0.7, BinaryCost()), truth.binary(0.7)),
    "age": (age_curve(0.7), truth.age(0.7)),
    "steps": (curve_of(1.0, PiecewiseLinearCost(SLOPES, INTERCEPTS)), truth.piecewise(SLOPES, KINKS)),
}
WITH_POISSON = [name for name in CURVES if name != "steps"]


def of(curve: Curve, formula: Callable[..., Floats], x: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(formula(x, *curve.parameters))


def close(found: npt.ArrayLike, expected: list[object], tolerance: float = EXACT) -> bool:
    exact = np.array([float(x) for x in expected])  # type: ignore[arg-type]
    return bool(np.all(np.abs(np.asarray(found) - exact) <= tolerance * np.abs(exact)))


@pytest.mark.parametrize("name", CURVES)
def test_cost_of_age_is_its_definition(name: str) -> None:
    curve, exact = CURVES[name]
    assert close(of(curve, curve.at, AGES), [exact.at(mp.mpf(s)) for s in AGES])


@matrix(name=CURVES, every=2)
def test_mean_is_the_integral_over_a_period(name: str) -> None:
    curve, exact = CURVES[name]
    integral = [exact.integral(s) for s in AGES]
    assert close(of(curve, curve.mean, AGES), [c / s for c, s in zip(integral, AGES, strict=True)])
    assert close(curve.gap_cost(AGES), integral)
    assert np.all(curve.gap_cost(np.zeros(len(AGES))) == 0.0)


@matrix(name=CURVES, every=2)
def test_index_is_age_times_cost_less_the_integral(name: str) -> None:
    curve, exact = CURVES[name]
    assert close(of(curve, curve.index, AGES), [exact.index(s) for s in AGES])


@pytest.mark.parametrize("name", CURVES)
def test_index_rises_by_age_times_the_rise_of_cost(name: str) -> None:
    """V' = s·c': between two ages V rises by ∫s dc, which lies between the two ages times c's rise."""
    curve, _ = CURVES[name]
    for low, high in ((s, s * 1.01) for s in np.logspace(-6.0, 6.0, 200)):
        ages = np.full(len(AGES), low)
        ages[1] = high
        c, v = of(curve, curve.at, ages), of(curve, curve.index, ages)
        rise, slack = c[1] - c[0], 1e-14 * v[1] + 1e-14 * high * c[1]
        assert low * rise - slack <= v[1] - v[0] <= high * rise + slack


@matrix(name=CURVES, every=3)
def test_inverse_index_solves_its_equation(name: str) -> None:
    """A smooth curve's index returns the price; at a jump of the index the price lies within the jump."""
    curve, exact = CURVES[name]
    top = float(np.max(of(curve, curve.index, np.full(len(AGES), 1e40))))
    prices = np.logspace(-13.0, 0.0, len(AGES)) * min(top, 1e7) * 0.99
    periods = of(curve, curve.inverse_index, prices)
    for price, period in zip(prices, periods, strict=True):
        below, above = exact.index(period * (1 - 1e-13)), exact.index(period * (1 + 1e-13))
        assert below * (1 - EXACT) <= price <= above * (1 + EXACT)


@pytest.mark.parametrize(
    "name", [name for name in CURVES if name in ("capped root", "capped power", "binary")]
)
def test_no_period_is_long_enough_for_a_price_above_the_index(name: str) -> None:
    curve, _ = CURVES[name]
    top = of(curve, curve.index, np.full(len(AGES), 1e40))
    assert np.all(of(curve, curve.inverse_index, top * 1.001) == np.inf)


@matrix(name=WITH_POISSON, every=5)
def test_poisson_cell_is_the_mean_over_exponential_ages(name: str) -> None:
    curve, exact = CURVES[name]
    kernel = curve.kernel(np.ones(len(AGES)), Refresh.POISSON)
    rates = 1.0 / AGES
    assert close(kernel.cost(rates), [exact.poisson(r) for r in rates])
    assert close(kernel.marginal(rates), [exact.poisson_marginal(r) for r in rates])


@pytest.mark.parametrize("name", WITH_POISSON)
def test_poisson_inverse_is_the_inverse(name: str) -> None:
    curve, _ = CURVES[name]
    kernel = curve.kernel(np.ones(len(AGES)), Refresh.POISSON)
    rates = np.logspace(-4.0, 8.0, len(AGES))
    prices = kernel.marginal(rates)
    found = kernel.inverse_marginal(prices)
    steep = prices < 0.999 * kernel.marginal(np.full(len(AGES), 1e-12))
    assert np.all(np.abs(found - rates)[steep] <= 1e-11 * rates[steep])  # flat by up to 1000 at the top
    assert np.all(np.abs(kernel.marginal(found) - prices) <= EXACT * prices)


def test_poisson_prices_above_the_largest_marginal_buy_nothing() -> None:
    for name in ("capped root", "capped power", "binary"):
        curve, _ = CURVES[name]
        kernel = curve.kernel(np.ones(len(AGES)), Refresh.POISSON)
        most = kernel.marginal(np.full(len(AGES), 1e-30))
        assert np.all(kernel.inverse_marginal(most * 1.001) == 0.0)


def test_periodic_cell_is_the_mean_and_the_index_at_the_period() -> None:
    for curve, _ in CURVES.values():
        cell = curve.cell(Refresh.PERIODIC)
        assert np.array_equal(of(curve, cell.cost, 1.0 / AGES), of(curve, curve.mean, 1.0 / (1.0 / AGES)))
        assert np.array_equal(
            of(curve, cell.marginal, 1.0 / AGES), of(curve, curve.index, 1.0 / (1.0 / AGES))
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("change_rate", [1e-6, 0.7, 1e6])
def test_age_on_signal_is_the_age_of_the_first_signal_not_followed(change_rate: float) -> None:
    """After a refresh, signals not followed come at rate (1−p)Δ, until one that is, at rate pΔ."""
    shares = np.array([1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999])
    curve = AGE.curve(Sources(np.full(len(shares), change_rate)))
    cell = curve.cell(Refresh.ON_SIGNAL)
    for share, found in zip(shares, of(curve, cell.cost, shares * change_rate), strict=True):
        unheeded = truth.age(float((1 - mp.mpf(share)) * change_rate))
        assert (
            abs(found - float(unheeded.poisson(share * change_rate))) <= 1e-12 / change_rate + EXACT * found
        )
    worth = of(curve, cell.marginal, shares * change_rate)
    assert np.allclose(worth, (shares * change_rate) ** -2.0, rtol=EXACT, atol=0.0)
    assert np.allclose(of(curve, cell.inverse, worth), shares * change_rate, rtol=EXACT, atol=0.0)
    assert np.all(of(curve, cell.inverse, np.full(7, 0.1 * change_rate**-2.0)) == change_rate)


def test_taking_some_sources_takes_their_parameters() -> None:
    sources = Sources([1.0, 2.0, 3.0])
    some = np.array([2, 0])
    costs: list[AgeCost] = [
        PowerCost([1.0, 2.0, 3.0], 0.5, [1.0, np.inf, 2.0]),
        PiecewiseLinearCost([[0.0, 1.0], [0.0, 2.0], [1.0, 2.0]], [[0.0, -1.0]] * 3),
        BinaryCost(),
    ]
    rate = np.array([0.3, 4.0])
    for cost in costs:
        objective = SynchronizationCost(cost)
        whole = objective.kernel(sources).take(some)
        assert np.array_equal(objective.take(some).kernel(sources.take(some)).cost(rate), whole.cost(rate))


def declared_value(objective: Objective, sources: Sources, rates: Floats) -> float:
    rate = cp.Variable(len(sources), nonneg=True)
    declared = objective.per_source(rate, sources)
    expression, constraints = declared if isinstance(declared, tuple) else (declared, [])
    problem = cp.Problem(cp.Minimize(cp.sum(expression)), [*constraints, rate == rates])
    precise = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    with warnings.catch_warnings():  # the value itself is compared
        warnings.filterwarnings("ignore", message="Solution may be inaccurate", category=UserWarning)
        return float(problem.solve(solver="CLARABEL", **precise))


DECLARED: list[tuple[Objective, float]] = [
    (SynchronizationCost(PowerCost([1.0, 2.0, 0.5, 3.0], [0.5, 2.0, 1.0, 0.3])), CONIC),
    (SynchronizationCost(PowerCost([1.0, 2.0, 0.5, 3.0], [0.5, 2.0, 1.0, 0.3]), Refresh.POISSON), CONIC),
    (SynchronizationCost(PowerCost([1.0, 2.0, 0.5, 3.0], [0.5, 2.0, 1.0, 0.3], 1.5)), CONIC),
    (SynchronizationCost(PowerCost(1.0, [0.5, 2.0, 1.0, 0.3], [np.inf, 0.2, 9.0, np.inf])), CONIC),
    (SynchronizationCost(PowerCost([1.0, 2.0, 0.5, 3.0], [0.5, 2.0, 1.0, 0.3], 1.5), Refresh.POISSON), CONIC),
    (
        SynchronizationCost(
            PowerCost(1.0, [0.5, 2.0, 1.0, 0.3], [np.inf, 0.2, 9.0, np.inf]), Refresh.POISSON
        ),
        CONIC,
    ),
    (SynchronizationCost(BinaryCost()), CONIC),
    (SynchronizationCost(BinaryCost(), Refresh.POISSON), CONIC),
    (SynchronizationCost(PiecewiseLinearCost(SLOPES, INTERCEPTS)), CONIC),
    (SynchronizationCost(PiecewiseLinearCost([0.4], [0.0])), CONIC),
    (AGE, CONIC),
    (AGE_PERIODIC, 8e-3),
    (Age(Refresh.PERIODIC, nodes=4), 9e-4),
]


@pytest.mark.parametrize(("objective", "tolerance"), DECLARED)
@pytest.mark.sampled(4)
def test_declared_form_at_fixed_rates_is_the_kernel(objective: Objective, tolerance: float) -> None:
    sources = Sources([0.1, 0.7, 3.0, 1.5], importance=[1.0, 0.4, 2.0, 0.0])
    kernel = present(objective.kernel(sources))
    for rates in (np.array([0.05, 0.3, 1.1, 0.7]), np.array([0.6, 2.5, 0.2, 4.0])):
        expected = float(np.sum(kernel.cost(rates)))
        assert abs(declared_value(objective, sources, rates) - expected) <= tolerance * expected


def test_age_keeps_the_accuracy_stated_for_its_nodes() -> None:
    """Up to 8e-3 with 2 nodes and 9e-4 with 4, for u from 1e-3 to 1e3: the mixture summed in NumPy."""
    for u in np.logspace(-3.0, 3.0, 200):
        kernel = AGE_PERIODIC.kernel(Sources(u))
        exact = float(kernel.cost(np.ones(1))[0])
        for nodes, stated in ((2, 8e-3), (4, 9e-4)):
            z, weight = _mixture(nodes)
            hinge = np.maximum(0.0, 1.0 - z / u) ** 2 * u
            assert abs(0.5 * float(np.sum(weight * hinge)) / u - exact) <= stated * exact


@pytest.mark.parametrize("every", [4, *rare(1)])
@pytest.mark.parametrize(
    ("exponent", "cost", "slope"),
    [(0.1, 1e-9, 1e-8), (1.0, 1e-9, 1e-8), (3.0, 4e-8, 2e-7), (5.0, 6e-7, 1e-6)],
)
@pytest.mark.sampled(4)
def test_capped_poisson_declaration_keeps_the_accuracy_stated(
    exponent: float, cost: float, slope: float, every: int
) -> None:
    """At every rate: far below 1/t0, across it, and where the cap is not felt; against E c(age)."""
    a, cap = 2.0, 3.0
    t0 = (cap / a) ** (1.0 / exponent)
    rates = np.concatenate([np.logspace(-6.0, 6.0, 7), np.logspace(0.5, 3.0, 16)])[::every] / t0
    objective = SynchronizationCost(PowerCost(a, exponent, cap), Refresh.POISSON)
    rate = cp.Variable(len(rates), nonneg=True)
    expression = objective.per_source(rate, Sources(np.ones(len(rates))))
    assert expression.is_convex()
    derived = DerivedNumerics(compile_expression(expression, rate), 1.0, np.ones(len(rates)))
    exact = truth.power(a, exponent, cap)
    assert close(derived.cost(rates), [exact.poisson(r) for r in rates], cost)
    assert close(derived.marginal(rates), [exact.poisson_marginal(r) for r in rates], slope)
    assert np.all(np.abs(derived.cost(np.zeros(len(rates))) - cap) <= cost * cap)


def test_capped_poisson_inverse_at_prices_of_any_size() -> None:
    """Some steps at least are needed where the marginal is flat, and none of them may go astray."""
    rng = np.random.default_rng(3)
    n = 3000
    a, exponent = 10.0 ** rng.uniform(-6.0, 6.0, n), rng.uniform(0.1, 5.0, n)
    cap = a * 10.0 ** (exponent * rng.uniform(-8.0, 8.0, n))
    kernel = SynchronizationCost(PowerCost(a, exponent, cap), Refresh.POISSON).kernel(Sources(np.ones(n)))
    t0 = (cap / a) ** (1.0 / exponent)
    prices = kernel.marginal(10.0 ** rng.uniform(-9.0, 6.0, n) / t0)
    assert np.all(np.abs(kernel.marginal(kernel.inverse_marginal(prices)) - prices) <= EXACT * prices)
    slope = cap * t0 * exponent / (exponent + 1.0)
    for price in 10.0 ** np.array([-290.0, -100.0, -30.0, 0.0, 30.0, 290.0]):
        rates = kernel.inverse_marginal(np.full(n, price))
        assert np.array_equal(rates == 0.0, price >= slope)
        inside = (rates > 0.0) & (price > 1e-200)  # the marginal of a rate of 1e200 is no normal float
        assert np.all(np.abs(kernel.marginal(rates) - price)[inside] <= EXACT * price)


def test_a_cap_that_is_never_reached_is_none() -> None:
    """(U/a)^{1/e} = 1e400 is no number of days."""
    far, none = PowerCost(1.0, 0.1, 1e40), PowerCost(1.0, 0.1)
    rates = np.logspace(-3.0, 3.0, 7)
    for refresh in (Refresh.POISSON, Refresh.PERIODIC):
        kernels = [SynchronizationCost(cost, refresh).kernel(Sources(np.ones(7))) for cost in (far, none)]
        assert np.array_equal(kernels[0].cost(rates), kernels[1].cost(rates))
        assert np.array_equal(kernels[0].inverse_marginal(rates), kernels[1].inverse_marginal(rates))


def test_lines_that_are_changed_are_read_anew() -> None:
    slopes, starts, sources = [0.0, 1.0], [0.0, -2.0], Sources([1.0, 1.0], request_rate=2.0)
    cost = PiecewiseLinearCost(slopes, starts)
    for refresh in (Refresh.PERIODIC, Refresh.ON_REQUEST):
        objective = SynchronizationCost(cost, refresh)
        slopes[1] = 1.0
        before = fo.solve(fo.Problem(objective, sources, bandwidth=0.25)).value
        slopes[1] = 2.0
        assert fo.solve(fo.Problem(objective, sources, bandwidth=0.25)).value > 1.5 * before > 0.0
        slopes[1] = -1.0
        refused("slopes must be finite and >= 0", fo.Problem, objective, sources, bandwidth=0.25)
        slopes[1] = 1.0
