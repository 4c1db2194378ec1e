"""Prices of nested groups by NumPy, for any numerics.

What `freshopt.compiled.rows.nested_groups` does for named kernels, all groups of one height
at once. Here prices may be negative, too: an expression
may have its minimum below what a reserve asks for, and then a source is paid for going beyond it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from freshopt.compiled.rows.nested_records import FEW_ULP, LOWEST_PRICE, NestedGroups
from freshopt.dual_search.price_bracketing import BEYOND, search_prices
from freshopt.numerics.arrays import ROUNDED, Array, BoolArray, IntArray
from freshopt.numerics.segments import group_sums
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics

# A rate without bound counts as one beyond all limits, whose cost is finite.
LARGEST_RATE = 1e190
# Relative width of the last bracket of a price; at a jump, the gap that a mixture of its two sides leaves.
_WIDTH = 1e-15


@dataclass(frozen=True, slots=True, eq=False)
class _Slices:
    """Sources of disjoint groups, and the group of each."""

    numerics: Numerics
    cost: Array
    lower: Array
    upper: Array
    code: IntArray
    count: int

    def take(self, chosen: BoolArray) -> _Slices:
        """Return some of the groups."""
        if bool(np.all(chosen)):
            return self
        own = np.flatnonzero(chosen[self.code])
        code = (np.cumsum(chosen) - 1)[self.code[own]]
        return _Slices(
            self.numerics.take(own),
            self.cost[own],
            self.lower[own],
            self.upper[own],
            code,
            int(np.sum(chosen)),
        )

    def rates(self, prices: Array) -> Array:
        """Return the best responses to a price per group."""
        found = best_responses(self.numerics, prices[self.code] * self.cost)
        found = np.where(np.isnan(found), self.lower, np.minimum(found, LARGEST_RATE))
        return np.clip(found, self.lower, self.upper)

    def used(self, rates: Array) -> Array:
        """Return Σ cost·ρ of each group."""
        return group_sums(self.cost * rates, self.code, self.count)

    def mixed(self, rich: Array, poor: Array, target: Array) -> Array:
        """Return the mixtures of two rate vectors that use the targets."""
        most, least = self.used(rich), self.used(poor)
        span = np.where(most > least, most - least, 1.0)
        share = np.where(most > least, np.clip((target - least) / span, 0.0, 1.0), 0.0)
        return poor + share[self.code] * (rich - poor)


def best_responses(numerics: Numerics, price: Array) -> Array:
    """Return best responses to prices of any sign, perhaps inf."""
    if bool(np.all(price > 0.0)):
        return numerics.inverse_marginal(price)
    if isinstance(numerics, MixedNumerics):
        silent = best_responses(numerics.silent_sources, price)
        return np.where(numerics.signalled, best_responses(numerics.signalled_sources, price), silent)
    if isinstance(numerics, Kernel):
        # Marginals of kernels are never negative.
        return np.where(price < 0.0, np.inf, numerics.inverse_marginal(np.maximum(price, 0.0)))
    return numerics.inverse_marginal(price)


def settle_levels(
    numerics: Numerics,
    cost: Array,
    groups: NestedGroups,
    heights: list[IntArray],
    typical: float,
    lower: Array,
    upper: Array,
) -> tuple[Array, float]:
    """Return the groups' own prices, shape (2, G), and the sources evaluated.

    As `freshopt.compiled.rows.nested_groups.settle_groups`; `lower` and `upper` are narrowed in place.
    """
    prices = np.empty((2, len(groups.begin)))
    prices[0], prices[1] = -np.inf, np.inf
    evaluated = 0.0
    for which in heights:
        news = []
        for side in range(2):
            bound = groups.bounds[side]
            own = which[(bound[which] > 0.0) & np.isfinite(bound[which])]
            if not len(own):
                continue
            size = groups.end[own] - groups.begin[own]
            offset = np.cumsum(size) - size
            place = np.repeat(groups.begin[own] - offset, size) + np.arange(int(np.sum(size)))
            code = np.repeat(np.arange(len(own)), size)
            slices = _Slices(numerics.take(place), cost[place], lower[place], upper[place], code, len(own))
            pushed = groups.pushed[own] if side == 0 else np.ones(len(own), dtype=np.bool_)
            prices[side, own], rates, looked = _own_prices(slices, bound[own], pushed, np.exp(typical))
            news.append((side, place, rates))
            evaluated += looked
        for side, place, rates in news:
            if side == 0:
                upper[place] = rates
            else:
                lower[place] = np.minimum(rates, upper[place])
    return prices, evaluated


def _own_prices(
    slices: _Slices, target: Array, pushed: BoolArray, guess: float
) -> tuple[Array, Array, float]:
    """Return the groups' own prices, rates there, and evaluations.

    A price is the least at which a group uses no more than its target; inf where lower bounds use
    up the target, and −inf where it is never exceeded.
    """
    price = np.full(slices.count, -np.inf)
    rates, evaluated = np.array(slices.upper), float(len(slices.code))
    full = slices.used(slices.lower) >= target * (1.0 - FEW_ULP)
    price[full] = np.inf
    rates[full[slices.code]] = slices.lower[full[slices.code]]
    at_zero = slices.rates(np.full(slices.count, LOWEST_PRICE))
    positive = ~full & (slices.used(at_zero) > target * (1.0 + ROUNDED))
    if bool(np.any(positive)):
        found = _searched(slices.take(positive), target[positive], guess, lambda p: p)
        price[positive], rates[positive[slices.code]] = found[0], found[1]
        evaluated += found[2]
    rest = ~full & ~positive & pushed
    if bool(np.any(rest)):
        own = slices.take(rest)
        found = _not_positive(own, target[rest], at_zero[rest[slices.code]], guess)
        price[rest], rates[rest[slices.code]] = found[0], found[1]
        evaluated += found[2]
    return price, rates, evaluated


def _searched(
    slices: _Slices, target: Array, guess: float, price_of: Callable[[Array], Array]
) -> tuple[Array, Array, float]:
    """Return prices, by `price_of`, and rates at which targets are used."""
    found = search_prices(
        lambda trial: slices.used(slices.rates(price_of(trial))),
        target * (1.0 + ROUNDED),
        np.full(slices.count, guess),
        _WIDTH,
    )
    # Where demand at a price is the target and rounding, it is below the target a little beyond.
    rounded = slices.used(slices.rates(price_of(found.high))) > target
    high = np.where(rounded, found.high * BEYOND, found.high)
    rates = slices.mixed(slices.rates(price_of(found.low)), slices.rates(price_of(high)), target)
    over = np.maximum(0.0, slices.used(rates) - target)
    if bool(np.any(over > 0.0)):
        above = rates - slices.lower
        rates = (
            rates
            - (over / np.where(over > 0.0, np.maximum(slices.used(above), over), 1.0))[slices.code] * above
        )
    return price_of(found.high), rates, float((found.evaluations + 3) * len(slices.code))


def _not_positive(slices: _Slices, target: Array, at_zero: Array, guess: float) -> tuple[Array, Array, float]:
    """Return prices ≤ 0 and rates of groups within their targets."""
    capped = np.where(
        slices.upper < LARGEST_RATE,
        slices.upper,
        np.maximum(at_zero, 2.0 * target[slices.code] / slices.cost),
    )
    price, rates = np.full(slices.count, -np.inf), np.array(slices.upper)
    bounded = _Slices(
        slices.numerics, slices.cost, np.minimum(slices.lower, capped), capped, slices.code, slices.count
    )
    beyond = slices.used(capped) > target * (1.0 + FEW_ULP)
    paid = bounded.rates(np.full(slices.count, -LOWEST_PRICE))
    enough = beyond & (slices.used(paid) > target)
    price[enough] = 0.0
    mixed = slices.mixed(paid, at_zero, target)
    rates = np.where(enough[slices.code], mixed, rates)
    negative = beyond & ~enough
    evaluated = float(len(slices.code))
    if bool(np.any(negative)):
        found = _searched(bounded.take(negative), target[negative], 1.0 / guess, lambda p: -1.0 / p)
        price[negative], rates[negative[slices.code]] = found[0], found[1]
        evaluated += found[2]
    return price, rates, evaluated
