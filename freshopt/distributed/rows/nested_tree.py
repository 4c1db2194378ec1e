"""Nested limits over partitions: exact prices, height by height.

Rows that limit or reserve bandwidth, over groups that are nested or disjoint, form a tree, as in
`freshopt.dual_search.nested_prices`; the bandwidth is its root. One pass finds which groups meet in a source:
of such cells, however many sources they have, the tree is made. Every height is then a few passes, or one
where its sources fit on a worker. The client holds a few numbers per group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from freshopt.distributed.dask_passes import run_behind
from freshopt.distributed.driver import DistributedSolve
from freshopt.distributed.partition import HostSums
from freshopt.distributed.rows.column_rows import ColumnRows
from freshopt.distributed.rows.nested_pieces import GroupPrices, NestedDecision
from freshopt.distributed.rows.nested_search import Bounds, OwnPrices, search_bounds
from freshopt.distributed.rows.nested_steps import (
    Cells,
    HeightBounds,
    add_cells,
    collect_height,
    distinct,
    edge_prices,
    end_height,
    respond_to_prices,
)
from freshopt.distributed.rows.row_pieces import PartitionedRows
from freshopt.dual_search.nested_prices import require_finite
from freshopt.dual_search.trial_search import TINY_LOG_PRICE, Trials
from freshopt.errors import SourceDataError
from freshopt.modelling.general_program import require_least
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.laminar_feasibility import require_feasible
from freshopt.separable.rows import Rows

# Sources that one worker may gather, some 20 MB.
COLLECTED = 300_000
# First trials: quantiles of marginals, or of the prices of the groups inside, and nats to go beyond each.
QUANTILES = np.array([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98])
BEYOND = np.array([-6.0, -1.5, -0.3, 0.0, 0.3, 1.5, 6.0])


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedTree:
    """The tree of all rows, made of cells.

    Attributes
    ----------
    groups : tuple of ndarray of int
        As in `NestedDecision`.
    members : ndarray of int, shape (G,)
        Sources of each group, with those of the groups inside it.
    guesses : ndarray
        Log marginals of some sources.
    """

    tree: LaminarTree
    groups: tuple[IntArray, ...]
    members: IntArray
    guesses: Array


def partitioned_tree(
    work: DistributedSolve, terms: PartitionedRows, calls: tuple[tuple[Any, ...], ...]
) -> PartitionedTree | None:
    """Return the tree of all rows, or None where there is none.

    Raises
    ------
    SourceDataError
        If declared levels are not nested, or nothing bounds a rate of which more always helps.
    InfeasibleProblemError
        If bounds, limits and reserves exclude each other.
    """
    found: list[Cells] = work.passes.run("adding up cells", add_cells, list(calls), terms)
    cells, (lower, upper) = _joined(found)
    _require_nested(terms.constraints, cells.codes)
    if not all(one.plain for one in terms.constraints):
        return None
    rows = _rows_of_cells(terms.constraints, cells.codes)
    tree = LaminarTree.from_rows(rows)
    if tree is None:
        return None
    with np.errstate(invalid="ignore"):
        bounds = np.where(rows.coefficient > 0.0, lower[rows.source], upper[rows.source])
        least = np.bincount(rows.row, weights=rows.coefficient * bounds, minlength=len(rows))
    require_least(rows, least.astype(np.float64), terms.time_unit)
    _require_bounded(tree, cells)
    require_feasible(tree, lower, upper)
    members = np.bincount(tree.nesting.leaf, weights=cells.sources, minlength=len(tree)).astype(np.int64)
    for level in tree.levels()[:0:-1]:
        np.add.at(members, tree.nesting.parent[level], members[level])
    ends = np.cumsum([0, *(len(one) for one in terms.constraints)])
    groups = tuple(np.append(tree.nesting.group[begin:end], len(tree) - 1) for begin, end in pairwise(ends))
    return PartitionedTree(tree, groups, members, cells.slopes)


@dataclass(frozen=True, slots=True, eq=False)
class TreeSearch:
    """Search for all own prices over partitions."""

    work: DistributedSolve
    terms: PartitionedRows
    calls: tuple[tuple[Any, ...], ...]
    whole: PartitionedTree

    def solve(self) -> tuple[NestedDecision, Array]:
        """Return the prices of all groups and the rows' multipliers, shape (m,).

        Raises
        ------
        InfeasibleProblemError
            If limits leave nothing for sources of an infinite cost.
        """
        tree = self.whole.tree
        pushed, own = tree.pushed(), np.stack([np.full(len(tree), -np.inf), np.full(len(tree), np.inf)])
        decision = NestedDecision(self.whole.groups, tree.nesting.depth, (), np.zeros(0))
        guesses = self.whole.guesses
        for which in tree.bounded_heights():
            found = self._height(decision, which, pushed[which], _first(guesses), own)
            decision = replace(decision, heights=(*decision.heights, found))
            settled = own[:, which]
            some = settled[np.isfinite(settled) & (settled > 0.0)]
            guesses = np.log(some) if len(some) else guesses
        own = self._with_edges(decision, own)
        price = tree.paid(own[0], own[1])
        return replace(decision, price=price), tree.multipliers(price)

    def _height(
        self, decision: NestedDecision, which: IntArray, pushed: BoolArray, guesses: Array, own: Array
    ) -> GroupPrices:
        """Return one height's own prices, and write them to `own`."""
        tree, count = self.whole.tree, len(which)
        target = np.stack([tree.limit[which], tree.reserve[which]])
        number = np.full((2, count + 1), -1, dtype=np.int64)
        has = np.isfinite(target) & (target > 0.0)
        number[:, :count][has] = np.arange(int(np.sum(has)))
        place = _around(tree, which)
        side = np.nonzero(has)[0]
        bounds = Bounds(target[has], side == 1, (side == 1) | np.broadcast_to(pushed, has.shape)[has])
        height = HeightBounds(place, number, bounds.target)
        settled = GroupPrices.unknown(place, target)
        found = self._search(decision, height, bounds, np.broadcast_to(which, has.shape)[has], guesses)
        settled.low[has], settled.high[has], settled.share[has] = found.low, found.high, found.share
        prices = own[:, which]
        prices[has] = found.price
        own[:, which] = prices
        return settled

    def _search(
        self, decision: NestedDecision, height: HeightBounds, bounds: Bounds, group: IntArray, guesses: Array
    ) -> OwnPrices:
        """Return the own prices of the bounds of these groups."""

        def few(which: IntArray) -> bool:
            return int(np.sum(self.whole.members[np.unique(group[which])])) <= COLLECTED

        def gathered(which: IntArray, trials: Trials | None, negative: bool) -> OwnPrices | Trials:
            message = (self.terms, decision, height.only(which))
            further = (self.terms, bounds.take(which), guesses, trials, negative)
            with self.work.passes.timed("gathering groups"):
                found: OwnPrices | Trials = run_behind(
                    collect_height, list(self.calls), message, end_height, further
                )
            return found

        def gather(which: IntArray, trials: Trials, negative: bool) -> Trials | None:
            if not few(which):
                return None
            found = gathered(which, trials, negative)
            assert isinstance(found, Trials)
            return found

        every = np.arange(len(group))
        if few(every):
            found = gathered(every, None, False)
            assert isinstance(found, OwnPrices)
            return found

        def evaluate(which: IntArray, prices: Array) -> Array:
            sums = HostSums(prices.shape)

            def fold(k: int, result: tuple[int, Array]) -> None:
                self.work.require_same(k, result[0])
                sums.add(result[1])

            message = (self.terms, decision, height.only(which), prices)
            self.work.passes.run("searching prices of groups", respond_to_prices, self.calls, message, fold)
            return sums.total()

        return search_bounds(evaluate, bounds, guesses, gather)

    def _with_edges(self, decision: NestedDecision, own: Array) -> Array:
        """Return own prices, also where bounds of rates decide.

        Where lower bounds use up a limit, the least price at which no source takes more; where upper bounds
        are a reserve, the highest at which none takes less.
        """
        tree = self.whole.tree
        full = np.flatnonzero((own[0] == np.inf) & np.isfinite(tree.limit))
        scarce = np.flatnonzero((own[1] == -np.inf) & (tree.reserve > 0.0))
        if not len(full) and not len(scarce):
            return own
        chosen = np.zeros(len(tree), dtype=np.bool_)
        chosen[full] = chosen[scarce] = True
        parent = tree.nesting.parent
        levels = tree.levels()
        for level in levels[1:]:
            chosen[level] |= chosen[parent[level]]
        largest, least = np.full(len(tree), -np.inf), np.full(len(tree), np.inf)

        def fold(_: int, found: tuple[Array, Array]) -> None:
            np.maximum(largest, found[0], out=largest)
            np.minimum(least, found[1], out=least)

        message = (self.terms, decision, chosen)
        self.work.passes.run("pricing groups without room", edge_prices, self.calls, message, fold)
        for level in levels[:0:-1]:
            np.maximum.at(largest, parent[level], largest[level])
            np.minimum.at(least, parent[level], least[level])
        upper, lower = own.copy()
        upper[full] = np.maximum(0.0, largest[full])
        require_finite(tree, full[upper[full] == np.inf])
        lower[scarce] = np.where(np.isfinite(least[scarce]), least[scarce], 0.0)
        return np.stack([upper, lower])


def _joined(found: list[Cells]) -> tuple[Cells, tuple[Array, Array]]:
    """Return all partitions' cells, and the sums of their bounds."""
    codes = np.concatenate([one.codes for one in found])
    chosen, cell = distinct(list(codes.T))
    count = len(chosen)
    sums = HostSums((2, count))
    unbounded_row, sources = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    begin = 0
    for one in found:
        own = cell[begin : begin + len(one.codes)]
        begin += len(one.codes)
        added = np.zeros((2, count))
        added[:, own] = one.lower, one.upper
        sums.add(added)
        sources[own] += one.sources
        unbounded_row[own] = np.where(one.unbounded_row >= 0, one.unbounded_row, unbounded_row[own])
    lower, upper = sums.total()
    slopes = np.concatenate([one.slopes for one in found])
    whole = Cells(int(np.sum(sources)), codes[chosen], sources, lower, upper, unbounded_row, slopes)
    return whole, (lower, upper)


def _rows_of_cells(constraints: tuple[ColumnRows, ...], codes: IntArray) -> Rows:
    """Return the rows, with an entry of ±1 per cell."""
    blocks = []
    for one, code in zip(constraints, codes.T, strict=True):
        members = np.flatnonzero(code < len(one))
        sign = -1.0 if one.at_least else 1.0
        blocks.append(
            replace(
                one.without_entries(),
                source=members,
                row=code[members],
                kind=np.zeros_like(members),
                coefficient=np.full(len(members), sign),
            )
        )
    return Rows.gather(blocks, len(codes))


def _require_nested(constraints: tuple[ColumnRows, ...], codes: IntArray) -> None:
    """Raise SourceDataError unless groups of each level are nested."""
    for (inner, child), (outer, parent) in permutations(zip(constraints, codes.T, strict=True), 2):
        if not inner.nested or inner.nested != outer.nested or inner.level >= outer.level:
            continue
        some = np.flatnonzero(child < len(inner))
        seen = np.full(len(inner), -1, dtype=np.int64)
        seen[child[some]] = parent[some]
        split = some[parent[some] != seen[child[some]]]
        if len(split):
            first = int(split[0])
            where = [
                "no group with a limit" if code == len(outer) else repr(outer.groups[code])
                for code in (int(parent[first]), int(seen[child[first]]))
            ]
            raise SourceDataError(
                f"Nested {inner.nested!r}: group {inner.groups[int(child[first])]!r} is in {where[0]} "
                f"and in {where[1]}. Groups must be nested; correct the labels, or declare two Budgets."
            )


def _require_bounded(tree: LaminarTree, cells: Cells) -> None:
    """Raise SourceDataError if a rate has no bound, and more always helps."""
    limited = np.isfinite(tree.limit)
    for level in tree.levels()[1:]:
        limited[level] |= limited[tree.nesting.parent[level]]
    open_ = np.flatnonzero(~limited[tree.nesting.leaf] & (cells.unbounded_row >= 0))
    if len(open_):
        raise SourceDataError(
            f"no constraint bounds the rate of row {cells.unbounded_row[open_[0]]}, and more always helps. "
            "Pass bandwidth=, a Budget with a positive cost there, or max_rate."
        )


def _around(tree: LaminarTree, which: IntArray) -> IntArray:
    """Return which of some disjoint groups is around each group."""
    place = np.full(len(tree), len(which), dtype=np.int64)
    place[which] = np.arange(len(which))
    parent = tree.nesting.parent
    for level in tree.levels()[1:]:
        inside = place[level] == len(which)
        place[level[inside]] = place[parent[level[inside]]]
    return place


def _first(logs: Array) -> Array:
    """Return first log prices around given ones."""
    found = np.quantile(logs, QUANTILES) + BEYOND if len(logs) else BEYOND
    inside: Array = np.clip(found, TINY_LOG_PRICE + 1.0, -TINY_LOG_PRICE - 1.0)
    return inside
