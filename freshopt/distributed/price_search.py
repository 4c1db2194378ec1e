"""Dual prices over partitioned data: the bandwidth's and every limited host's.

The first trials stand where a sample of the sources says, as far apart as the sample may err. At a price λ a
limited host uses min(L_h, its demand), whatever its own price will be, so the bandwidth's price is searched
without knowing the hosts'; and each trial of it is a trial for every host. Hosts that would exceed their
limit at the bandwidth's price have trials of their own in the same passes, until the sources of those that
are left fit in one place; a worker gathers these and ends their search. What grows with the hosts is worked
on in blocks of them, so that the client holds few numbers per host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from freshopt.distributed.partition import Partition, PartitionedProblem
from freshopt.distributed.worker_passes import pooled
from freshopt.distributed.write_rates import Decision
from freshopt.dual_search.price_bracketing import search_prices
from freshopt.dual_search.trial_search import TINY_LOG_PRICE, Bracket, Trials
from freshopt.modelling.problem import FEW_ULP
from freshopt.numerics.arrays import ROUNDED, Array, BoolArray, IntArray, exact_sum

# Prices for all, W hosts, and prices for each of these, to what is used: shapes (K,), (W,), (J, W) or None to
# (K, 1+H), (J, W) or None.
Measure: TypeAlias = Callable[[Array, IntArray, Array | None], tuple[Array, Array | None]]
Gather: TypeAlias = Callable[[BoolArray, Trials], Trials]  # ends the search of some hosts, shape (H,)

# Of price·bandwidth: what all mixtures together may lose.
SETTLED = 2e-13
# A demand that jumps at a price that no sample shows takes some twenty.
PASSES = 60
# Of the first trials, in standard errors of the sample.
SPREAD = np.array([-6.0, -2.0, -0.5, 0.5, 2.0, 6.0])
# First trials of hosts, above the bandwidth's price, in nats.
ABOVE = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
# Nats: standard errors below and above are taken for these.
LEAST, MOST = 1e-6, 0.3
# Sources that one worker may gather, some 20 MB.
COLLECTED = 300_000
# A sample whose demand falls by JUMP within STEP nats jumps there.
STEP, JUMP = 1e-12, 1e-6
# Relative distance of trials on both sides of a jump.
TWIN = 2e-14


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedDemand:
    """Demand of all partitions, and the limits on it.

    Parameters
    ----------
    measure : callable
        One pass: the use of bandwidth at prices.
    gather : callable
        One pass: end the search of some hosts on a worker that gathers their sources.
    limits : ndarray, shape (H,)
    lower : float
        Σ cost·min_rate, below the bandwidth.
    host_lower : ndarray, shape (H,)
    members : ndarray of int, shape (H,)
        How many sources each host has.
    """

    measure: Measure
    gather: Gather
    bandwidth: float
    limits: Array
    lower: float
    host_lower: Array
    members: IntArray

    @property
    def pinned(self) -> BoolArray:
        """Return the hosts whose limit min_rate uses up."""
        used_up: BoolArray = self.host_lower >= self.limits * (1.0 - FEW_ULP)
        return used_up


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedDual:
    """Brackets of the dual prices of partitioned data.

    Parameters
    ----------
    everyone : Bracket
        Of the bandwidth's price.
    hosts : Bracket
        Of the hosts' own prices, shapes (H,).
    slack : bool
        Whether the bandwidth does not bind.
    """

    demand: PartitionedDemand
    everyone: Bracket
    hosts: Bracket
    slack: bool

    def binding(self) -> BoolArray:
        """Return the hosts whose limit binds, or may bind."""
        own = self.hosts
        above: BoolArray = np.isfinite(own.low) & ~self.demand.pinned & (own.above > own.slack)
        return above if self.slack else np.logical_and(above, own.high > self.everyone.low)

    def suboptimality(self) -> tuple[float, Array]:
        """Return a bound on the mixtures' suboptimality, in units of price·bandwidth."""
        own, binding = self.hosts, self.binding()
        with np.errstate(over="ignore", invalid="ignore"):
            value = np.where(binding, np.exp(own.high) * self.demand.limits, 0.0)
            price = math.exp(float(self.everyone.high[0]))
            scale = float(np.sum(value)) if self.slack else price * self.demand.bandwidth
            lost = np.where(binding, own.shortfall() * value / (scale if scale > 0.0 else 1.0), 0.0)
        return 0.0 if self.slack else float(self.everyone.shortfall()[0]), np.nan_to_num(lost, nan=np.inf)

    def decision(self, edges: Array, trim: float = 0.0, host_trims: Array | float = 0.0) -> Decision:
        """Return the prices that decide every rate.

        Parameters
        ----------
        edges : ndarray, shape (H,)
            The price at which hosts that min_rate uses up would use more.
        trim, host_trims : float or ndarray, shape (H,)
            The part of bandwidth and limits to leave unused, where rounding used too much.
        """
        low, high, share, price = TINY_LOG_PRICE, TINY_LOG_PRICE, 0.0, 0.0
        if not self.slack:
            bracket = self.everyone
            low, high = float(bracket.low[0]), float(bracket.high[0])
            share = float(_share(bracket, trim)[0])
            price = math.exp(high) + share * (math.exp(low) - math.exp(high))
            if bracket.above[0] >= math.log(2.0):  # perhaps a source that no rate satisfies
                price = math.exp(high)
        own, binding, pinned = self.hosts, self.binding(), self.demand.pinned
        host_low = np.exp(np.where(binding, own.low, high))
        host_high = np.exp(np.where(binding, own.high, high))
        host_share = np.where(binding, _share(own, host_trims), 0.0)
        host_price = np.where(binding, host_high + host_share * (host_low - host_high), 0.0)
        paid = np.where(pinned, edges, host_price)
        return Decision(
            low=math.exp(low),
            high=math.exp(high),
            share=share,
            price=price,
            host_low=np.where(pinned, np.inf, host_low),
            host_high=np.where(pinned, np.inf, host_high),
            host_share=host_share,
            host_price=np.where(pinned, np.inf, host_price),
            multipliers=np.maximum(0.0, paid - price),
        )


def solve_partitioned_dual(demand: PartitionedDemand, first: Array) -> PartitionedDual:
    """Bracket the dual prices until primal mixtures are near-optimal.

    The search ends when convex combinations of the rates at the brackets' ends lose a negligible amount.

    Parameters
    ----------
    first : ndarray
        Log prices to begin with.
    """
    limits, pinned = demand.limits, demand.pinned
    with np.errstate(divide="ignore"):
        everyone = Trials(np.log(np.array([demand.lower / demand.bandwidth])))
        hosts = Trials(np.log(np.where(pinned, 1.0, demand.host_lower / limits)))
    first = np.concatenate(([TINY_LOG_PRICE], first, np.max(first) + ABOVE if len(limits) else []))
    totals = _add_trials(demand, everyone, hosts, first, np.zeros(len(limits), dtype=np.bool_), None)
    slack = bool(totals[0] <= demand.bandwidth * (1.0 + ROUNDED))
    for _ in range(PASSES):
        dual = PartitionedDual(demand, everyone.bracket(), hosts.bracket(), slack)
        lost, host_lost = dual.suboptimality()
        if lost + float(np.sum(host_lost)) <= SETTLED:
            return dual
        wanted = host_lost > 0.5 * SETTLED / max(1, int(np.count_nonzero(host_lost)))
        own_trials = hosts.take(wanted)
        if bool(np.any(wanted)) and int(np.sum(demand.members[wanted])) <= COLLECTED:
            hosts.put(wanted, demand.gather(wanted, own_trials))
            continue
        common = everyone.propose()[:, 0] if lost > 0.5 * SETTLED else np.empty(0)
        own = own_trials.propose() if bool(np.any(wanted)) else None
        hosts.put(wanted, own_trials)
        _add_trials(demand, everyone, hosts, common, wanted, own)
    return PartitionedDual(demand, everyone.bracket(), hosts.bracket(), slack)


def _add_trials(
    demand: PartitionedDemand,
    everyone: Trials,
    hosts: Trials,
    common: Array,
    wanted: BoolArray,
    own: Array | None,
) -> Array:
    """Evaluate demand at log prices in one pass; add the trials.

    Prices are for all sources and for some hosts; the totals are returned.

    Parameters
    ----------
    everyone, hosts : Trials
        Of the bandwidth and of each host; these are added to.
    common : ndarray, shape (K,)
        Log prices for all.
    wanted : ndarray of bool, shape (H,)
        Hosts with trials of their own.
    own : ndarray, shape (J, W), or None
        Log prices for these.

    Returns
    -------
    ndarray, shape (K,)
        The bandwidth used at the common prices where no host exceeds its limit.
    """
    prices, limits = np.array([math.exp(x) for x in common]), demand.limits
    used, own_used = demand.measure(prices, np.flatnonzero(wanted), None if own is None else np.exp(own))
    totals = np.array([exact_sum(chain(row[:1], np.minimum(row[1:], limits))) for row in used])
    if len(common):
        with np.errstate(divide="ignore", over="ignore"):
            everyone.add(common[:, None], np.log(totals / demand.bandwidth)[:, None])
        hosts.measured(common[:, None], used[:, 1:], limits)
    if own is not None and own_used is not None:
        some = hosts.take(wanted)
        some.measured(own, own_used, limits[wanted])
        hosts.put(wanted, some)
    return totals


def end_search(
    found: list[dict[str, Any]], message: tuple[PartitionedProblem, list[int], Array, BoolArray, Trials]
) -> Trials:
    """Solve for the multipliers of some hosts, given their sources.

    Runs on the worker that gathers them.

    Parameters
    ----------
    found : list of dict
        The sources of these hosts, of each partition, as `collect` returns them.
    message : tuple
        The terms, the rows of each partition, the limits of all hosts, which of these it is about, and their
        trials so far.
    """
    terms, rows, limits, wanted, trials = message
    place = np.cumsum(wanted) - 1
    found = [{**one, "code": place[one["code"]]} for one in found]
    hosts = tuple(terms.hosts[h] for h in np.flatnonzero(wanted))
    piece, limits = pooled(found, rows, replace(terms, hosts=hosts)), limits[wanted]
    for _ in range(PASSES):
        if float(np.max(trials.bracket().shortfall())) <= SETTLED:
            break
        prices = trials.propose()
        used = np.array([piece.use(piece.broadcast_to_sources(np.exp(each), 1.0))[1:] for each in prices])
        trials.measured(prices, used, limits)
    return trials


def trials_of_sample(
    message: tuple[list[dict[str, Any]], list[int], Array, PartitionedProblem, Array],
) -> Array:
    """Return a worker's `first_trials` of a stratified sample of all partitions."""
    drawn, rows, weights, terms, limits = message
    return first_trials(pooled(drawn, rows, terms), weights, terms.bandwidth, limits)


def first_trials(sample: Partition, weights: Array, bandwidth: float, limits: Array) -> Array:
    """Return trial log prices around the sample's dual price.

    At the sample's dual price its demand, scaled up, is the bandwidth.

    Parameters
    ----------
    weights : ndarray
        How many sources each of the sample stands for.
    limits : ndarray, shape (H,)
    """
    cost = weights * sample.problem.sources.refresh_cost

    def demand(x: float) -> float:
        used = sample.sums(cost, sample.rates(math.exp(x)))
        return exact_sum([used[0], *np.minimum(used[1:], limits)])

    typical = sample.numerics.marginal(np.full(len(weights), bandwidth / float(np.sum(cost))))
    slopes = (typical / sample.problem.sources.refresh_cost)[(typical > 0.0) & np.isfinite(typical)]
    guess = math.exp(float(np.median(np.log(slopes)))) if len(slopes) else 1.0
    found = search_prices(
        lambda prices: np.array([demand(math.log(float(prices[0])))]),
        np.array([bandwidth]),
        np.array([guess]),
        TWIN,
    )
    low, high = math.log(found.low[0]), math.log(found.high[0])
    x = 0.5 * (low + high)
    used = cost * sample.rates(math.exp(x))
    noise = math.sqrt(float(np.sum(used * used))) / max(float(np.sum(used)), 1e-300)
    fall = math.log(max(demand(x - 0.01), 1e-300) / max(demand(x + 0.01), 1e-300)) / 0.02
    error = min(MOST, max(LEAST, noise / fall if fall > 0.0 else MOST))
    jumps = demand(x - STEP) - demand(x + STEP) > JUMP * bandwidth
    trials = np.concatenate(
        (x + error * SPREAD, [low - TWIN * max(1.0, abs(x)), high + TWIN * max(1.0, abs(x))] if jumps else [])
    )
    inside: Array = np.clip(np.sort(trials), TINY_LOG_PRICE + 1.0, -TINY_LOG_PRICE - 1.0)
    return inside


def _share(bracket: Bracket, trim: Array | float) -> Array:
    """Return the weight of a bracket's low end in the mixture.

    With it the convex combination meets the limit less the trimmed part.
    """
    with np.errstate(all="ignore"):
        above, below = np.expm1(bracket.above), np.expm1(bracket.below)
        share = (-trim - below) / (above - below)
    # Below 0, by a negligible amount, where demand is flat and above the limit by rounding at the high end.
    least = np.where(bracket.slack > 0.0, -1.0, 0.0)
    return np.clip(np.where(np.isfinite(share), share, 0.0), least, 1.0)
