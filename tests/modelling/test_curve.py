"""Curves from numbers, beside linear programs, bisection in 80 bits, closed forms, and what is refused."""

import pickle
import re
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import freshopt as fo
from freshopt.modelling.curves.pieces import Points, pieces_of
from freshopt.numerics.arrays import Array
from tests.ground_truth.refusals import refused

LONG = np.longdouble


def convex_points(seed: int, n: int, points: int, scale: float = 1.0) -> tuple[Array, Array, Array]:
    """Rates, costs and subgradients of random convex polygons, falling and at times rising at the end."""
    rng = np.random.default_rng(seed)
    rates = np.cumsum(rng.exponential(1.0, (n, points)), axis=1) * scale
    rates[:, 0] = 0.0
    chords = np.sort(rng.normal(-3.0, 2.0, (n, points - 1)), axis=1)
    costs = 40.0 + np.concatenate([np.zeros((n, 1)), np.cumsum(chords * np.diff(rates), axis=1)], axis=1)
    inside = 0.5 * (chords[:, 1:] + chords[:, :-1])
    slopes = np.concatenate([chords[:, :1] - 1.0, inside, chords[:, -1:] + 0.5], axis=1)
    return rates, costs, slopes


@pytest.mark.parametrize(("seed", "scale"), [(0, 1.0), (1, 1e-6), (2, 1e7)])
def test_tables_are_the_linear_program_of_their_lines(seed: int, scale: float) -> None:
    rates, costs, _ = convex_points(seed, 10, 6, scale)
    weight = 10.0 ** np.random.default_rng(seed).uniform(-2.0, 2.0, 10)
    bandwidth = 8.0 * scale
    found = fo.solve(fo.Problem(fo.Curve((rates, costs)), fo.Sources(np.ones(10), weight), bandwidth))
    # Heights t above every chord, of rates y·scale; beyond the last point a falling cost is level.
    slopes = np.diff(costs) / np.diff(rates)
    lines, right = [], []
    for k in range(10):
        for j in range(6):
            slope = slopes[k, j] if j < 5 else min(0.0, slopes[k, 4])
            if j == 5 and slopes[k, 4] > 0.0:
                continue
            at = j if j < 5 else 5
            row = np.zeros(20)
            row[k], row[10 + k] = (slope if j < 5 else 0.0) * scale, -1.0
            lines.append(row)
            right.append((slope if j < 5 else 0.0) * rates[k, at] - costs[k, at])
    lines.append(np.concatenate([np.ones(10), np.zeros(10)]))
    right.append(8.0)
    bounds = [(0.0, None)] * 10 + [(None, None)] * 10
    exact = linprog(np.append(np.zeros(10), weight), np.array(lines), right, bounds=bounds, method="highs")
    assert found.value == pytest.approx(exact.fun, rel=1e-9)
    assert found.status is fo.Status.OPTIMAL
    assert found.certificate.relative_gap < 1e-12


def spline_rate(points: tuple[Array, Array, Array], price: np.longdouble) -> np.longdouble:
    """The rate at which the spline's slope is −price, written once more in 80 bits."""
    x, c, s = (np.asarray(one, LONG) for one in points)
    for j in range(len(x) - 1):
        step = x[j + 1] - x[j]
        chord = (c[j + 1] - c[j]) / step
        knot = x[j] + step * (s[j + 1] - chord) / (s[j + 1] - s[j])
        for begin, end, low, high in ((x[j], knot, s[j], chord), (knot, x[j + 1], chord, s[j + 1])):
            if -low <= price:
                return LONG(begin if begin > x[0] else 0.0)
            if -high <= price:
                return LONG(begin + (end - begin) * (-price - low) / (high - low))
    return LONG(x[-1])


@pytest.mark.parametrize(("seed", "scale"), [(3, 1.0), (4, 1e-8), (5, 1e6)])
def test_splines_are_solved_as_by_bisection_in_80_bits(seed: int, scale: float) -> None:
    rates, costs, slopes = convex_points(seed, 12, 9)
    costs, slopes = costs, slopes / scale
    rates = rates * scale
    weight = 10.0 ** np.random.default_rng(seed).uniform(-1.0, 1.0, 12)
    bandwidth = 20.0 * scale
    found = fo.solve(fo.Problem(fo.Curve((rates, costs, slopes)), fo.Sources(np.ones(12), weight), bandwidth))
    low, high = LONG(1e-9) / scale, LONG(1e4) / scale
    for _ in range(200):
        middle = np.sqrt(low * high)
        each = [spline_rate((rates[k], costs[k], slopes[k]), middle / weight[k]) for k in range(12)]
        low, high = (middle, high) if sum(each) > bandwidth else (low, middle)
    np.testing.assert_allclose(found.rates, np.array(each, float), rtol=1e-9, atol=1e-9 * scale)
    assert found.certificate.relative_gap < 1e-13


def test_a_spline_is_convex_and_between_tangents_and_chord() -> None:
    rates, costs, slopes = convex_points(6, 40, 7)
    curve = fo.Curve((rates, costs, slopes))
    kernel = curve.kernel(fo.Sources(np.ones(40)))
    for part in np.linspace(0.0, 1.0, 23)[1:-1]:
        for j in range(6):
            step = rates[:, j + 1] - rates[:, j]
            at = rates[:, j] + part * step
            value = kernel.cost(at)
            chord = (1.0 - part) * costs[:, j] + part * costs[:, j + 1]
            left = costs[:, j] + slopes[:, j] * (at - rates[:, j])
            right = costs[:, j + 1] - slopes[:, j + 1] * (rates[:, j + 1] - at)
            assert np.all(value <= chord + 1e-12)
            assert np.all(value >= np.maximum(left, right) - 1e-12)
            half = 1e-6 * step
            found = (kernel.cost(at - half) - kernel.cost(at + half)) / (2.0 * half)
            np.testing.assert_allclose(kernel.marginal(at), found, rtol=1e-5, atol=1e-5)
    # At the points themselves the table is met, and so are the slopes inside.
    for j in range(7):
        np.testing.assert_allclose(kernel.cost(rates[:, j]), costs[:, j], rtol=1e-14)
    np.testing.assert_allclose(-kernel.marginal(rates[:, 3]), slopes[:, 3], rtol=1e-12, atol=1e-12)


FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "delay": (lambda x: 1.0 / x, lambda x: -1.0 / x**2),
    "binary": (lambda x: 1.0 / (1.0 + x), lambda x: -1.0 / (1.0 + x) ** 2),
    "later": (lambda x: np.exp(-x), lambda x: -np.exp(-x)),
    "paid": (lambda x: 1.0 / x + 0.1 * x, lambda x: -1.0 / x**2 + 0.1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("sloped", [True, False])
def test_functions_are_certified_with_what_lies_between_points(name: str, sloped: bool) -> None:
    cost, slope = FUNCTIONS[name]
    curve = fo.Curve(cost, slope if sloped else None, per_change=True)
    rng = np.random.default_rng(7)
    d, w = 10.0 ** rng.uniform(-1.0, 1.0, 10), 10.0 ** rng.uniform(-1.0, 1.0, 10)
    bandwidth = 0.7 * float(np.sum(d))
    found = fo.solve(fo.Problem(curve, fo.Sources(d, w), bandwidth))
    # The true optimum by bisection, with the true slope inverted by bisection too.
    low, high = 1e-12, 1e12
    for _ in range(120):
        price = np.sqrt(low * high)
        least, most = np.full(10, 1e-12), np.full(10, 1e12)
        for _ in range(120):
            x = np.sqrt(least * most)
            pays = -w * slope(x) / d > price
            least, most = np.where(pays, x, least), np.where(pays, most, x)
        low, high = (price, high) if np.sum(d * x) > bandwidth else (low, price)
    optimum = float(np.sum(w * cost(x)))
    true = float(np.sum(w * cost(found.rates / d)))
    assert found.status is fo.Status.OPTIMAL
    assert true - optimum <= found.certificate.gap + 1e-13 * optimum
    assert optimum >= found.certificate.bound - 1e-13 * optimum
    assert 0.0 < found.certificate.gap < 3e-9 * optimum


def test_pairs_of_a_parameter_are_the_shipped_curve() -> None:
    pair = (lambda u: 1.0 / u, lambda u: 1.0 + np.expm1(-u) / u)
    slope = lambda u: -(1.0 - (1.0 + u) * np.exp(-u))  # noqa: E731 - as a user writes it
    sources = fo.Sources([0.2, 1.0, 3.0], [1.0, 2.0, 5.0])
    shipped = fo.solve(fo.Problem(fo.problems.BinaryFreshness(), sources, 2.0))
    for more in ((), (slope,)):
        curve = fo.Curve((*pair, *more), per_change=True, between=(0.05, 50.0))
        found = fo.solve(fo.Problem(curve, sources, 2.0))
        np.testing.assert_allclose(found.rates, shipped.rates, rtol=1e-4)
        # Freshness is what is left of the stale part.
        assert 8.0 - found.value == pytest.approx(shipped.value, rel=1e-9)


def test_compiled_and_plain_numerics_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, costs, slopes = convex_points(8, 300, 5)
    for table in ((rates, costs, slopes), (rates, costs), (rates[0], costs[0], slopes[0])):
        problem = fo.Problem(fo.Curve(table), fo.Sources(np.linspace(0.5, 2.0, 300)), 200.0)
        monkeypatch.setenv("FRESHOPT_COMPILED", "0")
        plain = fo.solve(problem)
        monkeypatch.setenv("FRESHOPT_COMPILED", "1")
        fo.warm(problem)
        loops = fo.solve(problem)
        assert loops.value == pytest.approx(plain.value, rel=1e-12)
        assert max(loops.certificate.relative_gap, plain.certificate.relative_gap) < 1e-12


def test_curves_of_sources_go_with_hosts_targets_and_pickles() -> None:
    rates, _, _ = convex_points(9, 6, 5)
    costs, slopes = 9.0 / (1.0 + rates), -9.0 / (1.0 + rates) ** 2
    curve = fo.Curve((rates, costs, slopes))
    sources = fo.Sources(np.ones(6), host=["a", "a", "a", "b", "b", "b"])
    limited = fo.solve(fo.Problem(curve, sources, 6.0, host_limits={"a": 1.0}))
    assert limited.certificate.relative_gap < 1e-12
    assert float(np.sum(limited.rates[:3])) == pytest.approx(1.0)
    alone = fo.solve(fo.Problem(curve.take(np.array([3, 4, 5])), sources.take(np.array([3, 4, 5])), 5.0))
    np.testing.assert_allclose(limited.rates[3:], alone.rates, rtol=1e-8)
    copied = pickle.loads(pickle.dumps(curve))
    assert fo.solve(fo.Problem(copied, sources, 6.0)).value == fo.solve(fo.Problem(curve, sources, 6.0)).value
    least = fo.solve(fo.Problem(curve, sources, 4.0)).value
    spent = fo.solve(fo.Problem(fo.Spend(), sources, constraints=[fo.Target(curve, at_most=least / 6.0)]))
    assert spent.bandwidth_used == pytest.approx(4.0, rel=1e-6)


REFUSED: dict[str, tuple[Any, str]] = {
    "not convex": (([0, 1, 2, 3], [9, 5, 3, 0]), "points 1 to 3: at rates 1, 2, 3 the costs are 5, 3, 0"),
    "of source 1": (([0, 1, 2], [[2, 1, 0.5], [2, 1.5, 0]]), "points 0 of source 1 to 2"),
    "twice": (([0, 1, 1], [3, 2, 1]), "rates of Curve at point 1 do not rise"),
    "infinite": (([0, 1, 2], [np.inf, 2, 1]), "the cost at point 0 of Curve is no finite number"),
    "slope": (([0, 1], [2, 1], [-0.5, -0.5]), "changes by -1 per unit of rate"),
    "one point": (([1.0], [2.0]), "with two points or more"),
    "shapes": (([0, 1, 2], [1, 0]), "have shape (3,), costs (2,)"),
    "words": ((["a", "b"], [1, 0]), "not of numbers"),
    "a number": (3.0, "Pass (rates, costs)"),
    "concave": (lambda x: np.sqrt(x), "not convex at points 0 to 2"),
    "infinite function": (lambda x: np.where(x > 1.0, 1 / x, np.inf), "where it is finite"),
    "one number": (lambda x: x[:2], "returns shape (2,)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_curve_is_refused_by_name(name: str) -> None:
    given, words = REFUSED[name]
    refused(re.escape(words), fo.Curve, given, error=fo.ObjectiveError)


def test_curves_of_other_sources_and_empty_ranges_are_refused() -> None:
    curve = fo.Curve(([0.0, 1.0], [[2.0, 1.0], [3.0, 1.0]]))
    refused("2 curves but there are 3 sources", fo.Problem, curve, fo.Sources([1.0, 1.0, 1.0]), 1.0)
    refused("two finite numbers", fo.Curve, lambda x: 1.0 / x, between=(2.0, 1.0), error=fo.ObjectiveError)


def test_a_cost_with_a_least_value_is_not_paid_beyond_it() -> None:
    order = fo.Curve(lambda x: 4.0 / x + x, lambda x: 1.0 - 4.0 / x**2)
    found = fo.solve(fo.Problem(order, fo.Sources([1.0, 1.0]), bandwidth=100.0))
    np.testing.assert_allclose(found.rates, 2.0, rtol=1e-4)
    assert found.value == pytest.approx(8.0, rel=1e-8)
    table = fo.Curve(([0.0, 1.0, 2.0], [5.0, 1.0, 2.0]))
    forced = fo.solve(fo.Problem(table, fo.Sources([1.0, 1.0], min_rate=[4.0, 0.1]), bandwidth=100.0))
    assert forced.value == pytest.approx(5.0, rel=1e-12)


@pytest.mark.exhaustive
def test_a_million_sources_of_one_table() -> None:
    rng = np.random.default_rng(10)
    d, w = np.exp(rng.normal(0.0, 2.0, 10**6)), rng.pareto(1.5, 10**6) + 0.1
    x = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 200)])
    curve = fo.Curve((x, 1.0 / (1.0 + x), -1.0 / (1.0 + x) ** 2), per_change=True)
    found = fo.solve(fo.Problem(curve, fo.Sources(d, w), 1e5))
    exact = fo.solve(fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.POISSON), fo.Sources(d, w), 1e5))
    assert found.certificate.relative_gap < 1e-13
    # Points 7 % apart: the spline is off by some 1e-5 of the stale part.
    assert found.value == pytest.approx(float(np.sum(w)) - exact.value, rel=1e-4)


def test_points_are_one_table_of_their_pieces() -> None:
    table = pieces_of(Points.of(([1.0, 2.0, 4.0], [5.0, 3.0, 2.0])))
    assert table.shape == (6, 1, 4)
    np.testing.assert_array_equal(table[0, 0], [1.0, 2.0, 4.0, 4.0])
    np.testing.assert_array_equal(table[2, 0], [2.0, 2.0, 0.5, 0.0])
