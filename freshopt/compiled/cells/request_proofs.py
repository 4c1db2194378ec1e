"""Cost, marginal value and reach of one source on request.

Of binary freshness, harmonic staleness and delay `freshopt.compiled.cells.request_functions` derives the
reach; here A = Δ/ρ, so that x = (1 + h)·δ/A² is (1 + h)·(off·ρ/w)·(ρ/Δ).

**Age and powers.** Let m/T^η not fall with the lifetime T: η = 1 of age, η = e of a power s^e. With T̂ that of
the best response to ν, and o = |m − ν|/ν,

  - T̂ < T: (T/T̂)^η ≤ m/ν = 1 + o. As ρ̂/ρ − 1 = (T − T̂)/(T̂ + 1/ζ) is at most (T/T̂ − 1)·T/(T + 1/ζ), ρ̂ − ρ ≤
    ρ(1 − ρ/ζ)·((1 + o)^{1/η} − 1), and (1 + o)^{1/η} ≤ e^{o/η}.
  - T̂ > T: (T̂/T)^η ≤ ν/m = 1/(1 − o) = 1 + y, y = o/(1 − o), and 1 − ρ̂/ρ = (T̂ − T)/(T̂ + 1/ζ) is at most
    (T̂/T − 1)·T/(T + 1/ζ): the same with y for o.

For η = 1 also ρ·m does not rise with ρ, as (T + 1/ζ)/T falls with T: ρ − ρ̂ ≤ ρo. Where rates are ζ to
rounding, T tells nothing, but ρ − ρ̂ ≤ ρζT̂, and T̂ is at most that at which one term of the marginal value
is ν: Cτ̂^e ≤ ν of powers, (q/κ + √(2q/κ))/Δ of age.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.cells.request_functions import within_table
from freshopt.compiled.cells.request_tables import index_and_age, index_and_ein
from freshopt.compiled.proof_functions import (
    HALF_ULP,
    POWER_ROUNDING,
    ROUNDING,
    TINY,
    Excess,
    ProofCell,
    Values,
    reach_over_kink,
    with_line,
)
from freshopt.compiled.proof_tables import GAMMA, ratio_at
from freshopt.numerics.vector_math import fast_exp, fast_log

# Two terms of tables that are right to 1e-15 each.
ROUNDED = 2.0 * ROUNDING
# Nats, beyond what logarithms lose of a level.
SLACK = 1e-9


def delay(rate: float, w: float, d: float, asked: float) -> Values:
    """Return Δ(1 − ρ/ζ)²/2ρ and w·(u²/2 + κu)/Δ.

    Examples
    --------
    >>> [round(float(x), 6) for x in delay(1.0, 3.0, 1.0, 2.0)[:3]]
    [0.125, 0.0, 1.125]
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    u = d / rate * within
    return 0.5 * within * u, 0.0, (w / rate) * within * (0.5 * u + d / asked), ROUNDED


def harmonic(rate: float, w: float, d: float, asked: float) -> Values:
    """Return the harmonic cost of a request and its marginal value.

    (1 − ρ/ζ)·(mean harmonic cost) and w·(u − 1 + e^{−u} + κ·Ein(u))/Δ.
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    u = d / rate * within
    index, ein = index_and_ein(u)
    # The mean cost is Ein(u) − (u − 1 + e^{−u})/u.
    mean = ein - index / u if u > 0.0 else 0.0
    return (
        within * mean if rate > 0.0 else np.inf,
        0.0,
        (w / d) * (index + d / asked * ein),
        ROUNDED,
    )


def binary(rate: float, w: float, d: float, asked: float) -> Values:
    """Return the stale and the fresh share, and the marginal value.

    Of requests; the latter is w·(P(2, u) + κ(1 − e^{−u}))/Δ.
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    stored = d * within
    share, rest = stored / (rate + stored), rate / (rate + stored)
    scaled = ratio_at(GAMMA, within_table(stored / rate)) * share
    # P(2, u)/u; and 1 − e^{−u} = (u + P(2, u))/(1 + u).
    part, tail = scaled * rest, scaled * share
    fetched = rate / asked
    return (
        within * (share - rest * part),
        (fetched if fetched < 1.0 else 1.0) + within * (rest * (1.0 + part)),
        (w / d) * (tail + d / asked * (share + rest * tail)),
        ROUNDED,
    )


def age(rate: float, w: float, d: float, asked: float) -> Values:
    """Return the mean age that requests see and its marginal value.

    (1 − ρ/ζ)·(u/2 − 1 + (1 − e^{−u})/u)/Δ and w·(u²/2 − P(2, u) + κ(u − 1 + e^{−u}))/Δ².

    Examples
    --------
    >>> [round(float(x), 6) for x in age(0.5, 3.0, 1.0, 1.0)[:3]]
    [0.06606, 0.0, 1.810915]
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    u = d / rate * within
    index, index_of_age = index_and_age(u)
    mean = index - index_of_age / u if u > 0.0 else 0.0
    cost = within * mean / d if rate > 0.0 else np.inf
    return cost, 0.0, (w / d) * (index_of_age + d / asked * index) / d, ROUNDED


def power(rate: float, w: float, level: float, e: float, asked: float) -> Values:
    """Return (1 − ρ/ζ)·aT^e/(1 + e) and C·τ^e·(1 + kτ).

    The level is log C, C = w·a/ζ^{1+e}; τ = ζT and k = e/(1 + e).

    Examples
    --------
    >>> [round(float(x), 6) for x in power(1.0, 1.0, 0.0, 1.0, 3.0)[:3]]
    [2.0, 0.0, 4.0]
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    life = asked / rate * within
    log_life = fast_log(life if life > TINY else TINY)
    scaled = fast_exp(level + e * log_life) if life > TINY else 0.0
    size = abs(level) if level > -np.inf else 0.0
    # The level has the errors of its logarithms, one of which it has 1 + e times.
    rounding = POWER_ROUNDING * (1.0 + e) + 8.0 * HALF_ULP * (size + e * abs(log_life))
    share = 1.0 / (1.0 + e)
    marginal = scaled * (1.0 + e * share * life)
    return scaled * (asked * within * share) / w, 0.0, marginal, rounding


def capped_power(
    rate: float, w: float, level: float, e: float, asked: float, kink: float, plateau: float
) -> Values:
    """Return `power`, and below the kink the line through it."""
    beyond = power(max(rate, kink), w, level, e, asked)
    cost, marginal, rounding = with_line(beyond, rate, kink, plateau / w, plateau)
    return cost, 0.0, marginal, rounding


def reach_of_delay(rate: float, w: float, excess: Excess, d: float, _asked: float) -> float:
    """Return the reach of accumulated delay on request."""
    off, paid, _, _ = excess
    x = (off * (rate / w)) * (rate / d)
    return reach_of(rate, x, True, d / math.sqrt(2.0 * (paid * (d / w))), excess)


def reach_of_harmonic(rate: float, w: float, excess: Excess, d: float, asked: float) -> float:
    """Return the reach of harmonic staleness on request."""
    off, paid, _, _ = excess
    within = (asked - rate) / asked if rate < asked else 0.0
    near = off * (rate / w)
    # (1 + u)·ρ/Δ, u = (1 − ρ/ζ)Δ/ρ.
    x = near * (rate / d + within)
    return reach_of(rate, x, near <= 1.0, d / math.sqrt(2.0 * (paid * (d / w))), excess)


def reach_of_binary(rate: float, w: float, excess: Excess, d: float, asked: float) -> float:
    """Return the reach of binary freshness on request."""
    off, paid, _, _ = excess
    within = (asked - rate) / asked if rate < asked else 0.0
    apart = off / fast_exp(-(d / rate * within))
    x = (apart * (rate / w)) * (rate / d)
    near = apart * (d / w) <= 0.5 * (1.0 + d / rate)
    return reach_of(rate, x, near, d / math.sqrt(2.0 * (paid * (d / w))), excess)


def reach_of_age(rate: float, w: float, excess: Excess, d: float, asked: float) -> float:
    """Return the reach of age on request."""
    off, paid, rises, falls = excess
    within = (asked - rate) / asked if rate < asked else 0.0
    share = off / paid
    longer = within * relative_fall(share, falls)
    longer = longer if longer < share else share
    # û²/(2 + û) ≤ û − 1 + e^{−û} ≤ q/κ.
    load = (paid / w) * asked * d
    last = (load + math.sqrt(2.0 * load)) * (asked / d)
    return rate * (longer if rises or longer < last else last)


def reach_of_power(rate: float, _w: float, excess: Excess, level: float, e: float, asked: float) -> float:
    """Return the reach of powers of the age on request."""
    off, paid, rises, falls = excess
    within = (asked - rate) / asked if rate < asked else 0.0
    nats = relative_fall(off / paid, falls) / e
    # e^x − 1 ≤ x·e^x.
    longer = within * (nats * fast_exp(nats))
    last = fast_exp((fast_log(paid if paid > TINY else TINY) - level + SLACK) / e)
    return rate * (longer if rises or longer < last else last)


def reach_of_capped_power(
    rate: float, w: float, excess: Excess, level: float, e: float, asked: float, kink: float, plateau: float
) -> float:
    """Return the reach of capped powers of the age on request."""
    within = max(rate, kink)
    step = reach_of_power(within, w, excess, level, e, asked)
    return reach_over_kink(step, rate, within, excess, plateau)


def relative_fall(share: float, falls: bool) -> float:
    """Return an error relative to the lesser marginal value.

    It is o/(1 − o) where the marginal value may be less, else o.
    """
    left = 1.0 - share
    less = share / left if left > 0.0 else np.inf
    return less if falls else share


def reach_of(rate: float, x: float, near: bool, far: float, excess: Excess) -> float:
    """Return the distance to the best response, from x.

    Above ρ(1/√(1 − 2x) − 1), at most `far`; below 2ρx, or ρ unless near.
    """
    _, _, rises, falls = excess
    left = 1.0 - 2.0 * x
    root = math.sqrt(left if left > 0.0 else 0.0)
    up = rate * (2.0 * x / (root * (1.0 + root)))
    up = up if left > 0.0 else np.inf
    up = up if up < far else far
    down = 2.0 * rate * x if near else rate
    up, down = up if rises else 0.0, down if falls else 0.0
    return down if down > up else up


REQUEST_DELAY = ProofCell(delay, reach_of_delay)
REQUEST_HARMONIC = ProofCell(harmonic, reach_of_harmonic)
REQUEST_BINARY = ProofCell(binary, reach_of_binary)
REQUEST_AGE = ProofCell(age, reach_of_age)
REQUEST_POWER = ProofCell(power, reach_of_power)
CAPPED_REQUEST_POWER = ProofCell(capped_power, reach_of_capped_power)
