"""Lexicographic minimax over disjoint groups under one budget.

Minimise the worst of the groups' levels t_g = (Σ_{k∈g} c_k·J_k(ρ_k) − b_g)/l_g, then the next worst, and so
on, with Σ price_k·ρ_k ≤ B. At a level t every group is brought to t at the least cost
(`freshopt.dual_search.target_search`); a group whose upper bounds do not let it down to t stays at what they
leave, and drops out by itself. What that costs falls with t, so the level at which it is the budget decides
all groups at once: no group can do better without one that is no better off doing worse. One search for t,
each step of which is a search for the groups' multipliers from where the last one ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from freshopt.dual_search.target_search import Met, TargetGroups, meet_targets
from freshopt.errors import InfeasibleProblemError
from freshopt.numerics.arrays import ROUNDED, Array, IntArray
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE, Rows

# Steps of the search for the level; halving the floats between two levels takes 64.
_STEPS = 120
# The budget is met to this by Newton's method; what is left of it is divided between two levels.
_CLOSE = 1e-14


@dataclass(frozen=True, slots=True, eq=False)
class Leximin:
    """Rates that are lexicographically best, and what proves the worst level.

    - `rates` (n,)
    - `level`: The level of the groups that the budget decides.
    - `levels` (m,): Of every group's row, nan elsewhere.
    - `multipliers` (m,): Of the minimax program, the worst level of all: those of the groups, times their
      `Program.level`, add up to 1.
    """

    rates: Array
    level: float
    levels: Array
    multipliers: Array
    evaluations: int


@dataclass(frozen=True, slots=True, eq=False)
class _Structure:
    """Groups of sources in disjoint rows, and the budget."""

    groups: TargetGroups
    source: IntArray
    fair: IntArray
    budget: int
    price: Array
    offset: Array
    unit: Array


def fill_leximin(program: Program) -> Leximin | None:
    """Return the leximin of disjoint groups under one budget, or None.

    - `program`: With `level` > 0 for the groups' rows, of one curve and without common sources, and one more
      row: a budget that prices the rate of every source in a group.
    - raises InfeasibleProblemError if lower bounds exceed the budget.
    """
    found = _structure(program)
    if found is None:
        return None
    groups, total = found.groups, float(program.rows.limits[found.budget])
    fixed = float(np.sum(found.price * program.lower)) - float(np.sum(groups.price * groups.lower))
    budget = total - fixed
    needed = float(np.sum(groups.price * groups.lower))
    if needed > budget * (1.0 + ROUNDED):
        raise InfeasibleProblemError(
            f"min_rate needs {needed + fixed:g} but {program.rows.labels[found.budget]!r} is {total:g}. No "
            f"rates keep both. Raise the budget to {needed + fixed:g}, or lower min_rate."
        )
    rates_of, level, theta, evaluated = _level_search(found, budget)
    rates = np.array(program.lower)
    rates[found.source] = rates_of
    levels = np.full(len(program.rows), np.nan)
    own = (groups.cost(rates_of) - found.offset) / found.unit
    levels[found.fair] = own
    multipliers = np.zeros(len(program.rows))
    worst = float(np.max(own))
    held = own > level + 1e-9 * max(abs(level), abs(worst))
    if bool(np.any(held)) or not bool(np.any(theta > 0.0)):
        # A group that its upper bounds hold above the level is the worst: more budget would not help it.
        one = int(np.argmax(own))
        multipliers[found.fair[one]] = 1.0 / found.unit[one]
    else:
        weight = 1.0 / float(np.sum(theta * found.unit))
        multipliers[found.fair] = theta * weight
        multipliers[found.budget] = weight
    return Leximin(rates, level, levels, multipliers, math.ceil(evaluated / max(1, len(program))))


def _level_search(found: _Structure, budget: float) -> tuple[Array, float, Array, float]:
    """Return rates, level, multipliers and evaluations of a bracketed Newton search."""
    groups, evaluated = found.groups, 0.0
    start = np.clip(groups.typical, groups.lower, groups.upper)
    spare = start - groups.lower
    room = float(np.sum(groups.price * spare))
    least = float(np.sum(groups.price * groups.lower))
    shares = groups.lower + spare * min(1.0, max(0.0, (budget - least) / room) if room > 0.0 else 0.0)
    # These rates are feasible: the level that they reach needs no more than the budget.
    high = float(np.max((groups.cost(shares) - found.offset) / found.unit))
    if not math.isfinite(high):
        high = _finite_level(found, budget)
    low, met_low = -math.inf, None
    level, stride = high, 0.5 * abs(high) or 1.0
    met = met_high = _met(found, level, None)
    for _ in range(_STEPS):
        evaluated += met.evaluated
        used = float(np.sum(groups.price * met.rates))
        active = np.isfinite(met.multipliers) & (met.multipliers > 0.0)
        slope = float(np.sum(met.multipliers[active] * found.unit[active]))
        close = abs(used - budget) <= _CLOSE * budget
        if used <= budget or close:
            high, met_high = level, met
        else:
            low, met_low = level, met
        if close or (used <= budget and bool(np.all(np.isinf(met.multipliers)))):
            break
        step = (used - budget) / slope if slope > 0.0 else math.inf
        logarithmic = math.log(used / budget) * used / slope if used > 0.0 and slope > 0.0 else math.inf
        # The logarithm of the cost is nearly straight from below, where the cost itself is steep.
        trial = level + (logarithmic if 0.0 < logarithmic < math.inf else step)
        if not low < trial < high:
            trial = 0.5 * (low + high) if math.isfinite(low) else high - stride
            stride *= 2.0
        if not low < trial < high or trial in (low, high):
            break
        level, met = trial, _met(found, trial, met)
    rates = _between(found, met_low, met_high, budget)
    theta = np.where(np.isfinite(met_high.multipliers), met_high.multipliers, 0.0)
    return rates, high, theta, evaluated


def _met(found: _Structure, level: float, before: Met | None) -> Met:
    """Return the cheapest rates at a level."""
    target = found.offset + found.unit * level
    return meet_targets(found.groups, target, None if before is None else before.multipliers)


def _finite_level(found: _Structure, budget: float) -> float:
    """Return a level that typical rates, scaled to the budget, reach."""
    groups = found.groups
    rates = np.clip(groups.typical, groups.lower, groups.upper)
    rates = np.maximum(groups.lower, rates * min(1.0, 0.5 * budget / float(np.sum(groups.price * rates))))
    return float(np.max((groups.cost(rates) - found.offset) / found.unit))


def _between(found: _Structure, rich: Met | None, poor: Met, budget: float) -> Array:
    """Return the mixture of two levels' rates that uses the budget."""
    groups = found.groups
    least = float(np.sum(groups.price * poor.rates))
    if least > budget:
        # By rounding alone.
        inside = (poor.rates > groups.lower) & (poor.rates < groups.upper)
        above = np.where(inside | ~np.any(inside), poor.rates - groups.lower, 0.0)
        return poor.rates - above * ((least - budget) / float(np.sum(groups.price * above)))
    most = least if rich is None else float(np.sum(groups.price * rich.rates))
    if rich is None or not least < most < math.inf:
        return poor.rates
    share = min(1.0, max(0.0, (budget - least) / (most - least)))
    return poor.rates + share * (rich.rates - poor.rates)


def _structure(program: Program) -> _Structure | None:
    """Return disjoint groups and the budget, or None."""
    rows, level = program.rows, program.level
    if level is None or program.numerics is not None:
        return None
    fair, other = np.flatnonzero(level != 0.0), np.flatnonzero(level == 0.0)
    if len(other) != 1 or not len(fair) or bool(np.any(level < 0.0)):
        return None
    source, row = rows.source, rows.row.astype(np.int64)
    in_budget = row == other[0]
    if bool(np.any(rows.kind[in_budget] != RATE)) or bool(np.any(rows.coefficient[in_budget] < 0.0)):
        return None
    own = np.flatnonzero(~in_budget)
    tree = LaminarTree.from_rows(_only(rows, fair, own))
    if tree is None or tree.kind == RATE or int(np.max(tree.nesting.depth)) > 1:
        return None
    amounts = rows.coefficient[in_budget]
    price: Array = np.bincount(source[in_budget], weights=amounts, minlength=rows.n).astype(np.float64)
    members = source[own]
    if len(np.unique(members)) < len(members) or bool(np.any(price[members] <= 0.0)):
        return None
    number = np.full(len(rows), -1)
    number[fair] = np.arange(len(fair))
    groups = TargetGroups(
        rows.curves[tree.kind - 1].take(members),
        rows.coefficient[own],
        price[members],
        program.lower[members],
        program.upper[members],
        program.typical[members],
        number[row[own]],
        len(fair),
    )
    return _Structure(groups, members, fair, int(other[0]), price, rows.limits[fair], level[fair])


def _only(rows: Rows, chosen: IntArray, entries: IntArray) -> Rows:
    """Return some of the rows, with the entries that are theirs."""
    number = np.full(len(rows), -1, dtype=np.int32)
    number[chosen] = np.arange(len(chosen), dtype=np.int32)
    counts = np.bincount(rows.source[entries], minlength=rows.n)
    return replace(
        rows,
        first=np.concatenate(([0], np.cumsum(counts))),
        row=number[rows.row[entries]],
        kind=rows.kind[entries],
        coefficient=rows.coefficient[entries],
        limits=np.ones(len(chosen)),
        direction=rows.direction[chosen],
        offset=rows.offset[chosen],
        labels=tuple(rows.labels[k] for k in chosen),
    )
