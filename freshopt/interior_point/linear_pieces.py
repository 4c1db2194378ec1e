"""`LinearPieces`: a program whose piecewise linear sources are split at their kinks.

A source whose objective and rows are piecewise linear between its bounds has a slope that jumps, which no
Newton step sees. It becomes one variable per piece, each from 0 to the piece's length, with slopes of its
own; convexity fills them in their order. Kinks are found from values and slopes alone: two tangents meet at
the kink between them if the function is as high there as they are, and else a further piece lies between.
Sources with curvature stay one variable, and sources without room leave the program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, Index, IntArray, as_float64
from freshopt.separable.kernel import Numerics
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE
from freshopt.separable.usage_costs import UsageCosts

# Where the curvature of three rates is looked at, as shares of the way between bounds; a function that is
# piecewise linear has none at two of them, since a difference of slopes sees a kink at one at most.
_LOOKS = (0.13, 0.37, 0.71)
# Slopes are taken this share of an interval inside its ends, beside kinks that may lie there.
_BESIDE = 1e-7
# Slopes and values that differ by this share are equal.
_EQUAL = 1e-9
# Tangents that do not meet on the function after so many halvings belong to a curve, or to over 60 pieces.
_DEPTH = 6
# A rate without an upper bound is looked at up to this multiple of the typical one.
_FAR = 1e6

# Sources that `sampled_pieces` looks at, evenly spaced: a search that stalls for the sake of others is
# repeated.
_LOOKED_AT = 2000


@dataclass(frozen=True, slots=True, eq=False)
class PieceCosts:
    """Costs of pieces, as `Numerics`: a slope each, or a curve.

    - `slope` (N,): Cost per unit of linear pieces, 0 of curved ones.
    - `curved`: Positions of the curved ones.
    - `numerics`: Theirs.
    """

    slope: Array
    curved: IntArray
    numerics: Numerics | None

    def cost(self, rate: Array) -> Array:
        """Return each piece's cost."""
        return self._with(self.slope * rate, "cost", rate)

    def marginal(self, rate: Array) -> Array:
        """Return minus each piece's slope."""
        return self._with(-self.slope, "marginal", rate)

    def curvature(self, rate: Array) -> Array:
        """Return each piece's curvature."""
        return self._with(np.zeros(len(rate)), "curvature", rate)

    def inverse_marginal(self, price: Array) -> Array:
        """Return the rates at which the marginal falls to a price."""
        return self._with(np.where(-self.slope <= price, 0.0, np.inf), "inverse_marginal", price)

    def gain(self, rate: Array) -> Array | None:  # noqa: ARG002
        """Return None: the cost says it all."""
        return None

    def take(self, index: Index) -> PieceCosts:
        """Return the costs of some of the pieces."""
        place = np.full(len(self.slope), -1, dtype=np.int64)
        place[self.curved] = np.arange(len(self.curved))
        own = place[index]
        at = np.flatnonzero(own >= 0)
        numerics = None if self.numerics is None else self.numerics.take(own[at])
        return PieceCosts(self.slope[index], at, numerics)

    def _with(self, values: Array, what: str, at: Array) -> Array:
        if self.numerics is None or not len(self.curved):
            return values
        values = values.copy()
        values[self.curved] = getattr(self.numerics, what)(at[self.curved])
        return values


@dataclass(frozen=True, slots=True, eq=False)
class LinearPieces:
    """A program in pieces, and how rates follow from them.

    - `program`: Of N pieces; its limits are less what the rates at the bases use.
    - `source` (N,)
    - `base` (n,): Rates with all pieces at 0.
    - `linear` (n,): Sources that have room and no curvature.
    - `crowded` (n,): Sources that have room, no curvature, and more kinks than are split at; they are not
      linear here.
    """

    program: Program
    source: IntArray
    base: Array
    linear: BoolArray
    crowded: BoolArray

    def rates(self, pieces: Array) -> Array:
        """Return the sources' rates, shape (n,)."""
        added = np.bincount(self.source, weights=pieces, minlength=len(self.base))
        return self.base + added


class _Ends:
    """Intervals between rates of sources, with a function's tangents at their ends."""

    def __init__(self, own: Numerics, low: Array, high: Array, typical: Array) -> None:
        # Kinks are near typical rates, however far the upper bound is.
        at = low + _BESIDE * np.minimum(high - low, np.maximum(typical, low))
        before = high - _BESIDE * (high - low)
        self.at, self.before = at, before
        self.value, self.behind = own.cost(at), own.cost(before)
        self.slope, self.after = -own.marginal(at), -own.marginal(before)


def curveless(numerics: Numerics, lower: Array, upper: Array) -> BoolArray:
    """Return where a function has no curvature at two of three rates."""
    if isinstance(numerics, LinearCost):
        return np.ones(len(lower), dtype=np.bool_)
    straight = np.zeros(len(lower), dtype=np.int64)
    for share in _LOOKS:
        at = lower + share * (upper - lower)
        straight += (numerics.curvature(at) <= 0.0) & np.isfinite(numerics.marginal(at))
    return straight >= 2


def kinks(
    numerics: Numerics, lower: Array, upper: Array, typical: Array
) -> tuple[IntArray, Array, BoolArray, BoolArray]:
    """Return sources and places of kinks, and which sources are piecewise linear.

    Those that have too many kinks are told apart, last.

    - `lower`, `upper` (n,): Finite.
    - `typical` (n,): Rates near which kinks are.
    """
    linear = curveless(numerics, lower, upper)
    crowded = np.zeros(len(linear), dtype=np.bool_)
    found: list[tuple[IntArray, Array]] = []
    if not isinstance(numerics, LinearCost) and bool(np.any(linear)):
        source = np.flatnonzero(linear)
        low, high = lower[source], upper[source]
        for depth in range(_DEPTH + 1):
            if not len(source):
                break
            own = numerics.take(source)
            ends = _Ends(own, low, high, typical[source])
            size = np.maximum(np.abs(ends.slope), np.abs(ends.after))
            gap = ends.after - ends.slope
            bent = gap > _EQUAL * size
            # Where the tangents meet, in the interval but for rounding.
            away = ends.value - ends.slope * ends.at - ends.behind + ends.after * ends.before
            x = np.clip(np.where(bent, away / np.where(bent, gap, 1.0), low), low, high)
            height = ends.value + ends.slope * (x - ends.at)
            off = own.cost(x) - height
            scale = np.abs(ends.value) + np.abs(ends.behind) + np.abs(ends.slope) * (x - ends.at)
            met = bent & (off <= _EQUAL * scale)
            inner = met & (x > low) & (x < high)
            found.append((source[inner], _sharpened(own, ends, low, high, x)[inner]))
            rest = np.flatnonzero(bent & ~met)
            if depth == _DEPTH or not bool(np.all(np.isfinite(scale))):
                linear[source[rest]] = False
                linear[source[~np.isfinite(scale)]] = False
            if depth == _DEPTH:
                # A curved piece between straight ones has no kinks, however closely it is looked at.
                crowded[source[rest]] = curveless(own.take(rest), low[rest], high[rest])
            low, high, middle = low[rest], high[rest], x[rest]
            source = np.concatenate((source[rest], source[rest]))
            low, high = np.concatenate((low, middle)), np.concatenate((middle, high))
    where = np.concatenate([np.zeros(0, dtype=np.int64), *(each for each, _ in found)])
    place = np.concatenate([np.zeros(0), *(each for _, each in found)])
    kept = linear[where] if len(where) else np.zeros(0, dtype=np.bool_)
    return where[kept], place[kept], linear, crowded


def _sharpened(own: Numerics, ends: _Ends, low: Array, high: Array, x: Array) -> Array:
    """Return kinks from tangents nearby, as far ends cost digits."""
    left = x - 0.5 * (x - low)
    right = np.minimum(x + 0.5 * (x - low), 0.5 * (x + high))
    away = own.cost(left) - ends.slope * left - own.cost(right) + ends.after * right
    near = away / (ends.after - ends.slope)
    return np.where((near > left) & (near < right), near, x)


def linear_pieces(program: Program) -> LinearPieces:
    """Return a program in pieces."""
    rows, n = program.rows, len(program)
    lower, upper = as_float64(program.lower), as_float64(program.upper)
    far = np.where(np.isfinite(upper), upper, lower + _FAR * np.maximum(program.typical, lower))
    free = upper > lower
    linear, flat = free.copy(), free.copy()
    sources, places = [np.zeros(0, dtype=np.int64)], [np.zeros(0)]
    functions = [] if program.numerics is None else [(program.numerics, np.ones(n, dtype=np.bool_))]
    for t, curve in enumerate(rows.curves, start=RATE + 1):
        seen = np.zeros(n, dtype=np.bool_)
        seen[rows.source[(rows.kind == t) & (rows.coefficient != 0.0)]] = True
        functions.append((curve, seen))
    for function, seen in functions:
        where, place, straight, dense = kinks(function, lower, far, program.typical)
        linear &= straight | ~seen
        flat &= straight | dense | ~seen
        kept = seen[where]
        sources.append(where[kept])
        places.append(place[kept])
    where, place = np.concatenate(sources), np.concatenate(places)
    kept = linear[where]
    where, place = where[kept], place[kept]
    order = np.lexsort((place, where))
    where, place = where[order], place[order]
    # Kinks of several functions at one rate are one.
    close = np.zeros(len(where), dtype=np.bool_)
    close[1:] = (where[1:] == where[:-1]) & (place[1:] - place[:-1] <= _EQUAL * place[1:])
    where, place = where[~close], place[~close]
    inner = np.flatnonzero(free)
    source = np.concatenate((inner, where))
    start = np.concatenate((lower[inner], place))
    order = np.lexsort((start, source))
    source, start = source[order], start[order]
    last = np.append(source[1:] != source[:-1], True)
    stop = np.where(last, upper[source], np.append(start[1:], 0.0))
    return _assembled(program, linear, flat & ~linear, source, start, stop)


def sampled_pieces(program: Program) -> LinearPieces:
    """Return some 2000 of the sources in pieces."""
    n = len(program)
    looked = np.arange(0, n, max(1, n // _LOOKED_AT))
    if isinstance(program.numerics, UsageCosts):  # of which there may be one, the last
        looked = np.union1d(looked, np.flatnonzero(program.numerics.usage)[:_LOOKED_AT])
    with np.errstate(all="ignore"):
        return linear_pieces(program.take(slice(None) if n <= _LOOKED_AT else looked))


def jumps(own: LinearPieces) -> bool:
    """Return whether best responses jump, of linear sources between rows and objective.

    A linear source that objective and rows all pull to one bound stays there.
    """
    rows, count = own.program.rows, len(own.source)
    slope = own.program.numerics.slope if isinstance(own.program.numerics, PieceCosts) else np.zeros(count)
    signed = [
        np.bincount(rows.source[each], minlength=count) > 0
        for each in (rows.coefficient > 0.0, rows.coefficient < 0.0)
    ]
    up, down = signed[0] | (slope > 0.0), signed[1] | (slope < 0.0)
    return bool(np.any(own.linear[own.source] & up & down))


def _assembled(
    program: Program, linear: BoolArray, crowded: BoolArray, source: IntArray, start: Array, stop: Array
) -> LinearPieces:
    rows = program.rows
    straight = linear[source]
    base = np.where(linear | (program.upper <= program.lower), program.lower, 0.0)
    end = np.where(np.isfinite(stop), stop, start + np.maximum(start, program.typical[source]))
    middle = 0.5 * (start + end)
    slope, curved = np.zeros(len(source)), np.flatnonzero(~straight)
    numerics = None
    if program.numerics is not None:
        slope = np.where(straight, -program.numerics.take(source).marginal(middle), 0.0)
        numerics = program.numerics.take(source[curved])
    # What is used with all pieces at 0.
    at_base = program.lower
    values = rows.values(at_base)[rows.kind, rows.source]
    gone = (linear | (program.upper <= program.lower))[rows.source]
    fixed = np.where(gone & (rows.coefficient != 0.0), rows.coefficient * np.where(gone, values, 0.0), 0.0)
    limits = rows.limits - np.bincount(rows.row, weights=fixed, minlength=len(rows))
    # Entries of every piece are those of its source, and linear ones of the rate itself.
    own = rows.take(source)
    along = straight[own.source]
    kind = np.where(along, np.int32(RATE), own.kind)
    coefficient = np.where(along, own.slopes(middle), own.coefficient)
    curves = own.curves if bool(np.any(kind)) else ()
    own = replace(own, kind=kind, coefficient=coefficient, limits=limits, curves=curves)
    typical = np.where(straight, np.minimum(program.typical[source], end - start), program.typical[source])
    low = np.where(straight, 0.0, start)
    high = np.where(straight, stop - start, stop)
    costs = None if program.numerics is None else PieceCosts(slope, curved, numerics)
    pieces = Program(costs, low, high, typical, own, program.level)
    return LinearPieces(pieces, source, base, linear, crowded)
