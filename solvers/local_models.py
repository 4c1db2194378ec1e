"""`LocalModels`: what one evaluation of a declared expression tells about every source's demand.

At its rate ρ a source has the marginal μ (per unit of bandwidth) and its slope. Marginals are nearly straight
on logarithms, and those that are finite at rate 0 become so when μ is replaced by y = −log(1/μ − 1/μ₀), where
μ₀ is the marginal at 0: for power laws, and for w/(1 + ρ/Δ)² near both of its ends, the line through one
evaluation is the demand itself. With σ = −dy/d log ρ the model says that at price λ the rate is

    ρ·exp((y − y(λ))/σ),   y(λ) = log λ − log(1 − λ/μ₀),   0 where λ ≥ μ₀.

A rate moves by at most three nats at once. A marginal of 0 or less has no logarithm; there Newton's step is
taken on the marginal itself.

One evaluation is one pass over the sources in chunks that stay in the cache, and so is one look at all the
models' demand, which costs an exponential per source and no evaluation.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from freshopt.arrays import Array, IntArray, chunks, exact_sum, is_scalar
from freshopt.derived import DerivedNumerics
from freshopt.kernel import MixedNumerics, Numerics
from freshopt.model import Problem

SIZE = 8192  # sources a chunk: some twenty temporaries of 64 KiB stay in a second-level cache of 2 MiB
REACH = 3.0  # nats that a rate may move at once; farther, ill-scaled marginals are not straight
MOVED = 1e-14  # relative; less is rounding
FREE = 1e-290  # a price so low that only what is worth nothing is left undone
_MOST = math.exp(REACH)
STEEP = 1e18  # 1/σ of a marginal that does not fall: any price but its own sends the rate to the end

Kinds: TypeAlias = list[tuple[IntArray, DerivedNumerics]]


class LocalModels:
    """Models of all sources' demand around the rates of the latest evaluation.

    Parameters
    ----------
    problem : Problem
        Its costs and bounds.
    numerics : DerivedNumerics or MixedNumerics of such
        What is evaluated.
    most : ndarray, shape (n,)
        Rates that no feasible source exceeds.
    rates : ndarray, shape (n,)
        Where to begin; > 0.

    Attributes
    ----------
    rate, marginal : ndarray, shape (n,)
        The latest evaluation: where, and the decrease of cost per unit of bandwidth.
    floor, ceiling : ndarray, shape (n,)
        Between what the next rates may lie.
    misfit : float
        The largest |marginal/price − 1| of a source that would move, at the latest evaluation.
    evaluations : int
    """

    def __init__(self, problem: Problem, numerics: Numerics, most: Array, rates: Array) -> None:
        n = len(rates)
        self.cost, self.lower, self.upper = (
            problem.sources.cost,
            problem.lower,
            np.minimum(problem.upper, most),
        )
        self.rate, self.floor, self.ceiling = np.array(rates), np.array(self.lower), np.array(self.upper)
        self.marginal = np.full(n, np.nan)
        self._level, self._pace = np.zeros(n), np.full(n, STEEP)
        self.misfit = math.inf
        self._asleep = np.zeros(n, dtype=np.bool_)
        self.pieces = [(part, _by_kind(numerics, part)) for part in chunks(n, SIZE)]
        self.evaluations = 0
        self._edge = np.zeros(n)  # 1/μ₀
        for part, kinds in self.pieces:
            with np.errstate(all="ignore"):
                _, marginal, _ = jets(kinds, np.zeros(part.stop - part.start))
                worth = marginal / self.cost[part]
                self._edge[part] = np.where(np.isnan(worth), 0.0, 1.0 / np.maximum(worth, 0.0))
        self.evaluations += 1
        self._limited = [bool(np.any(self._edge[part])) for part, _ in self.pieces]

    def lowest(self) -> Array:
        """Return marginals per unit of bandwidth at the lower bounds, of sources that are evaluated there."""
        with np.errstate(divide="ignore"):
            return np.where(self.lower > 0.0, self.marginal, 1.0 / self._edge)

    def evaluate(self, prices: Array) -> tuple[float, float]:
        """Evaluate the expression at `rate` and make the models anew.

        Parameters
        ----------
        prices : ndarray, shape (n,)
            What each source pays per unit of bandwidth, by the last models.

        Returns
        -------
        (gap, cost)
            An estimate of what the rates lose, Σ |change of rate to come|·|marginal − price|, and the
            sources' costs.
        """
        gaps, costs, self.misfit = [], [], 0.0
        with np.errstate(all="ignore"):
            for number, (part, kinds) in enumerate(self.pieces):
                price = prices[:1] if is_scalar(prices) else prices[part]
                gap, cost = self._renew(number, kinds, price)
                gaps.append(gap)
                costs.append(cost)
        self.evaluations += 1
        return exact_sum(gaps), exact_sum(costs)

    def rates(self, log_price: float | Array) -> Array:
        """Return the models' rates at log λ: one for all, or one each."""
        found = np.empty(len(self.rate))
        with np.errstate(all="ignore"):
            for number, (part, _) in enumerate(self.pieces):
                own = log_price[part] if isinstance(log_price, np.ndarray) else log_price
                found[part] = self._modelled(number, own)
        return found

    def response(self, log_price: Array) -> tuple[Array, Array]:
        """Return the bandwidth each source takes at its log λ, and by how much it falls per nat."""
        used, falls = np.empty(len(self.rate)), np.empty(len(self.rate))
        with np.errstate(all="ignore"):
            for number, (part, _) in enumerate(self.pieces):
                rate = self._modelled(number, log_price[part])
                np.multiply(self._falls(number, log_price[part], rate), self.cost[part], out=falls[part])
                np.multiply(rate, self.cost[part], out=used[part])
        return used, falls

    def total_response(self, log_price: float) -> tuple[float, float]:
        """Return the bandwidth that all sources take at log λ, and by how much it falls per nat."""
        used, falls = [], []
        with np.errstate(all="ignore"):
            for number, (part, _) in enumerate(self.pieces):
                rate = self._modelled(number, log_price)
                used.append(float(np.dot(rate, self.cost[part])))
                falls.append(float(np.dot(self._falls(number, log_price, rate), self.cost[part])))
        return exact_sum(used), exact_sum(falls)

    def cap(self, rates: Array) -> None:
        """Let the models' rates, until the next evaluation, exceed none of these."""
        np.minimum(self.ceiling, rates, out=self.ceiling)

    def typical_log_price(self) -> float:
        """Return the median of the log prices at which sources would stay where they are."""
        some = self._level[:: max(1, len(self._level) // 10_000)]
        return float(np.median(some[np.isfinite(some)])) if bool(np.any(np.isfinite(some))) else 0.0

    def move(self, rates: Array) -> None:
        """Take rates for the next evaluation; a source at rate 0 is evaluated where it was."""
        self._asleep = rates <= 0.0
        np.copyto(self.rate, rates, where=~self._asleep)

    def _modelled(self, number: int, log_price: float | Array) -> Array:
        """Return a chunk's rates at log λ."""
        part = self.pieces[number][0]
        limited = self._limited[number]
        if not limited:
            step = self._level[part] - log_price
        else:  # log(1/λ − 1/μ₀)
            worth = np.exp(-log_price) - self._edge[part]
            step = self._level[part] + np.log(np.maximum(worth, 0.0))
        step *= self._pace[part]
        found: Array = np.exp(step, out=step)
        found *= self.rate[part]
        np.minimum(np.maximum(found, self.floor[part], out=found), self.ceiling[part], out=found)
        if limited:
            np.copyto(found, self.lower[part], where=worth <= 0.0)
        return found

    def _falls(self, number: int, log_price: float | Array, found: Array) -> Array:
        """Return by how much a chunk's modelled rates fall per nat; nothing where they are cut."""
        part = self.pieces[number][0]
        fall: Array = found * self._pace[part]
        if self._limited[number]:
            inverse = np.exp(-log_price)
            fall *= inverse / np.maximum(inverse - self._edge[part], 1e-300)
        fall *= (found > self.floor[part]) & (found < self.ceiling[part])
        return fall

    def _renew(self, number: int, kinds: Kinds, price: Array) -> tuple[float, float]:
        """Evaluate a chunk and renew its models; return its share of gap and cost."""
        part = self.pieces[number][0]
        rate, cost = self.rate[part], self.cost[part]
        value, marginal, curvature = jets(kinds, rate)
        worth = marginal / cost
        # The line: y and 1/σ.
        positive = worth > 0.0
        some_harm = not bool(np.all(positive))
        usable = np.where(positive, worth, 1.0) if some_harm else worth
        pace = usable * cost / (rate * curvature)
        if self._limited[number]:
            inverse = 1.0 / usable
            gained = np.maximum(inverse - self._edge[part], 1e-17 * inverse)
            level = -np.log(gained)
            pace *= gained * usable
        else:
            level = np.log(usable)
        pace = np.fmin(pace, STEEP)  # nan and inf too: no curvature
        np.copyto(pace, STEEP, where=pace <= 0.0)
        self._level[part], self._pace[part], self.marginal[part] = level, pace, worth

        # Where it would go at the last price, and how far it may.
        floor, ceiling = self.floor[part], self.ceiling[part]
        np.maximum(self.lower[part], rate * (1.0 / _MOST), out=floor)
        np.minimum(self.upper[part], rate * _MOST, out=ceiling)
        if self._limited[number]:  # near rate 0 the marginal is nearly μ₀, however far down that is
            np.copyto(floor, self.lower[part], where=self._edge[part] > 0.0)
        target = self._modelled(number, np.log(np.maximum(price, FREE)))
        if some_harm:  # y does not exist: Newton's step on the marginal itself
            plain = np.fmax(rate - (price - worth) * cost / curvature, rate / _MOST)
            plain = np.where(worth == price, rate, np.clip(plain, floor, ceiling))  # content where it is
            np.copyto(target, plain, where=~positive)
        move, off = np.abs(target - rate), np.abs(worth - price)
        lost = move * off
        if some_harm:
            for bound in (floor, ceiling):
                np.copyto(bound, target, where=~positive)
        if self._limited[number]:
            np.copyto(lost, 0.0, where=self._asleep[part] & (price * self._edge[part] >= 1.0))
        off *= (lost > 0.0) & (move > MOVED * rate)
        self.misfit = max(self.misfit, float(np.max(off / np.maximum(price, FREE))))
        return float(np.dot(lost, cost)), float(np.sum(value))


def jets(kinds: Kinds, rate: Array) -> tuple[Array, Array, Array]:
    """Return cost, marginal and curvature of a chunk, whose sources may be of two kinds."""
    if len(kinds) == 1:
        return kinds[0][1].jet(rate)
    joined = np.empty((3, len(rate)))
    for where, numerics in kinds:
        joined[:, where] = numerics.jet(rate[where])
    return joined[0], joined[1], joined[2]


def _by_kind(numerics: Numerics, part: slice) -> Kinds:
    """Return the numerics of a chunk: one, or one for each kind of its sources and where these are."""
    taken = numerics.take(part)
    if not isinstance(taken, MixedNumerics):
        pairs = [(np.arange(part.stop - part.start), taken)]
    else:
        silent, announced = np.flatnonzero(~taken.signalled), np.flatnonzero(taken.signalled)
        pairs = [
            (silent, taken.silent_sources.take(silent)),
            (announced, taken.signalled_sources.take(announced)),
        ]
    return [(where, own) for where, own in pairs if isinstance(own, DerivedNumerics)]
