"""Last pass under declared rows: rates from multipliers, written, with certificate terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.distributed.dask_passes import unpack
from freshopt.distributed.partitioned_sources import FilePart, Frame
from freshopt.distributed.rows.nested_pieces import NestedDecision, NestedPiece
from freshopt.distributed.rows.row_pieces import (
    PartitionedRows,
    RowColumns,
    RowPiece,
    columns_of_part,
    piece_of_part,
)
from freshopt.distributed.rows.row_steps import Shares
from freshopt.distributed.write_rates import rates_table, write_part
from freshopt.modelling.objective import value_at
from freshopt.numerics.arrays import Array, total


class FinishedRows(NamedTuple):
    """Result of the last pass over a partition.

    Attributes
    ----------
    sums : ndarray, shape (3, m)
        What the rows use at the rates, at rates half-way to the lower bounds, and at doubled ones.
    costs : tuple of float
        Σ cost of the same.
    value : float
        In the declared sense.
    gaps : ndarray, shape (candidates,)
        Σ |φ'(ρ)|·|ρ − ρ̂| at each candidate of the multipliers.
    bandwidth : float
        Σ refresh_cost·ρ.
    never, at_lower, at_upper : int
        Sources at rate 0, at a min_rate > 0, and at max_rate.
    """

    n: int
    sums: Array
    costs: tuple[float, float, float]
    value: float
    gaps: Array
    bandwidth: float
    never: int
    at_lower: int
    at_upper: int


def finish_rows(
    part: FilePart | Frame,
    label: str,
    first: int,
    shares: Shares,
    place: int,
    file: str,
    message: tuple[PartitionedRows, Array | NestedDecision, Array, str | None],
) -> FinishedRows:
    """Compute a partition's rates and certificate terms; write the rates.

    Parameters
    ----------
    part, label, first, shares
        The partition, and its own shares of objectives if these hold arrays.
    place : int
        Of its first source among all, for sources without names.
    file : str
        The name of the file to write.
    message : tuple
        The terms; what decides the rates, multipliers to respond to, shape (m,), or prices of nested groups;
        candidates for the certificate's multipliers, shape (candidates, m); the folder to write to or None.
    """
    terms, decision, candidates, folder = message
    table, columns = columns_of_part(part, label, first, terms, names=folder is not None)
    if columns is None:
        none = np.zeros((3, candidates.shape[1]))
        return FinishedRows(0, none, (0.0, 0.0, 0.0), 0.0, np.zeros(len(candidates)), 0.0, 0, 0, 0)
    piece = piece_of_part(label, first, shares, columns, terms)
    rates, program, sources = _rates(piece, columns, terms, decision), piece.program, piece.sources
    if folder is not None:
        write_part(rates_table(table, sources, rates, place, terms.time_unit), Path(folder), file)
    lower, upper = program.lower, program.upper
    here = RowGap.of(program, rates)
    fewer = RowGap.of(program, 0.5 * (rates + lower))
    more = RowGap.of(program, np.minimum(2.0 * rates, upper))
    with np.errstate(all="ignore"):
        gaps = np.array([total(here.source_terms(y)) for y in candidates])
    return FinishedRows(
        len(rates),
        np.stack([here.used, fewer.used, more.used]),
        (here.cost, fewer.cost, more.cost),
        value_at(piece.objective, piece.numerics, sources, rates, here.cost),
        gaps,
        total(sources.refresh_cost * rates),
        int(np.count_nonzero(rates == 0.0)),
        int(np.count_nonzero((rates <= lower) & (lower > 0.0))),
        int(np.count_nonzero((rates >= upper) & (upper > 0.0))),
    )


def row_rates_frame(
    part: FilePart | Frame, label: str, first: int, shares: Shares, place: int, message: bytes
) -> Any:  # noqa: ANN401 - a pandas frame
    """Return a partition's rates, computed anew, as a pandas frame."""
    terms, decision = unpack(message)
    table, columns = columns_of_part(part, label, first, terms, names=True)
    assert columns is not None
    piece = piece_of_part(label, first, shares, columns, terms)
    rates = _rates(piece, columns, terms, decision)
    return rates_table(table, piece.sources, rates, place, terms.time_unit).to_pandas()


def _rates(
    piece: RowPiece, columns: RowColumns, terms: PartitionedRows, decision: Array | NestedDecision
) -> Array:
    """Return a partition's rates, as prices decide them."""
    if isinstance(decision, NestedDecision):
        return NestedPiece.of(columns, piece.objective, decision.leaf(columns.codes)).rates(decision)
    return piece.rates(terms, decision)
