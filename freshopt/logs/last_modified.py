"""Dates of last change in a crawl log, and which are believed.

Servers, sitemaps and feeds tell when a source last changed. A crawl that found a change, dated m within its
crawl interval, then tells when the last change was, and that none came after it; the date of a source's first
crawl is its last change or its birth. What a row tells is about a *state*: the rows from one that found a
change to the last one before the next change. A state has one date, the first that one of its rows tells.

Some dates do not tell that. One that many sources share to the second is a deployment: nothing changed
since, and what was before is not known. Pages that are made anew for every request are dated "now" whether
they changed or not. Others are dated once, such as by a sitemap that nobody writes anew: they change between
two crawls, and their date stays before the first of these. Such sources lose their dates, and so do others of
the same host, or with the same date, that had no occasion to be contradicted: one that has not changed since
is as old as its date tells only if the date would have moved. Other dates that contradict what a crawl found
are left out and counted, and one before the crawl interval of a change that was found, or at the very moment
of the crawl, is left out. The rules come in this order, but that a date that stands still is no deployment.
Where all dates of a host are days, the middle of the day stands for it.

Cost: some passes over the rows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders, warn
from freshopt.formatting import count
from freshopt.logs.clock import YEARS
from freshopt.logs.log_columns import LogRows
from freshopt.logs.source_index import Codes, known_hosts
from freshopt.logs.timestamps import ToldTimes, read_told_moments
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_vector, read_only
from freshopt.units import SECONDS

if TYPE_CHECKING:
    from freshopt.logs.crawl_log import CrawlLog

# Sources that share a date to the second: so many are changed by a machine, and at once.
DEPLOYED = 100
# Share of the rows that could contradict a source's dates, from which these are no dates of changes: a cache
# that lags behind contradicts a few. Rows that show a source to be dated "now", at least.
SHARE, SEVERAL = 0.3, 2
# Share of the sources that could be contradicted, and least number of those that are, from which a group is
# not believed. With a fifth of them dated by their birth, and the unchanged ones believed,
# 95 % intervals covered 74 % of that fifth.
GROUP_SHARE = 0.1
# Dates that are all whole quarters of an hour are a calendar's or a timetable's: they tell the day. Seconds.
QUARTER, DAY = 900.0, 86_400.0
# Days between crawls from which such dates tell more than the crawls.
APART = 2.0
# Seconds within which a date is a whole second.
TICK = 1e-3
_NOW = (
    "last_modified of {} is later than a crawl that found no change, in {} rows: {}. Such pages are dated "
    "when they are sent; their dates are not used"
)
_FROZEN = (
    "last_modified of {} stood still while the content changed, in {} rows: {}. Such dates are no dates of "
    "changes; they are not used"
)


def dated_rows(
    rows: LogRows, dates: Array, first: IntArray, interval: Array, changed: BoolArray
) -> tuple[Array, BoolArray, Array]:
    """Return crawl intervals, outcomes and dates of sorted rows, by the rules.

    The interval of a baseline that dates from a deployment begins with it, and the first row of a source that
    is watched since a known moment has changed if it is dated later. Dates are strictly within the crawl
    intervals of rows that found a change, and in baselines before the crawl; NaN elsewhere.

    - warns if sources lose their dates because these are always about now, or stand still, or a date is after
      its crawl, or after the change that an unchanged row shows.
    """
    begins = changed | np.isnan(interval)
    begins[first] = True
    begin = np.flatnonzero(begins)
    told = _without_unset(rows, dates)
    deployed = _deployed(rows, told)
    lies = ~begins & (told > rows.time[begin[np.cumsum(begins) - 1]]) & ~deployed
    groups = _Groups(rows.names, rows.codes, told)
    now = groups.joined(*_always_now(rows.codes, lies, ~begins & ~np.isnan(told), len(first)))
    _warn_of(rows, now & groups.dated, rows.codes[lies], _NOW)
    told = np.where(now[rows.codes], np.nan, told)
    told = rows.without_contradictions(told, lies & ~np.isnan(told))
    date, row = _dates_of_states(told, begin)
    shared = np.zeros(len(begin), dtype=np.bool_)
    shared[row >= 0] = deployed[row[row >= 0]]
    time, source = rows.time[begin], rows.codes[begin]
    before = time - interval[begin]
    before[np.isin(begin, first)] = np.nan
    behind, *sources = _standing_still(source, date, before, SECONDS[rows.clock.unit], len(first))
    frozen = groups.joined(*sources) & ~now
    _warn_of(rows, frozen & groups.dated, source[behind & frozen[source]], _FROZEN)
    date[frozen[source]] = np.nan
    if rows.clock.dated:
        date = _within_their_day(groups, source, date, time, before, SECONDS[rows.clock.unit])
    date[date >= _moment_of(rows, time, told)] = np.nan
    if rows.changes is not None:
        date[~np.isnan(rows.changes[begin]) & ~np.isnan(interval[begin])] = np.nan
    return _used(begin, first, date, shared, time, interval, changed)


def _dates_of_states(told: Array, begin: IntArray) -> tuple[Array, IntArray]:
    """Return the date of each state and its row.

    It is the first that rows of the state tell; NaN and -1 where none does.
    """
    known = np.where(np.isnan(told), len(told), np.arange(len(told)))
    row = np.minimum.reduceat(known, begin)
    row[row == len(told)] = -1
    return np.where(row < 0, np.nan, told[row]), row


def _used(
    begin: IntArray,
    first: IntArray,
    date: Array,
    shared: BoolArray,
    time: Array,
    interval: Array,
    changed: BoolArray,
) -> tuple[Array, BoolArray, Array]:
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
    return interval, changed, last_modified


def _without_unset(rows: LogRows, dates: Array) -> Array:
    """Return the dates without those of clocks that were never set."""
    if not rows.clock.dated:
        return dates
    earliest = datetime(YEARS[0], 1, 1, tzinfo=UTC).timestamp() - rows.clock.epoch()
    return np.where(dates < earliest / SECONDS[rows.clock.unit], np.nan, dates)


def _deployed(rows: LogRows, dates: Array) -> BoolArray:
    """Return which rows have a date that many sources share."""
    known = np.flatnonzero(~np.isnan(dates))
    second = dates[known] * SECONDS[rows.clock.unit]
    found = np.zeros(len(dates), dtype=np.bool_)
    # Dates without a time of day are shared by chance.
    if len(np.unique(rows.codes[known])) < DEPLOYED or np.all(np.abs(second % DAY) < TICK):
        return found
    second = np.floor(second + 1e-6)
    pairs = np.unique(np.stack([second, rows.codes[known].astype(np.float64)]), axis=1)
    values, sources = np.unique(pairs[0], return_counts=True)
    found[known] = np.isin(second, values[sources >= DEPLOYED])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """Sources whose dates may come from the same hand."""

    names: npt.NDArray[Any] | None
    codes: Codes | IntArray
    told: Array

    @property
    def dated(self) -> BoolArray:
        """Which sources have dates, shape (n,)."""
        return np.bincount(self.codes, ~np.isnan(self.told)) > 0.0

    def joined(self, contradicted: BoolArray, confirmed: BoolArray) -> BoolArray:
        """Return those contradicted, and in groups with many all not confirmed."""
        lost = contradicted.copy()
        if np.count_nonzero(contradicted) < SEVERAL or np.all(contradicted | confirmed):
            return lost
        known = ~np.isnan(self.told)
        sources, at = np.unique(self.codes[known], return_index=True)
        first = np.full(len(lost), np.nan)
        first[sources] = self.told[known][at]
        for label in (self.hosts, first):
            own = np.unique(label, return_inverse=True)[1]
            wrong, shown = np.bincount(own, contradicted), np.bincount(own, contradicted | confirmed)
            lost |= ((wrong >= SEVERAL) & (wrong >= GROUP_SHARE * shown))[own] & ~confirmed
        return lost

    @property
    def hosts(self) -> npt.NDArray[Any]:
        """The host of each source, shape (n,)."""
        if self.names is None or self.names.dtype.kind in "iu":
            return np.zeros(int(self.codes[-1]) + 1, dtype=np.int64)
        return known_hosts(self.names)


def _always_now(
    codes: Codes | IntArray, lies: BoolArray, unchanged: BoolArray, n: int
) -> tuple[BoolArray, BoolArray]:
    """Return which sources are always dated now, and which never.

    `unchanged` are the dated rows that found no change, `lies` those of them dated after the change that they
    show.
    """
    wrong, shown = (np.bincount(codes[rows], minlength=n) for rows in (lies, unchanged))
    return (wrong >= SEVERAL) & (wrong >= SHARE * shown), (wrong == 0) & (shown > 0)


def _standing_still(
    source: Codes | IntArray, date: Array, before: Array, seconds: float, n: int
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return states with older dates, sources whose dates stand still, and others.

    A change that was found between two crawls cannot be dated `before` the first of them, with all of the day
    where dates tell the day; `before` is NaN in the first state of a source.
    """
    known = ~np.isnan(date)
    own = date[known] * seconds
    clock = np.abs(own - QUARTER * np.rint(own / QUARTER)) > TICK
    to_the_day = np.bincount(source[known][clock], minlength=n) == 0
    known &= ~np.isnan(before)
    behind = known & (date + np.where(to_the_day, DAY, 1.0)[source] / seconds <= before)
    wrong, shown = (np.bincount(source[states], minlength=n) for states in (behind, known))
    some = wrong >= SHARE * np.maximum(shown, 1)
    return behind, some, (shown > 0) & ~some


def _within_their_day(
    groups: _Groups, source: Codes, date: Array, time: Array, before: Array, seconds: float
) -> Array:
    """Return the middle of the day for dates that tell no more.

    As all dates of their host do. It is the middle of what crawls leave possible of the day; between crawls
    that are hardly farther apart than days they tell nothing.
    """
    known = ~np.isnan(date)
    clock = known & (np.abs(np.nan_to_num(date) * seconds % DAY) > TICK)
    if np.count_nonzero(clock) == np.count_nonzero(known):
        return date
    host = np.unique(groups.hosts, return_inverse=True)[1][source]
    of_days = known & (np.bincount(host, clock) == 0.0)[host]
    day = DAY / seconds
    middle = 0.5 * (np.fmax(date, before) + np.minimum(date + day, time))
    told = ~(date + day <= before) & ~(time - before < APART * day)
    return np.where(of_days, np.where(told, middle, np.nan), date)


def _warn_of(rows: LogRows, lost: BoolArray, contradicted: Codes | IntArray, words: str) -> None:
    """Warn of sources that lose their dates, with the contradicted rows."""
    if not np.any(lost):
        return
    many = np.bincount(contradicted, minlength=len(lost)) * lost
    own = np.flatnonzero(many)
    names = list_offenders((repr(rows.names.item(k)) for k in own.tolist()), len(own))
    others = int(np.count_nonzero(lost)) - len(own)
    more = f", nor are those of {count(others, 'source')} of the same host or date" if others else ""
    found = words.format(count(len(own), "source"), f"{int(many.sum()):,}", names)
    warn(f"{found}{more}.")


def _moment_of(rows: LogRows, time: Array, dates: Array) -> Array:
    """Return when the very moment of each crawl begins.

    Where dates are in whole seconds, as those of HTTP, the second of the crawl is meant.
    """
    if not rows.clock.dated:
        return time
    seconds = SECONDS[rows.clock.unit]
    known = dates[~np.isnan(dates)] * seconds
    if not np.all(np.abs(known - np.rint(known)) < 1e-4):
        return time
    whole: Array = np.floor(time * seconds + 1e-4) / seconds - 1e-4 / seconds
    return np.minimum(whole, time)


def usable_dates(
    source: IntArray,
    time: Array,
    changed: Array,
    dates: Array,
    time_unit: str,
    names: npt.NDArray[Any] | None = None,
) -> Array:
    """Return the dates of last change that no crawl contradicts, NaN elsewhere.

    Rows are sorted by source, of which there are positions, and time; `changed` is NaN where that is not
    known, and another state may be there. A date after its crawl is of a clock that is ahead. The sources
    that lose their dates are those of the module's rules, without a word.
    """
    if np.isnan(dates).all():
        return dates
    begins = changed != 0.0
    begins[0] = True
    begins[1:] |= source[1:] != source[:-1]
    begin = np.flatnonzero(begins)
    lies = ~begins & (dates > time[begin[np.cumsum(begins) - 1]])
    groups, n = _Groups(names, source, dates), int(source[-1]) + 1
    now = groups.joined(*_always_now(source, lies, ~begins & ~np.isnan(dates), n))
    told = np.where((dates > time) | lies | now[source], np.nan, dates)
    unknown = (np.diff(source[begin], prepend=-1) != 0) | np.isnan(changed[begin])
    before = np.where(unknown, np.nan, time[begin - 1])
    date, _ = _dates_of_states(told, begin)
    _, *sources = _standing_still(source[begin], date, before, SECONDS[time_unit], n)
    return np.where(groups.joined(*sources)[source], np.nan, told)


def since_birth(log: CrawlLog, start: ToldTimes) -> CrawlLog:
    """Return a log in which dated first crawls count from known births.

    - `start` (n,): Since when each source exists, in the order of ``log.names``, written as its times are;
      NaN (NaT, None) where that is not known. A first crawl without a date stays a baseline.

    Examples
    --------
    >>> from freshopt.logs import CrawlLog
    >>> log = CrawlLog(["a", "b"], [9.0, 9.0], [0, 0], last_modified=[2.0, 1.0])
    >>> born = since_birth(log, [0.0, 1.0])
    >>> born.interval.tolist(), born.changed.tolist()
    ([9.0, 8.0], [True, False])
    """
    moments = read_told_moments(
        start,
        "start",
        lambda k: f"the row of source {log.names.item(k)!r}",
        dated=log.clock.dated,
    )
    if moments is None:
        return log
    if not log.timed:
        raise SourceDataError("start needs the times of the crawls. Add the column time, or leave start out.")
    begin = as_vector(log.clock.offsets(moments, "start"), len(log.names), "start")
    first = log.offsets[:-1]
    late = np.flatnonzero(~np.isnan(begin) & ~(begin <= log.time[first]))
    if len(late):
        where = list_offenders(repr(name) for name in log.names[late].tolist())
        raise SourceDataError(f"start is after the first crawl of {where}. Correct it, or leave it empty.")
    if log.last_modified is None:
        return log
    date = log.last_modified[first]
    known = np.isnan(log.interval[first]) & ~np.isnan(date) & (begin < log.time[first])
    row, begin, date = first[known], begin[known], date[known]
    interval, changed, dates = log.interval.copy(), log.changed.copy(), log.last_modified.copy()
    interval[row] = log.time[row] - begin
    changed[row] = date > begin
    dates[row] = np.where(date > begin, date, np.nan)
    born = copy.copy(log)
    for key, value in (("interval", interval), ("changed", changed), ("last_modified", dates)):
        object.__setattr__(born, key, read_only(value))
    return born
