"""Shortest-path passes over crawls and slots at given prices.

They are written in Python that numba compiles.

A host's crawls come in the order of their preferred times. Crawl x at place q pays its distance from its
preferred slot and the price of its slot; the crawl before it has to be at one of the first `before[q]`
places, the one after it at `after[q]` or later. So the cheapest places are a shortest path, found crawl by
crawl with running minima.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, IntArray

Narrow: TypeAlias = npt.NDArray[np.int32]  # for what there are many of


def cheapest(
    first: IntArray,
    want: IntArray,
    begin: IntArray,
    slot: IntArray,
    before: IntArray,
    price: Array,
    choice: Narrow,
    chosen: IntArray,
) -> float:
    """Write each crawl's cheapest slot and return the total paid.

    Slots go to `chosen`.

    Parameters
    ----------
    first : ndarray of int, shape (H + 1,)
        Where each host's crawls begin in `want`, the slots wanted.
    begin : ndarray of int, shape (H + 1,)
        Where each host's places begin in `slot` and `before`.
    price : ndarray, shape (S,)
    choice : ndarray of int, shape (most crawls, most places + 1)
        Room to work in.
    """
    paid = 0.0
    width = choice.shape[1]
    last, now = np.empty(width), np.empty(width)
    for h in range(len(first) - 1):
        a, b, p = first[h], first[h + 1], begin[h]
        many = begin[h + 1] - p
        if a == b:
            continue
        last[: many + 1] = 0.0
        for x in range(a, b):
            least, best = np.inf, 0
            now[0] = np.inf
            for q in range(many):
                s = slot[p + q]
                cost = last[before[p + q]] + abs(s - want[x]) + price[s]
                if cost < least:
                    least, best = cost, q
                now[q + 1] = least
                choice[x - a, q + 1] = best
            last, now = now, last
        paid += last[many]
        k = many
        for x in range(b - 1, a - 1, -1):
            q = choice[x - a, k]
            chosen[x] = slot[p + q]
            k = before[p + q]
    return paid


def affordable(
    first: IntArray,
    want: IntArray,
    begin: IntArray,
    slot: IntArray,
    before: IntArray,
    after: IntArray,
    price: Array,
    extra: float,
    room: int,
) -> tuple[Narrow, Narrow]:
    """Return crawls and places of a host's near-optimal schedules.

    These are all that pay at most `extra` more than its cheapest.

    At most `room` of them are returned; the crawls of a host come last first, as do their places.
    """
    crawl, place = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    found = 0
    for h in range(len(first) - 1):
        a, b, p = first[h], first[h + 1], begin[h]
        many = begin[h + 1] - p
        if a == b:
            continue
        so_far = np.empty((b - a, many))
        last, now = np.zeros(many + 1), np.empty(many + 1)
        for x in range(a, b):
            least = np.inf
            now[0] = np.inf
            for q in range(many):
                s = slot[p + q]
                cost = last[before[p + q]] + abs(s - want[x]) + price[s]
                so_far[x - a, q] = cost
                least = min(least, cost)
                now[q + 1] = least
            last, now = now, last
        best = last[many]
        last[:] = 0.0
        for x in range(b - 1, a - 1, -1):
            least = np.inf
            now[many] = np.inf
            for q in range(many - 1, -1, -1):
                later = last[after[p + q]]
                if so_far[x - a, q] + later - best <= extra and found < room:
                    crawl[found], place[found] = x, q
                    found += 1
                s = slot[p + q]
                least = min(least, later + abs(s - want[x]) + price[s])
                now[q] = least
            last, now = now, last
    return crawl[:found], place[:found]


def neighbours(
    first: IntArray,
    start: IntArray,
    place: IntArray,
    begin: IntArray,
    before: IntArray,
    after: IntArray,
    earlier: IntArray,
    later: IntArray,
) -> None:
    """Write the neighbours that each entry is compatible with.

    These are how many entries of the crawl before, and from which of the one after, go with each entry.

    Crawl x has the entries start[x] .. start[x + 1], their places ascending.
    """
    for h in range(len(first) - 1):
        for x in range(first[h], first[h + 1]):
            j = start[x - 1] if x > first[h] else 0
            k = start[x + 1] if x + 1 < first[h + 1] else 0
            for e in range(start[x], start[x + 1]):
                if x > first[h]:
                    while j < start[x] and place[j] < before[begin[h] + place[e]]:
                        j += 1
                    earlier[e] = j - start[x - 1]
                if x + 1 < first[h + 1]:
                    while k < start[x + 2] and place[k] < after[begin[h] + place[e]]:
                        k += 1
                    later[e] = k


def softest(
    first: IntArray,
    start: IntArray,
    slot: IntArray,
    moved: Array,
    earlier: IntArray,
    later: IntArray,
    price: Array,
    heat: float,
    load: Array,
) -> float:
    """Write mean slot loads and return the smoothed minimum cost.

    It is −heat·ln Σe^(−paid/heat), the sum over schedules.

    It is smooth in the prices, with the load as its gradient, and below what the cheapest schedule pays.
    """
    total = 0.0
    forth, up_to, down_to = np.empty(len(slot)), np.empty(len(slot)), np.empty(len(slot))
    load[:] = 0.0
    for h in range(len(first) - 1):
        a, b = first[h], first[h + 1]
        if a == b:
            continue
        for x in range(a, b):
            run = -np.inf
            for e in range(start[x], start[x + 1]):
                value = 0.0
                if x > a:
                    value = up_to[start[x - 1] + earlier[e] - 1] if earlier[e] > 0 else -np.inf
                value -= (moved[e] + price[slot[e]]) / heat
                forth[e] = value
                if value > run:
                    run = value + (math.log1p(math.exp(run - value)) if run > -np.inf else 0.0)
                elif value > -np.inf:
                    run += math.log1p(math.exp(value - run))
                up_to[e] = run
        whole = up_to[start[b] - 1]
        total -= heat * whole
        for x in range(b - 1, a - 1, -1):
            run = -np.inf
            for e in range(start[x + 1] - 1, start[x] - 1, -1):
                value = 0.0
                if x + 1 < b:
                    value = down_to[later[e]] if later[e] < start[x + 2] else -np.inf
                share = forth[e] + value - whole
                if share > -40.0:  # e^-40 is lost in a sum of float64 beside 1
                    load[slot[e]] += math.exp(share)
                value -= (moved[e] + price[slot[e]]) / heat
                if value > run:
                    run = value + (math.log1p(math.exp(run - value)) if run > -np.inf else 0.0)
                elif value > -np.inf:
                    run += math.log1p(math.exp(value - run))
                down_to[e] = run
    return total
