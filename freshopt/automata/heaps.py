"""Binary min-heaps of numbered items, in flat arrays."""

from __future__ import annotations

from freshopt.numerics.arrays import Array, IntArray


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
