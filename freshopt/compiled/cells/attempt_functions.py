"""Periodic attempts of one source under binary freshness.

Best response, marginal value and reach.

Attempts succeed with chance s = 1 − q. With u = Δ/ρ, y = e^{−u}, x = 1 − y and D = s + qx = 1 − qy, the
marginal value of the cell (`freshopt.problems.binary_freshness`) is m = w·φ(u)/Δ, and

    φ = s(s·P(2, u) + q·x²)/D²,    1 − φ/s = s·y·(D + u)/D²,
    L(u) = −log(1 − φ/s),          L' = u(2 − D)/(D(D + u)).

No form cancels, the first of small u, the second of large. As D ≤ 1, L' is at least u/(1 + u), its value at
s = 1.

**Best response.** φ(u) = p = Δ/a with a = w/λ, or none for p ≥ s. With r = p/s, u is at most the root of
P(2, u) = r, that at s = 1. For rare successes, s ≪ 1 and u ≪ 1, u = s√r/(1 − √r), and for small r
u = s√(2r/(2 − s)). A smooth least of the root and of s√(2r/(2 − s))/(1 − √r) is within a factor e^{1.1} of u.
Halley's method on L corrects it, L(u) − L(û) = log(1 + (φ − p)/(s − φ)): to 4 %, 3e-6 and the last digits.

**Reach.** In log u, L has the slope E(u) = uL' = u²(2 − D)/(D(D + u)), whose logarithm has the slope 2 − T in
log u, T = 2uz/(1 − z²) + u(1 + z)/(1 + u − z) with z = qy. T ≥ 0 rises with z ≤ y, where its terms are
u/sinh u ≤ 1 and, as (1 + u)y ≤ 1, at most 1: T ≤ 2. So E rises with u, and E/u² does not. Let û be that of
the best response to a price ν, δ = |φ − νΔ/w|/(s − φ) and x = δ/E(u):

  - û < u: δ ≥ L(u) − L(û) ≥ E(u)(1 − (û/u)²)/2, so that ρ̂/ρ = u/û ≤ 1/√(1 − 2x).
  - û > u: for δ ≤ 1/2, 2δ ≥ −log(1 − δ) = L(û) − L(u) ≥ E(u)·log(û/u), so that ρ − ρ̂ ≤ 2ρx.

Staleness rises with age no faster than the number of missed changes, so that φ(û) is at most that of the
delay, û²(2 − s)/(2s), and ρ̂ ≤ Δ/√(2s(νΔ/w)/(2 − s)).
"""

from __future__ import annotations

import math

from freshopt.compiled.demand_functions import LAST
from freshopt.compiled.demand_steps import gamma2_gap
from freshopt.compiled.proof_tables import GAMMA, LARGEST_GAP, SMALLEST_GAP, ratio_at
from freshopt.numerics.vector_math import fast_exp, fast_log

# Shares of s below are taken for it: the rate is infinite to what counts.
LEAST = 1e-300


def attempt_binary(worth: float, d: float, success: float) -> float:
    """Return Δ/u with φ(u) = Δ/a < s, else 0.

    Binary freshness of periodic attempts.

    Examples
    --------
    >>> round(float(attempt_binary(8.0, 1.0, 0.5)), 6), attempt_binary(2.0, 1.0, 0.5)
    (2.016351, 0.0)
    """
    share = d / worth / success
    inside = min(share, LAST)
    inside = inside if inside > LEAST else LEAST
    root = math.sqrt(inside)
    slow = success * math.sqrt(2.0 / (2.0 - success)) * root * (1.0 + root) / (1.0 - inside)
    ratio = slow / gamma2_gap(inside)
    u = slow / math.sqrt(1.0 + ratio * ratio)
    # Steps are written out: loops in which there are loops are not vectorised.
    apart, above, whole = attempts_apart(u, inside, success)
    # log(1 + apart): what rounding takes from the sum is added to first order. Later ones are near 0.
    u = attempt_step(u, fast_log(above) + (apart - (above - 1.0)) / above, whole)
    apart, _, whole = attempts_apart(u, inside, success)
    u = attempt_step(u, apart * (6.0 + apart) / (6.0 + 4.0 * apart), whole)
    apart, _, whole = attempts_apart(u, inside, success)
    u = attempt_step(u, apart * (1.0 - 0.5 * apart), whole)
    rate = d / u
    return rate if share < 1.0 else 0.0


def attempts_apart(u: float, share: float, success: float) -> tuple[float, float, float]:
    """Return x, 1 + x and D of a step.

    x = (φ(u)/s − share)/(1 − φ(u)/s) > −1, and 1 + x = (1 − share)/(1 − φ(u)/s), of which nothing cancels
    where the share is near 1.
    """
    rest = 1.0 - success
    inverse = 1.0 / (1.0 + u)
    part = u * inverse
    gap = u if u > SMALLEST_GAP else SMALLEST_GAP
    index = ratio_at(GAMMA, gap if gap < LARGEST_GAP else LARGEST_GAP) * part * part
    many = (u + index) * inverse
    whole = success + rest * many
    had = success * index + rest * many * many - share * whole * whole
    left = success * fast_exp(-u) * (whole + u)
    large, above = share > 0.5, (1.0 - share) * (whole * whole) / left
    apart = above - 1.0 if large else had / left
    apart = apart if apart > -LAST else -LAST
    return apart, above if large else 1.0 + apart, whole


def attempt_step(u: float, log: float, whole: float) -> float:
    """Return Halley's next u, for L(u) − L(û) and D."""
    wide, fall, other = whole + u, 1.0 - whole, 2.0 - whole
    # One quotient gives 1/L' and L''/L'.
    common = 1.0 / (u * whole * other * wide)
    step = log * (whole * wide) * (whole * wide) * common
    bend = (wide * (whole * other - 2.0 * fall * u) - other * other * u * whole) * common
    step = step / (1.0 - 0.5 * step * bend)
    # Where the start is far too high, a step stays above 0.
    most = 0.875 * u
    return u - (step if step < most else most)
