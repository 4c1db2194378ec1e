"""Ground truth: optima of small problems, on their own. Nothing here imports freshopt.

`best` finds the optimum of an instance by one bracketing search within another in extended precision, and
proves itself: its value and a dual bound evaluated in 40 digits must agree. The cells are those of
`tests.ground_truth.cell_truth`. Fetches that cost c₁ more where they find a change use c₀ρ + c₁·(changes
found) of the bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.ground_truth import cell_truth
from tests.ground_truth.cell_truth import Wide, mp

Floats = npt.NDArray[np.float64]

PROVED = 1e-15  # largest relative duality gap that `best` accepts of itself


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
    success: Floats
    changed: Floats  # c₁, of a fetch that finds a change, beyond `cost`
    asked: Floats  # requests per time, inf where nothing waits for them
    window: Floats  # of stale-while-revalidate, in time units

    @property
    def announced(self) -> str:
        """How signals are followed: a share of them, or each n-th beside equal gaps of other sources."""
        return "n-th signal" if self.discipline == "periodic" and self.curve != "binary" else "on signal"

    def without_counted(self) -> Instance:
        """Return it without signals of which each n-th is followed: not smooth, and not declared."""
        counted = self.announced == "n-th signal"
        return replace(self, signalled=self.signalled & (not counted))

    def discipline_of(self, k: int) -> str:
        return self.announced if self.signalled[k] else self.discipline

    def caps(self) -> Floats:
        """The upper bounds; a signalled source is refreshed at most once per change, others per request."""
        return np.where(
            self.signalled, np.minimum(self.upper, self.change_rate), np.minimum(self.upper, self.asked)
        )

    def used(self, rates: npt.NDArray[Any]) -> Wide:
        """The bandwidth that each source uses, in extended precision."""
        c, d, r = (
            self.cost.astype(np.longdouble),
            self.change_rate.astype(np.longdouble),
            rates.astype(np.longdouble),
        )
        if not np.any(self.changed):
            return c * r
        with np.errstate(divide="ignore", invalid="ignore"):
            found = cell_truth.changes_found(self.discipline, d, r, np)
        return c * r + np.where(r > 0, self.changed * found, 0)

    def used_slope(self, rates: Wide) -> Wide:
        """The derivative of that by the rate."""
        if not np.any(self.changed):
            return self.cost.astype(np.longdouble)
        d = self.change_rate.astype(np.longdouble)
        return self.cost + self.changed * cell_truth.changes_found_slope(self.discipline, d, rates)


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
    success: npt.ArrayLike = 1.0,
    changed: npt.ArrayLike = 0.0,
    asked: npt.ArrayLike = np.inf,
    window: npt.ArrayLike = 0.0,
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
        full(success),
        full(changed),
        full(asked),
        full(window),
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
            own = problem.change_rate[k], _wide(rates[k]), problem.success[k], problem.asked[k]
            each = cell_truth.cost(problem.curve, problem.discipline_of(k), *own, problem.window[k])
            terms.append(mp.mpf(w) * each)
    return mp.fsum(terms)


def _wide(x: np.longdouble) -> Any:  # noqa: ANN401
    """Return an extended float as an mpmath number without losing its last digits."""
    head = float(x)
    return mp.mpf(head) + mp.mpf(float(x - np.longdouble(head)))


def _slopes(problem: Instance, rate: Wide) -> Wide:
    """−w·J'(ρ) of all sources in extended precision."""
    columns = problem.change_rate, problem.success, problem.asked, problem.window, problem.importance
    d, success, asked, window, w = (column.astype(np.longdouble) for column in columns)
    found = cell_truth.slopes(problem.curve, problem.discipline, d, rate, success, asked, window)
    if np.any(problem.signalled):
        announced = cell_truth.slopes(problem.curve, problem.announced, d, rate, success, asked)
        found = np.where(problem.signalled, announced, found)
    return w * found


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


# Instead of a slope of 0, where a request rate is reached.
_TINY = np.finfo(np.longdouble).tiny


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
        """The rate within bounds at which w·(−J') falls to the price of what more of it uses."""

        def paid(rate: Wide) -> Wide:
            return self.problem.used_slope(rate) * price

        a, b = np.log(self.floor), np.log(np.maximum(self.high, self.floor))
        at_low = _slopes(self.problem, np.exp(a)) <= paid(np.exp(a))
        at_high = _slopes(self.problem, np.exp(b)) >= paid(np.exp(b))
        searched = ~(at_low | at_high)
        a, b = np.where(searched, a, b), np.where(searched, b, b)  # nothing to find at a bound

        def too_dear(x: Wide) -> Wide:
            rate = np.exp(x)
            worth = np.maximum(_slopes(self.problem, rate), _TINY)
            priced = np.where(searched, paid(rate), 1)
            return np.where(searched, np.log(np.where(searched, worth, 1)) - np.log(priced), 0)

        a, b = where_it_falls(too_dear, a, b)
        inner = np.clip(np.exp((a + b) / 2), self.low, self.high)
        return np.where(at_low, self.low, np.where(at_high, self.high, inner))


def best(problem: Instance) -> Optimum:
    """Return the optimum: each host's price is searched for, then the bandwidth's.

    A host that would take more than its limit at price 0 has a price of its own at which it takes exactly
    that; its sources pay the larger of the two prices. That this is optimal is not assumed: the dual bound
    at these prices is evaluated and must equal the value.
    """
    demand = _Demand(problem)
    zero = np.zeros(len(problem.cost), dtype=np.longdouble)
    own, own_rates = zero, demand.rates(zero)
    kappa = np.zeros(len(problem.limits), dtype=np.longdouble)
    for h, limit in enumerate(problem.limits):
        members = problem.host == h
        found = _clear(
            lambda p: demand.rates(zero + p), lambda r, m=members: np.sum(problem.used(r)[m]), limit
        )
        kappa[h] = found[0]
        own, own_rates = np.where(members, found[0], own), np.where(members, found[1], own_rates)

    def rates_at(price: np.longdouble) -> Wide:
        return np.where(own > price, own_rates, demand.rates(zero + price))

    price, rates = _clear(rates_at, lambda r: np.sum(problem.used(r)), problem.bandwidth)
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
    priced = []
    for k, (nu, rate) in enumerate(zip(per_source, wish, strict=True)):
        c, more, d, r = problem.cost[k], problem.changed[k], problem.change_rate[k], _wide(rate)
        found = cell_truth.changes_found(problem.discipline, mp.mpf(d), r, mp) if more and r else 0
        priced.append((mp.mpf(c) * r + mp.mpf(more) * found) * _wide(nu))
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
