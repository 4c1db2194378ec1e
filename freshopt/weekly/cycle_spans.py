"""Intervals of time on a cycle of equal bins.

Integrals over them, and sums spread over their bins.

An interval covers whole cycles and a remainder from one bin to another. The time that intervals spend in each
bin is a sum over those that end beyond the bin less those that begin beyond it: two counts by bin and one
cumulative sum, however many bins an interval covers.

Cost: a few passes over the intervals, and one over the bins; no table of intervals and bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class CycleSpans:
    """Intervals on a cycle of length 1.

    Attributes
    ----------
    bins : int
        Equal bins of the cycle.
    length : ndarray of float, shape (m,)
        > 0, in cycles.
    whole : ndarray of float, shape (m,)
        Whole cycles in each interval.
    first, last : ndarray of int, shape (m,)
        The bins in which the remainder begins and ends; the second cycle's are bins, ..., 2·bins − 1.
    into_first, into_last : ndarray of float, shape (m,)
        How far into these bins, as a share of their width.
    """

    bins: int
    length: Array
    whole: Array
    first: npt.NDArray[np.int32]
    last: npt.NDArray[np.int32]
    into_first: Array
    into_last: Array

    @classmethod
    def of(cls, begin: Array, length: Array, bins: int) -> CycleSpans:
        """Return the intervals of given lengths from given moments, both in cycles.

        Examples
        --------
        >>> spans = CycleSpans.of(np.array([3.75]), np.array([1.5]), bins=4)
        >>> spans.integral(np.array([4.0, 0.0, 0.0, 0.0])), spans.spread(np.array([1.0]))
        (array([2.]), array([0.5 , 0.25, 0.25, 0.5 ]))
        """
        whole = np.floor(length)
        start = begin % 1.0 * bins
        end = start + (length - whole) * bins
        first = np.minimum(start.astype(np.int32), bins - 1)
        last = np.minimum(end.astype(np.int32), 2 * bins - 1)
        return cls(bins, length, whole, first, last, start - first, end - last)

    def select(self, keep: BoolArray) -> CycleSpans:
        """Return some of the intervals."""
        names = ("length", "whole", "first", "last", "into_first", "into_last")
        return CycleSpans(self.bins, *(getattr(self, name)[keep] for name in names))

    def integral(self, g: Array) -> Array:
        """Return ∫g over each interval, in cycles, for g of mean 1.

        Parameters
        ----------
        g : ndarray of float, shape (bins,)
        """
        twice = np.concatenate((g, g)) / self.bins
        before = np.concatenate(([0.0], np.cumsum(twice)))
        between = before[self.last] - before[self.first]
        rest: Array = between + twice[self.last] * self.into_last - twice[self.first] * self.into_first
        return self.whole + np.maximum(rest, 0.0)

    def spread(self, weight: Array) -> Array:
        """Return the weighted time in each bin, in cycles.

        Parameters
        ----------
        weight : ndarray of float, shape (m,)

        Returns
        -------
        ndarray of float, shape (bins,)
        """
        both = self._beyond(self.last, self.into_last, weight) - self._beyond(
            self.first, self.into_first, weight
        )
        covered = both[: self.bins] + both[self.bins :]
        return np.maximum(covered + float(weight @ self.whole), 0.0) / self.bins

    def _beyond(self, edge: npt.NDArray[np.int32], into: Array, weight: Array) -> Array:
        """Return the weighted share of each bin before the edges.

        Of two cycles, shape (2·bins,).
        """
        here: Array = np.bincount(edge, weight, 2 * self.bins).astype(np.float64)
        later: Array = np.cumsum(here[::-1])[::-1] - here
        return later + np.bincount(edge, weight * into, 2 * self.bins)
