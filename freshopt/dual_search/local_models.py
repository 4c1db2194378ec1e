"""`LocalModel`: a demand function as a line on logarithms.

The line goes through one evaluation of the expression.

At its rate ρ a source has the marginal μ (per unit of bandwidth) and its slope. Marginals are nearly straight
on logarithms, and those that are finite at rate 0 become so when μ is replaced by y = −log(1/μ − 1/μ₀), where
μ₀ is the marginal at 0: for power laws, and for w/(1 + ρ/Δ)² near both of its ends, the line through one
evaluation is the demand function itself. With σ = −dy/d log ρ the model says that at price λ the rate is

    ρ·exp((y − y(λ))/σ),   y(λ) = log λ − log(1 − λ/μ₀),   0 where λ ≥ μ₀.

A rate moves by at most three nats at once. A marginal of 0 or less has no logarithm; there Newton's step is
taken on the marginal itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from freshopt.compiled.columns import column
from freshopt.compiled.model_passes import ModelPasses
from freshopt.dual_search.demand_models import REACH, Chunk, ChunkEvaluation, clipped
from freshopt.numerics.arrays import Array, BoolArray, median, read_only

# Relative movement of a rate; less is rounding.
MOVED = 1e-14
# At prices below, all demand is met but that of sources whose marginal value is negligible.
TINY_PRICE = 1e-290
# 1/σ of a marginal that does not fall: any price but its own sends the rate to a bound.
STEEP = 1e18
# Levels that the typical price is a median of.
SOME = 10_000
_MOST = math.exp(REACH)


@dataclass(frozen=True, slots=True, eq=False)
class LocalModel:
    """Log-linear models of a chunk's demand functions around the latest evaluation.

    - `edge` (m,): 1/μ₀; 0 where marginals at rate 0 are infinite.
    - `limited`: Whether any marginal at rate 0 is finite.
    - `rate`, `marginal` (m,): The latest evaluation: where, and the decrease of cost per unit of bandwidth.
    - `level`, `pace` (m,): The line: y and 1/σ.
    - `floor`, `ceiling` (m,): Between what the modelled rates lie.
    - `passes`: Compiled ones, for prices that all sources pay.
    """

    chunk: Chunk
    edge: Array
    limited: bool
    rate: Array
    marginal: Array
    level: Array
    pace: Array
    floor: Array
    ceiling: Array
    passes: ModelPasses | None = None

    @classmethod
    def at(cls, chunk: Chunk, rate: Array, passes: Callable[[bool], ModelPasses] | None = None) -> LocalModel:
        """Return models before the first evaluation, at positive rates."""
        m = len(rate)
        with np.errstate(all="ignore"):
            _, marginal, _ = chunk.jets(np.zeros(m))
            at_zero = marginal / chunk.cost
            edge = np.where(np.isnan(at_zero), 0.0, 1.0 / np.maximum(at_zero, 0.0))
        unknown, flat = np.full(m, np.nan), np.full(m, STEEP)
        limited = bool(np.any(edge))
        bounds = chunk.lower, chunk.upper
        own = None if passes is None else passes(limited)
        return cls(chunk, edge, limited, rate, unknown, np.zeros(m), flat, *bounds, own)

    def rates(self, log_price: float | Array) -> Array:
        """Return the modelled rates at log λ."""
        if self.passes is not None and not isinstance(log_price, np.ndarray):
            found: Array = np.empty(len(self.rate))
            self.passes.fill(*self._line(log_price), column(self.chunk.lower), found)
            return found
        if not self.limited:
            step = self.level - log_price
        else:  # log(1/λ − 1/μ₀)
            difference = np.exp(-log_price) - self.edge
            step = self.level + np.log(np.maximum(difference, 0.0))
        step *= self.pace
        found = np.exp(step, out=step)
        found *= self.rate
        clipped(found, self.floor, self.ceiling)
        if self.limited:
            np.copyto(found, self.chunk.lower, where=difference <= 0.0)
        return found

    def slopes(self, log_price: float | Array, rates: Array) -> Array:
        """Return the fall of modelled rates per nat of the price."""
        fall: Array = rates * self.pace
        if self.limited:
            inverse = np.exp(-log_price)
            fall *= inverse / np.maximum(inverse - self.edge, 1e-300)
        fall *= (rates > self.floor) & (rates < self.ceiling)
        return fall

    def total(self, log_price: float) -> tuple[float, float]:
        """Return the bandwidth used at log λ, and its fall per nat."""
        if self.passes is not None:
            bounds = column(self.chunk.lower), column(self.chunk.cost)
            return self.passes.respond(*self._line(log_price), *bounds)
        rates = self.rates(log_price)
        slopes = self.slopes(log_price, rates)
        return float(np.dot(rates, self.chunk.cost)), float(np.dot(slopes, self.chunk.cost))

    def jumps(self) -> Array:
        """Return nothing: lines do not jump."""
        return np.empty(0)

    def capped(self, rates: Array) -> LocalModel:
        """Return the models with no rates above these, until the next evaluation."""
        return replace(self, ceiling=np.minimum(self.ceiling, rates))

    def evaluated(self, rates: Array, price: Array) -> ChunkEvaluation:
        """Evaluate the expression at the rates.

        A source at rate 0 is evaluated where it was.

        The gap is an estimate, Σ |change of rate to come|·|marginal − price|.
        """
        chunk, asleep = self.chunk, rates <= 0.0
        rate, cost = np.where(asleep, self.rate, rates), chunk.cost
        value, slope, curvature = chunk.jets(rate)
        if self.passes is not None and len(price) == 1:
            found = self._evaluated_at_once(self.passes, rates, rate, slope, curvature, float(price[0]))
            if found is not None:
                model, gap, misfit = found
                return ChunkEvaluation(model, gap, float(np.sum(value)), misfit)
        marginal = slope / cost
        positive = marginal > 0.0
        model = self._through(rate, marginal, curvature, positive)

        # Where the rates would go at the price.
        target = model.rates(np.log(np.maximum(price, TINY_PRICE)))
        if not bool(np.all(positive)):
            # y does not exist: Newton's step on the marginal itself, none where it is the price.
            plain = np.fmax(rate - (price - marginal) * cost / curvature, rate / _MOST)
            plain = np.where(marginal == price, rate, np.clip(plain, model.floor, model.ceiling))
            np.copyto(target, plain, where=~positive)
            floor, ceiling = (np.where(positive, bound, target) for bound in (model.floor, model.ceiling))
            model = replace(model, floor=floor, ceiling=ceiling)
        move, off = np.abs(target - rate), np.abs(marginal - price)
        lost = move * off
        if self.limited:
            np.copyto(lost, 0.0, where=asleep & (price * self.edge >= 1.0))
        off *= (lost > 0.0) & (move > MOVED * rate)
        misfit = float(np.max(off / np.maximum(price, TINY_PRICE)))
        return ChunkEvaluation(model, float(np.dot(lost, cost)), float(np.sum(value)), misfit)

    def marginals_at_lower(self) -> Array:
        """Return marginals of sources evaluated at their lower bounds, per bandwidth."""
        with np.errstate(divide="ignore"):
            return np.where(self.chunk.lower > 0.0, self.marginal, 1.0 / self.edge)

    def _line(self, log_price: float) -> tuple[Any, ...]:
        """Return what compiled passes take of the models, and of a price."""
        paid = float(log_price), math.exp(-log_price)
        return *paid, self.rate, self.level, self.pace, self.floor, self.ceiling, self.edge

    def _evaluated_at_once(
        self, passes: ModelPasses, rates: Array, rate: Array, slope: Array, curvature: Array, price: float
    ) -> tuple[LocalModel, float, float] | None:
        """Return one pass's models, gap and misfit; None unless marginals are positive."""
        chunk, least = self.chunk, max(price, TINY_PRICE)
        marginal, lines = np.empty(len(rate)), np.empty((4, len(rate)))
        paid = price, math.log(least), 1.0 / least, _MOST, MOVED
        found = (read_only(np.ascontiguousarray(each)) for each in (rates, rate, slope, curvature))
        bounds = self.edge, column(chunk.lower), column(chunk.upper), column(chunk.cost)
        gap, misfit, negative = passes.take(*paid, *found, *bounds, marginal, lines)
        if negative:
            return None
        level, pace, floor, ceiling = lines
        line = level, pace, floor, ceiling
        model = LocalModel(chunk, self.edge, self.limited, rate, marginal, *line, passes)
        return model, gap, misfit / least

    def _through(self, rate: Array, marginal: Array, curvature: Array, positive: BoolArray) -> LocalModel:
        """Return the models of an evaluation's positive marginals."""
        # One block for all: smaller ones would be handed back to the system, and fetched again, each time.
        level, pace, floor, ceiling = np.empty((4, len(rate)))
        usable = marginal if bool(np.all(positive)) else np.where(positive, marginal, 1.0)
        np.divide(usable * self.chunk.cost, rate * curvature, out=pace)
        if self.limited:
            inverse = 1.0 / usable
            gained = np.maximum(inverse - self.edge, 1e-17 * inverse)
            np.negative(np.log(gained), out=level)
            pace *= gained * usable
        else:
            np.log(usable, out=level)
        np.fmin(pace, STEEP, out=pace)  # nan and inf too: no curvature
        np.copyto(pace, STEEP, where=pace <= 0.0)
        np.maximum(self.chunk.lower, rate * (1.0 / _MOST), out=floor)
        np.minimum(self.chunk.upper, rate * _MOST, out=ceiling)
        if self.limited:
            # Near rate 0 the marginal is nearly μ₀, however far down that is.
            np.copyto(floor, self.chunk.lower, where=self.edge > 0.0)
        line = level, pace, floor, ceiling
        return LocalModel(self.chunk, self.edge, self.limited, rate, marginal, *line, self.passes)


def typical_log_price(stationary: Sequence[Array]) -> float:
    """Return the median of the stationary log prices.

    At its stationary price a source would stay at its rate.
    """
    levels = np.concatenate(stationary)
    some = levels[:: max(1, len(levels) // SOME)]
    return median(some[np.isfinite(some)]) if bool(np.any(np.isfinite(some))) else 0.0
