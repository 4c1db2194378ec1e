"""`Gap`: the duality-gap bound on F* − F(ρ) at any prices.

See `freshopt.certificates.certificate` for the inequality, why it holds, and which dual variable a price is.
What all prices share (cost and slope at the rates, the primal slacks) is computed once; each pair of prices
then costs one pass over the sources, in chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from freshopt.certificates.best_response import limit_term, limit_terms, source_terms
from freshopt.modelling.objective import value_at
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, chunks, exact_sum, sum_of_one_sign
from freshopt.separable.derived_kernel import DerivedNumerics
from freshopt.separable.kernel import Kernel, Numerics
from freshopt.separable.tangents import Contradiction, contradiction

# Sources whose tangents are checked beside a compiled pass: .1 ms.
SAMPLE = 1024
# Where formulas are dear and the kernel proves the gap itself.
DEAR = 64


@dataclass(frozen=True, slots=True, eq=False)
class Gap:
    """Duality-gap bound for one feasible vector of rates.

    - `rates` (n,)
    - `cost`: Σ of the sources' costs at the rates.
    - `value`: The objective at the rates, in the declared sense.
    - `slack`: Primal slack of the bandwidth, B − Σ cost·ρ, ≥ 0.
    - `host_slack` (H,): Primal slacks of the hosts' limits, L_h − S_h, ≥ 0.
    - `known_slope` (n,): The slopes; None where a compiled pass did not keep them.
    - `known_cost` (n,): Each source's cost, likewise.
    - `halved`: Returns what `halving_loss` does, from a compiled pass.
    """

    problem: Problem
    rates: Array
    numerics: Numerics
    cost: float
    value: float
    slack: float
    host_slack: Array
    known_slope: Array | None
    known_cost: Array | None = None
    halved: Callable[[], float] | None = None

    @classmethod
    def of(cls, problem: Problem, rates: Array, numerics: Numerics) -> Gap:
        """Evaluate cost and slope at feasible rates."""
        each, slope, costs, used = np.empty(len(rates)), np.empty(len(rates)), [], []
        for part in chunks(len(rates)):
            each[part], slope[part] = _cost_and_slope(numerics.take(part), rates[part])
            costs.append(float(np.sum(each[part])))
            used.append(sum_of_one_sign(problem.sources.refresh_cost[part] * rates[part]))
        slack = max(0.0, problem.bandwidth - exact_sum(used))
        host_slack = np.zeros(0)
        if len(problem.hosts):
            host_used = problem.hosts.totals(problem.sources.refresh_cost * rates)
            host_slack = np.maximum(0.0, problem.hosts.limits - host_used)
        cost = exact_sum(costs)
        value = value_at(problem.objective, numerics, problem.sources, rates, cost)
        return cls(problem, rates, numerics, cost, value, slack, host_slack, slope, each)

    @property
    def is_quick(self) -> bool:
        """Return whether formulas are dear, and tables prove rates."""
        return isinstance(self.numerics, Kernel) and self.numerics.quick is not None

    @property
    def slope(self) -> Array:
        """Marginal value f'(ρ) at the rates, shape (n,)."""
        if self.known_slope is not None:
            return self.known_slope
        parts = (self._slope(part, self.numerics.take(part)) for part in chunks(len(self.rates)))
        return np.concatenate(list(parts))

    def at(self, price: float, host_prices: Array) -> float:
        """Return the duality-gap bound at given dual variables.

        The hosts' prices come on top of the bandwidth's.
        """
        hosts, cost = self.problem.hosts, self.problem.sources.refresh_cost
        each = (
            hosts.broadcast_to_sources(price + host_prices, price)
            if len(hosts)
            else np.broadcast_to(price, cost.shape)
        )
        parts = (
            float(np.sum(self._chunk_gaps(part, cost[part] * each[part]))) for part in chunks(len(self.rates))
        )
        return exact_sum([*self.limit_terms(price, host_prices).tolist(), *parts])

    def limit_terms(self, price: float, host_prices: Array) -> Array:
        """Return the parts of bandwidth and hosts' limits, shape (1+H,)."""
        own = limit_term(price, self.slack, self.problem.bandwidth)
        if not len(host_prices):
            return np.array((own,))
        return np.append(own, limit_terms(host_prices, self.host_slack, self.problem.hosts.limits))

    def host_gaps(self, price: float, host_prices: Array) -> Array:
        """Return the limited hosts' parts of the duality gap, shape (H,)."""
        hosts = self.problem.hosts
        each = hosts.broadcast_to_sources(price + host_prices, price)
        return hosts.totals(self.source_gaps(each)) + self.limit_terms(price, host_prices)[1:]

    def halving_loss(self) -> float:
        """Return what halving all rates would add to the cost."""
        if self.halved is not None:
            return self.halved()
        lost, lower, upper = [], self.problem.lower, self.problem.upper
        with np.errstate(all="ignore"):
            for part in chunks(len(self.rates)):
                piece, rates = self.numerics.take(part), self.rates[part]
                halved = np.where(lower[part] < upper[part], 0.5 * rates, rates)
                lost.append(float(np.sum(piece.cost(halved) - piece.cost(rates))))
        return exact_sum(lost)

    def contradiction(self) -> Contradiction | None:
        """Return a source whose cost lies below its tangent, or None.

        Costs at one more rate are asked for, an evaluation of values. Where a compiled pass proved the gap at
        a nanosecond a source, a sample of many sources has to do.
        """
        n = len(self.rates)
        step = 1 if self.known_cost is not None else -(-n // (DEAR if self.is_quick else SAMPLE))
        with np.errstate(all="ignore"):
            for block in chunks(-(-n // step)):
                part = slice(block.start * step, block.stop * step, step)
                numerics, rates = self.numerics.take(part), self.rates[part]
                if self.known_cost is None or self.known_slope is None:
                    cost, slope = _cost_and_slope(numerics, rates)
                else:
                    cost, slope = self.known_cost[part], self.known_slope[part]
                bounds = self.problem.lower[part], self.problem.upper[part]
                typical = self.problem.sources.scale[part]
                found = contradiction(numerics, rates, cost, slope, *bounds, typical)
                if found is not None:
                    return found._replace(source=part.start + step * found.source)
        return None

    def _slope(self, part: slice, numerics: Numerics) -> Array:
        return numerics.marginal(self.rates[part]) if self.known_slope is None else self.known_slope[part]

    def source_gaps(self, each: Array) -> Array:
        """Return each source's share of the duality gap, at its own price."""
        terms = np.empty(len(self.rates))
        for part in chunks(len(terms)):
            terms[part] = self._chunk_gaps(part, self.problem.sources.refresh_cost[part] * each[part])
        return terms

    def _chunk_gaps(self, part: slice, paid: Array) -> Array:
        """Return the gaps of a chunk at what its sources pay."""
        numerics, problem = self.numerics.take(part), self.problem
        bounds = problem.lower[part], problem.upper[part]
        typical = problem.sources.scale[part]
        most = problem.bandwidth / problem.sources.refresh_cost[part]
        with np.errstate(all="ignore"):
            slope = self._slope(part, numerics)
            return source_terms(numerics, self.rates[part], slope, paid, paid, *bounds, typical, most)


def _cost_and_slope(numerics: Numerics, rates: Array) -> tuple[Array, Array]:
    """Return cost and slope, from one evaluation where possible."""
    if isinstance(numerics, DerivedNumerics):
        jet = numerics.jet(rates, order=1)
        return jet.cost, jet.marginal
    return numerics.cost(rates), numerics.marginal(rates)
