"""Records of the columns of a simulation, by name.

Its passes read and write them.

Named tuples, which numba compiles as they are: a field costs what a variable does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import Array, IntArray


class PoissonTables(NamedTuple):
    """What Poisson changes are drawn from: as in `freshopt.simulation.change_processes.PoissonChanges`."""

    seed: np.uint64
    edges: Array
    rates: Array
    before: Array


class PoissonState(NamedTuple):
    """Where Poisson sources are, each of shape (m,).

    Attributes
    ----------
    seen : ndarray of int
        How many changes were drawn.
    hazard, due : ndarray
        Hazard and time of the next change.
    epoch : ndarray of int
        Between which edges it lies.
    """

    seen: IntArray
    hazard: Array
    due: Array
    epoch: IntArray


class RecordedTimes(NamedTuple):
    """Recorded changes: as in `freshopt.simulation.change_processes.RecordedChanges`."""

    offsets: IntArray
    times: Array


class Grouped(NamedTuple):
    """Times of refreshes, source by source.

    Attributes
    ----------
    firsts : ndarray of int, shape (n+1,)
        Where each source's times begin.
    times : ndarray
        Increasing within a source.
    """

    firsts: IntArray
    times: Array


class Histories(NamedTuple):
    """Refreshes and changes of sources, source by source.

    Attributes
    ----------
    firsts, offsets : ndarray of int, shape (n+1,)
        Where each source's refreshes and changes begin.
    refreshes, changes : ndarray
        Increasing within a source.
    begin, end : ndarray, shape (n,)
        From when and until when each source counts.
    """

    firsts: IntArray
    refreshes: Array
    offsets: IntArray
    changes: Array
    begin: Array
    end: Array


class Asked(NamedTuple):
    """Requests and changes of sources, source by source.

    Attributes
    ----------
    firsts, offsets : ndarray of int, shape (n+1,)
        Where each source's requests and changes begin.
    requests, changes : ndarray
        Increasing within a source.
    begin : ndarray, shape (n,)
        When each copy is fresh at first.
    """

    firsts: IntArray
    requests: Array
    offsets: IntArray
    changes: Array
    begin: Array
