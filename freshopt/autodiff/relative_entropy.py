"""Relative entropies x·log(x/y) and x·log(x/y) − x + y.

x and y are affine functions of the rate.
Where x and y are nearly equal the printed forms lose all their digits, and their second derivative as a
quadratic form of (x', y') does so whenever x/x' and y/y' are. With

    x = a + b·ρ,   y = c + e·ρ,   z = y − x,   D = b·c − a·e,   L = log(y/x),   E = L − z/y ≥ 0,

where z and D come from the constants and not from rounded values of x and y,

    ==========  ============  ======================  ===========
    atom        value         slope                   curvature
    ==========  ============  ======================  ===========
    rel_entr    −x·L          (b−e)·x/y − b·E         D²/(x·y²)
    kl_div      z − x·L       (e−b)·z/y − b·E         D²/(x·y²)
    ==========  ============  ======================  ===========

Both are convex in (x, y) and nothing else, so the DCP rules allow only affine arguments.
"""

from __future__ import annotations

import numpy as np

from freshopt.autodiff.jets import NOT_COMPUTED, Jet
from freshopt.autodiff.smooth_atoms import Rule
from freshopt.numerics.arrays import Array

# Below this |s| the series is used, y/x from 3/4 to 4/3; 12 terms of it reach 5e-21.
_NEAR = 1.0 / 7.0
# Coefficients of s^(2k+3) in 2·atanh(s) − 2s.
_ATANH = [2.0 / (2 * k + 3) for k in range(12)]


def relative_entropy(order: int, side: int, x: Jet, y: Jet, z: Jet, determinant: Array) -> Jet:  # noqa: ARG001
    """Return the jet of x·log(x/y)."""
    logarithm, excess, _ = _logarithms(x.value, y.value, z.value)
    value, slope = -x.value * logarithm, NOT_COMPUTED
    if order >= 1:
        slope = -z.slope * (x.value / y.value) - x.slope * excess
    return _mended(value, slope, x, y, determinant, order, at_zero=0.0)


def divergence(order: int, side: int, x: Jet, y: Jet, z: Jet, determinant: Array) -> Jet:  # noqa: ARG001
    """Return the jet of x·log(x/y) − x + y."""
    _, excess, value = _logarithms(x.value, y.value, z.value)
    slope = z.slope * (z.value / y.value) - x.slope * excess if order >= 1 else NOT_COMPUTED
    return _mended(value, slope, x, y, determinant, order, at_zero=1.0)


def _logarithms(x: Array, y: Array, z: Array) -> tuple[Array, Array, Array]:
    """Return the cancellation-free logarithms L, E and z − x·L.

    L = log(y/x) and E = L − z/y.
    With s = z/(x+y), L is 2·atanh(s), E is s·z/y plus and z − x·L is s·z minus x times its tail beyond 2s.
    """
    logarithm, share = np.log(y / x), z / y
    excess, divergence = logarithm - share, z - x * logarithm
    s = z / (x + y)
    near = np.abs(s) <= _NEAR
    if bool(np.any(near)):
        s = np.where(near, s, 0.0)
        square, tail = s * s, np.zeros(())
        for coefficient in reversed(_ATANH):
            tail = tail * square + coefficient
        tail = tail * square * s
        logarithm = np.where(near, 2.0 * s + tail, logarithm)
        excess = np.where(near, s * share + tail, excess)
        divergence = np.where(near, s * z - x * tail, divergence)
    return logarithm, excess, divergence


def _mended(
    value: Array, slope: Array, x: Jet, y: Jet, determinant: Array, order: int, at_zero: float
) -> Jet:
    """Return the jet with curvature, and limits at the domain's edge.

    At x = 0 it takes the limits, beyond x ≥ 0, y > 0 infinite slopes that point back.
    """
    curvature = determinant * determinant / (x.value * y.value * y.value) if order >= 2 else NOT_COMPUTED
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
