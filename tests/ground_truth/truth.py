"""Ground truth: the mathematics once more, on its own, from the definitions. Nothing here imports freshopt.

A cost curve c(s) says what a copy of age s costs; a discipline turns a rate into ages. `cost_by_definition`
integrates or sums exactly that in 40 digits; `cost` has the closed forms, for speed, and the tests compare
the two. `best` finds the optimum of an instance by one bracketing search within another in extended
precision, and proves itself: its value and a dual bound evaluated in 40 digits must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Wide = npt.NDArray[np.longdouble]

CURVES = ("binary", "harmonic", "count")
DISCIPLINES = ("poisson", "periodic", "on signal")
PROVED = 1e-15  # largest relative duality gap that `best` accepts of itself

mp = mpmath.MPContext()
mp.dps = 40


def age_cost(curve: str, change_rate: float, age: Any) -> Any:  # noqa: ANN401 - mpmath numbers
    """c(s) = E C(N), N Poisson of mean Δs: C(N) is [N ≥ 1], the harmonic number of N, or N."""
    mean = mp.mpf(change_rate) * age
    if curve == "binary":
        return -mp.expm1(-mean)
    if curve == "count":
        return mean
    return _ein(mean)  # = E H(N), as the tests show by summing that


def cost_by_definition(curve: str, discipline: str, change_rate: float, rate: float) -> Any:  # noqa: ANN401
    """J(ρ): the mean of c over exponential ages, over one period, or over the geometric number of misses."""
    r = mp.mpf(rate)
    if discipline == "poisson":
        return mp.quad(lambda t: mp.exp(-t) * age_cost(curve, change_rate, t / r), [0, 1, 4, 16, 40, 100])
    if discipline == "periodic":
        return mp.quad(lambda t: age_cost(curve, change_rate, t / r), [0, 0.5, 1])
    p = r / mp.mpf(change_rate)
    of_missed = {"binary": lambda _: 1, "harmonic": mp.harmonic, "count": lambda m: m}[curve]
    return mp.nsum(lambda m: p * (1 - p) ** m * of_missed(m), [1, mp.inf])


def cost(curve: str, discipline: str, change_rate: float, rate: float) -> Any:  # noqa: ANN401
    """J(ρ) in closed form, exact in 40 digits for ratios up to 1e±12 and well beyond."""
    with mp.workdps(80):
        d, r = mp.mpf(change_rate), mp.mpf(rate)
        if r == 0:
            return mp.mpf(1) if curve == "binary" else mp.inf
        u = d / r
        if discipline == "on signal":
            return {"binary": 1 - r / d, "harmonic": mp.log(u), "count": u - 1}[curve]
        if discipline == "poisson":
            return {"binary": d / (d + r), "harmonic": mp.log(1 + u), "count": u}[curve]
        if curve == "count":
            return u / 2
        mean_stale = 1 + mp.expm1(-u) / u
        if curve == "binary":
            return mean_stale
        return _ein(u) - mean_stale


def marginal(curve: str, discipline: str, change_rate: float, rate: float) -> Any:  # noqa: ANN401
    """−J'(ρ) by differentiating `cost` numerically in 80 digits."""
    r = mp.mpf(rate)
    with mp.workdps(80):
        h = r * mp.mpf(10) ** -20
        return (cost(curve, discipline, change_rate, r - h) - cost(curve, discipline, change_rate, r + h)) / (
            2 * h
        )


def _ein(u: Any) -> Any:  # noqa: ANN401
    """Ein(u): its series where that is short, the exponential integral beyond."""
    if u < 1:
        return u * mp.hyp2f2(1, 1, 2, 2, -u)  # Σ −(−u)^k/(k!·k)
    return mp.e1(u) + mp.log(u) + mp.euler


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem in plain arrays: minimise Σ w·J(ρ) under bandwidth, bounds and host limits."""

    curve: str
    discipline: str  # of the sources that are not signalled
    change_rate: Floats
    importance: Floats
    bandwidth: float
    lower: Floats
    upper: Floats
    cost: Floats
    signalled: npt.NDArray[np.bool_]
    host: npt.NDArray[np.int64]  # position in `limits`, or −1
    limits: Floats

    def discipline_of(self, k: int) -> str:
        return "on signal" if self.signalled[k] else self.discipline

    def caps(self) -> Floats:
        """The upper bounds; a signalled source is refreshed at most once per change."""
        return np.where(self.signalled, np.minimum(self.upper, self.change_rate), self.upper)


def instance(
    curve: str,
    discipline: str,
    change_rate: npt.ArrayLike,
    bandwidth: float,
    *,
    importance: npt.ArrayLike = 1.0,
    lower: npt.ArrayLike = 0.0,
    upper: npt.ArrayLike = np.inf,
    cost: npt.ArrayLike = 1.0,
    signalled: npt.ArrayLike = False,
    host: npt.ArrayLike = -1,
    limits: npt.ArrayLike = (),
) -> Instance:
    """Fill scalars up to the number of change rates."""
    d = np.atleast_1d(np.asarray(change_rate, dtype=float))

    def full(value: npt.ArrayLike) -> Floats:
        return np.array(np.broadcast_to(np.asarray(value, dtype=float), d.shape))

    return Instance(
        curve,
        discipline,
        d,
        full(importance),
        float(bandwidth),
        full(lower),
        full(upper),
        full(cost),
        full(signalled).astype(bool),
        full(host).astype(np.int64),
        np.asarray(limits, dtype=float),
    )


@dataclass(frozen=True, eq=False)
class Optimum:
    """Optimal Σ w·J (a cost, also where freshness is maximised), rates and prices, and the proof's gap."""

    value: float
    rates: Floats
    price: float
    host_prices: Floats
    scale: float  # |value| + λB + Σ μL: what relative gaps are relative to
    gap: float  # of its own primal and dual value, relative to scale


def total_cost(problem: Instance, rates: npt.ArrayLike) -> float:
    """Σ w·J(ρ) in 40 digits, rounded once; a source of no importance costs nothing."""
    return float(_total(problem, np.asarray(rates, dtype=float)))


def _total(problem: Instance, rates: npt.NDArray[Any]) -> Any:  # noqa: ANN401
    terms = [mp.mpf(0)]
    for k, w in enumerate(problem.importance):
        if w > 0:
            each = cost(problem.curve, problem.discipline_of(k), problem.change_rate[k], _wide(rates[k]))
            terms.append(mp.mpf(w) * each)
    return mp.fsum(terms)


def _wide(x: np.longdouble) -> Any:  # noqa: ANN401
    """Return an extended float as an mpmath number without losing its last digits."""
    head = float(x)
    return mp.mpf(head) + mp.mpf(float(x - np.longdouble(head)))


def _slopes(problem: Instance, rate: Wide) -> Wide:
    """−w·J'(ρ) of all sources in extended precision, by cancellation-free forms."""
    d, w = problem.change_rate.astype(np.longdouble), problem.importance.astype(np.longdouble)
    signal = {"binary": 1 / d, "harmonic": 1 / rate, "count": d / rate / rate}[problem.curve]
    if problem.discipline == "poisson":
        plain = {
            "binary": d / (d + rate) ** 2,
            "harmonic": d / rate / (rate + d),
            "count": d / rate / rate,
        }[problem.curve]
    else:
        u = d / rate
        plain = _tail(u, problem.curve) / d if problem.curve != "count" else u / rate / 2
    return w * np.where(problem.signalled, signal, plain)


# 1/k! and (k−1)/k! from k = 2 on; 0.5^18/18! is 1e-21, where the sums end.
_ORDERS = np.arange(2, 18, dtype=np.longdouble)
_SERIES = {
    "binary": 1 / np.cumprod(_ORDERS),
    "harmonic": (_ORDERS - 1) / np.cumprod(_ORDERS),
}


def _tail(u: Wide, curve: str) -> Wide:
    """1−(1+u)e^{−u} = e^{−u}Σ_{k≥2} u^k/k!, and u−1+e^{−u} = e^{−u}Σ_{k≥2} (k−1)u^k/k!: no cancellation."""
    x = np.minimum(u, np.longdouble(0.5))
    powers = np.cumprod(np.broadcast_to(x, (len(_SERIES[curve]) + 1, *x.shape)), axis=0)[1:]
    series = np.sum(_SERIES[curve][:, np.newaxis] * powers, axis=0)
    large = 1 - (1 + u) * np.exp(-u) if curve == "binary" else u - 1 + np.exp(-u)
    return np.where(u <= 0.5, np.exp(-x) * series, large)


def where_it_falls(excess: Callable[[Wide], Wide], low: Wide, high: Wide) -> tuple[Wide, Wide]:
    """Brackets a few ulp wide of where falling functions stop being above 0.

    Inverse quadratic interpolation where it can be trusted, else bisection (Chandrupatla 1997): a dozen steps
    where the functions are smooth. ``excess`` is above 0 at ``low`` and is not at ``high``.
    """
    ulp = np.finfo(np.longdouble).eps * np.maximum(1, np.maximum(abs(low), abs(high)))
    x1, x2, f1, f2 = high, low, excess(high), excess(low)
    t: Any = np.full_like(low, 0.5)
    while True:
        x = x1 + t * (x2 - x1)
        f = excess(x)
        same = (f > 0) == (f1 > 0)
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(same, x2, x1), np.where(same, f2, f1)
        x1, f1 = x, f
        span = abs(x2 - x1)
        if np.all(span <= 4 * ulp):
            return np.minimum(x1, x2), np.maximum(x1, x2)
        least = np.minimum(ulp / np.maximum(span, ulp), 0.5)
        with np.errstate(divide="ignore", invalid="ignore"):  # those are bisected
            xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
            t = f1 / (f2 - f1) * f3 / (f2 - f3) + (x3 - x1) / (x2 - x1) * f1 / (f3 - f1) * f2 / (f3 - f2)
            trusted = (phi * phi < xi) & ((1 - phi) * (1 - phi) < 1 - xi) & np.isfinite(t)
        t = np.where(trusted, np.clip(t, least, 1 - least), 0.5)


class _Demand:
    """Rates at prices, by a search on log ρ between bounds that hold every optimal rate."""

    def __init__(self, problem: Instance) -> None:
        self.problem = problem
        # No feasible rate exceeds B/cost; twice that still shows every demand that breaks the budget.
        most = 2 * problem.bandwidth / problem.cost
        self.low = problem.lower.astype(np.longdouble)
        self.high = np.minimum(problem.caps(), np.maximum(most, problem.lower)).astype(np.longdouble)
        least = np.longdouble(1e-60) * np.minimum(problem.change_rate, most)
        self.floor = np.minimum(np.maximum(self.low, least), np.maximum(self.high, least))

    def rates(self, price: Wide) -> Wide:
        """The rate at which w·(−J') falls to cost·price, within the bounds."""
        paid = self.problem.cost.astype(np.longdouble) * price
        a, b = np.log(self.floor), np.log(np.maximum(self.high, self.floor))
        at_low = _slopes(self.problem, np.exp(a)) <= paid
        at_high = _slopes(self.problem, np.exp(b)) >= paid
        searched = ~(at_low | at_high)
        a, b = np.where(searched, a, b), np.where(searched, b, b)  # nothing to find at a bound

        def too_dear(x: Wide) -> Wide:
            worth = _slopes(self.problem, np.exp(x))
            return np.where(searched, np.log(np.where(searched, worth, 1) / np.where(searched, paid, 1)), 0)

        a, b = where_it_falls(too_dear, a, b)
        inner = np.clip(np.exp((a + b) / 2), self.low, self.high)
        return np.where(at_low, self.low, np.where(at_high, self.high, inner))


def best(problem: Instance) -> Optimum:
    """Return the optimum: each host's price is searched for, then the bandwidth's.

    A host that would take more than its limit at price 0 has a price of its own at which it takes exactly
    that; its sources pay the larger of the two prices. That this is optimal is not assumed: the dual bound
    at these prices is evaluated and must equal the value.
    """
    demand, c = _Demand(problem), problem.cost.astype(np.longdouble)
    zero = np.zeros(len(c), dtype=np.longdouble)
    own, own_rates = zero, demand.rates(zero)
    kappa = np.zeros(len(problem.limits), dtype=np.longdouble)
    for h, limit in enumerate(problem.limits):
        members = problem.host == h
        found = _clear(lambda p: demand.rates(zero + p), lambda r, m=members: np.sum(c[m] * r[m]), limit)
        kappa[h] = found[0]
        own, own_rates = np.where(members, found[0], own), np.where(members, found[1], own_rates)

    def rates_at(price: np.longdouble) -> Wide:
        return np.where(own > price, own_rates, demand.rates(zero + price))

    price, rates = _clear(rates_at, lambda r: np.sum(c * r), problem.bandwidth)
    excess = np.maximum(kappa - price, 0)
    value = _total(problem, rates)
    scale = abs(value) + _wide(price) * problem.bandwidth
    scale += mp.fsum(_wide(m) * mp.mpf(limit) for m, limit in zip(excess, problem.limits, strict=True))
    gap = value - _dual(problem, demand, price, excess)
    relative = float(gap / scale) if scale > 0 else float(gap)
    if not -PROVED <= relative <= PROVED:
        raise AssertionError(f"the ground truth does not prove itself: gap {relative:g} of {problem}")
    return Optimum(
        float(value), rates.astype(float), float(price), excess.astype(float), float(scale), relative
    )


def _dual(problem: Instance, demand: _Demand, price: np.longdouble, excess: Wide) -> Any:  # noqa: ANN401
    """min over ρ within bounds of the Lagrangian: a lower bound on every feasible cost."""
    per_source = price + np.append(excess, np.longdouble(0))[problem.host]
    wish = demand.rates(per_source)
    priced = [
        mp.mpf(c) * _wide(nu) * _wide(r) for c, nu, r in zip(problem.cost, per_source, wish, strict=True)
    ]
    limits = [_wide(m) * mp.mpf(limit) for m, limit in zip(excess, problem.limits, strict=True)]
    return _total(problem, wish) + mp.fsum(priced) - _wide(price) * problem.bandwidth - mp.fsum(limits)


def _clear(rates_at: Any, used: Any, target: float) -> tuple[np.longdouble, Wide]:  # noqa: ANN401
    """Search for the price where demand meets the target; at a jump mix both sides so that it is met."""
    free: Wide = rates_at(np.longdouble(0))
    if used(free) <= target:
        return np.longdouble(0), free

    def too_much(x: Wide) -> Wide:
        found = used(rates_at(np.exp(x))) / np.longdouble(target)
        return np.atleast_1d(np.log(np.maximum(found, np.longdouble(1e-300))))

    ends = np.array([-600], dtype=np.longdouble), np.array([600], dtype=np.longdouble)
    (a,), (b,) = where_it_falls(too_much, *ends)
    generous, frugal = rates_at(np.exp(a)), rates_at(np.exp(b))
    span = used(generous) - used(frugal)
    share = np.clip((target - used(frugal)) / span, 0, 1) if span > 0 else np.longdouble(0)
    mixed: Wide = frugal + share * (generous - frugal)
    return np.exp(b), mixed
