"""Order of refreshes, shared by the scheduling methods.

A refresh is (source, ordinal), a method says when it is, time decides the order.

A periodic source has its points on (φ + j)/ρ, j = 0, 1, ..., with a phase φ. Refreshed at its points it has
exactly equal intervals, but the total load is only as even as the phases are spread. Assigned to equally
spaced slots in the order of its points, the load is exactly even and the intervals are equal up to the few
slots by which a source is early or late.

Cost: 30 ns a refresh, compiled (`freshopt.scheduling.refresh_loops`), for the points and one sort of them;
250 in NumPy. Both give the same bits; which of them works depends on how many refreshes there are, and on
whether numba is there already.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import numpy.typing as npt

from freshopt.compiled.backend import compiled, fast
from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, IntArray, as_numbers, as_vector, total
from freshopt.numerics.memory import free_memory
from freshopt.scheduling import refresh_loops

# Its continued fraction is all ones: no other number's multiples are distributed more evenly.
GOLDEN = (5**0.5 - 1) / 2


# Refreshes from which the compiled loops save more than the second that loading numba takes, or the tenth of
# one if it is loaded (measured: 300 to 700 ns a refresh are saved).
WORTHWHILE, AT_HAND = 2_000_000, 200_000

# Bytes per refresh until a schedule is written: 16 stay, the rest is for sorting (measured: 44 in NumPy, 28
# compiled), and then for its table with timestamps (measured: 63).
PEAK_BYTES = 64
# The same of a whole plan, whose costs and page are found from its schedule (measured: 155).
PLANNED_BYTES = 160
# Where nobody knows what is free: 268 million refreshes, more than a crawler loads at once.
MOST_BYTES = 16 * 2**30


def worthwhile(refreshes: int) -> bool:
    """Return whether so many refreshes are ordered by compiled loops."""
    return compiled() and refreshes >= (AT_HAND if "numba" in sys.modules else WORTHWHILE)


def check_size(rates: Array, horizon: float, time_unit: str, each: int = PEAK_BYTES) -> None:
    """Raise if a schedule would not fit in memory.

    Before making it, at `each` so many bytes a refresh. A horizon that is no finite number is refused by the
    schedule itself.
    """
    load, free = total(rates), free_memory()
    limit = MOST_BYTES if free is None else free
    if horizon < math.inf and load * horizon * each > limit:
        longest = limit / each / load
        room = (
            f"{limit / 2**30:.3g} GiB are free" if free is not None else f"the limit is {limit / 2**30:g} GiB"
        )
        raise SourceDataError(
            f"{load:.4g} refreshes per {time_unit} for {horizon:g} {time_unit}s need about "
            f"{load * horizon * each / 2**30:.3g} GiB until they are written, and {room}. "
            f"Choose a horizon of at most {longest:.3g} {time_unit}s and schedule again after it."
        )


def ordinals(count: IntArray) -> tuple[IntArray, IntArray]:
    """Return sources and ordinals 0, 1, ... of refreshes, source by source.

    There are ``count[k]`` refreshes of each source k.

    Examples
    --------
    >>> source, ordinal = ordinals(np.array([2, 0, 1]))
    >>> source.tolist(), ordinal.tolist()
    ([0, 0, 2], [0, 1, 0])
    """
    source = np.repeat(np.arange(len(count)), count)
    ordinal = np.arange(len(source))
    ordinal -= (np.cumsum(count) - count)[source]
    return source, ordinal


def points(count: IntArray, phase: Array, rates: Array) -> Array:
    """Return the first ``count[k]`` points (φ + j)/ρ of each source k."""
    many = int(np.sum(count))
    if worthwhile(many):
        time = np.empty(many)
        fast(refresh_loops.lay_points)(count, phase, rates, time)
        return time
    source, ordinal = ordinals(count)
    return np.asarray((phase[source] + ordinal) / rates[source])


def order_refreshes(count: IntArray, time: Array) -> tuple[IntArray, Array]:
    """Return the refreshes sorted by time, then source.

    There are ``count[k]`` refreshes of each source k, and times come source by source.

    Examples
    --------
    >>> source, time = order_refreshes(np.array([2, 1]), np.array([0.0, 1.0, 0.5]))
    >>> source.tolist(), time.tolist()
    ([0, 1, 0], [0.0, 0.5, 1.0])
    """
    if worthwhile(len(time)):
        source, ordered = np.empty(len(time), dtype=np.int64), np.empty(len(time))
        fast(refresh_loops.order_by_time)(count, time, source, ordered)
        return source, ordered
    order = np.argsort(time, kind="stable")  # stable: at equal times the sources ascend, as they do here
    return np.repeat(np.arange(len(count)), count)[order], time[order]


def stable_order(values: Array, refreshes: int) -> IntArray:
    """Return the stable order of numbers ≥ 0, one per source."""
    if worthwhile(refreshes):
        # The bits of such numbers are in their order; adding 0 takes the sign from a zero.
        order: IntArray = fast(refresh_loops.radix_order)((values + 0.0).view(np.uint64))
        return order
    return np.argsort(values, kind="stable")


def spread_phases(rates: Array, refreshes: int = 0) -> Array:
    """Return phases in [0, 1) by the golden-ratio sequence.

    In the order of the rates, which spreads the load.

    Sources of similar rates are neighbours in that order, so that their phases cover [0, 1) evenly. How many
    refreshes they will have decides how the rates are sorted, not what comes out.
    """
    rank = np.empty(len(rates))
    rank[stable_order(rates, refreshes)] = np.arange(1, len(rates) + 1)
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
    """Return how many middles of slots of length 1/load precede the horizon."""
    many = max(math.ceil(load * horizon - 0.5), 0)
    return many - 1 if many and (many - 0.5) / load >= horizon else many


def slots(load: float, horizon: float) -> Array:
    """Return the middles, in [0, horizon), of slots of length 1/load."""
    middles = np.arange(0.5, slot_count(load, horizon), dtype=np.float64)
    if len(middles):  # of no sources the load is 0
        middles /= load
    return middles


def in_slots(rates: Array, phase: Array, horizon: float) -> tuple[IntArray, Array]:
    """Return refreshes at equally spaced slots.

    They are assigned in the order of the sources' points.

    A source has the points (φ + j)/ρ, φ ≥ 0.
    """
    load = total(rates)
    many = slot_count(load, horizon)
    if not many:
        return np.empty(0, dtype=np.int64), np.empty(0)
    # Up to t a source has at least ρt − φ points: here the sum is at least load·horizon.
    reach = horizon + total(np.where(rates > 0.0, phase, 0.0)) / load
    count = points_before(reach * (1.0 + 1e-12), rates, phase)
    source = order_refreshes(count, points(count, phase, rates))[0]
    return source[:many], slots(load, horizon)


def check_ages(age: npt.ArrayLike, n: int) -> Array:
    """Return the ages of n copies, finite and ≥ 0."""
    ages = as_vector(age, n, "age")
    require_ages(ages)
    return ages


def require_ages(age: npt.ArrayLike) -> None:
    """Raise SourceDataError unless ages are numbers, finite and ≥ 0, however many."""
    ages = as_numbers(age, "age")
    if not bool(np.all((ages >= 0.0) & np.isfinite(ages))):
        raise SourceDataError("age must be numbers >= 0. Pass the time since each source's last crawl.")
