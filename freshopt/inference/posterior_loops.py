"""Compiled quantiles of posterior change rates, one source after the other.

The scheme is that of `log_posterior` and `density_quantiles`, with the same nodes and the same rule: rows of
a source are read once, and all that follows stays in the first-level cache. This module imports numba and is
imported when first needed.

Cost: for a source with 100 crawls some 4 µs under a prior and 8 µs without one, of either end of an interval
half a microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from freshopt.compiled.kept_code import compile_loop
from freshopt.inference.crawl_sum_loops import (
    EDITION,
    FAST,
    OPTIONS,
    found_information,
    found_slopes,
    found_sums,
    quiet_information,
)
from freshopt.inference.log_posterior import (
    CELL,
    FALL,
    FAR,
    LEAP,
    NODES,
    NOTHING,
    SHARP,
    STEPS,
    STRAIGHT,
    TOGETHER,
)
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.density_quantiles import POINTS, quadrature_rule
from freshopt.numerics.lane_math import lane_exp

PLACES, WEIGHTS = quadrature_rule()
# Largest number of steps of a quantile, and the one in cells after which one more is exact.
SEARCH, SETTLED = 60, 1e-6
# Largest number of nodes: rates of a source would span 10^10000.
MOST = 50_000


class LogRowColumns(NamedTuple):
    """Columns of a log by row, and offsets of its sources."""

    offsets: IntArray
    interval: Array
    changed: BoolArray
    time: Array


class PriorColumns(NamedTuple):
    """Gamma priors by source, all empty under Jeffreys' prior.

    Attributes
    ----------
    shape, exposure, birth_rate : ndarray of float, shape (n,)
        The ages of first dates are part of the exposure.
    possible : ndarray of float, shape (n,)
        Weights of first dates.
    """

    shape: Array
    exposure: Array
    birth_rate: Array
    possible: Array


class SourceTerms(NamedTuple):
    """Numbers of one source that every evaluation of its density needs."""

    counted: float
    free: float
    time: float
    shape: float
    exposure: float
    births: float
    possible: float
    jeffreys: bool


@register_jitable(fastmath=FAST)
def density(
    t: float,
    found: Array,
    found_weight: Array | None,
    quiet: Array,
    quiet_weight: Array | None,
    terms: SourceTerms,
    whole: bool,
) -> tuple[float, float, float]:
    """Return g, g' and g'' at t.

    g is NaN unless it is wanted, `whole`.
    """
    rate = math.exp(t)
    free = (terms.free + terms.exposure) * rate
    base, constant = (terms.counted + terms.shape) * t - free, terms.counted + terms.shape - free
    if terms.jeffreys:
        value, slope, curve, h, first, second = found_information(found, found_weight, rate)
        more, mean, square = quiet_information(quiet, quiet_weight, rate)
        counted = terms.time * rate
        h, first, second = h + more + counted, first + mean + counted, second + square + counted
        h = max(h, NOTHING)
        first, second = first / h, second / h
        return (
            base - value + 0.5 * math.log(h),
            constant + slope + 0.5 * first,
            curve - free + 0.5 * (second - first * first),
        )
    if whole:
        value, slope, curve = found_sums(found, found_weight, rate)
    else:
        value = math.nan
        slope, curve = found_slopes(found, found_weight, rate)
    value, slope, curve = base - value, constant + slope, curve - free
    if terms.possible > 0.0:
        share = rate / (rate + terms.births)  # the probability that the first date is a change
        value += terms.possible * math.log(rate + terms.births)
        slope += terms.possible * share
        curve += terms.possible * share * (1.0 - share)
    return value, slope, curve


@register_jitable(fastmath=FAST)
def polynomial(c: Array, u: float) -> float:
    """Return a polynomial of fifth degree."""
    return float(c[0] + u * (c[1] + u * (c[2] + u * (c[3] + u * (c[4] + u * c[5])))))


@register_jitable(fastmath=FAST)
def integral(c: Array, u: float) -> float:
    """Return the integral of a polynomial's exponential from 0 to u."""
    total = 0.0
    for p in range(POINTS):
        v = PLACES[p] * u
        total += WEIGHTS[p] * lane_exp(c[0] + v * (c[1] + v * (c[2] + v * (c[3] + v * (c[4] + v * c[5])))))
    return float(u * total)


@register_jitable(fastmath=FAST)
def hermite(g: Array, slope: Array, curve: Array, width: float, top: float, count: int, cells: Array) -> None:
    """Fill in the coefficients of the polynomials between nodes."""
    for j in range(count):
        g0, s0, c0 = g[j] - top, slope[j] * width, 0.5 * curve[j] * width * width
        rise = g[j + 1] - top - g0 - s0 - c0
        turn = slope[j + 1] * width - s0 - 2.0 * c0
        bend = 0.5 * curve[j + 1] * width * width - c0
        cells[j, 0], cells[j, 1], cells[j, 2] = g0, s0, c0
        cells[j, 3] = 10.0 * rise - 4.0 * turn + bend
        cells[j, 4] = -15.0 * rise + 7.0 * turn - 2.0 * bend
        cells[j, 5] = 6.0 * rise - 3.0 * turn + bend


@register_jitable(fastmath=FAST)
def within(c: Array, mass: float, whole: float) -> float:
    """Return where a cell has a mass on its left.

    NaN if the search does not settle.
    """
    low, high = 0.0, 1.0
    u = min(max(mass / whole, 0.0), 1.0)
    for _ in range(SEARCH):
        excess = integral(c, u) - mass
        if excess < 0.0:
            low = u
        else:
            high = u
        after = u - excess / math.exp(polynomial(c, u))
        if not low <= after <= high:
            after = 0.5 * (low + high)
        moved, u = abs(after - u), after
        if moved <= SETTLED:
            return u - (integral(c, u) - mass) / math.exp(polynomial(c, u))
    return math.nan


@register_jitable(fastmath=FAST)
def span_of(
    found: Array, quiet: Array, terms: SourceTerms, changes: float, span: float
) -> tuple[float, float]:
    """Return the range of t that holds the posterior mass."""
    shape = 0.5 if terms.jeffreys else terms.shape
    right = (FALL + 5.0 * (changes + terms.possible + shape)) / (terms.free + terms.exposure)
    if terms.jeffreys:
        shortest = math.inf
        for i in range(len(found)):
            shortest = min(shortest, found[i])
        for i in range(len(quiet)):
            shortest = min(shortest, quiet[i])
        if shortest < math.inf:
            # Where every crawl interval ended with a change √H falls by aΔ/2, a the shortest.
            right = min(right, 3.0 * FALL / shortest)
    left = STRAIGHT / (span + terms.exposure)
    if terms.possible > 0.0 and terms.births > 0.0:
        left = min(left, STRAIGHT * terms.births)  # ln(Δ+η) is straight left of η
    return math.log(left), math.log(right)


class Told(NamedTuple):
    """Sums over the rows of one source, weighted.

    Attributes
    ----------
    found, quiet, rows : int
        Crawl intervals with an unknown number of changes, without any, and all rows but baselines.
    counted, time : float
        Changes that were counted, and in what time.
    number, span, wait : float
        The number of the crawl intervals in `found` and their sum, and the sum of those in `quiet`.
    """

    found: int
    quiet: int
    rows: int
    counted: float
    time: float
    number: float
    span: float
    wait: float


@register_jitable(fastmath=FAST)
def gather(
    first: int,
    last: int,
    columns: LogRowColumns,
    changes: Array,
    dates: Array,
    weight: Array | None,
    jeffreys: bool,
    found: Array,
    found_weight: Array | None,
    quiet: Array,
    quiet_weight: Array | None,
) -> Told:
    """Read a source's rows; fill in its crawl intervals and weights."""
    scale = 1.0
    if weight is not None and jeffreys:
        # Without a prior a source counts as (Σw)²/Σw² crawls.
        total, square = 0.0, 0.0
        for i in range(first, last):
            if not math.isnan(columns.interval[i]):
                total += weight[i]
                square += weight[i] * weight[i]
        scale = total / square if square > 0.0 else total
    counted, time, number, span, wait = 0.0, 0.0, 0.0, 0.0, 0.0
    m, n, rows = 0, 0, 0
    for i in range(first, last):
        gap = columns.interval[i]
        if math.isnan(gap):
            continue
        rows += 1
        w = 1.0 if weight is None else scale * weight[i]
        known = changes[i] if len(changes) else math.nan
        period = gap
        if len(dates) and not math.isnan(dates[i]):
            known, period = 1.0, columns.time[i] - dates[i]
        if not math.isnan(known):
            counted += w * known
            time += w * period
            continue
        if columns.changed[i]:
            found[m] = gap
            if found_weight is not None:
                found_weight[m] = w
            m += 1
            number += w
            span += w * gap
        else:
            if jeffreys:
                quiet[n] = gap
                if quiet_weight is not None:
                    quiet_weight[n] = w
                n += 1
            wait += w * gap
    return Told(m, n, rows, counted, time, number, span, wait)


def build() -> tuple[Callable[..., int], Callable[..., None]]:
    """Return the loops (quantiles, extremes)."""
    key = EDITION  # a variable of the closures below, hence part of what their cache is looked up by
    first_node, last_node, node_count = NODES

    @compile_loop(**OPTIONS)
    def quantiles(
        begin: int,
        end: int,
        columns: LogRowColumns,
        changes: Array,
        dates: Array,
        weight: Array | None,
        prior: PriorColumns,
        levels: Array,
        rates: Array,
    ) -> int:
        """Write the quantiles of some sources; return how many did not settle.

        Columns of `levels` and `rates` are those of the sources from `begin` to `end`; rates stay as they are
        where nothing is known.
        """
        _ = key
        jeffreys = len(prior.shape) == 0
        most = 0
        for k in range(begin, end):
            most = max(most, columns.offsets[k + 1] - columns.offsets[k])
        found_all, quiet_all = np.empty(most), np.empty(most if jeffreys else 0)
        if weight is None:
            found_weights, quiet_weights = None, None
        else:
            found_weights, quiet_weights = np.empty(most), np.empty(most if jeffreys else 0)
        room = node_count
        g, slope, curve, below = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
        cells = np.empty((room, 6))
        unsettled = 0
        for k in range(begin, end):
            told = gather(
                columns.offsets[k],
                columns.offsets[k + 1],
                columns,
                changes,
                dates,
                weight,
                jeffreys,
                found_all,
                found_weights,
                quiet_all,
                quiet_weights,
            )
            if jeffreys and told.rows == 0:
                continue
            found, quiet = found_all[: told.found], quiet_all[: told.quiet]
            if weight is None:
                found_weight, quiet_weight = None, None
            else:
                found_weight = found_weights[: told.found]  # type: ignore[index] # with weights there are
                quiet_weight = quiet_weights[: told.quiet]  # type: ignore[index] # both
            terms = SourceTerms(
                told.counted,
                told.time + told.wait,
                told.time,
                0.0 if jeffreys else prior.shape[k],
                0.0 if jeffreys else prior.exposure[k],
                0.0 if jeffreys else prior.birth_rate[k],
                0.0 if jeffreys else prior.possible[k],
                jeffreys,
            )
            changed = told.number + told.counted
            # Newton's iteration for the mode.
            t = math.log(
                (changed + (0.5 if jeffreys else terms.shape))
                / (0.5 * told.span + told.wait + told.time + terms.exposure)
            )
            move, bend, peak = LEAP, 0.0, 0.0
            for step in range(STEPS + 1):
                last = step == STEPS or not abs(move) >= 1e-3
                peak, rise, bend = density(t, found, found_weight, quiet, quiet_weight, terms, last)
                if last:
                    break
                move = -rise / bend if bend < 0.0 else math.copysign(LEAP, rise)
                move = min(max(move, -LEAP), LEAP)
                t += move
            sharp, count = bend < 0.0 and abs(move) < 1e-2, node_count
            left, width = 0.0, 0.0
            if sharp:
                deviation = 1.0 / math.sqrt(-bend)
                left = t + first_node * deviation
                width = (last_node - first_node) * deviation / (node_count - 1)
                sharp = deviation < SHARP
            done = 0
            if sharp:
                done = node_count - 1
                g[done], slope[done], curve[done] = density(
                    left + done * width, found, found_weight, quiet, quiet_weight, terms, True
                )
                # Where nearly all crawls found a change the right tail is long.
                sharp = g[done] - peak < -FAR
            if not sharp:
                done = -1
                left, right = span_of(found, quiet, terms, changed, told.span + told.wait + told.time)
                many = TOGETHER * math.ceil((right - left) / (TOGETHER * CELL))
                if not many <= MOST:
                    unsettled += 1
                    continue
                count = int(many) + 1
                width = (right - left) / (count - 1)
            if count > room:
                room = count
                g, slope, curve, below = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
                cells = np.empty((room, 6))
            top = -math.inf
            for j in range(count):
                if j != done:
                    g[j], slope[j], curve[j] = density(
                        left + j * width, found, found_weight, quiet, quiet_weight, terms, True
                    )
                top = max(top, g[j])
            hermite(g, slope, curve, width, top, count - 1, cells)
            fall = slope[0]
            below[0] = math.exp(g[0] - top) / (fall * width)
            for j in range(count - 1):
                below[j + 1] = below[j] + integral(cells[j], 1.0)
            total = below[count - 1]
            for i in range(levels.shape[0]):
                mass = levels[i, k - begin] * total
                cell = np.searchsorted(below[: count - 1], mass, side="right") - 1
                if cell < 0:
                    place = left + math.log(mass / below[0]) / fall
                else:
                    whole = below[cell + 1] - below[cell]
                    place = left + (cell + within(cells[cell], mass - below[cell], whole)) * width
                rates[i, k - begin] = math.exp(place)
                unsettled += math.isnan(place)
        return unsettled

    @compile_loop(**OPTIONS)
    def extremes(
        columns: LogRowColumns, changes: Array, dates: Array, never: BoolArray, always: BoolArray
    ) -> None:
        """Write which sources never changed, and which had always changed.

        Always by an unknown number of changes.
        """
        _ = key
        for k in range(len(columns.offsets) - 1):
            seen, found, told = 0, 0, 0
            for i in range(columns.offsets[k], columns.offsets[k + 1]):
                if math.isnan(columns.interval[i]):
                    continue
                seen += 1
                found += columns.changed[i]
                if (len(changes) and not math.isnan(changes[i])) or (len(dates) and not math.isnan(dates[i])):
                    told += 1
            never[k] = found == 0
            always[k] = seen > 0 and found == seen and told == 0

    return quantiles, extremes
