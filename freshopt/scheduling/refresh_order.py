"""Order of refreshes, shared by the scheduling methods.

A refresh is (source, ordinal), a method says when it is, time decides the order.

A periodic source has its points on (φ + j)/ρ, j = 0, 1, ..., with a phase φ. Refreshed at its points it has
exactly equal intervals, but the total load is only as even as the phases are spread. Assigned to equally
spaced slots in the order of its points, the load is exactly even and the intervals are equal up to the few
slots by which a source is early or late.

Cost: one sort of the refreshes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from freshopt.numerics.arrays import Array, IntArray, total

# Its continued fraction is all ones: no other number's multiples are distributed more evenly.
GOLDEN = (5**0.5 - 1) / 2


def order_refreshes(count: IntArray, moment: Callable[[IntArray, IntArray], Array]) -> tuple[IntArray, Array]:
    """Return the refreshes sorted by time, then source.

    There are ``count[k]`` refreshes of each source k.

    Parameters
    ----------
    count : ndarray of int, shape (n,)
    moment : callable
        The times of refreshes, given their sources and their ordinals 0, 1, ... within a source.

    Examples
    --------
    >>> source, time = order_refreshes(np.array([2, 1]), lambda source, ordinal: ordinal + 0.5 * source)
    >>> source.tolist(), time.tolist()
    ([0, 1, 0], [0.0, 0.5, 1.0])
    """
    source = np.repeat(np.arange(len(count)), count)
    ordinal = np.arange(len(source))
    ordinal -= (np.cumsum(count) - count)[source]
    time = moment(source, ordinal)
    del ordinal
    order = np.argsort(time, kind="stable")  # stable: at equal times the sources ascend, as they do here
    return source[order], time[order]


def spread_phases(rates: Array) -> Array:
    """Return phases in [0, 1) by the golden-ratio sequence.

    In the order of the rates, which spreads the load.

    Sources of similar rates are neighbours in that order, so that their phases cover [0, 1) evenly.
    """
    rank = np.empty(len(rates))
    rank[np.argsort(rates, kind="stable")] = np.arange(1, len(rates) + 1)
    return np.where(rates > 0.0, rank * GOLDEN % 1.0, 0.0)


def points_before(horizon: float, rates: Array, phase: Array) -> IntArray:
    """Return the number of points before the horizon.

    The points are (φ + j)/ρ.

    They lie in [0, horizon), and φ ≥ 0.
    """
    count = np.maximum(np.ceil(rates * horizon - phase), 0.0).astype(np.int64)
    last = np.divide(phase + count - 1, rates, out=np.zeros_like(rates), where=count > 0)
    count -= last >= horizon  # rounding of ρ·horizon can put one point on the horizon itself
    return count


def slot_count(load: float, horizon: float) -> int:
    """Return the number of slots of length 1/load.

    Those whose middle is in [0, horizon).
    """
    many = max(math.ceil(load * horizon - 0.5), 0)
    return many - 1 if many and (many - 0.5) / load >= horizon else many


def slots(load: float, horizon: float) -> Array:
    """Return the middles of slots of length 1/load.

    Those that lie in [0, horizon).
    """
    middles = np.arange(0.5, slot_count(load, horizon), dtype=np.float64)
    if len(middles):  # of no sources the load is 0
        middles /= load
    return middles


def in_slots(rates: Array, phase: Array, horizon: float) -> tuple[IntArray, Array]:
    """Return refreshes at equally spaced slots.

    They are assigned in the order of the sources' points.

    Parameters
    ----------
    rates : ndarray of float, shape (n,)
    phase : ndarray of float, shape (n,)
        Of each source, ≥ 0; its points are (φ + j)/ρ.
    horizon : float
    """
    load = total(rates)
    many = slot_count(load, horizon)
    if not many:
        return np.empty(0, dtype=np.int64), np.empty(0)
    # Up to t a source has at least ρt − φ points: here the sum is at least load·horizon.
    reach = horizon + total(np.where(rates > 0.0, phase, 0.0)) / load
    count = points_before(reach * (1.0 + 1e-12), rates, phase)
    source = order_refreshes(count, lambda source, ordinal: (phase[source] + ordinal) / rates[source])[0]
    return source[:many], slots(load, horizon)
