"""Signals of one source: best response, cost and marginal value.

A source that announces all its changes is known to have missed m of them at any moment, and costs c(m) then.
At a price ν per crawl the least of E ∫ (c − η) dt + ν over a cycle, η the cost on average, is reached by
crawling once c(m) ≥ η, whatever the times: at every N-th signal. So no rule costs less at a rate ρ = Δ/N,
neither a share of the signals at random nor equal gaps; between these rates N and N + 1 alternate. With C_N
the cost at Δ/N the cost is piecewise linear in p = ρ/Δ, and its marginal value on the stretch from Δ/(N+1) to
Δ/N is V_N/Δ, V_N = N·c(N) − Σ_{m<N} c(m):

==============  =======  ==============  ===========  ==========================
cell            c(m)     C_N             V_N          J on the stretch
==============  =======  ==============  ===========  ==========================
harmonic        H(m)     H(N) − 1        N            H(N) − N·p
delay           m        (N − 1)/2       N(N + 1)/2   N − p·N(N + 1)/2
binary          1        1 − 1/N         1            1 − p, that of any share
==============  =======  ==============  ===========  ==========================

The best response to a price q = νΔ/w is Δ/N for the least N with V_N ≥ q.

**Age** tells signals apart by their times: at the price ν a copy is due once so much time has passed since
the first signal that it missed, σ, whatever came after. A cycle takes 1/Δ + σ and costs σ²/2: σ = 1/ρ − 1/Δ,

    J = (1 − p)²/(2ρ),     −J' = (1/ρ² − 1/Δ²)/2,

half of what a share of signals costs and less; there are no stretches. Δ − ρ loses nothing near Δ.

**Gap.** All best responses to prices within rounding of q lie between Δ/N for two such N. A rate beyond adds
at most |m − ν| times its distance to the nearer one, and what lies between at most what rounding leaves.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.proof_functions import ROUNDING, Excess, ProofCell, Values, reach_from_zero
from freshopt.numerics.vector_math import fast_log

# Numbers of signals beyond are no whole numbers any more.
MOST_SIGNALS = 2.0**50
# A rate is at Δ/N within so much of it.
AT = 1.0 + 4.0 * 2.0**-52
# So many terms are added before the series of H(n) in 1/n; it is off by 4e-15 of the next one then.
SHIFT = 8.0


def harmonic_number(n: float) -> float:
    """Return the harmonic number H(n) for n ≥ 1.

    Examples
    --------
    >>> round(float(harmonic_number(1.0)), 13), round(float(harmonic_number(100.0)), 12)
    (1.0, 5.18737751764)
    """
    m, early = n + SHIFT, 0.0
    for j in range(8):
        early += 1.0 / (m - j)
    s = 1.0 / (m * m)
    rest = 1.0 / 240.0 - s * (1.0 / 132.0 - s * (691.0 / 32760.0))
    tail = s * (1.0 / 12.0 - s * (1.0 / 120.0 - s * (1.0 / 252.0 - s * rest)))
    return fast_log(m) + np.euler_gamma + 0.5 / m - tail - early


def signals_until(q: float) -> float:
    """Return the least N ≥ 1 with N ≥ q: harmonic."""
    n: float = np.ceil(q)
    return max(1.0, n)


def delayed_signals_until(q: float) -> float:
    """Return the least N ≥ 1 with N(N+1)/2 ≥ q: delay."""
    n: float = np.ceil(4.0 * q / (1.0 + math.sqrt(1.0 + 8.0 * q)))
    return max(1.0, n)


def harmonic_counted(worth: float, d: float) -> float:
    """Return Δ/N with N = ⌈Δ/a⌉: harmonic staleness, every N-th signal.

    Examples
    --------
    >>> float(harmonic_counted(0.4, 1.0)), float(harmonic_counted(3.0, 1.0))
    (0.3333333333333333, 1.0)
    """
    q = d / max(worth, d / MOST_SIGNALS)
    return d / signals_until(q) if q < MOST_SIGNALS else worth


def delay_counted(worth: float, d: float) -> float:
    """Return Δ/N, N(N + 1)/2 ≥ Δ/a: accumulated delay, every N-th signal.

    Examples
    --------
    >>> float(delay_counted(0.4, 1.0)), float(delay_counted(0.3, 1.0))
    (0.5, 0.3333333333333333)
    """
    q = d / max(worth, d / MOST_SIGNALS / MOST_SIGNALS)
    n = delayed_signals_until(q)
    return d / n if n < MOST_SIGNALS else math.sqrt(0.5 * worth) * math.sqrt(d)


def age_counted(worth: float, d: float) -> float:
    """Return Δ/√(1 + 2Δ²/a): age, some time after the first signal missed.

    Examples
    --------
    >>> round(float(age_counted(2.0, 1.0)), 6), float(age_counted(1e-200, 1.0)) > 7e-101
    (0.707107, True)
    """
    t = math.sqrt(2.0) * d / math.sqrt(worth)
    return d / math.sqrt(1.0 + t * t) if t < 1e8 else math.sqrt(0.5 * worth)


def harmonic_counted_values(rate: float, w: float, d: float) -> Values:
    """Return H(N) − N·p and w·N/Δ."""
    n = max(1.0, np.floor(min(d / rate, 1e300) * AT))
    above = harmonic_number(n) - 1.0 if n > 1.0 else 0.0
    cost = max(above + (1.0 - n * (rate / d)), 0.0)
    return cost if rate > 0.0 else np.inf, 0.0, (w / d) * n, ROUNDING


def delay_counted_values(rate: float, w: float, d: float) -> Values:
    """Return N − p·N(N + 1)/2 and w·N(N + 1)/2Δ."""
    n = max(1.0, np.floor(min(d / rate, 1e150) * AT))
    cost = max(0.5 * ((n - 1.0) + (n + 1.0) * (1.0 - n * (rate / d))), 0.0)
    return cost if rate > 0.0 else np.inf, 0.0, (w / d) * (0.5 * n * (n + 1.0)), ROUNDING


def age_counted_values(rate: float, w: float, d: float) -> Values:
    """Return (Δ − ρ)²/(2ρΔ²) and w·(Δ − ρ)(Δ + ρ)/(2ρ²Δ²)."""
    left = max(d - rate, 0.0) / d
    cost = 0.5 * left * (left / rate)
    return cost if rate > 0.0 else np.inf, 0.0, (w / rate) * (left / rate) * (0.5 * (d + rate) / d), ROUNDING


def reach_of_harmonic(rate: float, w: float, excess: Excess, d: float) -> float:
    """Return the distance to Δ/N, N = ⌈νΔ/w⌉."""
    off, paid, _, _ = excess
    q = paid * (d / w)
    first, last = signals_until(q * (1.0 - ROUNDING)), signals_until(q * (1.0 + ROUNDING))
    return beyond(rate, d / first, d / last, paid / off)


def reach_of_delay(rate: float, w: float, excess: Excess, d: float) -> float:
    """Return the distance to Δ/N, N(N+1)/2 ≥ νΔ/w."""
    off, paid, _, _ = excess
    q = paid * (d / w)
    first = delayed_signals_until(q * (1.0 - ROUNDING))
    last = delayed_signals_until(q * (1.0 + ROUNDING))
    return beyond(rate, d / first, d / last, paid / off)


def beyond(rate: float, high: float, low: float, per_off: float) -> float:
    """Return how far a rate is beyond two others, with rounding's share."""
    return max(rate - high, low - rate, 0.0) + ROUNDING * (rate + 2.0 * per_off * (high - low))


def reach_of_age(rate: float, w: float, excess: Excess, d: float) -> float:
    """Return the distance to a rate; −J'' is at least w/Δ³."""
    off, _, _, _ = excess
    most = max(rate, d)
    return min(reach_from_zero(rate, w, excess), (off * (most / w)) * most * most)


HARMONIC_COUNTED = ProofCell(harmonic_counted_values, reach_of_harmonic)
DELAY_COUNTED = ProofCell(delay_counted_values, reach_of_delay)
# The marginal value of age has an elasticity of 2/(1 − p²).
AGE_COUNTED = ProofCell(age_counted_values, reach_of_age)
