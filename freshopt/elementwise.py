"""Derived numerics: value, slope and curvature of a declared expression, without Jacobians.

A separable objective is a tree of elementwise CVXPY atoms over the vector of rates, so each source's value,
first and second derivative follow from one walk over the tree with the chain rule, in NumPy, a chunk of
sources at a time. `compile_expression` turns the tree into nodes of our own once (constants evaluated, atoms
looked up by name); `DerivedNumerics` then serves solvers and certificates exactly as a hand-written kernel
does.

One evaluation costs a handful of array passes per atom. An atom without a rule is named in an
`UnknownAtomError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from freshopt.arrays import Array
from freshopt.cvx import Expression
from freshopt.errors import ObjectiveError
from freshopt.kernel import Index


class UnknownAtomError(ObjectiveError):
    """An atom in a declared objective whose derivatives are not known; `Conic` solves it uncertified."""


class Jet(NamedTuple):
    """Value, slope and curvature with respect to the rate, one entry per source (or scalars)."""

    value: Array
    slope: Array
    curvature: Array


class Node(Protocol):
    """A compiled expression."""

    def evaluate(self, rate: Array) -> Jet:
        """Return the jet at the rates."""

    def take(self, index: Index) -> Node:
        """Return the same expression for some of the sources."""


@dataclass(frozen=True, slots=True, eq=False)
class Rate:
    """The rates themselves."""

    def evaluate(self, rate: Array) -> Jet:
        """Return (ρ, 1, 0)."""
        return Jet(rate, np.ones_like(rate), np.zeros_like(rate))

    def take(self, index: Index) -> Rate:  # noqa: ARG002
        """Return itself: rates come with each call."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A constant of the expression: one number, or one per source."""

    value: Array

    def evaluate(self, rate: Array) -> Jet:
        """Return (constant, 0, 0)."""
        zero = np.zeros_like(rate)
        return Jet(self.value, zero, zero)

    def take(self, index: Index) -> Constant:
        """Return the constants of some of the sources."""
        return self if self.value.ndim == 0 else Constant(self.value[index])


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """An atom applied to compiled arguments."""

    rule: Callable[..., Jet]
    arguments: tuple[Node, ...]

    def evaluate(self, rate: Array) -> Jet:
        """Return the atom's jet by the chain rule."""
        return self.rule(*(argument.evaluate(rate) for argument in self.arguments))

    def take(self, index: Index) -> Apply:
        """Return the same atom over some of the sources."""
        return Apply(self.rule, tuple(argument.take(index) for argument in self.arguments))


Derivatives: TypeAlias = Callable[[Array], tuple[Array, Array, Array]]


def compile_expression(expression: Expression, rate: Expression) -> Node:
    """Compile a separable CVXPY expression of the variable `rate`.

    Parameters
    ----------
    expression : cvxpy expression, shape (n,)
    rate : cvxpy.Variable, shape (n,)

    Raises
    ------
    UnknownAtomError
        Naming the atom that has no rule here.
    """
    if expression is rate:
        return Rate()
    if expression.is_constant():
        value = np.asarray(expression.value, dtype=np.float64)
        return Constant(value.reshape(()) if value.size == 1 else value)
    atom = type(expression).__name__
    if atom in ("power", "Power", "PowerApprox"):
        rule = _chain(_power(_exponent(expression)))
    elif atom in RULES:
        rule = RULES[atom]
    else:
        raise UnknownAtomError(
            f"atom '{atom}' in the objective has no derivative rule. Known: {', '.join(sorted(RULES))}, "
            f"power. Rewrite the expression with these, or give the objective a kernel()."
        )
    return Apply(rule, tuple(compile_expression(argument, rate) for argument in expression.args))


def _exponent(expression: Expression) -> float:
    p = expression.p
    return float(p.value if hasattr(p, "value") else p)


def _chain(derivatives: Derivatives) -> Callable[[Jet], Jet]:
    """Turn f, f', f'' of an atom into its rule."""

    def rule(x: Jet) -> Jet:
        value, first, second = derivatives(x.value)
        return Jet(value, first * x.slope, second * x.slope * x.slope + first * x.curvature)

    return rule


def _power(p: float) -> Derivatives:
    def derivatives(x: Array) -> tuple[Array, Array, Array]:
        return x**p, p * x ** (p - 1.0), p * (p - 1.0) * x ** (p - 2.0)

    return derivatives


def _log(x: Array) -> tuple[Array, Array, Array]:
    return np.log(x), 1.0 / x, -1.0 / (x * x)


def _exp(x: Array) -> tuple[Array, Array, Array]:
    e = np.exp(x)
    return e, e, e


def _logistic(x: Array) -> tuple[Array, Array, Array]:
    share = 1.0 / (1.0 + np.exp(-x))
    return np.logaddexp(0.0, x), share, share / (1.0 + np.exp(x))


def _add(*terms: Jet) -> Jet:
    value, slope, curvature = terms[0]
    for term in terms[1:]:
        value, slope, curvature = value + term.value, slope + term.slope, curvature + term.curvature
    return Jet(value, slope, curvature)


def _negative(x: Jet) -> Jet:
    return Jet(-x.value, -x.slope, -x.curvature)


def _multiply(x: Jet, y: Jet) -> Jet:
    """Multiply by a constant; 0 times infinity is 0, as a source of no importance demands."""
    value = np.where((x.value == 0.0) | (y.value == 0.0), 0.0, x.value * y.value)
    slope = _scaled(x.slope, y.value) + _scaled(y.slope, x.value)
    return Jet(value, slope, _scaled(x.curvature, y.value) + _scaled(y.curvature, x.value))


def _scaled(derivative: Array, factor: Array) -> Array:
    return np.where((derivative == 0.0) | (factor == 0.0), 0.0, derivative * factor)


def _divide(x: Jet, y: Jet) -> Jet:
    """Divide by a constant."""
    return Jet(x.value / y.value, x.slope / y.value, x.curvature / y.value)


def _same(x: Jet) -> Jet:
    return x


RULES: dict[str, Callable[..., Jet]] = {
    "AddExpression": _add,
    "NegExpression": _negative,
    "multiply": _multiply,
    "DivExpression": _divide,
    "Promote": _same,
    "log": _chain(_log),
    "exp": _chain(_exp),
    "logistic": _chain(_logistic),
}
"""Rules by the name of the CVXPY atom; `compile_expression` adds power, of which inv_pos, sqrt, square are
cases."""
