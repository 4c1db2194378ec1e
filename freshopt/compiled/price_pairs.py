"""Demand of all sources at two prices, from one compiled pass.

As in `freshopt.compiled.columns`, chunks' sums are kept and added exactly rounded, so that a pass has the
same bits on any number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.compiled.columns import Columns, run_chunks_in_threads
from freshopt.compiled.kept_code import built
from freshopt.compiled.source_columns import record_of
from freshopt.numerics.arrays import CACHED, Array, BoolArray, exact_sum


class PairMemory(NamedTuple):
    """What a pass at two prices writes for each source.

    - `rates` (n,): The mixture of both sides' best responses.
    - `jumps` (n,): Whose rate changes by more than was asked for.
    """

    rates: Array
    jumps: BoolArray


class PairDemand(NamedTuple):
    """Σ cost·ρ at two prices, and of the mixture.

    - `above`, `below`: At the lower and at the higher price.
    - `smooth_above`, `smooth_below`: The same of the sources that do not jump.
    - `mixed`: Of the rates that were written.
    """

    above: float
    below: float
    smooth_above: float
    smooth_below: float
    mixed: float


def memory(n: int) -> PairMemory:
    """Return memory for passes over n sources."""
    return PairMemory(np.empty(n), np.empty(n, dtype=np.bool_))


def at_two_prices(
    columns: Columns, low: float, high: float, into: PairMemory, *, steep: float = 0.0, share: float = 0.0
) -> PairDemand:
    """Return the demands at a lower and a higher price.

    - `into`: Written: rates at the higher price plus `share` of what is more at the lower, and who jumps.
    - `steep`: Sources jump whose rate at the higher price is less by more than this share of that at the
      lower.
    """
    loop = built("pair_loops", columns.formula, columns.announced)
    sums = np.empty((5, -(-columns.n // CACHED)))
    inverse_prices = np.array([1.0 / low, 1.0 / high])
    own = record_of(columns)

    def part(begin: int, end: int) -> None:
        loop(begin, end, columns.n, inverse_prices, steep, share, own, sums, *into)

    run_chunks_in_threads(part, sums.shape[1], 16)
    return PairDemand(*(exact_sum(row) for row in sums.tolist()))
