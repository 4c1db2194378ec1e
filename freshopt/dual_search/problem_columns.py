"""Columns of a problem's numerics, for compiled passes."""

from __future__ import annotations

from functools import partial

from freshopt.compiled.columns import Columns, enabled
from freshopt.modelling.problem import Problem
from freshopt.separable.kernel import Numerics
from freshopt.separable.kernel_columns import kernel_columns, tabled_columns


def columns_of(problem: Problem, numerics: Numerics, *, in_account: bool = False) -> Columns | None:
    """Return the columns of a problem for compiled passes, or None.

    Its kernels must have demand functions, and loops must be compiled. With `in_account` their work is
    entered already.
    """
    own = problem.sources.refresh_cost, problem.lower, problem.upper
    tabled = tabled_columns(Columns, numerics, *own, partial(enabled, in_account=in_account))
    found = tabled or kernel_columns(Columns, numerics, *own)
    if tabled or found is None:
        return tabled
    return found if enabled(found.n, found.formula, found.announced, in_account=in_account) else None
