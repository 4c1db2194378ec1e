"""Gauss quadratures of discrete measures, by Lanczos.

Few nodes stand for many.
Costs here are sums or integrals of decaying exponentials over a measure that does not depend on the rate. The
Gauss quadrature of that measure has positive weights, so that what is summed over its nodes keeps its signs
and its convexity, and `number` nodes get 2·`number` moments right.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import CHUNK, Array, chunks

# Less than this is left of a unit vector when the measure has no more points.
_END = 1e-13


class Quadrature(NamedTuple):
    """Positive weights at nodes."""

    nodes: Array
    weights: Array


def joined(parts: list[Quadrature]) -> Quadrature:
    """Return several discrete measures as one."""
    nodes = np.concatenate([part.nodes for part in parts])
    weights = np.concatenate([part.weights for part in parts])
    return Quadrature(nodes[weights > 0.0], weights[weights > 0.0])


def squared_legendre(number: int) -> Quadrature:
    """Return Gauss-Legendre nodes and weights on [0, 1] in √z.

    With z = v² the nodes lie in v: for what varies most near 0.
    """
    points, weights = np.polynomial.legendre.leggauss(number)
    v = (points + 1.0) / 2.0
    return Quadrature(v * v, v * weights)


def gauss(points: Array, masses: Array, number: int) -> Quadrature:
    """Return the Gauss quadrature of a discrete measure.

    It has `number` nodes in the range of its points, and positive weights.

    - `points`, `masses` (m,): Masses ≥ 0.
    - `number`: Of nodes; fewer come back if the measure has no more points.

    Examples
    --------
    >>> nodes, weights = gauss(np.arange(5.0), np.ones(5), 2)
    >>> nodes.round(6), weights.round(6)
    (array([0.585786, 3.414214]), array([2.5, 2.5]))
    """
    points, masses = points[masses > 0.0], masses[masses > 0.0]
    if len(points) <= number:
        return Quadrature(points, masses)
    if len(points) > CHUNK:
        pieces = [gauss(points[part], masses[part], number) for part in chunks(len(points))]
        return gauss(*joined(pieces), number)
    nodes, weights = gauss_rows(points, masses[None, :], number)
    return joined([Quadrature(nodes[0], weights[0])])


def gauss_rows(points: Array, masses: Array, number: int) -> Quadrature:
    """Return the Gauss quadratures of several measures, one a row.

    Lanczos on diag(points) from √masses, with full reorthogonalisation; the eigenvalues of the resulting
    Jacobi matrix are the nodes. Where a measure ends early, the superfluous nodes have weight 0.

    - `points` (m,) or (n, m): The same for all measures, or those of each.
    - `masses` (n, m): Masses ≥ 0, each row with a positive sum.
    - returns: Nodes and weights of shape (n, number).

    Examples
    --------
    >>> masses = np.array([[1.0, 1.0, 1.0, 1.0, 1.0], [2.0, 0.0, 1.0, 0.0, 0.0]])
    >>> gauss_rows(np.arange(5.0), masses, 2).nodes.round(6).tolist()
    [[0.585786, 3.414214], [0.0, 2.0]]
    """
    low, high = (end(points, axis=-1, keepdims=True) for end in (np.min, np.max))
    middle, half = 0.5 * (low + high), np.where(high > low, 0.5 * (high - low), 1.0)
    z, size = (points - middle) / half, np.sum(masses, axis=1)
    basis = np.zeros((number, *masses.shape))
    basis[0] = np.sqrt(masses / size[:, None])
    jacobi = np.zeros((len(masses), number, number))
    for k in range(number):
        following = z * basis[k]
        jacobi[:, k, k] = np.sum(basis[k] * following, axis=1)
        for _ in range(2):  # twice is enough
            overlap = np.sum(basis[: k + 1] * following, axis=2)
            following = following - np.sum(overlap[:, :, None] * basis[: k + 1], axis=0)
        beside = np.sqrt(np.sum(following * following, axis=1))
        if k + 1 == number:
            break
        beside = np.where(beside < _END, 0.0, beside)
        jacobi[:, k, k + 1] = jacobi[:, k + 1, k] = beside
        basis[k + 1] = (
            following * np.where(beside > 0.0, 1.0 / np.where(beside > 0.0, beside, 1.0), 0.0)[:, None]
        )
    nodes, vectors = np.linalg.eigh(jacobi)
    return Quadrature(middle + half * nodes, size[:, None] * vectors[:, 0, :] ** 2)
