"""`ShareBounds`: smallest and largest shares of the polls, per source and per group.

A source's floor is polled outside the automata, which share out what the floors leave free. A ceiling caps a
source's leaf, that of a group the node below which the group is: groups are subtrees of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_arrays

# So much of the polls must be free of floors; with less there is nothing for automata to share out.
FREE = 1e-9


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False)
class ShareBounds:
    """Smallest and largest shares of all polls.

    Parameters
    ----------
    floor, ceiling : ndarray, shape (n,)
        0 ≤ floor ≤ ceiling; an infinite ceiling is none.
    group : ndarray of int, shape (n,)
        Position of each source's group, or the number of groups for sources in none.
    group_ceiling : ndarray, shape (H,)
        Largest share of each group together.

    Raises
    ------
    SourceDataError
        If a floor is above its ceiling, or the floors leave nothing free.

    Examples
    --------
    >>> import numpy as np
    >>> from freshopt.automata import AutomataTree, Polling, Update
    >>> bounds = ShareBounds(np.array([0.2, 0.0]), np.array([np.inf, 0.5]), np.array([0, 0]), np.empty(0))
    >>> tree = AutomataTree(2, polling=Polling.RANDOM, update=Update.REWARD_INACTION, bounds=bounds)
    >>> tree.shares()  # half of the 0.8 that the floor leaves, and the floor
    array([0.6, 0.4])
    """

    floor: Array
    ceiling: Array
    group: IntArray
    group_ceiling: Array

    def __post_init__(self) -> None:
        """Raise SourceDataError unless the bounds leave polls to share out."""
        if not bool(np.all((self.floor >= 0.0) & (self.floor <= self.ceiling))):
            raise SourceDataError("a floor is negative or above its ceiling. Mend the bounds of the shares.")
        if not self.free > FREE:
            raise SourceDataError(
                f"floors take {1.0 - self.free:g} of the polls, and nothing is left to learn. Lower them."
            )

    @property
    def free(self) -> float:
        """Share of the polls that floors leave to the automata."""
        return 1.0 - float(np.sum(self.floor))

    def caps(self, width: int, node: IntArray) -> Array:
        """Return the largest learnt share of each of the 2·width nodes."""
        cap = np.full(2 * width, np.inf)
        cap[node] = (self.ceiling - self.floor) / self.free
        taken = np.bincount(self.group, weights=self.floor, minlength=len(self.group_ceiling) + 1)
        for k, limit in enumerate(self.group_ceiling):
            top = top_of(node[self.group == k])
            cap[top] = min(cap[top], (limit - taken[k]) / self.free)
        return cap


def top_of(node: IntArray) -> int:
    """Return the lowest node that is above all of some leaves."""
    low, high = int(node.min()), int(node.max())
    while low != high:
        low, high = low >> 1, high >> 1
    return low


def positions(n: int, bounds: ShareBounds | None) -> tuple[int, IntArray]:
    """Return the depth of a tree, and each source's position among its leaves.

    Without groups they are the first n. A group takes a power of two of leaves, and the widest come first, so
    that each begins where a subtree of that size does.
    """
    if bounds is None or not len(bounds.group_ceiling):
        return (n - 1).bit_length(), np.arange(n)
    size = np.bincount(bounds.group, minlength=len(bounds.group_ceiling) + 1)
    width = np.array([1 << max(int(each) - 1, 0).bit_length() if each else 0 for each in size])
    widest = np.argsort(-width, kind="stable")
    begin = np.zeros(len(width), dtype=np.int64)
    begin[widest] = np.cumsum(width[widest]) - width[widest]
    order = np.argsort(bounds.group, kind="stable")
    first = np.cumsum(size) - size
    position = np.empty(n, dtype=np.int64)
    position[order] = begin[bounds.group[order]] + np.arange(n) - first[bounds.group[order]]
    return (int(np.sum(width)) - 1).bit_length(), position
