"""States of copies that requests meet, under schedules or lifetimes.

Where requests are a Poisson process independent of the copies (PASTA), the share of them that meet a fresh
copy is the time average of freshness, weighted by the rate of requests. Where they come in waves, or when
something has changed, it is not: then each request is matched with the state of its copy (`fresh_requests`).

In a cache a request that finds its copy older than the lifetime T fetches it and meets a fresh one. With a
window σ of stale-while-revalidate a request at an age in T..T + σ still meets the old copy, and has it
fetched meanwhile. Fetches take no time.

Cost: of a schedule a sort of requests and refreshes, 10-100 ns each; of a cache 20 ns a request and change,
compiled; in NumPy a step of all sources for each fetch of the busiest.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.compiled import backend
from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_float64
from freshopt.simulation.change_columns import Asked
from freshopt.simulation.change_processes import loops
from freshopt.simulation.replay_window import Refreshes, Window
from freshopt.simulation.world import World

Requests: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]

# Largest number of requests that are sampled: 16 GB of them.
MOST = 10**9


class Met(NamedTuple):
    """What each request meets, source by source.

    Changes that the copy has missed, the age of the oldest of them (0 if there is none), the age of the copy,
    and whether it is fetched because of the request.
    """

    missed: IntArray
    oldest: Array
    age: Array
    fetched: BoolArray


def met(asked: Asked, life: Array, grace: Array) -> Met:
    """Return what each request meets, from fresh copies on.

    Examples
    --------
    Requests at 1, 3 and 4 of a copy that lives 2 and changes at 0.5: the second request fetches it.

    >>> each = np.array([0, 3]), np.array([1.0, 3.0, 4.0]), np.array([0, 1]), np.array([0.5]), np.zeros(1)
    >>> met(Asked(*each), np.array([2.0]), np.zeros(1)).missed
    array([1, 0, 0])
    """
    many = len(asked.requests)
    found = Met(
        np.zeros(many, dtype=np.int64), np.zeros(many), np.zeros(many), np.zeros(many, dtype=np.bool_)
    )
    if backend.compiled():
        loops()["serve"](asked, life, grace, *found)
        return found
    _serve(asked, life, grace, found)
    return found


def _serve(asked: Asked, life: Array, grace: Array, found: Met) -> None:
    """Do what the compiled loop does, in NumPy."""
    firsts, requests, offsets, changes, begin = asked
    source = np.repeat(np.arange(len(begin)), np.diff(firsts))
    # How many of its source's changes each request has behind it, by one sort of all.
    owner = np.concatenate([np.repeat(np.arange(len(begin)), np.diff(offsets)), source])
    kind = np.concatenate([np.zeros(len(changes)), np.ones(len(requests))])
    order = np.lexsort((kind, np.concatenate([changes, requests]), owner))
    behind = np.cumsum(kind[order] == 0)
    passed = np.empty(len(requests), dtype=np.int64)
    passed[order[kind[order] == 1] - len(changes)] = behind[kind[order] == 1]
    padded = np.append(changes, np.inf)
    at, since, first = firsts[:-1].copy(), np.array(begin), offsets[:-1].copy()
    open_ = np.flatnonzero(at < firsts[1:])
    while len(open_):
        k, i = open_, at[open_]
        waited = requests[i] - since[k]
        fetched = waited >= life[k]
        shown = ~fetched | (waited < life[k] + grace[k])
        found.fetched[i] = fetched
        found.missed[i] = np.where(shown, passed[i] - first[k], 0)
        found.age[i] = np.where(shown, waited, 0.0)
        stale = found.missed[i] > 0
        found.oldest[i[stale]] = requests[i[stale]] - padded[first[k[stale]]]
        since[k[fetched]], first[k[fetched]] = requests[i[fetched]], passed[i[fetched]]
        at[k] += 1
        open_ = k[at[k] < firsts[k + 1]]


def fresh_requests(
    world: World, refreshes: Refreshes, wanted: Requests | int, weight: Array, window: Window, seed: int
) -> tuple[Array, Array]:
    """Return the numbers of fresh and of all requests, per source.

    `wanted` are which, or how many, drawn at rates in proportion to the weights.
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
