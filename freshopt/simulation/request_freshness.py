"""Request freshness: share of requests that find a fresh copy.

Where requests are a Poisson process independent of the copies (PASTA), the share is the time average of
freshness, weighted by the rate of requests. Where they come in waves, or when something has changed, it is
not: then each request is matched with the state of its copy.

Cost: one sort of requests and refreshes, 10-100 ns each.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, IntArray, as_float64
from freshopt.simulation.replay_window import Refreshes, Window
from freshopt.simulation.world import World

Requests: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]

# Largest number of requests that are sampled: 16 GB of them.
MOST = 10**9


def fresh_requests(
    world: World, refreshes: Refreshes, wanted: Requests | int, weight: Array, window: Window, seed: int
) -> tuple[Array, Array]:
    """Return the numbers of fresh and of all requests.

    Those in the window, per source.

    Parameters
    ----------
    world : World
    refreshes : Refreshes
    wanted : int or (source, time)
        How many, drawn at rates in proportion to the weights; or which.
    weight : ndarray, shape (n,)
    window : Window
    seed : int
    """
    source, time = _drawn(wanted, weight, window, seed) if isinstance(wanted, int) else _given(wanted, window)
    if not len(source):
        raise SourceDataError("there are no requests in the window. Pass some, or a number of them.")
    n = len(world)
    start = np.maximum(world.start, window.begin)
    late = refreshes[1] >= start[refreshes[0]]
    # All copies are fresh at first; at one moment a request comes after a refresh.
    who = np.concatenate([np.arange(n), refreshes[0][late], source])
    when = np.concatenate([start, refreshes[1][late], time])
    keep = np.zeros(len(who), dtype=np.bool_)
    keep[n + np.count_nonzero(late) :] = True
    order = np.argsort(when, kind="stable")
    who, when, keep = who[order], when[order], keep[order]
    missed = world.changes.poll(world.changes.begin(np.arange(n)), who, when, keep)
    asked = who[keep]
    fresh = asked[missed[keep] == 0]
    return as_float64(np.bincount(fresh, minlength=n)), as_float64(np.bincount(asked, minlength=n))


def _drawn(many: int, weight: Array, window: Window, seed: int) -> tuple[IntArray, Array]:
    """Return Poisson requests, given their total number."""
    if not 0 <= many <= MOST:
        raise SourceDataError(f"requests is {many}. Pass at most {MOST} requests.")
    random = np.random.default_rng([seed, 1])
    edges = np.cumsum(weight * window.span)
    source = np.searchsorted(edges, random.random(many) * edges[-1], side="right")
    return source, window.first[source] + random.random(many) * window.span[source]


def _given(wanted: Requests, window: Window) -> tuple[IntArray, Array]:
    """Return the given requests that fall into the window."""
    try:
        given, moments = wanted
        time = np.asarray(moments, dtype=np.float64)
        places = np.asarray(given, dtype=np.float64)
        source = np.where(np.isfinite(places), places, -1.0).astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        raise SourceDataError(
            "requests must be a number, or a pair: positions of sources, and times. Pass (source, time)."
        ) from None
    n = len(window.first)
    if source.shape != time.shape or source.ndim != 1 or not np.isfinite(time).all():
        raise SourceDataError(
            f"requests have sources of shape {source.shape} and times of shape {time.shape}. Give each both."
        )
    if len(source) and not (source.min() >= 0 and source.max() < n):
        raise SourceDataError(f"requested sources range over {source.min()}..{source.max()}. Use 0..{n - 1}.")
    inside = (time >= window.first[source]) & (time <= window.until[source])
    return source[inside], time[inside]
