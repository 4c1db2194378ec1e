"""`GapCosts`: what gaps between refreshes cost, from the cost of a rate.

Periodic refreshes at rate ρ cost J(ρ) = ρ·C(1/ρ), the mean of a cost of age c over a gap: with C(τ) = ∫₀^τ c,

    C(τ) = τ·J(1/τ),    c(τ) = C'(τ) = J(ρ) − ρ·J'(ρ) at ρ = 1/τ.

J is convex just where c does not fall, since C is the perspective of J. What a refresh costs itself, the
slope of J at infinite rates, is C(0): each gap has it, whatever its length. Under Poisson refreshes J is a
Laplace transform of c, which no values of J at floats give back.

Attempts at equal gaps, of which each succeeds with chance s, follow from C as for every other curve
(`freshopt.modelling.fetches.attempt_cell`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from freshopt.modelling.cost_curve import Cell, Curve
from freshopt.modelling.fetches.attempt_cell import attempt_kernel
from freshopt.numerics.arrays import LARGEST, Array, Index
from freshopt.separable.kernel import Kernel, Numerics

# A slope that still rises by more than this from 1e90 to 1e100 has no limit: that of ρ·log ρ rises by 0.11.
STEADY = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class GapCosts:
    """Costs of gaps of each source, importance included."""

    numerics: Numerics

    def gap_cost(self, gap: Array) -> Array:
        """Return C(τ) of gaps, C(0) being what a refresh costs itself."""
        length = np.maximum(gap, 1.0 / LARGEST)
        with np.errstate(all="ignore"):
            return length * self.numerics.cost(1.0 / length)

    def take(self, index: Index) -> GapCosts:
        """Return the costs of some of the sources."""
        return GapCosts(self.numerics.take(index))

    def refused(self, n: int) -> str | None:
        """Return why short gaps have no cost, or None."""
        with np.errstate(all="ignore"):
            far, farther = (-self.numerics.marginal(np.full(n, rate)) for rate in (1e-10 * LARGEST, LARGEST))
        if not bool(np.all(np.isfinite(self.gap_cost(np.zeros(n))) & np.isfinite(farther))):
            return "its cost is not finite at high rates"
        if bool(np.any(farther > np.maximum(far + STEADY * np.abs(far), 0.0))):
            return "its cost grows faster than the rate"
        return None


def as_kernel(numerics: Numerics, n: int) -> Kernel:
    """Return numerics of n sources, importance included, as a kernel."""
    parts = (
        _OfPlace(numerics, "cost"),
        _OfPlace(numerics, "marginal"),
        _OfPlace(numerics, "inverse_marginal"),
    )
    return Kernel(np.ones(n), (np.arange(float(n)),), *parts)


def derived_attempts(numerics: Numerics, success: Array) -> Kernel:
    """Return the numerics of periodic attempts that succeed with these chances."""
    own = as_kernel(numerics, len(success))
    cell = Cell.of(own)
    # Mean and index at a period are cost and marginal at its rate; the cell alone is asked here.
    # What is declared may be sharp where it is smooth: each term is summed.
    curve = Curve(own.parameters, cell.cost, cell.cost, cell.marginal, cell.inverse, rate_at=None)
    return attempt_kernel(own.importance, curve, cell, success)


@dataclass(frozen=True, slots=True, eq=False)
class _OfPlace:
    """Numerics as a formula whose parameter is a source's position."""

    numerics: Numerics
    part: Literal["cost", "marginal", "inverse_marginal"]

    def __call__(self, at: Array, *parameters: Array) -> Array:
        """Return its value for the sources at these positions."""
        given, place = np.broadcast_arrays(at, parameters[0])
        own = self.numerics.take(place.ravel().astype(np.int64))
        found: Array = getattr(own, self.part)(given.ravel())
        return found.reshape(given.shape)
