"""`UpstreamSets`: sums over everything upstream or downstream of a node.

Each node's row has a bit for every node that lies upstream of it, and for itself. Cost: n²/8 bytes, and a
matrix-vector product of n² bits for each sum; 10 000 nodes take 13 MB and about .2 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.pipelines.graph import Graph

# Bytes of the bits that are unpacked to numbers at a time.
AT_ONCE = 2**26


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False)
class UpstreamSets:
    """Upstream set of every node, itself included, as bits.

    Attributes
    ----------
    bits : ndarray of uint8, shape (n, ⌈n/8⌉)
    """

    bits: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, graph: Graph) -> UpstreamSets:
        """Collect the sets of a graph."""
        n = len(graph)
        bits = np.zeros((n, (n + 7) // 8), dtype=np.uint8)
        for k in range(n):
            above = graph.parents(k)
            if len(above):
                np.bitwise_or.reduce(bits[above], axis=0, out=bits[k])
            bits[k, k // 8] |= 128 >> (k % 8)
        return cls(bits)

    def sum_upstream(self, value: Array) -> Array:
        """Return the sum of each column over each node's upstream set."""
        return np.concatenate([member @ value for _, member in self._parts()])

    def sum_downstream(self, value: Array) -> Array:
        """Return sums over all nodes whose upstream sets hold a node."""
        found = np.zeros(len(self.bits))
        for rows, member in self._parts():
            found += value[rows] @ member
        return found

    def _parts(self) -> Iterator[tuple[slice, Array]]:
        """Yield rows as numbers 0 and 1."""
        n = len(self.bits)
        step = max(AT_ONCE // (8 * n), 1)
        for begin in range(0, n, step):
            rows = slice(begin, begin + step)
            yield rows, np.unpackbits(self.bits[rows], axis=1, count=n).astype(np.float64)


def is_exact(graph: Graph, sets: UpstreamSets, above: Array, root_rate: Array, waits: BoolArray) -> BoolArray:
    """Return where the product formula is exact, shape (n,).

    Parameters
    ----------
    graph : Graph
    sets : UpstreamSets
    above : ndarray, shape (n,)
        Number of changing roots in each upstream set.
    root_rate : ndarray, shape (n,)
        > 0 of the roots that change, else 0.
    waits : ndarray of bool, shape (n,)
        Nodes whose refreshes count: not those that are always as fresh as their parents.

    Notes
    -----
    The nodes from a root to a node form one chain if and only if the longest path has as many as there are.
    No path has more; so all roots' chains are checked by two sums.
    """
    roots: IntArray = np.flatnonzero(root_rate > 0.0)
    there = sets.sum_upstream(np.where(waits, above, 0.0))
    longest = np.zeros(len(graph))
    step = max(AT_ONCE // (4 * len(graph)), 1)
    for begin in range(0, len(roots), step):
        some = roots[begin : begin + step]
        length = np.full((len(graph), len(some)), -1, dtype=np.int32)
        length[some, np.arange(len(some))] = 0
        for k in range(len(graph)):
            parents = graph.parents(k)
            if len(parents):
                most = length[parents].max(axis=0)
                length[k] = np.where(most >= 0, most + int(waits[k]), -1)
        longest += np.maximum(length, 0).sum(axis=1)
    return np.asarray(longest == there)
