"""Cost curves in closed form: costs, marginals and best responses.

A "jump" falls to 0 at the rate Δ. Nothing here imports freshopt.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Formula = Callable[[Floats, Floats], Any]
POWER = 0.5
# Of a rate and a change rate: the cost at unit weight, and minus its derivative; on a jump, of the last bit.
UNIT: dict[str, tuple[Formula, Formula]] = {
    "rate": (lambda r, _: r, lambda r, _: -np.ones_like(r)),
    "harmonic": (lambda r, d: np.log1p(d / r), lambda r, d: d / r / (r + d)),
    "delay": (lambda r, d: d / r, lambda r, d: d / r / r),
    "binary": (lambda r, d: d / (d + r), lambda r, d: d / (d + r) / (d + r)),
    "power": (lambda r, d: d * r**-POWER, lambda r, d: POWER * d * r ** (-POWER - 1.0)),
    "tail": (lambda r, d: np.exp(-r / d), lambda r, d: np.exp(-r / d) / d),
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
