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

**Best response.** Ψ = m/C − e^{−x}x^e is 0 at τ = 0. It rises as Ψ' = (1 + τ)S, S = D + eE/y the mean
slope of s^e at τ + min(Z, x), Z exponential. Of its parts kτ^{1+e} alone, and what is left of few requests,
S(0)·τ, and of many, y^e, the roots make a start; three steps of Halley's method on logarithms leave rounding,
two of long lifetimes.

**Reach.** S(t)·t^{1−e} does not fall with t, and for e > 1 neither does S, so that with η = min(1, e)
Ψ/τ^η does not either. Let s = |m − ν|/CΨ, of a lower bound of Ψ, in which y^e − x^e is ητ·y^{e−1}.

  - T̂ < T: (T/T̂)^η ≤ 1/(1 − s), and ρ̂/ρ − 1 is at most (T/T̂ − 1)(1 − ρ/ζ).
  - T̂ > T: (T̂/T)^η ≤ 1 + s, and 1 − ρ̂/ρ is at most (T̂/T − 1)(1 − ρ/ζ); and at most ζT̂, with e^{−x}(ζT̂)^e at
    most ν/C.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.cells.capped_poisson import series, settled
from freshopt.compiled.cells.request_power import LEAST_LEVEL
from freshopt.compiled.cells.request_proofs import SLACK, relative_fall
from freshopt.compiled.cells.window_functions import FADED, MANY_REQUESTS
from freshopt.compiled.proof_functions import (
    HALF_ULP,
    POWER_ROUNDING,
    TINY,
    Excess,
    ProofCell,
    Values,
)
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
# Lifetimes of more requests are theirs in all but the largest term.
MANY = 1e17
# Of shorter ages nothing but that at the end of the window has a part.
LEAST = 1e-30
# What small exponents lose of differences.
CANCELLED = 2.0**-42
# Of windows that are none.
NEAREST = 1e-290
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)
INNER, INNER_WEIGHTS = 0.5 * (1.0 + _POINTS), 0.5 * _WEIGHTS


def power_of(age: float, e: float) -> float:
    """Return s^e for s ≥ 0 and e > 0."""
    return fast_exp(e * fast_log(age)) if age > TINY else 0.0


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
    log_price = -(fast_log(worth) + max(level, LEAST_LEVEL))
    price, x = fast_exp(log_price), min(asked * window, MANY_REQUESTS)
    first = fast_exp(-x) * power_of(x, e)
    load = max(price - first, TINY)
    log_load = fast_log(load)
    near = max(x, NEAREST)
    # Of many requests the first ones tell where to start.
    few = load / (in_window(0.0, min(x, ENOUGH + e), e)[0] + e * fast_exp((e - 1.0) * fast_log(near) - x))
    many = fast_exp((log_price if e < 1.0 else log_load) / e)
    alone = fast_exp((log_load - fast_log(e / (1.0 + e))) / (1.0 + e))
    life = min(max(few, many - x) if e < 1.0 else min(few, many), alone)
    life = max(life, TINY)
    for _ in range(np.int64(2.0 + (life * min(e * e, 1.0) < SOON))):
        life = window_step(life, x, e, first, load)
    life = life if price > first else 0.0
    return asked / (1.0 + life) * (1.0 if level > -np.inf else 0.0)


def window_step(life: float, window: float, e: float, first: float, load: float) -> float:
    """Return Halley's next τ, of Ψ(τ) = load."""
    slope, _ = in_window(life, window, e)
    age, power = life + window, power_of(life, e)
    end = fast_exp(-window) * power_of(age, e)
    part = e * end / max(age, TINY)
    mean = slope + part
    value = e / (1.0 + e) * power * life + life * slope + (end - first)
    # Where rounding takes all of what the end of the window adds.
    value = max(value, e / (1.0 + e) * power * life + life * (slope + min(1.0, 1.0 / e) * part))
    fall = slope + part - e * power / life + (e - 1.0) * part / max(age, TINY)
    rise = life * (1.0 + life) * mean / value
    nats = fast_log(load / value) / rise
    bend = nats * (1.0 + life / (1.0 + life) + life * fall / mean - rise)
    nats = nats / (1.0 + 0.5 * bend) if abs(bend) < 1.0 else nats
    # Lifetimes that are all but 0 have no value, and stay.
    nats = nats if abs(nats) < np.inf else 0.0
    return max(life * fast_exp(min(max(nats, -5.0), 5.0)), TINY)


def parts(rate: float, level: float, e: float, asked: float, window: float) -> tuple[float, ...]:
    """Return what cost, marginal value and reach are made of.

    1 − ρ/ζ, Cy^e, over y^e the parts kτ^{1+e}, τD, E and I, and the size of logarithms.
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    life, x = min(asked / rate * within, 1.0 / TINY), min(asked * window, MANY_REQUESTS)
    near, age = min(life, MANY), life + x
    slope, mean = in_window(near, x, e)
    log_age = fast_log(max(age, TINY))
    unit = fast_exp(-e * fast_log(max(near + x, LEAST)))
    size = (abs(level) if level > -np.inf else 0.0) + e * abs(log_age)
    scaled = fast_exp(level + e * log_age) if age > TINY else 0.0
    alone = e / (1.0 + e) * life * power_of(life / max(age, TINY), e)
    return within, scaled, alone, near * slope * unit, fast_exp(-x), mean * unit, size


def window_power_values(rate: float, w: float, level: float, e: float, asked: float, window: float) -> Values:
    """Return the mean power that requests see, and its marginal value.

    Examples
    --------
    >>> [round(float(x), 6) for x in window_power_values(1.0, 1.0, 0.0, 1.0, 3.0, 0.0)[:3]]
    [2.0, 0.0, 4.0]
    """
    _, scaled, alone, bent, end, mean, size = parts(rate, level, e, asked, window)
    fetches = rate if rate < asked else asked
    cost = scaled * (fetches * (alone / e + mean)) / w
    rounding = POWER_ROUNDING * (1.0 + e) + CANCELLED / e + 8.0 * HALF_ULP * size
    return cost if rate > 0.0 else np.inf, 0.0, scaled * (alone + bent + end), rounding


def reach_of_window_power(
    rate: float, _w: float, excess: Excess, level: float, e: float, asked: float, window: float
) -> float:
    """Return the reach of powers of the age, with a window."""
    off, paid, rises, _ = excess
    within, scaled, alone, bent, end, _, _ = parts(rate, level, e, asked, window)
    least = min(e, 1.0)
    x = min(asked * window, MANY_REQUESTS)
    # What rounding takes is little beside what an exponential bound adds.
    risen = alone + bent + least * end * (asked * within / max(asked * within + x * rate, TINY))
    nats = relative_fall(off / (scaled * risen), rises) / least * (1.0 + CANCELLED / e)
    longer = within * (nats * fast_exp(nats))
    last = fast_exp((fast_log(max(paid, TINY)) + x - level + SLACK) / e)
    return rate * (longer if rises or longer < last else last)


WINDOW_POWER = ProofCell(window_power_values, reach_of_window_power)
