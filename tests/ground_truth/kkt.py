"""The Karush-Kuhn-Tucker conditions of given rates and prices, checked with marginals of its own.

For convex costs they are sufficient: rates and prices without violations are optimal, whoever found them.
Unlike a certificate, which adds everything up to one number, they name the condition that fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc

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


def marginals(problem: Instance, rates: Floats) -> Floats:
    """−w·J'(ρ), from the derivatives of the closed forms and the incomplete gamma function."""
    d, r = problem.change_rate, rates
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        u = d / r
        on_signal = {"binary": 1.0 / d, "harmonic": 1.0 / r, "count": u / r}[problem.curve]
        if problem.discipline == "poisson":
            plain = {"binary": 1.0 / d / (1.0 + r / d) ** 2, "harmonic": u / (r + d), "count": u / r}
        else:
            # gammainc(1, u) = 1 − e^{−u} and gammainc(2, u) = 1 − (1+u)e^{−u}
            index = u * gammainc(1.0, u) - gammainc(2.0, u)
            plain = {"binary": gammainc(2.0, u) / d, "harmonic": index / d, "count": u / r / 2.0}
        each = np.where(problem.signalled, on_signal, plain[problem.curve])
        return np.where(problem.importance > 0.0, problem.importance * each, 0.0)


def violations(problem: Instance, rates: Floats, price: float, host_prices: npt.ArrayLike = ()) -> Violations:
    """Measure every condition."""
    cost, lower, upper = problem.cost, problem.lower, problem.caps()
    mu = np.asarray(host_prices, dtype=float)
    spent = float(np.sum(cost * rates))
    of_host = np.array([np.sum((cost * rates)[problem.host == h]) for h in range(len(problem.limits))])
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
    paid = cost * (price + np.append(mu, 0.0)[problem.host])
    worth = marginals(problem, rates)
    too_low = (worth - paid) * (rates < upper)  # would buy more, and may
    too_high = (paid - worth) * (rates > lower)  # would sell, and may
    unit = np.where(paid > 0.0, paid, np.maximum(problem.importance / problem.change_rate, 1e-300))
    return Violations(
        primal=max(0.0, *map(float, excesses)),
        dual=max(0.0, -price, *(-mu).tolist()),
        complementarity=max(map(abs, slacks)) / max(price, *mu.tolist(), 1e-300),
        stationarity=max(0.0, float(np.max(np.maximum(too_low, too_high) / unit))),
    )
