"""Compiled passes: demand at a price, and best responses to prices.

A price is the dual variable of the bandwidth or of a host's limit; the passes run at the speed of memory. A
demand function of `freshopt.compiled.demand_functions` is compiled by numba into loops over chunks that stay
in the first-level cache. Each chunk's sum is kept and the sums are added exactly rounded, so that a demand
has the same bits on any number of threads. Columns that are one number (stride 0) enter as a number and cost
no memory traffic.

Compiling takes about a second per objective and kind of columns, once per machine: the result is cached on
disk. `freshopt.compiled.backend` tells whether it pays; ``FRESHOPT_COMPILED=0`` switches it off and
``FRESHOPT_THREADS`` limits the threads (by default one per core that the process may use).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from freshopt.compiled import backend
from freshopt.compiled.cells.attempt_kinks import attempt_kinks
from freshopt.compiled.cells.attempt_roots import attempt_age, attempt_harmonic
from freshopt.compiled.cells.capped_poisson import capped_poisson
from freshopt.compiled.cells.capped_tables import tabled_response
from freshopt.compiled.cells.conditional_functions import CHANGED
from freshopt.compiled.cells.request_age import request_age
from freshopt.compiled.cells.request_functions import ON_REQUEST
from freshopt.compiled.cells.request_power import capped_request_power, request_power
from freshopt.compiled.cells.window_age import window_age
from freshopt.compiled.cells.window_functions import window_binary, window_delay
from freshopt.compiled.cells.window_harmonic import window_harmonic
from freshopt.compiled.cells.window_power import window_power
from freshopt.compiled.cells.window_tables import tabled_window
from freshopt.compiled.demand_functions import Demand
from freshopt.compiled.kept_code import built
from freshopt.compiled.source_columns import HostGroups as HostGroups
from freshopt.compiled.source_columns import SearchStart, record_of
from freshopt.compiled.threads import run_chunks_in_threads as run_chunks_in_threads
from freshopt.compiled.threads import threads
from freshopt.numerics.arrays import (
    CACHED,
    PIECE,
    ROUNDED,
    Array,
    BoolArray,
    IntArray,
    exact_sum,
    is_scalar,
    read_only,
)

Column: TypeAlias = Array | float

GOLDEN_RATIO = 0.5 * (math.sqrt(5.0) - 1.0)
# Blocks of sources whose rates are at hand together, where hosts' sums are added up.
BLOCKS = 4
# Evaluations of every source in a search for the price.
EVALUATIONS = 10.0
# Evaluations that one takes where NumPy searches for best responses.
SEARCHED = 30.0
SEARCHES = (
    *CHANGED,
    *ON_REQUEST,
    request_age,
    request_power,
    capped_request_power,
    window_delay,
    window_binary,
    window_harmonic,
    window_age,
    window_power,
    attempt_harmonic,
    attempt_age,
    attempt_kinks,
    capped_poisson,
    tabled_response,
    tabled_window,
)


def enabled(n: int, formula: Demand, announced: Demand | None = None, *, in_account: bool = False) -> bool:
    """Return whether passes over n sources are to be compiled.

    They are for many sources, or once the loops are at hand (`freshopt.compiled.backend`). With `in_account`
    their work is entered there already.
    """
    work = EVALUATIONS * (SEARCHED if formula in SEARCHES else 1.0)
    return backend.takes((formula, announced), n, 0.0 if in_account else work)


def spread(n: int, size: int) -> IntArray:
    """Return about `size` places of n, one of each stretch.

    Stretches are equally long. The places in them follow the golden ratio, so that no regular order tells on
    the sample.
    """
    stride = max(1, n // max(1, size))
    first = np.arange(0, n, stride)
    place = (stride * (np.arange(len(first)) * GOLDEN_RATIO % 1.0)).astype(np.int64)
    found: IntArray = np.minimum(first + place, n - 1)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Columns of a pass: n entries each, or single numbers.

    Entries are float64 or float32.

    - `formula`: Best response ρ(importance/price, *parameters) of a source, from
      `freshopt.compiled.demand_functions`.
    - `announced`: The same of the signalled sources, if there are any.
    - `signalled` ndarray of bool or False
    - `parameters` tuple of ndarray or float: Of both formulas; an array of two dimensions is a table for all
      sources.
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
        """Return the demand Σ cost·ρ at a price."""
        return self._pass(price, None)

    def fill(self, price: float, out: Array) -> float:
        """Write the best responses at a price to `out`; return demand.

        The demand is Σ cost·ρ of them.
        """
        if self._lies_apart(out):
            return self._pass(price, out)
        memory = _apart(self.n)
        used = self._pass(price, memory)
        out[:] = memory
        return used

    def sample(self, size: int) -> Columns:
        """Return about `size` of the sources, one of each stretch."""
        index = spread(self.n, size)
        return self.take(index, len(index))

    def take(self, index: slice | IntArray, n: int) -> Columns:
        """Return the n sources that an index picks."""
        return type(self)(n, self.formula, self.announced, *record_of(self).take(index))

    def by_host(self, price: float, codes: IntArray, hosts: int) -> Array:
        """Return the demand Σ cost·ρ of each host at a price.

        - `codes` (n,): The host of each source; `hosts` for those that do not count.
        - returns (hosts,)
        """
        used, size = np.zeros(hosts + 1), -(-self.n // BLOCKS)
        for begin in range(0, self.n, size):
            some = slice(begin, min(self.n, begin + size))
            own, rates = self.take(some, some.stop - begin), _apart(some.stop - begin)
            own._pass(price, rates)
            rates *= own.cost
            used += np.bincount(codes[some], rates, hosts + 1)
        return used[:hosts]

    def settle_hosts(
        self,
        limits: HostGroups,
        used: Array,
        floor: float,
        guess: float,
        steepness: float,
        tells: bool,
        out: Array,
    ) -> Array:
        """Write rates of hosts above their limits, at dual prices.

        The prices are the hosts' own, the rates go to `out`.

        - `used` (H,): Bandwidth used by the hosts at the price `floor`.
        - `floor`, `guess`: A price below all that matter, and a likely one.
        - `steepness`: −d log(used)/d log(price), about, > 0.
        - `tells`: Whether what is used at `floor` tells prices better than `guess` does.
        - `out` (n,): Untouched where a limit is met at `floor`.
        - returns (H,): The hosts' prices, the least ones where several will do, and 0 where the limit is met
          at `floor`; NaN where none was found.
        """
        prices = np.zeros(len(limits.limits))
        counts = np.diff(limits.first)
        # Sums in one go lose digits: the loop adds these again, in pieces. What is no number is no demand
        # within the limit.
        doubt = counts * float(np.finfo(np.float64).eps)
        which = np.flatnonzero(~(used <= limits.limits * (1.0 + ROUNDED - doubt)))
        if not len(which):
            return prices
        *_, loop = built("loops", self.formula, self.announced)
        largest, record = int(np.max(counts)), record_of(self)
        begun = SearchStart(math.log(floor), math.log(guess), steepness, tells)

        def part(begin: int, end: int) -> None:
            loop(begin, end, which, largest, limits, begun, record, used, out, prices)

        run_chunks_in_threads(part, len(which), max(1, len(which) // (8 * threads())))
        return prices

    def _lies_apart(self, out: Array) -> bool:
        """Return whether rates lie far enough from all columns for `fill_apart`."""
        begin, far = out.ctypes.data, PIECE * out.itemsize
        return all(
            max(begin - column.ctypes.data - column.nbytes, column.ctypes.data - begin - out.nbytes) >= far
            for column in (*self.parameters, *record_of(self))
            if isinstance(column, np.ndarray)
        )

    def _pass(self, price: float, out: Array | None) -> float:
        fill, *_ = built("loops", self.formula, self.announced)
        record, sums = record_of(self), np.empty(-(-self.n // CACHED))

        def part(begin: int, end: int) -> None:
            rates = _apart(CACHED) if out is None else out
            fill(begin, end, self.n, price, record, sums, out is not None, rates)

        run_chunks_in_threads(part, len(sums), 16)
        return exact_sum(sums.tolist())


def _apart(n: int) -> Array:
    """Return memory for n rates that lie apart from everything else."""
    return np.empty(n + 2 * PIECE)[PIECE:-PIECE]


def column(array: Array) -> Column:
    """Return a column as a number, or as a contiguous array."""
    return float(array[0]) if is_scalar(array) else read_only(np.ascontiguousarray(array))
