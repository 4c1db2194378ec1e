"""Costs of fetches that find a change, as options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np

from freshopt.logs.schema import CHANGED_COSTS, Table, column_of
from freshopt.numerics.arrays import Array
from freshopt.terminal.constraint_options import ConstraintOptions

COLUMN = "changed_cost"
# What stands in place of what does not go with such costs.
_ALONE = "planned for under --bandwidth, bounds and --host-limits alone"


def changed_costs(
    number: float | None, path: Path | None, constraints: ConstraintOptions
) -> Callable[[Any], Array] | None:
    """Return the function from source names to their costs, or None.

    Parameters
    ----------
    number : float or None
        Of --changed-cost, for all sources.
    path : Path or None
        Of --source-columns, which may have the column.
    constraints : ConstraintOptions
        With which such costs do not go.
    """
    column = path is not None and COLUMN in Table.read(path).frame.columns
    if number is None and not column:
        return None
    what = "--changed-cost" if number is not None else f"the column {COLUMN} of {path}"
    if number is not None and column:
        raise click.UsageError(f"{what} is for all sources, and {path} has a column {COLUMN}. Give one.")
    if number is not None and not 0.0 <= number < np.inf:
        raise click.UsageError(f"--changed-cost {number:g} is no number >= 0. Give such as 20.")
    constraints.require_none(f"does not go with {what}, {_ALONE}")
    if number is not None or path is None:
        return lambda names: np.full(len(names), number)
    return column_of(path, CHANGED_COSTS)


def require_plain_plan(given: Mapping[str, bool]) -> None:
    """Raise UsageError if an option is given that knows no such costs."""
    for option, there in given.items():
        if there:
            raise click.UsageError(
                f"{option} does not go with costs of what has changed, {_ALONE}. Leave one of them out."
            )
