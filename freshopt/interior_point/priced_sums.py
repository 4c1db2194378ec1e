"""`solve_priced`: prices of sums on a tree of height 2.

What a group uses at the price p that its sources pay falls, and the use at which its cost has the slope
p − λ, with λ the price outside, rises: they meet once, at p = λ + φ'(D(p)). So with the whole, whose use
falls with λ. A limit is a cost that ends there; hosts under a bandwidth are groups of no other cost. D is
near a power of p, as a secant in logarithms through the last two passes has it, and φ' is known: all meet at
prices that are found without a look at the sources, be it on a step of a tariff, at its end, at a limit or
on a smooth cost, and be it a price or a utility, whose φ' is below 0. One pass over the sources serves all
sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.interior_point.linear_pieces import curveless
from freshopt.interior_point.solve_rows import RowAnswer
from freshopt.interior_point.sum_costs import SumCosts, Sums, sums_of
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, BoolArray, IntArray
from freshopt.numerics.bracketed_roots import bracketed_roots
from freshopt.separable.kernel import Numerics
from freshopt.separable.program import Program
from freshopt.separable.usage_costs import UsageCosts

# Passes at most; 9 programs of a million sources need 4 to 9, demand that all but jumps some 60.
_PASSES = 120
# Logarithms of the use and of where its cost has the price for slope are this near, or those of the bracket's
# prices: what is left is made up by mixing rates of both ends, or scaling them, at a loss of its square.
_NEAR, _CLOSED = 1e-8, 1e-13
# After so many passes a bracket that has not been halved is: demand then jumps.
_PATIENT = 8
# Passes at most with all prices moving at once.
_TOGETHER = 12
# Rounds of scaling, since sources at bounds take no part.
_ROUNDS = 4
# Sources within their bounds are scaled by no more for the others, too.
_LITTLE = 1e-4
# Elasticities of demand; before two passes are known it is taken for that of a cost 1/ρ.
_FIRST, _STEEP, _FLAT = -0.5, -1e9, -1e-3
# Uses so near a kink, relatively, are on it; prices so near each other are one.
_ON, _EVEN = 1e-14, 1e-15
# Logarithms of prices and uses that differ by less say nothing of an elasticity.
_MOVED = 1e-9
# Prices of the whole at most that models are asked at; secants need 2 to 8.
_TRIALS = 80
# A price of the whole below is 0.
_NOTHING = 1e-290
# Sources that are looked at for curvature.
_LOOKED_AT = 2000
# Where demand is 0 or infinite the price moves by this factor.
_FAR = 1e3


def solve_priced(program: Program) -> RowAnswer | None:
    """Return rates and prices of sums on a tree, else None.

    Sums share no source, but for one of all of them; None where there are other rows, and where a search
    stalls.
    """
    numerics, sums = program.numerics, _tree(program)
    if sums is None or not isinstance(numerics, UsageCosts):
        return None
    n = len(sums[0].of)
    looked = np.arange(0, n, max(1, n // _LOOKED_AT))
    low = program.lower[looked]
    high = np.minimum(program.upper[looked], low + 2.0 * np.maximum(program.typical[looked], low))
    with np.errstate(all="ignore"):
        some = numerics.sources.take(looked)
        straight = curveless(some, low, high) & (high > low) & (some.marginal(high) != 0.0)
        found = None if bool(np.any(straight)) else _Search(program, numerics.sources, *sums).run()
        if found is None:
            return None
        gap, y = RowGap.of(program, found.rates), found.multipliers
        return replace(found, gap=gap.at(y) / (abs(gap.cost) + float(np.dot(y, np.abs(program.rows.limits)))))


@dataclass(frozen=True)
class _Demand:
    """Demand of sums near their last pass.

    It is log u = y + elasticity·(log p − x), p the price outside and their own.
    """

    costs: SumCosts
    x: Array
    y: Array
    elasticity: Array
    outside: Array

    def take(self, index: IntArray | BoolArray) -> _Demand:
        """Return some of the sums."""
        columns = (self.x, self.y, self.elasticity, self.outside)
        return _Demand(self.costs.take(index), *(column[index] for column in columns))

    def excess(self, z: Array) -> Array:
        """Return log price of uses less log slope."""
        right = self.costs.slopes(np.exp(z))[1]
        asked = np.log(np.maximum(0.0, self.outside + right))
        return np.clip(self._log_price(z) - asked, -LARGEST, LARGEST)

    def meeting(self, near: Array) -> tuple[Array, Array]:
        """Return uses, tried `near` a log, and own prices that meet demand."""
        costs, z = self.costs, self.y.copy()
        base = costs.slopes(np.exp(z), _ON)
        side = self._side(z, base)
        edge = np.log(np.maximum(0.0, self.outside + np.where(side > 0, base[1], base[0])))
        least, most = costs.ends()
        least, most = np.maximum(least, SMALLEST), np.minimum(most, LARGEST)
        edge = np.clip(z + self.elasticity * (edge - self.x), np.log(least), np.log(most))
        low, high = np.minimum(z, edge), np.maximum(z, edge)
        for trial in (edge, near):
            some = np.flatnonzero(side)
            if not len(some):
                break
            own, at, begin, end = self.take(some), trial[some], low[some], high[some]
            at = np.where((begin <= at) & (at <= end), at, 0.5 * (begin + end))
            z[some], side[some] = at, own._side(at, own.costs.slopes(np.exp(at), _ON))
            low[some] = np.where(side[some] > 0, at, begin)
            high[some] = np.where(side[some] < 0, at, end)
        some = np.flatnonzero(side)
        if len(some):
            own, begin, end = self.take(some), low[some], high[some]
            z[some] = bracketed_roots(own, begin, end, own.excess(begin), own.excess(end))[0]
        used = np.exp(z)
        for end in (least, most):
            used = np.where(np.abs(used - end) <= _ON * used, end, used)
        left, right = costs.slopes(used, _ON)
        return used, np.clip(np.exp(self._log_price(z)) - self.outside, left, right)

    def _log_price(self, z: Array) -> Array:
        return self.x + (z - self.y) / self.elasticity

    def _side(self, z: Array, slopes: tuple[Array, Array]) -> IntArray:
        """Return 1 where use is too little, −1 where too much."""
        left, right = slopes
        price = self._log_price(z)
        least, most = (np.log(np.maximum(0.0, self.outside + side)) for side in (right, left))
        return (price > least + _EVEN).astype(np.int64) - (price < most - _EVEN)


def priced_alone(program: Program) -> bool:
    """Return whether prices alone are searched, as on a tree."""
    return _tree(program) is not None


def _tree(program: Program) -> tuple[Sums, Sums | None] | None:
    """Return the groups and the whole, or None."""
    if not isinstance(program.numerics, UsageCosts):
        return None
    sums = sums_of(program, int(np.argmax(program.numerics.usage)))
    # What all sources share may bring a price below 0, which the search has none of.
    rising = sums is None or sums[1] is None or bool(np.all(sums[1].costs.rises))
    return sums if rising else None


class _Seen(NamedTuple):
    """What the last passes have shown of all sums.

    Those that are `lost` use nothing, or more than there is.
    """

    price: Array
    used: Array
    x: Array
    y: Array
    elasticity: Array
    right: Array
    lost: BoolArray


class _Search:
    """Prices of all sums at once.

    The last one has the sources of no group.
    """

    def __init__(self, program: Program, sources: Numerics, groups: Sums, whole: Sums | None) -> None:
        n, self.m, self.passes = len(groups.of), groups.costs.number - 1, 0
        self.program, self.group, self.costs = program, groups.of, groups.costs
        self.coefficient, self.per = groups.coefficient, np.ones(self.m + 1)
        self.top: SumCosts | None = None
        self.unit = self.coefficient
        if whole is not None:
            self.unit = whole.coefficient
            self.coefficient = np.where(self.group < self.m, self.coefficient, self.unit)
            self.per[self.group] = self.unit / self.coefficient
            self.top = whole.costs.take(np.zeros(1, dtype=np.int64))
        self.sources, self.lower, self.upper = sources, program.lower[:n], program.upper[:n]
        self.capacity = self._used(self.upper)
        self.near, self.usual, self.floor, self.ceiling = np.zeros(self.m + 1), 1.0, 0.0, np.inf

    def run(self) -> RowAnswer | None:
        """Search until every price is a slope and the price outside."""
        outside, own = self._start()
        price, many = outside * self.per + own, self.m + 1
        # Prices on either side, and the prices outside beyond which they are.
        low, low_from, high, high_to = np.zeros(many), np.full(many, -np.inf), *np.full((2, many), np.inf)
        last, free = (np.full(many, np.nan),) * 2, np.zeros(many, dtype=np.bool_)
        elasticity, before = np.full(many, _FIRST), np.full(many, np.inf)
        ends, idle = [np.full(len(self.group), np.nan)] * 2, np.bincount(self.group, minlength=many) == 0
        gone = False
        for k in range(_PASSES):
            price = np.maximum(price, _NOTHING)
            rates, used = self._demand(price)
            left, right = self.costs.slopes(used)
            x, y = np.log(price), np.log(used)
            moved, found = np.abs(x - last[0]), (y - last[1]) / (x - last[0])
            usable = np.isfinite(found) & (found < 0.0) & (moved + np.abs(y - last[1]) > _MOVED)
            elasticity = np.where(usable, np.clip(found, _STEEP, _FLAT), elasticity)
            known = np.isfinite(x) & np.isfinite(y)
            last = np.where(known, x, last[0]), np.where(known, y, last[1])
            # Sources may have all that there is for them, at a price of 0 that a utility would lower.
            full = (price <= _NOTHING) & (outside * self.per + right <= 0.0)
            lost = ~np.isfinite(y) | ~np.isfinite(last[1]) | full
            seen = _Seen(price, used, *last, elasticity, right, lost)
            # Together they are soon met; if not, the price outside waits for the groups.
            together = k < _TOGETHER or self.top is None
            bought, own = self._meet(seen, outside)
            if together:
                # A model is not trusted far from where it is known.
                least, most = (0.0 if gone else outside / _FAR), (outside or np.inf) * _FAR
                bought, own, outside = self._balance(seen, outside, bought, own)
                if not least <= outside <= most:
                    gone, outside = gone or outside < least, float(np.clip(outside, least, most))
                    bought, own = self._meet(seen, outside)
            aside = outside * self.per
            inside = (aside + left <= price * (1.0 + _EVEN)) & (
                price <= np.maximum(0.0, aside + right) * (1.0 + _EVEN) + _NOTHING
            )
            # A price outside that moves may leave what was beyond a bracket inside.
            low, low_from = np.where(low_from < outside, (low, low_from), ((0.0,), (-np.inf,)))
            high, high_to = np.where(high_to > outside, (high, high_to), ((np.inf,), (np.inf,)))
            cheap, dear = ~inside & (price < aside + left), ~inside & (price > aside + right)
            low, low_from = np.where(
                cheap & (price > low), (price, (price - left) / self.per), (low, low_from)
            )
            high, high_to = np.where(
                dear & (price < high), (price, (price - right) / self.per), (high, high_to)
            )
            for side, moved in enumerate((cheap, dear)):
                ends[side] = np.where(moved[self.group], rates, ends[side])
            width = np.log(high) - np.log(low)
            # Where sources are at bounds use hardly tells the price, and where demand jumps the reverse.
            off = np.maximum(np.abs(y - np.log(bought)), np.abs(x - np.log(aside + own)))
            met = idle | inside | (off <= _NEAR) | (width <= _CLOSED)
            if bool(np.all(met)):
                before_met = outside
                if not together:
                    self._narrow(bought, outside)
                    bought, own, outside = self._balance(seen, outside, bought, own)
                if together or np.abs(np.log(outside) - np.log(before_met)) <= _NEAR or outside == before_met:
                    wanted = np.where(inside & (self.top is None), used, bought)
                    return self._answer(rates, wanted, ends, own, outside)
                price = outside * self.per + own
                continue
            # Where nothing is used the first unit's price may do; a bracket that shrinks slowly is halved.
            following = aside + own
            slow = (k >= _PATIENT) & (width > 0.5 * before)
            before = np.where(slow, np.inf, width)
            usable = (following > low) & (following < high) & ~np.isinf(y)
            usable |= (used == 0.0) & ~slow & (following > 0.0)
            far = np.sqrt(np.maximum(low, high / _FAR**2)) * np.sqrt(np.minimum(high, low * _FAR**2))
            price_below = np.where(price > 0.0, price, high) / _FAR
            far = np.where(low == 0.0, price_below, np.where(np.isinf(high), price * _FAR, far))
            # Where use is free at this price, all that costs nothing may be used.
            gratis = (aside + right == 0.0) & ~free
            free |= gratis
            following = np.where(gratis, 0.0, np.where(usable, following, far))
            price = np.where(met, price, following)
        return None

    def _narrow(self, bought: Array, outside: float) -> None:
        """Note whether the whole's price is above the one outside, or below."""
        assert self.top is not None
        left, right = self.top.slopes(np.array([np.sum(self.per * bought)]), _ON)
        if outside < float(left[0]):
            self.floor = max(self.floor, outside)
        elif outside > float(right[0]):
            self.ceiling = min(self.ceiling, outside)

    def _balance(self, seen: _Seen, outside: float, bought: Array, own: Array) -> tuple[Array, Array, float]:
        """Return uses, own prices and the price outside where models meet."""
        if self.top is None:
            return bought, own, outside
        low, high, last, elasticity, nothing = self.floor, self.ceiling, (np.nan, np.nan), _FIRST, False
        for _ in range(_TRIALS):
            used = np.array([np.sum(self.per * bought)])
            left, right = (float(side[0]) for side in self.top.slopes(used, _ON))
            if left <= outside * (1.0 + _EVEN) and outside <= right * (1.0 + _EVEN):
                break
            low, high = (outside, high) if outside < left else (low, outside)
            if high <= low * (1.0 + _EVEN):
                break
            x, y, following = np.log(outside), float(np.log(used[0])), np.nan
            if np.isfinite(x) and np.isfinite(y):
                found, last, self.usual = (y - last[1]) / (x - last[0]), (x, y), outside
                elasticity = float(np.clip(found, _STEEP, _FLAT)) if np.isfinite(found) else elasticity
                model = _Demand(self.top, *np.array([[x], [y], [elasticity], [0.0]]))
                following = min(float(model.meeting(np.array([y]))[1][0]), outside * _FAR**2)
            if following < _NOTHING and low == 0.0 and not nothing:
                following, nothing = 0.0, True
            elif not low < following < high:
                between = np.sqrt(low) * np.sqrt(high)
                following = between if low > 0.0 else min(high / _FAR, self.usual)
                following = low * _FAR if np.isinf(high) and low > 0.0 else following
            outside = following
            bought, own = self._meet(seen, outside)
        return bought, own, outside

    def _meet(self, seen: _Seen, outside: float) -> tuple[Array, Array]:
        """Return uses and own prices where groups meet their costs, as modelled."""
        aside, lost = outside * self.per, seen.lost
        x, y = np.where(lost, 0.0, (seen.x, seen.y))
        used, own = _Demand(self.costs, x, y, seen.elasticity, aside).meeting(self.near)
        # Once all sources are at their bounds, use rises no more.
        full = used > self.capacity
        used = np.where(full, self.capacity, used)
        own = np.where(full, np.minimum(own, self.costs.slopes(used, _ON)[1]), own)
        self.near = np.log(used)
        stays = (seen.used == 0.0) | (seen.price <= _NOTHING)
        without = np.where(stays, seen.right, seen.price * _FAR)
        return np.where(lost, seen.used, used), np.where(lost, without, own)

    def _start(self) -> tuple[float, Array]:
        """Return a price outside, and one for each sum beside it."""
        looked = np.arange(0, len(self.group), max(1, len(self.group) // _LOOKED_AT))
        rates, share = self.program.typical[: len(self.group)], 1.0
        used = self._used(rates)
        if self.top is not None:
            share = min(1.0, float(self.top.ends()[1][0] / np.sum(self.per * used)))
        value = self.sources.take(looked).marginal(share * rates[looked]) / self.unit[looked]
        usual = value[(value > 0.0) & np.isfinite(value)]
        guess = float(np.median(usual)) if len(usual) else 1.0
        slope = self.costs.slopes(np.clip(share * used, *self.costs.ends()))[1]
        if self.top is None:
            usable = (slope > 0.0) & np.isfinite(slope)
            other = float(np.median(slope[usable])) if bool(np.any(usable)) else guess
            return 0.0, np.append(np.where(usable, slope, other)[:-1], 0.0)
        of_whole = float(self.top.slopes(np.clip([np.sum(self.per * used)], *self.top.ends()))[1][0])
        outside = of_whole if 0.0 < of_whole < np.inf else guess
        return outside, np.where(np.isfinite(slope) & (outside * self.per + slope > 0.0), slope, 0.0)

    def _demand(self, price: Array) -> tuple[Array, Array]:
        """Return best responses, and what each sum uses."""
        self.passes += 1
        paid = price[self.group] * self.coefficient
        rates = np.clip(self.sources.inverse_marginal(paid), self.lower, self.upper)
        rates = np.where(np.isnan(rates), self.lower, rates)
        return rates, self._used(rates)

    def _used(self, rates: Array) -> Array:
        amounts = np.where(self.coefficient > 0.0, self.coefficient * rates, 0.0)
        return np.bincount(self.group, weights=amounts, minlength=self.m + 1).astype(np.float64)

    def _answer(
        self, rates: Array, wanted: Array, ends: list[Array], own: Array, outside: float
    ) -> RowAnswer:
        """Return the answer, its rates moved to the uses that are wanted."""
        used, group = self._used(rates), self.group
        for short, end in zip((used < wanted, used > wanted), ends, strict=True):
            away = self._used(end) - used
            share = np.clip((wanted - used) / away, 0.0, 1.0)
            share = np.where(short & np.isfinite(share), share, 0.0)[group]
            rates = np.where(share > 0.0, rates + share * (end - rates), rates)
        # Sources at bounds stay there, unless a limit is not met without them.
        held, most = (rates <= self.lower) | (rates >= self.upper), self.costs.ends()[1]
        fixed = self._used(np.where(held, rates, 0.0))
        for _ in range(_ROUNDS):
            used = self._used(rates)
            inner, near = (wanted - fixed) / (used - fixed), np.abs(wanted / used - 1.0) <= 2.0 * _NEAR
            usable = np.abs(inner - 1.0) <= _LITTLE
            factor = np.where(near, np.where(usable, inner, np.fmin(1.0, most / used)), 1.0)
            scaled = np.clip(rates * factor[group], self.lower, self.upper)
            rates = np.where(held & usable[group], rates, scaled)
        if self.top is not None:  # what all use is met to rounding of its own
            room, total = float(self.top.ends()[1][0]), float(np.sum(self.unit * rates))
            rates = np.maximum(self.lower, rates * (room / total)) if total > room else rates
        used = self._used(rates)
        price = np.zeros(len(self.program.rows))
        every = np.concatenate((rates, np.empty(len(self.program) - len(rates))))
        levels = [(self.costs, used, own)]
        if self.top is not None:
            levels.append((self.top, np.array([np.sum(self.per * used)]), np.array([outside])))
        for costs, amount, paid in levels:
            price[costs.row] = costs.multipliers(amount, paid, 2.0 * _NEAR)
            priced = costs.place >= 0
            every[len(rates) + costs.place[priced]] = costs.amounts(amount)[priced]
        slack = np.zeros(len(price))
        return RowAnswer(every, price, slack, 0.0, self.passes, self.passes, None, ())
