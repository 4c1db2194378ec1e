"""Posterior quantiles of large logs by compiled loops.

What `rate_posterior` does in NumPy, for logs with many rows (`compiled_likelihood.worthwhile`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from freshopt.errors import FreshoptError
from freshopt.inference.compiled_likelihood import NONE, plain
from freshopt.inference.dated_crawls import GammaParameters, first_dates
from freshopt.inference.forgetting import Forgetting, moment_of
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import CHUNK, Array, BoolArray, chunks


def compiled_quantiles(
    log: CrawlLog, forgetting: Forgetting, prior: GammaParameters | None, levels: Array
) -> Array:
    """Return the quantiles of each source's change rate, shape (k, n).

    Parameters
    ----------
    log : CrawlLog
    forgetting : Forgetting
    prior : GammaParameters or None
    levels : ndarray of float, shape (k, n)

    Returns
    -------
    ndarray of float, shape (k, n)
        NaN for a source without data.

    Raises
    ------
    FreshoptError
        If the search does not settle.
    """
    from freshopt.inference.posterior_loops import (  # noqa: PLC0415 - numba loads only if needed
        LogRowColumns,
        PriorColumns,
    )

    newest = moment_of(log, log.end)
    weight = forgetting.weights(log, slice(None), newest)
    columns = LogRowColumns(log.offsets, log.interval, log.changed, log.time)
    priors = PriorColumns(*[plain(NONE)] * 4)
    if prior is not None:
        possible, age = first_dates(log, weight=None if weight is None else weight[log.offsets[:-1]])
        exposure = prior.exposure if age is None else prior.exposure + age
        possible = np.zeros(len(exposure)) if possible is None else possible
        priors = PriorColumns(*map(plain, (prior.shape, exposure, prior.birth_rate, possible)))
    more = (*_told(log), None if weight is None else plain(weight))
    rates, unsettled = np.full(levels.shape, np.nan), 0
    for part in chunks(len(log.sources_), CHUNK):
        asked, found = plain(levels[:, part]), np.full((len(levels), part.stop - part.start), np.nan)
        unsettled += _loops()[0](part.start, part.stop, columns, *more, priors, asked, found)
        rates[:, part] = found
    if unsettled:
        raise FreshoptError(f"{unsettled} quantiles did not settle. Report the gaps of the log.")
    return rates


def compiled_extremes(log: CrawlLog) -> tuple[BoolArray, BoolArray]:
    """Return which sources never changed or had always changed."""
    from freshopt.inference.posterior_loops import LogRowColumns  # noqa: PLC0415 - as above

    never, always = (np.empty(len(log.sources_), dtype=np.bool_) for _ in range(2))
    columns = LogRowColumns(log.offsets, log.interval, log.changed, log.time)
    _loops()[1](columns, *_told(log), never, always)
    return never, always


def _told(log: CrawlLog) -> tuple[Array, Array]:
    """Return the columns of counts and of dates.

    Empty where the log has none.
    """
    changes, dates = (plain(NONE if told is None else told) for told in (log.changes, log.last_modified))
    return changes, dates


@cache
def _loops() -> tuple[Callable[..., int], Callable[..., None]]:
    from freshopt.inference.posterior_loops import build  # noqa: PLC0415 - as above

    return build()
