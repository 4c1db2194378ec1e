"""Work of each pass under nested limits and reserves.

Each reads the columns that it needs and returns a few numbers per group. None keeps anything: a step that
runs twice, because a worker was lost, returns the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.distributed.partition import (
    PartitionedProblem,
    naming_rows,
    plain_column,
    sources_from,
    sources_of,
)
from freshopt.distributed.partitioned_sources import FilePart, Frame, Table, carried, read
from freshopt.distributed.rows.column_rows import ColumnRows
from freshopt.distributed.rows.nested_pieces import NestedDecision, NestedPiece, group_codes, part_of_tree
from freshopt.distributed.rows.nested_search import Bounds, OwnPrices, end_trials, search_bounds
from freshopt.dual_search.trial_search import Trials
from freshopt.modelling.general_program import FAR
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import group_sums

# Marginals of a partition from which first prices are taken.
SLOPES = 500


class Cells(NamedTuple):
    """Sources of a partition that are in the same groups, added up.

    Attributes
    ----------
    keys : tuple
        The groups that the partition has, of each constraint whose groups are not known before.
    codes : ndarray of int, shape (cells, constraints)
        Position of the group, of each constraint; its number of groups for none.
    sources : ndarray of int, shape (cells,)
    lower, upper : ndarray, shape (cells,)
        Σ cost·min_rate and Σ cost·max_rate (a signalled source's max_rate is at most its change_rate).
    unbounded_row : ndarray of int, shape (cells,)
        Row of a source whose rate has no bound and of which more always helps, −1 for none.
    slopes : ndarray
        Log marginals per unit of cost of some sources at typical rates.
    """

    keys: tuple[tuple[Any, ...] | None, ...]
    codes: IntArray
    sources: IntArray
    lower: Array
    upper: Array
    unbounded_row: IntArray
    slopes: Array


class HeightBounds(NamedTuple):
    """Bounds of one height that a pass is about.

    Attributes
    ----------
    place : ndarray of int, shape (G,)
        The group of this height around each group of the tree, W for none.
    number : ndarray of int, shape (2, W + 1)
        Number of each group's limit and reserve among the bounds, −1 for none.
    target : ndarray, shape (P,)
    """

    place: IntArray
    number: IntArray
    target: Array

    def only(self, which: IntArray) -> HeightBounds:
        """Return some of the bounds, numbered anew."""
        number = np.full(len(self.target) + 1, -1, dtype=np.int64)
        number[which] = np.arange(len(which))
        return HeightBounds(self.place, number[self.number], self.target[which])


def distinct(codes: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Return representatives of distinct tuples of codes, and each one's number.

    Examples
    --------
    >>> distinct([np.array([0, 1, 0]), np.array([2, 2, 2])])
    (array([0, 1]), array([0, 1, 0]))
    """
    inverse: IntArray = np.zeros(len(codes[0]), dtype=np.int64)
    first: IntArray = np.zeros(min(1, len(inverse)), dtype=np.int64)
    for code in codes:
        size = int(np.max(code, initial=0)) + 1
        if size > 1 and bool(np.any(code != code[0])):
            _, first, inverse = np.unique(inverse * size + code, return_index=True, return_inverse=True)
    return first, inverse


def add_cells(
    part: FilePart | Frame, label: str, first: int, share: bytes | None, terms: PartitionedProblem
) -> Cells:
    """Return a partition's sources by the groups that they are in."""
    table = read(part, terms.priced(), label)
    constraints = tuple(_with_groups(one, table, label, first) for one in terms.constraints)
    keys = tuple(
        one.groups if before.keys is None else None
        for one, before in zip(constraints, terms.constraints, strict=True)
    )
    n = table.num_rows
    if n == 0:
        none, no = np.zeros(0), np.zeros(0, dtype=np.int64)
        return Cells(keys, no.reshape(0, len(constraints)), no, none, none, no, none)
    sources = sources_of(table, label, first, terms.columns, terms.time_unit)
    leaf = np.zeros(n, dtype=np.int64)
    piece = naming_rows(label, first, lambda: NestedPiece.of(sources, terms.own(share), leaf))
    codes = [group_codes(one, table, label, first) for one in constraints]
    chosen, cell = distinct(codes)
    count = len(chosen)
    with np.errstate(all="ignore"):
        lower, upper = (group_sums(piece.cost * bound, cell, count) for bound in (piece.lower, piece.upper))
        unbounded = np.isinf(piece.upper)
        if bool(np.any(unbounded)):
            unbounded &= piece.numerics.marginal(piece.typical * FAR) > 0.0
        unbounded_row = np.full(count, -1, dtype=np.int64)
        rows = np.flatnonzero(unbounded)[::-1]
        unbounded_row[cell[rows]] = first + rows
        some = np.arange(0, n, max(1, n // SLOPES))
        typical = np.clip(piece.typical, piece.lower, piece.upper)[some]
        slopes = np.log(piece.numerics.take(some).marginal(typical) / piece.cost[some])
    kept = np.stack([code[chosen] for code in codes], axis=1)
    number = np.bincount(cell, minlength=count)
    return Cells(keys, kept, number, lower, upper, unbounded_row, slopes[np.isfinite(slopes)])


def _with_groups(constraint: ColumnRows, table: Table, label: str, first: int) -> ColumnRows:
    """Return a constraint with a table's groups, if none are declared."""
    if constraint.keys is not None or constraint.by is None:
        return constraint
    column = plain_column(table, constraint.by, label, first, optional=True)
    return constraint.with_keys(column.unique().drop_null().to_pylist())


def respond_to_prices(
    part: FilePart | Frame,
    label: str,
    first: int,
    share: bytes | None,
    message: tuple[PartitionedProblem, NestedDecision, HeightBounds, Array],
) -> tuple[int, Array]:
    """Return a partition's rows, and its groups' use, shape (K, P)."""
    terms, decision, bounds, prices = message
    found = part_of_tree((part, label, first, share), terms, decision)
    if found is None:
        return 0, np.zeros(prices.shape)
    some, numbers = _members(found.piece, bounds)
    own = found.piece.take(some).after(decision.heights)
    return len(found.piece), used_at(own, numbers, bounds.target, prices)


def used_at(piece: NestedPiece, numbers: IntArray, target: Array, prices: Array) -> Array:
    """Return what groups use at prices of their own.

    Parameters
    ----------
    piece : NestedPiece
        n sources, within what settled heights leave.
    numbers : ndarray of int, shape (2, n)
        Number of the limit and of the reserve of each source's group, −1 for none.
    target : ndarray, shape (P,)
    prices : ndarray, shape (K, P)

    Returns
    -------
    ndarray, shape (K, P)
    """
    used = np.zeros(prices.shape)
    for own in numbers:
        some = np.flatnonzero(own >= 0)
        if not len(some):
            continue
        members, number = piece.take(some), own[some]
        for k, price in enumerate(prices):
            rates = members.responses(price[number], target[number])
            used[k] += members.used(rates, number, len(target))
    return used


def collect_height(
    part: FilePart | Frame,
    label: str,
    first: int,
    share: bytes | None,
    message: tuple[PartitionedProblem, NestedDecision, HeightBounds],
) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Return the sources of some groups, and the number of rows."""
    terms, decision, bounds = message
    whole = part_of_tree((part, label, first, share), terms, decision)
    if whole is None:
        return {}, 0
    some, numbers = _members(whole.piece, bounds)
    own = whole.piece.take(some).after(decision.heights)
    found: dict[str, npt.NDArray[Any]] = {"place": some, "limit": numbers[0], "reserve": numbers[1]}
    found |= {"lower": own.lower, "upper": own.upper}
    for name in carried(terms.columns):
        found[name] = np.ascontiguousarray(whole.sources[name][some])
    return found, len(whole.piece)


def end_height(
    found: list[tuple[dict[str, npt.NDArray[Any]], int]],
    message: tuple[PartitionedProblem, Bounds, Array, Trials | None, bool],
) -> OwnPrices | Trials:
    """Search own prices where the sources are gathered.

    Parameters
    ----------
    found : list
        What `collect_height` returned of each partition.
    message : tuple
        The terms; the bounds; first log prices; the trials so far, None for a search of its own; and whether
        these are of negative prices.
    """
    terms, bounds, guesses, trials, negative = message
    starts = np.cumsum([0, *(rows for _, rows in found)]).tolist()
    parts = [
        {**one, "place": one["place"] + start} for (one, _), start in zip(found, starts, strict=False) if one
    ]
    columns = {key: np.concatenate([one[key] for one in parts]) for key in parts[0]}
    sources = sources_from(columns, terms.columns, terms.time_unit)
    objective = terms.objective.take(columns["place"])
    nowhere = np.zeros(len(sources), dtype=np.int64)
    piece = NestedPiece.of(sources, objective, nowhere)
    piece = piece.bounded(columns["lower"], columns["upper"])
    numbers = np.stack([columns["limit"], columns["reserve"]])

    def evaluate(which: IntArray, prices: Array) -> Array:
        chosen = np.full(len(bounds.target) + 1, -1, dtype=np.int64)
        chosen[which] = np.arange(len(which))
        own = chosen[numbers]
        some = np.flatnonzero(np.any(own >= 0, axis=0))
        return used_at(piece.take(some), own[:, some], bounds.target[which], prices)

    if trials is not None:
        return end_trials(evaluate, bounds.target, trials, negative=negative)
    return search_bounds(evaluate, bounds, guesses)


def edge_prices(
    part: FilePart | Frame,
    label: str,
    first: int,
    share: bytes | None,
    message: tuple[PartitionedProblem, NestedDecision, BoolArray],
) -> tuple[Array, Array]:
    """Return groups' extreme marginals per unit of cost, shapes (G,)."""
    terms, decision, chosen = message
    largest, least = np.full(len(chosen), -np.inf), np.full(len(chosen), np.inf)
    found = part_of_tree((part, label, first, share), terms, decision)
    if found is not None:
        piece = found.piece
        piece = piece.take(np.flatnonzero(chosen[piece.leaf] & (piece.upper > piece.lower)))
        if len(piece):
            with np.errstate(all="ignore"):
                marginal = piece.numerics.marginal(np.array(piece.after(decision.heights).upper)) / piece.cost
            np.maximum.at(largest, piece.leaf, marginal)
            np.minimum.at(least, piece.leaf, marginal)
    return largest, least


def _members(piece: NestedPiece, bounds: HeightBounds) -> tuple[IntArray, IntArray]:
    """Return the sources under some bounds, and the numbers of these."""
    numbers = bounds.number[:, bounds.place[piece.leaf]]
    some = np.flatnonzero(np.any(numbers >= 0, axis=0))
    return some, numbers[:, some]
