"""`Crossings`: where rates leave their caps and meet their floors as the multipliers of their budgets rise.

Each source has two events, numbered k (it leaves its cap) and n + k (it meets its floor). Between two events
of a budget the same rates are free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array, BoolArray, IntArray
from freshopt.solvers.budgets import Budgets


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """The events at positive multipliers, group by group, each group's in ascending order.

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
        """Sort the events of n sources by their multipliers, shape (2n,)."""
        events = np.flatnonzero((multipliers > 0.0) & (multipliers < np.inf))
        if len(budgets) > 1:
            groups = budgets.groups[events % len(budgets.groups)]
            by_group = np.argsort(groups, kind="stable")
            events, groups = events[by_group], groups[by_group]
            counts = np.bincount(groups, minlength=len(budgets))
        else:
            groups, counts = np.zeros_like(events), np.array([len(events)])
        return cls(events, groups, np.cumsum(counts) - counts, counts).sorted_by(multipliers[events])

    def sorted_by(self, key: Array) -> Crossings:
        """Return the same events in the order of a key, shape (E,)."""
        order = np.argsort(key, kind="stable") if len(self.counts) == 1 else np.lexsort((key, self.groups))
        return Crossings(self.events[order], self.groups, self.first, self.counts)

    def spread(self, values: Array) -> Array:
        """Give each event its group's value; a single one is left to broadcasting."""
        return values if len(self.counts) == 1 else values[self.groups]

    def at(self, position: IntArray) -> IntArray:
        """Return the event at a position in each group, shape (G,); any event where there is none."""
        if not len(self.events):
            return np.zeros(len(self.counts), dtype=np.int64)
        at: IntArray = self.events[np.minimum(self.first + position, len(self.events) - 1)]
        return at

    def split(self, enough: Callable[[IntArray], BoolArray]) -> IntArray:
        """Return how many of each group's events come while its rates still spend the budget, shape (G,).

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
        """Return the events before and after a split; the same twice where one side has none, shapes (G,)."""
        return self.at(np.maximum(split - 1, 0)), self.at(np.minimum(split, np.maximum(self.counts - 1, 0)))

    def crowded(self, split: IntArray, multipliers: Array, blur: Array) -> BoolArray:
        """Tell which groups have other events as near the split as rounding blurs, shape (G,)."""
        here, width = multipliers[self.events], blur[self.events]
        before, after = self.around(split)
        near = np.abs(here - self.spread(multipliers[before])) <= width
        near |= np.abs(here - self.spread(multipliers[after])) <= width
        crowd: BoolArray = np.bincount(self.groups[near], minlength=len(split)) > 2 - (before == after)
        return crowd

    def places(self, multipliers: Array) -> IntArray:
        """Return the position in its group of every event, shape (2n,).

        Events at multipliers that are not positive come before all others, those at none after them.
        """
        place = np.where(multipliers > 0.0, len(multipliers), -1)
        place[self.events] = np.arange(len(self.events)) - np.repeat(self.first, self.counts)
        return place
