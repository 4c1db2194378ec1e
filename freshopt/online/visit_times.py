"""Visit times of a round, and its followed signals.

A round's rates are made into crawls.

Under Poisson refreshes a round has a whole number of *slots*, as many as the bandwidth allows, at independent
uniform times, and each slot goes to a source sampled in proportion to the rates: a Poisson process for each
source, given that their total is what was allowed. A signal that is followed is answered at once and pays
with the next slot, which is then not used; a signal for which no slot is left in the round is not followed.
So the crawls of a round are exactly those allowed, signalled sources included, and no decision depends on the
future.

Under periodic refreshes a source is due whenever its expected number of visits since the start passes a whole
number; the phases of the sources are spread evenly, so that equal rates make sweeps.

Cost: a few passes over the round's crawls.
"""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, IntArray


def drawn(rates: Array, slots: int, rng: np.random.Generator) -> IntArray:
    """Return the source of each slot, sampled by rate.

    Independently and in proportion to the rates.

    Examples
    --------
    >>> drawn(np.array([0.0, 2.0, 0.0]), 3, np.random.default_rng(0)).tolist()
    [1, 1, 1]
    """
    share = np.cumsum(rates)
    source = np.searchsorted(share, rng.uniform(0.0, share[-1], slots), side="right")
    last: IntArray = np.minimum(source, np.flatnonzero(rates)[-1])
    return last


def periodic_visits(rates: Array, done: Array, start: float, end: float) -> tuple[IntArray, Array]:
    """Return equally spaced visits in (start, end], by time.

    Visits done are those expected before `start`: the rates so far times how long they held.

    Examples
    --------
    >>> source, time = periodic_visits(np.array([1.0, 1.0]), np.zeros(2), 0.0, 2.0)
    >>> source.tolist(), time.tolist()
    ([0, 1, 0, 1], [0.25, 0.75, 1.25, 1.75])
    """
    n = len(rates)
    before = done + (1.0 - (np.arange(n) + 0.5) / n)  # the first is due after (k+½)/n of a period
    count = np.floor(before + rates * (end - start)) - np.floor(before)
    counts = np.maximum(count, 0.0).astype(np.int64)
    source = np.repeat(np.arange(n), counts)
    rank = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    time = start + (np.floor(before)[source] + 1.0 + rank - before[source]) / rates[source]
    order = np.lexsort((source, time))
    return source[order], np.minimum(time[order], end)


def serve(signal_time: Array, slot_time: Array) -> tuple[BoolArray, BoolArray]:
    """Return the followed signals and the remaining slots.

    Signals take the slots that pay for them.

    Times are sorted; as many slots are not free as signals are followed.

    Notes
    -----
    With D the signals that have not paid yet, a signal raises D by one and a slot pays for one if D > 0: a
    random walk reflected at 0, D = S − min(0, min S). At the end the last D signals are left unpaid, and
    these are not followed.

    Examples
    --------
    >>> followed, free = serve(np.array([0.5, 0.6, 3.0]), np.array([0.1, 1.0, 2.0, 2.5]))
    >>> followed.tolist(), free.tolist()
    ([True, True, False], [True, False, False, True])
    """
    order = np.argsort(np.concatenate([signal_time, slot_time]), kind="stable")
    signal = order < len(signal_time)
    walk = np.concatenate([[0], np.cumsum(np.where(signal, 1, -1))])
    owed = walk - np.minimum(np.minimum.accumulate(walk), 0)
    free = np.ones(len(slot_time), dtype=np.bool_)
    paying = order[~signal & (owed[:-1] > 0)] - len(signal_time)
    free[paying] = False
    followed = np.arange(len(signal_time)) < len(paying)
    return followed, free
