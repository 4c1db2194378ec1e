"""Records of batches: the problems' places, and what was found of each."""

from __future__ import annotations

from typing import NamedTuple

from freshopt.numerics.arrays import Array, IntArray

# How a problem ended: with rates and a price; with rates at the price 0; or only the general search will do.
FOUND, FREE, UNSOLVED = 0, 1, 2


class BatchGroups(NamedTuple):
    """Where m problems are in the columns, and their bandwidths.

    - `first`, `size` (m,): A problem's sources are `size` consecutive ones; problems may share them.
    - `place` (m,): Of its first rate among the rates of all problems.
    - `bandwidth` (m,)
    """

    first: IntArray
    size: IntArray
    place: IntArray
    bandwidth: Array


class BatchFound(NamedTuple):
    """Rates, prices and sums of m problems.

    - `rates`: Of all problems, one after the other.
    - `prices` (m,)
    - `sums` (m, 5): Cost, gain, bandwidth used, gap of the sources, and how many rates are outside their
      bounds.
    - `states` (m,): `FOUND`, `FREE` or `UNSOLVED`.
    - `evaluations` (m,)
    """

    rates: Array
    prices: Array
    sums: Array
    states: IntArray
    evaluations: IntArray


class Root(NamedTuple):
    """Where the search for a problem's price ended.

    - `steepness`: −d log(demand)/d log(price) there, about.
    """

    state: int
    price: float
    steepness: float
    evaluations: int


class Bracket(NamedTuple):
    """Log prices around a root, and the last three points.

    - `low`, `high`: Demand is above the bandwidth at `low`, and not above it at `high`.
    - `x`, `f`, `x1`, `f1`, `x2`, `f2`: Log prices and log(demand / bandwidth), the newest first; NaN where
      there is none.
    """

    low: float
    high: float
    x: float
    f: float
    x1: float
    f1: float
    x2: float
    f2: float
