"""Sums and bisection over segments of a sorted array, and groups."""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import CHUNK, Array, IntArray, chunks

# So many numbers of one sign lose less than 4e-16 of their sum, however they are added.
FEW = 4


def segment_sums(values: Array, offsets: IntArray) -> Array:
    """Return the sum of ``values[offsets[k]:offsets[k+1]]`` for each k.

    It is 0 for an empty segment.

    Examples
    --------
    >>> segment_sums(np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3]))
    array([3., 0., 4.])
    """
    sums = np.zeros(len(offsets) - 1)
    filled = np.flatnonzero(offsets[1:] > offsets[:-1])  # reduceat would return an element for an empty one
    if len(filled):
        sums[filled] = np.add.reduceat(values, offsets[filled])
    return sums


def segment_rows(offsets: IntArray, chosen: IntArray) -> IntArray:
    """Return the rows of some segments, one segment after the other.

    Examples
    --------
    >>> segment_rows(np.array([0, 2, 2, 5]), np.array([0, 2]))
    array([0, 1, 2, 3, 4])
    """
    counts = np.diff(offsets)[chosen]
    shift = offsets[chosen] - (np.cumsum(counts) - counts)
    return np.repeat(shift, counts) + np.arange(int(np.sum(counts)))


def first_beyond(times: Array, low: IntArray, high: IntArray, wanted: Array) -> IntArray:
    """Return the first positions whose times are beyond wanted ones.

    Each is in low..high-1, or `high` if there is none; times increase within a segment.

    Examples
    --------
    >>> ends = np.array([0, 2]), np.array([2, 4])
    >>> first_beyond(np.array([1.0, 3.0, 0.0, 5.0]), *ends, np.array([1.0, 9.0]))
    array([1, 4])
    """
    while np.any(open_ := low < high):
        middle = (low + high) // 2
        before = open_ & (times[np.minimum(middle, len(times) - 1)] <= wanted)
        low, high = np.where(before, middle + 1, low), np.where(open_ & ~before, middle, high)
    return low


def group_sums(values: Array, groups: IntArray, count: int) -> Array:
    """Return the sum of the values of each group.

    It is right to an ulp or two, in any order of the values; groups of up to `FEW` are added as they come.

    Each value is split at the last bit of its group's sum. The heads are multiples of that bit, so that they
    are added without rounding; the tails are so small that rounding them does not matter.

    - `values` (n,): Of one sign.
    - `groups` (n,): The group of each value, in 0..count.
    - returns (count,)

    Examples
    --------
    >>> group_sums(np.full(10, 0.1), np.zeros(10, dtype=np.int64), 1)
    array([1.])
    """
    about = np.bincount(groups, weights=values, minlength=count).astype(np.float64)
    if not len(values) or np.bincount(groups).max() <= FEW:
        return about
    heads, tails = np.zeros(count), np.zeros(count)
    with np.errstate(all="ignore"):
        # A power of two, twice the sum or more: what is added to it is rounded to its last bit.
        split = np.ldexp(1.0, np.frexp(about)[1] + 1)
        for part in chunks(len(values), max(CHUNK, 4 * count)):
            own, value = groups[part], values[part]
            each = split[own]
            head = (each + value) - each
            heads += np.bincount(own, weights=head, minlength=count)
            tails += np.bincount(own, weights=value - head, minlength=count)
        exact = heads + tails
    return np.where(np.isfinite(exact), exact, about)
