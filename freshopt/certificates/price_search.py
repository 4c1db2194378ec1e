"""Prices with a small duality-gap bound: minimisers on a logarithmic scale.

The bound has several valleys where rates are far from optimal. A grid finds them, golden section searches the
deepest. Of many sources a sample tells where they are, and a few dozen compiled proofs of all the price.

Compiled proofs bound by tangents at the rates, which overstate what better ones gain where a marginal value
falls by orders of magnitude in between. The Lagrangian dual function, D(λ) = F(ρ̂) + λ(B − Σ cost·ρ̂) at the
best responses ρ̂ to λ, is least where these use up the bandwidth, and there it is F*: the gap is then the true
one (`freshopt.certificates.best_response`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from freshopt.certificates.duality_gap import Gap
from freshopt.compiled.proof_columns import ProofColumns
from freshopt.numerics.arrays import Array, chunks, read_only, total

OnTop: TypeAlias = Callable[[float], Array]

# At most so many valleys of the bound are searched.
_VALLEYS = 2
# A valley whose bound on the grid exceeds the deepest one's by this factor is not searched.
_SHALLOW = 1.25
# So many steps of golden section narrow a bracket by 0.618^90, which is 1e-19.
_GOLDEN = 90
# No other price improves on a bound below this share of the cost, or what is at stake, by more than rounding.
NEGLIGIBLE = 1e-15
_RATIO = (math.sqrt(5.0) - 1.0) / 2.0
# Sources of the sample, and prices of its grid that are tried on all.
SAMPLE, TRIED = 20_000, 12
# Nats between the first prices tried around the sample's, and how often the distance may double.
_NEAR, _DOUBLINGS = 0.02, 24
# A bracket whose ends are no more than this above the middle holds no price that is much better.
_FLAT = 1.5
# Of a smaller gap, beside the cost, the tangents' best price is good enough.
LOOSE = 1e-2
# Best responses use the bandwidth up to this, of which the dual function has the square.
NEAR = 1e-3
# Demands at most, of the sample and of all sources.
TURNS = 40
# Nats of a first step.
REACH = 2.0


def stride_of(columns: ProofColumns) -> int:
    """Return the distance between sources of the sample."""
    return max(1, columns.n // SAMPLE)


def sampled_price(gap: Gap, columns: ProofColumns, grid: Array, on_top: OnTop) -> float:
    """Return a price with a small bound, by few passes.

    - `columns`: Its sources.
    - `grid`: Logarithms of likely prices, ascending.
    - `on_top`: Returns the hosts' prices on top of a price, shape (H,).
    """
    every = bound_of(gap, columns, on_top)
    whole, few = _of_log(every), _of_log(bound_of(gap, columns, on_top, stride_of(columns)))
    found, _ = minimise(lambda x: np.array([few(float(x[0]))]), grid[None])
    tried = grid[np.unique(np.linspace(0, len(grid) - 1, TRIED).astype(np.int64))]
    first = min([float(found[0]), *map(float, tried)], key=whole)
    best, smallest = _settle(whole, first, NEGLIGIBLE * abs(gap.cost))
    return 0.0 if every(0.0) <= smallest else math.exp(best)


def settled(bound: Callable[[float], float], price: float, enough: float) -> float:
    """Return a nearby price with the least bound, or `enough`."""
    return math.exp(_settle(_of_log(bound), math.log(price), enough)[0])


def bound_of(gap: Gap, columns: ProofColumns, on_top: OnTop, stride: int = 1) -> Callable[[float], float]:
    """Return the compiled bound as a function of the price.

    It is that of every `stride`-th source, and of as much of what limits leave.
    """
    hosts, rates = gap.problem.hosts, read_only(np.ascontiguousarray(gap.rates[::stride]))
    codes, kept = hosts.codes, np.arange(len(hosts))
    if stride > 1:
        columns, codes = columns.sample(stride), hosts.codes[::stride]
        # Only the hosts of the sample, and of each source the position of its host among these.
        kept = np.unique(codes[codes < len(hosts)])
        codes = read_only(np.searchsorted(kept, codes))

    def bound(price: float) -> float:
        own = on_top(price)
        unused = (price * gap.slack if price > 0.0 else 0.0) + float(np.sum(own * gap.host_slack))
        proof = columns.prove_hosts(rates, price, own[kept], codes) if len(hosts) else None
        return (columns.prove(rates, price) if proof is None else proof).gap + unused / stride

    return bound


def _of_log(bound: Callable[[float], float]) -> Callable[[float], float]:
    """Return a bound of the price's logarithm that keeps its values."""
    known: dict[float, float] = {}

    def of_log(log_price: float) -> float:
        if log_price not in known:
            gap_bound = bound(math.exp(log_price))
            known[log_price] = math.inf if math.isnan(gap_bound) else gap_bound
        return known[log_price]

    return of_log


def _settle(bound: Callable[[float], float], x: float, enough: float) -> tuple[float, float]:
    """Return a minimiser near x, and its bound.

    It is the least to a factor of `_FLAT` or so; a bound of `enough` will do.
    """
    low, high = x - _NEAR, x + _NEAR
    for _ in range(_DOUBLINGS):
        if bound(x) <= enough or bound(x) <= min(bound(low), bound(high)):
            break
        low, x, high = (
            (x - 3.0 * (x - low), low, x) if bound(low) < bound(high) else (x, high, x + 3.0 * (high - x))
        )
    for _ in range(_GOLDEN):
        narrow = high - low <= 1e-15 * max(1.0, abs(x))
        if bound(x) <= enough or narrow or max(bound(low), bound(high)) <= _FLAT * bound(x):
            break
        # The longer side is cut; with the smaller of the two inner points the bracket goes on.
        left = x - low > high - x
        y = x - (1.0 - _RATIO) * (x - low) if left else x + (1.0 - _RATIO) * (high - x)
        if bound(y) < bound(x):
            low, x, high = (low, y, x) if left else (x, y, high)
        else:
            low, high = (y, high) if left else (low, y)
    return x, bound(x)


def minimise(bound: Callable[[Array], Array], grid: Array) -> tuple[Array, Array]:
    """Return each group's minimiser and minimum of the bound.

    The grid is evaluated first, then golden section searches its deepest valleys.
    """
    groups = np.arange(len(grid))
    values = np.stack([bound(grid[:, k]) for k in range(grid.shape[1])], axis=1)
    values = np.where(np.isnan(values), np.inf, values)
    around = np.pad(values, ((0, 0), (1, 1)), constant_values=np.inf)
    deep = values <= _SHALLOW * np.min(values, axis=1, keepdims=True)
    valley = deep & (values < around[:, :-2]) & (values <= around[:, 2:])
    depth = np.where(valley, values, np.inf)
    places = np.argsort(depth, axis=1, kind="stable")[:, :_VALLEYS]
    best, smallest = grid[groups, places[:, 0]], np.min(values, axis=1)
    for k in range(places.shape[1]):
        if k and not bool(np.any(np.isfinite(depth[groups, places[:, k]]))):
            break
        middle = grid[groups, places[:, k]][:, None]  # of points that are equal there may be several
        low = np.max(np.where(grid < middle, grid, grid[:, :1]), axis=1)
        high = np.min(np.where(grid > middle, grid, grid[:, -1:]), axis=1)
        found, value = _golden(bound, low, high)
        best, smallest = np.where(value < smallest, found, best), np.minimum(value, smallest)
    return best, smallest


def _golden(bound: Callable[[Array], Array], low: Array, high: Array) -> tuple[Array, Array]:
    """Return each group's minimiser by golden section, and its minimum."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    at_a, at_b = bound(a), bound(b)
    best, smallest = a, at_a
    for _ in range(_GOLDEN):
        for x, value in ((a, at_a), (b, at_b)):
            best, smallest = np.where(value < smallest, x, best), np.minimum(value, smallest)
        if bool(np.all(high - low <= 1e-15 * np.maximum(1.0, np.abs(high)))):
            break
        left = at_a < at_b
        low, high = np.where(left, low, a), np.where(left, b, high)
        a, b = np.where(left, high - ratio * (high - low), b), np.where(left, a, low + ratio * (high - low))
        at_new = bound(np.where(left, a, b))
        at_a, at_b = np.where(left, at_new, at_b), np.where(left, at_a, at_new)
    return best, smallest


def dual_price(gap: Gap, start: float) -> float | None:
    """Return a price that nearly minimises the dual function, or None."""
    stride = len(gap.rates) // SAMPLE
    if stride > 1:
        start = _price(gap, start, slice(None, None, stride)) or start
    return _price(gap, start, slice(None))


def _price(gap: Gap, start: float, some: slice) -> float | None:
    """Return the price at which some sources use their bandwidth."""
    problem = gap.problem
    cost = problem.sources.refresh_cost[some]
    bandwidth = problem.bandwidth * len(cost) / len(gap.rates)
    low, high, x, step = -math.inf, math.inf, math.log(start), REACH
    at_low = at_high = math.nan
    for turn in range(TURNS):
        used = total(cost * _best_responses(gap, math.exp(x), some))
        off = math.log(used / bandwidth) if 0.0 < used < math.inf else math.copysign(1e3, used - bandwidth)
        if abs(off) <= NEAR:
            return math.exp(x)
        low, at_low, high, at_high = (x, off, high, at_high) if off > 0.0 else (low, at_low, x, off)
        if high - low <= NEAR * NEAR:
            return math.exp(high)
        if math.isinf(low) or math.isinf(high):
            x, step = x + math.copysign(min(step, max(abs(off), NEAR)), off), 2.0 * step
        else:
            part = at_low / (at_low - at_high) if turn % 3 else 0.5
            x = low + min(0.99, max(0.01, part)) * (high - low)
        if not abs(x) < 600.0:
            return None
    return None


def _best_responses(gap: Gap, price: float, some: slice) -> Array:
    """Return some sources' best responses within their bounds."""
    problem, numerics = gap.problem, gap.numerics if some == slice(None) else gap.numerics.take(some)
    cost, lower, upper = problem.sources.refresh_cost[some], problem.lower[some], problem.upper[some]
    rates = np.empty(len(cost))
    with np.errstate(all="ignore"):
        for part in chunks(len(rates)):
            wanted = numerics.take(part).inverse_marginal(cost[part] * price)
            rates[part] = np.clip(wanted, lower[part], upper[part])
    return rates
