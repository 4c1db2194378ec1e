"""Lexicographic minimax of disjoint groups, against a sequence of conic programs."""

from dataclasses import replace

import numpy as np
import pytest

import freshopt as fo
from freshopt.dual_search.leximin import Leximin, fill_leximin
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.leximin_truth import SUCCESSIVE, Groups, drawn, successive
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present
from tests.ground_truth.nested_truth import marginal
from tests.ground_truth.strata import matrix, rare
from tests.ground_truth.tolerances import EXACT

OBJECTIVES = {
    "harmonic": HARMONIC,
    "delay": DELAY,
    "binary": BINARY,
}


def case_of(seed: int, curve: str, *, ill: bool = False) -> Groups:
    """Return groups with units of their own."""
    rng = np.random.default_rng(seed)
    case = drawn(rng, curve, 5, ill=ill)
    return replace(case, unit=rng.uniform(0.5, 2.0, len(case.unit)))


def solved(case: Groups) -> Leximin:
    n, groups = len(case.weight), len(case.unit)
    curve = OBJECTIVES[case.curve].kernel(fo.Sources(case.change, case.weight))
    zero, one = np.zeros(groups), np.ones(groups)
    fair = RowBlock(
        "group",
        tuple(range(groups)),
        np.arange(n),
        case.group,
        np.ones(n, dtype=np.int64),
        np.ones(n),
        (curve,),
        zero,
        one,
        zero,
    )
    budget = RowBlock.linear(
        "budget", [None], np.arange(n), np.zeros(n, dtype=np.int64), case.cost, np.array([case.budget])
    )
    level = np.append(case.unit, 0.0)
    rows = Rows.gather([fair, budget], n)
    found = present(fill_leximin(Program(None, case.lower, case.upper, case.change, rows, level)))
    return found


@matrix(seed=[0, *rare(*range(1, 20))], curve=OBJECTIVES)
def test_successive_minimax_agrees(curve: str, seed: int) -> None:
    case = case_of(seed, curve)
    found = solved(case)
    assert case.levels(found.rates) == pytest.approx(successive(case), rel=SUCCESSIVE)
    assert found.levels[:-1] == pytest.approx(case.levels(found.rates), rel=EXACT)


@matrix(ill=[False, True], seed=range(12), curve=OBJECTIVES)
def test_optimality_conditions(curve: str, seed: int, ill: bool) -> None:
    """Groups at the common level are served at least cost; others cannot reach it or need not be served."""
    case = case_of(seed, curve, ill=ill)
    found = solved(case)
    rates, levels = found.rates, case.levels(found.rates)
    assert np.all(rates >= case.lower)
    assert np.all(rates <= case.upper)
    used = float(np.sum(case.cost * rates))
    assert used <= case.budget * (1.0 + EXACT)
    for g in range(len(case.unit)):
        own = case.group == g
        if levels[g] > found.level * (1.0 + EXACT):
            assert np.array_equal(rates[own], case.upper[own])
        elif levels[g] < found.level * (1.0 - EXACT):
            assert np.array_equal(rates[own], case.lower[own])
        else:
            ratio = case.cost[own] / marginal(case, rates)[own]
            inner = (rates[own] > case.lower[own]) & (rates[own] < case.upper[own])
            theta = ratio[inner]
            # On ill-scaled data a level's last bit may be any number of multipliers.
            if len(theta) and not ill:
                assert np.ptp(theta) <= 1e-10 * np.max(theta)
                assert np.all(ratio[rates[own] == case.lower[own]] >= theta[0] * (1.0 - 1e-10))
                assert np.all(ratio[rates[own] == case.upper[own]] <= theta[0] * (1.0 + 1e-10))
    served = np.any(levels >= found.level * (1.0 - EXACT))
    if used < case.budget * (1.0 - EXACT):
        assert np.all(np.isfinite(case.upper))
    assert served
    y = found.multipliers
    assert np.all(y >= 0.0)
    assert float(y[:-1] @ case.unit) == pytest.approx(1.0, rel=EXACT)


@matrix(ill=[False, True], seed=range(12), curve=OBJECTIVES)
def test_multipliers_prove_the_worst_level(curve: str, seed: int, ill: bool) -> None:
    """t − t* ≤ Σ y_g(t·l_g − G_g) + λ·slack + Σ|φ'||ρ − ρ̂|, by bisection of each source's best response."""
    case = case_of(seed, curve, ill=ill)
    found = solved(case)
    rates, y = found.rates, found.multipliers
    levels = case.levels(rates)
    worst = float(np.max(levels))
    gap = float(y[:-1] @ (case.unit * (worst - levels)) + y[-1] * (case.budget - case.cost @ rates))
    slope = y[-1] * case.cost - y[:-1][case.group] * marginal(case, rates)
    at_bound = np.where(slope > 0.0, rates == case.lower, rates == case.upper)
    low, high = np.full(len(rates), -60.0), np.full(len(rates), 60.0)
    for _ in range(70):
        middle = 0.5 * (low + high)
        above = y[:-1][case.group] * marginal(case, np.exp(middle)) > y[-1] * case.cost
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    best = np.clip(np.exp(low), case.lower, case.upper)
    gap += float(np.sum(np.where(at_bound, 0.0, np.abs(slope) * np.abs(rates - best))))
    assert gap <= EXACT * worst


def test_other_programs_are_left_to_others() -> None:
    case = case_of(0, "delay")
    n = len(case.weight)
    curve = DELAY.kernel(fo.Sources(case.change, case.weight))
    one, zero = np.ones(2), np.zeros(2)
    entries = np.array([0, 1, 1]), np.array([0, 0, 1]), np.ones(3, dtype=np.int64), np.ones(3)
    fair = RowBlock("group", ("a", "b"), *entries, (curve,), zero, one, zero)
    budget = RowBlock.linear(
        "budget", [None], np.arange(n), np.zeros(n, dtype=np.int64), case.cost, np.array([case.budget])
    )
    level = np.array([1.0, 1.0, 0.0])
    program = Program(None, case.lower, case.upper, case.change, Rows.gather([fair, budget], n), level)
    assert fill_leximin(program) is None


def test_lower_bounds_beyond_the_budget() -> None:
    case = case_of(0, "delay")
    lower = np.full(len(case.weight), 2.0 * case.budget)
    with pytest.raises(fo.InfeasibleProblemError, match="min_rate needs"):
        solved(replace(case, lower=lower, upper=np.full(len(lower), np.inf)))
