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

from freshopt.distributed.bound_search import add_up, inherit
from freshopt.distributed.column_rows import ColumnRows, resolved
from freshopt.distributed.partition import HostSums, PartitionedProblem
from freshopt.distributed.worker_passes import Scan, distinct
from freshopt.errors import InfeasibleProblemError, SolverRefusedError, SourceDataError
from freshopt.modelling.general_program import require_least
from freshopt.modelling.problem import FEW_ULP
from freshopt.modelling.short_form import NAMES
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.segments import group_sums
from freshopt.separable.laminar import LaminarTree
from freshopt.separable.laminar_feasibility import require_feasible
from freshopt.separable.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedTree:
    """The tree of all rows, made of cells.

    - `terms`: With the constraints' groups.
    - `rows`: Of cells.
    - `groups` tuple of ndarray of int: As in `Decision`.
    - `leaf` tuple of ndarray of int: Of each partition the innermost group of each of its cells.
    - `members` (G,): Sources of each group, with those of the groups inside it.
    """

    terms: PartitionedProblem
    rows: Rows
    tree: LaminarTree
    groups: tuple[IntArray, ...]
    leaf: tuple[IntArray, ...]
    members: IntArray


def partitioned_tree(found: Sequence[Scan], terms: PartitionedProblem) -> PartitionedTree:
    """Return the tree of all rows, made of all partitions' cells.

    - raises SourceDataError if a group is unknown, levels are not nested, or nothing bounds a rate of which
      more always helps.
    - raises SolverRefusedError if groups overlap.
    - raises InfeasibleProblemError if bounds, limits and reserves exclude each other.
    """
    constraints, own_codes = _resolved(found, terms.constraints)
    chosen, cell = distinct(list(np.concatenate(own_codes).T))
    codes, count = np.concatenate(own_codes)[chosen], len(chosen)
    cells = np.split(cell, np.cumsum([len(one) for one in own_codes])[:-1])
    sums, sources, open_row = HostSums((2, count)), np.zeros(count, dtype=np.int64), np.full(count, -1)
    for one, own in zip(found, cells, strict=True):
        sums.add(np.stack([np.bincount(own, bound, count) for bound in (one.lower, one.upper)]))
        np.add.at(sources, own, one.sources)
        open_row[own] = np.where(one.unbounded_row >= 0, one.unbounded_row, open_row[own])
    lower, upper = sums.total()
    _require_nested(constraints, codes)
    rows = Rows.gather([one.block(code) for one, code in zip(constraints, codes.T, strict=True)], count)
    tree = LaminarTree.from_rows(rows)
    if tree is None:
        raise SolverRefusedError(
            "groups of limits on bandwidth overlap, and over partitions they must be nested or disjoint. "
            "Leave one constraint out, or solve in memory with fo.solve."
        )
    with np.errstate(invalid="ignore"):
        bounds = np.where(rows.coefficient > 0.0, lower[rows.source], upper[rows.source])
        each, m = rows.coefficient * bounds, len(rows)
        added = np.bincount(rows.row, weights=each, minlength=m).astype(np.float64)
    least = group_sums(each, rows.row.astype(np.int64), m) if bool(np.all(np.isfinite(each))) else added
    _require_room(constraints, rows, least, terms.time_unit)
    require_least(rows, least, terms.time_unit)
    _require_bounded(tree, open_row)
    require_feasible(tree, lower, upper)
    members = np.bincount(tree.nesting.leaf, weights=sources, minlength=len(tree)).astype(np.int64)
    add_up(tree, members, np.add)
    ends = np.cumsum([0, *(len(one) for one in constraints)])
    groups = tuple(np.append(tree.nesting.group[begin:end], len(tree) - 1) for begin, end in pairwise(ends))
    leaf = tuple(tree.nesting.leaf[own] for own in cells)
    return PartitionedTree(replace(terms, constraints=constraints), rows, tree, groups, leaf, members)


def _require_room(constraints: tuple[ColumnRows, ...], rows: Rows, least: Array, time_unit: str) -> None:
    """Raise InfeasibleProblemError if lower bounds exceed bandwidth or a limit."""
    named = {f"{NAMES[1]}[{key}]": key for one in constraints if one.of_hosts for key in one.groups}
    for j in np.flatnonzero(least > rows.limits * (1.0 + FEW_ULP)):
        label, need, available = rows.labels[j], float(least[j]), float(rows.limits[j])
        if label != NAMES[0] and label not in named:
            continue
        what = label if label == NAMES[0] else f"the limit of host {named[label]!r}"
        raise InfeasibleProblemError(
            f"lower bounds need {need:.6g} refreshes/{time_unit} but {what} is {available:.6g} (short by "
            f"{need - available:.3g}). Raise it to >= {need:.6g} or lower min_rate."
        )


def _resolved(
    found: Sequence[Scan], constraints: tuple[ColumnRows, ...]
) -> tuple[tuple[ColumnRows, ...], list[IntArray]]:
    """Return the constraints with their groups, and each partition's codes of these."""
    present: list[list[Iterable[Any]]] = []
    for part in found:
        known = zip(constraints, part.keys, part.codes.T, strict=True)
        present.append([_named(one, code) if keys is None else keys for one, keys, code in known])
    every = resolved(constraints, present)
    kept = [k for k, one in enumerate(every) if len(one)]
    complete = tuple(every[k] for k in kept)
    places = [{key: k for k, key in enumerate(one.groups)} for one in complete]
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


def _require_bounded(tree: LaminarTree, open_row: IntArray) -> None:
    """Raise SourceDataError if a rate has no bound, and more always helps."""
    limited = np.isfinite(tree.limit)
    inherit(tree, limited, np.logical_or)
    open_ = np.flatnonzero(~limited[tree.nesting.leaf] & (open_row >= 0))
    if len(open_):
        raise SourceDataError(
            f"no constraint bounds the rate of row {open_row[open_[0]]}, and more always helps. "
            "Pass bandwidth=, a Budget with a positive cost there, or max_rate."
        )
