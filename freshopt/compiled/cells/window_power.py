"""Powers of the age on request with a stale-while-revalidate window, one source.

With τ = ζT, x = ζσ, y = τ + x, k = e/(1 + e) and C, whose logarithm is the level of
`freshopt.compiled.cells.request_power`, marginal value and cost (`freshopt.modelling.request_cell`) are

    m = C·(kτ^{1+e} + τ·D + E),    J = ρ·C·(τ^{1+e}/(1 + e) + I),
    D = e∫₀ˣ e^{−z}(τ + z)^{e−1} dz,    E = e^{−x}y^e,    I = ∫₀ˣ e^{−z}(τ + z)^e dz = τ^e − E + D.

**D and I** are found by what hardly cancels: of windows of few requests that are short beside the lifetime by
Gauss's rule; else, of short lifetimes, by lower incomplete gamma functions, I = (y^{1+e}e^{−x}S(y) −
τ^{1+e}S(τ))/(1 + e) with the series S of `freshopt.compiled.cells.capped_poisson` and y at most where their
distribution ends; and of long ones by the continued fraction of upper ones, e∫₀^∞ e^{−z}(τ + z)^{e−1} dz =
eτ^e/(τ + 1 − e − ...).

The rest is in `freshopt.compiled.cells.window_sums`.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.cells.capped_poisson import series, settled
from freshopt.compiled.cells.window_functions import FADED
from freshopt.compiled.cells.window_sums import (
    LEAST_BENT,
    MANY,
    MOST_BENT,
    ages,
    asked_for,
    first_life,
    next_life,
    power_of,
    reach_of,
    values_of,
)
from freshopt.compiled.proof_functions import TINY, Excess, ProofCell, Values
from freshopt.numerics.vector_math import fast_exp, fast_log

# Exponents for which the rules below are right to rounding.
MOST_EXPONENT = 10.0
# Windows of fewer requests are few; they are short up to the lifetime, of large exponents up to a part of it.
FEW, BENT = 3.0, 6.0
# Lifetimes of so many requests more than the exponent are long, and windows of so many more are nearly all.
LONG, ENOUGH = 4.0, 5.0
NODES = 16
# Lifetimes of so many requests, times e² where that is less, are found sooner.
SOON = 25.0
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)
INNER, INNER_WEIGHTS = 0.5 * (1.0 + _POINTS), 0.5 * _WEIGHTS


def in_window(life: float, window: float, e: float) -> tuple[float, float]:
    """Return D and I.

    Examples
    --------
    >>> [round(float(x), 9) for x in in_window(1.0, 2.0, 1.0)]  # 1 − e^{−2} and 2 − 4e^{−2}
    [0.864664717, 1.458658867]
    """
    if (window <= FEW) & (window * max(e / BENT, 1.0) <= life):
        return bent_little(life, window, e)
    if life <= LONG + e:
        return of_short_lives(life, window, e)
    return of_long_lives(life, window, e)


def bent_little(life: float, window: float, e: float) -> tuple[float, float]:
    """Return D and I of windows that are short beside the lifetime."""
    slope, mean = 0.0, 0.0
    for j in range(NODES):
        late = window * INNER[j]
        age = life + late
        part = INNER_WEIGHTS[j] * fast_exp(e * fast_log(max(age, TINY)) - late)
        mean += part
        slope += part / max(age, TINY)
    return e * window * slope, window * mean


def of_short_lives(life: float, window: float, e: float) -> tuple[float, float]:
    """Return D and I of lifetimes of few requests."""
    # On arrays long lives are here too.
    life = min(life, LONG + e)
    within = min(window, settled(e) - life)
    age = life + within
    early, late = power_of(life, e), fast_exp(-within) * power_of(age, e)
    first = early * life * (1.0 + series(life, e)) / (1.0 + e)
    mean = late * age * (1.0 + series(age, e)) / (1.0 + e) - first
    return late - early + mean, mean


def of_long_lives(life: float, window: float, e: float) -> tuple[float, float]:
    """Return D and I of lifetimes and windows of many requests."""
    here = power_of(life, e)
    # On arrays short lives are here too.
    slope = e * (here * fraction(max(life, LONG), e))
    if window > FADED + e:
        return slope, here + slope
    there = fast_exp(-window) * power_of(life + window, e)
    slope = slope - e * (there * fraction(max(life, LONG) + window, e))
    return slope, here - there + slope


def fraction(z: float, e: float) -> float:
    """Return z^{−e}e^z·Γ(e, z) for z ≥ 4."""
    # So many terms leave an ulp.
    terms = np.int64(5.0 + 100.0 / z)
    found = z + (2.0 * terms + 1.0 - e)
    for k in range(terms, 0, -1):
        found = z + (2.0 * k - 1.0 - e) - k * (k - e) / found
    return 1.0 / found


def window_power(worth: float, level: float, e: float, asked: float, window: float) -> float:
    """Return the best response of a power of age, with a window.

    Examples
    --------
    >>> round(float(window_power(0.25, 0.0, 1.0, 3.0, 0.0)), 12), window_power(1e9, 0.0, 1.0, 3.0, 1.0)
    (1.0, 3.0)
    """
    price, x, first = asked_for(worth, level, e, asked, window)
    load = max(price - first, TINY)
    life = first_life(price, load, x, e, in_window(0.0, min(x, ENOUGH + e), e)[0])
    for _ in range(np.int64(2.0 + ((life * min(e * e, 1.0) < SOON) & ((e < LEAST_BENT) | (e > MOST_BENT))))):
        slope, _ = in_window(life, x, e)
        age, power = life + x, power_of(life, e)
        life = next_life(life, age, e, slope, power, fast_exp(-x) * power_of(age, e), first, load)
    life = life if price > first else 0.0
    return asked / (1.0 + life) * (1.0 if (worth > 0.0) & (level > -np.inf) else 0.0)


def window_power_values(rate: float, w: float, level: float, e: float, asked: float, window: float) -> Values:
    """Return the mean power that requests see, and its marginal value.

    Examples
    --------
    >>> [round(float(x), 6) for x in window_power_values(1.0, 1.0, 0.0, 1.0, 3.0, 0.0)[:3]]
    [2.0, 0.0, 4.0]
    """
    _, life, x = ages(rate, asked, window)
    slope, mean = in_window(min(life, MANY), x, e)
    cost, marginal, rounding = values_of(rate, level, e, asked, window, slope, mean)
    return cost / w, 0.0, marginal, rounding


def reach_of_window_power(
    rate: float, _w: float, excess: Excess, level: float, e: float, asked: float, window: float
) -> float:
    """Return the reach of powers of the age, with a window."""
    _, life, x = ages(rate, asked, window)
    slope, mean = in_window(min(life, MANY), x, e)
    return reach_of(rate, excess, level, e, asked, window, slope, mean)


WINDOW_POWER = ProofCell(window_power_values, reach_of_window_power)
