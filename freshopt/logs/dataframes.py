"""Columns of any dataframe (polars, pandas, pyarrow) as arrays.

Zoned times become UTC here, once: libraries disagree on what their arrays of zoned times hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders


def frame_columns(
    frame: Any,  # noqa: ANN401 - any dataframe library's frame
    what: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
) -> dict[str, npt.NDArray[Any]]:
    """Return named columns of a dataframe as arrays.

    Optional ones are returned where they are present.

    Parameters
    ----------
    frame : dataframe
        Of any library that narwhals knows, eager.
    what : str
        The name used in messages.
    required, optional : sequence of str

    Raises
    ------
    SourceDataError
        If this is no dataframe, or a required column is missing.

    Examples
    --------
    >>> import polars as pl
    >>> frame_columns(pl.DataFrame({"time": [0.5], "colour": ["red"]}), "the log", ["time"])
    {'time': array([0.5])}
    """
    import narwhals

    try:
        table = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        raise SourceDataError(
            f"{what} is a {type(frame).__name__}, not a dataframe. Pass one of polars, pandas or pyarrow, "
            "collected where it is lazy."
        ) from None
    missing = [name for name in required if name not in table.columns]
    if missing:
        raise SourceDataError(
            f"{what} has no column {list_offenders(map(repr, missing))}; "
            f"it has {list_offenders(map(repr, table.columns))}. Rename or add the columns."
        )
    found = {}
    for name in (*required, *(name for name in optional if name in table.columns)):
        column = table[name]
        if isinstance(column.dtype, narwhals.Datetime) and column.dtype.time_zone is not None:
            column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        elif isinstance(column.dtype, narwhals.Categorical | narwhals.Enum):
            column = column.cast(narwhals.String())
        found[name] = column.to_numpy()
    return found
