"""`SlotDemand`: preferred slots of crawls, and capacities, in whole numbers.

The capacities are those of hosts and of crawlers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.numerics.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class SlotDemand:
    """Crawls of hosts, each host's in the order of their preferred times.

    Attributes
    ----------
    first : ndarray of int, shape (H + 1,)
        Where each host's crawls begin among all.
    want : ndarray of int, shape (m,)
        The slot that each wants, ascending within a host.
    open : ndarray of bool, shape (H, S)
        Whether a host may be crawled in a slot.
    room : ndarray of int, shape (H,)
        Crawls of a host in a slot.
    pause : ndarray of int, shape (H,)
        Slots from one crawl of a host to the next, at least; its room is 1 if that is more than one.
    capacity : int
        Crawls in a slot.
    """

    first: IntArray
    want: IntArray
    open: BoolArray
    room: IntArray
    pause: IntArray
    capacity: int

    @property
    def hosts(self) -> int:
        """Their number."""
        return len(self.room)

    @property
    def slots(self) -> int:
        """Their number."""
        return int(self.open.shape[1])

    @property
    def host(self) -> IntArray:
        """The host of each crawl, shape (m,)."""
        return np.repeat(np.arange(self.hosts), np.diff(self.first))

    def counts(self) -> IntArray:
        """Return the crawls of each host per preferred slot.

        Shape (H, S).
        """
        size = self.hosts * self.slots
        return np.bincount(self.host * self.slots + self.want, minlength=size).reshape(self.hosts, self.slots)

    def most(self) -> IntArray:
        """Return how many crawls each host can have in all, shape (H,).

        With pauses the earliest open slots are taken, one after the other: none can have more.
        """
        most: IntArray = np.count_nonzero(self.open, axis=1) * self.room
        for h in np.flatnonzero(self.pause > 1).tolist():
            slots, taken, at = np.flatnonzero(self.open[h]), 0, 0
            while at < len(slots):
                taken += 1
                at = int(np.searchsorted(slots, slots[at] + self.pause[h]))
            most[h] = taken
        return most

    def moved(self, slot: IntArray) -> int:
        """Return by how many slots crawls are moved in all."""
        return int(np.sum(np.abs(slot - self.want)))


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Crawls in slots.

    Attributes
    ----------
    slot : ndarray of int, shape (m,)
        In the order of the demand.
    bound : float
        What no assignment moves less than, in slots.
    over : ndarray of int, shape (S,)
        Crawls in a slot beyond the capacity, where all together do not fit; else 0.
    """

    slot: IntArray
    bound: float
    over: IntArray
