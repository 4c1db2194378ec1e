"""Changes behind a log or a history, as worlds to replay.

A history has all changes. A crawl log tells less: whether a source changed between two crawls, not how often,
and when only where changes are dated (`last_modified`). Costs of the changes as they were found, one in the
middle of each interval, are too low, and more so for one policy than for another. So the changes are drawn
besides, given what the crawls found and the rates of a posterior (multiple imputation [1]_): under the model
the mean cost over the draws is the expected true cost given the log, of every policy. What was found stays as
it is, and only what crawls hid rests on the model.

Where signals are known, changes are placed given these, too: at a signal that was true, or not announced.
Spread over the interval, half of them would come after the very crawls that their signals cause.

References
----------
.. [1] Rubin, "Multiple Imputation for Nonresponse in Surveys", Wiley 1987, doi:10.1002/9780470316696.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.heavy import special
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.numerics.arrays import Array, IntArray, labels_of
from freshopt.scheduling.refresh_order import ordinals
from freshopt.simulation.world import World

# Expected changes of a crawl interval from which more are not drawn: a crawl that finds a change tells of no
# more than some five, and the replay takes a pass for each that a copy can miss.
MOST = 100.0
# Those below which a change that was found is at any moment of its interval alike.
LEAST = 1e-9
# Share of true signals above which each of them is taken for true.
SURE = 1.0 - 1e-9


def known_changes(data: CrawlLog | ChangeHistory, heard: PooledSignals | None = None) -> World:
    """Return the recorded changes as a world to replay.

    A history has all changes; of a crawl log they are placed within the crawl intervals in which they were
    found, and where signals were heard in these, at the median place of the last change.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 3, time=[0.0, 2.0, 4.0], changed=[0, 1, 0])
    >>> known_changes(log).events(0.0, 4.0)[1].tolist()
    [1.0]
    """
    if not isinstance(data, ChangeHistory):
        row, time = _middles(data)
        if heard is not None:
            told = _InInterval.of(data, heard, heard.silent_rate_)
            several = np.bincount(row, minlength=len(data)) > 1
            there = np.isin(row, told.row) & ~several[row]
            if data.last_modified is not None:
                there &= np.isnan(data.last_modified[row])
            time = np.where(there, told.latest(np.full(len(data), 0.5))[row], time)
        return _world(data, data.source_index[row], time)
    names = data.names
    return World.from_events(
        {"source": labels_of(names, data.source_index), "time": data.time},
        names=names,
        start=data.start,
        horizon=float(np.max(data.end)),
        time_unit=data.time_unit,
    )


def world_among(world: World, shift: float, names: npt.NDArray[np.generic]) -> World:
    """Return some sources of a recorded world, on another clock."""
    own = np.arange(len(world)) if world.names is None else world.names
    index = np.searchsorted(own, names)
    offsets, time = world.events(-np.inf, np.inf, index)
    return World.from_events(
        {
            "source": labels_of(names, np.repeat(np.arange(len(names)), np.diff(offsets))),
            "time": time + shift,
        },
        names=names,
        start=world.start[index] + shift,
        horizon=world.horizon + shift,
        time_unit=world.time_unit,
    )


def _middles(log: CrawlLog) -> tuple[IntArray, Array]:
    """Return sources and times of changes, spread over their crawl intervals."""
    found = np.flatnonzero(log.changed & ~np.isnan(log.interval))
    many = np.ones(len(found), dtype=np.int64)
    if log.changes is not None:
        told = log.changes[found]
        many = np.where(np.isnan(told), 1.0, np.maximum(told, 1.0)).astype(np.int64)
    which, turn = ordinals(many)
    row, place = found[which], (turn + 0.5) / many[which]
    moment = log.time[row] - (1.0 - place) * log.interval[row]
    if log.last_modified is not None:
        moment = np.where(np.isnan(log.last_modified[row]), moment, log.last_modified[row])
    return row, moment


def drawn_changes(log: CrawlLog, rates: Array, seed: int) -> World:
    """Return one sample of the changes behind a log.

    Given what its crawls found.

    Exact for Poisson sources: no interval has changes in which none was found, and each of the others has one
    or more, or as many as were counted; where the last of them is dated, it is there, and others come before.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 3, time=[0.0, 2.0, 4.0], changed=[0, 1, 0])
    >>> drawn_changes(log, np.array([3.0]), seed=1).events(0.0, 4.0)[1].round(2).tolist()
    [0.05, 0.53, 0.58, 0.8, 0.95, 1.33, 1.39, 1.76]
    """
    rng = np.random.default_rng(seed)
    found = np.flatnonzero(log.changed & ~np.isnan(log.interval))
    source, gap = log.source_index[found], log.interval[found]
    rate = np.clip(rates[source], LEAST / gap, MOST / gap)
    uniform = rng.random(len(found))
    counted = np.full(len(found), np.nan) if log.changes is None else np.maximum(log.changes[found], 1.0)
    # The last change of an interval: of k uniform ones, or the first that a look back meets, if it meets any.
    back = -np.log1p(uniform * np.expm1(-rate * gap)) / rate
    last = np.where(np.isnan(counted), gap - back, gap * uniform ** (1.0 / counted))
    if log.last_modified is not None:
        date = log.last_modified[found] - (log.time[found] - gap)
        last = np.where(np.isnan(date), last, np.clip(date, 0.0, gap))
    before = rng.poisson(rate * last)
    many = np.where(np.isnan(counted), before, counted - 1.0).astype(np.int64)
    row = np.repeat(np.arange(len(found)), many)
    inside = np.concatenate([last, rng.random(len(row)) * last[row]])
    row = np.concatenate([np.arange(len(found)), row])
    return _world(log, source[row], log.time[found][row] - gap[row] + inside)


def drawn_with_signals(log: CrawlLog, heard: PooledSignals, silent: Array, seed: int) -> World:
    """Return one sample of the changes behind a log and its signals.

    `silent` are rates of unannounced changes. Exact for these and a share of true signals, at whose moments
    changes are, by what crawls found, counted and dated.
    """
    rng = np.random.default_rng(seed)
    found = np.flatnonzero(log.changed & ~np.isnan(log.interval))
    told = _InInterval.of(log, heard, silent)
    counted, blank = np.full(len(log), np.nan), np.full(len(log), np.nan)
    if log.changes is not None:
        counted[found] = np.maximum(log.changes[found], 1.0)
    # The last change of an interval is dated, or met by a look back; of several that are counted none is.
    last = np.where(np.isnan(counted), told.latest(rng.random(len(log))), np.nan)
    date = blank if log.last_modified is None else log.last_modified
    last = np.where(np.isnan(date), last, np.clip(date, log.time - log.interval, log.time))
    ends = found[~np.isnan(last[found])]
    end = np.where(np.isnan(last), log.time, last)
    length = end - (log.time - log.interval)
    before = np.isnan(last[told.row]) | (told.time < last[told.row])
    own, moment = told.row[before], told.time[before]
    true = rng.random(len(own)) < told.precision[own]
    many = np.zeros(len(log), dtype=np.int64)
    many[found] = rng.poisson(told.rate[found] * length[found])
    rest = np.flatnonzero(~np.isnan(counted))
    if len(rest):
        left = (counted[rest] - ~np.isnan(last[rest])).astype(np.int64)
        heard_there = np.bincount(own, minlength=len(log))
        announced = np.zeros(len(log), dtype=np.int64)
        announced[rest] = _announced(
            left, heard_there[rest], told.rate[rest] * length[rest], told.precision[rest], rng
        )
        many[rest] = left - announced[rest]
        order = np.lexsort((rng.random(len(own)), own))
        rank = np.empty(len(own), dtype=np.int64)
        rank[order] = np.arange(len(own)) - np.searchsorted(own, own[order])
        true = np.where(np.isnan(counted[own]), true, rank < announced[own])
    row = np.repeat(np.arange(len(log)), many)
    spread = log.time[row] - log.interval[row] + rng.random(len(row)) * length[row]
    rows = np.concatenate([ends, own[true], row])
    return _world(log, log.source_index[rows], np.concatenate([last[ends], moment[true], spread]))


def _announced(left: IntArray, heard: IntArray, rate: Array, p: Array, rng: np.random.Generator) -> IntArray:
    """Return how many of so many changes had been announced, a sample.

    Of `heard` signals a share p is true, beside Poisson changes of mean `rate`.
    """
    j = np.arange(int(np.max(np.minimum(left, heard))) + 1)
    n, k = heard[:, None], left[:, None]
    possible = j <= np.minimum(n, k)
    n_, k_ = np.maximum(n - j, 0), np.maximum(k - j, 0)
    size = (
        special.gammaln(n + 1.0)
        - special.gammaln(n_ + 1.0)
        - special.gammaln(j + 1.0)
        - special.gammaln(k_ + 1.0)
    )
    size += special.xlogy(j, p[:, None]) + n_ * np.log1p(-p)[:, None] + special.xlogy(k_, rate[:, None])
    size = np.where(possible, size, -np.inf)
    chance = np.cumsum(np.exp(size - np.max(size, axis=1, keepdims=True)), axis=1)
    return np.asarray(np.sum(chance < rng.random(len(left))[:, None] * chance[:, -1:], axis=1))


class _InInterval(NamedTuple):
    """Signals in crawl intervals in which a change was found.

    `rate` and `precision` are of all rows of the log, `row` and `time` of the signals.
    """

    log: CrawlLog
    rate: Array
    precision: Array
    row: IntArray
    time: Array

    @classmethod
    def of(cls, log: CrawlLog, heard: PooledSignals, silent: Array) -> _InInterval:
        """Return the signals of the kinds that tell something."""
        row = heard.signals_.rows(log)
        kept = np.flatnonzero((row >= 0) & log.changed[row])
        gap = np.where(log.interval > 0.0, log.interval, 1.0)
        rate = np.clip(silent[log.source_index], LEAST / gap, MOST / gap)
        precision = np.minimum(heard.precision_[log.source_index], SURE)
        return cls(log, rate, precision, row[kept], heard.signals_.time[kept])

    def latest(self, uniform: Array) -> Array:
        """Return the last change of each interval, NaN without one.

        A look back over hazards, a·s of time and −ln(1−p) of each signal, ends where they are as much as an
        exponential variable that is less than all of them.
        """
        log, row = self.log, self.row
        found = log.changed & ~np.isnan(log.interval)
        hazard = -np.log1p(-self.precision)
        later = np.searchsorted(row, row, side="right") - 1 - np.arange(len(row))
        before = self.rate[row] * (log.time[row] - self.time) + hazard[row] * later
        whole = self.rate * log.interval + hazard * np.bincount(row, minlength=len(log))
        reach = -np.log1p(uniform * np.expm1(-whole))
        passed = np.bincount(row[before + hazard[row] <= reach[row]], minlength=len(log))
        back = np.clip((reach - hazard * passed) / self.rate, 0.0, log.interval)
        last = np.where(found, log.time - back, np.nan)
        hit = (before <= reach[row]) & (reach[row] < before + hazard[row])
        last[row[hit]] = self.time[hit]
        return last


def _world(data: CrawlLog, source: IntArray, time: Array) -> World:
    """Return changes of a log's sources since their first crawl intervals."""
    first = data.offsets[:-1]
    names = data.names
    return World.from_events(
        {"source": labels_of(names, source), "time": time},
        names=names,
        start=data.time[first] - np.nan_to_num(data.interval[first]),
        horizon=data.end,
        time_unit=data.time_unit,
    )
