"""Cost, marginal value and reach of one source of periodic attempts.

`freshopt.compiled.cells.attempt_functions` derives the reach.
"""

from __future__ import annotations

import math

from freshopt.compiled.cells.request_proofs import reach_of
from freshopt.compiled.proof_functions import ROUNDING, ProofCell, Values
from freshopt.compiled.proof_tables import GAMMA, gap_of, ratio_at
from freshopt.numerics.vector_math import fast_exp

# Quotients of sums of terms of tables that are right to 1e-15 each.
ROUNDED = 2.0 * ROUNDING


def attempts(rate: float, w: float, d: float, success: float) -> Values:
    """Return the stale share, the fresh one, and w·s(s·P(2, u) + q·x²)/(D²Δ).

    Examples
    --------
    >>> [round(float(x), 6) for x in attempts(1.0, 3.0, 1.0, 1.0)[:3]]
    [0.367879, 0.632121, 0.792723]
    """
    share, rest, failing = d / (rate + d), rate / (rate + d), 1.0 - success
    scaled = ratio_at(GAMMA, gap_of(rate, d)) * share
    # P(2, u)/u and P(2, u); x/u = rest·(1 + part) and 1 − x/u.
    part, index = scaled * rest, scaled * share
    many = share + rest * index
    whole = success + failing * many
    return (
        (success * (share - rest * part) + failing * many) / whole,
        success / whole * (rest * (1.0 + part)),
        (w / d) * (success / whole) * ((success * index + failing * many * many) / whole),
        ROUNDED,
    )


def reach_of_attempts(
    rate: float, w: float, off: float, paid: float, rises: bool, falls: bool, d: float, success: float
) -> float:
    """Return the reach of binary freshness of periodic attempts."""
    u = gap_of(rate, d)
    share, rest = d / (rate + d), rate / (rate + d)
    many = share + rest * (ratio_at(GAMMA, u) * share * share)
    whole = success + (1.0 - success) * many
    scale = whole / success
    # off/(s − φ), up to Δ/w and (D + u)/D², which E has too.
    apart = scale * scale * (off / fast_exp(-u))
    x = (apart * (rate / w)) * (rate / d) * (whole / (2.0 - whole))
    near = apart * (d / w) <= 0.5 * (whole + d / rate)
    far = d / math.sqrt(2.0 * (paid * (d / w)) * (success / (2.0 - success)))
    return reach_of(rate, x, near, far, rises, falls)


ATTEMPT_BINARY = ProofCell(attempts, reach_of_attempts)
