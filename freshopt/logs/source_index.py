"""Sorted unique source labels, and one integer code per row.

They are made from sources as they stand in a log's rows.

Everything behind the edge works on codes, so that names are compared once. Runs of equal labels are found
first and only their heads are sorted, which for a log of 10⁷ rows written source after source is one pass
over the labels. Names in another order go through a hash table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import IntArray, shape_of

if TYPE_CHECKING:
    import polars

FEW = 100_000  # labels that NumPy sorts in 0.1 s; beyond, the import of polars pays (10 times as fast)


def code_sources(source: npt.ArrayLike) -> tuple[npt.NDArray[Any], IntArray]:
    """Return the sorted unique labels and each row's code.

    A code is the position of the row's label among the labels.

    Parameters
    ----------
    source : array_like of str or int, shape (rows,)
        Names or integers.

    Returns
    -------
    labels : ndarray, shape (n,)
        Sorted; integers by value, names by code point.
    codes : ndarray of int, shape (rows,)

    Raises
    ------
    SourceDataError
        If the entries are neither all names nor all integers.

    Examples
    --------
    >>> labels, codes = code_sources(["b", "b", "a"])
    >>> labels.tolist(), codes.tolist()
    (['a', 'b'], [1, 1, 0])
    """
    rows = _as_labels(source)
    if len(rows) == 0:
        return rows, np.empty(0, dtype=np.int64)
    is_head = np.ones(len(rows), dtype=np.bool_)
    np.not_equal(rows[1:], rows[:-1], out=is_head[1:])
    heads = rows[is_head]
    if heads.dtype.kind not in "iu" and len(heads) > FEW:
        import polars

        labels, of_head = code_names(polars.Series(heads.tolist(), dtype=polars.String))
    else:
        labels, of_head = np.unique(heads, return_inverse=True)
    if labels.dtype.kind == "O":
        labels = labels.astype(np.str_)
    return labels, of_head.astype(np.int64, copy=False)[np.cumsum(is_head) - 1]


def _as_labels(source: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return a vector of integers or of strings, or refuse."""
    shape_of(source, "source")
    rows = np.asarray(source)
    if rows.ndim != 1:
        raise SourceDataError(f"source has shape {rows.shape}. Pass one name or integer per row.")
    if rows.dtype.kind == "U" and not isinstance(source, np.ndarray):
        rows = np.asarray(source, dtype=object)  # a list such as ["a", 1, None] was made into text on the way
    if rows.dtype.kind in "iu" or rows.dtype.kind == "U" or len(rows) == 0:
        return rows
    if rows.dtype.kind == "T":
        return rows.astype(object)
    if rows.dtype.kind == "O":
        kinds = set(map(type, rows.tolist()))
        if all(issubclass(kind, str) for kind in kinds):
            return rows
        if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
            return _as_integers(rows)
        found = " and ".join(sorted(kind.__name__ for kind in kinds))
    else:
        found = str(rows.dtype)
    raise SourceDataError(
        f"source holds {found}. A source is a name or an integer, of one kind in all rows. "
        "Convert the column to str or int, and drop rows without a source."
    )


def _as_integers(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    try:
        return rows.astype(np.int64)
    except OverflowError:
        raise SourceDataError("source holds integers beyond 64 bits. Convert the column to str.") from None


def code_names(column: polars.Series) -> tuple[npt.NDArray[Any], IntArray]:
    """Return sorted labels and row codes of names, by hashing.

    Names may come in any order; a code is the position of the row's label.
    """
    import polars

    labels = column.unique().sort()
    codes = column.cast(polars.Enum(labels)).to_physical().to_numpy()
    return np.asarray(labels.to_list(), dtype=np.str_), codes.astype(np.int64)
