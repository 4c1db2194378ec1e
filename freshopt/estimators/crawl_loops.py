"""Compiled passes over the crawls of one source after the other.

The formulas are those of `crawl_formulas` and `density_quantiles`; a source's crawl intervals stay in the
first-level cache. This module imports numba and is imported when first needed. `register_formulas` makes
formulas of `scalar_source` known to numba.

Cost: 2 ns a row to tell crawls that found an unknown number of changes from the others; in four lanes of 64
bits 2.6 ns for S and C of one of these, 4 ns with L; a maximum takes 3 or 4 passes. For the quantiles of a
source with 100 crawls some 4 µs under a prior and 8 µs without one, of either end of an interval half a
microsecond.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import overload, register_jitable

from freshopt.compiled.kept_code import compile_loop
from freshopt.estimators import crawl_formulas
from freshopt.estimators.crawl_formulas import (
    CELL,
    CUBIC,
    FAR,
    LEAP,
    NODES,
    SHARP,
    STEPS,
    TOGETHER,
    Loops,
    OtherTerms,
    Peaks,
    climbing_step,
    curvature,
    information,
    log_likelihood,
    mode_step,
    odds_of,
    posterior_range,
    told_by_row,
    turning,
    with_jeffreys,
)
from freshopt.estimators.crawl_rows import Intervals
from freshopt.numerics import density_quantiles, lane_math, scalar_source
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.density_quantiles import integral, quintic, within
from freshopt.numerics.lane_math import lane_log
from freshopt.numerics.scalar_source import Numbers, expm1
from freshopt.numerics.vector_math import MANTISSA, ONE

# Formulas keep the order in which they are written; sums may be taken in any, and so in lanes.
FAITHFUL: Any = {"forceinline": True, "fastmath": {"contract"}}


def register_formulas(module: ModuleType, options: Any = FAITHFUL) -> str:  # noqa: ANN401 - numba's
    """Let numba inline functions of a module; return their source's digest.

    What is inlined elsewhere is part of what compiled code in the cache is looked up by.
    """
    for _, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == module.__name__:
            register_jitable(**options)(function)
    sources = (lane_math, scalar_source, sys.modules[__name__], module)
    return hashlib.sha256("".join(map(inspect.getsource, sources)).encode()).hexdigest()


def _stands_in(function: Callable[..., Any], lane: Callable[..., Any]) -> None:
    """Let numba compile one function in place of another."""

    @overload(function, strict=False, jit_options=FAITHFUL)
    def implementation(*_: Any) -> Any:  # noqa: ANN401 - numba types
        return lane


def _select(condition: Numbers, one: Numbers, other: Numbers) -> Numbers:
    return one if condition else other


def _log(x: Numbers) -> Numbers:
    return math.log(x)


def _itself(condition: Numbers) -> Numbers:
    return condition


register_formulas(lane_math)
for _function, _lane in (
    (scalar_source.exp, lane_math.lane_exp),
    (scalar_source.expm1, lane_math.lane_expm1),
    (scalar_source.log, _log),
    (scalar_source.select, _select),
    (scalar_source.somewhere, _itself),
    (scalar_source.everywhere, _itself),
):
    _stands_in(_function, _lane)


# Sums may be taken in any order, and so in lanes.
FAST = {"reassoc", "contract", "nsz"}
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": FAST}
# Products of so many mantissas, each below 2, stay below 2^512.
PRODUCT = 512
# Parts of a float64. Processors without AVX-512 shift numbers without a sign alone four at a time.
LOW, HIGH, SHIFT, LOG2 = np.uint64(MANTISSA), np.uint64(ONE), np.uint64(52), 0.6931471805599453
# Largest number of nodes: rates of a source would span 10^10000.
MOST = 50_000
# The integral over a cell is a sum too.
EDITION = register_formulas(crawl_formulas) + register_formulas(
    density_quantiles, {"forceinline": True, "fastmath": FAST}
)


@register_jitable(fastmath=FAST, forceinline=True)
def crawl_sums(
    gaps: Array, weight: Array | None, rate: float, told: bool | None, turned: bool | None, known: bool | None
) -> tuple[float, float, float, float, float, float, float]:
    """Return L, S, C, dC/dt, H, dH/dt and d²H/dt² of one source.

    L, dC/dt and H are left out where their flags are None.
    """
    if told is None or weight is not None:
        return lane_sums(gaps, weight, rate, told, turned, known)
    value, slope, curve, turn, h, first, second = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for begin in range(0, len(gaps), PRODUCT):
        some = lane_sums(gaps[begin : begin + PRODUCT], weight, rate, told, turned, known)
        value, slope, curve, turn = value + some[0], slope + some[1], curve + some[2], turn + some[3]
        h, first, second = h + some[4], first + some[5], second + some[6]
    return value, slope, curve, turn, h, first, second


@register_jitable(fastmath=FAST, forceinline=True)
def lane_sums(
    gaps: Array, weight: Array | None, rate: float, told: bool | None, turned: bool | None, known: bool | None
) -> tuple[float, float, float, float, float, float, float]:
    """Return what `crawl_sums` does, without weights of `PRODUCT` crawl intervals at most.

    L is then the logarithm of a product, whose mantissa and exponent are kept apart.
    """
    value, slope, curve, turn, h, first, second = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    product, exponent = 1.0, np.uint64(0)
    for i in range(len(gaps)):
        x = gaps[i] * rate
        w = 1.0 if weight is None else weight[i]
        if told is None:
            q = x / expm1(x)
        else:
            odds = odds_of(x)
            q = x * odds
            if weight is None:
                bits = np.float64(1.0 + odds).view(np.uint64)
                product *= np.uint64((bits & LOW) | HIGH).view(np.float64)
                exponent += bits >> SHIFT
            else:
                value += w * lane_log(1.0 + odds)
        slope += w * q
        curve += w * curvature(x, q)
        if turned is not None:
            turn += w * turning(x, q)
        if known is not None:
            own, rise, bend = information(x, q)
            h += w * own
            first += w * rise
            second += w * bend
    if told is not None and weight is None:
        value = lane_log(product) + LOG2 * (np.int64(exponent) - 1023 * len(gaps))
    return value, slope, curve, turn, h, first, second


@register_jitable(fastmath=FAST)
def some_of(length: Array, offsets: IntArray, weight: Array | None, k: int) -> tuple[Array, Array | None]:
    """Return the crawl intervals of a source and their weights."""
    first, last = offsets[k], offsets[k + 1]
    return length[first:last], None if weight is None else weight[first:last]


@register_jitable(fastmath=FAST)
def terms_of(terms: OtherTerms, k: int) -> OtherTerms:
    """Return the other terms of a source's likelihood."""
    possible, births = terms.possible[k], terms.births[k]
    return OtherTerms(terms.counted[k], terms.exposure[k], possible, births)


@register_jitable(fastmath=FAST)
def extent(gaps: Array, weight: Array | None) -> tuple[float, float, float]:
    """Return weighted number and sum of crawl intervals, and the shortest."""
    number, span, shortest = 0.0, 0.0, math.inf
    for i in range(len(gaps)):
        w = 1.0 if weight is None else weight[i]
        number += w
        span += w * gaps[i]
        shortest = min(shortest, gaps[i])
    return number, span, shortest


@register_jitable(fastmath=FAST)
def density(
    t: float,
    gaps: Array,
    weight: Array | None,
    quiet: Array | None,
    quiet_weight: Array | None,
    terms: OtherTerms,
    time: float,
    told: bool,
) -> tuple[float, float, float]:
    """Return the log posterior density at t, and two derivatives.

    Under Jeffreys' prior where crawl intervals without a change are given. The density itself is left out
    unless it is to be `told`.
    """
    rate = math.exp(t)
    if quiet is None:
        if told:
            value, slope, curve, _, _, _, _ = crawl_sums(gaps, weight, rate, True, None, None)
        else:
            value, slope, curve, _, _, _, _ = crawl_sums(gaps, weight, rate, None, None, None)
        return log_likelihood((value, slope, curve), terms, t, rate)
    value, slope, curve, _, h, first, second = crawl_sums(gaps, weight, rate, True, None, True)
    _, _, _, _, more, mean, square = crawl_sums(quiet, quiet_weight, rate, None, None, True)
    counted = time * rate
    likelihood = log_likelihood((value, slope, curve), terms, t, rate)
    return with_jeffreys(likelihood, h + more + counted, first + mean + counted, second + square + counted)


def build() -> Loops:
    """Return the loops (maximise, split, quantiles)."""
    key = EDITION  # a variable of the closures below, hence part of what their cache is looked up by
    first_node, last_node, node_count = NODES

    @compile_loop(**OPTIONS)
    def maximise(
        begin: int,
        end: int,
        rows: Intervals,
        columns: OtherTerms,
        step: float,
        steps: int,
        moving: BoolArray,
        peaks: Peaks,
    ) -> int:
        """Iterate to the maxima; return how many did not settle."""
        _ = key
        unsettled = 0
        for k in range(begin, end):
            gaps, weight = some_of(rows.length, rows.offsets, rows.weight, k)
            terms, rate = terms_of(columns, k), peaks.rate[k]
            left = steps if moving[k] else -1
            while left > 0:
                _, slope, curve, turn, _, _, _ = crawl_sums(gaps, weight, rate, None, True, None)
                move = climbing_step((slope, curve, turn), terms, rate, left > steps - CUBIC)
                rate *= 1.0 + move
                left = left - 1 if abs(move) > step else -1
            unsettled += left >= 0
            peaks.rate[k] = rate
            if len(peaks.value):
                value, slope, curve, _, _, _, _ = crawl_sums(gaps, weight, rate, True, None, None)
                value, _, curve = log_likelihood((value, slope, curve), terms, math.log(rate), rate)
                peaks.value[k], peaks.bend[k] = value, -curve
        return unsettled

    @compile_loop(**OPTIONS)
    def split(
        offsets: IntArray,
        interval: Array,
        changed: npt.NDArray[np.uint8],
        changes: Array,
        dates: Array,
        time: Array,
        weight: Array | None,
        counted: Array,
        period: Array,
        exposure: Array,
        found: Intervals,
        quiet: Intervals,
    ) -> tuple[int, int]:
        """Sort the rows of a log into counted, unknown and quiet ones.

        `found` and `quiet` are filled with the crawl intervals that found an unknown number of changes, and
        none, the latter unless it has no room; returns their numbers.
        """
        _ = key
        counts, dated, kept = len(changes) > 0, len(dates) > 0, len(quiet.length) > 0
        m, n = 0, 0
        for k in range(len(offsets) - 1):
            number, counted_time, quiet_time = 0.0, 0.0, 0.0
            for i in range(offsets[k], offsets[k + 1]):
                gap, w, own = interval[i], 1.0 if weight is None else weight[i], changed[i]
                told = gap if gap == gap else 0.0  # NaN in a baseline
                if counts or dated:
                    changes_told, since = told_by_row(
                        gap, changes[i] if counts else math.nan, time[i] - dates[i] if dated else math.nan
                    )
                    if changes_told == changes_told:
                        number += w * changes_told if gap == gap else 0.0
                        counted_time += w * since if gap == gap else 0.0
                        continue
                # Without a jump: which crawls find a change cannot be predicted.
                quiet_time += (1.0 - float(own)) * (w * told)
                found.length[m] = gap
                if weight is not None:
                    found.weight[m] = w  # type: ignore[index]
                m += own
                if kept:
                    quiet.length[n] = gap
                    if weight is not None:
                        quiet.weight[n] = w  # type: ignore[index]
                    n += (1 - own) & (gap == gap)
            counted[k], period[k], exposure[k] = number, counted_time, counted_time + quiet_time
            found.offsets[k + 1] = m
            quiet.offsets[k + 1] = n
        return m, n

    @compile_loop(**OPTIONS)
    def quantiles(
        begin: int,
        end: int,
        rows: Intervals,
        quiet_rows: Intervals | None,
        columns: OtherTerms,
        time: Array,
        levels: Array,
        rates: Array,
    ) -> int:
        """Write the quantiles of some sources; return how many did not settle.

        Columns of `levels` and `rates` are those of the sources from `begin` to `end`; rates stay as they are
        where nothing is known.
        """
        _ = key
        jeffreys = quiet_rows is not None
        room = node_count
        g, slope, curve, below = np.empty(room), np.empty(room), np.empty(room), np.empty(room)
        cells = np.empty((room, 6))
        unsettled = 0
        for k in range(begin, end):
            gaps, weight = some_of(rows.length, rows.offsets, rows.weight, k)
            if quiet_rows is None:
                quiet, quiet_weight = None, None
            else:
                quiet, quiet_weight = some_of(quiet_rows.length, quiet_rows.offsets, quiet_rows.weight, k)
            terms, counted_time = terms_of(columns, k), time[k] if jeffreys else 0.0
            if jeffreys and len(gaps) == 0 and terms.counted == 0.0 and terms.exposure == 0.0:
                continue
            number, span, shortest = extent(gaps, weight)
            if quiet_rows is not None:
                shortest = min(shortest, extent(quiet, None)[2])  # type: ignore[arg-type]
            # Newton's iteration for the mode.
            t = math.log(
                (number + terms.counted + (0.5 if jeffreys else 0.0)) / (0.5 * span + terms.exposure)
            )
            move, bend, peak = LEAP, 0.0, 0.0
            for step in range(STEPS + 1):
                last = step == STEPS or not abs(move) >= 1e-3
                peak, rise, bend = density(t, gaps, weight, quiet, quiet_weight, terms, counted_time, last)
                if last:
                    break
                move = mode_step(rise, bend)
                t += move
            sharp, count = bend < 0.0 and abs(move) < 1e-2, node_count
            left, width, done = 0.0, 0.0, -1
            if sharp:
                deviation = 1.0 / math.sqrt(-bend)
                left = t + first_node * deviation
                width = (last_node - first_node) * deviation / (node_count - 1)
                sharp = deviation < SHARP
            if sharp:
                done = node_count - 1
                g[done], slope[done], curve[done] = density(
                    left + done * width, gaps, weight, quiet, quiet_weight, terms, counted_time, True
                )
                # Where nearly all crawls found a change the right tail is long.
                sharp = g[done] - peak < -FAR
            if not sharp:
                done = -1
                left, right = posterior_range(terms, number, span, shortest, jeffreys)
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
                        left + j * width, gaps, weight, quiet, quiet_weight, terms, counted_time, True
                    )
                top = max(top, g[j])
            fall = slope[0]
            below[0] = math.exp(g[0] - top) / (fall * width)
            for j in range(count - 1):
                cell = quintic(
                    g[j] - top, slope[j], curve[j], g[j + 1] - top, slope[j + 1], curve[j + 1], width
                )
                for i in range(6):
                    cells[j, i] = cell[i]
                below[j + 1] = below[j] + integral(cells[j], 1.0)
            total = below[count - 1]
            for i in range(levels.shape[0]):
                mass = levels[i, k - begin] * total
                at = np.searchsorted(below[: count - 1], mass, side="right") - 1
                if at < 0:
                    place = left + math.log(mass / below[0]) / fall
                else:
                    place = (
                        left + (at + within(cells[at], mass - below[at], below[at + 1] - below[at])) * width
                    )
                rates[i, k - begin] = math.exp(place)
                unsettled += math.isnan(place)
        return unsettled

    return maximise, split, quantiles
