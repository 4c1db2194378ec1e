"""`Jet`: value, slope and curvature, carried on by the chain rule.

A jet is that of a function of the rate. Entries that are the same for all sources stay numbers: the slope of
the rate is the scalar 1, the curvature of anything linear the scalar 0. Products with these two cost no pass
over the sources, so a linear argument is as cheap as the atom around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import Array

ZERO: Array = np.zeros(())
ONE: Array = np.ones(())
# Stands for derivatives beyond the order asked for.
NOT_COMPUTED: Array = np.full((), np.nan)


class Jet(NamedTuple):
    """Value, first and second derivative with respect to the rate, elementwise."""

    value: Array
    slope: Array
    curvature: Array


def product(a: Array, b: Array) -> Array:
    """Return the product; the scalars `ZERO` and `ONE` cost nothing."""
    if a is ZERO or b is ZERO:
        return ZERO
    if a is ONE:
        return b
    return a if b is ONE else a * b


def plus(a: Array, b: Array) -> Array:
    """Return the sum; the scalar `ZERO` costs nothing."""
    if a is ZERO:
        return b
    return a if b is ZERO else a + b


def chain(derivatives: Sequence[Array], x: Jet, order: int) -> Jet:
    """Return the jet of f(x) by the chain rule.

    It takes f, f' and f'' at the value of x, as far as `order` asks.
    (f∘x)' = f'·x' and (f∘x)'' = f''·x'² + f'·x''. Where f is convex and the composition follows the DCP
    rules, both terms of the latter have one sign and nothing cancels.
    """
    value = derivatives[0]
    if order == 0:
        return Jet(value, NOT_COMPUTED, NOT_COMPUTED)
    first = derivatives[1]
    slope = product(first, x.slope)
    if order == 1:
        return Jet(value, slope, NOT_COMPUTED)
    second = derivatives[2]
    if second is first:  # the exponential
        return Jet(value, slope, product(first, plus(product(x.slope, x.slope), x.curvature)))
    bend = product(product(second, x.slope), x.slope)
    return Jet(value, slope, plus(bend, product(first, x.curvature)))
