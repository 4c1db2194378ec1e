"""Duality-gap certificate under declared rows, from sums over partitions.

Terms are those of `freshopt.certificates.row_gap`, and are added up as in memory.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from freshopt.certificates.best_response import limit_terms
from freshopt.certificates.row_scale import relative_to_stakes, stakes_of
from freshopt.certificates.row_table import RowTable
from freshopt.certificates.solution import Status
from freshopt.distributed.rows.column_rows import ColumnRows
from freshopt.distributed.rows.row_pieces import PartitionedRows
from freshopt.distributed.rows.write_row_rates import FinishedRows
from freshopt.errors import list_offenders
from freshopt.modelling.problem import FEW_ULP
from freshopt.modelling.short_form import NAMES
from freshopt.numerics.arrays import Array, exact_sum
from freshopt.separable.rows import Rows


class JudgedRows(NamedTuple):
    """Certificate of all partitions' rates, as `fo.Certificate`."""

    status: Status
    value: float
    bound: float
    gap: float
    relative_gap: float
    infeasibility: float
    note: str
    rows: RowTable

    def prices_of(self, constraints: tuple[ColumnRows, ...]) -> tuple[float, dict[Any, float]]:
        """Return the bandwidth's price, and host limits' by host."""
        price, hosts, first = 0.0, dict[Any, float](), 0
        for one in constraints:
            own = self.rows.price[first : first + len(one)].tolist()
            first += len(one)
            if one.objective is None and one.name == NAMES[0] and one.by is None:
                price = own[0]
            elif one.objective is None and one.name == NAMES[1] and one.by == "host":
                hosts = dict(zip(one.groups, own, strict=True))
        return price, hosts


def judge_rows(
    terms: PartitionedRows,
    rows: Rows,
    found: list[FinishedRows],
    sums: Array,
    candidates: list[Array],
    tolerance: float,
    why: str | None,
) -> JudgedRows:
    """Sum the certificate over all partitions.

    Parameters
    ----------
    rows : Rows
        All rows without entries.
    found : list of FinishedRows
        One per partition.
    sums : ndarray, shape (3, m)
        What the rows use at the rates, at half-way and at doubled ones.
    candidates : list of ndarray, each of shape (m,)
        Multipliers y ≥ 0; those of the smaller gap are taken, the first of equal ones.
    why : str or None
        Why the search ended before its own tolerance.
    """
    used, fewer, more = sums
    limits, labels = rows.limits, rows.labels
    with np.errstate(all="ignore"):
        over = used - limits
        size = np.maximum(np.abs(limits), used)
        over = np.where(over > FEW_ULP * size, over / np.where(limits != 0.0, np.abs(limits), size), 0.0)
        over = np.where(np.isnan(over), np.inf, over)
        infeasibility = float(np.max(over, initial=0.0))
        costs = [exact_sum(one.costs[k] for one in found) for k in range(3)]
        gaps = []
        for c, y in enumerate(candidates):
            own = limit_terms(y, np.maximum(0.0, limits - used), size)
            short = exact_sum([*own, *(one.gaps[c] for one in found)])
            gaps.append((math.inf if math.isnan(short) else short, own))
        best = min(range(len(gaps)), key=lambda c: gaps[c][0])
        (short, row_terms), y = gaps[best], candidates[best] + 0.0
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
    if not good and why is not None:
        note = f"{note} The search ended: {why}."
    value, gap = exact_sum(one.value for one in found), short if proved else math.inf
    better = -1.0 if terms.objective.sense == "minimise" else 1.0
    return JudgedRows(
        Status.OPTIMAL if good else Status.INACCURATE,
        value,
        value + better * gap,
        gap,
        relative.relative if proved else math.inf,
        infeasibility,
        note,
        table,
    )
