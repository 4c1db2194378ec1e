"""Dual variables for given primal rates, minimising the duality-gap bound.

A price is the dual variable (shadow price) of the bandwidth, λ, or of a host's limit. The bound separates: at
a price λ the sources of host h, paying ν ≥ λ, add H_h(ν) − λ·(slack of h), whatever the other hosts do. So
each host has a best ν_h of its own, found for all hosts at once; given λ it pays max(λ, ν_h). What remains is
a search for λ. Every dual feasible price gives a valid bound, so the searches need not be perfect: quantiles
of the slopes, then golden section.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from freshopt.certificates.duality_gap import Gap
from freshopt.certificates.relative_gap import scale_at
from freshopt.numerics.arrays import Array, BoolArray, IntArray

# Golden section starts from the best of so many prices.
_CANDIDATES = 33
# Nats below the smallest slope: rates that leave bandwidth or a host's limit unused may have such a price.
_BELOW = np.array([27.0, 9.0, 6.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5])
# At most so many valleys of the bound are searched.
_VALLEYS = 2
# A valley whose bound on the grid exceeds the deepest one's by this factor is not searched.
_SHALLOW = 1.25
# So many steps of golden section narrow a bracket by 0.618^90, which is 1e-19.
_GOLDEN = 90
# No other price improves on a bound below this share of what is at stake by more than rounding.
_NEGLIGIBLE = 1e-15
# A host with less relative slack than this decides its own price: its sources are left out when λ is
# searched.
_FULL = 1e-6


def best_prices(gap: Gap, price: float | None, host_prices: Array | None) -> tuple[float, Array]:
    """Return the dual variables with the smallest gap bound.

    Those that are given are kept; the hosts' come on top of the bandwidth's.

    Parameters
    ----------
    gap : Gap
    price : float or None
    host_prices : ndarray, shape (H,), or None
    """
    hosts = gap.problem.hosts
    if host_prices is not None or not len(hosts):
        fixed = np.zeros(len(hosts)) if host_prices is None else host_prices
        return (_best_price(gap, lambda _: fixed) if price is None else price), fixed
    effective = _effective_prices(gap)

    def on_top(price: float) -> Array:
        return np.maximum(0.0, effective - price)

    best = _best_price(gap, on_top) if price is None else price
    return best, on_top(best)


def _effective_prices(gap: Gap) -> Array:
    """Return each host's own best dual variable.

    These are the ν_h that minimise H_h(ν) = Σ terms(ν) + ν·slack_h, 0 where nothing else is better.
    """
    hosts = gap.problem.hosts

    def bound(log_price: Array) -> Array:
        price = np.exp(log_price)
        return hosts.totals(gap.source_gaps(hosts.broadcast_to_sources(price, 1.0))) + price * gap.host_slack

    slopes = gap.slope / gap.problem.sources.refresh_cost
    usable = _usable(gap, slopes)
    # A host whose sources are all at bounds has no usable slopes: its price is that of one of them.
    without = hosts.totals(usable.astype(np.float64)) == 0.0
    usable |= _positive(slopes) & (hosts.broadcast_to_sources(without.astype(np.float64)) > 0.0)
    grid = _quantiles(slopes, usable, hosts.codes, len(hosts))
    grid = np.concatenate([grid[:, :1] - _BELOW, grid], axis=1)
    found, smallest = _minimise(bound, grid)
    nothing = hosts.totals(gap.source_gaps(np.zeros(len(slopes))))
    return np.where(nothing <= smallest, 0.0, np.exp(found))


def _best_price(gap: Gap, on_top: Callable[[float], Array]) -> float:
    """Return the bandwidth's dual variable λ ≥ 0 with the smallest bound.

    The hosts' dual variables follow from it by `on_top`.
    """
    hosts = gap.problem.hosts
    slopes = gap.slope / gap.problem.sources.refresh_cost
    usable = _usable(gap, slopes)
    if not bool(np.any(usable)):
        return 0.0
    free = usable & (
        hosts.broadcast_to_sources(np.asarray(gap.host_slack <= _FULL * hosts.limits, dtype=float)) == 0.0
    )
    one = np.zeros(len(slopes), dtype=np.int64)
    every = np.log(slopes[_positive(slopes)])
    grids = [every.min() - _BELOW, np.linspace(every.min(), every.max(), _CANDIDATES)]
    grids += [_quantiles(slopes, some, one, 1)[0] for some in (usable, free) if bool(np.any(some))]
    grid = np.unique(np.concatenate(grids))[None]

    def bound(log_price: Array) -> Array:
        price = math.exp(float(log_price[0]))
        return np.array([gap.at(price, on_top(price))])

    # Of exact rates the typical slope is the dual variable: one evaluation in place of more than a hundred.
    typical = _quantiles(slopes, free if bool(np.any(free)) else usable, one, 1)[:, _CANDIDATES // 2]
    price = math.exp(float(typical[0]))
    short = float(bound(typical)[0])
    if short <= _NEGLIGIBLE * scale_at(gap, price, on_top(price), short):
        return price
    found, smallest = _minimise(bound, grid)
    return 0.0 if gap.at(0.0, on_top(0.0)) <= smallest[0] else math.exp(float(found[0]))


def _usable(gap: Gap, slopes: Array) -> BoolArray:
    """Return which slopes are candidates for a dual variable.

    They are the positive slopes of sources strictly between their bounds, where stationarity makes the slope
    the price; of all sources if there are none inside.
    """
    positive = _positive(slopes)
    inner: BoolArray = positive & (gap.rates > gap.problem.lower) & (gap.rates < gap.problem.upper)
    return inner if bool(np.any(inner)) else positive


def _positive(slopes: Array) -> BoolArray:
    positive: BoolArray = np.isfinite(slopes) & (slopes > 0.0)
    return positive


def _quantiles(slopes: Array, usable: BoolArray, codes: IntArray, groups: int) -> Array:
    """Return log quantiles of each group's usable slopes.

    Shape (groups, candidates), ascending.
    """
    where = np.flatnonzero(usable & (codes < groups))
    logs = np.log(slopes[where])
    order = np.lexsort((logs, codes[where]))
    counts = np.bincount(codes[where], minlength=groups)
    first = np.cumsum(counts) - counts
    share = np.linspace(0.0, 1.0, _CANDIDATES)
    position = first[:, None] + np.rint(share * np.maximum(counts - 1, 0)[:, None]).astype(np.int64)
    values = np.zeros((groups, _CANDIDATES))
    some = counts > 0
    values[some] = logs[order][position[some]]
    return values


def _minimise(bound: Callable[[Array], Array], grid: Array) -> tuple[Array, Array]:
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
    """Return each group's minimiser by golden section, and its minimum.

    It stops when the brackets are as narrow as floats allow.
    """
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
