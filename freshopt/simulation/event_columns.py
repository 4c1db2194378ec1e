"""Columns of recorded events: sources and times, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs.source_index import code_sources
from freshopt.numerics.arrays import Array, IntArray, label_array


def columns_of(events: Any) -> tuple[npt.NDArray[Any], Array]:  # noqa: ANN401 - any dataframe library's frame
    """Return the sources and times of a frame or mapping."""
    if isinstance(events, dict):
        columns, given = events, list(events)
    else:
        import narwhals

        table = narwhals.from_native(events, eager_only=True)
        given = table.columns
        columns = {key: table[key].to_numpy() for key in ("source", "time") if key in given}
    missing = [f"'{key}'" for key in ("source", "time") if key not in columns]
    if missing:
        raise SourceDataError(f"the events have no column {list_offenders(missing)}. Add it.")
    source, time = np.asarray(columns["source"]), np.asarray(columns["time"])
    if source.ndim != 1 or source.shape != time.shape:
        raise SourceDataError(f"source has shape {source.shape} and time {time.shape}. Give each event both.")
    if time.dtype.kind not in "iuf" or not np.isfinite(time).all():
        found = f"holds {time.dtype}" if time.dtype.kind not in "iuf" else "is not finite in some rows"
        raise SourceDataError(f"time of the events {found}. Pass numbers in the time unit.")
    return source, time.astype(np.float64)


def codes_of(source: npt.NDArray[Any], names: npt.ArrayLike | None) -> tuple[npt.NDArray[Any], IntArray]:
    """Return the sources' names and each event's position among them."""
    found, codes = (
        code_sources(source) if source.dtype.kind == "O" else np.unique(source, return_inverse=True)
    )
    if names is None:
        return found, codes.astype(np.int64)
    labels = label_array(names)
    order = np.argsort(labels, kind="stable")
    if len(labels) == 0 or (labels[order][1:] == labels[order][:-1]).any():
        raise SourceDataError("names is empty or has one name twice. Pass each source once.")
    at = np.minimum(np.searchsorted(labels[order], found), len(labels) - 1)
    unknown = labels[order][at] != found
    if unknown.any():
        raise SourceDataError(
            f"events name sources that names does not: {list_offenders(map(repr, found[unknown].tolist()))}. "
            "Add them to names, or drop their events."
        )
    return labels, order[at][codes].astype(np.int64)
