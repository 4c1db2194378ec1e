"""`Piece`: some sources in the tree of groups, evaluated at prices.

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

from freshopt.compiled import backend
from freshopt.compiled.columns import Columns
from freshopt.compiled.rows.nested_records import LOWEST_PRICE
from freshopt.distributed.column_rows import ColumnRows
from freshopt.distributed.partition import PartitionedProblem, codes_of, naming_rows, sources_of
from freshopt.distributed.partitioned_sources import FilePart, Frame, Table, read
from freshopt.dual_search.nested_levels import LARGEST_RATE, best_responses
from freshopt.errors import ObjectiveError
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, BoolArray, IntArray, chunks, exact_sum, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.segments import group_sums
from freshopt.separable.kernel import Numerics
from freshopt.separable.kernel_columns import kernel_columns

# A partition, its label, its first row, and its share of an objective that holds arrays.
Call: TypeAlias = tuple[FilePart | Frame, str, int, bytes | None]
# Partitions are compiled by size alone, not by what a worker happens to have loaded or done: a step that runs
# again returns the same bits.
COMPILED_FROM = 65_536


@frozen_value()
class GroupPrices:
    """Own prices of the limits and reserves of one height.

    - `place` (G,): The group of this height around each group of the tree, W for none.
    - `low`, `high` (2, W): Prices around the own price, of limits and of reserves; −inf for limits that are
      never reached, inf where nothing above the lower bounds is left, and for no reserve.
    - `share` (2, W): Of the rates at `low` in the mixture.
    - `target` (2, W): Limits and reserves.
    """

    place: IntArray
    low: Array
    high: Array
    share: Array
    target: Array


@frozen_value()
class Decision:
    """Prices of all groups, which determine every rate.

    - `groups` tuple of ndarray of int, each of (groups + 1,): Of each constraint the group of the tree that
      each of its groups is, and the root.
    - `depth` (G,)
    - `heights`: Of the heights that are settled, inner ones first.
    - `price` (G,): What the sources of each group pay; empty before all heights are settled.
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
class Piece:
    """Some sources with the innermost group of each.

    - `columns`: Of compiled loops.
    - `cost`, `lower`, `upper`, `typical` (n,): Refresh cost, declared bounds and typical rates.
    - `leaf` (n,)
    - `groups`: G, of the tree.
    """

    numerics: Numerics
    columns: Columns | None
    cost: Array
    lower: Array
    upper: Array
    typical: Array
    leaf: IntArray
    groups: int

    @classmethod
    def of(cls, problem: Problem, leaf: IntArray, groups: int) -> Piece:
        """Return the piece of a problem's sources.

        - raises ObjectiveError if the objective has an atom without derivatives.
        """
        numerics, sources = problem.numerics, problem.sources
        if numerics is None:
            raise ObjectiveError(f"{problem.unknown_atom} Partitions can do without a cone solver only.")
        lower, upper, cost = problem.lower, problem.upper, sources.refresh_cost
        large = len(sources) >= COMPILED_FROM and backend.compiled()
        columns = kernel_columns(Columns, numerics, cost, lower, upper) if large else None
        return cls(numerics, columns, cost, lower, upper, sources.scale, leaf, groups)

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.cost)

    def take(self, index: IntArray) -> Piece:
        """Return some of the sources."""
        if len(index) == len(self):
            return self
        return Piece(
            self.numerics.take(index),
            None if self.columns is None else self.columns.take(index, len(index)),
            self.cost[index],
            self.lower[index],
            self.upper[index],
            self.typical[index],
            self.leaf[index],
            self.groups,
        )

    def bounded(self, lower: Array, upper: Array) -> Piece:
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
        if price.strides == (0,) and len(self):  # one price for all
            if price[0] == np.inf:
                return self.lower
            if self.columns is not None and price[0] > 0.0:
                rates = np.empty(len(self))
                self.columns.fill(float(price[0]), rates)
                return np.minimum(rates, LARGEST_RATE)
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

    def used(self, rates: Array) -> Array:
        """Return Σ cost·ρ of each group's own sources, shape (G,)."""
        if self.groups == 1:
            parts = (float(np.dot(self.cost[part], rates[part])) for part in chunks(len(rates)))
            return np.array([exact_sum(parts)])
        return group_sums(self.cost * rates, self.leaf, self.groups)

    def used_at(self, price: float) -> Array:
        """Return the same at one price > 0 for all."""
        if self.groups == 1 and self.columns is not None and price < np.inf:
            return np.array([self.columns.demand(price)])
        each = np.broadcast_to(price, (len(self),))
        return self.used(self.responses(each, each))

    def after(self, heights: Sequence[GroupPrices]) -> Piece:
        """Return the sources within what settled heights leave of their rates."""
        piece = self
        for own in heights:
            piece = piece._after(own)
        return piece

    def _after(self, own: GroupPrices) -> Piece:
        code = own.place[self.leaf] if self.groups > 1 else np.broadcast_to(own.place[0], (len(self),))
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
        some, code = self.take(chosen), code[chosen] if len(chosen) < len(code) else code
        target = np.append(own.target[side], 0.0)[code]
        poor = some.responses(_spread(high, code), target)
        if bool(np.any(low[code] != high[code])):
            share = np.append(own.share[side], 0.0)[code]
            rich = some.responses(_spread(low, code), target)
            with np.errstate(invalid="ignore"):
                mixed = np.where(share == 0.0, poor, poor + share * (rich - poor))
            poor = np.clip(mixed, some.lower, some.upper)
        found = np.array(self.lower if side else self.upper)
        found[chosen] = poor
        return found

    def rates(self, decision: Decision) -> Array:
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
    problem: Problem
    piece: Piece


def part_of_tree(
    call: Call, terms: PartitionedProblem, decision: Decision, *, names: bool = False
) -> TreePart | None:
    """Return a partition's sources in the tree; None without rows."""
    part, label, first, share = call
    wanted = [*terms.priced(), "source"] if names and "source" in terms.columns else terms.priced()
    table = read(part, wanted, label)
    if table.num_rows == 0:
        return None
    problem = problem_of(table, label, first, terms.own(share), terms)
    codes = [group_codes(one, table, label, first) for one in terms.constraints]
    return TreePart(table, problem, Piece.of(problem, decision.leaf(codes), len(decision.depth)))


def problem_of(
    table: Table, label: str, first: int, objective: Objective, terms: PartitionedProblem
) -> Problem:
    """Return the problem of a table's sources, without limits.

    Errors name the file and the row.

    - raises FreshoptError if a value is missing or out of range, or the objective is refused.
    """
    sources = sources_of(table, label, first, terms.columns, terms.time_unit)
    return naming_rows(label, first, lambda: unlimited(objective, sources))


def unlimited(objective: Objective, sources: Sources) -> Problem:
    """Return a problem of which rows say what limits there are."""
    return Problem(objective, sources, LARGEST)


def group_codes(constraint: ColumnRows, table: Table, label: str, first: int) -> IntArray:
    """Return the position of each source's group, G for none."""
    if constraint.by is None:
        return np.zeros(table.num_rows, dtype=np.int64)
    what = "hosts" if constraint.of_hosts else f"groups of {constraint.name!r}"
    optional = not constraint.of_hosts
    return codes_of(table, label, first, constraint.groups, constraint.by, what, optional=optional)


def _spread(values: Array, code: IntArray) -> Array:
    """Return the values of codes, as one number where these are one."""
    if code.strides == (0,) and len(code):
        return np.broadcast_to(values[code[0]], code.shape)
    spread: Array = values[code]
    return spread
