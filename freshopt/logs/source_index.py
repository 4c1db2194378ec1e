"""Sorted unique source labels, and one integer code per row.

They are made from sources as they stand in a log's rows.

Everything behind the edge works on codes, so that names are compared once. Runs of equal labels are found
first and only their heads are sorted, which for a log of 10⁷ rows written source after source is one pass
over the labels. Names in another order go through a hash table, and their rows are sorted by counting.

Of labels that are URLs, `hosts_of_urls` reads the hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.compiled.backend import compiled, fast
from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import polars
from freshopt.logs import row_loops
from freshopt.numerics.arrays import (
    Array,
    IntArray,
    are_text,
    as_objects,
    chunks,
    is_listed_text,
    label_array,
    shape_of,
)

Codes: TypeAlias = npt.NDArray[np.int32]

# Rows from which names are told apart by hashes, and rows sorted by counting, in compiled loops: a log of so
# many is learnt from by compiled loops too.
MANY = 1_000_000
# Rows whose hashes are in memory at once, and slots of the table of labels at first, as a power of two.
TOGETHER, BITS = 2**20, 16
FEW = 100_000  # labels that NumPy sorts in 0.1 s; beyond, the import of polars pays (10 times as fast)


def code_sources(source: npt.ArrayLike) -> tuple[npt.NDArray[Any], IntArray]:
    """Return the sorted unique labels and each row's code.

    A code is the position of the row's label among the labels.

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
    names = _in_utf8(heads) if heads.dtype.kind not in "iu" and len(heads) > FEW else None
    labels: npt.NDArray[Any]
    of_head: npt.NDArray[Any]
    if names is not None:
        labels, of_head = code_names(names)
    else:
        labels, of_head = np.unique(heads, return_inverse=True)
    if labels.dtype.kind == "O":
        labels = _texts(labels.tolist())
    return labels, of_head.astype(np.int64, copy=False)[np.cumsum(is_head) - 1]


def _in_utf8(names: npt.NDArray[Any]) -> polars.Series | None:
    """Return names as text, None if one has a lone surrogate."""
    try:
        return polars.Series(names.tolist(), dtype=polars.String)
    except UnicodeEncodeError:
        return None


def _texts(labels: list[str]) -> npt.NDArray[Any]:
    """Return labels as an array.

    It would drop zero bytes at their ends.
    """
    zeros = [label for label in labels if label.endswith("\0")]
    if zeros:
        raise SourceDataError(
            f"source {list_offenders(map(repr, zeros))} ends in a zero byte. Leave the zero bytes out."
        )
    return label_array(labels)


def _as_labels(source: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return a vector of integers or of strings, or refuse."""
    shape_of(source, "source")
    rows = as_objects(source) if is_listed_text(source) else np.asarray(source)
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


def code_names(column: polars.Series) -> tuple[npt.NDArray[Any], Codes]:
    """Return sorted labels and row codes of unordered names, by hashing."""
    labels, codes = ranked_names(column)
    return _texts(labels.to_list()), codes


def ranked_names(column: polars.Series) -> tuple[polars.Series, Codes]:
    """Return what `code_names` does, the labels as a column."""
    if len(column) >= MANY:
        hashed = _by_hashes(column)
        if hashed is not None:
            return hashed
    labels = column.unique().sort()
    codes = column.cast(polars.Enum(labels)).to_physical().to_numpy()
    return labels, codes.astype(np.int32)


def _by_hashes(column: polars.Series) -> tuple[polars.Series, Codes] | None:
    """Return what `ranked_names` does, from two hashes, or None."""
    if compiled():
        coded = _by_table(column)
        if coded is None:
            return None
        one, codes = coded
    else:
        first, second = (column.hash(seed=seed).to_numpy() for seed in (0, 1))
        _, one, inverse = np.unique(first, return_index=True, return_inverse=True)
        codes = inverse.astype(np.int32)
        if not np.array_equal(second[one][codes], second):
            return None
    labels = column.gather(one)
    order = labels.arg_sort().to_numpy()
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    for part in chunks(len(codes)):
        codes[part] = rank[codes[part]]
    return labels.gather(order), codes


def _by_table(column: polars.Series) -> tuple[IntArray, Codes] | None:
    """Return a row of each label, and each row's label.

    Labels are in the order in which they appear. None where two labels share the first hash.
    """
    codes, known, bits = np.empty(len(column), dtype=np.int32), 0, BITS
    table = row_loops.LabelTable.empty(bits)
    for part in chunks(len(column), TOGETHER):
        rows = column.slice(part.start, part.stop - part.start)
        first, second = (rows.hash(seed=seed).to_numpy() for seed in (0, 1))
        done, own = 0, codes[part]
        while True:
            more, known = fast(row_loops.code_hashes)(
                first[done:], second[done:], part.start + done, known, bits, table, own[done:]
            )
            done += more
            if done == len(own):
                break
            if 2 * known < 1 << bits:
                return None
            bits += 2
            larger = row_loops.LabelTable.empty(bits)
            fast(row_loops.refill)(table, bits, larger)
            table = larger
    return table.rows[:known], codes


def code_integers(numbers: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Codes]:
    """Return the sorted unique integers and each row's code.

    Where they lie close together each has a place in a table, and nothing is sorted.

    Examples
    --------
    >>> labels, codes = code_integers(np.array([7, 5, 5, 8]))
    >>> labels.tolist(), codes.tolist()
    ([5, 7, 8], [1, 0, 0, 2])
    """
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= len(numbers):
        labels, inverse = np.unique(numbers, return_inverse=True)
        return labels, inverse.astype(np.int32)
    there, codes = np.zeros(high - low + 1, dtype=np.bool_), np.empty(len(numbers), dtype=np.int32)
    for part in chunks(len(numbers)):
        # Integers wrap: the bits are those of the difference, which 32 of them hold.
        codes[part] = numbers[part].astype(np.int32) - np.array(low).astype(np.int32)
        there[codes[part]] = True
    labels = np.flatnonzero(there)
    if len(labels) < len(there):
        rank = np.cumsum(there, dtype=np.int32) - np.int32(1)
        for part in chunks(len(codes)):
            codes[part] = rank[codes[part]]
    return (labels + low).astype(numbers.dtype), codes


def sorted_rows(codes: Codes, time: Array, n: int) -> tuple[IntArray, Codes, Array]:
    """Return the order of rows by source, then by time.

    Equal rows stay as they stand.

    Examples
    --------
    >>> sorted_rows(np.array([1, 0, 1], dtype=np.int32), np.array([5.0, 7.0, 2.0]), 2)[0]
    array([1, 2, 0])
    """
    rows = len(codes)
    if rows < MANY or not compiled():
        order: IntArray = np.lexsort((time, codes)).astype(np.int64, copy=False)
        return order, codes[order], time[order]
    offsets = np.zeros(n + 1, dtype=np.int64)
    order, own, later = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int32), np.empty(rows)
    # Logs that were written as crawls took place have each source's rows in order by now.
    if fast(row_loops.order_rows)(codes, time, offsets, order, later, own):
        late = later[1:] < later[:-1]
        late &= own[1:] == own[:-1]
        mixed = np.zeros(n, dtype=np.bool_)
        mixed[own[:-1][late]] = True
        where = np.flatnonzero(mixed[own])
        order[where] = order[where][np.lexsort((later[where], own[where]))]
        later[where] = time[order[where]]
    return order, own, later


def alike_rows(row: IntArray, columns: Iterable[npt.NDArray[Any]]) -> IntArray:
    """Return which of some rows are the row before, in all columns."""
    alike = np.ones(len(row), dtype=np.bool_)
    for column in columns:
        one, other = column[row], column[row - 1]
        alike &= (one == other) | ((one != one) & (other != other))
    return row[alike]


# With a scheme, or a host's name before a path as virtual hosts write it; user and port are no part.
_URL = r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?:[^/?#@]*@)?(\[[^\]]+\]|[^/?#:\[\]]+)"
_BARE = r"^([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)(?::[0-9]+)?/"


def hosts_of_urls(names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the hosts of sources that are URLs, in small letters.

    Examples
    --------
    >>> hosts_of_urls(np.array(["https://Example.org:8080/a?b", "www.example.org/c"])).tolist()
    ['example.org', 'www.example.org']
    """
    hosts = known_hosts(names)
    wrong = np.asarray(names)[hosts == ""]
    if len(wrong):
        each = "it is no URL" if len(wrong) == 1 else "they are no URLs"
        raise SourceDataError(
            f"no host can be read from {list_offenders(map(repr, wrong.tolist()))}: {each}."
            " Give a table with columns source, host (--hosts, hosts=...), or the log a column host."
        )
    return hosts


def host_of_url(name: str) -> str | None:
    """Return the host of a URL, in small letters, or None.

    Examples
    --------
    >>> host_of_url("https://user@Example.org:8080/a?b"), host_of_url("orders.csv")
    ('example.org', None)
    """
    found = re.match(_URL, name) or re.match(_BARE, name)
    return None if found is None else found[1].lower()


def known_hosts(names: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the hosts of sources, empty where one is no URL."""
    text = polars.Series(np.asarray(names).tolist(), dtype=polars.String, strict=False)
    hosts = text.str.extract(_URL).fill_null(text.str.extract(_BARE)).str.to_lowercase()
    return label_array(hosts.fill_null("").to_list())


def joined_names(
    names: Sequence[npt.NDArray[Any]], source: Sequence[IntArray]
) -> tuple[npt.NDArray[Any], IntArray]:
    """Return all names, as text if mixed, sorted, and each row's position."""
    if any(map(are_text, names)):
        names = [each if are_text(each) else each.astype(np.str_) for each in names]
    every = np.unique(np.concatenate(names))
    codes = [np.searchsorted(every, own)[row] for own, row in zip(names, source, strict=True)]
    return every, np.concatenate(codes).astype(np.int64)
