"""Age of one source on request: best response.

With κ = Δ/ζ, u = ΔT and T the lifetime, the rate is ρ = Δ/(κ + u), and the marginal value of the cell
(`freshopt.modelling.request_cell`) is m = w·Φ(u)/Δ² with

    Φ(u) = A(u) + κ·h(u),    A = u²/2 − P(2, u),    h = u − 1 + e^{−u},    Φ' = (κ + u)(1 − e^{−u}).

**Best response.** The u with Φ(u) = q = Δ²/a, a = w/λ. For small u, Φ is u³/3 + κu²/2; with e^{−u} = 0 and
whole changes, u²/2 + κu. The root of the squares of both solutions, where cubes and squares are taken
together by their squares too, is a start to 19 %. On logarithms Φ is nearly straight: of its slope
E = uΦ'/Φ a step u·(q/Φ)^{1/E} leaves 1e-3, and Halley's method two times the last digits.

**Reach** (`freshopt.compiled.cells.request_proofs`): Φ' rises, so that Φ(u)/u does not fall.
"""

from __future__ import annotations

from freshopt.compiled.cells.request_functions import MANY, MANY_CHANGES, SMALLEST
from freshopt.compiled.cells.request_tables import index_and_age
from freshopt.compiled.demand_steps import MOST
from freshopt.numerics.vector_math import rough_exp, rough_log, rough_root

# The start is off by −10 to 19 %, which this centres.
CENTRE = 0.96


def request_age(worth: float, d: float, asked: float) -> float:
    """Return the best response of age on request.

    Δ/(κ + u) with u²/2 − P(2, u) + κ(u − 1 + e^{−u}) = Δ²/a.

    Examples
    --------
    >>> rate = request_age(2.0, 1.0, 1.0)
    >>> u = 1.0 / rate - 1.0
    >>> index, age = index_and_age(u)
    >>> round(float(age + index), 12)
    0.5
    """
    k = d / asked
    q = min(d * (d / worth), MOST)
    u = age_start(k, q)
    # Steps are written out: loops in which there are loops are not vectorised.
    u = age_first_step(u, k, q)
    u = age_step(u, k, q)
    u = u if q > SMALLEST else 0.0
    # Selected by a factor: a branch would keep loops from being vectorised.
    whole = k + u
    rate = d / whole
    # d/(d/ζ) may be an ulp beside ζ.
    return (rate if whole > k else asked) * (1.0 if worth > 0.0 else 0.0)


def age_start(k: float, q: float) -> float:
    """Return a start: few and many changes, their squares added.

    It is off by 19 % at most.
    """
    kappa, load = min(k, MANY), max(q, SMALLEST)
    cube = rough_exp((1.0 / 3.0) * rough_log(3.0 * load))
    few = 1.0 / (kappa / (2.0 * load) + 1.0 / (cube * cube))
    many = 2.0 * load / (kappa + rough_root(kappa * kappa + 2.0 * load))
    return max(SMALLEST, CENTRE * rough_root(few + many * many))


def age_first_step(u: float, k: float, q: float) -> float:
    """Return u·(q/Φ)^{1/E}, by rational functions."""
    index, age = index_and_age(u)
    below = u - index
    fall = below if u < MANY_CHANGES else 1.0
    value = age + k * index
    apart = (q - value) / value
    log = apart * (6.0 + 3.0 * apart) / (6.0 + apart * (6.0 + apart))
    whole = k + u
    slope = u * (whole * fall) / value
    # Half of Halley's z; e^z ≈ (1 + z/2 + z²/12)/(1 − z/2 + z²/12).
    half = 0.5 * log / slope
    bend = 1.0 + u / whole + u * (1.0 - fall) / fall - slope
    half = half / (1.0 + half * bend)
    square = 1.0 + half * half * (1.0 / 3.0)
    factor = (square + half) / (square - half)
    # What is no number, or no small step, is none.
    return u * (factor if abs(factor - 1.25) < 0.75 else 1.0)


def age_step(u: float, k: float, q: float) -> float:
    """Return Halley's next u."""
    index, age = index_and_age(u)
    below = u - index
    fall = below if u < MANY_CHANGES else 1.0
    whole = k + u
    one = 1.0 / (whole * fall)
    step = (age + k * index - q) * one
    # Φ''/Φ' = 1/(κ + u) + e^{−u}/(1 − e^{−u}).
    bend = fall * one + (1.0 - fall) * (whole * one)
    share = step / (1.0 - 0.5 * step * bend) / u
    return u - u * (share if abs(share) < 0.5 else 0.0)
