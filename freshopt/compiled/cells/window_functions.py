"""Refreshes on request with stale-while-revalidate windows, one source: best response.

With a window σ, κ = Δ/ζ, x = ζσ, y = Δσ and u = ΔT, the marginal value (`freshopt.modelling.request_cell`) is
m = w·Φ(u)/Δ, in the Φ₀ of refreshes without a window (`freshopt.compiled.cells.request_functions`)

========  ===================================================================
cell      Φ(u)
========  ===================================================================
delay     κ²·xe^{−x} + Φ₀(u)
binary    κe^{−x}(1 − e^{−y}) + b·Φ₀(u),    b = (1 + κe^{−x−y})/(1 + κ)
========  ===================================================================

so that the best responses to Φ = q are those to Φ₀ = q₀, and ζ for q₀ ≤ 0. Delay: with A = κ + u, A² = κ² +
2q₀ = κ²(1 − 2xe^{−x}) + 2q, which is without a window that at ζ/√(1 − 2xe^{−x}); 2xe^{−x} is at most 0.74.
Binary: the share q₀/(1 + κ) of the largest Φ₀ is (q − κe^{−x}(1 − e^{−y}))/(1 + κe^{−x−y}).
"""

from __future__ import annotations

import math

from freshopt.compiled.cells.request_functions import binary_rate, request_delay
from freshopt.compiled.proof_tables import fallen
from freshopt.numerics.vector_math import fast_exp

# Windows of more requests are taken for those of so many, where e^{−x} is nothing. Later it and its products
# would be no normal floats, which processors are slow with.
MANY_REQUESTS = 600.0
# e^{−x} is nothing beside 1 beyond.
FADED = 40.0


def window_delay(worth: float, d: float, asked: float, window: float) -> float:
    """Return the best response of delay, with a window.

    Examples
    --------
    >>> round(window_delay(2.0, 1.0, 1.0, 0.0), 12), window_delay(1e9, 1.0, 1.0, 2.0)
    (0.707106781187, 1.0)
    """
    x = asked * window
    x = x if x < MANY_REQUESTS else MANY_REQUESTS
    rate = request_delay(worth, d, asked / math.sqrt(1.0 - 2.0 * x * fast_exp(-x)))
    return rate if rate < asked else asked


def window_binary(worth: float, d: float, asked: float, window: float) -> float:
    """Return the best response of binary freshness, with a window.

    Examples
    --------
    >>> round(float(window_binary(1.0, 2.0, 1.0, 0.0)), 6), window_binary(1e9, 1.0, 1.0, 2.0)
    (0.570574, 1.0)
    """
    k, x = d / asked, asked * window
    fall = fallen(d * window)[0]
    load = k * fast_exp(-(x if x < MANY_REQUESTS else MANY_REQUESTS))
    return binary_rate((d / worth - load * fall) / (1.0 + load * (1.0 - fall)), d, k)
