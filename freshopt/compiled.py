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
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from freshopt.arrays import CACHED, Array, BoolArray, IntArray, exact_sum, is_scalar, read_only
from freshopt.demands import Demand

Column: TypeAlias = Array | float

BLOCKS = 4  # of sources whose hosts' sums are kept apart
ROUNDING = 4e-16  # relative: a limit that is exceeded by less is met
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


class HostMarket(NamedTuple):
    """Who belongs to which host: as in `freshopt.hosts.HostLimits`."""

    limits: Array
    codes: IntArray
    order: IntArray
    first: IntArray


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
        return self.take(slice(0, self.n, stride), len(range(0, self.n, stride)))

    def take(self, index: slice | IntArray, n: int) -> Columns:
        """Return the n sources that an index picks."""

        def taken(column: Any) -> Any:  # noqa: ANN401 - a column of any kind
            return (
                read_only(np.ascontiguousarray(column[index])) if isinstance(column, np.ndarray) else column
            )

        return Columns(
            n,
            self.formula,
            self.announced,
            taken(self.signalled),
            taken(self.importance),
            tuple(taken(parameter) for parameter in self.parameters),
            taken(self.cost),
            taken(self.lower),
            taken(self.upper),
        )

    def by_host(self, price: float, codes: IntArray, hosts: int) -> Array:
        """Return Σ cost·ρ of each host's sources at a price.

        Parameters
        ----------
        price : float
        codes : ndarray of int, shape (n,)
            The host of each source; `hosts` for those of none.
        hosts : int

        Returns
        -------
        ndarray, shape (hosts,)
        """
        sums = np.zeros((BLOCKS, hosts + 1))  # a block's sources add to a row of their own: same bits always
        loop, size = _loops(self.formula, self.announced).by_host, -(-self.n // BLOCKS)

        def part(begin: int, end: int) -> None:
            loop(begin, end, self.n, size, price, self._everything(), codes, sums)

        share_out(part, BLOCKS, 1)
        spent: Array = np.sum(sums, axis=0)[:hosts]
        return spent

    def settle_hosts(
        self, limits: HostMarket, spent: Array, floor: float, guess: float, steepness: float, out: Array
    ) -> Array:
        """Write to `out` the rates of hosts that spend more than their limits, at prices of their own.

        Parameters
        ----------
        limits : HostMarket
        spent : ndarray, shape (H,)
            What the hosts spend at the price `floor`.
        floor, guess : float
            A price below all that matter, and a likely one.
        steepness : float
            −d log(spent)/d log(price), about, > 0.
        out : ndarray, shape (n,)
            Untouched where a limit is met at `floor`.

        Returns
        -------
        ndarray, shape (H,)
            The hosts' prices, 0 where the limit is met at `floor`; NaN where none was found.
        """
        prices = np.zeros(len(limits.limits))
        which = np.flatnonzero(spent > limits.limits * (1.0 + ROUNDING))
        if not len(which):
            return prices
        loop = _loops(self.formula, self.announced).hosts
        size = int(np.max(np.diff(limits.first)))

        def part(begin: int, end: int) -> None:
            loop(
                begin,
                end,
                which,
                limits.order,
                limits.first,
                limits.limits,
                spent,
                math.log(floor),
                math.log(guess),
                steepness,
                size,
                self._everything(),
                out,
                prices,
            )

        share_out(part, len(which), max(1, len(which) // (8 * threads())))
        return prices

    def _pass(self, price: float, out: Array | None) -> float:
        loops = _loops(self.formula, self.announced)
        sums = np.empty(-(-self.n // CACHED))

        def part(begin: int, end: int) -> None:
            if out is None:
                loops.demand(begin, end, self.n, price, self._everything(), sums)
            else:
                loops.fill(begin, end, self.n, price, self._everything(), sums, out)

        share_out(part, len(sums), 16)
        return exact_sum(sums.tolist())

    def _everything(self) -> tuple[Any, ...]:
        return (self.signalled, self.importance, self.parameters, self.cost, self.lower, self.upper)


def column(array: Array) -> Column:
    """Return a column as loops like it: a number where it is one, contiguous otherwise."""
    return float(array[0]) if is_scalar(array) else read_only(np.ascontiguousarray(array))


def share_out(part: Callable[[int, int], None], pieces: int, least: int) -> None:
    """Run ``part(begin, end)`` over 0..pieces, on as many threads as there are, `least` pieces at a time."""
    shares = max(1, pieces // least)
    workers = min(threads(), shares) if shares > 1 else 1
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
    by_host: Callable[..., None]
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
