"""Gaps that fit the week: its multiples and its parts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.numerics.arrays import IntArray, as_numbers

# Relative rounding up to which a gap is taken for a week times, or over, a whole number.
ROUNDING = 1e-6
# Most parts of a week, minutes, and most weeks in a gap, a century and beyond.
MOST_PARTS, MOST_WEEKS = 10_080, 10_000


def week_cycles(gaps: npt.ArrayLike, week: float) -> IntArray:
    """Return which multiple or part of a week each gap is.

    Parameters
    ----------
    gaps : array_like of float, shape (m,)
    week : float
        The length of a week.

    Returns
    -------
    ndarray of int, shape (m,)
        k ≥ 1 for k weeks, −k ≤ −2 for a week over k, 0 for other gaps.

    Examples
    --------
    >>> week_cycles([7.0, 3.5, 5.0], 7.0)
    array([ 1, -2,  0])
    """
    gap = np.atleast_1d(as_numbers(gaps, "gaps"))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        weeks, parts = gap / week, week / gap
    usable = (gap > 0.0) & (weeks < MOST_WEEKS + 0.5) & (parts < MOST_PARTS + 0.5)
    weeks, parts = np.where(usable, weeks, 0.0), np.where(usable, parts, 0.0)
    up, down = np.rint(weeks), np.rint(parts)
    multiple = (up >= 1.0) & (np.abs(weeks - up) <= ROUNDING)
    part = (down >= 2.0) & (np.abs(parts - down) <= ROUNDING * down)
    return np.where(multiple, up, np.where(part, -down, 0.0)).astype(np.int64)


def known_cycles(gaps: npt.ArrayLike, week: float, time_unit: str) -> IntArray:
    """Return `week_cycles`, or raise for a gap that does not fit.

    Raises
    ------
    SourceDataError
        If a gap is neither a multiple nor a part of a week; names some.
    """
    cycle = week_cycles(gaps, week)
    other = np.atleast_1d(as_numbers(gaps, "gaps"))[cycle == 0]
    if len(other):
        raise SourceDataError(
            f"a gap of {list_offenders([f'{gap:g}' for gap in other[:6]])} {time_unit}s is no week times or "
            f"over a whole number (up to {MOST_WEEKS} weeks, down to a minute). Pass gaps of the week."
        )
    return cycle
