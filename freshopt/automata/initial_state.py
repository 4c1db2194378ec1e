"""Initial state of a tree of automata.

It holds the resolution of each depth, and where each automaton begins.

A fresh tree gives each source the same share, to half a state of an automaton.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshopt.automata.random_numbers import bits
from freshopt.automata.share_bounds import ShareBounds
from freshopt.automata.transitions import Tree
from freshopt.automata.twofold import check_resolution
from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import IntArray, as_whole, shape_of

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
    """Return a tree with equal shares for all sources.

    They are equal to half a state. Sources are at the given positions among the leaves.
    """
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
