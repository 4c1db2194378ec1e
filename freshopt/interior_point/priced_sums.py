"""`solve_priced`: prices of sums on a tree of height 2.

What a group uses at the price p that its sources pay falls, and the use at which its cost has the slope
p − λ, with λ the price outside, rises: they meet once, at p = λ + φ'(D(p)). So with the whole, whose use
falls with λ. A limit is a cost that ends there; hosts under a bandwidth are groups of no other cost. With D
as the passes have shown it (`freshopt.interior_point.sum_demand`) and φ' known, all meet at prices that are
found without a look at the sources, be it on a step of a tariff, at its end, at a limit or on a smooth cost,
and be it a price or a utility, whose φ' is below 0. One pass over the sources serves all sums.

What passes prove (prices too low or too high, and what is used there) holds whatever the price outside is:
brackets of all prices come from it, the whole's too, and where models fail they are halved.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from freshopt.autodiff.kinked_atoms import LEFT, RIGHT
from freshopt.certificates.row_gap import RowGap
from freshopt.interior_point.linear_pieces import curveless
from freshopt.interior_point.solve_rows import RowAnswer
from freshopt.interior_point.sum_costs import SumCosts, Sums, sums_of
from freshopt.interior_point.sum_demand import EVEN, FIRST, FLAT, NOTHING, ON, STEEP, Demand, Seen
from freshopt.numerics.arrays import LARGEST, Array, BoolArray
from freshopt.separable.kernel import Numerics
from freshopt.separable.program import Program
from freshopt.separable.usage_costs import UsageCosts

# Passes at most; 9 programs of a million sources need 4 to 9, demand that all but jumps some 30.
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
# Prices of the whole at most that models are asked at; secants need 2 to 8.
_TRIALS = 80
# Halvings of the share of uses on either side of a price.
_HALVINGS = 60
# Sources that are looked at for curvature.
_LOOKED_AT = 2000
# Where demand is 0 or infinite the price moves by this factor.
_FAR = 1e3
# Uses are moved by so much, relatively, from kinks.
_ULP = 8.0 * float(np.finfo(np.float64).eps)


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


def priced_alone(program: Program) -> bool:
    """Return whether prices alone are searched, as on a tree."""
    return _tree(program) is not None


def _tree(program: Program) -> tuple[Sums, Sums | None] | None:
    """Return the groups and the whole, or None."""
    if not isinstance(program.numerics, UsageCosts):
        return None
    return sums_of(program, int(np.argmax(program.numerics.usage)))


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
        self.seen = Seen(
            self.costs,
            self._first_and_last(),
            np.stack([self._used(own) for own in (self.upper, self.lower)]),
        )
        self.tried, self.usual, self.ceiling = np.zeros(self.m + 1), 1.0, np.inf
        self.floor = 0.0 if self.top is None or bool(np.all(self.top.rises)) else -np.inf

    def _first_and_last(self) -> Array:
        """Return prices up to which sums use all, beyond which the least."""
        numerics, n = self.program.numerics, len(self.group)
        assert isinstance(numerics, UsageCosts)
        some, found = self.coefficient > 0.0, np.array([[np.inf], [-np.inf]]) * np.ones(self.m + 1)
        ends = ((np.minimum, self.program.upper, LEFT), (np.maximum, self.program.lower, RIGHT))
        for own, (least_or_most, at, side) in zip(found, ends, strict=True):
            worth = numerics.marginal(at, side)[:n]
            worth = np.where(np.isnan(worth), np.inf if side == RIGHT else -np.inf, worth)
            least_or_most.at(own, self.group[some], (worth / self.coefficient)[some])
        # Prices at which single sources begin.
        self.begins = np.where(some & (self.lower < self.upper), worth / self.coefficient, np.inf)
        return found

    def run(self) -> RowAnswer | None:
        """Search until every price is a slope and the price outside."""
        outside, price = self._start()
        before, gone, stuck = np.full(self.m + 1, np.inf), False, np.zeros(self.m + 1, dtype=np.bool_)
        near_to = np.log(np.maximum(price, NOTHING))
        idle = np.bincount(self.group, minlength=self.m + 1) == 0
        for k in range(_PASSES):
            price = np.maximum(price, NOTHING)
            rates, used = self._demand(price)
            self.seen.add(price, used, *self.costs.slopes(used))
            self.model = self.seen.model(near_to)
            # Together they are soon met; if not, the price outside waits until it is known to be wrong.
            aside = outside * self.per
            together = self._narrow(outside, *self.seen.between(aside)) or k < _TOGETHER
            bought, paid, near = *self._meet(outside), True
            if together:
                # A model is not trusted far from where it is known.
                least, most = (0.0 if gone else outside / _FAR), (outside or np.inf) * _FAR
                bought, paid, outside = self._balance(outside, bought, paid)
                near = least <= outside <= most or self.floor < 0.0
                if not near:
                    gone, outside = gone or outside < least, float(np.clip(outside, least, most))
                    bought, paid = self._meet(outside)
            aside = outside * self.per
            near_to = np.log(np.clip(paid, NOTHING, 1.0 / NOTHING))
            low, high = self.seen.bracket(aside)
            inside = ~np.any([side[-1] for side in self.seen.sides(aside)], axis=0)
            width = np.log(high) - np.log(low)
            # Where sources are at bounds use hardly tells the price, and where demand jumps the reverse.
            x, y = np.log(price), np.log(used)
            off, alike = np.abs(y - np.log(bought)), (used == bought) | (self.top is None)
            inside &= alike | (off <= _NEAR)
            met = idle | inside | (np.maximum(off, np.abs(x - np.log(paid))) <= _NEAR) | (width <= _CLOSED)
            if near and bool(np.all(met)):
                before_met = outside
                if not together:
                    self._narrow(outside, bought, bought)
                    bought, paid, outside = self._balance(outside, bought, paid)
                if together or abs(outside - before_met) <= _NEAR * abs(outside):
                    wanted = np.where(inside & (self.top is None), used, bought)
                    return self._answer(rates, wanted, paid, outside)
                price = paid
                continue
            # A bracket that shrinks slowly is halved.
            lowest, highest = self.seen.beyond(aside)
            low, high = np.maximum(low, lowest), np.minimum(high, highest)
            following = np.clip(
                paid, NOTHING, np.where(np.isinf(high), np.maximum(price, low) * _FAR**2, high)
            )
            again = np.any(self.seen.price == following, axis=0)
            inner = np.clip(following, low * (1.0 + 0.5 * _CLOSED), high * (1.0 - 0.5 * _CLOSED))
            following = np.where(again, inner, following)
            slow = (k >= _PATIENT) & (width > 0.5 * before)
            before = np.where(slow, np.inf, width)
            slow |= np.any(self.seen.price == following, axis=0)
            usable = (following >= low) & (following <= high) & ~slow
            far = np.sqrt(np.maximum(low, high / _FAR**2)) * np.sqrt(np.minimum(high, low * _FAR**2))
            far = np.where(
                low == 0.0, np.minimum(price, high) / _FAR, np.where(np.isinf(high), price * _FAR, far)
            )
            stuck |= slow & ~met
            if bool(np.any(stuck)):
                far = self._where_one_begins(stuck, low, high, following, far)
            price = np.where(met, price, np.where(usable, following, far))
        return None

    def _where_one_begins(self, stuck: BoolArray, low: Array, high: Array, near: Array, far: Array) -> Array:
        """Return prices inside brackets at which, or near which, a source begins.

        Demand of some begins nearly with a jump, which a price that is off by rounding misses; of binary
        freshness at equal gaps it is 1/log of the distance. Models are of the distance to where one begins.
        """
        own = np.flatnonzero(stuck[self.group])
        group, begins = self.group[own], self.begins[own]
        above, inside = begins >= high[group] * (1.0 - _CLOSED), begins > low[group] * (1.0 + _CLOSED)
        inside &= ~above
        off, nearest, end = np.abs(np.log(begins / near[group])), *np.full((2, self.m + 1), np.inf)
        np.minimum.at(nearest, group[inside], off[inside])
        np.minimum.at(end, group[above], begins[above])
        some = stuck & np.isinf(nearest) & np.isfinite(end) & (low > 0.0)
        self.seen.end[some] = end[some]
        farther, nearer = np.log(end[some] / low[some]), np.log(end[some] / high[some])
        found = np.array(far)
        found[some] = end[some] * np.exp(-np.sqrt(farther * np.maximum(nearer, _CLOSED)))
        at = inside & (off == nearest[group])
        found[group[at]] = begins[at]
        return found

    def _narrow(self, outside: float, least: Array, most: Array) -> bool:
        """Bound the whole's price by uses; return whether it is another."""
        if self.top is None:
            return True
        left = self.top.slopes(np.array([np.sum(self.per * least)]), ON)[0]
        right = self.top.slopes(np.array([np.sum(self.per * most)]), ON)[1]
        self.floor = max(self.floor, min(outside, float(left[0])))
        self.ceiling = min(self.ceiling, max(outside, float(right[0])))
        return not self.floor < outside < self.ceiling

    def _balance(self, outside: float, bought: Array, paid: Array) -> tuple[Array, Array, float]:
        """Return uses, prices and the one outside where models meet."""
        if self.top is None:
            return bought, paid, outside
        low, high, last, elasticity, nothing = self.floor, self.ceiling, (np.nan, np.nan), FIRST, False
        before = np.nan, np.nan
        more: tuple[Array, ...] = ()
        fewer: tuple[Array, ...] = ()
        for trial in range(_TRIALS):
            used = np.array([np.sum(self.per * bought)])
            left, right = (float(side[0]) for side in self.top.slopes(used, ON))
            even = EVEN * abs(outside)
            if left <= outside + even and outside - even <= right:
                break
            # Slopes of the whole's cost are on the other side.
            here = bought, paid
            if outside < left:
                low, high, more = outside, min(high, right), here
            else:
                low, high, fewer = max(low, left), outside, here
            if np.isfinite(low) and high - low <= EVEN * abs(low):
                # No price outside is between; uses are.
                if more and fewer:
                    bought, paid = self._mixed(outside, more, fewer)
                break
            x, y, following = np.log(outside), float(np.log(used[0])), np.nan
            if np.isfinite(x) and np.isfinite(y):
                found, last, self.usual = (y - last[1]) / (x - last[0]), (x, y), outside
                elasticity = float(np.clip(found, STEEP, FLAT)) if np.isfinite(found) else elasticity
                model = Demand(
                    self.top, *np.array([[x], [y], [elasticity], [np.inf], [0.0], [0.0], [np.inf]])
                )
                following = min(float(model.meeting(np.array([y]))[1][0]), outside * _FAR**2)
            if low < 0.0:
                short = outside - (left if outside < left else right)
                slope = (short - before[1]) / (outside - before[0])
                following, before = outside - short / slope if trial % 3 else np.nan, (outside, short)
            if following < NOTHING and low == 0.0 and not nothing:
                following, nothing = 0.0, True
            elif not low < following < high:
                between = np.sqrt(abs(low)) * np.sqrt(abs(high))
                following = between if low > 0.0 else min(high / _FAR, self.usual)
                following = low * _FAR if np.isinf(high) and low > 0.0 else following
                if low < 0.0:
                    least = low / _FAR if np.isfinite(low) else min(high * _FAR, -self.usual)
                    following = 0.0 if high > 0.0 else -between if -np.inf < low and high < 0.0 else least
            outside = following
            bought, paid = self._meet(outside)
        return bought, paid, outside

    def _mixed(
        self, outside: float, more: tuple[Array, ...], fewer: tuple[Array, ...]
    ) -> tuple[Array, Array]:
        """Return uses between two, where the whole's slope is the price outside."""
        assert self.top is not None
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            share = 0.5 * (low + high)
            bought, paid = (
                np.where((a > 0.0) & (b > 0.0), a ** (1.0 - share) * b**share, a + share * (b - a))
                for a, b in zip(more, fewer, strict=True)
            )
            used = np.array([np.sum(self.per * bought)])
            low, high = (share, high) if outside < float(self.top.slopes(used)[0][0]) else (low, share)
        return bought, paid

    def _meet(self, outside: float) -> tuple[Array, Array]:
        """Return uses and prices where groups meet their costs, as modelled."""
        aside, seen = outside * self.per, self.seen
        most, least = seen.used[:2]
        used, price = Demand(self.costs, *self.model, aside, least, most).meeting(self.tried)
        self.tried = np.log(used)
        # What is known of them holds for models.
        used, price = np.clip(used, *seen.between(aside)), np.clip(price, *seen.bracket(aside))
        return self._at_ends(outside, used, price)

    def _at_ends(self, outside: float, used: Array, price: Array) -> tuple[Array, Array]:
        """Return uses and prices, also of sums at ends of demand."""
        aside, seen = outside * self.per, self.seen
        all_until, none_from = seen.price[:2]
        # Any price from where nothing is used to that of the first unit.
        least, most = np.maximum(none_from, aside + seen.left[1]), aside + seen.right[1]
        none = (least <= most) & (least < np.inf)
        used, price = np.where(none, seen.used[1], used), np.where(none, np.minimum(most, 2.0 * least), price)
        least, most = aside + seen.left[0], np.minimum(all_until, aside + seen.right[0])
        every = (least <= most) & ~none & np.isfinite(seen.used[0])
        inner = np.maximum(least, np.where(most > 0.0, 0.5 * most, most))
        return np.where(every, seen.used[0], used), np.where(every, inner, price)

    def _start(self) -> tuple[float, Array]:
        """Return a price outside, and what sums pay."""
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
            outside, own = 0.0, np.append(np.where(usable, slope, other)[:-1], 0.0)
        else:
            of_whole = float(self.top.slopes(np.clip([np.sum(self.per * used)], *self.top.ends()))[1][0])
            outside = of_whole if 0.0 < of_whole < np.inf else guess
            own = np.where(np.isfinite(slope) & (outside * self.per + slope > 0.0), slope, 0.0)
        # Beyond these prices passes show nothing.
        first, last = self.seen.price[:2]
        inwards = np.where(first > 0.0, np.cbrt(last / first), 2.0)
        inwards = np.clip(np.where(np.isfinite(inwards), inwards, 2.0), 1.0, 2.0)
        aside = outside * self.per
        price = np.minimum(np.maximum(aside + own, inwards * first), last / inwards)
        return outside, self._at_ends(outside, used, price)[1]

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

    def _answer(self, rates: Array, wanted: Array, paid: Array, outside: float) -> RowAnswer:
        """Return the answer, its rates moved to the uses that are wanted."""
        used, group = self._used(rates), self.group
        jumps = ~(np.abs(wanted - used) <= 2.0 * _NEAR * wanted)
        if bool(np.any(jumps)):
            ends = (np.where(jumps, end, 1.0) for end in self.seen.bracket(outside * self.per))
            (upper, most), (lower, least) = (self._demand(np.clip(end, NOTHING, LARGEST)) for end in ends)
            share = np.clip((wanted - least) / (most - least), 0.0, 1.0)
            mixed = (jumps & np.isfinite(share))[group]
            rates = np.where(mixed, lower + share[group] * (upper - lower), rates)
        # Sources at bounds stay there, unless a limit is not met without them.
        held, own = (rates <= self.lower) | (rates >= self.upper), paid - outside * self.per
        least, most = self.costs.ends()
        fixed = self._used(np.where(held, rates, 0.0))
        for _ in range(_ROUNDS):
            used = self._used(rates)
            # On a kink the gap is rounded relative to the dearer side: uses are on the cheaper one.
            for costs, amount, part in self._levels(used, own, outside):
                left, right = costs.slopes(amount, _ULP)
                fewer = (left > part) | (np.isfinite(right) & (right - part > _FAR * (part - left)))
                further = (right < part) | (np.isfinite(left) & (part - left > _FAR * (right - part)))
                wanted = np.clip(wanted * (1.0 + _ULP * (further.astype(np.float64) - fewer)), least, most)
            inner, near = (wanted - fixed) / (used - fixed), np.abs(wanted / used - 1.0) <= 2.0 * _NEAR
            usable = np.abs(inner - 1.0) <= _LITTLE
            factor = np.where(near, np.where(usable, inner, np.fmin(1.0, most / used)), 1.0)
            scaled = np.clip(rates * factor[group], self.lower, self.upper)
            rates = np.where(held & usable[group], rates, scaled)
        if self.top is not None:  # what all use is met to rounding of its own, by sums that are at no end
            total = float(np.sum(self.unit * rates))
            low, high = (float(end[0]) for end in self.top.ends())
            away = min(max(total, low), high) - total
            free = (used * (1.0 - ON) > least) if away < 0.0 else (used * (1.0 + ON) < most)
            share = np.divide(away, np.sum(np.where(free[group], self.unit * rates, 0.0)))
            scaled = np.clip(rates * (1.0 + share), self.lower, self.upper)
            rates = np.where(free[group] & (away != 0.0), scaled, rates)
        used = self._used(rates)
        price = np.zeros(len(self.program.rows))
        every = np.concatenate((rates, np.empty(len(self.program) - len(rates))))
        for costs, amount, part in self._levels(used, own, outside):
            price[costs.row] = costs.multipliers(amount, part, 2.0 * _NEAR)
            priced = costs.place >= 0
            every[len(rates) + costs.place[priced]] = costs.amounts(amount)[priced]
        return RowAnswer(every, price, 0.0, self.passes, self.passes, None, ())

    def _levels(self, used: Array, own: Array, outside: float) -> list[tuple[SumCosts, Array, Array]]:
        """Return costs of groups and whole, what they use and pay."""
        groups = [(self.costs, used, own)]
        if self.top is None:
            return groups
        return [*groups, (self.top, np.array([np.sum(self.per * used)]), np.array([outside]))]
