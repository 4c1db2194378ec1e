"""`ConditionalHull`: the hull of a cost that is concave between two bandwidths.

Powers ρ^{−e} of the rate with e < 1 are convex in the bandwidth used b, then concave, then convex again where
c₁/c₀ is beyond `largest_cost_ratio`. With x = ρ/Δ and u = 1/x the inflections are the roots of

    Poisson     ((1 − e)x − 1 − e)/(1 + x)³ = (1 + e)/κ          on either side of x = (2 + e)/(1 − e),
    periodic    u²e^{−u} − (1 + e)(1 − (1 + u)e^{−u}) = (1 + e)/κ    on either side of u = 1 − e.

The lower convex hull has one segment, between a point a of the left convex arc and a point c of the right
one, both of which are best responses to its slope s. min(J + sb) over the left arc less that over the right
arc falls in s at the speed c − a, and Newton's step for its root is the slope of the chord from a to c: it is
iterated, inside a bracket that begins with the marginals at the inflections.

Demand jumps at the price s. Mixtures of both sides lie on the segment, where no rate attains the hull: what
they lose there is `above`, and `freshopt.modelling.fetches.arc_rounding` moves them off it.

Cost: some eight steps of two best responses when a problem is made; then one best response on an arc.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, Index, as_float64
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.special_functions import gamma2
from freshopt.separable.conditional_kernel import RootInverse, largest_cost_ratio
from freshopt.separable.kernel import SMALLEST_PRICE, Kernel, Numerics

# Halvings of a bracket of logarithms, which is narrower than 1e3, down to an ulp.
_HALVINGS = 64
# Chords take some eight steps; then steps are rounding.
_STEPS, _CLOSE = 100, 1e-14
# (1 + u)e^{−u} is nothing beyond this u.
_LONG = 60.0


@frozen_value()
class ConditionalHull:
    """Numerics of the lower convex hull of costs per bandwidth used.

    - `curve`: Cost and marginal of n sources as they are.
    - `first`, `last` (n,): Rates between which the cost is concave; NaN of convex costs.
    - `slope` (n,): The price at which the best response jumps; 0 and inf where bounds leave only the left or
      right arc.
    - `left`, `right`, `left_cost` (n,): Ends of the segment in bandwidth, and the cost at the left one; inf,
      −inf and 0 of no segment.
    """

    curve: Kernel
    first: Array
    last: Array
    slope: Array
    left: Array
    right: Array
    left_cost: Array

    def cost(self, used: Array) -> Array:
        """Return the hull's weighted cost."""
        with np.errstate(all="ignore"):
            line = self.left_cost - self.slope * (used - self.left)
        return np.where(self.inside(used), line, self.curve.cost(used))

    def gain(self, used: Array) -> Array | None:
        """Return the weighted gain, or None where the cost says it all."""
        return self.curve.gain(used)

    def marginal(self, used: Array) -> Array:
        """Return the hull's marginal value, constant on the segment."""
        on_it = (self.left <= used) & (used <= self.right)
        return np.where(on_it, self.slope, self.curve.marginal(used))

    def curvature(self, used: Array) -> Array:
        """Return the curvature of the cost, 0 on the segment."""
        on_it = (self.left <= used) & (used <= self.right)
        return np.where(on_it, 0.0, self.curve.curvature(used))

    def inverse_marginal(self, price: Array) -> Array:
        """Return the best response, never inside the segment."""
        price = np.broadcast_to(price, self.left.shape)
        found = np.array(self.curve.inverse_marginal(price))
        some = np.flatnonzero(np.isfinite(self.first) & (price > 0.0))
        if len(some):
            first, last, paid = self.first[some], self.last[some], price[some]
            found[some] = _on_arc(self.curve.take(some), paid, first, last, paid > self.slope[some])
        return found

    def take(self, index: Index) -> ConditionalHull:
        """Return the numerics of some of the sources."""
        vectors = ("first", "last", "slope", "left", "right", "left_cost")
        return replace(
            self, curve=self.curve.take(index), **{key: getattr(self, key)[index] for key in vectors}
        )

    def inside(self, used: Array) -> BoolArray:
        """Return which bandwidths lie inside the segment."""
        found: BoolArray = (self.left < used) & (used < self.right)
        return found

    def above(self, used: Array) -> float:
        """Return by how much the true cost exceeds the hull's."""
        some = np.flatnonzero(self.inside(used))
        piece, at = self.take(some), used[some]
        return float(np.sum(np.maximum(0.0, piece.curve.cost(at) - piece.cost(at))))

    def arcs(self) -> tuple[Array, Array]:
        """Return the inflections in bandwidth, where arcs end and begin."""
        return _used(self.curve, self.first), _used(self.curve, self.last)


def hull_per_bandwidth(
    curve: Kernel, concave: tuple[Array, Array] | None, lower: Array, upper: Array
) -> Numerics:
    """Return the lower convex hull of costs between bounds.

    - `curve`: Of `freshopt.separable.conditional_kernel.per_bandwidth`.
    - `concave` tuple of ndarray (n,): Rates between which the costs are concave, NaN of convex ones.
    - `lower`, `upper` (n,): Bounds of the bandwidths.
    - returns: The curve itself if all costs are convex.
    """
    if concave is None:
        return curve
    first, last = (np.where(curve.importance > 0.0, one, np.nan) for one in concave)
    if not bool(np.any(np.isfinite(first))):
        return curve
    n = len(first)
    left_end, right_start = _used(curve, first), _used(curve, last)
    with np.errstate(invalid="ignore"):
        slope = np.where(lower >= right_start, np.inf, 0.0)
        some = np.flatnonzero((lower < upper) & (upper > left_end) & (lower < right_start))
    left, right, left_cost = np.full(n, np.inf), np.full(n, -np.inf), np.zeros(n)
    if len(some):
        piece, bounds = curve.take(some), (np.broadcast_to(lower, n)[some], np.broadcast_to(upper, n)[some])
        slope[some], left[some], right[some] = _segments(piece, first[some], last[some], *bounds)
        left_cost[some] = piece.cost(left[some])
    return ConditionalHull(curve, first, last, slope, left, right, left_cost)


def concave_rates(exponent: Array, d: Array, ratio: Array, *, periodic: bool) -> tuple[Array, Array]:
    """Return rates between which ρ^{−e} is concave in the bandwidth used.

    NaN where it is convex throughout.

    Examples
    --------
    >>> first, last = concave_rates(np.array([0.2]), np.ones(1), np.array([100.0]), periodic=False)
    >>> first.round(4), last.round(4)
    (array([1.8456]), array([5.3614]))
    """
    e, d, ratio = (np.array(one, dtype=np.float64) for one in np.broadcast_arrays(exponent, d, ratio))
    first, last = np.full(e.shape, np.nan), np.full(e.shape, np.nan)
    some = ratio > largest_cost_ratio(e, periodic=periodic)
    e, level = e[some], (1.0 + e[some]) / ratio[some]
    if periodic:

        def falls(u: Array) -> BoolArray:
            return u * u * np.exp(-u) - (1.0 + e) * gamma2(u) > level

        middle = 1.0 - e
        last[some] = d[some] / _crossing(falls, middle, 0.1 * np.sqrt(level))
        first[some] = d[some] / _crossing(falls, middle, np.full(e.shape, _LONG))
    else:

        def rises(x: Array) -> BoolArray:
            more = 1.0 + x
            return ((1.0 - e) * x - 1.0 - e) / more / more / more > level

        middle = (2.0 + e) / (1.0 - e)
        first[some] = d[some] * _crossing(rises, middle, (1.0 + e) / (1.0 - e))
        last[some] = d[some] * _crossing(rises, middle, middle + np.sqrt((1.0 - e) / level))
    return first, last


def _crossing(holds: Callable[[Array], BoolArray], inside: Array, outside: Array) -> Array:
    """Return where a condition that holds inside ceases to hold."""
    near, far = np.log(inside), np.log(outside)
    for _ in range(_HALVINGS):
        middle = 0.5 * (near + far)
        kept = holds(np.exp(middle))
        near, far = np.where(kept, middle, near), np.where(kept, far, middle)
    return np.exp(near)


def _segments(
    curve: Kernel, first: Array, last: Array, lower: Array, upper: Array
) -> tuple[Array, Array, Array]:
    """Return slopes and ends of the segments, within bounds."""
    yes, no = np.ones(len(first), dtype=np.bool_), np.zeros(len(first), dtype=np.bool_)
    low, high = curve.marginal(_used(curve, first)), curve.marginal(_used(curve, last))
    slope = np.sqrt(low) * np.sqrt(high)
    for _ in range(_STEPS):
        left = np.clip(_on_arc(curve, slope, first, last, yes), lower, upper)
        right = np.clip(_on_arc(curve, slope, first, last, no), lower, upper)
        with np.errstate(all="ignore"):
            chord = (curve.cost(left) - curve.cost(right)) / (right - left)
        low, high = np.where(chord > slope, slope, low), np.where(chord < slope, slope, high)
        step = np.where((low < chord) & (chord < high), chord, np.sqrt(low) * np.sqrt(high))
        close = bool(np.all(np.abs(step - slope) <= _CLOSE * slope))
        slope = step
        if close:
            break
    return slope, left, right


def _on_arc(curve: Kernel, price: Array, first: Array, last: Array, before: BoolArray) -> Array:
    """Return best responses to prices > 0 on either arc."""
    inverse = curve.unit_inverse
    if not isinstance(inverse, RootInverse):
        raise TypeError("only best responses that are roots are known on an arc")
    parameters = tuple(map(as_float64, curve.parameters))
    with np.errstate(all="ignore"):
        unit = np.maximum(price / as_float64(curve.importance), SMALLEST_PRICE)
        least, most = np.where(before, 0.0, last), np.where(before, first, np.inf)
        rate = inverse.response(unit, parameters, least, most)
        return inverse.fetches.used(rate, *parameters[-3:])


def _used(curve: Kernel, rate: Array) -> Array:
    """Return the bandwidth that rates use."""
    inverse = curve.unit_inverse
    if not isinstance(inverse, RootInverse):
        return np.full(len(rate), np.nan)
    return inverse.fetches.used(rate, *map(as_float64, curve.parameters[-3:]))
