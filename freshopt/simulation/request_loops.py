"""Compiled loop over requests: state of the copy that each meets.

One pass over the requests of each source in time order, beside its changes. The NumPy form of it is in
`freshopt.simulation.request_states`.
"""

from __future__ import annotations

from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.simulation.change_columns import Asked


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
