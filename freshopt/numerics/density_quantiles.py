"""`GridQuantiles`: quantiles of smooth densities by piecewise Hermite interpolation.

The logarithm g of a density is known at some nodes with two derivatives; between neighbours it is drawn as
the polynomial of fifth degree that agrees with all six numbers, and e^g is integrated by Gauss and Legendre's
rule. Left of its first node the density of the logarithm of a rate falls exponentially. With nodes 1.4
standard deviations apart quantiles come out to about 1e-6 of themselves. Compiled loops take the formulas of
one density from here.

Cost: one evaluation of g per node; then about 100 exponentials per source and quantile, whatever g costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from freshopt.errors import FreshoptError
from freshopt.numerics.arrays import Array, IntArray
from freshopt.numerics.scalar_source import Numbers, everywhere, exp, select

# t -> g, g', g''
Density: TypeAlias = Callable[[Array], tuple[Array, Array, Array]]

# Gauss and Legendre's rule on (−1, 1), exact for the polynomial's first 15 powers: places > 0, and weights.
_PLACES = np.array([0.1834346424956498, 0.5255324099163290, 0.7966664774136267, 0.9602898564975362])
_WEIGHTS = np.array([0.3626837833783620, 0.3137066458778873, 0.2223810344533745, 0.1012285362903763])
# The same on the unit interval.
PLACES = 0.5 * (1.0 + np.concatenate([-_PLACES[::-1], _PLACES]))
WEIGHTS = 0.5 * np.concatenate([_WEIGHTS[::-1], _WEIGHTS])
POINTS = len(PLACES)
# Bisection alone would need as many steps; most seen: 7.
STEPS = 60
# Step in cells after which one more is exact.
SETTLED = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class GridQuantiles:
    """Densities e^{g(t)} of n sources, integrated between nodes.

    - `left`, `width` (n,): The first node, and the distance of neighbours.
    - `cells` (6, n, nodes−1): Coefficients of g − max g in each cell, in u from 0 to 1, constant first.
    - `below` (n, nodes): The mass below each node, 1 in all.
    - `total` (n,): What the masses were divided by, per unit of t.
    - `fall` (n,): g' at the first node, > 0.

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
        """Evaluate g on each source's equidistant nodes, `left` to `right`."""
        width = (right - left) / (nodes - 1)
        known = [density(left + k * width) for k in range(nodes)]
        g, slope, curve = (np.stack([each[i] for each in known], axis=1) for i in range(3))
        g, apart = g - np.max(g, axis=1, keepdims=True), width[:, None]
        near, far = slice(-1), slice(1, None)
        begin, end = ((g[:, at], slope[:, at], curve[:, at]) for at in (near, far))
        cells = np.stack(quintic(*begin, *end, apart))
        fall = slope[:, 0]
        tail = np.exp(g[:, 0]) / (fall * width)
        masses = np.concatenate([tail[:, None], integral(cells, np.ones(cells.shape[1:]))], axis=1)
        below = np.cumsum(masses, axis=1)
        total = below[:, -1].copy()
        return cls(left, width, cells, below / total[:, None], total, fall)

    def at(self, probability: Array) -> Array:
        """Return the quantiles t, P(T ≤ t) = probability.

        Their shape is that of `probability`, (n,) or (k, n).

        - raises FreshoptError if the search does not settle.
        """
        row = np.arange(len(self.left))
        cell = np.minimum((self.below <= probability[..., None]).sum(axis=-1), self.below.shape[1] - 1) - 1
        inside = np.maximum(cell, 0)
        mass, whole = (
            (each - self.below[row, inside]) * self.total
            for each in (probability, self.below[row, inside + 1])
        )
        # Left of the first node a cell has a negative mass, and is not asked for.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            u = within(self.cells[:, row, inside], mass, whole)
            tail = np.log(probability / self.below[:, 0]) / self.fall
        if np.any(np.isnan(u)):
            raise FreshoptError(f"quantiles did not settle in {STEPS} steps. Report the gaps of the log.")
        t: Array = self.left + np.where(cell < 0, tail, (inside + u) * self.width)
        return t


def quintic(
    g0: Numbers, s0: Numbers, c0: Numbers, g1: Numbers, s1: Numbers, c1: Numbers, width: Numbers
) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers, Numbers]:
    """Return the coefficients of the quintic Hermite interpolant of a cell.

    In u from 0 to 1; it has these values and two derivatives in t at both ends.
    """
    s0, c0 = s0 * width, 0.5 * c0 * width * width
    rise = g1 - g0 - s0 - c0
    turn = s1 * width - s0 - 2.0 * c0
    bend = 0.5 * c1 * width * width - c0
    third = 10.0 * rise - 4.0 * turn + bend
    fourth = -15.0 * rise + 7.0 * turn - 2.0 * bend
    fifth = 6.0 * rise - 3.0 * turn + bend
    return g0, s0, c0, third, fourth, fifth


def polynomial(c: Array, u: Numbers) -> Numbers:
    """Return a polynomial of fifth degree."""
    return c[0] + u * (c[1] + u * (c[2] + u * (c[3] + u * (c[4] + u * c[5]))))


def integral(c: Array, u: Numbers) -> Numbers:
    """Return the integral of a polynomial's exponential from 0 to u."""
    total = 0.0 * u
    for p in range(POINTS):
        total = total + WEIGHTS[p] * exp(polynomial(c, PLACES[p] * u))
    return u * total


def within(c: Array, mass: Numbers, whole: Numbers) -> Numbers:
    """Return where a cell has a mass on its left, or NaN."""
    low, high = 0.0 * whole, 0.0 * whole + 1.0
    u = np.minimum(np.maximum(mass / whole, 0.0), 1.0)
    for _ in range(STEPS):
        excess = integral(c, u) - mass
        low, high = select(excess < 0.0, u, low), select(excess < 0.0, high, u)
        after = u - excess / exp(polynomial(c, u))
        after = select((after >= low) & (after <= high), after, 0.5 * (low + high))
        moved, u = np.abs(after - u), after
        if everywhere(moved <= SETTLED):
            # One step more, so that the last digits do not depend on when the others settled.
            return u - (integral(c, u) - mass) / exp(polynomial(c, u))
    return np.nan * u


def modes(
    density: Density, t: Array, steps: int, step: Callable[[Array, Array], Array]
) -> tuple[Array, Array, IntArray]:
    """Return each density's mode and standard deviation nearby.

    The mode is where g' = 0, the standard deviation 1/√(−g'') there; the third result says which sources have
    neither. `step` makes one of g' and g''. A source that does not settle has no clear mode. One that has
    settled stays where it is, however long others take.
    """
    move = np.full(t.shape, np.inf)
    for _ in range(steps):
        moving = np.abs(move) >= 1e-3
        if not moving.any():
            break
        _, slope, curve = density(t)
        with np.errstate(divide="ignore", invalid="ignore"):
            move = np.where(moving, step(slope, curve), move)
        t = np.where(moving, t + move, t)
    _, _, curve = density(t)
    unclear = ~(curve < 0) | ~(np.abs(move) < 1e-2)
    return t, 1.0 / np.sqrt(np.where(unclear, 1.0, -curve)), np.flatnonzero(unclear)
