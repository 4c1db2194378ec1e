"""Curves and objectives under uncertain change rates, against closed forms, quadrature and brute force."""

import pickle
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.special import betainc, roots_genlaguerre

import freshopt as fo
from freshopt.cvx import cp
from freshopt.modelling.cost_curve import Curve, CurveObjective
from freshopt.solvers import Conic
from tests.ground_truth.named import AGE, BINARY, DELAY, HARMONIC, PERIODIC, POISSON, present, written
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix, rare
from tests.ground_truth.tolerances import CONIC, EXACT

Floats = npt.NDArray[np.float64]
mp = mpmath.mp
NAMED: dict[str, CurveObjective] = {
    "binary": BINARY,
    "harmonic": HARMONIC,
    "delay": DELAY,
    "age": AGE,
    "binary cost": fo.problems.SynchronizationCost(fo.problems.BinaryCost()),
}
# Of shape .7, 1 and 3, exposure 10 and period 25: c, J and V of binary, of harmonic, J and V of age, and the
# Poisson cells of binary and age at rate 1/25, by quadrature to 30 digits.
TABLE = {
    0.7: [0.5839434447939755, 0.3917360757052191, 4.80518422721891, 0.9537506129650241, 0.562014537259805],
    1.0: [0.7142857142857143, 0.4988948126018528, 5.384772542096537, 1.252762968495368, 0.7538681558935152],
    3.0: [0.9766763848396501, 0.8163265306122449, 4.008746355685131, 2.42623235625047, 1.609905825638225],
}
TABLE[0.7] += [9.793401892630478, 3.815971268986668, 149.4357655910952, 0.4745053197813979, 11.86263299453495]
TABLE[1.0] += [12.47237031504632, 4.961318441064848, 187.7762968495368, 0.5808687966175974, 14.52171991543994]
TABLE[3.0] += [20.40816326530612, 8.928571428571429, 286.9897959183673, 0.8464695037294078, 21.16173759323519]


def gamma_rule(shape: float, exposure: float) -> tuple[Floats, Floats]:
    """Return nodes and weights of Gamma(shape, exposure): the trapezium rule in ln Δ."""
    spread = 1.0 / np.sqrt(shape)
    low = -46.0 / min(shape, 10.0) if shape < 10.0 else -12.0 * spread
    high = 4.5 + 3.0 * spread if shape < 10.0 else 12.0 * spread
    t = np.arange(low, high, 0.2 * min(1.0, spread))
    log = shape * t - shape * np.expm1(t) if shape >= 10.0 else shape * t - np.exp(t)
    weight = np.exp(log - np.max(log))
    mean = shape if shape >= 10.0 else 1.0
    return (mean * np.exp(t) / exposure)[None], (weight / weight.sum())[None]


def mixture(name: str, nodes: Floats, weights: Floats) -> Curve:
    return NAMED[name].curve(fo.Sources(np.ones(len(nodes)))).expected(nodes, weights)


def at(curve: Curve, formula: Callable[..., Floats], x: float) -> float:
    return float(formula(np.full(len(curve.parameters[0]), x), *curve.parameters)[0])


def closed_forms(a: float, b: float, s: float) -> tuple[Any, ...]:
    """Return the table's ten numbers: expectations of the costs under Gamma(a, b), period s."""
    mp.dps = 40
    a, b, s = mp.mpf(a), mp.mpf(b), mp.mpf(s)
    z, rate = s / b, 1 / s
    length = mp.log(1 + z)

    def power(x: Any) -> Any:  # noqa: ANN401 - mpmath has no types
        return length if x == 0 else mp.expm1(x * length) / x

    def area(to: Any) -> Any:  # noqa: ANN401
        return to - (mp.log(1 + to) if a == 1 else mp.expm1((1 - a) * mp.log(1 + to)) / (1 - a))

    q, big = 1 - (1 + z) ** -a, area(z)
    v = b * (power(1 - a) - z * (1 + z) ** -a)
    h = mp.quad(lambda x: mp.expm1(-a * x) / mp.expm1(-x), [0, length])
    c_age, v_harmonic = b * big, b * b * big / b
    v_age = b * b * (z * big - mp.quad(area, [0, z]))
    g = mp.exp(b * rate) * mp.expint(a, b * rate)
    binary = [q, q - v / s, v]
    harmonic = [h, h - v_harmonic / s, v_harmonic]
    return (*binary, *harmonic, c_age - v_age / s, v_age, 1 - b * rate * g, 1 / rate - b * g)


def found_forms(nodes: Floats, weights: Floats, s: float) -> list[float]:
    binary, harmonic, age = (mixture(name, nodes, weights) for name in ("binary", "harmonic", "age"))
    return [
        at(binary, binary.at, s),
        at(binary, binary.mean, s),
        at(binary, binary.index, s),
        at(harmonic, harmonic.at, s),
        at(harmonic, harmonic.mean, s),
        at(harmonic, harmonic.index, s),
        at(age, age.mean, s),
        at(age, age.index, s),
        at(binary, present(binary.poisson).cost, 1.0 / s),
        at(age, present(age.poisson).cost, 1.0 / s),
    ]


@pytest.mark.parametrize("shape", TABLE)
def test_gamma_mixtures_are_their_closed_forms(shape: float) -> None:
    exact = [float(x) for x in closed_forms(shape, 10.0, 25.0)]
    np.testing.assert_allclose(exact, TABLE[shape], rtol=2e-15)
    np.testing.assert_allclose(found_forms(*gamma_rule(shape, 10.0), 25.0), TABLE[shape], rtol=1e-13)


@pytest.mark.parametrize(
    ("shape", "exposure", "period"), [(0.7, 1e6, 1e-2), (1.6, 1e-4, 3.0), (3.0, 7.0, 1e4)]
)
def test_gamma_mixtures_at_other_scales(shape: float, exposure: float, period: float) -> None:
    exact = [float(x) for x in closed_forms(shape, exposure, period)]
    np.testing.assert_allclose(found_forms(*gamma_rule(shape, exposure), period), exact, rtol=2e-13)


def test_index_of_a_gamma_mixture_is_an_incomplete_beta_function() -> None:
    curve = mixture("binary", *gamma_rule(3.0, 10.0))
    for s in (0.1, 3.0, 25.0, 1e3):
        z = s / 10.0
        exact = 10.0 / 2.0 * betainc(2.0, 2.0, z / (1.0 + z))
        assert at(curve, curve.index, s) == pytest.approx(exact, rel=1e-14 if s > 1.0 else 1e-13)


def test_a_sharp_gamma_mixture_is_the_poisson_process() -> None:
    nodes, weights = gamma_rule(1e7, 1e7 / 0.3)
    for name in NAMED:
        curve, sure = mixture(name, nodes, weights), NAMED[name].curve(fo.Sources([0.3]))
        for s in (0.1, 3.0, 40.0):
            for formula, own in ((curve.at, sure.at), (curve.mean, sure.mean), (curve.index, sure.index)):
                assert at(curve, formula, s) == pytest.approx(at(sure, own, s), rel=1e-7)


@pytest.mark.parametrize("name", NAMED)
def test_equal_nodes_are_the_curve_itself(name: str) -> None:
    rates = np.array([1e-6, 0.3, 1.0, 17.0, 1e4])
    weights = np.random.default_rng(3).dirichlet(np.ones(8), 5)
    sure = NAMED[name].curve(fo.Sources(rates))
    curve = sure.expected(np.repeat(rates[:, None], 8, axis=1), weights)
    pairs = [(sure.at, curve.at), (sure.mean, curve.mean), (sure.index, curve.index)]
    pairs += [(sure.inverse_index, curve.inverse_index)]
    responses = []
    for refresh in (PERIODIC, POISSON, fo.Refresh.ON_SIGNAL):
        if refresh is fo.Refresh.ON_SIGNAL and sure.on_signal is None:
            continue
        own, mixed = sure.cell(refresh), curve.cell(refresh)
        pairs += [(own.cost, mixed.cost), (own.marginal, mixed.marginal), (own.inverse, mixed.inverse)]
        responses += [mixed.inverse] if refresh is fo.Refresh.ON_SIGNAL else []
    for x in (1e-9, 1e-3, 0.7, 30.0):
        for exact, found in pairs:
            # Rates that signals allow: no more than the change rate.
            arguments = np.minimum(np.full(5, x), rates)
            with np.errstate(all="ignore"):
                expected = exact(arguments, *sure.parameters)
                if found in responses:  # no more than there are signals
                    expected = np.minimum(expected, rates)
                np.testing.assert_array_max_ulp(found(arguments, *curve.parameters), expected, maxulp=1)


def test_delay_is_that_of_the_mean_rate() -> None:
    rng = np.random.default_rng(5)
    nodes, weights = 10.0 ** rng.uniform(-6.0, 4.0, (20, 8)), rng.dirichlet(np.ones(8), 20)
    curve = DELAY.curve(fo.Sources(np.ones(20))).expected(nodes, weights)
    mean = np.sum(nodes * weights, axis=1)
    at_three = np.full(20, 3.0)
    np.testing.assert_allclose(curve.mean(at_three, *curve.parameters), 1.5 * mean, rtol=1e-15)
    np.testing.assert_allclose(
        present(curve.poisson).cost(at_three, *curve.parameters), mean / 3.0, rtol=1e-15
    )
    price = np.full(20, 0.2)
    np.testing.assert_allclose(
        present(curve.poisson).inverse(price, *curve.parameters), np.sqrt(mean / 0.2), rtol=EXACT
    )


@matrix(name=NAMED, refresh=[PERIODIC, POISSON])
def test_inverses_of_mixtures_at_any_scale(name: str, refresh: fo.Refresh) -> None:
    rng = np.random.default_rng(11)
    n = 60
    nodes = 10.0 ** rng.uniform(-6.0, 4.0, (n, 1)) * np.exp(rng.normal(0.0, 3.0, (n, 6)))
    weights = rng.dirichlet(np.full(6, 0.5), n)
    curve = NAMED[name].curve(fo.Sources(np.ones(n))).expected(nodes, weights)
    cell = curve.cell(refresh)
    rate = 10.0 ** rng.uniform(-6.0, 4.0, n)
    with np.errstate(all="ignore"):
        price = cell.marginal(rate, *curve.parameters)
        found = cell.inverse(price, *curve.parameters)
        again = cell.marginal(found, *curve.parameters)
    # Where the marginal barely moves the rate is not determined by it; its marginal is.
    np.testing.assert_allclose(again, price, rtol=1e-13)
    steep = cell.marginal(rate * 1.01, *curve.parameters) < 0.999 * price
    np.testing.assert_allclose(found[steep], rate[steep], rtol=1e-11)
    assert np.count_nonzero(steep) > 20


def test_inverse_against_a_search_of_the_plain_sum() -> None:
    nodes, weights = np.array([0.02, 0.5, 40.0]), np.array([0.5, 0.3, 0.2])
    curve = mixture("binary", nodes[None], weights[None])
    for price in (1e-6, 0.1, 1.0, 20.0):
        root = brentq(
            lambda r, p=price: float(np.sum(weights * nodes / (nodes + r) ** 2)) - p, 0.0, 1e6, xtol=1e-14
        )
        assert at(curve, present(curve.poisson).inverse, price) == pytest.approx(root, rel=1e-9)


def test_prices_beyond_all_marginals_starve() -> None:
    curve = mixture("binary", np.array([[0.02, 0.5, 40.0]]), np.array([[0.5, 0.3, 0.2]]))
    most = 0.5 / 0.02 + 0.3 / 0.5 + 0.2 / 40.0  # the mean time to the first change after a refresh
    assert at(curve, curve.inverse_index, most * 1.0001) == np.inf
    assert at(curve, present(curve.poisson).inverse, most * 1.0001) == 0.0
    assert 0.0 < at(curve, present(curve.poisson).inverse, most * 0.9999) < 1e-4
    assert np.isfinite(at(curve, curve.inverse_index, most * 0.9999))


def mixed_sources(n: int, seed: int, *, spread: float = 1.5) -> tuple[Floats, Floats, fo.Sources]:
    rng = np.random.default_rng(seed)
    nodes = 10.0 ** rng.uniform(-3.0, 3.0, (n, 1)) * np.exp(rng.normal(0.0, spread, (n, 4)))
    weights = rng.dirichlet(np.ones(4), n)
    return nodes, weights, fo.Sources(np.sum(nodes * weights, axis=1), 10.0 ** rng.uniform(-6.0, 6.0, n))


EVERY: list[fo.Objective] = [
    *(
        kind(refresh)
        for kind in (
            fo.problems.BinaryFreshness,
            fo.problems.HarmonicStaleness,
            fo.problems.AccumulatedDelay,
            fo.problems.Age,
        )
        for refresh in (PERIODIC, POISSON)
    ),
    fo.problems.SynchronizationCost(fo.problems.PowerCost(1.0, 0.5, 2.0)),
    fo.problems.SynchronizationCost(fo.problems.PowerCost(np.linspace(1.0, 2.0, 12), 0.5), POISSON),
    fo.problems.SynchronizationCost(fo.problems.BinaryCost()),
    fo.problems.SynchronizationCost(fo.problems.PiecewiseLinearCost([0.0, 1.0], [0.0, -2.0])),
    fo.problems.PollingKnapsack(),
    fo.problems.PollingKnapsack("materials"),
    fo.problems.ExpectedPenalty(np.sqrt),
    fo.problems.LaterThan(3.0, refresh=fo.Refresh.POISSON),
]


@pytest.mark.parametrize("objective", EVERY, ids=repr)
def test_problems_are_solved_and_certified(objective: fo.Objective) -> None:
    nodes, weights, sources = mixed_sources(12, 2)
    problem = fo.Problem(fo.Expected(objective, nodes, weights), sources, 7.0)
    found = fo.solve(problem)
    assert present(found.certificate).relative_gap < 1e-12
    # Each node's own problem says what these rates are worth there.
    values = []
    for j in range(4):
        own = fo.Problem(
            objective,
            sources.with_change_rate(nodes[:, j]).with_importance(sources.importance * weights[:, j]),
            7.0,
        )
        values.append(
            objective.value_from_cost(float(np.sum(present(own.numerics).cost(found.rates))), own.sources)
        )
    assert found.value == pytest.approx(sum(values), rel=1e-12, abs=1e-9)
    assert repr(pickle.loads(pickle.dumps(problem))) == repr(problem)


@pytest.mark.exhaustive
@pytest.mark.parametrize("objective", [*EVERY[:-2], *rare(EVERY[-2]), EVERY[-1]], ids=repr)
def test_declared_form_is_the_sum(objective: fo.Objective) -> None:
    nodes, weights, sources = mixed_sources(12, 4)
    problem = fo.Problem(fo.Expected(objective, nodes, weights), sources, 7.0)
    exact = fo.solve(problem)
    conic = fo.solve(problem, Conic())
    # Cones of the periodic age are an approximation with two nodes; it is judged by its own certificate.
    assert conic.value == pytest.approx(exact.value, rel=10 * CONIC, abs=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "objective", [BINARY, HARMONIC, *rare(DELAY, AGE, fo.problems.ExpectedPenalty(np.sqrt))], ids=repr
)
def test_signals_are_followed_up_to_each_node(objective: fo.Objective) -> None:
    rng = np.random.default_rng(8)
    n = 12
    nodes = 10.0 ** rng.uniform(-1.5, 1.5, (n, 1)) * np.exp(rng.normal(0.0, 0.7, (n, 4)))
    weights = rng.dirichlet(np.ones(4), n)
    signalled = np.arange(n) % 2 == 0
    sources = fo.Sources(
        np.sum(nodes * weights, axis=1), 10.0 ** rng.uniform(-2.0, 2.0, n), signalled=signalled
    )
    problem = fo.Problem(fo.Expected(objective, nodes, weights), sources, 7.0)
    found = fo.solve(problem)
    assert present(found.certificate).relative_gap < 1e-12
    assert fo.solve(problem, Conic()).value == pytest.approx(found.value, rel=10 * CONIC)
    cost = 0.0
    for j in range(4):
        own = fo.Problem(objective, sources.with_change_rate(nodes[:, j]), 7.0)
        used = np.where(signalled, np.minimum(found.rates, nodes[:, j]), found.rates)
        cost += float(np.sum(weights[:, j] * present(own.numerics).cost(used)))
    assert found.value == pytest.approx(objective.value_from_cost(cost, sources), rel=1e-12)


def test_an_objective_of_ones_own() -> None:
    Squared = written(
        "Squared",
        lambda rate, sources: cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -2)),
    )

    nodes, weights, sources = mixed_sources(10, 6)
    expected = fo.solve(fo.Problem(fo.Expected(Squared(), nodes, weights), sources, 3.0))
    assert expected.value == pytest.approx(fo.solve(fo.Problem(Squared(), sources, 3.0)).value, rel=1e-9)


def test_some_of_the_sources() -> None:
    nodes, weights, _ = mixed_sources(9, 7)
    expected = fo.Expected(HARMONIC, nodes, weights)
    part = expected.take(np.array([2, 5]))
    np.testing.assert_array_equal(part.nodes, nodes[[2, 5]])
    curve = expected.curve(fo.Sources(np.ones(9)))
    period = np.full(2, 3.0)
    taken = curve.take(np.array([2, 5]))
    own = part.curve(fo.Sources(np.ones(2)))
    np.testing.assert_array_equal(taken.mean(period, *taken.parameters), own.mean(period, *own.parameters))


def test_a_cost_that_does_not_depend_on_changes() -> None:
    curve = fo.problems.SynchronizationCost(fo.problems.PowerCost(2.0, 0.5)).curve(fo.Sources([1.0]))
    assert curve.expected([[1.0, 2.0]], [0.5, 0.5]) is curve


@pytest.mark.parametrize(
    ("nodes", "weights", "words"),
    [
        ([1.0, 2.0], [0.5, 0.5], "nodes have shape"),
        ([[1.0, 2.0]], [0.5, 0.4], "add up to 0.9 in row 0"),
        ([[1.0, 2.0]], [1.5, -0.5], "no probabilities|probabilities"),
        ([[1.0, 0.0]], [0.5, 0.5], "no change rate"),
        ([[1.0, np.nan]], [0.5, 0.5], "no change rate"),
        ([[1.0, 2.0]], [0.5, 0.25, 0.25], "weights have shape"),
        ([["a", "b"]], [0.5, 0.5], "must be numbers"),
    ],
)
def test_what_is_no_mixture_is_refused(nodes: npt.ArrayLike, weights: npt.ArrayLike, words: str) -> None:
    refused(words, fo.Expected, BINARY, nodes, weights)
    refused(words, BINARY.curve(fo.Sources([1.0])).expected, nodes, weights)


def test_what_has_no_expectation_is_refused() -> None:
    for objective in (fo.Spend(), fo.Worst(BINARY, by=["a"])):
        refused("no expectation by source", fo.Expected, objective, [[1.0]], [1.0], error=fo.ObjectiveError)
    wrong = fo.problems.BinaryFreshness, [[1.0]], [1.0]
    refused("is not an Objective instance", fo.Expected, *wrong, error=fo.ObjectiveError)
    expected = fo.Expected(fo.problems.ExpectedPenalty(np.sqrt), [[1.0]], [1.0])
    refused("no cost of age", expected.curve, fo.Sources([1.0]), error=fo.ObjectiveError)
    refused("1 rows of nodes but there are 2 sources", fo.Problem, expected, fo.Sources([1.0, 2.0]), 1.0)


@pytest.mark.parametrize("shape", [0.6, 4.0])
def test_an_expected_penalty_by_gauss_nodes_of_a_gamma_density(shape: float) -> None:
    points, weights = roots_genlaguerre(8, shape - 1.0)
    objective = fo.Expected(
        fo.problems.ExpectedPenalty(np.square), points[None] / 5.0, weights / weights.sum()
    )
    first, second = shape / 5.0, shape * (shape + 1.0) / 25.0
    exact = 2.0 * second / 0.3**2 + first / 0.3  # of a geometric number of missed changes
    assert fo.solve(fo.Problem(objective, fo.Sources([1.0]), 0.3)).value == pytest.approx(exact, rel=EXACT)
