"""Subgradients of kinked atoms: maximum, minimum and abs.

The slopes are one-sided: at a kink the slope from the left differs from the slope from the right, and
everything between is a subgradient. Which of the two is meant is the `side` of an evaluation, +1 or −1, in
the direction of the *rate*. A maximum at a tie follows the branch that is larger on that side: the one whose
own one-sided slope is larger to the right, or smaller to the left. Branches are compared by their slopes in
the rate, so those that fall as the rate rises need no special care.

Away from ties the branches are selected in one pass each; ties are resolved only where there are some. Any
choice is safe for a certificate, whose inequality holds for every subgradient at both of its ends.
"""

from __future__ import annotations

import numpy as np

from freshopt.autodiff.jets import NOT_COMPUTED, Jet, product
from freshopt.autodiff.smooth_atoms import Rule
from freshopt.numerics.arrays import Array, BoolArray

RIGHT, LEFT = 1, -1


def maximum(order: int, side: int, *branches: Jet) -> Jet:
    """Return the jet of the largest branch.

    Of those that tie, it is that of the one that is largest on the side.
    """
    return _leading(branches, order, side, np.maximum, np.greater)


def minimum(order: int, side: int, *branches: Jet) -> Jet:
    """Return the jet of the smallest branch."""
    return _leading(branches, order, -side, np.minimum, np.less)


def absolute(order: int, side: int, x: Jet) -> Jet:
    """Return the jet of |x|."""
    value = np.abs(x.value)
    if order == 0:
        return Jet(value, NOT_COMPUTED, NOT_COMPUTED)
    sign = np.sign(x.value)
    if bool(np.any(sign == 0.0)):
        sign = np.where(sign == 0.0, side * np.sign(x.slope), sign)
    return Jet(value, product(sign, x.slope), product(sign, x.curvature) if order >= 2 else NOT_COMPUTED)


def _leading(branches: tuple[Jet, ...], order: int, upwards: int, extreme: np.ufunc, ahead: np.ufunc) -> Jet:
    """Return the jet of the branch that is ahead of all others."""
    best = branches[0]
    for branch in branches[1:]:
        value = extreme(best.value, branch.value)
        if order == 0:
            best = Jet(value, NOT_COMPUTED, NOT_COMPUTED)
        else:
            best = _select(best, branch, value, ahead(branch.value, best.value), order, upwards)
    return best


def _select(a: Jet, b: Jet, value: Array, second: BoolArray, order: int, upwards: int) -> Jet:
    """Return the jet of the leading branch, at ties the next leader's."""
    tie = a.value == b.value
    if bool(np.any(tie)):
        leads = b.slope > a.slope if upwards > 0 else b.slope < a.slope
        second = second | (tie & leads)
    slope = np.where(second, b.slope, a.slope)
    if order == 1:
        return Jet(value, slope, NOT_COMPUTED)
    straight = a.curvature is b.curvature
    return Jet(value, slope, a.curvature if straight else np.where(second, b.curvature, a.curvature))


KINKED: dict[str, Rule] = {"abs": absolute, "maximum": maximum, "minimum": minimum}
"""Rules by the name of the CVXPY atom. `pos`, `neg` and `scalene` are made of them, `loggamma` too."""
