"""`RateGrid`: grid of change rates, with gamma priors and quantiles on it.

Nodes are a standard deviation of the sharpest belief apart that a log can lead to there. For densities that
are smooth on that scale the trapezoidal rule converges exponentially: means come out to 1e-5 and quantiles to
3e-3. What lies left of the first node is so slow that no crawl of the log notices its speed: it is one node
more, at its mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.estimators.crawl_rows import GammaParameters
from freshopt.heavy import special
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_value

# Mass that a prior may have beyond the nodes.
TAIL = 1e-12
# Rate times observed time below which a source's speed goes unnoticed.
UNNOTICED = 1e-4
# Nodes are as near each other as after so many changes: 0.25 in ln Δ.
FEWEST = 16.0
# Largest shape: rates within 1e-5 of each other are not resolved, and floats lose what a larger one says.
STEEPEST = 1e10
# Least mass of a node, so that no rate is impossible.
LEAST = 1e-280
# Parts in which the number of nodes is integrated; it is rounded up by more than the error.
PARTS = 64
# Number of nodes: a multiple, so that many sources are worked on together, and the largest.
TOGETHER, MOST = 32, 1024
# Exponent that leaves nothing of a prior with a small shape.
FAR = 30.0
# Halvings of a cell in search of a quantile.
HALVINGS = 40


@frozen_value()
class RateGrid:
    """Grid of rates of each of n sources.

    - `nodes` (n, m): Change rates, increasing. The first stands for all below the second.
    - `mass` (n, m): Of the prior, 1 in all.
    - `shape` (n,): Of the prior, whose density of ln Δ falls like Δ^shape to the left.

    Examples
    --------
    >>> prior = GammaParameters(np.array([0.6]), np.array([20.0]), np.zeros(1))
    >>> grid = RateGrid.of(prior, np.zeros(1), np.array([100.0]), 96)
    >>> (grid.mass * grid.nodes).sum(axis=1).round(6)
    array([0.03])
    """

    nodes: Array
    mass: Array
    shape: Array

    @classmethod
    def of(cls, prior: GammaParameters, changes: Array, time: Array, count: int) -> RateGrid:
        """Return the grid of some priors for what crawls may tell.

        They tell of so many changes at most, in so much time.
        """
        prior = _blunted(prior)
        span = Span.of(prior, changes, time)
        t = span.nodes(count - 1)
        a, b, rate = prior.shape[:, None], prior.exposure[:, None], np.exp(t)
        with np.errstate(under="ignore"):
            density = np.exp(a * (t + np.log(b)) - b * rate - special.gammaln(a)) * span.distance(t.T).T
        density[:, [0, -1]] *= 0.5
        slow = a / (a + 1.0) * rate[:, :1]
        step = (span.length / (count - 2))[:, None]
        mass = np.concatenate([special.gammainc(a, b * rate[:, :1]), density * step], axis=1)
        mass = np.maximum(mass / mass.sum(axis=1, keepdims=True), LEAST)
        return cls(np.concatenate([slow, rate], axis=1), mass, prior.shape)

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
            t = np.log(self.nodes[:, 1:])
            between = (1.0 - u) * t[row, inside] + u * t[row, inside + 1]
            rates: Array = np.exp(np.where(cell < 0, t[:, 0] + tail, between))
        return rates


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Where the nodes of n sources lie.

    - `left`, `right` (n,): Ends in ln Δ; no posterior given some of the crawls has much mass beyond.
    - `time`, `most` (n,): At a rate Δ crawls and prior tell of as many changes as in this time, and at most
      of so many.
    - `length` (n,): The number of distances between the ends.
    """

    left: Array
    right: Array
    time: Array
    most: Array
    length: Array

    @classmethod
    def of(cls, prior: GammaParameters, changes: Array, time: Array) -> Span:
        """Return the span for priors and what crawls may tell."""
        prior = _blunted(prior)
        a, b = prior.shape, prior.exposure
        left = np.log(np.maximum(special.gammaincinv(a, TAIL), UNNOTICED) / (b + time))
        right = np.log(np.maximum(special.gammainccinv(a + changes, TAIL), FAR) / b)
        span = cls(left, right, b + time, a + changes, np.ones(len(left)))
        t = left + (right - left) * np.linspace(0.0, 1.0, PARTS + 1)[:, None]
        density = 1.0 / span.distance(t)
        length = (density.sum(axis=0) - 0.5 * (density[0] + density[-1])) * (right - left) / PARTS
        return cls(left, right, span.time, span.most, length)

    def distance(self, t: Array) -> Array:
        """Return the distance of nodes about ln Δ = t.

        Both of shape (k, n) or (n,). A standard deviation of the sharpest posterior there: one over the root
        of the number of changes.
        """
        told = np.exp(t) * self.time
        sharp = np.sqrt(2.0) * told / np.hypot(told / self.most, 1.0)
        distance: Array = 1.0 / np.sqrt(FEWEST + sharp)
        return distance

    def nodes(self, count: int) -> Array:
        """Return ln Δ at nodes from the left end, shape (n, count).

        Runge and Kutta's method on dt/du = distance: a smooth map, in which the trapezoidal rule is as good
        as on equidistant nodes.
        """
        step = self.length / (count - 1)
        t = np.empty((count, len(self.left)))
        t[0] = self.left
        for k in range(count - 1):
            first = step * self.distance(t[k])
            second = step * self.distance(t[k] + 0.5 * first)
            third = step * self.distance(t[k] + 0.5 * second)
            last = step * self.distance(t[k] + third)
            t[k + 1] = t[k] + (first + 2.0 * (second + third) + last) / 6.0
        return t.T

    def counts(self) -> IntArray:
        """Return how many nodes sources need, shape (n,)."""
        cells = np.ceil((self.length + 2.0) / TOGETHER)
        counts: IntArray = (TOGETHER * np.clip(cells, 1, MOST // TOGETHER)).astype(np.int64)
        return counts


def _blunted(prior: GammaParameters) -> GammaParameters:
    """Return priors of the same means whose shapes are at most `STEEPEST`."""
    excess = np.maximum(prior.shape / STEEPEST, 1.0)
    return prior._replace(shape=prior.shape / excess, exposure=prior.exposure / excess)
