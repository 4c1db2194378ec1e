"""Sums of costs of several families, and their best responses.

Plain steps that compiled loops inline.

A source that pays θ per unit of rate and weighs unit costs J_f with W_f ≥ 0 has its best response where

    M(ρ) = −Σ_f W_f J_f'(ρ) = θ.

Families are told apart by a code, once for a chunk of sources, so that loops over sources are vectorised.
Newton's method is taken on M^(−1/2), which is affine for accumulated delay and for stale shares, and concave
for all sums of those and of harmonic staleness; or on log M, which exponentials make affine. Few sources need
more than a few steps from the last response; those are bracketed one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from freshopt.compiled import cost_functions
from freshopt.compiled.cost_functions import Value
from freshopt.compiled.rows.row_records import FamilyColumns
from freshopt.compiled.source_columns import LARGEST_RATE
from freshopt.numerics.arrays import Array
from freshopt.numerics.vector_math import fast_exp, fast_log

HARMONIC, BINARY, DELAY, PERIODIC_DELAY, AGE, LATER = range(6)
# The code of each unit cost.
CODES: dict[Value, int] = {
    cost_functions.harmonic_poisson_cost: HARMONIC,
    cost_functions.binary_poisson_cost: BINARY,
    cost_functions.delay_cost: DELAY,
    cost_functions.delay_periodic_cost: PERIODIC_DELAY,
    cost_functions.age_poisson_cost: AGE,
    cost_functions.later_cost: LATER,
}
# Slope and curvature of a unit cost.
Slopes: TypeAlias = Callable[[float, float], tuple[float, float]]

# Steps of a chunk; then the sources that are left are bracketed.
STEPS = 12
# A step smaller than this share of the rate, over the elasticity of M, is the last: its error is the square.
CLOSE = 1e-8
# A rate falls at most by this factor in a step where a cost is infinite at rate 0.
LEAP = 16.0
# Steps in a bracket, of which each third halves its logarithms: 64 halvings reach the last bit of any float.
HALVINGS = 200
# Brackets begin here where there is no lower bound.
SMALLEST_RATE = 1e-300


def harmonic_slopes(rate: float, d: float) -> tuple[float, float]:
    """Return −J' and J'' of log(1 + Δ/ρ)."""
    q = 1.0 / (rate * (rate + d))
    return d * q, d * q * ((2.0 * rate + d) * q)


def binary_slopes(rate: float, d: float) -> tuple[float, float]:
    """Return −J' and J'' of Δ/(ρ + Δ)."""
    q = 1.0 / (rate + d)
    return d * q * q, 2.0 * (d * q * q) * q


def delay_slopes(rate: float, d: float) -> tuple[float, float]:
    """Return −J' and J'' of Δ/ρ."""
    q = 1.0 / rate
    return d * q * q, 2.0 * (d * q * q) * q


def periodic_delay_slopes(rate: float, d: float) -> tuple[float, float]:
    """Return −J' and J'' of Δ/2ρ."""
    q = 1.0 / rate
    return 0.5 * d * q * q, d * q * q * q


def age_slopes(rate: float, d: float) -> tuple[float, float]:
    """Return −J' and J'' of Δ/(ρ(ρ + Δ))."""
    q, sum_ = 1.0 / (rate * (rate + d)), 2.0 * rate + d
    return d * q * (sum_ * q), 2.0 * (d * q) * ((sum_ * q) * (sum_ * q) - q)


def later_slopes(rate: float, d: float) -> tuple[float, float]:
    """Return −J' and J'' of e^{−dρ}."""
    slope = d * fast_exp(-d * rate)
    return slope, d * slope


def of_family(code: int, terms: Callable[..., Any], *given: Any) -> Any:  # noqa: ANN401 - what terms do
    """Return what terms make of a code's unit cost and its slopes."""
    if code == HARMONIC:
        return terms(cost_functions.harmonic_poisson_cost, harmonic_slopes, *given)
    if code == BINARY:
        return terms(cost_functions.binary_poisson_cost, binary_slopes, *given)
    if code == DELAY:
        return terms(cost_functions.delay_cost, delay_slopes, *given)
    if code == PERIODIC_DELAY:
        return terms(cost_functions.delay_periodic_cost, periodic_delay_slopes, *given)
    if code == AGE:
        return terms(cost_functions.age_poisson_cost, age_slopes, *given)
    return terms(cost_functions.later_cost, later_slopes, *given)


def own_slopes(_value: Value, slopes: Slopes, rate: float, d: float) -> tuple[float, float]:
    """Return −J' and J'' of one source."""
    return slopes(rate, d)


def add_terms(
    _value: Value, slopes: Slopes, weight: Array, d: Array, rates: Array, fall: Array, bend: Array
) -> None:
    """Add W·(−J') and W·J'' of one family; 0 adds nothing."""
    for k in range(len(rates)):
        first, second = slopes(rates[k], d[k])
        fall[k] += weight[k] * first if weight[k] > 0.0 else 0.0
        bend[k] += weight[k] * second if weight[k] > 0.0 else 0.0


def fill_terms(value: Value, _slopes: Slopes, d: Array, rates: Array, out: Array) -> None:
    """Write the unit costs of one family."""
    for k in range(len(rates)):
        out[k] = value(rates[k], d[k])


def add_all_slopes(
    columns: FamilyColumns, theta: Array, begin: int, rates: Array, fall: Array, bend: Array
) -> None:
    """Write M and −M' of consecutive sources from `begin` on."""
    n = len(rates)
    fall[:] = 0.0
    bend[:] = 0.0
    for f in range(len(columns.code)):
        d = columns.parameter[columns.which[f], begin : begin + n]
        of_family(columns.code[f], add_terms, theta[1 + f, :n], d, rates, fall, bend)


def fill_floors(columns: FamilyColumns, theta: Array, begin: int, floor: Array) -> None:
    """Write the least rates to try: −1 where 0 costs infinity."""
    n = len(floor)
    floor[:] = columns.lower[begin : begin + n]
    for f in range(len(columns.code)):
        if columns.code[f] != BINARY and columns.code[f] != LATER:
            weight = theta[1 + f]
            for k in range(n):
                floor[k] = -1.0 if weight[k] > 0.0 and floor[k] <= 0.0 else floor[k]


def fill_responses(
    columns: FamilyColumns,
    theta: Array,
    begin: int,
    rates: Array,
    fall: Array,
    bend: Array,
    floor: Array,
    away: Array,
) -> None:
    """Write the best responses of consecutive sources within their bounds."""
    n = len(rates)
    near, price = columns.near[begin : begin + n], theta[0, :n]
    lower, upper = columns.lower[begin : begin + n], columns.upper[begin : begin + n]
    exponential = np.any(columns.code == LATER)
    fill_floors(columns, theta, begin, floor)
    for k in range(n):
        rates[k] = min(max(near[k], lower[k]), upper[k])
    off = 1
    for _ in range(STEPS):
        add_all_slopes(columns, theta, begin, rates, fall, bend)
        if exponential:
            off = step_all(fast_log_step, price, upper, fall, bend, floor, rates, away)
        else:
            off = step_all(root_step, price, upper, fall, bend, floor, rates, away)
        if off == 0:
            break
    if off > 0:
        for k in range(n):
            if away[k] > 0.0:
                rates[k] = bracketed(columns, theta, begin, k)
    for k in range(n):
        if price[k] == 0.0 and not weighed(theta, k):
            rates[k] = lower[k]


def root_step(ratio: float) -> float:
    """Return the step on M^(−1/2), in M/−M'."""
    return float(2.0 * (np.sqrt(ratio) - 1.0))


def fast_log_step(ratio: float) -> float:
    """Return the step on log M, in M/−M'."""
    usable = 1e-300 < ratio < 1e300
    return fast_log(ratio if usable else 1.0) if usable else (ratio - 1.0)


def step_all(
    step: Callable[[float], float],
    price: Array,
    upper: Array,
    fall: Array,
    bend: Array,
    floor: Array,
    rates: Array,
    away: Array,
) -> int:
    """Take one step of each source; return how many go on."""
    off = 0
    for k in range(len(rates)):
        rate, paid = rates[k], price[k] > 0.0
        falls = bend[k] > 0.0
        slope = bend[k] if falls else 1.0
        found = rate + (fall[k] / slope) * step(fall[k] / (price[k] if paid else 1.0))
        least = floor[k] if floor[k] >= 0.0 else rate / LEAP
        # All that there is to gain has been gained, or the step is none.
        found = found if falls and found > least else least
        most = min(upper[k], LARGEST_RATE)
        found = min(found if paid else most, most)
        moved = abs(found - rate)
        steep = max(1.0, bend[k] * rate / fall[k]) if falls else 1.0
        there = moved * steep <= CLOSE * found
        away[k] = 0.0 if there else 1.0
        off += 0 if there else 1
        rates[k] = found
    return off


def weighed(theta: Array, k: int) -> bool:
    """Return whether a source has any cost."""
    return bool(np.any(theta[1:, k] > 0.0))


def slope_at(columns: FamilyColumns, theta: Array, begin: int, k: int, rate: float) -> tuple[float, float]:
    """Return M and −M' of source begin + k at a rate."""
    fall, bend = 0.0, 0.0
    for f in range(len(columns.code)):
        weight = theta[1 + f, k]
        if weight > 0.0:
            d = columns.parameter[columns.which[f], begin + k]
            first, second = of_family(columns.code[f], own_slopes, rate, d)
            fall += weight * first
            bend += weight * second
    return fall, bend


def bracketed(columns: FamilyColumns, theta: Array, begin: int, k: int) -> float:
    """Return the best response of source begin + k, by bracketed Newton."""
    price, low = float(theta[0, k]), float(columns.lower[begin + k])
    high = min(float(columns.upper[begin + k]), LARGEST_RATE)
    if not price > 0.0:
        return high
    least = max(low, SMALLEST_RATE)
    if not slope_at(columns, theta, begin, k, least)[0] > price:
        return low
    if not slope_at(columns, theta, begin, k, high)[0] < price:
        return high
    low, rate = least, min(max(columns.near[begin + k], least), high)
    for halving in range(HALVINGS):
        fall, bend = slope_at(columns, theta, begin, k, rate)
        if fall > price:
            low = rate
        else:
            high = rate
        ratio, slope = fall / price, bend if bend > 0.0 else np.inf
        found = rate + 2.0 * (fall / slope) * (np.sqrt(ratio) - 1.0)
        if high <= low * (1.0 + 4e-16) or (abs(ratio - 1.0) < CLOSE and low <= found <= high):
            return float(found)
        # Far off, where a cost has all but vanished, Newton's steps are short.
        newton = low < found < high and halving % 3 < 2
        rate = found if newton else np.sqrt(low) * np.sqrt(high)
    return float(rate)
