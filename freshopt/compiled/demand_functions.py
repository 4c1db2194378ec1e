"""Demand functions: optimal rate of one source at a given price.

The best response of a source of importance w to the price λ, a dual variable, is the rate ρ with
−w·J'(ρ) = λ. Each function here takes a = w/λ ≥ 0 and the source's parameters, and returns that ρ: the
inverse marginals of `freshopt.problems` once more, in scalar arithmetic for compiled loops, with the fewest
divisions and without temporaries. A `Kernel` names the one that belongs to it; without compilation
they are not used, and tests hold the two against each other. They are plain Python and can be called.

The forms avoid cancellation. At any a from 0 to inf and parameters of the accepted magnitudes 1e-100..1e100
they return a rate ≥ 0, possibly inf, and never NaN: products that a lowest price makes overflow are cut at
`MOST`. Compiled, they keep the order of operations that is written here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from freshopt.compiled.age_tables import PERIODIC, POISSON, age_rate
from freshopt.numerics.inverse_tables import (
    SEGMENTS,
    octave_place,
    octave_table,
    polynomial,
    ratio_from_table,
    ratio_table,
    segment_place,
)
from freshopt.numerics.special_functions import (
    inverse_gamma2,
    inverse_harmonic_index,
    inverse_log_excess,
    inverse_log_freshness_index,
)
from freshopt.numerics.vector_math import fast_exp, fast_log

Demand: TypeAlias = Callable[..., float]

# Products a·Δ are cut here, so that their square root and four of them are floats; rates of 1e150 are beyond
# every limit.
MOST = 1e300
# Beyond s² / 2 = 50, e^{−u} is below half an ulp of u.
HARMONIC_TOP = 10.0
HARMONIC = ratio_table(lambda s: inverse_harmonic_index(0.5 * s * s), HARMONIC_TOP)
# There u²/(e^u − 1) is below half an ulp of u, too.
LOG = ratio_table(lambda s: inverse_log_freshness_index(0.5 * s * s), HARMONIC_TOP)
AGE, AGE_SHIFT, AGE_SQUARE = POISSON.rows, POISSON.shift, POISSON.square
AGE_EVEN, AGE_EVEN_SHIFT, AGE_EVEN_SQUARE = PERIODIC.rows, PERIODIC.shift, PERIODIC.square
# Below this share P(2, u) is inverted in s = √(2·share), above in 1 − share: u has a singularity at 1.
GAMMA_SHARE = 0.75
# log₂ of the smallest 1 − share.
NEAR = -53
# 4s in place of s: the singularity at s = √2 asks for finer segments. Then follow the rows in 1 − share.
GAMMA = np.concatenate(
    [
        0.25 * ratio_table(lambda s: 4.0 * inverse_gamma2(s * s / 32.0), 5.0),
        octave_table(lambda q: inverse_log_excess(-np.log(q)), NEAR, -2),
    ]
)
FIRST_NEAR = 5 * SEGMENTS
# The largest share of P(2, u) below 1.
LAST = 1.0 - 2.0**-53


def gamma2_gap(share: float) -> float:
    """Return u with P(2, u) = share for share < 1.

    There is no branch, so that loops are vectorised.
    """
    s = math.sqrt(32.0 * min(share, GAMMA_SHARE))
    segment, within = segment_place(s)
    row, z = octave_place(max(1.0 - share, 2.0**NEAR), NEAR)
    near = share > GAMMA_SHARE
    u = polynomial(GAMMA, row + FIRST_NEAR if near else segment, z if near else within)
    return u if near else s * u


def harmonic_poisson(worth: float, d: float) -> float:
    """Return the root of ρ² + Δρ = aΔ: harmonic staleness, Poisson.

    Examples
    --------
    >>> harmonic_poisson(2.0, 1.0)
    1.0
    """
    product = min(worth * d, MOST)
    return 2.0 * product / (d + math.sqrt(d * d + 4.0 * product))


def harmonic_periodic(worth: float, d: float) -> float:
    """Return Δ/u with u − 1 + e^{−u} = Δ/a.

    Harmonic staleness under periodic refreshes.
    """
    # The rate of small u, √(aΔ/2), is the unit in which neither Δ/a nor u underflows.
    unit = math.sqrt(0.5 * min(worth * d, MOST))
    s = d / unit
    # There is no branch, so that loops are vectorised.
    near = s < HARMONIC_TOP
    ratio = ratio_from_table(HARMONIC, s if near else 0.0)
    return (unit if near else d) / (ratio if near else 1.0 + 0.5 * s * s)


def log_periodic(worth: float, d: float) -> float:
    """Return Δ/u with u − u²/(e^u − 1) = Δ/a.

    Log freshness under periodic refreshes.
    """
    # As harmonic staleness, but for the limit of large u.
    unit = math.sqrt(0.5 * min(worth * d, MOST))
    s = d / unit
    near = s < HARMONIC_TOP
    ratio = ratio_from_table(LOG, s if near else 0.0)
    return (unit if near else d) / (ratio if near else 0.5 * s * s)


def reciprocal_below(worth: float, d: float) -> float:
    """Return min(a, Δ): harmonic staleness on signals."""
    return min(worth, d)


def binary_poisson(worth: float, d: float) -> float:
    """Return max(0, √(aΔ) − Δ): binary freshness, Poisson."""
    if worth <= d:
        return 0.0
    return min(d * (worth - d), MOST) / (d + math.sqrt(min(worth * d, MOST)))


def binary_periodic(worth: float, d: float) -> float:
    """Return Δ/u with P(2, u) = Δ/a < 1, else 0.

    Binary freshness under periodic refreshes.
    """
    share = d / worth
    rate = d / gamma2_gap(share)
    return rate if share < 1.0 else 0.0


def all_or_nothing(worth: float, d: float) -> float:
    """Return Δ where a ≥ Δ, else 0: binary freshness on signals.

    Its marginal is constant.
    """
    return d if d <= worth else 0.0


def delay(worth: float, d: float) -> float:
    """Return √(aΔ): accumulated delay, Poisson or on signals."""
    return math.sqrt(min(worth * d, MOST))


def delay_periodic(worth: float, d: float) -> float:
    """Return √(aΔ/2): accumulated delay, periodic."""
    return math.sqrt(0.5 * min(worth * d, MOST))


def age_poisson(worth: float, d: float) -> float:
    """Return the ρ with Δ(2ρ+Δ)/(ρ(ρ+Δ))² = 1/a: age, Poisson."""
    return age_rate(AGE, AGE_SHIFT, AGE_SQUARE, worth, d)


def age_periodic(worth: float, d: float) -> float:
    """Return Δ/u with u²/2 − P(2, u) = Δ²/a: age, periodic."""
    return age_rate(AGE_EVEN, AGE_EVEN_SHIFT, AGE_EVEN_SQUARE, worth, d)


def reciprocal_root_below(worth: float, d: float) -> float:
    """Return min(√a, Δ): age on signals."""
    return min(math.sqrt(worth), d)


def polls(worth: float, a: float) -> float:
    """Return a/t with P(2, t) = λ/w < 1, else 0.

    The polls form of the polling knapsack.
    """
    share = 1.0 / worth
    rate = a / gamma2_gap(share)
    return rate if share < 1.0 else 0.0


def materials(worth: float, a: float) -> float:
    """Return a/t with 1−e^{−t} = λ/w < 1, else 0.

    The materials form of the polling knapsack.
    """
    share = 1.0 / worth
    inside = min(share, LAST)
    rest = 1.0 - inside
    # What rounding takes from 1 − share is added to the logarithm to first order. There is no branch, so that
    # loops are vectorised.
    rate = a / ((inside - (1.0 - rest)) / rest - fast_log(rest))
    return rate if share < 1.0 else 0.0


def power_law(worth: float, log_scale: float, share: float) -> float:
    """Return (C/λ)^share, the best response of a power law.

    It is the ρ with C·ρ^{−e−1} = λ, share = 1/(1+e); 0 for log C = −inf.

    Examples
    --------
    >>> round(power_law(8.0, 0.0, 1.0 / 3.0), 15)
    2.0
    """
    rate = fast_exp(share * (fast_log(worth) + log_scale))
    return rate if log_scale > -np.inf else 0.0
