"""Columns of kernels, for compiled demand and for compiled proofs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from freshopt.compiled.columns import Columns, column
from freshopt.compiled.penalty_tables import TableCell
from freshopt.compiled.proof_columns import ProofColumns
from freshopt.numerics.arrays import Array
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics

Made = TypeVar("Made", bound=Columns | ProofColumns)


def kinds_of(numerics: Numerics | None) -> tuple[Any, ...]:
    """Return the numerics of silent sources, and of any signalled ones."""
    if isinstance(numerics, MixedNumerics):
        return numerics.silent_sources, numerics.signalled_sources
    return (numerics,)


def kernel_columns(
    kind: type[Made], numerics: Numerics | None, cost: Array, lower: Array, upper: Array
) -> Made | None:
    """Return the columns of kernels that have formulas for them, or None."""
    demand, kernels = issubclass(kind, Columns), kinds_of(numerics)
    formulas: list[Any] = [getattr(each, "unit_demand" if demand else "unit_proof", None) for each in kernels]
    if None in formulas:
        return None
    if not share_parameters(*kernels, demand=demand):
        return None
    parameters = parameters_of(kernels[0], demand=demand)
    weighted = demand and kernels[0].demand_parameters is not None
    return kind(
        len(cost),
        formulas[0],
        formulas[1] if len(kernels) > 1 else None,
        numerics.signalled if isinstance(numerics, MixedNumerics) else False,
        1.0 if weighted else column(kernels[0].importance),
        tuple(map(column, parameters)),
        column(cost),
        column(lower),
        column(upper),
    )


def tabled_columns(
    kind: type[Made],
    numerics: Numerics | None,
    cost: Array,
    lower: Array,
    upper: Array,
    enabled: Callable[..., bool],
) -> Made | None:
    """Return the columns of many sources whose kernels have tables, or None.

    `enabled` says of the number of sources and formulas whether loops are.
    """
    n, demand, kernels = len(cost), issubclass(kind, Columns), kinds_of(numerics)
    if not all(isinstance(each, Kernel) and each.tables_of is not None for each in kernels):
        return None
    cells: list[TableCell] = [each.table_cell for each in kernels]
    formulas: list[Any] = [cell.demand if demand else cell.proof for cell in cells]
    if (len(cells) > 1 and cells[1].silent != cells[0]) or not enabled(n, *formulas):
        return None
    tables = kernels[-1].tables_of(n)
    if tables is None:
        return None
    own = *map(column, kernels[0].parameters[: cells[0].takes]), tables.response if demand else tables.values
    return kind(
        n,
        formulas[0],
        formulas[1] if len(kernels) > 1 else None,
        numerics.signalled if isinstance(numerics, MixedNumerics) else False,
        column(kernels[0].importance),
        own,
        column(cost),
        column(lower),
        column(upper),
    )


def share_parameters(first: Kernel, *others: Kernel, demand: bool = True) -> bool:
    """Return whether kernels read the same arrays, in the same order."""
    known = [id(each) for each in parameters_of(first, demand=demand)]
    return all([id(each) for each in parameters_of(other, demand=demand)] == known for other in others)


def parameters_of(kernel: Kernel, *, demand: bool = True) -> tuple[Array, ...]:
    """Return what a kernel's demand function takes, or its proof."""
    own = kernel.demand_parameters if demand else kernel.proof_parameters
    return kernel.parameters if own is None else own
