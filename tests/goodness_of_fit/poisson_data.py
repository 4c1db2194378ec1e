"""Simulated changes for the tests of `poisson_check`: Poisson, and in every way not."""

from collections.abc import Callable

import numpy as np

from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog
from freshopt.numerics.arrays import Array
from tests.ground_truth.crawl_logs import found_changes, log_after_baselines, log_at, poisson_events


def poisson_history(
    rng: np.random.Generator, n: int, rate: float, span: float, unit: float = 0.0
) -> ChangeHistory:
    """n Poisson processes from 0 to `span`; times rounded down to multiples of `unit`."""
    source, time = poisson_events(rng, rate, span, n)
    time = np.floor(time / unit) * unit if unit else time
    return ChangeHistory(source, time, 0.0, span, names=np.arange(n))


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


def crawled(rng: np.random.Generator, rate: float, gaps: Array) -> CrawlLog:
    """Poisson processes crawled after each of `gaps`, shape (n, crawls); the baseline is at 0."""
    return log_after_baselines(gaps, found_changes(rng, rate, gaps))


def seen(changes: list[Array], times: Array) -> CrawlLog:
    """What crawls at `times` find of given changes; the first is the baseline."""
    found = [np.diff(np.searchsorted(np.sort(trace), times), prepend=0) > 0 for trace in changes]
    return log_at(times, found)
