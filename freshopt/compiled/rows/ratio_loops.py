"""Loops over forests of ratios, in Python that numba compiles.

A node's ratio bounds its rate by a multiple of its parent's. Products of ratios along a path are formed from
the pool's top downwards, so that they neither overflow nor lose digits where the pools are short.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, IntArray

# What is added to a multiplier, of all that cancels in a source's slope.
ULP = 4 * float(np.finfo(np.float64).eps)
# A slope is rounding up to so many of these: slopes are taken a few ulp beside the rates.
ROUNDING = 16.0


def topological(parent: IntArray, first: IntArray, child: IntArray, order: IntArray) -> int:
    """Write nodes on no cycle, parents first; return how many."""
    found = 0
    for node in range(len(parent)):
        if parent[node] < 0:
            order[found] = node
            found += 1
    done = 0
    while done < found:
        node = order[done]
        done += 1
        for k in range(first[node], first[node + 1]):
            order[found] = child[k]
            found += 1
    return found


def heights(order: IntArray, parent: IntArray, height: IntArray) -> None:
    """Write the length of the longest path downwards of each node."""
    for k in range(len(order) - 1, -1, -1):
        node = order[k]
        if parent[node] >= 0:
            height[parent[node]] = max(height[parent[node]], height[node] + 1)


def preorder(order: IntArray, parent: IntArray, first: IntArray, child: IntArray, place: IntArray) -> None:
    """Write where each node comes in preorder.

    Every subtree is then a slice, its root first.
    """
    size = np.ones(len(order), np.int64)
    for k in range(len(order) - 1, -1, -1):
        if parent[order[k]] >= 0:
            size[parent[order[k]]] += size[order[k]]
    end = 0
    for k in range(len(order)):
        node = order[k]
        if parent[node] < 0:
            place[node] = end
            end += size[node]
        behind = place[node] + 1
        for j in range(first[node], first[node + 1]):
            place[child[j]] = behind
            behind += size[child[j]]


def tighten(order: IntArray, parent: IntArray, ratio: Array, lower: Array, upper: Array) -> None:
    """Tighten bounds, in place, by those of children and parents."""
    for k in range(len(order) - 1, -1, -1):
        node = order[k]
        if parent[node] >= 0:
            lower[parent[node]] = max(lower[parent[node]], lower[node] / ratio[node])
    for k in range(len(order)):
        node = order[k]
        if parent[node] >= 0:
            upper[node] = min(upper[node], ratio[node] * upper[parent[node]])


def cap(order: IntArray, parent: IntArray, ratio: Array, lower: Array, rates: Array) -> None:
    """Cut rates, in place, to what their parents allow."""
    for k in range(len(order)):
        node = order[k]
        if parent[node] >= 0:
            rates[node] = max(lower[node], min(rates[node], ratio[node] * rates[parent[node]]))


def bound_by_others(
    holder: IntArray, gain: Array, limits: Array, first: IntArray, row: IntArray, loss: Array, upper: Array
) -> None:
    """Write upper bounds that comparisons imply, in topological order.

    Row r says gain·ρ_holder − Σ loss·ρ ≤ limits, holder −1 if it is no comparison; source k is in the sums of
    ``row[first[k]:first[k+1]]``. Only infinite bounds change.
    """
    waiting, room, reached = np.zeros(len(limits), dtype=np.int64), limits.copy(), upper < np.inf
    for k in range(len(upper)):
        for j in range(first[k], first[k + 1]):
            if reached[k]:
                room[row[j]] += loss[j] * upper[k]
            else:
                waiting[row[j]] += 1
    ready, bounded = np.empty(len(limits), dtype=np.int64), np.empty(len(upper), dtype=np.int64)
    done, end = 0, 0
    for r in range(len(limits)):
        if holder[r] >= 0 and waiting[r] == 0 and not reached[holder[r]]:
            ready[end] = r
            end += 1
    while done < end:
        # A source's bound is the least of all rows that are ready at once.
        found = 0
        for place in range(done, end):
            r = ready[place]
            k, bound = holder[r], max(0.0, room[r]) / gain[r]
            if upper[k] == np.inf and bound < np.inf:
                bounded[found] = k
                found += 1
            upper[k] = min(upper[k], bound)
        done = end
        for place in range(found):
            reached[bounded[place]] = True
        for place in range(found):
            k = bounded[place]
            for j in range(first[k], first[k + 1]):
                r = row[j]
                room[r] += loss[j] * upper[k]
                waiting[r] -= 1
                if waiting[r] == 0 and holder[r] >= 0 and not reached[holder[r]]:
                    ready[end] = r
                    end += 1


def gather(
    nodes: IntArray,
    own: Array,
    top: Array,
    lower: Array,
    ratio: Array,
    first: IntArray,
    child: IntArray,
    begin: IntArray,
    member: IntArray,
    factor: Array,
    until: Array,
) -> int:
    """Write who may be in the pool of each node.

    These are the node and descendants; returned is how many they are.

    A descendant joins while the node's rate is below `until`, the least of what the tops on its path would
    have, in units of the node's rate. Only those of more than `own` count. Beyond the room in `member` they
    are counted alone.

    - `nodes` (k,)
    - `own` (k,): The least rate of each.
    - `top` (n,): The rate of each settled node, were it a root.
    - `lower` (n,)
    - `ratio` (n,)
    - `first`, `child`: Children of each node.
    - `begin` (k+1,): Written: where the members of each pool begin.
    - `member`, `factor`, `until`: Written from ``begin[j]`` on: nodes, their rates in units of the top's, and
      when they leave.
    """
    most, place = len(member), 0
    room = 64
    stack, scale, least = np.empty(room, np.int64), np.empty(room), np.empty(room)
    for j in range(len(nodes)):
        begin[j] = place
        stack[0], scale[0], least[0] = nodes[j], 1.0, np.inf
        size = 1
        while size > 0:
            size -= 1
            node, unit, limit = stack[size], scale[size], least[size]
            if place < most:
                member[place], factor[place], until[place] = node, unit, limit
            place += 1
            for k in range(first[node], first[node + 1]):
                below = child[k]
                times = unit * ratio[below]
                when = min(limit, top[below] / times)
                # Who is at its lower bound asks for no more, and no parent leaves it less.
                if when > own[j] and top[below] > lower[below]:
                    if size == room:
                        stack = np.append(stack, np.empty(room, np.int64))
                        scale = np.append(scale, np.empty(room))
                        least = np.append(least, np.empty(room))
                        room *= 2
                    stack[size], scale[size], least[size] = below, times, when
                    size += 1
    begin[len(nodes)] = place
    return place


def multipliers(
    order: IntArray,
    parent: IntArray,
    ratio: Array,
    tight: BoolArray,
    least: Array,
    most: Array,
    first: IntArray,
    child: IntArray,
    shift: Array,
) -> None:
    """Write −η of every ratio, from the sources' slopes, to `shift`.

    With slopes s_i between `least` and `most` a node needs s_i + Σ_children c_j·shift_j = shift_i, with shift
    ≤ 0, and 0 where the ratio is not tight. Upwards every node gets the most that it can have; downwards,
    what that is too much is taken off, first by its own slope, then by its children.
    """
    n = len(order)
    below, floor = np.zeros(n), np.zeros(n)
    for k in range(n - 1, -1, -1):
        node = order[k]
        floor[node] += least[node]
        if tight[node]:
            shift[node] = min(0.0, most[node] + below[node])
            below[parent[node]] += ratio[node] * shift[node]
            floor[parent[node]] += ratio[node] * min(shift[node], floor[node])
        else:
            shift[node] = 0.0
    for k in range(n):
        node = order[k]
        slope = min(most[node], max(least[node], shift[node] - below[node]))
        over = slope + below[node] - shift[node]
        if not over > 0.0:
            continue
        for j in range(first[node], first[node + 1]):
            under = child[j]
            if not tight[under] or not floor[under] < shift[under]:
                continue
            taken = min(over, ratio[under] * (shift[under] - floor[under]))
            shift[under] -= taken / ratio[under]
            over -= taken
            if not over > 0.0:
                break


def round_up(
    order: IntArray, parent: IntArray, ratio: Array, tight: BoolArray, slope: Array, size: Array, shift: Array
) -> None:
    """Round −η, in place, so that held sources pay enough.

    They pay no less than they gain. A source that pays a few ulp too much would have a rate a little below
    its own; one that pays too little, where the cost is flat, one far above it. Slopes beyond rounding
    belong to bounds and kinks.
    """
    n = len(order)
    given, below, added = np.zeros(n), np.zeros(n), np.zeros(n)
    for k in range(n - 1, -1, -1):
        node = order[k]
        if not tight[node]:
            continue
        before = shift[node]
        rounding = ULP * (size[node] + added[node] + abs(before))
        if abs(slope[node] + given[node] - before) <= ROUNDING * rounding:
            shift[node] = min(0.0, slope[node] + below[node] - rounding)
        given[parent[node]] += ratio[node] * before
        below[parent[node]] += ratio[node] * shift[node]
        added[parent[node]] += ratio[node] * abs(shift[node])
