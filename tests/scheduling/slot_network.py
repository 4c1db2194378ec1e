"""Crawls in slots by NetworkX's network simplex, in whole numbers: the optimum without any solver of ours."""

from __future__ import annotations

import networkx
import numpy as np

from freshopt.scheduling.slot_program import Placed, SlotDemand


def network(demand: SlotDemand) -> Placed:
    """Return the best assignment of a demand without pauses."""
    hosts, slots = demand.hosts, demand.slots
    wanted = np.zeros((hosts, slots), dtype=np.int64)
    np.add.at(wanted, (demand.host, demand.want), 1)
    dear = slots**2 + 1  # a crawl beyond the capacity: more than any detour
    graph = networkx.DiGraph()
    graph.add_node("out", demand=int(wanted.sum()))
    for s in range(slots):
        graph.add_edge(("slot", s), "out", capacity=demand.capacity, weight=0)
        graph.add_edge(("slot", s), "over", weight=0)
    graph.add_edge("over", "out", weight=dear)
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
    slot = np.nonzero(taken)[1]
    return Placed(np.repeat(slot, taken[np.nonzero(taken)]), float(cost - dear * over.sum()), over)
