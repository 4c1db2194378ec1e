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

from typing import Protocol, Self

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, IntArray

# Width of the last bracket: this, and as much of the root's size as two neighbouring floats are apart.
_WIDTH, _APART = 1e-15, float(np.finfo(np.float64).eps)
# Steps at most; bisection of 1400 nats to 1e-15 takes 61.
_STEPS = 200
# The first point is where a straight line has its root, but no nearer to an end than this share.
_INSIDE = 0.05


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

    Parameters
    ----------
    low, high : ndarray, shape (k,)
        Ends of the first brackets.
    above, below : ndarray, shape (k,)
        Values > 0 at `low` and ≤ 0 at `high`.
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
