"""`RowPasses`: best responses, rows and Newton's matrix at given multipliers.

One pass over the sources answers multipliers y ≥ 0 with the rates ρ(y) that minimise the Lagrangian, what
they use of every row, G_j = Σ_k g_jk(ρ_k), and how that falls with the multipliers,

    −dG/dy = Σ_k g_k' g_k'ᵀ / φ_k''   over the sources strictly between their bounds.

A source at a bound does not respond, nor does one at a kink, where φ' jumps over 0: both add nothing.

`NumpyRowPasses` goes through chunks of sources. Its rates are where the next pass starts its search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from freshopt.compiled.rows.row_columns import RowColumns
from freshopt.interior_point.newton_systems import (
    Arrow,
    ArrowGram,
    Gram,
    arrow_of,
    empty_gram,
    with_products,
)
from freshopt.interior_point.program_columns import row_columns
from freshopt.numerics.arrays import Array, BoolArray, IntArray, chunks
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program
from freshopt.separable.usage_costs import UsageCosts

# A slope that is off 0 by this share of its parts lies on both sides of a kink: a search for a smooth root
# ends within a few ulp, times the elasticity of the marginal (10³ at an exponential's tail).
KINK = 1e-7


class Evaluation(NamedTuple):
    """What one pass over the sources returns.

    - `rates` (n,): Best responses.
    - `used` (m,): G, which may be inf.
    - `gram` ndarray of shape (m, m), ArrowGram
    """

    rates: Array
    used: Array
    gram: Gram | None


class RowPasses(Protocol):
    """Protocol of a pass over the sources of a program."""

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Evaluation:
        """Return best responses, used amounts and, with `gram`, the matrix."""


class NumpyRowPasses:
    """Passes in NumPy, chunk by chunk; any `Numerics` will do.

    - `arrow`: Return the matrix in these parts.
    """

    def __init__(self, program: Program, arrow: Arrow | None = None) -> None:
        self._parts = [(part, program.take(part)) for part in chunks(len(program))]
        self._rates: Array | None = None
        self._n, self._m, self._arrow = len(program), len(program.rows), arrow

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Evaluation:
        """Return best responses, used amounts and, with `gram`, the matrix."""
        rates, used = np.empty(self._n), np.zeros(self._m)
        matrix = empty_gram(self._m, self._arrow) if gram else None
        with np.errstate(all="ignore"):
            for part, program in self._parts:
                lagrangian = Lagrangian.at(program, multipliers)
                own = lagrangian.best_response(None if self._rates is None else self._rates[part])
                rates[part] = own
                used += program.rows.used(own)
                if matrix is not None:
                    values, source, row = _derivatives(lagrangian, own)
                    matrix = with_products(matrix, values, source, row, len(own))
        self._rates = rates
        return Evaluation(rates, used, matrix)


def _derivatives(lagrangian: Lagrangian, rates: Array) -> tuple[Array, IntArray, IntArray]:
    """Return the nonzero entries of g'/√φ'', with sources and rows."""
    program, rows = lagrangian.program, lagrangian.program.rows
    bend = lagrangian.curvature(rates)
    responds = (rates > program.lower) & (rates < program.upper) & (bend > 0.0) & np.isfinite(bend)
    responds &= ~_kinks(lagrangian, rates)
    root = np.sqrt(np.where(responds, 1.0 / bend, 0.0))
    source = rows.source
    kept = np.flatnonzero(responds[source] & (rows.coefficient != 0.0))
    source = source[kept]
    return rows.slopes(rates)[kept] * root[source], source, rows.row[kept].astype(np.int64)


def _kinks(lagrangian: Lagrangian, rates: Array) -> BoolArray:
    """Return where the slope jumps over 0 instead of meeting it."""
    marginal = lagrangian.marginal(rates)
    parts = lagrangian.marginal_size(rates) + np.abs(lagrangian.price)
    return np.abs(marginal - lagrangian.price) > KINK * parts


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRowPasses:
    """Passes of `RowColumns`, as `RowPasses`.

    - `arrow`: Which rows the parts of an `ArrowGram` belong to.
    """

    columns: RowColumns
    arrow: Arrow | None

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Evaluation:
        """Return best responses, used amounts and, with `gram`, the matrix."""
        rates, used, matrix = self.columns.evaluate(multipliers, gram=gram)
        if matrix is None or isinstance(matrix, np.ndarray):
            return Evaluation(rates, used, matrix)
        assert self.arrow is not None
        return Evaluation(rates, used, ArrowGram(*matrix, self.arrow))


@dataclass(frozen=True, slots=True, eq=False)
class JoinedRowPasses:
    """Passes over sources, and over what they use, one after the other."""

    parts: tuple[RowPasses, ...]

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Evaluation:
        """Return best responses, used amounts and, with `gram`, the matrix."""
        found = [part.evaluate(multipliers, gram=gram) for part in self.parts]
        rates = np.concatenate([one.rates for one in found])
        matrix, *others = (one.gram for one in found)
        for other in others:
            if isinstance(matrix, ArrowGram) and isinstance(other, ArrowGram):
                matrix = ArrowGram(
                    matrix.diagonal + other.diagonal,
                    matrix.cross + other.cross,
                    matrix.corner + other.corner,
                    matrix.arrow,
                )
            elif isinstance(matrix, np.ndarray) and isinstance(other, np.ndarray):
                matrix = matrix + other
        return Evaluation(rates, np.sum([one.used for one in found], axis=0), matrix)


def row_passes(program: Program) -> RowPasses:
    """Return the fastest passes over a program's sources."""
    return passes_in_parts(program, arrow_of(program.rows))


def passes_in_parts(program: Program, arrow: Arrow | None) -> RowPasses:
    """Return the same, with the matrix in given parts."""
    if isinstance(program.numerics, UsageCosts):
        # Each kind keeps the closed form of its best responses, and its loops.
        first = int(np.argmax(program.numerics.usage))
        own = passes_in_parts(program.take(slice(0, first)), arrow)
        return JoinedRowPasses((own, NumpyRowPasses(program.take(slice(first, len(program))), arrow)))
    disjoint = None
    if arrow is not None:
        disjoint = np.zeros(len(program.rows), dtype=np.bool_)
        disjoint[arrow.hosts] = True
    columns = row_columns(program, disjoint)
    if columns is None:
        return NumpyRowPasses(program, arrow)
    return CompiledRowPasses(columns, arrow)
