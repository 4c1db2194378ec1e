"""Age on request with a stale-while-revalidate window, one source.

With u = ΔT, κ = Δ/ζ, x = ζσ, y = Δσ and h = u − 1 + e^{−u} the marginal value
(`freshopt.modelling.request_cell`) is m = w·Φ(u)/Δ². It rises as Φ' = (κ + u)·S, S the mean of 1 − e^{−s} at
s = u + κ·min(Z, x), Z exponential:

    S = (1 − e^{−u}) + p·e^{−u},     p = κ(1 − e^{−x−y})/(1 + κ),
    Φ = κe^{−x}h(y) + Ψ,     Ψ = Φ₀(u) + p·(κ(1 − e^{−u}) + P(2, u)),

with Φ₀ that of refreshes without a window (`freshopt.compiled.cells.request_age`). The cost is
(1 − ρ/ζ)·(mean age) + (ρ/Δζ)·L with L = ∫₀ˣ e^{−z}h(u + κz) dz; h(u + s) = h(u) + (1 − e^{−u})s + e^{−u}h(s):

    L = h(u)(1 − e^{−x}) + (1 − e^{−u})κ·P(2, x) + e^{−u}·(κ/(1 + κ))·(κ·P(3, x) + xe^{−x}·(mean of h to y)).

**Best response.** Ψ(u) = q = Δ²/a − κe^{−x}h(y). Φ₀ = q and p(κu + u²/2) = q have roots above it, the lesser
one by a half at most, which a factor of their ratio centres. On logarithms, where Ψ is nearly straight, steps
of Householder's third order leave 2e-5 and then rounding. With S' = (1 − p)e^{−u} = −S'', r = u/(κ + u) and
s = uS'/S, the elasticity E = uΨ'/Ψ has the relative slope B = 1 + r + s − E in log u, and B the slope
r(1 − r) + s(1 − u − s) − EB.

**Reach.** With δ = |Φ − Φ(û)| and A = κ + u:

  - û > u: as S rises, δ ≥ S(u)(² − A²)/2, so that ρ − ρ̂ = ρ(1 − A/Â) ≤ ρ·δ/(S·A²).
  - û < u: as Φ' rises, so does Ψ/u, so that u/û ≤ Ψ(u)/(Ψ(u) − δ), and ρ̂/ρ − 1 = (u − û)/(κ + û) ≤ r/(1 − r)
    with r = (1 − ρ/ζ)·min(1, δ/Ψ(u)).
"""

from __future__ import annotations

import math

from freshopt.compiled.cells.request_age import age_start
from freshopt.compiled.cells.request_functions import MANY, MANY_CHANGES
from freshopt.compiled.cells.request_tables import index_and_age
from freshopt.compiled.cells.window_functions import MANY_REQUESTS
from freshopt.compiled.demand_steps import MOST
from freshopt.compiled.proof_tables import fallen
from freshopt.numerics.vector_math import fast_exp, fast_log

# How much less than the lesser of both roots above it the start is where they are equal: fitted, it is off by
# a quarter at most.
APART = 0.25
# Squares of smaller loads are no normal floats, which processors take long over.
SMALLEST = 1e-200


def bend_of(k: float, x: float, y: float) -> float:
    """Return p, S at u = 0.

    Examples
    --------
    >>> float(bend_of(1.0, 700.0, 700.0))
    0.5
    """
    left, later = fallen(x), fallen(y)
    return k / (1.0 + k) * (left[0] + fast_exp(-x) * later[0])


def value_and_slope(u: float, k: float, bend: float) -> tuple[float, float]:
    """Return Ψ(u) and S(u).

    Examples
    --------
    >>> [round(float(each), 6) for each in value_and_slope(1.0, 2.0, 0.5)]
    [1.735759, 0.81606]
    """
    index, age = index_and_age(u)
    fresh = fast_exp(-u)
    fall = u - index if u < 1.0 else 1.0 - fresh
    # P(2, u).
    second = u * fall - index if u < MANY_CHANGES else 1.0
    return age + k * index + bend * (k * fall + second), fall + bend * fresh


def bent_age_step(u: float, k: float, bend: float, load: float) -> float:
    """Return Householder's next u, of Ψ(u) = load."""
    value, slope = value_and_slope(u, k, bend)
    whole = k + u
    elasticity = u * (whole * slope) / value
    r, s = u / whole, u * ((1.0 - bend) * fast_exp(-u)) / slope
    first = 1.0 + r + s - elasticity
    second = r * (1.0 - r) + s * (1.0 - u - s) - elasticity * first
    # (q/Ψ)^{1/E} = e^z.
    z = fast_log(load / value) / elasticity
    below = 1.0 + z * (0.5 * first + z * (2.0 * second - first * first) * (1.0 / 12.0))
    return u * fast_exp(min(max(z / max(below, 0.5), -3.0), 3.0))


def window_age(worth: float, d: float, asked: float, window: float) -> float:
    """Return the best response of age, with a window.

    Examples
    --------
    >>> round(float(window_age(2.0, 1.0, 1.0, 0.0)), 6), window_age(1e9, 1.0, 1.0, 2.0)
    (0.522459, 1.0)
    """
    k, x, y = d / asked, min(asked * window, MANY_REQUESTS), min(d * window, MANY)
    bend = bend_of(k, x, y)
    q = min(d * (d / worth), MOST) - k * (fast_exp(-x) * index_and_age(y)[0])
    load = max(q, SMALLEST)
    kappa, ratio = min(k, MANY), min(load / max(bend, SMALLEST), MOST)
    u, other = 2.0 * ratio / (kappa + math.sqrt(kappa * kappa + 2.0 * ratio)), age_start(k, load)
    near = min(u, other) / max(u, other)
    u = max(min(u, other) / (1.0 + APART * near * near), SMALLEST)
    # Steps are written out: loops in which there are loops are not vectorised.
    u = bent_age_step(u, k, bend, load)
    u = bent_age_step(u, k, bend, load)
    whole = k + (u if q > SMALLEST else 0.0)
    rate = d / whole
    # d/(d/ζ) may be an ulp beside ζ.
    return (rate if whole > k else asked) * (1.0 if worth > 0.0 else 0.0)


def served_aged(u: float, k: float, x: float, y: float) -> float:
    """Return L, what expired copies cost that are served."""
    index, fall, fresh = index_and_age(u)[0], fallen(u)[0], fast_exp(-u)
    left, moment, _, _ = fallen(x)
    # P(3, x) = P(2, x) − e^{−x}x²/2, and x²/2 − P(2, x) is at hand.
    square = 0.5 * x * x
    third = moment - fast_exp(-x) * square if x > 1.0 else square * left - index_and_age(x)[1]
    expected, second = index_and_age(y)
    mean = expected - second / y if y > 0.0 else 0.0
    new = k / (1.0 + k) * (k * third + x * fast_exp(-x) * mean)
    return index * left + fall * k * moment + fresh * new
