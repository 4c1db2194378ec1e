"""Exact dual solver of ratios on a forest under one budget.

At a price of the budget the rates are found tree by tree (`freshopt.dual_search.ratio_pools`); what they use
falls with the price, whose search is one-dimensional. Between two prices so near that the product of what
they differ by and what demand differs by is rounding, rates are mixed to use the budget exactly, at a jump of
demand as anywhere. Multipliers of the ratios follow upwards from the slopes: a source that its ratio holds
passes on what it would gain by more.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.certificates.row_scale import relative_row_gap
from freshopt.compiled.backend import fast
from freshopt.compiled.rows import ratio_loops
from freshopt.compiled.rows.nested_records import FEW_ULP, LOWEST_PRICE
from freshopt.dual_search.ratio_pools import Pooling
from freshopt.dual_search.typical_price import typical_log_price
from freshopt.errors import InfeasibleProblemError
from freshopt.numerics.arrays import ROUNDED, Array, total
from freshopt.numerics.bracketed_roots import next_fraction
from freshopt.separable.forest import Forest
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program
from freshopt.separable.usage_costs import UsageCosts

# Log of 1e300: prices beyond are not representable.
_LOG_RANGE = 690.0
# Log of the price below which only refreshes of no marginal value are left undone.
_FLOOR = math.log(LOWEST_PRICE)
# Relative gap that the last bracket may leave: the product of its width in price and in demand.
_GAP = 1e-18
# Relative width of the last bracket at a jump of demand.
_WIDTH = 1e-15
# Prices at most; bisection of 1400 nats to 1e-15 takes 61.
_STEPS = 200
# Log of a rate per log of the price, at most, that is guessed, and what is added for rounding.
_SHIFT, _LEAST_SHIFT = 1.0, 1e-13
# First step from a guessed price, by what demand is off, in nats each, and by how much each further one is
# longer. Demand falls with the price's square root or faster for every named objective.
_STEP, _GROWTH = 2.0, 4.0
# The least first step.
_LEAST_STEP = 1e-6
# Slopes are taken on both sides of a rate, so far off: a kink between the two is one that the rate is at.
_BESIDE = 8 * float(np.finfo(np.float64).eps)

# Prices are tried so much higher, relatively, until the gap is rounding: chains of 10³ need the last.
_HIGHER = (0.0, 1e-15, 1e-14, 1e-13)
_ROUNDING = 1e-15


class _Look(NamedTuple):
    """Rates at a log price, and log of use over budget.

    `top` are those that nodes would have as roots.
    """

    price: float
    top: Array
    rates: Array
    excess: float


def forest_of(program: Program) -> Forest | None:
    """Return the forest that a program's rows are, or None."""
    if program.level is not None or program.numerics is None:
        return None
    # Costs of these rise: no source keeps to a ratio for their sake.
    if isinstance(program.numerics, LinearCost | UsageCosts):
        return None
    return Forest.from_rows(program.rows)


def fill_forest(program: Program, forest: Forest) -> tuple[Array, Array, int]:
    """Return optimal rates, multipliers of the rows, and evaluations.

    - `program`: With `numerics`, and rows that are the forest's.
    - `forest`: ``forest_of(program)``.
    - returns `rates` (n,)
    - returns `multipliers` (m,): ≥ 0, in the order of the rows.
    - returns `evaluations`: Passes over all sources, of which each is a marginal or a best response.
    - raises InfeasibleProblemError if lower bounds exclude a ratio, an upper bound or the budget.
    """
    if program.numerics is None:
        raise ValueError("the program has no objective, so that all multipliers are 0. Pass numerics.")
    _require_feasible(program, forest)
    # Trees whose nodes are neighbours in memory are gone through three times as fast.
    nodes = forest.preorder()
    near = forest.take(nodes)
    lower, upper = near.bounds(program.lower[nodes], program.upper[nodes])
    search = _Search(Pooling.of(program.numerics.take(nodes), near, lower, upper))
    rates = np.empty(len(forest))
    # Logarithms of nothing, and sources of no importance, are infinite.
    with np.errstate(all="ignore"):
        guess = typical_log_price(program, forest.cost)
        price, rates[nodes] = search.end(guess)
        multipliers = _multipliers(program, forest, price, rates)
    return rates, multipliers, math.ceil(search.evaluated / max(1, len(rates)))


class _Search:
    """Search for the price at which the budget is used."""

    def __init__(self, pooling: Pooling) -> None:
        self.pooling = pooling
        self.evaluated = 0.0
        self.prices = 0

    def look(self, log_price: float, like: _Look | None = None) -> _Look:
        """Return the rates at a price, from those at one near it."""
        price, forest = math.exp(log_price), self.pooling.forest
        near = None if like is None else (like.top, _SHIFT * abs(like.price - log_price) + _LEAST_SHIFT)
        top, evaluated = self.pooling.tops(price, near)
        rates = self.pooling.rates(top)
        self.evaluated += evaluated
        self.prices += 1
        used = total(forest.cost * rates)
        excess = math.log(used / forest.limit) if used > 0.0 else -_LOG_RANGE
        return _Look(log_price, top, rates, min(_LOG_RANGE, excess))

    def end(self, guess: float) -> tuple[float, Array]:
        """Return price and rates, from a guessed log of the price."""
        if self.pooling.forest.budget_row < 0:
            return 0.0, self.pooling.rates(self.pooling.tops(0.0)[0])
        rich, poor = self._bracket(guess)
        if poor is None:
            return 0.0, rich.rates
        if rich.excess > 0.0 > poor.excess:
            rich, poor = self._narrowed(rich, poor)
        return math.exp(poor.price), self._mixed(rich, poor)

    def _bracket(self, guess: float) -> tuple[_Look, _Look | None]:
        """Return looks on both sides of the budget, None beyond price 0."""
        near = self.look(guess)
        far, step = near, max(_LEAST_STEP, _STEP * abs(near.excess))
        while (far.excess > 0.0) == (near.excess > 0.0):
            near = far
            if near.excess <= 0.0 and near.price <= _FLOOR:
                return near, None
            if near.excess > 0.0 and near.price >= _LOG_RANGE:
                # Lower bounds use up the budget but for rounding.
                return near, near
            change = step if near.excess > 0.0 else -step
            far = self.look(min(_LOG_RANGE, max(_FLOOR, near.price + change)), near)
            step *= _GROWTH
        return (near, far) if near.excess > 0.0 else (far, near)

    def _narrowed(self, rich: _Look, poor: _Look) -> tuple[_Look, _Look]:
        # Chandrupatla's names: a is the newest point, b the opposite end, c the one before.
        a, b, c, t = rich, poor, poor, rich.excess / (rich.excess - poor.excess)
        for _ in range(_STEPS):
            x = self.look(a.price + t * (b.price - a.price), a if t < 0.5 else b)
            same = (x.excess > 0.0) == (a.excess > 0.0)
            b, c = (b, a) if same else (a, b)
            a = x
            width, tolerance = abs(b.price - a.price), 0.5 * _WIDTH + 1e-16 * abs(a.price)
            if a.excess == 0.0:
                return a, a
            if width <= 2.0 * tolerance or width * abs(b.excess - a.excess) <= _GAP:
                break
            points = (a.price, b.price, c.price, a.excess, b.excess, c.excess, tolerance)
            t = float(next_fraction(*map(np.asarray, points)))
        return (a, b) if a.excess > 0.0 else (b, a)

    def _mixed(self, rich: _Look, poor: _Look) -> Array:
        """Return the mixture of two rate vectors that uses the budget."""
        forest, pooling = self.pooling.forest, self.pooling
        most, least = math.exp(rich.excess), math.exp(poor.excess)
        share = (1.0 - least) / (most - least) if most > least else 0.0
        rates = poor.rates + min(1.0, max(0.0, share)) * (rich.rates - poor.rates)
        return forest.capped(rates, pooling.lower)


def _require_feasible(program: Program, forest: Forest) -> None:
    """Raise InfeasibleProblemError unless bounds, ratios and budget agree."""
    lower, _ = forest.bounds(program.lower, program.upper)
    # Upper bounds that the budget implies are the budget's affair.
    left = max(0.0, forest.limit - total(forest.cost * program.lower))
    implied = program.lower + left / np.where(forest.cost > 0.0, forest.cost, np.nan)
    declared = np.where(program.upper >= implied * (1.0 - FEW_ULP), np.inf, program.upper)
    _, upper = forest.bounds(program.lower, declared)
    broken = np.flatnonzero(lower > upper * (1.0 + FEW_ULP))
    if len(broken):
        # The conflict to name is that of a source's own lower bound with what is above it.
        held = [int(k) for k in broken if program.lower[k] == lower[k]]
        k = held[0] if held else int(broken[0])
        row = forest.row[k]
        label = program.rows.labels[row] if row >= 0 else "the upper bound"
        raise InfeasibleProblemError(
            f"lower bounds exclude {label!r}: a rate must be at least {lower[k]:.6g}, and what bounds its "
            f"parents leaves it {upper[k]:.6g}. Lower min_rate, or raise max_rate or the ratios."
        )
    needed = total(forest.cost * lower)
    if needed > forest.limit * (1.0 + ROUNDED):
        label = program.rows.labels[forest.budget_row]
        raise InfeasibleProblemError(
            f"lower bounds and ratios need {needed:.6g} of {label!r}, which is {forest.limit:.6g}. Raise it "
            f"to {needed:.6g}, or lower min_rate or raise the ratios."
        )


def _multipliers(program: Program, forest: Forest, price: float, rates: Array) -> Array:
    """Return the rows' multipliers at optimal rates, shape (m,).

    A price a few ulp higher lets all sources pay no less than they gain; that with the least gap is taken.
    """
    numerics = program.numerics
    if numerics is None:
        raise ValueError("the program has no objective, so that all multipliers are 0. Pass numerics.")
    sides = tuple(numerics.marginal(rates * (1.0 + side * _BESIDE)) for side in (-1.0, 0.0, 1.0))
    gap, best, least, off = RowGap.of(program, rates), np.zeros(len(program.rows)), math.inf, math.inf
    for more in _HIGHER:
        y = _at_price(program, forest, price * (1.0 + more), rates, sides)
        own = gap.at(y)
        if own < least:
            # What rows leave is theirs at any price.
            best, least, off = y, own, max(0.0, own - float(np.sum(gap.row_terms(y))))
        if relative_row_gap(gap, best, off).relative <= _ROUNDING:
            break
    return best


def _at_price(
    program: Program, forest: Forest, price: float, rates: Array, sides: tuple[Array, ...]
) -> Array:
    """Return the rows' multipliers at a price of the budget."""
    paid, edge = price * forest.cost, forest.parent >= 0
    # Products along a path are rounded at every step.
    near = FEW_ULP * (1.0 + float(np.max(forest.height)))
    least, slope, most = (paid - marginal for marginal in sides)
    least = np.where((rates <= program.lower * (1.0 + near)) | ~np.isfinite(least), -np.inf, least)
    most = np.where((rates >= program.upper * (1.0 - near)) | np.isnan(most), np.inf, np.maximum(most, least))
    tight = edge & (rates >= forest.ratio * rates[forest.parent] * (1.0 - near))
    shift = np.zeros(len(rates))
    tree = (forest.order, forest.parent, forest.ratio, tight)
    fast(ratio_loops.multipliers)(*tree, least, most, forest.first, forest.child, shift)
    fast(ratio_loops.round_up)(*tree, slope, paid + np.abs(sides[1]), shift)
    y = np.zeros(len(program.rows))
    y[forest.row[edge]] = -shift[edge] / forest.scale[edge] + 0.0
    if forest.budget_row >= 0:
        y[forest.budget_row] = price
    return y
