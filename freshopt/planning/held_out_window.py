"""`HeldOutWindow`: part of a log's time that plans have not seen."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import OPTIONAL, CrawlLog, derived_log
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_number, as_whole
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.planning.known_changes import clock_shift, known_changes, world_among
from freshopt.simulation.static_costs import ChangeWindow
from freshopt.simulation.world import World

if TYPE_CHECKING:
    from freshopt.planning.failing_window import Outcomes

# Of the log's time that is held out, and the windows that it is cut into.
SHARE, SPLITS, MOST_SPLITS = 0.5, 3, 100


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class HeldOutWindow:
    """Crawls before a window, and the changes in it.

    Attributes
    ----------
    past : CrawlLog
        Of the n sources that were crawled before the window and are there in it: their changes are known.
    world : World
        Their changes, on the log's clock.
    changes : ChangeWindow
        The same around the window.
    begin, end : float
    index : ndarray of int, shape (n,)
        Their positions among the `total` sources of the log.
    total : int
    parts : tuple of ChangeWindow
        The window cut into equal parts, in which costs are measured too; none by default.
    outcomes : Outcomes or None
        Which fetches succeed, where some fail (`freshopt.planning.failing_window`).
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

    @classmethod
    def of(cls, past: CrawlLog, world: World, begin: float, end: float) -> HeldOutWindow:
        """Return the window of a log all of which is past.

        Parameters
        ----------
        past : CrawlLog
        world : World
            Changes of its sources in its order, on its clock.
        begin, end : float
        """
        changes = ChangeWindow.of(world, begin, end)
        n = len(past.sources_)
        return cls(past, world, changes, begin, end, np.arange(n), n)

    @property
    def span(self) -> Array:
        """Length of each source's window, shape (n,)."""
        return self.changes.span

    @property
    def there(self) -> BoolArray:
        """Which sources have a time in the window, shape (n,)."""
        return self.span > 0.0

    def per_time(self, amount: Array, weight: Array | float = 1.0) -> float:
        """Return what the sources that are there have per time unit.

        Of amounts over their windows it is the mean while a source is there, Σ amount/Σ w·span, times the sum
        of the weights: sources that are there in part count as those that stay.
        """
        there = self.there
        share = np.broadcast_to(np.asarray(weight, dtype=np.float64), there.shape)[there]
        with np.errstate(all="ignore"):
            mean = np.divide(np.sum(amount[there]), share @ self.span[there])
        return float(np.sum(share) * mean)


def held_out_windows(
    log: CrawlLog,
    history: ChangeHistory | None,
    share: float = SHARE,
    splits: int = SPLITS,
    parts: int = 0,
) -> tuple[HeldOutWindow, ...]:
    """Return windows of equal length at the end of a log.

    Those before which nothing can be learnt are left out.

    Parameters
    ----------
    log : CrawlLog
    history : ChangeHistory or None
        All changes of its sources, where they are known.
    share : float
        Of the log's time that is held out, in (0, 1).
    splits : int
        Windows that it is cut into; each plan sees all crawls before its own.
    parts : int
        Parts of each window, for costs over time.

    Raises
    ------
    SourceDataError
        If the log is too short, or the history is of other sources.
    """
    share = as_number(share, "share", "Pass a number between 0 and 1.")
    if not 0.0 < share < 1.0:
        raise SourceDataError(f"the share that is held out is {share}. Pass a number between 0 and 1.")
    splits = as_whole(splits, "splits", 1, MOST_SPLITS)
    begin, end = float(np.min(log.time)), log.end
    length = share * (end - begin) / splits
    if not end - length > begin:
        raise SourceDataError("the log has no time to hold out. Replay a log of more than one crawl.")
    told = known_changes(log if history is None else history)
    shift = clock_shift(log, history)
    names = np.arange(len(told)) if told.names is None else told.names
    known = np.isin(log.sources_, names)
    if not np.any(known):
        raise SourceDataError(
            f"the history knows none of the log's sources, such as {log.sources_[0]!r}. Pass the history of "
            "the same sources, with the same names."
        )
    until = log.last_crawl if history is None else _known(log, history, history.end) + shift
    begun = np.full(len(until), -np.inf) if history is None else _known(log, history, history.start) + shift
    found = []
    for number in range(splits, 0, -1):
        split = end - number * length
        # Sources that are not there would take bandwidth, of one policy more than of another.
        there = known & (until > split) & (begun < np.minimum(until, split + length))
        past = (log.time <= split) & there[log.source_index]
        if not np.any(past & ~np.isnan(log.interval)):
            continue
        kept = np.unique(log.source_index[past])
        world = world_among(told, shift, log.sources_[kept])
        changes = ChangeWindow.of(world, split, np.minimum(until[kept], split + length))
        first = _first_part(log, past, kept)
        own = _parts(world, changes, split, split + length, parts)
        found.append(
            HeldOutWindow(first, world, changes, split, split + length, kept, len(log.sources_), own)
        )
    if not found:
        raise SourceDataError(
            f"no source has a second crawl before {end - length:g} {log.time_unit}s, where the part held out "
            "begins. There is nothing to learn from. Replay a longer log."
        )
    return tuple(found)


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
    place = np.searchsorted(history.sources_, log.sources_)
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
    return derived_log(columns, log.sources_[kept], log.time_unit, log.origin)
