"""`nest`: the tree of groups that are pairwise nested or disjoint.

Groups are given by their members, entry by entry. Sorted by size, the groups of one source form a chain; they
are a tree if and only if every group is followed by the same group in the chains of all its members. Two
groups that share a source without one containing the other break this at the source they share. The cost is
that of sorting the entries; nothing is quadratic in the number of groups.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import IntArray
from freshopt.numerics.frozen_arrays import frozen_value


@frozen_value()
class Nesting:
    """Groups in post-order, each a slice of the ordered sources.

    The last group is the root, which holds all sources. Groups with the same members are one.

    Attributes
    ----------
    order : ndarray of int, shape (n,)
        The source at each position.
    leaf : ndarray of int, shape (n,)
        The innermost group of each source.
    parent : ndarray of int, shape (G,)
        −1 for the root.
    begin, end : ndarray of int, shape (G,)
        The positions of a group's sources.
    depth : ndarray of int, shape (G,)
        0 for the root.
    group : ndarray of int, shape (m,)
        The group of each set that was given.
    """

    order: IntArray
    leaf: IntArray
    parent: IntArray
    begin: IntArray
    end: IntArray
    depth: IntArray
    group: IntArray


def nest(source: IntArray, member_of: IntArray, sets: int, n: int) -> Nesting | None:
    """Return the tree of sets of sources, or None.

    Parameters
    ----------
    source, member_of : ndarray of int, shape (entries,)
        Each entry makes a source a member of a set.
    sets : int
        Number m of sets, none empty.
    n : int
        Number of sources.

    Examples
    --------
    >>> tree = nest(np.array([0, 1, 1, 2]), np.array([0, 0, 1, 1]), 2, 3)
    >>> tree is None
    True
    >>> tree = nest(np.array([2, 0, 2]), np.array([0, 1, 1]), 2, 3)
    >>> tree.parent, tree.order
    (array([ 1,  2, -1]), array([2, 0, 1]))
    """
    size = np.bincount(member_of, minlength=sets)
    by_size = np.argsort(size, kind="stable")
    rank_of = np.empty(sets, dtype=np.int64)
    rank_of[by_size] = np.arange(sets)
    chain = source * np.int64(max(1, sets)) + rank_of[member_of]
    if bool(np.any(chain[1:] <= chain[:-1])):
        chain = np.sort(chain)
        if bool(np.any(chain[1:] == chain[:-1])):
            return None
    own = chain // max(1, sets)
    rank = chain - max(1, sets) * own
    changes = np.append(own[1:] != own[:-1], np.ones(min(1, len(own)), dtype=np.bool_))
    following = np.where(changes, sets, np.append(rank[1:], sets)) if len(own) else rank
    # The root is the set of rank m; ranks rise towards it.
    parent = np.full(sets + 1, sets)
    parent[rank] = following
    if bool(np.any(parent[rank] != following)):
        return None
    top = _merged(parent, np.append(size[by_size], n))
    innermost = np.full(n, sets)
    starts = np.flatnonzero(np.append(np.ones(min(1, len(own)), dtype=np.bool_), changes[:-1]))
    innermost[own[starts]] = rank[starts]
    kept = np.unique(np.append(top, sets))
    number = np.zeros(sets + 1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    number = number[top]
    return _arranged(number[parent[kept]], number[innermost], number[rank_of])


def _merged(parent: IntArray, size: IntArray) -> IntArray:
    """Return the outermost set with the same members as each, by rank."""
    top = np.where(size[parent] == size, parent, np.arange(len(parent)))
    while True:
        further = top[top]
        if bool(np.all(further == top)):
            return top
        top = further


def _arranged(parent: IntArray, leaf: IntArray, group: IntArray) -> Nesting:
    """Return groups in post-order, given parents of higher numbers than their children."""
    count = len(parent)
    parent = np.append(parent[:-1], -1)
    direct = np.bincount(leaf, minlength=count)
    children = np.bincount(parent[:-1], minlength=count)
    by_parent = np.argsort(parent[:-1], kind="stable")
    first = np.concatenate(([0], np.cumsum(children)))
    levels = [np.array([count - 1])]
    while len(levels[-1]):
        above = levels[-1]
        many = children[above]
        offsets = np.cumsum(many) - many
        places = np.repeat(first[above] - offsets, many) + np.arange(int(np.sum(many)))
        levels.append(by_parent[places])
    size, depth = direct.copy(), np.zeros(count, dtype=np.int64)
    for level, groups in enumerate(levels):
        depth[groups] = level
    for groups in reversed(levels[1:]):
        np.add.at(size, parent[groups], size[groups])
    begin, nested = np.zeros(count, dtype=np.int64), size - direct
    for groups in levels[1:-1]:
        # Siblings are side by side in a level: each begins where those before it end.
        running = np.cumsum(size[groups]) - size[groups]
        siblings = np.append(True, parent[groups][1:] != parent[groups][:-1])
        starts = np.flatnonzero(siblings)[np.cumsum(siblings) - 1]
        begin[groups] = begin[parent[groups]] + running - running[starts]
    end = begin + size
    # A group ends where its last child does, or later; of groups that end together the deepest comes first.
    post = np.lexsort((-depth, end))
    place = np.empty(count, dtype=np.int64)
    place[post] = np.arange(count)
    # Direct members follow all children of their group.
    order = np.argsort((begin + nested)[leaf], kind="stable")
    above = np.where(parent[post] >= 0, place[parent[post]], -1)
    return Nesting(order, place[leaf], above, begin[post], end[post], depth[post], place[group])
