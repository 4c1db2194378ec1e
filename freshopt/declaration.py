"""Declaring: build an objective's CVXPY expression once, and refuse it by name if it cannot be used.

CVXPY checks curvature but not separability, and a slip such as ``importance * cp.log(rate)`` (a dot product
that broadcasts back to the right shape) would pass unnoticed. So the tree is walked: below the objective only
atoms that act entry by entry may touch the rates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError
from freshopt.objective import Objective
from freshopt.sources import Sources

_AFFINE = ("AddExpression", "NegExpression", "multiply", "DivExpression")


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """A checked expression: per source, with whatever constraints its cone form needs."""

    expression: Expression
    constraints: tuple[Expression, ...]


def declare(
    objective: Objective,
    method: Callable[[Expression, Sources], Expression],
    rate: Expression,
    sources: Sources,
) -> Declaration:
    """Build one of the objective's expressions over `rate` and check it.

    Parameters
    ----------
    objective : Objective
        Used for its sense and its name.
    method : callable
        ``objective.per_source`` or ``objective.signalled_per_source``.
    rate : cvxpy expression, shape (n,)
    sources : Sources

    Raises
    ------
    ObjectiveError
        If the result is not an expression of shape (n,), not separable, or of the wrong curvature; names the
        offending term.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"\s*This use of ``\*`` has resulted", category=Warning)
        declared = method(rate, sources)
    expression, constraints = declared if isinstance(declared, tuple) else (declared, ())
    where = f"{type(objective).__name__}.{method.__name__}"
    _check_shape(expression, len(sources), where)
    variables = {variable.id for variable in rate.variables()}
    auxiliary = {variable.id for constraint in constraints for variable in constraint.variables()}
    _check_separable(expression, len(sources), where)
    foreign = [v.name() for v in expression.variables() if v.id not in variables | auxiliary]
    if foreign:
        raise ObjectiveError(
            f"{where} uses the variable '{foreign[0]}' that nothing constrains. Use only the given rate, "
            f"or return (expression, constraints)."
        )
    _check_curvature(objective, expression, where)
    return Declaration(expression, tuple(constraints))


def declare_total(
    objective: Objective, rate: Expression, sources: Sources
) -> tuple[Expression, list[Expression]]:
    """Return the objective's sum over the sources at an affine `rate`, and its cone form's constraints."""
    signalled = sources.signalled
    terms: list[Expression] = []
    constraints: list[Expression] = []
    for method, mask in ((objective.per_source, ~signalled), (objective.signalled_per_source, signalled)):
        if bool(np.any(mask)):
            declaration = declare(objective, method, rate, sources)
            entries = declaration.expression
            terms.append(cp.sum(entries if bool(np.all(mask)) else entries[np.flatnonzero(mask)]))
            constraints.extend(declaration.constraints)
    return sum(terms[1:], terms[0]), constraints


def _check_shape(expression: Expression, n: int, where: str) -> None:
    if not hasattr(expression, "is_dcp"):
        raise ObjectiveError(
            f"{where} returned a {type(expression).__name__}. Return a CVXPY expression of shape ({n},)."
        )
    if expression.shape != (n,):
        raise ObjectiveError(
            f"{where} returned an expression of shape {expression.shape}, '{_show(expression)}'. Return "
            f"one entry per source, shape ({n},); use cp.multiply for products and no cp.sum."
        )


def _check_separable(expression: Expression, n: int, where: str) -> None:
    """Walk down while entries stay separate; n = 1 has nothing to mix."""
    if expression.is_constant() or not expression.args:
        return
    elementwise = isinstance(expression, cp.atoms.elementwise.elementwise.Elementwise)
    named = type(expression).__name__ in _AFFINE
    whole = all(a.is_constant() or a.shape == (n,) for a in expression.args)
    if n > 1 and not ((elementwise or named) and whole):
        culprit = next((a for a in expression.args if not (a.is_constant() or a.shape == (n,))), expression)
        raise ObjectiveError(
            f"{where} is not separable: the term '{_show(culprit)}' mixes sources. Use elementwise atoms "
            f"only (cp.multiply, not * or @; no cp.sum, no indexing)."
        )
    for argument in expression.args:
        _check_separable(argument, n, where)


def _check_curvature(objective: Objective, expression: Expression, where: str) -> None:
    minimised = objective.sense == "minimise"
    if expression.is_convex() if minimised else expression.is_concave():
        return
    wanted, other = ("convex", "concave") if minimised else ("concave", "convex")
    if expression.is_dcp():
        raise ObjectiveError(
            f"{where} is {other} but sense = '{objective.sense}' needs {wanted}: '{_show(expression)}'. "
            f"Change its sign or set sense."
        )
    raise ObjectiveError(
        f"{where} is not {wanted} by the DCP rules: the term '{_show(_culprit(expression))}' has no known "
        "curvature. Rewrite it with CVXPY atoms (cp.inv_pos(rate) for 1/rate, cp.entr, cp.logistic, ...)."
    )


def _culprit(expression: Expression) -> Expression:
    """Return the smallest term without known curvature."""
    for argument in expression.args:
        if not argument.is_dcp():
            return _culprit(argument)
    return expression


def _show(expression: Expression) -> str:
    """Return the term as CVXPY prints it, constants abbreviated, cut to a line."""
    text = " ".join(str(expression).split())
    return text if len(text) <= 90 else text[:87] + "..."
