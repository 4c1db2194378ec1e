"""`UpstreamSets`: sums over everything upstream or downstream of a node.

A sum over the union of what is upstream of several parents counts each node once. Unions are disjoint but
within a block of the graph (`Block`), so that sums add up along bridges, and only within
larger blocks each node has a bit for every other. A node of a block stands there for itself and all that is
upstream of it elsewhere.

Cost: m²/8 bytes for a block of m nodes, and m² bits a sum; trees and chains have no such blocks, and take a
microsecond a node. 10 000 nodes of one block take 13 MB and some tenths of a second.

Blocks of a graph: its biconnected components, directions of edges left aside. Two nodes of a block lie on a
common cycle; an edge on no cycle, a bridge, is a block of its own. Blocks meet in single nodes only, and form
a tree. So all that is upstream of a node through one block has no node in common with what is upstream of it
through another, and a path that leaves a block does not come back to it.

Cost: one depth-first search (Tarjan), some microseconds an edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.pipelines.graph import Graph


@frozen_value()
class Block:
    """Block of three nodes or more.

    - `nodes` (m,): Positions in the graph, in its order.
    - `parents` tuple of ndarrays of int: Places in the block of each node's parents within it.
    - `bits` ndarray of uint8 (m, ⌈m/8⌉): Nodes of the block that lie upstream of each.
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


# Bytes of longest paths that are counted at a time.
AT_ONCE = 2**26


@dataclass(frozen=True, slots=True, eq=False)
class UpstreamSets:
    """Upstream set of every node, itself included.

    - `bridges` tuple of lists of int: Parents of each node by an edge that is a block of its own.
    - `blocks`: The larger ones.
    - `places` tuple of lists of pairs: Blocks of each node, and its place in them.
    """

    bridges: tuple[list[int], ...]
    blocks: tuple[Block, ...]
    places: tuple[list[tuple[int, int]], ...]

    @classmethod
    def of(cls, graph: Graph) -> UpstreamSets:
        """Collect the sets of a graph."""
        bridges: list[list[int]] = [[] for _ in range(len(graph))]
        places: list[list[tuple[int, int]]] = [[] for _ in range(len(graph))]
        blocks: list[Block] = []
        for edges in blocks_of(graph):
            if len(edges) == 1:
                bridges[edges[0][1]].append(edges[0][0])
                continue
            block = Block.of(edges)
            for place, node in enumerate(block.nodes.tolist()):
                places[node].append((len(blocks), place))
            blocks.append(block)
        return cls(tuple(bridges), tuple(blocks), tuple(places))

    def sum_upstream(self, value: Array) -> Array:
        """Return the sum over each node's upstream set."""
        return self.summed(value)[0]

    def summed(self, value: Array) -> tuple[Array, list[Array]]:
        """Return the sums, and those each node stands for in blocks.

        That is the sum over the node and what is upstream of it, but for the block itself.
        """
        total = value.tolist()
        stands = [np.zeros(len(block)) for block in self.blocks]
        for k, (bridges, places) in enumerate(zip(self.bridges, self.places, strict=True)):
            for up in bridges:
                total[k] += total[up]
            if places:
                within = [float(stands[b][self.blocks[b].upstream(p)].sum()) for b, p in places]
                total[k] = _shared(total[k], within, places, stands)
        return np.array(total), stands

    def sum_downstream(self, value: Array) -> Array:
        """Return sums over all nodes whose upstream sets hold a node."""
        total = value.tolist()
        below = [np.zeros(len(block)) for block in self.blocks]
        stands = [np.zeros(len(block)) for block in self.blocks]
        for k in range(len(total) - 1, -1, -1):
            places = self.places[k]
            if places:
                within = [float(below[b][p]) for b, p in places]
                total[k] = _shared(total[k], within, places, stands)
                for b, p in places:
                    below[b][self.blocks[b].upstream(p)] += stands[b][p]
            for up in self.bridges[k]:
                total[up] += total[k]
        return np.array(total)


def _shared(own: float, within: list[float], places: list[tuple[int, int]], stands: list[Array]) -> float:
    """Return a node's sum; note what it stands for in blocks."""
    for turn, (b, p) in enumerate(places):
        stands[b][p] = own + sum(within[:turn]) + sum(within[turn + 1 :])
    return own + sum(within)


def is_exact(sets: UpstreamSets, root_rate: Array, waits: BoolArray) -> BoolArray:
    """Return where the product formula is exact, shape (n,).

    Notes
    -----
    A node is exact if from each root upstream the nodes in between form one chain. Across bridges they do;
    so each block is checked alone, and what is downstream of a node that is not exact is not either.
    """
    stands = sets.summed((root_rate > 0.0).astype(np.float64))[1]
    broken = np.zeros(len(sets.places))
    for block, roots in zip(sets.blocks, stands, strict=True):
        broken[block.nodes] += ~_is_chain(block, np.flatnonzero(roots > 0.0), waits[block.nodes])
    return np.asarray(sets.sum_upstream(broken) == 0.0)


def _is_chain(block: Block, begin: IntArray, waits: BoolArray) -> BoolArray:
    """Return where one chain leads from each beginning upstream.

    The nodes in between form a chain if and only if the longest path has as many as there are. No path has
    more; so all beginnings are checked by two sums.
    """
    n = len(block)
    begins = np.zeros(n, dtype=np.bool_)
    begins[begin] = True
    above = np.array([float(begins[block.upstream(k)].sum()) for k in range(n)])
    own = np.where(waits, above, 0.0)
    there = np.array([own[k] + float(own[block.upstream(k)].sum()) for k in range(n)])
    longest = np.zeros(n)
    step = max(AT_ONCE // (4 * n), 1)
    for first in range(0, len(begin), step):
        some = begin[first : first + step]
        length = np.full((n, len(some)), -1, dtype=np.int32)
        length[some, np.arange(len(some))] = 0
        for k, parents in enumerate(block.parents):
            if len(parents):
                most = length[parents].max(axis=0)
                length[k] = np.maximum(length[k], np.where(most >= 0, most + int(waits[k]), -1))
        longest += np.maximum(length, 0).sum(axis=1)
    return np.asarray(longest == there)
