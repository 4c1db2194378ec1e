"""`Forest`: ratios of rates along trees, and one budget.

A row ρ_i ≤ c_i·ρ_parent(i) bounds a source's rate by another's. Where every source has at most one such row
of its own and there is no cycle, the ratios are the edges of a forest; it is recognised from rows, so that
whoever declares rows need not know of it.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.backend import fast
from freshopt.compiled.rows import ratio_loops
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.rows import RATE, Rows


@frozen_value(repr=False)
class Forest:
    """Sources as nodes of trees, and at most one budget.

    - `parent` (n,): −1 of roots.
    - `ratio` (n,): c, of ρ_i ≤ c_i·ρ_parent(i); 1 of roots.
    - `row` (n,): The row that says so, −1 of roots.
    - `scale` (n,): The row's coefficient of ρ_i.
    - `cost` (n,): ≥ 0, of the budget Σ cost·ρ ≤ limit; 0 without.
    - `limit`: inf without a budget.
    - `budget_row`: −1 without a budget.
    - `first`, `child`: The children of node k are ``child[first[k]:first[k+1]]``.
    - `order` (n,): Parents before children.
    - `height` (n,): Length of the longest path downwards.
    """

    parent: IntArray
    ratio: Array
    row: IntArray
    scale: Array
    cost: Array
    limit: float
    budget_row: int
    first: IntArray
    child: IntArray
    order: IntArray
    height: IntArray

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.parent)

    def __repr__(self) -> str:
        edges, deep = int(np.sum(self.parent >= 0)), int(np.max(self.height)) + 1
        return f"Forest({len(self)} sources, {edges} ratios, depth {deep})"

    @classmethod
    def from_rows(cls, rows: Rows) -> Forest | None:
        """Return the forest that all rows but a budget are, or None.

        Examples
        --------
        >>> from freshopt.separable.rows import RowBlock
        >>> pair = np.array([1, 0]), np.array([0, 0])
        >>> ratio = RowBlock.linear("r", (None,), *pair, np.array([1.0, -2.0]), np.zeros(1))
        >>> Forest.from_rows(Rows.gather([ratio], 2))
        Forest(2 sources, 1 ratios, depth 2)
        """
        if not bool(np.any(rows.limits == 0.0)):
            return None
        some = np.flatnonzero(rows.coefficient != 0.0)
        source, row, size = rows.source[some], rows.row[some].astype(np.int64), rows.coefficient[some]
        m = len(rows)
        rising = np.bincount(row, weights=size > 0.0, minlength=m)
        falling = np.bincount(row, weights=size < 0.0, minlength=m)
        edges = (rising == 1) & (falling == 1) & (rows.limits == 0.0)
        rest = np.flatnonzero(~edges)
        if bool(np.any(rows.kind[some] != RATE)) or not bool(np.any(edges)) or len(rest) > 1:
            return None
        if len(rest) and (falling[rest[0]] or not rising[rest[0]] or not rows.limits[rest[0]] > 0.0):
            return None
        child, above = np.empty(m, np.int64), np.empty(m, np.int64)
        gain, loss = np.ones(m), np.ones(m)
        up, down = edges[row] & (size > 0.0), edges[row] & (size < 0.0)
        child[row[up]], gain[row[up]] = source[up], size[up]
        above[row[down]], loss[row[down]] = source[down], -size[down]
        which = np.flatnonzero(edges)
        n = rows.n
        if bool(np.any(np.bincount(child[which], minlength=n) > 1)):
            return None
        parent, ratio = np.full(n, -1, dtype=np.int64), np.ones(n)
        own, scale, cost = np.full(n, -1, dtype=np.int64), np.ones(n), np.zeros(n)
        parent[child[which]], own[child[which]] = above[which], which
        ratio[child[which]], scale[child[which]] = loss[which] / gain[which], gain[which]
        budget, limit = -1, np.inf
        if len(rest):
            budget, limit = int(rest[0]), float(rows.limits[rest[0]])
            entries = row == budget
            np.add.at(cost, source[entries], size[entries])
        return cls._of(parent, ratio, own, scale, cost, limit, budget)

    @classmethod
    def _of(
        cls,
        parent: IntArray,
        ratio: Array,
        row: IntArray,
        scale: Array,
        cost: Array,
        limit: float,
        budget: int,
    ) -> Forest | None:
        """Return the forest with its order; None if there is a cycle."""
        n = len(parent)
        by_parent = np.argsort(parent, kind="stable")
        child = by_parent[int(np.sum(parent < 0)) :]
        counts = np.bincount(parent[child], minlength=n)
        first = np.concatenate(([0], np.cumsum(counts)))
        order, height = np.empty(n, np.int64), np.zeros(n, np.int64)
        if fast(ratio_loops.topological)(parent, first, child, order) < n:
            return None
        fast(ratio_loops.heights)(order, parent, height)
        return cls(parent, ratio, row, scale, cost, limit, budget, first, child, order, height)

    def preorder(self) -> IntArray:
        """Return the nodes in preorder, subtrees as slices, roots first."""
        place, nodes = np.empty(len(self), np.int64), np.empty(len(self), np.int64)
        fast(ratio_loops.preorder)(self.order, self.parent, self.first, self.child, place)
        nodes[place] = np.arange(len(self))
        return nodes

    def take(self, nodes: IntArray) -> Forest:
        """Return the forest with its nodes in another order."""
        place = np.empty(len(self), np.int64)
        place[nodes] = np.arange(len(self))
        above = self.parent[nodes]
        found = Forest._of(
            np.where(above >= 0, place[above], -1),
            self.ratio[nodes],
            self.row[nodes],
            self.scale[nodes],
            self.cost[nodes],
            self.limit,
            self.budget_row,
        )
        assert found is not None
        return found

    def bounds(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Return bounds of rates, tightened along the trees."""
        least, most = np.array(lower), np.array(upper)
        fast(ratio_loops.tighten)(self.order, self.parent, self.ratio, least, most)
        return least, most

    def capped(self, rates: Array, lower: Array) -> Array:
        """Return rates cut to what their parents allow."""
        found = np.array(rates)
        fast(ratio_loops.cap)(self.order, self.parent, self.ratio, lower, found)
        return found
