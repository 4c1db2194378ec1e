"""What each row of a log says, for all who ask.

A row is a fetch that failed, one of a source that is gone, an answer that is no evidence, or a crawl that
found a change, found none, or of which that is not known. Change rates are learnt from crawls, chances of
success from fetches, and both from the same verdict on each row.

A failed fetch is no evidence, whatever else its row says. Of the others the column ``changed`` decides where
it is filled in. Few crawlers write that down; most write down what they saw: a hash of the content, the ETag
that came with it, or the status 304 of an answer to a conditional request. A crawl found a change if its hash
differs from that of the crawl before it of the same source; where one of both has none, 304 says that nothing
has changed, and else the ETags decide. A 304 has the state of the crawl before. (Beside another hash it is
about a crawl that the log does not have: the hash is the better evidence. Beside another ETag it is believed:
several servers of one site have tags of their own.) Where a source has neither hash nor ETag, but 304s, 200
is a change.

An answer without a state is left out, and so is an empty status alone, which says nothing at all. Where
the next crawl is said to have found the same as this one, it is kept: the time before it is not known.

Cost: a sort of the rows, and some passes over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.logs.source_index import alike_rows, sorted_rows
from freshopt.logs.timestamps import Moments
from freshopt.numerics.arrays import Array, BoolArray, IntArray, are_text

OK, NOT_MODIFIED = 200.0, 304.0
# The end of a source.
GONE_STATUSES = (404.0, 410.0)
# Refusals of a moment, beside 5xx.
LATER = (408.0, 425.0, 429.0)
# What programs write where they have nothing to say.
ABSENT = ("", "-", "null", "none", "nan")
# What a row says. It repeats another one, says nothing, is of a failed fetch, of a source that is gone, is an
# answer that is no evidence, or a crawl of which it is not known whether it found a change, found none, did.
REPEATED, SILENT, FAILED, GONE, ANSWERED, UNKNOWN, UNCHANGED, CHANGED = range(-6, 2)
States: TypeAlias = npt.NDArray[np.uint64]
Outcomes: TypeAlias = npt.NDArray[np.int8]
_EMPTY = np.uint64(0)
# The last bits of a state tell which of these lengths a hash in hexadecimal digits has, where they differ.
_LENGTHS = (32, 40, 56, 64, 96, 128)
_KIND = np.uint64(7)
# Weak ETags change as strong ones do; quotes are no part of them.
_ETAG = r'^\s*(?:W/)?"?([^"]*)"?\s*$'


class RowOutcomes(NamedTuple):
    """What the rows of a log say.

    - `outcome` ndarray of int8 (rows,): `FAILED`, `CHANGED` and so on; crawls are those from `UNKNOWN` on.
    - `order` (rows,): Rows by source and time.
    - `hashed`, `tagged`: Rows with status 304 whose hash, or whose ETag, is not that of the crawl before.
    """

    outcome: Outcomes
    order: IntArray
    hashed: IntArray
    tagged: IntArray

    @property
    def crawls(self) -> IntArray:
        """The rows that are crawls, by source and time."""
        return self.order[self.outcome[self.order] >= UNKNOWN]

    def statuses(self, status: Array) -> Array:
        """Return the rows' statuses, NaN where nothing is told of a fetch.

        A crawl without a status of its own was answered.

        Examples
        --------
        >>> none = np.zeros(0, dtype=np.int64)
        >>> outcome = np.array([CHANGED, SILENT, FAILED], dtype=np.int8)
        >>> RowOutcomes(outcome, np.arange(3), none, none).statuses(np.array([np.nan, np.nan, 503.0]))
        array([200.,  nan, 503.])
        """
        told = np.where(np.isnan(status) & (self.outcome >= ANSWERED), OK, status)
        return np.where(self.outcome == REPEATED, np.nan, told)


def failed(status: Array) -> BoolArray:
    """Return which HTTP statuses tell a failure; 0 is no answer.

    Examples
    --------
    >>> failed(np.array([200.0, 304.0, 503.0, 0.0, np.nan, 404.0])).tolist()
    [False, False, True, True, False, False]
    """
    found: BoolArray = (status < 100.0) | (status >= 500.0) | np.isin(status, LATER)
    return found


def ended(status: Array) -> BoolArray:
    """Return which HTTP statuses tell that a source is gone."""
    return np.isin(status, GONE_STATUSES)


def row_outcomes(
    codes: npt.NDArray[np.int32],
    time: Moments,
    *,
    status: Array | None = None,
    changed: Array | None = None,
    seen: Mapping[str, polars.Series] | None = None,
    more: Mapping[str, npt.NDArray[np.generic]] | None = None,
) -> RowOutcomes:
    """Return what each row says.

    - `codes` (rows,): The source of each row.
    - `time` (rows,): Numbers, or datetime64.
    - `status` (rows,): HTTP statuses; NaN where empty, 0 without an answer.
    - `changed` (rows,): 0 or 1; NaN where empty.
    - `seen` mapping of str to Series of length rows: ``hash`` and ``etag``, empty where unknown.
    - `more`: Further columns, in which rows may differ that are alike in all of these.

    Examples
    --------
    >>> import polars as pl
    >>> code, time = np.zeros(5, dtype=np.int32), np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    >>> status = np.array([200.0, 304.0, 503.0, np.nan, np.nan])
    >>> found = row_outcomes(code, time, status=status, seen={"hash": pl.Series(["a", None, "a", "b", ""])})
    >>> found.outcome.tolist() == [UNKNOWN, UNCHANGED, FAILED, CHANGED, SILENT]
    True
    """
    # Numbers that sort as moments do.
    clock = (time - time.min()).astype("timedelta64[us]") if time.dtype.kind == "M" else time
    order, code, at = sorted_rows(codes, clock.astype(np.float64), int(codes.max()) + 1)
    nothing = np.full(len(order), np.nan)
    told = nothing if status is None else status[order]
    flag = nothing if changed is None else changed[order]
    states = {key: _state(column, key)[order] for key, column in (seen or {}).items()}
    tag, digest = (states.get(key, np.zeros(len(order), dtype=np.uint64)) for key in ("etag", "hash"))
    outcome = np.full(len(order), ANSWERED, dtype=np.int8)
    empty = np.isnan(told) & np.isnan(flag) & (tag == _EMPTY) & (digest == _EMPTY)
    outcome[empty] = SILENT
    outcome[failed(told)] = FAILED
    outcome[ended(told)] = GONE
    # Of refusals nothing is learnt; of other answers only what the crawler itself says.
    usable = (outcome == ANSWERED) & ~(told >= 400.0)
    usable &= ~np.isnan(flag) | np.isnan(told) | (told == OK) | (told == NOT_MODIFIED)
    by_status = status is not None and changed is None and not states
    if not by_status:
        alike = [told, flag, tag, digest, *(column[order] for column in (more or {}).values())]
        repeated = _repeated(code, at, alike)
        outcome[repeated] = REPEATED
        usable &= ~repeated
    elif len(order):
        usable &= _one_each_moment(code, at, told, usable)
    row = np.flatnonzero(usable)
    found = _verdicts(code[row], told[row], flag[row], digest[row], tag[row], by_status=by_status)
    outcome[row] = found.outcome
    result = np.empty_like(outcome)
    result[order] = outcome
    return RowOutcomes(result, order, order[row[found.hashed]], order[row[found.tagged]])


def _verdicts(
    code: npt.NDArray[np.int32], status: Array, flag: Array, digest: States, tag: States, *, by_status: bool
) -> RowOutcomes:
    """Return what usable rows say, which are by source and time."""
    every = np.arange(len(code))
    outcome = np.full(len(code), ANSWERED, dtype=np.int8)
    flagged, unmodified = ~np.isnan(flag), np.isnan(flag) & (status == NOT_MODIFIED)
    stated = (digest != _EMPTY) | (tag != _EMPTY)
    # By their statuses alone go sources of which nothing else is known, if they answer conditional requests.
    n = int(code[-1]) + 1 if len(code) else 0
    alone = np.bincount(code, stated | flagged, n) == 0.0
    alone &= by_status | (np.bincount(code, unmodified, n) > 0.0)
    bare = alone[code]
    # What a row says of the crawl before it keeps that, whatever state it had.
    refers = flagged | (unmodified & (digest == _EMPTY)) | bare
    before = np.zeros(len(code), dtype=np.bool_)
    before[:-1] = refers[1:] & (code[1:] == code[:-1])
    kept = np.flatnonzero(stated | flagged | unmodified | bare | before)
    code, flag, flagged = code[kept], flag[kept], flagged[kept]
    unmodified, bare = unmodified[kept], bare[kept]
    same = unmodified | (flag == 0.0)
    digest = _carried(digest[kept], code, same)
    differs, compared = _differing(digest, code)
    by_hash = compared & ~flagged
    hashed = by_hash & differs & unmodified
    tag = _carried(tag[kept], code, same & ~hashed)
    tags_differ, both = _differing(tag, code)
    by_tag = both & ~by_hash & ~flagged
    verdict = np.full(len(kept), UNKNOWN, dtype=np.int8)
    verdict[bare] = CHANGED
    verdict[by_tag] = tags_differ[by_tag]
    verdict[unmodified] = UNCHANGED
    verdict[by_hash] = differs[by_hash]
    verdict[flagged] = flag[flagged]
    outcome[kept] = verdict
    tagged = unmodified & by_tag & tags_differ
    return RowOutcomes(outcome, every, kept[hashed], kept[tagged])


def _differing(state: States, code: npt.NDArray[np.int32]) -> tuple[BoolArray, BoolArray]:
    """Return which rows differ from the row before, and which are comparable."""
    both = np.zeros(len(state), dtype=np.bool_)
    both[1:] = (state[1:] != _EMPTY) & (state[:-1] != _EMPTY) & (code[1:] == code[:-1])
    # An MD5 and an SHA-256 tell nothing of each other.
    kinds = state & _KIND
    both[1:] &= (kinds[1:] == kinds[:-1]) | (kinds[1:] == 0) | (kinds[:-1] == 0)
    differs = both.copy()
    differs[1:] &= state[1:] != state[:-1]
    return differs, both


def _carried(state: States, code: npt.NDArray[np.int32], same: BoolArray) -> States:
    """Return states carried on by rows that found the same.

    Rows with a state of their own keep it; before its first state a source has none.
    """
    rows = np.arange(len(code))
    first = np.flatnonzero(np.diff(code, prepend=-1))
    begin = np.repeat(first, np.diff(first, append=len(code)))
    repeats = same & (state == _EMPTY)
    at = np.maximum.accumulate(np.where(repeats, begin, rows))
    return np.where(repeats[at], _EMPTY, state[at])


def _repeated(code: npt.NDArray[np.int32], clock: Array, columns: list[npt.NDArray[np.generic]]) -> BoolArray:
    """Return which sorted rows are the row before, in all columns."""
    row = 1 + np.flatnonzero((code[1:] == code[:-1]) & (clock[1:] == clock[:-1]))
    found = np.zeros(len(code), dtype=np.bool_)
    found[alike_rows(row, columns)] = True
    return found


def _one_each_moment(
    code: npt.NDArray[np.int32], clock: Array, status: Array, usable: BoolArray
) -> BoolArray:
    """Return one usable row of each source and moment.

    That is a 200 where there is one. Statuses alone are of servers' logs, in which a moment is a second and
    has several requests.
    """
    row = np.flatnonzero(usable)
    begins = np.ones(len(row), dtype=np.bool_)
    begins[1:] = (code[row][1:] != code[row][:-1]) | (clock[row][1:] > clock[row][:-1])
    which = np.cumsum(begins) - 1
    best = np.lexsort((status[row] != OK, which))  # stable
    chosen = np.zeros(len(code), dtype=np.bool_)
    chosen[row[best[np.flatnonzero(np.diff(which, prepend=-1))]]] = True
    return chosen


def _state(column: polars.Series, key: str) -> States:
    """Return states as 64-bit hashes, 0 where a cell is empty.

    Only a source's neighbours are compared: two states are taken for one with probability 2⁻⁶¹.
    """
    if isinstance(column.dtype, polars.List | polars.Array | polars.Object):
        raise SourceDataError(f"column '{key}' of the log holds {column.dtype}. Convert it to text.")
    text = column.cast(polars.String).str.strip_chars()
    if key == "etag":
        text = text.str.replace(_ETAG, "${1}")
    empty = text.is_null() | text.str.to_lowercase().is_in(ABSENT).fill_null(True)
    states = (np.maximum(text.hash(seed=0).to_numpy(), _KIND + np.uint64(1)) & ~_KIND) | _kinds(text, key)
    return np.where(empty.to_numpy(), _EMPTY, states)


def _kinds(text: polars.Series, key: str) -> States:
    """Return the kind of hash that cells hold, 0 if unknown."""
    kinds = np.zeros(len(text), dtype=np.uint64)
    length = text.str.len_bytes().fill_null(0).to_numpy()
    found = [n for n in _LENGTHS if key == "hash" and (length == n).any()]
    if len(found) > 1:
        digits = text.str.contains("^[0-9a-fA-F]+$").fill_null(value=False).to_numpy()
        for k, n in enumerate(found, start=1):
            kinds[(length == n) & digits] = k
    return kinds


class OtherFetches(NamedTuple):
    """Fetches of a log's sources that are no crawls.

    - `source`: Positions among the log's names.
    - `time`: On the log's clock.
    - `answered`: Whether there is a new copy since then: false of one that failed.
    """

    source: IntArray
    time: Array
    answered: BoolArray

    def among(self, names: npt.NDArray[Any], every: npt.NDArray[Any]) -> OtherFetches:
        """Return those of sources that are among other sorted names."""
        own = names.astype(np.str_) if are_text(every) else names
        place = np.minimum(np.searchsorted(every, own), len(every) - 1)
        there = (every[place] == own)[self.source]
        return OtherFetches(place[self.source[there]], self.time[there], self.answered[there])

    @classmethod
    def joined(cls, parts: Sequence[OtherFetches]) -> OtherFetches | None:
        """Return all of several, or None without one."""
        return cls(*map(np.concatenate, zip(*parts, strict=True))) if parts else None
