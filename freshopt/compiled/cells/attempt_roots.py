"""Periodic attempts of one source under age and harmonic staleness: best response.

Attempts succeed with chance s = 1 − q. With u = Δ/ρ, v = e^{−u}, x = 1 − v, m = 1 − x/u, E = qx/s and W = 1 +
E, sums over the number N of attempts, P(N = k) = s·q^{k−1}, of the marginal values of periodic refreshes
(`freshopt.modelling.fetches.attempt_cell`) are w·Ψ/Δ for harmonic staleness and w·Φ/Δ² for age:

    Ψ = u(m + E)/W,                                                    Ψ' = (x/s)(q(W + 1) + s)/W²
    Φ = (A + (q/s)um(u + x) + (2 − s)u²E(1 + E/2)/s)/W²,               Φ' = u(x/s)·K/W³

with A = u²/2 − P(2, u) and K = (1 + q)(q/s)(3 + 3E + E²) + 1 + 2q − qx. No form cancels.

**Best response.** Ψ = p = Δ/a, or Φ = p = Δ²/a, with a = w/λ. Both are nearly straight on logarithms, between
powers of few and of many changes:

    Ψ ≈ u²(2 − s)/2s and u,         Φ ≈ u³(6 − 6s + s²)/3s² and u²(2 − s)/2s.

u² = p(u + s'), s' = 2s/(2 − s), and the cube root of the sum of both cubes are starts to 5 and 9 %. Halley's
method on logarithms corrects them twice, to 1e-5 and to rounding. In it E·d log E is 1 + uf''/f' − uf'/f.
"""

from __future__ import annotations

import math

from freshopt.compiled.demand_steps import MOST
from freshopt.compiled.proof_tables import AGE_INDEX, LARGEST_GAP, SMALLEST_GAP, fallen, ratio_at
from freshopt.numerics.vector_math import rough_exp, rough_log

# The harmonic start is off by 0 to 10 %, which this centres.
CENTRE = 0.955
# The logarithm of a start is that of a float of usual size.
SMALLEST = 1e-300


def attempt_harmonic(worth: float, d: float, success: float) -> float:
    """Return the best response of harmonic staleness in attempts.

    Examples
    --------
    >>> round(float(attempt_harmonic(8.0, 1.0, 0.5)), 6)
    2.815894
    """
    p = min(d / worth, MOST)
    p = p if p > SMALLEST else SMALLEST
    small = 2.0 * success / (2.0 - success)
    u = CENTRE * (0.5 * p) * (1.0 + math.sqrt(1.0 + 4.0 * (small / p)))
    # Steps are written out: loops in which there are loops are not vectorised.
    u = harmonic_step(u, p, success)
    u = harmonic_step(u, p, success)
    # Selected by a factor: a branch would keep loops from being vectorised.
    return d / u * (1.0 if worth > 0.0 else 0.0)


def attempt_age(worth: float, d: float, success: float) -> float:
    """Return the best response of age in attempts.

    Examples
    --------
    >>> round(float(attempt_age(8.0, 1.0, 0.5)), 6)
    2.643444
    """
    p = min(d * (d / worth), MOST)
    p = p if p > SMALLEST else SMALLEST
    cube = 3.0 * success * success / (6.0 - success * (6.0 - success))
    square = p * (2.0 * success / (2.0 - success))
    u = rough_exp((1.0 / 3.0) * rough_log(p * cube + square * math.sqrt(square)))
    u = age_step(u, p, success)
    u = age_step(u, p, success)
    return d / u * (1.0 if worth > 0.0 else 0.0)


def harmonic_step(u: float, p: float, success: float) -> float:
    """Return the next u, of Ψ(u) = p."""
    rest = 1.0 - success
    x, _, mean, _ = fallen(u)
    left, often = 1.0 - x, rest * x / success
    whole = 1.0 + often
    value = u * (mean + often) / whole
    steep = x * (rest * (whole + 1.0) + success)
    slope = u * steep / (success * whole * whole * value)
    bend = u * left * (2.0 * rest * left + success * whole) / (whole * steep)
    return u * halley_factor(p / value - 1.0, slope, bend)


def age_step(u: float, p: float, success: float) -> float:
    """Return the next u, of Φ(u) = p."""
    rest = 1.0 - success
    x, _, mean, _ = fallen(u)
    left, often, rare = 1.0 - x, rest * x / success, rest / success
    whole = 1.0 + often
    within = u if u > SMALLEST_GAP else SMALLEST_GAP
    ratio = ratio_at(AGE_INDEX, within if within < LARGEST_GAP else LARGEST_GAP)
    # Φ/u, and those of Φ' and Φ'' that it is divided by.
    late = (2.0 - success) / success * often * (1.0 + 0.5 * often)
    value = u * (u / (3.0 + 2.0 * u) * ratio) + rare * mean * (u + x) + u * late
    steep = (1.0 + rest) * rare * (3.0 + often * (3.0 + often)) + (1.0 + 2.0 * rest - rest * x)
    slope = u * (x / success) * steep / (whole * value)
    more = left * (1.0 + rest * left * (4.0 + rest * left)) / success
    bend = 1.0 + u * more / (whole * x * steep)
    return u * halley_factor(p / u * (whole * whole / value) - 1.0, slope, bend)


def halley_factor(apart: float, slope: float, bend: float) -> float:
    """Return by what factor of u f rises by 1 + apart.

    By Halley's method on logarithms, with uf'/f and uf''/f'; 1 for what is no number, or far.
    """
    log = apart * (6.0 + 3.0 * apart) / (6.0 + apart * (6.0 + apart))
    # z/2 of e^z ≈ (1 + z/2 + z²/12)/(1 − z/2 + z²/12).
    half = 0.5 * log / slope
    half = half / (1.0 + half * (1.0 + bend - slope))
    square = 1.0 + half * half * (1.0 / 3.0)
    factor = (square + half) / (square - half)
    return factor if abs(factor - 1.25) < 0.75 else 1.0
