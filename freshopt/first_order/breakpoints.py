"""`Crossings`: breakpoints of rates as functions of budget multipliers.

There rates leave their caps and meet their floors as the multipliers (dual variables) of their budgets rise.
Each source has two events, numbered k (it leaves its cap) and n + k (it meets its floor). Between two events
of a budget the same rates are free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from freshopt.first_order.budget_groups import Budgets
from freshopt.numerics.arrays import Array, BoolArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Breakpoints at positive multipliers, sorted within each group.

    Attributes
    ----------
    events : ndarray of int, shape (E,)
        Numbers of the events.
    groups : ndarray of int, shape (E,)
        The group of each.
    first, counts : ndarray of int, shape (G,)
        Where each group's events begin, and how many they are.
    """

    events: IntArray
    groups: IntArray
    first: IntArray
    counts: IntArray

    @classmethod
    def of(cls, multipliers: Array, budgets: Budgets) -> Crossings:
        """Sort the breakpoints of n sources by multipliers, shape (2n,)."""
        events = np.flatnonzero((multipliers > 0.0) & (multipliers < np.inf))
        if len(budgets) > 1:
            groups = budgets.groups[events % len(budgets.groups)]
            order = np.lexsort((multipliers[events], groups))
            groups, counts = groups[order], np.bincount(groups, minlength=len(budgets))
        else:
            order = np.argsort(multipliers[events], kind="stable")
            groups, counts = np.zeros_like(events), np.array([len(events)])
        return cls(events[order], groups, np.cumsum(counts) - counts, counts)

    def broadcast_to_sources(self, values: Array) -> Array:
        """Return each event's value of its group, a single one's broadcast."""
        return values if len(self.counts) == 1 else values[self.groups]

    def at(self, position: IntArray) -> IntArray:
        """Return each group's event at a position, shape (G,), any without."""
        if not len(self.events):
            return np.zeros(len(self.counts), dtype=np.int64)
        at: IntArray = self.events[np.minimum(self.first + position, len(self.events) - 1)]
        return at

    def split(self, enough: Callable[[IntArray], BoolArray]) -> IntArray:
        """Return how many events precede each group's multiplier, shape (G,).

        At these events its rates still use up the budget.
        `enough` tells this of one event per group, all groups at once.
        """
        passed, ahead = np.zeros_like(self.counts), self.counts
        while bool(np.any(searched := passed < ahead)):
            middle = (passed + ahead) // 2
            spends = enough(self.at(middle))
            passed = np.where(searched & spends, middle + 1, passed)
            ahead = np.where(searched & ~spends, middle, ahead)
        return passed

    def around(self, split: IntArray) -> tuple[IntArray, IntArray]:
        """Return the events before and after a split, shapes (G,)."""
        return self.at(np.maximum(split - 1, 0)), self.at(np.minimum(split, np.maximum(self.counts - 1, 0)))

    def crowds(self, split: IntArray, multipliers: Array, blur: Array) -> tuple[IntArray, IntArray]:
        """Return positions and crowds of events in unclear order.

        The positions are in `events`, the order is that beside a split.
        A crowd holds the events nearer than rounding to the one before the split, or to the one after it, and
        all between them; one crowd if the two overlap. Numbers of crowds ascend with positions.
        """
        here, width, place = multipliers[self.events], blur[self.events], np.arange(len(self.events))
        reach = []
        for anchors in self.around(split):
            apart = np.abs(here - self.broadcast_to_sources(multipliers[anchors]))
            near = np.flatnonzero(apart <= width + self.broadcast_to_sources(blur[anchors]))
            low, high = np.full(len(split), len(place)), np.full(len(split), -1)
            np.minimum.at(low, self.groups[near], near)
            np.maximum.at(high, self.groups[near], near)
            reach.append((low, high))
        (low, middle), (start, high) = reach
        apart_at = np.where(middle < start, start, high + 1)  # where the second crowd begins
        low, middle = np.minimum(low, start), np.where(middle < start, middle, np.maximum(middle, high))
        first = (place >= low[self.groups]) & (place <= middle[self.groups])
        second = (place >= apart_at[self.groups]) & (place <= high[self.groups])
        positions = np.flatnonzero(first | second)
        return positions, 2 * self.groups[positions] + second[positions]

    def finest(self, positions: IntArray, crowds: IntArray, edges: Array) -> IntArray:
        """Return each position's event of smallest edge in its crowd."""
        order = np.lexsort((np.abs(edges[self.events[positions]]), crowds))
        finest: IntArray = self.events[positions[order]][np.searchsorted(crowds, crowds)]
        return finest

    def reordered(self, positions: IntArray, crowds: IntArray, key: Array) -> Crossings:
        """Return the same events, each crowd in a key's order."""
        events = self.events.copy()
        events[positions] = events[positions[np.lexsort((key, crowds))]]
        return replace(self, events=events)

    def places(self, multipliers: Array) -> IntArray:
        """Return every event's position in its group, shape (2n,).

        Events at multipliers that are not positive come before all others, those at none after them.
        """
        place = np.where(multipliers > 0.0, len(multipliers), -1)
        place[self.events] = np.arange(len(self.events)) - np.repeat(self.first, self.counts)
        return place
