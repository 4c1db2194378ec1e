"""Crawls in slots: one linear program, a flow, solved by HiGHS.

Each host has a line of nodes, slots near preferred ones, on which its crawls move later or earlier at a cost
of 1 a slot; from a node they leave into the slot, as many as the host takes in it, and the slot takes as many
as crawlers manage. That is a minimum-cost flow, whose linear program has integral vertices ([1]_). A pause of
two slots or more adds a limit on each window of slots. Where that leaves fractions, whole numbers are asked
for: first of these alone, then, unless the bound proves that, of all, to one part in a thousand.

Slots far from all preferred ones are left out at first. The dual variables of the others bound what these
could save: if nothing, what was found is the optimum of all slots; else more are let in.

Crawls beyond the capacity are paid for dearly, so that a solution tells where there are too many.
Cost: measured in docs/evidence/benchmarks.md. HiGHS is called directly, as SciPy's optimizers take longer to
import than a small day to be placed.

References
----------
.. [1] Ahuja, Magnanti and Orlin, "Network Flows", Prentice Hall 1993, theorem 9.10 and section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.scheduling.refresh_order import ordinals

WHOLE = 1e-6  # distance from an integer, and from a bound, that a solver's rounding explains
# Open slots on each side of a preferred one that are let in first, and how many times as many then.
NEAR, WIDER = 8, 4
GAP = 1e-3  # relative, at which branch and bound ends: the last part takes minutes for 10⁴ crawls (measured)
MOST_NODES = 2_000_000  # slots of hosts in a program: it takes 5 kB for each (measured with 84 000)


@dataclass(frozen=True, slots=True, eq=False)
class SlotDemand:
    """Crawls of hosts, each host's in the order of their preferred times.

    - `first` (H + 1,): Where each host's crawls begin among all.
    - `want` (m,): The slot that each wants, ascending within a host.
    - `open` (H, S): Whether a host may be crawled in a slot.
    - `room` (H,): Crawls of a host in a slot.
    - `pause` (H,): Slots from one crawl of a host to the next, at least; its room is 1 if that is more than
      one.
    - `capacity`: Crawls in a slot.
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

    def near(self, reach: int) -> list[IntArray]:
        """Return each host's preferred slots and the open ones around."""
        found = []
        for h in range(self.hosts):
            slots, want = (
                np.flatnonzero(self.open[h]),
                np.unique(self.want[self.first[h] : self.first[h + 1]]),
            )
            at = np.searchsorted(slots, want)
            edges = np.zeros(len(slots) + 1, dtype=np.int64)
            np.add.at(edges, np.maximum(at - reach, 0), 1)
            np.add.at(edges, np.minimum(at + reach + 1, len(slots)), -1)
            found.append(np.union1d(want, slots[np.cumsum(edges)[:-1] > 0]))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Crawls in slots.

    - `slot` (m,): In the order of the demand.
    - `bound`: What no assignment moves less than, in slots.
    - `over` (S,): Crawls in a slot beyond the capacity, where all together do not fit; else 0.
    """

    slot: IntArray
    bound: float
    over: IntArray


def placed(demand: SlotDemand) -> Placed:
    """Return the best assignment and a lower bound."""
    if not len(demand.want):
        return Placed(np.empty(0, dtype=np.int64), 0.0, np.zeros(demand.slots, dtype=np.int64))
    reach, kept = NEAR, demand.near(NEAR)
    while True:
        program = SlotProgram.of(demand, kept)
        found = program.solve()
        gains = program.gains(found.dual)
        if float(demand.room @ [np.sum(np.maximum(gain, 0.0)) for gain in gains]) <= WHOLE:
            break
        reach *= WIDER
        near = zip(kept, demand.near(reach), gains, strict=True)
        kept = [np.union1d(own, wide[gain[wide] > 0.0]) for own, wide, gain in near]
    if _whole(found.taken):
        return program.read(found.taken, program.value(found.taken))  # without the rounding of the solver
    bound, taken = found.bound, program.rounded(found.taken).taken
    if not program.proves(bound, taken):
        taken = program.solve(whole=True).taken
    if not program.proves(bound / (1.0 - GAP), taken):
        # What moves less by a slot or more uses no slot that costs more than that beyond the bound.
        least = bound + 1.0 - program.value(taken) - WHOLE
        more = [np.union1d(own, np.flatnonzero(gain >= least)) for own, gain in zip(kept, gains, strict=True)]
        program = SlotProgram.of(demand, more)
        best = program.solve(whole=True)
        taken, bound = best.taken, max(bound, min(best.bound, program.value(best.taken)))
    return program.read(taken, bound)


class Solved(NamedTuple):
    """Bound on an optimum, a solution, and the rows' dual variables."""

    bound: float
    taken: Array
    dual: Array


@dataclass(frozen=True, slots=True, eq=False)
class SlotProgram:
    """The program of some slots of each host.

    - `begin` (H + 1,): Where each host's nodes begin.
    - `slot` (N,): Of each node, ascending within a host.
    - `cost`, `upper`: Of the columns, leavers of the nodes first and crawls beyond the capacity last.
    - `matrix`: Rows, columns and values of its entries.
    - `low`, `high`: Of the rows, balances of the nodes first and capacities of the slots next.
    """

    demand: SlotDemand
    begin: IntArray
    slot: IntArray
    cost: Array
    upper: Array
    matrix: tuple[IntArray, IntArray, Array]
    low: Array
    high: Array

    @classmethod
    def of(cls, demand: SlotDemand, kept: list[IntArray]) -> SlotProgram:
        """Write the program of the slots that are kept of each host."""
        begin = np.concatenate(([0], np.cumsum([len(own) for own in kept])))
        slot, host = np.concatenate(kept), np.repeat(np.arange(demand.hosts), np.diff(begin))
        n, slots, node, every = len(slot), demand.slots, np.arange(len(slot)), np.arange(demand.slots)
        if n > MOST_NODES:
            raise SourceDataError(
                f"{len(demand.want)} crawls have {n} slots near the times they are wanted, too many for one "
                f"program (at most {MOST_NODES}). Take longer slots, or a shorter horizon."
            )
        free = demand.open[host, slot]
        inner, heads = np.flatnonzero(host[1:] == host[:-1]), begin[:-1][np.diff(begin) > 0]
        length = (slot[inner + 1] - slot[inner]).astype(np.float64)
        # Columns: crawls that leave, moves to the next node and to the one before, crawls without any place
        # of their host's (only while few slots are in), crawls beyond the capacity.
        sizes = [n, len(inner), len(inner), len(heads), slots]
        leave, later, earlier, lost, beyond = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
        dear = float(slots**2 + 1)  # more than any detour, of S moves by S slots each
        cost = np.concatenate((np.zeros(n), length, length, np.repeat([2.0 * dear, dear], sizes[3:])))
        upper = np.full(len(cost), np.inf)
        upper[:n] = np.where(free, demand.room[host], 0)
        # Rows: the balance of each node, the capacity of each slot, the windows of hosts with pauses.
        key, pause = host * np.int64(2 * slots) + slot, np.minimum(demand.pause, slots)[host]
        window, member = _windows(np.flatnonzero(free & (pause > 1)), key, pause)
        entries = [
            (node, leave, 1.0),
            (inner, later, 1.0),
            (inner + 1, later, -1.0),
            (inner + 1, earlier, 1.0),
            (inner, earlier, -1.0),
            (heads, lost, 1.0),
            (n + slot, leave, 1.0),
            (n + every, beyond, -1.0),
            (n + slots + window, member, 1.0),
        ]
        rows, columns = (np.concatenate([entry[k] for entry in entries]) for k in (0, 1))
        values = np.repeat([entry[2] for entry in entries], [len(entry[0]) for entry in entries])
        height = n + slots + int(np.max(window, initial=-1)) + 1
        low, high = np.full(height, -np.inf), np.ones(height)
        preferred = np.searchsorted(key, demand.host * np.int64(2 * slots) + demand.want)
        low[:n] = high[:n] = np.bincount(preferred, minlength=n)
        high[n : n + slots] = demand.capacity
        return cls(demand, begin, slot, cost, upper, (rows, columns, values), low, high)

    def solve(self, *, fixed: Array | None = None, whole: bool = False) -> Solved:
        """Return the optimum, perhaps whole, with leavers `fixed`."""
        import highspy

        rows, columns, values = self.matrix
        order = np.argsort(rows, kind="stable")
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self.cost), len(self.low)
        least, most = np.zeros(len(self.cost)), self.upper.copy()
        if fixed is not None:
            known = np.flatnonzero(np.isfinite(fixed))
            least[known] = most[known] = fixed[known]
        program.col_cost_, program.col_lower_, program.col_upper_ = self.cost, least, most
        program.row_lower_, program.row_upper_ = self.low, self.high
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.concatenate(
            ([0], np.cumsum(np.bincount(rows, minlength=len(self.low))))
        )
        program.a_matrix_.index_, program.a_matrix_.value_ = columns[order], values[order]
        if whole:
            kinds, n = highspy.HighsVarType, len(self.slot)
            program.integrality_ = [kinds.kInteger] * n + [kinds.kContinuous] * (len(self.cost) - n)
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("mip_rel_gap", GAP)
        solver.passModel(program)
        solver.run()
        told, solution = solver.getInfo(), solver.getSolution()
        bound = told.mip_dual_bound if whole else told.objective_function_value
        return Solved(float(bound), np.array(solution.col_value), np.array(solution.row_dual))

    def rounded(self, taken: Array) -> Solved:
        """Return the best whole crawls beside those that are whole already."""
        leave = taken[: len(self.slot)]
        return self.solve(fixed=np.where(_fractions(leave), np.nan, np.rint(leave)), whole=True)

    def gains(self, dual: Array) -> list[Array]:
        """Return by how much slots left out could lower the optimum.

        By a crawl in each; −inf for other slots. Between nodes the value of a crawl is that at one of them,
        less the way there. With those values the dual solution holds for all slots but where it is above the
        price of the slot; where it is below, whoever uses the slot pays as much more than the bound.
        """
        demand, n, every = self.demand, len(self.slot), np.arange(self.demand.slots)
        price = -dual[n : n + demand.slots]
        gains = [np.full(demand.slots, -np.inf) for _ in range(demand.hosts)]
        for h in np.flatnonzero(np.diff(self.begin)).tolist():
            slot, value = (column[self.begin[h] : self.begin[h + 1]] for column in (self.slot, dual[:n]))
            after = np.searchsorted(slot, every)
            before, after = np.maximum(after - 1, 0), np.minimum(after, len(slot) - 1)
            sides = (value[k] - np.abs(every - slot[k]) for k in (before, after))
            out = np.array(demand.open[h])
            out[slot] = False
            gains[h][out] = (np.maximum(*sides) - price)[out]
        return gains

    def value(self, taken: Array) -> float:
        """Return what a solution costs, rounded to whole crawls."""
        return float(self.cost @ np.rint(taken))

    def proves(self, bound: float, taken: Array) -> bool:
        """Return whether no whole crawls cost less."""
        return _whole(taken) and self.value(taken) <= math.ceil(bound - WHOLE)

    def read(self, taken: Array, bound: float) -> Placed:
        """Return the crawls of a solution in their slots."""
        leave, beyond = np.split(np.rint(taken).astype(np.int64), [len(self.slot)])
        return Placed(np.repeat(self.slot, leave), bound, beyond[len(beyond) - self.demand.slots :])


def _fractions(taken: Array) -> BoolArray:
    return np.abs(taken - np.rint(taken)) > WHOLE


def _whole(taken: Array) -> bool:
    return not bool(_fractions(taken).any())


def _windows(node: IntArray, key: IntArray, pause: IntArray) -> tuple[IntArray, IntArray]:
    """Return windows, as pairs of number and node, of which one counts."""
    first, end = np.arange(len(node)), np.searchsorted(key[node], key[node] + pause[node])
    # One node alone is no limit, and what ends where the window before it ends is part of that.
    told = np.flatnonzero((end - first > 1) & (end > np.concatenate(([0], end[:-1]))))
    window, place = ordinals(end[told] - first[told])
    return window, node[first[told][window] + place]
