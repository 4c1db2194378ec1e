"""Capped powers of the age under Poisson refreshes, one source.

With the age t₀ at which the cap is reached and x = ρt₀, the marginal value is G(x) times the plateau, that of
ρ = 0, and the cost is J:

    G = (1 + e)·∫₀¹ z^e e^{−xz} dz = e^{−x}·S(x),    S = 1 + Σ_{n≥1} xⁿ/((2 + e)···(n + 1 + e)),
    J = U·e^{−x}·(1 + x·S/(1 + e)),    U = plateau·κ·(1 + e)/e,    κ = 1/t₀.

All terms are positive. From x = e + 40 + 9√e on the cap is not felt: what is left of a gamma distribution of
shape 1 + e there is less than half an ulp, and marginal value and cost are those of the power law
C·ρ^{−e−1}, with C = a·e·Γ(1 + e). Without a cap κ is 0.

**Best response.** F(x) = −log G = x − log S is log(plateau/λ). The power law, and a gamma distribution of the
mean of z in place of z, have a larger G (the latter is (1 + x/(2 + e))^{−1−e}), so that both roots are above
the one sought, the lesser one by a quarter at most, which a factor of their ratio centres. With
xF' = (1 + e)(1 − 1/S) Halley's method on logarithms, where F is nearly straight, leaves 1e-5 and then
rounding.

**Reach.** z has a logarithmically concave density, also where e^{−xz} weighs it, and so a variance of at most
its mean squared. Therefore 1/F' − x does not rise, and is at most (2 + e)/(1 + e), which it is at 0: with s
that times κ, (ρ + s)·m never rises (`freshopt.compiled.proof_functions`).
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from freshopt.compiled.proof_functions import HALF_ULP, ROUNDING, TINY, Excess, ProofCell, Values, power_law
from freshopt.numerics.arrays import Array
from freshopt.numerics.vector_math import fast_exp, fast_log

Exponent = TypeVar("Exponent", float, Array)

# How much less than the lesser of both roots above it the start is where they are equal: fitted, it is off by
# −4 to 10 %.
APART = 0.2


def settled(e: Exponent) -> Exponent:
    """Return the x from which on the cap is not felt."""
    found: Exponent = e + 40.0 + 9.0 * np.sqrt(e)
    return found


def terms(x: float, e: float) -> np.int64:
    """Return how many terms of S leave an ulp at most.

    Examples
    --------
    >>> [int(terms(x, 0.5)) for x in (0.0, 1.0, 36.0)]
    [8, 18, 103]
    """
    return np.int64(8.0 + 10.0 * math.sqrt(x) + max(x - e, 0.0))


def series(x: float, e: float) -> float:
    """Return S − 1 for x up to `settled`.

    Examples
    --------
    >>> round(float(series(1.0, 0.0)), 12)  # (e^x − 1)/x − 1
    0.718281828459
    """
    term, total = 1.0, 0.0
    for k in range(terms(x, e)):
        term = term * (x / (e + 2.0 + k))
        total = total + term
    return total


def felt_step(x: float, nats: float, e: float) -> float:
    """Return Halley's next x, of F(x) = nats."""
    total = series(x, e)
    whole = 1.0 + total
    # log S: what rounding takes from the sum is added to first order.
    found = x - (fast_log(whole) + (total - (whole - 1.0)) / whole)
    # xF' and the slope of that, by log x.
    slope = (1.0 + e) * (total / whole)
    rise = (1.0 + e) * (x - slope) / whole
    share = slope / found
    step = fast_log(found / nats) / share
    return x * fast_exp(-step / (1.0 - 0.5 * step * (rise / slope - share)))


def capped_poisson(worth: float, log_scale: float, e: float, kink: float, plateau: float) -> float:
    """Return the best response of a capped power, Poisson.

    It is 0 where λ is above the plateau.

    Examples
    --------
    >>> rate = capped_poisson(4.0, 0.0, 1.0, 1.0, 0.5)  # (1 − (1 + ρ)e^{−ρ})/ρ² is 1/4
    >>> round((1.0 - (1.0 + rate) * math.exp(-rate)) / rate**2, 12)
    0.25
    """
    free = fast_exp((fast_log(worth) + log_scale) / (1.0 + e))
    most, alone, gained = settled(e), free / max(kink, TINY), worth * plateau
    unfelt, pays = alone >= most, gained > 1.0
    # Where the cap is not felt nothing is searched.
    nats = fast_log(1.0 if unfelt | (not pays) else gained)
    x = (2.0 + e) * math.expm1(nats / (1.0 + e))
    alone, x = max(most if unfelt else alone, TINY), max(x, TINY)
    near = min(alone, x) / max(alone, x)
    nats, x = max(nats, TINY), min(alone, x) / (1.0 + APART * near * near * near)
    x = min(felt_step(x, nats, e), most)
    x = min(felt_step(x, nats, e), most)
    return (free if unfelt else kink * x) if pays else 0.0


def capped_poisson_values(
    rate: float, w: float, log_scale: float, e: float, kink: float, plateau: float
) -> Values:
    """Return U·e^{−x}(1 + xS/(1 + e)) and w·plateau·e^{−x}S.

    Examples
    --------
    >>> [round(float(x), 6) for x in capped_poisson_values(1.0, 3.0, 0.0, 1.0, 1.0, 0.5)[:3]]
    [0.632121, 0.0, 0.792723]
    """
    left, _, alone, lost = power_law(rate, 1.0, log_scale, e)
    x = rate / kink
    felt = x < settled(e)
    x = x if felt & (x > 0.0) else 0.0
    faded, whole = fast_exp(-x), 1.0 + series(x, e)
    cost = plateau * (kink * ((1.0 + e) / e)) * (faded * (1.0 + x * whole / (1.0 + e)))
    marginal = w * (plateau * (faded * whole))
    rounding = ROUNDING + 8.0 * HALF_ULP * x
    return cost if felt else left, 0.0, marginal if felt else w * alone, rounding if felt else lost


def reach_of_capped_poisson(
    rate: float, _w: float, excess: Excess, _log_scale: float, e: float, kink: float, _plateau: float
) -> float:
    """Return (ρ + κ(2 + e)/(1 + e))·off/ν."""
    off, paid, _, _ = excess
    return (rate + kink * ((2.0 + e) / (1.0 + e))) * (off / paid)


CAPPED_POISSON = ProofCell(capped_poisson_values, reach_of_capped_poisson)
