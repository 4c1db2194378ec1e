"""Renewal cycle with noisy signals, for the age of a copy.

At a time t after a crawl the copy is fresh with the chance f = e^{−at}q^N of N signals, q = 1 − p, a the rate
of changes that have no signal. The oldest missed change is older than u with the chance 1 − f(t − u), so that
the expected age c is ∫₀ᵗ (1 − f): unlike the number of missed changes it tells signals apart by their times,
moves by no jumps, and never falls. At the price ν the least of E ∫₀ᵀ (c − η) dt + ν is therefore reached by
crawling once c = η, and as in `freshopt.noisy_signals.expected_costs`

    ψ(η) = E T,    V(η) = E ∫₀ᵀ (η − c) dt = ∫₀^η ψ,    J = η − ρV at ρ = 1/ψ(η).

The copy is stale for c = η of a cycle's time, in the mean: a share ρη.

**Laplace transform.** c is t − D with the exponential functional D = ∫₀ᵗ f of a Poisson process. Its k-th
moment at an exponential time of rate θ is k times the one before over θ + Φ(k), since E f(t)^k = e^{−tΦ(k)}
with Φ(k) = ak + g(1 − q^k), g the rate of signals. Summed,

    ∫₀^∞ e^{−θη}ψ(η) dη = S(θ, 1)/θ²,    S(θ, f) = Σ_k f^k ∏_{j≤k} θ/(θ + Φ(j)),

V having θ³ and ψ' having θ. From a copy that is fresh with the chance f what is left is the same of S(θ, f).
All singularities are on the negative axis: a hyperbola around it and the midpoint rule invert the transform,
to 1e-13 with 30 points. Where θ leans left terms grow before they fall, and the sum loses digits, unless f is
small or a·η is not: where it is small, the first signal after a time s, f = q·e^{−as}, is integrated over,

    ψ(η) = ∫₀^τ e^{−gs}(1 + g·ψ(η − c(s), f)) ds,    c(τ) = η.

From η = 45 on the pole at 0 is all of it: ψ = η + 1, V = η²/2 + η + 1/Φ(2) − 1. Without signals ψ is the
period; with perfect ones 1 + η. Time is in units of 1/Δ.
"""

from __future__ import annotations

import cmath
import math
from typing import NamedTuple

import numpy as np

from freshopt.noisy_signals.cycle_terms import growth

# Rarer true signals take too many terms, and tell little.
LEAST_PRECISION = 0.05
# e^{−40} is 4e-18: what sums, contours and integrals leave out.
TAIL = 40.0
# Contours cross the real axis at most at so much over the threshold, at the best angle where terms allow it.
CROSSING, ANGLE = 4.0, 0.75
# a·η from which on the sum of a fresh copy keeps its digits at that angle.
PLAIN = 0.31
# Sine of the angle, relative to that at which the terms of a copy fresh with the chance q no longer fall.
WITHIN = 0.7
# From here on the other poles are below rounding.
FAR = 45.0
MOST_TERMS = 100_000
# A rise in which no signal comes, and whose transform would overflow.
SHORT = 1e-100
# Tails of the first steps to a threshold, the step after which they are finer, and the longest, in nats.
ROUGH, ROUGHLY, LONGEST = 12.0, 1e-3, 2.0
STEPS = 60
# A panel of the first signal's time: in units of 1/Δ, and expected signals.
PANEL, PANEL_SIGNALS = 4.0, 10.0
NODES, WEIGHTS = (values for values in np.polynomial.legendre.leggauss(12))


class Moments(NamedTuple):
    """ψ, V and dψ/dη of a threshold."""

    length: float
    value: float
    slope: float


def transform(theta: complex, fresh: float, a: float, g: float, p: float, tail: float) -> complex:
    """Return S(θ, f), in real arithmetic, which is faster."""
    x, y, power = theta.real, theta.imag, 1.0
    total, total_y, term, term_y = 1.0, 0.0, 1.0, 0.0
    square, small = fresh * fresh * (x * x + y * y), math.exp(-2.0 * tail)
    for k in range(1, MOST_TERMS):
        power *= 1.0 - p
        c = x + a * k + g * (1.0 - power)
        part = fresh / (c * c + y * y)
        ratio, ratio_y = part * (x * c + y * y), part * y * (c - x)
        term, term_y = term * ratio - term_y * ratio_y, term * ratio_y + term_y * ratio
        total += term
        total_y += term_y
        falls = square * part < 0.98 * fresh
        if falls and term * term + term_y * term_y < small * (total * total + total_y * total_y):
            break
    return complex(total, total_y)


def inverted(r: float, fresh: float, angle: float, a: float, g: float, p: float, tail: float) -> Moments:
    """Return the moments of what is left before a rise r."""
    if fresh == 0.0 or r < SHORT:
        pace = 1.0 / (1.0 - fresh)
        return Moments(r * pace, 0.5 * r * r * pace, pace)
    step = 2.0 * math.pi * min(angle, 0.5 * math.pi - angle) / tail
    slope, length, value = 0.0, 0.0, 0.0
    sine, cosine = math.sin(angle), math.cos(angle)
    w = 0.5 * step
    while True:
        z = CROSSING * complex(1.0 - sine * math.cosh(w), cosine * math.sinh(w))
        if z.real < -tail:
            break
        move = CROSSING * complex(-sine * math.sinh(w), cosine * math.cosh(w))
        part = cmath.exp(z) * move / z * transform(z / r, fresh, a, g, p, tail)
        slope += part.imag
        part /= z
        length += part.imag
        value += (part / z).imag
        w += step
    scale = step / math.pi
    return Moments(scale * r * length, scale * r * r * value, scale * slope)


def time_left(left: float, fresh: float, a: float) -> float:
    """Return the time without signals that adds so much expected age."""
    if left <= 0.0 and fresh < 1.0:
        return 0.0
    if a == 0.0 or fresh == 0.0 or left == math.inf:
        return left / (1.0 - fresh) if fresh < 1.0 else math.inf
    low = a * left
    u = min(low + fresh, low + math.sqrt(2.0 * low / fresh))
    for _ in range(STEPS):  # a convex function: Newton's steps fall from above
        onward = u - ((1.0 - fresh) * u + fresh * growth(u) - low) / (1.0 - fresh - fresh * math.expm1(-u))
        if not 0.0 < onward < u * (1.0 - 2.0**-52):
            break
        u = onward
    return u / a


def age_rise(time: float, fresh: float, a: float) -> float:
    """Return how much a time without signals adds to the age."""
    return (1.0 - fresh) * time + (fresh * growth(a * time) / a if a > 0.0 else 0.0)


def age_moments(eta: float, a: float, g: float, p: float, tail: float = TAIL) -> Moments:
    """Return the moments of a cycle ending at η, to e^{−tail}."""
    if eta >= FAR:
        return Moments(eta + 1.0, eta * (0.5 * eta + 1.0) + 1.0 / (2.0 * a + g * p * (2.0 - p)) - 1.0, 1.0)
    if a * eta >= PLAIN:
        return inverted(eta, 1.0, ANGLE, a, g, p, tail)
    angle = min(ANGLE, math.asin(WITHIN * math.sqrt(p * (2.0 - p))))
    if a == 0.0:
        later = inverted(eta, 1.0 - p, angle, a, g, p, tail)
        return Moments(1.0 / g + later.length, eta / g + later.value, later.slope)
    tau = time_left(eta, 1.0, a)
    end = min(tau, TAIL / g)
    panels = math.ceil(end / min(PANEL, PANEL_SIGNALS / g))
    length, value = 0.0, 0.0
    slope = math.exp(-g * tau) / -math.expm1(-a * tau)
    for panel in range(panels):
        for j in range(len(NODES)):
            s = end * (panel + 0.5 * (1.0 + NODES[j])) / panels
            weight = 0.5 * end / panels * WEIGHTS[j] * math.exp(-g * s)
            left = max(eta - age_rise(s, 1.0, a), 0.0)
            later = inverted(left, (1.0 - p) * math.exp(-a * s), angle, a, g, p, tail)
            length += weight * (1.0 + g * later.length)
            value += weight * (left + g * later.value)
            slope += weight * g * later.slope
    return Moments(length, value, slope)


def near_age(target: float, of_value: bool, a: float, g: float, p: float) -> float:
    """Return about the η at which V or ψ is on target.

    Newton's steps on both logarithms, of moments to a few digits and then to eight.
    """
    if of_value:
        silent: float = (1.5 * target * math.sqrt(0.5 * a)) ** (2.0 / 3.0)
        eta = min(max(silent, target * g), math.sqrt(2.0 * target))
    else:
        silent = growth(a * target) / a if a > 0.0 else 0.0
        eta = max(silent, target - 1.0, p * (target - 1.0 / g) if silent == 0.0 else 0.0, SHORT)
    tail = ROUGH
    for _ in range(STEPS):
        found = age_moments(eta, a, g, p, tail)
        here, slope = (found.value, found.length) if of_value else (found.length, found.slope)
        if not (here > 0.0 and slope > 0.0):
            break
        step = min(LONGEST, max(-LONGEST, math.log(target / here) * here / (eta * slope)))
        eta *= math.exp(step)
        if abs(step) < ROUGHLY:
            if tail > ROUGH:
                break
            tail = 2.0 * ROUGH
    return eta
