"""Crawls in slots as a flow: one linear program in HiGHS.

Each host has a line of nodes, one per slot, on which its crawls move later or earlier at a cost of 1 a slot;
from a node they leave into the slot, as many as the host takes in it, and the slot takes as many as crawlers
manage. That is a minimum-cost flow, whose linear program has integral vertices ([1]_). A pause of two slots
or more adds a limit on each window of slots; where that leaves fractions, whole numbers are asked for.

Crawls beyond the capacity are paid for dearly, so that a solution tells where there are too many.
Cost: three numbers per host and slot. 1440 host slots take 0.1 s, a fifth of NetworkX's network simplex
(measured); HiGHS is called directly, as SciPy's optimizers take longer to import than that.

References
----------
.. [1] Ahuja, Magnanti and Orlin, "Network Flows", Prentice Hall 1993, theorem 9.10 and section 11.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.slot_demand import Placed, SlotDemand

WHOLE = 1e-6  # distance from an integer that a solver's rounding explains


def linear(demand: SlotDemand) -> Placed:
    """Return the optimal assignment and its lower bound.

    Whole numbers are asked for where pauses leave fractions.
    """
    hosts, slots, price = demand.hosts, demand.slots, float(dear(demand))
    size = hosts * slots
    node = np.arange(size).reshape(hosts, slots)
    inner, every = node[:, :-1].ravel(), np.arange(slots)
    arcs = len(inner)
    # Columns: crawls that leave, moves to the next slot, moves to the one before, crawls beyond the capacity.
    later, earlier = size + np.arange(arcs), size + arcs + np.arange(arcs)
    width = size + 2 * arcs + slots
    cost = np.repeat([0.0, 1.0, price], [size, 2 * arcs, slots])
    upper = np.full(width, np.inf)
    upper[:size] = np.where(demand.open, demand.room[:, None], 0).ravel()
    # Rows: the balance of each node, the capacity of each slot, the windows of hosts with pauses.
    balance = np.concatenate((np.arange(size), inner, inner + 1, inner + 1, inner))
    moves = np.concatenate((np.arange(size), later, later, earlier, earlier))
    rows = [balance, size + np.tile(every, hosts), size + every]
    columns = [moves, np.arange(size), width - slots + every]
    values = [np.repeat([1.0, 1.0, -1.0, 1.0, -1.0], [size, arcs, arcs, arcs, arcs]), np.ones(size)]
    values.append(np.full(slots, -1.0))
    height = size + slots
    for h in np.flatnonzero(demand.pause > 1):
        length = min(int(demand.pause[h]), slots)
        begin = np.arange(slots - length + 1)
        columns.append(node[h][(begin[:, None] + np.arange(length)).ravel()])
        rows.append(height + np.repeat(begin, length))
        values.append(np.ones(len(rows[-1])))
        height += len(begin)
    wanted = demand.counts().ravel().astype(np.float64)
    low, high = np.full(height, -np.inf), np.ones(height)
    low[:size] = high[:size] = wanted
    high[size : size + slots] = demand.capacity
    matrix = np.concatenate(rows), np.concatenate(columns), np.concatenate(values)
    bound, taken = _solved(cost, upper, matrix, low, high, 0)
    if float(np.max(np.abs(taken - np.rint(taken)))) <= WHOLE:
        bound = float(cost @ np.rint(taken))  # whole numbers, without the rounding of the solver
    else:
        _, taken = _solved(cost, upper, matrix, low, high, size)
    over = np.rint(taken[width - slots :]).astype(np.int64)
    return Placed(_places(np.rint(taken[:size]).astype(np.int64).reshape(hosts, slots)), bound, over)


def _solved(
    cost: Array, upper: Array, matrix: tuple[IntArray, IntArray, Array], low: Array, high: Array, whole: int
) -> tuple[float, Array]:
    """Return optimum and solution of a mixed-integer linear program.

    It is the least cost·x and its x, for 0 ≤ x ≤ upper, low ≤ Ax ≤ high, the first `whole` x whole.

    The matrix is given by the rows, columns and values of its entries.
    """
    import highspy

    rows, columns, values = matrix
    order = np.argsort(rows, kind="stable")
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(cost), len(low)
    program.col_cost_, program.col_lower_, program.col_upper_ = cost, np.zeros(len(cost)), upper
    program.row_lower_, program.row_upper_ = low, high
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(low)))))
    program.a_matrix_.index_, program.a_matrix_.value_ = columns[order], values[order]
    if whole:
        kinds = highspy.HighsVarType
        program.integrality_ = [kinds.kInteger] * whole + [kinds.kContinuous] * (len(cost) - whole)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.passModel(program)
    solver.run()
    return float(solver.getInfo().objective_function_value), np.array(solver.getSolution().col_value)


def dear(demand: SlotDemand) -> int:
    """Return the penalty of a crawl beyond the capacity.

    It is more than any detour, of S moves by S slots each.
    """
    return demand.slots**2 + 1


def _places(taken: IntArray) -> IntArray:
    """Return the slots of each host's crawls, in order.

    It is given how many are in each slot.
    """
    slot = np.nonzero(taken)[1]
    return np.repeat(slot, taken[np.nonzero(taken)])
