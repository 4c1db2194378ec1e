"""`RowPasses`: best responses, rows and Newton's matrix at given multipliers.

One pass over the sources answers multipliers y ≥ 0 with the rates ρ(y) that minimise the Lagrangian, what
they use of every row, G_j = Σ_k g_jk(ρ_k), and how that falls with the multipliers,

    −dG/dy = Σ_k g_k' g_k'ᵀ / φ_k''   over the sources strictly between their bounds.

A source at a bound does not respond, nor does one at a kink, where φ' jumps over 0: both add nothing. A
matrix over many disjoint rows and a few others is kept in its parts (`ArrowGram`), never as a whole.

`NumpyRowPasses` goes through chunks of sources. Its rates are where the next pass starts its search.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from freshopt.interior_point.row_layout import Arrow, arrow_of
from freshopt.numerics.arrays import Array, BoolArray, IntArray, chunks
from freshopt.separable.lagrangian import Lagrangian
from freshopt.separable.program import Program
from freshopt.separable.rows import RATE

# A slope that is off 0 by this share of its parts lies on both sides of a kink: a search for a smooth root
# ends within a few ulp, times the elasticity of the marginal (10³ at an exponential's tail).
KINK = 1e-7
# Up to so many rows a chunk's derivatives are multiplied as a dense matrix, 8 MB of it.
DENSE = 64


class ArrowGram(NamedTuple):
    """Newton's matrix of H disjoint rows and q others, in parts.

    - `diagonal` (H,): Of the disjoint rows, which share no source.
    - `cross` (H, q)
    - `corner` (q, q)
    """

    diagonal: Array
    cross: Array
    corner: Array


Gram = Array | ArrowGram


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

    @property
    def limits(self) -> Array:
        """Limits b of the rows, shape (m,)."""

    @property
    def arrow(self) -> Arrow | None:
        """Which rows the parts of an `ArrowGram` belong to."""

    def __len__(self) -> int:
        """Return the number m of rows."""

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Evaluation:
        """Return best responses, used amounts and, with `gram`, the matrix."""


class NumpyRowPasses:
    """Passes in NumPy, chunk by chunk; any `Numerics` will do.

    - `arrow`: Return the matrix in these parts.
    """

    def __init__(self, program: Program, arrow: Arrow | None = None) -> None:
        self._parts = [(part, program.take(part)) for part in chunks(len(program))]
        self._rates: Array | None = None
        self._n, self._limits, self._arrow = len(program), program.rows.limits, arrow

    @property
    def limits(self) -> Array:
        """Limits b of the rows, shape (m,)."""
        return self._limits

    @property
    def arrow(self) -> Arrow | None:
        """Which rows the parts of an `ArrowGram` belong to."""
        return self._arrow

    def __len__(self) -> int:
        """Return the number m of rows."""
        return len(self._limits)

    def evaluate(self, multipliers: Array, *, gram: bool = True) -> Evaluation:
        """Return best responses, used amounts and, with `gram`, the matrix."""
        m = len(self)
        rates, used = np.empty(self._n), np.zeros(m)
        matrix = empty_gram(m, self._arrow) if gram else None
        with np.errstate(all="ignore"):
            for part, program in self._parts:
                lagrangian = Lagrangian.at(program, multipliers)
                own = lagrangian.best_response(None if self._rates is None else self._rates[part])
                rates[part] = own
                used += program.rows.used(own)
                if matrix is not None:
                    values, source, row = _derivatives(lagrangian, own)
                    matrix = with_products(matrix, values, source, row, len(own), self._arrow)
        self._rates = rates
        return Evaluation(rates, used, matrix)


def numpy_passes(program: Program) -> RowPasses:
    """Return passes in NumPy, an arrow's matrix in its parts."""
    return NumpyRowPasses(program, arrow_of(program.rows))


def _derivatives(lagrangian: Lagrangian, rates: Array) -> tuple[Array, IntArray, IntArray]:
    """Return the nonzero entries of g'/√φ'', with sources and rows."""
    program, rows = lagrangian.program, lagrangian.program.rows
    bend = lagrangian.curvature(rates)
    responds = (rates > program.lower) & (rates < program.upper) & (bend > 0.0) & np.isfinite(bend)
    responds &= ~_kinks(lagrangian, rates)
    root = np.sqrt(np.where(responds, 1.0 / bend, 0.0))
    source = rows.source
    kept = np.flatnonzero(responds[source] & (rows.coefficient != 0.0))
    source, kind = source[kept], rows.kind[kept]
    values = rows.coefficient[kept] * root[source]
    for t, curve in enumerate(rows.curves, start=RATE + 1):
        own = kind == t
        values[own] *= -curve.marginal(rates)[source[own]]
    return values, source, rows.row[kept].astype(np.int64)


def _kinks(lagrangian: Lagrangian, rates: Array) -> BoolArray:
    """Return where the slope jumps over 0 instead of meeting it."""
    marginal = lagrangian.marginal(rates)
    parts = lagrangian.marginal_size(rates) + np.abs(lagrangian.price)
    return np.abs(marginal - lagrangian.price) > KINK * parts


def empty_gram(m: int, arrow: Arrow | None) -> Gram:
    """Return a matrix of zeros, in parts with an arrow."""
    if arrow is None:
        return np.zeros((m, m))
    hosts, q = len(arrow.hosts), len(arrow.others)
    return ArrowGram(np.zeros(hosts), np.zeros((hosts, q)), np.zeros((q, q)))


def with_products(
    gram: Gram, values: Array, source: IntArray, row: IntArray, n: int, arrow: Arrow | None
) -> Gram:
    """Return the matrix with the part VᵀV of n sources added."""
    if isinstance(gram, ArrowGram):
        assert arrow is not None
        return _added_arrow(gram, values, source, row, n, arrow)
    m = len(gram)
    if m <= DENSE:
        dense = np.bincount(source * m + row, weights=values, minlength=n * m).reshape(n, m)
        gram += dense.T @ dense
        return gram
    from scipy.sparse import csr_array

    sparse = csr_array((values, (source, row)), shape=(n, m))
    gram += (sparse.T @ sparse).toarray()
    return gram


def _added_arrow(
    gram: ArrowGram, values: Array, source: IntArray, row: IntArray, n: int, arrow: Arrow
) -> ArrowGram:
    hosts, q = len(arrow.hosts), len(arrow.others)
    place = arrow.place[row]
    disjoint = place < hosts
    # A source is in one of the disjoint rows at most, perhaps by several kinds of function.
    own = np.bincount(source[disjoint], weights=values[disjoint], minlength=n)
    host = np.zeros(n, dtype=np.int64)
    host[source[disjoint]] = place[disjoint]
    shared = np.flatnonzero(~disjoint)
    cells = source[shared] * q + place[shared] - hosts
    others = np.bincount(cells, weights=values[shared], minlength=n * q).reshape(n, q)
    diagonal = gram.diagonal + np.bincount(host, weights=own * own, minlength=hosts)
    for j in range(q):
        gram.cross[:, j] += np.bincount(host, weights=own * others[:, j], minlength=hosts)
    return ArrowGram(diagonal, gram.cross, gram.corner + others.T @ others)
