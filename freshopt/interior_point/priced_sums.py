"""`solve_priced`: prices of sums that share no source.

Each sum is a search in one unknown. What it uses at a price, D(p), falls, and the use at which its cost has
the slope p rises: they meet once, at φ'(D(p)) = p. D is near a power of p, as a secant in logarithms through
the last two passes has it, and φ' is known: the use at which the two meet is found without a look at the
sources, be it on a step of a tariff, at its end, at a limit or on a smooth cost. One pass over the sources
serves all sums.
"""

from __future__ import annotations

import numpy as np

from freshopt.autodiff.kinked_atoms import LEFT, RIGHT
from freshopt.interior_point.linear_pieces import curveless
from freshopt.interior_point.solve_rows import RowAnswer
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE
from freshopt.separable.usage_costs import UsageCosts

# Passes at most; 9 programs of a million sources need 4 to 9, demand that all but jumps some 60.
_PASSES = 120
# Logarithms of the use and of where its cost has the price for slope are this near, or those of the bracket's
# prices: what is left is made up by mixing rates of both ends, or scaling them, at a loss of its square.
_NEAR, _CLOSED = 1e-8, 1e-13
# After so many passes a bracket that has not been halved is: demand then jumps.
_PATIENT = 8
# Rounds of scaling, since sources at bounds take no part.
_ROUNDS = 4
# Elasticities of demand; before two passes are known it is taken for that of a cost 1/ρ.
_FIRST, _STEEP, _FLAT = -0.5, -1e9, -1e-3
# Halvings of log u: 1400 nats to 1e-18.
_HALVINGS = 70
# Sources that are looked at for curvature.
_LOOKED_AT = 2000
# Where demand is 0 or infinite the price moves by this factor.
_FAR = 1e3


def solve_priced(program: Program) -> RowAnswer | None:
    """Return rates and prices of priced sums, else None.

    The sums share no source and there are no other rows; None where a search stalls, too.
    """
    rows, numerics = program.rows, program.numerics
    if not isinstance(numerics, UsageCosts) or not isinstance(numerics.usages, DerivedNumerics):
        return None
    n, m, source = int(np.argmax(numerics.usage)), len(rows), rows.source
    own = source < n
    if (
        len(program) - n != m
        or bool(np.any(rows.kind != RATE))
        or bool(np.any((rows.coefficient > 0.0) != own))
    ):
        return None
    if bool(np.any(np.bincount(source[own], minlength=n) > 1)):
        return None
    looked = np.arange(0, n, max(1, n // _LOOKED_AT))
    low = program.lower[looked]
    high = np.minimum(program.upper[looked], low + 2.0 * np.maximum(program.typical[looked], low))
    with np.errstate(all="ignore"):
        some = numerics.sources.take(looked)
        straight = curveless(some, low, high) & (high > low) & (some.marginal(high) != 0.0)
        return None if bool(np.any(straight)) else _Search(program, numerics, n).run()


class _Search:
    """Prices of all sums at once."""

    def __init__(self, program: Program, numerics: UsageCosts, n: int) -> None:
        rows, self.m, self.passes = program.rows, len(program.rows), 0
        own = rows.source < n
        # Each source's sum, or m, and each sum's variable.
        self.group, self.coefficient = np.full(n, self.m, dtype=np.int64), np.zeros(n)
        self.group[rows.source[own]], self.coefficient[rows.source[own]] = (
            rows.row[own],
            rows.coefficient[own],
        )
        self.variable = np.empty(self.m, dtype=np.int64)
        self.variable[rows.row[~own]] = rows.source[~own] - n
        assert isinstance(numerics.usages, DerivedNumerics)
        self.sources, self.costs = numerics.sources, numerics.usages.take(self.variable)
        self.lower, self.upper = program.lower[:n], program.upper[:n]
        self.least, self.most, self.typical = (
            column[n + self.variable] for column in (program.lower, program.upper, program.typical)
        )

    def run(self) -> RowAnswer | None:
        """Search until every price is the slope of its cost."""
        price = self._start()
        low, high = np.zeros(self.m), np.full(self.m, np.inf)
        last, free = (np.full(self.m, np.nan),) * 2, np.zeros(self.m, dtype=np.bool_)
        elasticity = np.full(self.m, _FIRST)
        before = np.full(self.m, np.inf)
        ends = [np.full(len(self.group), np.nan)] * 2
        for k in range(_PASSES):
            rates, used = self._demand(price)
            left, right = self._slopes(used)
            x, y = np.log(price), np.log(used)
            found = (y - last[1]) / (x - last[0])
            elasticity = np.where(
                np.isfinite(found) & (found < 0.0), np.clip(found, _STEEP, _FLAT), elasticity
            )
            last = np.where(np.isfinite(y), x, last[0]), np.where(np.isfinite(y), y, last[1])
            low, high = np.where(price < left, price, low), np.where(price > right, price, high)
            for side, moved in enumerate((price < left, price > right)):
                ends[side] = np.where(np.append(moved, False)[self.group], rates, ends[side])
            bought, following = self._meeting(x, y, elasticity)
            inside = (left <= price) & (price <= right)
            width = np.log(high) - np.log(low)
            met = inside | (np.abs(y - np.log(bought)) <= _NEAR) | (width <= _CLOSED)
            if bool(np.all(met)):
                supply = self._meeting(x, y, np.full(self.m, -np.inf))[0]
                return self._answer(price, rates, np.where(inside, used, supply), ends)
            # Where nothing is used the first unit's price may do; a bracket that shrinks slowly is halved.
            following = np.where(used == 0.0, right, following)
            slow = (k >= _PATIENT) & (width > 0.5 * before)
            before = np.where(slow, np.inf, width)
            usable = (following > low) & (following < high) & (np.isfinite(y) | (used == 0.0)) & ~slow
            far = np.sqrt(np.maximum(low, high / _FAR**2)) * np.sqrt(np.minimum(high, low * _FAR**2))
            price_below = np.where(price > 0.0, price, high) / _FAR
            far = np.where(low == 0.0, price_below, np.where(np.isinf(high), price * _FAR, far))
            # Where use is free at this price, all that costs nothing may be used.
            gratis = (right == 0.0) & ~free
            free |= gratis
            following = np.where(gratis, 0.0, np.where(usable, following, far))
            price = np.where(met, price, following)
        return None

    def _meeting(self, x: Array, y: Array, elasticity: Array) -> tuple[Array, Array]:
        """Return uses and prices where costs' slopes meet the demand as modelled."""
        low = np.log(np.maximum(self.least, SMALLEST))
        high = np.log(np.minimum(self.most, LARGEST))
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            dear = np.log(-self.costs.marginal(np.exp(middle))) > x + (middle - y) / elasticity
            low, high = np.where(dear, low, middle), np.where(dear, middle, high)
        used = np.exp(high)
        used = np.where(np.abs(used - self.most) <= 1e-14 * used, self.most, used)
        left, right = self._slopes(used * (1.0 - 1e-14))[0], self._slopes(used * (1.0 + 1e-14))[1]
        return used, np.clip(np.exp(x + (high - y) / elasticity), left, right)

    def _start(self) -> Array:
        slope = -self.costs.marginal(np.clip(self.typical, self.least, self.most))
        usable = (slope > 0.0) & np.isfinite(slope)
        other = float(np.median(slope[usable])) if bool(np.any(usable)) else 1.0
        return np.where(usable, slope, other)

    def _demand(self, price: Array) -> tuple[Array, Array]:
        """Return best responses, and what each sum uses."""
        self.passes += 1
        paid = np.append(price, 0.0)[self.group] * self.coefficient
        rates = np.clip(self.sources.inverse_marginal(paid), self.lower, self.upper)
        rates = np.where(np.isnan(rates), self.lower, rates)
        return rates, self._used(rates)

    def _used(self, rates: Array) -> Array:
        amounts = np.where(self.coefficient > 0.0, self.coefficient * rates, 0.0)
        used = np.bincount(self.group, weights=amounts, minlength=self.m + 1)[: self.m]
        return used.astype(np.float64)

    def _slopes(self, used: Array) -> tuple[Array, Array]:
        """Return the slopes of the costs on either side of uses."""
        at = np.clip(used, self.least, self.most)
        left, right = -self.costs.marginal(at, LEFT), -self.costs.marginal(at, RIGHT)
        left = np.where(used > self.most, np.inf, np.where(used <= self.least, 0.0, left))
        right = np.where(used >= self.most, np.inf, np.where(used < self.least, 0.0, right))
        none = np.isnan(left) | np.isnan(right)
        return np.where(none, np.inf, np.maximum(left, 0.0)), np.where(none, np.inf, right)

    def _answer(self, price: Array, rates: Array, wanted: Array, ends: list[Array]) -> RowAnswer | None:
        """Return the answer, its rates moved to the uses that are wanted."""
        used, group = self._used(rates), self.group
        for short, end in zip((used < wanted, used > wanted), ends, strict=True):
            away = self._used(end) - used
            share = np.clip((wanted - used) / away, 0.0, 1.0)
            share = np.append(np.where(short & np.isfinite(share), share, 0.0), 0.0)[group]
            rates = np.where(share > 0.0, rates + share * (end - rates), rates)
        for _ in range(_ROUNDS):
            used = self._used(rates)
            factor = np.append(np.where(used > 0.0, wanted / used, 1.0), 1.0)
            rates = np.clip(
                rates * np.where(np.abs(factor - 1.0) <= 2.0 * _NEAR, factor, 1.0)[group],
                self.lower,
                self.upper,
            )
        used = np.clip(self._used(rates), self.least, self.most)
        variables = np.empty(self.m)
        variables[self.variable] = used
        every = np.concatenate((rates, variables))
        return RowAnswer(every, price, np.zeros(self.m), 0.0, self.passes, self.passes, None, ())
