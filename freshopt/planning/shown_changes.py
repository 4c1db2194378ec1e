"""Changes that the crawls of a log would show if a model held.

A crawl log tells less than what happened: changes between two crawls are one, and when they were it tells
only where they are dated. A cost that is replayed on such a log is too low. What a model predicts is held
against it as the same crawls would show it: each crawl interval is drawn changed or not at given rates, and
its changes are placed as those of the log are.
"""

from __future__ import annotations

import numpy as np

from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array
from freshopt.simulation.world import World


def shown_changes(log: CrawlLog, rates: Array, seed: int) -> World:
    """Return one sample of what a log's crawls would show at given rates.

    Parameters
    ----------
    log : CrawlLog
        Its crawl times are kept, its outcomes are not used.
    rates : ndarray, shape (n,)
        Changes per time unit of the log's sources.
    seed : int

    Returns
    -------
    World
        As `known_changes` has it of a log.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 3, time=[0.0, 2.0, 4.0], changed=[0, 0, 0])
    >>> shown_changes(log, np.array([1e3]), seed=1).events(0.0, 4.0)[1].tolist()
    [1.0, 3.0]
    """
    rng = np.random.default_rng(seed)
    known = np.flatnonzero(~np.isnan(log.interval))
    gap, source = log.interval[known], log.source_index[known]
    rate = rates[source]
    uniform = rng.random(len(known))
    found = uniform < -np.expm1(-rate * gap)
    many = found.astype(np.int64)
    if log.changes is not None:
        counted = ~np.isnan(log.changes[known])
        many = np.where(counted, rng.poisson(np.minimum(rate * gap, 1e9)), many).astype(np.int64)
    row = np.repeat(np.arange(len(known)), many)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
    back = 1.0 - (turn + 0.5) / np.repeat(many, many)
    time = log.time[known][row] - back * gap[row]
    if log.last_modified is not None:
        # Dated as often as changes of the log are; e^{−Δτ} is uniform above e^{−Δ·gap}.
        told = log.changed[known] & ~np.isnan(log.last_modified[known])
        share = float(np.sum(told)) / max(1.0, float(np.sum(log.changed[known])))
        dated = (rng.random(len(known)) < share)[row] & (many[row] == 1)
        late = -np.log1p(rng.random(len(row)) * np.expm1(-rate[row] * gap[row])) / rate[row]
        time = np.where(dated, log.time[known][row] - late, time)
    first = log.offsets[:-1]
    before = log.interval[first]
    names = log.sources_
    return World.from_events(
        {"source": names[source[row]], "time": time},
        names=names,
        start=log.time[first] - np.where(np.isnan(before), 0.0, before),
        horizon=log.end,
        time_unit=log.time_unit,
    )
