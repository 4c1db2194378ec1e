"""Compiled passes over local models of demand functions.

This module imports numba and is imported when first needed. Each loop does in one pass over a chunk what
`freshopt.dual_search.local_models` writes in a dozen, for one price that all sources pay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from freshopt.compiled.column_access import at
from freshopt.compiled.kept_code import compile_loop
from freshopt.compiled.loops import FAST
from freshopt.compiled.source_columns import Data
from freshopt.numerics.arrays import Array
from freshopt.numerics.vector_math import fast_exp, fast_log

# Exponents of e below which a rate is none, and above which it is any.
LEAST, MOST = -700.0, 700.0
# Paces beyond are those of marginals that do not fall; parts of an inverse marginal below are rounding.
STEEP, ROUNDING = 1e18, 1e-17


@register_jitable(forceinline=True, fastmath={"contract"})
def limited_step(level: float, inverse: float, edge: float) -> float:
    """Return y − y(λ) where the marginal at rate 0 is finite."""
    difference = inverse - edge
    return level + fast_log(difference if difference > 1e-300 else 1e-300)


@register_jitable(forceinline=True, fastmath={"contract"})
def moved(rate: float, step: float, pace: float, floor: float, ceiling: float) -> float:
    """Return the modelled rate, between its bounds."""
    power = step * pace
    factor = fast_exp(power)
    factor = factor if power > LEAST else 0.0
    found = rate * factor
    found = found if found > floor else floor
    return found if found < ceiling else ceiling


def build(limited: bool) -> tuple[Callable[..., Any], ...]:
    """Return the loops (respond, fill, take).

    Of sources that are limited, the marginal at rate 0 may be finite.
    """

    @register_jitable(forceinline=True, fastmath={"contract"})
    def responded(
        log_price: float,
        inverse: float,
        rate: float,
        level: float,
        pace: float,
        floor: float,
        ceiling: float,
        edge: float,
        lower: float,
    ) -> float:
        if not limited:
            return moved(rate, level - log_price, pace, floor, ceiling)
        found = moved(rate, limited_step(level, inverse, edge), pace, floor, ceiling)
        return found if inverse > edge else lower

    @compile_loop(fastmath=FAST)
    def respond(
        log_price: float,
        inverse: float,
        rate: Array,
        level: Array,
        pace: Array,
        floor: Array,
        ceiling: Array,
        edge: Array,
        lower: Data,
        cost: Data,
    ) -> tuple[float, float]:
        used = falls = 0.0
        for k in range(len(rate)):
            own = rate[k], level[k], pace[k], floor[k], ceiling[k], edge[k], at(lower, k)
            found = responded(log_price, inverse, *own)
            some = found * pace[k]
            if limited:
                difference = inverse - edge[k]
                some = some * (inverse / (difference if difference > 1e-300 else 1e-300))
            some = some if (found > floor[k]) & (found < ceiling[k]) else 0.0
            used += found * at(cost, k)
            falls += some * at(cost, k)
        return used, falls

    @compile_loop(fastmath=FAST)
    def fill(
        log_price: float,
        inverse: float,
        rate: Array,
        level: Array,
        pace: Array,
        floor: Array,
        ceiling: Array,
        edge: Array,
        lower: Data,
        out: Array,
    ) -> None:
        for k in range(len(rate)):
            own = rate[k], level[k], pace[k], floor[k], ceiling[k], edge[k], at(lower, k)
            out[k] = responded(log_price, inverse, *own)

    @compile_loop(fastmath=FAST)
    def take(
        paid: float,
        log_price: float,
        inverse: float,
        most: float,
        still: float,
        rates: Array,
        rate: Array,
        slope: Array,
        curvature: Array,
        edge: Array,
        lower: Data,
        upper: Data,
        cost: Data,
        marginal: Array,
        lines: Array,
    ) -> tuple[float, float, float]:
        lost = negative = 0.0
        # As numbers that are not negative are ordered as their bits are, whose maximum is vectorised.
        largest = np.int64(0)
        level, pace, floor, ceiling = lines[0], lines[1], lines[2], lines[3]
        # Several short loops: one with so many arrays is not vectorised.
        for k in range(len(rate)):
            own = slope[k] / at(cost, k)
            marginal[k] = own
            negative += 0.0 if own > 0.0 else 1.0
            pace[k] = own * at(cost, k) / (rate[k] * curvature[k])
        for k in range(len(rate)):
            if limited:
                inner = 1.0 / marginal[k]
                gained = inner - edge[k]
                gained = gained if gained > ROUNDING * inner else ROUNDING * inner
                level[k] = -fast_log(gained)
                pace[k] *= gained * marginal[k]
            else:
                level[k] = fast_log(marginal[k])
        for k in range(len(rate)):
            step = pace[k] if pace[k] < STEEP else STEEP
            pace[k] = step if step > 0.0 else STEEP
            least = rate[k] * (1.0 / most)
            least = least if least > at(lower, k) else at(lower, k)
            floor[k] = at(lower, k) if limited & (edge[k] > 0.0) else least
            top = rate[k] * most
            ceiling[k] = top if top < at(upper, k) else at(upper, k)
        for k in range(len(rate)):
            line = rate[k], level[k], pace[k], floor[k], ceiling[k], edge[k], at(lower, k)
            target = responded(log_price, inverse, *line)
            move, off = abs(target - rate[k]), abs(marginal[k] - paid)
            loss = move * off
            if limited:
                loss = 0.0 if (rates[k] <= 0.0) & (paid * edge[k] >= 1.0) else loss
            lost += loss * at(cost, k)
            off = off if (loss > 0.0) & (move > still * rate[k]) else 0.0
            bits = np.float64(off).view(np.int64)
            largest = bits if bits > largest else largest
        return lost, np.int64(largest).view(np.float64), negative

    return respond, fill, take
