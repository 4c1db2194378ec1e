"""Last pass under nested limits: rates from prices, written and certified.

The terms of the duality gap are those of `freshopt.certificates.row_gap`, and are added up as in memory.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from freshopt.certificates.best_response import limit_terms, source_terms
from freshopt.certificates.row_scale import relative_to_stakes, stakes_of
from freshopt.certificates.row_table import RowTable
from freshopt.certificates.solution import Status
from freshopt.distributed.dask_passes import unpack
from freshopt.distributed.partition import HostSums, PartitionedProblem
from freshopt.distributed.partitioned_sources import FilePart, Frame
from freshopt.distributed.rows.nested_pieces import NestedDecision, NestedPiece, part_of_tree
from freshopt.distributed.rows.nested_tree import PartitionedTree
from freshopt.distributed.write_rates import rates_table, write_part
from freshopt.errors import list_offenders
from freshopt.modelling.objective import value_at
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import Array, chunks, exact_sum, total


class FinishedRows(NamedTuple):
    """Result of the last pass over a partition.

    Attributes
    ----------
    sums : ndarray, shape (3, G)
        Σ cost·ρ of each group's own sources at the rates, at rates half-way to the lower bounds, and at
        doubled ones.
    costs : tuple of float
        Σ of the sources' costs at the same.
    value : float
        In the declared sense.
    gap : float
        The sources' part of the duality gap.
    never, at_lower, at_upper : int
        Sources at rate 0, at a min_rate > 0, and at max_rate.
    """

    n: int
    sums: Array
    costs: tuple[float, float, float]
    value: float
    gap: float
    never: int
    at_lower: int
    at_upper: int


def finish_rows(
    part: FilePart | Frame,
    label: str,
    first: int,
    share: bytes | None,
    place: int,
    file: str,
    message: tuple[PartitionedProblem, NestedDecision, str | None],
) -> FinishedRows:
    """Compute a partition's rates and certificate terms; write the rates.

    Parameters
    ----------
    part, label, first, share
        The partition, and its own share of the objective if that holds arrays.
    place : int
        Of its first source among all, for sources without names.
    file : str
        The name of the file to write.
    message : tuple
        The terms; prices of all groups; the folder to write to or None.
    """
    terms, decision, folder = message
    found = part_of_tree((part, label, first, share), terms, decision, names=folder is not None)
    if found is None:
        none = np.zeros((3, len(decision.price)))
        return FinishedRows(0, none, (0.0, 0.0, 0.0), 0.0, 0.0, 0, 0, 0)
    piece, rates = found.piece, found.piece.rates(decision)
    if folder is not None:
        write_part(rates_table(found.table, found.sources, rates, place, terms.time_unit), Path(folder), file)
    lower, upper = piece.lower, piece.upper
    each = [rates, 0.5 * (rates + lower), np.minimum(2.0 * rates, upper)]
    with np.errstate(all="ignore"):
        costs = [total(piece.numerics.cost(one)) for one in each]
    return FinishedRows(
        len(rates),
        np.stack([piece.used(one, piece.leaf, len(decision.price)) for one in each]),
        (costs[0], costs[1], costs[2]),
        value_at(found.objective, piece.numerics, found.sources, rates, costs[0]),
        _gap(piece, rates, decision.price),
        int(np.count_nonzero(rates == 0.0)),
        int(np.count_nonzero((rates <= lower) & (lower > 0.0))),
        int(np.count_nonzero((rates >= upper) & (upper > 0.0))),
    )


def _gap(piece: NestedPiece, rates: Array, price: Array) -> float:
    """Return the sources' part of the duality gap, at what their groups pay."""
    found = []
    for part in chunks(len(rates)):
        own, paid = piece.numerics.take(part), piece.cost[part] * price[piece.leaf[part]]
        bounds = piece.lower[part], piece.upper[part]
        with np.errstate(all="ignore"):
            slope = own.marginal(rates[part])
            terms = source_terms(own, rates[part], slope, paid, np.abs(paid), *bounds, piece.typical[part])
        found.append(float(np.sum(terms)))
    return exact_sum(found)


def tree_rates_frame(
    part: FilePart | Frame, label: str, first: int, share: bytes | None, place: int, message: bytes
) -> Any:  # noqa: ANN401 - a pandas frame
    """Return a partition's rates, computed anew, as a pandas frame."""
    terms, decision = unpack(message)
    found = part_of_tree((part, label, first, share), terms, decision, names=True)
    assert found is not None
    rates = found.piece.rates(decision)
    return rates_table(found.table, found.sources, rates, place, terms.time_unit).to_pandas()


class JudgedRows(NamedTuple):
    """Certificate of all partitions' rates, as `fo.Certificate`."""

    status: Status
    value: float
    bound: float
    gap: float
    relative_gap: float
    infeasibility: float
    used: float
    note: str
    rows: RowTable


def judge_rows(
    whole: PartitionedTree, found: list[FinishedRows], sums: HostSums, y: Array, tolerance: float
) -> JudgedRows:
    """Sum the certificate over all partitions.

    Parameters
    ----------
    found : list of FinishedRows
        One per partition.
    sums : HostSums
        Of their `sums`.
    y : ndarray, shape (m,)
        Multipliers of the rows, ≥ 0.
    """
    rows, tree = whole.rows, whole.tree
    of_groups = sums.total()
    for level in tree.levels()[:0:-1]:
        for one in of_groups:
            np.add.at(one, tree.nesting.parent[level], one[level])
    used, fewer, more = of_groups[:, tree.nesting.group] * rows.direction
    limits, labels = rows.limits, rows.labels
    with np.errstate(all="ignore"):
        over = used - limits
        size = np.maximum(np.abs(limits), np.abs(used))
        over = np.where(over > FEW_ULP * size, over / np.abs(limits), 0.0)
        infeasibility = float(np.max(np.where(np.isnan(over), np.inf, over), initial=0.0))
        costs = [exact_sum(one.costs[k] for one in found) for k in range(3)]
        row_terms = limit_terms(y, np.maximum(0.0, limits - used), size)
        short = exact_sum([*row_terms, *(one.gap for one in found)])
        short = math.inf if math.isnan(short) else short
        relative = relative_to_stakes(
            labels,
            costs[0],
            limits,
            y,
            short,
            lambda: sum(stakes_of(costs[0], limits, y, (costs[1], fewer), (costs[2], more))),
        )
    proved = math.isfinite(short) and math.isfinite(costs[0])
    share = row_terms / short if proved and short > 0.0 else np.zeros(len(limits))
    table = RowTable(labels, rows.declared(used), rows.declared(limits), limits - used, y, share)
    good = proved and relative.beyond_rounding <= tolerance and infeasibility <= tolerance
    note = relative.reason
    if infeasibility > tolerance:
        exceeded = [f"{labels[j]} by {over[j]:.2g} of it" for j in np.argsort(-over) if over[j] > tolerance]
        note = f"Limits are exceeded: {list_offenders(exceeded)}."
    elif not good:
        shortfall = f"The certified relative gap {relative.relative:.2g} exceeds the tolerance {tolerance:g}."
        note = " ".join(part for part in (shortfall, relative.reason) if part)
    value, gap = exact_sum(one.value for one in found), short if proved else math.inf
    better = -1.0 if whole.terms.objective.sense == "minimise" else 1.0
    return JudgedRows(
        Status.OPTIMAL if good else Status.INACCURATE,
        value,
        value + better * gap,
        gap,
        relative.relative if proved else math.inf,
        infeasibility,
        float(of_groups[0, -1]),
        note,
        table,
    )
