"""Means over the best phases of a cycle.

The heights are piecewise linear, and the means exact.

The mean of a height D over the share α of the cycle where it is highest is min_t t + E(D − t)⁺/α: a convex
function of the level t, least where D exceeds t on a share α. Both the share and the expectation have a
closed form on each linear piece, so that bisection of t gives the mean to rounding.

Cost: 60 passes over the pieces.
"""

from __future__ import annotations

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, as_number

# Halvings of the range of heights: all the bits of a float.
HALVINGS = 60


def mean_of_best(height: Array, share: float) -> float:
    """Return the mean height over the best share of a cycle.

    Heights are those at equally spaced phases, linear in between; the last is followed by the first. A share
    of 0 has the greatest height.

    Examples
    --------
    >>> float(round(mean_of_best(np.array([0.0, 1.0]), 0.5), 12))
    0.75
    """
    level = level_of_best(height, share)
    if share == 0.0:
        return level
    begin, end = height - level, np.roll(height, -1) - level
    high, low = np.maximum(begin, end), np.minimum(begin, end)
    # ∫(D − t)⁺ over a piece that falls to the level inside it is a triangle.
    triangle = np.divide(high * high, 2.0 * (high - low), out=np.zeros(len(high)), where=high > low)
    above = np.where(low >= 0.0, 0.5 * (high + low), np.where(high > 0.0, triangle, 0.0))
    return level + float(np.mean(above)) / share


def level_of_best(height: Array, share: float) -> float:
    """Return the level that a share of the cycle exceeds; see `mean_of_best`."""
    begin, end = height, np.roll(height, -1)
    high, low = np.maximum(begin, end), np.minimum(begin, end)
    width = np.where(high > low, high - low, 1.0)
    below, beyond = float(np.min(height)), float(np.max(height))
    if share == 0.0:
        return beyond
    for _ in range(HALVINGS):
        level = 0.5 * (below + beyond)
        exceeds = np.where(high > low, np.clip((high - level) / width, 0.0, 1.0), low > level)
        below, beyond = (level, beyond) if float(np.mean(exceeds)) > share else (below, level)
    return beyond


def check_load_limit(load_limit: float) -> float:
    """Return the load limit, or raise if it is below 1.

    Examples
    --------
    >>> check_load_limit(0.5)
    Traceback (most recent call last):
    ...
    freshopt.errors.SourceDataError: load_limit is 0.5. Pass a multiple of the mean load, 1 or more.
    """
    limit = as_number(load_limit, "load_limit", "Pass a multiple of the mean load, 1 or more.")
    if not limit >= 1.0:
        raise SourceDataError(f"load_limit is {limit:g}. Pass a multiple of the mean load, 1 or more.")
    return limit
