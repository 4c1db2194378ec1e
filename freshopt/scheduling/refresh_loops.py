"""Points of periodic sources and their order in time, compiled by numba.

Two counting sorts by time and one insertion: the first sort puts refreshes into some thousand parts of the
horizon, so that each part fits a cache; the second puts those of a part into as many buckets as there are
refreshes. Both keep equal times in the order of their sources, and so does the insertion that orders the few
of a bucket. A part whose times are bunched is merge-sorted instead.

What comes out is that of a stable argsort, to the bit. Memory: 16 bytes per refresh that stay, 8 for the
times that are given, and what the greatest part takes once more.
Cost: 20 ns a refresh.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, IntArray

# Refreshes of a part, unless there were more parts than open cache lines (measured at 7 million).
PER_PART, MOST_PARTS = 2048, 2048
# Refreshes below which insertion is quickest, and of a bucket above which it is slow.
FEW, BUNCHED = 16, 32
# Ratio of the slot lengths of successive levels of load.
LONGER = 8
# Bits of a digit: 2048 places to write to at a time.
DIGIT = 11
RADIX = 2**DIGIT
LAST, ONE = np.uint64(RADIX - 1), np.uint64(1)

Small = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]


def lay_points(count: IntArray, phase: Array, rates: Array, out: Array) -> None:
    """Write the points (φ + j)/ρ of all sources, source by source."""
    at = 0
    for k in range(len(count)):
        own, rate = phase[k], rates[k]
        for j in range(count[k]):
            out[at + j] = (own + j) / rate
        at += count[k]


def order_by_time(count: IntArray, time: Array, source_out: IntArray, time_out: Array) -> None:
    """Write refreshes, ``count[k]`` of source k, in order of time, then source."""
    many = len(time)
    if many == 0:
        return
    parts = max(1, min(MOST_PARTS, many // PER_PART))
    low, scale = scaling(time, parts)
    begin = np.zeros(parts + 1, dtype=np.int64)
    for i in range(many):
        begin[place_of(time[i], low, scale, parts) + 1] += 1
    largest = 0
    for part in range(parts):
        largest = max(largest, begin[part + 1])
        begin[part + 1] += begin[part]
    room = begin[:-1].copy()
    at = 0
    for k in range(len(count)):
        for _ in range(count[k]):
            t = time[at]
            at += 1
            part = place_of(t, low, scale, parts)
            i = room[part]
            room[part] = i + 1
            time_out[i] = t
            source_out[i] = k
    times, sources = np.empty(largest), np.empty(largest, dtype=np.int32)
    ends = np.empty(largest + 1, dtype=np.int32)
    for part in range(parts):
        a, b = begin[part], begin[part + 1]
        order_part(time_out[a:b], source_out[a:b], times, sources, ends)


def scaling(time: Array, parts: int) -> tuple[float, float]:
    """Return the least time, and parts per unit of time."""
    low = high = time[0]
    for i in range(len(time)):
        low, high = min(low, time[i]), max(high, time[i])
    scale = parts / (high - low) if high > low else 0.0
    return low, scale if scale < math.inf else 0.0


def place_of(t: float, low: float, scale: float, parts: int) -> int:
    """Return the part, which never falls, in which a time lies."""
    return min(int((t - low) * scale), parts - 1)


def order_part(time: Array, source: IntArray, times: Array, sources: Small, ends: Small) -> None:
    """Sort a part in place by time; equal times keep their order.

    The last three are room to work in.
    """
    many = len(time)
    for i in range(many):
        times[i] = time[i]
        sources[i] = source[i]
    if many <= FEW:
        insert(time, source, times, sources)
        return
    low, scale = scaling(time, many)
    ends[: many + 1] = 0
    for i in range(many):
        ends[place_of(time[i], low, scale, many) + 1] += 1
    most = 0
    for i in range(many):
        most = max(most, ends[i + 1])
        ends[i + 1] += ends[i]
    if most > BUNCHED:
        merge_sort(time, source, times, sources)
        return
    for i in range(many):
        bucket = place_of(time[i], low, scale, many)
        at = ends[bucket]
        ends[bucket] = at + 1
        times[at] = time[i]
        sources[at] = source[i]
    insert(time, source, times, sources)


def insert(time: Array, source: IntArray, times: Array, sources: Small) -> None:
    """Write what is nearly sorted, sorted: by insertion."""
    for i in range(len(time)):
        t, k = times[i], sources[i]
        j = i
        while j > 0 and time[j - 1] > t:
            time[j], source[j] = time[j - 1], source[j - 1]
            j -= 1
        time[j], source[j] = t, k


def merge_sort(time: Array, source: IntArray, times: Array, sources: Small) -> None:
    """Sort by merging runs of doubled length."""
    many = len(time)
    length = 1
    while length < many:
        for i in range(many):
            times[i] = time[i]
            sources[i] = source[i]
        for a in range(0, many, 2 * length):
            middle, end = min(a + length, many), min(a + 2 * length, many)
            left, right = a, middle
            for i in range(a, end):
                if left < middle and (right >= end or times[left] <= times[right]):
                    time[i], source[i] = times[left], sources[left]
                    left += 1
                else:
                    time[i], source[i] = times[right], sources[right]
                    right += 1
        length *= 2


def level(
    order: IntArray,
    ends: IntArray,
    rates: Array,
    horizon: float,
    count: IntArray,
    phase: Array,
    slots: int,
    choices: int,
) -> None:
    """Write the phases that level the load: see `freshopt.scheduling.phases`.

    Sources are taken in their order, and `ends` are the ends of batches; slots are a multiple of `LONGER`².
    """
    short, middle = np.zeros(slots, dtype=np.int32), np.zeros(slots // LONGER, dtype=np.int32)
    long, busy = np.zeros(slots // LONGER**2, dtype=np.int32), np.zeros(slots, dtype=np.int32)
    begin = 0
    for end in ends:
        for at in range(begin, end):
            k = order[at]
            many, scale = count[k], slots / (rates[k] * horizon)
            edge = rates[k] * horizon
            edge -= math.floor(edge)
            low = phase[k] < edge
            base, width = 0.0 if low else edge, edge if low else 1.0 - edge
            start = (phase[k] - base) / width
            chosen, least = phase[k], np.int64(2**62)
            for choice in range(choices):
                turn = start + choice / choices
                own = base + (turn - 1.0 if turn >= 1.0 else turn) * width
                score = np.int64(0)
                for j in range(many):
                    score += busy[min(int((own + j) * scale), slots - 1)]
                if score < least:
                    chosen, least = own, score
            phase[k] = chosen
            for j in range(many):
                slot = min(int((chosen + j) * scale), slots - 1)
                short[slot] += 1
                middle[slot // LONGER] += 1
                long[slot // LONGER**2] += 1
        begin = end
        for i in range(len(middle)):
            more = middle[i] + long[i // LONGER]
            for j in range(i * LONGER, (i + 1) * LONGER):
                busy[j] = short[j] + more


def radix_order(keys: Words) -> IntArray:
    """Return the stable order of unsigned keys, by their digits."""
    many = len(keys)
    order, other = np.arange(many), np.empty(many, dtype=np.int64)
    begin = np.empty(RADIX + 1, dtype=np.int64)
    for digit in range(0, 64, DIGIT):
        shift = np.uint64(digit)
        begin[:] = 0
        for i in range(many):
            begin[((keys[i] >> shift) & LAST) + ONE] += 1
        if many == 0 or begin[((keys[0] >> shift) & LAST) + ONE] == many:
            continue
        for value in range(RADIX):
            begin[value + 1] += begin[value]
        for i in range(many):
            k = order[i]
            value = (keys[k] >> shift) & LAST
            other[begin[value]] = k
            begin[value] += 1
        order, other = other, order
    return order
