"""Columns of a problem's numerics, for compiled passes."""

from __future__ import annotations

from freshopt.compiled.columns import Columns, column, enabled
from freshopt.compiled.penalty_tables import tables_for
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array
from freshopt.separable.kernel import Kernel, MixedNumerics, Numerics


def columns_of(problem: Problem, numerics: Numerics, *, counted: bool = False) -> Columns | None:
    """Return the columns of a problem for compiled passes, or None.

    Its kernels must have demand functions, and loops must be compiled. `counted` work is in the account.
    """
    if isinstance(numerics, Kernel) and numerics.tables_of is not None:
        return tabled_columns(problem, numerics, counted=counted)
    found = numerics_columns(numerics, problem.sources.refresh_cost, problem.lower, problem.upper)
    if found is None or not enabled(found.n, found.formula, found.announced, counted=counted):
        return None
    return found


def tabled_columns(problem: Problem, kernel: Kernel, *, counted: bool = False) -> Columns | None:
    """Return the columns of many sources whose kernel has tables, or None."""
    n = len(problem.sources)
    if kernel.tables_of is None:
        return None
    cell = kernel.table_cell
    tables = tables_for(n, kernel.tables_of, lambda: enabled(n, cell.demand, counted=counted))
    if tables is None:
        return None
    return Columns(
        n,
        cell.demand,
        None,
        False,
        column(kernel.importance),
        (*map(column, kernel.parameters[: cell.takes]), tables.response),
        column(problem.sources.refresh_cost),
        column(problem.lower),
        column(problem.upper),
    )


def numerics_columns(numerics: Numerics, cost: Array, lower: Array, upper: Array) -> Columns | None:
    """Return the columns of kernels that have demand functions, or None."""
    silent = numerics.silent_sources if isinstance(numerics, MixedNumerics) else numerics
    announced = numerics.signalled_sources if isinstance(numerics, MixedNumerics) else None
    if not isinstance(silent, Kernel) or silent.unit_demand is None:
        return None
    parameters, other = _parameters(silent), None
    if announced is not None:
        if not isinstance(announced, Kernel) or announced.unit_demand is None:
            return None
        if not all(a is b for a, b in zip(_parameters(announced), parameters, strict=True)):
            return None
        other = announced.unit_demand
    return Columns(
        len(cost),
        silent.unit_demand,
        other,
        numerics.signalled if isinstance(numerics, MixedNumerics) else False,
        column(silent.importance) if silent.demand_parameters is None else 1.0,
        tuple(column(parameter) for parameter in parameters),
        column(cost),
        column(lower),
        column(upper),
    )


def _parameters(kernel: Kernel) -> tuple[Array, ...]:
    return kernel.parameters if kernel.demand_parameters is None else kernel.demand_parameters
