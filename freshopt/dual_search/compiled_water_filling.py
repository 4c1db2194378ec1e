"""Compiled water-filling: dual prices of hosts first, then bandwidth.

The prices are dual variables. A host's own price matters only where it is above the bandwidth's. So a sample
of hosts tells about where the bandwidth's price will be; one pass at a price somewhat below shows which hosts
exceed their limits there, and only those are solved for. It also shows whether all sources use more than the
bandwidth within these limits: if not, its price is lower still, and the next pass is. Passes are compiled
columns and a sample.
Hosts whose limits min_rate uses up are not solved for: their sources stay there, at the price that the
steepest of them would pay.

Hosts whose own prices are above the bandwidth's stay at their limits. Its price is sought among the sources
of the others alone, and those without a limit, if these are few. Where all sources have limits that together
are the bandwidth, or little more, all hosts are solved for at once, and the others are those of the lowest
prices.

Among prices with the same demand the answer is the least, as `freshopt.solvers.water_filling` states: hosts
are solved so by the loops, 0 is recognised here, and other intervals are left to the general search.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from freshopt.certificates.solution import Answer
from freshopt.compiled.columns import Column, Columns, HostGroups
from freshopt.dual_search.jump_search import jump_search
from freshopt.dual_search.price_bracketing import edge_prices, trimmed
from freshopt.dual_search.sampled_search import FIRST, Found, Known, first_price, sampled_search
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import (
    ROUNDED,
    Array,
    BoolArray,
    IntArray,
    chunks,
    exact_sum,
    is_scalar,
    median,
    read_only,
    total,
)
from freshopt.numerics.segments import segment_rows
from freshopt.separable.kernel import Numerics

# At a price so low only refreshes of no marginal value are left undone.
TINY_PRICE = 1e-290
# So many hosts are solved for to learn the price, of which their demands' sum is known to a few per cent, but
# one in so many at most; where that would be fewer than the last number, none.
SAMPLED_HOSTS, SPARSE, FEWEST = 1500, 8, 200
# Prices that are apart by this relatively may be the same.
SAME = 1e-12
# Below this share of the price that they tell, hosts are not solved for, if all use more than the bandwidth
# there; else so many prices are tried, and then the least. Each step is so much longer than it seems it must,
# and at most so many nats.
MARGIN, TRIALS, BEYOND, FARTHEST = 0.8, 3, 1.5, 50.0
# What a sample's demand is off by, relatively; where demand is nearly flat, a price is off by more.
UNSURE, FLATTEST = 0.02, 0.02
# The least steepness by which prices are followed.
FLAT = 0.1
# How far demand is followed to tell its slope, and nearer where there is none any more.
NATS = (1.0, 0.1, 0.01, 1e-3)
# All are, whatever the price, where their limits exceed the bandwidth by less than this share.
NEARLY = 1.0 / 16.0
# Hosts that the price is first sought among at least, those of the lowest own prices; without a floor, how
# many times more next; they have at most one in so many of all sources.
CHEAPEST, MORE, AMONG = 64, 4, 2


class Floor(NamedTuple):
    """A price below that of the bandwidth.

    - `used`: What all sources use at it, within hosts' limits.
    - `likely`, `steepness`: A likely price, and −d log(used)/d log(price) there, about, > 0.
    - `own`, `slope`: The same of hosts' own prices, without limits.
    - `tells`: Whether what a host uses at the floor tells its own price better than `own` does.
    """

    price: float
    used: float
    likely: float
    steepness: float
    own: float
    slope: float
    tells: bool = False


def fill_compiled(
    problem: Problem, numerics: Numerics, columns: Columns, start: float | None, used: float | None = None
) -> Answer | None:
    """Return primal rates and dual prices by compiled passes, or None.

    None means that only the general search will do.
    """
    if not len(problem.hosts):
        return _solve_bandwidth(problem, columns, np.zeros(0), start, used)
    groups = HostGroups(problem.hosts.limits, problem.hosts.codes, problem.hosts.order, problem.hosts.first)
    full = _used_up(problem)
    edge = np.zeros(len(full))
    if bool(np.any(full)):
        members = groups.order[np.repeat(full, np.diff(groups.first))]
        least, upper = problem.lower[members], np.array(problem.upper)
        if not bool(np.all(np.isfinite(numerics.take(members).cost(least)))):
            return None
        np.maximum.at(edge, groups.codes[members], edge_prices(problem, numerics, members))
        upper[members] = least
        columns = replace(columns, upper=read_only(upper))
        groups = groups._replace(limits=read_only(np.where(full, np.inf, groups.limits)))
    capped, hosts = np.full(columns.n, columns.upper), len(full)
    if _nearly_all(problem) or hosts < FEWEST * SPARSE:
        likely = start or first_price(columns, problem.bandwidth)
        at = Floor(TINY_PRICE, math.inf, likely, 1.0, likely, 1.0)
    else:
        at = _likely_price(problem, columns, groups, start)
    at, by_host = _floor_below(columns, groups, problem.bandwidth, at)
    prices = _solve_hosts(columns, groups, at, by_host, capped)
    if not bool(np.all(np.isfinite(prices))):
        return None
    own = np.where(full, edge, prices)
    columns = replace(columns, upper=read_only(capped))
    if at.price > TINY_PRICE and math.isfinite(at.used):
        return _solve_bandwidth(problem, columns, own, at.price, at.used, at)
    return _solve_bandwidth(problem, columns, own, at.likely)


def _floor_below(columns: Columns, groups: HostGroups, bandwidth: float, at: Floor) -> tuple[Floor, Array]:
    """Return a floor, and what hosts' sources use at it.

    There all sources within their hosts' limits use more than the bandwidth, or it is the least of all
    prices. Each further one is by half as much lower again as what is unused tells.
    """
    price, steepness, last, hosts = at.price, at.steepness, None, len(groups.limits)
    for trial in range(TRIALS + 1):
        used = columns.by_host(price, groups.codes, hosts + 1)
        spent = float(np.sum(np.fmin(used[:hosts], groups.limits)) + used[hosts])
        if price == TINY_PRICE or spent > bandwidth * (1.0 + ROUNDED):
            break
        apart = math.log(bandwidth / spent) if spent > 0.0 else math.inf
        if last is not None and last[1] > apart:
            steepness = (last[1] - apart) / (last[0] - math.log(price))
        last = math.log(price), apart
        lower = last[0] - BEYOND * max(apart / steepness, -math.log(MARGIN))
        price = math.exp(lower) if trial < TRIALS - 1 and lower > math.log(TINY_PRICE) else TINY_PRICE
    return at._replace(price=price, used=spent), used[:hosts]


def _solve_hosts(columns: Columns, groups: HostGroups, at: Floor, used: Array, out: Array) -> Array:
    """Return the dual prices of hosts that bind above a price floor.

    - `used` (H,): What their sources use at it.
    - `out` (n,): Their rates are written.
    """
    guess = max(at.own, at.price)
    prices = columns.settle_hosts(groups, used, at.price, guess, at.slope, at.tells, out)
    for host in np.flatnonzero(~np.isfinite(prices)):
        # What its own search did not find, the search for bandwidths may, of this host's sources alone.
        members = groups.order[groups.first[host] : groups.first[host + 1]]
        found = jump_search(columns.take(members, len(members)), float(groups.limits[host]), at.own)
        if found is not None:
            out[members], prices[host] = found.rates, found.price
    return prices


def _solve_bandwidth(
    problem: Problem,
    columns: Columns,
    host_prices: Array,
    start: float | None,
    used: float | None = None,
    at: Floor | None = None,
) -> Answer | None:
    """Return rates that use up the bandwidth, with dual prices."""
    hosts, sources = problem.hosts, columns.n
    most = _sum(columns.cost, columns.upper, sources)
    if most <= problem.bandwidth * (1.0 + ROUNDED):
        rates = _unpriced(problem, columns, host_prices)
        if bool(np.all(np.isfinite(rates))):
            return Answer(trimmed(problem, rates), 0.0, hosts.named(host_prices), 1)
    if _sum(columns.cost, columns.lower, sources) >= problem.bandwidth * (1.0 - FEW_ULP):
        return None
    found = _among_cheapest(problem, columns, host_prices, most, at)
    if found is None:
        found = _search_bandwidth(columns, problem.bandwidth, start, used)
    if found is None:
        return None
    on_top = np.maximum(0.0, host_prices - found.price)
    # Where demand jumps, a host's price and the bandwidth's are of the same jump, and no closer than searches
    # end: a host that then leaves some of its limit pays nothing on top.
    if bool(np.any((on_top > 0.0) & (on_top <= SAME * found.price))):
        spent = hosts.totals(problem.sources.refresh_cost * found.rates)
        slack = (spent < hosts.limits * (1.0 - FEW_ULP)) & (on_top <= SAME * found.price)
        on_top = np.where(slack, 0.0, on_top)
    return Answer(found.rates, found.price, hosts.named(on_top), found.passes)


def _search_bandwidth(
    columns: Columns, bandwidth: float, start: float | None, used: float | None = None
) -> Found | None:
    """Return rates that use up a bandwidth, or None."""
    used = used or None
    known: list[Known] = [] if start is None or used is None else [(start, used)]
    found = sampled_search(columns, bandwidth, start, used, known)
    return jump_search(columns, bandwidth, start, known) if found is None else found


def _among_cheapest(
    problem: Problem, columns: Columns, host_prices: Array, most: float, at: Floor | None
) -> Found | None:
    """Return rates that meet the bandwidth among some hosts, or None.

    Hosts of the lowest own prices give up what is too much, and all others stay at their limits: so do those
    whose prices are above the bandwidth's. Where all have limits that exceed it by little, demand of all is
    nearly flat, and that of these is not.

    - `most`: Bandwidth that the upper bounds in `columns` use.
    - `at`: A price below that of the bandwidth, with what is used there and a steepness, if one is known.
    """
    hosts, bandwidth, many = problem.hosts, problem.bandwidth, CHEAPEST
    if at is None and not 0.0 < most - bandwidth <= NEARLY * bandwidth:
        return None
    rising = np.argsort(host_prices, kind="stable")
    sources = np.cumsum(np.diff(hosts.first)[rising]) + (columns.n - len(hosts.order))
    price, spent = (0.0, bandwidth) if at is None else (at.price, at.used)
    while math.isfinite(spent):
        if at is None:
            many = max(many, 1 + int(np.count_nonzero(host_prices <= price)))
        else:
            ahead = max(math.log(spent / bandwidth) / at.steepness, -math.log(MARGIN))
            price *= math.exp(min(BEYOND * ahead, FARTHEST))
            many = max(many, int(np.count_nonzero(host_prices <= price)))
        if many > len(rising) or sources[many - 1] > columns.n // AMONG:
            break
        price = max(price, float(host_prices[rising[many - 1]]))
        members = _members(problem, rising[:many])
        rates, own = np.array(columns.upper), columns.take(members, len(members))
        rates[members] = 0.0
        others, used = _sum(columns.cost, rates, columns.n), own.demand(price)
        spent = others + used
        if others < bandwidth and spent <= bandwidth:
            found = _search_bandwidth(own, bandwidth - others, price, used)
            if found is None:
                return None
            rates[members] = found.rates
            return found._replace(rates=rates)
        many = many + 1 if at is not None else MORE * many
    return None


def _members(problem: Problem, hosts: IntArray) -> IntArray:
    """Return the sources of some hosts, and those that have no limit."""
    limits = problem.hosts
    free = np.flatnonzero(limits.codes == len(limits))
    return np.concatenate((limits.order[segment_rows(limits.first, hosts)], free))


def _unpriced(problem: Problem, columns: Columns, host_prices: Array) -> Array:
    """Return rates where bandwidth costs nothing.

    Those of hosts with prices are known.
    """
    if not np.any(host_prices):
        rates = np.empty(columns.n)
        columns.fill(TINY_PRICE, rates)
        return rates
    rates, members = np.array(columns.upper), _members(problem, np.flatnonzero(host_prices == 0.0))
    own = columns.take(members, len(members))
    found = np.empty(own.n)
    own.fill(TINY_PRICE, found)
    rates[members] = found
    return rates


def _likely_price(problem: Problem, columns: Columns, groups: HostGroups, start: float | None) -> Floor:
    """Return a likely dual price and a floor, by sampled hosts.

    Where their limits leave bandwidth unused, the likely price is a typical one of hosts, and all matter.
    """
    stride, bandwidth = max(SPARSE, len(groups.limits) // SAMPLED_HOSTS), problem.bandwidth
    few = np.arange(0, len(groups.limits), stride)
    counts = np.diff(groups.first)[few]
    first = read_only(np.concatenate(([0], np.cumsum(counts))))
    own = groups.order[segment_rows(groups.first, few)]
    free = columns.n - len(groups.order)
    others = np.flatnonzero(groups.codes == len(groups.limits))[::stride] if free else own[:0]
    sample = columns.take(np.concatenate((own, others)), len(own) + len(others))
    mine = np.repeat(np.arange(len(few)), counts), np.full(len(others), len(few))
    codes = read_only(np.concatenate(mine))
    share = bandwidth * sample.n / columns.n
    guess = start or first_price(sample, share)
    capped = np.full(sample.n, sample.upper)
    # Read-only as those of all hosts are: for others loops would be compiled anew.
    fewer = HostGroups(read_only(groups.limits[few]), codes, read_only(np.arange(len(own))), first)
    used = sample.by_host(TINY_PRICE, codes, len(few))
    prices = _solve_hosts(sample, fewer, Floor(TINY_PRICE, math.inf, guess, 1.0, guess, 1.0), used, capped)
    limited = replace(sample, upper=read_only(capped))
    slack = _sum(sample.cost, capped, sample.n) <= share
    price = guess if slack else first_price(limited, share, sample.n, guess)
    above = np.flatnonzero((prices > (0.0 if slack else price)) & (prices < np.inf))
    logs = np.log(prices[above])
    typical = math.exp(median(logs)) if len(above) else price
    likely = typical if slack else price
    flat, slope, tells = _steepness(limited, likely), max(FLAT, _steepness(sample, typical)), False
    floor = TINY_PRICE if slack else price * min(MARGIN, math.exp(-UNSURE / flat))
    if len(above) and not slack:
        used = sample.by_host(floor, codes, len(few))[above]
        told = math.log(floor) + np.log(used / fewer.limits[above]) / slope
        tells = median(np.abs(logs - told)) < median(np.abs(logs - math.log(typical)))
    return Floor(floor, math.inf, likely, max(FLAT, flat), typical, slope, tells)


def _steepness(columns: Columns, price: float) -> float:
    """Return −d log(demand)/d log(price) of some sources, about."""
    few = columns.sample(FIRST)
    here = few.demand(price)
    for nats in NATS:
        beyond = few.demand(price * math.exp(nats))
        if 0.0 < beyond < here < math.inf:
            return max(FLATTEST, math.log(here / beyond) / nats)
    return 1.0


def _nearly_all(problem: Problem) -> bool:
    """Return whether hosts' limits decide, all but a little."""
    everyone = len(problem.hosts.order) == len(problem.sources)
    return everyone and exact_sum(problem.hosts.limits.tolist()) <= problem.bandwidth * (1.0 + NEARLY)


def _used_up(problem: Problem) -> BoolArray:
    """Return whose limit min_rate uses up, of the hosts."""
    if is_scalar(problem.lower) and problem.lower[0] == 0.0:
        return np.zeros(len(problem.hosts), dtype=np.bool_)
    used = problem.hosts.totals(problem.sources.refresh_cost * problem.lower)
    full: BoolArray = used >= problem.hosts.limits * (1.0 - FEW_ULP)
    return full


def _sum(cost: Column, rates: Column, n: int) -> float:
    """Return Σ cost·rates without a temporary, also of a number's rates."""
    if not isinstance(rates, np.ndarray):
        return rates * (n * cost if isinstance(cost, float) else total(cost)) if rates else 0.0
    if isinstance(cost, float):
        return cost * total(rates)
    return exact_sum(float(np.dot(cost[part], rates[part])) for part in chunks(n))
