"""`HeldOutWindow`: part of a log's time that plans have not seen."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import OPTIONAL, CrawlLog, derived_log
from freshopt.noisy_signals.pooled_signals import PooledSignals
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_number, as_whole
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.planning.known_changes import drawn_changes, drawn_with_signals, known_changes, world_among
from freshopt.planning.request import default_estimate
from freshopt.simulation.static_costs import ChangeWindow
from freshopt.simulation.world import World

if TYPE_CHECKING:
    from freshopt.planning.failing_window import Outcomes
    from freshopt.simulation.static_costs import ExpectedCosts

# Of the log's time that is held out, and the windows that it is cut into.
SHARE, SPLITS, MOST_SPLITS = 0.5, 3, 100
# Samples of the changes that crawls hid. What few samples leave of chance is independent between sources, and
# in the standard errors.
DRAWS = 4


@frozen_value(repr=False)
class HeldOutWindow:
    """Crawls before a window, and the changes in it.

    - `past`: Of the n sources that were crawled before the window and are there in it: their changes are
      known.
    - `world`: Their changes, on the log's clock; of a log alone, as its crawls found them.
    - `changes`: The same around the window.
    - `index` (n,): Their positions among the `total` sources of the log.
    - `parts`: The window cut into equal parts, in which costs are measured too; none by default.
    - `outcomes`: Which fetches succeed, where some fail (`freshopt.planning.failing_window`).
    - `drawn`: The same window with changes drawn given what the crawls found, which is what costs are
      measured in; none where all changes are known.
    - `expected`: Of an objective that these changes do not show.
    """

    past: CrawlLog
    world: World
    changes: ChangeWindow
    begin: float
    end: float
    index: IntArray
    total: int
    parts: tuple[ChangeWindow, ...] = ()
    outcomes: Outcomes | None = None
    drawn: tuple[HeldOutWindow, ...] = ()
    expected: ExpectedCosts | None = None

    @classmethod
    def of(
        cls,
        past: CrawlLog,
        world: World,
        begin: float,
        end: float,
        until: Array | float = np.inf,
        parts: int = 0,
    ) -> HeldOutWindow:
        """Return the window of a log all of which is past.

        The world has its sources in their order, on its clock; `until` is where each of them ends.
        """
        changes = ChangeWindow.of(world, begin, np.minimum(until, end))
        n = len(past.names)
        own = _parts(world, changes, begin, end, parts)
        return cls(past, world, changes, begin, end, np.arange(n), n, own)

    @property
    def worlds(self) -> tuple[HeldOutWindow, ...]:
        """The window as it is known, then with each sample."""
        return (self, *self.drawn)

    def crawls_of(self, log: CrawlLog) -> tuple[IntArray, IntArray]:
        """Return the whole log's rows of these sources, and which."""
        place = np.full(len(log.names), -1)
        place[self.index] = np.arange(len(self.index))
        rows = np.flatnonzero(place[log.source_index] >= 0)
        return rows, place[log.source_index[rows]]

    @property
    def span(self) -> Array:
        """Length of each source's window, shape (n,)."""
        return self.changes.span

    @property
    def there(self) -> BoolArray:
        """Which sources have a time in the window, shape (n,)."""
        return self.span > 0.0


def held_out_windows(
    log: CrawlLog,
    history: ChangeHistory | None,
    share: float = SHARE,
    splits: int = SPLITS,
    parts: int = 0,
    seed: int = 0,
    heard: PooledSignals | None = None,
) -> tuple[HeldOutWindow, ...]:
    """Return windows of equal length at the end of a log.

    Those before which nothing can be learnt are left out. What crawls hid is drawn from the posterior of the
    default estimator, given the whole log: whatever plans are tested, they are measured in the same changes.
    Where signals were `heard`, it is drawn given these, and what the whole log tells of them.
    """
    share = as_number(share, "share", "Pass a number between 0 and 1.")
    if not 0.0 < share < 1.0:
        raise SourceDataError(f"the share that is held out is {share}. Pass a number between 0 and 1.")
    splits = as_whole(splits, "splits", 1, MOST_SPLITS)
    begin, end = float(np.min(log.time)), log.end
    length = share * (end - begin) / splits
    if not end - length > begin:
        raise SourceDataError("the log has no time to hold out. Replay a log of more than one crawl.")
    told = known_changes(log, heard) if history is None else known_changes(history)
    shift = 0.0 if history is None else log.clock.shift(history.clock)
    names = np.arange(len(told)) if told.names is None else told.names
    known = np.isin(log.names, names)
    if not np.any(known):
        raise SourceDataError(
            f"the history knows none of the log's sources, such as {log.names[0]!r}. Pass the history of "
            "the same sources, with the same names."
        )
    until = log.last_crawl if history is None else _known(log, history, history.end) + shift
    begun = np.full(len(until), -np.inf) if history is None else _known(log, history, history.start) + shift
    samples = () if history is not None else _samples(log, seed, heard)
    found = []
    for number in range(splits, 0, -1):
        split = end - number * length
        # Sources that are not there would take bandwidth, of one policy more than of another.
        there = known & (until > split) & (begun < np.minimum(until, split + length))
        past = (log.time <= split) & there[log.source_index]
        if not np.any(past & ~np.isnan(log.interval)):
            continue
        kept = np.unique(log.source_index[past])
        first, ends = _first_part(log, past, kept), (split, split + length)
        own, *drawn = (
            replace(
                HeldOutWindow.of(
                    first, world_among(world, shift, log.names[kept]), *ends, until[kept], parts
                ),
                index=kept,
                total=len(log.names),
            )
            for world in (told, *samples)
        )
        found.append(replace(own, drawn=tuple(drawn)))
    if not found:
        raise SourceDataError(
            f"no source has a second crawl before {end - length:g} {log.time_unit}s, where the part held out "
            "begins. There is nothing to learn from. Replay a longer log."
        )
    return tuple(found)


def _samples(log: CrawlLog, seed: int, heard: PooledSignals | None) -> tuple[World, ...]:
    """Return samples of the changes behind a log's crawls."""
    if not np.any(log.changed & ~np.isnan(log.interval)):
        return ()
    estimate = default_estimate(log) if heard is None else heard
    rates = estimate.draws(DRAWS, seed)
    rates = np.where(np.isnan(rates), estimate.change_rate_, rates)
    if heard is not None:
        silent = rates * (1.0 - heard.recall_)
        return tuple(drawn_with_signals(log, heard, own, seed + k) for k, own in enumerate(silent))
    return tuple(drawn_changes(log, own, seed + k) for k, own in enumerate(rates))


def _parts(
    world: World, changes: ChangeWindow, begin: float, end: float, parts: int
) -> tuple[ChangeWindow, ...]:
    """Return the equal parts of a window of changes."""
    edges = np.linspace(begin, end, parts + 1)
    return tuple(
        ChangeWindow.of(world, np.clip(changes.first, low, high), np.minimum(changes.until, high))
        for low, high in pairwise(edges.tolist())
    )


def _known(log: CrawlLog, history: ChangeHistory, column: Array) -> Array:
    """Return a column of a history for the sources of a log."""
    place = np.searchsorted(history.names, log.names)
    return column[np.minimum(place, len(column) - 1)]


def _first_part(log: CrawlLog, past: BoolArray, kept: IntArray) -> CrawlLog:
    """Return the crawls that are not held out."""
    columns = {
        "source": np.searchsorted(kept, log.source_index[past]),
        "time": log.time[past],
        "elapsed": log.interval[past],
        "changed": log.changed[past],
    }
    for key in OPTIONAL:
        if getattr(log, key) is not None:
            columns[key] = getattr(log, key)[past]
    return derived_log(columns, log.names[kept], log.clock)
