"""`Tangents`: every source's cost between the tangents at the rates where it was evaluated.

For what Newton's lines do not lead to: kinks, linear pieces, marginals that end at a finite rate. A convex
cost lies above its tangents, so their maximum is a piecewise linear model that is nowhere too high, and the
model's demand at a price is a step function that falls from one meeting point of neighbouring tangents to the
next. Evaluating there adds a tangent; where the cost is piecewise linear its kinks are met exactly, elsewhere
each evaluation about halves the distance. What the model is too low by at the rates is what these may lose at
most.

This is the cutting-plane method (Kelley, J. SIAM 8(4), 1960), one dimension per source and one price for all.
The two bounds and the `KEPT` latest rates of each source are remembered.
"""

from __future__ import annotations

import math

import numpy as np

from freshopt.arrays import Array, exact_sum
from freshopt.solvers.local_models import REACH, LocalModels, jets

KEPT = (
    10  # rates of a source, besides its bounds; sources with more pieces near their price forget and relearn
)


class Tangents:
    """Models of all sources' demand from several evaluations each.

    Parameters
    ----------
    models : LocalModels
        Whose bounds, numerics and latest evaluation are taken over. Both bounds are evaluated.
    """

    def __init__(self, models: LocalModels) -> None:
        n = len(models.rate)
        self.cost, self.lower, self.upper = models.cost, models.lower, models.upper
        self.pieces, self.rate = models.pieces, np.array(models.rate)
        self.evaluations = models.evaluations
        self.misfit = 0.0  # not asked of kinks
        self._cap = np.full(n, np.inf)
        shape = (KEPT + 2, n)
        self._rates, self._marginals, self._values = np.empty(shape), np.empty(shape), np.empty(shape)
        self._meets = np.empty((KEPT + 1, n))
        for row, bound in ((slice(0, 1), self.lower), (slice(1, None), self.upper)):
            self._rates[row] = bound
            self._marginals[row], self._values[row] = self._evaluated(np.array(bound))
        unknown = ~np.isfinite(self._values[-1]) & (self.upper > self.lower)
        self._marginals[1:, unknown] = -np.inf

    def lowest(self) -> Array:
        """Return marginals per unit of bandwidth at the lower bounds."""
        return np.array(self._marginals[0])

    def evaluate(self, prices: Array) -> tuple[float, float]:
        """Evaluate the expression at `rate` and add a tangent.

        Parameters
        ----------
        prices : ndarray, shape (n,)
            What each source pays per unit of bandwidth, by the last models.

        Returns
        -------
        (gap, cost)
            A bound on what the rates lose, and the sources' costs.
        """
        marginal, value = self._evaluated(self.rate)
        self._cap = np.full(len(self.rate), np.inf)
        gaps, costs = [], []
        with np.errstate(all="ignore"):
            for part, _ in self.pieces:
                gaps.append(self._add(part, marginal[part], value[part], prices[part]))
                costs.append(float(np.sum(value[part])))
        return exact_sum(gaps), exact_sum(costs)

    def rates(self, log_price: float | Array) -> Array:
        """Return the models' rates at log λ: one for all, or one each."""
        price = np.exp(log_price)
        found = np.empty(len(self.rate))
        for part, _ in self.pieces:
            own = price[part] if isinstance(price, np.ndarray) and price.ndim else price
            rate = found[part]
            rate[:] = self.lower[part]
            for marginal, beyond in zip(self._marginals[:-1], self._meets, strict=True):
                np.copyto(rate, beyond[part], where=marginal[part] > own)
            np.copyto(rate, self.upper[part], where=self._marginals[-1, part] > own)
            np.minimum(rate, self._cap[part], out=rate)
        return found

    def response(self, log_price: Array) -> tuple[Array, Array]:
        """Return the bandwidth each source takes at its log λ; a step function falls by 0."""
        return self.rates(log_price) * self.cost, np.zeros(len(self.rate))

    def total_response(self, log_price: float) -> tuple[float, float]:
        """Return the bandwidth that all sources take at log λ; a step function falls by 0."""
        rates = self.rates(log_price)
        return exact_sum(float(np.dot(rates[part], self.cost[part])) for part, _ in self.pieces), 0.0

    def cap(self, rates: Array) -> None:
        """Let the models' rates, until the next evaluation, exceed none of these."""
        self._cap = rates

    def move(self, rates: Array) -> None:
        """Take rates for the next evaluation."""
        self.rate = np.array(rates)

    def _evaluated(self, rate: Array) -> tuple[Array, Array]:
        """Return marginals per unit of bandwidth and costs."""
        marginal, value = np.empty(len(rate)), np.empty(len(rate))
        with np.errstate(all="ignore"):
            for part, kinds in self.pieces:
                value[part], worth, _ = jets(kinds, rate[part])
                marginal[part] = worth / self.cost[part]
        # At the edge of its domain an expression may have no value, or no tangent.
        known = np.isfinite(value) & np.isfinite(marginal)
        marginal[~known], value[~known] = np.inf, np.inf
        self.evaluations += 1
        return marginal, value

    def _add(self, part: slice, marginal: Array, value: Array, price: Array) -> float:
        """Add a chunk's tangents, renew where they meet, and return by how much the model was too low."""
        rate, cost = self.rate[part], self.cost[part]
        rates, marginals, values = self._rates[:, part], self._marginals[:, part], self._values[:, part]
        model = np.max(
            np.where(np.isfinite(values), values - cost * marginals * (rate - rates), -np.inf), axis=0
        )
        lost = np.maximum(value - model, 0.0)
        outer = ~np.isfinite(values[0]) & (marginal < price) & (np.min(rates[1:], axis=0) >= rate)
        lost = np.where(outer, np.maximum(lost, cost * (price - marginal) * rate), lost)

        place = np.sum(rates < rate, axis=0)  # it belongs between place − 1 and place
        fresh = np.isfinite(value) & ~np.any(rates == rate, axis=0)
        # Room is made at the end that is farther away, first among the copies of the upper bound.
        left = fresh & (place > KEPT // 2 + 1) & (rates[-2] < rates[-1])
        right = fresh & ~left
        for rows, new in ((rates, rate), (marginals, marginal), (values, value)):
            for k in range(1, KEPT + 1):
                np.copyto(rows[k], rows[k + 1], where=left & (k < place - 1))
                np.copyto(rows[k], new, where=left & (k == place - 1))
            for k in range(KEPT, 0, -1):
                np.copyto(rows[k], rows[k - 1], where=right & (k > place))
                np.copyto(rows[k], new, where=right & (k == place))
        self._meet(part)
        return float(np.sum(lost))

    def _meet(self, part: slice) -> None:
        """Find where neighbouring tangents meet."""
        rates, marginals, values = self._rates[:, part], self._marginals[:, part], self._values[:, part]
        cost = self.cost[part]
        near, far = rates[:-1], rates[1:]
        drop = values[:-1] - values[1:] - cost * marginals[1:] * (far - near)
        meet = near + drop / (cost * (marginals[:-1] - marginals[1:]))
        meet = np.where(np.isfinite(meet), np.clip(meet, near, far), far)
        meet = np.where(np.isfinite(values[1:]), meet, 0.5 * (near + far))
        # Nothing is known left of the first rate with a finite cost: a step on logarithms.
        endless = ~np.isfinite(values[:-1])
        self._meets[:, part] = np.where(endless, np.maximum(near, far * math.exp(-REACH)), meet)
