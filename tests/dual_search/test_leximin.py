"""Lexicographic minimax of disjoint groups, against a sequence of conic programs."""

from dataclasses import dataclass

import numpy as np
import pytest

import freshopt as fo
from freshopt.cvx import cp
from freshopt.dual_search.leximin import Leximin, fill_leximin
from freshopt.separable.program import Program
from freshopt.separable.rows import RowBlock, Rows
from tests.ground_truth.named import BINARY, DELAY, HARMONIC, present
from tests.ground_truth.nested_truth import Floats, Ints
from tests.ground_truth.strata import matrix, rare
from tests.ground_truth.tolerances import EXACT

OBJECTIVES = {
    "harmonic": HARMONIC,
    "delay": DELAY,
    "binary": BINARY,
}
# What the conic solver leaves of a level that is found with what the levels before it leave of the budget.
SUCCESSIVE = 1e-5


@dataclass(frozen=True)
class Case:
    curve: str
    weight: Floats
    change: Floats
    price: Floats
    lower: Floats
    upper: Floats
    group: Ints
    unit: Floats
    budget: float


def drawn(seed: int, curve: str, *, ill: bool = False) -> Case:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(2, 5))
    n = groups * int(rng.integers(2, 5))
    group = np.append(np.arange(groups), rng.integers(0, groups, n - groups))
    change = 10.0 ** rng.uniform(-5.0, 5.0, n) if ill else rng.lognormal(0.0, 0.7, n)
    price = rng.lognormal(0.0, 1.5 if ill else 0.5, n)
    # Groups whose rates are bounded cannot be helped beyond a level.
    bounded = (rng.random(groups) < 0.4)[group]
    rates = change * rng.lognormal(0.0, 0.7, n)
    lower = np.where(rng.random(n) < 0.2, 0.3 * rates, 0.0)
    return Case(
        curve,
        rng.lognormal(0.0, 3.0 if ill else 0.7, n),
        change,
        price,
        lower,
        np.where(bounded, rates, np.inf),
        group,
        rng.uniform(0.5, 2.0, groups),
        float(np.sum(price * rates)) * float(rng.uniform(0.5, 1.0)),
    )


def solved(case: Case) -> Leximin:
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
        "budget", [None], np.arange(n), np.zeros(n, dtype=np.int64), case.price, np.array([case.budget])
    )
    level = np.append(case.unit, 0.0)
    rows = Rows.gather([fair, budget], n)
    found = present(fill_leximin(Program(None, case.lower, case.upper, case.change, rows, level)))
    return found


def levels_of(case: Case, rates: Floats) -> Floats:
    d = case.change
    with np.errstate(divide="ignore", over="ignore"):
        each = {"harmonic": np.log1p(d / rates), "delay": d / rates, "binary": d / (d + rates)}[case.curve]
    return np.bincount(case.group, weights=case.weight * each) / case.unit


def successive(case: Case) -> Floats:
    """Minimise the worst level, hold the groups with a multiplier at their rates, and go on with the others.

    A group with a multiplier cannot do better without another that does worse, and its rates are unique.
    """
    groups, found = len(case.unit), np.full(len(case.unit), np.nan)
    budget = case.budget
    while np.any(np.isnan(found)):
        own = np.flatnonzero(np.isnan(found)[case.group])
        unit, worst = cp.Variable(len(own), nonneg=True), cp.Variable()
        each = {
            "harmonic": lambda unit: cp.logistic(-cp.log(unit)),
            "delay": cp.inv_pos,
            "binary": lambda unit: cp.inv_pos(unit + 1.0),
        }[case.curve](unit)
        rest = np.flatnonzero(np.isnan(found))
        share = (case.group[own] == rest[:, None]) * case.weight[own] / case.unit[rest, None]
        level = share @ each <= worst
        change, bounded = case.change[own], np.flatnonzero(np.isfinite(case.upper[own]))
        problem = cp.Problem(
            cp.Minimize(worst),
            [
                level,
                (case.price[own] * change) @ unit <= budget,
                unit >= case.lower[own] / change,
                unit[bounded] <= (case.upper[own] / change)[bounded],
            ],
        )
        problem.solve(solver=cp.CLARABEL)
        stuck = rest[level.dual_value > 0.5 / groups]
        held = np.isin(case.group[own], stuck)
        budget -= float(np.sum((case.price[own] * change * present(unit.value))[held]))
        found[stuck] = float(problem.value)
    return found


@matrix(seed=[0, *rare(*range(1, 20))], curve=OBJECTIVES)
def test_successive_minimax_agrees(curve: str, seed: int) -> None:
    case = drawn(seed, curve)
    found = solved(case)
    assert levels_of(case, found.rates) == pytest.approx(successive(case), rel=SUCCESSIVE)
    assert found.levels[:-1] == pytest.approx(levels_of(case, found.rates), rel=EXACT)


def marginal(case: Case, rates: Floats) -> Floats:
    d, r = case.change, rates
    with np.errstate(divide="ignore", over="ignore"):
        each = {"harmonic": d / (r + d) / r, "delay": d / r / r, "binary": d / (d + r) / (d + r)}[case.curve]
    return case.weight * each


@matrix(ill=[False, True], seed=range(12), curve=OBJECTIVES)
def test_optimality_conditions(curve: str, seed: int, ill: bool) -> None:
    """Groups at the common level are served at least cost; others cannot reach it or need not be served."""
    case = drawn(seed, curve, ill=ill)
    found = solved(case)
    rates, levels = found.rates, levels_of(case, found.rates)
    assert np.all(rates >= case.lower)
    assert np.all(rates <= case.upper)
    used = float(np.sum(case.price * rates))
    assert used <= case.budget * (1.0 + EXACT)
    for g in range(len(case.unit)):
        own = case.group == g
        if levels[g] > found.level * (1.0 + EXACT):
            assert np.array_equal(rates[own], case.upper[own])
        elif levels[g] < found.level * (1.0 - EXACT):
            assert np.array_equal(rates[own], case.lower[own])
        else:
            ratio = case.price[own] / marginal(case, rates)[own]
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
    case = drawn(seed, curve, ill=ill)
    found = solved(case)
    rates, y = found.rates, found.multipliers
    levels = levels_of(case, rates)
    worst = float(np.max(levels))
    gap = float(y[:-1] @ (case.unit * (worst - levels)) + y[-1] * (case.budget - case.price @ rates))
    slope = y[-1] * case.price - y[:-1][case.group] * marginal(case, rates)
    at_bound = np.where(slope > 0.0, rates == case.lower, rates == case.upper)
    low, high = np.full(len(rates), -60.0), np.full(len(rates), 60.0)
    for _ in range(70):
        middle = 0.5 * (low + high)
        above = y[:-1][case.group] * marginal(case, np.exp(middle)) > y[-1] * case.price
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    best = np.clip(np.exp(low), case.lower, case.upper)
    gap += float(np.sum(np.where(at_bound, 0.0, np.abs(slope) * np.abs(rates - best))))
    assert gap <= EXACT * worst


def test_other_programs_are_left_to_others() -> None:
    case = drawn(0, "delay")
    n = len(case.weight)
    curve = DELAY.kernel(fo.Sources(case.change, case.weight))
    one, zero = np.ones(2), np.zeros(2)
    entries = np.array([0, 1, 1]), np.array([0, 0, 1]), np.ones(3, dtype=np.int64), np.ones(3)
    fair = RowBlock("group", ("a", "b"), *entries, (curve,), zero, one, zero)
    budget = RowBlock.linear(
        "budget", [None], np.arange(n), np.zeros(n, dtype=np.int64), case.price, np.array([case.budget])
    )
    level = np.array([1.0, 1.0, 0.0])
    program = Program(None, case.lower, case.upper, case.change, Rows.gather([fair, budget], n), level)
    assert fill_leximin(program) is None


def test_lower_bounds_beyond_the_budget() -> None:
    case = drawn(0, "delay")
    lower = np.full(len(case.weight), 2.0 * case.budget)
    with pytest.raises(fo.InfeasibleProblemError, match="min_rate needs"):
        solved(Case(**{**vars(case), "lower": lower, "upper": np.full(len(lower), np.inf)}))
