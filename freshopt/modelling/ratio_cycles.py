"""`require_open_cycles`: ratios of rates around cycles.

Rows ρ_i ≤ c_ij·ρ_j are edges of a graph. Around a cycle whose ratios multiply to less than 1 only the rate
0 is left; where they multiply to 1 every one of them binds, so that no rates are strictly inside and an
interior point method stalls. In logarithms of rates, x_i ≤ x_j + log c_ij, these are cycles of negative
length and of length 0: shortest distances (Bellman-Ford) within the strongly connected components find both.
"""

from __future__ import annotations

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray
from freshopt.separable.bundles import Bundles
from freshopt.separable.rows import RATE, Rows

# Products of ratios that are 1 are off by less.
_ROUNDING = 1e-12
# Rounds of Bellman-Ford at most; components with longer shortest paths are left to the solver.
_ROUNDS = 2000


def require_open_cycles(rows: Rows, sources: Sources, bundles: Bundles | None) -> None:
    """Raise SourceDataError if ratios around a cycle multiply to 1 or less.

    Parameters
    ----------
    rows : Rows
        Of sources, or of bundles.
    """
    found = closed_cycle(rows)
    if found is None:
        return
    nodes, log_product = found
    leaders = nodes if bundles is None else bundles.order[bundles.first[nodes]]
    names = list_offenders(sources.label(k) for k in sorted(leaders.tolist()))
    if log_product < -_ROUNDING:
        raise SourceDataError(
            f"ratios around the cycle {names} multiply to {np.exp(log_product):.6g} < 1, which leaves only "
            "the rate 0. Raise one of them, or take it out of the cycle."
        )
    raise SourceDataError(
        f"ratios around the cycle {names} multiply to 1, which fixes the proportions of these rates. Raise "
        "one of the ratios, or tie rates that are to be equal with fo.Tied."
    )


def closed_cycle(rows: Rows) -> tuple[IntArray, float] | None:
    """Return a cycle of ratios without room, and its log product."""
    child, parent, length = _edges(rows)
    if len(child) < 2:
        return None
    same = _components(child, parent, rows.n)
    inside = np.flatnonzero(same[child] == same[parent])
    if not len(inside):
        return None
    nodes, place = np.unique(np.concatenate((child[inside], parent[inside])), return_inverse=True)
    i, j, w = place[: len(inside)], place[len(inside) :], length[inside]
    order = np.argsort(i, kind="stable")
    i, j, w = i[order], j[order], w[order]
    starts = np.flatnonzero(np.diff(i, prepend=-1))
    distance, by = np.zeros(len(nodes)), np.full(len(nodes), -1, dtype=np.int64)
    for k in range(_ROUNDS):
        reached = distance[j] + w
        best = np.minimum.reduceat(reached, starts)
        shorter = best < distance[i[starts]] - _ROUNDING
        if not bool(np.any(shorter)):
            break
        # The edge by which each node was reached last leads around a negative cycle if there is one.
        first = np.flatnonzero(reached <= np.repeat(best, np.diff(np.append(starts, len(i)))))
        edge = first[np.searchsorted(first, starts)]
        by[i[starts][shorter]] = edge[shorter]
        distance[i[starts][shorter]] = best[shorter]
        # Looking for it costs more than a round; it is looked for after 1, 2, 4, ... of them.
        cycle = _around(by, j) if k & (k + 1) == 0 else None
        if cycle is not None and float(np.sum(w[by[cycle]])) < -_ROUNDING:
            return nodes[cycle], float(np.sum(w[by[cycle]]))
    else:
        return None
    tight = distance[j] + w - distance[i] <= len(nodes) * _ROUNDING
    tied = _components(i[tight], j[tight], len(nodes))
    members, counts = np.unique(tied, return_counts=True)
    if not bool(np.any(counts > 1)):
        return None
    return nodes[tied == members[np.argmax(counts > 1)]], 0.0


def _edges(rows: Rows) -> tuple[IntArray, IntArray, Array]:
    """Return child, parent and log ratio of rows a·ρ_i ≤ b·ρ_j."""
    if not bool(np.any(rows.limits == 0.0)):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    m, some = len(rows), np.flatnonzero(rows.coefficient != 0.0)
    row, size = rows.row[some].astype(np.int64), rows.coefficient[some]
    rising = np.bincount(row, weights=size > 0.0, minlength=m)
    falling = np.bincount(row, weights=size < 0.0, minlength=m)
    curved = np.bincount(row, weights=rows.kind[some] != RATE, minlength=m)
    which = np.flatnonzero((rising == 1) & (falling == 1) & (curved == 0) & (rows.limits == 0.0))
    source = rows.source[some]
    ends, sizes = np.zeros((2, m), dtype=np.int64), np.ones((2, m))
    for side, own in enumerate((size > 0.0, size < 0.0)):
        ends[side, row[own]], sizes[side, row[own]] = source[own], np.abs(size[own])
    with np.errstate(all="ignore"):
        length = np.log(sizes[1, which]) - np.log(sizes[0, which])
    return ends[0, which], ends[1, which], length


def _components(child: IntArray, parent: IntArray, n: int) -> IntArray:
    """Return the strongly connected component of each node, shape (n,)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(child)), (child, parent)), shape=(n, n))
    return np.asarray(connected_components(graph, connection="strong")[1], dtype=np.int64)


def _around(by: IntArray, parent: IntArray) -> IntArray | None:
    """Return a cycle of the edges by which nodes were reached."""
    state = np.zeros(len(by), dtype=np.int64)
    for start in range(len(by)):
        node, path = start, []
        while by[node] >= 0 and state[node] == 0:
            state[node] = start + 1
            path.append(node)
            node = int(parent[by[node]])
        if by[node] >= 0 and state[node] == start + 1 and path:
            return np.array(path[path.index(node) :])
    return None
