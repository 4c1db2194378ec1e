"""`Gap`: the certificate's bound on F* − F(ρ), at any prices.

See `freshopt.certificate` for the inequality and why it holds. What all prices share (cost and slope at the
rates, what is left of the limits) is computed once; each pair of prices then costs one pass over the sources,
in chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array, chunks, exact_sum, total
from freshopt.kernel import Numerics
from freshopt.model import Problem

PUSH = 1e-6  # of the rate: nearer to it than this, steps outwards grow eightfold, beyond it twofold
_PUSHES = 80  # steps: from 8 ulp up to 1e12 times the rate, before the bound itself is taken


@dataclass(frozen=True, slots=True, eq=False)
class Gap:
    """The bound for one feasible vector of rates.

    Attributes
    ----------
    problem : Problem
    rates : ndarray, shape (n,)
    numerics : Numerics
    slope : ndarray, shape (n,)
        f'(ρ), the marginal at the rates.
    cost : float
        Σ of the sources' costs at the rates.
    slack : float
        B − Σ cost·ρ, ≥ 0.
    host_slack : ndarray, shape (H,)
        L_h − S_h, ≥ 0.
    """

    problem: Problem
    rates: Array
    numerics: Numerics
    slope: Array
    cost: float
    slack: float
    host_slack: Array

    @classmethod
    def of(cls, problem: Problem, rates: Array, numerics: Numerics) -> Gap:
        """Evaluate cost and slope at feasible rates."""
        slope, costs = np.empty(len(rates)), []
        for part in chunks(len(rates)):
            piece = numerics.take(part)
            slope[part] = piece.marginal(rates[part])
            costs.append(float(np.sum(piece.cost(rates[part]))))
        used = problem.sources.cost * rates
        slack = max(0.0, problem.bandwidth - total(used))
        host_slack = np.maximum(0.0, problem.hosts.limits - problem.hosts.totals(used))
        return cls(problem, rates, numerics, slope, exact_sum(costs), slack, host_slack)

    def at(self, price: float, host_prices: Array) -> float:
        """Return the bound at a bandwidth price and the limited hosts' prices on top of it."""
        hosts = self.problem.hosts
        each = (
            hosts.spread(price + host_prices, price)
            if len(hosts)
            else np.broadcast_to(price, self.rates.shape)
        )
        terms = self.terms(each)
        slack = price * self.slack if price > 0.0 else 0.0
        parts = (float(np.sum(terms[part])) for part in chunks(len(terms)))
        return exact_sum([slack, float(np.dot(host_prices, self.host_slack)), *parts])

    def terms(self, each: Array) -> Array:
        """Return max(0, (ρ̂−ρ)(f'(ρ)−ν)) of every source at its own price per unit of bandwidth."""
        terms = np.empty(len(self.rates))
        for part in chunks(len(terms)):
            terms[part] = self._terms(part, self.problem.sources.cost[part] * each[part])
        return terms

    def _terms(self, part: slice, paid: Array) -> Array:
        """Return the terms of a chunk, with ρ̂ pushed outwards until its marginal has crossed ν."""
        rates, slope = self.rates[part], self.slope[part]
        lower, upper = self.problem.lower[part], self.problem.upper[part]
        numerics = self.numerics.take(part)
        rising = slope > paid
        edge = np.where(rising, upper, lower)
        open_ = (slope != paid) & (rates != edge)
        wish = np.clip(numerics.inverse_marginal(paid), lower, upper)
        with np.errstate(all="ignore"):
            # Outwards from ρ. The inverse may have landed on ρ itself (a kink) or on its wrong side by
            # rounding.
            step = np.where(rising, wish - rates, rates - wish)
            least = PUSH * np.maximum(rates, self.problem.sources.change_rate[part])
            step = np.where(step > 0.0, step, np.maximum(8.0 * np.spacing(rates), 1e-9 * least))
            step = np.where(open_, np.minimum(step, np.abs(edge - rates)), 0.0)
            for _ in range(_PUSHES):
                reached = np.where(rising, rates + step, rates - step)
                at_edge = np.where(rising, reached >= upper, reached <= lower)
                worth = numerics.marginal(reached)
                crossed = np.where(rising, worth <= paid, worth >= paid)
                short = open_ & ~at_edge & ~crossed
                if not bool(np.any(short)):
                    break
                further = np.where(step < least, 8.0 * step, 2.0 * step)
                step = np.where(short, np.minimum(further, np.abs(edge - rates)), step)
            else:
                step = np.where(short, np.abs(edge - rates), step)
            return np.where(open_, step * np.abs(slope - paid), 0.0)
