"""Affine steps of a tape: Σ cⱼ·vⱼ + a + b·ρ.

The sum runs over earlier results vⱼ, with constants evaluated when compiled. A declared expression is full of
signs, scalings and shifts. Each of them alone would be a pass over the sources (three, with slope and
curvature); gathered into one sum they cost one product per term whose coefficient is not ±1, and affine
functions of the rate cost no pass for their derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshopt.autodiff.jets import NOT_COMPUTED, ONE, ZERO, Jet, plus
from freshopt.numerics.arrays import Array

# Stands for a constant that is not there.
NONE = -1


class AffineSum(NamedTuple):
    """Sum being compiled: coefficients by slot, intercept a, slope b.

    Each is a scalar or of shape (n,).
    """

    terms: dict[int, Array]
    intercept: Array
    slope: Array

    @property
    def affine(self) -> bool:
        """Whether this is an affine function a + b·ρ of the rate."""
        return not self.terms


def is_number(value: Array, number: float) -> bool:
    """Return whether a constant is this one number for all sources."""
    return value.ndim == 0 and float(value) == number


def added(parts: Sequence[AffineSum]) -> AffineSum:
    """Return the sum of affine sums."""
    terms: dict[int, Array] = {}
    intercept, slope = ZERO, ZERO
    for part in parts:
        intercept, slope = plus(intercept, part.intercept), plus(slope, part.slope)
        for slot, coefficient in part.terms.items():
            terms[slot] = terms[slot] + coefficient if slot in terms else coefficient
    return AffineSum({k: c for k, c in terms.items() if not is_number(c, 0.0)}, intercept, slope)


def scaled(part: AffineSum, factor: Array) -> AffineSum:
    """Return the affine sum times a constant."""
    terms = {slot: _times(coefficient, factor) for slot, coefficient in part.terms.items()}
    kept = {slot: coefficient for slot, coefficient in terms.items() if not is_number(coefficient, 0.0)}
    return AffineSum(kept, _times(part.intercept, factor), _times(part.slope, factor))


def _times(a: Array, b: Array) -> Array:
    if is_number(a, 0.0) or is_number(b, 0.0):
        return ZERO
    if is_number(a, 1.0):
        return b
    return a if is_number(b, 1.0) else np.asarray(a * b)


class AffineTerm(NamedTuple):
    """One term of a compiled affine sum."""

    slot: int
    sign: int  # +1 or −1 where the coefficient is that number, else 0
    constant: int  # the coefficient's place among the constants, or NONE
    zeros: bool  # whether the coefficient is 0 for some sources


@dataclass(frozen=True, slots=True)
class Linear:
    """Compiled affine sum: one step of a tape.

    - `intercept`, `slope`: The places of a and b among the constants, or NONE.
    - `slope_zeros`: Whether b is 0 for some sources.
    """

    terms: tuple[AffineTerm, ...]
    intercept: int
    slope: int
    slope_zeros: bool

    @property
    def slots(self) -> tuple[int, ...]:
        """Slots of the earlier results used.

        The rate itself is always there.
        """
        return tuple(term.slot for term in self.terms)

    def run(self, jets: Sequence[Jet], constants: Sequence[Array], order: int, side: int) -> Jet:  # noqa: ARG002
        """Return the sum's jet."""
        value = self._sum([jets[term.slot].value for term in self.terms], constants)
        slope = (
            self._sum([jets[term.slot].slope for term in self.terms], constants) if order else NOT_COMPUTED
        )
        if self.slope != NONE:
            b = constants[self.slope]
            value = plus(value, jets[0].value if b is ONE else _weighted(b, jets[0].value, self.slope_zeros))
            slope = plus(slope, b)
        if self.intercept != NONE:
            value = plus(value, constants[self.intercept])
        if order < 2:
            return Jet(value, slope, NOT_COMPUTED)
        return Jet(value, slope, self._sum([jets[term.slot].curvature for term in self.terms], constants))

    def _sum(self, values: Sequence[Array], constants: Sequence[Array]) -> Array:
        total = ZERO
        for term, value in zip(self.terms, values, strict=True):
            if value is ZERO:
                continue
            if term.sign < 0:
                total = -value if total is ZERO else total - value
            else:
                weighted = value if term.sign else _weighted(constants[term.constant], value, term.zeros)
                total = plus(total, weighted)
        return total


def _weighted(coefficient: Array, value: Array, zeros: bool) -> Array:
    """Return the product, with 0 times infinity equal to 0."""
    if not zeros:
        return coefficient * value
    shape = np.broadcast_shapes(coefficient.shape, value.shape)
    return np.multiply(coefficient, value, out=np.zeros(shape), where=coefficient != 0.0)
