"""Loops of the simulation, and the columns that they read and write.

One pass over polls in time order; each source's next change is drawn when the previous one has passed, so
that nothing is kept of changes but the next one's time. What a poll does is the same, operation by operation,
as in the NumPy form in `freshopt.simulation.change_processes`, and so are its bits.

Columns are named tuples, which numba compiles as they are: a field costs what a variable does. Where
``FRESHOPT_COMPILED=0`` the loops run as they stand, but for those that draw changes.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.compiled.backend import plain_or_compiled
from freshopt.numerics import random_streams
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.random_streams import minus_log, stream, unit, word

# Changes drawn at a time, and times that are sorted by insertion.
AHEAD, FEW = 64, 32
# Of a float64: where its exponent begins, by how much that is more than that of math.frexp, the bits that are
# not the exponent's, and those of the exponent of numbers in [½, 1).
FRACTION, BIAS = np.uint64(52), 1022
BELOW_ONE, HALF = np.uint64(2**52 - 1), np.uint64(1022 << 52)


class PoissonTables(NamedTuple):
    """What Poisson changes are drawn from: as in `freshopt.simulation.change_processes.PoissonChanges`."""

    seed: np.uint64
    edges: Array
    rates: Array
    before: Array


class PoissonState(NamedTuple):
    """Where Poisson sources are, each of shape (m,).

    - `seen`: How many changes were drawn.
    - `hazard`, `due`: Hazard and time of the next change.
    - `epoch`: Between which edges it lies.
    """

    seen: IntArray
    hazard: Array
    due: Array
    epoch: IntArray


class Events(NamedTuple):
    """Times of changes, refreshes or requests, source by source.

    - `firsts` (n+1,): Where each source's times begin.
    - `times`: Increasing within a source.
    """

    firsts: IntArray
    times: Array


def poll_poisson(
    source: IntArray,
    time: Array,
    keep: BoolArray,
    tables: PoissonTables,
    missed: IntArray,
    state: PoissonState,
    out: IntArray,
) -> None:
    """Advance Poisson sources through polls: see `Changes.poll`."""
    step = 1 if len(keep) > 1 else 0
    for i in range(len(source)):
        k = source[i]
        if state.due[k] <= time[i]:
            key = stream(tables.seed, np.uint64(k))
            while state.due[k] <= time[i]:
                missed[k] += 1
                draw_change(k, k, key, tables, state)
        out[i] = missed[k]
        if not keep[step * i]:
            missed[k] = 0


def poll_recorded(
    source: IntArray,
    time: Array,
    keep: BoolArray,
    recorded: Events,
    missed: IntArray,
    seen: IntArray,
    out: IntArray,
) -> None:
    """Advance recorded sources through polls: see `Changes.poll`."""
    step = 1 if len(keep) > 1 else 0
    for i in range(len(source)):
        k = source[i]
        first = recorded.firsts[k] + seen[k]
        at = first
        while at < recorded.firsts[k + 1] and recorded.times[at] <= time[i]:
            at += 1
        seen[k] += at - first
        missed[k] += at - first
        out[i] = missed[k]
        if not keep[step * i]:
            missed[k] = 0


def collect_poisson(
    index: IntArray, end: float, tables: PoissonTables, state: PoissonState, offsets: IntArray, out: Array
) -> None:
    """Draw changes up to `end`; count them, and write their times.

    Counts go to `offsets[1:]`, times to `out` if there is room.
    """
    at = 0
    for j in range(len(index)):
        k = index[j]
        key = stream(tables.seed, np.uint64(k))
        while state.due[j] <= end:
            if len(out):
                out[at] = state.due[j]
            at += 1
            draw_change(j, k, key, tables, state)
        offsets[j + 1] = at


def integrate(
    refreshes: Events,
    begin: Array,
    end: Array,
    recorded: Events,
    tables: PoissonTables,
    shift: int,
    penalty: Array,
    out: Array,
    most: npt.NDArray[np.int64],
) -> None:
    """Integrate costs of sources between changes; see `freshopt.simulation.staleness_integrals`.

    Each source counts from its `begin` to its `end`.

    Changes are those recorded or, without any record, drawn and not kept; the tables begin `shift` sources
    earlier.
    """
    ahead = np.empty(AHEAD)
    for k in range(len(begin)):
        if begin[k] <= end[k]:
            integrate_source(
                k, refreshes, begin[k], end[k], recorded, tables, shift, penalty, out, most, ahead
            )


def count_within(firsts: IntArray, times: Array, first: Array, until: Array, out: IntArray) -> None:
    """Count the times of each source in its window, both ends included."""
    for k in range(len(first)):
        many = 0
        for i in range(firsts[k], firsts[k + 1]):
            many += first[k] <= times[i] <= until[k]
        out[k] = many


def sort_each(firsts: IntArray, times: Array) -> None:
    """Sort the times of each source in place.

    By insertion, unless there are many.
    """
    for k in range(len(firsts) - 1):
        first, stop = firsts[k], firsts[k + 1]
        if stop - first > FEW:
            times[first:stop].sort()
            continue
        for i in range(first + 1, stop):
            time, j = times[i], i
            while j > first and times[j - 1] > time:
                times[j] = times[j - 1]
                j -= 1
            times[j] = time


def group(source: IntArray, time: Array, place: IntArray, out: Array) -> None:
    """Write times grouped by source, in their order.

    `place` is where each source's next time goes.
    """
    for i in range(len(source)):
        k = source[i]
        out[place[k]] = time[i]
        place[k] += 1


def serve(
    requests: Events,
    changes: Events,
    begin: Array,
    life: Array,
    grace: Array,
    missed: IntArray,
    oldest: Array,
    age: Array,
    fetched: BoolArray,
) -> None:
    """Write what each request meets; see `freshopt.simulation.request_replay.met`."""
    for k in range(len(begin)):
        since, first, c = begin[k], changes.firsts[k], changes.firsts[k]
        for i in range(requests.firsts[k], requests.firsts[k + 1]):
            time = requests.times[i]
            while c < changes.firsts[k + 1] and changes.times[c] <= time:
                c += 1
            waited = time - since
            fetched[i] = waited >= life[k]
            if not fetched[i] or waited < life[k] + grace[k]:
                missed[i], age[i] = c - first, waited
                if c > first:
                    oldest[i] = time - changes.times[first]
            if fetched[i]:
                since, first = time, c


def draw_change(j: int, k: int, key: np.uint64, tables: PoissonTables, state: PoissonState) -> None:
    """Advance a source by one change and draw the next.

    Its state is at j, its tables at k.
    """
    state.hazard[j], state.epoch[j], state.due[j] = next_change(
        k, key, state.seen[j], state.hazard[j], state.epoch[j], tables
    )
    state.seen[j] += 1


def next_change(
    k: int, key: np.uint64, seen: int, hazard: float, epoch: int, tables: PoissonTables
) -> tuple[float, int, float]:
    """Return hazard, epoch and time of the next change.

    There were `seen` before it.
    """
    # The parts of a number in (0, 1) as math.frexp returns them, by its bits: a call would cost as much as
    # the logarithm.
    bits = np.float64(unit(word(key, np.uint64(seen)))).view(np.uint64)
    exponent = np.int64(bits >> FRACTION) - BIAS
    mantissa = np.uint64((bits & BELOW_ONE) | HALF).view(np.float64)
    hazard += minus_log(mantissa, exponent)
    while epoch + 1 < len(tables.edges) and hazard > tables.before[k, epoch + 1]:
        epoch += 1
    return hazard, epoch, tables.edges[epoch] + (hazard - tables.before[k, epoch]) / tables.rates[k, epoch]


def integrate_source(
    k: int,
    refreshes: Events,
    begin: float,
    last: float,
    recorded: Events,
    tables: PoissonTables,
    shift: int,
    penalty: Array,
    out: Array,
    most: npt.NDArray[np.int64],
    ahead: Array,
) -> None:
    """Add up one source's costs from change to refresh to change."""
    now, oldest, missed, harmonic, largest = begin, 0.0, 0, 0.0, 0
    stale, harmonics, number, age, penalties = 0.0, 0.0, 0.0, 0.0, 0.0
    r, stop = refreshes.firsts[k], refreshes.firsts[k + 1]
    while r < stop and refreshes.times[r] < now:
        r += 1
    drawn = len(recorded.firsts) == 0
    key, hazard, epoch, seen = np.uint64(0), 0.0, 0, 0
    if drawn:
        key = stream(tables.seed, np.uint64(k + shift))
    else:
        seen = recorded.firsts[k]
    # Changes are drawn some at a time: whether the next one comes before the next refresh is a guess for the
    # processor, and a wrong one would wait for the logarithm.
    c = filled = 0
    while True:
        if c == filled:
            c = filled = 0
            while filled < len(ahead):
                if drawn:
                    hazard, epoch, due = next_change(k + shift, key, seen, hazard, epoch, tables)
                else:
                    due = recorded.times[seen] if seen < recorded.firsts[k + 1] else np.inf
                seen += 1
                if not due <= last:
                    ahead[filled] = np.inf
                    filled += 1
                    break
                if due > begin:
                    ahead[filled] = due
                    filled += 1
        change = ahead[c]
        refresh = refreshes.times[r] if r < stop else np.inf
        to = min(min(change, refresh), last)
        if missed > 0:
            span = to - now
            stale += span
            harmonics += harmonic * span
            number += missed * span
            age += 0.5 * (to - oldest + (now - oldest)) * span
            if len(penalty):
                penalties += penalty[missed] * span
        now = to
        if change <= refresh and change <= last:
            c += 1
            missed += 1
            harmonic += 1.0 / missed
            if missed == 1:
                oldest = to
            largest = max(largest, missed)
        elif refresh <= last:
            r += 1
            missed, harmonic = 0, 0.0
        else:
            break
    out[0, k], out[1, k], out[2, k], out[3, k], out[4, k] = stale, harmonics, number, age, penalties
    most[k] = largest


loops = plain_or_compiled(
    (
        poll_poisson,
        poll_recorded,
        collect_poisson,
        integrate,
        count_within,
        sort_each,
        group,
        serve,
    ),
    (random_streams, sys.modules[__name__]),
)
