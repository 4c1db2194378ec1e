"""Loops of pipelines: events in order, longest paths of waits."""

from __future__ import annotations

import math

from freshopt.numerics.arrays import Array, BoolArray, IntArray


def replay_events(
    time: Array,
    node: IntArray,
    tables: tuple[IntArray, IntArray, IntArray, IntArray],
    view: BoolArray,
    fresh: BoolArray,
    edges: Array,
    share: Array,
) -> None:
    """Add up the time that each node is fresh in each batch.

    A node is stale with everything downstream of it, so that marking what a change makes stale ends at nodes
    that are stale: each event takes the edges of the nodes that it changes.

    - `time`, `node` (events,): Changes of roots and refreshes of copies, in order.
    - `tables` four ndarrays of int: Parents and children of each node, in compressed rows.
    - `view` (n,): Nodes that are as fresh as their parents at all times.
    - `fresh` (n,): State, changed in place.
    - `edges` (batches + 1,): Of the batches in time.
    - `share` (batches, n): Time fresh, added to.
    """
    first_parent, parent, first_child, child = tables
    n = len(view)
    since = fresh * edges[0]
    stack, touched = [0] * n, [-1] * n
    batch = 0
    for e in range(len(time) + 1):
        now = time[e] if e < len(time) else edges[-1]
        while batch < len(edges) - 1 and now >= edges[batch + 1]:
            for k in range(n):
                if fresh[k]:
                    share[batch, k] += edges[batch + 1] - max(since[k], edges[batch])
            batch += 1
        if e == len(time) or batch == len(edges) - 1:
            break
        k = node[e]
        if first_parent[k] == first_parent[k + 1]:
            # A change goes through views to their readers; below a copy that becomes stale all is stale.
            stack[0], top = k, 1
            touched[k] = e
            while top:
                top -= 1
                at = stack[top]
                for i in range(first_child[at], first_child[at + 1]):
                    reader = child[i]
                    if view[reader]:
                        if touched[reader] != e:
                            touched[reader] = e
                            stack[top] = reader
                            top += 1
                    elif fresh[reader]:
                        make_stale(reader, now, batch, first_child, child, fresh, since, edges, share)
        elif not fresh[k]:
            ready = True
            for i in range(first_parent[k], first_parent[k + 1]):
                ready = ready and fresh[parent[i]]
            if ready:
                fresh[k], since[k] = True, now
                stack[0], top = k, 1
                while top:
                    top -= 1
                    at = stack[top]
                    for i in range(first_child[at], first_child[at + 1]):
                        reader = child[i]
                        if view[reader] and not fresh[reader]:
                            ready = True
                            for j in range(first_parent[reader], first_parent[reader + 1]):
                                ready = ready and fresh[parent[j]]
                            if ready:
                                fresh[reader], since[reader] = True, now
                                stack[top] = reader
                                top += 1


def make_stale(
    start: int,
    now: float,
    batch: int,
    first_child: IntArray,
    child: IntArray,
    fresh: BoolArray,
    since: Array,
    edges: Array,
    share: Array,
) -> None:
    """Make a fresh node and all below it stale."""
    fresh[start] = False
    share[batch, start] += max(now - max(since[start], edges[batch]), 0.0)
    below = [start]
    while len(below):
        at = below.pop()
        for i in range(first_child[at], first_child[at + 1]):
            reader = child[i]
            if fresh[reader]:
                fresh[reader] = False
                share[batch, reader] += max(now - max(since[reader], edges[batch]), 0.0)
                below.append(reader)


def sample_paths(
    wait: Array,
    roots: IntArray,
    rate: Array,
    rows: tuple[IntArray, IntArray, IntArray, IntArray],
    out: Array,
    squares: Array,
) -> None:
    """Add up sampled chances that a node is fresh, and their squares.

    - `wait` (samples, n): Time since each node was refreshed before it was last read.
    - `roots` (m,)
    - `rate` (m,): Changes of each root.
    - `rows` four ndarrays of int: Parents of each node, and the nodes below each root, in compressed rows.
    - `out`, `squares` (n,)
    """
    first_parent, parent, first_below, below = rows
    samples, n = wait.shape
    for s in range(samples):
        changes = [0.0] * n
        longest = [-1.0] * n
        for r in range(len(roots)):
            longest[roots[r]] = 0.0
            for i in range(first_below[r], first_below[r + 1]):
                k = below[i]
                most = -1.0
                for j in range(first_parent[k], first_parent[k + 1]):
                    most = max(most, longest[parent[j]])
                longest[k] = most + wait[s, k]
                changes[k] += rate[r] * longest[k]
            longest[roots[r]] = -1.0
            for i in range(first_below[r], first_below[r + 1]):
                longest[below[i]] = -1.0
        for k in range(n):
            chance = math.exp(-changes[k])
            out[k] += chance
            squares[k] += chance * chance
