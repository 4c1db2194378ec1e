"""Dual variables for given primal rates, minimising the duality-gap bound.

A price is the dual variable (shadow price) of the bandwidth, λ, or of a host's limit. The bound separates: at
a price λ the sources of host h, paying ν ≥ λ, add H_h(ν) − λ·(slack of h), whatever the other hosts do. So
each host has a best ν_h of its own, found for all hosts at once; given λ it pays max(λ, ν_h). What remains is
a search for λ. Every dual feasible price gives a valid bound, so the searches need not be perfect: quantiles
of the slopes, then golden section.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.certificates.duality_gap import Gap
from freshopt.certificates.price_search import (
    NEGLIGIBLE,
    OnTop,
    bound_of,
    minimise,
    sampled_price,
    settled,
    stride_of,
)
from freshopt.certificates.proof_pass import proof_columns
from freshopt.certificates.relative_gap import scale_at
from freshopt.compiled.proof_columns import ProofColumns
from freshopt.compiled.source_columns import HostGroups
from freshopt.numerics.arrays import Array, BoolArray, IntArray, read_only

# Golden section starts from the best of so many prices.
_CANDIDATES = 33
# Nats below the smallest slope: rates that leave bandwidth or a host's limit unused may have such a price.
_BELOW = np.array([27.0, 9.0, 6.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5])
# A host with less relative slack than this decides its own price: its sources are left out when λ is
# searched.
_FULL = 1e-6
# Of rates so near to the optimum, beside what is at stake, the bound has one valley, and the typical slope is
# in it.
NEARLY = 1e-6
# A bound that will do, beside what is at stake, where each evaluation is dear and rates are of tables.
GOOD_ENOUGH = 1e-10


def best_prices(gap: Gap, price: float | None, host_prices: Array | None) -> tuple[float, Array]:
    """Return the dual variables with the smallest gap bound.

    Those that are given are kept; the hosts' come on top of the bandwidth's.

    - `host_prices` (H,)
    """
    hosts, columns = gap.problem.hosts, proof_columns(gap.problem)
    if host_prices is not None or not len(hosts):
        fixed = np.zeros(len(hosts)) if host_prices is None else host_prices
        return (_best_price(gap, columns, lambda _: fixed) if price is None else price), fixed
    if columns is None:
        effective = _effective_prices(gap)
    else:
        groups = HostGroups(hosts.limits, hosts.codes, hosts.order, hosts.first)
        rates = read_only(np.ascontiguousarray(gap.rates))
        effective = columns.host_prices(rates, groups, gap.host_slack)

    def on_top(price: float) -> Array:
        return np.maximum(0.0, effective - price)

    best = _best_price(gap, columns, on_top) if price is None else price
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
    found, smallest = minimise(bound, grid)
    nothing = hosts.totals(gap.source_gaps(np.zeros(len(slopes))))
    return np.where(nothing <= smallest, 0.0, np.exp(found))


def _best_price(gap: Gap, columns: ProofColumns | None, on_top: OnTop) -> float:
    """Return the bandwidth's dual variable λ ≥ 0 with the smallest bound.

    The hosts' dual variables follow from it by `on_top`. A sample's slopes do where there are no hosts; where
    there are, few sources may decide.
    """
    hosts, cost = gap.problem.hosts, gap.problem.sources.refresh_cost
    some = slice(0, None, 1 if columns is None else stride_of(columns))
    if columns is not None and not len(hosts):
        few = (gap.slope / cost)[some]
        usable = _usable(gap, few, some)
        if bool(np.any(usable)):
            return sampled_price(gap, columns, _grid(few, usable), on_top)
    slopes = gap.slope / cost
    usable = _usable(gap, slopes)
    if not bool(np.any(usable)):
        return 0.0
    full = np.asarray(gap.host_slack <= _FULL * hosts.limits)
    free = usable & ~np.append(full, False)[hosts.codes] if len(hosts) else usable
    compiled = None if columns is None else bound_of(gap, columns, on_top)

    def bound(price: float) -> float:
        return gap.at(price, on_top(price)) if compiled is None else compiled(price)

    # Of exact rates the typical slope is the dual variable: one evaluation in place of more than a hundred.
    own = slopes[free if bool(np.any(free)) else usable]
    price = float(np.partition(own, len(own) // 2)[len(own) // 2])
    gap_bound = bound(price)
    scale = scale_at(gap, price, on_top(price), gap_bound)
    if gap_bound <= NEARLY * scale:
        return settled(bound, price, (GOOD_ENOUGH if gap.is_quick else NEGLIGIBLE) * scale)
    grid = np.union1d(_grid(slopes[some], usable[some], free[some]), [math.log(price)])
    if columns is not None:
        return sampled_price(gap, columns, grid, on_top)
    found, smallest = minimise(lambda x: np.array([bound(math.exp(float(x[0])))]), grid[None])
    return 0.0 if bound(0.0) <= smallest[0] else math.exp(float(found[0]))


def _grid(slopes: Array, *kinds: BoolArray) -> Array:
    """Return ascending logarithms of likely prices, quantiles of each kind of slopes."""
    one = np.zeros(len(slopes), dtype=np.int64)
    every = np.log(slopes[_positive(slopes)])
    grids = [every.min() - _BELOW, np.linspace(every.min(), every.max(), _CANDIDATES)]
    grids += [_quantiles(slopes, some, one, 1)[0] for some in kinds if bool(np.any(some))]
    found: Array = np.unique(np.concatenate(grids))
    return found


def _usable(gap: Gap, slopes: Array, some: slice = slice(None)) -> BoolArray:
    """Return which of some slopes are candidates for a dual variable.

    They are the positive slopes of sources strictly between their bounds, where stationarity makes the slope
    the price; of all sources if there are none inside.
    """
    positive = _positive(slopes)
    rates, lower, upper = gap.rates[some], gap.problem.lower[some], gap.problem.upper[some]
    inner: BoolArray = positive & (rates > lower) & (rates < upper)
    return inner if bool(np.any(inner)) else positive


def _positive(slopes: Array) -> BoolArray:
    positive: BoolArray = np.isfinite(slopes) & (slopes > 0.0)
    return positive


def _quantiles(slopes: Array, usable: BoolArray, codes: IntArray, groups: int) -> Array:
    """Return log quantiles of each group's usable slopes, (groups, candidates), ascending."""
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
