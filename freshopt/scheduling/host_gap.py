"""`with_host_gap`: a schedule whose refreshes of one host keep their distance.

Each refresh waits until the gap after the one before it on its host has passed, in the order of the schedule;
what would leave the horizon is moved forward again from its end. Refreshes move by a few gaps where several
fall together, and not at all elsewhere. Gaps are up to half as long again as asked for, at random, so that
requests keep no beat.

Cost: one pass over the refreshes in Python, some 0.5 µs each.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt

from freshopt.errors import InfeasibleProblemError, SourceDataError, expect, shown
from freshopt.formatting import count
from freshopt.numerics.arrays import LARGEST, Array, IntArray, as_number, as_vector, as_whole
from freshopt.scheduling.schedule import Schedule
from freshopt.units import Time, duration, gap_of

# Gaps are longer than the least one by up to this share, at random.
JITTER = 0.5


def with_host_gap(
    schedule: Schedule,
    host: npt.ArrayLike,
    gap: Time,
    *,
    max_rate: npt.ArrayLike = np.inf,
    seed: int = 0,
) -> Schedule:
    """Return a schedule whose refreshes of one host are some time apart.

    Parameters
    ----------
    schedule : Schedule
    host : array_like, shape (n,)
        Of each source; those without, None or "", stay where they are.
    gap : float, str or timedelta
        Least time between two refreshes of one host, ≥ 0, in the schedule's time unit or with its own, such
        as "2s"; up to half as long again, at random.
    max_rate : array_like, scalar or shape (n,)
        A source's refreshes come no nearer than 1/max_rate by what is moved: a source that is refreshed so
        often cannot catch up, and its last refresh may leave the horizon.
    seed : int

    Returns
    -------
    Schedule
        With as many refreshes of each source that has no max_rate, within the same horizon.

    Raises
    ------
    SourceDataError
        If there is not one host for each source, or the gap is no time.
    InfeasibleProblemError
        If the refreshes of a host do not fit into the horizon with such gaps.

    Examples
    --------
    >>> import freshopt as fo
    >>> plan = fo.schedule({"a/1": 1.0, "a/2": 1.0, "b/1": 1.0}, horizon=2.0)
    >>> apart = with_host_gap(plan, ["a", "a", "b"], 0.4)
    >>> bool(np.min(np.diff(apart.time[apart.source < 2])) > 0.4)
    True
    """
    expect(schedule, Schedule, "schedule", "Pass a freshopt.Schedule")
    own = np.asarray(host, dtype=object)
    n = len(schedule.rates)
    if own.shape != (n,):
        raise SourceDataError(f"host has shape {own.shape} for {n} sources. Pass one host each.")
    remedy = f"Pass a finite number of {schedule.time_unit}s >= 0."
    text = isinstance(gap, str | timedelta)
    least = gap_of("gap", gap, schedule.time_unit) if text else as_number(gap, "gap", remedy)
    if not 0.0 <= least <= LARGEST:
        raise SourceDataError(f"gap is {gap}. {remedy}")
    with np.errstate(divide="ignore", over="ignore"):
        shortest = 1.0 / as_vector(max_rate, n, "max_rate")
    rng = np.random.default_rng(as_whole(seed, "seed", 0, 2**63 - 1))
    names, code = np.unique([str(each or "") for each in own.tolist()], return_inverse=True)
    source, time = schedule.source.copy(), schedule.time.copy()
    order = np.argsort(code[source], kind="stable")
    edges = np.searchsorted(code[source][order], np.arange(len(names) + 1))
    for k, name in enumerate(names.tolist()):
        rows = order[edges[k] : edges[k + 1]]
        if name == "" or len(rows) < 2:
            continue
        longer = least * (1.0 + JITTER * rng.random(len(rows)))
        found = _apart(time[rows], source[rows], longer, shortest, schedule.horizon)
        if found is None:
            many = count(len(rows), "refresh", "d")
            raise InfeasibleProblemError(
                f"{many} of host {shown(name)} in {duration(schedule.horizon, schedule.time_unit)} do not "
                f"fit with gaps of {duration(least, schedule.time_unit)} and up to half as long again. "
                "Shorten the gap, or give the host a limit."
            )
        time[rows] = found
    order = np.lexsort((source, time))
    order = order[time[order] < schedule.horizon]
    return replace(schedule, source=source[order], time=time[order], random_method=None)


def _apart(time: Array, source: IntArray, gap: Array, shortest: Array, horizon: float) -> Array | None:
    """Return times of a host's refreshes, gaps apart and in order.

    None if they do not fit. Those of sources that cannot catch up at their max_rate may leave the horizon.
    """
    free = -math.inf
    last: dict[int, float] = {}
    following: dict[int, float] = {}
    moved, wait = time.tolist(), gap.tolist()
    rest, who = shortest[source].tolist(), source.tolist()
    for k, one in enumerate(who):
        moved[k] = free = max(moved[k], free, last.get(one, -math.inf) + rest[k])
        last[one] = free
        free += wait[k]
    late = np.array(moved)
    limit = math.nextafter(horizon, 0.0)
    for k in range(len(who) - 1, -1, -1):
        one = who[k]
        moved[k] = limit = min(moved[k], limit, following.get(one, math.inf) - rest[k])
        following[one] = limit
        limit -= wait[k - 1]
    if moved[0] >= 0.0:
        return np.array(moved)
    return late if math.fsum(wait[:-1]) < horizon else None
