"""`solve_newton`: the symmetric positive definite system of one Newton step.

(H + D) x = r with H the Gram matrix of a pass and D > 0 diagonal, whose entries lie many decades apart.
Scaling by the diagonal of H + D makes Cholesky's factorisation blind to that. A matrix in the shape of an
arrow is reduced to its corner: O(H q²) for H disjoint rows and q others, without an H×H matrix.
"""

from __future__ import annotations

import numpy as np

from freshopt.interior_point.row_layout import Arrow
from freshopt.interior_point.row_passes import ArrowGram, Gram
from freshopt.numerics.arrays import Array

# Added to a unit diagonal: what rounding may have taken from a singular matrix, such as that of equal rows.
_SHIFT = 1e-15


class NewtonSystem:
    """Factorised matrix H + D.

    - `gram` ndarray of shape (m, m) or ArrowGram
    - `diagonal` (m,)
    - `arrow`: The rows of the parts of an ArrowGram.
    """

    def __init__(self, gram: Gram, diagonal: Array, arrow: Arrow | None = None) -> None:
        self._arrow = arrow
        if isinstance(gram, ArrowGram):
            assert arrow is not None
            # In the order of the parts, disjoint rows first.
            diagonal = diagonal[np.concatenate((arrow.hosts, arrow.others))]
            hosts = len(gram.diagonal)
            size = np.sqrt(np.concatenate((gram.diagonal, np.diagonal(gram.corner))) + diagonal)
            scale, tail = 1.0 / size[:hosts], 1.0 / size[hosts:]
            self._cross = gram.cross * scale[:, None] * tail
            corner = gram.corner * tail[:, None] * tail
            np.fill_diagonal(corner, 1.0)
            self._size, self._hosts = size, hosts
            self._factor = _cholesky(corner - self._cross.T @ self._cross)
        else:
            self._size, self._hosts = np.sqrt(np.diagonal(gram) + diagonal), 0
            scaled = gram / self._size[:, None] / self._size
            np.fill_diagonal(scaled, 1.0)
            self._factor = _cholesky(scaled)

    def solve(self, right: Array) -> Array:
        """Return (H + D)⁻¹ r, shape (m,) or (m, columns)."""
        arrow, hosts = self._arrow, self._hosts
        own = right if arrow is None else right[np.concatenate((arrow.hosts, arrow.others))]
        own = (own.T / self._size).T
        if arrow is None:
            found = _solved(self._factor, own)
        else:
            tail = _solved(self._factor, own[hosts:] - self._cross.T @ own[:hosts])
            found = np.concatenate((own[:hosts] - self._cross @ tail, tail))
        found = (found.T / self._size).T
        return found if arrow is None else found[arrow.place]


def product(gram: Gram, vector: Array, arrow: Arrow | None = None) -> Array:
    """Return H·x, shape (m,)."""
    if not isinstance(gram, ArrowGram):
        return gram @ vector
    assert arrow is not None
    host, other = vector[arrow.hosts], vector[arrow.others]
    head = gram.diagonal * host + gram.cross @ other
    return np.concatenate((head, gram.cross.T @ host + gram.corner @ other))[arrow.place]


def _cholesky(scaled: Array) -> Array:
    """Return a Cholesky factor, of a shifted matrix if need be."""
    unit, shift = np.eye(len(scaled)), _SHIFT
    while True:
        try:
            factor: Array = np.asfortranarray(np.linalg.cholesky(scaled + shift * unit))
        except np.linalg.LinAlgError:
            shift *= 100.0
            if shift > 1.0 or not bool(np.all(np.isfinite(scaled))):
                raise
        else:
            return factor


def _solved(factor: Array, right: Array) -> Array:
    from scipy.linalg.lapack import dpotrs

    if not len(right):
        return right
    # Two triangular solves; the routine itself, since checks around it take a fifth of a millisecond.
    return np.asarray(dpotrs(factor, right, lower=1)[0])
