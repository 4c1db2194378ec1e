"""`NestedPiece`: one partition's sources in the tree of nested groups.

What the groups of the heights below leave of each rate is an interval, and follows from these groups' own
prices alone: a worker computes it anew wherever it is asked about it, height by height, so that no rates are
sent. A group's own price is a bracket with a mixture of its two ends, which meets the group's limit however
demand jumps between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.compiled.columns import Columns
from freshopt.compiled.rows.nested_records import LOWEST_PRICE
from freshopt.distributed.partition import PartitionedProblem, codes_of, compiled_by_size, sources_of
from freshopt.distributed.partitioned_sources import FilePart, Frame, Table, read
from freshopt.distributed.rows.column_rows import ColumnRows
from freshopt.dual_search.nested_levels import LARGEST_RATE, best_responses
from freshopt.dual_search.problem_columns import numerics_columns
from freshopt.errors import ObjectiveError
from freshopt.modelling.objective import Objective
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray, read_only
from freshopt.numerics.segments import group_sums
from freshopt.separable.kernel import Numerics

# A partition, its label, its first row, and its share of an objective that holds arrays.
Call: TypeAlias = tuple[FilePart | Frame, str, int, bytes | None]


class GroupPrices(NamedTuple):
    """Own prices of the limits and reserves of one height.

    Attributes
    ----------
    place : ndarray of int, shape (G,)
        The group of this height around each group of the tree, W for none.
    low, high : ndarray, shape (2, W)
        Prices around the own price, of limits and of reserves; −inf for limits that are never reached, inf
        where nothing above the lower bounds is left, and for no reserve.
    share : ndarray, shape (2, W)
        Of the rates at `low` in the mixture.
    target : ndarray, shape (2, W)
        Limits and reserves.
    """

    place: IntArray
    low: Array
    high: Array
    share: Array
    target: Array

    @classmethod
    def unknown(cls, place: IntArray, target: Array) -> GroupPrices:
        """Return the prices of groups that leave everything as it is."""
        ends = np.stack([np.full(target.shape[1], -np.inf), np.full(target.shape[1], np.inf)])
        return cls(place, ends, ends.copy(), np.zeros(target.shape), target)


@dataclass(frozen=True, slots=True, eq=False)
class NestedDecision:
    """Prices of all groups, which determine every rate.

    Attributes
    ----------
    groups : tuple of ndarray of int, each of shape (groups + 1,)
        Of each constraint the group of the tree that each of its groups is, and the root.
    depth : ndarray of int, shape (G,)
    heights : tuple of GroupPrices
        Of the heights that are settled, inner ones first.
    price : ndarray, shape (G,)
        What the sources of each group pay; empty before all heights are settled.
    """

    groups: tuple[IntArray, ...]
    depth: IntArray
    heights: tuple[GroupPrices, ...]
    price: Array

    def leaf(self, codes: Sequence[IntArray]) -> IntArray:
        """Return the innermost group of each source, shape (n,)."""
        found = self.groups[0][codes[0]]
        for groups, code in zip(self.groups[1:], codes[1:], strict=True):
            other = groups[code]
            found = np.where(self.depth[other] > self.depth[found], other, found)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class NestedPiece:
    """Some sources with the innermost group of each.

    Attributes
    ----------
    columns : Columns or None
        Of compiled loops.
    cost, lower, upper, typical : ndarray, shape (n,)
        Refresh cost, declared bounds and typical rates.
    leaf : ndarray of int, shape (n,)
    """

    numerics: Numerics
    columns: Columns | None
    cost: Array
    lower: Array
    upper: Array
    typical: Array
    leaf: IntArray

    @classmethod
    def of(cls, sources: Sources, objective: Objective, leaf: IntArray) -> NestedPiece:
        """Return the piece of some sources.

        Raises
        ------
        ObjectiveError
            If the objective is refused, or has an atom without derivatives.
        """
        numerics, unknown = numerics_of(objective, sources)
        if numerics is None:
            raise ObjectiveError(f"{unknown} Partitions can do without a cone solver only.")
        lower, upper, cost = sources.min_rate, sources.max_rate, sources.refresh_cost
        if bool(np.any(sources.signalled)):
            upper = read_only(np.where(sources.signalled, np.minimum(upper, sources.change_rate), upper))
        large = compiled_by_size(len(sources))
        compiled = numerics_columns(numerics, cost, lower, upper) if large else None
        return cls(numerics, compiled, cost, lower, upper, sources.change_rate, leaf)

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.cost)

    def take(self, index: IntArray) -> NestedPiece:
        """Return some of the sources."""
        if len(index) == len(self):
            return self
        return NestedPiece(
            self.numerics.take(index),
            None if self.columns is None else self.columns.take(index, len(index)),
            self.cost[index],
            self.lower[index],
            self.upper[index],
            self.typical[index],
            self.leaf[index],
        )

    def bounded(self, lower: Array, upper: Array) -> NestedPiece:
        """Return the sources within other bounds."""
        columns = self.columns
        if columns is not None:
            columns = replace(columns, lower=read_only(lower), upper=read_only(upper))
        return replace(self, columns=columns, lower=lower, upper=upper)

    def responses(self, price: Array, target: Array) -> Array:
        """Return best responses to prices, one per source.

        inf stands for the lower bounds, and −inf for rates that are finite and as large as groups may need.
        Who is paid to go on takes no more than these.
        """
        if self.columns is not None and bool(np.all((price > 0.0) & (price < np.inf))):
            rates = np.empty(len(self))
            importance = read_only(np.ascontiguousarray(self.columns.importance / price))
            replace(self.columns, importance=importance).fill(1.0, rates)
            return np.minimum(rates, LARGEST_RATE)
        finite = np.isfinite(price)
        if bool(np.all(price == np.inf)):
            return self.lower
        with np.errstate(all="ignore"):
            found = best_responses(self.numerics, np.where(finite, price, 1.0) * self.cost)
        found = np.where(np.isnan(found), self.lower, np.minimum(found, LARGEST_RATE))
        within = np.where(price == np.inf, self.lower, np.clip(found, self.lower, self.upper))
        if bool(np.any(price < 0.0)):
            most = self.most(target)
            paid = np.where(finite, np.clip(found, np.minimum(self.lower, most), most), most)
            within = np.where(price < 0.0, paid, within)
        return within

    def most(self, target: Array) -> Array:
        """Return rates that are finite, and as large as groups may need."""
        with np.errstate(all="ignore"):
            free = best_responses(self.numerics, LOWEST_PRICE * self.cost)
        free = np.clip(
            np.where(np.isnan(free), self.lower, np.minimum(free, LARGEST_RATE)), self.lower, self.upper
        )
        return np.where(self.upper < LARGEST_RATE, self.upper, np.maximum(free, 2.0 * target / self.cost))

    def used(self, rates: Array, code: IntArray, groups: int) -> Array:
        """Return Σ cost·ρ of each group, shape (groups,)."""
        return group_sums(self.cost * rates, code, groups)

    def after(self, heights: Sequence[GroupPrices]) -> NestedPiece:
        """Return the sources within what settled heights leave of their rates."""
        piece = self
        for own in heights:
            piece = piece._after(own)
        return piece

    def _after(self, own: GroupPrices) -> NestedPiece:
        code = own.place[self.leaf]
        lower, upper = self.lower, self.upper
        sides = [self._mixed(own, side, code) for side in range(2)]
        if sides[0] is not None:
            upper = sides[0]
        if sides[1] is not None:
            lower = np.minimum(sides[1], upper)
        return self.bounded(lower, upper)

    def _mixed(self, own: GroupPrices, side: int, code: IntArray) -> Array | None:
        """Return the rates at own prices; None where nothing changes."""
        idle = np.inf if side else -np.inf
        low, high = np.append(own.low[side], idle), np.append(own.high[side], idle)
        chosen = np.flatnonzero(high[code] != idle)
        if not len(chosen):
            return None
        some, code = self.take(chosen), code[chosen]
        target = np.append(own.target[side], 0.0)[code]
        poor = some.responses(high[code], target)
        if bool(np.any(low[code] != high[code])):
            share = np.append(own.share[side], 0.0)[code]
            rich = some.responses(low[code], target)
            with np.errstate(invalid="ignore"):
                mixed = np.where(share == 0.0, poor, poor + share * (rich - poor))
            poor = np.clip(mixed, some.lower, some.upper)
        found = np.array(self.lower if side else self.upper)
        found[chosen] = poor
        return found

    def rates(self, decision: NestedDecision) -> Array:
        """Return the rates of settled groups.

        Whoever pays for a limit has the most that it leaves; the others take what they do at the price 0.
        """
        settled = self.after(decision.heights)
        rates = np.array(settled.upper)
        free: BoolArray = decision.price[self.leaf] <= 0.0
        some = np.flatnonzero(free)
        if len(some):
            own = settled.take(some)
            rates[some] = own.responses(np.full(len(some), LOWEST_PRICE), np.zeros(len(some)))
        return rates


class TreePart(NamedTuple):
    """Sources of a partition, with the table that they are read from."""

    table: Table
    sources: Sources
    objective: Objective
    piece: NestedPiece


def part_of_tree(
    call: Call, terms: PartitionedProblem, decision: NestedDecision, *, names: bool = False
) -> TreePart | None:
    """Return a partition's sources in the tree; None without rows."""
    part, label, first, share = call
    wanted = [*terms.priced(), "source"] if names and "source" in terms.columns else terms.priced()
    table = read(part, wanted, label)
    if table.num_rows == 0:
        return None
    sources = sources_of(table, label, first, terms.columns, terms.time_unit)
    codes = [group_codes(one, table, label, first) for one in terms.constraints]
    objective = terms.own(share)
    return TreePart(table, sources, objective, NestedPiece.of(sources, objective, decision.leaf(codes)))


def group_codes(constraint: ColumnRows, table: Table, label: str, first: int) -> IntArray:
    """Return the position of each source's group, G for none."""
    if constraint.by is None:
        return np.zeros(table.num_rows, dtype=np.int64)
    what = f"groups of {constraint.name!r}"
    return codes_of(table, label, first, constraint.groups, constraint.by, what, optional=True)
