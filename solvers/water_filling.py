"""Water-filling: one price decides every rate.

At the optimum each source buys refreshes until the next one is worth no more than the price λ of bandwidth:
ρ_k = clip((f_k')^{-1}(cost_k λ), lo_k, hi_k). The total falls as λ rises, so a one-dimensional search for
Σ cost ρ = B solves the problem, whatever the number of sources. A host at its limit has a price λ_h of its
own, which does not depend on λ; its sources pay max(λ, λ_h), so host limits cost one more search (over all
hosts at once) and no nesting.

Where marginals are flat or constant the total jumps at λ. The search ends with prices on both sides of the
root, and the rates are the mixture of the two sides that spends the bandwidth exactly. Each evaluation is one
pass over the sources; a search takes about ten.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array, BoolArray, chunks, exact_sum, total
from freshopt.columns import columns_of
from freshopt.errors import InfeasibleProblemError, list_offenders
from freshopt.kernel import Numerics
from freshopt.model import FEW_ULP, Problem
from freshopt.result import Answer, Solution, Status
from freshopt.solvers.compiled_filling import FREE, fill_compiled
from freshopt.solvers.price_search import WIDTH, search_prices
from freshopt.verdict import DEFAULT, Terms, conclude


@dataclass(frozen=True, slots=True)
class WaterFilling:
    """The exact dual solver, for any objective with a kernel or derived numerics.

    Bounds, host limits, unequal costs and signalled sources are all carried. The bandwidth, where it binds,
    is met to a few ulp.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), fo.Sources([1.0, 2.0, 50.0]), bandwidth=1.0)
    >>> solution = fo.solve(problem, WaterFilling())
    >>> bool(abs(solution.rates.sum() - 1.0) < 1e-15), solution.certificate.relative_gap < 1e-12
    (True, True)
    """

    def supports(self, problem: Problem) -> str | None:
        """Refuse only objectives whose derivatives are unknown."""
        return problem.unknown_atom or None

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Solve and certify."""
        return conclude(
            self,
            problem,
            terms,
            lambda problem, start: fill(problem, problem.numerics, start, spent=terms.spent),
        )


def fill(
    problem: Problem,
    numerics: Numerics | None,
    start: float | None = None,
    width: float = WIDTH,
    spent: float | None = None,
) -> Answer:
    """Return rates and prices that clear the market of a problem's constraints, uncertified.

    Parameters
    ----------
    problem : Problem
        Its bounds, costs and limits.
    numerics : Numerics
        Whose demand is to be cleared: the problem's own, or a baseline's idea of worth.
    start : float, optional
        A price to start from.
    width : float
        Relative accuracy of the prices; the bandwidth is met to rounding in any case.
    spent : float, optional
        The bandwidth used at `start`, if that is known.
    """
    if numerics is None:
        return Answer(None, status=Status.REFUSED, note=problem.unknown_atom)
    columns = columns_of(problem, numerics)
    found = None if columns is None else fill_compiled(problem, columns, start, spent)
    if found is not None:
        return found
    market = _Market(problem, numerics, width)
    host_prices, host_evaluations = market.settle_hosts(start)
    if market.demand(FREE) <= problem.bandwidth * (1.0 + FEW_ULP):
        rates, price, evaluations = market.rates(FREE), 0.0, 1
    elif total(problem.sources.cost * problem.lower) >= problem.bandwidth * (1.0 - FEW_ULP):
        rates, price, evaluations = market.at_lower_bounds()
    else:
        rates, price, evaluations = market.settle(start)
    excess = np.maximum(0.0, host_prices - price)
    return Answer(
        rates,
        price,
        problem.hosts.named(excess),
        host_evaluations + evaluations,
    )


class _Market:
    """Demand of a problem's sources at prices; hosts settle first, then the bandwidth."""

    def __init__(self, problem: Problem, numerics: Numerics, width: float) -> None:
        self.problem, self.numerics, self.width = problem, numerics, width
        self.host_price: Array | None = None  # λ_h of each source's host, once settled
        self.host_rates: Array | None = None  # rates at λ_h
        self.pinned: BoolArray | None = None  # sources whose host is used up by min_rate

    def rates(self, price: float | Array) -> Array:
        """Return each source's rate at a price per unit of bandwidth (one for all, or one each)."""
        problem = self.problem
        paid = np.broadcast_to(price, (len(problem.sources),))
        rates = np.empty(len(paid))
        for part in chunks(len(rates)):
            wish = self.numerics.take(part).inverse_marginal(problem.sources.cost[part] * paid[part])
            most = 2.0 * problem.bandwidth / problem.sources.cost[part]  # of a source that no rate satisfies
            wish = np.where(np.isinf(wish), most, wish)
            rates[part] = np.clip(wish, problem.lower[part], problem.upper[part])
        if self.pinned is not None:
            rates = np.where(self.pinned, problem.lower, rates)
        if self.host_price is not None and self.host_rates is not None:
            rates = np.where(self.host_price > paid, self.host_rates, rates)
        return rates

    def demand(self, price: float) -> float:
        """Return the bandwidth used at a price; inf where a source would be refreshed without end."""
        cost, rates = self.problem.sources.cost, self.rates(price)
        return exact_sum(float(np.sum(cost[part] * rates[part])) for part in chunks(len(rates)))

    def settle(self, start: float | None) -> tuple[Array, float, int]:
        """Return rates that spend the bandwidth, the price at which they do, and the evaluations it took."""
        target = np.array([self.problem.bandwidth])
        found = search_prices(
            lambda prices: np.array([self.demand(float(prices[0]))]),
            target,
            np.array([self._guess(start)]),
            self.width,
        )
        low, high = float(found.low[0]), float(found.high[0])
        generous, frugal = self.rates(low), self.rates(high)
        rates, share = self._mix(generous, frugal, self.problem.bandwidth)
        price = high + share * (low - high)
        if bool(np.any(generous >= 2.0 * self.problem.bandwidth / self.problem.sources.cost)):
            price = high  # a source that no rate satisfies: below its worth nothing bounds its demand
        return rates, price, found.evaluations + 2

    def settle_hosts(self, start: float | None) -> tuple[Array, int]:
        """Find λ_h of all limited hosts at once; 0 where a limit cannot bind."""
        problem, hosts = self.problem, self.problem.hosts
        if not len(hosts):
            return np.empty(0), 0
        cost = problem.sources.cost

        def demand(prices: Array) -> Array:
            return hosts.totals(cost * self.rates(hosts.spread(prices, 1.0)))

        fixed = hosts.totals(cost * problem.lower) >= hosts.limits * (1.0 - FEW_ULP)
        binds = (demand(np.full(len(hosts), FREE)) > hosts.limits * (1.0 + FEW_ULP)) & ~fixed
        prices = np.zeros(len(hosts))
        if bool(np.any(fixed)):
            edge = self._edge_prices()
            member: BoolArray = fixed[np.minimum(hosts.codes, len(hosts) - 1)] & (hosts.codes < len(hosts))
            self._require_finite(member, "a host's limit")
            self.pinned = member
            np.maximum.at(prices, hosts.codes[member], edge[member])
        lowest = self.rates(np.inf)
        if bool(np.any(binds)):
            targets = np.where(binds, hosts.limits, 1.0)

            def binding_demand(trial: Array) -> Array:
                return np.where(binds, demand(trial), 1.0)

            found = search_prices(
                binding_demand, targets, np.full(len(hosts), self._guess(start)), self.width
            )
            generous, frugal = (
                self.rates(hosts.spread(found.low, 1.0)),
                self.rates(hosts.spread(found.high, 1.0)),
            )
            above, below = hosts.totals(cost * generous), hosts.totals(cost * frugal)
            share = _share(hosts.limits, above, below)
            mixed = frugal + hosts.spread(share) * (generous - frugal)
            endless = hosts.totals((generous >= 2.0 * problem.bandwidth / cost).astype(float)) > 0.0
            prices = np.where(
                binds, found.high + np.where(endless, 0.0, share) * (found.low - found.high), prices
            )
            lowest = np.where(hosts.spread(binds.astype(float)) > 0.0, mixed, lowest)
            evaluations = found.evaluations + 3
        else:
            evaluations = 1
        self.host_price, self.host_rates = hosts.spread(prices), lowest
        return prices, evaluations

    def at_lower_bounds(self) -> tuple[Array, float, int]:
        """Return min_rate for everyone, where it uses up the bandwidth, and the price that forbids more."""
        problem = self.problem
        rates = np.array(problem.lower)
        self._require_finite(np.ones(len(rates), dtype=np.bool_), f"the bandwidth {problem.bandwidth:g}")
        return rates, float(np.max(self._edge_prices())), 1

    def _require_finite(self, members: BoolArray, what: str) -> None:
        """Refuse limits that min_rate uses up while a source has an infinite cost at its min_rate."""
        problem = self.problem
        starved = np.flatnonzero(members & ~np.isfinite(self.numerics.cost(np.array(problem.lower))))
        if len(starved):
            raise InfeasibleProblemError(
                f"min_rate uses up {what} and leaves nothing for "
                f"{list_offenders(map(problem.sources.label, starved))}, whose cost is then infinite. "
                "Raise the bandwidth or the limit, or lower min_rate."
            )

    def _edge_prices(self) -> Array:
        """Return the price at which each source would take its min_rate and no more."""
        problem = self.problem
        slope = self.numerics.marginal(np.array(problem.lower)) / problem.sources.cost
        return np.where((problem.upper > problem.lower) & np.isfinite(slope), np.maximum(slope, 0.0), 0.0)

    def _guess(self, start: float | None) -> float:
        """Return a price to start from: the given one, or the typical marginal at equal shares."""
        if start is not None and 0.0 < start < np.inf:
            return start
        problem = self.problem
        share = problem.bandwidth / total(problem.sources.cost)
        slope = self.numerics.marginal(np.full(len(problem.sources), share)) / problem.sources.cost
        usable = slope[(slope > 0.0) & np.isfinite(slope)]
        return float(np.exp(np.median(np.log(usable)))) if len(usable) else 1.0

    def _mix(self, generous: Array, frugal: Array, target: float) -> tuple[Array, float]:
        """Return the mixture of two rate vectors that uses `target`, and the generous one's share."""
        cost = self.problem.sources.cost
        above, below = total(cost * generous), total(cost * frugal)
        share = min(1.0, max(0.0, (target - below) / (above - below))) if above > below else 0.0
        return frugal + share * (generous - frugal), share


def _share(target: Array, above: Array, below: Array) -> Array:
    """Return θ with θ·above + (1−θ)·below = target, within 0..1."""
    span = above - below
    return np.clip(np.where(span > 0.0, (target - below) / np.where(span > 0.0, span, 1.0), 0.0), 0.0, 1.0)
