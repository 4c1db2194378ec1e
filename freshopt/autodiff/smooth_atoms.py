"""Smooth atoms: stable first and second derivatives, extended values.

Each rule is a function of the argument's values and the order asked for, and returns as many derivatives. An
atom whose domain ends states the edge: there the limits are taken, beyond it the extended value of convex
analysis (+∞ for a convex atom, −∞ for a concave one) with an infinite slope that points back inside. A search
for a rate that has strayed out of a domain therefore knows the way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from freshopt.autodiff.jets import NOT_COMPUTED, ZERO, Jet, chain
from freshopt.numerics.arrays import Array

Derivatives: TypeAlias = Callable[..., tuple[Array, ...]]
# (order, side, jets of the arguments and constants) -> jet
Rule: TypeAlias = Callable[..., Jet]

_TWO: Array = np.full((), 2.0)


@dataclass(frozen=True, slots=True)
class Edge:
    """Edge of an atom's domain, with value and derivatives there.

    - `at`: The domain is x ≥ at (or > at, where the value there is infinite).
    - `limits` (float, float, float): f, f', f'' at the edge.
    - `convex`: Whether f is +∞ beyond the edge; else −∞.
    """

    at: float
    limits: tuple[float, float, float]
    convex: bool

    def mend(self, x: Array, found: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return limits at the edge and extended values beyond it."""
        at, beyond = x == self.at, x < self.at
        far = np.inf if self.convex else -np.inf
        return tuple(
            np.where(at, limit, np.where(beyond, outside, values))
            for values, limit, outside in zip(found, self.limits, (far, -far, np.nan), strict=False)
        )


@dataclass(frozen=True, slots=True)
class Smooth:
    """Rule of a twice differentiable atom of one argument.

    - `derivatives`: ``f(x, order, *parameters)`` returns (f, f', f'') up to the order.
    - `edge`: Where its domain begins; None if it is everything.
    - `exponent`: Of a power.
    """

    derivatives: Derivatives
    edge: Edge | None = None
    exponent: float | None = None

    def __call__(self, order: int, side: int, x: Jet, *parameters: Array) -> Jet:  # noqa: ARG002
        """Return the atom's jet; both one-sided derivatives agree."""
        found = self.derivatives(x.value, order, *parameters)
        edge = self.edge
        if edge is not None and x.value.size and float(np.min(x.value)) <= edge.at:
            found = edge.mend(x.value, found)
        return chain(found, x, order)


def _log(x: Array, order: int) -> tuple[Array, ...]:
    if order == 0:
        return (np.log(x),)
    inverse = 1.0 / x
    return (np.log(x), inverse) if order == 1 else (np.log(x), inverse, -(inverse * inverse))


def _log1p(x: Array, order: int) -> tuple[Array, ...]:
    if order == 0:
        return (np.log1p(x),)
    inverse = 1.0 / (1.0 + x)
    return (np.log1p(x), inverse) if order == 1 else (np.log1p(x), inverse, -(inverse * inverse))


def _exp(x: Array, order: int) -> tuple[Array, ...]:
    e = np.exp(x)
    return (e,) * (order + 1)


def _logistic(x: Array, order: int) -> tuple[Array, ...]:
    """Return log(1+eˣ) and its derivatives, without overflow.

    They are written in q = e^{−|x|} ≤ 1: f' is 1/(1+q) or q/(1+q), f'' = q/(1+q)².
    """
    q = np.exp(-np.abs(x))
    value = np.maximum(x, 0.0) + np.log1p(q)
    if order == 0:
        return (value,)
    inverse = 1.0 / (1.0 + q)
    tail = q * inverse
    slope = np.where(x >= 0.0, inverse, tail)
    return (value, slope) if order == 1 else (value, slope, tail * inverse)


def _entr(x: Array, order: int) -> tuple[Array, ...]:
    logarithm = np.log(x)
    found: tuple[Array, ...] = (-x * logarithm,)
    if order >= 1:
        found += (-1.0 - logarithm,)
    return found if order < 2 else (*found, -1.0 / x)


def _xexp(x: Array, order: int) -> tuple[Array, ...]:
    e = np.exp(x)
    return tuple((x + k) * e if k else x * e for k in range(order + 1))


def _huber(x: Array, order: int, m: Array) -> tuple[Array, ...]:
    """Return Huber's function and its derivatives.

    It is x² up to M; beyond M it is 2M|x| − M²: with c = x cut to [−M, M] both are c(2x − c).
    """
    cut = np.clip(x, -m, m)
    found: tuple[Array, ...] = (cut * (2.0 * x - cut),)
    if order >= 1:
        found += (2.0 * cut,)
    return found if order < 2 else (*found, np.where(np.abs(x) <= m, 2.0, 0.0))


@functools.cache
def power(p: float) -> Rule:
    """Return the rule of x^p, as CVXPY defines it.

    It is that of |x| for p = 2, 4, 8, ..., else for x ≥ 0 only.
    """
    if p == 1.0:
        return lambda _order, _side, x: x
    limits = [0.0 if e > 0.0 else 1.0 if e == 0.0 else np.inf for e in (p, p - 1.0, p - 2.0)]
    convex = not 0.0 < p < 1.0
    factors = (1.0, p, p * (p - 1.0))
    at_edge = tuple(
        0.0 if limit == 0.0 or f == 0.0 else f * limit for f, limit in zip(factors, limits, strict=True)
    )
    even = p >= 2.0 and np.log2(p).is_integer()
    edge = None if even else Edge(0.0, (at_edge[0], at_edge[1], at_edge[2]), convex)
    special = {-1.0: _inverse, 0.5: _root, 2.0: _square}.get(p)
    return Smooth(special or functools.partial(_high_power if p > 2.0 else _power, p), edge, p)


def _inverse(x: Array, order: int) -> tuple[Array, ...]:
    value = 1.0 / x
    if order == 0:
        return (value,)
    slope = -(value * value)
    return (value, slope) if order == 1 else (value, slope, -2.0 * (slope * value))


def _root(x: Array, order: int) -> tuple[Array, ...]:
    value = np.sqrt(x)
    if order == 0:
        return (value,)
    slope = 0.5 / value
    return (value, slope) if order == 1 else (value, slope, -0.5 * slope / x)


def _square(x: Array, order: int) -> tuple[Array, ...]:
    return (x * x, 2.0 * x, _TWO)[: order + 1]


def _power(p: float, x: Array, order: int) -> tuple[Array, ...]:
    value = np.power(x, p)
    if order == 0:
        return (value,)
    slope = p * (value / x)
    return (value, slope) if order == 1 else (value, slope, (p - 1.0) * (slope / x))


def _high_power(p: float, x: Array, order: int) -> tuple[Array, ...]:
    """Return x^p and its derivatives by way of x^{p−2}."""
    bend = np.power(x, p - 2.0)
    first = bend * x
    if order < 2:
        return (first * x, p * first)[: order + 1]
    return first * x, p * first, p * (p - 1.0) * bend


def powers(x: Array, order: int, p: Array) -> tuple[Array, ...]:
    """Return x^p and its derivatives for a vector of exponents.

    Their domains end at 0, where an exponent of 0 or 1 leaves no slope or curvature.
    """
    beyond = x < 0.0
    inside, far = np.where(beyond, 1.0, x), np.where((p > 0.0) & (p < 1.0), -np.inf, np.inf)
    found: tuple[Array, ...] = (np.where(beyond, far, np.power(inside, p)),)
    if order >= 1:
        slope = np.where(p == 0.0, 0.0, p * np.power(inside, p - 1.0))
        found += (np.where(beyond, -far, slope),)
    if order >= 2:
        bend = np.where((p == 0.0) | (p == 1.0), 0.0, p * (p - 1.0) * np.power(inside, p - 2.0))
        found += (np.where(beyond, np.nan, bend),)
    return found


_LOG_EDGE = (-np.inf, np.inf, -np.inf)
SMOOTH: dict[str, Rule] = {
    "entr": Smooth(_entr, Edge(0.0, (0.0, np.inf, -np.inf), convex=False)),
    "exp": Smooth(_exp),
    "huber": Smooth(_huber),
    "log": Smooth(_log, Edge(0.0, _LOG_EDGE, convex=False)),
    "log1p": Smooth(_log1p, Edge(-1.0, _LOG_EDGE, convex=False)),
    "logistic": Smooth(_logistic),
    "powers": Smooth(powers),
    "xexp": Smooth(_xexp),
}
"""Rules by the name of the CVXPY atom. `inv_pos`, `sqrt` and `square` are powers,
"powers" is `freshopt.autodiff.own_powers.power`."""


def user_rule(derivatives: Callable[..., tuple[Array, ...]]) -> Rule:
    """Return a user's rule from all its derivatives at once.

    The atom has one or more arguments.
    See `freshopt.autodiff.compiler.register` for what `derivatives` returns.
    """

    def rule(order: int, _side: int, *arguments: Jet | Array) -> Jet:
        jets = [argument for argument in arguments if isinstance(argument, Jet)]
        values = [argument.value if isinstance(argument, Jet) else argument for argument in arguments]
        value, first, second = derivatives(*values)
        if len(jets) == 1:
            return chain((value, first, second), jets[0], order)
        return _several(value, first, second, jets, order)

    return rule


def _several(value: Array, gradient: Array, hessian: Array, jets: list[Jet], order: int) -> Jet:
    """Return the jet of a function of several arguments (chain rule)."""
    slope, curvature = ZERO, ZERO
    for i, x in enumerate(jets):
        slope = slope + gradient[i] * x.slope
        curvature = curvature + gradient[i] * x.curvature
        for j, y in enumerate(jets):
            curvature = curvature + hessian[i][j] * x.slope * y.slope
    return Jet(value, slope if order >= 1 else NOT_COMPUTED, curvature if order >= 2 else NOT_COMPUTED)
