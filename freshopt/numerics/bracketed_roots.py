"""`bracketed_roots`: roots of many decreasing functions at once, inside brackets.

Inverse quadratic interpolation where that is safe, else bisection. Marginals are nearly straight in
logarithms of rate and value, where about five evaluations suffice; jumps take some 50. Functions whose root
is found are not evaluated again.

References
----------
T. R. Chandrupatla, "A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear function
without using derivatives", Advances in Engineering Software 28, 1997, doi:10.1016/S0965-9978(96)00051-8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, Formula, Index, IntArray

# Width of the last bracket: this, and as much of the root's size as two neighbouring floats are apart.
_WIDTH, _APART = 1e-15, float(np.finfo(np.float64).eps)
# Steps at most; bisection of 1400 nats to 1e-15 takes 61.
_STEPS = 200
# The first point is where a straight line has its root, but no nearer to an end than this share.
_INSIDE = 0.05
# Brackets of a logarithm, in nats, that are interpolated; and the widest ones. Interpolation gains nothing on
# those of hundreds of nats, in most of which curves are level.
NARROW, WIDEST = 2.0, 2048.0
# Bound of the logarithm of a ratio that may be 0 or infinite.
STEEP = 1e4


class Functions(Protocol):
    """Protocol of k decreasing functions."""

    def excess(self, x: Array) -> Array:
        """Return their values, shape (k,)."""

    def take(self, chosen: BoolArray) -> Self:
        """Return some of the functions."""


def bracketed_roots(
    functions: Functions, low: Array, high: Array, above: Array, below: Array
) -> tuple[Array, IntArray]:
    """Return the upper ends of last brackets and evaluations, shape (k,) each.

    - `low`, `high` (k,): Ends of the first brackets.
    - `above`, `below` (k,): Values > 0 at `low` and ≤ 0 at `high`.
    """
    found = np.array(high)
    # Chandrupatla's names: a is the newest point, b the opposite end, c the one before.
    a, b, c, fa, fb, fc = low, high, high, above, below, below
    left, evaluations = np.arange(len(low)), np.zeros(len(low), dtype=np.int64)
    t = np.clip(fa / np.where(fa > fb, fa - fb, 1.0), _INSIDE, 1.0 - _INSIDE)
    for _ in range(_STEPS):
        done = (np.abs(b - a) <= _WIDTH + _APART * np.abs(a)) | (fa == 0.0)
        if bool(np.any(done)):
            found[left[done]] = np.where(fa > 0.0, b, a)[done]
            if bool(np.all(done)):
                break
            open_ = ~done
            functions, left, t = functions.take(open_), left[open_], t[open_]
            a, fa, b, fb, c, fc = a[open_], fa[open_], b[open_], fb[open_], c[open_], fc[open_]
        x = a + t * (b - a)
        fx = functions.excess(x)
        evaluations[left] += 1
        same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(same, a, b), np.where(same, fa, fb)
        b, fb = np.where(same, b, a), np.where(same, fb, fa)
        a, fa = x, fx
        t = next_fraction(a, b, c, fa, fb, fc, 0.5 * _WIDTH + 1e-16 * np.abs(a))
    return found, evaluations


def next_fraction(a: Array, b: Array, c: Array, fa: Array, fb: Array, fc: Array, tolerance: Array) -> Array:
    """Return the next fraction of a to b, by interpolation or half."""
    with np.errstate(all="ignore"):
        xi = (a - b) / (c - b)
        phi = (fa - fb) / (fc - fb)
        safe = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
        quadratic = fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
        t = np.where(safe & np.isfinite(quadratic), quadratic, 0.5)
        least = np.minimum(0.5, tolerance / np.abs(b - a))
    return np.clip(t, least, 1.0 - least)


@dataclass(frozen=True, slots=True, eq=False)
class FallingRatio:
    """Ratios that fall with a number, sought where they are 1.

    Its logarithm is counted from a start: the last digits of what is found are those of the start.

    - `ratio`: ``(number, *columns)``.
    - `start` (k,)
    - `columns` tuple of ndarray, shape (k,) or (k, ...) each
    """

    ratio: Formula
    start: Array
    columns: tuple[Array, ...]

    def excess(self, x: Array) -> Array:
        """Return the logarithms of the ratios, at start·exp(x)."""
        with np.errstate(all="ignore"):
            return np.clip(np.log(self.ratio(self.start * np.exp(x), *self.columns)), -STEEP, STEEP)

    def take(self, chosen: Index) -> Self:
        """Return some of the ratios."""
        return type(self)(self.ratio, self.start[chosen], tuple(each[chosen] for each in self.columns))

    def within(self, low: Array, high: Array) -> Array:
        """Return where ratios are 1 between two x, or the nearer."""
        above, below = self.excess(low), self.excess(high)
        x = np.where(above > 0.0, high, low)
        some = (above > 0.0) & (below <= 0.0)
        if bool(np.any(some)):
            own = low[some], high[some], above[some], below[some]
            x[some], _ = bracketed_roots(self.take(some), *own)
        return x

    def solved(self, low: Array, high: Array) -> Array:
        """Return the numbers where ratios are 1, sought from two x on.

        They are sought below too, and above where the second x is > 0. They are 0 or infinite where ratios
        are less or more everywhere.
        """
        low, high = np.array(low), np.array(high)
        above, below = self.excess(low), self.excess(high)
        # What was an end of a bracket is its other end then.
        while len(k := np.flatnonzero((above <= 0.0) & (low > -WIDEST))):
            high[k], below[k], low[k] = low[k], above[k], 2.0 * low[k]
            above[k] = self.take(k).excess(low[k])
        while len(k := np.flatnonzero((below > 0.0) & (high > 0.0) & (high < WIDEST))):
            low[k], above[k], high[k] = high[k], below[k], 2.0 * high[k]
            below[k] = self.take(k).excess(high[k])
        while len(k := np.flatnonzero((high - low > NARROW) & (below <= 0.0) & (above > 0.0))):
            middle = 0.5 * (low[k] + high[k])
            at = self.take(k).excess(middle)
            low[k], above[k] = np.where(at > 0.0, (middle, at), (low[k], above[k]))
            high[k], below[k] = np.where(at > 0.0, (high[k], below[k]), (middle, at))
        found = np.where(above <= 0.0, 0.0, np.where(below > 0.0, np.inf, self.start))
        some = np.flatnonzero((below <= 0.0) & (above > 0.0))
        if len(some):
            # The start is the upper end now.
            near = replace(self.take(some), start=self.start[some] * np.exp(high[some]))
            own = low[some] - high[some], np.zeros(len(some)), above[some], below[some]
            found[some] = near.start * np.exp(bracketed_roots(near, *own)[0])
        return found
