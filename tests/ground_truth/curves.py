"""Four cost curves in closed form: costs, marginals and best responses.

A "jump" falls to 0 at the rate Δ. Nothing here imports freshopt.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def costs(curve: str, weight: Floats, change: Floats, rates: Floats) -> Floats:
    """w·J(ρ)."""
    d, r = change, rates
    with np.errstate(all="ignore"):
        unit = {
            "harmonic": np.log1p(d / r),
            "delay": d / r,
            "binary": d / (d + r),
            "jump": 1.0 - r / d,
        }[curve]
        return np.where(weight > 0.0, weight * unit, 0.0)


def marginals(curve: str, weight: Floats, change: Floats, rates: Floats) -> Floats:
    """−w·J'(ρ); on a jump, of the last bit of rate."""
    d, r = change, rates
    with np.errstate(all="ignore"):
        unit = {
            "harmonic": d / (r + d) / r,
            "delay": d / r / r,
            "binary": d / (d + r) / (d + r),
            "jump": np.where(r <= d, 1.0 / d, 0.0),
        }[curve]
        return np.where(weight > 0.0, weight * unit, 0.0)


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
