"""`PartitionedSources`: sources in Parquet files or a Dask DataFrame.

Nothing is read here but the files' footers. A partition is a few row groups of one file (about a million
rows, one row group at least) or a partition of a Dask DataFrame; `read` fetches the columns that a pass
needs, as an Arrow table, on the worker that runs the pass.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import pa, pq
from freshopt.modelling.objective import Objective
from freshopt.units import check_time_unit

# Rows of a partition: 16 MB per pair of columns, and some 0.1 s of work per pass.
ROWS = 1_000_000
NUMBERS = ("change_rate", "importance", "signalled", "min_rate", "max_rate", "refresh_cost")
UNIT = "time_unit"
KNOWN = (*NUMBERS, "source", "host", UNIT)
# Columns of `Sources` that passes do not carry, and what they take for granted instead.
_UNKNOWN = {
    "changed_cost": "fetches of a fixed cost",
    "success": "fetches that succeed",
    "request_rate": "fetches that wait for no request",
    "stale_while_revalidate": "fetches that wait for no request",
}

# What stands beside columns where sources are gathered.
_GATHERED = ("place", "code")

Table: TypeAlias = Any  # pyarrow.Table
Frame: TypeAlias = Any  # a pandas partition, or the Dask DataFrame itself


@dataclass(frozen=True, slots=True)
class FilePart:
    """Consecutive row groups of a Parquet file.

    - `first`: The row of the file where they begin.
    - `rows`: How many rows they have.
    """

    path: str
    groups: tuple[int, ...]
    first: int
    rows: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionedSources:
    """Sources in partitions, frozen; made by `from_parquet` or `from_dask`.

    Attributes
    ----------
    parts : tuple
        Each a `FilePart`, or a delayed pandas frame.
    labels : tuple of str
        What each partition is called in messages.
    first : tuple of int
        The row of its file where each partition begins.
    rows : tuple of int or None
        Rows of each partition; None where they are not known before a pass.
    columns : tuple of str
        Those of change_rate, importance, signalled, min_rate, max_rate, refresh_cost, source, host and
        time_unit that there are.
    time_unit : str or None
        The unit of the rates; None stands for what a column ``time_unit`` says, else day.
    others : tuple of str
        Further columns, which declared constraints and an objective's `columns` may name.
    """

    parts: tuple[Any, ...]
    labels: tuple[str, ...]
    first: tuple[int, ...]
    rows: tuple[int, ...] | None
    columns: tuple[str, ...]
    time_unit: str | None
    others: tuple[str, ...] = ()

    def __repr__(self) -> str:
        n = "unknown" if self.rows is None else sum(self.rows)
        return f"PartitionedSources(partitions={len(self.parts)}, n={n}, columns={', '.join(self.columns)})"

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        time_unit: str | None = None,
        rows: int = ROWS,
    ) -> PartitionedSources:
        """Return the sources in Parquet files.

        Parameters
        ----------
        path : path or sequence of paths
            Of a folder its ``*.parquet``, by name; hidden files and those that begin with an underscore are
            left out. Every worker must be able to read them there.
        time_unit : str, optional
            The unit of the rates.
        rows : int
            Row groups of a file are taken together up to so many rows.

        Raises
        ------
        SourceDataError
            If there are no files or rows, a file cannot be read, or files have different columns.

        Examples
        --------
        >>> import tempfile
        >>> import polars as pl
        >>> folder = Path(tempfile.mkdtemp())
        >>> pl.DataFrame({"change_rate": [1.0, 4.0]}).write_parquet(folder / "0.parquet")
        >>> PartitionedSources.from_parquet(folder)
        PartitionedSources(partitions=1, n=2, columns=change_rate)
        """
        parts: list[FilePart] = []
        names: list[list[str]] = []
        files = parquet_files(path)
        for file in files:
            metadata = footer(file)
            names.append(metadata.schema.names)
            _require_columns(names[-1], file)
            _require_same(names[-1], names[0], file, files[0])
            parts += _row_groups(str(file), metadata, rows)
        if not parts:
            raise SourceDataError(
                f"no rows are in {list_offenders(map(str, files))}. Write at least one source."
            )
        columns = tuple(name for name in KNOWN if name in names[0])
        common = set.intersection(*map(set, names))
        others = tuple(name for name in names[0] if name in common and name not in KNOWN)
        unit = None if time_unit is None else check_time_unit(time_unit)
        labels, firsts, counts = zip(*((part.path, part.first, part.rows) for part in parts), strict=True)
        return cls(tuple(parts), labels, firsts, counts, columns, unit, others)

    @classmethod
    def from_dask(
        cls, frame: Frame, time_unit: str | None = None, others: Sequence[str] = ()
    ) -> PartitionedSources:
        """Return the sources in a Dask DataFrame.

        It has the columns that `fo.Sources.from_frame` knows.

        Every pass computes the frame's partitions anew unless the frame is persisted.

        Parameters
        ----------
        frame : Dask DataFrame
        time_unit : str, optional
            The unit of the rates.
        others : sequence of str
            Further columns, which declared constraints name.

        Raises
        ------
        SourceDataError
            If it is not a Dask DataFrame, or has no column change_rate.

        Examples
        --------
        >>> import pandas as pd, dask.dataframe as dd
        >>> frame = dd.from_pandas(pd.DataFrame({"change_rate": [1.0, 2.0, 4.0]}), npartitions=2)
        >>> PartitionedSources.from_dask(frame)
        PartitionedSources(partitions=2, n=unknown, columns=change_rate)
        """
        if not hasattr(frame, "to_delayed") or not hasattr(frame, "columns"):
            raise SourceDataError(
                f"{type(frame).__name__} is not a Dask DataFrame. Pass one, or a folder of Parquet files."
            )
        present = tuple(name for name in KNOWN if name in frame.columns)
        _require_columns([str(name) for name in frame.columns], "the Dask DataFrame")
        unit = None if time_unit is None else check_time_unit(time_unit)
        further = tuple(name for name in others if name in frame.columns and name not in KNOWN)
        parts = tuple(frame[[*present, *further]].to_delayed())
        labels = tuple(f"partition {k} of the Dask DataFrame" for k in range(len(parts)))
        return cls(parts, labels, (0,) * len(parts), None, present, unit, further)

    def with_own(self, objective: Objective) -> tuple[str, ...]:
        """Return the columns, and those of its own that an objective reads."""
        clash = [repr(name) for name in objective.columns if name in (*KNOWN, *_GATHERED)]
        if clash:
            raise SourceDataError(f"a column of one's own is named {list_offenders(clash)} here. Rename it.")
        missing = [repr(name) for name in objective.columns if name not in self.others]
        if missing:
            raise SourceDataError(
                f"{type(objective).__name__} reads the column {list_offenders(missing)}, which not all "
                "partitions have. Add it, or pass it in others= of from_dask."
            )
        return (*self.columns, *objective.columns)

    @classmethod
    def from_sources(
        cls, sources: object, time_unit: str | None = None, others: Sequence[str] = ()
    ) -> PartitionedSources:
        """Return sources of any kind in partitions.

        They are partitioned sources, paths, or a Dask DataFrame, of which `others` names further columns.
        """
        if isinstance(sources, PartitionedSources):
            if time_unit not in (None, sources.time_unit):
                raise SourceDataError("the sources have a time_unit of their own. Leave it out here.")
            return sources
        if isinstance(sources, str | os.PathLike | list | tuple):
            return cls.from_parquet(sources, time_unit)
        return cls.from_dask(sources, time_unit, others)


def carried(columns: Iterable[str]) -> list[str]:
    """Return the columns with numbers of sources, one's own among them."""
    return [name for name in columns if name in NUMBERS or name not in KNOWN]


def read(part: FilePart | Frame, columns: Iterable[str], label: str) -> Table:
    """Return columns of a partition as an Arrow table.

    - raises SourceDataError if the file cannot be read.
    """
    wanted = list(columns)
    if not isinstance(part, FilePart):
        return pa.Table.from_pandas(part[wanted], preserve_index=False)
    try:
        with pq.ParquetFile(part.path) as file:
            return file.read_row_groups(list(part.groups), columns=wanted, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(label, error) from None


def parquet_files(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Return the Parquet files of a folder, file or list."""
    if isinstance(path, list | tuple):
        if not path:
            raise SourceDataError("the list of Parquet files is empty. Name at least one.")
        return [file for one in path for file in parquet_files(one)]
    place = Path(str(path)).resolve()
    if not place.exists():
        raise SourceDataError(f"there is no file or folder {path}. Check the path.")
    if not place.is_dir():
        return [place]
    files = sorted(one for one in place.glob("*.parquet") if not one.name.startswith((".", "_")))
    if not files:
        raise SourceDataError(f"{path} holds no *.parquet files. Name a folder of Parquet files.")
    return files


def footer(file: Path) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return a file's metadata: columns, rows, row groups."""
    try:
        return pq.read_metadata(file)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: object, error: Exception) -> SourceDataError:
    reason = " ".join(str(error).split()).rstrip(".")
    return SourceDataError(
        f"{file} cannot be read as Parquet: {reason}. Check that it is a complete Parquet file, "
        "as all that is read in partitions."
    )


def _require_columns(names: list[str], file: object) -> None:
    """Raise SourceDataError unless passes know all columns, change rates among them."""
    if "change_rate" not in names:
        raise SourceDataError(f"{file} has no column 'change_rate', it has {list_offenders(names)}. Add it.")
    for name, known in _UNKNOWN.items():
        if name in names:
            raise SourceDataError(
                f"{file} has a column {name!r}, and solving in partitions knows {known} only. Drop it, "
                "or use fo.solve."
            )


def _require_same(names: list[str], others: list[str], file: object, other: object) -> None:
    """Raise SourceDataError unless two files have the same columns of sources."""
    odd = sorted((set(names) ^ set(others)) & set(KNOWN))
    if odd:
        raise SourceDataError(
            f"{file} and {other} do not both have the columns {list_offenders(odd)}. Write the same in each."
        )


def _row_groups(path: str, metadata: Any, rows: int) -> list[FilePart]:  # noqa: ANN401
    """Return a file's partitions, up to `rows` rows."""
    found: list[FilePart] = []
    groups: list[int] = []
    first = taken = 0
    for k in range(metadata.num_row_groups):
        number = metadata.row_group(k).num_rows
        if groups and taken + number > rows:
            found.append(FilePart(path, tuple(groups), first, taken))
            groups, first, taken = [], first + taken, 0
        groups.append(k)
        taken += number
    if taken:
        found.append(FilePart(path, tuple(groups), first, taken))
    return found
