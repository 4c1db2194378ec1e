"""`RateGrid`: grid of change rates, with gamma priors and quantiles on it.

The nodes are equidistant in ln Δ. For densities that are smooth on their scale the trapezoidal rule converges
exponentially: with nodes a standard deviation apart means come out to 1e-5 and quantiles to 3e-3. What lies
left of the first node is so slow that no crawl of the log notices its speed: it is one node more, at its
mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.inference.dated_crawls import GammaParameters
from freshopt.numerics.arrays import Array, IntArray

# Mass that a prior may have beyond the nodes.
TAIL = 1e-12
# Rate times observed time below which a source's speed goes unnoticed.
UNNOTICED = 1e-4
# Distance of nodes: in standard deviations of ln Δ under so many changes, at most, and at most in ln Δ.
SPACING, WIDEST = 1.0, 0.25
# Number of nodes: a multiple, so that many sources are worked on together, and the largest.
TOGETHER, MOST = 32, 1024
# Exponent that leaves nothing of a prior with a small shape.
FAR = 30.0
# Halvings of a cell in search of a quantile.
HALVINGS = 40


@dataclass(frozen=True, slots=True, eq=False)
class RateGrid:
    """Grid of rates of each of n sources.

    Attributes
    ----------
    nodes : ndarray of float, shape (n, m)
        Change rates. The first stands for all below the second, which is the first that is equidistant.
    mass : ndarray of float, shape (n, m)
        Of the prior, 1 in all.
    width : ndarray of float, shape (n,)
        Distance of nodes in ln Δ.
    shape : ndarray of float, shape (n,)
        Of the prior, whose density of ln Δ falls like Δ^shape to the left.

    Examples
    --------
    >>> prior = GammaParameters(np.array([0.6]), np.array([20.0]), np.zeros(1))
    >>> grid = RateGrid.of(prior, np.zeros(1), np.array([100.0]), 96)
    >>> (grid.mass * grid.nodes).sum(axis=1).round(6)
    array([0.03])
    """

    nodes: Array
    mass: Array
    width: Array
    shape: Array

    @classmethod
    def of(cls, prior: GammaParameters, changes: Array, time: Array, count: int) -> RateGrid:
        """Return the grid of some priors for what crawls may tell.

        Parameters
        ----------
        prior : GammaParameters
        changes, time : ndarray of float, shape (n,)
            How many changes crawls tell at most, in what time.
        count : int
            Number of nodes m.
        """
        from scipy.special import gammainc, gammaln

        left, right = ends(prior, changes, time)
        a, b = prior.shape[:, None], prior.exposure[:, None]
        width = (right - left) / (count - 2)
        t = left[:, None] + width[:, None] * np.arange(count - 1)
        rate = np.exp(t)
        with np.errstate(under="ignore"):
            density = np.exp(a * (t + np.log(b)) - b * rate - gammaln(a)) * width[:, None]
        density[:, [0, -1]] *= 0.5
        slow = a / (a + 1.0) * rate[:, :1]
        mass = np.concatenate([gammainc(a, b * rate[:, :1]), density], axis=1)
        mass /= mass.sum(axis=1, keepdims=True)
        return cls(np.concatenate([slow, rate], axis=1), mass, width, prior.shape)

    def mean(self, belief: Array) -> Array:
        """Return E[Δ] under beliefs on the nodes, shape (n,)."""
        mean: Array = np.einsum("ij,ij->i", belief, self.nodes)
        return mean

    def quantiles(self, belief: Array, levels: Array) -> Array:
        """Return quantiles of Δ at levels of shape (k, n).

        The distribution function at the nodes is that of the trapezoidal rule, corrected by its slope
        (Euler and Maclaurin); between them it is the cubic with these values and slopes.
        """
        n, m = belief.shape
        density = belief[:, 1:].copy()  # per node distance
        density[:, [0, -1]] *= 2.0
        lump = belief[:, :1]
        padded = np.pad(density, ((0, 0), (1, 1)), mode="edge")
        bend = (padded[:, 2:] - padded[:, :-2]) / 24.0
        below = lump + np.cumsum(density, axis=1) - 0.5 * (density + density[:, :1]) - (bend - bend[:, :1])
        below = np.maximum.accumulate(np.clip(below, 0.0, 1.0), axis=1)
        row = np.arange(n)
        apart = 2.0 * row  # each source's values lie apart from those of the others
        flat = np.searchsorted((below + apart[:, None]).ravel(), (levels + apart).ravel(), side="right")
        cell = flat.reshape(levels.shape) - row * (m - 1) - 1
        inside = np.clip(cell, 0, m - 3)
        low, rise = below[row, inside], below[row, inside + 1] - below[row, inside]
        start, stop = (np.minimum(density[row, inside + k], 3.0 * rise) for k in (0, 1))  # monotone
        u, step = np.full(levels.shape, 0.5), 0.25
        for _ in range(HALVINGS):
            value = low + u * (
                start + u * (3.0 * rise - 2.0 * start - stop + u * (start + stop - 2.0 * rise))
            )
            u = u + np.where(value < levels, step, -step)
            step *= 0.5
        slowest = np.maximum(lump[:, 0], 1e-300)
        with np.errstate(under="ignore", divide="ignore"):
            tail = np.log(np.minimum(levels / slowest, 1.0)) / self.shape
            rates: Array = self.nodes[:, 1] * np.exp(np.where(cell < 0, tail, (inside + u) * self.width))
        return rates


def ends(prior: GammaParameters, changes: Array, time: Array) -> tuple[Array, Array]:
    """Return the ends of the nodes in ln Δ, shape (n,).

    No posterior given some of so many changes in some of the time has much mass beyond.
    """
    from scipy.special import gammainccinv, gammaincinv

    a, b = prior.shape, prior.exposure
    slow = np.maximum(gammaincinv(a, TAIL), UNNOTICED) / (b + time)
    fast = np.maximum(gammainccinv(a + changes, TAIL), FAR) / b
    return np.log(slow), np.log(fast)


def node_counts(prior: GammaParameters, changes: Array, time: Array) -> IntArray:
    """Return how many nodes sources need, shape (n,)."""
    left, right = ends(prior, changes, time)
    width = np.minimum(SPACING / np.sqrt(prior.shape + changes), WIDEST)
    cells = np.ceil((right - left) / (TOGETHER * width))
    counts: IntArray = (TOGETHER * np.clip(cells, 1, MOST // TOGETHER)).astype(np.int64)
    return counts
