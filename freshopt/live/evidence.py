"""`Evidence`: everything observed so far, in memory, as estimators take it.

Rows are read once, in the order in which they were committed; a process that plans again reads what has been
added since, by whichever process. A process that only hands out and records reads none of it.

Memory: 33 bytes an observation, 49 where changes are counted or dated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.live.database import Database
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.source_index import code_sources
from freshopt.numerics.arrays import IntArray
from freshopt.tools.live_planner import observed_log

# Rows fetched at once, some 50 MB as Python objects.
PAGE = 200_000
# Columns of an observation, in memory as small as they may be.
_KINDS: Mapping[str, type] = {
    "source": np.int64,
    "time": np.float64,
    "changed": np.int8,
    "changes": np.float64,
    "last_modified": np.float64,
}


class Evidence:
    """Observations of a planner, read as they come."""

    def __init__(self) -> None:
        self._seen = 0
        self._pages: list[dict[str, npt.NDArray[Any]]] = []

    def read(self, database: Database) -> IntArray:
        """Read what was committed since; return the sources it is about, sorted."""
        sources = [np.empty(0, dtype=np.int64)]
        while True:
            rows = database.rows(
                f"SELECT id, {', '.join(_KINDS)} FROM observation WHERE id > ? ORDER BY id LIMIT {PAGE}",
                (self._seen,),
            )
            if not rows:
                return np.unique(np.concatenate(sources))
            identity, *columns = zip(*rows, strict=True)
            self._seen = identity[-1]
            told = zip(_KINDS.items(), columns, strict=True)
            self._pages.append({key: np.array(column, dtype=kind) for (key, kind), column in told})
            sources.append(np.unique(self._pages[-1]["source"]))

    def __len__(self) -> int:
        """Return the number of observations read."""
        return sum(len(page["source"]) for page in self._pages)

    def crawls(self, sources: IntArray) -> IntArray:
        """Return how often each of some sources was crawled."""
        own = self._columns()["source"].astype(np.int64)
        return np.bincount(own, minlength=int(np.max(sources, initial=0)) + 1)[sources]

    def log(
        self, clock: Clock, sources: IntArray | None = None, names: Mapping[int, str] | None = None
    ) -> CrawlLog | None:
        """Return the log of sources by numbers or `names`; None without rows."""
        columns = self._columns()
        if sources is not None and len(columns["source"]):
            last = int(np.maximum(np.max(columns["source"]), np.max(sources, initial=0)))
            wanted = np.zeros(last + 1, dtype=np.bool_)
            wanted[sources] = True
            rows = np.flatnonzero(wanted[columns["source"]])
            columns = {key: column[rows] for key, column in columns.items()}
        if not len(columns["source"]):
            return None
        labels, positions = np.unique(columns["source"], return_inverse=True)
        if names is not None:
            labels, rank = code_sources([names[number] for number in labels.tolist()])
            positions = rank[positions]
        return observed_log({**columns, "source": positions}, labels, clock)

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return all rows as one page."""
        if len(self._pages) != 1:
            self._pages = [
                {
                    key: np.concatenate([np.empty(0, dtype=kind), *(page[key] for page in self._pages)])
                    for key, kind in _KINDS.items()
                }
            ]
        return self._pages[0]
