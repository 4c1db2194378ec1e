"""`LocalModel`: a demand function as a line on logarithms.

The line goes through one evaluation of the expression.

At its rate ρ a source has the marginal μ (per unit of bandwidth) and its slope. Marginals are nearly straight
on logarithms, and those that are finite at rate 0 become so when μ is replaced by y = −log(1/μ − 1/μ₀), where
μ₀ is the marginal at 0: for power laws, and for w/(1 + ρ/Δ)² near both of its ends, the line through one
evaluation is the demand function itself. With σ = −dy/d log ρ the model says that at price λ the rate is

    ρ·exp((y − y(λ))/σ),   y(λ) = log λ − log(1 − λ/μ₀),   0 where λ ≥ μ₀.

Of costs with kinks (`segments`) the same holds inside a segment, from rate a with marginal α to rate b with
marginal β, when ρ and μ are replaced by variables that are infinite at both ends,

    1/(1/(ρ − a) − 1/(b − a)),    1/(1/(μ − β) − 1/(α − β)):

a step in them never leaves the segment, and a linear marginal is a line. Where a segment is linear, α = β,
the modelled demand jumps as the true one does. In segments other than that of the latest evaluation the line
is one that is right near their ends.

A rate moves by at most three nats at once. Where there is no line, at a marginal of β or less, or one that
all but vanishes, Newton's step is taken on the marginal itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from freshopt.compiled.columns import column
from freshopt.compiled.model_passes import Line, ModelPasses
from freshopt.dual_search.segments import Chunk, Segments
from freshopt.numerics.arrays import Array, median, read_only

# Relative movement of a rate; less is rounding.
MOVED = 1e-14
# At prices below, all demand is met but that of sources whose marginal value is negligible.
TINY_PRICE = 1e-290
# 1/σ of a marginal that does not fall: any price but its own sends the rate to a bound.
STEEP = 1e18
# Marginals that the typical price is a median of.
SOME = 10_000
# Nats that a rate may move at once: farther, ill-scaled marginals are not straight.
REACH = 3.0
_MOST = math.exp(REACH)
# Share of an inverse marginal that is rounding.
_ROUNDING = 1e-17
# Lesser marginals have no line: their inverses may overflow.
_LEAST = 1e-300
# What compiled passes take where costs have no kinks.
_NO_KINKS = np.empty((2, 0)), np.empty((6, 1, 0))


class ChunkEvaluation(NamedTuple):
    """Models after an evaluation of a chunk, and what its rates lose.

    - `gap`: An estimate of the rates' suboptimality at the prices of the last models.
    - `cost`: The sources' costs.
    - `misfit`: The largest |marginal/price − 1| of a source whose rate would move.
    """

    model: LocalModel
    gap: float
    cost: float
    misfit: float


@dataclass(frozen=True, slots=True, eq=False)
class LocalModel:
    """Log-linear models of a chunk's demand functions around the latest evaluation.

    - `segments`: None if all costs are smooth.
    - `limited`: Whether any marginal is finite where the first segment begins.
    - `at_begin` (m,): These marginals: at rate 0 of smooth costs, else at the lower bounds.
    - `line`: In the segments of the latest evaluation; compiled evaluations of costs with kinks write the
      next over it.
    - `rate`, `marginal` (m,): The latest evaluation: where, and the decrease of cost per unit of bandwidth.
    - `passes`: Compiled ones, for prices that all sources pay.
    - `cap` (m,): What the modelled rates do not exceed.
    """

    chunk: Chunk
    segments: Segments | None
    limited: bool
    at_begin: Array
    line: Line
    rate: Array
    marginal: Array
    passes: ModelPasses | None
    cap: Array

    @classmethod
    def at(
        cls, chunk: Chunk, rate: Array, passes: Callable[[bool, bool], ModelPasses] | None = None
    ) -> LocalModel:
        """Return models before the first evaluation, at positive rates."""
        segments, unknown = Segments.of(chunk), np.full(rate.shape, np.nan)
        bounds = column(chunk.lower), column(chunk.upper)
        if segments is not None:
            # Written at each evaluation.
            line, at_begin = Line._make(np.empty((len(Line._fields), len(rate)))), segments.at_lower
        else:
            with np.errstate(all="ignore"):
                at_zero = chunk.marginal(np.zeros(rate.shape)) / chunk.cost
                at_begin = np.where(np.isnan(at_zero), np.inf, at_zero)
                edge = 1.0 / np.maximum(at_begin, 0.0)
            line = Line(bounds[0], 0.0, 0.0, edge, rate, 0.0, STEEP, *bounds, -np.inf, np.inf)
        limited = segments is not None or bool(np.any(line.edge))
        loops = None if passes is None else passes(limited, segments is not None)
        return cls(chunk, segments, limited, at_begin, line, rate, unknown, loops, chunk.upper)

    @property
    def evaluations(self) -> int:
        """Return evaluations of the expression before the first step."""
        return 1 if self.segments is None else self.segments.evaluations

    def rates(self, log_price: float | Array) -> Array:
        """Return the modelled rates at log λ."""
        if self.passes is not None and not isinstance(log_price, np.ndarray):
            found: Array = np.empty(len(self.rate))
            self.passes.fill(*self._given(log_price), found)
            return found
        return self.response(log_price, sloping=False)[0]

    def total(self, log_price: float) -> tuple[float, float]:
        """Return the bandwidth used at log λ, and its fall per nat."""
        if self.passes is not None:
            return self.passes.respond(*self._given(log_price), column(self.chunk.cost))
        rates, falls = self.response(log_price)
        return float(np.dot(rates, self.chunk.cost)), float(np.dot(falls, self.chunk.cost))

    def response(self, log_price: float | Array, *, sloping: bool = True) -> tuple[Array, Array]:
        """Return the modelled rates at log λ, and their falls per nat."""
        found = _response(self.line, log_price, self.limited, sloping=sloping)
        if self.segments is not None:
            where, line = self.segments.elsewhere(np.exp(log_price), self.line, self.cap)
            if line is not None:
                each = isinstance(log_price, np.ndarray) and len(log_price) > 1
                paid = np.asarray(log_price)[where] if each else log_price
                for known, own in zip(found, _response(line, paid, True, sloping=sloping), strict=True):
                    known[where] = own
        return found

    def capped(self, rates: Array) -> LocalModel:
        """Return the models with no rates above these, until the next evaluation."""
        line = self.line._replace(ceiling=np.minimum(self.line.ceiling, rates))
        return replace(self, line=line, cap=np.minimum(self.cap, rates))

    def evaluated(self, rates: Array, price: Array) -> ChunkEvaluation:
        """Evaluate the expression at the rates.

        A source at rate 0 is evaluated where it was.

        The gap is an estimate, Σ |change of rate to come|·|marginal − price|.
        """
        chunk, asleep = self.chunk, rates <= 0.0
        rate = np.where(asleep, self.rate, rates)
        value, slope, curvature = chunk.jets(rate)
        cost = float(np.sum(value))
        if self.passes is not None and len(price) == 1:
            found = self._evaluated_at_once(self.passes, rates, rate, slope, curvature, float(price[0]))
            if found is not None:
                model, gap, misfit = found
                return ChunkEvaluation(model, gap, cost, misfit)
        marginal, bend = slope / chunk.cost, curvature / chunk.cost
        line = self.line
        if self.segments is not None:
            line, marginal = self.segments.placed(rate, marginal, price)
        line = _through(line, chunk, rate, marginal, bend, price, self.limited)
        model = replace(self, line=line, rate=rate, marginal=marginal, cap=chunk.upper)

        # Where the rates would go at the price.
        least = np.maximum(price, TINY_PRICE)
        target, _ = model.response(np.log(least), sloping=False)
        there = np.where(asleep, self.at_begin, marginal) if bool(np.any(asleep)) else marginal
        move, off = np.abs(target - rates), np.abs(there - price)
        # A line that leaves a source at rate 0 that would pay more is wrong.
        np.copyto(move, rate, where=asleep & (target <= 0.0) & (there > price))
        lost = np.where(move > 0.0, move * off, 0.0)
        misfit = float(np.max(np.where((lost > 0.0) & (move > MOVED * rate), off / least, 0.0)))
        return ChunkEvaluation(model, float(np.dot(lost, chunk.cost)), cost, misfit)

    def marginals_at_lower(self) -> Array:
        """Return marginals per unit of bandwidth at the lower bounds.

        Those of smooth costs are that if they have been evaluated there.
        """
        smooth = self.segments is None
        return np.where((self.chunk.lower > 0.0) & smooth, self.marginal, self.at_begin)

    def _given(self, log_price: float) -> tuple[Any, ...]:
        """Return what compiled passes take of the models, and of a price."""
        return math.exp(log_price), self.line, column(self.cap), *self._kinks()

    def _kinks(self) -> tuple[Array, ...]:
        """Return what compiled passes take of the segments."""
        return _NO_KINKS if self.segments is None else self.segments[:2]

    def _evaluated_at_once(
        self, passes: ModelPasses, rates: Array, rate: Array, slope: Array, curvature: Array, price: float
    ) -> tuple[LocalModel, float, float] | None:
        """Return one pass's models, gap and misfit; None unless marginals are positive."""
        chunk, least, m = self.chunk, max(price, TINY_PRICE), len(rate)
        found = (read_only(np.ascontiguousarray(each)) for each in (rates, rate, slope, curvature))
        bounds, marginal, line = (column(chunk.lower), column(chunk.upper)), np.empty(m), self.line
        if self.segments is None:
            own = dict(zip(("level", "pace", "floor", "ceiling"), np.empty((4, m)), strict=True))
            line = line._replace(begin=bounds[0], gain=rate, **own)
        given = *self._kinks(), self.at_begin, *bounds, column(chunk.cost)
        gap, misfit, negative = passes.take(price, least, _MOST, MOVED, *found, *given, marginal, line)
        if negative:
            return None
        model = replace(self, line=line, rate=rate, marginal=marginal, cap=chunk.upper)
        return model, gap, misfit / least


def _response(line: Line, log_price: float | Array, limited: bool, *, sloping: bool) -> tuple[Array, Array]:
    """Return the rates of lines at log λ, and their falls."""
    begin, share, least, edge, gain, level, pace, floor, ceiling, *_ = line
    bent = isinstance(share, np.ndarray)
    price = np.exp(log_price)
    over = price - least if bent else price
    inverse = 1.0 / over
    beyond = inverse - edge if limited else inverse
    if isinstance(pace, float):
        rates: Array = np.maximum(beyond, 0.0)
    else:
        rates = level + (np.log(np.maximum(beyond, 0.0)) if limited else -log_price)
        rates *= pace
        np.exp(rates, out=rates)
    rates *= gain
    if bent:
        rates = begin + 1.0 / (1.0 / rates + share)
    clipped(rates, floor, ceiling)
    if limited:
        np.copyto(rates, begin, where=beyond <= 0.0)
    if bent:
        np.copyto(rates, ceiling, where=over <= 0.0)
    if not sloping:
        return rates, rates
    falls: Array
    if bent:
        way = rates - begin
        falls = way * (1.0 - share * way) * pace * (price * inverse) * (inverse / beyond)
        np.copyto(falls, 0.0, where=~((rates > floor) & (rates < ceiling) & np.isfinite(falls)))
        return rates, falls
    falls = rates * pace
    if limited:
        falls *= inverse / np.maximum(beyond, 1e-300)
    falls *= (rates > floor) & (rates < ceiling)
    return rates, falls


def _through(
    line: Line, chunk: Chunk, rate: Array, marginal: Array, bend: Array, price: Array, limited: bool
) -> Line:
    """Return lines through an evaluation.

    Where there is none, it is Newton's step on the marginal at the price. At the end of a segment, and in
    linear ones, lines stay what they are.
    """
    begin, share, least, edge, known, *_ = line
    bent = isinstance(share, np.ndarray)
    end = line.ceiling if bent else chunk.upper
    way = rate - begin if bent else rate
    gain = 1.0 / (1.0 / way - share) if bent else rate
    over = marginal - least if bent else marginal
    positive = over > _LEAST
    if bent:
        positive &= (way > 0.0) & (gain > 0.0) & (gain < np.inf)
    every = bool(np.all(positive))
    usable = over if every else np.where(positive, over, 1.0)
    # One block for all: smaller ones would be handed back to the system, and fetched again, each time.
    level, pace, floor, ceiling = np.empty((4, len(rate)))
    np.divide(usable, way * bend, out=pace)
    if limited:
        inverse = 1.0 / usable
        gained = np.maximum(inverse - edge, _ROUNDING * inverse)
        np.negative(np.log(gained), out=level)
        pace *= gained * usable
    else:
        np.log(usable, out=level)
    if bent:
        pace *= gain / way
    np.fmin(pace, STEEP, out=pace)  # nan and inf too: no curvature
    np.copyto(pace, STEEP, where=pace <= 0.0)
    np.maximum(chunk.lower, begin + way * (1.0 / _MOST) if bent else rate * (1.0 / _MOST), out=floor)
    np.minimum(end, begin + way * _MOST if bent else rate * _MOST, out=ceiling)
    down, up = floor, ceiling
    if limited:
        # Near the beginning of a segment the marginal is nearly α, however far down that is.
        floor = np.where(edge > 0.0, begin, floor)
    if bent:
        ceiling = np.where(share > 0.0, end, ceiling)
        up = np.where(way > 0.0, np.fmin(end, begin + 1.0 / (1.0 / (gain * _MOST) + share)), end)
        still = (rate <= begin) | (rate >= end) | (edge == np.inf)
        gain, level, pace = (np.where(still, *each) for each in ((known, gain), (0.0, level), (1.0, pace)))
        floor, ceiling = np.where(still, begin, floor), np.where(still, end, ceiling)
        positive |= still
        every = bool(np.all(positive))
    if not every:
        plain = rate + (marginal - price) / bend
        plain = np.where(np.isfinite(plain), plain, np.where(marginal > price, 0.5 * (rate + end), down))
        plain = np.where(marginal == price, rate, clipped(plain, down, up))
        floor, ceiling = np.where(positive, floor, plain), np.where(positive, ceiling, plain)
    return line._replace(gain=gain, level=level, pace=pace, floor=floor, ceiling=ceiling)


def typical_log_price(stationary: Sequence[Array]) -> float:
    """Return the log of the median of the stationary prices.

    At its stationary price, its marginal, a source would stay at its rate.
    """
    prices = np.concatenate(stationary)
    with np.errstate(all="ignore"):
        some = np.log(prices[:: max(1, len(prices) // SOME)])
    return median(some[np.isfinite(some)]) if bool(np.any(np.isfinite(some))) else 0.0


def clipped(rates: Array, lower: Array, upper: Array) -> Array:
    """Clip an array in place and return it; faster than `np.clip`."""
    return np.minimum(np.maximum(rates, lower, out=rates), upper, out=rates)
