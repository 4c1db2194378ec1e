"""Greedy picks, compiled: the same as those of the tables in NumPy, and worth as much as the formulas say."""

from __future__ import annotations

import numpy as np
import pytest

import freshopt as fo
from freshopt.problems import AccumulatedDelay, Age, BinaryFreshness, HarmonicStaleness
from freshopt.scheduling import Greedy, greedy, greedy_loops
from freshopt.scheduling.expected_cost import expected_value
from tests.ground_truth.tolerances import SCALAR

PERIODIC = fo.Refresh.PERIODIC
KINDS = {
    "harmonic": HarmonicStaleness(PERIODIC),
    "binary": BinaryFreshness(PERIODIC),
    "delay": AccumulatedDelay(PERIODIC),
    "age": Age(PERIODIC),
}


def problem_of(kind: str, case: str, n: int) -> fo.Problem:
    rng = np.random.default_rng(4)
    change_rate, importance = rng.lognormal(0.0, 1.5, n), rng.pareto(1.5, n) + 1.0
    if case == "alike":
        change_rate, importance = rng.integers(1, 4, n).astype(float), rng.integers(1, 3, n).astype(float)
    elif case == "worthless":
        importance[::2] = 0.0
    return fo.Problem(KINDS[kind], fo.Sources(change_rate, importance), bandwidth=float(n))


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["unequal", "alike", "worthless", "aged", "small marks"])
def test_compiled_picks_are_those_of_the_tables(
    kind: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 700
    problem = problem_of(kind, case, n)
    age = np.random.default_rng(5).exponential(1.0, n) if case == "aged" else 0.0
    monkeypatch.setattr(greedy, "WORTHWHILE", 10**18)
    tables, time = Greedy(problem, age).times(np.ones(n), 4.0)
    monkeypatch.setattr(greedy, "WORTHWHILE", 0)
    if case == "small marks":  # in Python, where the marks can be moved: every branch, many times
        monkeypatch.setattr(greedy_loops, "LOWER", 40)
        monkeypatch.setattr(greedy_loops, "UPPER", 5)
        monkeypatch.setattr(greedy, "fast", lambda function: function)
    compiled, again = Greedy(problem, age).times(np.ones(n), 4.0)
    assert len(tables) == 4 * n
    assert np.array_equal(compiled, tables)
    assert np.array_equal(again, time)


@pytest.mark.exhaustive
def test_nobody_worth_a_pick_leaves_it_to_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = fo.Problem(BinaryFreshness(PERIODIC), fo.Sources(np.ones(3), 0.0), bandwidth=3.0)
    monkeypatch.setattr(greedy, "WORTHWHILE", 0)
    assert Greedy(problem).times(np.ones(3), 1.0)[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_index_and_gap_are_those_of_the_curve(kind: str) -> None:
    rng = np.random.default_rng(6)
    d, age = rng.lognormal(0.0, 2.0, 300), rng.lognormal(0.0, 1.5, 300)
    curve = KINDS[kind].curve(fo.Sources(d))
    assert curve.periodic_demand is not None
    code = greedy_loops.KINDS[curve.periodic_demand]
    values = np.array([greedy_loops.index(code, *pair) for pair in zip(d, age, strict=True)])
    np.testing.assert_allclose(values, curve.index(age, d), rtol=1e-13)
    inside = d * age < 15.0  # beyond, binary indices do not change any more
    found = [greedy_loops.gap(code, a, 2.0, 2.0 * v) for a, v in zip(d[inside], values[inside], strict=True)]
    assert np.all(np.array(found) <= age[inside])
    assert np.all(np.array(found) > age[inside] * (1.0 - 1e-2))


@pytest.mark.exhaustive
def test_a_day_of_many_sources_settles_near_the_optimum() -> None:
    n = 20_000
    problem = problem_of("binary", "unequal", n)
    solution = fo.solve(problem)
    plan = fo.schedule(solution, 30.0, Greedy(problem))
    assert expected_value(plan, problem.objective, problem.sources) >= solution.value * (1.0 - SCALAR)
