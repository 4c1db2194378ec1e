"""Water-filling in compiled passes: hosts first, then the bandwidth, by `freshopt.compiled` and a sample.

A host's own price matters only where it is above the bandwidth's. So a sample of hosts tells about where the
bandwidth's price will be; one pass at a price somewhat below shows which hosts spend too much there, and only
those are settled. If the bandwidth's price turns out lower still, all is done once more, from nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from freshopt.arrays import Array, chunks, exact_sum, is_scalar, read_only, total
from freshopt.compiled import Column, Columns, HostMarket
from freshopt.model import FEW_ULP, Problem
from freshopt.result import Answer
from freshopt.solvers.sampled_search import first_price, sampled_search

FREE = 1e-290  # a price so low that only what is worth nothing is left undone
SAMPLED_HOSTS = 1500  # settled to learn the price; their demands' sum is known to a few per cent
MARGIN = 0.9  # of the price that they tell: below, hosts are not settled


def fill_compiled(
    problem: Problem, columns: Columns, start: float | None, spent: float | None = None
) -> Answer | None:
    """Return what compiled passes find, or None where only the general search will do."""
    if not len(problem.hosts):
        return _spend(problem, columns, np.zeros(0), start, spent)
    if _uses_up(problem):
        return None
    market = HostMarket(problem.hosts.limits, problem.hosts.codes, problem.hosts.order, problem.hosts.first)
    likely, steepness = _likely_price(problem, columns, market, start)
    for floor in dict.fromkeys((MARGIN * likely if len(market.limits) > 2 * SAMPLED_HOSTS else FREE, FREE)):
        capped = np.array(problem.upper)
        prices = _settle(columns, market, floor, likely, steepness, capped)
        if not bool(np.all(np.isfinite(prices))):
            return None
        found = _spend(problem, replace(columns, upper=read_only(capped)), prices, likely)
        if found is None or floor == FREE or (found.price is not None and found.price > floor):
            return found
    return None


def _settle(
    columns: Columns, market: HostMarket, floor: float, guess: float, steepness: float, out: Array
) -> Array:
    """Write the rates of hosts whose limits bind at a price to `out`; return the hosts' prices."""
    spent = columns.by_host(floor, market.codes, len(market.limits))
    return columns.settle_hosts(market, spent, floor, guess, steepness, out)


def _spend(
    problem: Problem,
    columns: Columns,
    host_prices: Array,
    start: float | None,
    spent: float | None = None,
) -> Answer | None:
    """Return rates that spend the bandwidth, the hosts settled above a price."""
    hosts, sources = problem.hosts, columns.n
    if _sum(columns.cost, columns.upper, sources) <= problem.bandwidth * (1.0 + FEW_ULP):
        rates = np.empty(sources)
        if columns.fill(FREE, rates) <= problem.bandwidth * (1.0 + FEW_ULP):
            return Answer(rates, 0.0, hosts.named(host_prices), 1)
    if _sum(columns.cost, columns.lower, sources) >= problem.bandwidth * (1.0 - FEW_ULP):
        return None
    found = sampled_search(columns, problem.bandwidth, start, spent)
    if found is None:
        return None
    on_top = np.maximum(0.0, host_prices - found.price) if len(hosts) else host_prices
    return Answer(found.rates, found.price, hosts.named(on_top), found.passes)


def _likely_price(
    problem: Problem, columns: Columns, market: HostMarket, start: float | None
) -> tuple[float, float]:
    """Return about the bandwidth's price, from a sample of hosts, and how steeply demand falls there."""
    stride = max(1, len(market.limits) // SAMPLED_HOSTS)
    if stride == 1:
        return start or first_price(columns, problem.bandwidth), 1.0
    few = np.arange(0, len(market.limits), stride)
    counts = np.diff(market.first)[few]
    first = np.concatenate(([0], np.cumsum(counts)))
    own = market.order[np.repeat(market.first[few] - first[:-1], counts) + np.arange(first[-1])]
    free = columns.n - len(market.order)
    others = np.flatnonzero(market.codes == len(market.limits))[::stride] if free else own[:0]
    sample = columns.take(np.concatenate((own, others)), len(own) + len(others))
    codes = np.concatenate((np.repeat(np.arange(len(few)), counts), np.full(len(others), len(few))))
    share = problem.bandwidth * sample.n / columns.n
    guess = start or first_price(sample, share)
    capped = np.full(sample.n, sample.upper)
    fewer = HostMarket(market.limits[few], codes, np.arange(len(own)), first)
    _settle(sample, fewer, FREE, guess, 1.0, capped)
    sample = replace(sample, upper=read_only(capped))
    price = first_price(sample, share, sample.n)
    here, beyond = sample.demand(price), sample.demand(math.e * price)
    steepness = math.log(here / beyond) if 0.0 < beyond < here < math.inf else 1.0
    return price, max(0.1, steepness)


def _uses_up(problem: Problem) -> bool:
    """Tell whether min_rate uses up a host's limit."""
    if is_scalar(problem.lower) and problem.lower[0] == 0.0:
        return False
    spent = problem.hosts.totals(problem.sources.cost * problem.lower)
    return bool(np.any(spent >= problem.hosts.limits * (1.0 - FEW_ULP)))


def _sum(cost: Column, rates: Column, n: int) -> float:
    """Return Σ cost·rates without a temporary; a number stands for n equal rates."""
    if not isinstance(rates, np.ndarray):
        return rates * (n * cost if isinstance(cost, float) else total(cost)) if rates else 0.0
    if isinstance(cost, float):
        return cost * total(rates)
    return exact_sum(float(np.dot(cost[part], rates[part])) for part in chunks(n))
