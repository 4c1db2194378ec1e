"""Dataframes in their owner's library: who has passed one gets its like."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import numpy as np

from freshopt.heavy import polars

if TYPE_CHECKING:

    class CallersFrame(polars.DataFrame):
        """A dataframe of the library that came in.

        It is told as one of polars, of which it is unless another came in, and has what others can: what
        polars does not know, or knows otherwise than pandas, is not checked.
        """

        __getitem__: Any
        to_dict: Any
        rename: Any
        drop: Any

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of any library
            """Return what another library's dataframe has."""


Owner = TypeVar("Owner")
P = ParamSpec("P")
# The library where none came in.
POLARS = "polars"


def in_library(frame: polars.DataFrame, library: str) -> Any:  # noqa: ANN401 - a dataframe of that library
    """Return a dataframe as one of a library.

    Examples
    --------
    >>> import polars as pl
    >>> in_library(pl.DataFrame({"rate": [0.5]}), "pandas").rate.tolist()
    [0.5]
    """
    if library == POLARS:
        return frame
    if library == "pyarrow":
        return frame.to_arrow()
    import pandas

    return pandas.DataFrame({name: _array(frame[name]) for name in frame.columns})


def framed(
    table: Callable[Concatenate[Owner, P], polars.DataFrame],
) -> Callable[Concatenate[Owner, P], CallersFrame]:
    """Return a method `to_frame` in the library of its object."""

    @wraps(table)
    def to_frame(self: Owner, /, *given: P.args, **named: P.kwargs) -> CallersFrame:
        frame: CallersFrame = in_library(table(self, *given, **named), getattr(self, "library", POLARS))
        return frame

    return cast("Callable[Concatenate[Owner, P], CallersFrame]", to_frame)


def polars_table(made: Any) -> polars.DataFrame:  # noqa: ANN401 - what has a method `to_frame`
    """Return an object's table in polars, whatever its library is."""
    table: polars.DataFrame = inspect.unwrap(type(made).to_frame)(made)
    return table


def _array(column: polars.Series) -> Any:  # noqa: ANN401 - what pandas takes
    """Return a column as pandas has it, without PyArrow."""
    if isinstance(column.dtype, polars.Datetime):
        zone = column.dtype.time_zone
        moments = column.dt.replace_time_zone(None) if zone is None else column.dt.convert_time_zone("UTC")
        array = moments.to_physical().to_numpy().astype(f"datetime64[{column.dtype.time_unit}]")
        import pandas

        return pandas.Series(array) if zone is None else pandas.Series(array).dt.tz_localize("UTC")
    if column.dtype.is_numeric() or column.dtype == polars.Boolean:
        return column.to_numpy()
    return np.array(column.to_list(), dtype=object)
