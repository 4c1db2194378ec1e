"""Inputs at the edge of what is defined, each once found to go wrong."""

from typing import Any

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from freshopt.solvers import Conic, Uniform, WaterFilling
from tests.ground_truth.named import AGE, DELAY, DELAY_ON_REQUEST, declared
from tests.ground_truth.refusals import refused
from tests.ground_truth.strata import matrix
from tests.ground_truth.tolerances import CONIC, EXACT, SCALAR

TWO = fo.Sources([1.0, 2.0])


@matrix(refresh=["periodic", fo.Refresh.ON_SIGNAL, None], kind=[AccumulatedDelay, Age, HarmonicStaleness])
def test_only_a_discipline_of_objectives_is_accepted(kind: Any, refresh: Any) -> None:  # noqa: ANN401
    words = (
        r"Pass Refresh\.(POISSON or Refresh\.PERIODIC|PERIODIC, Refresh\.POISSON or Refresh\.ON_REQUEST)\b"
    )
    refused(words, kind, refresh, error=fo.ObjectiveError)


def test_a_domain_that_the_bounds_do_not_keep_is_refused() -> None:
    cube = declared(lambda rate, _: cp.power(rate - 1.0, 3))
    with pytest.raises(fo.ObjectiveError, match=r"undefined for source 0 at the rate 0.*Set min_rate"):
        fo.Problem(cube, TWO, 5.0)
    inside = fo.Problem(cube, fo.Sources([1.0, 2.0], min_rate=1.0), 5.0)
    assert fo.solve(inside).rates.tolist() == [1.0, 1.0]
    barrier = declared(lambda rate, _: cp.inv_pos(4.0 - rate) + cp.inv_pos(rate))
    refused(r"at the rate 5.*Set max_rate", fo.Problem, barrier, TWO, 5.0, error=fo.ObjectiveError)
    below = fo.Problem(barrier, TWO, 3.0)
    assert fo.solve(below).status is fo.Status.OPTIMAL
    refused("Set max_rate", below.with_bandwidth, 5.0, error=fo.ObjectiveError)


def test_a_large_importance_does_not_make_a_gap_vanish() -> None:
    problem = fo.Problem(
        declared(lambda rate, _: cp.log(rate), sense="maximise"), fo.Sources([1.0, 1.0], importance=1e13), 5.0
    )
    assert not fo.certify(problem, [1.0, 0.5]).confirms(CONIC)
    assert fo.solve(problem).rates.tolist() == [2.5, 2.5]


def test_a_vanishing_cost_needs_no_importance() -> None:
    square = declared(lambda rate, sources: cp.square(rate / sources.change_rate - 1.0))
    solution = fo.solve(fo.Problem(square, fo.Sources([1.0, 2.0], importance=0.0), 5.0))
    assert np.all(np.abs(solution.rates - [1.0, 2.0]) <= SCALAR)


@matrix(n=[1, 2, 7], solver=[WaterFilling(), Conic()])
def test_a_constant_marginal_is_bounded_by_the_bandwidth(solver: Any, n: int) -> None:  # noqa: ANN401
    problem = fo.Problem(declared(lambda rate, _: -rate), fo.Sources(np.ones(n)), 5.0)
    solution = fo.solve(problem, solver)
    assert abs(solution.value + 5.0) <= CONIC
    assert abs(solution.rates.sum() - 5.0) <= CONIC


def test_a_host_used_up_by_min_rate() -> None:
    limits = {"a": 0.6}
    starved = fo.Sources([1.0, 2.0], host=["a", "a"], min_rate=[0.6, 0.0])
    with pytest.raises(
        fo.InfeasibleProblemError, match="uses up a host's limit and leaves nothing for source 1"
    ):
        fo.solve(fo.Problem(DELAY, starved, 5.0, limits))
    full = fo.Sources([1.0, 2.0, 3.0], host=["a", "a", "b"], min_rate=[0.5, 0.1, 0.0])
    solution = fo.solve(fo.Problem(DELAY, full, 5.0, limits))
    assert np.all(np.abs(solution.rates - [0.5, 0.1, 4.4]) <= EXACT)


def test_age_of_a_source_that_changes_very_fast() -> None:
    sources = fo.Sources(1.08e8, 9.33e7, refresh_cost=2.580735e-6, max_rate=0.085)
    assert fo.solve(fo.Problem(AGE, sources, 67.0)).rates.tolist() == [0.085]


def test_without_a_certificate_nothing_is_claimed() -> None:
    problem = fo.Problem(DELAY, TWO, 3.0)
    assert "Not certified" in repr(fo.solve(problem, certify=False))
    assert fo.solve(problem, Uniform(), certify=False).status is fo.Status.INACCURATE


def test_an_objective_may_hold_arrays_for_a_cone_solver_too() -> None:
    weights = np.arange(1.0, 5.0)
    objective = declared(lambda rate, _: cp.multiply(weights, cp.inv_pos(rate)))
    problem = fo.Problem(objective, fo.Sources(np.ones(4), max_rate=[0.001, 9.0, 9.0, 9.0]), 5.0)
    exact, conic = fo.solve(problem), fo.solve(problem, Conic())
    assert abs(exact.value - conic.value) <= CONIC * exact.value


def problem_with(host: Any, limit: Any) -> fo.Problem:  # noqa: ANN401
    return fo.Problem(DELAY, fo.Sources([1, 2], host=host), 5.0, {"a": limit})


def test_refusals_stay_in_the_family() -> None:
    problem, nonsense = fo.Problem(DELAY, TWO, 3.0), "a"
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
        solution = fo.solve(fo.Problem(DELAY_ON_REQUEST, sources, bandwidth))
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
