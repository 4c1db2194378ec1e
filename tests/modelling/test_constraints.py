"""Declared constraints are rows or refused, and rates that only rows bound."""

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import freshopt as fo
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.objective import Refresh
from freshopt.numerics.arrays import Array
from freshopt.problems import LaterThan
from freshopt.separable.rows import Rows
from tests.ground_truth.named import AGE, BINARY, DELAY, HARMONIC, present
from tests.ground_truth.own_objectives import Delay
from tests.ground_truth.refusals import refused
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

N = 12
RNG = np.random.default_rng(5)
HOST = np.array(["a", "b", "c", "d"])[np.arange(N) % 4]
DOMAIN = np.where(np.isin(HOST, ["a", "b"]), "x", "y")
SOURCES = fo.Sources(
    RNG.lognormal(size=N),
    RNG.lognormal(size=N),
    host=HOST,
    refresh_cost=RNG.lognormal(size=N),
    signalled=np.arange(N) % 5 == 4,
)
TIER = np.array(["news", "news", "blog", None] * 3, dtype=object)


class Found(fo.Objective):
    """A gain that levels off."""

    sense = "maximise"

    def per_source(self, rate: cp.Expression, sources: fo.Sources) -> cp.Expression:
        return cp.multiply(sources.importance, 1.0 - cp.exp(-rate))


DECLARED: dict[str, Constraint] = {
    "budget": fo.Budget(3.0),
    "budget of its own unit": fo.Budget(3.0, cost=RNG.lognormal(size=N), name="bytes"),
    "budget by group": fo.Budget({"news": 1.0, "blog": 2.0}, by=TIER),
    "one budget for each host": fo.Budget(1.5, cost=RNG.lognormal(size=N), by="host"),
    "nested": fo.Nested(["host", DOMAIN], at_most={"x": 2.0, "c": 0.5}, at_least={"d": 0.25, "y": 1.0}),
    "target, maximised": fo.Target(BINARY, at_least={"news": 0.5}, by=TIER),
    "target of one's own, maximised": fo.Target(Found(), at_least=0.1),
    "target, minimised": fo.Target(HARMONIC, at_most=0.4, by="host"),
    "target of age": fo.Target(AGE, at_most=2.0),
    "target of delay": fo.Target(DELAY, at_most={"blog": 2.0}, by=TIER),
    "ratio": fo.Ratio(of=np.arange(N) - 1, at_most=2.0),
}
SILENT = fo.Sources(SOURCES.change_rate, SOURCES.importance, host=HOST, refresh_cost=SOURCES.refresh_cost)


def sources_for(name: str) -> fo.Sources:
    return SILENT if "own, maximised" in name else SOURCES


@pytest.mark.parametrize("name", DECLARED)
def test_rows_are_the_cvxpy_constraints(name: str) -> None:
    constraint, sources = DECLARED[name], sources_for(name)
    rate = cp.Variable(N, nonneg=True, name="rate")
    written = [c for c in constraint.constraints_on(rate, sources) if c.label is not None]
    rows = Rows.gather(constraint.blocks(sources), N)
    assert [c.label for c in written] == list(rows.labels)
    for _ in range(5):
        most = np.where(SOURCES.signalled, SOURCES.change_rate, np.inf)
        rates = np.minimum(RNG.lognormal(0.0, 1.0, N), most)
        rate.value = rates
        expected = np.array([float(c.expr.value) for c in written])
        assert rows.used(rates) - rows.limits == pytest.approx(expected, rel=1e3 * EXACT, abs=1e3 * EXACT)


@pytest.mark.parametrize("name", DECLARED)
def test_used_and_limits_are_shown_as_they_were_declared(name: str) -> None:
    constraint, sources = DECLARED[name], sources_for(name)
    rows = Rows.gather(constraint.blocks(sources), N)
    rates = RNG.lognormal(0.0, 0.2, N)
    shown, limits = rows.declared(rows.used(rates)), rows.declared(rows.limits)
    met = rows.used(rates) <= rows.limits
    assert np.array_equal(met, np.where(rows.direction < 0.0, shown >= limits, shown <= limits))
    if isinstance(constraint, fo.Target):
        given = constraint.at_least if constraint.at_most is None else constraint.at_most
        numbers = list(given.values()) if isinstance(given, dict) else [given] * len(rows)
        assert limits == pytest.approx(np.array(numbers, dtype=float), rel=EXACT)


def test_a_target_is_the_weighted_mean() -> None:
    sources = fo.Sources([1.0, 4.0, 2.0], importance=[1.0, 3.0, 5.0])
    target = fo.Target(BINARY, at_least={"a": 0.5}, by=["a", "a", "b"])
    rows = Rows.gather(target.blocks(sources), 3)
    shown = rows.declared(rows.used(np.array([1.0, 2.0, 3.0])))
    assert shown == pytest.approx([(1.0 * 1.0 / 2.0 + 3.0 * 2.0 / 6.0) / 4.0], rel=EXACT)


def test_bandwidth_and_hosts_declared_are_the_short_form() -> None:
    short = fo.Problem(HARMONIC, SOURCES, 5.0, {"a": 0.5, "c": 1.0})
    declared = [fo.Budget(5.0), fo.Budget({"a": 0.5, "c": 1.0}, by="host", name="host")]
    long = fo.Problem(HARMONIC, SOURCES, constraints=declared)
    cost = SOURCES.refresh_cost
    by_host = np.stack([cost * (HOST == "a"), cost * (HOST == "c")])
    plain = fo.Problem(
        HARMONIC,
        SOURCES,
        constraints=lambda rate: [
            (cost @ rate <= 5.0).set_label("bandwidth"),
            (by_host @ rate <= np.array([0.5, 1.0])).set_label("h"),
        ],
    )
    expected = fo.solve(short)
    for problem in (long, plain):
        assert problem.program is None
        found = fo.solve(problem)
        assert np.array_equal(found.rates, expected.rates)
        assert found.price == expected.price
        assert list(found.host_prices.values()) == list(expected.host_prices.values())


def test_ties_take_the_bounds_of_all() -> None:
    sources = fo.Sources([1.0, 2.0, 3.0], min_rate=[0.1, 0.3, 0.0], max_rate=[2.0, 1.0, 9.0])
    problem = fo.Problem(DELAY, sources, 5.0, constraints=[fo.Tied(["p", "p", None])])
    assert np.array_equal(present(problem.program).lower, [0.3, 0.0])
    assert present(problem.program).upper[0] == 1.0
    rate = cp.Variable(3)
    rate.value = np.array([1.0, 2.0, 5.0])
    (tied,) = fo.Tied(["p", "p", None]).constraints_on(rate, sources)
    assert tied.violation() == pytest.approx(1.0, abs=CONIC)


REFUSED: dict[str, tuple[Callable[[], list[Any]], str]] = {
    "a name twice": (lambda: [fo.Budget(1.0), fo.Budget(2.0)], "two constraints are named 'bandwidth'"),
    "an unknown group": (lambda: [fo.Budget({"z": 1.0}, by=TIER)], "unknown groups 'z'"),
    "limits without groups": (lambda: [fo.Budget({"z": 1.0})], "no groups"),
    "a limit of 0": (lambda: [fo.Budget(0.0)], "not > 0"),
    "a limit that is no number": (lambda: [fo.Budget("many")], "not a number"),  # type: ignore[arg-type]
    "a negative cost": (lambda: [fo.Budget(1.0, cost=-1.0)], "negative"),
    "a wrong length": (lambda: [fo.Budget(1.0, by=["a"])], "has shape"),
    "no such column": (lambda: [fo.Budget(1.0, by="region")], "no column 'region'"),
    "the wrong side": (lambda: [fo.Target(BINARY, at_most=0.5)], "takes at_least="),
    "both sides": (lambda: [fo.Target(AGE, at_most=0.5, at_least=0.1)], "takes at_most="),
    "no objective": (lambda: [fo.Target("fresh", at_most=0.5)], "there is no objective 'fresh'"),
    "groups across": (
        lambda: [fo.Nested(["host", np.arange(N) % 3], at_most={"a": 1.0})],
        "Groups must be nested",
    ),
    "a group in two levels": (lambda: [fo.Nested(["host", HOST], at_most={"a": 1.0})], "in two levels"),
    "a parent out of range": (lambda: [fo.Ratio(of=np.full(N, 99))], "positions that are none"),
    "ties twice": (lambda: [fo.Tied(TIER), fo.Tied(TIER, name="t")], "declared twice"),
    "a cost of ties": (lambda: [fo.Tied(TIER, cost="half")], "'each' or 'once'"),  # type: ignore[arg-type]
    "no constraint": (lambda: [3.0], "is no constraint"),
    "a class": (lambda: [fo.Budget], "is no constraint"),
    "not convex": (lambda: [lambda rate: [cp.sum(cp.sqrt(rate)) <= 1.0]], "not convex"),
    "not a list": (lambda: [lambda _: 3.0], "Return a list"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_constraints_are_refused_in_one_line(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises((fo.FreshoptError, TypeError)) as caught:
        fo.Problem(HARMONIC, SILENT, 5.0, constraints=make())
    message = str(caught.value)
    assert words in message
    assert "\n" not in message
    assert message.endswith(".")


def test_a_problem_needs_a_bound_on_every_rate() -> None:
    refused("no bandwidth", fo.Problem, HARMONIC, SILENT)
    free = np.ones(N)
    free[4] = 0.0
    with pytest.raises(fo.SourceDataError, match="no constraint bounds the rate of source 4"):
        fo.Problem(HARMONIC, SILENT, constraints=[fo.Budget(1.0, cost=free)])


def test_bounds_that_exclude_a_row_are_told_by_arithmetic() -> None:
    sources = fo.Sources([1.0, 1.0], max_rate=0.25)
    with pytest.raises(fo.InfeasibleProblemError, match=r"Freshness: it is 0\.2 at most.*at least 0\.5"):
        fo.Problem(fo.Spend(), sources, constraints=[fo.Target(BINARY, at_least=0.5)])
    with pytest.raises(fo.InfeasibleProblemError, match=r"LaterThan: it is .* at least.*at most 0\.1"):
        fo.Problem(
            fo.Spend(), sources, constraints=[fo.Target(LaterThan(1.0, refresh=Refresh.POISSON), at_most=0.1)]
        )


def test_a_problem_can_be_declared_anew() -> None:
    bytes_used = fo.Budget(3.0, cost=RNG.lognormal(size=N), name="bytes")
    problem = fo.Problem(HARMONIC, SOURCES, constraints=[fo.Budget(5.0), bytes_used])
    more = problem.with_bandwidth(7.0)
    assert (more.bandwidth, more.labels) == (7.0, problem.labels)
    faster = problem.with_change_rate(2.0 * np.array(SOURCES.change_rate))
    assert faster.constraints == problem.constraints
    assert faster.bandwidth == 5.0


def test_ties_that_cost_once_are_so_in_cvxpy() -> None:
    cost = RNG.lognormal(size=N)
    plain = fo.Sources(SOURCES.change_rate, SOURCES.importance, host=HOST, refresh_cost=SOURCES.refresh_cost)
    size, room = fo.Budget({"x": 1.0, "y": 2.0}, cost=cost, by=DOMAIN, name="size"), {"a": 0.5, "b": 1.0}
    tied = fo.Tied(np.arange(N) // 2, cost="once")
    problem = fo.Problem(HARMONIC, plain, 3.0, room, constraints=[size, tied])
    declared = problem.to_cvxpy()
    declared.solve(solver=cp.CLARABEL)
    solution = fo.solve(problem)
    assert solution.value == pytest.approx(declared.value, rel=CONIC)
    assert max(solution.prices.values()) > CONIC
    # Host limits and groups cut across bundles: each row is paid by the dearest of a bundle in it.
    pair = solution.rates[::2]
    assert np.array_equal(pair, solution.rates[1::2])
    dear = plain.refresh_cost.reshape(-1, 2).max(axis=1)
    assert float(dear @ pair) <= 3.0 * (1.0 + EXACT)


def test_bounds_that_cross_by_rounding_touch() -> None:
    # 0.3/3 is an ulp below 0.1.
    sources = fo.Sources([1.0, 1.0], min_rate=[0.1, 0.0])
    rows = lambda rate: [3.0 * rate[0] <= 0.3 * (1.0 - 2e-16), rate[1] <= 1.0]  # noqa: E731
    problem = fo.Problem(DELAY, sources, constraints=[rows])
    assert problem.upper[0] == problem.lower[0] == 0.1
    with pytest.raises(fo.InfeasibleProblemError, match="constraints of single sources leave no rates"):
        fo.Problem(DELAY, sources, constraints=lambda rate: [rate[0] <= 0.05, rate[1] <= 1.0])


CHANGE_RATE = np.array([1.0, 4.0, 2.0])
BOUNDED_SOURCES = fo.Sources(CHANGE_RATE)
Rule = Callable[[Any], Any]


def under(rule: Rule, sources: fo.Sources = BOUNDED_SOURCES) -> fo.Problem:
    return fo.Problem(Delay(), sources, constraints=rule)


# A row Σ g(ρ) ≤ limit: how it is written, g, g' and the limit.
CURVES: dict[str, tuple[Rule, Callable[[Any], Any], Callable[[Any], Any], float]] = {
    "power": (lambda r: cp.sum(cp.power(r, 1.5)) <= 10, lambda r: r**1.5, lambda r: 1.5 * r**0.5, 10.0),
    "energy": (lambda r: cp.sum(cp.exp(r)) <= 20, np.exp, np.exp, 20.0),
    "energy, huge rates": (
        lambda r: cp.sum(cp.exp(1e-9 * r)) <= 20,
        lambda r: np.exp(1e-9 * r),
        lambda r: 1e-9 * np.exp(1e-9 * r),
        20.0,
    ),
    "energy, tiny rates": (
        lambda r: cp.sum(cp.exp(1e9 * r)) <= 20,
        lambda r: np.exp(1e9 * r),
        lambda r: 1e9 * np.exp(1e9 * r),
        20.0,
    ),
    "square": (lambda r: cp.sum(cp.square(r)) <= 10, lambda r: r * r, lambda r: 2 * r, 10.0),
    "beyond a threshold": (
        lambda r: cp.sum(cp.pos(r - 1)) <= 2,
        lambda r: np.maximum(r - 1, 0),
        lambda r: 1.0 * (r > 1),
        2.0,
    ),
}


def best_at(price: Any, slope: Callable[[Any], Any]) -> Any:  # noqa: ANN401 - long double
    """Return where Δ/ρ² = price·g'(ρ), by bisection."""
    low, high = np.full(3, np.longdouble(1e-30)), np.full(3, np.longdouble(1e30))
    for _ in range(75):
        middle = np.sqrt(low * high)
        more = CHANGE_RATE / middle**2 > price * slope(middle)
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return low


@pytest.mark.parametrize("name", CURVES)
def test_rates_that_a_curve_bounds_are_solved_and_proved(name: str) -> None:
    written, curve, slope, limit = CURVES[name]
    found = fo.solve(under(written))
    low, high = np.longdouble(1e-60), np.longdouble(1e60)
    with np.errstate(over="ignore"):
        for _ in range(75):
            price = np.sqrt(low * high)
            over = np.sum(curve(best_at(price, slope))) > limit
            low, high = (price, high) if over else (low, price)
        expected = best_at(high, slope).astype(float)
    assert np.allclose(found.rates, expected, rtol=1e-6, atol=0.0)
    assert found.value == pytest.approx(float(np.sum(CHANGE_RATE / expected)), rel=SCALAR)
    assert present(found.certificate).confirms(SCALAR)


# Rates that other rates bound, and what they are at the optimum.
COMPARED: dict[str, tuple[Rule, Array | None]] = {
    "bought": (lambda r: [cp.sum(r[:2]) <= r[2], r[2] <= 5], np.array([5 / 3, 10 / 3, 5.0])),
    "bought by energy": (
        lambda r: [cp.sum(r[:2]) <= r[2], cp.square(r[2]) <= 25],
        np.array([5 / 3, 10 / 3, 5.0]),
    ),
    "one after the other": (lambda r: [r[0] <= 2, r[1] <= 3 * r[0], cp.exp(r[2]) <= r[1]], None),
    "a sum of both kinds": (lambda r: [r[0] + cp.exp(r[1]) <= 5, r[2] <= r[0] + r[1]], None),
    "weighted": (lambda r: [2 * r[0] + 3 * r[1] <= 4 * r[2] + 1, r[2] <= 5], None),
}


@pytest.mark.parametrize("name", COMPARED)
def test_rates_that_other_rates_bound_are_solved_and_proved(name: str) -> None:
    rule, expected = COMPARED[name]
    found = fo.solve(under(rule))
    assert present(found.certificate).confirms(SCALAR)
    capped = fo.solve(under(rule, fo.Sources(CHANGE_RATE, max_rate=1e3)))
    assert found.value == pytest.approx(capped.value, rel=SCALAR)
    if expected is not None:
        assert np.allclose(found.rates, expected, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("name", [*CURVES, *COMPARED])
def test_no_feasible_rate_is_beyond_the_bounds(name: str) -> None:
    """Bounds are no rows: one that cuts rates off would be a wrong answer."""
    rule = CURVES[name][0] if name in CURVES else COMPARED[name][0]
    problem = under(rule)
    program = present(problem.program)
    assert bool(np.all(np.isfinite(program.upper)))
    rng, bounded = np.random.default_rng(3), np.flatnonzero(np.isinf(problem.upper))
    for _ in range(1000):
        beyond = program.upper * rng.uniform(0.0, 1.0, 3) ** 2
        k = rng.choice(bounded)
        beyond[k] = 1.000001 * program.upper[k]
        with np.errstate(all="ignore"):
            over = program.rows.used(beyond) > program.rows.limits
        assert bool(np.any(over))


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        (lambda r: cp.sum(r[:2]) <= r[2], "source 0, source 1, source 2"),
        (lambda r: r[0] <= 5, "source 1, source 2"),
        (lambda r: [cp.exp(r[0]) <= r[1], r[2] <= 1], "source 0, source 1"),
        (lambda r: cp.sum(cp.exp(-r)) <= 1, "source 0, source 1, source 2"),
        (lambda r: [cp.exp(r[0]) + r[1] <= r[2], cp.inv_pos(r[2]) <= 5], "source 0, source 1, source 2"),
    ],
)
def test_what_nothing_bounds_is_still_refused(rule: Rule, named: str) -> None:
    refused(f"no constraint bounds the rate of {named}, and more always", under, rule)


def test_rows_that_exclude_all_rates_are_told_as_such() -> None:
    with pytest.raises(fo.InfeasibleProblemError, match="bounds on the rates exclude"):
        under(lambda r: cp.sum(cp.exp(r)) <= 2)
    opposed = fo.solve(under(lambda r: [cp.sum(cp.exp(r)) <= 20, cp.sum(r) >= 50]), throw=False)
    assert opposed.status is fo.Status.INFEASIBLE


def test_tied_sources_are_bounded_together() -> None:
    tied = fo.Problem(
        Delay(), BOUNDED_SOURCES, constraints=[fo.Tied([0, 0, 1]), lambda r: cp.sum(cp.exp(r)) <= 20]
    )
    found = fo.solve(tied)
    assert found.rates[0] == found.rates[1]
    assert float(np.sum(np.exp(found.rates))) == pytest.approx(20.0, rel=SCALAR)


def test_constraints_without_rows_are_left_to_a_cone_solver() -> None:
    """A norm couples sources: nothing is proved, and nothing says that rates have no bound."""
    found = fo.solve(under(lambda r: cp.norm(r) <= np.sqrt(10.0)), throw=False)
    expected = fo.solve(under(CURVES["square"][0])).rates
    assert np.allclose(found.rates, expected, rtol=1e-3, atol=0.0)
