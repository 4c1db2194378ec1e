"""Cost curves in closed form: costs, marginals and best responses; "periodic" at equal gaps.

A "jump" falls to 0 at the rate Δ. Nothing here imports freshopt.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import exp1

Floats = npt.NDArray[np.float64]
Formula = Callable[[Floats, Floats], Any]
POWER = 0.5


def penalty(name: str, x: Floats) -> Floats:
    """f(x): expected penalty of a Poisson number of changes of mean x."""
    if name == "delay":
        return x
    if name == "binary":
        return -np.expm1(-x)
    low = np.maximum(x, 1e-3)
    series = x - x**2 / 4.0 + x**3 / 18.0 - x**4 / 96.0
    return np.where(x > 1e-3, exp1(low) + np.log(low) + np.euler_gamma, series)


def mean_penalty(name: str, u: Floats) -> Floats:
    """Mean of f over 0..u: the cost of periodic refreshes with u changes between two."""
    if name == "delay":
        return u / 2.0
    series = {
        "binary": u / 2.0 - u * u / 6.0 + u**3 / 24.0,
        "harmonic": u / 2.0 - u * u / 12.0 + u**3 / 72.0,
    }[name]
    with np.errstate(all="ignore"):
        binary = 1.0 + np.expm1(-u) / u
        exact = binary if name == "binary" else penalty(name, u) - 1.0 - np.expm1(-u) / u
    return np.where(u < 1e-3, series, exact)


# Of a rate and a change rate: the cost at unit weight, and minus its derivative; on a jump, of the last bit.
UNIT: dict[str, tuple[Formula, Formula]] = {
    "rate": (lambda r, _: r, lambda r, _: -np.ones_like(r)),
    "harmonic": (lambda r, d: np.log1p(d / r), lambda r, d: d / r / (r + d)),
    "delay": (lambda r, d: d / r, lambda r, d: d / r / r),
    "binary": (lambda r, d: d / (d + r), lambda r, d: d / (d + r) / (d + r)),
    "power": (lambda r, d: d * r**-POWER, lambda r, d: POWER * d * r ** (-POWER - 1.0)),
    "tail": (lambda r, d: np.exp(-r / d), lambda r, d: np.exp(-r / d) / d),
    "harmonic periodic": (
        lambda r, d: mean_penalty("harmonic", d / r),
        lambda r, d: (d / r + np.expm1(-d / r)) / d,
    ),
    "delay periodic": (lambda r, d: mean_penalty("delay", d / r), lambda r, d: d / (2.0 * r**2)),
    "binary periodic": (
        lambda r, d: mean_penalty("binary", d / r),
        lambda r, d: (1.0 - (1.0 + d / r) * np.exp(-d / r)) / d,
    ),
    "jump": (lambda r, d: 1.0 - r / d, lambda r, d: np.where(r <= d, 1.0 / d, 0.0)),
}


def cost(curve: str, rates: Floats, change: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(UNIT[curve][0](rates, change), dtype=np.float64)


def fall(curve: str, rates: Floats, change: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return np.asarray(UNIT[curve][1](rates, change), dtype=np.float64)


def costs(curve: str, weight: Floats, change: Floats, rates: Floats) -> Floats:
    """w·J(ρ); nothing where there is no weight."""
    with np.errstate(all="ignore"):
        return np.where(weight > 0.0, weight * cost(curve, rates, change), 0.0)


def marginals(curve: str, weight: Floats, change: Floats, rates: Floats) -> Floats:
    """−w·J'(ρ)."""
    with np.errstate(all="ignore"):
        return np.where(weight > 0.0, weight * fall(curve, rates, change), 0.0)


def responses(curve: str, weight: Floats, change: Floats, price: Floats) -> Floats:
    """The best response to a price without bounds, inf for a price < 0."""
    d = change
    with np.errstate(all="ignore"):
        a = np.where(weight > 0.0, weight / price, 0.0)
        plain = {
            "harmonic": 2.0 * a * d / (d + np.sqrt(d * d + 4.0 * a * d)),
            "delay": np.sqrt(a * d),
            "binary": np.where(a > d, d * (a - d) / (d + np.sqrt(a * d)), 0.0),
            "jump": np.where(a >= d, d, 0.0),
        }[curve]
    return np.where((price < 0.0) | np.isnan(plain), np.inf, plain)
