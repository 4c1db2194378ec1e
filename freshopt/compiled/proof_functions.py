"""Cost, marginal value and reach of one source.

A source at rate ρ that pays ν per unit of rate, with marginal value m = −w·J', adds at most |m − ν|·|ρ̂ − ρ|
to the duality gap, where m(ρ̂) = ν or ρ̂ is a bound (`freshopt.certificates.certificate`). Here |ρ̂ − ρ| is
bounded without ρ̂, from m(ρ) alone, so that a proof takes one evaluation; the term is the square of an
error.

**Reach.** If (ρ + s)·m(ρ) never rises, then |ρ̂ − ρ| ≤ (ρ + s)·|m − ν|/ν. Where m > ν, at ρ̂ > ρ still
m(ρ̂) ≥ ν, so (ρ̂ + s)·ν ≤ (ρ + s)·m, hence ρ̂ − ρ ≤ (ρ + s)(m − ν)/ν. Where m < ν, m(ρ̂) ≤ ν, so
(ρ̂ + s)·ν ≥ (ρ + s)·m, hence ρ − ρ̂ ≤ (ρ + s)(ν − m)/ν. The condition is the elasticity
−(ρ + s)·m'/m ≥ 1. With u = Δ/ρ, and P(2, u) = 1 − (1 + u)e^{−u}:

===================  ==========================  =====  ===============================================
cell                 m/w                         s      elasticity, and why it is at least 1
===================  ==========================  =====  ===============================================
harmonic, Poisson    Δ/(ρ(ρ + Δ))                0      1 + ρ/(ρ + Δ)
harmonic, periodic   (u − 1 + e^{−u})/Δ          0      u(1 − e^{−u})/(u − 1 + e^{−u}); (1 + u)e^{−u} ≤ 1
harmonic, signals    1/ρ                         0      1
log, periodic        (u − u²/(e^u − 1))/Δ        0      1 − f + uf/(1 − f), f = u/(e^u − 1); (1 − u)e^u ≤ 1
delay                Δ/ρ², Δ/(2ρ²)               0      2
power, no cap        C·ρ^{−e−1}                  0      1 + e
age, Poisson         Δ(2ρ + Δ)/(ρ(ρ + Δ))²       0      2 + 2ρ/(ρ + Δ) − 2ρ/(2ρ + Δ)
age, periodic        (u²/2 − P(2, u))/Δ²         0      u²(1 − e^{−u})/(u²/2 − P(2, u)); P(2, u) ≥ u²e^{−u}/2
age, signals         1/ρ²                        0      2
binary, Poisson      Δ/(ρ + Δ)²                  Δ      2
binary, signals      1/Δ                         ∞      linear: ρ̂ is a bound
===================  ==========================  =====  ===============================================

**Binary, periodic**: m = w·P(2, u)/Δ has no such s. With L(u) = −log(1 − P(2, u)) = u − log(1 + u),
q = νΔ/w and û = Δ/ρ̂, L(û) = −log(1 − q). L has an elasticity in u of at least 1, since
(1 + u)·log(1 + u) ≥ u, and L ≥ ℓ = u²/(2(1 + u)): both are 0 at 0, and L' − ℓ' = u²/(2(1 + u)²).
With δ = |P − q|/(1 − P):

  - P > q: L(u) − L(û) = log(1 + δ) ≤ δ and û/u ≥ L(û)/L(u), so ρ̂ − ρ ≤ ρ·x/(1 − x) for x = δ/ℓ < 1.
    In any case ρ̂ ≤ Δ/√(2q), since P(2, u) ≤ u²/2.
  - P < q: L(û) − L(u) = −log(1 − δ) ≤ 2δ for δ ≤ 1/2 and û/u ≤ L(û)/L(u), so ρ − ρ̂ ≤ 2ρδ/ℓ.
    In any case ρ − ρ̂ ≤ ρ.

**Powers with a cap** have the marginal value of a kink at all rates below it. A best response that is not 0
is beyond the kink, where marginal values fall as a power; seen from the kink it is at most κ·m/ν.

**Later than an age**: m = w·d·e^{−ρd}, so ρ̂ − ρ = log(m/ν)/d, which is at most (m − ν)/(d·ν), and ρ − ρ̂ at
most (ν − m)/(d·m), and ρ. What is added above ρ is the area between m and ν, at most (m − ν)/d, also for
ν = 0.

**Rounding.** |m − ν| is taken larger by `ROUNDING` of m + ν, more than formulas and prices lose, and by
`TINY` for what underflows. Factors are ordered so that all after one that may underflow are at most 2. As
terms are squares that costs nothing.

Functions are plain Python, and inlined by compiled loops; NaN and infinities end in a term that is neither
finite nor an answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from freshopt.compiled.cost_functions import harmonic_signal_cost, log_one_plus
from freshopt.compiled.proof_tables import (
    AGE_INDEX,
    GAMMA,
    HARMONIC_INDEX,
    HARMONIC_MEAN,
    LOG_INDEX,
    LOG_MEAN,
    gap_of,
    ratio_at,
)
from freshopt.numerics.vector_math import fast_exp, fast_log

# By how much at most a marginal value is off the price paid, and that; whether the best response may be above
# the rate, and below it.
Excess: TypeAlias = tuple[float, float, bool, bool]
# Unit cost, unit gain, marginal value, and the relative error of the latter.
Values: TypeAlias = tuple[float, float, float, float]
HALF_ULP = 2.0**-53
# The formulas lose up to 10 half-ulps, which a test measures, a price times a cost 3.
ROUNDING = 32.0 * HALF_ULP
# An exponential loses its argument's error, up to 2 ulp of each of five logarithms of 1e±100 and of a sum.
POWER_ROUNDING = 2.0**-40
# Beyond all that gradual underflow loses.
TINY = 1e-300


@dataclass(frozen=True, slots=True)
class ProofCell:
    """Values and reach of an objective under a discipline.

    - `values`: ``(rate, importance, *parameters)``: unit cost, unit gain, weighted marginal value, and how
      wrong the latter may be, relatively.
    - `reach`: ``(rate, importance, excess, *parameters)``: a bound on the distance to the best response.
    """

    values: Callable[..., Values]
    reach: Callable[..., float]


def harmonic_poisson(rate: float, w: float, d: float) -> Values:
    """Return log(1 + Δ/ρ) and w·Δ/(ρ(ρ + Δ)).

    Examples
    --------
    >>> [round(float(x), 6) for x in harmonic_poisson(1.0, 3.0, 1.0)[:3]]
    [0.693147, 0.0, 1.5]
    """
    cost = log_one_plus(d / rate)
    return cost if rate > 0.0 else np.inf, 0.0, (w / rate) * (d / (rate + d)), ROUNDING


def harmonic_periodic(rate: float, w: float, d: float) -> Values:
    """Return ∫₀¹ Ein(ut) dt and w·(u − 1 + e^{−u})/Δ."""
    u = gap_of(rate, d)
    share = d / (rate + d)
    cost = log_one_plus(d / rate) - share * ratio_at(HARMONIC_MEAN, u)
    marginal = (w / rate) * (d / (2.0 * rate + d)) * ratio_at(HARMONIC_INDEX, u)
    return cost if rate > 0.0 else np.inf, 0.0, marginal, ROUNDING


def log_periodic(rate: float, w: float, d: float) -> Values:
    """Return log(u/(1 − e^{−u})) and w·(u − u²/(e^u − 1))/Δ."""
    u = gap_of(rate, d)
    share = d / (rate + d)
    cost = log_one_plus(d / rate) - share * ratio_at(LOG_MEAN, u)
    marginal = (w / rate) * (d / (2.0 * rate + d)) * ratio_at(LOG_INDEX, u)
    return cost if rate > 0.0 else np.inf, 0.0, marginal, ROUNDING


def harmonic_signal(rate: float, w: float, d: float) -> Values:
    """Return −log(ρ/Δ) and w/ρ."""
    return harmonic_signal_cost(rate, d), 0.0, w / rate, ROUNDING


def binary_poisson(rate: float, w: float, d: float) -> Values:
    """Return Δ/(ρ + Δ), ρ/(ρ + Δ) and w·Δ/(ρ + Δ)²."""
    whole = rate + d
    stale = d / whole
    return stale, rate / whole, (w / whole) * stale, ROUNDING


def binary_periodic(rate: float, w: float, d: float) -> Values:
    """Return the stale share, the fresh one, and w·P(2, u)/Δ.

    The stale share is 1 − (1 − e^{−u})/u.
    """
    share, rest = d / (rate + d), rate / (rate + d)
    scaled = ratio_at(GAMMA, gap_of(rate, d)) * share
    # P(2, u)/u; and 1 − e^{−u} = (u + P(2, u))/(1 + u).
    part = scaled * rest
    fresh = rest * (1.0 + part)
    # What little is fresh leaves is right to the last bit.
    stale = share - rest * part if rest > 0.25 else 1.0 - fresh
    return stale, fresh, (w / d) * (scaled * share), ROUNDING


def binary_signal(rate: float, w: float, d: float) -> Values:
    """Return 1 − ρ/Δ, ρ/Δ and w/Δ."""
    share = rate / d
    fresh = share if share < 1.0 else 1.0
    return 1.0 - fresh, fresh, w / d, ROUNDING


def delay_poisson(rate: float, w: float, d: float) -> Values:
    """Return Δ/ρ and w·Δ/ρ²."""
    u = d / rate
    return u, 0.0, (w / rate) * u, ROUNDING


def delay_periodic(rate: float, w: float, d: float) -> Values:
    """Return Δ/2ρ and w·Δ/2ρ²."""
    u = d / rate
    return 0.5 * u, 0.0, (w / rate) * u * 0.5, ROUNDING


def delay_signal(rate: float, w: float, d: float) -> Values:
    """Return Δ/ρ − 1 and w·Δ/ρ²."""
    extra = (d - rate) / rate
    return extra if extra > 0.0 else 0.0, 0.0, (w / rate) * (d / rate), ROUNDING


def age_poisson(rate: float, w: float, d: float) -> Values:
    """Return Δ/(ρ(ρ + Δ)) and w·Δ(2ρ + Δ)/(ρ(ρ + Δ))²."""
    share = d / (rate + d)
    return share / rate, 0.0, (w / rate / rate) * share * ((2.0 * rate + d) / (rate + d)), ROUNDING


def age_periodic(rate: float, w: float, d: float) -> Values:
    """Return the mean age and w·(u²/2 − P(2, u))/Δ².

    The mean age is (u/2 − 1 + (1 − e^{−u})/u)/Δ.
    """
    ratio = ratio_at(AGE_INDEX, gap_of(rate, d))
    share = d / (3.0 * rate + 2.0 * d)
    # The mean age is (u³/2 − A)/(u(1 + u)), A = u³·ratio/(3 + 2u).
    cost = (d / (rate + d)) * (0.5 - ratio * (rate / (3.0 * rate + 2.0 * d))) / rate
    return cost, 0.0, (w / rate / rate) * share * ratio, ROUNDING


def age_signal(rate: float, w: float, d: float) -> Values:
    """Return 1/ρ − 1/Δ and w/ρ²."""
    cost = 1.0 / rate - 1.0 / d
    return cost if cost > 0.0 else 0.0, 0.0, w / rate / rate, ROUNDING


def later(rate: float, w: float, d: float) -> Values:
    """Return e^{−ρd} and w·d·e^{−ρd}."""
    x = d * rate
    share = fast_exp(-x)
    return share, 0.0, w * (d * share), ROUNDING + 8.0 * HALF_ULP * x


def power_law(rate: float, w: float, log_scale: float, e: float) -> Values:
    """Return (C/e)ρ^{−e}/w and C·ρ^{−e−1}; C includes the importance.

    Examples
    --------
    >>> [round(float(x), 6) for x in power_law(2.0, 1.0, 0.0, 1.0)[:3]]
    [0.5, 0.0, 0.25]
    """
    log_rate = fast_log(rate if rate > TINY else TINY)
    # One exponential serves both, as its square and as that times ρ. They are 0 or inf where they leave the
    # floats, so that nothing is selected by it, and loops are vectorised.
    root = fast_exp(0.5 * (log_scale - (1.0 + e) * log_rate))
    least = 0.0 if rate > TINY else np.inf
    marginal, paid = max(root * root, least), max(root * rate * root, least)
    size = abs(log_scale) if log_scale > -np.inf else 0.0
    rounding = POWER_ROUNDING + 8.0 * HALF_ULP * (size + (1.0 + e) * abs(log_rate))
    return paid / (e * w), 0.0, marginal, rounding


def capped_power(rate: float, w: float, log_scale: float, e: float, kink: float, plateau: float) -> Values:
    """Return `power_law`, and below the kink the line through it."""
    cost, marginal, rounding = with_line(
        power_law(max(rate, kink), w, log_scale, e), rate, kink, plateau / w, plateau
    )
    return cost, 0.0, marginal, rounding


def with_line(
    beyond: Values, rate: float, kink: float, slope: float, plateau: float
) -> tuple[float, float, float]:
    """Return cost, marginal value and rounding, with a line before a kink.

    `beyond` are the values there, or farther.
    """
    left, _, marginal, rounding = beyond
    below = rate < kink
    return (
        left + (slope * (kink - rate) if below else 0.0),
        plateau if below else marginal,
        ROUNDING if below else rounding,
    )


def reach_from_zero(rate: float, _w: float, excess: Excess, *_p: float) -> float:
    """Return ρ·off/ν: marginal values that fall at least as 1/ρ."""
    off, paid, _, _ = excess
    return rate * (off / paid)


def reach_of_capped_power(
    rate: float, _w: float, excess: Excess, _log_scale: float, _e: float, kink: float, plateau: float
) -> float:
    """Return the reach of a power law with a kink."""
    off, paid, _, _ = excess
    within = max(rate, kink)
    return reach_over_kink(within * (off / paid), rate, within, excess, plateau)


def reach_over_kink(step: float, rate: float, within: float, excess: Excess, plateau: float) -> float:
    """Return the reach from that of the curve beyond a kink.

    `within` is the rate, at least the kink, and `step` the curve's reach from there.
    """
    _, paid, _, _ = excess
    down = step if plateau * (1.0 - ROUNDING) > paid * (1.0 + ROUNDING) else rate
    return farther(within + step - rate, down, excess)


def reach_from_change(rate: float, _w: float, excess: Excess, d: float, *_p: Any) -> float:  # noqa: ANN401
    """Return (ρ + Δ)·off/ν: marginal values fall as 1/(ρ + Δ)."""
    off, paid, _, _ = excess
    return (rate + d) * (off / paid)


def reach_to_bounds(_rate: float, _w: float, _excess: Excess, *_p: float) -> float:
    """Return inf: the best response of a linear source is a bound."""
    return np.inf


def reach_on_plateau(rate: float, w: float, excess: Excess, d: float) -> float:
    """Return the reach of binary freshness under periodic refreshes."""
    off, paid, _, _ = excess
    u, within = d / rate, gap_of(rate, d)
    apart = off * (d / w) / ((1.0 + within) * fast_exp(-within))
    least = 0.5 * u * (u / (1.0 + u))
    x = apart / least
    near = rate * (x / (1.0 - x))
    near = near if x < 1.0 else np.inf
    far = d / math.sqrt(2.0 * (paid * (d / w)))
    up = near if near < far else far
    down = 2.0 * rate * x
    return farther(up, down if apart < 0.5 else rate, excess)


def reach_of_later(rate: float, w: float, excess: Excess, d: float) -> float:
    """Return off/(d·ν) upwards, where 1/d is enough, and off/(d·m) downwards."""
    off, paid, _, _ = excess
    least = w * (d * fast_exp(-d * rate))
    return farther(min(off / (d * paid), 1.0 / d), min(off / (d * least), rate), excess)


def farther(up: float, down: float, excess: Excess) -> float:
    """Return the larger of two distances, of the sides that count."""
    _, _, rises, falls = excess
    up, down = up if rises else 0.0, down if falls else 0.0
    return up if up > down else down


def proved(
    values: Callable[..., Values],
    reach: Callable[..., float],
    signalled: bool,
    rate: float,
    w: float,
    paid: float,
    lower: float,
    upper: float,
    p: tuple[float, ...],
) -> tuple[float, float, float, float]:
    """Return a source's cost, gain, gap term, and 1 unless within bounds.

    `values` and `reach` are those of a cell, or of two, told apart by `signalled`, which two tuples follow:
    arguments and parameters.
    """
    cost, gain, marginal, rounding = values(signalled, (rate, w), p)
    # 0·inf is 0 here: sources of no importance may have a rate of 0.
    cost = w * cost if w > 0.0 else 0.0
    gain = w * gain if w > 0.0 else 0.0
    marginal = marginal if w > 0.0 else 0.0
    slop = rounding * (marginal + paid) + TINY
    off = abs(marginal - paid) + slop
    excess = (off, paid, marginal - paid > -slop, marginal - paid < slop)
    room = farther(upper - rate, rate - lower, excess)
    step = reach(signalled, (rate, w, excess), p)
    # What is no number is no reach.
    step = step if step < room else room
    # A source of no importance that pays nothing loses nothing, however far it may go.
    gap = step * off if (w > 0.0) | (paid > 0.0) else 0.0
    return cost, gain, gap, 0.0 if (rate >= lower) & (rate <= upper) else 1.0


HARMONIC = ProofCell(harmonic_poisson, reach_from_zero)
HARMONIC_PERIODIC = ProofCell(harmonic_periodic, reach_from_zero)
LOG_PERIODIC = ProofCell(log_periodic, reach_from_zero)
HARMONIC_SIGNAL = ProofCell(harmonic_signal, reach_from_zero)
BINARY = ProofCell(binary_poisson, reach_from_change)
BINARY_PERIODIC = ProofCell(binary_periodic, reach_on_plateau)
BINARY_SIGNAL = ProofCell(binary_signal, reach_to_bounds)
DELAY = ProofCell(delay_poisson, reach_from_zero)
DELAY_PERIODIC = ProofCell(delay_periodic, reach_from_zero)
DELAY_SIGNAL = ProofCell(delay_signal, reach_from_zero)
AGE = ProofCell(age_poisson, reach_from_zero)
AGE_PERIODIC = ProofCell(age_periodic, reach_from_zero)
AGE_SIGNAL = ProofCell(age_signal, reach_from_zero)
LATER = ProofCell(later, reach_of_later)
POWER = ProofCell(power_law, reach_from_zero)
CAPPED_POWER = ProofCell(capped_power, reach_of_capped_power)
