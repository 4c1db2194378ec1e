"""Work of each pass under declared rows.

Each reads the columns that it needs and returns a few numbers per row. None keeps anything: a step that runs
twice, because a worker was lost, returns the same bits. Rates are best responses to multipliers, which a
worker computes anew wherever it is asked about them, so that none are sent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.distributed.partition import HostSums, naming_rows, plain_column
from freshopt.distributed.partitioned_sources import FilePart, Frame, Table, read
from freshopt.distributed.rows.column_rows import ColumnRows
from freshopt.distributed.rows.row_pieces import (
    PartitionedRows,
    RowColumns,
    columns_of_part,
    own_objectives,
    piece_of_part,
)
from freshopt.errors import SourceDataError
from freshopt.interior_point.infeasibility import lower_bound, responses_to_rows
from freshopt.interior_point.row_passes import Gram
from freshopt.interior_point.row_presolve import free_entries, least_multiplier, range_of, turning_entries
from freshopt.interior_point.row_scaling import typical_sizes
from freshopt.interior_point.row_start import signs
from freshopt.modelling.constraints.groups import require_known, require_weighed
from freshopt.modelling.general_program import least_values, require_bounded
from freshopt.modelling.objective import Objective
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, IntArray, as_float64, total

# Seed of the sample's places.
SEED = 20_240_601

Shares = tuple[bytes | None, ...]


class GroupSums(NamedTuple):
    """What one partition's sources add up to, group by group.

    Attributes
    ----------
    keys : tuple
        The groups that the partition has, of those that are limited.
    sources, weight, best, needed : ndarray, shape (groups,)
        Sources, Σw, value without any loss of a maximised objective, and Σ cost·min_rate of a budget.
    """

    keys: tuple[Any, ...]
    sources: Array
    weight: Array
    best: Array
    needed: Array


def add_groups(
    part: FilePart | Frame, label: str, first: int, shares: Shares, terms: PartitionedRows
) -> tuple[GroupSums, ...]:
    """Return the sums of each constraint's groups in a partition."""
    table = read(part, terms.wanted(), label)
    if table.num_rows == 0:
        none = np.zeros(0)
        return tuple(GroupSums((), none, none, none, none) for _ in terms.constraints)
    found = replace(
        terms, constraints=tuple(_with_groups(one, table, label, first) for one in terms.constraints)
    )
    columns = RowColumns.of(table, label, first, found)
    own = own_objectives(shares, terms)[1:]
    return tuple(
        _group_sums(one, columns.sources, codes, cost, objective)
        for one, codes, cost, objective in zip(
            found.constraints, columns.codes, columns.costs, own, strict=True
        )
    )


def _with_groups(constraint: ColumnRows, table: Table, label: str, first: int) -> ColumnRows:
    """Return a constraint with a table's groups, if none are declared."""
    if constraint.keys is not None or constraint.by is None:
        return constraint
    column = plain_column(table, constraint.by, label, first, optional=True)
    keys = column.unique().drop_null().to_pylist()
    if constraint.nested and isinstance(constraint.declared, dict):
        keys = [key for key in keys if key in constraint.declared]
    return replace(constraint, keys=tuple(keys))


def _group_sums(
    constraint: ColumnRows, sources: Sources, codes: IntArray, cost: Array | None, objective: Objective | None
) -> GroupSums:
    keys = constraint.groups
    size = len(keys)

    def added(values: Array | None) -> Array:
        return np.bincount(codes, weights=values, minlength=size + 1)[:size].astype(np.float64)

    count = added(None)
    none = np.zeros(size)
    if objective is None:
        own = sources.refresh_cost if cost is None else cost
        found = GroupSums(keys, count, none, none, added(own * sources.min_rate))
    else:
        best = none.copy()
        if objective.sense == "maximise":
            order = np.argsort(codes, kind="stable")
            bounds = np.searchsorted(codes[order], np.arange(size + 1))
            for k in np.flatnonzero(count):
                chosen = order[bounds[k] : bounds[k + 1]]
                best[k] = objective.take(chosen).value_from_cost(0.0, sources.take(chosen))
        found = GroupSums(keys, count, added(as_float64(sources.column("importance"))), best, none)
    present = np.flatnonzero(count)
    return GroupSums(tuple(keys[k] for k in present), *(array[present] for array in found[1:]))


def with_groups(
    constraints: tuple[ColumnRows, ...], found: list[tuple[GroupSums, ...]]
) -> tuple[tuple[ColumnRows, ...], Array, int]:
    """Return the constraints with their groups, needs, and number of entries.

    Levels of nested limits of which no group is limited are left out.

    Raises
    ------
    SourceDataError
        If a group is unknown or in two levels, or a mean is over sources of no importance.
    """
    resolved, needed, members = list[ColumnRows](), [np.zeros(0)], 0
    for k, one in enumerate(constraints):
        complete, at_least, count = _complete(one, [sums[k] for sums in found])
        resolved.append(complete)
        needed.append(at_least)
        members += count
    for name in dict.fromkeys(one.name for one in resolved if one.nested):
        _require_levels([one for one in resolved if one.name == name])
    return tuple(one for one in resolved if len(one)), np.concatenate(needed), members


def _complete(constraint: ColumnRows, sums: list[GroupSums]) -> tuple[ColumnRows, Array, int]:
    """Return a constraint with its groups, their needs and their sources."""
    what = f"{'Budget' if constraint.objective is None else 'Target'} {constraint.name!r}"
    keys = constraint.keys
    if keys is None:
        known = {key for one in sums for key in one.keys}
        if constraint.nested and isinstance(constraint.declared, dict):
            keys = tuple(key for key in constraint.declared if key in known)
        else:
            keys = tuple(sorted(known))
        if not keys and not constraint.nested:
            raise SourceDataError(f"{what} is by {constraint.by!r}, a column without values. Fill it.")
    place = {key: k for k, key in enumerate(keys)}
    totals = HostSums((4, len(keys)))
    for one in sums:
        own = np.zeros((4, len(keys)))
        own[:, [place[key] for key in one.keys]] = np.stack(one[1:])
        totals.add(own)
    count, weight, best, needed = totals.total()
    require_known(what, [keys[k] for k in np.flatnonzero(count == 0.0)])
    if constraint.objective is not None:
        require_weighed(what, [keys[k] for k in np.flatnonzero(weight == 0.0)])
        best = best / weight
    return replace(constraint, keys=keys, weight=weight, best=best), needed, int(np.sum(count))


def _require_levels(levels: list[ColumnRows]) -> None:
    """Raise SourceDataError unless each declared group is in one level."""
    what, declared = f"Nested {levels[0].nested!r}", levels[0].declared
    assert isinstance(declared, dict)
    times = Counter(key for one in levels for key in one.groups)
    require_known(what, [key for key in declared if key not in times])
    twice = [key for key in declared if times[key] > 1]
    if twice:
        raise SourceDataError(
            f"{what} has the group {twice[0]!r} in two levels. Give the groups of one of them other names."
        )


class RowSums(NamedTuple):
    """What one partition's sources add up to, row by row.

    Attributes
    ----------
    sums : ndarray, shape (9, rows)
        Range of each row (least, most, and of its terms' sizes), entries with room and entries that turn,
        sizes at typical rates, negative coefficients, signs, and the least value over the bounds.
    value : float
        The objective at typical rates.
    """

    n: int
    sums: Array
    value: float


def add_rows(
    part: FilePart | Frame,
    label: str,
    first: int,
    shares: Shares,
    index: int,
    message: tuple[PartitionedRows, float],
) -> tuple[RowSums, dict[str, npt.NDArray[Any]] | None]:
    """Return a partition's sums of rows, and a share of its sources."""
    terms, share = message
    _, columns = columns_of_part(part, label, first, terms)
    if columns is None:
        return RowSums(0, np.zeros((9, int(np.count_nonzero(terms.kept)))), 0.0), None
    piece = piece_of_part(label, first, shares, columns, terms)
    naming_rows(label, first, lambda: require_bounded(piece.program, piece.sources))
    program = piece.inner(terms)
    added, lost = typical_sizes(program)
    typical = np.clip(program.typical, program.lower, program.upper)
    with np.errstate(all="ignore"):
        sums = np.stack(
            [
                *range_of(program),
                free_entries(program),
                turning_entries(program),
                added,
                lost,
                signs(program),
                least_values(program),
            ]
        )
        value = total(program.cost(typical))
    n = len(piece.sources)
    return RowSums(n, sums, value), columns.drawn(_places(n, share, index), terms.columns)


def _places(n: int, share: float, index: int) -> IntArray:
    """Return one source from each of n·share equal strata, rounded at random."""
    if share >= 1.0:
        return np.arange(n)
    stream = np.random.default_rng([SEED, index])
    size = min(n, int(n * share + stream.random()))
    places = ((np.arange(size) + stream.random(size)) * (n / max(1, size))).astype(np.int64)
    return np.minimum(places, n - 1)


class Responses(NamedTuple):
    """Sums of the best responses of a partition's sources.

    Attributes
    ----------
    used : ndarray, shape (kept rows,)
    """

    n: int
    used: Array
    cost: float
    gram: Gram | None


def respond(
    part: FilePart | Frame,
    label: str,
    first: int,
    shares: Shares,
    message: tuple[PartitionedRows, Array, bool],
) -> Responses:
    """Return what best responses to the kept rows' multipliers add up to."""
    terms, multipliers, gram = message
    _, columns = columns_of_part(part, label, first, terms)
    if columns is None:
        return Responses(0, np.zeros(len(multipliers)), 0.0, None)
    program = piece_of_part(label, first, shares, columns, terms).inner(terms)
    found = terms.passes(program).evaluate(multipliers, gram=gram)
    with np.errstate(all="ignore"):
        used, cost = program.rows.used(found.rates), total(program.cost(found.rates))
    return Responses(len(program), used, cost, found.gram)


def price_tight(
    part: FilePart | Frame,
    label: str,
    first: int,
    shares: Shares,
    message: tuple[PartitionedRows, Array, IntArray],
) -> Array:
    """Return the least multipliers at which tight rows fix a partition's sources.

    Parameters
    ----------
    part, label, first, shares
        The partition, and its own shares of objectives if these hold arrays.
    message : tuple
        The terms; multipliers of the other rows, shape (m,); the tight rows of one constraint.
    """
    terms, multipliers, tight = message
    _, columns = columns_of_part(part, label, first, terms)
    if columns is None:
        return np.zeros(len(tight))
    piece = piece_of_part(label, first, shares, columns, terms)
    fixed = piece.inner(terms).lower
    return np.array([least_multiplier(piece.program, multipliers, int(j), fixed) for j in tight])


def disprove(
    part: FilePart | Frame, label: str, first: int, shares: Shares, message: tuple[PartitionedRows, Array]
) -> Array:
    """Return a partition's part of a Farkas proof, per candidate y.

    It is a lower bound of Σ_k min Σ_j y_j g_jk. Less Σ_j y_j b_j, the sum over partitions is D(y), which
    proves a conflict if it is positive (`freshopt.interior_point.infeasibility`). No bound that rows imply
    plays a part.
    """
    terms, candidates = message
    _, columns = columns_of_part(part, label, first, terms)
    if columns is None:
        return np.zeros(len(candidates))
    piece = piece_of_part(label, first, shares, columns, terms)
    rows = piece.program.rows
    bare = replace(
        piece.program, numerics=None, upper=piece.upper, rows=replace(rows, limits=np.zeros(len(rows)))
    )
    with np.errstate(all="ignore"):
        return np.array([lower_bound(bare, y, responses_to_rows(bare, y)) for y in candidates])
