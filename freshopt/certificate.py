"""`certify`: a proof of how good rates are, computed from the rates and prices alone.

For any feasible ρ and any prices λ ≥ 0, μ_h ≥ 0, with ν_k = cost_k(λ + μ_h) the price that source k pays,

    F* − F(ρ)  ≤  Σ_k max(0, (ρ̂_k − ρ_k)(f_k'(ρ_k) − ν_k)) + λ(B − Σ cost ρ) + Σ_h μ_h(L_h − S_h),

where f_k' is the marginal and ρ̂_k the rate that source k would buy at its price. It follows from concavity:
the Lagrangian bounds F* from above, and f_k lies below its tangent at ρ_k. Every term is ≥ 0 and no large
numbers are subtracted, so a gap of 1e-15 is a gap, not noise. Whoever produced the rates is not trusted: not
a solver's status, not its prices (poor prices only make the bound poor). One pass over the sources, in
chunks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, as_vector, chunks, exact_sum, read_only, total
from freshopt.cvx import cp
from freshopt.declaration import declare_total
from freshopt.errors import SourceDataError, list_offenders
from freshopt.kernel import Numerics
from freshopt.model import FEW_ULP, Problem

VANISHING = 1e-12  # absolute gap, in units of Σ importance, that counts as none where the optimal cost is 0
PUSH = 1e-6  # of the rate: nearer to it than this, steps outwards grow eightfold, beyond it twofold
_PUSHES = 80  # steps: from 8 ulp up to 1e12 times the rate, before the bound itself is taken
_CANDIDATES = 33  # prices tried when none is given: quantiles of the slopes
_GOLDEN = 90  # golden-section steps between them: 0.618^90 is 1e-19
FULL = 1e-6  # relative slack below which a host's limit is taken to bind when its price is guessed

HostPricing: TypeAlias = Callable[[float], Array]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Certificate:
    """What is proved about some rates.

    Attributes
    ----------
    value : float
        The objective at `rates`, in the declared sense, Σ w_k(·).
    bound : float
        The best value that any rates could have.
    gap : float
        |bound − value|, ≥ 0; inf where nothing is proved.
    relative_gap : float
        gap/(|cost| + λB + Σ μ_h L_h), where the cost of a freshness objective is its stale part.
    infeasibility : float
        Largest relative violation that the rates had before they were repaired; 0 for feasible rates.
    price : float
        The λ that proves the bound.
    host_prices : dict
        The μ_h of each limited host.
    rates : ndarray, shape (n,)
        The repaired rates to which all of this applies.
    reason : str
        Why nothing could be proved, or empty.
    vanishing : bool
        Whether the gap is absolutely negligible for an optimal cost of 0.
    """

    value: float
    bound: float
    gap: float
    relative_gap: float
    infeasibility: float
    price: float
    host_prices: dict[Any, float]
    rates: Array
    reason: str
    vanishing: bool

    def confirms(self, tolerance: float) -> bool:
        """Tell whether the rates are proved optimal to a relative tolerance."""
        return self.relative_gap <= tolerance or self.vanishing

    def __repr__(self) -> str:
        """Return one line: value, bound and gaps."""
        return (
            f"Certificate(value={self.value:.9g}, bound={self.bound:.9g}, gap={self.gap:.3g}, "
            f"relative_gap={self.relative_gap:.3g}, infeasibility={self.infeasibility:.3g})"
        )


def certify(
    problem: Problem,
    rates: npt.ArrayLike,
    price: float | None = None,
    host_prices: Mapping[Any, float] | None = None,
) -> Certificate:
    """Prove how far given rates are from optimal.

    Parameters
    ----------
    problem : Problem
    rates : array_like, shape (n,)
        Refreshes per time unit, from anywhere. Infeasible rates are repaired first: clipped to their bounds,
        then shrunk towards min_rate by host and by bandwidth.
    price : float, optional
        A bandwidth price λ ≥ 0; None searches for the one with the smallest bound.
    host_prices : mapping, optional
        μ_h ≥ 0 of limited hosts, on top of `price`; None derives them from the rates.

    Returns
    -------
    Certificate

    Raises
    ------
    SourceDataError
        If rates or prices are not numbers, negative, or of the wrong length.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.certify(problem, [1.0, 2.0])
    Certificate(value=3, bound=3, gap=0, relative_gap=0, infeasibility=0)
    >>> fo.certify(problem, [1.5, 1.5]).relative_gap > 0.05
    True
    """
    given = as_vector(rates, len(problem.sources), "rates")
    if not bool(np.all(np.isfinite(given))):
        bad = np.flatnonzero(~np.isfinite(given))
        raise SourceDataError(
            f"rates are not finite for {list_offenders(map(problem.sources.label, bad))}. Pass numbers."
        )
    repaired, infeasibility = repair(problem, given)
    if problem.numerics is None:
        return _unproved(problem, repaired, infeasibility)
    pass_ = _Pass(problem, repaired, problem.numerics)
    host_of: HostPricing = pass_.host_prices_at
    if host_prices is not None:
        fixed = _host_vector(problem, host_prices)

        def host_of(_: float) -> Array:
            return fixed

    if price is None:
        price = pass_.best_price(host_of)
    elif not price >= 0.0:
        raise SourceDataError(f"price is {price!r}. A price is a number >= 0.")
    return _summarise(problem, pass_, float(price), host_of(float(price)), infeasibility)


def repair(problem: Problem, rates: Array) -> tuple[Array, float]:
    """Return feasible rates near the given ones, and the largest relative violation that they had.

    Rates are clipped to their bounds, then shrunk towards min_rate by host, then by bandwidth. A sum within a
    few ulp of its limit counts as meeting it.
    """
    cost, lower, upper = problem.sources.cost, problem.lower, problem.upper
    repaired = np.clip(rates, lower, upper)
    worst = 0.0
    if not np.array_equal(repaired, rates):
        off = np.abs(repaired - rates)
        worst = float(np.max(off / np.maximum(np.maximum(repaired, np.abs(rates)), np.finfo(float).tiny)))
    spare = cost * (repaired - lower)
    if len(problem.hosts):
        limits = problem.hosts.limits
        excess = problem.hosts.totals(cost * repaired) - limits
        over = excess > limits * FEW_ULP
        worst = max(worst, float(np.max(np.where(over, excess / limits, 0.0))))
        room = problem.hosts.totals(spare)
        keep = np.where(over, 1.0 - excess / np.where(room > 0.0, room, 1.0), 1.0)
        if bool(np.any(over)):
            repaired = lower + (repaired - lower) * problem.hosts.spread(np.clip(keep, 0.0, 1.0), 1.0)
            spare = cost * (repaired - lower)
    excess_total = total(cost * repaired) - problem.bandwidth
    if excess_total > problem.bandwidth * FEW_ULP:
        worst = max(worst, excess_total / problem.bandwidth)
        repaired = lower + (repaired - lower) * max(0.0, 1.0 - excess_total / total(spare))
    return (rates if worst == 0.0 else read_only(repaired)), worst


class _Pass:
    """The quantities that every price shares: cost and slope at the rates, what is left of the limits."""

    def __init__(self, problem: Problem, rates: Array, numerics: Numerics) -> None:
        cost = problem.sources.cost
        self.problem, self.rates, self.numerics = problem, rates, numerics
        self.slope = np.empty(len(rates))
        costs = []
        for part in chunks(len(rates)):
            piece = numerics.take(part)
            self.slope[part] = piece.marginal(rates[part])
            costs.append(float(np.sum(piece.cost(rates[part]))))
        self.cost = exact_sum(costs)
        self.slack = max(0.0, problem.bandwidth - total(cost * rates))
        self.host_slack = np.maximum(0.0, problem.hosts.limits - problem.hosts.totals(cost * rates))

    def gap(self, price: float, host_prices: Array) -> float:
        """Return the bound on F* − F(ρ) at these prices."""
        problem = self.problem
        each = (
            problem.hosts.spread(host_prices)
            if len(problem.hosts)
            else np.broadcast_to(0.0, self.rates.shape)
        )
        parts = [price * self.slack if price > 0.0 else 0.0, float(np.dot(host_prices, self.host_slack))]
        for part in chunks(len(self.rates)):
            paid = problem.sources.cost[part] * (price + each[part])
            parts.append(float(np.sum(self._terms(part, paid))))
        return exact_sum(parts)

    def _terms(self, part: slice, paid: Array) -> Array:
        """Return max(0, (ρ̂−ρ)(f'(ρ)−ν)) for a chunk, ρ̂ pushed outwards until its marginal has crossed ν."""
        rates, slope = self.rates[part], self.slope[part]
        lower, upper = self.problem.lower[part], self.problem.upper[part]
        numerics = self.numerics.take(part)
        rising = slope > paid
        edge = np.where(rising, upper, lower)
        open_ = (slope != paid) & (rates != edge)
        wish = np.clip(numerics.inverse_marginal(paid), lower, upper)
        with np.errstate(all="ignore"):
            # Outwards from ρ. The inverse may have landed on ρ itself (a kink) or on its wrong side by rounding.
            step = np.where(rising, wish - rates, rates - wish)
            least = PUSH * np.maximum(rates, self.problem.sources.change_rate[part])
            step = np.where(step > 0.0, step, np.maximum(8.0 * np.spacing(rates), 1e-9 * least))
            step = np.where(open_, np.minimum(step, np.abs(edge - rates)), 0.0)
            for _ in range(_PUSHES):
                reached = np.where(rising, rates + step, rates - step)
                at_edge = np.where(rising, reached >= upper, reached <= lower)
                worth = numerics.marginal(reached)
                crossed = np.where(rising, worth <= paid, worth >= paid)
                short = open_ & ~at_edge & ~crossed
                if not bool(np.any(short)):
                    break
                further = np.where(step < least, 8.0 * step, 2.0 * step)
                step = np.where(short, np.minimum(further, np.abs(edge - rates)), step)
            else:
                step = np.where(short, np.abs(edge - rates), step)
            return np.where(open_, step * np.abs(slope - paid), 0.0)

    def host_prices_at(self, price: float) -> Array:
        """Return μ_h suggested by the rates: the median slope of each full host's inner sources, less λ."""
        hosts, problem = self.problem.hosts, self.problem
        prices = np.zeros(len(hosts))
        full = self.host_slack <= FULL * hosts.limits
        if not bool(np.any(full)):
            return prices
        inner = self._inner() & hosts.spread(full.astype(float)).astype(bool)
        where = np.flatnonzero(inner)
        per_cost = self.slope[where] / problem.sources.cost[where]
        order = np.lexsort((per_cost, hosts.codes[where]))
        codes, counts = np.unique(hosts.codes[where], return_counts=True)
        first = np.cumsum(counts) - counts
        prices[codes] = np.maximum(0.0, per_cost[order][first + counts // 2] - price)
        return prices

    def best_price(self, host_of: HostPricing) -> float:
        """Return the price with the smallest bound: quantiles of the slopes, then golden section."""
        inner = self._inner()
        hosts = self.problem.hosts
        free = inner & (hosts.spread(np.asarray(self.host_slack <= FULL * hosts.limits, dtype=float)) == 0.0)
        slopes = self.slope / self.problem.sources.cost
        usable = slopes[(free if bool(np.any(free)) else inner) & np.isfinite(slopes) & (slopes > 0.0)]
        if not len(usable):
            usable = slopes[np.isfinite(slopes) & (slopes > 0.0)]
        if not len(usable):
            return 0.0

        def bound(log_price: float) -> float:
            price = math.exp(log_price)
            return self.gap(price, host_of(price))

        grid = np.unique(np.log(np.quantile(usable, np.linspace(0.0, 1.0, _CANDIDATES), method="nearest")))
        values = [bound(x) for x in grid]
        best = int(np.argmin(values))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        scale = abs(self.cost) + math.exp(grid[best]) * self.problem.bandwidth
        x, smallest = _golden(bound, (float(low), float(high)), (float(grid[best]), values[best]), scale)
        return 0.0 if self.gap(0.0, host_of(0.0)) <= smallest else math.exp(x)

    def _inner(self) -> npt.NDArray[np.bool_]:
        return (self.rates > self.problem.lower) & (self.rates < self.problem.upper)


def _golden(
    bound: Callable[[float], float], bracket: tuple[float, float], seen: tuple[float, float], scale: float
) -> tuple[float, float]:
    """Return the best point seen by a golden-section search, and its bound.

    It stops when the bracket, which can improve the bound by about its width times `scale`, no longer
    matters.
    """
    low, high = bracket
    best, smallest = seen
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = bound(a), bound(b)
    for _ in range(_GOLDEN):
        for x, value in ((a, at_a), (b, at_b)):
            if value < smallest:
                best, smallest = x, value
        if (high - low) * scale <= 1e-3 * smallest or high - low <= 1e-15 * max(1.0, abs(high)):
            break
        if at_a < at_b:
            high, b, at_b = b, a, at_a
            a = high - ratio * (high - low)
            at_a = bound(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + ratio * (high - low)
            at_b = bound(b)
    return best, smallest


def _host_vector(problem: Problem, host_prices: Mapping[Any, float]) -> Array:
    unknown = [repr(host) for host in host_prices if host not in problem.host_limits]
    if unknown:
        raise SourceDataError(
            f"host_prices name hosts without a limit: {list_offenders(unknown)}. Drop them."
        )
    prices = np.array([float(host_prices.get(host, 0.0)) for host in problem.hosts.names])
    if not bool(np.all(prices >= 0.0)):
        raise SourceDataError("host_prices must be numbers >= 0. Correct them.")
    return prices


def _summarise(
    problem: Problem, pass_: _Pass, price: float, host_prices: Array, infeasibility: float
) -> Certificate:
    gap = pass_.gap(price, host_prices)
    cost, objective, sources = pass_.cost, problem.objective, problem.sources
    scale = abs(cost) + price * problem.bandwidth + float(np.dot(host_prices, problem.hosts.limits))
    proved = math.isfinite(gap) and math.isfinite(cost)
    relative = (gap / scale if scale > 0.0 else (0.0 if gap == 0.0 else math.inf)) if proved else math.inf
    named = dict(zip(problem.hosts.names, host_prices.tolist(), strict=True))
    return Certificate(
        value=objective.value_from_cost(cost, sources),
        bound=objective.value_from_cost(cost - gap if proved else -math.inf, sources),
        gap=gap if proved else math.inf,
        relative_gap=relative,
        infeasibility=infeasibility,
        price=price,
        host_prices=named,
        rates=pass_.rates,
        reason="" if proved else "the cost or the bound is infinite at these rates",
        vanishing=proved and cost - gap <= 0.0 and gap <= VANISHING * total(sources.importance),
    )


def _unproved(problem: Problem, rates: Array, infeasibility: float) -> Certificate:
    """Return the value of rates whose objective has an unknown atom; CVXPY evaluates, nothing bounds it."""
    rate = cp.Variable(len(rates), nonneg=True, name="rate")
    declared, _ = declare_total(problem.objective, rate, problem.sources)
    rate.save_value(np.array(rates))
    value = float(declared.value)
    unknown: dict[Any, float] = dict.fromkeys(problem.hosts.names, math.nan)
    return Certificate(
        value=value,
        bound=problem.objective.value_from_cost(-math.inf, problem.sources),
        gap=math.inf,
        relative_gap=math.inf,
        infeasibility=infeasibility,
        price=math.nan,
        host_prices=unknown,
        rates=rates,
        reason=problem.unknown_atom,
        vanishing=False,
    )
