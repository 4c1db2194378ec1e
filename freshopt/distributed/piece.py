"""`Piece`: some sources in the tree of groups, evaluated at prices.

What the groups of the heights below leave of each rate is an interval, and follows from these groups' own
prices alone: a worker computes it anew wherever it is asked about it, height by height, so that no rates are
sent. A group's own price is a bracket with a mixture of its two ends, which meets the group's limit however
demand jumps between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from freshopt.compiled import backend
from freshopt.compiled.columns import Columns
from freshopt.compiled.rows.nested_records import LOWEST_PRICE
from freshopt.distributed.partition import Partition, PartitionedProblem, group_codes, problem_of
from freshopt.distributed.partitioned_sources import Table, read
from freshopt.dual_search.nested_levels import LARGEST_RATE, best_responses
from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, BoolArray, IntArray, chunks, exact_sum, read_only
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.segments import group_sums
from freshopt.separable.kernel import Numerics
from freshopt.separable.kernel_columns import kernel_columns

# Partitions are compiled by size alone, not by what a worker happens to have loaded or done: a step that runs
# again returns the same bits.
COMPILED_FROM = 65_536


class OwnPrices(NamedTuple):
    """Brackets of own prices, mixtures of their ends, prices; shapes (P,).

    - `low`, `high`: Around the own price of each bound; −inf for limits that are never reached, inf where
      nothing above the lower bounds is left.
    - `share`: Of the rates at `low` in the mixture.
    """

    low: Array
    high: Array
    share: Array
    price: Array


@frozen_value()
class Decision:
    """Prices of all groups, which determine every rate.

    All but the first two are empty before the prices are known.

    - `groups` tuple of ndarray of int, each of (groups + 1,): Of each constraint the group of the tree that
      each of its groups is, and the root.
    - `depth` (G,)
    - `around` tuple of ndarray of int, each of (G,): As in `Bounds`, height by height, inner ones first.
    - `target` (P,): Limits and reserves.
    - `own`: Of these bounds.
    - `price` (G,): What the sources of each group pay.
    """

    groups: tuple[IntArray, ...]
    depth: IntArray
    around: tuple[IntArray, ...]
    target: Array
    own: OwnPrices
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
        columns = None if self.columns is None else self.columns.take(index, len(index))
        vectors = {key: getattr(self, key)[index] for key in ("cost", "lower", "upper", "typical", "leaf")}
        return replace(self, numerics=self.numerics.take(index), columns=columns, **vectors)

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

    def after(self, decision: Decision) -> Piece:
        """Return the sources within what priced bounds leave of their rates."""
        piece = self
        for limits, reserves in zip(decision.around[::2], decision.around[1::2], strict=True):
            upper = piece._mixed(decision, limits, -np.inf, piece.upper)
            lower = piece._mixed(decision, reserves, np.inf, piece.lower)
            if lower is not piece.lower:
                lower = np.minimum(lower, upper)
            piece = piece.bounded(lower, upper)
        return piece

    def _mixed(self, decision: Decision, around: IntArray, idle: float, rates: Array) -> Array:
        """Return rates, replaced where a bound's own price is not `idle`."""
        code = around[self.leaf] if self.groups > 1 else np.broadcast_to(around[0], (len(self),))
        low, high, shares, _ = decision.own
        chosen = np.flatnonzero(np.append(high, idle)[code] != idle)
        if not len(chosen):
            return rates
        some, code = self.take(chosen), code[chosen] if len(chosen) < len(code) else code
        target = decision.target[code]
        found = some.responses(_spread(high, code), target)
        if bool(np.any(low[code] != high[code])):
            share = shares[code]
            rich = some.responses(_spread(low, code), target)
            with np.errstate(invalid="ignore"):
                mixed = np.where(share == 0.0, found, found + share * (rich - found))
            found = np.clip(mixed, some.lower, some.upper)
        rates = np.array(rates)
        rates[chosen] = found
        return rates

    def rates(self, decision: Decision) -> Array:
        """Return the rates of settled groups.

        Whoever pays for a limit has the most that it leaves; the others take what they do at the price 0.
        """
        settled = self.after(decision)
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
    part: Partition, terms: PartitionedProblem, decision: Decision, *, names: bool = False
) -> TreePart:
    """Return a partition's sources in the tree.

    - raises SourceDataError if it has other rows than when it was scanned.
    """
    wanted = [*terms.priced(), "source"] if names and "source" in terms.columns else terms.priced()
    table = read(part.data, wanted, part.label)
    if table.num_rows != part.rows:
        raise SourceDataError(
            f"{part.label} had {part.rows} rows at first and has {table.num_rows} now. "
            "Keep the sources as they are while they are being solved for."
        )
    problem = problem_of(table, part, terms)
    codes = [group_codes(one, table, part) for one in terms.constraints]
    return TreePart(table, problem, Piece.of(problem, decision.leaf(codes), len(decision.depth)))


def _spread(values: Array, code: IntArray) -> Array:
    """Return the values of codes, as one number where these are one."""
    if code.strides == (0,) and len(code):
        return np.broadcast_to(values[code[0]], code.shape)
    spread: Array = values[code]
    return spread
