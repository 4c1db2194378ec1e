"""Records and constants of the search for the prices of nested groups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from freshopt.numerics.arrays import Array, BoolArray, IntArray

# Groups of a block: each starts where the search of the one before it ended.
BLOCK = 64
# Prices below leave only refreshes of no marginal value undone.
LOWEST_PRICE = 1e-290
# Relative, of sums that are right to an ulp or two: bounds that use up a limit to this leave nothing.
FEW_ULP = 8 * float(np.finfo(np.float64).eps)


class NestedGroups(NamedTuple):
    """Groups as slices of sources, with the bounds of what they use.

    - `begin`, `end` (G,)
    - `bounds` (2, G): Limits, inf for none, and reserves, 0 for none.
    - `pushed` (G,): Whether a reserve around the group may push it beyond what it uses at the price 0.
    """

    begin: IntArray
    end: IntArray
    bounds: Array
    pushed: BoolArray
