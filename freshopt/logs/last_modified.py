"""Dates of last change in a crawl log, and which are believed.

Servers, sitemaps and feeds tell when a source last changed. A crawl that found a change, dated m within its
crawl interval, then tells when the last change was, and that none came after it; the date of a source's first
crawl is its last change or its birth. What a row tells is about a *state*: the rows from one that found a
change to the last one before the next change. A state has one date, the first that one of its rows tells.

Some dates do not tell that. One that many sources share to the second is a deployment: nothing changed
since, and what was before is not known. Pages that are made anew for every request are dated "now" whether
they changed or not: their sources lose their dates. Other dates that contradict what a crawl found are left
out and counted, and one before the crawl interval of a change that was found, or at the very moment of the
crawl, is left out. The rules come in this order.

Cost: some passes over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from freshopt.errors import SHOWN, list_offenders, warn
from freshopt.formatting import count
from freshopt.logs.clock_checks import YEARS
from freshopt.logs.log_columns import LogRows
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import segment_sums
from freshopt.units import SECONDS

# Sources that share a date to the second: so many are changed by a machine, and at once.
DEPLOYED = 100
# A source is dated "now" if so many of its unchanged rows, and such a share of them, are dated after the
# change that they show.
ALWAYS_NOW, SHARE_NOW = 2, 0.3


@dataclass(frozen=True, slots=True, eq=False)
class DatedRows:
    """Crawl intervals, outcomes and dates after the rules.

    Attributes
    ----------
    last_modified : ndarray of float, shape (rows,)
        In rows that found a change the moment of the last one, strictly within their crawl interval; in
        baselines that of the last change or the birth, before the crawl; NaN elsewhere.
    interval : ndarray of float, shape (rows,)
        That of a baseline that dates from a deployment begins with it.
    changed : ndarray of bool, shape (rows,)
        The first row of a source that is watched since a known moment has changed if it is dated later.
    """

    last_modified: Array
    interval: Array
    changed: BoolArray


def dated_rows(
    rows: LogRows, dates: Array, first: IntArray, interval: Array, changed: BoolArray
) -> DatedRows:
    """Apply the rules to the dates of sorted rows.

    Parameters
    ----------
    rows : LogRows
        Sorted by source and time.
    dates : ndarray of float, shape (rows,)
        On the log's clock; NaN where not told.
    first : ndarray of int, shape (n,)
        The first row of each source.
    interval : ndarray of float, shape (rows,)
        NaN in baselines.
    changed : ndarray of bool, shape (rows,)
        False in baselines.

    Warns
    -----
    SourceDataWarning
        If sources lose their dates because these are always about now, or a date is after its crawl, or after
        the change that an unchanged row shows.
    """
    at = np.arange(len(dates))
    begins = changed | np.isnan(interval)
    begins[first] = True
    begin = np.flatnonzero(begins)
    head = begin[np.cumsum(begins) - 1]  # the row that begins the state of each row
    told = _without_unset(rows, dates)
    deployed = _deployed(rows, told)
    lies = ~begins & (told > rows.time[head]) & ~deployed
    told = _without_always_now(rows, told, lies, ~begins, first)
    told = rows.without_contradictions(told, lies & ~np.isnan(told))
    # The date of a state is the first that its rows tell.
    known = np.where(np.isnan(told), len(at), at)
    which = np.minimum.reduceat(known, begin)
    has = which < len(at)
    date = np.full(len(begin), np.nan)
    date[has] = told[which[has]]
    shared = np.zeros(len(begin), dtype=np.bool_)
    shared[has] = deployed[which[has]]
    time = rows.time[begin]
    date[date >= _moment_of(rows, time, told)] = np.nan
    if rows.changes is not None:
        date[~np.isnan(rows.changes[begin]) & ~np.isnan(interval[begin])] = np.nan
    return _used(begin, first, date, shared, time, interval, changed)


def _used(
    begin: IntArray,
    first: IntArray,
    date: Array,
    shared: BoolArray,
    time: Array,
    interval: Array,
    changed: BoolArray,
) -> DatedRows:
    """Return the rows with the dates of states that can be used."""
    interval, changed = interval.copy(), changed.copy()
    is_first = np.zeros(len(interval), dtype=np.bool_)
    is_first[first] = True
    is_first = is_first[begin]
    baseline = np.isnan(interval[begin])
    since = baseline & shared & ~np.isnan(date)
    interval[begin[since]] = (time - date)[since]
    after = np.where(baseline, -np.inf, time - interval[begin])
    # The first crawl of a source that is watched since a known moment: its date tells whether it changed.
    watched = is_first & ~baseline & ~shared & ~np.isnan(date)
    changed[begin[watched]] = (date > after)[watched]
    use = ~shared & (date > after)
    last_modified = np.full(len(interval), np.nan)
    last_modified[begin[use]] = date[use]
    return DatedRows(last_modified, interval, changed)


def _without_unset(rows: LogRows, dates: Array) -> Array:
    """Return the dates without those of clocks that were never set."""
    if rows.origin is None:
        return dates
    origin = rows.origin.astype("datetime64[s]").astype(np.int64)
    earliest = datetime(YEARS[0], 1, 1, tzinfo=UTC).timestamp() - float(origin)
    return np.where(dates < earliest / SECONDS[rows.time_unit], np.nan, dates)


def _deployed(rows: LogRows, dates: Array) -> BoolArray:
    """Return which rows have a date that many sources share."""
    known = np.flatnonzero(~np.isnan(dates))
    second = dates[known] * SECONDS[rows.time_unit]
    found = np.zeros(len(dates), dtype=np.bool_)
    # Dates without a time of day are shared by chance.
    if len(np.unique(rows.codes[known])) < DEPLOYED or np.all(np.abs(second % 86_400.0) < 1e-3):
        return found
    second = np.floor(second + 1e-6)
    pairs = np.unique(np.stack([second, rows.codes[known].astype(np.float64)]), axis=1)
    values, sources = np.unique(pairs[0], return_counts=True)
    found[known] = np.isin(second, values[sources >= DEPLOYED])
    return found


def _without_always_now(
    rows: LogRows, dates: Array, lies: BoolArray, unchanged: BoolArray, first: IntArray
) -> Array:
    """Return the dates without those of sources that are always about now."""
    offsets = np.append(first, len(dates))
    wrong, all_rows = (segment_sums(each.astype(np.float64), offsets) for each in (lies, unchanged))
    now = np.flatnonzero((wrong >= ALWAYS_NOW) & (wrong >= SHARE_NOW * all_rows))
    if len(now) == 0:
        return dates
    names = [repr(name) for name in rows.names[now[:SHOWN]].tolist()] + [""] * max(0, len(now) - SHOWN)
    warn(
        f"last_modified of {count(len(now), 'source')} is later than a crawl that found no change, in "
        f"{int(wrong[now].sum()):,} rows: {list_offenders(names)}. Such pages are dated when they are sent; "
        "their dates are not used."
    )
    return np.where(np.isin(rows.codes, now), np.nan, dates)


def _moment_of(rows: LogRows, time: Array, dates: Array) -> Array:
    """Return when the very moment of each crawl begins.

    Where dates are in whole seconds, as those of HTTP, the second of the crawl is meant.
    """
    if rows.origin is None:
        return time
    seconds = SECONDS[rows.time_unit]
    known = dates[~np.isnan(dates)] * seconds
    if not np.all(np.abs(known - np.rint(known)) < 1e-4):
        return time
    whole: Array = np.floor(time * seconds + 1e-4) / seconds - 1e-4 / seconds
    return np.minimum(whole, time)


def usable_dates(source: IntArray, time: Array, changed: BoolArray, dates: Array) -> Array:
    """Return the dates of last change that no crawl contradicts, NaN elsewhere.

    Rows are sorted by source and time. A date after its crawl is of a clock that is ahead; one that is later
    than the change whose state an unchanged row shows is of a page that is dated when it is sent.
    """
    if np.isnan(dates).all():
        return dates
    begins = changed.copy()
    begins[0] = True
    begins[1:] |= source[1:] != source[:-1]
    head = np.maximum.accumulate(np.where(begins, np.arange(len(dates)), 0))
    return np.where(dates > np.where(begins, time, time[head]), np.nan, dates)
