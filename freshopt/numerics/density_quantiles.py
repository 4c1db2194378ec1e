"""`GridQuantiles`: quantiles of smooth densities by piecewise Hermite interpolation.

There are many densities at once. The logarithm g of a density is known at some nodes with two derivatives;
between neighbours it is drawn as the polynomial of fifth degree that agrees with all six numbers, and e^g is
integrated by Gauss and Legendre's rule. Left of its first node the density of the logarithm of a rate falls
exponentially. With nodes 1.4 standard deviations apart quantiles come out to about 1e-6 of themselves.

Cost: one evaluation of g per node; then about 100 exponentials per source and quantile, whatever g costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np

from freshopt.errors import FreshoptError
from freshopt.numerics.arrays import Array, IntArray

# t -> g, g', g''
Density: TypeAlias = Callable[[Array], tuple[Array, Array, Array]]

# Points of the rule: exact for the polynomial's first 15 powers.
POINTS = 8
# Bisection alone would need as many steps; most seen: 7.
STEPS = 60
# Steps below this width, in cells, end the search.
SETTLED = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class GridQuantiles:
    """Densities e^{g(t)} of n sources, integrated between nodes.

    Attributes
    ----------
    left, width : ndarray of float, shape (n,)
        The first node, and the distance of neighbours.
    cells : ndarray of float, shape (n, nodes−1, 6)
        Coefficients of g − max g in each cell, in u from 0 to 1, constant first.
    below : ndarray of float, shape (n, nodes)
        The mass below each node, 1 in all.
    total : ndarray of float, shape (n,)
        What the masses were divided by, per unit of t.
    fall : ndarray of float, shape (n,)
        g' at the first node, > 0.

    Examples
    --------
    ln X of a Gamma(3) variable X, whose median is 2.6741.

    >>> density = lambda t: (3 * t - np.exp(t), 3 - np.exp(t), -np.exp(t))
    >>> quantiles = GridQuantiles.of(density, np.array([-4.0]), np.array([4.0]), nodes=15)
    >>> np.exp(quantiles.at(np.array([0.5]))).round(4)
    array([2.6741])
    """

    left: Array
    width: Array
    cells: Array
    below: Array
    total: Array
    fall: Array

    @classmethod
    def of(cls, density: Density, left: Array, right: Array, nodes: int) -> GridQuantiles:
        """Evaluate g on equidistant nodes of each source.

        They run from `left` to `right`.
        """
        width = (right - left) / (nodes - 1)
        known = [density(left + k * width) for k in range(nodes)]
        g, slope, curve = (np.stack([each[i] for each in known], axis=1) for i in range(3))
        cells = _hermite(
            g - np.max(g, axis=1, keepdims=True), slope * width[:, None], curve * width[:, None] ** 2
        )
        masses = _integral(cells, np.ones(cells.shape[:2]))
        fall = slope[:, 0]
        tail = np.exp(cells[:, 0, 0]) / (fall * width)
        total = tail + masses.sum(axis=1)
        below = np.cumsum(np.concatenate([tail[:, None], masses], axis=1), axis=1) / total[:, None]
        return cls(left, width, cells, below, total, fall)

    def at(self, probability: Array) -> Array:
        """Return the quantiles t, P(T ≤ t) = probability.

        Their shape is that of `probability`, (n,) or (k, n).

        Raises
        ------
        FreshoptError
            If the search does not settle.
        """
        row = np.arange(len(self.left))
        cell = np.minimum((self.below <= probability[..., None]).sum(axis=-1), self.below.shape[1] - 1) - 1
        inside = np.maximum(cell, 0)
        u = self._within(self.cells[row, inside], (probability - self.below[row, inside]) * self.total)
        with np.errstate(divide="ignore", over="ignore"):  # used left of the first node alone
            tail = np.log(probability / self.below[:, 0]) / self.fall
        t: Array = self.left + np.where(cell < 0, tail, (inside + u) * self.width)
        return t

    def _within(self, cells: Array, mass: Array) -> Array:
        """Return where in its cell each source has a mass.

        That is the mass to the left; Newton's iteration, kept inside.
        """
        low, high = np.zeros(mass.shape), np.ones(mass.shape)
        u = np.full(mass.shape, 0.5)
        for _ in range(STEPS):
            excess = _integral(cells, u) - mass
            low, high = np.where(excess < 0, u, low), np.where(excess < 0, high, u)
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                after = u - excess / np.exp(_value(cells, u))
            after = np.where((after > low) & (after < high), after, 0.5 * (low + high))
            moved, u = np.abs(after - u), after
            if np.all(moved <= SETTLED):
                # One step more, so that the last digits do not depend on when the others settled.
                last: Array = u - (_integral(cells, u) - mass) / np.exp(_value(cells, u))
                return last
        raise FreshoptError(f"quantiles did not settle in {STEPS} steps. Report the gaps of the log.")


def _hermite(g: Array, slope: Array, curve: Array) -> Array:
    """Return the coefficients of the quintic Hermite interpolant per cell.

    The six coefficients are those of the polynomial with these values and derivatives in u.
    """
    g0, s0, c0 = g[:, :-1], slope[:, :-1], 0.5 * curve[:, :-1]
    rise = g[:, 1:] - g0 - s0 - c0
    turn = slope[:, 1:] - s0 - 2.0 * c0
    bend = 0.5 * curve[:, 1:] - c0
    third = 10.0 * rise - 4.0 * turn + bend
    fourth = -15.0 * rise + 7.0 * turn - 2.0 * bend
    fifth = 6.0 * rise - 3.0 * turn + bend
    return np.stack([g0, s0, c0, third, fourth, fifth], axis=-1)


def _value(cells: Array, u: Array) -> Array:
    value = cells[..., 5]
    for k in range(4, -1, -1):
        value = value * u + cells[..., k]
    return value


def _integral(cells: Array, u: Array) -> Array:
    """Return the integral of e^g from 0 to u in each cell."""
    total = np.zeros(u.shape)
    for point, weight in zip(*quadrature_rule(), strict=True):
        total += weight * np.exp(_value(cells, point * u))
    integral: Array = u * total
    return integral


@cache
def quadrature_rule() -> tuple[Array, Array]:
    """Return places and weights of the rule on the unit interval."""
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    return 0.5 * (1.0 + points), 0.5 * weights


def modes(density: Density, t: Array, steps: int, leap: float) -> tuple[Array, Array, IntArray]:
    """Return each density's mode and standard deviation nearby.

    The mode is where g' = 0, the standard deviation 1/√(−g'') there; the third result says which sources have
    neither.
    Newton's iteration, with steps no longer than `leap`. A source that does not settle has no clear mode.
    One that has settled stays where it is, however long others take.
    """
    move = np.full(t.shape, leap)
    for _ in range(steps):
        moving = np.abs(move) >= 1e-3
        if not moving.any():
            break
        _, slope, curve = density(t)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(curve < 0, -slope / curve, np.sign(slope) * leap)
        move = np.where(moving, np.clip(step, -leap, leap), move)
        t = np.where(moving, t + move, t)
    _, _, curve = density(t)
    unclear = ~(curve < 0) | ~(np.abs(move) < 1e-2)
    return t, 1.0 / np.sqrt(np.where(unclear, 1.0, -curve)), np.flatnonzero(unclear)
