"""Compiled loops of the simulation.

Numba compiles them; they are imported when first needed.

One pass over polls in time order; each source's next change is drawn when the previous one has passed, so
that nothing is kept of changes but the next one's time. What a poll does is the same, operation by operation,
as in the NumPy form in `freshopt.simulation.change_processes`, and so are its bits.

The records of columns are in `freshopt.simulation.change_columns`.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from freshopt.compiled.kept_code import compile_loop
from freshopt.numerics import random_streams
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.random_streams import minus_log, stream, unit, word
from freshopt.simulation import change_columns
from freshopt.simulation.change_columns import Asked, Histories, PoissonState, PoissonTables, RecordedTimes

# Changes drawn at a time, and times that are sorted by insertion.
AHEAD, FEW = 64, 32
# Of a float64: where its exponent begins, by how much that is more than that of math.frexp, the bits that are
# not the exponent's, and those of the exponent of numbers in [½, 1).
FRACTION, BIAS = np.uint64(52), 1022
BELOW_ONE, HALF = np.uint64(2**52 - 1), np.uint64(1022 << 52)

for _function in (random_streams.mix, stream, word, unit, minus_log):
    register_jitable(_function)


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
    recorded: RecordedTimes,
    missed: IntArray,
    seen: IntArray,
    out: IntArray,
) -> None:
    """Advance recorded sources through polls: see `Changes.poll`."""
    step = 1 if len(keep) > 1 else 0
    for i in range(len(source)):
        k = source[i]
        first = recorded.offsets[k] + seen[k]
        at = first
        while at < recorded.offsets[k + 1] and recorded.times[at] <= time[i]:
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


def integrate(histories: Histories, penalty: Array, out: Array, most: npt.NDArray[np.int64]) -> None:
    """Integrate costs of sources between changes; see `freshopt.simulation.staleness_integrals`."""
    for k in range(len(histories.begin)):
        if histories.begin[k] <= histories.end[k]:
            integrate_source(k, histories, penalty, out, most)


def integrate_drawn(
    firsts: IntArray,
    refreshes: Array,
    begin: Array,
    end: Array,
    tables: PoissonTables,
    penalty: Array,
    out: Array,
    most: npt.NDArray[np.int64],
) -> None:
    """Integrate costs of Poisson sources, drawing their changes.

    The changes are not kept. The columns are those of `Histories`, but for the changes.
    """
    ahead = np.empty(AHEAD)
    for k in range(len(begin)):
        if begin[k] <= end[k]:
            integrate_source_drawn(k, firsts, refreshes, begin, end, tables, penalty, out, most, ahead)


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
    asked: Asked, life: Array, grace: Array, missed: IntArray, oldest: Array, age: Array, fetched: BoolArray
) -> None:
    """Write what each request meets; see `freshopt.simulation.request_states.met`."""
    for k in range(len(asked.begin)):
        since, first, c = asked.begin[k], asked.offsets[k], asked.offsets[k]
        for i in range(asked.firsts[k], asked.firsts[k + 1]):
            time = asked.requests[i]
            while c < asked.offsets[k + 1] and asked.changes[c] <= time:
                c += 1
            waited = time - since
            fetched[i] = waited >= life[k]
            if not fetched[i] or waited < life[k] + grace[k]:
                missed[i], age[i] = c - first, waited
                if c > first:
                    oldest[i] = time - asked.changes[first]
            if fetched[i]:
                since, first = time, c


@register_jitable
def draw_change(j: int, k: int, key: np.uint64, tables: PoissonTables, state: PoissonState) -> None:
    """Advance a source by one change and draw the next.

    Its state is at j, its tables at k.
    """
    state.hazard[j], state.epoch[j], state.due[j] = next_change(
        k, key, state.seen[j], state.hazard[j], state.epoch[j], tables
    )
    state.seen[j] += 1


@register_jitable
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


@register_jitable
def integrate_source_drawn(
    k: int,
    firsts: IntArray,
    refreshes: Array,
    begin: Array,
    end: Array,
    tables: PoissonTables,
    penalty: Array,
    out: Array,
    most: npt.NDArray[np.int64],
    ahead: Array,
) -> None:
    """Add up one source's costs as `integrate_source` does, and draw its changes."""
    now, last = begin[k], end[k]
    oldest, missed, harmonic, largest = 0.0, 0, 0.0, 0
    stale, harmonics, number, age, penalties = 0.0, 0.0, 0.0, 0.0, 0.0
    r, stop = firsts[k], firsts[k + 1]
    while r < stop and refreshes[r] < now:
        r += 1
    key, seen, hazard, epoch = stream(tables.seed, np.uint64(k)), 0, 0.0, 0
    # Changes are drawn some at a time: whether the next one comes before the next refresh is a guess for the
    # processor, and a wrong one would wait for the logarithm.
    c = filled = 0
    while True:
        if c == filled:
            c = filled = 0
            while filled < len(ahead):
                hazard, epoch, due = next_change(k, key, seen, hazard, epoch, tables)
                seen += 1
                if not due <= last:
                    ahead[filled] = np.inf
                    filled += 1
                    break
                if due > begin[k]:
                    ahead[filled] = due
                    filled += 1
        change = ahead[c]
        refresh = refreshes[r] if r < stop else np.inf
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


@register_jitable
def integrate_source(
    k: int, histories: Histories, penalty: Array, out: Array, most: npt.NDArray[np.int64]
) -> None:
    """Add up one source's costs from change to refresh to change."""
    now, last = histories.begin[k], histories.end[k]
    oldest, missed, harmonic = 0.0, 0, 0.0
    r, c = histories.firsts[k], histories.offsets[k]
    while r < histories.firsts[k + 1] and histories.refreshes[r] < now:
        r += 1
    while True:
        change = histories.changes[c] if c < histories.offsets[k + 1] else np.inf
        refresh = histories.refreshes[r] if r < histories.firsts[k + 1] else np.inf
        to = min(min(change, refresh), last)
        span = to - now
        if missed > 0:
            out[0, k] += span
            out[1, k] += harmonic * span
            out[2, k] += missed * span
            out[3, k] += 0.5 * (to - oldest + (now - oldest)) * span
            if len(penalty):
                out[4, k] += penalty[missed] * span
        now = to
        if change <= refresh and change <= last:
            c += 1
            missed += 1
            harmonic += 1.0 / missed
            if missed == 1:
                oldest = to
            most[k] = max(most[k], missed)
        elif refresh <= last:
            r += 1
            missed, harmonic = 0, 0.0
        else:
            break


PASSES = (
    poll_poisson,
    poll_recorded,
    collect_poisson,
    integrate,
    integrate_drawn,
    count_within,
    sort_each,
    group,
    serve,
)
for _pass in PASSES:
    register_jitable(_pass)

EDITION = hashlib.sha256(
    "".join(inspect.getsource(module) for module in (random_streams, change_columns)).encode()
).hexdigest()


def build() -> dict[str, Callable[..., Any]]:
    """Return the loops by name."""
    return {function.__name__: _compiled(function) for function in PASSES}


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    edition = EDITION  # like the function a variable of the closure below: its cache is looked up by both

    # No fast mathematics: sums and products in the order in which NumPy does them.
    @compile_loop(nogil=True, error_model="numpy")
    def run(*given: Any) -> None:  # noqa: ANN401 - the pass's own arguments
        _ = edition
        function(*given)

    return run
