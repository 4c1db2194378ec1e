"""Steps and small problems solved over again, by bisection alone. Nothing here imports freshopt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

Floats = npt.NDArray[np.float64]

mp = mpmath.MPContext()
mp.dps = 50


@dataclass(frozen=True, eq=False)
class StepCase:
    """The arguments of a step, in its own order."""

    rates: Floats
    gradient: Floats
    bandwidth: float
    min_rate: Floats
    max_rate: Floats
    learning_rate: float

    def arguments(self) -> tuple[Floats, Floats, float, Floats, Floats, float]:
        return (
            self.rates,
            self.gradient,
            self.bandwidth,
            self.min_rate,
            self.max_rate,
            self.learning_rate,
        )


@st.composite
def step_cases(draw: st.DrawFn, decades: int, largest: int = 7) -> StepCase:
    """Draw steps whose rates and gradients span 2·decades: ties, caps at inf, floors at 0, equal bounds."""
    n = draw(st.integers(1, largest))

    def powers() -> Floats:
        whole = draw(st.lists(st.integers(-decades, decades), min_size=n, max_size=n))
        part = draw(st.lists(st.sampled_from([1.0, 1.7, 3.1, 8.9]), min_size=n, max_size=n))
        return np.array([p * 10.0**e for p, e in zip(part, whole, strict=True)])

    def choose(some: npt.ArrayLike, others: npt.ArrayLike) -> Floats:
        pick = draw(st.lists(st.booleans(), min_size=n, max_size=n))
        return np.where(pick, some, others)

    gradient = powers() * choose(-1.0, 1.0) - draw(st.sampled_from([0.0, 0.0, 10.0**decades]))
    lower = choose(0.0, powers())
    upper = choose(np.inf, lower + choose(0.0, powers()))
    upper = np.where(upper == 0.0, 1.0, upper)  # a rate of 0 is not in the domain of the log barrier
    rates = powers()
    room = draw(st.sampled_from([1e-6, 0.1, 1.0, 30.0])) * 10.0 ** draw(st.integers(-decades, decades))
    bandwidth = float(np.sum(lower)) * (1 + 1e-9) + room
    return StepCase(rates, gradient, bandwidth, lower, upper, draw(st.sampled_from([0.03, 1.0, 7.0])))


def exact_step(case: StepCase, at: Callable[[Any, Any], Any]) -> Floats:
    """Bisect the multiplier in 50 digits; `at(q, s)` is the unconstrained rate for slope s = ηg + λ."""
    rows = [
        [mp.mpf(float(x)) for x in row]
        for row in zip(case.rates, case.gradient, case.min_rate, case.max_rate, strict=True)
    ]
    eta, bandwidth = mp.mpf(case.learning_rate), mp.mpf(case.bandwidth)

    def rates(multiplier: Any) -> list[Any]:  # noqa: ANN401
        return [min(max(at(q, eta * g + multiplier), low), high) for q, g, low, high in rows]

    low, high = mp.mpf(0), mp.mpf(1)
    if sum(rates(low)) <= bandwidth:
        return np.array(rates(low), dtype=float)
    while sum(rates(high)) > bandwidth:
        low, high = high, high * 64
    while high - low > high * mp.mpf(10) ** -40:
        middle = (low + high) / 2
        low, high = (middle, high) if sum(rates(middle)) > bandwidth else (low, middle)
    return np.array(rates(high), dtype=float)


def worst_exchange(case: StepCase, rates: Floats, wish: Floats, noise: Floats) -> float:
    """Return by how much, in units of rounding noise, a small feasible change of the rates would be better.

    `wish` is how each rate still wants to grow (minus the slope of the step's objective); optimal rates
    leave nothing to gain by lowering one, by raising one where bandwidth is left, or by an exchange of two.
    """
    rise, fall = rates < case.max_rate, rates > case.min_rate
    gains = [(-wish / noise)[fall]]
    if np.sum(rates) < case.bandwidth * (1 - 1e-12):
        gains.append((wish / noise)[rise])
    pairs = (wish[rise][:, None] - wish[fall]) / (noise[rise][:, None] + noise[fall])
    return float(np.max(np.concatenate([*gains, pairs.ravel()]), initial=0.0))


Marginal = Callable[[Floats], Floats]


def best_rates(marginal: Marginal, bandwidth: float, lower: Floats, upper: Floats, cost: Floats) -> Floats:
    """Bisect the price, and each rate at each price, on logarithms; marginals strictly falling."""

    def rates(price: float) -> Floats:
        a, b = np.full(len(cost), -60.0), np.full(len(cost), 20.0)
        for _ in range(70):
            x = (a + b) / 2
            rising = marginal(np.exp(x)) > price * cost
            a, b = np.where(rising, x, a), np.where(rising, b, x)
        found = np.where(a <= -60.0, 0.0, np.exp(b))
        return np.clip(found, lower, upper)

    a, b = -80.0, 80.0
    for _ in range(70):
        x = (a + b) / 2
        a, b = (x, b) if float(np.sum(cost * rates(np.exp(x)))) > bandwidth else (a, x)
    return rates(np.exp(b))


# Cost and marginal at importance 1: harmonic, binary and delay; Poisson, then periodic. Straight from the
# definitions; the periodic harmonic marginal is (u − 1 + e^{−u})/Δ with u = Δ/ρ, its cost ∫₀¹ Ein(ut)dt.
def ein_mean(u: Floats) -> Floats:
    points, weights = np.polynomial.legendre.leggauss(200)
    v = (points + 1) / 2  # t = v²: ∫₀¹ (1−t)(1−e^{−ut})/t dt, by parts from ∫₀¹ Ein(ut) dt
    t = v * v
    integrand = -np.expm1(-np.outer(u, t)) * (1 - t) / t
    mean: Floats = integrand @ (weights * v)
    return mean


CELLS: dict[
    tuple[str, str], tuple[Callable[[Floats, Floats], Floats], Callable[[Floats, Floats], Floats]]
] = {
    ("HarmonicStaleness", "POISSON"): (lambda r, d: np.log1p(d / r), lambda r, d: d / (r * (r + d))),
    ("BinaryFreshness", "POISSON"): (lambda r, d: d / (d + r), lambda r, d: d / (d + r) ** 2),
    ("AccumulatedDelay", "POISSON"): (lambda r, d: d / r, lambda r, d: d / r**2),
    ("HarmonicStaleness", "PERIODIC"): (
        lambda r, d: ein_mean(d / r),
        lambda r, d: (d / r + np.expm1(-d / r)) / d,
    ),
    ("BinaryFreshness", "PERIODIC"): (
        lambda r, d: np.where(r > 0, 1 + np.expm1(-d / np.maximum(r, 1e-300)) / d * r, 1.0),
        lambda r, d: (1 - (1 + d / r) * np.exp(-d / r)) / d,
    ),
    ("AccumulatedDelay", "PERIODIC"): (lambda r, d: d / (2 * r), lambda r, d: d / (2 * r**2)),
}
