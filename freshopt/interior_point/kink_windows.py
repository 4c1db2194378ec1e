"""`solve_windows`: a search by windows, for sources with very many kinks.

A piecewise linear cost of periodic attempts that fail has a kink at every multiple of one rate: too many to
be split at. Within a window around its rate a source has few. So each program in windows is solved as it is
(`freshopt.interior_point.barrier_rows`), the windows move to its rates, and grow on the side on which a rate
is at their end. The program is convex: where its multipliers prove the rates, outside of the windows too,
they are optimal. Low kinks are few, so that windows grow fast downwards; at a rate of 0 they reach up to a
share of the typical rate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.certificates.row_gap import RowGap
from freshopt.interior_point.barrier_rows import relative_gap, solve_barrier
from freshopt.interior_point.linear_pieces import linear_pieces
from freshopt.interior_point.solve_rows import CONFLICT, RowAnswer
from freshopt.numerics.arrays import Array
from freshopt.separable.program import Program

# Windows at first reach so far, as a ratio; no power of it is a ratio of small whole numbers, as kinks' are.
_REACH = 1.87
# Powers to which the ratios are raised, downwards and upwards, where a rate is at the window's end.
_DOWN, _UP = 4.0, 2.0
# A rate is there within this share of the window.
_BESIDE = 1e-3
# A window reaches up to this share of the typical rate at least.
_LEAST = 0.01
# Windows are narrowed so many times at most; the 12th has a 4096th of the first one's width.
_NARROWED = 12
# Of 2000 sources with chances from 0.005 on, 14 windows are enough.
_WINDOWS = 40


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """Windows around rates, as ratios ≥ 1 on either side."""

    program: Program
    rates: Array
    down: Array
    up: Array

    def narrowed(self) -> tuple[_Windows, Program]:
        """Return windows with few kinks, and the program within them."""
        own = self
        inner = own.inner()
        for _ in range(_NARROWED):
            crowded = linear_pieces(inner).crowded
            if not bool(np.any(crowded)):
                break
            half = np.where(crowded, 0.5, 1.0)
            own = replace(own, down=own.down**half, up=own.up**half)
            inner = own.inner()
        return own, inner

    def inner(self) -> Program:
        """Return the program within the windows."""
        own = self.program
        lower = np.maximum(own.lower, self.rates / self.down)
        upper = np.minimum(own.upper, (self.rates + _LEAST * own.typical) * self.up)
        return replace(own, lower=lower, upper=upper)

    def moved(self, inner: Program, rates: Array) -> _Windows:
        """Return windows around new rates, wider where they reached an end."""
        near, own = _BESIDE * (inner.upper - inner.lower), self.program
        low = (rates <= inner.lower + near) & (inner.lower > own.lower)
        high = (rates >= inner.upper - near) & (inner.upper < own.upper)
        return _Windows(
            own, rates, np.where(low, self.down**_DOWN, self.down), np.where(high, self.up**_UP, self.up)
        )


def solve_windows(program: Program, tolerance: float, *, iterations: int) -> RowAnswer:
    """Minimise a separable objective under rows, window by window.

    - `tolerance`: Of the duality gap, relative to |F| + Σ y_j|b_j|.
    - `iterations`: Newton steps at most in one window.
    """
    best = solve_barrier(program, tolerance, iterations=iterations)
    if best.why is None or best.why.startswith(CONFLICT):
        return best
    passes, steps = best.passes, best.iterations
    with np.errstate(all="ignore"):
        start = np.full(len(program), _REACH)
        windows = _Windows(program, best.rates, start, start)
        for _ in range(_WINDOWS):
            windows, inner = windows.narrowed()
            found = solve_barrier(inner, tolerance, iterations=iterations)
            passes, steps = passes + found.passes, steps + found.iterations
            gap = relative_gap(RowGap.of(program, found.rates), found.multipliers)
            if gap <= best.gap:
                best = replace(found, gap=gap, why=None if gap <= tolerance else best.why)
            if best.why is None:
                break
            windows = windows.moved(inner, found.rates)
    return replace(best, passes=passes, iterations=steps)
