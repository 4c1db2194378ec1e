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
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit
from numba.extending import register_jitable

from freshopt.numerics import random_streams
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.random_streams import minus_log, stream, unit, word
from freshopt.simulation import change_columns
from freshopt.simulation.change_columns import Histories, PoissonState, PoissonTables, RecordedTimes

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


def group(source: IntArray, time: Array, place: IntArray, out: Array) -> None:
    """Write times grouped by source, in their order.

    `place` is where each source's next time goes.
    """
    for i in range(len(source)):
        k = source[i]
        out[place[k]] = time[i]
        place[k] += 1


@register_jitable
def draw_change(j: int, k: int, key: np.uint64, tables: PoissonTables, state: PoissonState) -> None:
    """Advance a source by one change and draw the next.

    Its state is at j, its tables at k.
    """
    mantissa, exponent = math.frexp(unit(word(key, np.uint64(state.seen[j]))))
    hazard = state.hazard[j] + minus_log(mantissa, exponent)
    state.hazard[j] = hazard
    state.seen[j] += 1
    e = state.epoch[j]
    while e + 1 < len(tables.edges) and hazard > tables.before[k, e + 1]:
        e += 1
    state.epoch[j] = e
    state.due[j] = tables.edges[e] + (hazard - tables.before[k, e]) / tables.rates[k, e]


@register_jitable
def integrate_source(
    k: int, histories: Histories, penalty: Array, out: Array, most: npt.NDArray[np.int64]
) -> None:
    """Add up one source's costs from change to refresh to change."""
    now, last = histories.begin[k], histories.end[k]
    oldest, missed, harmonic = 0.0, 0, 0.0
    r, c = histories.firsts[k], histories.offsets[k]
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


PASSES = (poll_poisson, poll_recorded, collect_poisson, integrate, group)
for _pass in PASSES:
    register_jitable(_pass)

EDITION = hashlib.sha256(
    "".join(inspect.getsource(module) for module in (random_streams, change_columns)).encode()
).hexdigest()


def build(*, cache: bool) -> dict[str, Callable[..., Any]]:
    """Return the loops by name."""
    return {function.__name__: _compiled(function, cache=cache) for function in PASSES}


def _compiled(function: Callable[..., None], *, cache: bool) -> Callable[..., None]:
    edition = EDITION  # like the function a variable of the closure below: its cache is looked up by both

    # No fast mathematics: sums and products in the order in which NumPy does them.
    @njit(nogil=True, error_model="numpy", cache=cache)
    def run(*given: Any) -> None:  # noqa: ANN401 - the pass's own arguments
        _ = edition
        function(*given)

    return run
