"""Tables of powers on request with a window, of one exponent.

With the names of `freshopt.compiled.cells.window_power` both D and I are told by one function of τ and of y,

    y ≥ y₁:  D = U(τ) − e^{−x}U(y),  U(s) = e·e^s·Γ(e, s),
    y < y₁:  I = e^{−x}N(y) − N(τ),  N(s) = e^s·γ(1 + e, s) = s^{1+e}S(s)/(1 + e),

and I = D + τ^e − E tells the other one. With y₁ = min(1 + e, 4) what cancels is no more than a few times the
sum that it goes into, which is more than D and I: kτ^{1+e} + τD + E, and τ^{1+e}/(1 + e) + I. U is Γ(1 + e) −
s^e at few requests and es^{e−1} at many; N is s^{1+e}/(1 + e) at few, and not a polynomial from 4 on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from freshopt.compiled.cells.capped_tables import continue_as_power, right_rows, series_of
from freshopt.compiled.cells.window_functions import MANY_REQUESTS
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
from freshopt.compiled.penalty_tables import LEAST_SOURCES, PenaltyTables, TableCell
from freshopt.compiled.proof_functions import TINY, Excess, ProofCell, Values
from freshopt.numerics.arrays import Array, read_only
from freshopt.numerics.inverse_tables import OCTAVE
from freshopt.numerics.vector_math import fast_exp, fast_log
from freshopt.numerics.wide_tables import ROWS, UNIT, continue_downwards, value_at, wide_table

# Below these octaves U and N are powers to rounding, and a constant; above U is.
LOW, HIGH = -56, 54
# The largest y₁.
NEAR = 4.0
# Householder's steps of a response.
STEPS = 2
# Of few requests U is what the lower function leaves, of more the continued fraction, of so many terms.
FEW, TERMS = 0.5, 205


class Rounds(NamedTuple):
    """Steps of a demand function that looks up again and again.

    - `look`: ``(value, *parameters)``: two numbers found in the table.
    - `begin`: ``(first, second, a, *parameters)``: a value, of what is found at value 0.
    - `step`: ``(value, first, second, a, *parameters)``: the next value, `steps` times.
    - `rate`: ``(value, a, *parameters)``: the best response.
    """

    look: Callable[..., tuple[float, float]]
    begin: Callable[..., float]
    step: Callable[..., float]
    rate: Callable[..., float]
    steps: int


def look(
    life: float, _level: float, e: float, asked: float, window: float, table: Array
) -> tuple[float, float]:
    """Return U or N of τ and of y."""
    age = life + min(asked * window, MANY_REQUESTS)
    first = 0 if age >= min(1.0 + e, NEAR) else ROWS
    return value_at(table, life, first), value_at(table, age, first)


def integrals(
    now: float, later: float, age: float, e: float, faded: float, power: float, end: float
) -> tuple[float, float]:
    """Return D and I, of what is looked up."""
    left, more, far = now - faded * later, end - power, age >= min(1.0 + e, NEAR)
    slope = left if far else more - left
    return slope, slope - more if far else -left


def begin(
    now: float, later: float, worth: float, level: float, e: float, asked: float, window: float, _table: Array
) -> float:
    """Return about the best response's τ."""
    price, x, first = asked_for(worth, level, e, asked, window)
    least, _ = integrals(now, later, x, e, fast_exp(-x), 0.0, first)
    return first_life(price, max(price - first, TINY), x, e, least)


def step(
    life: float,
    now: float,
    later: float,
    worth: float,
    level: float,
    e: float,
    asked: float,
    window: float,
    _table: Array,
) -> float:
    """Return Householder's next τ."""
    price, x, first = asked_for(worth, level, e, asked, window)
    faded, age, power = fast_exp(-x), life + x, power_of(life, e)
    end = faded * power_of(age, e)
    slope, _ = integrals(now, later, age, e, faded, power, end)
    return next_life(life, age, e, slope, power, end, first, max(price - first, TINY))


def response(
    life: float, worth: float, level: float, _e: float, asked: float, _window: float, _table: Array
) -> float:
    """Return ζ/(1 + τ)."""
    return asked / (1.0 + life) * (1.0 if (worth > 0.0) & (level > -np.inf) else 0.0)


WINDOW_ROUNDS = Rounds(look, begin, step, response, STEPS)


def tabled_window(worth: float, level: float, e: float, asked: float, window: float, table: Array) -> float:
    """Return the best response of `window_power`, from a table."""
    now, later = look(0.0, level, e, asked, window, table)
    life = begin(now, later, worth, level, e, asked, window, table)
    for _ in range(STEPS):
        now, later = look(life, level, e, asked, window, table)
        life = step(life, now, later, worth, level, e, asked, window, table)
    return response(life, worth, level, e, asked, window, table)


def tabled_values(
    rate: float, w: float, level: float, e: float, asked: float, window: float, table: Array
) -> Values:
    """Return what `window_power_values` does, from a table."""
    own = weighted(level, w)
    slope, mean = inside(rate, e, asked, window, table)
    cost, marginal, rounding = values_of(rate, own, e, asked, window, slope, mean)
    return cost / w, 0.0, marginal, rounding


def reach_of_tabled(
    rate: float, w: float, excess: Excess, level: float, e: float, asked: float, window: float, table: Array
) -> float:
    """Return the reach of `window_power`, from a table."""
    slope, mean = inside(rate, e, asked, window, table)
    return reach_of(rate, excess, weighted(level, w), e, asked, window, slope, mean)


def weighted(level: float, w: float) -> float:
    """Return the level of a weighted source."""
    return level + fast_log(w) if w > 0.0 else -np.inf


def inside(rate: float, e: float, asked: float, window: float, table: Array) -> tuple[float, float]:
    """Return D and I at a rate, from a table."""
    _, life, x = ages(rate, asked, window)
    life, faded = min(life, MANY), fast_exp(-x)
    now, later = look(life, 0.0, e, asked, window, table)
    power, end = power_of(life, e), faded * power_of(life + x, e)
    return integrals(now, later, life + x, e, faded, power, end)


WINDOW_TABLES = TableCell(tabled_window, ProofCell(tabled_values, reach_of_tabled), 4)


def tables_for(e: float, n: int) -> PenaltyTables | None:
    """Return the tables of an exponent, or None for few sources."""
    return window_tables(e) if n >= LEAST_SOURCES and LEAST_BENT <= e <= MOST_BENT else None


@functools.lru_cache(maxsize=4)
def window_tables(e: float) -> PenaltyTables | None:
    """Return an exponent's table, or None if it is not right."""
    least = math.ceil(math.log2(min(1.0 + e, NEAR)))
    with np.errstate(all="ignore"):
        upper = right_rows(lambda s: _upper(s, e), LOW, HIGH)
        lower = right_rows(lambda s: _lower(s, e), LOW, least)
    if upper is None or lower is None:
        return None
    far, near = wide_table(upper, LOW), wide_table(lower, LOW)
    with np.errstate(over="ignore", under="ignore"):
        continue_as_power(far, HIGH, e - 1.0)
        continue_as_power(near, LOW, 1.0 + e, upwards=False)
        # Γ(1 + e) − s^e.
        end, whole = UNIT + OCTAVE * (LOW + 1), math.gamma(1.0 + e)
        far[end - OCTAVE : end, 0] -= whole
        continue_downwards(far, LOW, 1, 2.0**-e)
        far[:end, 0] += whole
    table = read_only(np.concatenate((far, near)))
    return PenaltyTables(table, table)


def _lower(s: Array, e: float) -> Array:
    """Return N."""
    found: Array = s ** (1.0 + e) * ((1.0 + series_of(s, e)) / (1.0 + e))
    return found


def _upper(s: Array, e: float) -> Array:
    """Return U."""
    switch = max(FEW, e)
    few = np.minimum(s, switch)
    left = np.exp(few) * math.gamma(1.0 + e) - few**e * (1.0 + series_of(few, e - 1.0))
    many = np.maximum(s, switch)
    found = many + (2.0 * TERMS + 1.0 - e)
    for k in range(TERMS, 0, -1):
        found = many + (2.0 * k - 1.0 - e) - k * (k - e) / found
    return np.where(s < switch, left, e * many**e / found)
