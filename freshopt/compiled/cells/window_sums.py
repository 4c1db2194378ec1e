"""Powers of the age on request with a window, by two integrals.

Names are those of `freshopt.compiled.cells.window_power`, which finds D and I itself, as do the tables of
`freshopt.compiled.cells.window_tables`.

**Best response.** Ψ = m/C − e^{−x}x^e is 0 at τ = 0. It rises as Ψ' = (1 + τ)S, S = D + eE/y the mean
slope of s^e at τ + min(Z, x), Z exponential. Of its parts kτ^{1+e} alone, and what is left of few requests,
S(0)·τ, and of many, y^e, the roots make a start; two steps of Householder's third order on logarithms, as in
`freshopt.compiled.cells.window_age`, leave rounding; exponents below .3 and above 4 take a third one where
lifetimes are short, and have no tables.

**Reach.** S(t)·t^{1−e} does not fall with t, and for e > 1 neither does S, so that with η = min(1, e)
Ψ/τ^η does not either. Let s = |m − ν|/CΨ, of a lower bound of Ψ, in which y^e − x^e is ητ·y^{e−1}.

  - T̂ < T: (T/T̂)^η ≤ 1/(1 − s), and ρ̂/ρ − 1 is at most (T/T̂ − 1)(1 − ρ/ζ).
  - T̂ > T: (T̂/T)^η ≤ 1 + s, and 1 − ρ̂/ρ is at most (T̂/T − 1)(1 − ρ/ζ); and at most ζT̂, with e^{−x}(ζT̂)^e at
    most ν/C.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.cells.request_power import LEAST_LEVEL
from freshopt.compiled.cells.request_proofs import SLACK, relative_fall
from freshopt.compiled.cells.window_functions import MANY_REQUESTS
from freshopt.compiled.proof_functions import HALF_ULP, POWER_ROUNDING, TINY, Excess
from freshopt.numerics.vector_math import fast_exp, fast_log

# Beyond these exponents two steps do not do.
LEAST_BENT, MOST_BENT = 0.3, 4.0
# Lifetimes of so many requests have no S'' beside rounding, and of so many τS'/S is e − 1.
LATE, LAST = 1000.0, 1e8
# How much less than the lesser of both roots the start is where they are equal.
APART = 0.5
# Lifetimes of more requests are theirs in all but the largest term.
MANY = 1e17
# Of shorter ages nothing but that at the end of the window has a part.
LEAST = 1e-30
# What small exponents lose of differences.
CANCELLED = 2.0**-42
# The least window that is taken for one.
NEAREST = 1e-290


def power_of(age: float, e: float) -> float:
    """Return s^e for s ≥ 0 and e > 0."""
    return fast_exp(e * fast_log(age)) if age > TINY else 0.0


def asked_for(
    worth: float, level: float, e: float, asked: float, window: float
) -> tuple[float, float, float]:
    """Return price over C, x, and E at τ = 0."""
    x = min(asked * window, MANY_REQUESTS)
    return fast_exp(-(fast_log(worth) + max(level, LEAST_LEVEL))), x, fast_exp(-x) * power_of(x, e)


def first_life(price: float, load: float, x: float, e: float, least: float) -> float:
    """Return about the τ of Ψ(τ) = load.

    - `least`: D at τ = 0.
    """
    log_load = fast_log(load)
    # Of many requests the first ones tell where to start.
    few = load / (least + e * fast_exp((e - 1.0) * fast_log(max(x, NEAREST)) - x))
    many = fast_exp((fast_log(price) if e < 1.0 else log_load) / e)
    alone = max(fast_exp((log_load - fast_log(e / (1.0 + e))) / (1.0 + e)), TINY)
    other = max(max(few, many - x) if e < 1.0 else min(few, many), TINY)
    return max(min(other, alone) / (1.0 + APART * (min(other, alone) / max(other, alone))), TINY)


def next_life(
    life: float, age: float, e: float, slope: float, power: float, end: float, first: float, load: float
) -> float:
    """Return Householder's next τ of D, τ^e and E."""
    part, share = e * end / max(age, TINY), life / max(age, TINY)
    mean, alone = slope + part, e / (1.0 + e) * power * life
    value = alone + life * slope + (end - first)
    # Where rounding takes all of what the end of the window adds.
    value = max(value, alone + life * (slope + min(1.0, 1.0 / e) * part))
    # τS'/S and τ²S''/S.
    fall = (life * mean - e * power + (e - 1.0) * part * share) / mean
    later = life * fall + (e - 1.0) * ((e - 2.0) * part * (share * share) - e * power) / mean
    fall = fall if life < LAST else e - 1.0
    late, rise = life / (1.0 + life), life * (1.0 + life) * mean / value
    bend = 1.0 + late + fall - rise
    turn = late * (1.0 - late) + fall * (1.0 - fall) + later - rise * bend
    nats = fast_log(load / value) / rise
    # Of long lifetimes what is left of S'' is rounding, and steps are small.
    turn = (2.0 * turn - bend * bend) * (1.0 / 12.0) if life < LATE else 0.0
    nats = nats / max(1.0 + nats * (0.5 * bend + nats * turn), 0.5)
    # Lifetimes that are all but 0 have no value, and stay.
    nats = nats if abs(nats) < np.inf else 0.0
    return max(life * fast_exp(min(max(nats, -5.0), 5.0)), TINY)


def ages(rate: float, asked: float, window: float) -> tuple[float, float, float]:
    """Return 1 − ρ/ζ, τ and x."""
    within = (asked - rate) / asked if rate < asked else 0.0
    return within, min(asked / rate * within, 1.0 / TINY), min(asked * window, MANY_REQUESTS)


def parts(life: float, x: float, level: float, e: float, slope: float, mean: float) -> tuple[float, ...]:
    """Return what cost, marginal value and reach are made of.

    Cy^e, over y^e the parts kτ^{1+e}, τD, E and I, and the size of logarithms.
    """
    near, age = min(life, MANY), life + x
    log_age = fast_log(max(age, TINY))
    unit = fast_exp(-e * fast_log(max(near + x, LEAST)))
    size = (abs(level) if level > -np.inf else 0.0) + e * abs(log_age)
    scaled = fast_exp(level + e * log_age) if age > TINY else 0.0
    alone = e / (1.0 + e) * life * power_of(life / max(age, TINY), e)
    return scaled, alone, near * slope * unit, fast_exp(-x), mean * unit, size


def values_of(
    rate: float, level: float, e: float, asked: float, window: float, slope: float, mean: float
) -> tuple[float, float, float]:
    """Return cost, marginal value and rounding, of D and I."""
    _, life, x = ages(rate, asked, window)
    scaled, alone, bent, end, mean, size = parts(life, x, level, e, slope, mean)
    fetches = rate if rate < asked else asked
    cost = scaled * (fetches * (alone / e + mean))
    rounding = POWER_ROUNDING * (1.0 + e) + CANCELLED / e + 8.0 * HALF_ULP * size
    return cost if rate > 0.0 else np.inf, scaled * (alone + bent + end), rounding


def reach_of(
    rate: float,
    excess: Excess,
    level: float,
    e: float,
    asked: float,
    window: float,
    slope: float,
    mean: float,
) -> float:
    """Return the reach, of D and I."""
    off, paid, rises, _ = excess
    within, life, x = ages(rate, asked, window)
    scaled, alone, bent, end, _, _ = parts(life, x, level, e, slope, mean)
    least = min(e, 1.0)
    # What rounding takes is little beside what an exponential bound adds.
    risen = alone + bent + least * end * (asked * within / max(asked * within + x * rate, TINY))
    nats = relative_fall(off / (scaled * risen), rises) / least * (1.0 + CANCELLED / e)
    longer = within * (nats * fast_exp(nats))
    last = fast_exp((fast_log(max(paid, TINY)) + x - level + SLACK) / e)
    return rate * (longer if rises or longer < last else last)
