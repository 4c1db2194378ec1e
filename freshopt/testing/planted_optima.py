"""Planted optima: importances chosen to make given rates optimal.

A source inside its bounds is optimal if its marginal w·m(ρ) equals what it pays, ν = cost·(λ + μ_host); at
its lower bound the marginal may be smaller, at its upper bound larger. So for chosen rates, prices and
positions, w = ν/m(ρ) times 1, less than 1, or more than 1 gives a problem whose optimum is known, with
bandwidth Σ cost·ρ and limits to match. Sufficient by convexity: the Karush-Kuhn-Tucker conditions hold. The
cells below are the closed forms of the definitions, written out once more: nothing of the objectives under
test is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.heavy import special
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.problems import (
    AccumulatedDelay,
    Age,
    BinaryFreshness,
    HarmonicStaleness,
    LogFreshness,
    PollingKnapsack,
    PowerCost,
    SynchronizationCost,
)

# Exponent of the power costs.
EXPONENT = 0.5
# Euler's constant γ in Ein(u) = γ + log u + E₁(u).
EULER_GAMMA = 0.57721566490153286


@frozen_value()
class KnownOptimum:
    """A problem with analytically known optimal rates.

    Attributes
    ----------
    name : str
    origin : str
        The equation or the argument.
    problem : Problem
    rates : ndarray, shape (n,)
        Refreshes per time unit; unique.
    value : float
        In the declared sense, Σ w_k(·), from the closed form at these rates.
    price : float or None
        None where it is not unique or not part of the argument.
    host_prices : dict
        On top of `price`, of each limited host.
    """

    name: str
    origin: str
    problem: Problem
    rates: Array
    value: float
    price: float | None
    host_prices: dict[Any, float]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cell:
    """One objective under one discipline, by its closed forms.

    - `value`: (Δ, ρ) to the objective of a source of importance 1, in the declared sense.
    - `marginal`: (Δ, ρ) to the marginal value at importance 1, > 0 and decreasing in ρ.
    """

    name: str
    origin: str
    objective: Objective
    value: Callable[[Array, Array], Array]
    marginal: Callable[[Array, Array], Array]
    signalled: bool = False

    def __repr__(self) -> str:
        return f"<{self.name}>"


def plant(cell: Cell, seed: int, n: int = 8, *, constrained: bool = False) -> KnownOptimum:
    """Return a problem with a planted optimum.

    Examples
    --------
    >>> import freshopt as fo
    >>> known = plant(CELLS[0], seed=1, n=3)
    >>> known.name, bool(np.allclose(fo.solve(known.problem).rates, known.rates, rtol=1e-9, atol=0.0))
    ('binary freshness, Poisson, inside bounds', True)
    """
    rng = np.random.default_rng([seed, n, int(constrained)])
    d = rng.lognormal(0.0, 1.0, n)
    rates = d * (rng.uniform(0.1, 0.9, n) if cell.signalled else 10.0 ** rng.uniform(-0.7, 0.7, n))
    price = float(10.0 ** rng.uniform(-1.0, 1.0))
    cost, push, extra = np.ones(n), np.ones(n), np.zeros(n)
    lower, upper = np.zeros(n), np.full(n, np.inf)
    host, limits, host_prices = np.where(np.arange(n) % 3 == 1, "slow", "free"), {}, {}
    if constrained:
        cost = rng.uniform(0.5, 2.0, n)
        position = np.arange(n) % 4  # 0, 1 inside; 2 at the lower bound; 3 at the upper bound
        push = np.select(
            [position == 2, position == 3], [rng.uniform(0.2, 0.9, n), rng.uniform(1.1, 5.0, n)], 1.0
        )
        lower, upper = np.where(position == 2, rates, lower), np.where(position == 3, rates, upper)
        extra = np.where(host == "slow", price * rng.uniform(0.2, 2.0), 0.0)
    if constrained and n > 1:  # the second source, inside its bounds, makes the host's price unique
        host_prices = {"slow": float(extra[1])}
        limits = {"slow": math.fsum((cost * rates)[host == "slow"])}
    weight = push * cost * (price + extra) / cell.marginal(d, rates)
    sources = Sources(
        d, weight, host=host, signalled=cell.signalled, min_rate=lower, max_rate=upper, refresh_cost=cost
    )
    return KnownOptimum(
        name=f"{cell.name}, {'with bounds, costs and a host' if constrained else 'inside bounds'}",
        origin=f"planted: importance·marginal is cost·(price + host's price). {cell.origin}",
        problem=Problem(cell.objective, sources, math.fsum(cost * rates), limits),
        rates=rates,
        value=math.fsum(weight * cell.value(d, rates)),
        price=price,
        host_prices=host_prices,
    )


def _ein(u: Array) -> Array:
    """Return Ein(u) = ∫₀ᵘ (1 − e^{−t})/t dt, moderate u."""
    return np.asarray(EULER_GAMMA + np.log(u) + special.exp1(u), dtype=np.float64)


def _stale_share(d: Array, r: Array) -> Array:
    """Return the stale share of a period, 1 − (1 − e^{−u})/u."""
    u = d / r
    return 1.0 + np.expm1(-u) / u


def _binary_index(d: Array, r: Array) -> Array:
    u = d / r
    return (1.0 - np.exp(-u) * (1.0 + u)) / d


def _age_index(d: Array, r: Array) -> Array:
    u = d / r
    return (u * u / 2.0 + u * np.exp(-u) + np.expm1(-u)) / (d * d)


_TO_CRAWL = "Upadhyay et al., AAAI 2020, "
_LAMBDA = "Kolobov et al., NeurIPS 2019, "
_CHO = "Cho & Garcia-Molina 2003, section 4: "
_SYNC = "Kolobov et al., ICML 2020, Eq 7: "

CELLS = (
    Cell(
        "binary freshness, Poisson",
        _TO_CRAWL + "Eq 5: fresh with probability ρ/(Δ + ρ)",
        BinaryFreshness(Refresh.POISSON),
        lambda d, r: r / (d + r),
        lambda d, r: d / (d + r) ** 2,
    ),
    Cell(
        "binary freshness, periodic",
        _CHO + "fresh for (1 − e^{−u})/u of a period, u = Δ/ρ",
        BinaryFreshness(Refresh.PERIODIC),
        lambda d, r: 1.0 - _stale_share(d, r),
        _binary_index,
    ),
    Cell(
        "harmonic staleness, Poisson",
        _LAMBDA + "Eq 4 and 5: log(1 + Δ/ρ)",
        HarmonicStaleness(Refresh.POISSON),
        lambda d, r: np.log1p(d / r),
        lambda d, r: d / (r * (r + d)),
    ),
    Cell(
        "harmonic staleness, periodic",
        "the mean of Ein over a period: Ein(u) − 1 + (1 − e^{−u})/u, u = Δ/ρ",
        HarmonicStaleness(Refresh.PERIODIC),
        lambda d, r: _ein(d / r) - _stale_share(d, r),
        lambda d, r: (d / r + np.expm1(-d / r)) / d,
    ),
    Cell(
        "harmonic staleness, on signal",
        _LAMBDA + "Eq 8: −log p, p = ρ/Δ",
        HarmonicStaleness(Refresh.POISSON),
        lambda d, r: np.log(d / r),
        lambda _, r: 1.0 / r,
        signalled=True,
    ),
    Cell(
        "log freshness, periodic",
        "minus the logarithm of a period's fresh share: −log((1 − e^{−u})/u), u = Δ/ρ",
        LogFreshness(Refresh.PERIODIC),
        lambda d, r: -np.log1p(-_stale_share(d, r)),
        lambda d, r: _binary_index(d, r) / (1.0 - _stale_share(d, r)),
    ),
    Cell(
        "accumulated delay, Poisson",
        _TO_CRAWL + "Eq 25: Δ/ρ",
        AccumulatedDelay(Refresh.POISSON),
        lambda d, r: d / r,
        lambda d, r: d / (r * r),
    ),
    Cell(
        "accumulated delay, periodic",
        "the mean of Δs over a period: Δ/(2ρ)",
        AccumulatedDelay(Refresh.PERIODIC),
        lambda d, r: d / (2.0 * r),
        lambda d, r: d / (2.0 * r * r),
    ),
    Cell(
        "age, Poisson",
        "the mean of s − (1 − e^{−Δs})/Δ over exponential ages: Δ/(ρ(ρ + Δ))",
        Age(Refresh.POISSON),
        lambda d, r: d / (r * (r + d)),
        lambda d, r: d * (2.0 * r + d) / (r * (r + d)) ** 2,
    ),
    Cell(
        "age, periodic",
        "the mean of the same over a period: 1/(2ρ) − 1/Δ + ρ(1 − e^{−u})/Δ², u = Δ/ρ",
        Age(Refresh.PERIODIC),
        lambda d, r: 1.0 / (2.0 * r) - _stale_share(d, r) / d,
        _age_index,
    ),
    Cell(
        "square root of the age, Poisson",
        _SYNC + "Γ(3/2)/√ρ",
        SynchronizationCost(PowerCost(1.0, EXPONENT), Refresh.POISSON),
        lambda _, r: math.gamma(1.0 + EXPONENT) * r**-EXPONENT,
        lambda _, r: EXPONENT * math.gamma(1.0 + EXPONENT) * r ** (-EXPONENT - 1.0),
    ),
    Cell(
        "square root of the age, periodic",
        _SYNC + "1/(1.5·√ρ)",
        SynchronizationCost(PowerCost(1.0, EXPONENT)),
        lambda _, r: r**-EXPONENT / (1.0 + EXPONENT),
        lambda _, r: EXPONENT / (1.0 + EXPONENT) * r ** (-EXPONENT - 1.0),
    ),
    Cell(
        "polling knapsack",
        "Granmo & Oommen 2010: x(1 − q^{1/x}), −log q = Δ",
        PollingKnapsack("polls"),
        lambda a, x: -x * np.expm1(-a / x),
        lambda a, x: a * _binary_index(a, x),
    ),
)
