"""Transitions of a tree of automata, in plain arithmetic.

They choose a source, learn from a poll, and draw a random number.

These functions are the algorithm. `freshopt.automata.loops` compiles them as they stand, so that both ways of
running go through the same operations in the same order and, from one seed, the same sequence of polls.
Everything is kept in flat arrays: node 1 is the root, node k has the children 2k and 2k + 1, and the leaves
are the nodes M, M + 1, ..., of which the first n are sources. A node without automaton (span 0) has no source
on its right and passes everything to the left.

The random numbers are those of sfc32 [1]_: additions, shifts and exclusive ors of 32-bit words, which fit
64-bit integers and Python's alike.

Cost of a poll: O(log n), by the credit scheduler 9 nodes down and 9 up for 512 sources.

References
----------
.. [1] Doty-Humphrey, PractRand, "Small Fast Counting RNG", version 0.94, 2018.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from freshopt.numerics.arrays import Array, IntArray

# Codes of the schedulers: `freshopt.automata.settings.Polling`.
CREDIT, DEADLINE, RANDOM = 0, 1, 2
# Codes of the rules: `freshopt.automata.settings.Feedback`.
NEWS, NEWS_TWICE, NEWS_THEN_NONE, PROBE = 0, 1, 2, 3
# Mean intervals within which a probe is planned: periodic intervals are shorter (see `settings`).
REACH = 2.0

WORD = 0xFFFFFFFF


class Tree(NamedTuple):
    """Arrays of a tree of automata.

    It has M leaves, n of which are sources.

    ``state`` s and ``span`` N + 1 of each node: s/(N + 1) is the left child's share. ``credit`` of the credit
    scheduler. Of the deadline scheduler, ``release`` and ``deadline`` of each source's next poll and
    ``begun``, the release of its last, and the heaps ``ready`` (by deadline) and ``waiting`` (by release) of
    ``sizes``; a source's ``place`` is in the heap that it is in, and ``released`` tells which. ``clock``:
    polls so far. ``noise``: the random numbers' state.
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


class Slots(NamedTuple):
    """Sources that change while poll slots go by.

    ``hazard`` per slot (the expected number of changes), ``pending`` hazard since the last poll and up to
    ``since``. ``weight`` in the feedback. ``before``: whether the last poll found news, or -1. ``plan``
    and ``reach``: when the next probe is planned, and the span from which that was drawn. ``polls`` and
    ``news`` of each source, and ``totals``: news, probes. ``now``: when the last poll was.
    """

    hazard: Array
    pending: Array
    since: Array
    weight: Array
    before: IntArray
    plan: Array
    reach: Array
    polls: IntArray
    news: IntArray
    totals: Array
    now: Array


def bits(noise: IntArray) -> int:
    """Return 32 random bits (sfc32)."""
    a, b, c, counter = noise[0], noise[1], noise[2], noise[3]
    drawn: int = (a + b + counter) & WORD
    noise[3] = (counter + 1) & WORD
    noise[0] = b ^ (b >> 9)
    noise[1] = (c + (c << 3)) & WORD
    noise[2] = (((c << 21) | (c >> 11)) + drawn) & WORD
    return drawn


def uniform(noise: IntArray) -> float:
    """Return a multiple of 2^-53 in [0, 1)."""
    high = bits(noise) >> 5
    return (high * 67108864.0 + (bits(noise) >> 6)) * 1.1102230246251565e-16


def rise(heap: IntArray, at: int, keys: Array, place: IntArray, item: int) -> None:
    """Insert an item into a binary min-heap.

    It enters at position `at` or as far above as its key takes it.
    """
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


def share(tree: Tree, leaf: int) -> float:
    """Return a source's share of the polls."""
    node, product = leaf + len(tree.span), 1.0
    while node > 1:
        parent = node >> 1
        span = tree.span[parent]
        if span > 0:
            taken = tree.state[parent] if node & 1 == 0 else span - tree.state[parent]
            product *= taken / span
        node = parent
    return product


def choose(tree: Tree, scheduler: int) -> int:
    """Return the source that the next slot is given to."""
    now = tree.clock[0]
    tree.clock[0] = now + 1
    if scheduler == DEADLINE:
        return choose_by_deadline(tree, now)
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
    return node - leaves


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


def learn(tree: Tree, leaf: int, value: float, reward: bool, penalty: bool) -> None:
    """Update every automaton above a polled source.

    A value > 0 moves each towards the source by value·(the other side's share) steps on average: for a value
    of 1, one step with that probability. A value of 0 is a penalty, one step away with the same probability.
    """
    if (value > 0.0 and not reward) or (value == 0.0 and not penalty):
        return
    amount, towards = (value, 1) if value > 0.0 else (1.0, -1)
    node = leaf + len(tree.span)
    while node > 1:
        parent = node >> 1
        span = tree.span[parent]
        if span > 0:
            state = tree.state[parent]
            left = node & 1 == 0
            other = span - state if left else state
            mean = amount * other / span
            steps = int(min(math.floor(mean), span))
            if uniform(tree.noise) < mean - steps:
                steps += 1
            moved = state + (steps * towards if left else -steps * towards)
            tree.state[parent] = min(max(moved, 1), span - 1)
        node = parent


def poll(
    tree: Tree,
    slots: Slots,
    leaf: int,
    scheduler: int,
    rule: int,
    penalty: bool,
    gain: float,
    probing: float,
) -> float:
    """Poll a source in the next slot; return its feedback.

    Slots are of length 1; under random polling of exponential length, so that each source's poll intervals
    are.
    """
    slots.now[0] += -math.log(1.0 - uniform(tree.noise)) if scheduler == RANDOM else 1.0
    now = slots.now[0]
    weight, since = slots.weight[leaf], slots.since[leaf]
    value = 0.0
    fresh = True
    if rule == PROBE and slots.plan[leaf] < now:
        slots.totals[1] += 1.0
        passed = slots.pending[leaf] + slots.hazard[leaf] * (slots.plan[leaf] - since)
        fresh = uniform(tree.noise) < math.exp(-passed)
        slots.pending[leaf], since = 0.0, slots.plan[leaf]  # from here on what happens is independent
    passed = slots.pending[leaf] + slots.hazard[leaf] * (now - since)
    changed = uniform(tree.noise) >= math.exp(-passed)
    news = changed or not fresh
    if rule == NEWS:
        value = 1.0 if news else 0.0
    elif rule == NEWS_TWICE:
        value = 1.0 if news and slots.before[leaf] == 1 else 0.0
    elif rule == NEWS_THEN_NONE:
        if slots.before[leaf] == 1 and not news:
            value = gain * weight / share(tree, leaf)
    elif changed and fresh and slots.plan[leaf] < now:
        value = gain * weight * slots.reach[leaf]
    if rule <= NEWS_TWICE and value > 0.0:
        if not penalty:
            value = gain * weight
        elif weight < 1.0 and uniform(tree.noise) >= weight:
            value = 0.0
    if rule == PROBE:
        slots.plan[leaf] = math.inf
        if probing >= 1.0 or uniform(tree.noise) < probing:
            slots.reach[leaf] = REACH / share(tree, leaf)
            slots.plan[leaf] = now + slots.reach[leaf] * uniform(tree.noise)
    slots.pending[leaf], slots.since[leaf] = 0.0, now
    slots.before[leaf] = 1 if news else 0
    slots.polls[leaf] += 1
    if news:
        slots.news[leaf] += 1
        slots.totals[0] += 1.0
    return value


def simulate(
    tree: Tree,
    slots: Slots,
    polls: int,
    scheduler: int,
    rule: int,
    reward: bool,
    penalty: bool,
    gain: float,
    probing: float,
) -> None:
    """Poll `polls` times and learn from each."""
    for _ in range(polls):
        leaf = choose(tree, scheduler)
        value = poll(tree, slots, leaf, scheduler, rule, penalty, gain, probing)
        learn(tree, leaf, value, reward, penalty)


def observe(
    tree: Tree,
    slots: Slots,
    leaves: IntArray,
    values: Array,
    scheduler: int,
    rule: int,
    penalty: bool,
    gain: float,
    probing: float,
) -> None:
    """Poll as `simulate` does, without learning.

    It writes the sources polled and the feedback.
    """
    for i in range(len(leaves)):
        leaves[i] = choose(tree, scheduler)
        values[i] = poll(tree, slots, leaves[i], scheduler, rule, penalty, gain, probing)


def choose_many(tree: Tree, scheduler: int, out: IntArray) -> None:
    """Write the next sources to poll, without learning."""
    for i in range(len(out)):
        out[i] = choose(tree, scheduler)


def learn_many(tree: Tree, leaves: IntArray, values: Array, reward: bool, penalty: bool) -> None:
    """Learn from a sequence of polls.

    A value that is NaN is no feedback.
    """
    for i in range(len(leaves)):
        if values[i] >= 0.0:
            learn(tree, leaves[i], values[i], reward, penalty)
