"""`Segments`: rates between which costs are smooth.

Between two kinks a cost is smooth. At a kink the marginal falls from one value to another: at every price
between these, the kink is the best response. So the kinks and the marginals on both sides of them, known
before the first step (`freshopt.autodiff.kink_rates`), tell at any price in which segment a source is, or at
which kink, without an evaluation. What `freshopt.dual_search.local_models` knows of a segment before it has
been evaluated inside is tabled here.

A kink that was not found leaves its source with a line that is wrong beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.autodiff.kink_rates import Crossing, kink_rates
from freshopt.autodiff.kinked_atoms import LEFT, RIGHT
from freshopt.autodiff.tape import Tape
from freshopt.compiled.model_passes import Line
from freshopt.numerics.arrays import ROUNDED, Array, BoolArray, IntArray
from freshopt.separable.derived_kernel import JUMPED, DerivedNumerics

# Relative fall of a marginal, or change of a curvature, at a kink, and what it is beside the distance of the
# rates that are compared.
_FALL, _BESIDE = 1e-9, 1e4
# Relative fall of a marginal from end to end of a segment that is rounding.
_STRAIGHT = 1e-13

Kinds: TypeAlias = tuple[tuple[IntArray, DerivedNumerics], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some of the sources: derivatives, costs and bounds.

    - `part`: Their positions.
    - `kinds` tuple of (ndarray of int, DerivedNumerics): What is evaluated: for each kind of source, the
      places in the chunk and the derivatives.
    - `cost`, `lower`, `upper` (m,): Of a refresh, and between what the rates lie.
    """

    part: slice
    kinds: Kinds
    cost: Array
    lower: Array
    upper: Array

    def jets(self, rate: Array, side: int = RIGHT, order: int = 2) -> tuple[Array, Array, Array]:
        """Return value, marginal and curvature, at a kink on one side."""
        if len(self.kinds) == 1:
            return self.kinds[0][1].jet(rate, order, side)
        joined = np.empty((3, len(rate)))
        for where, numerics in self.kinds:
            for row, own in zip(joined, numerics.jet(rate[where], order, side), strict=True):
                row[where] = own
        return joined[0], joined[1], joined[2]

    def marginal(self, rate: Array, side: int = RIGHT) -> Array:
        """Return the marginal, at a kink on one side."""
        return self.jets(rate, side, 1)[1]


class Segments(NamedTuple):
    """Segments between the kinks of a chunk's costs, rising.

    - `falls` (k + 2, m): Prices below which best responses are beyond the beginning of a segment, and of the
      next: inf, the marginals right of the kinks, −inf. What a source has fewer kinks is −inf too.
    - `table` (6, k + 1, m): Of each segment from rate a with marginal α to rate b with marginal β: a, b,
      1/(b − a), β, 1/(α − β), and the gain of a line that is right near its ends.
    - `at_lower` (m,): Marginals at the lower bounds.
    - `jumps`: Log prices at which demand jumps: slopes of linear segments.
    - `evaluations`: Of the expression, for all this.
    """

    falls: Array
    table: Array
    at_lower: Array
    jumps: Array
    evaluations: int

    @classmethod
    def of(cls, chunk: Chunk) -> Segments | None:
        """Return the segments of costs, None if all are smooth."""
        found = _crossings(chunk)
        if not found:
            return None
        with np.errstate(all="ignore"):
            kink, left, right, bend_a, bend_b = _kinks(chunk, found)
            if not len(kink):
                return None
            # A kink at a lower bound may have been found to be left of it by rounding.
            own = chunk.marginal(np.minimum(chunk.lower * (1.0 + ROUNDED), chunk.upper)) / chunk.cost
            last = chunk.marginal(chunk.upper, LEFT) / chunk.cost
            at_lower, ends = np.where(np.isnan(own), np.inf, own), np.isfinite(last)
            # Else the marginal is to vanish at an infinite rate.
            end, beta = np.where(ends, chunk.upper, np.inf), np.where(ends, last, 0.0)
            inner = kink < np.inf
            table = np.empty((6, len(kink) + 1, len(own)))
            a, b, share, least, edge, gains = table
            a[0], a[1:], b[:-1], b[-1] = chunk.lower, kink, np.where(inner, kink, end), end
            least[:-1], least[-1] = np.where(inner, left, beta), beta
            np.divide(1.0, b - a, out=share)
            alpha = np.vstack([at_lower, right])
            over = alpha - least
            np.divide(1.0, over, out=edge)
            edge[(alpha < np.inf) & (over <= _STRAIGHT * np.abs(alpha))] = np.inf
            gains[:] = _gains(share, edge, bend_a, bend_b)
            np.minimum(b, chunk.upper, out=b)
            falls = np.vstack([np.full(own.shape, np.inf), right, np.full(own.shape, -np.inf)])
            jumps = np.log(least[(edge == np.inf) & (least > 0.0)])
        return cls(falls, table, at_lower, jumps, 2 * len(found) + 1)

    def line(self, place: IntArray, where: IntArray | None = None, cap: Array | None = None) -> Line:
        """Return lines that are right near the ends of segments.

        - `where`: Whose segments these are; by default one of each source.
        - `cap`: What the rates do not exceed.
        """
        m = self.falls.shape[1]
        flat = place * m + (np.arange(m) if where is None else where)
        begin, end, share, least, edge, gain = np.take(self.table.reshape(len(self.table), -1), flat, axis=1)
        end = end if cap is None else np.minimum(end, cap)
        above, below = self.falls.reshape(-1)[flat], self.falls.reshape(-1)[flat + m]
        return Line(begin, share, least, edge, gain, 0.0, 1.0, begin, end, below, above)

    def elsewhere(self, price: Array | float, line: Line, cap: Array) -> tuple[IntArray, Line | None]:
        """Return which best responses are in other segments, and lines there."""
        where = np.flatnonzero((price < line.below) | (price >= line.above))
        if not len(where):
            return where, None
        own = price[where] if isinstance(price, np.ndarray) and len(price) > 1 else price
        return where, self.line(np.sum(own < self.falls[1:-1, where], axis=0), where, cap[where])

    def placed(self, rate: Array, marginal: Array, price: Array) -> tuple[Line, Array]:
        """Return lines in the segments of rates, and marginals there.

        - `price`: That for which a kink is left to the right, if it is below the marginal there.
        """
        ends, right, left = self.table[1, :-1], self.falls[1:-1], self.table[3]
        at_kink = (ends == rate) & (right > -np.inf)
        beyond = (ends < rate) & (right > -np.inf) | (at_kink & (price < right))
        for k in np.flatnonzero(np.any(at_kink, axis=1)):
            np.copyto(marginal, np.where(beyond[k], right[k], left[k]), where=at_kink[k])
        return self.line(np.sum(beyond, axis=0)), marginal


def _gains(share: Array, edge: Array, bend_a: Array, bend_b: Array) -> Array:
    """Return gains of lines that are right near segments' ends.

    Their slope is 1. They follow from the curvatures right and left of the kinks, in roots that do not
    overflow: the product is their mean. Of a linear marginal they are known.
    """
    gains = 1.0 / (np.where(edge > 0.0, edge, 1.0) * np.where(share > 0.0, share, 1.0))
    root = np.sqrt(bend_b) / share[:-1]
    known = (root > 0.0) & (root < np.inf)
    np.copyto(gains[:-1], root * root, where=known)
    other = 1.0 / (np.sqrt(bend_a) * edge[1:])
    also = (other > 0.0) & (other < np.inf)
    np.copyto(gains[1:], other * other, where=also)
    np.copyto(gains[1:-1], root[1:] * other[:-1], where=known[1:] & also[:-1])
    return gains


def _crossings(chunk: Chunk) -> list[Crossing]:
    """Return where branches of a chunk's sources are equal, by rising rate."""
    found: list[Crossing] = []
    for where, numerics in chunk.kinds:
        node = numerics.node
        bounds = chunk.lower[where], chunk.upper[where]
        own = kink_rates(node, *bounds, numerics.scale) if isinstance(node, Tape) else None
        for k, crossing in enumerate(own or []):
            if k == len(found):
                found.append(Crossing(np.full(chunk.cost.shape, np.nan), np.zeros(chunk.cost.shape)))
            found[k].rate[where], found[k].error[where] = crossing
    if len(found) < 2:
        return found
    rates, errors = (np.stack(each) for each in zip(*found, strict=True))
    return [
        Crossing(*each)
        for each in zip(*_rising(np.where(np.isnan(rates), np.inf, rates), errors), strict=True)
    ]


def _kinks(chunk: Chunk, found: Sequence[Crossing]) -> list[Array]:
    """Return rates of kinks, marginals and curvatures.

    Marginals left and right of them, curvatures right and left; all of shape (k, m), by rising rate.
    """
    rates, marginals, curvatures = [], [], []
    for rate, error in found:
        sides = [chunk.jets(rate * (1.0 + side * error), side)[1:] for side in (LEFT, RIGHT)]
        marginal, curvature = (np.stack(each) for each in zip(*sides, strict=True))
        least = _FALL + _BESIDE * error
        real = (rate < np.inf) & (_differ(marginal, least) | _differ(curvature, least))
        rates.append(np.where(real, _onto(chunk, rate, marginal), np.inf))
        marginals.append(np.where(real, marginal / chunk.cost, -np.inf))
        curvatures.append(curvature / chunk.cost)
    left, right = np.stack(marginals, axis=1)
    bend_b, bend_a = np.stack(curvatures, axis=1)
    return _rising(np.stack(rates), left, right, bend_a, bend_b)


def _rising(rates: Array, *others: Array) -> list[Array]:
    """Return rates (k, m) in rising order, and others in theirs.

    Rows that are infinite are left out.
    """
    some = int(np.max(np.sum(rates < np.inf, axis=0)))
    if bool(np.all(rates[:-1] <= rates[1:])):
        return [each[:some] for each in (rates, *others)]
    order = np.argsort(rates, axis=0, kind="stable")[:some]
    return [np.take_along_axis(each, order, 0) for each in (rates, *others)]


def _differ(sides: Array, least: Array) -> BoolArray:
    """Return whether both sides of a kink differ."""
    differ: BoolArray = np.abs(sides[0] - sides[1]) > least * np.max(np.abs(sides), axis=0)
    return differ


def _onto(chunk: Chunk, rate: Array, marginal: Array) -> Array:
    """Return rates of kinks, none an ulp left of its kink."""
    middle = 0.5 * (marginal[0] + marginal[1])
    moved = rate
    for _ in range(JUMPED):
        short = (marginal[0] > marginal[1]) & (chunk.marginal(moved) > middle)
        if not bool(np.any(short)):
            break
        moved = np.where(short, np.nextafter(moved, np.inf), moved)
    return np.minimum(moved, chunk.upper)
