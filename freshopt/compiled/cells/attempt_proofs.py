"""Cost, marginal value and reach of one source of periodic attempts.

`freshopt.compiled.cells.attempt_functions` derives the reach of binary freshness. The marginal values of
harmonic staleness and age are sums over the number k of attempts, with weights ≥ 0, of those of periodic
refreshes at ρ/k (`freshopt.modelling.fetches.attempt_cell`). ρ times each of these does not rise with ρ
(`freshopt.compiled.proof_functions`), nor does ρ times the sum: the reach is ρ·|m − ν|/ν.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.compiled.cells.attempt_costs import mean_harmonic_attempts
from freshopt.compiled.cells.request_proofs import reach_of
from freshopt.compiled.proof_functions import ROUNDING, Excess, ProofCell, Values, reach_from_zero
from freshopt.compiled.proof_tables import AGE_INDEX, GAMMA, fallen, gap_of, ratio_at
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


def harmonic(rate: float, w: float, d: float, success: float) -> Values:
    """Return the mean harmonic cost and w/ρ times the stale share.

    Examples
    --------
    >>> [round(float(x), 6) for x in harmonic(1.0, 3.0, 1.0, 1.0)[:3]]
    [0.42872, 0.0, 1.103638]
    """
    u = d / rate
    x, _, mean, _ = fallen(u)
    often = (1.0 - success) * x
    marginal = (w / rate) * ((success * mean + often) / (success + often))
    return mean_harmonic_attempts(u, success) if rate > 0.0 else np.inf, 0.0, marginal, ROUNDED


def age(rate: float, w: float, d: float, success: float) -> Values:
    """Return the mean age and its marginal value.

    The formulas are those of `freshopt.problems.age`, divided by s and u².

    Examples
    --------
    >>> [round(float(x), 6) for x in age(1.0, 3.0, 1.0, 1.0)[:3]]
    [0.132121, 0.0, 0.707277]
    """
    ratio = ratio_at(AGE_INDEX, gap_of(rate, d))
    whole = 3.0 * rate + 2.0 * d
    x, _, mean, fresh = fallen(d / rate)
    failing = 1.0 - success
    rare, often = failing / success, failing * x / success
    again, beyond = (2.0 - success) / success * often, 1.0 + often
    index = d / whole * ratio + rare * mean * (1.0 + fresh) + again * (1.0 + 0.5 * often)
    cost = d / (rate + d) * (0.5 - ratio * (rate / whole)) + rare * mean + 0.5 * again
    return cost / beyond / rate, 0.0, (w / rate / rate) * (index / beyond) / beyond, ROUNDED


def reach_of_attempts(rate: float, w: float, excess: Excess, d: float, success: float) -> float:
    """Return the reach of binary freshness of periodic attempts."""
    off, paid, _, _ = excess
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
    return reach_of(rate, x, near, far, excess)


ATTEMPT_BINARY = ProofCell(attempts, reach_of_attempts)
ATTEMPT_HARMONIC = ProofCell(harmonic, reach_from_zero)
ATTEMPT_AGE = ProofCell(age, reach_from_zero)
