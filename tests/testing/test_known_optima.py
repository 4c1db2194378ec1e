"""Known optima against definitions and solvers, and the strategies, which reach every corner."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

import freshopt as fo
from freshopt.solvers import WaterFilling
from freshopt.testing import KnownOptimum, assert_optimal, known_optima
from freshopt.testing.planted_optima import CELLS, Cell
from freshopt.testing.strategies import known_optima as planted
from freshopt.testing.strategies import magnitudes, problems
from tests.ground_truth import cell_truth, cost_truth
from tests.ground_truth.tolerances import EXACT, SCALAR

CORNERS = settings(max_examples=60, deadline=None)
RATES, CHANGES = (0.2, 1.3, 6.0), 1.7


def definition(cell: Cell, change_rate: float, rate: float) -> Any:  # noqa: ANN401 - mpmath numbers
    """The objective of a source of importance 1, by quadrature or summation of its definition."""
    name, _, discipline = cell.name.rpartition(", ")
    curves = {"binary freshness": "binary", "harmonic staleness": "harmonic", "accumulated delay": "count"}
    if name == "log freshness":
        return -np.log(1.0 - float(cell_truth.cost_by_definition("binary", "periodic", change_rate, rate)))
    if name in curves:
        cost = cell_truth.cost_by_definition(curves[name], discipline.lower(), change_rate, rate)
        return 1 - cost if name == "binary freshness" else cost
    if cell.name == "polling knapsack":
        return change_rate * (1 - cost_truth.binary(change_rate).integral(1 / rate) * rate)
    age = cost_truth.age(change_rate) if name == "age" else cost_truth.power(1.0, 0.5)
    return age.poisson(rate) if discipline == "Poisson" else age.integral(1 / rate) * rate


@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_planted_cells_are_the_definitions(cell: Cell) -> None:
    rates = tuple(rate for rate in RATES if not cell.signalled or rate < CHANGES)
    d, r = np.full(len(rates), CHANGES), np.array(rates)
    values = np.broadcast_to(cell.value(d, r), r.shape)
    for rate, value in zip(rates, values, strict=True):
        expected = float(definition(cell, CHANGES, rate))
        assert abs(value - expected) <= SCALAR * abs(expected)
    sign = 1.0 if cell.objective.sense == "maximise" else -1.0
    step = 1e-5 * r
    slope = sign * (cell.value(d, r + step) - cell.value(d, r - step)) / (2.0 * step)
    assert np.allclose(cell.marginal(d, r), slope, rtol=1e-7, atol=0.0)  # the error of central differences


@pytest.mark.parametrize("known", known_optima(1), ids=lambda known: known.name)
def test_known_optima_are_found_and_proved(known: KnownOptimum) -> None:
    solution = fo.solve(known.problem, WaterFilling(), tolerance=SCALAR)
    assert np.max(np.abs(solution.rates - known.rates)) <= SCALAR * np.max(known.rates), known.origin
    assert abs(solution.value - known.value) <= SCALAR * abs(known.value)
    if known.price is not None:
        assert abs(solution.price - known.price) <= SCALAR * known.price
    for host, price in known.host_prices.items():
        assert abs(solution.host_prices[host] - price) <= SCALAR * price
    assert_optimal(known.problem, known.rates, EXACT)


def test_known_optima_are_many_and_named_once() -> None:
    names = [known.name for known in known_optima()]
    assert len(set(names)) == len(names) >= 50
    assert all(known.origin for known in known_optima())
    moved = [known for known in known_optima() if len(known.rates) > 1 and "alike" not in known.name]
    for known in moved:  # rates that are even would be optimal for a solver that does nothing
        if "cost equal" not in known.name:
            assert np.ptp(known.rates) > 0.1 * np.max(known.rates)


@pytest.mark.exhaustive
@CORNERS
@given(known=planted())
def test_planted_optima_of_any_size(known: KnownOptimum) -> None:
    assert_optimal(known.problem, known.rates, EXACT)
    assert 1 <= len(known.rates) <= 8


@CORNERS
@given(problem=problems())
@pytest.mark.exhaustive
def test_problems_are_solved_in_the_corners(problem: fo.Problem) -> None:
    solution = fo.solve(problem, WaterFilling(), tolerance=SCALAR)
    assert_optimal(problem, solution.rates, SCALAR)


@pytest.mark.parametrize(
    "corner",
    [
        lambda p: len(p.sources) == 1,
        lambda p: bool(np.any(p.sources.importance == 0.0)),
        lambda p: bool(np.any(p.lower > 0.0)),
        lambda p: bool(np.any((p.lower == p.upper) & (p.lower > 0.0))),
        lambda p: bool(p.host_limits),
        lambda p: bool(np.any(p.sources.signalled)),
        lambda p: bool(np.ptp(p.sources.refresh_cost) > 0.0),
        pytest.param(
            lambda p: bool(np.ptp(np.log10(p.sources.change_rate)) >= 10.0), marks=pytest.mark.exhaustive
        ),
        lambda p: p.objective.sense == "maximise",
    ],
)
def test_every_corner_is_reached(corner: Any) -> None:  # noqa: ANN401 - a lambda
    many = settings(max_examples=20_000, database=None, deadline=None, phases=[Phase.generate])
    assert corner(find(problems(), corner, settings=many, random=random.Random(0)))


@pytest.mark.exhaustive
def test_a_wrong_solver_is_found_out_and_the_example_is_small() -> None:
    """The square-root rule, without bounds: right for delay, wrong for what has a cap."""

    def wrong(problem: fo.Problem) -> bool:
        root = np.sqrt(problem.sources.importance * problem.sources.change_rate)
        if not np.any(root):
            return False
        try:
            assert_optimal(problem, problem.bandwidth * root / root.sum())
        except AssertionError:
            return True
        return False

    plain = problems(st.just(fo.problems.AccumulatedDelay(fo.Refresh.POISSON)), constrained=False)
    bounded = problems(st.just(fo.problems.AccumulatedDelay(fo.Refresh.POISSON)))
    assert len(find(bounded, wrong).sources) == 1

    @CORNERS
    @given(problem=plain)
    def right(problem: fo.Problem) -> None:
        assert not wrong(problem)

    right()


def test_magnitudes_stay_between_their_powers() -> None:
    for bound in (lambda x: x <= 1e-6, lambda x: x >= 1e4, lambda x: x == 1.0):
        assert 1e-7 <= find(magnitudes(), bound) <= 1e4
