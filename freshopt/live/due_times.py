"""When sources are due: first crawls spread, lateness made up.

* A source that was never crawled waits for its share of a gap, the fractional part of a multiple of the
  golden ratio: sources that come one after the other are spread evenly, whatever their number. New ones are
  through when the whole bandwidth could have crawled them once, at the latest after their own gaps.
* After a crawl the next one is due a gap later. Nine tenths of its lateness are made up, so that a crawler
  that asks from time to time uses the whole bandwidth; the tenth that is not lets a backlog shrink. Lateness
  beyond half a gap is not made up, so that after an outage nobody is crawled twice in a row.
* max_rate is a shortest gap, which nothing undercuts: neither lateness that is made up nor a retry.
* When a rate changes the share of the gap that has passed stays.
* After a first crawl that failed the next try comes an eighth of a gap later. From then on each wait is as
  long as the source has been silent, counted from its first failure, which doubles the silence: how long
  nobody asked, as while the crawler itself was off, says nothing of a source. One that has not answered for
  `PATIENCE` gaps is taken to be down; while nothing else answers either, waits grow no longer. The rate of
  its tries is kept, and the next update plans with it as its largest rate, so that the others have what it
  leaves; the first success ends that at once.
* Under Poisson refreshes gaps are exponential, drawn from the source and the moment of its crawl; beside a
  max_rate they are the shortest gap and an exponential rest.
"""

from __future__ import annotations

import math
import struct
from hashlib import blake2b

import numpy as np

from freshopt.numerics.arrays import Array, IntArray, total

# Multiples of it modulo 1 are the most evenly spread of all.
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
# Share of lateness that is made up at the next gap, and the share of a gap beyond which none is.
MADE_UP, MOST = 0.9, 0.5
_DRAWS = 2.0**64
# First retry, as a share of the gap: a try four times as early would gain a tenth of a gap.
RETRY = 0.125
# Gaps of silence after which a source is down: at the sixth retry, four gaps after its first failure.
PATIENCE = 3.0
# Longest wait, in gaps, while nothing at all answers: then it is likely the crawler that has no network, and
# nobody else could use the bandwidth.
ALL_SILENT = 4.0


def first_due(
    number: IntArray, rate: Array, cost: Array, last_crawl: Array, now: float, bandwidth: float
) -> Array:
    """Return when unplanned sources are due, shape (n,), NaN at rate 0."""
    new = np.isnan(last_crawl)
    through = total(cost[new]) / bandwidth
    with np.errstate(divide="ignore"):
        gap = np.where(rate > 0.0, 1.0 / rate, np.inf)
    phase = ((number - 1) * GOLDEN) % 1.0
    due = np.where(new, now + phase * np.minimum(gap, through), np.fmax(last_crawl + gap, now))
    return np.where(rate > 0.0, due, np.nan)


def retry_wait(since: float, rate: float, failed: float, *, all_silent: bool = False) -> float:
    """Return how long a source is left alone after a failure.

    Examples
    --------
    >>> retry_wait(1.0, 0.5, 1.0), retry_wait(1.0, 0.5, 1.25), retry_wait(1.0, 0.5, 19.0)
    (0.25, 0.25, 18.0)
    >>> retry_wait(1.0, 0.5, 19.0, all_silent=True)
    8.0
    """
    return min(max(failed - since, RETRY / rate), ALL_SILENT / rate if all_silent else math.inf)


def is_down(since: float, rate: float, failed: float) -> bool:
    """Return whether others get the bandwidth of a silent source."""
    return (failed - since) * rate >= PATIENCE


def next_due(
    number: int,
    rate: float | None,
    due: float | None,
    crawled: float,
    *,
    periodic: bool,
    shortest: float = 0.0,
) -> float | None:
    """Return when a source is due after a crawl; None for never.

    Examples
    --------
    >>> next_due(1, 0.5, due=10.0, crawled=10.1, periodic=True), next_due(1, 0.5, 10.0, 19.0, periodic=True)
    (12.01, 20.1)
    >>> next_due(1, 0.5, due=10.0, crawled=10.1, periodic=True, shortest=2.0)
    12.1
    """
    if not rate:
        return None
    gap = max(1.0 / rate, shortest)
    if not periodic:
        return crawled + shortest - math.log(drawn(number, crawled)) * (gap - shortest)
    late = 0.0 if due is None else min(max(crawled - due, 0.0), MOST * gap)
    return crawled + max(gap - MADE_UP * late, shortest)


def drawn(number: int, moment: float) -> float:
    """Return a random number in (0, 1] of a source and moment."""
    digest = blake2b(struct.pack("<qd", number, moment), digest_size=8).digest()
    return (int.from_bytes(digest, "little") + 1) / _DRAWS
