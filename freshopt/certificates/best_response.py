"""Distances from rates to best responses, outwards past rounding.

A source at rate ρ that pays ν per unit of rate has the convex Lagrangian φ, with φ' = ν − f' for its marginal
value f'. Its share of a duality gap is |φ'(ρ)|·|ρ − ρ̂|, which bounds φ(ρ) − min φ once ρ̂ lies at the
minimiser or beyond. So best responses are pushed away from ρ until φ' has crossed 0 or a bound of the rate is
reached.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, Index, IntArray

# Rounding leaves exact rates a gap of about this share of what the sources pay.
NEGLIGIBLE = 1e-16
# Up to this share of what the sources pay a gap may be overstated, eightfold.
ALLOTTED = 1e-12
# Nearer to the rate than this share of it, steps outwards grow eightfold.
PUSH = 1e-6
SEVERAL_ULP = 8 * np.finfo(float).eps
# The first push beyond a best response adds this share of the step, each further one 64 times as much.
NUDGE = 4e-15
# So many steps lead from 8 ulp to 1e12 times the rate; then the bound itself is taken.
_PUSHES = 80


class Marginals(Protocol):
    """Protocol of what a best response takes.

    It is a part of `Numerics`, which a `Lagrangian` has too.
    """

    def marginal(self, rates: Array, /) -> Array:
        """Return each source's marginal value, shape (n,)."""

    def inverse_marginal(self, price: Array, /) -> Array:
        """Return the rates at which the marginal falls to a price."""

    def take(self, index: Index, /) -> Marginals:
        """Return the same of some of the sources."""


def nearby_steps(
    numerics: Marginals, rates: Array, paid: Array, size: Array, excess: Array, lower: Array, upper: Array
) -> tuple[Array, IntArray]:
    """Return steps to best responses near the rates.

    Where the marginal is ν but for rounding, ρ̂ may lie far beyond the crossing and the term is still
    negligible. So a small multiple of NEGLIGIBLE·size·ρ is allotted to each source first, which says how far
    it may go. An exact answer thus costs one evaluation of the marginals.

    Parameters
    ----------
    numerics : Marginals
    rates, paid : ndarray, shape (n,)
        ρ and ν.
    size : ndarray, shape (n,)
        ≥ 0, of the terms that cancel in φ'(ρ).
    excess : ndarray, shape (n,)
        −φ'(ρ).
    lower, upper : ndarray, shape (n,)

    Returns
    -------
    step : ndarray, shape (n,)
    short : ndarray of int
        Sources whose best response is farther: their steps are not known.
    """
    step, settled = _near(numerics, rates, paid, size, excess, lower, upper, NEGLIGIBLE)
    short, allotted = np.flatnonzero(~settled), 8.0 * NEGLIGIBLE
    while len(short) and allotted <= ALLOTTED:
        own = (rates[short], paid[short], size[short], excess[short], lower[short], upper[short])
        near, settled = _near(numerics.take(short), *own, allotted)
        step[short[settled]] = near[settled]
        short, allotted = short[~settled], 8.0 * allotted
    return step, short


def _near(
    numerics: Marginals,
    rates: Array,
    paid: Array,
    size: Array,
    excess: Array,
    lower: Array,
    upper: Array,
    allotted: float,
) -> tuple[Array, BoolArray]:
    """Return a step outwards within an allotted share of the price paid.

    The second array says where it has crossed ν or met a bound.
    """
    near = np.fmax(allotted * size * rates / np.abs(excess), SEVERAL_ULP * rates)  # 0/0 says nothing
    reached = np.minimum(np.maximum(rates + np.copysign(near, excess), lower), upper)
    marginal = numerics.marginal(reached)
    rising = excess > 0.0
    settled = ((marginal <= paid) == rising) | (marginal == paid)
    settled |= (rising & (reached >= upper)) | (~rising & (reached <= lower))
    settled &= np.isfinite(reached)
    settled |= excess == 0.0
    return np.abs(reached - rates), settled


def crossing_steps(
    numerics: Marginals, rates: Array, paid: Array, rising: BoolArray, room: Array, typical: Array
) -> Array:
    """Return the distance from ρ to the best response ρ̂.

    The best response is the inverse marginal, pushed on past rounding until its marginal has crossed ν.
    """
    response = numerics.inverse_marginal(paid)
    # The inverse may have landed on ρ itself (a kink) or on its wrong side by rounding.
    step = np.where(rising, response - rates, rates - response)
    least = PUSH * np.maximum(rates, typical)
    step = np.where(step > 0.0, step, np.maximum(8.0 * np.spacing(rates), 1e-9 * least))
    step = np.minimum(step, room)
    for k in range(_PUSHES):
        marginal = numerics.marginal(np.where(rising, rates + step, rates - step))
        crossed = np.where(rising, marginal <= paid, marginal >= paid)
        short = (step < room) & ~crossed
        if not bool(np.any(short)):
            return step
        # An inverse that is short by rounding needs a negligible push, and the bound grows with the step.
        nudge = step * min(1.0, NUDGE * 64.0**k) + SEVERAL_ULP * rates
        further = step + np.where(step < least, 7.0 * step, np.minimum(step, nudge))
        step = np.where(short, np.minimum(further, room), step)
    return np.where(short, room, step)


def gap_terms(step: Array, off: Array) -> Array:
    """Return step·off, with 0·inf = 0.

    No marginal gain, or no room is left.
    """
    terms = step * off
    unknown = np.isnan(terms)
    if bool(np.any(unknown)):
        terms[unknown & ((off == 0.0) | (step == 0.0))] = 0.0
    return terms
