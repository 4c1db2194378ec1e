"""`decreasing_root`: roots of decreasing functions by safeguarded Newton.

The functions of the rate, one per source, meet their prices there.
For marginals without a closed inverse. The search is in x = log ρ, where marginals are nearly straight:
outwards from a starting point until the root is bracketed, then Newton steps that fall back to bisection when
they leave the bracket or when the function jumps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray

Compare: TypeAlias = Callable[[Array], tuple[BoolArray, Array]]

# Log of 1e150: rates beyond are taken for infinity, or for zero.
_REACH = 345.0
# Steps at most; bisection alone needs 60.
_STEPS = 200
# Distance in x: two units in the last place of a rate.
_ULP = 4e-16


def decreasing_root(compare: Compare, start: Array) -> Array:
    """Return the roots ρ = exp(x) of decreasing functions.

    0 or inf where there is none within 1e±150 of the start.

    - `compare`: For x, shape (n,): whether each function is still above its price, and a Newton step in x
      (inf or nan where there is none).
    - `start` (n,): Rates > 0 to start from.
    """
    low, high = _bracket(compare, np.log(start))
    x = np.where(
        np.isfinite(low) & np.isfinite(high), 0.5 * (low + high), np.where(np.isfinite(low), low, high)
    )
    for _ in range(_STEPS):
        above, step = compare(x)
        low, high = np.where(above, x, low), np.where(above, high, x)
        middle = 0.5 * (low + high)
        with np.errstate(invalid="ignore"):
            # Newton steps that all come from one side would leave the other end of the bracket far off. At
            # the root they are cut to end just inside the bracket, which closes it.
            target, margin = x + step, 0.5 * _ULP * np.maximum(1.0, np.abs(x))
            inside = (target > low - margin) & (target < high + margin)
            following = np.where(inside, np.clip(target, low + margin, high - margin), middle)
            wide = high - low > _ULP * np.maximum(1.0, np.abs(middle))
            moving = np.isfinite(middle) & wide & (np.abs(following - x) > 1e-16 * np.abs(x))
            # A function that is at its price may be so over many ulp: any of these will do.
            moving &= step != 0.0
        if not bool(np.any(moving)):
            break
        x = np.where(moving, following, x)
    return np.where(
        high == -np.inf, 0.0, np.where(low == np.inf, np.inf, np.exp(np.minimum(x, 2.0 * _REACH)))
    )


def _bracket(compare: Compare, start: Array) -> tuple[Array, Array]:
    """Return brackets of the roots in x, perhaps infinite, by outward search."""
    above, _ = compare(start)
    inner, outer, width = start, start, 1.0
    pending = np.ones(start.shape, dtype=np.bool_)
    while bool(np.any(pending)) and width <= 2.0 * _REACH:
        trial = np.where(above, start + width, start - width)
        now, _ = compare(trial)
        inner = np.where(pending & (now == above), trial, inner)
        outer = np.where(pending & (now != above), trial, outer)
        pending &= now == above
        width *= 2.0
    outer = np.where(pending, np.where(above, np.inf, -np.inf), outer)
    inner = np.where(pending, outer, inner)
    return np.where(above, inner, outer), np.where(above, outer, inner)
