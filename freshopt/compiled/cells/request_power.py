"""Powers of the age on request, one source: best response.

With τ = ζT, T the lifetime, the rate is ρ = ζ/(1 + τ), and the marginal value of the cost a·s^e
(`freshopt.modelling.request_cell`) is

    m = C·τ^e·(1 + kτ),    C = w·a/ζ^{1+e},    k = e/(1 + e).

**Best response.** With x = log τ, G(x) = ex + log(1 + ke^x) is log(λ/C). G is convex, and at most log 2 above
both lines ex and (1 + e)x + log k, so that the lesser of the two points where these have the value is a start
above the root. Halley's method corrects it twice with rough exponentials, to a tenth or better, and twice
with exact ones, to the last digits.

**A cap** that is reached at the age t₀ leaves a constant marginal value below the rate κ = 1/(t₀ + 1/ζ), the
plateau, which is the m of the lifetime t₀.

**Reach** (`freshopt.compiled.cells.request_proofs`): G' ≥ e, so that m/τ^e does not fall with τ.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.demand_functions import from_kink
from freshopt.numerics.vector_math import fast_exp, fast_log, rough_exp

# Of this exponent the first steps leave 2e-5 at worst, of smaller ones more.
LEAST_EXPONENT = 0.01
# Below all levels of some importance.
LEAST_LEVEL = -1e9


def request_power(worth: float, level: float, e: float, asked: float) -> float:
    """Return the best response of a power of age on request.

    ζ/(1 + τ) with C·τ^e·(1 + kτ) = λ; the level is log C, −inf for no importance; the first argument is 1/λ.

    Examples
    --------
    >>> round(float(request_power(0.25, 0.0, 1.0, 3.0)), 12)  # τ(1 + τ/2) = 4 at τ = 2
    1.0
    """
    target = -(fast_log(worth) + (level if level > LEAST_LEVEL else LEAST_LEVEL))
    k = e / (1.0 + e)
    log_k = fast_log(k)
    seldom, often = target / e, (target - log_k) / (1.0 + e)
    x = seldom if seldom < often else often
    # Steps are written out: loops in which there are loops are not vectorised.
    x = rough_step(x, target, log_k, e)
    x = rough_step(x, target, log_k, e)
    _, step = power_step(x, target, k, e)
    life, step = power_step(x - step, target, k, e)
    # The last step is 1e-4 at most: three terms of e^{−step} do.
    life *= 1.0 - step * (1.0 - 0.5 * step)
    # Selected by a factor: a branch would keep loops from being vectorised.
    return asked / (1.0 + life) * (1.0 if level > -np.inf else 0.0)


def capped_request_power(
    worth: float, level: float, e: float, asked: float, kink: float, plateau: float
) -> float:
    """Return the best response of a capped power of age on request.

    It is 0 where λ is above the plateau.

    Examples
    --------
    >>> [round(float(capped_request_power(w, 0.0, 1.0, 3.0, 1.0, 4.0)), 12) for w in (0.2, 0.25, 1.0)]
    [0.0, 1.0, 1.732050807569]
    """
    return from_kink(request_power(worth, level, e, asked), worth * plateau, kink)


def rough_step(x: float, target: float, log_k: float, e: float) -> float:
    """Return Halley's next x, of log(1 + ke^x) to 3 %."""
    above = x + log_k
    ratio = rough_exp(-abs(above))
    excess = e * x + max(above, 0.0) + ratio * (6.0 + ratio) / (6.0 + 4.0 * ratio) - target
    least = 1.0 / (1.0 + ratio)
    share = least if above > 0.0 else ratio * least
    return x - halley(excess, e + share, ratio * least * least)


def power_step(x: float, target: float, k: float, e: float) -> tuple[float, float]:
    """Return e^x, and Halley's step from x, of G(x) = target."""
    life = fast_exp(x)
    part = k * life
    whole = 1.0 + part
    least = 1.0 / whole
    # log(1 + part): what rounding takes from the sum is added to first order.
    excess = e * x + (fast_log(whole) + (part - (whole - 1.0)) * least) - target
    share = part * least
    return life, halley(excess, e + share, share * least)


def halley(excess: float, slope: float, bend: float) -> float:
    """Return Halley's step from a value, its slope and the slope's."""
    step = excess / slope
    return step / (1.0 - 0.5 * step * bend / slope)
