"""`LaminarTree`: limits and reserves of groups that are nested or disjoint.

Hosts in domains in organisations, the whole at the root: every group may have a limit, the most that its
sources may use together, and a reserve, the least. All are in one unit: source k uses cost_k·ρ_k. Rows of a
curve, Σ cost_k·J_k(ρ_k) ≤ limit, form such a tree, too. The tree is recognised from rows, so that whoever
declares rows need not know of it.

`nest`: the tree of groups that are pairwise nested or disjoint.

Groups are given by their members, entry by entry. Sorted by size, the groups of one source form a chain; they
are a tree if and only if every group is followed by the same group in the chains of all its members. Two
groups that share a source without one containing the other break this at the source they share. The cost is
that of sorting the entries; nothing is quadratic in the number of groups.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import RATE, Rows


@frozen_value()
class Nesting:
    """Groups in post-order, each a slice of the ordered sources.

    The last group is the root, which holds all sources. Groups with the same members are one.

    - `order` (n,): The source at each position.
    - `leaf` (n,): The innermost group of each source.
    - `parent` (G,): −1 for the root.
    - `begin`, `end` (G,): The positions of a group's sources.
    - `depth` (G,): 0 for the root.
    - `group` (m,): The group of each set that was given.
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

    - `source`, `member_of` (entries,): Each entry makes a source a member of a set.
    - `sets`: Number m of sets, none empty.
    - `n`: Number of sources.

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


# Coefficients of one row are multiples of one cost vector if their ratios differ by no more, relatively: a
# product and a quotient are each off by half an ulp.
_PROPORTIONAL = 8 * float(np.finfo(np.float64).eps)
# Sources at which proportionality is tried before it is at all of them.
_FIRST = 1000


@frozen_value()
class LaminarTree:
    """Limits and reserves of G nested groups of n sources.

    Groups are in post-order; the last is the whole.

    - `nesting`: Parents, and the slice of positions that each group is.
    - `cost` (n,): What a source uses per unit of its rate, or of its curve, > 0.
    - `kind`: What is limited: 0 the rates, t > 0 the t-th curve of the rows.
    - `limit` (G,): inf for none.
    - `reserve` (G,): 0 for none.
    - `limit_row`, `reserve_row` (G,): The rows that set them, −1 for none.
    - `scale` (m,): The rows' coefficients are ±scale·cost.
    - `labels`: Of the rows.
    """

    nesting: Nesting
    cost: Array
    kind: int
    limit: Array
    reserve: Array
    limit_row: IntArray
    reserve_row: IntArray
    scale: Array
    labels: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of groups, the root included."""
        return len(self.limit)

    def __repr__(self) -> str:
        limits, reserves = np.isfinite(self.limit).sum(), (self.reserve > 0.0).sum()
        deep = int(np.max(self.nesting.depth)) + 1
        return f"LaminarTree({len(self.cost)} sources, {limits} limits, {reserves} reserves, depth {deep})"

    @classmethod
    def from_rows(cls, rows: Rows) -> LaminarTree | None:
        """Return the tree of all rows, or None if there is none.

        They are one if all are of one kind, their supports are nested or disjoint, their coefficients are
        multiples of one cost vector and limits are > 0. Rows with negative coefficients are reserves.

        Examples
        --------
        >>> from freshopt.separable.rows import RowBlock
        >>> member = np.array([0, 1, 2]), np.array([0, 0, 0])
        >>> whole = RowBlock.linear("all", [None], *member, np.ones(3), np.array([2.0]))
        >>> some = np.array([0, 1]), np.array([0, 0])
        >>> host = RowBlock.linear("host", [None], *some, np.full(2, 3.0), np.array([1.5]), at_least=True)
        >>> tree = LaminarTree.from_rows(Rows.gather([whole, host], 3))
        >>> tree
        LaminarTree(3 sources, 1 limits, 1 reserves, depth 2)
        >>> tree.reserve
        array([0.5, 0. ])
        """
        source, row, coefficient, kinds = _entries(rows)
        m = len(rows)
        if not len(source) or bool(np.any(kinds != kinds[0])):
            return None
        many = np.bincount(row, minlength=m)
        rising = np.bincount(row, weights=coefficient > 0.0, minlength=m)
        falls = rising == 0.0
        if bool(np.any(many == 0)) or bool(np.any((rising < many) & ~falls)):
            return None
        if bool(np.any(falls)) and int(kinds[0]) != RATE:
            return None
        if int(kinds[0]) == RATE and bool(np.any(~falls & ~(rows.limits > 0.0))):
            return None
        # What is quickly seen comes first: rows of different costs differ at the first sources already.
        size = np.abs(coefficient)
        few = int(np.searchsorted(source, _FIRST))
        if few < len(source) and _one_cost(source[:few], row[:few], size[:few], many, _FIRST) is None:
            return None
        found = _one_cost(source, row, size, many, rows.n)
        if found is None:
            return None
        nesting = nest(source, row, m, rows.n)
        if nesting is None:
            return None
        cost, scale = found
        bound = rows.limits / scale
        limit, limit_row = _tightest(nesting, np.flatnonzero(~falls), bound[~falls], np.inf)
        reserve, reserve_row = _tightest(nesting, np.flatnonzero(falls), bound[falls], 0.0)
        return cls(
            nesting, cost, int(kinds[0]), limit, 0.0 - reserve, limit_row, reserve_row, scale, rows.labels
        )

    def paid(self, upper_price: Array, lower_price: Array) -> Array:
        """Return what each group pays, E_a = clip(E_parent, up_a, low_a), shape (G,).

        - `upper_price` (G,): The least price at which the group keeps to its limit; −inf where it always
          does.
        - `lower_price` (G,): The least price at which it uses no more than its reserve; inf where it always
          uses more.
        """
        parent, levels = self.nesting.parent, self.levels()
        price = np.zeros(len(self))
        for groups in levels:
            outside = np.where(parent[groups] < 0, 0.0, price[parent[groups]])
            price[groups] = np.clip(outside, upper_price[groups], lower_price[groups])
        return price

    def levels(self) -> list[IntArray]:
        """Return the groups of each depth, the root first."""
        depth = self.nesting.depth
        order = np.argsort(depth, kind="stable")
        return np.split(order, np.cumsum(np.bincount(depth))[:-1])

    def bounded_heights(self) -> list[IntArray]:
        """Return the groups with bounds by height, inner ones first."""
        parent, height = self.nesting.parent, np.zeros(len(self), dtype=np.int64)
        for groups in self.levels()[:0:-1]:
            np.maximum.at(height, parent[groups], height[groups] + 1)
        bounded = np.flatnonzero(np.isfinite(self.limit) | (self.reserve > 0.0))
        order = bounded[np.argsort(height[bounded], kind="stable")]
        parts = np.split(order, np.cumsum(np.bincount(height[bounded]))[:-1])
        return [part for part in parts if len(part)]

    def pushed(self) -> BoolArray:
        """Return whether a group around each one has a reserve."""
        parent, pushed = self.nesting.parent, np.zeros(len(self), dtype=np.bool_)
        if bool(np.any(self.reserve > 0.0)):
            for groups in self.levels()[1:]:
                pushed[groups] = pushed[parent[groups]] | (self.reserve[parent[groups]] > 0.0)
        return pushed

    def multipliers(self, price: Array) -> Array:
        """Return the dual variables of the rows, shape (m,).

        `price` is what each group pays.

        That of a limit is (E_a − E_parent)⁺, of a reserve (E_parent − E_a)⁺, per unit of their rows.
        """
        parent = self.nesting.parent
        step = price - np.where(parent < 0, 0.0, price[parent])
        found = np.zeros(len(self.labels))
        for row, sign in ((self.limit_row, 1.0), (self.reserve_row, -1.0)):
            has = np.flatnonzero(row >= 0)
            found[row[has]] = np.maximum(0.0, sign * step[has]) / self.scale[row[has]]
        return found


def _entries(rows: Rows) -> tuple[IntArray, IntArray, Array, npt.NDArray[np.int32]]:
    """Return source, row, coefficient and kind of nonzero entries."""
    source, row, coefficient, kind = rows.source, rows.row.astype(np.int64), rows.coefficient, rows.kind
    if bool(np.all(coefficient != 0.0)):
        return source, row, coefficient, kind
    kept = np.flatnonzero(coefficient)
    return source[kept], row[kept], coefficient[kept], kind[kept]


def _one_cost(
    source: IntArray, row: IntArray, size: Array, many: IntArray, n: int
) -> tuple[Array, Array] | None:
    """Return the cost vector and each row's multiple of it, or None.

    The cost of a source is its coefficient in the largest row that has it.
    """
    m = len(many)
    order = np.lexsort((np.arange(m), many))
    rank = np.empty(m, dtype=np.int64)
    rank[order] = np.arange(m)
    outermost = np.full(n, -1, dtype=np.int64)
    starts = np.flatnonzero(np.append(True, source[1:] != source[:-1]))
    outermost[source[starts]] = np.maximum.reduceat(rank[row], starts)
    cost = np.ones(n)
    largest = np.flatnonzero(rank[row] == outermost[source])
    cost[source[largest]] = size[largest]
    ratio = size / cost[source]
    scale = np.empty(m)
    # Any entry of a row stands for its scale: all are to agree with it.
    scale[row] = ratio
    if not bool(np.all(np.abs(ratio - scale[row]) <= _PROPORTIONAL * scale[row])):
        return None
    return cost, scale


def _tightest(nesting: Nesting, rows: IntArray, bounds: Array, none: float) -> tuple[Array, IntArray]:
    """Return the least bound of each group and its row, −1 without."""
    count = len(nesting.parent)
    least, which = np.full(count, none), np.full(count, -1)
    falling = np.argsort(-bounds, kind="stable")
    group = nesting.group[rows[falling]]
    least[group], which[group] = bounds[falling], rows[falling]
    if none == 0.0:
        which[least >= 0.0] = -1
        least = np.minimum(least, 0.0)
    return least, which
