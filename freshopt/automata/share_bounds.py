"""`ShareBounds`: smallest and largest shares of the polls.

A source's floor is polled outside the automata, which share out what the floors leave free. A ceiling caps a
source's leaf, that of a group the node below which the group is: groups are subtrees of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from freshopt.automata.random_numbers import bits
from freshopt.automata.transitions import Tree
from freshopt.automata.twofold import check_resolution
from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, IntArray, as_vector, as_whole, shape_of
from freshopt.numerics.frozen_arrays import frozen_value

# So much of the polls must be free of floors; with less there is nothing for automata to share out.
FREE = 1e-9


@frozen_value(init=False)
class ShareBounds:
    """Smallest and largest shares of all polls.

    Parameters
    ----------
    floor, ceiling : array_like, shape (n,)
        0 ≤ floor ≤ ceiling; an infinite ceiling is none.
    group : array_like of int, shape (n,)
        Position of each source's group, or the number of groups for sources in none.
    group_ceiling : array_like, shape (H,)
        Largest share of each group together; no group without sources.

    Raises
    ------
    SourceDataError
        If the columns do not fit, a floor is above its ceiling, or the floors leave nothing free.

    Examples
    --------
    >>> import numpy as np
    >>> from freshopt.automata import AutomataTree, Polling, Update
    >>> bounds = ShareBounds([0.2, 0.0], [np.inf, 0.5], group=0, group_ceiling=[])
    >>> tree = AutomataTree(2, polling=Polling.RANDOM, update=Update.REWARD_INACTION, bounds=bounds)
    >>> tree.shares().round(2)  # half of the 0.8 that the floor leaves, and the floor
    array([0.6, 0.4])
    """

    floor: Array
    ceiling: Array
    group: IntArray
    group_ceiling: Array

    def __init__(
        self,
        floor: npt.ArrayLike,
        ceiling: npt.ArrayLike,
        group: npt.ArrayLike,
        group_ceiling: npt.ArrayLike,
    ) -> None:
        n = max(1, *shape_of(floor, "floor"), 1)
        low, high = as_vector(floor, n, "floor"), as_vector(ceiling, n, "ceiling")
        codes = as_vector(group, n, "group")
        most = as_vector(group_ceiling, max(0, *shape_of(group_ceiling, "group_ceiling"), 0), "group_ceiling")
        if not bool(np.all((low >= 0.0) & (low <= high) & (low < np.inf))):
            raise SourceDataError("a floor is negative or above its ceiling. Mend the bounds of the shares.")
        if not bool(np.all(most >= 0.0)):
            raise SourceDataError("a group_ceiling is negative or no number. Mend it.")
        filled = np.unique(codes[codes < len(most)])
        if not (np.array_equal(filled, np.arange(len(most))) and bool(np.all(codes <= len(most)))):
            raise SourceDataError(
                f"group must name each of {len(most)} groups by its position, and {len(most)} for none. "
                "Correct it."
            )
        whole = codes.astype(np.int64)
        for each, column in zip(fields(self), (low, high, whole, most), strict=True):
            object.__setattr__(self, each.name, column)
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
    """Return a tree's depth and each source's leaf.

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


# Largest number of sources, whose tree takes 40 GB.
MOST_SOURCES = 2**30
# Numbers after which sfc32 no longer depends visibly on how it was seeded.
WARM_UP = 16


def doubled(n: int, resolution: int = 500) -> tuple[int, ...]:
    """Return resolutions that double from each depth upwards.

    The lowest depth has `resolution`.

    Examples
    --------
    >>> doubled(8, 500)
    (2000, 1000, 500)
    """
    depth = (as_whole(n, "n", 1, MOST_SOURCES) - 1).bit_length()
    return tuple(resolution * 2 ** (depth - 1 - level) for level in range(depth))


def per_depth(resolution: int | Sequence[int], depth: int) -> tuple[int, ...]:
    """Return one resolution per depth, root first."""
    if isinstance(resolution, int | np.integer):
        check_resolution(resolution)
        return (int(resolution),) * depth
    if len(shape_of(resolution, "resolution")) != 1:
        raise SourceDataError(
            f"resolution is {resolution!r}. Pass a number of states >= 1, or one per depth."
        )
    given = tuple(as_whole(each, "resolution", 1, 2**40) for each in resolution)
    if len(given) != depth:
        raise SourceDataError(f"{len(given)} resolutions for {depth} depths. Pass one per depth, root first.")
    return given


def fresh_tree(
    position: IntArray, resolution: tuple[int, ...], seed: int, bounds: ShareBounds | None
) -> Tree:
    """Return a tree with equal shares for sources at given leaves."""
    n, depth = len(position), len(resolution)
    at = np.full(2**depth, -1, dtype=np.int64)
    at[position] = np.arange(n)
    before = np.concatenate(([0], np.cumsum(at >= 0)))  # sources left of each leaf
    node = position + 2**depth
    state, span = np.zeros(2**depth, dtype=np.int64), np.zeros(2**depth, dtype=np.int64)
    for level, states in enumerate(resolution):
        nodes = np.arange(2**level)
        width = 2 ** (depth - level)
        below = before[(nodes + 1) * width] - before[nodes * width]
        left = before[nodes * width + width // 2] - before[nodes * width]
        split = below > left
        start = np.rint((states + 1) * left / np.maximum(below, 1)).astype(np.int64)
        span[2**level + nodes] = np.where(split, states + 1, 0)
        state[2**level + nodes] = np.where(split, np.clip(start, 1, states), 0)
    words = np.random.SeedSequence(seed).generate_state(3).astype(np.int64)
    tree = Tree(
        state=state,
        span=span,
        credit=span // 2,
        begun=np.zeros(n),
        release=np.zeros(n),
        deadline=np.zeros(n),
        ready=np.zeros(n, dtype=np.int64),
        waiting=np.zeros(n, dtype=np.int64),
        sizes=np.zeros(2, dtype=np.int64),
        place=np.zeros(n, dtype=np.int64),
        released=np.zeros(n, dtype=np.int64),
        clock=np.zeros(1, dtype=np.int64),
        noise=np.append(words, 1),
        node=node,
        at=at,
        floor=np.zeros(0) if bounds is None else bounds.floor.copy(),
        floors=np.zeros(0) if bounds is None else np.cumsum(bounds.floor),
        cap=np.zeros(0) if bounds is None else bounds.caps(2**depth, node),
    )
    for _ in range(WARM_UP):
        bits(tree.noise)
    return tree
