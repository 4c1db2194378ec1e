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

from freshopt.compiled.age_tables import age_place
from freshopt.compiled.demand_steps import (
    AGE_PERIODIC_STEPS,
    AGE_STEPS,
    BINARY_STEPS,
    HARMONIC_STEPS,
    HARMONIC_TOP,
    MOST,
    POLL_STEPS,
    Steps,
    age_periodic_rate,
    age_periodic_value,
    age_poisson_rate,
    age_poisson_value,
    binary_place,
    binary_rate,
    gamma_value,
    harmonic_place,
    harmonic_rate,
    harmonic_value,
    poll_place,
    poll_rate,
)
from freshopt.numerics.inverse_tables import ratio_from_table, ratio_table
from freshopt.numerics.special_functions import inverse_log_freshness_index
from freshopt.numerics.vector_math import fast_exp, fast_log

Demand: TypeAlias = Callable[..., float]

# Of u²/(e^u − 1), below half an ulp of u beyond.
LOG = ratio_table(lambda s: inverse_log_freshness_index(0.5 * s * s), HARMONIC_TOP)
# The largest share of P(2, u) below 1.
LAST = 1.0 - 2.0**-53


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
    return harmonic_rate(harmonic_value(harmonic_place(worth, d)), worth, d)


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
    return binary_rate(gamma_value(binary_place(worth, d)), worth, d)


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
    return age_poisson_rate(age_poisson_value(age_place(worth, d)), worth, d)


def age_periodic(worth: float, d: float) -> float:
    """Return Δ/u with u²/2 − P(2, u) = Δ²/a: age, periodic."""
    return age_periodic_rate(age_periodic_value(age_place(worth, d)), worth, d)


def reciprocal_root_below(worth: float, d: float) -> float:
    """Return min(√a, Δ): age on signals."""
    return min(math.sqrt(worth), d)


def polls(worth: float, a: float) -> float:
    """Return a/t with P(2, t) = λ/w < 1, else 0.

    The polls form of the polling knapsack.
    """
    return poll_rate(gamma_value(poll_place(worth, a)), worth, a)


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


def later(worth: float, d: float) -> float:
    """Return log(a·d)/d, or 0, for requests beyond an age d."""
    return fast_log(max(min(worth * d, MOST), 1.0)) / d


def capped_power(worth: float, log_scale: float, e: float, kink: float, plateau: float) -> float:
    """Return the best response of a power law with a kink.

    It is 0 where λ is above the plateau.
    """
    return from_kink(fast_exp((fast_log(worth) + log_scale) / (1.0 + e)), worth * plateau, kink)


def from_kink(rate: float, gained: float, kink: float) -> float:
    """Return at least the kink, or 0 where too little is gained."""
    return max(rate, kink) if gained >= 1.0 else 0.0


def last_kink(worth: float, _level: float, *kinks: float) -> float:
    """Return the largest kink with a gain above λ/w, or 0.

    Piecewise linear costs, as in `freshopt.compiled.cells.kink_proofs`.

    Examples
    --------
    >>> last_kink(1.0, 0.0, 0.5, 3.0, 2.0, 1.5), last_kink(0.5, 0.0, 0.5, 3.0, 2.0, 1.5)
    (2.0, 0.5)
    """
    rate = 0.0
    for j in range(0, len(kinks), 2):
        rate = kinks[j] if worth * kinks[j + 1] > 1.0 else rate
    return rate


# Of those that look up a table.
STEPS: dict[Demand, Steps] = {
    harmonic_periodic: HARMONIC_STEPS,
    binary_periodic: BINARY_STEPS,
    polls: POLL_STEPS,
    age_poisson: AGE_STEPS,
    age_periodic: AGE_PERIODIC_STEPS,
}
