"""Verdicts of crawls, from content hashes, ETags and HTTP statuses.

Few crawlers write down whether a source had changed. Most write down what they saw: a hash of the content,
the ETag that came with it, or the status 304 of an answer to a conditional request. A crawl found a change if
its state differs from that of the previous crawl of the same source. By hash where both crawls have one, else
by ETag; a 304 has the state of the crawl before. What has no state that can be compared is no evidence and is
left out, as are answers other than 200 and 304. Where there are statuses alone, 200 is a change and 304 none.

Cost: a sort of the rows, and some passes over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.logs.source_index import sorted_rows
from freshopt.logs.timestamps import Moments
from freshopt.numerics.arrays import Array, BoolArray, IntArray

if TYPE_CHECKING:
    import polars

OK, NOT_MODIFIED = 200.0, 304.0
States: TypeAlias = npt.NDArray[np.uint64]
UNKNOWN = np.uint64(0)
# Weak ETags change as strong ones do; quotes are no part of them.
_ETAG = r'^\s*(?:W/)?"?([^"]*)"?\s*$'


class Verdicts(NamedTuple):
    """Rows of a log that are evidence, by source and time.

    Attributes
    ----------
    rows : ndarray of int, shape (k,)
        Positions in the original columns.
    changed : ndarray of float, shape (k,)
        0 or 1; 0 of each source's first row, which is its baseline.
    """

    rows: IntArray
    changed: Array


def verdicts(codes: npt.NDArray[np.int32], time: Moments, seen: Mapping[str, polars.Series]) -> Verdicts:
    """Return which crawls found a change, by what they saw.

    Parameters
    ----------
    codes : ndarray of int, shape (rows,)
        The source of each row.
    time : ndarray, shape (rows,)
        Numbers, or datetime64.
    seen : mapping of str to Series of length rows
        ``hash``, ``etag`` (text, empty where unknown) and ``status`` (numbers); at least one of them.

    Examples
    --------
    >>> import polars as pl
    >>> code, time = np.zeros(4, dtype=np.int32), np.array([0.0, 1.0, 2.0, 3.0])
    >>> found = verdicts(code, time, {"hash": pl.Series(["a", "a", None, "b"])})
    >>> found.rows.tolist(), found.changed.tolist()
    ([0, 1, 3], [0.0, 0.0, 1.0])
    """
    clock = time.astype(np.float64) if time.dtype.kind != "M" else _ticks(time)
    order = sorted_rows(codes, clock, int(codes.max()) + 1)[0]
    status = seen["status"].to_numpy()[order] if "status" in seen else None
    if status is not None:
        known = (status == OK) | (status == NOT_MODIFIED)
        if "hash" in seen or "etag" in seen:
            known |= np.isnan(status)
        order, status = order[known], status[known]
    states = [_state(seen[key], key)[order] for key in ("hash", "etag") if key in seen]
    if not states:
        assert status is not None, "a verdict needs a hash, an ETag or a status"
        return _by_status(order, codes, clock, status)
    code = codes[order]
    unchanged = np.zeros(len(order), dtype=np.bool_)
    if status is not None:
        unchanged = status == NOT_MODIFIED
        states = [_carried(each, code, unchanged) for each in states]
    told = unchanged | np.logical_or.reduce([each != UNKNOWN for each in states])
    order, code, unchanged = order[told], code[told], unchanged[told]
    changed, known = np.zeros(len(order)), unchanged | (np.diff(code, prepend=-1) != 0)
    for each in (state[told] for state in states):
        both = np.zeros(len(order), dtype=np.bool_)
        both[1:] = (each[1:] != UNKNOWN) & (each[:-1] != UNKNOWN)
        both &= ~known
        changed[both] = each[both] != np.roll(each, 1)[both]
        known |= both
    return Verdicts(order[known], changed[known])


def _carried(state: States, code: npt.NDArray[np.int32], unchanged: BoolArray) -> States:
    """Return states in which 304 repeats the last other answer's.

    Rows are by source and time; before the first other answer of its source a 304 has none.
    """
    rows = np.arange(len(code))
    first = np.flatnonzero(np.diff(code, prepend=-1))
    begin = np.repeat(first, np.diff(first, append=len(code)))
    at = np.maximum.accumulate(np.where(unchanged, begin, rows))
    return np.where(unchanged[at], UNKNOWN, state[at])


def _by_status(order: IntArray, codes: npt.NDArray[np.int32], clock: Array, status: Array) -> Verdicts:
    """Return verdicts of statuses alone, one for each moment."""
    code, time = codes[order], clock[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (code[1:] != code[:-1]) | (time[1:] > time[:-1])
    begin = np.flatnonzero(first)
    if len(begin) == 0:
        return Verdicts(order, np.zeros(0))
    changed = np.maximum.reduceat((status == OK).astype(np.float64), begin)
    changed[np.diff(code[begin], prepend=-1) != 0] = 0.0
    return Verdicts(order[begin], changed)


def _state(column: polars.Series, key: str) -> States:
    """Return states as 64-bit hashes, `UNKNOWN` where a cell is empty.

    Only a source's neighbours are compared: two states are taken for one with probability 2⁻⁶⁴.
    """
    import polars

    text = column.cast(polars.String).str.strip_chars()
    if key == "etag":
        text = text.str.replace(_ETAG, "${1}")
    empty = text.is_null() | (text.str.len_bytes() == 0).fill_null(True)
    return np.where(empty.to_numpy(), UNKNOWN, np.maximum(text.hash(seed=0).to_numpy(), np.uint64(1)))


def _ticks(time: Moments) -> Array:
    """Return moments as numbers that sort as they do."""
    since: Array = (time - time.min()).astype("timedelta64[us]").astype(np.float64)
    return since
