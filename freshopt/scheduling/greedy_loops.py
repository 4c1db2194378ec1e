"""Greedy picks source by source, in Python that numba compiles.

An index only grows until its source is picked. So it is enough to know when it will pass a mark, and to look
at a source no earlier. There are two marks. Who has passed the lower one, some thousands, is known; who has
passed the upper one, some dozens, is compared in every slot. The others wait in a calendar, in the slot in
which they pass the next mark. Where nobody is left above the upper mark it is lowered, to the indices of
those above the lower one, and where too many are, it is raised; the lower mark likewise, rarely.

A source waits for a mark lower by `EARLY` than it is, which covers what the inverse of the index is off.
Sources that are alike wait in a queue: see `freshopt.scheduling.greedy`.
Cost: of 10⁴ sources 0.5-3 μs a pick, of 10⁶ that are all fresh at first 3-9 μs (measured on a busy machine).
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled import demand_functions
from freshopt.numerics import special_functions
from freshopt.numerics.arrays import Array, BoolArray, IntArray

KINDS = {
    demand_functions.harmonic_periodic: 0,
    demand_functions.binary_periodic: 1,
    demand_functions.delay_periodic: 2,
    demand_functions.age_periodic: 3,
}  # the curves that are compiled, told by their inverse
EARLY = 1e-9  # relative
LOWER, UPPER = 16_384, 32  # sources above the marks when they are set (measured, with 10⁶ sources)
MANY = 2  # times as many, and the mark is raised
HALF = special_functions._SMALL
HARMONIC, GAMMA2, AGE = (
    np.array(series)
    for series in (special_functions._INDEX, special_functions._GAMMA2, special_functions._AGE_INDEX)
)


def polynomial(series: Array, x: float) -> float:
    """Return Σ series[k]·x^k."""
    value = 0.0
    for k in range(len(series) - 1, -1, -1):
        value = value * x + series[k]
    return value


def gamma2(u: float) -> float:
    """Return P(2, u), as `freshopt.numerics.special_functions` does."""
    if u < HALF:
        return u * u * polynomial(GAMMA2, u)
    return -math.expm1(math.log1p(min(u, 1e3)) - min(u, 1e3))


def index(kind: int, d: float, age: float) -> float:
    """Return V(age) of a curve."""
    u = d * age
    if age <= 0.0:
        return 0.0
    if kind == 0:
        return (u * u * polynomial(HARMONIC, u) if u < HALF else u + math.expm1(-u)) / d
    if kind == 1:
        return gamma2(u) / d
    if kind == 2:
        return 0.5 * u * age
    return (u * u * u * polynomial(AGE, u) if u < 2.0 * HALF else 0.5 * u * u - gamma2(u)) / d / d


def gap(kind: int, d: float, weight: float, mark: float) -> float:
    """Return the age at which w·V is a mark, or inf."""
    if weight <= 0.0:
        return math.inf
    worth = weight / (mark * (1.0 - EARLY))
    if kind == 0:
        rate = demand_functions.harmonic_periodic(worth, d)
    elif kind == 1:
        rate = demand_functions.binary_periodic(worth, d)
    elif kind == 2:
        rate = demand_functions.delay_periodic(worth, d)
    else:
        rate = demand_functions.age_periodic(worth, d)
    return 1.0 / rate if rate > 0.0 else math.inf


def due(moment: float, time: Array, now: int) -> int:
    """Return the slot at which to evaluate a source again.

    It comes after the present one, `now`; the number of slots stands for never.
    """
    many = len(time)
    if not moment < time[many - 1]:
        return many
    slot = int((moment - time[0]) / (time[many - 1] - time[0]) * (many - 1))
    return max(min(slot, many - 1), now + 1)


def put(k: int, slot: int, head: IntArray, right: IntArray, left: IntArray, where: IntArray) -> None:
    """Write a source into the calendar."""
    where[k] = slot
    right[k] = head[slot]
    left[k] = -1
    if head[slot] >= 0:
        left[head[slot]] = k
    head[slot] = k


def strike(k: int, head: IntArray, right: IntArray, left: IntArray, where: IntArray) -> None:
    """Take a source out of the calendar, if it is there."""
    if where[k] < 0:
        return
    if left[k] >= 0:
        right[left[k]] = right[k]
    else:
        head[where[k]] = right[k]
    if right[k] >= 0:
        left[right[k]] = left[k]
    where[k] = -1


def join(k: int, members: IntArray, place: IntArray, size: int) -> int:
    """Add a source to a list and return the new size."""
    members[size] = k
    place[k] = size
    return size + 1


def leave(k: int, members: IntArray, place: IntArray, size: int) -> int:
    """Take a source out of a list and return the new size."""
    other = members[size - 1]
    members[place[k]] = other
    place[other] = place[k]
    place[k] = -1
    return size - 1


def highest(values: Array, many: int) -> float:
    """Return the value that so many reach."""
    return float(np.partition(values, len(values) - many)[len(values) - many])


def pick(
    kind: int,
    weight: Array,
    d: Array,
    last: Array,
    time: Array,
    follower: IntArray,
    waits: BoolArray,
    out: IntArray,
) -> int:
    """Write the source picked in each slot; return the slots filled.

    The next slot, if there is one, is the first at which no source has a positive marginal value.

    Parameters
    ----------
    kind : int
        Of the curve, see `KINDS`.
    last : ndarray, shape (n,)
        When each was refreshed last; it is brought up to date.
    time : ndarray, shape (slots,)
        Equally spaced.
    follower : ndarray of int, shape (n,)
        Whose turn it is when a source has been picked for the first time; −1: nobody's.
    waits : ndarray of bool, shape (n,)
        Who waits for that; it is brought up to date.
    """
    n, many = len(weight), len(time)
    head = np.full(many + 1, -1, dtype=np.int64)
    right, left = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    where, near, at_top = right.copy(), right.copy(), right.copy()  # slot, place among those above each mark
    above, top = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    above_size = top_size = 0
    lower = upper = 0.0
    above_limit, top_limit = MANY * LOWER, MANY * UPPER
    value = np.empty(n)
    for s in range(many):
        t = time[s]
        k = head[s]
        while k >= 0:
            following = right[k]
            where[k] = -1
            v = weight[k] * index(kind, d[k], t - last[k])
            if v >= lower and near[k] < 0:
                above_size = join(k, above, near, above_size)
            if v >= upper:
                top_size = join(k, top, at_top, top_size)
            else:
                mark = upper if near[k] >= 0 else lower
                put(k, due(last[k] + gap(kind, d[k], weight[k], mark), time, s), head, right, left, where)
            k = following
        head[s] = -1
        if top_size == 0 and above_size == 0:  # the lower mark is set, from all
            found = 0
            for k in range(n):
                value[k] = -1.0 if waits[k] else weight[k] * index(kind, d[k], t - last[k])
                found += value[k] > 0.0
            if found == 0:
                return s
            lower = upper = highest(value, min(found, LOWER))
            for k in range(n):
                if value[k] >= lower:
                    strike(k, head, right, left, where)
                    above_size = join(k, above, near, above_size)
                elif not waits[k]:
                    strike(k, head, right, left, where)
                    put(
                        k, due(last[k] + gap(kind, d[k], weight[k], lower), time, s), head, right, left, where
                    )
            above_limit = MANY * max(LOWER, above_size)
        if above_size > above_limit:  # the lower mark is raised
            for j in range(above_size):
                value[j] = weight[above[j]] * index(kind, d[above[j]], t - last[above[j]])
            lower = highest(value[:above_size], LOWER)
            upper = max(upper, lower)
            j = 0
            while j < above_size:
                k = above[j]
                if weight[k] * index(kind, d[k], t - last[k]) >= lower:
                    j += 1
                    continue
                above_size = leave(k, above, near, above_size)
                if at_top[k] >= 0:
                    top_size = leave(k, top, at_top, top_size)
                strike(k, head, right, left, where)
                put(k, due(last[k] + gap(kind, d[k], weight[k], lower), time, s), head, right, left, where)
            above_limit = MANY * max(LOWER, above_size)
        if top_size == 0:  # the upper mark is set, from those above the lower one
            for j in range(above_size):
                value[j] = weight[above[j]] * index(kind, d[above[j]], t - last[above[j]])
            upper = highest(value[:above_size], min(above_size, UPPER))
            for j in range(above_size):
                k = above[j]
                strike(k, head, right, left, where)
                if value[j] >= upper:
                    top_size = join(k, top, at_top, top_size)
                else:
                    put(
                        k, due(last[k] + gap(kind, d[k], weight[k], upper), time, s), head, right, left, where
                    )
            top_limit = MANY * max(top_size, UPPER)
        best, chosen = -1.0, -1
        for j in range(top_size):
            k = top[j]
            v = weight[k] * index(kind, d[k], t - last[k])
            value[j] = v
            if v > best or (v == best and k < chosen):
                best, chosen = v, k
        if top_size > top_limit:  # the upper mark is raised
            upper = highest(value[:top_size], UPPER)
            j = 0
            while j < top_size:
                k = top[j]
                if weight[k] * index(kind, d[k], t - last[k]) >= upper:
                    j += 1
                    continue
                top_size = leave(k, top, at_top, top_size)
                put(k, due(last[k] + gap(kind, d[k], weight[k], upper), time, s), head, right, left, where)
            top_limit = MANY * max(top_size, UPPER)
        k = chosen
        out[s] = k
        last[k] = t
        top_size = leave(k, top, at_top, top_size)
        above_size = leave(k, above, near, above_size)
        put(k, due(t + gap(kind, d[k], weight[k], lower), time, s), head, right, left, where)
        k = follower[k]
        if k >= 0:
            follower[chosen] = -1
            waits[k] = False
            v = weight[k] * index(kind, d[k], t - last[k])
            if v >= lower:
                above_size = join(k, above, near, above_size)
            if v >= upper:
                top_size = join(k, top, at_top, top_size)
            else:
                mark = upper if near[k] >= 0 else lower
                put(k, due(last[k] + gap(kind, d[k], weight[k], mark), time, s), head, right, left, where)
    return many
