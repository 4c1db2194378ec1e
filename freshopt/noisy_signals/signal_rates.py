"""Rates of one source's noisy signals, in scalar arithmetic.

The rates, and what follows from them.

`freshopt.noisy_signals.renewal_cycle` says what the letters mean. All functions are plain Python and can be
called; compiled loops inline them.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Roots: TypeAlias = npt.NDArray[np.complex128]

# Roots of the transient that are kept at most; 5 matter where they are used.
MOST_ROOTS = 24
# A recall below is none, a precision below is that much: neither moves anything by as much.
LEAST = 1e-30
# A precision below: ε = h/p − 1 is a series, as the logarithm would lose digits; 18 terms reach 1e-19.
SMALL_PRECISION, SERIES_TERMS = 0.1, 20


class SignalRates(NamedTuple):
    """Rates of a source's signals in units of its change rate.

    - `recall`, `unannounced`: l and a = 1−l.
    - `signals`, `false`, `total`: g = l/p, v = g−l and c = g+a = 1+v: of signals, of false ones, of signals
      and unannounced changes.
    - `loss`: h = −ln(1−p) = ab: by how much a signal lowers the logarithm of being fresh.
    - `bonus`: b = h/a: the time without signals that does the same.
    - `per_bonus`: κ = gb: how many signals come, on average, in that time.
    - `slope`, `offset`: A = 1/(a(1+κ)) and β: far out ψ is A·u + β.
    - `stale_offset`: T = 1 − A − β, without cancellation.
    - `roots` ndarray of complex: Roots of the transient found so far; 0 where not yet.
    """

    recall: float
    unannounced: float
    signals: float
    false: float
    total: float
    loss: float
    bonus: float
    per_bonus: float
    slope: float
    offset: float
    stale_offset: float
    roots: Roots


def signal_rates(recall: float, precision: float, roots: Roots) -> SignalRates:
    """Return the rates of a source's signals.

    `roots` is memory that it keeps, of `MOST_ROOTS` entries.

    Examples
    --------
    >>> one = signal_rates(0.5, 0.5, np.empty(MOST_ROOTS, dtype=np.complex128))
    >>> one.signals, one.false, round(one.bonus, 6), round(one.per_bonus, 6)
    (1.0, 0.5, 1.386294, 1.386294)
    """
    roots[:] = 0.0
    a, p = 1.0 - recall, max(precision, LEAST)
    if recall < LEAST:
        return SignalRates(0.0, 1.0, 0.0, 0.0, 1.0, math.inf, math.inf, 0.0, 1.0, 0.0, 0.0, roots)
    g, v = recall / p, recall * (1.0 - p) / p
    if p >= 1.0:
        return SignalRates(recall, a, g, 0.0, 1.0, math.inf, math.inf, math.inf, 0.0, math.inf, 0.0, roots)
    h, first, second = log_loss(p)
    whole = 1.0 + recall * first  # a(1 + κ)
    offset = 0.5 * recall * p * (1.0 + first) * (1.0 + first) / (whole * whole)
    rest = recall * (second + recall * first * first - p * first * (1.0 + 0.5 * first)) / (whole * whole)
    bonus = h / a if a > 0.0 else math.inf
    kappa = recall * (1.0 + first) / a if a > 0.0 else math.inf
    return SignalRates(recall, a, g, v, 1.0 + v, h, bonus, kappa, 1.0 / whole, offset, rest, roots)


def log_loss(p: float) -> tuple[float, float, float]:
    """Return h = −ln(1−p) and its remainders, for p < 1.

    They are h, ε = h/p − 1 and ε − p/2, without cancellation.

    Examples
    --------
    >>> log_loss(1e-9)
    (1.0000000005...e-09, 5.000000003...e-10, 3.33...e-19)
    """
    if p < SMALL_PRECISION:
        first, second, power = 0.0, 0.0, p
        for k in range(2, SERIES_TERMS):
            first += power / k
            if k > 2:
                second += power / k
            power *= p
        return p * (1.0 + first), first, second
    h = -math.log1p(-p)
    first = h / p - 1.0
    return h, first, first - 0.5 * p
