"""`Estimator`: what every estimator of change rates shows; `OnlineEstimator`: how one learns by batches.

An estimator's own file holds its equation alone: how a batch changes the few numbers that are kept of a
source, and how these give a rate. What is the same for all stands here: sources that come with a batch, the
counts, the flags, and that nothing is kept of a batch that is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, IntArray
from freshopt.errors import FreshoptError
from freshopt.learning.crawl_log import CrawlLog
from freshopt.learning.evidence import Evidence, Observed


class Estimator:
    """What is known of change rates after a log was read.

    Attributes
    ----------
    change_rate_ : ndarray of float, shape (n,)
        Changes per time unit of the log.
    flag_ : ndarray of str, shape (n,)
        "ok", "baseline only" (no gap was observed), "never changed", or "always changed" (every crawl found
        an unknown number of changes).
    sources_ : ndarray, shape (n,)
        The sources seen so far, sorted.
    time_unit_ : str
        The log's time unit.
    """

    change_rate_: Array
    flag_: npt.NDArray[np.str_]
    sources_: npt.NDArray[Any]
    time_unit_: str

    def _publish(
        self, sources: npt.NDArray[Any], time_unit: str, rate: Array, flags: npt.NDArray[np.str_]
    ) -> Self:
        """Set the public attributes."""
        self.sources_, self.time_unit_, self.change_rate_, self.flag_ = sources, time_unit, rate, flags
        return self

    def _not_fitted(self) -> FreshoptError:
        return FreshoptError(f"{type(self).__name__} has not seen a log yet. Call fit(log) first.")


class OnlineEstimator(Estimator, ABC):
    """An estimator that keeps a few numbers per source, and no crawls."""

    _width: ClassVar[int]  # how many numbers of its own it keeps of a source
    _evidence: Evidence | None = None

    @abstractmethod
    def _estimate(self, known: Evidence) -> Array:
        """Return the change rates that the evidence leads to."""

    def _flags(self, known: Evidence) -> npt.NDArray[np.str_]:
        return known.flags()

    def _carry_on(
        self,
        earlier: Evidence | None,
        log: CrawlLog,
        rows: Observed,
        advance: Callable[[Evidence, IntArray], Array],
    ) -> Self:
        """Add a batch to what was known before it.

        Parameters
        ----------
        earlier : Evidence or None
            None to begin anew.
        log : CrawlLog
            The batch.
        rows : Observed
            Its rows with a known gap.
        advance : callable
            Takes the evidence before the batch and the positions in it of the batch's sources; returns the
            state of all sources after the batch, of shape (n, width).
        """
        known, at = Evidence.before(log, earlier, self._width)
        known = known.after(rows, at, advance(known, at))
        rate = self._estimate(known)  # may refuse: the batch is then as if it had never come
        self._evidence = known
        return self._publish(known.sources, known.time_unit, rate, self._flags(known))

    def _fitted(self) -> Evidence:
        if self._evidence is None:
            raise self._not_fitted()
        return self._evidence
