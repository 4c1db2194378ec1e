"""States of copies that requests meet, in caches with a lifetime.

A request that finds its copy older than the lifetime T fetches it and meets a fresh one. With a window σ of
stale-while-revalidate a request at an age in T..T + σ still meets the old copy, and has it fetched
meanwhile. Fetches take no time.

Cost: 20 ns a request and change, compiled; in NumPy a step of all sources for each fetch of the busiest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.compiled import backend
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.simulation.change_columns import Asked
from freshopt.simulation.change_processes import loops


class Met(NamedTuple):
    """What each request meets, source by source.

    Attributes
    ----------
    missed : ndarray of int
        Changes that the copy has missed.
    oldest : ndarray
        Age of the oldest of them; 0 if there is none.
    age : ndarray
        Age of the copy.
    fetched : ndarray of bool
        Whether the copy is fetched because of the request.
    """

    missed: IntArray
    oldest: Array
    age: Array
    fetched: BoolArray


def met(asked: Asked, life: Array, grace: Array) -> Met:
    """Return what each request meets, from fresh copies on.

    Parameters
    ----------
    asked : Asked
    life, grace : ndarray, shape (n,)
        Lifetimes T, and windows σ of stale-while-revalidate.

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
