"""Rows of plain CVXPY constraints, limits changed by label, and cycles of ratios."""

import itertools
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse

import freshopt as fo
from freshopt.modelling.general_program import closed_cycle
from freshopt.modelling.row_recognition import UnknownCouplingError, recognise
from freshopt.separable.rows import RowBlock, Rows
from freshopt.solvers import Conic
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, HARMONIC_PERIODIC, present
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

N = 9
RNG = np.random.default_rng(7)
SOURCES = fo.Sources(RNG.lognormal(size=N), RNG.lognormal(size=N))
W, D = np.array(SOURCES.importance), np.array(SOURCES.change_rate)
TIER = np.array([True, False, True, True, False, False, True, False, True])
R = RNG.lognormal(size=(3, N))
SPARSE = scipy.sparse.random(4, N, 0.5, random_state=1, format="csr")
SHIFT = RNG.lognormal(size=N)

CONSTRAINTS: dict[str, Callable[[cp.Variable], cp.Constraint]] = {
    "a dot product": lambda rate: W @ rate <= 3.0,
    "a dot product, rate first": lambda rate: rate @ W <= 3.0,
    "a sum": lambda rate: cp.sum(rate) <= 3.0,
    "a mean": lambda rate: cp.mean(rate) <= 0.3,
    "written the other way": lambda rate: cp.sum(rate) >= 3.0,
    "both sides": lambda rate: cp.sum(rate[:4]) <= 2.0 * cp.sum(rate[4:]) + 1.0,
    "a matrix": lambda rate: R @ rate <= np.array([1.0, 2.0, 3.0]),
    "a matrix, rate first": lambda rate: rate @ R.T <= 2.0,
    "a sparse matrix": lambda rate: SPARSE @ rate <= 4.0,
    "a mask": lambda rate: cp.sum(rate[TIER]) <= 1.0,
    "indices": lambda rate: cp.sum(rate[[1, 5, 2]]) <= 1.0,
    "a slice backwards": lambda rate: rate[::-1] <= SHIFT,
    "ratios": lambda rate: rate[1:] <= cp.multiply(SHIFT[1:], rate[:-1]),
    "one ratio": lambda rate: rate[3] <= 2.0 * rate[0],
    "stacked": lambda rate: cp.hstack([rate[0], cp.sum(rate), W @ rate]) <= np.array([1.0, 2.0, 3.0]),
    "quotients": lambda rate: cp.sum(rate / SHIFT) / 4.0 <= 1.0,
    "doubled": lambda rate: cp.sum(rate) + cp.sum(rate[TIER]) - rate[0] <= 1.0,
    "a curve": lambda rate: W @ cp.inv_pos(rate) <= 50.0,
    "harmonic staleness": lambda rate: (
        cp.sum(cp.multiply(W, cp.logistic(np.log(D) - cp.log(rate)))) <= 0.3 * W.sum()
    ),
    "a tier's share of old copies": lambda rate: cp.sum(cp.exp(-3.0 * rate[TIER])) / TIER.sum() <= 0.4,
    "a tier's curve with constants of its own": lambda rate: (
        cp.sum(cp.multiply(W[TIER], cp.inv_pos(rate[TIER] + SHIFT[TIER]))) <= 4.0
    ),
    "a concave floor": lambda rate: W @ cp.log(cp.multiply(1.0 / D, rate)) >= -20.0,
    "a matrix of curves": lambda rate: R @ cp.exp(-rate) <= np.array([3.0, 4.0, 5.0]),
    "curve and rate": lambda rate: cp.sum(rate) + W @ cp.inv_pos(rate) <= 60.0,
    "two curves": lambda rate: cp.sum(cp.exp(-rate)) + cp.sum(cp.square(rate)) <= 30.0,
    "elementwise": lambda rate: cp.square(rate) + cp.inv_pos(rate) <= SHIFT + 20.0,
    "a kink": lambda rate: cp.sum(cp.maximum(rate - SHIFT, 0.0)) <= 2.0,
    "a parameter": lambda rate: cp.sum(rate) <= cp.Parameter(value=3.0),
}


def rows_of(make: Callable[[cp.Variable], cp.Constraint]) -> tuple[cp.Variable, cp.Constraint, Rows]:
    rate = cp.Variable(N, nonneg=True, name="rate")
    constraint = make(rate)
    return rate, constraint, Rows.gather(recognise(constraint, rate, SOURCES, "it"), N)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_rows_are_the_constraint(name: str) -> None:
    rate, constraint, rows = rows_of(CONSTRAINTS[name])
    rng = np.random.default_rng(3)
    for _ in range(5):
        rate.value = rng.lognormal(0.0, 1.5, N)
        expected = np.reshape(constraint.expr.value, -1)
        found = rows.used(np.array(rate.value)) - rows.limits
        assert len(rows) == len(expected)
        assert np.max(np.abs(found - expected)) <= EXACT * (1.0 + np.max(np.abs(rows.values(rate.value))) * N)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_curves_are_convex_and_their_coefficients_positive(name: str) -> None:
    _, _, rows = rows_of(CONSTRAINTS[name])
    assert np.all(rows.coefficient[rows.kind > 0] >= 0.0)
    for curve in rows.curves:
        assert np.all(curve.curvature(np.full(N, 0.7)) >= 0.0)


def test_equal_expressions_share_a_curve() -> None:
    def both(rate: cp.Variable) -> list[cp.Constraint]:
        staleness = cp.multiply(W, cp.logistic(np.log(D) - cp.log(rate)))
        again = cp.multiply(W, cp.logistic(np.log(D) - cp.log(rate)))
        return [cp.sum(staleness[TIER]) <= 2.0, cp.sum(again[~TIER]) <= 3.0]

    problem = fo.Problem(DELAY, SOURCES, 3.0, constraints=both)
    assert len(present(problem.program).rows.curves) == 1


def test_bounds_of_single_sources_become_bounds() -> None:
    problem = fo.Problem(DELAY, SOURCES, 5.0, constraints=lambda rate: [rate <= 2.0, rate[3] >= 0.25])
    assert problem.program is None
    assert np.array_equal(problem.upper, np.full(N, 2.0))
    assert np.array_equal(np.flatnonzero(problem.lower), [3])


REFUSED: dict[str, tuple[Callable[[cp.Variable], cp.Constraint], str]] = {
    "a norm of sums": (lambda rate: cp.norm(R @ rate) <= 2.0, "couples sources by the term"),
    "a norm of differences": (
        lambda rate: cp.norm(cp.diff(rate)) <= 2.0,
        "couples different sources in the term",
    ),
    "a quadratic form": (
        lambda rate: cp.quad_form(rate, R.T @ R) <= 2.0,
        "couples sources by the term 'QuadForm",
    ),
    "a curve of a sum": (lambda rate: cp.inv_pos(cp.sum(rate)) <= 2.0, "couples sources by the term"),
    "a curve of two selections": (
        lambda rate: cp.sum(cp.square(rate[:3] - rate[3:6])) <= 2.0,
        "couples different sources in the term",
    ),
    "an equation of two rates": (lambda rate: rate[0] - rate[1] == 0.0, "is no inequality"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_couples_sources_is_named(name: str) -> None:
    make, words = REFUSED[name]
    rate = cp.Variable(N, nonneg=True, name="rate")
    with pytest.raises(UnknownCouplingError, match=r"^constraint 'it' ") as caught:
        recognise(make(rate), rate, SOURCES, "it")
    assert words in str(caught.value)


def test_other_variables_and_shapes_are_refused() -> None:
    rate, other = cp.Variable(N, nonneg=True, name="rate"), cp.Variable(name="t")
    with pytest.raises(fo.ObjectiveError, match="uses the variable 't'"):
        recognise(cp.sum(rate) <= other, rate, SOURCES, "it")
    with pytest.raises(fo.ObjectiveError, match="not convex"):
        recognise(cp.sum(cp.sqrt(rate)) <= 1.0, rate, SOURCES, "it")
    with pytest.raises(fo.ObjectiveError, match="uses the parameter 'most', which has no value"):
        recognise(cp.sum(rate) <= cp.Parameter(name="most"), rate, SOURCES, "it")


def test_an_equation_of_one_rate_is_its_bounds() -> None:
    fixed = np.array([0.7, *np.full(N - 1, np.nan)])
    least, most = np.where(np.isnan(fixed), 0.0, fixed), np.where(np.isnan(fixed), np.inf, fixed)
    bounded = fo.Sources(D, W, min_rate=least, max_rate=most)
    want = fo.solve(fo.Problem(DELAY, bounded, bandwidth=5.0)).rates
    for rule in (lambda rate: [rate[0] == 0.7], lambda rate: [-2.0 * rate[:1] == -1.4]):
        found = fo.solve(fo.Problem(DELAY, SOURCES, bandwidth=5.0, constraints=rule))
        assert found.rates == pytest.approx(want, rel=EXACT)
    every = fo.Problem(
        DELAY, SOURCES, bandwidth=50.0, constraints=lambda rate: [rate == np.arange(1.0, N + 1)]
    )
    assert fo.solve(every).rates.tolist() == [*range(1, N + 1)]


@pytest.mark.parametrize("objective", [DELAY, HARMONIC, BINARY, HARMONIC_PERIODIC])
def test_rates_under_what_has_no_rows_have_a_value(objective: fo.Objective) -> None:
    problem = fo.Problem(objective, SOURCES, bandwidth=5.0, constraints=lambda rate: [rate[0] == rate[1]])
    found = fo.solve(problem, throw=False)
    tied = fo.solve(fo.Problem(objective, SOURCES, 5.0, constraints=[fo.Tied([0, 0, *range(1, N - 1)])]))
    # The periodic cell's cones are a quadrature of its cost.
    assert found.value == pytest.approx(tied.value, rel=1e-4)
    assert "is no inequality" in str(found)


LIMITS_RNG = np.random.default_rng(8)
HOST = np.array(["a", "b", "c"])[np.arange(N) % 3]
LIMITS_SOURCES = fo.Sources(LIMITS_RNG.lognormal(size=N), LIMITS_RNG.lognormal(size=N), host=HOST)
SIZE = LIMITS_RNG.lognormal(size=N)
LIMITS_TIER = np.array(["news", "blog", None] * 3, dtype=object)
OUTER = np.where(HOST == "a", "x", "y")


def problem(*constraints: Any, bandwidth: float | None = 5.0, **given: Any) -> fo.Problem:  # noqa: ANN401
    return fo.Problem(HARMONIC, LIMITS_SOURCES, bandwidth, constraints=list(constraints), **given)


WAYS: dict[str, tuple[fo.Problem, str, float, fo.Problem]] = {
    "a budget": (
        problem(fo.Budget(9.0, cost=SIZE, name="bytes")),
        "bytes",
        4.0,
        problem(fo.Budget(4.0, cost=SIZE, name="bytes")),
    ),
    "a group of a budget": (
        problem(fo.Budget({"news": 1.0, "blog": 2.0}, by=LIMITS_TIER, cost=SIZE, name="tier")),
        "tier[blog]",
        0.5,
        problem(fo.Budget({"news": 1.0, "blog": 0.5}, by=LIMITS_TIER, cost=SIZE, name="tier")),
    ),
    "one number for all groups": (
        problem(fo.Budget(1.5, by="host", cost=SIZE, name="host")),
        "host",
        0.75,
        problem(fo.Budget(0.75, by="host", cost=SIZE, name="host")),
    ),
    "one of the groups that share a number": (
        problem(fo.Budget(1.5, by="host", cost=SIZE, name="host")),
        "host[b]",
        0.75,
        problem(fo.Budget({"a": 1.5, "b": 0.75, "c": 1.5}, by="host", cost=SIZE, name="host")),
    ),
    "a target": (
        problem(fo.Target(BINARY, at_least=0.3, name="fresh")),
        "fresh",
        0.59,
        problem(fo.Target(BINARY, at_least=0.59, name="fresh")),
    ),
    "a nested limit": (
        problem(fo.Nested(["host", OUTER], at_most={"x": 1.0, "b": 1.0}, at_least={"c": 0.5})),
        "nested[b]",
        0.5,
        problem(fo.Nested(["host", OUTER], at_most={"x": 1.0, "b": 0.5}, at_least={"c": 0.5})),
    ),
    "a nested reserve": (
        problem(fo.Nested(["host", OUTER], at_most={"x": 1.0}, at_least={"b": 2.0})),
        "nested reserve[b]",
        2.5,
        problem(fo.Nested(["host", OUTER], at_most={"x": 1.0}, at_least={"b": 2.5})),
    ),
    "the bandwidth": (problem(), "bandwidth", 2.0, problem(bandwidth=2.0)),
    "the bandwidth, declared": (
        problem(fo.Budget(5.0, name="pages"), bandwidth=None),
        "pages",
        2.0,
        problem(fo.Budget(2.0, name="pages"), bandwidth=None),
    ),
    "a host": (problem(host_limits={"a": 1.0}), "host[a]", 0.5, problem(host_limits={"a": 0.5})),
    "a host, declared": (
        problem(fo.Budget({"a": 1.0}, by="host", name="host")),
        "host[a]",
        0.5,
        problem(fo.Budget({"a": 0.5}, by="host", name="host")),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_changed_limit_is_the_problem_declared_anew(way: str) -> None:
    before, label, value, expected = WAYS[way]
    changed = before.with_limit(label, value)
    one, other = fo.solve(changed), fo.solve(expected)
    assert changed.row_labels == expected.row_labels == before.row_labels
    assert np.allclose(one.rates, other.rates, rtol=SCALAR, atol=0.0)
    assert fo.solve(before).value != pytest.approx(one.value, rel=CONIC)


def written(rate: cp.Expression) -> list[cp.Expression]:
    return [(SIZE @ rate <= 9.0).set_label("bytes"), (cp.sum(rate) <= 5.0).set_label("pages")]


LIMITED = problem(
    fo.Budget({"news": 1.0}, by=LIMITS_TIER, cost=SIZE, name="tier"), fo.Tied(HOST), fo.Ratio([-1] * N)
)
LIMITS_REFUSED = {
    "unknown": (LIMITED, "nothing", "no constraint is labelled 'nothing'. Pass one of bandwidth, tier"),
    "several": (LIMITED, "tier", "for each of several groups. Pass one of tier[news]"),
    "of a group without one": (LIMITED, "tier[blog]", "no constraint is labelled"),
    "a tie": (LIMITED, "tied", "no limit of its own"),
    "a ratio": (LIMITED, "ratio[1]", "no limit of its own"),
    "a function's": (problem(written, bandwidth=None), "bytes", "a number of the function"),
    "a function's bandwidth": (problem(written, bandwidth=None), "pages", "a number of the function"),
}


@pytest.mark.parametrize("way", LIMITS_REFUSED)
def test_limits_that_are_none_are_refused_in_one_line(way: str) -> None:
    given, label, words = LIMITS_REFUSED[way]
    with pytest.raises(fo.SourceDataError) as caught:
        given.with_limit(label, 2.0)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bandwidth_in_a_function_stays_one_row() -> None:
    """Declared anew for other sources it is not taken for a second bandwidth beside the function's."""
    plain = problem(written, bandwidth=None)
    faster = plain.with_change_rate(2.0 * np.array(LIMITS_SOURCES.change_rate))
    assert faster.row_labels == plain.row_labels
    assert [c.label for c in plain.to_cvxpy().constraints].count("pages") == 1
    refused("a number of the function", plain.with_bandwidth, 3.0)


def test_two_rows_of_one_label_are_refused() -> None:
    refused("two constraints are named 'bandwidth'", problem, fo.Budget(3.0))


@pytest.mark.parametrize("cost", ["each", "once"])
def test_ties_are_the_same_in_cvxpy(cost: Any) -> None:  # noqa: ANN401
    """Written out by hand: three hosts of three sources, one rate each."""
    sources = fo.Sources(LIMITS_SOURCES.change_rate, LIMITS_SOURCES.importance, refresh_cost=SIZE)
    tied = fo.Problem(DELAY, sources, 5.0, constraints=[fo.Tied(HOST, cost=cost)])
    rate = cp.Variable(3, nonneg=True)
    member = HOST[:, None] == np.array(["a", "b", "c"])
    paid = (SIZE[:, None] * member).max(axis=0) if cost == "once" else (SIZE[:, None] * member).sum(axis=0)
    weight = (np.array(LIMITS_SOURCES.importance * LIMITS_SOURCES.change_rate)[:, None] * member).sum(axis=0)
    truth = cp.Problem(cp.Minimize(weight @ cp.inv_pos(rate)), [paid @ rate <= 5.0])
    truth.solve(solver="CLARABEL")
    assert fo.solve(tied).value == pytest.approx(truth.value, rel=CONIC)
    assert tied.to_cvxpy().solve(solver="CLARABEL") == pytest.approx(truth.value, rel=CONIC)
    assert fo.solve(tied, Conic()).value == pytest.approx(truth.value, rel=CONIC)


Ints = np.typing.NDArray[np.int64]
Floats = np.typing.NDArray[np.float64]


def rows_of_cycles(child: Ints, parent: Ints, ratio: Floats, n: int) -> Rows:
    m, every = len(child), np.arange(len(child))
    block = RowBlock.linear(
        "ratio",
        tuple(range(m)),
        np.concatenate((child, parent)),
        np.concatenate((every, every)),
        # Rows may have any scale.
        np.concatenate((np.full(m, 3.0), -3.0 * ratio)),
        np.zeros(m),
    )
    return Rows.gather([block], n)


def least_product(child: Ints, parent: Ints, ratio: Floats, n: int) -> float:
    """Return the least product of ratios around a simple cycle, by trying all; inf without a cycle."""
    length = np.full((n, n), np.inf)
    for i, j, c in zip(child, parent, ratio, strict=True):
        length[i, j] = min(length[i, j], c)
    least = np.inf
    for size in range(2, n + 1):
        for path in itertools.permutations(range(n), size):
            if path[0] == min(path):
                least = min(
                    least, float(np.prod([length[path[k], path[(k + 1) % size]] for k in range(size)]))
                )
    return least


@pytest.mark.parametrize("seed", range(40))
def test_cycles_without_room_are_found_and_no_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    child = rng.integers(0, n, int(rng.integers(2, 14)))
    parent = (child + rng.integers(1, n, len(child))) % n
    # Potentials leave cycles of product 1 or more, of which a factor takes some below.
    x = rng.lognormal(0.0, 3.0, n)
    ratio = x[child] / x[parent] * rng.choice([1.0, 1.0, 2.0, 5.0], len(child))
    if seed % 2:
        ratio[rng.integers(0, len(child))] *= 0.8
    found, least = (
        closed_cycle(rows_of_cycles(child, parent, ratio, n)),
        least_product(child, parent, ratio, n),
    )
    if least > 1.0 + 1e-9:
        assert found is None
    elif least > 1.0 - 1e-9:
        assert present(found)[1] == 0.0
    else:
        assert found is not None
        around = [
            ratio[(child == a) & (parent == b)].min()
            for a, b in zip(found[0], np.roll(found[0], -1), strict=True)
        ]
        assert np.log(around).sum() == pytest.approx(found[1], rel=1e-9)
        assert found[1] < -1e-9


def test_a_long_ring_is_seen() -> None:
    n = 1000
    every, ratio = np.arange(n), np.exp(np.random.default_rng(1).normal(0.0, 3.0, n))
    ratio[0] /= np.prod(ratio ** (1.0 / n)) ** n
    found = present(closed_cycle(rows_of_cycles(every, np.roll(every, -1), ratio, n)))
    assert found[1] == 0.0
    assert sorted(found[0]) == list(every)


def test_cycles_of_product_one_are_refused_in_one_line() -> None:
    sources = fo.Sources([1.0, 4.0, 9.0], names=["a", "b", "c"])
    for constraints in (
        [fo.Ratio(of=[1, 0, -1], at_most=[0.5, 2.0, 1.0])],
        [fo.Ratio(of=[1, -1, -1], at_most=0.5), fo.Ratio(of=[-1, 0, -1], at_most=2.0, name="back")],
        [lambda rate: [rate[0] <= 0.5 * rate[1], rate[1] <= 2.0 * rate[0]]],
    ):
        with pytest.raises(
            fo.SourceDataError, match=r"^ratios around the cycle 'a', 'b' multiply to 1, .* fo.Tied"
        ):
            fo.Problem(DELAY, sources, 6.0, constraints=constraints)


def test_a_cycle_with_a_little_room_is_solved() -> None:
    """Of 1 + 1e-6 times round: ρ_1 = 2·ρ_0 but for rounding of the proportions."""
    sources = fo.Sources([1.0, 100.0, 9.0])
    around = fo.Ratio(of=[1, 0, -1], at_most=[0.5 * (1.0 + 1e-6), 2.0, 1.0])
    solution = fo.solve(fo.Problem(DELAY, sources, 6.0, constraints=[around]))
    x, z = np.sqrt((1.0 + 50.0) / 3.0), 3.0
    assert solution.rates == pytest.approx(np.array([x, 2.0 * x, z]) * 6.0 / (3.0 * x + z), rel=1e-5)
