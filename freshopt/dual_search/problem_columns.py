"""Columns of a problem's numerics, for compiled passes."""

from __future__ import annotations

from freshopt.compiled.columns import Columns, column, enabled
from freshopt.modelling.kernel import Kernel, MixedNumerics, Numerics
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array


def columns_of(problem: Problem, numerics: Numerics) -> Columns | None:
    """Return the columns of a problem for compiled passes, or None.

    Its kernels must have demand functions, and loops must be compiled.
    """
    n, signalled = len(problem.sources), isinstance(numerics, MixedNumerics)
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
    if not enabled(n, silent.unit_demand, other):
        return None
    return Columns(
        n,
        silent.unit_demand,
        other,
        problem.sources.signalled if signalled else False,
        column(silent.importance) if silent.demand_parameters is None else 1.0,
        tuple(column(parameter) for parameter in parameters),
        column(problem.sources.refresh_cost),
        column(problem.lower),
        column(problem.upper),
    )


def _parameters(kernel: Kernel) -> tuple[Array, ...]:
    return kernel.parameters if kernel.demand_parameters is None else kernel.demand_parameters
