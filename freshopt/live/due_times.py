"""When sources are due: first crawls spread, lateness made up.

* A source that was never crawled waits for its share of a gap, the fractional part of a multiple of the
  golden ratio: sources that come one after the other are spread evenly, whatever their number. New ones are
  through when the whole bandwidth could have crawled them once, at the latest after their own gaps.
* After a crawl the next one is due a gap later. Nine tenths of its lateness are made up, so that a crawler
  that asks from time to time uses the whole bandwidth; the tenth that is not lets a backlog shrink. Lateness
  beyond half a gap is not made up, so that after an outage nobody is crawled twice in a row.
* When a rate changes the share of the gap that has passed stays.
* After a crawl that failed the next try is a gap later. A source that has not answered for `PATIENCE` gaps is
  taken to be down: each wait is then as long as it has been silent so far, which doubles the silence. The
  rate of its tries is kept; the next update plans with it as its largest rate, so that the others have what
  it leaves.
* Under Poisson refreshes gaps are exponential, drawn from the source and the moment of its crawl.
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
# Gaps of silence after which tries become rarer; with every second fetch failing that is one in sixteen.
PATIENCE = 4.0


def first_due(
    number: IntArray, rate: Array, cost: Array, last_crawl: Array, now: float, bandwidth: float
) -> Array:
    """Return when sources that were not planned are due, shape (n,).

    NaN at rate 0.

    Parameters
    ----------
    number : ndarray of int, shape (n,)
        Sources' numbers in the database.
    rate, cost : ndarray, shape (n,)
    last_crawl : ndarray, shape (n,)
        NaN of a source that was never crawled; others go on from there.
    now, bandwidth : float
    """
    new = np.isnan(last_crawl)
    through = total(cost[new]) / bandwidth
    with np.errstate(divide="ignore"):
        gap = np.where(rate > 0.0, 1.0 / rate, np.inf)
    phase = ((number - 1) * GOLDEN) % 1.0
    due = np.where(new, now + phase * np.minimum(gap, through), np.fmax(last_crawl + gap, now))
    return np.where(rate > 0.0, due, np.nan)


def wait_when_down(since: float, rate: float | None, failed: float, *, down: bool) -> float | None:
    """Return how long a source that is down is left alone.

    None if it is not down.

    Parameters
    ----------
    since : float
        When it began to be silent: its latest crawl, or its first failure if there is none.
    rate : float or None
        In force.
    failed : float
    down : bool
        Whether it was down before.

    Examples
    --------
    >>> wait_when_down(1.0, 1.0, 2.0, down=False), wait_when_down(1.0, 1.0, 10.0, down=False)
    (None, 9.0)
    """
    silent = failed - since
    return silent if rate and silent * rate > (0.0 if down else PATIENCE) else None


def next_due(
    number: int, rate: float | None, due: float | None, crawled: float, *, periodic: bool
) -> float | None:
    """Return when a source is due after a crawl; None for never.

    Parameters
    ----------
    number : int
    rate : float or None
        In force; None before the source is planned.
    due : float or None
        When the crawl was due.
    crawled : float
        When it was.
    periodic : bool

    Examples
    --------
    >>> next_due(1, 0.5, due=10.0, crawled=10.1, periodic=True), next_due(1, 0.5, 10.0, 19.0, periodic=True)
    (12.01, 20.1)
    """
    if not rate:
        return None
    if not periodic:
        return crawled - math.log(_uniform(number, crawled)) / rate
    late = 0.0 if due is None else min(max(crawled - due, 0.0), MOST / rate)
    return crawled + 1.0 / rate - MADE_UP * late


def _uniform(number: int, crawled: float) -> float:
    """Return a number in (0, 1] of the source and moment alone."""
    drawn = blake2b(struct.pack("<qd", number, crawled), digest_size=8).digest()
    return (int.from_bytes(drawn, "little") + 1) / _DRAWS
