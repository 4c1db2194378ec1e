"""Constraints of the command line over partitions: by the names of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshopt.errors import SourceDataError, list_offenders
from freshopt.modelling.constraints.budget import Budget
from freshopt.modelling.constraints.constraint import Constraint
from freshopt.modelling.constraints.target import Target
from freshopt.terminal.constraint_options import (
    ConstraintOptions,
    bounds_of,
    budget_of,
    levels_of,
    nested_of,
)
from freshopt.terminal.source_columns import limits_of
from freshopt.terminal.target_grammar import goals_of

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, slots=True, eq=False)
class PartitionColumns:
    """Columns of a folder of Parquet files, of which none is held.

    Attributes
    ----------
    where : str
        What names the files, for messages.
    host : bool
        Whether hosts come from elsewhere.
    """

    files: tuple[Path, ...]
    where: str
    host: bool = False

    def elsewhere(self, column: str) -> bool:
        """Return whether a column is known from elsewhere."""
        return column == "host" and self.host

    def made(self, options: ConstraintOptions, refresh: str | None, time_unit: str) -> list[Constraint]:
        """Return the constraints that the options declare."""
        found: list[Constraint] = [self._budget(text, time_unit) for text in options.budgets]
        if options.nested is not None and options.nested_limits is not None:
            names = levels_of(options.nested)
            whole = [self._kind(name, "--nested").is_integer() for name in names]
            sides = limits_of(options.nested_limits, time_unit)
            limits, reserves = (self._keys(side, whole) for side in sides)
            found.append(nested_of(names, limits, reserves))
        for goal in goals_of(options.targets, refresh, time_unit):
            known = [] if goal.column is None else self._labels(goal.column, goal.everywhere is not None)
            found.append(Target(goal.objective, by=goal.column, name=goal.name, **bounds_of(goal, known)))
        return found

    def _budget(self, text: str, time_unit: str) -> Budget:
        name, what, most, is_file = budget_of(text, time_unit)
        option = f"--budget {name}"
        if is_file:
            raise SourceDataError(
                f"{option}: --engine dask reads costs from columns. Make {what} a column of {self.where}."
            )
        self._kind(what, option, groups=False)
        return Budget(most, cost=what, name=name)

    def _frame(self) -> polars.LazyFrame:
        import polars

        return polars.scan_parquet([str(file) for file in self.files])

    def _kind(self, column: str, what: str, *, groups: bool = True) -> Any:  # noqa: ANN401 - a type of polars
        """Return a column's type."""
        import polars

        if self.elsewhere(column):
            return polars.String()
        if not self.files:
            raise SourceDataError(
                f"{what} names the column '{column}', but there is no table. Pass {self.where}."
            )
        known = self._frame().collect_schema()
        if column not in known:
            raise SourceDataError(
                f"{what}: {self.where} has no column '{column}', it has {list_offenders(list(known))}. "
                "Correct the name, or add the column."
            )
        kind = known[column]
        if groups and (kind.is_float() or kind.is_nested()):
            raise SourceDataError(
                f"{what}: column '{column}' of {self.where} holds {kind}. Write groups as text or integers."
            )
        return kind

    def _labels(self, column: str, wanted: bool) -> list[str]:
        """Return a column's groups as texts, if they are wanted."""
        import polars

        self._kind(column, "--target")
        if not wanted:
            return []
        if self.elsewhere(column):
            raise SourceDataError(
                f"--target by {column}: --hosts lists no groups. Make it a column of {self.where}."
            )
        cells = self._frame().select(polars.col(column).cast(polars.String).unique()).collect()[column]
        return [cell for cell in cells.to_list() if cell]

    @staticmethod
    def _keys(limits: dict[str, float], whole: Sequence[bool]) -> dict[Any, float]:
        """Return limits by groups, integers where a column has integers."""
        if not any(whole):
            return dict(limits)
        return {_as_written(key): value for key, value in limits.items()}


def _as_written(key: str) -> int | str:
    return int(key) if key.removeprefix("-").isdigit() and str(int(key)) == key else key
