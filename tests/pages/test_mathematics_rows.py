"""docs/mathematics.md: the certificate of rows, Farkas and the engine's matrix, against the library."""

from __future__ import annotations

import math

import numpy as np
import pytest

import freshopt as fo
from freshopt.interior_point.row_passes import numpy_passes
from freshopt.numerics.arrays import Array
from freshopt.problems import BinaryFreshness, HarmonicStaleness
from tests.ground_truth.tolerances import CONIC, SCALAR
from tests.pages.mathematics_page import shown

D5, W5 = np.array([0.2, 1.0, 3.0, 9.0, 0.5]), np.array([2.0, 1.0, 4.0, 1.5, 0.7])
SIZE = np.array([1.0, 2.0, 0.5, 1.0, 3.0])
GROUP = np.array(["a", "a", "a", "b", "b"])
IN_A = GROUP == "a"
SHARE = W5 * IN_A / W5[IN_A].sum()
SOURCES = fo.Sources(D5, W5, min_rate=0.05, max_rate=1.5)
# So low that no row implies a lower one.
BOUNDS = (0.05, 1.5)
# Of the bandwidth, the bytes and group a's mean stale share.
LIMITS = np.array([3.5, 3.6, 0.56])


def declared(limits: Array) -> fo.Problem:
    rows = [
        fo.Budget(limits[0]),
        fo.Budget(limits[1], cost=SIZE, name="bytes"),
        fo.Target(BinaryFreshness(), at_least={"a": 1.0 - limits[2]}, by=GROUP, name="fresh"),
    ]
    return fo.Problem(HarmonicStaleness(), SOURCES, constraints=rows)


def used(rates: Array) -> Array:
    return np.array([rates.sum(), SIZE @ rates, SHARE @ (D5 / (D5 + rates))])


def slopes(rates: Array) -> Array:
    """Return g', one row each."""
    return np.stack([np.ones(5), SIZE, -SHARE * D5 / (D5 + rates) ** 2])


def slope(rates: Array, y: Array, objective: float = 1.0) -> Array:
    """Return φ' of every source."""
    own: Array = -objective * W5 * D5 / (rates * (rates + D5)) + y @ slopes(rates)
    return own


def response(y: Array, objective: float = 1.0) -> Array:
    """Return the minimisers of φ within the bounds, by bisection."""
    low, high = np.full(5, BOUNDS[0]), np.full(5, BOUNDS[1])
    for _ in range(60):
        middle = 0.5 * (low + high)
        falls = slope(middle, y, objective) < 0.0
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    found: Array = 0.5 * (low + high)
    return found


def test_the_certificate_of_rows_is_the_printed_bound() -> None:
    shown(
        r"F(\rho)-F^* \le \sum_k|\varphi_k'(\rho_k)|\,|\rho_k-r_k^*| + \sum_j y_j\,(b_j-G_j(\rho))",
        r"d(y)=\sum_k\min_{l_k\le r\le u_k}\varphi_k(r;y)-\sum_j y_jb_j \le F^*",
    )
    problem, rng, exact = declared(LIMITS), np.random.default_rng(4), 0
    best = fo.solve(problem, tolerance=SCALAR).value
    some = rng.uniform(0.2, 1.5, (100_000, 5))
    amounts = np.stack([some.sum(axis=1), some @ SIZE, (D5 / (D5 + some)) @ SHARE], axis=1)
    feasible = some[np.all(amounts <= LIMITS, axis=1)][:20]
    assert len(feasible) == 20
    for rates in feasible:
        y = rng.uniform(0.0, [2.0, 1.0, 8.0])
        terms = np.abs(slope(rates, y)) * np.abs(rates - response(y))
        bound = terms.sum() + y @ (LIMITS - used(rates))
        prices = dict(zip(("bandwidth", "bytes", "fresh[a]"), y, strict=True))
        proof = fo.certify(problem, rates, prices=prices)
        # A step that is short by rounding is doubled.
        assert bound * (1 - SCALAR) <= proof.gap <= 2 * bound
        exact += math.isclose(proof.gap, bound, rel_tol=SCALAR)
        cost = W5 @ np.log1p(D5 / rates)
        assert cost - best <= bound * (1 + SCALAR)
        # Weak duality, the sum that the bound exceeds.
        at = response(y)
        dual = W5 @ np.log1p(D5 / at) + y @ (used(at) - LIMITS)
        assert dual <= best * (1 + SCALAR)
        assert cost - dual <= bound * (1 + SCALAR)
    assert exact >= 5


def test_prices_of_rows_are_slopes() -> None:
    shown(r"\frac{\partial F^*}{\partial b_j} = -y_j")
    found = fo.solve(declared(LIMITS), tolerance=SCALAR)
    for j, label in enumerate(("bandwidth", "bytes", "fresh[a]")):
        step = np.zeros(3)
        step[j] = 3e-5 * LIMITS[j]
        up, down = (fo.solve(declared(LIMITS + side), tolerance=SCALAR).value for side in (step, -step))
        change = (down - up) / (2.0 * step[j])
        # Of a difference quotient.
        assert math.isclose(found.prices[label], change, rel_tol=CONIC, abs_tol=CONIC)
    assert sum(price > CONIC for price in found.prices.values()) >= 2


def test_farkas() -> None:
    shown(r"D(y)=\sum_k\min_{l_k\le r\le u_k}\sum_j y_j\,g_{jk}(r)-\sum_j y_jb_j > 0")
    limits = np.array([6.0, 3.0, 0.5])
    with pytest.raises(fo.InfeasibleProblemError) as caught:
        fo.solve(declared(limits))
    conflict = caught.value.conflict
    assert conflict.labels == ("bytes", "fresh[a]")
    y = np.array([0.0, *conflict.weights])
    at = response(y, objective=0.0)
    excess = y @ (used(at) - limits)
    assert excess > 0.0
    for rates in np.random.default_rng(5).uniform(*BOUNDS, (200, 5)):
        assert y @ (used(rates) - limits) >= excess * (1 - SCALAR)
    # What suffices is at least what this proof asks for.
    for j, enough, declared_limit in zip((1, 2), conflict.sufficient, (3.0, 0.5), strict=True):
        assert abs(enough - declared_limit) >= excess / y[j] * (1 - SCALAR)


def test_the_matrix_of_the_engine() -> None:
    shown(r"H=\frac{\partial s}{\partial y}=\sum_k\frac{g_k'\,g_k'^{\,T}}{\varphi_k''}")
    problem, y = declared(LIMITS), np.array([0.4, 0.3, 2.0])
    rates = response(y)
    inside = (rates > BOUNDS[0] + CONIC) & (rates < BOUNDS[1] - CONIC)
    assert inside.sum() >= 3
    bend = W5 * D5 * (2.0 * rates + D5) / (rates * (rates + D5)) ** 2
    bend += y[2] * 2.0 * SHARE * D5 / (D5 + rates) ** 3
    g = slopes(rates)[:, inside]
    matrix = (g / bend[inside]) @ g.T
    program = problem.program
    assert program is not None
    gram = numpy_passes(program).evaluate(y).gram
    assert isinstance(gram, np.ndarray)
    np.testing.assert_allclose(gram, matrix, rtol=SCALAR)
    passes = numpy_passes(program)
    for j in range(3):
        step = np.zeros(3)
        step[j] = 1e-5
        up, down = (passes.evaluate(y + side, gram=False).used for side in (step, -step))
        np.testing.assert_allclose((down - up) / 2e-5, matrix[j], rtol=1e3 * CONIC, atol=CONIC)


def test_the_worst_group_and_nested_limits() -> None:
    shown(r"the dual asks for $\sum_jy_j=1$", r"E_a=\min\left(\max(E_p,\,\alpha_a),\,\beta_a\right)")
    fairest = fo.solve(fo.Problem(fo.Worst(HarmonicStaleness(), by=GROUP), SOURCES, bandwidth=5.0))
    shares = [fairest.prices[f"worst[{name}]"] for name in "ab"]
    assert math.isclose(sum(shares), 1.0, rel_tol=SCALAR)
    # One level: α is the price at which a group alone uses its limit, β that at which it takes its reserve.
    nested = fo.Nested([GROUP], at_most={"a": 1.5}, at_least={"b": 1.0})
    for bandwidth in (2.0, 3.0, 8.0):
        found = fo.solve(fo.Problem(HarmonicStaleness(), SOURCES, bandwidth, constraints=[nested]))
        pays = {
            name: found.prices["bandwidth"] + found.prices[label] * sign
            for name, label, sign in (("a", "nested[a]", 1.0), ("b", "nested reserve[b]", -1.0))
        }
        for name, limit, moved in (("a", 1.5, max), ("b", 1.0, min)):
            own = name == GROUP
            low, high = 1e-9, 1e9
            for _ in range(70):
                middle = math.sqrt(low * high)
                takes = response(np.array([middle, 0.0, 0.0]))[own].sum()
                low, high = (middle, high) if takes > limit else (low, middle)
            expected = moved(found.prices["bandwidth"], low)
            assert math.isclose(pays[name], expected, rel_tol=SCALAR)
