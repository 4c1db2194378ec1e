"""Simulated changes for the tests of `poisson_check`: Poisson, and in every way not."""

from collections.abc import Callable

import numpy as np

from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array


def poisson_history(
    rng: np.random.Generator, n: int, rate: float, span: float, unit: float = 0.0
) -> ChangeHistory:
    """n Poisson processes from 0 to `span`; times rounded down to multiples of `unit`."""
    counts = rng.poisson(rate * span, n)
    time = rng.uniform(0.0, span, counts.sum())
    time = np.floor(time / unit) * unit if unit else time
    return ChangeHistory(np.repeat(np.arange(n), counts), time, 0.0, span, names=np.arange(n))


def history(traces: list[Array], span: float) -> ChangeHistory:
    """One source per trace."""
    source = np.repeat(np.arange(len(traces)), [len(trace) for trace in traces])
    return ChangeHistory(source, np.concatenate(traces), 0.0, span, names=np.arange(len(traces)))


def thinned(rng: np.random.Generator, rate: Callable[[Array], Array], most: float, span: float) -> Array:
    """A Poisson process whose rate varies (Lewis and Shedler's thinning)."""
    time = np.sort(rng.uniform(0.0, span, rng.poisson(most * span)))
    kept: Array = time[rng.random(len(time)) * most < rate(time)]
    return kept


def renewals(draw: Callable[[int], Array], mean: float, span: float) -> Array:
    """Changes at independent gaps, begun long before time 0."""
    time = np.cumsum(draw(int(4.0 * span / mean) + 200)) - span
    inside: Array = time[(time > 0.0) & (time < span)]
    return inside


def crawled(rng: np.random.Generator, n: int, rate: float, gaps: Array) -> CrawlLog:
    """Poisson processes crawled after each of `gaps`, shape (n, crawls); the baseline is at 0."""
    changed = rng.random(gaps.shape) < -np.expm1(-rate * gaps)
    crawls = gaps.shape[1] + 1
    time = np.concatenate([np.zeros((n, 1)), np.cumsum(gaps, axis=1)], axis=1)
    found = np.concatenate([np.zeros((n, 1), dtype=np.bool_), changed], axis=1)
    return CrawlLog(np.repeat(np.arange(n), crawls), time.ravel(), found.ravel())


def seen(changes: list[Array], times: Array) -> CrawlLog:
    """What crawls at `times` find of given changes; the first is the baseline."""
    found = [np.diff(np.searchsorted(np.sort(trace), times), prepend=0) > 0 for trace in changes]
    n = len(changes)
    return CrawlLog(np.repeat(np.arange(n), len(times)), np.tile(times, n), np.concatenate(found))
