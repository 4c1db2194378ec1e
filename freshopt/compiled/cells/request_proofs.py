"""Cost, marginal value and reach of one source on request.

`freshopt.compiled.cells.request_functions` derives the reach; here A = Δ/ρ, so that x = (1 + h)·δ/A² is
(1 + h)·(off·ρ/w)·(ρ/Δ).
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.cells.request_functions import within_table
from freshopt.compiled.cells.request_tables import index_and_ein
from freshopt.compiled.proof_functions import ROUNDING, ProofCell, Values
from freshopt.compiled.proof_tables import GAMMA, ratio_at
from freshopt.numerics.vector_math import fast_exp

# Two terms of tables that are right to 1e-15 each.
ROUNDED = 2.0 * ROUNDING


def delay(rate: float, w: float, d: float, asked: float) -> Values:
    """Return Δ(1 − ρ/ζ)²/2ρ and w·(u²/2 + κu)/Δ.

    Examples
    --------
    >>> [round(float(x), 6) for x in delay(1.0, 3.0, 1.0, 2.0)[:3]]
    [0.125, 0.0, 1.125]
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    u = d / rate * within
    return 0.5 * within * u, 0.0, (w / rate) * within * (0.5 * u + d / asked), ROUNDED


def harmonic(rate: float, w: float, d: float, asked: float) -> Values:
    """Return the harmonic cost of a request and its marginal value.

    (1 − ρ/ζ)·(mean harmonic cost) and w·(u − 1 + e^{−u} + κ·Ein(u))/Δ.
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    u = d / rate * within
    index, ein = index_and_ein(u)
    # The mean cost is Ein(u) − (u − 1 + e^{−u})/u.
    mean = ein - index / u if u > 0.0 else 0.0
    return (
        within * mean if rate > 0.0 else np.inf,
        0.0,
        (w / d) * (index + d / asked * ein),
        ROUNDED,
    )


def binary(rate: float, w: float, d: float, asked: float) -> Values:
    """Return the stale and the fresh share, and the marginal value.

    Of requests; the latter is w·(P(2, u) + κ(1 − e^{−u}))/Δ.
    """
    within = (asked - rate) / asked if rate < asked else 0.0
    stored = d * within
    share, rest = stored / (rate + stored), rate / (rate + stored)
    scaled = ratio_at(GAMMA, within_table(stored / rate)) * share
    # P(2, u)/u; and 1 − e^{−u} = (u + P(2, u))/(1 + u).
    part, tail = scaled * rest, scaled * share
    fetched = rate / asked
    return (
        within * (share - rest * part),
        (fetched if fetched < 1.0 else 1.0) + within * (rest * (1.0 + part)),
        (w / d) * (tail + d / asked * (share + rest * tail)),
        ROUNDED,
    )


def reach_of_delay(
    rate: float, w: float, off: float, paid: float, rises: bool, falls: bool, d: float, _asked: float
) -> float:
    """Return the reach of accumulated delay on request."""
    x = (off * (rate / w)) * (rate / d)
    return reach_of(rate, x, True, d / math.sqrt(2.0 * (paid * (d / w))), rises, falls)


def reach_of_harmonic(
    rate: float, w: float, off: float, paid: float, rises: bool, falls: bool, d: float, asked: float
) -> float:
    """Return the reach of harmonic staleness on request."""
    within = (asked - rate) / asked if rate < asked else 0.0
    near = off * (rate / w)
    # (1 + u)·ρ/Δ, u = (1 − ρ/ζ)Δ/ρ.
    x = near * (rate / d + within)
    return reach_of(rate, x, near <= 1.0, d / math.sqrt(2.0 * (paid * (d / w))), rises, falls)


def reach_of_binary(
    rate: float, w: float, off: float, paid: float, rises: bool, falls: bool, d: float, asked: float
) -> float:
    """Return the reach of binary freshness on request."""
    within = (asked - rate) / asked if rate < asked else 0.0
    apart = off / fast_exp(-(d / rate * within))
    x = (apart * (rate / w)) * (rate / d)
    near = apart * (d / w) <= 0.5 * (1.0 + d / rate)
    return reach_of(rate, x, near, d / math.sqrt(2.0 * (paid * (d / w))), rises, falls)


def reach_of(rate: float, x: float, near: bool, far: float, rises: bool, falls: bool) -> float:
    """Return the distance to the best response, from x.

    Above ρ(1/√(1 − 2x) − 1), at most `far`; below 2ρx, or ρ unless near.
    """
    left = 1.0 - 2.0 * x
    root = math.sqrt(left if left > 0.0 else 0.0)
    up = rate * (2.0 * x / (root * (1.0 + root)))
    up = up if left > 0.0 else np.inf
    up = up if up < far else far
    down = 2.0 * rate * x if near else rate
    up, down = up if rises else 0.0, down if falls else 0.0
    return down if down > up else up


REQUEST_DELAY = ProofCell(delay, reach_of_delay)
REQUEST_HARMONIC = ProofCell(harmonic, reach_of_harmonic)
REQUEST_BINARY = ProofCell(binary, reach_of_binary)
