"""Cost functions: cost of one source of importance 1 at its rate.

The costs of the named objectives once more, in scalar arithmetic for compiled loops; each belongs to a demand
function of `freshopt.compiled.demand_functions` through a `Kernel` that names both. Only those that have a
short stable form are here. At any rate ≥ 0 they return a cost ≤ inf and never NaN. Compiled, they keep the
order of operations that is written here. They are plain Python and can be called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from freshopt.numerics.vector_math import fast_exp, fast_log

Value: TypeAlias = Callable[..., float]

# Beyond so many changes per refresh log(1 + u) is log u to the last bit.
ALL = 1e307


def log_one_plus(x: float) -> float:
    """Return log(1 + x) for x ≥ 0 to 2 ulp.

    What rounding takes from 1 + x is added to first order. There is no branch, so that loops are vectorised.

    Examples
    --------
    >>> bool(abs(log_one_plus(1e-20) / 1e-20 - 1.0) < 1e-15)
    True
    """
    finite = min(x, ALL)
    above = 1.0 + finite
    return fast_log(above) + (finite - (above - 1.0)) / above


def harmonic_poisson_cost(rate: float, d: float) -> float:
    """Return log(1 + Δ/ρ): harmonic staleness, Poisson.

    Examples
    --------
    >>> harmonic_poisson_cost(0.0, 1.0)
    inf
    """
    return log_one_plus(d / rate) if rate > 0.0 else np.inf


def harmonic_signal_cost(rate: float, d: float) -> float:
    """Return −log(ρ/Δ): harmonic staleness on signals."""
    share = rate / d
    # The logarithm takes normal numbers; no rate within accepted magnitudes has a smaller share.
    return -fast_log(share) if share > 1.0 / ALL else np.inf


def binary_poisson_cost(rate: float, d: float) -> float:
    """Return Δ/(ρ + Δ): stale share, Poisson."""
    return d / (rate + d)


def delay_cost(rate: float, d: float) -> float:
    """Return Δ/ρ: accumulated delay, Poisson."""
    return d / rate if rate > 0.0 else np.inf


def delay_periodic_cost(rate: float, d: float) -> float:
    """Return Δ/2ρ: accumulated delay, periodic."""
    return 0.5 * d / rate if rate > 0.0 else np.inf


def delay_signal_cost(rate: float, d: float) -> float:
    """Return Δ/ρ − 1: accumulated delay on signals."""
    return max((d - rate) / rate, 0.0) if rate > 0.0 else np.inf


def delay_request_cost(rate: float, d: float, asked: float) -> float:
    """Return Δ(1 − ρ/ζ)²/2ρ: accumulated delay on request."""
    within = (asked - rate) / asked if rate < asked else 0.0
    return 0.5 * within * (d / rate * within) if rate > 0.0 else np.inf


def age_poisson_cost(rate: float, d: float) -> float:
    """Return Δ/(ρ(ρ + Δ)): age, Poisson."""
    return d / (rate + d) / rate if rate > 0.0 else np.inf


def later_cost(rate: float, d: float) -> float:
    """Return e^{−dρ}: the share of time later than d, Poisson."""
    return fast_exp(-d * rate)
