"""Terms of a duality gap: of sources and of limits, rounding included.

A source at rate ρ that pays ν per unit of rate has the convex Lagrangian φ, with φ' = ν − f' for its marginal
value f'. Its share of a duality gap is φ(ρ) − min φ, and two bounds on it are known once ρ̂ lies at the
minimiser or beyond: best responses are pushed away from ρ until φ' has crossed 0 or a bound of the rate is
reached.

  - The tangent's at ρ: |φ'(ρ)|·|ρ − ρ̂|. Nothing cancels in it, so that it is exact where rates are.
  - The dual function's: φ(ρ) − φ(ρ̂) + |φ'(ρ̂)|·|ρ − ρ̂|, the last term being what ρ̂ may lie beyond the
    minimiser. It is the share itself but for rounding of the costs, which is added; tangents overstate it by
    a factor of 2 where rates are near, and of any size where a marginal value falls by orders of magnitude.

The smaller one counts, source by source. A best response so near that rounding decides, as of exact rates,
has a negligible tangent's bound, and costs are evaluated for the other sources alone.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, Index, IntArray
from freshopt.separable.tangents import OF_RATES, cost_rounding

# Rounding leaves exact rates a gap of about this share of what the sources pay.
NEGLIGIBLE = 1e-16
# Up to this share of what the sources pay a gap may be overstated, eightfold.
ALLOTTED = 1e-12
# So much of it, where marginal values are so dear that one has to do.
BESIDE = 1e-11
# Nearer to the rate than this share of it, steps outwards grow eightfold.
PUSH = 1e-6
SEVERAL_ULP = 8 * np.finfo(float).eps
# The first push beyond a best response adds this share of the step, each further one 64 times as much.
NUDGE = 4e-15
# What a limit's sources use, products and sum, is right to six half-ulps of it.
ROUNDED = 3.0 * float(np.finfo(np.float64).eps)
# Relative error of a tangent's terms and of their sum, which are all positive.
INFLATION = 1.0 + 2.0**-46
# So many steps lead from 8 ulp to 1e12 times the rate; then the bound itself is taken.
_PUSHES = 80


class Marginals(Protocol):
    """Protocol of what a source's term takes.

    It is a part of `Numerics`, which a `Lagrangian` has too.
    """

    def cost(self, rates: Array, /) -> Array:
        """Return each source's cost, shape (n,)."""

    def marginal(self, rates: Array, /) -> Array:
        """Return each source's marginal value, shape (n,)."""

    def inverse_marginal(self, price: Array, /) -> Array:
        """Return the rates at which the marginal falls to a price."""

    def take(self, index: Index, /) -> Marginals:
        """Return the same of some of the sources."""


def limit_term(price: float, slack: float, size: float) -> float:
    """Return what a limit adds: its slack and rounding, priced.

    The slack is ≥ 0; `size` is of what it is a difference of: the limit, and all that its sources add up.
    """
    return price * (slack + ROUNDED * size) if price > 0.0 else 0.0


def limit_terms(prices: Array, slack: Array, size: Array) -> Array:
    """Return the same of many limits."""
    return np.multiply(prices, slack + ROUNDED * size, out=np.zeros(len(prices)), where=prices > 0.0)


def source_terms(
    numerics: Marginals,
    rates: Array,
    slope: Array,
    paid: Array,
    size: Array,
    lower: Array,
    upper: Array,
    typical: Array,
    most: Array | None = None,
) -> Array:
    """Return the sources' shares of a gap, the smaller of both bounds.

    - `rates`, `slope`, `paid` (n,): ρ, f'(ρ) and ν.
    - `size` (n,): ≥ 0, of the terms that cancel in φ'(ρ).
    - `lower`, `upper`, `typical` (n,)
    - `most` (n,): Rates beyond which no limit lets a source go. They bound ρ̂ where a constant marginal is
      the price but for rounding.
    """
    excess = slope - paid
    step, short = nearby_steps(numerics, rates, paid, size, excess, lower, upper)
    if not len(short):
        return gap_terms(step, np.abs(excess, out=excess))
    few, own, nu, rising = numerics.take(short), rates[short], paid[short], excess[short] > 0.0
    room = np.abs(np.where(rising, upper[short], lower[short]) - own)
    if most is not None:
        exact = rising & (excess[short] <= ALLOTTED * nu)
        room = np.where(exact, np.minimum(room, most[short]), room)
    far = crossing_steps(few, own, nu, rising, room, typical[short])
    there = np.clip(np.where(rising, own + far, own - far), lower[short], upper[short])
    step[short] = far
    terms = gap_terms(step, np.abs(excess, out=excess))
    terms[short] = np.fmin(terms[short], _dual_terms(few, own, slope[short], nu, there))
    return terms


def beside_terms(
    numerics: Marginals,
    rates: Array,
    slope: Array,
    paid: Array,
    lower: Array,
    upper: Array,
    typical: Array,
) -> Array:
    """Return the shares of rates right to 1e-6, by one more marginal.

    They are overstated up to `BESIDE`; other rates' are those of `source_terms`.
    """
    excess = slope - paid
    step, settled = _near(numerics, rates, paid, paid, excess, lower, upper, BESIDE)
    terms, far = gap_terms(step, np.abs(excess)), np.flatnonzero(~settled)
    if len(far):
        few, nu = numerics.take(far), paid[far]
        own = rates[far], slope[far], nu, nu, lower[far], upper[far], typical[far]
        terms[far] = source_terms(few, *own)
    return terms


def _dual_terms(numerics: Marginals, rates: Array, slope: Array, paid: Array, there: Array) -> Array:
    """Return φ(ρ) − min φ by costs; inf where they tell nothing."""
    cost, cost_there, slope_there = numerics.cost(rates), numerics.cost(there), numerics.marginal(there)
    moved = there - rates
    beyond = np.maximum(0.0, (paid - slope_there) * moved)
    # A rate of 0 is exact, and its slope may be infinite.
    at = np.where(rates > 0.0, (np.abs(slope) + np.abs(paid)) * rates, 0.0)
    of_rates = at + (np.abs(slope_there) + np.abs(paid)) * there
    rounding = cost_rounding(numerics, rates, cost) + cost_rounding(numerics, there, cost_there)
    found = (cost - cost_there) - paid * moved + beyond + (rounding + OF_RATES * of_rates)
    # A convex φ does not fall from ρ to its minimiser and beyond by less than nothing.
    return np.where(found >= 0.0, found, np.inf)


def nearby_steps(
    numerics: Marginals, rates: Array, paid: Array, size: Array, excess: Array, lower: Array, upper: Array
) -> tuple[Array, IntArray]:
    """Return steps to best responses near the rates.

    Where the marginal is ν but for rounding, ρ̂ may lie far beyond the crossing and the term is still
    negligible. So a small multiple of NEGLIGIBLE·size·ρ is allotted to each source first, which says how far
    it may go. An exact answer thus costs one evaluation of the marginals.

    - `rates`, `paid` (n,): ρ and ν.
    - `size` (n,): ≥ 0, of the terms that cancel in φ'(ρ).
    - `excess` (n,): −φ'(ρ).
    - `lower`, `upper` (n,)
    - returns `step` (n,)
    - returns `short`: Sources whose best response is farther: their steps are not known.
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
    """Return step·off, with 0·inf = 0."""
    terms = step * off * INFLATION
    unknown = np.isnan(terms)
    if bool(np.any(unknown)):
        terms[unknown & ((off == 0.0) | (step == 0.0))] = 0.0
    return terms
