"""`CuttingPlanes`: convex costs bounded below by their tangents.

Tangents are taken at the rates where a source was evaluated.

For what Newton's lines do not lead to: kinks that were not found, marginals that end at a finite rate. A
convex cost lies above its tangents, so their maximum is a piecewise linear model that is nowhere too high,
and the model's demand at a price is a step function that falls from one meeting point of neighbouring
tangents to the next. Evaluating there adds a tangent; where the cost is piecewise linear its kinks are met
exactly, elsewhere each evaluation about halves the distance. What the model is too low by at the rates is
what these may lose at most.

This is the cutting-plane method (Kelley, J. SIAM 8(4), 1960), one dimension per source and one price for all.
The two bounds and the `KEPT` latest rates of each source are remembered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from freshopt.dual_search.demand_models import REACH, Chunk, ChunkEvaluation, DemandModels
from freshopt.dual_search.kinked_models import KinkedModel
from freshopt.dual_search.local_models import LocalModel
from freshopt.numerics.arrays import Array

# Rates of a source, besides its bounds; sources with more pieces near their price forget and relearn.
KEPT = 10


@dataclass(frozen=True, slots=True, eq=False)
class CuttingPlanes:
    """Lower bounds of a chunk's costs, from several evaluations each.

    - `rates_at`, `marginals`, `values` (KEPT + 2, m): The evaluations by rising rate: where, the marginals
      per unit of bandwidth, and the costs. The first is at the lower bound and the last at the upper one; inf
      where the expression has no value.
    - `meets` (KEPT + 1, m): Where neighbouring tangents meet.
    - `cap` (m,): What the modelled rates do not exceed.
    """

    chunk: Chunk
    rates_at: Array
    marginals: Array
    values: Array
    meets: Array
    cap: Array

    @classmethod
    def between_bounds(cls, chunk: Chunk) -> CuttingPlanes:
        """Evaluate the two bounds; meeting points follow with the next evaluation."""
        shape = (KEPT + 2, len(chunk.cost))
        rates, marginals, values = np.empty(shape), np.empty(shape), np.empty(shape)
        for row, bound in ((slice(0, 1), chunk.lower), (slice(1, None), chunk.upper)):
            rates[row] = bound
            marginals[row], values[row] = _tangents(chunk, bound)
        unknown = ~np.isfinite(values[-1]) & (chunk.upper > chunk.lower)
        marginals[1:, unknown] = -np.inf
        return cls(chunk, rates, marginals, values, np.empty((KEPT + 1, shape[1])), np.full(shape[1], np.inf))

    def rates(self, log_price: float | Array) -> Array:
        """Return the modelled rates at log λ."""
        price = np.exp(log_price)
        found: Array = self.chunk.lower.copy()
        for marginal, beyond in zip(self.marginals[:-1], self.meets, strict=True):
            np.copyto(found, beyond, where=marginal > price)
        np.copyto(found, self.chunk.upper, where=self.marginals[-1] > price)
        return np.minimum(found, self.cap, out=found)

    def slopes(self, log_price: float | Array, rates: Array) -> Array:  # noqa: ARG002
        """Return 0: the modelled demand is a step function."""
        return np.zeros(len(rates))

    def total(self, log_price: float) -> tuple[float, float]:
        """Return the bandwidth used at log λ, and its fall per nat."""
        rates = self.rates(log_price)
        slopes = self.slopes(log_price, rates)
        return float(np.dot(rates, self.chunk.cost)), float(np.dot(slopes, self.chunk.cost))

    def jumps(self) -> Array:
        """Return nothing: all of its demand is steps."""
        return np.empty(0)

    def capped(self, rates: Array) -> CuttingPlanes:
        """Return the models with no rates above these, until the next evaluation."""
        return replace(self, cap=rates)

    def evaluated(self, rates: Array, price: Array) -> ChunkEvaluation:
        """Evaluate the expression at the rates and add a tangent.

        The gap is a bound: what the model is too low by. The misfit is 0, as kinks have many marginals.
        """
        marginal, value = _tangents(self.chunk, rates)
        gap = float(np.sum(self._suboptimality(rates, marginal, value, price)))
        model = self._with_tangents(rates, marginal, value)
        return ChunkEvaluation(model, gap, float(np.sum(value)), 0.0)

    def marginals_at_lower(self) -> Array:
        """Return marginals per unit of bandwidth at the lower bounds."""
        first: Array = self.marginals[0]
        return first

    def _suboptimality(self, rate: Array, marginal: Array, value: Array, price: Array) -> Array:
        """Return by how much each model is too low at the rate."""
        cost, values = self.chunk.cost, self.values
        below = values - cost * self.marginals * (rate - self.rates_at)
        model = np.max(np.where(np.isfinite(values), below, -np.inf), axis=0)
        lost = np.maximum(value - model, 0.0)
        # Nothing bounds the cost left of the first rate at which it is finite.
        outer = ~np.isfinite(values[0]) & (marginal < price) & (np.min(self.rates_at[1:], axis=0) >= rate)
        found: Array = np.where(outer, np.maximum(lost, cost * (price - marginal) * rate), lost)
        return found

    def _with_tangents(self, rate: Array, marginal: Array, value: Array) -> CuttingPlanes:
        """Return the models with one more tangent per source, in place."""
        old = self.rates_at
        place = np.sum(old < rate, axis=0)  # it belongs between place − 1 and place
        fresh = np.isfinite(value) & ~np.any(old == rate, axis=0)
        # Room is made at the end that is farther away, first among the copies of the upper bound.
        left = fresh & (place > KEPT // 2 + 1) & (old[-2] < old[-1])
        right = fresh & ~left
        rates, marginals, values = self.rates_at.copy(), self.marginals.copy(), self.values.copy()
        for row, new in ((rates, rate), (marginals, marginal), (values, value)):
            for k in range(1, KEPT + 1):
                np.copyto(row[k], row[k + 1], where=left & (k < place - 1))
                np.copyto(row[k], new, where=left & (k == place - 1))
            for k in range(KEPT, 0, -1):
                np.copyto(row[k], row[k - 1], where=right & (k > place))
                np.copyto(row[k], new, where=right & (k == place))
        meets = _meeting_points(self.chunk.cost, rates, marginals, values)
        return CuttingPlanes(self.chunk, rates, marginals, values, meets, np.full(len(rate), np.inf))


def cutting_planes(models: DemandModels, prices: Array) -> DemandModels:
    """Return cutting planes of the same sources.

    Tangents are taken at both bounds, and where local models were evaluated.

    - `models`: Local ones.
    - `prices` (n,): What each source pays per unit of bandwidth.
    """
    local = [piece for piece in models.pieces if isinstance(piece, LocalModel | KinkedModel)]
    pieces = tuple(CuttingPlanes.between_bounds(piece.chunk) for piece in local)
    evaluated = np.concatenate([piece.rate for piece in local])
    return DemandModels(pieces, models.evaluations + 2).evaluated(evaluated, prices).models


def _tangents(chunk: Chunk, rate: Array) -> tuple[Array, Array]:
    """Return marginals per unit of bandwidth, and costs, inf without them."""
    with np.errstate(all="ignore"):
        value, slope, _ = chunk.jets(rate)
        marginal = slope / chunk.cost
    # At the edge of its domain an expression may have no value, or no tangent.
    known = np.isfinite(value) & np.isfinite(marginal)
    return np.where(known, marginal, np.inf), np.where(known, value, np.inf)


def _meeting_points(cost: Array, rates: Array, marginals: Array, values: Array) -> Array:
    """Return where neighbouring tangents meet."""
    near, far = rates[:-1], rates[1:]
    drop = values[:-1] - values[1:] - cost * marginals[1:] * (far - near)
    meet = near + drop / (cost * (marginals[:-1] - marginals[1:]))
    meet = np.where(np.isfinite(meet), np.clip(meet, near, far), far)
    meet = np.where(np.isfinite(values[1:]), meet, 0.5 * (near + far))
    # Nothing is known left of the first rate with a finite cost: a step on logarithms.
    infinite = ~np.isfinite(values[:-1])
    points: Array = np.where(infinite, np.maximum(near, far * math.exp(-REACH)), meet)
    return points
