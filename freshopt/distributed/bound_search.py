"""Own prices of a tree's limits and reserves, searched at once.

The own price of a group's limit, or reserve, is the one at which its sources use as much. Whatever a group
inside pays, it uses min(limit, its demand) at a price outside, and its reserve at least; so every trial of a
price tells what all groups use at it, from the leaves up, and no group waits for those inside it. Demand is
evaluated at several prices of every group in one pass, over partitions or over sources that were gathered,
and trials of all groups are proposed from it (`freshopt.dual_search.trial_search`): the number of passes does
not depend on the number of groups. Prices that no group pays, as limits further out are dearer, are left as
they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.compiled.rows.nested_records import FEW_ULP, LOWEST_PRICE
from freshopt.distributed.piece import OwnPrices, Piece
from freshopt.dual_search.price_bracketing import search_prices
from freshopt.dual_search.trial_search import TINY_LOG_PRICE, Trials
from freshopt.numerics.arrays import ROUNDED, Array, BoolArray, IntArray
from freshopt.numerics.segments import group_sums
from freshopt.separable.laminar import LaminarTree

# Of price·bound: what the mixture of a bracket's ends may lose.
SETTLED = 1e-14
# Rounds at most. A demand that jumps takes some fifteen.
ROUNDS = 60
# Mixtures aim so far inside their bounds, relatively, that rounding exceeds none.
INSIDE = 4 * float(np.finfo(np.float64).eps)
# First trials: quantiles of marginals, and nats to go beyond each.
QUANTILES = np.array([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98])
BEYOND = np.array([-6.0, -1.5, -0.3, 0.0, 0.3, 1.5, 6.0])
# Around the price of a sample, in standard errors of it; of groups inside, nats above it.
SPREAD = np.array([-6.0, -2.0, -0.5, 0.5, 2.0, 6.0])
ABOVE = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
# Nats: standard errors below and above are taken for these.
LEAST, MOST = 1e-6, 0.3
# A sample whose demand falls by JUMP within STEP nats jumps there.
STEP, JUMP = 1e-12, 1e-6
# Relative distance of trials on both sides of a jump.
TWIN = 2e-14


class Ask(NamedTuple):
    """Prices for some disjoint groups.

    - `number` (G,): Which of the W groups is around each group of the tree, −1 for none.
    - `place` (W,): Which of the wanted bounds they are of.
    - `target` (W,)
    - `prices` (K, W)
    """

    number: IntArray
    place: IntArray
    target: Array
    prices: Array


# Prices for all, (K,), and for some groups, to what each group's own sources use: at those for all, then at
# those of each `Ask`, (K, G).
Sums: TypeAlias = Callable[[Array, list[Ask]], list[Array]]
# Ends the search of some bounds where their sources are gathered, if these are few: their trials, the part of
# them, and whether prices are negative; None where they are many.
Gather: TypeAlias = Callable[[IntArray, Trials, bool], Trials | None]


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Limits and reserves of a tree's groups.

    - `group` (P,)
    - `target` (P,)
    - `reserve` (P,): Which are reserves.
    - `pushed` (P,): Whether the group may have to use more than it does at the price 0.
    - `around` tuple of ndarray of int, each of (G,): Of each height and side the bound that is around each
      group, −1 for none.
    """

    tree: LaminarTree
    group: IntArray
    target: Array
    reserve: BoolArray
    pushed: BoolArray
    around: tuple[IntArray, ...]

    @classmethod
    def of(cls, tree: LaminarTree) -> Bounds:
        """Return the bounds of a tree, height by height."""
        pushed, group, reserve, around = tree.pushed(), list[IntArray](), list[BoolArray](), list[IntArray]()
        count = 0
        for which in tree.bounded_heights():
            place = place_around(tree, which)
            for side, has in enumerate((np.isfinite(tree.limit[which]), tree.reserve[which] > 0.0)):
                number = np.full(len(which) + 1, -1, dtype=np.int64)
                number[:-1][has] = count + np.arange(int(np.sum(has)))
                count += int(np.sum(has))
                group.append(which[has])
                reserve.append(np.full(int(np.sum(has)), side == 1))
                around.append(number[place])
        groups, reserves = np.concatenate(group), np.concatenate(reserve)
        target = np.where(reserves, tree.reserve[groups], tree.limit[groups])
        return cls(tree, groups, target, reserves, reserves | pushed[groups], tuple(around))

    def __len__(self) -> int:
        """Return the number P of bounds."""
        return len(self.group)

    @property
    def aimed(self) -> Array:
        """What mixtures aim at, shape (P,)."""
        return self.target * np.where(self.reserve, 1.0 + INSIDE, 1.0 - INSIDE)

    def asks(self, which: IntArray, prices: Array) -> list[Ask]:
        """Return prices of some bounds, (K, W), by height and side."""
        wanted = np.full(len(self) + 1, -1, dtype=np.int64)
        wanted[which] = np.arange(len(which))
        found = []
        for around in self.around:
            own = wanted[around]
            place = np.unique(own[own >= 0])
            if len(place):
                number = np.where(own >= 0, np.searchsorted(place, own), -1)
                found.append(Ask(number, place, self.target[which[place]], prices[:, place]))
        return found

    def used(self, sums: Sums, which: IntArray, prices: Array) -> Array:
        """Return some bounds' use at own prices, shapes (K, W)."""
        used, group = np.empty(prices.shape), self.group[which]
        same = np.all(prices == prices[:, :1], axis=1) & (prices[:, 0] > 0.0) & (len(which) == len(self))
        own = np.flatnonzero(~same)
        asks = self.asks(which, prices[own]) if len(own) else []
        common, *each = sums(prices[same, 0], asks)
        used[same] = self.climbed(common)[:, group]
        for ask, found in zip(asks, each, strict=True):
            used[np.ix_(own, ask.place)] = self.climbed(found)[:, group[ask.place]]
        return used

    def climbed(self, sums: Array) -> Array:
        """Return each group's demand with those inside, shape (K, G)."""
        tree, whole = self.tree, np.array(sums)
        for level in tree.levels()[:0:-1]:
            inside = np.clip(whole[:, level], tree.reserve[level], tree.limit[level])
            for row, one in zip(whole, inside, strict=True):
                row += group_sums(one, tree.nesting.parent[level], len(tree))
        return whole

    def outside(self, which: IntArray, low: Array) -> Array:
        """Return least log prices paid around bounds, given their own."""
        tree = self.tree
        paid = np.full(len(tree), TINY_LOG_PRICE)
        if not bool(np.any(self.reserve)):
            paid[self.group[which]] = low
            inherit(tree, paid, np.maximum)
        parent = tree.nesting.parent[self.group[which]]
        return np.where(parent < 0, TINY_LOG_PRICE, paid[parent])


def place_around(tree: LaminarTree, which: IntArray) -> IntArray:
    """Return which of W disjoint groups is around each, W for none."""
    place = np.full(len(tree), len(which), dtype=np.int64)
    place[which] = np.arange(len(which))
    inherit(tree, place, np.minimum)
    return place


def inherit(tree: LaminarTree, values: Array | BoolArray | IntArray, combine: np.ufunc) -> None:
    """Combine each group's value with its parent's, in place, root first."""
    for level in tree.levels()[1:]:
        values[level] = combine(values[level], values[tree.nesting.parent[level]])


def add_up(tree: LaminarTree, values: Array | IntArray, combine: np.ufunc) -> None:
    """Combine each group's value into its parent's, in place, leaves first."""
    parent = tree.nesting.parent
    for level in tree.levels()[:0:-1]:
        combine.at(values, parent[level], values[level])


def sums_of(piece: Piece, common: Array, asks: list[Ask]) -> list[Array]:
    """Return the use of each group's own sources, as `Sums`."""
    for_all = np.array([piece.used_at(float(price)) for price in common]).reshape(len(common), piece.groups)
    found = [for_all]
    for ask in asks:
        number = ask.number[piece.leaf] if piece.groups > 1 else ask.number
        some = np.flatnonzero(number >= 0) if piece.groups > 1 else np.arange(len(piece))
        own, used = piece.take(some), np.zeros((len(ask.prices), piece.groups))
        alone = len(ask.target) == 1
        for k, price in enumerate(ask.prices):
            if alone and price[0] > 0.0:
                used[k] = own.used_at(float(price[0]))
            elif alone:
                each = np.broadcast_to(price[0], (len(own),)), np.broadcast_to(ask.target[0], (len(own),))
                used[k] = own.used(own.responses(*each))
            else:
                used[k] = own.used(own.responses(price[number[some]], ask.target[number[some]]))
        found.append(used)
    return found


def search_bounds(sums: Sums, bounds: Bounds, guesses: Array, gather: Gather | None = None) -> OwnPrices:
    """Return the own prices of limits and reserves.

    A price is inf where lower bounds use up the target, −inf where it is never reached.

    - `guesses`: Log prices to begin with, the same for all.
    """
    target, count = bounds.target, len(bounds.target)
    found = OwnPrices(*(np.full(count, value) for value in (-np.inf, -np.inf, 0.0, -np.inf)))
    rows = [np.inf, LOWEST_PRICE, *np.exp(guesses).tolist()]
    if bool(np.any(bounds.pushed)):
        rows += [-LOWEST_PRICE, -np.inf]
    prices = np.tile(np.array(rows)[:, None], (1, count))
    # Only groups that reserves may push are asked what they use where they are paid for it.
    prices[:, ~bounds.pushed] = np.where(prices < 0.0, LOWEST_PRICE, prices)[:, ~bounds.pushed]
    used = bounds.used(sums, np.arange(count), prices)
    least, at_zero = used[0], used[1]
    full = least >= target * (1.0 - FEW_ULP)
    positive = ~full & (at_zero > target * (1.0 + ROUNDED))
    for array in (found.low, found.high, found.price):
        array[full] = np.inf
    some = np.flatnonzero(positive)
    if len(some):
        end = 2 + len(guesses)
        begun = _begun(least[some], target[some])
        begun.measured(np.append(TINY_LOG_PRICE, guesses)[:, None], used[1:end, some], target[some])
        _search(sums, bounds, found, some, begun, gather, negative=False)
    rest = ~full & ~positive & bounds.pushed
    if bool(np.any(rest)):
        paid, most = used[-2], used[-1]
        beyond = rest & (most > target * (1.0 + FEW_ULP))
        enough = np.flatnonzero(beyond & (paid > target))
        found.low[enough], found.high[enough], found.price[enough] = -LOWEST_PRICE, LOWEST_PRICE, 0.0
        span = paid[enough] - at_zero[enough]
        aimed = bounds.aimed[enough] - at_zero[enough]
        found.share[enough] = np.clip(aimed / span, 0.0, 1.0)
        some = np.flatnonzero(beyond & ~(paid > target))
        if len(some):
            begun = _begun(paid[some], target[some])
            begun.measured(np.array([[TINY_LOG_PRICE]]), most[None, some], target[some])
            _search(sums, bounds, found, some, begun, gather, negative=True)
    return found


def prices_at(log_price: Array, *, negative: bool) -> Array:
    """Return prices of what is searched: its exponential, or −1 by it."""
    with np.errstate(over="ignore"):
        return -np.exp(-log_price) if negative else np.exp(log_price)


def search_trials(
    sums: Sums,
    bounds: Bounds,
    some: IntArray,
    trials: Trials,
    gather: Gather | None = None,
    *,
    negative: bool,
) -> Trials:
    """Return trials of some bounds, near enough to prices that count."""
    for _ in range(ROUNDS):
        bracket = trials.bracket()
        wanted = bracket.shortfall() > SETTLED
        if not negative:
            wanted &= bracket.high > bounds.outside(some, bracket.low)
        if not bool(np.any(wanted)):
            break
        own, which = trials.take(wanted), some[wanted]
        ended = None if gather is None else gather(which, own, negative)
        if ended is not None:
            trials.put(wanted, ended)
            break
        proposed = own.propose()
        own.measured(
            proposed, bounds.used(sums, which, prices_at(proposed, negative=negative)), bounds.target[which]
        )
        trials.put(wanted, own)
    return trials


def _begun(least: Array, target: Array) -> Trials:
    with np.errstate(divide="ignore"):
        return Trials(np.log(least / target))


def _search(
    sums: Sums,
    bounds: Bounds,
    found: OwnPrices,
    some: IntArray,
    trials: Trials,
    gather: Gather | None,
    *,
    negative: bool,
) -> None:
    """Write the own prices of some bounds, whose search has begun."""
    bracket = search_trials(sums, bounds, some, trials, gather, negative=negative).bracket()
    aim = bounds.aimed[some] / bounds.target[some] - 1.0
    with np.errstate(all="ignore"):
        above, below = np.expm1(bracket.above), np.expm1(bracket.below)
        share = (aim - below) / (above - below)
    # Below 0, by a negligible amount, where demand is flat and above the bound by rounding at the high end.
    share = np.clip(np.where(np.isfinite(share), share, 0.0), np.where(bracket.slack > 0.0, -1.0, 0.0), 1.0)
    low, high = prices_at(bracket.low, negative=negative), prices_at(bracket.high, negative=negative)
    found.low[some], found.high[some], found.share[some] = low, high, share
    # Twice the bound at the low end: perhaps a source that no rate satisfies.
    between = high + share * (low - high)
    found.price[some] = np.where(bracket.above >= np.log(2.0), high, between)


def first_trials(piece: Piece, weights: Array, bounds: Bounds) -> Array:
    """Return log prices to begin with, of a sample of the sources.

    - `weights` (n,): How many sources each of the sample stands for.
    """
    bandwidth = float(bounds.tree.limit[-1])
    found = _around_price(piece, weights, bounds, bandwidth) if bandwidth < np.inf else np.zeros(0)
    # A bandwidth to spare has a price of 0, far from those of groups.
    if np.max(found, initial=-np.inf) > 0.5 * TINY_LOG_PRICE:
        found = np.append(found, np.max(found) + ABOVE) if len(bounds) > 1 else found
    else:
        typical = np.clip(piece.typical, piece.lower, piece.upper)
        with np.errstate(all="ignore"):
            slopes = np.log(piece.numerics.marginal(typical) / piece.cost)
        slopes = slopes[np.isfinite(slopes)]
        found = np.quantile(slopes, QUANTILES) + BEYOND if len(slopes) else BEYOND
    clipped: Array = np.clip(np.sort(found), TINY_LOG_PRICE + 1.0, -TINY_LOG_PRICE - 1.0)
    return clipped


def _around_price(piece: Piece, weights: Array, bounds: Bounds, bandwidth: float) -> Array:
    """Return log prices around that of a sample, scaled up."""
    cost = weights * piece.cost

    def demand(x: float) -> float:
        rates = piece.responses(*(2 * [np.broadcast_to(math.exp(x), cost.shape)]))
        return float(bounds.climbed(group_sums(cost * rates, piece.leaf, piece.groups)[None])[0, -1])

    with np.errstate(all="ignore"):
        typical = piece.numerics.marginal(np.full(len(cost), bandwidth / float(np.sum(cost))))
        slopes = (typical / piece.cost)[(typical > 0.0) & np.isfinite(typical)]
    guess = math.exp(float(np.median(np.log(slopes)))) if len(slopes) else 1.0
    found = search_prices(
        lambda prices: np.array([demand(math.log(float(prices[0])))]),
        np.array([bandwidth]),
        np.array([guess]),
        TWIN,
    )
    low, high = math.log(found.low[0]), math.log(found.high[0])
    x = 0.5 * (low + high)
    used = cost * piece.responses(*(2 * [np.broadcast_to(math.exp(x), cost.shape)]))
    noise = math.sqrt(float(np.sum(used * used))) / max(float(np.sum(used)), 1e-300)
    fall = math.log(max(demand(x - 0.01), 1e-300) / max(demand(x + 0.01), 1e-300)) / 0.02
    error = min(MOST, max(LEAST, noise / fall if fall > 0.0 else MOST))
    trials = x + error * SPREAD
    if demand(x - STEP) - demand(x + STEP) > JUMP * bandwidth:
        trials = np.append(trials, [low - TWIN * max(1.0, abs(x)), high + TWIN * max(1.0, abs(x))])
    return trials
