"""Own prices of the groups of one height, all searched at once.

The own price of a group's limit, or reserve, is the one at which its sources use as much. Demand is evaluated
at several prices of every group in one pass, over partitions or over sources that were gathered, and trials
of all groups are proposed from it (`freshopt.dual_search.trial_search`): the number of passes does not depend
on the number of groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from freshopt.compiled.rows.nested_records import FEW_ULP, LOWEST_PRICE
from freshopt.dual_search.trial_search import TINY_LOG_PRICE, Trials
from freshopt.numerics.arrays import ROUNDED, Array, BoolArray, IntArray

# Some bounds, shape (W,), and prices for each, shape (K, W), to what is used there, shape (K, W).
Evaluate: TypeAlias = Callable[[IntArray, Array], Array]
# Ends the search of some bounds where their sources are gathered, if these are few: their trials, the part of
# them, and whether prices are negative; None where they are many.
Gather: TypeAlias = Callable[[IntArray, Trials, bool], Trials | None]

# Of price·bound: what the mixture of a bracket's ends may lose.
SETTLED = 1e-14
# Rounds at most. A demand that jumps takes some fifteen.
ROUNDS = 60
# Mixtures aim so far inside their bounds, relatively, that rounding exceeds none.
INSIDE = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Limits and reserves of one height.

    Attributes
    ----------
    target : ndarray, shape (P,)
    reserve : ndarray of bool, shape (P,)
        Which are reserves.
    pushed : ndarray of bool, shape (P,)
        Whether the group may have to use more than it does at the price 0.
    """

    target: Array
    reserve: BoolArray
    pushed: BoolArray

    def take(self, index: IntArray) -> Bounds:
        """Return some of them."""
        return Bounds(self.target[index], self.reserve[index], self.pushed[index])


class OwnPrices(NamedTuple):
    """Brackets of own prices, mixtures of their ends, prices; shapes (P,)."""

    low: Array
    high: Array
    share: Array
    price: Array


def search_bounds(
    evaluate: Evaluate, bounds: Bounds, guesses: Array, gather: Gather | None = None
) -> OwnPrices:
    """Return the own prices of limits and reserves.

    A price is inf where lower bounds use up the target, −inf where it is never reached.

    Parameters
    ----------
    guesses : ndarray
        Log prices to begin with, the same for all.
    """
    target, count = bounds.target, len(bounds.target)
    found = OwnPrices(*(np.full(count, value) for value in (-np.inf, -np.inf, 0.0, -np.inf)))
    rows = [np.inf, LOWEST_PRICE, *np.exp(guesses).tolist()]
    if bool(np.any(bounds.pushed)):
        rows += [-LOWEST_PRICE, -np.inf]
    prices = np.tile(np.array(rows)[:, None], (1, count))
    # Only groups that reserves may push are asked what they use where they are paid for it.
    prices[:, ~bounds.pushed] = np.where(prices < 0.0, LOWEST_PRICE, prices)[:, ~bounds.pushed]
    used = evaluate(np.arange(count), prices)
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
        _search(evaluate, bounds, found, some, begun, gather, negative=False)
    rest = ~full & ~positive & bounds.pushed
    if bool(np.any(rest)):
        paid, most = used[-2], used[-1]
        beyond = rest & (most > target * (1.0 + FEW_ULP))
        enough = np.flatnonzero(beyond & (paid > target))
        found.low[enough], found.high[enough], found.price[enough] = -LOWEST_PRICE, LOWEST_PRICE, 0.0
        span = paid[enough] - at_zero[enough]
        aimed = _aimed(bounds.take(enough)) - at_zero[enough]
        found.share[enough] = np.clip(aimed / span, 0.0, 1.0)
        some = np.flatnonzero(beyond & ~(paid > target))
        if len(some):
            begun = _begun(paid[some], target[some])
            begun.measured(np.array([[TINY_LOG_PRICE]]), most[None, some], target[some])
            _search(evaluate, bounds, found, some, begun, gather, negative=True)
    return found


def prices_at(log_price: Array, *, negative: bool) -> Array:
    """Return prices of what is searched: its exponential, or −1 by it."""
    with np.errstate(over="ignore"):
        return -np.exp(-log_price) if negative else np.exp(log_price)


def end_trials(evaluate: Evaluate, target: Array, trials: Trials, *, negative: bool) -> Trials:
    """Return trials that are near enough to the own prices."""
    for _ in range(ROUNDS):
        wanted = _wanted(trials)
        if not bool(np.any(wanted)):
            break
        _round(evaluate, np.flatnonzero(wanted), target[wanted], trials, wanted, negative=negative)
    return trials


def _begun(least: Array, target: Array) -> Trials:
    with np.errstate(divide="ignore"):
        return Trials(np.log(least / target))


def _wanted(trials: Trials) -> BoolArray:
    """Return which brackets are still too wide."""
    wanted: BoolArray = trials.bracket().shortfall() > SETTLED
    return wanted


def _round(
    evaluate: Evaluate, which: IntArray, target: Array, trials: Trials, wanted: BoolArray, *, negative: bool
) -> None:
    """Add a pass's trials to those of the wanted bounds."""
    own = trials.take(wanted)
    proposed = own.propose()
    own.measured(proposed, evaluate(which, prices_at(proposed, negative=negative)), target)
    trials.put(wanted, own)


def _search(
    evaluate: Evaluate,
    bounds: Bounds,
    found: OwnPrices,
    some: IntArray,
    trials: Trials,
    gather: Gather | None,
    *,
    negative: bool,
) -> None:
    """Write the own prices of some bounds, whose search has begun."""
    target = bounds.target[some]
    for _ in range(ROUNDS):
        wanted = _wanted(trials)
        if not bool(np.any(wanted)):
            break
        which = some[wanted]
        ended = None if gather is None else gather(which, trials.take(wanted), negative)
        if ended is not None:
            trials.put(wanted, ended)
            break
        _round(evaluate, which, target[wanted], trials, wanted, negative=negative)
    bracket = trials.bracket()
    aim = _aimed(bounds.take(some)) / target - 1.0
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


def _aimed(bounds: Bounds) -> Array:
    return bounds.target * np.where(bounds.reserve, 1.0 + INSIDE, 1.0 - INSIDE)
