"""Refreshes on request of one source: best response, marginal value and reach.

With requests at rate ζ, κ = Δ/ζ and u = ΔT, T = 1/ρ − 1/ζ the lifetime, the rate is ρ = Δ/(κ + u), and the
marginal value of the cell (`freshopt.modelling.request_cell`) is m = w·Φ(u)/Δ with

========  =================================  ===========================
cell      Φ(u)                               Φ'(u)
========  =================================  ===========================
delay     u²/2 + κu                          κ + u
harmonic  u − 1 + e^{−u} + κ·Ein(u)          (κ + u)·(1 − e^{−u})/u
binary    P(2, u) + κ(1 − e^{−u})            (κ + u)·e^{−u}
========  =================================  ===========================

**Best response.** Φ(u) = q = Δ/a with a = w/λ, and ρ = Δ/A with A = κ + u. Delay: A² = κ² + 2q. Binary: it is
1 − (1 + A)e^{−u}/(1 + κ) = q/(1 + κ), in logarithms φ(A) = φ(κ) − log(1 − q/(1 + κ)) with φ(A) = A −
log(1 + A), one function for all κ. Harmonic: a start to 8 % is corrected twice by Halley's
method, to 4e-5 and to rounding.

**Reach.** With A = κ + u, Â that of the best response, q = νΔ/w for the price ν, and δ = |Φ − q|:

  - Delay: |A² − ²| = 2δ. Let h = 0.
  - Harmonic: (1 − e^{−u})/u ≥ 1/(1 + u). Let h = u.
  - Binary: L(u) = u − log(1 + u/p) = −log(1 − Φ/p), L' = A/(1 + A). Let h = A, and δ = |Φ − q|/(p − Φ):
    as p − Φ = (p + u)e^{−u}, L(u) − L(û) = log(1 + δ) ≤ δ for û < u, and L(û) − L(u) = −log(1 − δ) ≤ 2δ for
    û > u and δ ≤ 1/2.

With x = (1 + h)δ/A²: for û < u, δ ≥ (A² − ²)/(2(1 + h)), so that ρ̂/ρ = A/ ≤ 1/√(1 − 2x). For û > u, ρ − ρ̂ =
ρ(û − u)/Â is at most 2ρx: of delay and binary since A/(1 + h) rises with u, of harmonic since log(1 + û) −
log(1 + u) ≤ δ/A, if that is at most 1. In any case Φ(û) ≤ û²/2 + κû, so that ρ̂ ≤ Δ/√(2q), and ρ̂ ≥ 0.
"""

from __future__ import annotations

import math

from freshopt.compiled.cells.request_tables import index_and_ein, whole_gap
from freshopt.compiled.demand_functions import LAST
from freshopt.compiled.demand_steps import MOST
from freshopt.compiled.proof_tables import LOG_EXCESS, ratio_at
from freshopt.numerics.special_functions import EULER_GAMMA
from freshopt.numerics.vector_math import fast_log, rough_exp, rough_log, rough_root

# Factors of a quadratic equation in whose place harmonic staleness is taken up to `FEW` changes: fitted, they
# leave 0.5 %.
EIN_BEND, INDEX_BEND, INDEX_RISE, SHARE, FEW = 0.2581, 0.3154, 0.0390, 1.619, 4.5
# Squares of what is between are floats.
SMALLEST, MANY = 1e-300, 1e150
# Beyond so many changes e^{−u} is 0.
MANY_CHANGES = 1e3

# Octaves that the tables cover, and the largest product that is a float.
SMALLEST_GAP, LARGEST_GAP = 2.0**-53, 2.0**54 * (1.0 - 2.0**-53)


def within_table(u: float) -> float:
    """Return u within the tables; NaN counts as the smallest."""
    above = u if u > SMALLEST_GAP else SMALLEST_GAP
    return above if above < LARGEST_GAP else LARGEST_GAP


def log_excess_of(v: float) -> float:
    """Return v − log(1 + v).

    Examples
    --------
    >>> bool(abs(log_excess_of(3.0) / (3.0 - math.log(4.0)) - 1.0) < 1e-15)
    True
    """
    return v / (2.0 + v) * v * ratio_at(LOG_EXCESS, within_table(v))


def request_delay(worth: float, d: float, asked: float) -> float:
    """Return r/√(1 + (r/ζ)²), r = √(aΔ/2): delay on request.

    Examples
    --------
    >>> round(request_delay(2.0, 1.0, 1.0), 12) == round(math.sqrt(0.5), 12)
    True
    """
    r = math.sqrt(0.5 * min(worth * d, MOST))
    ratio = r / asked
    below = ratio if ratio < 1.0 else 1.0
    above = asked / r
    return r / math.sqrt(1.0 + below * below) if ratio < 1.0 else asked / math.sqrt(1.0 + above * above)


def request_binary(worth: float, d: float, asked: float) -> float:
    """Return the best response of binary freshness on request.

    Δ/A with A − log(1 + A) = κ − log(1 + κ) − log(1 − q/(1 + κ)), else 0.
    """
    k = d / asked
    return binary_rate(d / worth / (1.0 + k), d, k)


def binary_rate(share: float, d: float, k: float) -> float:
    """Return the rate of what was looked up.

    It is Δ/A with A − log(1 + A) = κ − log(1 + κ) − log(1 − share), else 0.
    """
    inside = min(max(share, 0.0), LAST)
    rest = 1.0 - inside
    # What rounding takes from 1 − share is added to the logarithm to first order.
    level = (inside - (1.0 - rest)) / rest - fast_log(rest)
    whole = whole_gap(log_excess_of(k) + level)
    # Where κ² underflows, A is no less than κ.
    rate = d / (whole if whole > k else k)
    return rate if share < 1.0 else 0.0


def harmonic_start(k: float, q: float) -> float:
    """Return Halley's start for harmonic staleness, to 8 %.

    u with u − 1 + e^{−u} + κ·Ein(u) = q. Few changes: the index u²/2/(1 + cu) and Ein = u/(1 + cu) make a
    quadratic equation; c is between the two best ones, by their shares of q. Many: u + κ(log u + γ) = q + 1,
    so that y = u/κ is y + log y = x, and e^x = v the argument of Lambert's W(v), which is about
    L(1 − log(1 + L)/(2 + L)) with L = log(1 + v).
    """
    t = q / k
    kappa, load = min(k, MANY), min(q, MANY)
    often = 2.0 * load / (rough_root(kappa * kappa + 2.0 * load) + kappa)
    weight = SHARE * often
    factor = (2.0 * EIN_BEND * kappa + (INDEX_BEND + INDEX_RISE * often) * weight) / (2.0 * kappa + weight)
    middle = kappa - factor * load
    root = rough_root(middle * middle + 2.0 * load)
    # What is selected is at hand: loops with work in a branch are not vectorised.
    outer, twice = root + abs(middle), 2.0 * load
    few = (twice if middle > 0.0 else outer) / (outer if middle > 0.0 else 1.0)
    x = t + 1.0 / k - EULER_GAMMA - rough_log(k)
    v = rough_exp(-abs(x))
    length = max(x, 0.0) + v * (1.0 + 0.5 * v) / (1.0 + v + v * v * (1.0 / 6.0))
    many = min(k * (length * (1.0 - rough_log(1.0 + length) / (2.0 + length))), q + 1.0)
    part = 1.0 if few >= FEW else 0.0
    return max(SMALLEST, part * many + (1.0 - part) * min(few, MOST))


def harmonic_step(u: float, k: float, q: float) -> float:
    """Return Halley's next u.

    Of u − 1 + e^{−u} + κ·Ein(u) = q.
    """
    whole = k + u
    index, ein = index_and_ein(u)
    # 1 − e^{−u}, which only slopes are made of.
    below = u - index
    fall = below if u < MANY_CHANGES else 1.0
    one = 1.0 / (whole * fall)
    step = (index + k * ein - q) * one
    # uΦ''/Φ' = u/(κ + u) + ue^{−u}/(1 − e^{−u}) − 1.
    bend = u * (fall * one + (1.0 - fall) * (whole * one)) - 1.0
    # What is no number, or no small step, is none.
    share = step / (1.0 - 0.5 * step * bend)
    return u - u * (share if abs(share) < 0.5 else 0.0)


def request_harmonic(worth: float, d: float, asked: float) -> float:
    """Return the best response of harmonic staleness on request.

    Δ/(κ + u) with u − 1 + e^{−u} + κ·Ein(u) = Δ/a.
    """
    k = d / asked
    q = min(d / worth, MOST)
    u = harmonic_start(k, q)
    # Steps are written out: loops in which there are loops are not vectorised.
    u = harmonic_step(u, k, q)
    u = harmonic_step(u, k, q)
    # Selected by a factor: a branch would keep loops from being vectorised.
    whole = k + u
    rate = d / whole
    # d/(d/ζ) may be an ulp beside ζ.
    return (rate if whole > k else asked) * (1.0 if worth > 0.0 else 0.0)


ON_REQUEST = (request_delay, request_binary, request_harmonic)
