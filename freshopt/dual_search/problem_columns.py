"""Columns of a problem's numerics, for compiled passes."""

from __future__ import annotations

from functools import partial

from freshopt.compiled.columns import Columns, enabled
from freshopt.modelling.problem import Problem
from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.kernel_columns import kernel_columns, tabled_columns


def columns_of(problem: Problem, numerics: Numerics, *, counted: bool = False) -> Columns | None:
    """Return the columns of a problem for compiled passes, or None.

    Its kernels must have demand functions, and loops must be compiled. `counted` work is in the account.
    """
    own = problem.sources.refresh_cost, problem.lower, problem.upper
    if isinstance(numerics, Kernel) and numerics.tables_of is not None:
        return tabled_columns(Columns, numerics, *own, partial(enabled, counted=counted))
    found = kernel_columns(Columns, numerics, *own)
    if found is None or not enabled(found.n, found.formula, found.announced, counted=counted):
        return None
    return found
