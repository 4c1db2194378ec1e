"""Optimal rates by two nested bisections on logarithms: of each rate at its price, and of the prices.

Nothing here imports freshopt. Marginals are for unit importance, in forms that neither cancel nor overflow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Logarithm of a rate that counts as 0.
LEAST = -140.0
Marginal = Callable[[Floats, Floats], Floats]


def _age_poisson(r: Floats, d: Floats) -> Floats:
    return (d / (r + d)) * (1.0 + r / (r + d)) / r / r


def _age_periodic(r: Floats, d: Floats) -> Floats:
    u = d / r  # u²/2 − P(2, u) = u²/2·P(1, u) − P(3, u)
    return np.asarray(0.5 * u * u * gammainc(1.0, u) - gammainc(3.0, u), dtype=np.float64) / d / d


def _harmonic_periodic(r: Floats, d: Floats) -> Floats:
    u = d / r
    return (u * gammainc(1.0, u) - gammainc(2.0, u)) / d


def _log_periodic(r: Floats, d: Floats) -> Floats:
    u = d / r  # what falls of the share is P(2, u), of P(1, u)/u
    return u * gammainc(2.0, u) / gammainc(1.0, u) / d


MARGINALS: dict[str, Marginal] = {
    "harmonic poisson": lambda r, d: d / r / (r + d),
    "harmonic periodic": _harmonic_periodic,
    "log periodic": _log_periodic,
    "harmonic signals": lambda r, _: 1.0 / r,
    "binary poisson": lambda r, d: d / (d + r) / (d + r),
    "binary periodic": lambda r, d: gammainc(2.0, d / r) / d,
    "delay poisson": lambda r, d: d / r / r,
    "delay periodic": lambda r, d: 0.5 * d / r / r,
    "delay signals": lambda r, d: d / r / r,
    "age poisson": _age_poisson,
    "age periodic": _age_periodic,
    "age signals": lambda r, _: 1.0 / r / r,
    "polls": lambda r, d: np.asarray(gammainc(2.0, d / r), dtype=np.float64),
    "materials": lambda r, d: -np.expm1(-d / r),
    "power": lambda r, _: 2.0 * 0.7 / 1.7 * r**-1.7,
}


def optimal_rates(
    marginal: Callable[[Floats], Floats],
    cost: Floats,
    lower: Floats,
    upper: Floats,
    bandwidth: float,
    host: Ints,
    limits: Floats,
) -> Floats:
    """Return the rates; marginals include importance, `host` is a position in `limits` or their number."""
    hosts = len(limits)

    def response(price: Floats) -> Floats:
        low, high = np.full(len(cost), LEAST), np.full(len(cost), 40.0)
        for _ in range(50):
            x = 0.5 * (low + high)
            more = marginal(np.exp(x)) > cost * price
            low, high = np.where(more, x, low), np.where(more, high, x)
        found = np.exp(0.5 * (low + high))
        return np.clip(np.where(low == LEAST, 0.0, found), lower, upper)

    def used(rates: Floats) -> Floats:
        sums = np.bincount(host, weights=cost * rates, minlength=hosts + 1)
        return np.asarray(sums[:hosts], dtype=np.float64)

    low, high = np.full(hosts, -200.0), np.full(hosts, 200.0)
    for _ in range(52):
        x = 0.5 * (low + high)
        over = used(response(np.exp(np.append(x, 0.0))[host])) > limits
        low, high = np.where(over, x, low), np.where(over, high, x)
    own = np.append(np.exp(high), 0.0)[host]
    # A price of 52 halvings tells a rate at a plateau to 1e-5: what the limit leaves is mixed of both ends.
    generous, frugal = response(np.exp(np.append(low, 0.0))[host]), response(own)
    limited = frugal + np.append(_share(limits, used(generous), used(frugal)), 0.0)[host] * (
        generous - frugal
    )

    def at(x: float) -> Floats:
        return np.where(own > np.exp(x), limited, response(np.full(len(cost), np.exp(x))))

    begin, end = -200.0, 200.0
    for _ in range(52):
        x = 0.5 * (begin + end)
        begin, end = (x, end) if float(np.sum(cost * at(x))) > bandwidth else (begin, x)
    generous, frugal = at(begin), at(end)
    most, least = (np.array([np.sum(cost * rates)]) for rates in (generous, frugal))
    mixed: Floats = frugal + _share(np.array([bandwidth]), most, least) * (generous - frugal)
    return mixed


def _share(target: Floats, most: Floats, least: Floats) -> Floats:
    """Return the part of the more generous rates in the mixture that uses the target up."""
    between = (most > target) & (target > least)
    return np.asarray(np.where(between, (target - least) / np.where(between, most - least, 1.0), 0.0))
