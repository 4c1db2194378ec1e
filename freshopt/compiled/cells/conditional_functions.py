"""Conditional fetches of one source: bandwidth used at the best response.

Under periodic refreshes with u = Δ/ρ a source uses b = ρ·(c₀ + c₁(1 − e^{−u})), and each unit of rate
costs λ·(c₀ + c₁P(2, u)) at its best response (`freshopt.separable.conditional_kernel`). With the index V of a
cost of age, whose marginal value is w·V(u)/Δ (age: /Δ²), Q = c₀Δ·λ/w and k = c₁/c₀, u is the root of

    V(u) = Q·(1 + k·P(2, u)),

between those of V(u) = Q and V(u) = Q(1 + k), which the demand functions of refreshes at one cost know. As
V/P rises, so does V − Q(1 + kP) where it is 0. Newton's method is kept within the bracket. For binary
freshness V is P(2, u), and the root is an inverse of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from freshopt.compiled.cells.request_tables import index_and_ein
from freshopt.compiled.demand_functions import Demand, age_periodic, delay_periodic, harmonic_periodic
from freshopt.compiled.demand_steps import MOST, gamma2_gap
from freshopt.compiled.proof_tables import AGE_INDEX, GAMMA, LARGEST_GAP, SMALLEST_GAP, ratio_at

# Steps at most: seven or so, and those that halve what is left of 700 nats.
STEPS = 100
CLOSE = 4e-16


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
    asked = min(d / worth * fetch, MOST)
    return bandwidth_at(
        gap_between(harmonic_periodic, harmonic_value, worth, own, asked, fetch, change), d, fetch, change
    )


def delay_changed(worth: float, own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of accumulated delay, periodic."""
    asked = min(d / worth * fetch, MOST)
    return bandwidth_at(
        gap_between(delay_periodic, delay_value, worth, own, asked, fetch, change), d, fetch, change
    )


def age_changed(worth: float, own: float, d: float, fetch: float, change: float) -> float:
    """Return the bandwidth of age, periodic."""
    asked = min(d * (d / worth) * fetch, MOST)
    return bandwidth_at(
        gap_between(age_periodic, age_value, worth, own, asked, fetch, change), d, fetch, change
    )


def bandwidth_at(u: float, d: float, fetch: float, change: float) -> float:
    """Return b = ρ(c₀ + c₁(1 − e^{−u})) at ρ = Δ/u.

    Examples
    --------
    >>> round(bandwidth_at(math.log(2.0), math.log(2.0), 1.0, 4.0), 12)
    3.0
    """
    return d / u * (fetch - change * math.expm1(-u)) if u > 0.0 else math.inf


def gap_between(
    demand: Demand,
    value: Callable[[float], tuple[float, float]],
    worth: float,
    d: float,
    asked: float,
    fetch: float,
    change: float,
) -> float:
    """Return the u with V(u) = Q(1 + kP(2, u))."""
    often, seldom = demand(worth / fetch, d), demand(worth / (fetch + change), d)
    low, high = d / often if often > 0.0 else math.inf, d / seldom if seldom > 0.0 else math.inf
    if not low < high < math.inf or low == 0.0:
        return low
    ratio, u = change / fetch, math.sqrt(low) * math.sqrt(high)
    for _ in range(STEPS):
        index, slope = value(u)
        within = min(max(u, SMALLEST_GAP), LARGEST_GAP)
        share = u / (1.0 + u)
        found = share * share * ratio_at(GAMMA, within)
        excess = index - asked * (1.0 + ratio * found)
        if excess > 0.0:
            high = u
        else:
            low = u
        following = u - excess / (slope - asked * ratio * (u * math.exp(-u)))
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


CHANGED = (binary_changed, harmonic_changed, delay_changed, age_changed)
