"""Relative entropies x·log(x/y) and x·log(x/y) − x + y.

x and y are affine functions of the rate.
Where x and y are nearly equal the printed forms lose all their digits, and their second derivative as a
quadratic form of (x', y') does so whenever x/x' and y/y' are. With

    x = a + b·ρ,   y = c + e·ρ,   z = y − x,   D = b·c − a·e,   L = log(y/x),   E = L − z/y ≥ 0,

where z and D come from the constants and not from rounded values of x and y,

    ==========  =======  ========================  ===================  ============
    atom        value    slope, x and y near       slope, far apart     curvature
    ==========  =======  ========================  ===================  ============
    rel_entr    −x·L     (b−e)·x/y − b·E           b·(1−L) − e·x/y      (D/y)²/x
    kl_div      z − x·L  (e−b)·z/y − b·E           e·z/y − b·L          (D/y)²/x
    ==========  =======  ========================  ===================  ============

Near, b·E is the small difference of L and z/y; far apart, where x/y may be 10³⁰, both forms of the slope are
the same number and the first would be the difference of two that are larger by x/y.

Both are convex in (x, y) and nothing else, so the DCP rules allow only affine arguments.
"""

from __future__ import annotations

import numpy as np

from freshopt.autodiff.jets import NOT_COMPUTED, Jet
from freshopt.autodiff.smooth_atoms import Rule
from freshopt.numerics.arrays import Array, BoolArray

# Below this |s| the series is used, y/x from 3/4 to 4/3; 12 terms of it reach 5e-21.
_NEAR = 1.0 / 7.0
# Beyond these y/x is no normal float, or soon none; its root is.
_LEAST, _MOST = 1e-300, 1e300
# Coefficients of s^(2k+3) in 2·atanh(s) − 2s.
_ATANH = [2.0 / (2 * k + 3) for k in range(12)]


def relative_entropy(order: int, side: int, x: Jet, y: Jet, z: Jet, determinant: Array) -> Jet:  # noqa: ARG001
    """Return the jet of x·log(x/y)."""
    logarithm, excess, _, near = _logarithms(x.value, y.value, z.value)
    value, slope = -x.value * logarithm, NOT_COMPUTED
    if order >= 1:
        slope = -_share(x.value / y.value, z, y, near) - x.slope * np.where(near, excess, logarithm - 1.0)
    return _mended(value, slope, x, y, determinant, order, at_zero=0.0)


def divergence(order: int, side: int, x: Jet, y: Jet, z: Jet, determinant: Array) -> Jet:  # noqa: ARG001
    """Return the jet of x·log(x/y) − x + y."""
    logarithm, excess, value, near = _logarithms(x.value, y.value, z.value)
    slope = NOT_COMPUTED
    if order >= 1:
        slope = _share(z.value / y.value, z, y, near) - x.slope * np.where(near, excess, logarithm)
    return _mended(value, slope, x, y, determinant, order, at_zero=1.0)


def _share(ratio: Array, z: Jet, y: Jet, near: BoolArray) -> Array:
    """Return z'·ratio where x and y are near, else y'·ratio.

    A constant y has no part in the slope, however large the ratio.
    """
    factor = np.where(near, z.slope, y.slope)
    return np.where(factor != 0.0, factor * ratio, 0.0)


def _logarithms(x: Array, y: Array, z: Array) -> tuple[Array, Array, Array, BoolArray]:
    """Return the logarithms of two affine functions without cancellation.

    These are L = log(y/x), E = L − z/y, z − x·L, and whether x and y are near: E only where they are.
    With s = z/(x+y), L is 2·atanh(s), E is s·z/y plus and z − x·L is s·z minus x times its tail beyond 2s.
    """
    ratio = y / x
    logarithm = np.log(ratio)
    extreme = ~((ratio >= _LEAST) & (ratio <= _MOST))
    if bool(np.any(extreme)):
        logarithm = np.where(extreme, 2.0 * np.log(np.sqrt(y) / np.sqrt(x)), logarithm)
    excess, divergence = np.zeros(()), z - x * logarithm
    s = z / (x + y)
    near = np.abs(s) <= _NEAR
    if bool(np.any(near)):
        s = np.where(near, s, 0.0)
        square, tail = s * s, np.zeros(())
        for coefficient in reversed(_ATANH):
            tail = tail * square + coefficient
        tail = tail * square * s
        logarithm = np.where(near, 2.0 * s + tail, logarithm)
        excess = s * (z / y) + tail
        divergence = np.where(near, s * z - x * tail, divergence)
    return logarithm, excess, divergence, near


def _mended(
    value: Array, slope: Array, x: Jet, y: Jet, determinant: Array, order: int, at_zero: float
) -> Jet:
    """Return the jet with curvature, and limits at the domain's edge.

    At x = 0 it takes the limits, beyond x ≥ 0, y > 0 infinite slopes that point back.
    """
    curvature = NOT_COMPUTED
    if order >= 2:
        share = determinant / y.value
        curvature = share * share / x.value
    x_out, y_out = x.value <= 0.0, y.value <= 0.0
    if bool(np.any(x_out | y_out)):
        inside = (x.value == 0.0) & (y.value >= 0.0)
        value = np.where(inside, at_zero * y.value, np.where(x_out | y_out, np.inf, value))
        if order >= 1:
            inwards = np.where(x_out, np.sign(x.slope), 0.0) + np.where(y_out, np.sign(y.slope), 0.0)
            still = np.where(inside, at_zero * y.slope, slope)
            slope = np.where(inwards > 0.0, -np.inf, np.where(inwards < 0.0, np.inf, still))
    return Jet(value, slope, curvature)


RELATIVE: dict[str, Rule] = {"kl_div": divergence, "rel_entr": relative_entropy}
"""Rules by the name of the CVXPY atom; they take z = y − x and the determinant D besides x and y."""
