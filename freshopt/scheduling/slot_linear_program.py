"""Linear program of crawls and the few slots of each.

A share x of each crawl goes to each of its slots: shares sum to 1, those in a slot to its capacity at most,
and of two crawls of a host that follow each other, the later one is in no slot up to t unless the earlier one
has left room by then: the shares of the later one up to t and those of the earlier one from t − pause + 1 on
sum to 1 at most. Written this way, with x instead of its sums, the simplex method takes half a second for 10⁴
crawls of three slots each where it takes more than 40 seconds for the sums (measured).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.scheduling.slot_demand import SlotDemand
from freshopt.scheduling.slot_flow import WHOLE, dear


class SlotProgram:
    """Shares of crawls in slots.

    Parameters
    ----------
    demand : SlotDemand
    crawl, slot : ndarray of int
        Which crawls may take which slots, in this order; there may be repetitions.
    """

    def __init__(self, demand: SlotDemand, crawl: IntArray, slot: IntArray) -> None:
        self.demand = demand
        key = np.unique(crawl * np.int64(demand.slots) + slot)
        self.crawl, self.slot = np.divmod(key, demand.slots)
        self.cost = np.abs(self.slot - demand.want[self.crawl]).astype(np.float64)
        self.matrix, self.low, self.high = self._rows()

    def relaxed(self) -> tuple[float, Array, Array, Array]:
        """Return value, dual variables and solution of the relaxation.

        These are the value of the linear program, prices of the slots, shares, and crawls beyond capacities.

        What is beyond a capacity is dear, so that there is a solution wherever hosts have room.
        """
        from scipy.optimize import linprog
        from scipy.sparse import coo_array, hstack

        crawls, slots, n = len(self.demand.want), self.demand.slots, len(self.crawl)
        rows = self.matrix.shape[0] - crawls
        beyond = coo_array((np.full(slots, -1.0), (np.arange(slots), np.arange(slots))), shape=(rows, slots))
        once = coo_array((crawls, slots))
        program: Callable[..., Any] = linprog  # whose types leave out sparse matrices
        found = program(
            np.concatenate((self.cost, np.full(slots, float(dear(self.demand))))),
            hstack([self.matrix[crawls:], beyond]).tocsr(),
            self.high[crawls:],
            hstack([self.matrix[:crawls], once]).tocsr(),
            np.ones(crawls),
            (0.0, None),
            method="highs-ds",
        )
        price = np.maximum(0.0, -np.asarray(found.ineqlin.marginals)[:slots])
        return float(found.fun), price, np.asarray(found.x)[:n], np.asarray(found.x)[n:]

    def rounded(self, share: Array) -> IntArray | None:
        """Return the slots of the best rounded assignment, or None.

        Whole crawls are left where they are.
        """
        parts = np.abs(share - np.rint(share)) > WHOLE
        if not parts.any():
            return self._read(np.flatnonzero(share > 0.5))
        free = np.zeros(len(self.demand.want), dtype=np.bool_)
        free[self.crawl[parts]] = True
        return self.whole(free[self.crawl] | (share > 0.5))

    def whole(self, among: BoolArray | None = None) -> IntArray | None:
        """Return the slots of the best integral assignment, or None.

        The choice is among some of the places; None if there is none.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        kept = np.arange(len(self.crawl)) if among is None else np.flatnonzero(among)
        found = milp(
            self.cost[kept],
            constraints=LinearConstraint(self.matrix[:, kept], self.low, self.high),
            bounds=Bounds(0.0, 1.0),
            integrality=np.ones(len(kept), dtype=np.int64),
            options={"mip_rel_gap": 0.0},
        )
        return None if found.x is None else self._read(kept[found.x > 0.5])

    def _read(self, taken: IntArray) -> IntArray:
        """Return the slots that are taken, those of a host in order."""
        slot = self.slot[taken]
        return slot[np.lexsort((slot, self.demand.host))]

    def _rows(self) -> tuple[Any, Array, Array]:
        """Return the constraint rows.

        One a crawl, one a slot, then those that keep crawls apart.
        """
        from scipy.sparse import coo_array

        demand, entries = self.demand, np.arange(len(self.crawl))
        crawls, slots = len(demand.want), demand.slots
        apart, many = self._apart(crawls + slots)
        rows = np.concatenate((self.crawl, crawls + self.slot, apart[0]))
        columns = np.concatenate((entries, entries, apart[1]))
        shape = (crawls + slots + many, len(entries))
        matrix = coo_array((np.ones(len(rows)), (rows, columns)), shape=shape)
        low = np.full(shape[0], -np.inf)
        low[:crawls] = 1.0
        high = np.ones(shape[0])
        high[crawls : crawls + slots] = demand.capacity
        return matrix.tocsr(), low, high

    def _apart(self, row: int) -> tuple[tuple[IntArray, IntArray], int]:
        """Return the entries of the pause constraints.

        These are rows, from number `row` on, and columns of what keeps crawls of a host apart.
        """
        demand = self.demand
        crawls = len(demand.want)
        start = np.searchsorted(self.crawl, np.arange(crawls + 1))
        # With room for r crawls in a slot it is the r-th after a crawl that has to be later.
        step = np.where(demand.pause > 1, 1, demand.room)[demand.host]
        first = np.arange(crawls) - step  # the crawl before
        first = np.where(first >= demand.first[demand.host], first, -1)
        entry = np.flatnonzero(first[self.crawl] >= 0)
        before = first[self.crawl[entry]]
        pause = demand.pause[demand.host[before]]
        key = self.crawl * np.int64(demand.slots) + self.slot
        # From `at` on the crawl before is too late for this entry.
        limit = np.maximum(self.slot[entry] - pause, -1)
        at = np.searchsorted(key, before * np.int64(demand.slots) + limit, side="right")
        end = start[before + 1]
        # A later entry with the same limit says more; one without a limit says nothing.
        same = np.zeros(len(entry), dtype=np.bool_)
        same[:-1] = (self.crawl[entry[1:]] == self.crawl[entry[:-1]]) & (at[1:] == at[:-1])
        told = np.flatnonzero(~same & (at < end))
        own = entry[told]
        begin, until = start[self.crawl[own]], own + 1
        rows, columns = [], []
        for low, high in ((begin, until), (at[told], end[told])):
            length = high - low
            rows.append(row + np.repeat(np.arange(len(told)), length))
            offset = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
            columns.append(np.repeat(low, length) + offset)
        return (np.concatenate(rows), np.concatenate(columns)), len(told)
