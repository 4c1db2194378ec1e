"""Compiled proofs: cost, bandwidth used and duality gap of given rates.

As in `freshopt.compiled.columns`, chunks' sums are kept and added exactly rounded, so that a proof has the
same bits on any number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshopt.compiled import backend
from freshopt.compiled.columns import BLOCKS, Column, run_chunks_in_threads
from freshopt.compiled.kept_code import built
from freshopt.compiled.proof_functions import ProofCell
from freshopt.compiled.source_columns import HostGroups, record_of
from freshopt.compiled.threads import threads
from freshopt.numerics.arrays import CACHED, Array, BoolArray, IntArray, exact_sum

# Relative error of the terms of a gap and of their sum, which are all positive; 1e-13 where u is large.
INFLATION = 1.0 + 2.0**-30
# A certificate in NumPy takes about as long as so many evaluations of every source.
EVALUATIONS = 3.0


class Proof(NamedTuple):
    """Sums over all sources at given rates and prices.

    - `cost`, `gain`: Weighted; the gain is 0 where there is none.
    - `used`: Σ refresh cost·ρ.
    - `gap`: Upper bound on what the sources add to the duality gap.
    - `outside`: How many rates are not within their bounds, or no numbers.
    - `by_host` (H,): What limited hosts use.
    """

    cost: float
    gain: float
    used: float
    gap: float
    outside: float
    by_host: Array


def enabled(n: int, silent: ProofCell, announced: ProofCell | None = None) -> bool:
    """Return whether proofs of n sources are to be compiled.

    They are for many sources, or once the loops are at hand (`freshopt.compiled.backend`).
    """
    return backend.takes((silent, announced), n, EVALUATIONS)


@dataclass(frozen=True, slots=True, eq=False)
class ProofColumns:
    """Columns of a proof: n entries each, or single numbers.

    - `announced`: Of the signalled sources, if there are any.
    - `signalled` ndarray of bool or False
    - `parameters` tuple of ndarray or float: Of both cells; an array of two dimensions is a table for all
      sources.
    """

    n: int
    silent: ProofCell
    announced: ProofCell | None
    signalled: BoolArray | bool
    importance: Column
    parameters: tuple[Column, ...]
    cost: Column
    lower: Column
    upper: Column

    def prove(self, rates: Array, price: float) -> Proof:
        """Return the sums at rates, shape (n,), and one price ≥ 0."""
        sums = np.empty((-(-self.n // CACHED), 5))
        loop, _ = built("proof_loops", self.silent, self.announced)
        record = record_of(self)

        def part(begin: int, end: int) -> None:
            loop(begin, end, self.n, price, record, rates, sums)

        run_chunks_in_threads(part, len(sums), 16)
        return _added(sums, np.zeros(0))

    def prove_hosts(self, rates: Array, price: float, host_prices: Array, codes: IntArray) -> Proof:
        """Return the sums at rates and the prices of bandwidth and hosts.

        - `rates` (n,)
        - `host_prices` (H,): On top of `price`.
        - `codes` (n,): The host of each source, H for none.
        """
        sums, by_host = np.empty((-(-self.n // CACHED), 5)), np.zeros((BLOCKS, 2, len(host_prices) + 1))
        prices = np.append(price + host_prices, price)
        _, loop = built("proof_loops", self.silent, self.announced)
        record = record_of(self)
        edges = [len(sums) * block // BLOCKS for block in range(BLOCKS + 1)]

        def part(begin: int, end: int) -> None:
            # A block's sources add to a row of their own: same bits always.
            for block in range(begin, end):
                own = edges[block], edges[block + 1], self.n
                loop(*own, prices, codes, record, rates, sums, *by_host[block])

        run_chunks_in_threads(part, BLOCKS, 1)
        return _added(sums, np.sum(np.sum(by_host, axis=1), axis=0)[:-1])

    def host_prices(self, rates: Array, limits: HostGroups, slack: Array) -> Array:
        """Return each host's price with the smallest bound, shape (H,).

        It is 0 where no price has a smaller one.

        - `rates` (n,)
        - `slack` (H,): ≥ 0, what the hosts' sources leave of their limits.
        """
        prices = np.zeros(len(slack))
        largest = int(np.max(np.diff(limits.first)))
        loop, record = built("host_price_loops", self.silent, self.announced), record_of(self)

        def part(begin: int, end: int) -> None:
            loop(begin, end, largest, limits, record, rates, slack, prices)

        run_chunks_in_threads(part, len(slack), max(1, len(slack) // (8 * threads())))
        return prices

    def sample(self, stride: int) -> ProofColumns:
        """Return every so manieth source."""
        own = record_of(self).take(slice(None, None, stride))
        return ProofColumns(len(range(0, self.n, stride)), self.silent, self.announced, *own)


def _added(sums: Array, by_host: Array) -> Proof:
    cost, gain, used, gap, outside = (exact_sum(column) for column in sums.T.tolist())
    return Proof(cost, gain, used, INFLATION * gap, outside, by_host)
