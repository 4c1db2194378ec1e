"""Conditional fetches of one source: bandwidth used at the best response.

Under periodic refreshes with u = Δ/ρ a source uses b = ρ·(c₀ + c₁(1 − e^{−u})), and each unit of rate
costs λ·(c₀ + c₁P(2, u)) at its best response (`freshopt.separable.conditional_kernel`). With the index V of a
cost of age, whose marginal value is w·V(u)/Δ (age: /Δ²), Q = c₀Δ·λ/w and k = c₁/c₀, u is the root of

    V(u) = Q·(1 + k·P(2, u)),

between those of V(u) = Q and V(u) = Q(1 + k), which the demand functions of refreshes at one cost know. As
V/P rises, so does V − Q(1 + kP) where it is 0. Newton's method is kept within the bracket. For binary
freshness V is P(2, u), and the root is an inverse of that.

Under Poisson refreshes it is the same with u/(1 + u) in place of 1 − e^{−u} and its square in place of
P(2, u): V is u²/(1 + u) for harmonic staleness, u² for delay, u³(2 + u)/(1 + u)² for age. For binary
freshness V is P, and (1 + 1/u)² a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from freshopt.compiled.cells.request_tables import index_and_ein
from freshopt.compiled.demand_functions import (
    Demand,
    age_periodic,
    age_poisson,
    delay,
    delay_periodic,
    harmonic_periodic,
    harmonic_poisson,
)
from freshopt.compiled.demand_steps import MOST, gamma2_gap
from freshopt.compiled.proof_tables import AGE_INDEX, GAMMA, LARGEST_GAP, SMALLEST_GAP, ratio_at

# Steps at most: seven or so, and those that halve what is left of 700 nats.
STEPS = 100
CLOSE = 4e-16
# Beside so much 1 is nothing.
LARGE = 2.0**60


def binary_changed(worth: float, _own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of binary freshness, periodic.

    P(2, u) = c₀/(a/Δ − c₁) < 1, else 0.
    """
    left = worth / d - change
    if not left > fetch:
        return 0.0
    return bandwidth_at(gamma2_gap(fetch / left), d, fetch, change)


def harmonic_changed(worth: float, own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of harmonic staleness, periodic."""
    u = gap_between(
        harmonic_periodic, harmonic_value, even_share, worth, own, d / worth * fetch, fetch, change
    )
    return bandwidth_at(u, d, fetch, change)


def delay_changed(worth: float, own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of accumulated delay, periodic."""
    u = gap_between(delay_periodic, delay_value, even_share, worth, own, d / worth * fetch, fetch, change)
    return bandwidth_at(u, d, fetch, change)


def age_changed(worth: float, own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of age, periodic."""
    u = gap_between(age_periodic, age_value, even_share, worth, own, d * (d / worth) * fetch, fetch, change)
    return bandwidth_at(u, d, fetch, change)


def binary_changed_poisson(worth: float, _own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of binary freshness, Poisson.

    ((ρ + Δ)/Δ)² = (a/Δ − c₁)/c₀ > 1, else 0.
    """
    left = worth / d - change
    if not left > fetch:
        return 0.0
    whole = math.sqrt(min(left / fetch, MOST))
    x = (left - fetch) / fetch / (whole + 1.0) if whole < LARGE else whole
    return d * x * (fetch + change / (1.0 + x))


def harmonic_changed_poisson(worth: float, own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of harmonic staleness, Poisson."""
    u = gap_between(
        harmonic_poisson, harmonic_poisson_value, poisson_share, worth, own, d / worth * fetch, fetch, change
    )
    return bandwidth_at_poisson(u, d, fetch, change)


def delay_changed_poisson(worth: float, own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of accumulated delay, Poisson."""
    u = gap_between(delay, delay_poisson_value, poisson_share, worth, own, d / worth * fetch, fetch, change)
    return bandwidth_at_poisson(u, d, fetch, change)


def age_changed_poisson(worth: float, own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of age, Poisson."""
    asked = d * (d / worth) * fetch
    u = gap_between(age_poisson, age_poisson_value, poisson_share, worth, own, asked, fetch, change)
    return bandwidth_at_poisson(u, d, fetch, change)


def bandwidth_at(u: float, d: float, fetch: float, change: float) -> float:
    """Return b = ρ(c₀ + c₁(1 − e^{−u})) at ρ = Δ/u.

    Examples
    --------
    >>> round(bandwidth_at(math.log(2.0), math.log(2.0), 1.0, 4.0), 12)
    3.0
    """
    return d / u * (fetch - change * math.expm1(-u)) if u > 0.0 else math.inf


def bandwidth_at_poisson(u: float, d: float, fetch: float, change: float) -> float:
    """Return b = ρ(c₀ + c₁u/(1 + u)) at ρ = Δ/u."""
    share = u / (1.0 + u) if u < LARGE else 1.0
    return d / u * (fetch + change * share) if u > 0.0 else math.inf


def gap_between(
    demand: Demand,
    value: Callable[[float], tuple[float, float]],
    share: Callable[[float], tuple[float, float]],
    worth: float,
    d: float,
    asked: float,
    fetch: float,
    change: float,
) -> float:
    """Return the u with V(u) = Q(1 + kP(u))."""
    often, seldom = demand(worth / fetch, d), demand(worth / (fetch + change), d)
    low, high = d / often if often > 0.0 else math.inf, d / seldom if seldom > 0.0 else math.inf
    if not low < high < math.inf or low == 0.0:
        return low
    asked, ratio, u = min(asked, MOST), change / fetch, math.sqrt(low) * math.sqrt(high)
    for _ in range(STEPS):
        index, slope = value(u)
        found, steeper = share(u)
        excess = index - asked * (1.0 + ratio * found)
        if excess > 0.0:
            high = u
        else:
            low = u
        following = u - excess / (slope - asked * ratio * steeper)
        if abs(following - u) <= CLOSE * u:
            return following
        if not low < following < high:
            following = math.sqrt(low) * math.sqrt(high)
            if not low < following < high:
                return high
        u = following
    return u


def harmonic_value(u: float) -> tuple[float, float]:
    """Return V = u − 1 + e^{−u} and V'."""
    return index_and_ein(u)[0], -math.expm1(-u)


def delay_value(u: float) -> tuple[float, float]:
    """Return V = u²/2 and V'."""
    return 0.5 * u * u, u


def age_value(u: float) -> tuple[float, float]:
    """Return V = u²/2 − P(2, u) and V'."""
    ratio = ratio_at(AGE_INDEX, min(max(u, SMALLEST_GAP), LARGEST_GAP))
    return u / (3.0 + 2.0 * u) * u * u * ratio, -u * math.expm1(-u)


def even_share(u: float) -> tuple[float, float]:
    """Return P(2, u) and its slope."""
    share = u / (1.0 + u)
    ratio = ratio_at(GAMMA, min(max(u, SMALLEST_GAP), LARGEST_GAP))
    return share * share * ratio, u * math.exp(-u)


def harmonic_poisson_value(u: float) -> tuple[float, float]:
    """Return V = u²/(1 + u) and V'."""
    share = u / (1.0 + u)
    return u * share, share * (1.0 + 1.0 / (1.0 + u))


def delay_poisson_value(u: float) -> tuple[float, float]:
    """Return V = u² and V'."""
    return u * u, 2.0 * u


def age_poisson_value(u: float) -> tuple[float, float]:
    """Return V = u³(2 + u)/(1 + u)² and V'."""
    share, rest = u / (1.0 + u), 1.0 / (1.0 + u)
    return u * u * (share * (1.0 + rest)), 2.0 * share * share * (u + 2.0 + rest)


def poisson_share(u: float) -> tuple[float, float]:
    """Return (u/(1 + u))² and its slope."""
    share, rest = u / (1.0 + u), 1.0 / (1.0 + u)
    return share * share, 2.0 * share * rest * rest


CHANGED = (
    binary_changed,
    harmonic_changed,
    delay_changed,
    age_changed,
    binary_changed_poisson,
    harmonic_changed_poisson,
    delay_changed_poisson,
    age_changed_poisson,
)
