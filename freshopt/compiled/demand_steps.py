"""Demand functions of tables, in three steps.

Rows of a table are looked up one source at a time. What stands before and after are divisions and roots,
which processors do for several sources at once, and compilers let them if nothing is looked up in the same
loop. So loops take a step for many sources before the next: first what to look up, then the look-up, then the
rate. What passes between the steps is one number a source, kept where its rate will be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from freshopt.compiled.age_tables import PERIODIC, POISSON, age_place, age_rate, age_value
from freshopt.numerics.inverse_tables import (
    SEGMENTS,
    octave_place,
    octave_table,
    polynomial,
    ratio_from_table,
    ratio_table,
    segment_place,
)
from freshopt.numerics.special_functions import inverse_gamma2, inverse_harmonic_index, inverse_log_excess

# Products a·Δ are cut here, so that their square root and four of them are floats; rates of 1e150 are beyond
# every limit.
MOST = 1e300
# Beyond s² / 2 = 50, e^{−u} is below half an ulp of u.
HARMONIC_TOP = 10.0
HARMONIC = ratio_table(lambda s: inverse_harmonic_index(0.5 * s * s), HARMONIC_TOP)
AGE, AGE_SHIFT, AGE_SQUARE = POISSON.rows, POISSON.shift, POISSON.square
AGE_EVEN, AGE_EVEN_SHIFT, AGE_EVEN_SQUARE = PERIODIC.rows, PERIODIC.shift, PERIODIC.square
# Below this share P(2, u) is inverted in s = √(2·share), above in 1 − share: u has a singularity at 1.
GAMMA_SHARE = 0.75
# log₂ of the smallest 1 − share.
NEAR = -53
# 4s in place of s: the singularity at s = √2 asks for finer segments. Then follow the rows in 1 − share.
GAMMA = np.concatenate(
    [
        0.25 * ratio_table(lambda s: 4.0 * inverse_gamma2(s * s / 32.0), 5.0),
        octave_table(lambda q: inverse_log_excess(-np.log(q)), NEAR, -2),
    ]
)
FIRST_NEAR = 5 * SEGMENTS


class Steps(NamedTuple):
    """Steps of a demand function.

    - `place`: ``(a, *parameters)``: the number to look up.
    - `value`: Of that number: what is found.
    - `rate`: ``(value, a, *parameters)``: the best response.
    """

    place: Callable[..., float]
    value: Callable[[float], float]
    rate: Callable[..., float]


def harmonic_place(worth: float, d: float) -> float:
    """Return s = √(2Δ/a), or 0 beyond the table."""
    s = d / math.sqrt(0.5 * min(worth * d, MOST))
    return s if s < HARMONIC_TOP else 0.0


def harmonic_value(s: float) -> float:
    """Return u/s with u − 1 + e^{−u} = s²/2."""
    return ratio_from_table(HARMONIC, s)


def harmonic_rate(ratio: float, worth: float, d: float) -> float:
    """Return Δ/u, of u/s."""
    # The rate of small u, √(aΔ/2), is the unit in which neither Δ/a nor u underflows.
    unit = math.sqrt(0.5 * min(worth * d, MOST))
    s = d / unit
    near = s < HARMONIC_TOP
    beyond = 1.0 + 0.5 * s * s
    return (unit if near else d) / (ratio if near else beyond)


def gamma_place(share: float) -> float:
    """Return 4√(2·share), or the share's distance to 1, negative."""
    s = math.sqrt(32.0 * min(share, GAMMA_SHARE))
    return -max(1.0 - share, 2.0**NEAR) if share > GAMMA_SHARE else s


def gamma_value(place: float) -> float:
    """Return u/s with P(2, u) = s²/32, or u near 1."""
    segment, within = segment_place(place)
    row, z = octave_place(abs(place), NEAR)
    near = place < 0.0
    return polynomial(GAMMA, row + FIRST_NEAR if near else segment, z if near else within)


def gamma_gap(value: float, share: float) -> float:
    """Return u with P(2, u) = share, of what was found."""
    s = math.sqrt(32.0 * min(share, GAMMA_SHARE))
    return value if share > GAMMA_SHARE else s * value


def gamma2_gap(share: float) -> float:
    """Return u with P(2, u) = share < 1, all at once."""
    return gamma_gap(gamma_value(gamma_place(share)), share)


def binary_place(worth: float, d: float) -> float:
    """Return `gamma_place` of Δ/a."""
    return gamma_place(d / worth)


def binary_rate(value: float, worth: float, d: float) -> float:
    """Return Δ/u with P(2, u) = Δ/a < 1, else 0."""
    share = d / worth
    rate = d / gamma_gap(value, share)
    return rate if share < 1.0 else 0.0


def poll_place(worth: float, _a: float) -> float:
    """Return `gamma_place` of λ/w."""
    return gamma_place(1.0 / worth)


def poll_rate(value: float, worth: float, a: float) -> float:
    """Return a/t with P(2, t) = λ/w < 1, else 0."""
    share = 1.0 / worth
    rate = a / gamma_gap(value, share)
    return rate if share < 1.0 else 0.0


def age_poisson_value(place: float) -> float:
    """Return `age_value` under Poisson refreshes."""
    return age_value(AGE, place)


def age_poisson_rate(value: float, worth: float, d: float) -> float:
    """Return `age_rate` under Poisson refreshes."""
    return age_rate(value, AGE_SHIFT, AGE_SQUARE, worth, d)


def age_periodic_value(place: float) -> float:
    """Return `age_value` under periodic refreshes."""
    return age_value(AGE_EVEN, place)


def age_periodic_rate(value: float, worth: float, d: float) -> float:
    """Return `age_rate` under periodic refreshes."""
    return age_rate(value, AGE_EVEN_SHIFT, AGE_EVEN_SQUARE, worth, d)


HARMONIC_STEPS = Steps(harmonic_place, harmonic_value, harmonic_rate)
BINARY_STEPS = Steps(binary_place, gamma_value, binary_rate)
POLL_STEPS = Steps(poll_place, gamma_value, poll_rate)
AGE_STEPS = Steps(age_place, age_poisson_value, age_poisson_rate)
AGE_PERIODIC_STEPS = Steps(age_place, age_periodic_value, age_periodic_rate)
