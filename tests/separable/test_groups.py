"""Laminar groups, bundles and tangents."""

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.autodiff.compiler import compile_expression
from freshopt.cvx import cp
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.numerics.arrays import Array
from freshopt.separable.bundles import BundledNumerics, Bundles
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.laminar import LaminarTree, nest
from freshopt.separable.rows import RowBlock, Rows
from freshopt.separable.tangents import FEW, Contradiction, checkable, contradiction
from tests.autodiff import test_compiler
from tests.compiled import test_extreme_arguments
from tests.contracts.discovery import objectives
from tests.ground_truth.named import HARMONIC, chosen, present
from tests.ground_truth.nested_truth import Bools, Floats, tree_of
from tests.ground_truth.strata import matrix


def rows_of(member: Bools, cost: Floats, scale: Floats) -> Rows:
    row, source = np.nonzero(member)
    keys = range(len(member))
    return Rows.gather(
        [
            RowBlock.linear(
                "g", keys, source, row, scale[row] * cost[source], scale * np.arange(1.0, len(member) + 1)
            )
        ],
        member.shape[1],
    )


def laminar(member: Bools) -> bool:
    sets = [frozenset(np.flatnonzero(row)) for row in member]
    return all(not a & b or a <= b or b <= a for a in sets for b in sets)


@pytest.mark.parametrize("seed", range(200))
def test_trees_are_recognised(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    if seed % 2:
        member = tree_of(rng, n, int(rng.integers(1, 10)), 4)
        member = member[rng.permutation(len(member))[: int(rng.integers(1, len(member) + 1))]]
        member = np.concatenate([member, member[:1]])  # the same set twice
    else:
        member = rng.random((int(rng.integers(1, 4)), n)) < 0.4
        member[np.arange(len(member)), rng.integers(n, size=len(member))] = True
    cost, scale = rng.lognormal(size=n), rng.lognormal(size=len(member))
    tree = LaminarTree.from_rows(rows_of(member, cost, scale))
    assert (tree is not None) == laminar(member)
    if tree is None:
        return
    shape = tree.nesting
    assert sorted(shape.order.tolist()) == list(range(n))
    for row, group in enumerate(shape.group):
        inside = set(shape.order[shape.begin[group] : shape.end[group]].tolist())
        assert inside == set(np.flatnonzero(member[row]).tolist())
        same = [k for k in range(len(member)) if np.array_equal(member[k], member[row])]
        assert tree.limit_row[group] in same
        # Costs are those of the largest row around a source; a limit is in their unit.
        unit = tree.scale[row] * tree.cost[member[row]] / (scale[row] * cost[member[row]])
        assert np.allclose(unit, 1.0, rtol=1e-14)
        assert tree.limit[group] * tree.scale[tree.limit_row[group]] == pytest.approx(
            scale[tree.limit_row[group]] * (min(same) + 1.0)
        )
    parents = shape.parent[:-1]
    assert shape.parent[-1] == -1
    assert np.all(parents > np.arange(len(parents)))
    assert np.all(shape.depth[:-1] == shape.depth[parents] + 1)
    smallest = np.array(
        [
            min(
                (g for g in range(len(tree)) if k in shape.order[shape.begin[g] : shape.end[g]]),
                key=lambda g: (shape.end[g] - shape.begin[g], g),
            )
            for k in range(n)
        ]
    )
    assert np.array_equal(shape.leaf, smallest)


def test_rows_that_are_no_tree() -> None:
    member, ones = np.array([[1, 1, 0], [1, 1, 1]], dtype=bool), np.ones(3)
    plain = rows_of(member, ones, np.ones(2))
    assert LaminarTree.from_rows(plain) is not None
    skew = rows_of(member, ones, np.ones(2))
    bent = np.array(skew.coefficient)
    bent[0] = 2.0
    blocks = [RowBlock.linear("g", "ab", skew.source, skew.row.astype(np.int64), bent, skew.limits)]
    assert LaminarTree.from_rows(Rows.gather(blocks, 3)) is None
    bent[0] = -1.0
    blocks = [RowBlock.linear("g", "ab", skew.source, skew.row.astype(np.int64), bent, skew.limits)]
    assert LaminarTree.from_rows(Rows.gather(blocks, 3)) is None
    curve = HARMONIC.kernel(fo.Sources(ones))
    target = RowBlock(
        "t",
        (None,),
        np.arange(3),
        np.zeros(3, dtype=np.int64),
        np.ones(3, dtype=np.int64),
        ones,
        (curve,),
        ones[:1],
        ones[:1],
        0 * ones[:1],
    )
    assert LaminarTree.from_rows(Rows.gather([target], 3)) is not None
    linear = RowBlock.linear("all", [None], np.arange(3), np.zeros(3, dtype=np.int64), ones, ones[:1])
    assert LaminarTree.from_rows(Rows.gather([target, linear], 3)) is None
    assert (
        LaminarTree.from_rows(
            Rows.gather(
                [
                    linear,
                    RowBlock.linear(
                        "none",
                        [None],
                        np.zeros(0, dtype=np.int64),
                        np.zeros(0, dtype=np.int64),
                        np.zeros(0),
                        ones[:1],
                    ),
                ],
                3,
            )
        )
        is None
    )


def test_a_deep_chain() -> None:
    n = 400
    source, row = np.nonzero(np.tri(n, dtype=bool).T)
    tree = present(nest(source, row, n, n))
    assert np.max(tree.depth) == n - 1


OBJECTIVES = chosen("harmonic", "delay", "binary")


def marginal(name: str, rate: Floats, d: Floats) -> Floats:
    """−J'(ρ) in closed form."""
    with np.errstate(all="ignore"):
        return {
            "harmonic": d / rate / (rate + d),
            "delay": d / rate / rate,
            "binary": d / (d + rate) ** 2,
        }[name]


def roots(name: str, w: Floats, d: Floats, codes: Floats, price: Floats) -> Floats:
    """Return where the bundles' marginal values fall to their prices, by bisection in log ρ."""
    low, high = np.full(len(price), -300.0), np.full(len(price), 300.0)
    for _ in range(120):
        middle = 0.5 * (low + high)
        each = np.where(w > 0.0, w * marginal(name, np.exp(middle)[codes], d), 0.0)
        above = np.bincount(codes, each, len(price)) > price
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(low < -299.0, 0.0, np.exp(low))


def drawn(seed: int, name: str, *, ill: bool) -> tuple[BundledNumerics, Floats, Floats, Floats, Floats]:
    rng = np.random.default_rng(seed)
    b = int(rng.integers(1, 30))
    n = b + int(rng.integers(0, 200))
    codes = rng.permutation(np.append(np.arange(b), rng.integers(0, b, n - b)))
    w = rng.lognormal(0.0, 3.0 if ill else 0.5, n)
    w[rng.random(n) < 0.1] = 0.0
    d = 10.0 ** rng.uniform(-5.0, 4.0, n) if ill else rng.lognormal(0.0, 0.7, n)
    sources, objective = fo.Sources(d, w), OBJECTIVES[name]
    each = present(objective.kernel(sources))
    bundles = Bundles.of(codes)
    typical = bundles.totals(d) / np.diff(bundles.first)
    # Around what the bundles would pay at typical rates, and far from it.
    value = np.bincount(codes, np.where(w > 0.0, w * marginal(name, typical[codes], d), 0.0), b)
    price = np.where(value > 0.0, value, 1.0) * rng.lognormal(0.0, 5.0 if ill else 1.0, b)
    return BundledNumerics(each, bundles, typical), w, d, codes, price


@matrix(name=["harmonic", "delay", "binary"], seed=range(8))
def test_best_responses_of_bundles_are_roots_of_their_marginal_values(name: str, seed: int) -> None:
    numerics, w, d, codes, price = drawn(seed, name, ill=seed % 2 == 1)
    expected = roots(name, w, d, codes, price)
    found = numerics.inverse_marginal(price)
    # Of a flat marginal the root is known to rounding over its fall: √ε where w − price·Δ cancels.
    assert found == pytest.approx(
        expected, rel=1e-12, abs=1e-13 * float(np.max(d)) if name == "binary" else 0
    )


def test_some_bundles_are_answered_as_among_all() -> None:
    numerics, *_, price = drawn(3, "harmonic", ill=True)
    some = np.arange(len(price))[::2]
    whole = numerics.inverse_marginal(price)
    np.testing.assert_allclose(numerics.take(some).inverse_marginal(price[some]), whole[some], rtol=1e-14)


TANGENTS_OBJECTIVES = objectives()


def looked_at(
    numerics: Numerics, rates: Array, upper: Array | float = np.inf, wrong: Array | float = 1.0
) -> Contradiction | None:
    """Return what is found at rates, their marginals multiplied by `wrong`."""
    n = len(rates)
    with np.errstate(all="ignore"):
        cost, marginal = numerics.cost(rates), wrong * numerics.marginal(rates)
    bounds = np.zeros(n), np.broadcast_to(upper, n)
    return contradiction(numerics, rates, cost, np.asarray(marginal), *bounds, np.ones(n))


@pytest.mark.parametrize("name", TANGENTS_OBJECTIVES)
def test_kernels_hold_at_any_scale(name: str) -> None:
    """Δ over 16 decades, importance over 24, rates up to 10^±12 times Δ."""
    rng, n = np.random.default_rng(5), 2000
    change_rate, importance = 10.0 ** rng.uniform(-8, 8, n), 10.0 ** rng.uniform(-12, 12, n)
    asked = change_rate * 10.0 ** rng.uniform(-3, 3, n)
    on_request = TANGENTS_OBJECTIVES[name].refresh is fo.Refresh.ON_REQUEST
    try:
        sources = fo.Sources(change_rate, importance, request_rate=asked if on_request else None)
        numerics, _ = numerics_of(TANGENTS_OBJECTIVES[name], sources)
    except fo.SourceDataError:
        assert "2 values" in name  # the settings of two sources
        return
    assert numerics is not None
    if not checkable(numerics):
        return
    upper = asked if on_request else np.full(n, np.inf)
    for spread in (1, 6, 12):
        rates = np.minimum(change_rate * 10.0 ** rng.uniform(-spread, spread, n), upper)
        assert looked_at(numerics, rates, upper) is None


@pytest.mark.parametrize("cases", [test_extreme_arguments, test_compiler])
def test_declared_expressions_hold_at_any_scale(cases: Any) -> None:  # noqa: ANN401 - a module
    """Values cancel as they are written: log(1 + 1e-30), squares of differences, an exponent of 700."""
    n = len(cases.D)
    for written, _ in cases.EXPRESSIONS.values():
        rate = cp.Variable(n, nonneg=True)
        expression = written(rate)
        if not expression.is_dcp():
            continue
        sign = 1.0 if expression.is_convex() else -1.0
        numerics = DerivedNumerics(compile_expression(expression, rate), sign, np.ones(n))
        for seed in range(10):
            rng = np.random.default_rng(seed)
            near = 10.0 ** rng.uniform(-30, 30, n) if seed % 2 else cases.RATES * rng.uniform(0.5, 2.0, n)
            assert looked_at(numerics, near) is None, expression


@matrix(wrong=[0.0, -1.0, 0.99, 1.01, 100.0], n=[1, 2, FEW + 100])
def test_one_wrong_slope_among_many_is_found(n: int, wrong: float) -> None:
    """Up or down, of few sources: both sides are looked at. Of many, a share of them is wrong."""
    change_rate = np.full(n, 2.0)
    rate = cp.Variable(n, nonneg=True)
    declared = cp.multiply(change_rate, cp.inv_pos(rate)) + rate
    derived = DerivedNumerics(compile_expression(declared, rate), 1.0, np.ones(n))
    written = Kernel(
        np.ones(n), (change_rate,), lambda r, d: d / r, lambda r, d: d / r**2, lambda p, d: np.sqrt(d / p)
    )
    factor = np.ones(n)
    factor[-30:] = wrong
    for numerics in (derived, written):
        for rates in (np.ones(n), np.full(n, 1e-6), np.linspace(0.3, 1.1, n)):
            assert looked_at(numerics, rates) is None
            found = present(looked_at(numerics, rates, wrong=factor))
            assert found.source >= n - 30
            assert found.cost < found.least


def test_a_source_at_its_bound_is_looked_at_inside() -> None:
    class Sharp(fo.Objective):
        """Defined up to the rate 1 only."""

        def per_source(self, rate: Any, sources: fo.Sources) -> Any:  # noqa: ANN401
            return -cp.multiply(sources.importance, cp.sqrt(1.0 - rate))

    numerics, _ = numerics_of(Sharp(), fo.Sources([1.0, 1.0, 1.0], max_rate=1.0))
    assert numerics is not None
    assert looked_at(numerics, np.array([1.0, 0.0, 0.999999]), 1.0) is None
    one = numerics.take(slice(0, 1))
    # Costs below the rate show a slope that is too low; what only rates beyond the bound show is no harm.
    assert looked_at(one, np.array([0.5]), 0.5, wrong=0.5) is not None
    assert looked_at(one, np.array([0.5]), 0.5, wrong=2.0) is None


def test_a_cost_that_is_not_convex_is_found() -> None:
    """No slope is wrong here: the cost is 1 − ρ², and its tangents lie above it."""
    concave = Kernel(np.ones(1), (np.ones(1),), lambda r, _: 1 - r**2, lambda r, _: 2 * r, lambda p, _: p / 2)
    found = present(looked_at(concave, np.array([0.5])))
    assert "not convex" in found.sentence("a")


@pytest.mark.parametrize("kind", ["Age", "AccumulatedDelay", "HarmonicStaleness", "BinaryFreshness"])
def test_costs_that_are_small_differences_are_no_contradiction(kind: str) -> None:
    """Announced changes nearly all of which are followed: 1/p − 1, over Δ from 1e-6 to 1e4."""
    rate, off = map(np.ravel, np.meshgrid(10.0 ** np.arange(-6.0, 5.0), 10.0 ** np.arange(-15.0, -2.0)))
    for weight in (1e-6, 1.0, 1e6):
        sources = fo.Sources(rate, weight, signalled=True)
        problem = fo.Problem(getattr(fo.problems, kind)(fo.Refresh.POISSON), sources, 2.0 * float(rate.sum()))
        with np.errstate(all="raise"):
            assert np.isfinite(fo.certify(problem, rate * (1.0 - off)).gap)
