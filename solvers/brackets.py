"""`Ends`: for every source the nearest evaluated rate on the other side of its price.

Between that rate and the latest one lies the rate that the price asks for, whatever the cost looks like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshopt.arrays import Array, BoolArray, IntArray

NUDGE = (
    4e-15  # relative distance kept from the ends of a bracket, so that a kink is closed in from both sides
)
NOWHERE = -1.0  # the rate of an end that is not known


class Point(NamedTuple):
    """Evaluated rates with their marginals per unit of bandwidth and costs."""

    rate: Array
    marginal: Array
    cost: Array

    def copy(self, other: Point, where: BoolArray) -> None:
        """Take another point for some of the sources."""
        for own, given in zip(self, other, strict=True):
            np.copyto(own, given, where=where)

    def of(self, index: slice | IntArray) -> Point:
        """Return the point of some of the sources."""
        return Point(self.rate[index], self.marginal[index], self.cost[index])


@dataclass(frozen=True, slots=True, eq=False)
class Ends:
    """The latest point of each source and the one on the other side.

    Parameters
    ----------
    near : Point
        Of all sources; kept, and written to by `remember`.
    far : Point
        The other side's, at the rate NOWHERE where none is known.
    """

    near: Point
    far: Point

    @classmethod
    def around(cls, near: Point) -> Ends:
        """Begin with one point of each source."""
        n = len(near.rate)
        return cls(near, Point(np.full(n, NOWHERE), np.full(n, np.nan), np.full(n, np.nan)))

    def remember(self, part: slice, latest: Point, price: Array, rising: BoolArray) -> None:
        """Take a chunk's latest points, and keep of the former ones the nearest on the other side.

        Parameters
        ----------
        part : slice
        latest : Point
            Of the chunk's sources.
        price : ndarray
            What they pay.
        rising : ndarray of bool
            Whether their marginals exceed it, so that more is asked for.
        """
        near, far, rate = self.near.of(part), self.far.of(part), latest.rate
        beside = _opposite(near, rate, price, rising)
        keep = (far.rate > NOWHERE) & _opposite(far, rate, price, rising)
        np.copyto(far.rate, NOWHERE, where=~keep)
        far.copy(near, beside & (~keep | (np.abs(near.rate - rate) < np.abs(far.rate - rate))))
        for own, given in zip(near, latest, strict=True):
            own[:] = given

    def between(self, part: slice, at: IntArray, cost: Array, *, halve: bool) -> Array:
        """Return rates inside the brackets of some of a chunk's sources.

        Parameters
        ----------
        part : slice
        at : ndarray of int
            Sources of the chunk.
        cost : ndarray
            Their bandwidth per refresh.
        halve : bool
            Whether to take the geometric mean of the ends rather than where the tangents meet.
        """
        near, far = self.near.of(part).of(at), self.far.of(part).of(at)
        middle = np.sqrt(near.rate) * np.sqrt(far.rate)
        meet = middle
        if not halve:
            drop = near.cost - far.cost - cost * far.marginal * (far.rate - near.rate)
            meet = near.rate + drop / (cost * (near.marginal - far.marginal))
            meet = np.where(np.isfinite(meet), meet, middle)
        least = np.minimum(near.rate, far.rate) * (1.0 + NUDGE)
        most = np.maximum(near.rate, far.rate) * (1.0 - NUDGE)
        return np.where(least < most, np.clip(meet, least, most), middle)


def _opposite(point: Point, rate: Array, price: Array, rising: BoolArray) -> BoolArray:
    """Return whether a point lies on the other side of price and rate."""
    side: BoolArray = (point.rate != rate) & ((point.rate > rate) == rising)
    side &= (point.marginal > price) != rising
    return side
