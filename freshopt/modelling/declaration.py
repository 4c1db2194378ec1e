"""Checked declarations: an objective's CVXPY expression, convex and separable.

The expression is built once; what cannot be used raises ObjectiveError by name. CVXPY checks curvature but
not separability, and a slip such as ``importance * cp.log(rate)`` (a dot product that broadcasts back to the
right shape) would pass unnoticed. So the tree is walked: below the objective only atoms that act entry by
entry may touch the rates, and every constant must be finite numbers, one or one per source.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.autodiff.compiler import SAME, has_rule
from freshopt.cvx import Expression, cp, quiet
from freshopt.errors import FreshoptError, ObjectiveError, list_offenders
from freshopt.modelling.failing_fetches import in_attempts
from freshopt.modelling.objective import Objective
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import BoolArray, IntArray

# Atoms that change shapes alone; what is separable has one entry per source before and after them.
SHAPES = ("Promote", "broadcast_to", "reshape", "transpose")
_AFFINE = ("AddExpression", "NegExpression", "multiply", "DivExpression", *SAME)


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """Checked per-source expression, with its auxiliary constraints."""

    expression: Expression
    constraints: tuple[Expression, ...]


def declare(
    objective: Objective,
    method: Callable[[Expression, Sources], Expression],
    rate: Expression,
    sources: Sources,
) -> Declaration:
    """Build one of the objective's expressions over `rate` and check it.

    - `objective`: Used for its sense and its name.
    - `method`: ``objective.per_source`` or ``objective.signalled_per_source``.
    - `rate` cvxpy expression (n,)
    - raises ObjectiveError if the result is not an expression of shape (n,), not separable, of the wrong
      curvature, or holds constants that are not finite numbers; names the offending term, and the source
      where there is one.
    """
    where = name_of(objective, method)
    if getattr(method, "__func__", None) is Objective.signalled_per_source:
        raise ObjectiveError(
            f"announced changes of {type(objective).__name__} have numerics and no declared form. Use "
            "fo.solve, or write signalled_per_source(rate, sources)."
        )
    own, sources, share = in_attempts(objective, sources, signalled=method == objective.signalled_per_source)
    if own is not objective:
        method = own.signalled_per_source if method == objective.signalled_per_source else own.per_source
    if share is not None:
        rate = cp.multiply(np.array(share), rate)
    expression, constraints = _parts(_written(method, rate, sources, where), where)
    _check_shape(expression, len(sources), where)
    _check_separable(expression, len(sources), where, set())
    _check_constants(expression, sources, where, set())
    variables = {variable.id for variable in rate.variables()}
    auxiliary = {variable.id for constraint in constraints for variable in constraint.variables()}
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
    """Return the objective's total at an affine `rate`, with constraints.

    The total is the sum over the sources; the constraints are those of its cone form.
    """
    terms: list[Expression] = []
    constraints: list[Expression] = []
    for declaration, chosen in _kinds(objective, rate, sources, sources.signalled):
        entries = declaration.expression
        terms.append(cp.sum(entries if len(chosen) == len(sources) else entries[chosen]))
        constraints.extend(declaration.constraints)
    return sum(terms[1:], terms[0]), constraints


def declared_entries(
    objective: Objective, rate: Expression, sources: Sources
) -> tuple[Expression, list[Expression]]:
    """Return the objective of each source at an affine `rate`, with constraints.

    The expression has shape (n,); the constraints are those of its cone form.
    """
    parts: list[Expression] = []
    constraints: list[Expression] = []
    places = []
    for declaration, chosen in _kinds(objective, rate, sources, sources.signalled):
        constraints.extend(declaration.constraints)
        if len(chosen) == len(sources):
            return declaration.expression, constraints
        parts.append(declaration.expression[chosen])
        places.append(chosen)
    return cp.hstack(parts)[np.argsort(np.concatenate(places))], constraints


def declare_part(
    objective: Objective, rate: Expression, sources: Sources, index: IntArray
) -> Expression | None:
    """Return the total over some sources of an objective of all.

    For one that may hold arrays of length n: the expression is declared whole, and each of its
    constants cut. None if it has auxiliary constraints, whose variables cannot be.

    - `rate` cvxpy expression, affine (k,): The rates of these sources.
    - `sources`: All n of them.
    - `index` (k,)
    """
    whole = cp.Variable(len(sources), nonneg=True, name="rate")
    terms: list[Expression] = []
    for declaration, chosen in _kinds(objective, whole, sources, sources.signalled[index]):
        if declaration.constraints:
            return None
        own = rate if len(chosen) == len(index) else rate[chosen]
        terms.append(cp.sum(_cut(declaration.expression, whole, own, index[chosen], {})))
    return sum(terms[1:], terms[0])


def _kinds(
    objective: Objective, rate: Expression, sources: Sources, signalled: BoolArray
) -> Iterator[tuple[Declaration, IntArray]]:
    """Yield declarations of silent and of signalled sources, with their places."""
    for method, mask in ((objective.per_source, ~signalled), (objective.signalled_per_source, signalled)):
        chosen = np.flatnonzero(mask)
        if len(chosen):
            yield declare(objective, method, rate, sources), chosen


def _cut(
    expression: Expression, whole: Expression, part: Expression, index: IntArray, made: dict[int, Expression]
) -> Expression:
    """Return some entries of a separable expression.

    The variable `whole` is replaced by `part`.
    """
    if expression is whole:
        return part
    if id(expression) not in made:
        if expression.is_constant():
            value = expression.value
            array = np.reshape(value.toarray() if hasattr(value, "toarray") else value, -1)
            cut = cp.Constant(array[index] if len(array) == whole.size else array[0])
        else:
            arguments = [_cut(argument, whole, part, index, made) for argument in expression.args]
            if type(expression).__name__ in SHAPES:
                cut = arguments[0]
            else:
                held = [
                    value[index] if isinstance(value, np.ndarray) and value.shape == (whole.size,) else value
                    for value in expression.get_data() or []
                ]
                cut = type(expression)(*arguments, *held) if held else expression.copy(arguments)
        made[id(expression)] = cut
    return made[id(expression)]


def name_of(objective: Objective, method: Callable[[Expression, Sources], Expression]) -> str:
    """Return the name of an objective's declaration, for messages."""
    kind = "signalled_per_source" if method == objective.signalled_per_source else "per_source"
    return getattr(objective, "called", "") or f"{type(objective).__name__}.{kind}"


def _written(
    method: Callable[[Expression, Sources], Any], rate: Expression, sources: Sources, where: str
) -> Any:  # noqa: ANN401 - whatever a user's method returns
    """Call the objective's method; raise ObjectiveError, with its name, for CVXPY's ValueError."""
    with quiet:
        try:
            return method(rate, sources)
        except FreshoptError:
            raise
        except TypeError as error:
            refuse_array(error, where)
            raise
        except ValueError as error:  # CVXPY's word on shapes that do not fit
            raise ObjectiveError(
                f"{where} cannot be built for {len(sources)} sources: {str(error).rstrip('. ')}. Correct the "
                "shapes: scalars, or one entry per source. Arrays that ride along belong into "
                "Sources(columns=...), or are cut by the objective's take(index)."
            ) from error


def refuse_array(error: TypeError, where: str) -> None:
    """Raise ObjectiveError for an array that CVXPY takes for a number."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if frame.f_globals.get("__name__", "").startswith("cvxpy."):
        raise ObjectiveError(
            f"{where} cannot be built: {str(error).rstrip('. ')}. Where cp.power has an exponent for each "
            "source, use fo.power(rate, exponents)."
        ) from error


def _parts(declared: Any, where: str) -> tuple[Expression, list[Expression]]:  # noqa: ANN401
    """Return the expression and its constraints, which must be convex."""
    if not isinstance(declared, tuple):
        return declared, []
    if len(declared) != 2 or not isinstance(declared[1], list | tuple):
        raise ObjectiveError(
            f"{where} returned a tuple of {len(declared)}. Return an expression, or (expression, "
            "constraints)."
        )
    for constraint in declared[1]:
        if not isinstance(constraint, cp.constraints.constraint.Constraint):
            raise ObjectiveError(
                f"{where} returned {constraint!r} among its constraints, which is none. Return CVXPY "
                "constraints on its auxiliary variables."
            )
        if not constraint.is_dcp():
            raise ObjectiveError(
                f"{where} has a constraint that is not convex by the DCP rules: '{show(constraint)}'. Write "
                "it as convex <= concave."
            )
    return declared[0], list(declared[1])


def _check_shape(expression: Expression, n: int, where: str) -> None:
    if not hasattr(expression, "is_dcp"):
        raise ObjectiveError(
            f"{where} returned a {type(expression).__name__}. Return a CVXPY expression of shape ({n},)."
        )
    if expression.shape != (n,):
        raise ObjectiveError(
            f"{where} returned an expression of shape {expression.shape}, '{show(expression)}'. Return "
            f"one entry per source, shape ({n},); use cp.multiply for products and no cp.sum."
        )


def _check_separable(expression: Expression, n: int, where: str, seen: set[int]) -> None:
    """Raise ObjectiveError unless the expression acts entry by entry.

    The walk goes down while entries stay separate; n = 1 has nothing to mix.
    """
    if id(expression) in seen or expression.is_constant() or not expression.args:
        return
    seen.add(id(expression))
    elementwise = isinstance(expression, cp.atoms.elementwise.elementwise.Elementwise)
    known = elementwise or type(expression).__name__ in _AFFINE or has_rule(expression)
    odd = [a for a in expression.args if a.size != n and not (a.size == 1 and a.is_constant())]
    if n > 1 and (odd or not known):
        raise ObjectiveError(
            f"{where} is not separable: the term '{show(odd[0] if odd else expression)}' mixes sources. Use "
            f"elementwise atoms only (cp.multiply, not * or @; no cp.sum, no indexing)."
        )
    for argument in expression.args:
        _check_separable(argument, n, where, seen)


def _check_constants(expression: Expression, sources: Sources, where: str, seen: set[int]) -> None:
    """Raise ObjectiveError for constants that are not finite numbers.

    Constants without a value and divisions by zero raise it too.
    """
    if id(expression) in seen:
        return
    seen.add(id(expression))
    if not expression.is_constant():
        if type(expression).__name__ == "DivExpression" and expression.args[1].is_constant():
            _check_numbers(expression.args[1], sources, where, divisor=True)
        for argument in expression.args:
            _check_constants(argument, sources, where, seen)
        return
    _check_numbers(expression, sources, where, divisor=False)


def _check_numbers(constant: Expression, sources: Sources, where: str, *, divisor: bool) -> None:
    with np.errstate(all="ignore"):
        value = constant.value
    if value is None:
        raise ObjectiveError(f"{where} uses '{show(constant)}', which has no value. Give it one first.")
    array = np.asarray(value.toarray() if hasattr(value, "toarray") else value).reshape(-1)
    if np.iscomplexobj(array):
        raise ObjectiveError(f"{where} uses complex numbers: '{show(constant)}'. Use real ones.")
    bad = np.flatnonzero(array == 0.0) if divisor else np.flatnonzero(~np.isfinite(array))
    if len(bad):
        each = len(array) == len(sources)
        names = list_offenders(f"{sources.label(int(k))}: {array[k]:g}" for k in bad)
        what = f"'{show(constant)}' ({names if each else f'{array[bad[0]]:g}'})"
        problem = "divides by 0" if divisor else "holds a constant that is no finite number"
        raise ObjectiveError(f"{where} {problem}: {what}. Correct these numbers.")


def _check_curvature(objective: Objective, expression: Expression, where: str) -> None:
    minimised = objective.sense == "minimise"
    if expression.is_convex() if minimised else expression.is_concave():
        return
    wanted, other = ("convex", "concave") if minimised else ("concave", "convex")
    if expression.is_dcp():
        raise ObjectiveError(
            f"{where} is {other} but sense = '{objective.sense}' needs {wanted}: '{show(expression)}'. "
            f"Change its sign or set sense."
        )
    raise ObjectiveError(
        f"{where} is not {wanted} by the DCP rules: the term '{show(_culprit(expression))}' has no known "
        "curvature. Rewrite it with CVXPY atoms (cp.inv_pos(rate) for 1/rate, cp.entr, cp.logistic, ...)."
    )


def _culprit(expression: Expression) -> Expression:
    """Return the smallest term without known curvature."""
    for argument in expression.args:
        if not argument.is_dcp():
            return _culprit(argument)
    return expression


def show(expression: Expression) -> str:
    """Return a term as CVXPY prints it, shortened to a line."""
    text = " ".join(str(expression).split())
    return text if len(text) <= 90 else text[:87] + "..."
