"""`typical_log_price`: where searches for a price start."""

from __future__ import annotations

import numpy as np

from freshopt.numerics.arrays import Array, median
from freshopt.separable.program import Program

# Sources from which a typical price is taken: it is only where searches start.
_SAMPLED = 2000


def typical_log_price(program: Program, cost: Array) -> float:
    """Return the log of a typical price.

    It is the median marginal value per cost at typical rates; 0 where no source has one.

    - `program`: With `numerics`.
    - `cost` (n,): ≥ 0, of a refresh.
    """
    some = slice(0, None, max(1, len(program) // _SAMPLED))
    paying = cost[some] > 0.0
    if program.numerics is None or not bool(np.any(paying)):
        return 0.0
    typical = np.clip(program.typical[some], program.lower[some], program.upper[some])
    slope = program.numerics.take(some).marginal(typical)[paying] / cost[some][paying]
    usable = slope[(slope > 0.0) & np.isfinite(slope)]
    return median(np.log(usable)) if len(usable) else 0.0
