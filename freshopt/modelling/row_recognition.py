"""`recognise`: rows from plain CVXPY constraints.

A constraint is walked down from its top through what mixes sources (sums, products with constant matrices,
signs, scalings, selections ``rate[index]``) until what is left acts source by source: the rate itself, or an
elementwise function of it, which is compiled like an objective. The walk yields a sparse matrix for each such
function. What couples sources in another way (a norm, a maximum over sources) is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from freshopt.autodiff.compiler import SAME, UnknownAtomError, compile_expression, has_rule
from freshopt.autodiff.tape import Tape
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError
from freshopt.modelling.constraints.separable_atoms import as_sum, without_outer
from freshopt.modelling.declaration import show
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.separable.derived_kernel import DerivedNumerics, same_numerics
from freshopt.separable.kernel import Numerics
from freshopt.separable.rows import RowBlock

SELECTIONS = ("index", "special_index")


class UnknownCouplingError(ObjectiveError):
    """Constraint that couples sources in a way that has no rows.

    `Conic` solves such a problem, unproved.
    """


class Part(NamedTuple):
    """Entries row, source, coefficient of one elementwise function.

    ``function`` is an elementwise expression over ``rate``, or that itself; ``position`` is the source's
    entry in it.
    """

    row: IntArray
    source: IntArray
    position: IntArray
    coefficient: Array
    function: Expression
    rate: Expression


class Walked(NamedTuple):
    """Affine combination of elementwise functions, plus constants, shape (rows,)."""

    parts: tuple[Part, ...]
    constant: Array


def recognise(constraint: Expression, rate: Expression, sources: Sources, label: str) -> list[RowBlock]:
    """Return the rows of a CVXPY inequality on `rate`.

    - `rate` cvxpy.Variable (n,)
    - `label`: Its name in messages and prices.
    - raises ObjectiveError if it is not convex, holds other variables, or is no inequality.
    - raises UnknownCouplingError if it couples sources by a term that is no sum of functions of single
      sources.
    """
    exactly = _check(constraint, rate, label)
    walked = _walk(without_outer(constraint).expr, rate, label)
    count = len(walked.constant)
    curves: list[Numerics] = []
    columns: list[tuple[IntArray, IntArray, IntArray, Array]] = []
    for part in walked.parts:
        kind = 0
        coefficient = part.coefficient
        if part.function is not rate:
            curve, sign = _curve(part, sources, label)
            coefficient = sign * coefficient
            known = [t for t, other in enumerate(curves, start=1) if same_numerics(curve, other)]
            if not known:
                curves.append(curve)
            kind = known[0] if known else len(curves)
        columns.append((part.source, part.row, np.full(len(part.row), kind), coefficient))
    if not columns:
        raise ObjectiveError(f"{named(label)} does not depend on the rates: '{show(constraint)}'. Drop it.")
    source, row, kinds, coefficients = (np.concatenate(column) for column in zip(*columns, strict=True))
    key = (source * (1 + len(curves)) + kinds) * count + row
    _, head, inverse = np.unique(key, return_index=True, return_inverse=True)
    merged = np.bincount(inverse, weights=coefficients, minlength=len(head)).astype(np.float64)
    kept = head[merged != 0.0]
    linear = np.bincount(row[kept], weights=kinds[kept] > 0, minlength=count) == 0.0
    falling = np.bincount(row[kept], weights=merged[merged != 0.0] > 0.0, minlength=count) == 0.0
    direction = np.where(linear & falling, -1.0, 1.0)  # written as reserves, Σ a·ρ >= b
    found = RowBlock(
        label,
        (None,) if count == 1 else tuple(range(count)),
        source[kept],
        row[kept],
        kinds[kept],
        merged[merged != 0.0],
        tuple(curves),
        -walked.constant,
        direction,
        np.zeros(count),
    )
    return _both(found, bool(np.all(linear)), constraint) if exactly else [found]


def named(label: str) -> str:
    """Return how messages name a constraint."""
    return label if label.startswith("constraint ") else f"constraint {label!r}"


def _both(found: RowBlock, linear: bool, constraint: Expression) -> list[RowBlock]:
    """Return a budget and a reserve of each exact sum."""
    sign = np.sign(found.coefficient[np.unique(found.row, return_index=True)[1]])
    if not linear or bool(np.any(np.sign(found.coefficient) != sign[found.row])):
        raise UnknownCouplingError(
            f"{named(found.name)} is no inequality: '{show(constraint)}'. Write <= or >=; equal rates are "
            "fo.Tied."
        )
    most = replace(found, coefficient=np.abs(found.coefficient), limits=sign * found.limits)
    most = replace(most, direction=np.ones(len(found)))
    least = replace(most, coefficient=-most.coefficient, limits=-most.limits, direction=-most.direction)
    return [most, replace(least, name=f"{found.name} reserve")]


def _check(constraint: Expression, rate: Expression, label: str) -> bool:
    """Return whether a constraint is an equation.

    Raise ObjectiveError unless it is convex, and of the rates alone.
    """
    foreign = [v.name() for v in constraint.variables() if v.id != rate.id]
    if foreign:
        raise ObjectiveError(
            f"{named(label)} uses the variable '{foreign[0]}', which is no rate. Use the given rate alone."
        )
    empty = [p.name() for p in constraint.parameters() if p.value is None]
    if empty:
        raise ObjectiveError(
            f"{named(label)} uses the parameter '{empty[0]}', which has no value. Give it one first."
        )
    if not constraint.is_dcp():
        raise ObjectiveError(
            f"{named(label)} is not convex by the DCP rules: '{show(constraint)}'. Write it as convex "
            "<= concave."
        )
    if type(constraint).__name__ == "Equality":
        return True
    if type(constraint).__name__ not in ("Inequality", "NonPos", "NonNeg"):
        raise UnknownCouplingError(
            f"{named(label)} is no inequality: '{show(constraint)}'. Write <= or >=; equal rates are fo.Tied."
        )
    return False


def _walk(expression: Expression, rate: Expression, label: str) -> Walked:
    """Return an expression as a combination of elementwise functions."""
    size, arguments = expression.size, expression.args
    if expression.ndim > 1:
        raise UnknownCouplingError(
            f"{named(label)} has a term of shape {expression.shape}: '{show(expression)}'. Use vectors."
        )
    if expression.is_constant():
        return Walked((), np.broadcast_to(_numbers(expression), (size,)))
    if expression is rate:
        every = np.arange(size)
        return Walked((Part(every, every, every, np.ones(size), expression, expression),), np.zeros(size))
    kind, summed = type(expression).__name__, as_sum(expression)
    if summed is not None:
        return _walk(summed, rate, label)
    if kind == "AddExpression":
        return _added([_promoted(_walk(argument, rate, label), size) for argument in arguments])
    if kind == "NegExpression":
        return _scaled(_walk(arguments[0], rate, label), np.full(size, -1.0))
    if kind in SAME:
        return _promoted(_walk(arguments[0], rate, label), size)
    if kind in ("multiply", "DivExpression") and arguments[1].is_constant():
        factor = np.broadcast_to(_numbers(arguments[1]), (size,))
        inner = _promoted(_walk(arguments[0], rate, label), size)
        return _scaled(inner, 1.0 / factor if kind == "DivExpression" else factor)
    if kind == "multiply" and arguments[0].is_constant():
        inner = _promoted(_walk(arguments[1], rate, label), size)
        return _scaled(inner, np.broadcast_to(_numbers(arguments[0]), (size,)))
    if kind == "MulExpression" and any(argument.is_constant() for argument in arguments):
        first, second = arguments
        inner = _walk(second if first.is_constant() else first, rate, label)
        matrix = _matrix(first, size) if first.is_constant() else _matrix(second.T, size)
        return _multiplied(matrix, inner)
    if kind == "Sum" and size == 1:
        inner = _walk(arguments[0], rate, label)
        return Walked(
            tuple(part._replace(row=np.zeros(len(part.row), dtype=np.int64)) for part in inner.parts),
            np.array([math.fsum(inner.constant)]),
        )
    if kind in SELECTIONS:
        inner = _walk(arguments[0], rate, label)
        return _chosen(inner, _places(expression))
    if kind in ("Hstack", "Concatenate"):
        return _stacked([_walk(argument, rate, label) for argument in arguments])
    return _leaf(expression, rate, label)


def _leaf(expression: Expression, rate: Expression, label: str) -> Walked:
    """Return an elementwise function of some of the rates as one part."""
    size = expression.size
    index = _selected(expression, rate, size, label)
    rows = np.arange(size)
    if len(np.unique(index)) < size:
        raise UnknownCouplingError(
            f"{named(label)} takes a source twice in the term '{show(expression)}'. Take each source once."
        )
    part = Part(rows, index, rows, np.ones(size), expression, rate)
    return Walked((part,), np.zeros(size))


def _selected(expression: Expression, rate: Expression, size: int, label: str) -> IntArray:
    """Return the sources that an elementwise expression is a function of.

    - raises UnknownCouplingError if an entry depends on more than one source.
    """
    if expression is rate:
        return np.arange(rate.size)
    kind, arguments = type(expression).__name__, expression.args
    if kind in SELECTIONS and arguments[0] is rate:
        return _places(expression)
    elementwise = isinstance(expression, cp.atoms.elementwise.elementwise.Elementwise)
    known = elementwise or kind in ("AddExpression", "NegExpression", "multiply", "DivExpression", *SAME)
    varying = [argument for argument in arguments if not argument.is_constant()]
    if not (known or has_rule(expression)) or any(argument.size != size for argument in varying):
        raise UnknownCouplingError(
            f"{named(label)} couples sources by the term '{show(expression)}', which is no sum of "
            "functions of single sources. Write it with sums, products with constants and elementwise atoms."
        )
    found = [_selected(argument, rate, size, label) for argument in varying]
    if any(not np.array_equal(found[0], other) for other in found[1:]):
        raise UnknownCouplingError(
            f"{named(label)} couples different sources in the term '{show(expression)}'. Use one "
            "selection of rates in each elementwise term."
        )
    return found[0]


def _places(selection: Expression) -> IntArray:
    """Return the entries of its argument that a selection takes."""
    key = selection.key
    if isinstance(key, tuple) and isinstance(key[0], slice) and (key[0].step or 1) < 0 and key[0].stop == -1:
        key = (slice(key[0].start, None, key[0].step),)  # CVXPY counts down to -1, which to NumPy is the end
    places: IntArray = np.reshape(np.arange(selection.args[0].size)[key], -1)
    return places


def _curve(part: Part, sources: Sources, label: str) -> tuple[Numerics, float]:
    """Return an elementwise function as numerics, and its sign.

    The numerics are those of all sources; the sign is −1 of a concave function.
    """
    function, n = part.function, len(sources)
    where = _selected(function, part.rate, function.size, label)
    own = cp.Variable(len(where), nonneg=True, name="rate")
    try:
        node = compile_expression(_over(function, part.rate, own, {}), own)
    except UnknownAtomError as error:
        raise UnknownCouplingError(f"{named(label)}: {error}") from None
    if (isinstance(node, Tape) and len(where) < n) or not np.array_equal(where, np.arange(n)):
        constants = tuple(_scattered(constant, where, n) for constant in node.constants)
        node = replace(node, constants=constants)
    sign = 1.0 if function.is_convex() else -1.0
    return DerivedNumerics(node, sign, sources.scale), sign


def _scattered(constant: Array, where: IntArray, n: int) -> Array:
    """Return a constant of some sources as one of all, repeated elsewhere."""
    if constant.ndim == 0:
        return constant
    every = np.full(n, constant[0])
    every[where] = constant
    return every


def _over(
    expression: Expression, rate: Expression, own: Expression, made: dict[int, Expression]
) -> Expression:
    """Return an elementwise expression over `own` in place of the rates."""
    selection = type(expression).__name__ in SELECTIONS and expression.args[0] is rate
    if expression is rate or selection:
        return own
    if expression.is_constant():
        return expression
    if id(expression) not in made:
        made[id(expression)] = expression.copy(
            [_over(argument, rate, own, made) for argument in expression.args]
        )
    return made[id(expression)]


def _added(terms: Sequence[Walked]) -> Walked:
    return Walked(
        tuple(part for term in terms for part in term.parts),
        np.sum([term.constant for term in terms], axis=0),
    )


def _scaled(walked: Walked, factor: Array) -> Walked:
    parts = (part._replace(coefficient=part.coefficient * factor[part.row]) for part in walked.parts)
    return Walked(tuple(parts), walked.constant * factor)


def _promoted(walked: Walked, size: int) -> Walked:
    """Return a single entry repeated; what has the size stays."""
    if len(walked.constant) == size:
        return walked
    return _chosen(walked, np.zeros(size, dtype=np.int64))


def _chosen(walked: Walked, chosen: IntArray) -> Walked:
    """Return some of the rows, perhaps one several times."""
    return _multiplied(_Entries(np.arange(len(chosen)), chosen, np.ones(len(chosen)), len(chosen)), walked)


def _stacked(terms: Sequence[Walked]) -> Walked:
    starts = np.cumsum([0, *(len(term.constant) for term in terms)])
    parts = [p._replace(row=p.row + starts[k]) for k, term in enumerate(terms) for p in term.parts]
    return Walked(tuple(parts), np.concatenate([term.constant for term in terms]))


def _multiplied(matrix: _Entries, walked: Walked) -> Walked:
    """Return a constant matrix times a combination, entry by entry."""
    order = np.argsort(matrix.column, kind="stable")
    first = np.searchsorted(matrix.column[order], np.arange(len(walked.constant) + 1))
    parts = []
    for part in walked.parts:
        counts = np.diff(first)[part.row]
        mine = np.repeat(np.arange(len(part.row)), counts)
        start = np.cumsum(counts) - counts
        entry = order[np.repeat(first[part.row] - start, counts) + np.arange(int(counts.sum()))]
        parts.append(
            part._replace(
                row=matrix.row[entry],
                source=part.source[mine],
                position=part.position[mine],
                coefficient=part.coefficient[mine] * matrix.value[entry],
            )
        )
    products = matrix.value * walked.constant[matrix.column]
    return Walked(
        tuple(parts), np.bincount(matrix.row, weights=products, minlength=matrix.rows).astype(float)
    )


class _Entries(NamedTuple):
    """Entries of a constant matrix."""

    row: IntArray
    column: IntArray
    value: Array
    rows: int


def _matrix(constant: Expression, rows: int) -> _Entries:
    """Return the nonzero entries of a constant matrix or row."""
    value = constant.value
    if hasattr(value, "tocoo"):
        sparse = value.tocoo()
        return _Entries(
            sparse.row.astype(np.int64), sparse.col.astype(np.int64), np.asarray(sparse.data, float), rows
        )
    dense = np.asarray(value, dtype=np.float64).reshape(rows, -1)
    row, column = np.nonzero(dense)
    return _Entries(row, column, dense[row, column], rows)


def _numbers(expression: Expression) -> Array:
    value = expression.value
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=np.float64).reshape(-1)
