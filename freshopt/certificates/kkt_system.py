"""`KktSystem`: the linear system of the implicit function theorem.

It has as many unknowns as rows bind. Differentiated at fixed roles of sources and rows, the KKT conditions
are, with g' the rows' slopes, D = 1/φ'' of free sources, r = ∂φ'/∂p·dp, q = ∂(G − b)/∂p·dp and δ what moving
bounds do to the sources they hold,

    dρ = δ − D(r + g'ᵀ dy),   g' dρ + q = 0   ⟹   H dy = g'δ + q − g' D r,   H = g' D g'ᵀ.

Sources that are linear, and the level of a minimax program, add their own stationarity g'ᵀ dy = −r and their
rate as an unknown; the bordered matrix is symmetric as well, so that the transpose of the derivative is
another solve with it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from freshopt.certificates.active_set import ActiveSet
from freshopt.heavy import sparse
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.separable.kernel import weighted
from freshopt.separable.program import Program

# Up to so many unknowns the matrix is dense, 8 MB; beyond, as with limits on many hosts, it is sparse.
DENSE = 1000
# Relative: eigenvalues of the equilibrated matrix below this are rounding, and belong to rows that repeat
# others or hold no free source.
_SINGULAR = 1e-13


@frozen_value()
class KktSystem:
    """Derivatives of rates and multipliers at fixed roles of sources and rows.

    - `slopes` scipy.sparse matrix (m, n): g_jk' of the rows that bind, 0 of others.
    - `linear`: The linear sources that are unknowns; none where there are more of them than rows.
    - `level` (m,): Of a minimax program.
    - `scale` (unknowns,): By which rows and columns of the matrix are divided; inf of those without entries.
    - `inverse` (unknowns, unknowns)
    - `factors`: A sparse factorisation where there is no inverse.
    - `singular`: Combinations of binding rows that no free source tells apart.
    """

    roles: ActiveSet
    slopes: Any
    linear: IntArray
    level: Array | None
    scale: Array
    inverse: Array | None
    factors: Any
    singular: int

    @classmethod
    def of(cls, program: Program, rates: Array, roles: ActiveSet) -> KktSystem:
        """Assemble and factorise the system of an answer."""
        slopes = _slopes(program, rates, roles.rows)
        binding = slopes[roles.rows]
        weighted = binding.multiply(np.sqrt(roles.response)).tocsr()
        gram = (weighted @ weighted.T).tocsc()
        linear = roles.linear if len(roles.linear) <= len(roles.rows) else np.zeros(0, dtype=np.int64)
        border = [binding[:, linear].tocsc()]
        if program.level is not None:
            border.append(sparse.csc_matrix(-program.level[roles.rows][:, None]))
        border = sparse.hstack(border, format="csc")
        scale = _equilibrium(gram, border)
        divided: Any = sparse.diags(1.0 / scale)
        matrix: Any = sparse.bmat([[-gram, border], [border.T, None]], format="csc")
        matrix = (divided @ matrix @ divided).tocsc()
        matrix.eliminate_zeros()
        inverse, factors, singular = _factorised(matrix, len(roles.rows))
        return cls(roles, slopes, linear, program.level, scale, inverse, factors, singular)

    def forward(self, slope: Array, used: Array, moved: Array) -> tuple[Array, Array]:
        """Return dρ and dy, shapes (n,) and (m,).

        - `slope` (n,): r, how parameters change φ'.
        - `used` (m,): q, how parameters change G − b.
        - `moved` (n,): δ, how parameters move sources at bounds.
        """
        roles, rows = self.roles, self.roles.rows
        drift = weighted(roles.response, slope)
        right = (self.slopes @ (drift - moved) - used)[rows]
        price, rest = self._solve(right, -slope[self.linear])
        multipliers = np.zeros(len(used))
        multipliers[rows] = price
        rates = moved - drift - roles.response * (self.slopes.T @ multipliers)
        rates[self.linear] += rest
        return rates, multipliers

    def backward(self, rates: Array, multipliers: Array) -> tuple[Array, Array, Array]:
        """Return the weights on r, q and δ: `forward` transposed."""
        roles, rows = self.roles, self.roles.rows
        answered = roles.response * rates
        price, rest = self._solve((multipliers - self.slopes @ answered)[rows], rates[self.linear])
        used = np.zeros(len(multipliers))
        used[rows] = -price
        felt = self.slopes.T @ -used
        slope = roles.response * felt - answered
        slope[self.linear] -= rest
        return slope, used, rates - felt

    def _solve(self, right: Array, border: Array) -> tuple[Array, Array]:
        """Return the solution's part of the rows, and that of linear sources."""
        level = [] if self.level is None else [0.0]
        whole = np.concatenate((right, border, level)) / self.scale
        found = self.inverse @ whole if self.inverse is not None else self.factors.solve(whole)
        found = found / self.scale
        return found[: len(right)], found[len(right) : len(right) + len(border)]


def _slopes(program: Program, rates: Array, binding: IntArray) -> Any:  # noqa: ANN401 - a sparse matrix
    """Return g_jk' of the rows that bind, shape (m, n)."""
    rows, chosen = program.rows, np.zeros(len(program.rows), dtype=np.bool_)
    chosen[binding] = True
    data = rows.slopes(rates)
    kept = np.flatnonzero(chosen[rows.row] & np.isfinite(data))
    shape = (len(rows), len(program))
    return sparse.csr_matrix((data[kept], (rows.row[kept], rows.source[kept])), shape=shape)


def _equilibrium(gram: Any, border: Any) -> Array:  # noqa: ANN401 - sparse matrices
    """Return scales by which the matrix has entries near 1."""
    diagonal = np.sqrt(gram.diagonal())
    reach = abs(border).max(axis=1).toarray().ravel() if border.shape[1] else np.zeros(len(diagonal))
    rows = np.where(diagonal > 0.0, diagonal, np.where(reach > 0.0, reach, np.inf))
    if not border.shape[1]:
        return rows
    relative = abs(border.multiply(1.0 / rows[:, None])).max(axis=0).toarray().ravel()
    return np.concatenate((rows, np.where(relative > 0.0, relative, np.inf)))


def _factorised(matrix: Any, rows: int) -> tuple[Array | None, Any, int]:  # noqa: ANN401 - a sparse matrix
    """Return an inverse or sparse factors, and how many directions are singular."""
    from scipy.sparse import linalg

    size = matrix.shape[0]
    if size > DENSE:
        # Unknowns without entries, as of a row that holds no free source, stay 0.
        idle = np.diff(matrix.indptr) == 0
        shift = np.where(idle, 1.0, _SINGULAR)
        shift[rows:] *= -1.0
        return None, linalg.splu((matrix - sparse.diags(shift)).tocsc()), int(np.sum(idle))
    values, vectors = np.linalg.eigh(matrix.toarray())
    usable = np.abs(values) > _SINGULAR * max(1.0, len(values))
    inverse = (vectors[:, usable] / values[usable]) @ vectors[:, usable].T
    return inverse, None, int(np.sum(~usable))
