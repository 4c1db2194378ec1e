"""Blocks of a graph: its biconnected components, directions of edges left aside.

Two nodes of a block lie on a common cycle; an edge on no cycle, a bridge, is a block of its own. Blocks meet
in single nodes only, and form a tree. So all that is upstream of a node through one block has no node in
common with what is upstream of it through another, and a path that leaves a block does not come back to it.

Cost: one depth-first search (Tarjan), some microseconds an edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import IntArray
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.pipelines.graph import Graph


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Block of three nodes or more.

    Attributes
    ----------
    nodes : ndarray of int, shape (m,)
        Positions in the graph, in its order.
    parents : tuple of ndarrays of int
        Places in the block of each node's parents within it.
    bits : ndarray of uint8, shape (m, ⌈m/8⌉)
        Nodes of the block that lie upstream of each.
    """

    nodes: IntArray
    parents: tuple[IntArray, ...]
    bits: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, edges: list[tuple[int, int]]) -> Block:
        """Collect the upstream sets of a block's edges."""
        nodes = np.unique(np.array(edges, dtype=np.int64))
        above: list[list[int]] = [[] for _ in nodes]
        for up, down in np.searchsorted(nodes, edges).tolist():
            above[down].append(up)
        parents = tuple(np.array(own, dtype=np.int64) for own in above)
        bits = np.zeros((len(nodes), (len(nodes) + 7) // 8), dtype=np.uint8)
        for k, own in enumerate(parents):
            if len(own):
                np.bitwise_or.reduce(bits[own], axis=0, out=bits[k])
                np.bitwise_or.at(bits[k], own // 8, (128 >> (own % 8)).astype(np.uint8))
        return cls(nodes, parents, bits)

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self.nodes)

    def upstream(self, k: int) -> npt.NDArray[np.bool_]:
        """Return which nodes of the block lie upstream of one, shape (m,)."""
        return np.unpackbits(self.bits[k], count=len(self)).view(np.bool_)


def blocks_of(graph: Graph) -> list[list[tuple[int, int]]]:
    """Return the edges of each block, as pairs of positions.

    Examples
    --------
    >>> from freshopt.pipelines.graph import read_graph
    >>> edges = [("r", "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
    >>> sorted(map(len, blocks_of(read_graph(edges))))
    [1, 4]
    """
    n = len(graph)
    near: list[list[int]] = [[] for _ in range(n)]
    for k in range(n):
        for up in graph.parents(k).tolist():
            near[k].append(up)
            near[up].append(k)
    found: list[list[tuple[int, int]]] = []
    # When each node was reached, and the earliest that its subtree has an edge to.
    reached, low = [-1] * n, [0] * n
    walked: list[tuple[int, int]] = []
    clock = 0
    for start in range(n):
        if reached[start] >= 0:
            continue
        reached[start] = low[start] = clock
        clock += 1
        path = [(start, -1, iter(near[start]))]
        while path:
            node, came_from, rest = path[-1]
            for other in rest:
                if other == came_from or reached[other] > reached[node]:
                    continue
                walked.append((min(node, other), max(node, other)))
                if reached[other] < 0:
                    reached[other] = low[other] = clock
                    clock += 1
                    path.append((other, node, iter(near[other])))
                    break
                low[node] = min(low[node], reached[other])
            else:
                path.pop()
                if came_from < 0:
                    continue
                low[came_from] = min(low[came_from], low[node])
                if low[node] >= reached[came_from]:
                    first = _last(walked, (min(node, came_from), max(node, came_from)))
                    found.append(walked[first:])
                    del walked[first:]
    return found


def _last(walked: list[tuple[int, int]], edge: tuple[int, int]) -> int:
    """Return where an edge was walked last."""
    k = len(walked) - 1
    while walked[k] != edge:
        k -= 1
    return k
