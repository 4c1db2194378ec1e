"""Last pass: rates from prices, written and certified.

The search leaves a bracket of each price: at its low end the demand slightly exceeds the limit, at its high
end it falls slightly short. The rates are the convex combination of both ends that uses exactly the limit.
Where demand is smooth the bracket is so narrow that both ends agree but for the last digits; where demand
jumps, as for signalled sources under binary freshness, the combination is the optimum. The terms of the
duality gap are those of `freshopt.certificates.row_gap`, and are added up as in memory.
"""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from freshopt.certificates.best_response import limit_terms, source_terms
from freshopt.certificates.certificate import TIGHT
from freshopt.certificates.proof_pass import proof_columns, proved_value
from freshopt.certificates.row_scale import relative_to_stakes, stakes_of
from freshopt.certificates.row_table import RowTable
from freshopt.certificates.solution import Status
from freshopt.distributed.dask_passes import unpack
from freshopt.distributed.partition import Partition, PartitionedProblem
from freshopt.distributed.partitioned_sources import Table
from freshopt.distributed.piece import Decision, TreePart, part_of_tree
from freshopt.distributed.tree import PartitionedTree
from freshopt.errors import list_offenders
from freshopt.heavy import pa, pq
from freshopt.modelling.objective import value_at
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import Array, chunks, exact_sum, read_only, total
from freshopt.numerics.segments import group_sums


class Proof(NamedTuple):
    """Certificate terms of a partition.

    - `costs`: Σ of the sources' costs at the rates, at rates half-way to the lower bounds, and at doubled
      ones.
    - `value`: In the declared sense.
    - `gap`: The sources' part of the duality gap.
    """

    costs: tuple[float, float, float]
    value: float
    gap: float


class Finished(NamedTuple):
    """Result of the last pass over a partition.

    - `sums` (3, G): Σ cost·ρ of each group's own sources at the rates, at rates half-way to the lower bounds,
      and at doubled ones.
    - `never`, `at_lower`, `at_upper`: Sources at rate 0, at a min_rate > 0, and at max_rate.
    """

    sums: Array
    proof: Proof
    never: int
    at_lower: int
    at_upper: int


def finish(part: Partition, file: str, message: tuple[PartitionedProblem, Decision, str | None]) -> Finished:
    """Compute a partition's rates and certificate terms; write the rates.

    - `file`: The name of the file to write.
    - `message`: The terms; prices of all groups; the folder to write to or None.
    """
    terms, decision, folder = message
    found = part_of_tree(part, terms, decision, names=folder is not None)
    piece, rates = found.piece, found.piece.rates(decision)
    if folder is not None:
        write_part(rates_table(found, rates, part.start), Path(folder), file)
    lower, upper = piece.lower, piece.upper
    each = [rates, 0.5 * (rates + lower), np.minimum(2.0 * rates, upper)]
    proof = _proof_by_pass(found, each, decision.price) or _proof_by_responses(found, each, decision.price)
    return Finished(
        np.stack([piece.used(one) for one in each]),
        proof,
        int(np.count_nonzero(rates == 0.0)),
        int(np.count_nonzero((rates <= lower) & (lower > 0.0))),
        int(np.count_nonzero((rates >= upper) & (upper > 0.0))),
    )


def _proof_by_pass(found: TreePart, each: list[Array], prices: Array) -> Proof | None:
    """Return the certificate terms by compiled passes, or None.

    None means that there are none for the objective, for so few sources or for groups, or that they prove too
    little.
    """
    problem, piece = found.problem, found.piece
    columns = None if piece.columns is None or piece.groups > 1 else proof_columns(problem)
    if columns is None:
        return None
    price = float(prices[0])
    proof, fewer, more = (columns.prove(read_only(np.ascontiguousarray(one)), price) for one in each)
    if not proof.gap <= TIGHT * (abs(proof.cost) + price * proof.used):
        return None
    value = proved_value(problem, piece.numerics, proof)
    return Proof((proof.cost, fewer.cost, more.cost), value, proof.gap)


def _proof_by_responses(found: TreePart, each: list[Array], prices: Array) -> Proof:
    """Return the certificate terms from best responses to what groups pay."""
    problem, piece, rates = found.problem, found.piece, each[0]
    with np.errstate(all="ignore"):
        costs = [total(piece.numerics.cost(one)) for one in each]
    gaps = []
    for part in chunks(len(rates)):
        own, paid = piece.numerics.take(part), piece.cost[part] * prices[piece.leaf[part]]
        bounds = piece.lower[part], piece.upper[part]
        with np.errstate(all="ignore"):
            slope = own.marginal(rates[part])
            terms = source_terms(own, rates[part], slope, paid, np.abs(paid), *bounds, piece.typical[part])
        gaps.append(float(np.sum(terms)))
    value = value_at(problem.objective, piece.numerics, problem.sources, rates, costs[0])
    return Proof((costs[0], costs[1], costs[2]), value, exact_sum(gaps))


def rates_frame(part: Partition, message: bytes) -> Any:  # noqa: ANN401 - a pandas frame
    """Return a partition's rates, computed anew, as a pandas frame."""
    terms, decision = unpack(message)
    found = part_of_tree(part, terms, decision, names=True)
    return rates_table(found, found.piece.rates(decision), part.start).to_pandas()


def rates_table(found: TreePart, rates: Array, start: int) -> Table:
    """Return (source, rate, interval) as `Solution.to_frame`, null at rate 0."""
    table, sources, n = found.table, found.problem.sources, len(rates)
    named = "source" in table.column_names
    source = table.column("source") if named else pa.array(np.arange(start, start + n))
    with np.errstate(divide="ignore"):
        interval = pa.array(1.0 / rates, mask=rates == 0.0)
    columns = {"source": source, "rate": pa.array(rates), "interval": interval}
    if "signalled" in table.column_names:
        columns["signalled"] = pa.array(sources.signalled)
        columns["change_rate"] = pa.array(sources.change_rate)
    if sources.time_unit != "day":
        columns["time_unit"] = pa.array([sources.time_unit]).take(pa.array(np.zeros(n, dtype=np.int8)))
    return pa.table(columns)


def write_part(table: Table, folder: Path, name: str) -> None:
    """Write a file atomically; repeated runs are harmless."""
    staging = folder / f".{name}.{secrets.token_hex(4)}"
    pq.write_table(table, staging, use_dictionary=["source"], compression="snappy")
    staging.replace(folder / name)


class Judged(NamedTuple):
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


def judge(whole: PartitionedTree, found: list[Finished], of_own: Array, y: Array, tolerance: float) -> Judged:
    """Sum the certificate over all partitions.

    - `found`: One per partition.
    - `of_own` (3, G): Their `sums`, added up.
    - `y` (m,): Multipliers of the rows, ≥ 0.
    """
    rows, tree = whole.rows, whole.tree
    of_groups = np.array(of_own)
    for level in tree.levels()[:0:-1]:
        for one in of_groups:
            one += group_sums(one[level], tree.nesting.parent[level], len(tree))
    used, fewer, more = of_groups[:, tree.nesting.group] * rows.direction
    limits, labels = rows.limits, rows.labels
    with np.errstate(all="ignore"):
        over = used - limits
        size = np.maximum(np.abs(limits), np.abs(used))
        over = np.where(over > FEW_ULP * size, over / np.abs(limits), 0.0)
        infeasibility = float(np.max(np.where(np.isnan(over), np.inf, over), initial=0.0))
        costs = [exact_sum(one.proof.costs[k] for one in found) for k in range(3)]
        row_terms = limit_terms(y, np.maximum(0.0, limits - used), size)
        short = exact_sum([*row_terms, *(one.proof.gap for one in found)])
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
    value, gap = exact_sum(one.proof.value for one in found), short if proved else math.inf
    better = -1.0 if whole.terms.objective.sense == "minimise" else 1.0
    return Judged(
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
