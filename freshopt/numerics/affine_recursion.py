"""Affine recursions of many sources at once.

Each source has its own number of rows.
A recursion s ← A·s + b is a chain of affine maps, and maps compose: neighbours are joined in pairs, the pairs
in pairs, until one map per source is left. There are log₂ of the longest chain of such rounds, whatever the
lengths of the others, and the work halves from round to round. The order of a source's maps is kept.

Cost: about two compositions a row; chunks of rows are joined and applied one after another, so that the
memory does not grow with the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from freshopt.numerics.arrays import Array, IntArray, chunks

Maps: TypeAlias = Callable[[slice], tuple[Array, Array]]


def advance(state: Array, source: IntArray, maps: Maps) -> Array:
    """Return each source's state after its rows.

    - `state` (n, d): The states before.
    - `source` (m,): Position of each row's source in `state`; the rows of a source are neighbours.
    - `maps`: Returns, of a slice of rows, A of shape (rows, d, d) and b of shape (rows, d): a row turns the
      state s of its source into A·s + b.
    - returns (n, d)

    Examples
    --------
    >>> double_and_add_one = lambda part: (np.full((3, 1, 1), 2.0), np.ones((3, 1)))
    >>> advance(np.zeros((2, 1)), np.array([0, 0, 1]), double_and_add_one).tolist()
    [[3.0], [1.0]]
    """
    state = state.copy()
    for part in chunks(len(source)):
        at, linear, shift = _join(source[part], *maps(part))
        state[at] = _apply(linear, state[at]) + shift
    return state


def _join(source: IntArray, linear: Array, shift: Array) -> tuple[IntArray, Array, Array]:
    """Return the composition of each source's affine maps."""
    while (source[1:] == source[:-1]).any():
        head = np.ones(len(source), dtype=np.bool_)
        np.not_equal(source[1:], source[:-1], out=head[1:])
        rank = np.arange(len(source)) - np.flatnonzero(head)[np.cumsum(head) - 1]
        left = np.flatnonzero(rank % 2 == 0)
        right = np.flatnonzero(rank % 2 == 1)
        earlier, later = linear[right - 1], linear[right]
        shift[right - 1] = _apply(later, shift[right - 1]) + shift[right]
        linear[right - 1] = later @ earlier
        source, linear, shift = source[left], linear[left], shift[left]
    return source, linear, shift


def _apply(linear: Array, state: Array) -> Array:
    """Return A·s of each row."""
    product: Array = np.matmul(linear, state[:, :, None])[:, :, 0]
    return product
