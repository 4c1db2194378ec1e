"""Crawls in slots as a flow: NetworkX for a few thousand host slots, a linear program in HiGHS for more.

Each host has a line of nodes, one per slot, on which its crawls move later or earlier at a cost of 1 a slot;
from a node they leave into the slot, as many as the host takes in it, and the slot takes as many as crawlers
manage. That is a minimum-cost flow, whose linear program has integral vertices ([1]_). A pause of two slots
or more adds a limit on each window of slots; where that leaves fractions, whole numbers are asked for.

Crawls beyond the capacity are paid for dearly, so that a solution tells where there are too many.
Cost: three numbers per host and slot. 1500 host slots take NetworkX about 0.3 s.

References
----------
.. [1] Ahuja, Magnanti and Orlin, "Network Flows", Prentice Hall 1993, theorem 9.10 and section 11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from freshopt.arrays import IntArray
from freshopt.scheduling.slot_demand import Placed, SlotDemand

WHOLE = 1e-6  # distance from an integer that a solver's rounding explains


def network(demand: SlotDemand) -> Placed:
    """Return the best assignment of a demand without pauses, by NetworkX's network simplex in integers."""
    import networkx

    hosts, slots, wanted = demand.hosts, demand.slots, demand.counts()
    graph = networkx.DiGraph()
    graph.add_node("out", demand=int(wanted.sum()))
    for s in range(slots):
        graph.add_edge(("slot", s), "out", capacity=demand.capacity, weight=0)
        graph.add_edge(("slot", s), "over", weight=0)
    graph.add_edge("over", "out", weight=dear(demand))
    for h in range(hosts):
        for s in range(slots):
            graph.add_node((h, s), demand=-int(wanted[h, s]))
            if demand.open[h, s]:
                graph.add_edge((h, s), ("slot", s), capacity=int(demand.room[h]), weight=0)
            if s + 1 < slots:
                graph.add_edge((h, s), (h, s + 1), weight=1)
                graph.add_edge((h, s + 1), (h, s), weight=1)
    cost, flow = networkx.network_simplex(graph)
    taken = np.array([[flow[h, s].get(("slot", s), 0) for s in range(slots)] for h in range(hosts)])
    over = np.array([flow["slot", s]["over"] for s in range(slots)])
    return Placed(_places(taken), float(cost - dear(demand) * over.sum()), over)


def linear(demand: SlotDemand) -> Placed:
    """Return the best assignment by HiGHS, with whole numbers asked for where pauses leave fractions."""
    from scipy.optimize import Bounds, LinearConstraint, linprog, milp
    from scipy.sparse import coo_array, vstack

    hosts, slots = demand.hosts, demand.slots
    size = hosts * slots
    node = np.arange(size).reshape(hosts, slots)
    inner = node[:, :-1].ravel()
    arcs = len(inner)
    # Columns: crawls that leave, moves to the next slot, moves to the one before, crawls beyond the capacity.
    rows = np.concatenate((np.arange(size), inner, inner + 1, inner + 1, inner))
    later, earlier = size + np.arange(arcs), size + arcs + np.arange(arcs)
    columns = np.concatenate((np.arange(size), later, later, earlier, earlier))
    signs = np.repeat([1.0, 1.0, -1.0, 1.0, -1.0], [size, arcs, arcs, arcs, arcs])
    width = size + 2 * arcs + slots
    balance = coo_array((signs, (rows, columns)), shape=(size, width)).tocsr()
    slot_rows = np.concatenate((np.tile(np.arange(slots), hosts), np.arange(slots)))
    slot_columns = np.concatenate((np.arange(size), width - slots + np.arange(slots)))
    slot_signs = np.repeat([1.0, -1.0], [size, slots])
    limits = [coo_array((slot_signs, (slot_rows, slot_columns)), shape=(slots, width))]
    most = [np.full(slots, float(demand.capacity))]
    for h in np.flatnonzero(demand.pause > 1):
        limits.append(_windows(node[h], int(demand.pause[h]), width))
        most.append(np.ones(limits[-1].shape[0]))
    above, beyond = vstack(limits).tocsr(), np.concatenate(most)
    cost = np.repeat([0.0, 1.0, float(dear(demand))], [size, 2 * arcs, slots])
    highest = np.full(width, np.inf)
    highest[:size] = np.where(demand.open, demand.room[:, None], 0).ravel()
    wanted = demand.counts().ravel().astype(np.float64)
    box = np.column_stack((np.zeros(width), highest))
    program: Callable[..., Any] = linprog  # whose types leave out sparse matrices
    found = program(cost, above, beyond, balance, wanted, box, method="highs")
    bound, taken = float(found.fun), found.x
    if float(np.max(np.abs(taken - np.rint(taken)))) > WHOLE:
        rules = [LinearConstraint(balance, wanted, wanted), LinearConstraint(above, -np.inf, beyond)]
        whole = np.repeat([1, 0], [size, width - size])
        exact = milp(
            cost,
            constraints=rules,
            bounds=Bounds(0.0, highest),
            integrality=whole,
            options={"mip_rel_gap": 0.0},
        )
        taken = exact.x
    over = np.rint(taken[width - slots :]).astype(np.int64)
    return Placed(_places(np.rint(taken[:size]).astype(np.int64).reshape(hosts, slots)), bound, over)


def dear(demand: SlotDemand) -> int:
    """Return what a crawl beyond the capacity costs: more than any detour, of S moves by S slots each."""
    return demand.slots**2 + 1


def _places(taken: IntArray) -> IntArray:
    """Return the slots of the crawls of each host in their order, given how many are in each."""
    slot = np.nonzero(taken)[1]
    return np.repeat(slot, taken[np.nonzero(taken)])


def _windows(nodes: IntArray, pause: int, width: int) -> Any:  # noqa: ANN401 - a sparse array
    """Return the rows that sum a host's crawls over each window of `pause` slots."""
    from scipy.sparse import coo_array

    count = max(1, len(nodes) - pause + 1)
    length = min(pause, len(nodes))
    rows = np.repeat(np.arange(count), length)
    columns = nodes[(np.arange(count)[:, None] + np.arange(length)).ravel()]
    return coo_array((np.ones(len(rows)), (rows, columns)), shape=(count, width))
