"""Changes that crawls would show if a model held.

A crawl log tells less than what happened: changes between two crawls are one, and when they were it tells
only where they are dated. A cost that is replayed on such a log is too low. What a model predicts is held
against it as the same crawls would show it: each crawl interval is drawn changed or not at given rates, and
its changes are placed as those of the log are.
"""

from __future__ import annotations

import numpy as np

from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, IntArray

# Changes in one crawl interval; no log counts more.
MOST = 1e6


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
