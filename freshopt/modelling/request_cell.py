"""Cost, marginal and inverse marginal of copies that are refreshed on request.

A cache fetches a source anew when a request finds its copy older than a lifetime T. Requests are a Poisson
process of rate ζ, so that the copy lies expired for 1/ζ on average, and refreshes come at

    ρ = 1/(T + 1/ζ) ≤ ζ,    T = 1/ρ − 1/ζ.

The request that fetches sees a fresh copy; the others arrive at uniform ages below T. With the cost curve c
of age and C(T) = ∫₀ᵀ c, what a request costs on average is C(T)/(T + 1/ζ), the periodic cell shifted:

    J(ρ) = ρ·C(T) = (1 − ρ/ζ)·J_periodic(ρ/(1 − ρ/ζ)),    −J'(ρ) = V(T) + c(T)/ζ,

with V the periodic marginal (the curve's index). J is the perspective of a convex function at an affine
point, hence convex.

**Stale while revalidate.** With a window σ, a request that finds the copy expired by x ≤ σ is served it as it
is, at age T + x, and has it fetched; x is exponential of rate ζ. Then

    J(ρ) = ρ·G(T),  G(T) = C(T) + ∫₀^σ e^{−ζx} c(T + x) dx,  −J'(ρ) = (T + 1/ζ)·G'(T) − G(T).

With the rise R = ∫₀^σ e^{−ζx}(c(T + x) − c(T)) dx and D = e^{−ζσ}(c(T + σ) − c(T)) + ζR ≥ 0, by parts,

    J(ρ) = (1 − ρ/ζ)·C(T)/T + ρ·(c(T)(1 − e^{−ζσ})/ζ + R),    −J'(ρ) = V(T) + T·D + e^{−ζσ} c(T + σ)/ζ,

sums of terms ≥ 0. −J' rises with T, as G is convex, and J is convex. At ρ = ζ neither is 0.

**Average over time.** Requests see time averages, but those that fetch see what they have fetched. Were all
of them served the copy as it is, σ = ∞, they would see the average over time, of any window: the copy ages in
the same way.

Cost: the inverse marginal takes a dozen evaluations of the curve, or some 70 where it bends sharply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freshopt.numerics.arrays import Array, Formula
from freshopt.numerics.bracketed_roots import FallingRatio
from freshopt.numerics.request_windows import discounted

if TYPE_CHECKING:
    from freshopt.modelling.cost_curve import Cell

# Lifetimes beyond, in any time unit, are taken for infinite, and below the inverse of it for 0.
LONGEST = 1e250


@dataclass(frozen=True, slots=True, eq=False)
class RequestForms:
    """What a curve says about refreshes on request, besides its own formulas.

    - `cell`, `windowed`: What loops and proofs of many sources are made of, with ζ as the last parameter; and
      with a window, σ after it. Otherwise the formulas here are used.
    - `rise`: ``(T, *parameters, ζ, σ)``: R = ∫₀^σ e^{−ζx}(c(T + x) − c(T)) dx, also for σ = inf. None refuses
      windows.
    - `kept`: ``(T, *parameters, ζ, σ)``: ∫₀^σ e^{−ζx}(1 − c(T + x)) dx of a curve with a mean gain.
    """

    cell: Cell | None = None
    windowed: Cell | None = None
    rise: Formula | None = None
    kept: Formula | None = None


def lifetimes(rate: Array, request_rate: Array) -> Array:
    """Return T = 1/ρ − 1/ζ ≥ 0; infinite at rate 0.

    Examples
    --------
    >>> lifetimes(np.array([0.25, 0.5, 0.0]), np.array([0.5, 0.5, 0.5]))
    array([ 2.,  0., inf])
    """
    with np.errstate(divide="ignore", over="ignore"):
        # ζ − ρ is exact where it is small; the difference of the reciprocals is not.
        return np.maximum(request_rate - rate, 0.0) / request_rate / rate


@dataclass(frozen=True, slots=True)
class RequestCost:
    """Expected cost of a request at a rate.

    (1 − ρ/ζ)·(mean cost over the lifetime), and what the window adds.
    """

    mean: Formula
    at: Formula
    rise: Formula | None = None

    def __call__(self, rate: Array, *parameters: Array) -> Array:
        """Return the cost of a request."""
        own, asked, window = _split(parameters, self.rise is not None)
        life = lifetimes(rate, asked)
        with np.errstate(all="ignore"):
            within = np.maximum(asked - rate, 0.0) / asked
            cost = np.where(life > 0.0, within * self.mean(np.where(life > 0.0, life, 1.0), *own), 0.0)
            if self.rise is None:
                return cost
            late = self.at(life, *own) * discounted(asked, window) + self.rise(life, *own, asked, window)
            return np.where(rate > 0.0, cost + np.minimum(rate, asked) * late, cost)


@dataclass(frozen=True, slots=True)
class RequestGain:
    """1 − J(ρ), in a form that does not cancel."""

    mean_gain: Formula
    kept: Formula | None = None

    def __call__(self, rate: Array, *parameters: Array) -> Array:
        """Return the gain of a request."""
        own, asked, window = _split(parameters, self.kept is not None)
        life = lifetimes(rate, asked)
        with np.errstate(all="ignore"):
            within = np.maximum(asked - rate, 0.0) / asked
            stored = within * self.mean_gain(np.where(life > 0.0, life, 1.0), *own)
            stored = np.where(life > 0.0, stored, 0.0)
            fetched = np.minimum(rate / asked, 1.0)
            if self.kept is None:
                return fetched + stored
            late = np.minimum(rate, asked) * self.kept(life, *own, asked, window)
            return np.where(rate > 0.0, fetched * np.exp(-asked * window) + late + stored, stored)


@dataclass(frozen=True, slots=True)
class RequestMarginal:
    """Marginal value of a rate.

    V(T) + c(T)/ζ, and with a window V(T) + T·D + e^{−ζσ}c(T + σ)/ζ. Without a window it is 0 from ρ = ζ on.
    """

    at: Formula
    index: Formula
    rise: Formula | None = None

    def __call__(self, rate: Array, *parameters: Array) -> Array:
        """Return the marginal value of a rate."""
        own, asked, window = _split(parameters, self.rise is not None)
        return self.of_lifetime(lifetimes(rate, asked), own, asked, window)

    def of_lifetime(self, life: Array, own: tuple[Array, ...], asked: Array, window: Array) -> Array:
        """Return the marginal value at a lifetime."""
        some = np.where(life > 0.0, life, 1.0)
        with np.errstate(all="ignore"):
            value = np.where(life > 0.0, self.index(some, *own), 0.0)
            here = self.at(life, *own)
            if self.rise is None:
                return np.where(life > 0.0, value + here / asked, 0.0)
            left = np.exp(-asked * window)
            there = np.where(left > 0.0, self.at(life + window, *own), here)
            bend = left * (there - here) + asked * self.rise(life, *own, asked, window)
            bend = np.where((life > 0.0) & (bend > 0.0), life * bend, 0.0)
            return value + bend + left * there / asked


@dataclass(frozen=True, slots=True)
class RequestInverse:
    """Rate at which the marginal value is the price, or 0.

    The lifetime lies below V^{-1}(price), since the other terms are ≥ 0. It is searched in its logarithm.
    """

    marginal: RequestMarginal
    inverse_index: Formula

    def __call__(self, price: Array, *parameters: Array) -> Array:
        """Return the best response to a price."""
        own, asked, window = _split(parameters, self.marginal.rise is not None)
        every = np.broadcast_to(price, np.shape(asked)) if np.ndim(price) == 0 else price
        with np.errstate(all="ignore"):
            most = np.minimum(self.inverse_index(every, *own), LONGEST)
        most = np.maximum(most, 1.0 / LONGEST)

        def ratio(life: Array, price: Array, asked: Array, window: Array, *own: Array) -> Array:
            return price / self.marginal.of_lifetime(life, own, asked, window)

        # The marginal value rises with T, up to `most`.
        sought = FallingRatio(ratio, most, (every, asked, window, *own))
        life = sought.solved(np.full(np.shape(most), -1.0), np.zeros(np.shape(most)))
        life = np.where((life < np.inf) | (most >= LONGEST), life, most)
        with np.errstate(over="ignore"):
            return asked / (1.0 + asked * life)


def _split(parameters: tuple[Array, ...], windowed: bool) -> tuple[tuple[Array, ...], Array, Array]:
    """Return a curve's own parameters, request rates and windows."""
    if windowed:
        return parameters[:-2], parameters[-2], parameters[-1]
    return parameters[:-1], parameters[-1], np.broadcast_to(0.0, np.shape(parameters[-1]))
