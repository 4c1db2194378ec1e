"""Compiled passes over the sources: what a price demands, and the rates at prices, at the speed of memory.

A `Formula` of `freshopt.demands` is compiled by numba into loops over chunks that stay in the first-level
cache. Each chunk's sum is kept and the sums are added exactly rounded, so that a demand has the same bits on
any number of threads. Columns that are one number (stride 0) enter as a number and cost no memory traffic.

Compiling takes about a second per objective and kind of columns, once per machine: the result is cached on
disk. `enabled` tells whether it is worth while; ``FRESHOPT_COMPILED=0`` switches it off and
``FRESHOPT_THREADS`` limits the threads (by default one per core that the process may use).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from freshopt.arrays import CACHED, Array, BoolArray, IntArray, exact_sum, is_scalar, read_only
from freshopt.demands import Demand

Column: TypeAlias = Array | float

WORTHWHILE = 65_536  # sources below which NumPy is done before a compiled loop is loaded from its cache
AT_HAND = 2048  # sources from which a loop that is loaded is faster: six times at 10⁴


def enabled(n: int, formula: Demand, announced: Demand | None = None) -> bool:
    """Tell whether passes over n sources are to be compiled: for many, or once the loops are at hand."""
    least = AT_HAND if (formula, announced) in _BUILT else WORTHWHILE
    return n >= least and os.environ.get("FRESHOPT_COMPILED", "1") != "0"


def threads() -> int:
    """Return how many threads share a pass."""
    given = os.environ.get("FRESHOPT_THREADS", "")
    return max(1, int(given)) if given.isdigit() else len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What a pass reads: columns of n float64 or float32 entries, or single numbers.

    Attributes
    ----------
    n : int
    formula : callable
        ρ(worth, *parameters) of a source, from `freshopt.demands`.
    announced : callable or None
        The same of the signalled sources, if there are any.
    signalled : ndarray of bool or False
    importance, cost, lower, upper : ndarray or float
    parameters : tuple of ndarray or float
        Of both formulas.
    """

    n: int
    formula: Demand
    announced: Demand | None
    signalled: BoolArray | bool
    importance: Column
    parameters: tuple[Column, ...]
    cost: Column
    lower: Column
    upper: Column

    def demand(self, price: float) -> float:
        """Return Σ cost·ρ at a price."""
        return self._pass(price, None)

    def fill(self, price: float, out: Array) -> float:
        """Write the rates at a price to `out` and return Σ cost·ρ of them."""
        return self._pass(price, out)

    def sample(self, size: int) -> Columns:
        """Return about `size` of the sources, evenly spaced."""
        stride = max(1, self.n // size)

        def taken(column: Any) -> Any:  # noqa: ANN401 - a column of any kind
            return read_only(column[::stride].copy()) if isinstance(column, np.ndarray) else column

        return Columns(
            len(range(0, self.n, stride)),
            self.formula,
            self.announced,
            taken(self.signalled),
            taken(self.importance),
            tuple(taken(parameter) for parameter in self.parameters),
            taken(self.cost),
            taken(self.lower),
            taken(self.upper),
        )

    def settle_hosts(
        self, order: IntArray, first: IntArray, limits: Array, guess: float, out: Array
    ) -> Array:
        """Write each source's rate at its own host's price to `out`; return the hosts' prices.

        Parameters
        ----------
        order : ndarray of int, shape (m,)
            The sources of limited hosts, host by host.
        first : ndarray of int, shape (H+1,)
            Where each host's sources begin in `order`.
        limits : ndarray, shape (H,)
        guess : float
            A price to start from.
        out : ndarray, shape (n,)
            Untouched where a host's limit cannot bind. A price is NaN where none was found.
        """
        prices = np.zeros(len(limits))
        loop = _loops(self.formula, self.announced).hosts
        size = int(np.max(np.diff(first)))

        def part(begin: int, end: int) -> None:
            loop(begin, end, order, first, limits, math.log(guess), size, self._everything(), out, prices)

        _share_out(part, len(limits), max(1, len(limits) // (8 * threads())))
        return prices

    def _pass(self, price: float, out: Array | None) -> float:
        loops = _loops(self.formula, self.announced)
        sums = np.empty(-(-self.n // CACHED))

        def part(begin: int, end: int) -> None:
            if out is None:
                loops.demand(begin, end, self.n, price, self._everything(), sums)
            else:
                loops.fill(begin, end, self.n, price, self._everything(), sums, out)

        _share_out(part, len(sums), 16)
        return exact_sum(sums.tolist())

    def _everything(self) -> tuple[Any, ...]:
        return (self.signalled, self.importance, self.parameters, self.cost, self.lower, self.upper)


def column(array: Array) -> Column:
    """Return a column as loops like it: a number where it is one, contiguous otherwise."""
    return float(array[0]) if is_scalar(array) else read_only(np.ascontiguousarray(array))


def _share_out(part: Callable[[int, int], None], pieces: int, least: int) -> None:
    """Run ``part(begin, end)`` over 0..pieces, on as many threads as there are, `least` pieces at a time."""
    workers = min(threads(), max(1, pieces // least))
    if workers == 1:
        part(0, pieces)
        return
    edges = [pieces * k // workers for k in range(workers + 1)]
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(part, *edges[k : k + 2]) for k in range(workers)]:
            done.result()


@dataclass(frozen=True, slots=True)
class _Loops:
    demand: Callable[..., None]
    fill: Callable[..., None]
    hosts: Callable[..., None]


_BUILT: dict[tuple[Demand, Demand | None], _Loops] = {}


def _loops(formula: Demand, announced: Demand | None) -> _Loops:
    """Return the loops of a formula; the columns' kinds are compiled when they first occur."""
    key = (formula, announced)
    if key not in _BUILT:
        from freshopt.loops import build  # noqa: PLC0415 - numba loads only if needed

        try:
            _BUILT[key] = _Loops(*build(formula, announced, cache=True))
        except RuntimeError:  # numba's word for: no folder to cache in can be written
            _BUILT[key] = _Loops(*build(formula, announced, cache=False))
    return _BUILT[key]
