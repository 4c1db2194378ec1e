"""Nested limits over partitions: exact prices, height by height.

Every height of the tree is a few passes, or one where its sources fit on a worker. The client holds a few
numbers per group.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from freshopt.distributed.dask_passes import run_behind
from freshopt.distributed.driver import DistributedSolve
from freshopt.distributed.partition import HostSums
from freshopt.distributed.rows.column_rows import ColumnRows, declared_order
from freshopt.distributed.rows.nested_pieces import GroupPrices, NestedDecision
from freshopt.distributed.rows.nested_search import Bounds, OwnPrices, search_bounds
from freshopt.distributed.rows.nested_steps import (
    HeightBounds,
    add_cells,
    collect_height,
    edge_prices,
    end_height,
    respond_to_prices,
)
from freshopt.distributed.rows.nested_tree import PartitionedTree, partitioned_tree
from freshopt.distributed.rows.tree_rates import FinishedRows, finish_rows, judge_rows
from freshopt.distributed.solution import DistributedSolution
from freshopt.dual_search.nested_prices import require_finite
from freshopt.dual_search.trial_search import TINY_LOG_PRICE, Trials
from freshopt.modelling.short_form import NAMES
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.separable.laminar import LaminarTree

# Sources that one worker may gather, some 20 MB.
COLLECTED = 300_000
# First trials: quantiles of marginals, or of the prices of the groups inside, and nats to go beyond each.
QUANTILES = np.array([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98])
BEYOND = np.array([-6.0, -1.5, -0.3, 0.0, 0.3, 1.5, 6.0])


@dataclass(frozen=True, slots=True, eq=False)
class TreeSearch:
    """Search for all own prices over partitions."""

    work: DistributedSolve
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
            message = (self.whole.terms, decision, height.only(which))
            further = (self.whole.terms, bounds.take(which), guesses, trials, negative)
            with self.work.passes.timed("gathering groups"):
                found: OwnPrices | Trials = run_behind(
                    collect_height, list(self.work.calls), message, end_height, further
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

            message = (self.whole.terms, decision, height.only(which), prices)
            self.work.passes.run(
                "searching prices of groups", respond_to_prices, self.work.calls, message, fold
            )
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

        message = (self.whole.terms, decision, chosen)
        self.work.passes.run("pricing groups without room", edge_prices, self.work.calls, message, fold)
        for level in levels[:0:-1]:
            np.maximum.at(largest, parent[level], largest[level])
            np.minimum.at(least, parent[level], least[level])
        upper, lower = own.copy()
        upper[full] = np.maximum(0.0, largest[full])
        require_finite(tree, full[upper[full] == np.inf])
        lower[scarce] = np.where(np.isfinite(least[scarce]), least[scarce], 0.0)
        return np.stack([upper, lower])


def solve_tree(
    work: DistributedSolve,
    constraints: tuple[ColumnRows, ...],
    staging: Path | None,
    folder: Path | None,
    tolerance: float,
    bandwidth: float | None,
) -> DistributedSolution:
    """Find the prices of all groups, write the rates and certify them."""
    terms = replace(work.terms, constraints=constraints)
    whole = partitioned_tree(work.passes.run("adding up groups", add_cells, work.calls, terms), terms)
    decision, y = TreeSearch(work, whole).solve()
    calls, sums = work.last_calls(work.calls), HostSums((3, len(whole.tree)))

    def fold(_: int, one: FinishedRows) -> FinishedRows:
        sums.add(one.sums)
        return one._replace(sums=np.empty(0))

    message = (whole.terms, decision, None if staging is None else str(staging))
    parts = work.passes.run("writing the rates", finish_rows, calls, message, fold)
    judged = judge_rows(whole, parts, sums, y, tolerance)
    prices = dict(zip(judged.rows.labels, judged.rows.price.tolist(), strict=True))
    hosts = [one for one in whole.terms.constraints if one.name == NAMES[1]]
    return work.solution(
        judged,
        parts,
        calls,
        folder,
        bandwidth=np.inf if bandwidth is None else bandwidth,
        price=0.0 if bandwidth is None else prices[NAMES[0]],
        host_prices={key: prices[f"{NAMES[1]}[{key}]"] for one in hosts for key in one.groups},
        used=judged.used,
        infeasibility=judged.infeasibility,
        terms=whole.terms,
        decision=decision,
        rows=judged.rows.take(declared_order(whole.terms.constraints)),
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
