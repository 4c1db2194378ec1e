"""Tangents checked by values: what slopes claim, at one more rate.

A duality gap is made of slopes: it says that the cost at every rate r lies on or above the tangent at ρ,

    J(r)  ≥  J(ρ) + J'(ρ)·(r − ρ).

A slope that is not the cost's, or a cost that is not convex, breaks this for r on one side of ρ, the nearer
the surer. So the values at a rate beside each ρ are compared with the tangent. Of few sources both sides are
looked at, of many one side each, left and right at random.

What a value may be off by rounding is allowed: of a declared expression the bound of
`freshopt.autodiff.value_rounding`, which is asked for only where a tangent seems broken; of a kernel some ulp
of the costs and of the importance, the size of the costs of one source of a freshness; and of any what some
ulp of the rates make, where a cost is a small difference of large numbers (a signalled source's age near 0).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.autodiff.tape import Tape
from freshopt.autodiff.value_rounding import value_errors
from freshopt.numerics.arrays import Array, as_float64
from freshopt.separable.bundles import BundledNumerics
from freshopt.separable.conditional_hull import ConditionalHull
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.hull_numerics import HullNumerics
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics, weighted
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.linear_cost import LinearCost
from freshopt.separable.usage_costs import UsageCosts

# Distance of the other rate: share of the rate itself, or of a typical one where that is 0. A wrong slope
# shows where its error exceeds half of this times the curvature, and less moves a cost by some 1e-9 of it.
NEARBY = 2.0**-13
# Of fewer sources both sides are looked at: that takes no time.
FEW = 4096
# What kernels may round: share of the costs, and ulp of a cost of the size of the importance.
_SHARE, _ULP = 1e-12, 64.0 * float(np.finfo(np.float64).eps)
# Relative rounding of a rate, within a formula of it.
OF_RATES = 16.0 * float(np.finfo(np.float64).eps)
# Tangents broken by less than this share of the costs are never looked at.
_SUSPECT = 16.0 * float(np.finfo(np.float64).eps)

_AWAY = np.where(np.random.default_rng(0).random(FEW) < 0.5, NEARBY, -NEARBY)


class Contradiction(NamedTuple):
    """A cost below a tangent.

    - `rate`, `other`: ρ, and the rate at which the cost is below the tangent at ρ.
    - `slope`: What is claimed to be J'(ρ).
    - `cost`, `least`: J at `other`, and the tangent there.
    """

    source: int
    rate: float
    other: float
    slope: float
    cost: float
    least: float

    def sentence(self, name: str) -> str:
        """Return what is wrong, in words."""
        return (
            f"the cost of {name} at the rate {self.other:.9g} is {self.cost:.9g}, below its tangent at "
            f"{self.rate:.9g}, {self.least:.9g} by the slope {self.slope:.6g}: this is not its slope, or the "
            "cost is not convex. Correct the kernel, or what is registered for an atom."
        )


def checkable(numerics: Numerics) -> bool:
    """Return whether it is known what rounding does to these costs."""
    if isinstance(numerics, MixedNumerics):
        return checkable(numerics.silent_sources) and checkable(numerics.signalled_sources)
    if isinstance(numerics, BundledNumerics):
        return checkable(numerics.each)
    if isinstance(numerics, UsageCosts):
        return checkable(numerics.sources) and checkable(numerics.usages)
    return isinstance(numerics, Kernel | DerivedNumerics)


def contradiction(
    numerics: Numerics,
    rates: Array,
    cost: Array,
    marginal: Array,
    lower: Array,
    upper: Array,
    typical: Array,
) -> Contradiction | None:
    """Return the worst broken tangent, or None.

    - `rates`, `cost`, `marginal` (n,): Cost and marginal value −J' at the rates.
    - `lower`, `upper` (n,): Other rates are between them.
    - `typical` (n,): Rates > 0.
    """
    if not checkable(numerics):
        return None
    n = len(rates)
    with np.errstate(all="ignore"):
        found = _broken(numerics, rates, cost, marginal, _beside(rates, lower, upper, typical, 1.0))
        if found is None and n <= FEW:
            found = _broken(numerics, rates, cost, marginal, _beside(rates, lower, upper, typical, -1.0))
    return found


def _beside(rates: Array, lower: Array, upper: Array, typical: Array, sign: float) -> Array:
    """Return the other rates, on either side at random.

    With the `sign` −1 they are those on the other side. At a bound only one side is feasible.
    """
    away = sign * (_AWAY[: len(rates)] if len(rates) <= FEW else np.resize(_AWAY, len(rates)))
    other = np.minimum(np.maximum(rates * (1.0 + away), lower), upper)
    same = np.flatnonzero(other == rates)
    if len(same):
        own, step = rates[same], -away[same]
        turned = np.where(own > 0.0, own * (1.0 + step), typical[same] * NEARBY)
        other[same] = np.minimum(np.maximum(turned, lower[same]), upper[same])
    return other


def _broken(
    numerics: Numerics, rates: Array, cost: Array, marginal: Array, other: Array
) -> Contradiction | None:
    there, least = numerics.cost(other), cost - marginal * (other - rates)
    below = least - there
    suspect = np.flatnonzero(below > _SUSPECT * (np.abs(cost) + np.abs(there)))
    if not len(suspect):
        return None
    some = numerics.take(suspect)
    at, beside = rates[suspect], other[suspect]
    allowed = cost_rounding(some, at, cost[suspect]) + cost_rounding(some, beside, there[suspect])
    allowed += OF_RATES * np.abs(marginal[suspect]) * np.maximum(at, beside)
    excess = below[suspect] - allowed
    worst = int(np.argmax(np.where(np.isnan(excess), -np.inf, excess)))
    if not excess[worst] > 0.0:
        return None
    k = int(suspect[worst])
    numbers = rates[k], other[k], -marginal[k], there[k], least[k]
    return Contradiction(k, *map(float, numbers))


def cost_rounding(numerics: object, rates: Array, cost: Array) -> Array:
    """Return what costs at rates may be off by; inf if unknown.

    Rounding of the rates is not in it (`OF_RATES`). Shape (n,).
    """
    if isinstance(numerics, Kernel):
        return _SHARE * np.abs(cost) + _ULP * as_float64(numerics.importance)
    if isinstance(numerics, DerivedNumerics) and isinstance(numerics.node, Tape):
        return value_errors(numerics.node, rates)
    if isinstance(numerics, MixedNumerics):
        return np.where(
            numerics.signalled,
            cost_rounding(numerics.signalled_sources, rates, cost),
            cost_rounding(numerics.silent_sources, rates, cost),
        )
    if isinstance(numerics, BundledNumerics):
        each = numerics.bundles.of_sources(rates)
        return numerics.bundles.totals(cost_rounding(numerics.each, each, numerics.each.cost(each)))
    if isinstance(numerics, UsageCosts):
        found, usage = np.empty(len(rates)), numerics.usage
        found[~usage] = cost_rounding(numerics.sources, rates[~usage], cost[~usage])
        found[usage] = cost_rounding(numerics.usages, rates[usage], cost[usage])
        return found
    if isinstance(numerics, ConditionalHull | HullNumerics):
        return cost_rounding(numerics.curve, rates, cost)
    if isinstance(numerics, LinearCost):
        return _ULP * np.abs(cost)
    if isinstance(numerics, Lagrangian):
        return _of_parts(numerics, rates)
    return np.full(len(rates), np.inf)


def _of_parts(whole: Lagrangian, rates: Array) -> Array:
    """Return what a Lagrangian's costs may be off by."""
    if whole.family is not None:
        return cost_rounding(whole.family, rates, whole.family.cost(rates))
    added = np.zeros(len(rates))
    for weights, numerics in whole.parts:
        each = cost_rounding(numerics, rates, numerics.cost(rates))
        added += each if weights is None else weighted(np.abs(weights), each)
    return added
