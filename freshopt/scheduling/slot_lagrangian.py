"""Slot assignment by Lagrangian relaxation of the slot capacities.

It is for days of many hosts with pauses, where a linear program of all slots is slow. The dual variables are
prices of slots.

If each slot had a price that makes up for its scarcity, every host could choose alone: a shortest path over
its crawls and places. Whatever the prices, what hosts pay in all, less what the slots take in, is a bound
that no assignment moves less than (Lagrange; [1]_). So the search is for the prices with the highest bound:

1. steps along what is asked of full slots beyond their capacity ([2]_) find their order of magnitude;
2. of each host's schedules only those near its cheapest are evaluated. Taking −T·ln Σe^(−paid/T) over them in
   place of the cheapest makes the bound smooth, and L-BFGS climbs it while T falls;
3. a linear program over the few places that are left, some five a crawl, ends the search. Its prices are
   tried on *all* places again: only what they prove counts. Where they fall short, more places are let in.

What is left is to choose whole crawls. Most are whole already; the others are chosen first with these fixed,
then, if that moves more than the bound leaves room for, among all places by which a better assignment could
differ: one that uses another place pays at least its reduced cost more than the bound.

Cost: a pass over places and crawls takes 1.5 ns each, 25 ms for 10⁴ crawls of 1440 places; there are some
100, several times as much for the smooth bound, and what the linear program takes. Where crawlers have
negligible spare capacity, or pauses leave fractions everywhere, that and branch and bound can take minutes.

References
----------
.. [1] Fisher, "The Lagrangian relaxation method for solving integer programming problems", Management Science
   27 (1981), doi:10.1287/mnsc.27.1.1.
.. [2] Camerini, Fratta and Maffioli, "On improving relaxation methods by modified gradient techniques",
   Mathematical Programming Study 3 (1975), doi:10.1007/BFb0120697.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from freshopt.compiled.backend import fast
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling import slot_loops
from freshopt.scheduling.slot_demand import Placed, SlotDemand
from freshopt.scheduling.slot_flow import dear
from freshopt.scheduling.slot_linear_program import SlotProgram

STEPS = 60  # of the first search; more of them gain little (measured)
# Heat, slots beyond the cheapest that are looked at, and steps of L-BFGS: measured on days of 10⁴ crawls.
STAGES = ((0.5, 30.0, 60), (0.1, 10.0, 100))
NEAR = 4.0  # slots beyond the cheapest within which the first linear program chooses
WIDER = 3.0
ROUNDS = 6
EXACT = 1e-6  # of bounds and sums of whole slots
ROUNDING = 1e-9  # relative
ENTRIES = 2_000_000  # places near the cheapest that are expected at most; more cost a second pass
LARGEST = 300_000_000  # crawls times places of one host: tables of 12 bytes each


def fits(demand: SlotDemand) -> bool:
    """Return whether the tables of the largest host can be kept."""
    places = np.count_nonzero(demand.open, axis=1) * demand.room
    return bool(np.max(np.diff(demand.first) * places) <= LARGEST)


def priced(demand: SlotDemand) -> Placed:
    """Return the optimal assignment and its lower bound.

    Every host has room for its own crawls.
    """
    dual = _SlotDual(demand)
    price = np.zeros(demand.slots)
    bound = dual.bound(price)
    if int(dual.load().max()) <= demand.capacity:
        return Placed(dual.chosen.copy(), bound, np.zeros(demand.slots, dtype=np.int64))
    price, bound = dual.climb(STEPS)
    for heat, extra, steps in STAGES:
        warmer = dual.soften(price, heat, extra, steps)
        found = dual.bound(warmer)
        if found > bound:
            price, bound = warmer, found
    extra = NEAR
    for _ in range(ROUNDS):
        program = SlotProgram(demand, *dual.near(price, extra))
        value, prices, share, over = program.relaxed()
        found = dual.bound(prices)
        if found > bound:
            price, bound = prices, found
        if value - bound <= EXACT + ROUNDING * value:
            break
        extra *= WIDER
    if float(np.max(over)) > EXACT:
        return Placed(dual.chosen.copy(), bound, np.ceil(over - EXACT).astype(np.int64))
    return _whole(dual, program, share, price, bound)


def _whole(dual: _SlotDual, program: SlotProgram, share: Array, price: Array, bound: float) -> Placed:
    """Return the best integral assignment near a fractional one.

    The prices are those of the bound.
    """
    demand = dual.demand
    best, extra = program.rounded(share), 1.0
    moved = math.inf if best is None else demand.moved(best)
    while moved > math.ceil(bound - EXACT):
        extra = min(extra, moved - 1.0 - bound) + EXACT
        found = SlotProgram(demand, *dual.near(price, extra)).whole()
        if found is not None and demand.moved(found) < moved:
            best, moved = found, demand.moved(found)
        if extra >= min(moved - 1.0 - bound, dear(demand)):
            break  # whatever uses a place beyond moves at least as much
        extra *= WIDER
    if best is None:  # where fractions of crawls fit, but no whole ones
        return Placed(dual.chosen.copy(), bound, np.where(price == np.max(price), 1, 0))
    return Placed(best, bound, np.zeros(demand.slots, dtype=np.int64))


class _SlotDual:
    """Hosts' crawls and places, and best responses to prices."""

    def __init__(self, demand: SlotDemand) -> None:
        self.demand = demand
        # An upper bound of every slot's dual variable: beyond it a crawl does without the slot.
        self.dear = float(dear(demand))
        places, before, after = [], [], []
        for h in range(demand.hosts):
            slot = np.repeat(np.flatnonzero(demand.open[h]), demand.room[h])
            pause = int(demand.pause[h])
            own = np.arange(len(slot))
            places.append(slot)
            before.append(np.searchsorted(slot, slot - pause, side="right") if pause > 1 else own)
            after.append(np.searchsorted(slot, slot + pause) if pause > 1 else own + 1)
        self.begin = np.concatenate(([0], np.cumsum([len(slot) for slot in places])))
        self.slot, self.before, self.after = map(np.concatenate, (places, before, after))
        shape = int(np.max(np.diff(demand.first))), int(np.max(np.diff(self.begin))) + 1
        self.choice = np.empty(shape, dtype=np.int32)
        self.chosen = np.zeros(len(demand.want), dtype=np.int64)

    def bound(self, price: Array) -> float:
        """Let the hosts choose and return the bound that prices prove."""
        paid = fast(slot_loops.cheapest)(
            self.demand.first,
            self.demand.want,
            self.begin,
            self.slot,
            self.before,
            price,
            self.choice,
            self.chosen,
        )
        return float(paid) - self.demand.capacity * float(np.sum(price))

    def load(self) -> IntArray:
        """Return the crawls in each slot as the hosts chose last."""
        return np.bincount(self.chosen, minlength=self.demand.slots)

    def climb(self, steps: int) -> tuple[Array, float]:
        """Return prices after steps along deflected subgradients from 0, and their bound."""
        price = best = np.zeros(self.demand.slots)
        highest, hope, waited = -math.inf, 0.05, 0
        direction = np.zeros_like(price)
        for _ in range(steps):
            bound = self.bound(price)
            waited += 1
            if bound > highest:
                best, highest, waited = price, bound, 0
            elif waited == 10:  # the hoped-for rise of the bound was too high
                price, waited, hope, direction = best, 0, 0.6 * hope, np.zeros_like(price)
            beyond = (self.load() - self.demand.capacity).astype(np.float64)
            beyond[(price <= 0.0) & (beyond < 0.0)] = 0.0
            size = float(direction @ direction)
            turn = max(0.0, -1.5 * float(beyond @ direction) / size) if size else 0.0
            direction = beyond + turn * direction
            size = float(direction @ direction)
            if size == 0.0:
                break
            rise = highest + hope * max(abs(highest), 1.0) - bound
            price = np.clip(price + rise / size * direction, 0.0, self.dear)
        return best, highest

    def near(self, price: Array, extra: float) -> tuple[IntArray, IntArray]:
        """Return crawls and slots of near-optimal schedules.

        These are all within `extra` of their host's cheapest.
        """
        crawl, place = self._near(price, extra)
        return crawl, self.slot[place]

    def _near(self, price: Array, extra: float) -> tuple[IntArray, IntArray]:
        """Return the crawls, in order, and the places."""
        room = ENTRIES
        while True:
            crawl, place = fast(slot_loops.affordable)(
                self.demand.first,
                self.demand.want,
                self.begin,
                self.slot,
                self.before,
                self.after,
                price,
                extra,
                room,
            )
            if len(crawl) < room:
                break
            room *= 4
        order = np.lexsort((place, crawl))
        near = crawl[order].astype(np.int64)
        return near, self.begin[self.demand.host[near]] + place[order].astype(np.int64)

    def soften(self, price: Array, heat: float, extra: float, steps: int) -> Array:
        """Return prices of a higher smooth bound."""
        from scipy.optimize import Bounds, minimize

        demand = self.demand
        crawl, place = self._near(price, extra)
        slot = self.slot[place]
        start = np.searchsorted(crawl, np.arange(len(demand.want) + 1))
        earlier, later = np.zeros(len(slot), dtype=np.int64), np.zeros(len(slot), dtype=np.int64)
        fast(slot_loops.neighbours)(
            demand.first,
            start,
            place - self.begin[demand.host[crawl]],
            self.begin,
            self.before,
            self.after,
            earlier,
            later,
        )
        moved = np.abs(slot - demand.want[crawl]).astype(np.float64)
        load = np.zeros(demand.slots)
        softest = fast(slot_loops.softest)

        def loss(price: Array) -> tuple[float, Array]:
            value = softest(demand.first, start, slot, moved, earlier, later, price, heat, load)
            return demand.capacity * float(np.sum(price)) - value, demand.capacity - load

        options = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 30, "ftol": 1e-12, "gtol": 1e-4}
        minimal: Callable[..., Any] = minimize  # whose types leave out vectors of any shape
        found = minimal(
            loss, price, jac=True, method="L-BFGS-B", bounds=Bounds(0.0, self.dear), options=options
        )
        return np.asarray(found.x)
