"""Last pass: rates from prices, written, with certificate terms.

The dual search leaves a bracket of each price: at its low end the demand slightly exceeds the bandwidth, at
its high end it falls slightly short. The rates are the convex combination of both ends that uses exactly the
bandwidth. Where demand is smooth the bracket is so narrow that both ends agree but for the last digits; where
demand jumps, as for signalled sources under binary freshness, the combination is the optimum. A host at its
limit has a bracket of its own.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from freshopt.certificates.certificate import TIGHT
from freshopt.certificates.duality_gap import Gap
from freshopt.certificates.proof_pass import proof_columns, proved_value
from freshopt.certificates.vanishing_cost import cost_without_refreshes
from freshopt.distributed.dask_passes import unpack
from freshopt.distributed.partition import Partition, PartitionedProblem, piece_of
from freshopt.distributed.partitioned_sources import FilePart, Frame, Table, read
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, read_only
from freshopt.numerics.frozen_arrays import frozen_value

# A cost above this share of what halving the rates would add is no vanishing one.
NEARLY = 1e-6


@frozen_value()
class Decision:
    """Dual prices that determine every rate.

    Attributes
    ----------
    low, high : float
        The bracket of the bandwidth's price; inf where min_rate uses up the bandwidth.
    share : float
        Of the rates at `low` in the mixture.
    price : float
        λ, the dual variable of the bandwidth, for the certificate.
    host_low, host_high, host_share : ndarray, shape (H,)
        The same of each limited host.
    host_price : ndarray, shape (H,)
        λ_h, 0 where the limit does not bind; inf where min_rate uses it up.
    multipliers : ndarray, shape (H,)
        μ_h of each limited host, on top of `price`, for the certificate.
    """

    low: float
    high: float
    share: float
    price: float
    host_low: Array
    host_high: Array
    host_share: Array
    host_price: Array
    multipliers: Array

    def rates(self, piece: Partition) -> Array:
        """Return a partition's rates."""
        frugal = piece.rates(self.high)
        generous = frugal if self.low == self.high else piece.rates(self.low)
        if piece.codes is not None and bool(np.any(self.host_price > self.low)):
            scarce = piece.rates(piece.broadcast_to_sources(self.host_high, self.high))
            ample = piece.rates(piece.broadcast_to_sources(self.host_low, self.high))
            own = scarce + piece.broadcast_to_sources(self.host_share, 0.0) * (ample - scarce)
            price = piece.broadcast_to_sources(self.host_price, 0.0)
            generous = np.where(price > self.low, own, generous)
            frugal = np.where(price > self.high, own, frugal)
        if generous is frugal:
            return frugal
        mixed = frugal + self.share * (generous - frugal)
        return np.clip(mixed, piece.problem.lower, piece.problem.upper)


@dataclass(frozen=True, slots=True)
class Finished:
    """Result of the last pass over a partition.

    Attributes
    ----------
    cost, value : float
        Σ of what the sources cost, and the same in the declared sense.
    halving_loss : float
        What halving all rates would add to the cost.
    sums : ndarray, shape (2, 1+H)
        Σ cost·ρ, and Σ max(0, (ρ̂−ρ)(f'(ρ)−ν)), the partition's part of the certificate: of the sources
        without a limit, then of each limited host.
    unrefreshed : float
        The cost without refreshes; 0 where the cost is not small.
    never, at_lower, at_upper : int
        Sources at rate 0, at a min_rate > 0, and at max_rate.
    """

    n: int
    cost: float
    value: float
    halving_loss: float
    sums: Array
    unrefreshed: float
    never: int
    at_lower: int
    at_upper: int


def finish(
    part: FilePart | Frame,
    label: str,
    first: int,
    share: bytes | None,
    place: int,
    file: str,
    message: tuple[PartitionedProblem, Decision, str | None],
) -> Finished:
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
        The terms, the decision, and the folder to write to or None.
    """
    terms, decision, folder = message
    own = terms.own(share)
    named = folder is not None and "source" in terms.columns
    table = read(part, [*terms.priced(), "source"] if named else terms.priced(), label)
    n, hosts = table.num_rows, len(terms.hosts)
    if n == 0:
        return Finished(0, 0.0, 0.0, 0.0, np.zeros((2, 1 + hosts)), 0.0, 0, 0, 0)
    piece = piece_of(table, label, first, own, terms)
    rates = decision.rates(piece)
    proof = _proof_by_pass(piece, rates, decision) or _proof_by_responses(piece, rates, decision)
    if folder is not None:
        write_part(
            rates_table(table, piece.problem.sources, rates, place, terms.time_unit), Path(folder), file
        )
    lower, upper = piece.problem.lower, piece.problem.upper
    small = proof.gap.cost <= NEARLY * proof.halving_loss
    return Finished(
        n,
        proof.gap.cost,
        proof.gap.value,
        proof.halving_loss,
        proof.sums,
        cost_without_refreshes(piece.numerics, rates) if small else 0.0,
        int(np.count_nonzero(rates == 0.0)),
        int(np.count_nonzero((rates <= lower) & (lower > 0.0))),
        int(np.count_nonzero((rates >= upper) & (upper > 0.0))),
    )


class _Proof(NamedTuple):
    """Certificate terms of a partition, as `Finished` has them."""

    gap: Gap
    halving_loss: float
    sums: Array


def _proof_by_pass(piece: Partition, rates: Array, decision: Decision) -> _Proof | None:
    """Return the certificate terms by compiled passes, or None.

    None means that there are none for the objective, for so few sources, or by host, or that they prove too
    little.
    """
    without = piece.columns is None or piece.codes is not None
    columns = None if without else proof_columns(piece.problem)
    if columns is None:
        return None
    given, price = read_only(np.ascontiguousarray(rates)), decision.price
    proof = columns.prove(given, price)
    if not proof.gap <= TIGHT * (abs(proof.cost) + price * proof.used):
        return None
    fewer = np.where(piece.problem.lower < piece.problem.upper, 0.5 * given, given)
    lost = columns.prove(read_only(fewer), price).cost - proof.cost
    value = proved_value(piece.problem, piece.numerics, proof)
    gap = Gap(piece.problem, rates, piece.numerics, proof.cost, value, 0.0, np.zeros(0), None)
    return _Proof(gap, lost, np.array([[proof.used], [proof.gap]]))


def _proof_by_responses(piece: Partition, rates: Array, decision: Decision) -> _Proof:
    """Return the certificate terms from best responses."""
    n = len(rates)
    gap, each = Gap.of(piece.problem, rates, piece.numerics), np.broadcast_to(decision.price, (n,))
    if piece.codes is not None:
        each = piece.broadcast_to_sources(decision.price + decision.multipliers, decision.price)
    gaps = piece.sums(np.broadcast_to(1.0, (n,)), gap.source_gaps(each))
    return _Proof(gap, gap.halving_loss(), np.stack([piece.totals(rates), gaps]))


def rates_frame(
    part: FilePart | Frame,
    label: str,
    first: int,
    share: bytes | None,
    place: int,
    message: bytes,
) -> Any:  # noqa: ANN401 - a pandas frame
    """Return a partition's rates, computed anew, as a pandas frame."""
    terms, decision = unpack(message)
    table = read(part, [*terms.priced(), *(name for name in ("source",) if name in terms.columns)], label)
    piece = piece_of(table, label, first, terms.own(share), terms)
    sources = piece.problem.sources
    return rates_table(table, sources, decision.rates(piece), place, terms.time_unit).to_pandas()


def rates_table(table: Table, sources: Sources, rates: Array, place: int, time_unit: str) -> Table:
    """Return (source, rate, interval) as `Solution.to_frame`, null at rate 0."""
    import pyarrow as pa

    n = len(rates)
    source = (
        table.column("source") if "source" in table.column_names else pa.array(np.arange(place, place + n))
    )
    with np.errstate(divide="ignore"):
        interval = pa.array(1.0 / rates, mask=rates == 0.0)
    columns = {"source": source, "rate": pa.array(rates), "interval": interval}
    if "signalled" in table.column_names:
        columns["signalled"] = pa.array(sources.signalled)
        columns["change_rate"] = pa.array(sources.change_rate)
    if time_unit != "day":
        columns["time_unit"] = pa.array([time_unit]).take(pa.array(np.zeros(n, dtype=np.int8)))
    return pa.table(columns)


def write_part(table: Table, folder: Path, name: str) -> None:
    """Write a file atomically; repeated runs are harmless."""
    import pyarrow.parquet as pq

    staging = folder / f".{name}.{secrets.token_hex(4)}"
    pq.write_table(table, staging, use_dictionary=["source"], compression="snappy")
    staging.replace(folder / name)
