"""Functions of u = change rate / rate in extended precision, vectorised, without cancellation.

All sums have positive terms or alternate with a ratio below a half. Nothing here is shared with freshopt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Wide = npt.NDArray[np.longdouble]

EULER = np.longdouble("0.57721566490153286060651209008240243")
# Below it series take the place of differences; above the other e^{−u} is nothing beside 1.
SHORT, LONG = np.longdouble(0.5), np.longdouble(100)
TERMS = 18  # 0.5^18/18! is 6e-22
_FACTORIAL = np.cumprod(np.append(np.longdouble(1), np.arange(1, 40, dtype=np.longdouble)))


def wide(x: Any) -> Wide:
    """Return numbers in extended precision."""
    return np.asarray(x, dtype=np.longdouble)


def series(u: Wide, coefficient: Callable[[int], int], first: int) -> Wide:
    """Return Σ coefficient(k)·u^k/(k+1)! from the first k on."""
    orders = range(first, first + TERMS)
    weights = wide([np.longdouble(coefficient(k)) / _FACTORIAL[k + 1] for k in orders])
    powers = np.minimum(u, SHORT)[..., np.newaxis] ** np.arange(first, first + TERMS)
    return np.sum(powers * weights, axis=-1)


def stale(u: Wide) -> Wide:
    """Return 1 − (1−e^{−u})/u."""
    big = np.maximum(u, SHORT)
    return np.where(u < SHORT, series(u, lambda k: (-1) ** (k + 1), 1), 1 + np.expm1(-big) / big)


def gamma2(u: Wide) -> Wide:
    """Return 1 − (1+u)e^{−u}: Σ (−1)^k (k−1)u^k/k!."""
    big = np.clip(u, SHORT, 1000)
    short = series(u, lambda k: (-1) ** k * (k - 1) * (k + 1), 2)
    return np.where(u < SHORT, short, 1 - (1 + big) * np.exp(-big))


def harmonic_index(u: Wide) -> Wide:
    """Return u − 1 + e^{−u}: Σ (−1)^k u^k/k!."""
    return np.where(u < SHORT, series(u, lambda k: (-1) ** k * (k + 1), 2), u + np.expm1(-u))


def mean_age(u: Wide) -> Wide:
    """Return u/2 − 1 + (1−e^{−u})/u."""
    big = np.maximum(u, SHORT)
    return np.where(u < SHORT, series(u, lambda k: (-1) ** k, 2), big / 2 - 1 - np.expm1(-big) / big)


def age_index(u: Wide) -> Wide:
    """Return u²/2 − 1 + (1+u)e^{−u}: Σ (−1)^{k+1} (k−1)u^k/k! from k = 3 on."""
    big = np.maximum(u, SHORT)
    end = np.minimum(big, 1000)
    short = series(u, lambda k: (-1) ** (k + 1) * (k - 1) * (k + 1), 3)
    return np.where(u < SHORT, short, big * big / 2 - 1 + (1 + end) * np.exp(-end))


def ein(u: Wide) -> Wide:
    """Return ∫₀ᵘ (1−e^{−t})/t dt = e^{−u}Σ H_k u^k/k!; log u + γ where E₁ is nothing."""
    x = np.minimum(u, LONG)
    term, total, harmonic = np.exp(-x), np.zeros_like(x), np.longdouble(0)
    k = 0
    while k < 2 * LONG or float(np.max(term, initial=0)) > 1e-24:
        k += 1
        term, harmonic = term * x / k, harmonic + np.longdouble(1) / k
        total = total + harmonic * term
        if k > float(np.max(x, initial=0)) and float(np.max(term, initial=0)) < 1e-26:
            break
    return np.where(u <= LONG, total, np.log(np.maximum(u, LONG)) + EULER)


def lower_gamma(e: Wide, x: Wide, whole: Wide) -> Wide:
    """Return γ(1+e, x)/x^{1+e} = e^{−x}Σ x^k/((1+e)…(1+e+k)); Γ(1+e)/x^{1+e} beyond."""
    y = np.minimum(x, LONG)
    term = np.exp(-y) / (1 + e)
    total, k = term.copy(), 0
    while float(np.max(term / total, initial=0)) > 1e-22 or k < float(np.max(y, initial=0)):
        k += 1
        term = term * y / (1 + e + k)
        total = total + term
    return np.where(x <= LONG, total, whole * np.maximum(x, LONG) ** -(1 + e))
