"""Ground truth for costs of age: each c(s) in mpmath, its cells by quadrature, optima by brute force.

Nothing here imports freshopt. A cost is its c(s) and the ages at which c has a kink or bends, where the
quadrature is split.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Slope = Callable[[Floats], Floats]

mp = mpmath.MPContext()
mp.dps = 34


@dataclass(frozen=True, eq=False)
class AgeCost:
    """c(s) of one source, exactly."""

    at: Callable[[Any], Any]
    bends: tuple[float, ...] = ()

    def integral(self, age: float) -> Any:  # noqa: ANN401 - mpmath numbers
        """∫₀ˢ c."""
        return mp.quad(self.at, [0, *(b for b in self.bends if b < age), mp.mpf(age)])

    def index(self, age: float) -> Any:  # noqa: ANN401
        """s·c(s) − ∫₀ˢ c."""
        return mp.mpf(age) * self.at(mp.mpf(age)) - self.integral(age)

    def poisson(self, rate: float) -> Any:  # noqa: ANN401
        """E c(t/ρ), t standard exponential."""
        return mp.quad(lambda t: mp.exp(-t) * self.at(t / rate), self._knots(rate))

    def poisson_marginal(self, rate: float) -> Any:  # noqa: ANN401
        """The derivative of ∫ρe^{−ρs}c(s) ds, taken under the integral."""
        return mp.quad(lambda t: (t - 1) * mp.exp(-t) * self.at(t / rate), self._knots(rate)) / rate

    def _knots(self, rate: float) -> list[Any]:
        bends = [b * mp.mpf(rate) for b in self.bends]
        return [0, *sorted(x for x in [*bends, mp.mpf(1), mp.mpf(5), mp.mpf(25), mp.mpf(70)] if x < 150), 150]


def power(a: float, e: float, cap: float = np.inf) -> AgeCost:
    if cap == np.inf:
        return AgeCost(lambda s: a * mp.mpf(s) ** mp.mpf(e))
    return AgeCost(
        lambda s: min(a * mp.mpf(s) ** mp.mpf(e), mp.mpf(cap)), (float((mp.mpf(cap) / a) ** (1 / mp.mpf(e))),)
    )


def binary(d: float) -> AgeCost:
    return AgeCost(lambda s: -mp.expm1(-d * mp.mpf(s)), tuple(x / d for x in (1.0, 5.0, 25.0, 70.0)))


def age(d: float) -> AgeCost:
    return AgeCost(
        lambda s: s + mp.expm1(-d * mp.mpf(s)) / d, tuple(x / d for x in (0.1, 1.0, 5.0, 25.0, 70.0))
    )


def piecewise(slopes: list[float], kinks: list[float]) -> AgeCost:
    """A step function: slopes[j] from kinks[j−1] to kinks[j]."""
    return AgeCost(lambda s: mp.mpf(slopes[sum(1 for k in kinks if s > k)]), tuple(kinks))


@dataclass(frozen=True, eq=False)
class Market:
    """Minimise Σ of convex costs with given marginals, under a budget, bounds and host limits."""

    marginal: Slope  # −J' including importance, of all sources at positive rates; falls
    bandwidth: float
    lower: Floats
    upper: Floats
    host: npt.NDArray[np.int64]  # position in `limits`, or −1
    limits: Floats

    def rates(self, price: Floats) -> Floats:
        """Each source's rate at its price by bisection on log ρ from the highest to 1e-60 of it."""
        high = np.log(np.minimum(self.upper, 4.0 * self.bandwidth))
        low = high - 140.0
        for _ in range(64):
            x = 0.5 * (low + high)
            above = self.marginal(np.exp(x)) > price
            low, high = np.where(above, x, low), np.where(above, high, x)
        found = np.where(low <= high - 139.0, 0.0, np.exp(0.5 * (low + high)))
        return np.clip(found, self.lower, self.upper)

    def optimum(self) -> Floats:
        """Rates by bisection on each host's price, then on the common one; jumps are mixed."""
        n = len(self.lower)
        own, own_rates = np.zeros(n), np.full(n, np.nan)
        for h, limit in enumerate(self.limits):
            members = self.host == h
            price, rates = self._clear(self.rates, members, float(limit))
            own, own_rates = np.where(members, price, own), np.where(members, rates, own_rates)

        def both(price: Floats) -> Floats:
            return np.where(own > price, own_rates, self.rates(price))

        return self._clear(both, np.ones(n, dtype=np.bool_), self.bandwidth)[1]

    def _clear(self, demand: Slope, members: npt.NDArray[np.bool_], target: float) -> tuple[float, Floats]:
        n = len(self.lower)
        free = demand(np.full(n, 1e-280))
        if np.sum(free[members]) <= target:
            return 0.0, free
        low, high = -640.0, 640.0
        for _ in range(64):
            x = 0.5 * (low + high)
            more = np.sum(demand(np.full(n, np.exp(x)))[members]) > target
            low, high = (x, high) if more else (low, x)
        generous, frugal = demand(np.full(n, np.exp(low))), demand(np.full(n, np.exp(high)))
        above, below = float(np.sum(generous[members])), float(np.sum(frugal[members]))
        share = (target - below) / (above - below) if above > below else 0.0
        return float(np.exp(high)), frugal + min(1.0, max(0.0, share)) * (generous - frugal)


def market(
    marginal: Slope,
    bandwidth: float,
    n: int,
    *,
    lower: npt.ArrayLike = 0.0,
    upper: npt.ArrayLike = np.inf,
    host: npt.ArrayLike = -1,
    limits: npt.ArrayLike = (),
) -> Market:
    """Fill scalars up to n sources."""

    def full(value: npt.ArrayLike) -> Floats:
        return np.array(np.broadcast_to(np.asarray(value, dtype=float), (n,)))

    return Market(
        marginal, bandwidth, full(lower), full(upper), full(host).astype(np.int64), np.asarray(limits, float)
    )


def cycle_by_sums(number: int, wait: float, recall: float, precision: float) -> tuple[float, float, float]:
    """Return length, stale time and worth of a cycle under noisy signals, by its sums in 45 digits."""
    with mpmath.workdps(45):
        told, p = mpmath.mpf(recall), mpmath.mpf(precision)
        a, g = 1 - told, told / p
        v, b = g - told, -mpmath.log(1 - p) / a
        length = fresh = mpmath.mpf(0)
        for k in range(number + 1):
            y = (number - k) * b + mpmath.mpf(wait)
            length += mpmath.gammainc(k + 1, 0, g * y, regularized=True) / g
            more = v**k / (1 + v) ** (k + 1) * mpmath.gammainc(k + 1, 0, (1 + v) * y, regularized=True)
            fresh += more
            if more < mpmath.mpf(10) ** -35:
                break
        at_end = mpmath.exp(-a * (number * b + mpmath.mpf(wait)))
        return float(length), float(length - fresh), float(fresh - at_end * length)
