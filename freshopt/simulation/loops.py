"""The loops of the simulation, as numba compiles them: imported when they are first needed.

One pass over polls in time order; each source's next change is drawn when the previous one has passed, so
that nothing is kept of changes but the next one's time. What a poll does is the same, operation by operation,
as in the NumPy form in `freshopt.simulation.changes`, and so are its bits.
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

from freshopt.arrays import Array, BoolArray, IntArray
from freshopt.simulation import draws

for _name in ("mix", "stream", "word", "unit", "minus_log"):
    register_jitable(getattr(draws, _name))

EDITION = hashlib.sha256(inspect.getsource(draws).encode()).hexdigest()


def build(*, cache: bool) -> dict[str, Callable[..., Any]]:
    """Return the loops by name."""
    edition = EDITION  # a variable of the closures below, hence part of what their cache is looked up by
    # No fast mathematics: sums and products in the order in which NumPy does them.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "cache": cache}
    stream, word, unit, minus_log = draws.stream, draws.word, draws.unit, draws.minus_log

    @register_jitable
    def exponential(key: np.uint64, number: int) -> float:
        mantissa, exponent = math.frexp(unit(word(key, np.uint64(number))))
        return minus_log(mantissa, exponent)  # type: ignore[no-any-return]

    @register_jitable
    def draw(
        j: int,
        k: int,
        key: np.uint64,
        edges: Array,
        rates: Array,
        before: Array,
        seen: IntArray,
        hazard: Array,
        due: Array,
        epoch: IntArray,
    ) -> None:
        """Let the next change of a source pass and draw the one after it; state at j, tables at k."""
        hazard[j] += exponential(key, seen[j])
        seen[j] += 1
        e = epoch[j]
        while e + 1 < len(edges) and hazard[j] > before[k, e + 1]:
            e += 1
        epoch[j] = e
        due[j] = edges[e] + (hazard[j] - before[k, e]) / rates[k, e]

    @njit(**options)  # type: ignore[untyped-decorator]
    def poll_poisson(
        source: IntArray,
        time: Array,
        keep: BoolArray,
        seed: np.uint64,
        edges: Array,
        rates: Array,
        before: Array,
        missed: IntArray,
        seen: IntArray,
        hazard: Array,
        due: Array,
        epoch: IntArray,
        out: IntArray,
    ) -> None:
        _ = edition
        step = 1 if len(keep) > 1 else 0
        for i in range(len(source)):
            k = source[i]
            if due[k] <= time[i]:
                key = stream(seed, np.uint64(k))
                while due[k] <= time[i]:
                    missed[k] += 1
                    draw(k, k, key, edges, rates, before, seen, hazard, due, epoch)
            out[i] = missed[k]
            if not keep[step * i]:
                missed[k] = 0

    @njit(**options)  # type: ignore[untyped-decorator]
    def poll_recorded(
        source: IntArray,
        time: Array,
        keep: BoolArray,
        offsets: IntArray,
        changes: Array,
        missed: IntArray,
        seen: IntArray,
        out: IntArray,
    ) -> None:
        _ = edition
        step = 1 if len(keep) > 1 else 0
        for i in range(len(source)):
            k = source[i]
            first = offsets[k] + seen[k]
            at = first
            while at < offsets[k + 1] and changes[at] <= time[i]:
                at += 1
            seen[k] += at - first
            missed[k] += at - first
            out[i] = missed[k]
            if not keep[step * i]:
                missed[k] = 0

    @njit(**options)  # type: ignore[untyped-decorator]
    def collect_poisson(
        index: IntArray,
        end: float,
        seed: np.uint64,
        edges: Array,
        rates: Array,
        before: Array,
        seen: IntArray,
        hazard: Array,
        due: Array,
        epoch: IntArray,
        offsets: IntArray,
        out: Array,
    ) -> None:
        """Let changes up to `end` pass: count them in `offsets[1:]`, write their times if there is room."""
        _ = edition
        at = 0
        for j in range(len(index)):
            k = index[j]
            key = stream(seed, np.uint64(k))
            while due[j] <= end:
                if len(out):
                    out[at] = due[j]
                at += 1
                draw(j, k, key, edges, rates, before, seen, hazard, due, epoch)
            offsets[j + 1] = at

    @njit(**options)  # type: ignore[untyped-decorator]
    def integrate(
        firsts: IntArray,
        refreshes: Array,
        offsets: IntArray,
        changes: Array,
        begin: Array,
        end: Array,
        penalty: Array,
        out: Array,
        most: npt.NDArray[np.int64],
    ) -> None:
        """Integrate costs of sources between changes; see `freshopt.simulation.staleness`."""
        _ = edition
        for k in range(len(begin)):
            now, oldest, missed, harmonic, last = begin[k], 0.0, 0, 0.0, end[k]
            if last < now:
                continue
            r, c = firsts[k], offsets[k]
            while True:
                change = changes[c] if c < offsets[k + 1] else np.inf
                refresh = refreshes[r] if r < firsts[k + 1] else np.inf
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

    @njit(**options)  # type: ignore[untyped-decorator]
    def group(source: IntArray, time: Array, place: IntArray, out: Array) -> None:
        """Write times source by source, in their order; `place` is where each source's next time goes."""
        _ = edition
        for i in range(len(source)):
            k = source[i]
            out[place[k]] = time[i]
            place[k] += 1

    return {
        "group": group,
        "poll_poisson": poll_poisson,
        "poll_recorded": poll_recorded,
        "collect_poisson": collect_poisson,
        "integrate": integrate,
    }
