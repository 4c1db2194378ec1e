"""Cheapest rates of disjoint groups that meet targets.

Within one group: minimise Σ price_k·ρ_k subject to Σ c_k·J_k(ρ_k) ≤ s. At the target's multiplier θ a source
takes the rate at which its marginal value θ·c_k·(−J_k'(ρ)) falls to its price: rates rise with θ, and the
group's cost falls, so one search in log θ per group solves the dual problem. All groups are searched at once.
Targets may have any sign: costs such as −log ρ have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshopt.dual_search.price_bracketing import BEYOND, search_prices
from freshopt.numerics.arrays import Array, BoolArray, Index, IntArray
from freshopt.numerics.segments import group_sums
from freshopt.separable.kernel import Numerics

# Log multipliers beyond this, relative to a typical one, leave prices outside of what floats hold.
_REACH = 690.0
# Relative width of the last bracket of a multiplier.
_WIDTH = 1e-15
# Relative: sums of costs are right to an ulp or two.
_MET = 4 * float(np.finfo(np.float64).eps)
# Values that a cost function may not have: rates are finite.
_LARGEST_RATE = 1e190


class Met(NamedTuple):
    """Least multipliers at which groups meet their targets, and rates there.

    - `multipliers` (G,): 0 where lower bounds meet the target, inf where upper bounds do not or only just do.
    - `rates` (n,)
    - `evaluated`: Best responses of single sources.
    """

    multipliers: Array
    rates: Array
    evaluated: float


@dataclass(frozen=True, slots=True, eq=False)
class TargetGroups:
    """Sources of disjoint groups, group by group.

    - `curve`: J of each source.
    - `weight` (n,): c > 0, the coefficient of J.
    - `price` (n,): What a unit of rate costs, > 0.
    - `lower`, `upper`, `typical` (n,)
    - `code` (n,): The group of each source.
    """

    curve: Numerics
    weight: Array
    price: Array
    lower: Array
    upper: Array
    typical: Array
    code: IntArray
    count: int

    def take(self, chosen: BoolArray) -> TargetGroups:
        """Return some of the groups."""
        if bool(np.all(chosen)):
            return self
        own: Index = np.flatnonzero(chosen[self.code])
        return TargetGroups(
            self.curve.take(own),
            self.weight[own],
            self.price[own],
            self.lower[own],
            self.upper[own],
            self.typical[own],
            (np.cumsum(chosen) - 1)[self.code[own]],
            int(np.sum(chosen)),
        )

    def rates(self, multiplier: Array) -> Array:
        """Return the best responses to a multiplier per group."""
        with np.errstate(all="ignore"):
            price = self.price / (multiplier[self.code] * self.weight)
            found = np.minimum(self.curve.inverse_marginal(price), _LARGEST_RATE)
        return np.clip(np.where(np.isnan(found), self.lower, found), self.lower, self.upper)

    def cost(self, rates: Array) -> Array:
        """Return Σ c·J of each group; inf where a source's is."""
        with np.errstate(all="ignore"):
            each = self.weight * self.curve.cost(rates)
        if bool(np.all(each >= 0.0)):
            return self._sums(each)
        return self._sums(np.maximum(each, 0.0)) - self._sums(np.maximum(-each, 0.0))

    def used(self, rates: Array) -> Array:
        """Return Σ price·ρ of each group."""
        return self._sums(self.price * rates)

    def typical_multiplier(self) -> Array:
        """Return about the multiplier at typical rates, shape (count,)."""
        with np.errstate(all="ignore"):
            each = np.log(self.price / (self.weight * self.curve.marginal(self.typical)))
        usable = np.isfinite(each)
        many = np.bincount(self.code, weights=usable, minlength=self.count)
        total = np.bincount(self.code, weights=np.where(usable, each, 0.0), minlength=self.count)
        return np.asarray(np.exp(total / np.maximum(1.0, many)), dtype=np.float64)

    def _sums(self, values: Array) -> Array:
        return group_sums(values, self.code, self.count)


def meet_targets(groups: TargetGroups, target: Array, guess: Array | None = None) -> Met:
    """Return the least multipliers at which each group meets its target.

    - `target` (G,): s, of any sign.
    - `guess` (G,): Multipliers to start from.
    """
    typical = groups.typical_multiplier()
    guess = typical if guess is None else np.where((guess > 0.0) & np.isfinite(guess), guess, typical)
    multipliers, rates = np.zeros(groups.count), np.array(groups.lower)
    slack = _MET * np.abs(target)
    open_ = ~(groups.cost(groups.lower) <= target + slack)
    short = open_ & ~(groups.cost(np.minimum(groups.upper, _LARGEST_RATE)) < target - slack)
    multipliers[short], rates[short[groups.code]] = np.inf, groups.upper[short[groups.code]]
    evaluated = 2.0 * len(groups.code)
    # The sign of what is left at the least multiplier comes first: below it there is no search.
    seeking = open_ & ~short
    least = np.exp(np.maximum(-_REACH, np.log(typical) - _REACH))
    lowest = groups.rates(least)
    tiny = seeking & (groups.cost(lowest) <= target)
    multipliers[tiny], rates[tiny[groups.code]] = least[tiny], lowest[tiny[groups.code]]
    seeking &= ~tiny
    if bool(np.any(seeking)):
        own, goal = groups.take(seeking), target[seeking]
        found = _searched(own, goal, guess[seeking])
        multipliers[seeking], rates[seeking[groups.code]] = found.multipliers, found.rates
        evaluated += found.evaluated
    return Met(multipliers, rates, evaluated)


def _searched(groups: TargetGroups, target: Array, guess: Array) -> Met:
    """Return multipliers between those of the least and of the most cost."""
    positive = target > 0.0
    scale = np.where(target != 0.0, np.abs(target), np.maximum(1e-300, groups.cost(groups.typical)))

    def excess(multiplier: Array) -> Array:
        cost = groups.cost(groups.rates(multiplier))
        with np.errstate(all="ignore"):
            other = np.exp(np.clip((cost - target) / scale, -_REACH, _REACH))
            return np.where(positive, np.minimum(cost / scale, 1e300), other)

    found = search_prices(excess, np.full(groups.count, 1.0 + _MET), guess, _WIDTH)
    eager = groups.rates(found.high)
    rounded = groups.cost(eager) > target
    if bool(np.any(rounded)):
        eager = groups.rates(np.where(rounded, found.high * BEYOND, found.high))
    idle = groups.rates(found.low)
    most, least = groups.cost(idle), groups.cost(eager)
    with np.errstate(all="ignore"):
        share = np.clip((most - target) / (most - least), 0.0, 1.0)
    share = np.where(np.isfinite(share), share, 1.0)[groups.code]
    # Costs are convex: those of a mixture are no more than the mixture of the costs.
    rates = np.where(share < 1.0, idle + share * (eager - idle), eager)
    return Met(found.high, rates, float((found.evaluations + 4) * len(groups.code)))
