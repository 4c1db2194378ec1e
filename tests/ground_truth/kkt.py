"""The Karush-Kuhn-Tucker conditions of given rates and prices, checked with marginals of its own.

For convex costs they are sufficient: rates and prices without violations are optimal, whoever found them.
Unlike a certificate, which adds everything up to one number, they name the condition that fails.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import exp1, gammainc

from tests.ground_truth.tolerances import EXACT
from tests.ground_truth.truth import Instance

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Violations:
    """Largest relative violation of each group of conditions; 0 where all hold."""

    primal: float  # bandwidth, bounds, host limits
    dual: float  # prices ≥ 0
    complementarity: float  # a price only on what is used up: price × slack, relative to what is spent
    stationarity: float  # inside bounds marginal = price; at a bound, on its right side

    def worst(self) -> float:
        return max(self.primal, self.dual, self.complementarity, self.stationarity)


def mean_logarithm(u: Floats) -> Floats:
    """Ein(u), the integral of (1 − e^{−t})/t: by quadrature, and of large u by the exponential integral."""
    points, weights = np.polynomial.legendre.leggauss(24)
    x = np.minimum(u, 8.0)[:, None] * (0.5 + 0.5 * points)
    near = 0.5 * np.minimum(u, 8.0) * ((-np.expm1(-x) / np.where(x > 0.0, x, 1.0)) @ weights)
    return np.where(u <= 8.0, near, exp1(np.maximum(u, 8.0)) + np.log(np.maximum(u, 8.0)) + np.euler_gamma)


def index(curve: str, u: Floats) -> Floats:
    """Δ·V of an age at which u changes are expected: the derivative by the rate of periodic costs.

    gammainc(1, u) = 1 − e^{−u} and gammainc(2, u) = 1 − (1+u)e^{−u}.
    """
    if curve == "binary":
        return np.asarray(gammainc(2.0, u))
    return u * u / 2.0 if curve == "count" else np.asarray(u * gammainc(1.0, u) - gammainc(2.0, u))


def on_request(problem: Instance, rates: Floats) -> Floats:
    """V(T) + c(T)/ζ of lifetimes T."""
    d, asked = problem.change_rate, problem.asked
    x = d * (np.maximum(asked - rates, 0.0) / asked / rates)
    here = (
        gammainc(1.0, x)
        if problem.curve == "binary"
        else x
        if problem.curve == "count"
        else mean_logarithm(x)
    )
    return np.asarray(index(problem.curve, x) / d + here / asked)


def of_attempts(problem: Instance, rates: Floats) -> Floats:
    """Σ s²q^{k−1}·V(k/ρ) over the numbers k of equal gaps to a success."""
    s, total = problem.success, np.zeros(len(rates))
    for k in range(1, 2 + int(40.0 / -math.log1p(-min(0.999, float(np.min(s)))))):
        total += s * s * (1.0 - s) ** (k - 1) * index(problem.curve, k * problem.change_rate / rates)
    return total / problem.change_rate


def used(problem: Instance, rates: Floats) -> Floats:
    """The bandwidth of each source: what fetches cost, and those that find a change besides."""
    d, found = problem.change_rate, np.zeros(len(rates))
    some = rates > 0.0
    u = d[some] / rates[some]
    found[some] = rates[some] * (gammainc(1.0, u) if problem.discipline == "periodic" else u / (1.0 + u))
    return np.asarray(problem.cost * rates + problem.changed * found)


def used_per_rate(problem: Instance, rates: Floats) -> Floats:
    """The derivative of that."""
    with np.errstate(divide="ignore"):
        u = problem.change_rate / rates
        found = gammainc(2.0, u) if problem.discipline == "periodic" else 1.0 / (1.0 + 1.0 / u) ** 2
    return np.asarray(problem.cost + problem.changed * found)


def marginals(problem: Instance, rates: Floats) -> Floats:
    """−w·J'(ρ), from the derivatives of the closed forms and the incomplete gamma function."""
    d, r = problem.change_rate, problem.success * rates
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        u = d / r
        if problem.announced == "n-th signal":
            n = np.maximum(np.floor(u), 1.0)
            on_signal = n / d * (1.0 if problem.curve == "harmonic" else (n + 1.0) / 2.0)
        else:
            on_signal = {"binary": 1.0 / d, "harmonic": 1.0 / r, "count": u / r}[problem.curve]
        if problem.discipline == "poisson":
            of_rate = {"binary": 1.0 / d / (1.0 + r / d) ** 2, "harmonic": u / (r + d), "count": u / r}
            plain = problem.success * of_rate[problem.curve]
        elif problem.discipline == "periodic":
            plain = of_attempts(problem, rates)
        else:
            plain = on_request(problem, rates)
        each = np.where(problem.signalled, problem.success * on_signal, plain)
        return np.where(problem.importance > 0.0, problem.importance * each, 0.0)


def violations(problem: Instance, rates: Floats, price: float, host_prices: npt.ArrayLike = ()) -> Violations:
    """Measure every condition."""
    each, lower, upper = used(problem, rates), problem.lower, problem.caps()
    mu = np.asarray(host_prices, dtype=float)
    spent = float(np.sum(each))
    of_host = np.array([np.sum(each[problem.host == h]) for h in range(len(problem.limits))])
    tiny = np.finfo(float).tiny
    reach = np.where(np.isfinite(upper), upper, rates)
    excesses = [
        spent / problem.bandwidth - 1.0,
        *(of_host / problem.limits - 1.0),
        *((lower - rates) / np.maximum(np.maximum(lower, rates), tiny)),
        *((rates - reach) / np.maximum(np.maximum(reach, rates), tiny)),
    ]
    slacks = [
        price * (1.0 - spent / problem.bandwidth) if price > 0.0 else 0.0,
        *(mu * (1.0 - of_host / problem.limits)),
    ]
    paid = used_per_rate(problem, rates) * (price + np.append(mu, 0.0)[problem.host])
    # Near the rate of requests marginal values vanish: the rounding of a rate, and what it was changed by to
    # fill the bandwidth, is many times the marginal value there. The condition holds of a rate beside it.
    # So it does where a rate is that of each n-th signal: marginal values fall there at once.
    steps = problem.announced == "n-th signal" and bool(np.any(problem.signalled))
    beside = EXACT if problem.discipline == "on request" or steps else 0.0
    gain = marginals(problem, np.minimum(rates * (1.0 + beside), upper)) - paid
    loss = paid - marginals(problem, np.maximum(rates * (1.0 - beside), lower))
    too_low = gain * (rates < upper)  # would buy more, and may
    too_high = loss * (rates > lower)  # would sell, and may
    unit = np.where(paid > 0.0, paid, np.maximum(problem.importance / problem.change_rate, 1e-300))
    return Violations(
        primal=max(0.0, *map(float, excesses)),
        dual=max(0.0, -price, *(-mu).tolist()),
        complementarity=max(map(abs, slacks)) / max(price, *mu.tolist(), 1e-300),
        stationarity=max(0.0, float(np.max(np.maximum(too_low, too_high) / unit))),
    )
