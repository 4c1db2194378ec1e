"""Sums over the segments of a sorted array."""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array, IntArray


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
