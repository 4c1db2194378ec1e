"""`ChangeShape`: when sources change, other than as a Poisson process.

The stale share c(u) of copies that are as old as u mean gaps between changes is non-decreasing and concave
for every stationary process: its slope is how likely a source that has just changed stays so for longer than
u. Bursts bend it early, regular changes late. A polygon is all there is to know of it for freshness and age:
with C = ∫c, D = ∫C, and for refreshes at equal gaps u,

    binary   mean C/u,  index V = uc − C,  V' = uc',
    age      mean D/u,  index V = uC − D,  V' = uc,

and under Poisson refreshes of x per mean gap J = ∫e^{−xu}c'(u) du of binary freshness, J/x of age.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from freshopt.errors import ObjectiveError, expect
from freshopt.heavy import special
from freshopt.modelling.cost_curve import Cell, Curve
from freshopt.numerics.arrays import LARGEST, ROUNDED, Array, IntArray
from freshopt.numerics.frozen_arrays import frozen_value

# Octaves of x = ρ/Δ and points in which Poisson refreshes are inverted, and chords, each of which leaves a
# hundredth of the error.
OCTAVES, POINTS, CHORDS = 40, 4096, 12
# Newton's steps of an age's gap, from the end of its piece: each squares the error.
STEPS = 12


@frozen_value(repr=False)
class ChangeShape:
    """Stale share of copies by age, in mean gaps between changes.

    - `ages` (K + 1,): u, from 0 on, ascending.
    - `shares` (K + 1,): c(u), from 0 on, concave, at most 1; beyond the last age it stays.
    - `evidence`: Nats by which sources that did not teach the shape prefer it to a Poisson process.
    - `lower`, `upper` (K + 1,): 90 % interval of the shares.
    - raises ObjectiveError if the shares are no such function.

    Examples
    --------
    Sources that change on the dot, once a day, at an unknown hour; crawled twice a day a copy is stale for a
    quarter of the time.

    >>> import freshopt as fo
    >>> daily = fo.problems.BinaryFreshness(changes=ChangeShape([0.0, 1.0], [0.0, 1.0]))
    >>> fo.solve(fo.Problem(daily, fo.Sources([1.0]), bandwidth=2.0)).value
    0.75
    """

    ages: Array
    shares: Array
    evidence: float = np.nan
    lower: Array | None = None
    upper: Array | None = None

    def __post_init__(self) -> None:
        u, c = (np.asarray(one, dtype=np.float64) for one in (self.ages, self.shares))
        object.__setattr__(self, "ages", u)
        object.__setattr__(self, "shares", c)
        known = u.ndim == 1 and u.shape == c.shape and len(u) > 1 and u[0] == c[0] == 0.0
        if not known or not np.all(np.diff(u) > 0.0) or not np.isfinite(u[-1]) or not c[-1] <= 1.0 + 1e-12:
            raise ObjectiveError(
                "ages and shares of ChangeShape must both begin at 0, ages rise, and shares end at 1 or "
                "below. Correct them."
            )
        slopes = np.diff(c) / np.diff(u)
        # Shares are right to their last bit, slopes to that of a share over a step.
        bent = np.append(np.diff(slopes) > ROUNDED / np.minimum(np.diff(u)[1:], np.diff(u)[:-1]), True)
        if not slopes[-1] >= 0.0 or np.any(bent[:-1]) or not slopes[0] > 0.0:
            raise ObjectiveError(
                "shares of ChangeShape do not rise ever more slowly at the age "
                f"{u[int(np.argmax(bent)) + 1]:.6g}: that is no stale share of a stationary process. Pass "
                "their concave hull."
            )

    def __repr__(self) -> str:
        half = float(np.interp(0.5, self.shares, self.ages)) if self.shares[-1] > 0.5 else np.inf
        told = "" if np.isnan(self.evidence) else f", {self.evidence:.1f} nats"
        return f"ChangeShape(half stale after {half:.3g} mean gaps{told})"

    @classmethod
    def poisson(cls, ages: Array) -> ChangeShape:
        """Return the polygon of c(u) = 1 − e^{−u} through ages."""
        return cls(ages, -np.expm1(-np.asarray(ages)))

    def slope(self, u: Array) -> Array:
        """Return c'(u)."""
        own = _polygon(self)
        return own.slopes[own.place(u)]

    def curve(self, change_rate: Array, order: int) -> Curve:
        """Return the cost curve of binary freshness (order 0) or age (1)."""
        own = _Scaled(_polygon(self), order)
        return Curve(
            (change_rate,),
            own.at,
            own.mean,
            own.index,
            own.inverse_index,
            Cell(
                own.poisson_cost, own.poisson_marginal, own.poisson_inverse, gain=None if order else own.gain
            ),
            mean_gain=None if order else own.mean_gain,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Polygon:
    """Knots of c, its slopes, and the integrals up to each knot."""

    u: Array
    c: Array
    slopes: Array
    first: Array
    second: Array
    index: tuple[Array, Array]
    table: tuple[Array, ...]

    @classmethod
    def of(cls, shape: ChangeShape) -> _Polygon:
        u, c = np.asarray(shape.ages), np.asarray(shape.shares)
        t, slopes = np.diff(u), np.diff(c) / np.diff(u)
        first = _summed(c[:-1] * t + 0.5 * slopes * t**2)
        second = _summed(first[:-1] * t + c[:-1] * t**2 / 2.0 + slopes * t**3 / 6.0)
        both = t * (u[1:] + u[:-1]) / 2.0
        index = (
            _summed(slopes * both),
            _summed(c[:-1] * both + slopes * t**2 * (2.0 * u[1:] + u[:-1]) / 6.0),
        )
        bare = cls(u, c, np.append(slopes, 0.0), first, second, index, (u, u, u, u))
        x = np.exp2(np.linspace(-OCTAVES, OCTAVES, POINTS))
        logs = [np.log(np.maximum(_laplace(bare, x, order)[1], 1e-300)) for order in (0, 1)]
        return cls(u, c, bare.slopes, first, second, index, (np.log(x), *logs, x))

    def place(self, u: Array) -> IntArray:
        """Return the piece of each age."""
        return np.maximum(np.searchsorted(self.u, u, side="right") - 1, 0)


def require_changes(changes: ChangeShape | None) -> None:
    """Raise TypeError unless a shape of changes is one."""
    expect(changes, (ChangeShape, type(None)), "changes", "Pass a ChangeShape, or None")


@lru_cache(maxsize=64)
def _polygon(shape: ChangeShape) -> _Polygon:
    return _Polygon.of(shape)


def _summed(parts: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(parts)])


def _laplace(polygon: _Polygon, x: Array, order: int) -> tuple[Array, Array]:
    """Return J and −dJ/dx under Poisson refreshes at x per mean gap."""
    u, g = polygon.u, polygon.slopes[:-1]
    cost, marginal = np.zeros(len(x)), np.zeros(len(x))
    before = np.zeros(len(x))
    for low, high, slope in zip(u[:-1], u[1:], g, strict=True):
        behind = special.gammainc(2.0, x * high)
        cost += slope * np.exp(-x * low) * -np.expm1(-x * (high - low))
        marginal += slope * (behind - before)
        before = behind
    cost, marginal = cost / x, marginal / x**2
    return (cost, marginal) if order == 0 else (cost / x, marginal / x + cost / x**2)


@dataclass(frozen=True, slots=True, eq=False)
class _Scaled:
    """The polygon's formulas at u = ds, over d^order."""

    polygon: _Polygon
    order: int

    def at(self, age: Array, d: Array) -> Array:
        own, u = self.polygon, d * age
        k = own.place(u)
        t = u - own.u[k]
        c = own.c[k] + own.slopes[k] * t
        return c if self.order == 0 else (own.first[k] + t * (own.c[k] + 0.5 * own.slopes[k] * t)) / d

    def mean(self, period: Array, d: Array) -> Array:
        own, u = self.polygon, np.minimum(d * period, LARGEST)
        k = own.place(u)
        t = u - own.u[k]
        c, g = own.c[k], own.slopes[k]
        if self.order == 0:
            return np.where(u > 0.0, (own.first[k] + t * (c + 0.5 * g * t)) / u, 0.0)
        found = (own.second[k] + t * (own.first[k] + t * (c / 2.0 + g * t / 6.0))) / u / d
        return np.where(u < LARGEST, np.where(u > 0.0, found, 0.0), np.inf)

    def mean_gain(self, period: Array, d: Array) -> Array:
        return 1.0 - self.mean(period, d)

    def index(self, period: Array, d: Array) -> Array:
        u = np.minimum(d * period, LARGEST)
        found = self._index(u, self.polygon.place(u))
        return found / d if self.order == 0 else found / d / d

    def inverse_index(self, value: Array, d: Array) -> Array:
        own = self.polygon
        v = value * d if self.order == 0 else value * d * d
        knots = own.index[self.order]
        k = np.maximum(np.searchsorted(knots, v, side="right") - 1, 0)
        last = len(knots) - 1
        if self.order == 0:
            u = np.sqrt(own.u[k] ** 2 + 2.0 * (v - knots[k]) / own.slopes[k])
            return np.where(v >= knots[-1], np.inf, u) / d
        beyond = np.sqrt(own.u[-1] ** 2 + 2.0 * np.maximum(v - knots[-1], 0.0) / own.c[-1])
        u = own.u[np.minimum(k + 1, last)]
        for _ in range(STEPS):
            here = np.minimum(k, last - 1)
            slope = u * (own.c[here] + own.slopes[here] * (u - own.u[here]))
            u = np.maximum(u - (self._index(u, here) - v) / slope, own.u[here])
        # From 0 on the index is a cube alone, which Newton's steps would take long to follow down.
        u = np.where(k == 0, np.cbrt(3.0 * v / own.slopes[0]), u)
        found: Array = np.where(k == last, beyond, u) / d
        return found

    def poisson_cost(self, rate: Array, d: Array) -> Array:
        found = _laplace(self.polygon, np.ravel(rate / d), self.order)[0].reshape(np.shape(rate / d))
        never = self.polygon.c[-1] if self.order == 0 else np.inf
        return np.where(rate > 0.0, found, never) / (1.0 if self.order == 0 else d)

    def gain(self, rate: Array, d: Array) -> Array:
        return 1.0 - self.poisson_cost(rate, d)

    def poisson_marginal(self, rate: Array, d: Array) -> Array:
        x = np.maximum(rate / d, 1e-12)
        found = _laplace(self.polygon, np.ravel(x), self.order)[1].reshape(np.shape(x))
        return found / d if self.order == 0 else found / d / d

    def poisson_inverse(self, price: Array, d: Array) -> Array:
        log_x, *logs, _ = self.polygon.table
        values = logs[self.order]
        q = np.asarray(price * d if self.order == 0 else price * d * d)
        log_q = np.log(q)
        log = np.interp(-log_q, -values, log_x)
        k = np.clip(np.searchsorted(-values, -log_q) - 1, 0, POINTS - 2)
        slope = np.minimum((values[k + 1] - values[k]) / (log_x[k + 1] - log_x[k]), -1e-12)
        low, high = log_x[k], log_x[k + 1]
        for _ in range(CHORDS):
            found = np.log(_laplace(self.polygon, np.exp(log).ravel(), self.order)[1].reshape(log.shape))
            log = np.clip(log + (log_q - found) / slope, low, high)
        return np.where(log_q >= values[0], 0.0, d * np.exp(log))

    def _index(self, u: Array, k: IntArray) -> Array:
        own = self.polygon
        t, g = u - own.u[k], own.slopes[k]
        both = t * (u + own.u[k]) / 2.0
        if self.order == 0:
            return own.index[0][k] + g * both
        bent: Any = own.index[1][k] + own.c[k] * both + g * t**2 * (2.0 * u + own.u[k]) / 6.0
        return np.asarray(bent)
