"""`SignalTable`: recorded signals of a log's sources, and their counts.

A table of signals has a row for each: ``source``, ``time``, and optionally ``kind``, such as sitemap or feed.
Between two crawls of a source signals are counted, those at the very moment of the later one included: a
crawl that a signal causes comes after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import CrawlLog, require_log
from freshopt.logs.log_files import Given
from freshopt.logs.read_events import read_events
from freshopt.logs.schema import SIGNALS
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_value

# The name of signals without one.
UNNAMED = "signal"


@frozen_value(repr=False)
class SignalTable:
    """Signals of a log's sources, by source and time.

    `source` and `kind` are positions among the log's names and among `kinds`, times on the log's clock;
    `unknown` is how many signals were of sources that the log has not.
    """

    source: IntArray
    time: Array
    kind: IntArray
    kinds: tuple[str, ...]
    unknown: int = 0

    def __len__(self) -> int:
        """Return the number of signals."""
        return len(self.time)

    def __repr__(self) -> str:
        return f"SignalTable({len(self):,} signals: {', '.join(self.kinds)})"

    @classmethod
    def of(cls, log: Any, given: Given) -> SignalTable:  # noqa: ANN401 - checked
        """Read the signals of a log's or history's sources, each once."""
        if not isinstance(log, ChangeHistory):
            require_log(log)
        if isinstance(log, CrawlLog) and not log.timed:
            raise SourceDataError(
                "signals come at times, and the log tells only the time between crawls. Give it a column "
                "time."
            )
        rows = read_events(given, SIGNALS, time_unit=log.time_unit, more=("kind",))
        time = log.clock.offsets(rows.columns["time"], "the time of signals")
        wrong = np.flatnonzero(~np.isfinite(time)).tolist()
        if wrong:
            where = list_offenders(map(rows.row_name, wrong))
            raise SourceDataError(f"time is no moment in {where}. Correct or drop these rows.")
        position = {str(name): k for k, name in enumerate(log.names.tolist())}
        places = np.array([position.get(str(name), -1) for name in rows.names.tolist()], dtype=np.int64)
        source = places[rows.columns["source"]]
        known = np.flatnonzero(source >= 0)
        if not len(known):
            few = list_offenders(map(repr, rows.names.tolist()))
            raise SourceDataError(
                f"signals are of {few}, none of which is in the log. Name sources alike in both."
            )
        told = rows.seen["kind"].fill_null(UNNAMED).to_numpy() if "kind" in rows.seen else None
        names, kind = np.unique(np.full(len(source), UNNAMED) if told is None else told, return_inverse=True)
        known = known[np.lexsort((kind[known], time[known], source[known]))]
        keys = np.stack([source[known].astype(np.float64), time[known], kind[known].astype(np.float64)])
        once = known[np.append(True, np.any(keys[:, 1:] != keys[:, :-1], axis=0))]
        unknown = int(np.count_nonzero(source < 0))
        return cls(source[once], time[once], kind[once].astype(np.int64), tuple(map(str, names)), unknown)

    def of_kinds(self, kept: npt.ArrayLike) -> SignalTable:
        """Return the signals of flagged kinds; those at one moment are one."""
        rows = np.flatnonzero(np.asarray(kept, dtype=np.bool_)[self.kind])
        same = (np.diff(self.source[rows]) == 0) & (np.diff(self.time[rows]) == 0.0)
        rows = rows[np.append(True, ~same)] if len(rows) else rows
        return SignalTable(self.source[rows], self.time[rows], self.kind[rows], self.kinds, self.unknown)

    def among(self, index: IntArray) -> SignalTable:
        """Return the signals of some sources, by their positions among these."""
        place = np.full(1 + max(np.max(index, initial=-1), np.max(self.source, initial=-1)), -1)
        place[index] = np.arange(len(index))
        rows = np.flatnonzero(place[self.source] >= 0)
        own = place[self.source[rows]]
        return SignalTable(own, self.time[rows], self.kind[rows], self.kinds, self.unknown)

    def rows(self, log: CrawlLog) -> IntArray:
        """Return the row of the crawl after each signal, -1 without."""
        # Source by source, by time; of a signal and a crawl at one moment the signal comes first.
        keys = np.append(self.time, log.time), np.append(self.source, log.source_index)
        order = np.lexsort((np.repeat([0, 1], [len(self), len(log)]), *keys))
        crawl = order >= len(self)
        row = np.empty(len(self), dtype=np.int64)
        row[order[~crawl]] = np.cumsum(crawl)[~crawl]
        here = np.flatnonzero(row < log.offsets[1:][self.source])
        at = row[here]
        heard = self.time[here] > log.time[at] - np.nan_to_num(log.interval[at])
        found = np.full(len(self), -1)
        found[here[heard]] = at[heard]
        return found

    def counts(self, log: CrawlLog) -> Array:
        """Return how many came in the interval before each crawl, shape (rows,)."""
        row = self.rows(log)
        return np.bincount(row[row >= 0], minlength=len(log)).astype(np.float64)

    def pending(self, log: CrawlLog) -> Array:
        """Return how many came after each source's last crawl, shape (n,)."""
        late = self.time > log.last_crawl[self.source]
        return np.bincount(self.source[late], minlength=len(log.names)).astype(np.float64)
