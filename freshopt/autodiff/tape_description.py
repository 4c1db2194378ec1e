"""A tape as plain tuples, from which code can be generated.

Nothing of it is a function or an array: a description says which atoms are applied to what, in which order,
and which constants are vectors. Tapes of one description differ in the numbers of their constants alone, and
some of a tape's sources have the description of all.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from freshopt.autodiff.affine_steps import Linear
from freshopt.autodiff.jets import ONE, ZERO
from freshopt.autodiff.kinked_atoms import KINKED
from freshopt.autodiff.relative_entropy import RELATIVE
from freshopt.autodiff.smooth_atoms import SMOOTH, Rule, Smooth, power
from freshopt.autodiff.tape import Apply, Step, Tape
from freshopt.numerics.arrays import Array

# Steps in order, and the kinds of the constants.
Description: TypeAlias = tuple[tuple[Any, ...], tuple[str, ...]]

_NAMES: dict[Rule, str] = {
    **{rule: name for name, rule in {**SMOOTH, **KINKED, **RELATIVE}.items()},
    power(1.0): "same",
}


def describe(node: object) -> Description | None:
    """Return the description of a tape, or None.

    It is None, and code cannot be generated, where a rule is a user's, or the node is no tape.

    - returns `steps`, `kinds` tuple of tuple, tuple of str: A step is ``("affine", terms, intercept, slope,
      slope_zeros)``, as the fields of `Linear`, or ``("atom", name, slots, constants, parameter, edge)``: the
      parameter is a power's exponent, the edge ``(at, limits, convex)`` as in `Edge`, each None where there
      is none. A kind is "zero", "one", "number" or "vector".

    Examples
    --------
    >>> from freshopt.autodiff.compiler import compile_expression
    >>> from freshopt.cvx import cp
    >>> rate = cp.Variable(3, nonneg=True)
    >>> steps, kinds = describe(compile_expression(2 * cp.exp(-rate), rate))
    >>> steps[1][:3], kinds
    (('atom', 'exp', (1,)), ('number', 'number'))
    """
    if not isinstance(node, Tape):
        return None
    steps = tuple(_step(step) for step in node.steps)
    if None in steps:
        return None
    return steps, tuple(_kind(constant) for constant in node.constants)


def _kind(constant: Array) -> str:
    if constant.ndim:
        return "vector"
    return "zero" if constant is ZERO else "one" if constant is ONE else "number"


def _step(step: Step) -> tuple[Any, ...] | None:
    if isinstance(step, Linear):
        terms = tuple(tuple(term) for term in step.terms)
        return "affine", terms, step.intercept, step.slope, step.slope_zeros
    if not isinstance(step, Apply):
        return None
    name, parameter = _NAMES.get(step.rule), None
    if name is None:
        parameter = getattr(step.rule, "exponent", None)
        if parameter is None or power(parameter) is not step.rule:
            return None
        name = "power"
    edge = step.rule.edge if isinstance(step.rule, Smooth) else None
    plain = None if edge is None else (edge.at, edge.limits, edge.convex)
    return "atom", name, step.slots, step.constants, parameter, plain
