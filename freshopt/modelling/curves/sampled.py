"""Points of curves given as functions, with their error.

As many are taken as a bound on the error between them needs.

A convex function lies below the chord of two of its points and above the tangents, or the next chords. Their
distance falls with the square of the points' own, so one coarse pass tells how many a fine one needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from freshopt.errors import ObjectiveError, shown
from freshopt.modelling.curves.pieces import Points, error_between
from freshopt.numerics.arrays import Array

Function = Callable[[Array], Any]

# Points of the first pass, those of the second at most, and the share of the cost that they may be off: a gap
# of 1e-9 is to be proved.
COARSE, MOST_POINTS, AIMED = 2048, 2**20, 4e-10


class Sampled(NamedTuple):
    """Points of a function, and how far off their curve may be.

    At most `relative` times the cost and `absolute` besides.
    """

    points: Points
    relative: float
    absolute: float


def sampled(functions: tuple[Function, ...], between: tuple[float, float]) -> Sampled:
    """Return points of functions (rate, cost) or (rate, cost, slope)."""
    low, high = between
    at = np.geomspace(low, high, COARSE) if low > 0.0 else np.linspace(low, high, COARSE)
    points, error, allowed = _measured(functions, at)
    parts = np.clip(np.ceil(np.sqrt(error / allowed)), 1.0, MOST_POINTS)
    parts = np.maximum(1.0, np.floor(parts * min(1.0, MOST_POINTS / float(np.sum(parts))))).astype(np.int64)
    parts = parts if points.rates[0] == _rate(functions, at[:1])[0] else parts[::-1]
    if np.any(parts > 1):
        begin, step = np.repeat(at[:-1], parts), np.repeat(np.diff(at) / parts, parts)
        order = np.arange(len(begin)) - np.repeat(np.cumsum(parts) - parts, parts)
        at = np.append(begin + order * step, at[-1])
        points, error, _ = _measured(functions, at)
    least = np.minimum(points.costs[1:], points.costs[:-1])
    relative = AIMED if bool(np.all(least >= 0.0)) else 0.0
    return Sampled(points, relative, max(0.0, float(np.max(error - relative * least))))


def _rate(functions: tuple[Function, ...], at: Array) -> Array:
    return at if functions[0] is identity else _evaluated(functions[0], at, "rate")


def identity(at: Array) -> Array:
    """Return the rates of a cost that is a function of them."""
    return at


def _measured(functions: tuple[Function, ...], at: Array) -> tuple[Points, Array, Array]:
    """Return points by rate, the error between them, and the allowed one."""
    rates = _rate(functions, at)
    costs, *slopes = (
        _evaluated(one, at, what) for one, what in zip(functions[1:], ("cost", "slope"), strict=False)
    )
    order = slice(None, None, -1 if rates[0] > rates[-1] else 1)
    given = (rates[order], costs[order], *(one[order] for one in slopes))
    points = Points.of(given)
    # A spline may be off on either side, a chord lies above.
    error = error_between(points) * (1.0 if points.slopes is None else 2.0)
    size = np.abs(points.costs)
    # A coarse interval bends more at one end than in its middle.
    allowed = (
        0.97 * AIMED * (np.minimum(size[1:], size[:-1]) + size[len(size) // 2]) + np.finfo(np.float64).tiny
    )
    return points, error, allowed


def _evaluated(function: Function, at: Array, what: str) -> Array:
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(function(at), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ObjectiveError(
            f"the {what} of Curve fails on an array of rates: {shown(str(error))}. Write it with NumPy."
        ) from None
    if found.shape not in (at.shape, ()):
        raise ObjectiveError(
            f"the {what} of Curve returns shape {found.shape} for rates of shape {at.shape}. Return one "
            "number for each rate."
        )
    found = np.broadcast_to(found, at.shape)
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise ObjectiveError(
            f"the {what} of Curve at {at[wrong[0]]:.6g} is {found[wrong[0]]}. Give between=(low, high), "
            "where it is finite."
        )
    return found
