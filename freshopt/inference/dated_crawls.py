"""What the rows of a log count, and what their dates tell.

A crawl that found a change and tells when the last one was, τ before it, contributes Δe^{−Δτ} to the
likelihood: as much as one counted change in the time τ. The date of a source's first crawl is its last change
or its birth; see `crawl_likelihood`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array, BoolArray

ALL = slice(None)


class GammaParameters(NamedTuple):
    """Gamma priors of n sources in the time unit of a log.

    Attributes
    ----------
    shape, exposure : ndarray of float, shape (n,)
        a and b.
    birth_rate : ndarray of float, shape (n,)
        η ≥ 0: at that rate sources come into being, which first dates may tell instead of a change.
    """

    shape: Array
    exposure: Array
    birth_rate: Array

    def of(self, part: slice | BoolArray) -> GammaParameters:
        """Return those of some of the sources."""
        return GammaParameters(self.shape[part], self.exposure[part], self.birth_rate[part])


def counted_changes(log: CrawlLog, rows: slice = ALL) -> tuple[Array, Array]:
    """Return how many changes each row tells, and in what time.

    The number is NaN where it is unknown. The time is the crawl interval, or that since the last change if a
    row is dated, and NaN in a baseline.

    Examples
    --------
    >>> log = CrawlLog(["a"] * 3, [0.0, 4.0, 5.0], [0, 1, 0], last_modified=[None, 3.0, 3.0])
    >>> counted_changes(log)
    (array([nan,  1., nan]), array([nan,  1.,  1.]))
    """
    interval = log.interval[rows]
    number = np.full(len(interval), np.nan) if log.changes is None else log.changes[rows]
    if log.last_modified is None:
        return number, interval
    date = log.last_modified[rows]
    dated = ~np.isnan(date) & ~np.isnan(interval)
    return np.where(dated, 1.0, number), np.where(dated, log.time[rows] - date, interval)


def first_dates(
    log: CrawlLog, part: slice = ALL, weight: Array | None = None
) -> tuple[Array | None, Array | None]:
    """Return the weight and the weighted age of first dates, by source.

    `weight` is that of the sources' first crawls. 0 where there is no first date; None and None where the
    log has none.

    Examples
    --------
    >>> first_dates(CrawlLog(["a", "b"], [9.0, 9.0], [0, 0], last_modified=[2.0, None]))
    (array([1., 0.]), array([7., 0.]))
    """
    if log.last_modified is None:
        return None, None
    every = log.offsets[:-1]
    if not np.any(np.isnan(log.interval[every]) & ~np.isnan(log.last_modified[every])):
        return None, None
    first = every[part]
    age = np.where(np.isnan(log.interval[first]), log.time[first] - log.last_modified[first], np.nan)
    each = np.where(np.isnan(age), 0.0, 1.0 if weight is None else weight)
    return each, each * np.nan_to_num(age)
