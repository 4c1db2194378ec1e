"""Constraints over partitions: nested limits, by the names of columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import polars
from freshopt.modelling.constraints.nested import Nested
from freshopt.terminal.constraint_options import ConstraintOptions, levels_of, nested_of
from freshopt.terminal.source_columns import limits_of

_KNOWN = ("--nested", "--nested-limits")


def column_constraints(
    options: ConstraintOptions, files: Sequence[Path], where: str, time_unit: str, *, host: bool = False
) -> list[Nested]:
    """Return the constraints that options declare over Parquet files.

    Parameters
    ----------
    where : str
        What names the files, for messages.
    host : bool
        Whether hosts come from elsewhere.

    Raises
    ------
    SourceDataError
        If an option is none of nested limits, or a column is missing or holds no groups.
    """
    others = [name for name in options.given() if name not in _KNOWN]
    if others:
        raise SourceDataError(
            f"--engine dask does not solve for {list_offenders(others)}, but for nested limits. "
            "Leave it out, or use --engine memory."
        )
    if options.nested is None or options.nested_limits is None:
        return []
    names = levels_of(options.nested)
    inside = [name for name in names if name != "host" or not host]
    whole = bool(inside) and _whole(inside, files, where)
    limits, reserves = (_keys(side, whole) for side in limits_of(options.nested_limits, time_unit))
    return [nested_of(names, limits, reserves)]


def _whole(columns: Sequence[str], files: Sequence[Path], where: str) -> bool:
    """Return whether the groups of any column are integers."""
    if not files:
        raise SourceDataError(
            f"--nested names the column '{columns[0]}', but there is no table. Pass {where}."
        )
    known = polars.scan_parquet([str(file) for file in files]).collect_schema()
    for column in columns:
        if column not in known:
            raise SourceDataError(
                f"--nested: {where} has no column '{column}', it has {list_offenders(list(known))}. "
                "Correct the name, or add the column."
            )
        kind = known[column]
        if kind.is_float() or kind.is_nested():
            raise SourceDataError(
                f"--nested: column '{column}' of {where} holds {kind}. Write groups as text or integers."
            )
    return any(known[column].is_integer() for column in columns)


def _keys(limits: dict[str, float], whole: bool) -> dict[Any, float]:
    """Return limits by groups, integers where a column has integers."""
    if not whole:
        return dict(limits)
    return {_as_written(key): value for key, value in limits.items()}


def _as_written(key: str) -> int | str:
    return int(key) if key.removeprefix("-").isdigit() and str(int(key)) == key else key
