"""Work of passes on one partition, and where sources are gathered.

Each reads the columns that it needs, and returns a few numbers, and a few for each group. None keeps
anything: a step that runs twice, because a worker was lost, returns the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.distributed.bound_search import (
    Ask,
    Bounds,
    first_trials,
    search_bounds,
    search_trials,
    sums_of,
)
from freshopt.distributed.column_rows import ColumnRows
from freshopt.distributed.partition import (
    Partition,
    PartitionedProblem,
    group_codes,
    plain_column,
    problem_of,
)
from freshopt.distributed.partitioned_sources import UNIT, Frame, Table, carried, read
from freshopt.distributed.piece import Decision, OwnPrices, Piece, part_of_tree
from freshopt.dual_search.trial_search import Trials
from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import polars
from freshopt.modelling.general_program import FAR
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.segments import group_sums

# Seed of the sample's places.
SEED = 20_240_601

Columns: TypeAlias = dict[str, npt.NDArray[Any]]
Unfinished: TypeAlias = tuple[IntArray, Trials, bool]


@dataclass(frozen=True, slots=True)
class Scan:
    """Result of the first pass: a partition's sources by their groups.

    - `units`: What a column time_unit says.
    - `sample`: Columns of some sources, their positions ("place") and cells ("code").
    - `keys`: The groups that the partition has, of each constraint whose groups are not known before.
    - `codes` (cells, constraints): Position of the group, of each constraint; its number of groups for none.
    - `sources` (cells,)
    - `lower`, `upper` (cells,): Σ cost·min_rate and Σ cost·max_rate (a signalled source's max_rate is at most
      its change_rate).
    - `unbounded_row` (cells,): Row of a source whose rate has no bound and of which more always helps, −1 for
      none.
    """

    n: int
    units: tuple[Any, ...]
    sample: Columns
    keys: tuple[tuple[Any, ...] | None, ...]
    codes: IntArray
    sources: IntArray
    lower: Array
    upper: Array
    unbounded_row: IntArray


def scan(part: Partition, index: int, size: int, terms: PartitionedProblem) -> Scan | None:
    """Validate a partition, add up bounds by cell, sample `size` sources.

    None stands for a partition without rows.

    - raises FreshoptError if a value is missing or out of range, a source occurs twice, or the objective is
      refused.
    """
    wanted = [*terms.priced(), *(name for name in ("source", UNIT) if name in terms.columns)]
    table = read(part.data, wanted, part.label)
    n = table.num_rows
    if n == 0:
        return None
    constraints = tuple(_with_groups(one, table, part) for one in terms.constraints)
    known = zip(constraints, terms.constraints, strict=True)
    keys = tuple(one.groups if before.keys is None else None for one, before in known)
    _require_names(table, part)
    units = tuple(table.column(UNIT).unique().to_pylist()) if UNIT in terms.columns else ()
    problem = problem_of(table, part, terms)
    codes = [group_codes(one, table, part) for one in constraints]
    chosen, cell = distinct(codes)
    count = len(chosen)
    piece = Piece.of(problem, cell, count)
    with np.errstate(all="ignore"):
        lower, upper = (group_sums(piece.cost * bound, cell, count) for bound in (piece.lower, piece.upper))
        unbounded = np.isinf(piece.upper)
        if bool(np.any(unbounded)):
            unbounded &= piece.numerics.marginal(piece.typical * FAR) > 0.0
    unbounded_row = np.full(count, -1, dtype=np.int64)
    rows = np.flatnonzero(unbounded)[::-1]
    unbounded_row[cell[rows]] = part.first + rows
    kept, number = np.stack([code[chosen] for code in codes], axis=1), np.bincount(cell, minlength=count)
    sample = _columns(problem.sources, _places(n, size, index), terms.columns, code=cell)
    return Scan(n, units, sample, keys, kept, number, lower, upper, unbounded_row)


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


def respond(part: Partition, message: tuple[PartitionedProblem, Decision, Array, list[Ask]]) -> list[Array]:
    """Return what a partition's groups use at prices."""
    terms, decision, common, asks = message
    return sums_of(part_of_tree(part, terms, decision).piece, common, asks)


def count(part: Frame, _message: None) -> int:
    """Return the rows of a partition of a Dask DataFrame."""
    return int(part.shape[0])


def edge_prices(
    part: Partition, message: tuple[PartitionedProblem, Decision, BoolArray]
) -> tuple[Array, Array]:
    """Return groups' extreme marginals per unit of cost, shapes (G,)."""
    terms, decision, chosen = message
    largest, least = np.full(len(chosen), -np.inf), np.full(len(chosen), np.inf)
    piece = part_of_tree(part, terms, decision).piece
    piece = piece.take(np.flatnonzero(chosen[piece.leaf] & (piece.upper > piece.lower)))
    if len(piece):
        with np.errstate(all="ignore"):
            rate = np.array(piece.after(decision).upper)
            marginal = piece.numerics.marginal(rate) / piece.cost
            # What announces its changes has a marginal of 0 crawls that is huge, at an infinite cost.
            marginal[piece.numerics.cost(rate) == np.inf] = np.inf
        np.maximum.at(largest, piece.leaf, marginal)
        np.minimum.at(least, piece.leaf, marginal)
    return largest, least


def collect(part: Partition, message: tuple[PartitionedProblem, Decision, BoolArray]) -> Columns:
    """Return the sources of some groups, with their places among all sources."""
    terms, decision, wanted = message
    whole = part_of_tree(part, terms, decision)
    some = np.flatnonzero(wanted[whole.piece.leaf])
    found = _columns(whole.problem.sources, some, terms.columns, code=whole.piece.leaf)
    return {**found, "place": found["place"] + part.start}


def end_search(
    drawn: list[Columns], message: tuple[PartitionedProblem, Bounds, Unfinished | None]
) -> OwnPrices | Trials:
    """Search own prices of gathered sources: all, or what is unfinished.

    That is some bounds, their trials so far, and whether these are of negative prices.
    """
    terms, bounds, rest = message
    piece = pooled(drawn, terms, len(bounds.tree))
    sums = partial(sums_of, piece)
    if rest is not None:
        which, trials, negative = rest
        return search_trials(sums, bounds, which, trials, negative=negative)
    return search_bounds(sums, bounds, first_trials(piece, np.ones(len(piece)), bounds))


def trials_of_sample(message: tuple[list[Columns], Array, PartitionedProblem, Bounds]) -> Array:
    """Return a worker's `first_trials` of a stratified sample of all partitions."""
    drawn, weights, terms, bounds = message
    return first_trials(pooled(drawn, terms, len(bounds.tree)), weights, bounds)


def pooled(drawn: list[Columns], terms: PartitionedProblem, groups: int) -> Piece:
    """Return some sources of all partitions as one piece.

    Their codes are groups of the tree.
    """
    columns = {key: np.concatenate([one[key] for one in drawn]) for key in drawn[0]}
    place, leaf = columns.pop("place"), columns.pop("code")
    return Piece.of(terms.problem(terms.objective.take(place), columns), leaf, groups)


def _places(n: int, size: int, index: int) -> IntArray:
    """Return one source from each of `size` equal strata."""
    size = min(size, n)
    within = np.random.default_rng([SEED, index]).random(size)
    return np.minimum(((np.arange(size) + within) * (n / size)).astype(np.int64), n - 1)


def _columns(sources: Sources, place: IntArray, present: tuple[str, ...], *, code: IntArray) -> Columns:
    """Return columns, places and codes of some sources."""
    numbers = {key: np.ascontiguousarray(sources[key][place]) for key in carried(present)}
    return {"place": place, "code": code[place], **numbers}


def _with_groups(constraint: ColumnRows, table: Table, part: Partition) -> ColumnRows:
    """Return a constraint with a table's groups, if none are declared."""
    if constraint.keys is not None or constraint.by is None:
        return constraint
    column = plain_column(table, constraint.by, part, optional=True)
    return constraint.with_keys(column.unique().drop_null().to_pylist())


def _require_names(table: Table, part: Partition) -> None:
    """Raise if source names are missing or repeated."""
    if "source" not in table.column_names:
        return
    names = polars.from_arrow(table.select(["source"]))["source"]  # type: ignore[index]
    if names.null_count():
        row = part.first + int(names.is_null().arg_max() or 0)
        raise SourceDataError(
            f"{part.label} (its first row is 0): column 'source' is empty in row {row}. Fill it."
        )
    if names.n_unique() < len(names):
        twice = names.filter(names.is_duplicated()).unique(maintain_order=True).to_list()
        raise SourceDataError(
            f"{part.label}: {list_offenders(map(repr, twice))} occurs more than once. Keep one row."
        )
