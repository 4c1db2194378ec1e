"""The tree that nested limits over partitions are.

Rows that limit or reserve bandwidth, over groups that are nested or disjoint, form a tree, as in
`freshopt.dual_search.nested_prices`; the bandwidth is its root. One pass finds which groups meet in a source:
of such cells, however many sources they have, the tree is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from freshopt.distributed.partition import HostSums, PartitionedProblem
from freshopt.distributed.rows.column_rows import ColumnRows, resolved
from freshopt.distributed.rows.nested_steps import Cells, distinct
from freshopt.errors import SolverRefusedError, SourceDataError
from freshopt.modelling.general_program import require_least
from freshopt.numerics.arrays import Array, IntArray
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.laminar_feasibility import require_feasible
from freshopt.separable.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedTree:
    """The tree of all rows, made of cells.

    Attributes
    ----------
    terms : PartitionedProblem
        With the constraints' groups.
    rows : Rows
        Of cells.
    groups : tuple of ndarray of int
        As in `NestedDecision`.
    members : ndarray of int, shape (G,)
        Sources of each group, with those of the groups inside it.
    guesses : ndarray
        Log marginals of some sources.
    """

    terms: PartitionedProblem
    rows: Rows
    tree: LaminarTree
    groups: tuple[IntArray, ...]
    members: IntArray
    guesses: Array


def partitioned_tree(found: Sequence[Cells], terms: PartitionedProblem) -> PartitionedTree:
    """Return the tree of all rows, of what the partitions' cells add up to.

    Raises
    ------
    SourceDataError
        If a group is unknown, levels are not nested, or nothing bounds a rate of which more always helps.
    SolverRefusedError
        If groups overlap.
    InfeasibleProblemError
        If bounds, limits and reserves exclude each other.
    """
    constraints, codes = _resolved(found, terms.constraints)
    cells, (lower, upper) = _joined(found, codes)
    _require_nested(constraints, cells.codes)
    rows = Rows.gather(
        [one.block(code) for one, code in zip(constraints, cells.codes.T, strict=True)], len(cells.codes)
    )
    tree = LaminarTree.from_rows(rows)
    if tree is None:
        raise SolverRefusedError(
            "groups of limits on bandwidth overlap, and over partitions they must be nested or disjoint. "
            "Leave one constraint out, or solve in memory with fo.solve."
        )
    with np.errstate(invalid="ignore"):
        bounds = np.where(rows.coefficient > 0.0, lower[rows.source], upper[rows.source])
        least = np.bincount(rows.row, weights=rows.coefficient * bounds, minlength=len(rows))
    require_least(rows, least.astype(np.float64), terms.time_unit)
    _require_bounded(tree, cells)
    require_feasible(tree, lower, upper)
    members = np.bincount(tree.nesting.leaf, weights=cells.sources, minlength=len(tree)).astype(np.int64)
    for level in tree.levels()[:0:-1]:
        np.add.at(members, tree.nesting.parent[level], members[level])
    ends = np.cumsum([0, *(len(one) for one in constraints)])
    groups = tuple(np.append(tree.nesting.group[begin:end], len(tree) - 1) for begin, end in pairwise(ends))
    return PartitionedTree(replace(terms, constraints=constraints), rows, tree, groups, members, cells.slopes)


def _resolved(
    found: Sequence[Cells], constraints: tuple[ColumnRows, ...]
) -> tuple[tuple[ColumnRows, ...], list[IntArray]]:
    """Return the constraints with their groups, and each partition's codes of these."""
    present: list[list[Iterable[Any]]] = []
    for part in found:
        known = zip(constraints, part.keys, part.codes.T, strict=True)
        present.append([_named(one, code) if keys is None else keys for one, keys, code in known])
    complete = resolved(constraints, present)
    places = [{key: k for k, key in enumerate(one.groups)} for one in complete]
    kept = [k for k, one in enumerate(constraints) if any(_same(one, other) for other in complete)]
    codes = []
    for part in found:
        own = part.codes[:, kept]
        for j, (k, place) in enumerate(zip(kept, places, strict=True)):
            keys = part.keys[k]
            if keys is not None:
                there = np.array([place.get(key, len(place)) for key in keys] + [len(place)], dtype=np.int64)
                own[:, j] = there[own[:, j]]
        codes.append(own)
    return complete, codes


def _named(constraint: ColumnRows, codes: IntArray) -> list[Any]:
    """Return the groups of some cells."""
    groups = constraint.groups
    return [groups[code] for code in np.unique(codes).tolist() if code < len(groups)]


def _same(one: ColumnRows, other: ColumnRows) -> bool:
    """Return whether these are the rows of one level."""
    return (one.name, one.level) == (other.name, other.level)


def _joined(found: Sequence[Cells], own_codes: Sequence[IntArray]) -> tuple[Cells, tuple[Array, Array]]:
    """Return all partitions' cells, and the sums of their bounds."""
    codes = np.concatenate(own_codes)
    chosen, cell = distinct(list(codes.T))
    count = len(chosen)
    sums = HostSums((2, count))
    unbounded_row, sources = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    begin = 0
    for one in found:
        own = cell[begin : begin + len(one.codes)]
        begin += len(one.codes)
        added = np.zeros((2, count))
        np.add.at(added[0], own, one.lower)
        np.add.at(added[1], own, one.upper)
        sums.add(added)
        np.add.at(sources, own, one.sources)
        unbounded_row[own] = np.where(one.unbounded_row >= 0, one.unbounded_row, unbounded_row[own])
    lower, upper = sums.total()
    slopes = np.concatenate([one.slopes for one in found])
    return Cells((), codes[chosen], sources, lower, upper, unbounded_row, slopes), (lower, upper)


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
