"""The prices that clear the market of all partitions: the bandwidth's and every limited host's.

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
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from freshopt.arrays import Array, BoolArray, IntArray, exact_sum
from freshopt.distributed.finish import Decision
from freshopt.distributed.piece import Piece, Terms
from freshopt.distributed.search import FREE_LOG, Bracket, Trials
from freshopt.distributed.steps import pooled
from freshopt.model import FEW_ULP
from freshopt.solvers.price_search import search_prices

# Prices for all, W hosts, and prices for each of these, to what is used: shapes (K,), (W,), (J, W) or None to
# (K, 1+H), (J, W) or None.
Measure: TypeAlias = Callable[[Array, IntArray, Array | None], tuple[Array, Array | None]]
Gather: TypeAlias = Callable[[BoolArray, Trials], Trials]  # ends the search of some hosts, shape (H,)

SETTLED = 2e-13  # of price·bandwidth: what all mixtures together may lose
PASSES = 60  # a demand that jumps at a price that no sample shows takes some twenty
SPREAD = np.array([-6.0, -2.0, -0.5, 0.5, 2.0, 6.0])  # of the first trials, in standard errors of the sample
ABOVE = np.array([0.5, 1.0, 2.0, 4.0, 8.0])  # first trials of hosts, above the bandwidth's price, in nats
LEAST, MOST = 1e-6, 0.3  # nats: standard errors below and above are taken for these
COLLECTED = 300_000  # sources that one worker may gather, some 20 MB
STEP, JUMP = 1e-12, 1e-6  # a sample whose demand falls by JUMP within STEP nats jumps there
TWIN = 2e-14  # relative distance of trials on both sides of a jump


class Market:
    """The search, from a sample to brackets so narrow that mixtures of their ends lose nothing.

    Parameters
    ----------
    measure : callable
        One pass: the use of bandwidth at prices.
    bandwidth : float
    limits : ndarray, shape (H,)
    lower : float
        Σ cost·min_rate, below the bandwidth.
    host_lower : ndarray, shape (H,)
    gather : callable
        One pass: end the search of some hosts on a worker that gathers their sources.
    members : ndarray of int, shape (H,)
        How many sources each host has.
    """

    def __init__(
        self,
        measure: Measure,
        bandwidth: float,
        limits: Array,
        lower: float,
        host_lower: Array,
        gather: Gather,
        members: IntArray,
    ) -> None:
        self._gather, self._members = gather, members
        self._measure, self._bandwidth, self._limits = measure, bandwidth, limits
        self.pinned = host_lower >= limits * (1.0 - FEW_ULP)  # hosts that min_rate uses up
        with np.errstate(divide="ignore"):
            self._everyone = Trials(np.log(np.array([lower / bandwidth])))
            self._hosts = Trials(np.log(np.where(self.pinned, 1.0, host_lower / limits)))
        self._free = False  # whether the bandwidth does not bind

    def settle(self, first: Array) -> None:
        """Search, beginning with the log prices `first`."""
        hosts = len(self._limits)
        first = np.concatenate(([FREE_LOG], first, np.max(first) + ABOVE if hosts else []))
        totals = self._try(first, np.zeros(hosts, dtype=np.bool_), None)
        self._free = bool(totals[0] <= self._bandwidth * (1.0 + FEW_ULP))
        for _ in range(PASSES):
            everyone, own = self._lost()
            if everyone + float(np.sum(own)) <= SETTLED:
                return
            wanted = own > 0.5 * SETTLED / max(1, int(np.count_nonzero(own)))
            own_trials = self._hosts.take(wanted)
            if bool(np.any(wanted)) and int(np.sum(self._members[wanted])) <= COLLECTED:
                self._hosts.put(wanted, self._gather(wanted, own_trials))
                continue
            common = np.empty(0)
            if everyone > 0.5 * SETTLED:
                common = self._everyone.propose()[:, 0]
            prices = own_trials.propose() if bool(np.any(wanted)) else None
            self._hosts.put(wanted, own_trials)
            self._try(common, wanted, prices)

    def decide(self, edges: Array, trim: float = 0.0, host_trims: Array | float = 0.0) -> Decision:
        """Return the prices found.

        Parameters
        ----------
        edges : ndarray, shape (H,)
            The price at which hosts that min_rate uses up would buy more.
        trim, host_trims : float or ndarray, shape (H,)
            The part of bandwidth and limits to leave unused, where rounding used too much.
        """
        low, high, share, price = FREE_LOG, FREE_LOG, 0.0, 0.0
        if not self._free:
            bracket = self._everyone.bracket()
            low, high = float(bracket.low[0]), float(bracket.high[0])
            share = float(_share(bracket, trim)[0])
            price = math.exp(high) + share * (math.exp(low) - math.exp(high))
            if bracket.above[0] >= math.log(2.0):  # perhaps a source that no rate satisfies
                price = math.exp(high)
        own, binding = self._hosts.bracket(), self._binding()
        host_low = np.exp(np.where(binding, own.low, high))
        host_high = np.exp(np.where(binding, own.high, high))
        host_share = np.where(binding, _share(own, host_trims), 0.0)
        host_price = np.where(binding, host_high + host_share * (host_low - host_high), 0.0)
        paid = np.where(self.pinned, edges, host_price)
        return Decision(
            low=math.exp(low),
            high=math.exp(high),
            share=share,
            price=price,
            host_low=np.where(self.pinned, np.inf, host_low),
            host_high=np.where(self.pinned, np.inf, host_high),
            host_share=host_share,
            host_price=np.where(self.pinned, np.inf, host_price),
            multipliers=np.maximum(0.0, paid - price),
        )

    def _try(self, common: Array, wanted: BoolArray, own: Array | None) -> Array:
        """Measure at log prices, for all and for some hosts; keep the results, and return the total use."""
        prices = np.array([math.exp(x) for x in common])
        used, host_used = self._measure(prices, np.flatnonzero(wanted), None if own is None else np.exp(own))
        limits = self._limits
        totals = np.array([exact_sum(chain(row[:1], np.minimum(row[1:], limits))) for row in used])
        if len(common):
            with np.errstate(divide="ignore", over="ignore"):
                self._everyone.add(common[:, None], np.log(totals / self._bandwidth)[:, None])
            self._hosts.measured(common[:, None], used[:, 1:], limits)
        if own is not None and host_used is not None:
            some = self._hosts.take(wanted)
            some.measured(own, host_used, limits[wanted])
            self._hosts.put(wanted, some)
        return totals

    def _binding(self) -> BoolArray:
        """Return the hosts whose own price is, or may be, above the bandwidth's."""
        own = self._hosts.bracket()
        above: BoolArray = np.isfinite(own.low) & ~self.pinned & (own.above > 0.0)
        return above if self._free else np.logical_and(above, own.high > self._everyone.bracket().low)

    def _lost(self) -> tuple[float, Array]:
        """Return what mixtures of the brackets' ends lose at most, in units of price·bandwidth."""
        bracket, own, binding = self._everyone.bracket(), self._hosts.bracket(), self._binding()
        with np.errstate(over="ignore", invalid="ignore"):
            worth = np.where(binding, np.exp(own.high) * self._limits, 0.0)
            price = math.exp(float(bracket.high[0]))
            scale = float(np.sum(worth)) if self._free else price * self._bandwidth
            lost = np.where(binding, own.shortfall() * worth / (scale if scale > 0.0 else 1.0), 0.0)
        return 0.0 if self._free else float(bracket.shortfall()[0]), np.nan_to_num(lost, nan=np.inf)


def end_search(
    found: list[dict[str, Any]], message: tuple[Terms, list[int], Array, BoolArray, Trials]
) -> Trials:
    """End the search of some hosts, given their sources; runs on the worker that gathers them.

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
        used = np.array([piece.use(piece.spread(np.exp(each), 1.0))[1:] for each in prices])
        trials.measured(prices, used, limits)
    return trials


def trials_of_sample(
    message: tuple[list[dict[str, Any]], list[int], Array, Terms, Array],
) -> Array:
    """Return `first_trials` of what was drawn from partitions of so many rows; runs on a worker."""
    drawn, rows, weights, terms, limits = message
    return first_trials(pooled(drawn, rows, terms), weights, terms.bandwidth, limits)


def first_trials(sample: Piece, weights: Array, bandwidth: float, limits: Array) -> Array:
    """Return log prices around the one at which a sample, scaled up, spends the bandwidth.

    Parameters
    ----------
    sample : Piece
    weights : ndarray
        How many sources each of the sample stands for.
    bandwidth : float
    limits : ndarray, shape (H,)
    """
    cost = weights * sample.problem.sources.cost

    def demand(x: float) -> float:
        used = sample.sums(cost, sample.rates(math.exp(x)))
        return exact_sum([used[0], *np.minimum(used[1:], limits)])

    typical = sample.numerics.marginal(np.full(len(weights), bandwidth / float(np.sum(cost))))
    slopes = (typical / sample.problem.sources.cost)[(typical > 0.0) & np.isfinite(typical)]
    guess = math.exp(float(np.median(np.log(slopes)))) if len(slopes) else 1.0
    found = search_prices(
        lambda prices: np.array([demand(math.log(float(prices[0])))]),
        np.array([bandwidth]),
        np.array([guess]),
        TWIN,
    )
    low, high = math.log(found.low[0]), math.log(found.high[0])
    x = 0.5 * (low + high)
    spent = cost * sample.rates(math.exp(x))
    noise = math.sqrt(float(np.sum(spent * spent))) / max(float(np.sum(spent)), 1e-300)
    fall = math.log(max(demand(x - 0.01), 1e-300) / max(demand(x + 0.01), 1e-300)) / 0.02
    error = min(MOST, max(LEAST, noise / fall if fall > 0.0 else MOST))
    jumps = demand(x - STEP) - demand(x + STEP) > JUMP * bandwidth
    trials = np.concatenate(
        (x + error * SPREAD, [low - TWIN * max(1.0, abs(x)), high + TWIN * max(1.0, abs(x))] if jumps else [])
    )
    inside: Array = np.clip(np.sort(trials), FREE_LOG + 1.0, -FREE_LOG - 1.0)
    return inside


def _share(bracket: Bracket, trim: Array | float) -> Array:
    """Return the share of a bracket's low end in the mixture that meets the limit, less the trimmed part."""
    with np.errstate(all="ignore"):
        above, below = np.expm1(bracket.above), np.expm1(bracket.below)
        share = (-trim - below) / (above - below)
    return np.clip(np.where(np.isfinite(share), share, 0.0), 0.0, 1.0)
