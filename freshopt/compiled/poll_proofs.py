"""Cost, marginal value and reach of one polled source.

The cells of `freshopt.problems.polling_knapsack`, as `freshopt.compiled.proof_functions` has those of the
other objectives; t = a/ρ.

**Polls**: m = w·P(2, t), that of periodic binary freshness of importance w·a, whose reach is used.

**Materials**: m = w·(1 − e^{−t}). With q = ν/w and t̂ = a/ρ̂, t̂ = −log(1 − q), and with
δ = |1 − e^{−t} − q|/e^{−t}:

  - ρ̂ > ρ: t − t̂ = log(1 + δ) ≤ δ, so ρ̂ − ρ = ρ·(t − t̂)/t̂ ≤ ρ·x/(1 − x) for x = δ/t < 1. In any case
    ρ̂ ≤ a/q, since 1 − e^{−t̂} ≤ t̂.
  - ρ̂ < ρ: t̂ − t = −log(1 − δ) ≤ 2δ for δ ≤ 1/2, so ρ − ρ̂ ≤ 2ρx. In any case ρ − ρ̂ ≤ ρ.
"""

from __future__ import annotations

import numpy as np

from freshopt.compiled.cost_functions import ALL, log_one_plus
from freshopt.compiled.proof_functions import (
    ROUNDING,
    Excess,
    ProofCell,
    Values,
    binary_periodic,
    farther,
    reach_on_plateau,
)
from freshopt.compiled.proof_tables import GAMMA, MATERIALS_MEAN, gap_of, ratio_at
from freshopt.numerics.vector_math import fast_exp


def polls(rate: float, w: float, a: float) -> Values:
    """Return the updates that polls miss and find, and w·P(2, t).

    Examples
    --------
    >>> [round(float(x), 6) for x in polls(1.0, 3.0, 1.0)[:3]]
    [0.367879, 0.632121, 0.792723]
    """
    missed, found, marginal, rounding = binary_periodic(rate, w * a, a)
    return a * missed, a * found, marginal, rounding


def reach_of_polls(rate: float, w: float, excess: Excess, a: float) -> float:
    """Return the reach of periodic binary freshness."""
    return reach_on_plateau(rate, w * a, excess, a)


def materials(rate: float, w: float, a: float) -> Values:
    """Return −ρ·(1 − E₂(t)) and w·(1 − e^{−t}).

    Examples
    --------
    >>> [round(float(x), 6) for x in materials(1.0, 3.0, 1.0)[:3]]
    [-0.851504, 0.0, 1.896362]
    """
    u = gap_of(rate, a)
    share, rest = a / (rate + a), rate / (rate + a)
    # P(2, t)/t; and 1 − e^{−t} = (t + P(2, t))/(1 + t).
    part = ratio_at(GAMMA, u) * share * rest
    mean = log_one_plus(min(rate / a, ALL)) + rest * rest * ratio_at(MATERIALS_MEAN, u)
    return -a * mean, 0.0, w * (share * (1.0 + part)), ROUNDING


def reach_of_materials(rate: float, w: float, excess: Excess, a: float) -> float:
    """Return the reach of the materials form."""
    off, paid, _, _ = excess
    apart = (off / w) / fast_exp(-gap_of(rate, a))
    x = apart / (a / rate)
    near = rate * (x / (1.0 - x))
    near = near if x < 1.0 else np.inf
    far = a / (paid / w)
    up = near if near < far else far
    down = 2.0 * rate * x
    return farther(up, down if apart < 0.5 else rate, excess)


POLLS = ProofCell(polls, reach_of_polls)
MATERIALS = ProofCell(materials, reach_of_materials)
