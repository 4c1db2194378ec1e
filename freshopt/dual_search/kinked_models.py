"""`KinkedModel`: demand functions of costs with kinks, piece by piece.

Between two kinks a cost is smooth. At a kink the marginal falls from one value to another: at every price
between these, the kink is the best response. So the kinks and the marginals on both sides of them, known
before the first step (`freshopt.autodiff.kink_rates`), tell at any price in which piece a source is, or at
which kink, without an evaluation. Inside a piece, from rate a with marginal α to rate b with marginal β, the
demand is modelled by a line through one evaluation, as by `LocalModel`, in variables that are infinite at
both ends:

    v = −log(1/(ρ − a) − 1/(b − a)),    u = −log(1/(μ − β) − 1/(α − β)).

A step in them never leaves the piece, a linear marginal is a line, and where a = 0, b = ∞ and β = 0 they are
those of `LocalModel`. Where a piece is linear, α = β, the modelled demand jumps as the true one does.

A kink that was not found leaves its source with a line that is wrong beyond it, as without this model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from freshopt.autodiff.kink_rates import Crossing, kink_rates
from freshopt.autodiff.kinked_atoms import LEFT, RIGHT
from freshopt.autodiff.tape import Tape
from freshopt.dual_search.demand_models import REACH, Chunk, ChunkEvaluation, clipped
from freshopt.dual_search.local_models import MOVED, TINY_PRICE
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.separable.derived_kernel import JUMPED

# Relative fall of a marginal, or change of a curvature, at a kink, and what it is beside the distance of the
# rates that are compared.
_FALL, _BESIDE = 1e-9, 1e4
# Relative fall of a marginal from end to end of a piece that is rounding.
_STRAIGHT = 1e-13
# Rows of a piece: a, 1/(b − a), β, 1/(α − β), the line, and between what the modelled rates lie.
_BEGIN, _SHARE, _LEAST, _EDGE, _LEVEL, _PACE, _FLOOR, _CEILING = range(8)


@dataclass(frozen=True, slots=True, eq=False)
class KinkedModel:
    """Demand models of a chunk whose costs have kinks.

    - `kink` (k, m): Rates of the kinks, rising; inf where a source has fewer.
    - `left`, `right` (k, m): Marginals on both sides, per unit of bandwidth; −inf where there is no kink.
    - `bend` (2, k, m): Their falls per unit of rate, on both sides.
    - `pieces` (k + 1, 8, m): Ends and line of each piece.
    - `marginal_at_lower` (m,)
    - `rate`, `marginal` (m,): The latest evaluation.
    - `cap` (m,): What the modelled rates do not exceed.
    - `evaluations`: Of the expression, before the first step.
    """

    chunk: Chunk
    kink: Array
    left: Array
    right: Array
    bend: Array
    pieces: Array
    marginal_at_lower: Array
    rate: Array
    marginal: Array
    evaluations: int
    cap: Array | None = None

    @classmethod
    def at(cls, chunk: Chunk, rate: Array) -> KinkedModel | None:
        """Return models before the first evaluation at positive rates, or None."""
        found = _crossings(chunk)
        if not found:
            return None
        with np.errstate(all="ignore"):
            kinks = _kinks(chunk, found)
            if not len(kinks[0]):
                return None
            kink, (left, right), bend = kinks
            own, count = chunk.jets(chunk.lower)[1] / chunk.cost, len(kink)
            at_lower = np.where(np.isnan(own), np.inf, own)
            last = chunk.jets(chunk.upper, LEFT)[1] / chunk.cost
            ends = np.isfinite(last)  # else the marginal is to vanish at an infinite rate
            end, least = np.where(ends, chunk.upper, np.inf), np.where(ends, last, 0.0)
            unknown = np.full(rate.shape, np.nan)
            pieces = []
            for p in range(count + 1):
                alpha, a, bend_a = (
                    (right[p - 1], kink[p - 1], bend[1, p - 1]) if p else (at_lower, chunk.lower, unknown)
                )
                b, beta, bend_b = (kink[p], left[p], bend[0, p]) if p < count else (end, least, unknown)
                outer = np.isinf(b)
                b, beta = np.where(outer, end, b), np.where(outer, least, beta)
                pieces.append(_piece(a, b, alpha, beta, bend_a, bend_b, chunk.upper))
        known = at_lower, rate, unknown, 2 * len(found) + 1
        return cls(chunk, kink, left, right, bend, np.stack(pieces), *known)

    @property
    def level(self) -> Array:
        """Return the stationary log prices of the latest evaluation."""
        with np.errstate(all="ignore"):
            return np.log(self.marginal)

    def rates(self, log_price: float | Array) -> Array:
        """Return the modelled rates at log λ."""
        return self._response(np.exp(log_price), sloping=False)[0]

    def slopes(self, log_price: float | Array, rates: Array) -> Array:  # noqa: ARG002
        """Return the fall of modelled rates per nat of the price."""
        return self._response(np.exp(log_price))[1]

    def total(self, log_price: float) -> tuple[float, float]:
        """Return the bandwidth used at log λ, and its fall per nat."""
        rates, slopes = self._response(math.exp(log_price))
        return float(np.dot(rates, self.chunk.cost)), float(np.dot(slopes, self.chunk.cost))

    def jumps(self) -> Array:
        """Return the log prices of jumps: slopes of linear pieces."""
        least = self.pieces[:, _LEAST]
        found: Array = np.log(least[(self.pieces[:, _EDGE] == np.inf) & (least > 0.0)])
        return found

    def capped(self, rates: Array) -> KinkedModel:
        """Return the models with no rates above these, until the next evaluation."""
        return replace(self, cap=rates)

    def evaluated(self, rates: Array, price: Array) -> ChunkEvaluation:
        """Evaluate the expression at the rates.

        The gap is an estimate, Σ |change of rate to come|·|marginal − price|.
        """
        chunk, asleep = self.chunk, rates <= 0.0
        rate = np.where(asleep, self.rate, rates)
        value, slope, curvature = chunk.jets(rate)
        marginal, bend = slope / chunk.cost, curvature / chunk.cost
        at_kink = self.kink == rate
        beyond = (self.kink < rate) | (at_kink & (price < self.right))
        for k in np.flatnonzero(np.any(at_kink, axis=1)):
            np.copyto(marginal, np.where(beyond[k], self.right[k], self.left[k]), where=at_kink[k])
            np.copyto(bend, np.where(beyond[k], *self.bend[::-1, k]), where=at_kink[k])
        place = np.where(asleep, -1, np.sum(beyond, axis=0))
        pieces, ends = self.pieces.copy(), [*self.kink, chunk.upper]
        for p, (piece, end) in enumerate(zip(pieces, ends, strict=True)):
            a, b = piece[_BEGIN], np.minimum(end, chunk.upper)
            # At an end only those that are to leave it.
            some = ((rate > a) | (marginal > price)) & ((rate < b) | (marginal < price))
            some &= (place == p) & (piece[_EDGE] < np.inf)
            if bool(np.any(some)):
                _put_line(piece, some, b, rate, marginal, bend, price)
        model = replace(self, pieces=pieces, rate=rate, marginal=marginal, cap=None)
        target = model.rates(np.log(np.maximum(price, TINY_PRICE)))
        there = np.where(asleep, self.marginal_at_lower, marginal)
        move, off = np.abs(target - rates), np.abs(there - price)
        lost = np.where(move > 0.0, move * off, 0.0)
        off = np.where((lost > 0.0) & (move > MOVED * rate), off, 0.0)
        misfit = float(np.max(off / np.maximum(price, TINY_PRICE)))
        return ChunkEvaluation(model, float(np.dot(lost, chunk.cost)), float(np.sum(value)), misfit)

    def marginals_at_lower(self) -> Array:
        """Return marginals per unit of bandwidth at the lower bounds."""
        return self.marginal_at_lower

    def _response(self, price: float | Array, *, sloping: bool = True) -> tuple[Array, Array]:
        """Return the modelled rates at a price, and their fall."""
        own = self.pieces[0].copy()
        for right, piece in zip(self.right, self.pieces[1:], strict=True):
            np.copyto(own, piece, where=price < right)
        a, share, beta, edge, level, pace, floor, ceiling = own
        if self.cap is not None:
            ceiling = np.minimum(ceiling, self.cap)
        over = price - beta
        held = over <= 0.0
        beyond = 1.0 / over - edge
        distance = np.exp(-pace * np.log(np.maximum(beyond, 0.0)) - level)
        inner = distance + share
        rates = a + 1.0 / inner
        np.copyto(rates, ceiling, where=held)
        clipped(rates, floor, ceiling)
        if not sloping:
            return rates, rates
        slopes = distance / (inner * inner) * pace * price / (over * over * beyond)
        np.copyto(slopes, 0.0, where=~((rates > floor) & (rates < ceiling) & np.isfinite(slopes)))
        return rates, slopes


def _piece(
    a: Array, b: Array, alpha: Array, beta: Array, bend_a: Array, bend_b: Array, upper: Array
) -> Array:
    """Return a piece whose line is right near its ends."""
    share, edge = 1.0 / (b - a), 1.0 / (alpha - beta)
    edge = np.where((alpha < np.inf) & (alpha - beta <= _STRAIGHT * np.abs(alpha)), np.inf, edge)
    # There v falls as u rises, and their sum follows from the curvature; of a linear marginal it is known.
    sums = np.stack([-np.log(bend_a) - 2.0 * np.log(edge), np.log(bend_b) - 2.0 * np.log(share)])
    known = np.isfinite(sums)
    straight = np.where(edge > 0.0, -np.log(edge), 0.0) - np.where(share > 0.0, np.log(share), 0.0)
    level = np.sum(np.where(known, sums, 0.0), axis=0) / np.sum(known, axis=0)
    level = np.where(np.isfinite(level), level, straight)
    return np.stack([a, share, beta, edge, level, np.ones(a.shape), a, np.minimum(b, upper)])


def _put_line(
    piece: Array, some: BoolArray, b: Array, rate: Array, marginal: Array, curvature: Array, price: Array
) -> None:
    """Put lines through an evaluation into some sources' piece.

    Where there is none, by rounding, it is Newton's step on the marginal at the price.
    """
    a, share, beta, edge = piece[_BEGIN], piece[_SHARE], piece[_LEAST], piece[_EDGE]
    inner, over = 1.0 / (rate - a), 1.0 / (marginal - beta)
    distance, beyond = inner - share, over - edge
    pace = inner * inner / distance * (beyond / (over * over)) / curvature
    level = pace * -np.log(beyond) - np.log(distance)
    line = some & np.isfinite(level) & (pace > 0.0) & (rate > a) & (rate < b)
    np.copyto(piece[_LEVEL], level, where=line)
    np.copyto(piece[_PACE], pace, where=line)
    # Rates near an infinite end, and all without a line, move by some nats at most.
    nats = math.exp(REACH)
    down, up = a + (rate - a) / nats, np.minimum(b, a + 1.0 / (distance / nats + share))
    up = np.where((distance > 0.0) & (rate > a) & (rate < b), up, b)
    plain = rate + (marginal - price) / curvature
    plain = np.where(np.isfinite(plain), plain, np.where(marginal > price, 0.5 * (rate + b), down))
    plain = np.where(marginal == price, rate, np.minimum(np.maximum(plain, down), up))
    for row, bound in (
        (_FLOOR, np.where(edge == 0.0, down, a)),
        (_CEILING, np.where(share == 0.0, up, b)),
    ):
        np.copyto(piece[row], np.where(line, bound, plain), where=some)


def _crossings(chunk: Chunk) -> list[Crossing]:
    """Return where branches of a chunk's sources are equal, by rising rate."""
    found: list[Crossing] = []
    for where, numerics in chunk.kinds:
        node = numerics.node
        bounds = chunk.lower[where], chunk.upper[where]
        own = kink_rates(node, *bounds, numerics.scale) if isinstance(node, Tape) else None
        for k, crossing in enumerate(own or []):
            if k == len(found):
                found.append(Crossing(np.full(chunk.cost.shape, np.nan), np.zeros(chunk.cost.shape)))
            found[k].rate[where], found[k].error[where] = crossing
    if len(found) < 2:
        return found
    rates = np.stack([each.rate for each in found])
    order = np.argsort(rates, axis=0, kind="stable")[: int(np.max(np.sum(~np.isnan(rates), axis=0)))]
    ordered = (np.take_along_axis(np.stack(each), order, 0) for each in zip(*found, strict=True))
    return [Crossing(*each) for each in zip(*ordered, strict=True)]


def _kinks(chunk: Chunk, found: Sequence[Crossing]) -> tuple[Array, Array, Array]:
    """Return rates, marginals (k, m), curvatures (2, k, m) of kinks, ascending."""
    rates, marginals, curvatures = [], [], []
    for rate, error in found:
        sides = [chunk.jets(rate * (1.0 + side * error), side)[1:] for side in (LEFT, RIGHT)]
        marginal, curvature = (np.stack(each) for each in zip(*sides, strict=True))
        least = _FALL + _BESIDE * error
        real = _differ(marginal, least) | _differ(curvature, least)
        rates.append(np.where(real, _onto(chunk, rate, marginal), np.inf))
        marginals.append(np.where(real, marginal / chunk.cost, -np.inf))
        curvatures.append(curvature / chunk.cost)
    order = np.argsort(rates, axis=0, kind="stable")
    order = order[: int(np.max(np.sum(np.isfinite(rates), axis=0)))]
    both = np.stack([np.stack(marginals, axis=1), np.stack(curvatures, axis=1)])
    marginal, bend = np.take_along_axis(both, order[None, None], 2)
    return np.take_along_axis(np.stack(rates), order, 0), marginal, bend


def _differ(sides: Array, least: Array) -> BoolArray:
    """Return whether both sides of a kink differ."""
    differ: BoolArray = np.abs(sides[0] - sides[1]) > least * np.max(np.abs(sides), axis=0)
    return differ


def _onto(chunk: Chunk, rate: Array, marginal: Array) -> Array:
    """Return rates of kinks, none an ulp left of its kink."""
    middle = 0.5 * (marginal[0] + marginal[1])
    moved = rate
    for _ in range(JUMPED):
        short = (marginal[0] > marginal[1]) & (chunk.jets(moved)[1] > middle)
        if not bool(np.any(short)):
            break
        moved = np.where(short, np.nextafter(moved, np.inf), moved)
    return np.minimum(moved, chunk.upper)
