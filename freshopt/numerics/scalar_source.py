"""Functions in which formulas of numbers and of arrays are written alike.

A formula made of these and of arithmetic stands once: NumPy evaluates it on arrays, and numba compiles it for
numbers, in lanes (`freshopt.estimators.crawl_loops`). It has no branch on an array: `select` takes its
place.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from freshopt.numerics.lane_math import LARGEST

# A number in compiled loops, an array in NumPy.
Numbers: TypeAlias = Any


def exp(x: Numbers) -> Numbers:
    """Return e^x."""
    return np.exp(x)


def expm1(x: Numbers) -> Numbers:
    """Return e^x−1 for x >= 0, at most that of 700."""
    return np.expm1(np.minimum(x, LARGEST))


def log(x: Numbers) -> Numbers:
    """Return ln x."""
    return np.log(x)


def select(condition: Numbers, one: Numbers, other: Numbers) -> Numbers:
    """Return one where a condition holds, and the other elsewhere."""
    return np.where(condition, one, other)


def somewhere(condition: Numbers) -> bool:
    """Return whether a condition holds anywhere."""
    return bool(np.any(condition))


def everywhere(condition: Numbers) -> bool:
    """Return whether a condition holds everywhere."""
    return bool(np.all(condition))
