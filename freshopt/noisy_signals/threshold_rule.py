"""Threshold rule of time and signals, inlined by loops."""

from __future__ import annotations

import math

from freshopt.numerics.arrays import Array, IntArray


def waiting_time(heard: float, signals: float, wait: float, bonus: float) -> float:
    """Return the waiting time from a crawl to the next.

    With so many signals heard.

    Examples
    --------
    >>> waiting_time(0.0, 1.0, 0.5, 2.0), waiting_time(1.0, 1.0, 0.5, 2.0), waiting_time(2.0, 1.0, 0.5, 2.0)
    (2.5, 0.5, 0.0)
    """
    if heard == signals or bonus == 0.0:
        return wait
    if heard > signals:
        return 0.0 if bonus == math.inf else max(0.0, wait - (heard - signals) * bonus)
    return wait + (signals - heard) * bonus


def follow(
    offsets: IntArray,
    times: Array,
    coins: Array,
    signals: Array,
    wait: Array,
    bonus: Array,
    share: Array,
    horizon: float,
    counts: IntArray,
    out: Array,
) -> None:
    """Write or count the crawls of each source.

    Source by source; they are only counted, in `counts[1:]`, if there is no room.
    """
    at = 0
    for k in range(len(wait)):
        last, heard = 0.0, 0.0
        for e in range(offsets[k], offsets[k + 1] + 1):
            signal = times[e] if e < offsets[k + 1] else horizon
            while share[k] > 0.0:  # crawls that are due before the next signal
                due = last + waiting_time(heard, signals[k], wait[k], bonus[k])
                if not (due < signal and due > last):
                    break
                if len(out):
                    out[at] = due
                at += 1
                last, heard = due, 0.0
            if e < offsets[k + 1]:
                heard += 1.0
                late = signal - last >= waiting_time(heard, signals[k], wait[k], bonus[k])
                if late and share[k] > 0.0 and (share[k] == 1.0 or coins[e] < share[k]):
                    if len(out):
                        out[at] = signal
                    at += 1
                    last, heard = signal, 0.0
        counts[k + 1] = at
