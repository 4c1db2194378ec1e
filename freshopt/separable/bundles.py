"""`Bundles`: tied sources as one variable of a program."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.errors import InfeasibleProblemError, ObjectiveError
from freshopt.numerics.arrays import Array, BoolArray, Index, IntArray
from freshopt.numerics.bracketed_roots import bracketed_roots
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.root_finding import decreasing_root
from freshopt.numerics.segments import segment_rows
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics, log_newton
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE, Rows

# Log of 1e300: marginal values beyond are not representable.
_LOG_RANGE = 690.0
# Brackets in log ρ are wider by this than inverse marginals say, which are rounded.
_ROUNDING = 1e-13
# First step downwards where a bracket has no lower end, in nats, and by how much each further one is longer.
_STEP, _GROWTH = 1.0, 4.0


@frozen_value()
class Bundles:
    """Bundles of sources that share a rate.

    - `codes` (n,): Bundle of each source, 0..b−1.
    - `order`, `first`: Sources bundle by bundle, and where each begins, shape (n,) and (b+1,).
    """

    codes: IntArray
    order: IntArray
    first: IntArray

    @classmethod
    def of(cls, codes: IntArray) -> Bundles:
        """Return the bundles of sources with equal codes."""
        _, own = np.unique(codes, return_inverse=True)
        order = np.argsort(own, kind="stable")
        return cls(own, order, np.concatenate(([0], np.cumsum(np.bincount(own)))))

    def __len__(self) -> int:
        """Return the number of bundles."""
        return len(self.first) - 1

    def totals(self, values: Array) -> Array:
        """Return the sum over each bundle, shape (b,)."""
        sums: Array = np.add.reduceat(values[self.order], self.first[:-1])
        return sums

    def largest(self, values: Array) -> Array:
        """Return the largest value of each bundle, shape (b,)."""
        most: Array = np.maximum.reduceat(values[self.order], self.first[:-1])
        return most

    def of_sources(self, values: Array) -> Array:
        """Return each source's value of its bundle, shape (n,)."""
        return values[self.codes]

    def common(self, rates: Array) -> Array:
        """Return one rate per bundle: the largest of its sources' rates."""
        return self.largest(rates)


@frozen_value()
class BundledNumerics:
    """Numerics of bundles: sums over their sources, at one rate."""

    each: Numerics
    bundles: Bundles
    typical: Array

    def cost(self, rate: Array) -> Array:
        """Return the sources' cost at the bundle's rate."""
        return self.bundles.totals(self.each.cost(self.bundles.of_sources(rate)))

    def marginal(self, rate: Array) -> Array:
        """Return the sources' marginal value at the bundle's rate."""
        return self.bundles.totals(self.each.marginal(self.bundles.of_sources(rate)))

    def curvature(self, rate: Array) -> Array:
        """Return the sources' curvature at the bundle's rate."""
        return self.bundles.totals(self.each.curvature(self.bundles.of_sources(rate)))

    def gain(self, rate: Array) -> None:
        """Return None: the cost says it."""

    def inverse_marginal(self, price: Array) -> Array:
        """Return the best response of each bundle.

        With m sources it lies between the largest response of one of them to the price and to an m-th of it.
        """
        if not isinstance(self.each, Kernel | MixedNumerics) or not bool(np.all(price > 0.0)):
            return self._by_newton(price)
        bundles = self.bundles
        with np.errstate(all="ignore"):
            price = np.broadcast_to(price, (len(bundles),))
            alone = bundles.largest(self.each.inverse_marginal(bundles.of_sources(price)))
            share = price / np.diff(bundles.first)
            most = bundles.largest(self.each.inverse_marginal(bundles.of_sources(share)))
            low, high = np.log(alone) - _ROUNDING, np.log(most) + _ROUNDING
            rates = np.where(self.marginal(np.zeros(len(bundles))) <= price, 0.0, np.nan)
            # Sources that alone would have none may have some together.
            low, step = np.where(np.isfinite(low), low, high - _STEP), _STEP
            open_ = _Open(self, np.log(price))
            above, below = open_.excess(low), open_.excess(high)
            while len(short := np.flatnonzero(np.isnan(rates) & (above <= 0.0) & (low > -_LOG_RANGE))):
                step *= _GROWTH
                low[short] -= step
                above[short] = _Open(self.take(short), np.log(price[short])).excess(low[short])
            usual = np.isnan(rates) & (above > 0.0) & (below < 0.0) & np.isfinite(high)
            found = open_.take(usual), low[usual], high[usual], above[usual], below[usual]
            rates[usual] = np.exp(bracketed_roots(*found)[0])
        rest = np.flatnonzero(np.isnan(rates))
        if len(rest):
            rates[rest] = self.take(rest)._by_newton(price[rest])
        return rates

    def _by_newton(self, price: Array) -> Array:
        """Return the best responses by Newton on logarithms."""
        compare = log_newton(price, lambda rate: (self.marginal(rate), self.curvature(rate)))
        return decreasing_root(compare, self.typical)

    def take(self, index: Index) -> BundledNumerics:
        """Return the numerics of some of the bundles."""
        chosen = np.arange(len(self.bundles))[index]
        counts = np.diff(self.bundles.first)[chosen]
        codes = np.repeat(np.arange(len(chosen)), counts)
        first = np.concatenate(([0], np.cumsum(counts)))
        members = self.bundles.order[segment_rows(self.bundles.first, chosen)]
        return BundledNumerics(
            self.each.take(members), Bundles(codes, np.arange(len(codes)), first), self.typical[index]
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    """Bundles' marginal values over prices, as functions of log rate."""

    numerics: BundledNumerics
    log_price: Array

    def excess(self, x: Array) -> Array:
        """Return log of marginal value over price, at rates exp(x)."""
        found: Array = np.log(self.numerics.marginal(np.exp(x))) - self.log_price
        return np.clip(found, -_LOG_RANGE, _LOG_RANGE)

    def take(self, chosen: BoolArray) -> _Open:
        """Return some of the bundles."""
        if bool(np.all(chosen)):
            return self
        return _Open(self.numerics.take(chosen), self.log_price[chosen])


def bundled(program: Program, bundles: Bundles, once: bool) -> Program:
    """Return a program in the rates of bundles.

    - `program`: In the rates of sources.
    - `once`: Whether a bundle's cost in a row of rates is its dearest source's, not the sum.
    - raises ObjectiveError if a target weighs sources of one bundle differently, as one of a part of it does.
    - raises InfeasibleProblemError if bounds of a bundle's sources exclude each other.
    """
    lower, upper = bundles.largest(program.lower), -bundles.largest(-program.upper)
    crossed = np.flatnonzero(lower > upper)
    if len(crossed):
        k = crossed[0]
        raise InfeasibleProblemError(
            f"bounds of tied sources exclude each other: min_rate {lower[k]:g} > max_rate {upper[k]:g} in a "
            f"bundle of {bundles.first[k + 1] - bundles.first[k]}. Correct the bounds, or untie."
        )
    typical = bundles.totals(program.typical) / np.diff(bundles.first)

    def together(numerics: Numerics) -> BundledNumerics:
        return BundledNumerics(numerics, bundles, typical)

    return replace(
        program,
        numerics=None if program.numerics is None else together(program.numerics),
        lower=lower,
        upper=upper,
        typical=typical,
        rows=_bundled_rows(program.rows, bundles, once, tuple(map(together, program.rows.curves))),
    )


def _bundled_rows(rows: Rows, bundles: Bundles, once: bool, curves: tuple[Numerics, ...]) -> Rows:
    """Return rows whose entries are bundles."""
    bundle, kind, row = bundles.codes[rows.source], rows.kind.astype(np.int64), rows.row.astype(np.int64)
    key = (bundle * (1 + len(rows.curves)) + kind) * max(1, len(rows)) + row
    order = np.argsort(key, kind="stable")
    _, begin, counts = np.unique(key[order], return_index=True, return_counts=True)
    values = rows.coefficient[order]
    highest, lowest = np.maximum.reduceat(values, begin), np.minimum.reduceat(values, begin)
    head = order[begin]
    own = kind[head]
    size = np.diff(bundles.first)[bundle[head]]
    uneven = np.flatnonzero((own != RATE) & ((highest != lowest) | (counts != size)))
    if len(uneven):
        label = rows.labels[int(row[head[uneven[0]]])]
        raise ObjectiveError(
            f"{label} bounds a mean over some of the sources of a tied bundle. Tie sources of one group "
            "only, or give the target by bundle."
        )
    linear = (
        np.where(np.abs(highest) >= np.abs(lowest), highest, lowest)
        if once
        else np.add.reduceat(values, begin)
    )
    coefficient = np.where(own == RATE, linear, highest)
    first = np.concatenate(([0], np.cumsum(np.bincount(bundle[head], minlength=len(bundles)))))
    return replace(
        rows,
        first=first,
        row=row[head].astype(np.int32),
        kind=own.astype(np.int32),
        coefficient=coefficient,
        curves=curves,
    )
