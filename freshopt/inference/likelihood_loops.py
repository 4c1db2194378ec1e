"""Compiled maximisation of crawl likelihoods, one source after the other.

The iteration is that of `crawl_likelihood`; a source's crawl intervals stay in the first-level cache. This
module imports numba and is imported when first needed.

Cost: 3 or 4 passes of 3 ns over the crawl intervals that found an unknown number of changes, and 2 ns a
row to tell them from the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from freshopt.compiled.kept_code import compile_loop
from freshopt.inference.crawl_sum_loops import (
    EDITION,
    FAST,
    LONGEST,
    OPTIONS,
    found_sums,
    found_turns,
)
from freshopt.numerics.arrays import Array, BoolArray, IntArray

# First steps are Halley's, of third order; the others Newton's, which cannot miss. Most seen: 5.
CUBIC = 12


class LikelihoodColumns(NamedTuple):
    """Arrays of a `CrawlLikelihood` by source, empty where it has none."""

    offsets: IntArray
    counted: Array
    exposure: Array
    possible: Array
    birth_rate: Array


class OtherTerms(NamedTuple):
    """Terms of a source's likelihood beside those of crawl intervals in C."""

    counted: float
    exposure: float
    pseudo: float
    possible: float
    births: float


class Peaks(NamedTuple):
    """Maxima to be found, with what is told of them.

    Attributes
    ----------
    rate : ndarray of float, shape (n,)
        Starts left of the maxima, replaced by the maxima.
    moving : ndarray of bool, shape (n,)
        Sources that do not stay where they are.
    value, bend : ndarray of float, shape (n,) or (0,)
        l and −d²l/d(ln Δ)² at the maxima, if they are asked for.
    """

    rate: Array
    moving: BoolArray
    value: Array
    bend: Array


@register_jitable(fastmath=FAST)
def climb(
    gaps: Array, weight: Array | None, terms: OtherTerms, rate: float, step: float, steps: int
) -> tuple[float, int]:
    """Iterate towards the maximum.

    Return the rate, and -1 once a step was small.
    """
    left = steps
    while left > 0:
        slope, curve, turn = found_turns(gaps, weight, rate)
        slope += terms.counted
        if terms.pseudo > 0.0:
            x = terms.pseudo * rate
            q = x / math.expm1(min(x, LONGEST))
            fall = 1.0 - x - q
            slope, curve, turn = slope + q, curve + q * fall, turn + q * (fall * fall - x - q * fall)
        if terms.possible > 0.0:
            share = rate / (rate + terms.births)
            fall = terms.possible * share * (1.0 - share)
            slope, curve, turn = slope + terms.possible * share, curve + fall, turn + fall * (1 - 2 * share)
        # ΔS(Δ), −Δ²S'(Δ) and Δ³S''(Δ) stay within the floats whatever the clock.
        bend, third = slope - curve, turn - 3.0 * curve + 2.0 * slope
        excess = math.log(slope / (terms.exposure * rate))
        move = excess * (slope / bend)
        if left > steps - CUBIC:
            move /= max(0.5, 1.0 - 0.5 * excess * (third * slope / (bend * bend) - 1.0))
        move = max(move, -0.5)
        rate *= 1.0 + move
        left = left - 1 if abs(move) > step else -1
    return rate, left


def build() -> tuple[Callable[..., int], Callable[..., int]]:
    """Return the loops (maximise, split)."""
    key = EDITION  # a variable of the closures below, hence part of what their cache is looked up by

    @compile_loop(**OPTIONS)
    def maximise(
        begin: int,
        end: int,
        intervals: Array,
        weight: Array | None,
        columns: LikelihoodColumns,
        pseudo: float,
        step: float,
        steps: int,
        peaks: Peaks,
    ) -> int:
        """Iterate to the maxima; return how many did not settle."""
        _ = key
        unsettled = 0
        for k in range(begin, end):
            first, last = columns.offsets[k], columns.offsets[k + 1]
            gaps, own = intervals[first:last], None if weight is None else weight[first:last]
            counted, exposure, rate = columns.counted[k], columns.exposure[k], peaks.rate[k]
            births = columns.birth_rate[k] if len(columns.birth_rate) else 0.0
            possible = columns.possible[k] if len(columns.birth_rate) else 0.0
            if peaks.moving[k]:
                terms = OtherTerms(counted, exposure, pseudo, possible, births)
                rate, left = climb(gaps, own, terms, rate, step, steps)
                unsettled += left >= 0
            peaks.rate[k] = rate
            if len(peaks.value):
                value, slope, curve = found_sums(gaps, own, rate)
                value, bend = counted * math.log(rate) - exposure * rate - value, slope - curve + counted
                if pseudo > 0.0:
                    x = min(pseudo * rate, LONGEST)
                    q = x / math.expm1(x)
                    value, bend = value + math.log(-math.expm1(-x)), bend + q * (x + q)
                if possible > 0.0:
                    share = rate / (rate + births)
                    value += possible * math.log(rate + births)
                    bend += possible * share * share
                peaks.value[k], peaks.bend[k] = value, bend
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
        exposure: Array,
        ends: IntArray,
        gaps: Array,
        own: Array,
    ) -> int:
        """Sort the rows of a log into counted, unknown and quiet ones.

        `gaps` and `own` are filled with the crawl intervals, and their weights, that found an unknown number
        of changes; `ends` with where those of each source end. Returns their number.
        """
        _ = key
        counts, dated = len(changes) > 0, len(dates) > 0
        m = 0
        for k in range(len(offsets) - 1):
            number, time_counted, quiet = 0.0, 0.0, 0.0
            for i in range(offsets[k], offsets[k + 1]):
                gap, w = interval[i], 1.0 if weight is None else weight[i]
                known = changes[i] if counts else math.nan
                period = gap
                if dated and not math.isnan(dates[i]) and not math.isnan(gap):
                    known, period = 1.0, time[i] - dates[i]
                if not (counts or dated):
                    # Without a jump: which crawls find a change cannot be predicted.
                    found = changed[i]
                    gaps[m] = gap
                    if weight is not None:
                        own[m] = w
                    m += found
                    told = gap if gap == gap else 0.0  # NaN in a baseline
                    quiet += (1.0 - float(found)) * (w * told)
                elif math.isnan(gap):
                    continue
                elif not math.isnan(known):
                    number += w * known
                    time_counted += w * period
                elif changed[i]:
                    gaps[m] = gap
                    if weight is not None:
                        own[m] = w
                    m += 1
                else:
                    quiet += w * gap
            counted[k], exposure[k], ends[k + 1] = number, time_counted + quiet, m
        return m

    return maximise, split
