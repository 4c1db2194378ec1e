"""Magnitudes, kinks, vanishing costs and edges that once went wrong, each kept as it was found."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    PiecewiseLinearCost,
    SynchronizationCost,
)
from freshopt.solvers import Conic, Uniform, WaterFilling
from tests.ground_truth import named
from tests.ground_truth.named import present
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import exhaustive, matrix
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

DEADLINE = SynchronizationCost(PiecewiseLinearCost(slopes=[0.0, 1.0], intercepts=[0.0, -2.0]))


# e^{−ρ/Δ}: a cost that becomes as small as one likes and never 0.
Decay = named.written(
    "Decay",
    lambda rate, sources: cp.multiply(
        sources.importance, cp.exp(-cp.multiply(1.0 / sources.change_rate, rate))
    ),
)


@pytest.mark.parametrize(("worst", "nothing"), [(20.0, False), (30.0, False), (36.0, True), (60.0, True)])
def test_a_cost_is_nothing_below_rounding_of_that_without_refreshes(worst: float, nothing: bool) -> None:
    """Rates that cost e^{−worst}, where e^{−200} is to be had and 2 is what never refreshing costs."""
    problem = fo.Problem(Decay(), fo.Sources([1.0, 1.0]), 400.0)
    poor = fo.certify(problem, [worst, 400.0 - worst])
    assert poor.vanishing == poor.confirms(0.5) == nothing
    best = fo.solve(problem)
    assert np.all(np.abs(best.rates - 200.0) <= 1e-9 * 200.0)


@pytest.mark.parametrize("objective", [named.DELAY, named.AGE, named.HARMONIC])
def test_costs_that_begin_at_infinity_are_never_nothing(objective: fo.Objective) -> None:
    """Far beyond what is needed every absolute gap is small; only the relative one tells rates apart."""
    problem = fo.Problem(objective, fo.Sources([1.0, 1.0]), 2e30)
    poor = fo.certify(problem, [1.99e30, 0.01e30])
    assert not poor.confirms(CONIC)
    assert fo.solve(problem).rates.tolist() == [1e30, 1e30]


@pytest.mark.parametrize("budget", [1e-12, 1e-9, 1e-6])
def test_little_bandwidth_hides_no_loss_beside_a_large_cost(budget: float) -> None:
    """Few refreshes save little of the cost without any: a gap below its rounding still counts."""
    problem = fo.Problem(named.BINARY, fo.Sources([1.0, 2.0, 0.5]), budget)
    poor = fo.certify(problem, [0.5 * budget, 0.5 * budget, 0.0])
    assert not poor.vanishing
    assert not poor.confirms(1e-3)
    assert fo.solve(problem, tolerance=1e-9).status is fo.Status.OPTIMAL


def test_announced_changes_cost_nothing_only_if_all_can_be_followed() -> None:
    announced = fo.Sources([1.0, 2.0], importance=[1e-20, 1.0], signalled=True)
    scarce = fo.Problem(named.HARMONIC, announced, 2.5)
    assert fo.certify(scarce, [0.1, 2.0]).vanishing  # costs 2e-20, and 0.7 at half the rates
    assert fo.solve(scarce).status is fo.Status.OPTIMAL
    ample = fo.Problem(named.HARMONIC, announced, 3.0)
    assert fo.solve(ample).rates.tolist() == [1.0, 2.0]
    assert fo.certify(ample, [1.0, 2.0 - 4e-16]).vanishing
    assert not fo.certify(ample, [1.0, 2.0 - 1e-13]).confirms(CONIC)


def test_a_kink_whose_sides_differ_by_thirty_decades() -> None:
    """The marginal on a kink is that of a little more rate, or one ulp of it costs more than all the rest."""
    weights = [5.8353381815785654e35, 224898.57920394777, 1.427751600509476e35]
    sources = fo.Sources(
        1.0, weights, refresh_cost=[0.43942572209849595, 2.826803513543251, 1.6492296378633162]
    )
    solution = fo.solve(fo.Problem(DEADLINE, sources, 1.6192831442130087))
    assert present(solution.certificate).relative_gap <= EXACT
    spare = (1.6192831442130087 - 0.5 * (0.43942572209849595 + 1.6492296378633162)) / 2.826803513543251
    assert solution.value == pytest.approx(weights[1] * (1.0 - 2.0 * spare), rel=EXACT)


@pytest.mark.parametrize("kink", [3.0, 7.0, 0.7, 11.0, 1.0 / 3.0, 49.0])
def test_kinks_that_rounding_moves(kink: float) -> None:
    objective = SynchronizationCost(PiecewiseLinearCost(slopes=[0.0, 1.0], intercepts=[0.0, -kink]))
    sources = fo.Sources([1.0, 1.0], importance=[1e30, 1.0])
    solution = fo.solve(fo.Problem(objective, sources, 1.5 / kink))
    assert solution.value == pytest.approx(0.5, rel=EXACT)


@matrix(refresh=[fo.Refresh.POISSON, fo.Refresh.PERIODIC], kind=[Age, HarmonicStaleness])
def test_inverses_of_prices_beyond_all_floats(kind: Any, refresh: fo.Refresh) -> None:  # noqa: ANN401
    """Price times change rate overflows while the price is sought; the rates were NaN."""
    objective = kind(refresh)
    for sources, bandwidth in (
        (fo.Sources([1e90, 1e90], [1.0, 1e-90], refresh_cost=1e-30), 1e-20),
        (fo.Sources([5.64e96, 5.64e96], [1e60, 1e-60], refresh_cost=3.29e68), 1.4e37),
    ):
        problem = fo.Problem(objective, sources, bandwidth)
        solution = fo.solve(problem, throw=False)
        assert np.all(np.isfinite(solution.rates))
        assert solution.status in (fo.Status.OPTIMAL, fo.Status.INACCURATE)
    ends = present(problem.numerics)
    with np.errstate(over="ignore"):
        assert np.all(ends.inverse_marginal(np.full(2, 1e308)) >= 0.0)


def test_uniform_rates_beyond_all_floats_are_refused_not_called_optimal() -> None:
    problem = fo.Problem(named.DELAY, fo.Sources([1e100, 1e-100], refresh_cost=[1e100, 1e-100]), 1e-100)
    solution = fo.solve(problem, Uniform(), throw=False)
    assert solution.status is not fo.Status.OPTIMAL or math.isfinite(solution.value)


# What the sources of each kind of other copy are like, from one magnitude.
OTHERS: dict[str, Callable[[float], dict[str, Any]]] = {
    "failing": lambda x: {"success": [min(1.0, x), 1.0, 0.5]},
    "requested": lambda x: {"request_rate": [x, 1.0, 1.0 / x]},
    "requested, windows": lambda x: {
        "request_rate": [x, 1.0, 1.0 / x],
        "stale_while_revalidate": [x, 0.0, 1.0],
    },
    "conditional": lambda x: {"changed_cost": [x, 0.0, 1.0]},
}
MAGNITUDES = [
    pytest.param(kind, x, marks=[] if (kind, x) == ("failing", 1e9) else exhaustive)
    for kind in OTHERS
    for x in (1e-30, 1e-9, 1e9, 1e30)
    # A fetch that succeeds once in 1e30 needs more attempts than are counted.
    if not (kind == "failing" and x < 1e-9)
]


@pytest.mark.parametrize(("kind", "x"), MAGNITUDES)
def test_magnitudes_of_other_copies_are_proved(kind: str, x: float) -> None:
    disciplines = (
        [fo.Refresh.ON_REQUEST] if "requested" in kind else [fo.Refresh.POISSON, fo.Refresh.PERIODIC]
    )
    for refresh in disciplines:
        for objective in (BinaryFreshness(refresh), AccumulatedDelay(refresh), HarmonicStaleness(refresh)):
            sources = fo.Sources([1.0, x, 2.0], 1.0, **OTHERS[kind](x))
            for bandwidth in (1e-3, 1.0, 1e3):
                solution = fo.solve(fo.Problem(objective, sources, bandwidth), throw=False)
                assert solution.status is fo.Status.OPTIMAL, (objective, bandwidth, solution)
                assert np.all(np.isfinite(solution.rates))
                assert solution.bandwidth_used <= bandwidth * (1.0 + EXACT)


TWO = fo.Sources([1.0, 2.0])


@matrix(refresh=["periodic", fo.Refresh.ON_SIGNAL, None], kind=[AccumulatedDelay, Age, HarmonicStaleness])
def test_only_a_discipline_of_objectives_is_accepted(kind: Any, refresh: Any) -> None:  # noqa: ANN401
    words = (
        r"Pass Refresh\.(POISSON or Refresh\.PERIODIC|PERIODIC, Refresh\.POISSON or Refresh\.ON_REQUEST)\b"
    )
    refused(words, kind, refresh, error=fo.ObjectiveError)


def test_a_domain_that_the_bounds_do_not_keep_is_refused() -> None:
    cube = named.declared(lambda rate, _: cp.power(rate - 1.0, 3))
    with pytest.raises(fo.ObjectiveError, match=r"undefined for source 0 at the rate 0.*Set min_rate"):
        fo.Problem(cube, TWO, 5.0)
    inside = fo.Problem(cube, fo.Sources([1.0, 2.0], min_rate=1.0), 5.0)
    assert fo.solve(inside).rates.tolist() == [1.0, 1.0]
    barrier = named.declared(lambda rate, _: cp.inv_pos(4.0 - rate) + cp.inv_pos(rate))
    refused(r"at the rate 5.*Set max_rate", fo.Problem, barrier, TWO, 5.0, error=fo.ObjectiveError)
    below = fo.Problem(barrier, TWO, 3.0)
    assert fo.solve(below).status is fo.Status.OPTIMAL
    refused("Set max_rate", below.with_bandwidth, 5.0, error=fo.ObjectiveError)


def test_a_large_importance_does_not_make_a_gap_vanish() -> None:
    problem = fo.Problem(
        named.declared(lambda rate, _: cp.log(rate), sense="maximise"),
        fo.Sources([1.0, 1.0], importance=1e13),
        5.0,
    )
    assert not fo.certify(problem, [1.0, 0.5]).confirms(CONIC)
    assert fo.solve(problem).rates.tolist() == [2.5, 2.5]


def test_a_vanishing_cost_needs_no_importance() -> None:
    square = named.declared(lambda rate, sources: cp.square(rate / sources.change_rate - 1.0))
    solution = fo.solve(fo.Problem(square, fo.Sources([1.0, 2.0], importance=0.0), 5.0))
    assert np.all(np.abs(solution.rates - [1.0, 2.0]) <= SCALAR)


@matrix(n=[1, 2, 7], solver=[WaterFilling(), Conic()])
def test_a_constant_marginal_is_bounded_by_the_bandwidth(solver: Any, n: int) -> None:  # noqa: ANN401
    problem = fo.Problem(named.declared(lambda rate, _: -rate), fo.Sources(np.ones(n)), 5.0)
    solution = fo.solve(problem, solver)
    assert abs(solution.value + 5.0) <= CONIC
    assert abs(solution.rates.sum() - 5.0) <= CONIC


def test_a_host_used_up_by_min_rate() -> None:
    limits = {"a": 0.6}
    starved = fo.Sources([1.0, 2.0], host=["a", "a"], min_rate=[0.6, 0.0])
    with pytest.raises(
        fo.InfeasibleProblemError, match="uses up a host's limit and leaves nothing for source 1"
    ):
        fo.solve(fo.Problem(named.DELAY, starved, 5.0, limits))
    full = fo.Sources([1.0, 2.0, 3.0], host=["a", "a", "b"], min_rate=[0.5, 0.1, 0.0])
    solution = fo.solve(fo.Problem(named.DELAY, full, 5.0, limits))
    assert np.all(np.abs(solution.rates - [0.5, 0.1, 4.4]) <= EXACT)


def test_age_of_a_source_that_changes_very_fast() -> None:
    sources = fo.Sources(1.08e8, 9.33e7, refresh_cost=2.580735e-6, max_rate=0.085)
    assert fo.solve(fo.Problem(named.AGE, sources, 67.0)).rates.tolist() == [0.085]


def test_without_a_certificate_nothing_is_claimed() -> None:
    problem = fo.Problem(named.DELAY, TWO, 3.0)
    assert "Not certified" in repr(fo.solve(problem, certify=False))
    assert fo.solve(problem, Uniform(), certify=False).status is fo.Status.INACCURATE


def test_an_objective_may_hold_arrays_for_a_cone_solver_too() -> None:
    weights = np.arange(1.0, 5.0)
    objective = named.declared(lambda rate, _: cp.multiply(weights, cp.inv_pos(rate)))
    problem = fo.Problem(objective, fo.Sources(np.ones(4), max_rate=[0.001, 9.0, 9.0, 9.0]), 5.0)
    exact, conic = fo.solve(problem), fo.solve(problem, Conic())
    assert abs(exact.value - conic.value) <= CONIC * exact.value


def problem_with(host: Any, limit: Any) -> fo.Problem:  # noqa: ANN401
    return fo.Problem(named.DELAY, fo.Sources([1, 2], host=host), 5.0, {"a": limit})


def test_refusals_stay_in_the_family() -> None:
    problem, nonsense = fo.Problem(named.DELAY, TWO, 3.0), "a"
    price: Any = nonsense
    refused("mixed kinds", problem_with, ["a", None], 1.0)
    refused("'a': 'x'", problem_with, ["a", "b"], "x")
    refused("price must be numbers", fo.certify, problem, [1, 1], price=price)
    refused("no limits", fo.frontier, problem, [])
    refused("tolerance is nan", fo.solve, problem, tolerance=float("nan"))


@pytest.mark.parametrize("refresh", [fo.Refresh.POISSON, fo.Refresh.PERIODIC])
def test_fetches_that_never_fail_and_cost_nothing_more_are_plain_ones(refresh: fo.Refresh) -> None:
    plain = fo.solve(fo.Problem(HarmonicStaleness(refresh), TWO, 3.0))
    sure = fo.Sources([1.0, 2.0], success=1.0)
    free = fo.Sources([1.0, 2.0], changed_cost=0.0)
    for sources in (sure, free):
        same = fo.solve(fo.Problem(HarmonicStaleness(refresh), sources, 3.0))
        assert same.rates == pytest.approx(plain.rates, rel=EXACT)
        assert same.value == pytest.approx(plain.value, rel=EXACT)


@pytest.mark.parametrize("window", [None, 0.5])
def test_enough_for_every_request_is_the_request_rate(window: float | None) -> None:
    sources = fo.Sources([1.0, 2.0], request_rate=[3.0, 4.0], stale_while_revalidate=window)
    for bandwidth in (7.0, 70.0):
        solution = fo.solve(fo.Problem(named.DELAY_ON_REQUEST, sources, bandwidth))
        assert solution.rates == pytest.approx([3.0, 4.0], rel=EXACT)
        assert solution.lifetimes == pytest.approx([0.0, 0.0], abs=SCALAR)
        assert solution.value == pytest.approx(0.0, abs=SCALAR) or window is not None


@pytest.mark.parametrize("refresh", [fo.Refresh.POISSON, fo.Refresh.PERIODIC])
def test_bounds_that_use_all_of_a_conditional_bandwidth(refresh: fo.Refresh) -> None:
    bound = [1.0, 2.0]
    sources = fo.Sources(bound, changed_cost=[5.0, 0.0], min_rate=bound, max_rate=bound)
    used = fo.Problem(HarmonicStaleness(refresh), sources, 1e6).used_by_source(np.array([1.0, 2.0]))
    solution = fo.solve(fo.Problem(HarmonicStaleness(refresh), sources, float(np.sum(used))))
    assert solution.rates.tolist() == [1.0, 2.0]
    with pytest.raises(fo.InfeasibleProblemError, match="bounds need"):
        fo.Problem(HarmonicStaleness(refresh), sources, 0.99 * float(np.sum(used)))


def test_one_source_takes_what_there_is() -> None:
    others: list[dict[str, Any]] = [{"success": 0.01}, {"changed_cost": 1e3}, {"request_rate": 1e6}]
    for given in others:
        refresh = fo.Refresh.ON_REQUEST if "request_rate" in given else fo.Refresh.PERIODIC
        problem = fo.Problem(AccumulatedDelay(refresh), fo.Sources([2.0], 1.0, **given), 3.0)
        assert fo.solve(problem).bandwidth_used == pytest.approx(3.0, rel=EXACT)


def test_sources_without_importance_get_no_other_copies() -> None:
    others: list[dict[str, Any]] = [{"success": 0.5}, {"changed_cost": 3.0}, {"request_rate": 2.0}]
    for given in others:
        refresh = fo.Refresh.ON_REQUEST if "request_rate" in given else fo.Refresh.POISSON
        sources = fo.Sources([1.0, 1.0], [0.0, 1.0], **given)
        rates = fo.solve(fo.Problem(BinaryFreshness(refresh), sources, 1.0)).rates
        assert rates[0] == 0.0
        assert rates[1] > 0.0
