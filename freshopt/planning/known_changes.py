"""Changes of a log or a history, as a world to replay.

When a source changed, a crawl log does not tell, unless the change is dated (`last_modified`): a change is
put in the middle of the crawl interval in which it was found, several of them evenly. Changes that one crawl
found as one are one. All costs are then too low, and most so those of the log's own crawls, which end these
intervals. Where all changes are known, nothing of this applies.

A crawl log tells less than what happened: changes between two crawls are one, and when they were it tells
only where they are dated. A cost that is replayed on such a log is too low. What a model predicts is held
against it as the same crawls would show it: each crawl interval is drawn changed or not at given rates, and
its changes are placed as those of the log are.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, IntArray, labels_of
from freshopt.simulation.world import World
from freshopt.units import SECONDS

# Changes in one crawl interval; no log counts more.
MOST = 1e6


def known_changes(data: CrawlLog | ChangeHistory) -> World:
    """Return the recorded changes as a world to replay.

    A history has all changes; of a crawl log they are placed within the crawl intervals in which they were
    found.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 3, time=[0.0, 2.0, 4.0], changed=[0, 1, 0])
    >>> known_changes(log).events(0.0, 4.0)[1].tolist()
    [1.0]
    """
    if isinstance(data, ChangeHistory):
        start, end = data.start, float(np.max(data.end))
        source, time = data.source_index, data.time
    else:
        source, time = _middles(data)
        first = data.offsets[:-1]
        gap = data.interval[first]
        start, end = data.time[first] - np.where(np.isnan(gap), 0.0, gap), data.end
    names = data.sources_
    return World.from_events(
        {"source": labels_of(names, source), "time": time},
        names=names,
        start=start,
        horizon=end,
        time_unit=data.time_unit,
    )


def world_among(world: World, shift: float, names: npt.NDArray[np.generic]) -> World:
    """Return some sources of a recorded world, on another clock."""
    own = np.arange(len(world)) if world.names is None else world.names
    index = np.searchsorted(own, names)
    offsets, time = world.events(-np.inf, np.inf, index)
    return World.from_events(
        {"source": np.repeat(names, np.diff(offsets)), "time": time + shift},
        names=names,
        start=world.start[index] + shift,
        horizon=world.horizon + shift,
        time_unit=world.time_unit,
    )


def clock_shift(log: CrawlLog, history: ChangeHistory | None) -> float:
    """Return the offset of a history's clock against the log's.

    It is added to the history's times; day 0 of the two may differ.
    """
    if history is None or history.origin is None or log.origin is None:
        return 0.0
    return (history.origin - log.origin).total_seconds() / SECONDS[log.time_unit]


def _middles(log: CrawlLog) -> tuple[IntArray, Array]:
    """Return sources and imputed times of changes.

    They are spread evenly over the crawl intervals in which they were found.
    """
    found = np.flatnonzero(log.changed & ~np.isnan(log.interval))
    many = np.ones(len(found), dtype=np.int64)
    if log.changes is not None:
        told = log.changes[found]
        many = np.where(np.isnan(told), 1.0, np.maximum(told, 1.0)).astype(np.int64)
    row = np.repeat(found, many)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
    place = (turn + 0.5) / np.repeat(many, many)
    moment = log.time[row] - (1.0 - place) * log.interval[row]
    if log.last_modified is not None:
        moment = np.where(np.isnan(log.last_modified[row]), moment, log.last_modified[row])
    return log.source_index[row], moment


def shown_changes(log: CrawlLog, rows: IntArray, rates: Array, seed: int) -> tuple[IntArray, Array]:
    """Return one sample of what some crawls of a log would show.

    Parameters
    ----------
    log : CrawlLog
        Its crawl times are kept, its outcomes are not used.
    rows : ndarray of int, shape (m,)
        Crawls with a crawl interval.
    rates : ndarray, shape (n,)
        Changes per time unit of the log's sources.
    seed : int

    Returns
    -------
    source, time : ndarray, shape (k,)
        The changes, placed as `known_changes` places those of a log.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 3, time=[0.0, 2.0, 4.0], changed=[0, 0, 0])
    >>> shown_changes(log, np.array([1, 2]), np.array([1e3]), seed=1)
    (array([0, 0]), array([1., 3.]))
    """
    rng = np.random.default_rng(seed)
    gap, source = log.interval[rows], log.source_index[rows]
    rate = rates[source]
    many = (rng.random(len(rows)) < -np.expm1(-rate * gap)).astype(np.int64)
    if log.changes is not None:
        counted = ~np.isnan(log.changes[rows])
        many = np.where(counted, rng.poisson(np.minimum(rate * gap, MOST)), many).astype(np.int64)
    row = np.repeat(np.arange(len(rows)), many)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
    back = (1.0 - (turn + 0.5) / np.repeat(many, many)) * gap[row]
    if log.last_modified is not None:
        # Dated as often as changes of the log are; e^{−Δτ} is uniform above e^{−Δ·gap}.
        told = log.changed & ~np.isnan(log.last_modified) & ~np.isnan(log.interval)
        share = float(np.sum(told)) / max(1.0, float(np.sum(log.changed & ~np.isnan(log.interval))))
        dated = (rng.random(len(rows)) < share)[row] & (many[row] == 1)
        late = -np.log1p(rng.random(len(row)) * np.expm1(-rate[row] * gap[row])) / rate[row]
        back = np.where(dated, late, back)
    return source[row], log.time[rows][row] - back
