"""`same_numerics`, `same_family`: numerics that are equal, or differ in weight alone."""

from __future__ import annotations

import numpy as np

from freshopt.autodiff.tape import Tape
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Kernel, Numerics


def same_numerics(a: Numerics, b: Numerics) -> bool:
    """Return whether two numerics are known to be equal."""
    if a is b:
        return True
    if isinstance(a, Kernel) and isinstance(b, Kernel):
        return same_family(a, b) and np.array_equal(a.importance, b.importance)
    if not isinstance(a, DerivedNumerics) or not isinstance(b, DerivedNumerics) or a.sign != b.sign:
        return False
    one, other = a.node, b.node
    if not isinstance(one, Tape) or not isinstance(other, Tape) or one.steps != other.steps:
        return False
    return all(np.array_equal(x, y) for x, y in zip(one.constants, other.constants, strict=True))


def same_family(a: Kernel, b: Kernel) -> bool:
    """Return whether two kernels differ in importance alone."""
    named = a.unit_demand is not None and a.unit_demand is b.unit_demand and a.demand_parameters is None
    same = named or (a.unit_cost == b.unit_cost and a.unit_marginal == b.unit_marginal)
    if not same or len(a.parameters) != len(b.parameters) or b.demand_parameters is not None:
        return False
    return all(x is y or np.array_equal(x, y) for x, y in zip(a.parameters, b.parameters, strict=True))
