"""Sums over a geometric number of attempts.

N attempts until the first success have P(N = k) = s·q^{k−1}, q = 1 − s. Means over it take 40/s terms, forty
thousand for s = 1/1000. The first `HEAD` of them are summed as they are; those after them in blocks, each as
long as all before, by Gauss quadratures of the counting measure on a block: `NODES` nodes with positive
weights, exact for polynomials in k of degree 2·NODES − 1. What is summed is analytic right of k = 0, a third
of the way from a block's middle, so that the error of a block is below 1e-16 of the largest term in it.

The nodes are the same for every s; a dozen blocks do for s = 1/1000, 35 for s = 1e-9.

References
----------
W. Gautschi, "Orthogonal Polynomials: Computation and Approximation", Oxford 2004, section 1.5.2: discrete
Chebyshev polynomials.
"""

from __future__ import annotations

import functools

import numpy as np

from freshopt.numerics.arrays import Array

# Terms that are summed one by one.
HEAD = 32
# Nodes of a block; e^{−sk} falls by e^{−40} over one at most where it still counts.
NODES = 24
# Terms with q^k below e^{−DEPTH} are left out: with it, k⁵ of them are nothing.
DEPTH = 100.0


@functools.cache
def _block(length: int) -> tuple[Array, Array]:
    """Return the Gauss quadrature of the points 0..length−1.

    Examples
    --------
    >>> nodes, weights = _block(32)
    >>> bool(abs(weights @ nodes**20 / sum(float(k) ** 20 for k in range(32)) - 1.0) < 1e-12)
    True
    """
    order = np.arange(1.0, NODES)
    side = order * np.sqrt((float(length) ** 2 - order**2) / (4.0 * (4.0 * order**2 - 1.0)))
    points, vectors = np.linalg.eigh(np.diag(side, 1) + np.diag(side, -1))
    return points + 0.5 * (length - 1.0), length * vectors[0] ** 2


def geometric_nodes(success: Array, *, smooth: bool = True) -> tuple[Array, Array]:
    """Return numbers of attempts k and weights of s·q^{k−1}.

    - `success` (n,): s in (0, 1].
    - `smooth`: Whether what is summed is analytic in k. If not, every term is taken.
    - returns `k` (K,): Increasing, from 1 on; not whole numbers beyond `HEAD`.
    - returns `weights` (n, K): 1 in each row, nearly.

    Examples
    --------
    >>> k, weights = geometric_nodes(np.array([1e-3, 1.0]))
    >>> (weights @ k).round(9), len(k)
    (array([1000.,    1.]), 320)
    """
    least = float(np.min(success))
    with np.errstate(divide="ignore"):
        log_q = np.log1p(-np.asarray(success, dtype=np.float64))
    most = DEPTH / -float(np.log1p(-least)) if least < 1.0 else 1.0
    if most <= HEAD or not smooth:
        k = np.arange(1.0, np.ceil(most) + 1.0)
        mass = np.ones(len(k))
    else:
        points, masses, begin = [np.arange(1.0, HEAD + 1.0)], [np.ones(HEAD)], HEAD
        while begin < most:
            inner, own = _block(begin)
            points.append(begin + 1.0 + inner)
            masses.append(own)
            begin *= 2
        k, mass = np.concatenate(points), np.concatenate(masses)
    with np.errstate(invalid="ignore"):
        exponent = np.where(k > 1.0, (k - 1.0) * log_q[:, None], 0.0)
    return k, np.asarray(success)[:, None] * np.exp(exponent) * mass
