"""Transitions of a tree of automata, in plain arithmetic.

They choose a source, and learn from a poll.

These functions are the algorithm. They are compiled as they stand, so that both ways of running go through
the same operations in the same order and, from one seed, the same sequence of polls. Everything is kept in
flat arrays: node 1 is the root, node k has the children 2k and 2k + 1, and the leaves are the nodes M, M + 1,
..., n of which are sources. A node without automaton (span 0) has no source on its right
and passes everything to the left.

Bounds. A source with a floor is polled that often whatever the automata have learnt: they share out what the
floors leave free, and learn from a poll in the proportion that is theirs. A node whose learnt share is at its
cap passes no feedback on to the automata above it: more polls below it would gain nothing. So the gain that
is optimised is flat beyond the cap, and the share stays about there. Caps must leave room for all polls:
where every node is at its cap, nothing is learnt.

Cost of a poll: O(log n), by the credit scheduler 9 nodes down and 9 up for 512 sources.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from freshopt.automata.random_numbers import uniform
from freshopt.numerics.arrays import Array, IntArray


def rise(heap: IntArray, at: int, keys: Array, place: IntArray, item: int) -> None:
    """Insert an item into a binary min-heap, at `at` or above."""
    while at > 0:
        above = (at - 1) >> 1
        if keys[heap[above]] <= keys[item]:
            break
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
    heap[at] = item
    place[item] = at


def pop(heap: IntArray, size: int, keys: Array, place: IntArray) -> int:
    """Remove and return the first item of a heap."""
    first: int = heap[0]
    last = heap[size - 1]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size - 1:
            break
        if below + 1 < size - 1 and keys[heap[below + 1]] < keys[heap[below]]:
            below += 1
        if keys[last] <= keys[heap[below]]:
            break
        heap[at] = heap[below]
        place[heap[at]] = at
        at = below
    heap[at] = last
    place[last] = at
    return first


# Codes of the schedulers: `freshopt.automata.settings.Polling`.
CREDIT, DEADLINE, RANDOM = 0, 1, 2


class Tree(NamedTuple):
    """Arrays of a tree of automata.

    It has M leaves, n of which are sources.

    ``state`` s and ``span`` N + 1 of each node: s/(N + 1) is the left child's share. ``credit`` of the credit
    scheduler. Of the deadline scheduler, ``release`` and ``deadline`` of each source's next poll and
    ``begun``, the release of its last, and the heaps ``ready`` (by deadline) and ``waiting`` (by release) of
    ``sizes``; a source's ``place`` is in the heap that it is in, and ``released`` tells which. ``clock``:
    polls so far. ``noise``: the random numbers' state. ``node`` of each source, and the source ``at`` each
    leaf, or -1. ``floor``: polls per slot of each source beside the learnt ones, with their running sums
    ``floors``, and ``cap``: the largest learnt share of each node, leaves included; empty without bounds.
    """

    state: IntArray
    span: IntArray
    credit: IntArray
    begun: Array
    release: Array
    deadline: Array
    ready: IntArray
    waiting: IntArray
    sizes: IntArray
    place: IntArray
    released: IntArray
    clock: IntArray
    noise: IntArray
    node: IntArray
    at: IntArray
    floor: Array
    floors: Array
    cap: Array


def learnt(tree: Tree, source: int) -> float:
    """Return a source's share of the polls that the automata hand out."""
    node, product = tree.node[source], 1.0
    while node > 1:
        parent = node >> 1
        span = tree.span[parent]
        if span > 0:
            taken = tree.state[parent] if node & 1 == 0 else span - tree.state[parent]
            product *= taken / span
        node = parent
    return product


def share(tree: Tree, source: int) -> float:
    """Return a source's share of all polls."""
    product = learnt(tree, source)
    if len(tree.floor) == 0:
        return product
    every: float = tree.floor[source] + (1.0 - tree.floors[-1]) * product
    return every


def choose(tree: Tree, scheduler: int) -> int:
    """Return the source that the next slot is given to."""
    now = tree.clock[0]
    tree.clock[0] = now + 1
    if scheduler == DEADLINE:
        return choose_by_deadline(tree, now)
    if len(tree.floor) > 0:
        drawn = uniform(tree.noise)
        if drawn < tree.floors[-1]:
            return first_above(tree.floors, drawn)
    leaves = len(tree.span)
    node = 1
    while node < leaves:
        span = tree.span[node]
        node <<= 1
        if span == 0:
            continue
        if scheduler == RANDOM:
            node += uniform(tree.noise) * span >= tree.state[node >> 1]
        else:
            credit = tree.credit[node >> 1] + tree.state[node >> 1]
            if credit >= span:
                credit -= span
            else:
                node += 1
            tree.credit[node >> 1] = credit
    source: int = tree.at[node - leaves]
    return source


def first_above(sums: Array, value: float) -> int:
    """Return the first position of rising sums that is above a value."""
    low, high = 0, len(sums) - 1
    while low < high:
        middle = (low + high) >> 1
        if sums[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


def choose_by_deadline(tree: Tree, now: int) -> int:
    """Return the released source with the earliest deadline.

    Released are those whose release is before the end of this slot.

    Each poll of a source is released when the one before was due, and due 1/share later. With constant shares
    all are in time: no source is ever a whole poll ahead of its share or behind it. In every slot one source
    is checked, in turn, and if its share has grown since its last poll it is due accordingly earlier.
    """
    hurry(tree, now % len(tree.deadline), now)
    while tree.sizes[1] > 0 and tree.release[tree.waiting[0]] < now + 1:
        source = pop(tree.waiting, tree.sizes[1], tree.release, tree.place)
        tree.sizes[1] -= 1
        rise(tree.ready, tree.sizes[0], tree.deadline, tree.place, source)
        tree.sizes[0] += 1
        tree.released[source] = 1
    if tree.sizes[0] > 0:
        source = pop(tree.ready, tree.sizes[0], tree.deadline, tree.place)
        tree.sizes[0] -= 1
    else:  # shares have changed on the way, and less than everything is assigned
        source = pop(tree.waiting, tree.sizes[1], tree.release, tree.place)
        tree.sizes[1] -= 1
    tree.released[source] = 0
    tree.begun[source] = tree.release[source]
    tree.release[source] = tree.deadline[source]
    tree.deadline[source] += 1.0 / share(tree, source)
    rise(tree.waiting, tree.sizes[1], tree.release, tree.place, source)
    tree.sizes[1] += 1
    return source


def hurry(tree: Tree, source: int, now: int) -> None:
    """Advance a source's next release and deadline.

    They move forward, to now at the earliest, if the share of the source has grown.
    """
    interval = 1.0 / share(tree, source)
    if tree.released[source] == 0 and tree.begun[source] + interval < tree.release[source]:
        tree.release[source] = max(tree.begun[source] + interval, now)
        rise(tree.waiting, tree.place[source], tree.release, tree.place, source)
    due = tree.release[source] + interval
    if due < tree.deadline[source]:
        tree.deadline[source] = max(due, now)
        if tree.released[source] == 1:
            rise(tree.ready, tree.place[source], tree.deadline, tree.place, source)


def learn(tree: Tree, source: int, value: float, reward: bool, penalty: bool, most: float) -> None:
    """Update every automaton above a polled source.

    A value > 0 moves each towards the source by value·(the other side's share) steps on average: for a value
    of 1, one step with that probability; a value counts for at most `most` of each automaton's states. A
    value of 0 is a penalty, one step away with the same probability.
    """
    if (value > 0.0 and not reward) or (value == 0.0 and not penalty):
        return
    amount, towards = (value, 1) if value > 0.0 else (1.0, -1)
    mass, part = 0.0, 1.0
    if len(tree.floor) > 0:
        mass = learnt(tree, source)
        own = (1.0 - tree.floors[-1]) * mass
        part = own / (tree.floor[source] + own)
    node = tree.node[source]
    while node > 1:
        if len(tree.cap) > 0 and mass >= tree.cap[node]:
            return
        parent = node >> 1
        span = tree.span[parent]
        if span > 0:
            state = tree.state[parent]
            left = node & 1 == 0
            other = span - state if left else state
            mass *= span / (span - other)
            mean = min(amount, most * span) * part * other / span
            steps = int(min(math.floor(mean), span))
            if uniform(tree.noise) < mean - steps:
                steps += 1
            moved = state + (steps * towards if left else -steps * towards)
            tree.state[parent] = min(max(moved, 1), span - 1)
        node = parent


def choose_many(tree: Tree, scheduler: int, out: IntArray) -> None:
    """Write the next sources to poll, without learning."""
    for i in range(len(out)):
        out[i] = choose(tree, scheduler)


def learn_many(tree: Tree, leaves: IntArray, values: Array, reward: bool, penalty: bool) -> None:
    """Learn from a sequence of polls; NaN is no feedback."""
    for i in range(len(leaves)):
        if values[i] >= 0.0:
            learn(tree, leaves[i], values[i], reward, penalty, math.inf)
