"""Changes behind a log or a history, as worlds to replay.

A history has all changes. A crawl log tells less: whether a source changed between two crawls, not how often,
and when only where changes are dated (`last_modified`). Costs of the changes as they were found, one in the
middle of each interval, are too low, and more so for one policy than for another. So the changes are drawn
besides, given what the crawls found and the rates of a posterior (multiple imputation [1]_): under the model
the mean cost over the draws is the expected true cost given the log, of every policy. What was found stays as
it is, and only what crawls hid rests on the model.

References
----------
.. [1] Rubin, "Multiple Imputation for Nonresponse in Surveys", Wiley 1987, doi:10.1002/9780470316696.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, IntArray, labels_of
from freshopt.simulation.world import World

# Expected changes of a crawl interval from which more are not drawn: a crawl that finds a change tells of no
# more than some five, and the replay takes a pass for each that a copy can miss.
MOST = 100.0
# Those below which a change that was found is at any moment of its interval alike.
LEAST = 1e-9


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
    if not isinstance(data, ChangeHistory):
        return _world(data, *_middles(data))
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
    row = np.repeat(found, many)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
    place = (turn + 0.5) / np.repeat(many, many)
    moment = log.time[row] - (1.0 - place) * log.interval[row]
    if log.last_modified is not None:
        moment = np.where(np.isnan(log.last_modified[row]), moment, log.last_modified[row])
    return log.source_index[row], moment


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
