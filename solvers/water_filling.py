"""Water-filling: the dual solver, in which one price decides every rate.

The problem is to maximise Σ f_k(ρ_k), with f_k concave: minus the weighted cost w_k·J(ρ_k) of source k, or
its weighted freshness. The price λ of bandwidth is its dual variable (shadow price). At the optimum (KKT)
each rate is the source's best response to it, where the marginal value of one more refresh is no more than
its price: ρ_k = clip((f_k')^{-1}(cost_k λ), lo_k, hi_k). The total, the demand, falls as λ rises, so a
one-dimensional search for Σ cost ρ = B (complementary slackness) solves the dual and with it the primal
problem, whatever the number of sources. A host at its limit has a price λ_h of its own, which does not depend
on λ; its sources pay max(λ, λ_h) = λ + μ_h, so host limits cost one more search (over all hosts at once) and
no nesting.

Where marginals are flat or constant the total jumps at λ. The search ends with prices on both sides of the
root, and the rates are the mixture of the two sides that uses up the bandwidth exactly. Each evaluation is
one pass over the sources; a search takes about ten.

Where demand is the bandwidth at every price of an interval (all sources at a bound or at their host's limit),
any of these prices is optimal. The answer is the least: the least price whose demand exceeds the bandwidth by
no more than rounding, `freshopt.numerics.arrays.ROUNDED`, and 0 if that is none. What is searched for is
therefore where demand crosses the bandwidth plus rounding, far from where a last bit decides. So with
the hosts' own prices; what a host pays on top of the bandwidth's least price is then decided as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshopt.certificates.solution import Answer, Solution, Status
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.dual_search.batch_water_filling import batch_cell, solve_alone
from freshopt.dual_search.compiled_water_filling import TINY_PRICE, fill_compiled
from freshopt.dual_search.price_bracketing import BEYOND, WIDTH, edge_prices, search_prices, trimmed
from freshopt.dual_search.problem_columns import columns_of
from freshopt.dual_search.quick_search import fill_quickly
from freshopt.dual_search.segment_ends import at_segment_ends
from freshopt.modelling.bounds_check import require_finite
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import ROUNDED, Array, BoolArray, chunks, exact_sum, median, total
from freshopt.separable.kernel import Kernel, Numerics

# A sum that was added one by one and exceeds a limit by more exceeds it.
BEYOND_ROUNDING = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class WaterFilling:
    """Exact dual solver, for any objective with a kernel or derivatives.

    Bounds, host limits, unequal costs and signalled sources are all carried. The bandwidth, where it binds,
    is met to a few ulp.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 2.0, 50.0]), bandwidth=1.0)
    >>> solution = fo.solve(problem, WaterFilling())
    >>> bool(abs(solution.rates.sum() - 1.0) < 1e-15), solution.certificate.relative_gap < 1e-12
    (True, True)
    """

    conditional_fetches: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:
        """Return why the derivatives are unknown, or None."""
        return problem.unknown_atom or None

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Solve the dual and certify the rates."""
        alone = solve_alone(problem, options, self)
        if alone is not None:
            return alone
        return certified_solution(
            self,
            problem,
            options,
            lambda problem, start: fill(
                problem,
                problem.numerics,
                start,
                bandwidth_used=options.bandwidth_used,
                in_account=batch_cell(problem) is not None,
            ),
        )


def fill(
    problem: Problem,
    numerics: Numerics | None,
    start: float | None = None,
    width: float = WIDTH,
    bandwidth_used: float | None = None,
    *,
    in_account: bool = False,
) -> Answer:
    """Return the dual prices of a problem and their rates, uncertified.

    - `problem`: Its bounds, costs and limits.
    - `numerics`: Marginal values of the sources: the problem's own, or those that a baseline maximises.
    - `start`: A price to start from.
    - `width`: Relative accuracy of the prices; the bandwidth is met to rounding in any case.
    - `bandwidth_used`: The bandwidth used at `start`, if that is known.
    - `in_account`: Whether the work is entered in that of `freshopt.compiled.backend`.
    """
    if numerics is None:
        return Answer(None, status=Status.REFUSED, note=problem.unknown_atom)
    if isinstance(numerics, Kernel) and numerics.quick is not None:
        found, numerics = fill_quickly(problem, numerics, numerics.quick, start)
    else:
        columns = columns_of(problem, numerics, in_account=in_account)
        found = None if columns is None else fill_compiled(problem, numerics, columns, start, bandwidth_used)
    if found is not None:
        return found
    dual = _DualProblem(problem, numerics, width)
    host_prices, host_evaluations = dual.solve_hosts(start)
    if not dual.exceeds(TINY_PRICE, problem.bandwidth * (1.0 + ROUNDED)):
        rates, price, evaluations = dual.rates(TINY_PRICE), 0.0, 1
    elif total(problem.sources.refresh_cost * problem.lower) >= problem.bandwidth * (1.0 - FEW_ULP):
        rates, price, evaluations = dual.at_lower_bounds()
    else:
        rates, price, evaluations = dual.solve_bandwidth(start)
    excess = np.maximum(0.0, host_prices - price)
    rates, price, excess = at_segment_ends(problem, numerics, trimmed(problem, rates), price, excess)
    return Answer(
        rates,
        price,
        problem.hosts.named(excess),
        host_evaluations + evaluations,
    )


class _DualProblem:
    """Dual problem of the limits: hosts are solved first, then the bandwidth.

    Its variables are prices; the sources' best responses to them are rates.
    """

    def __init__(self, problem: Problem, numerics: Numerics, width: float) -> None:
        self.problem, self.numerics, self.width = problem, numerics, width
        self.parts = [(part, numerics.take(part)) for part in chunks(len(problem.sources))]
        self.host_price: Array | None = None  # λ_h of each source's host, once solved for
        self.host_rates: Array | None = None  # rates at λ_h
        self.fixed_at_lower: BoolArray | None = None  # sources whose host is used up by min_rate

    def rates(self, price: float | Array) -> Array:
        """Return the best responses to one price, or one each."""
        paid = np.broadcast_to(price, (len(self.problem.sources),))
        rates = np.empty(len(paid))
        for part, numerics in self.parts:
            rates[part] = self._responses(part, numerics, paid[part])
        return rates

    def demand(self, price: float) -> float:
        """Return the bandwidth used at a price.

        A source that would be refreshed without limit counts as twice the bandwidth.
        """
        return exact_sum(self._uses(price))

    def exceeds(self, price: float, most: float) -> bool:
        """Return whether more than a bandwidth is used at a price."""
        known, roughly = list[float](), 0.0
        for used in self._uses(price):
            known.append(used)
            roughly += used
            if not roughly <= most * BEYOND_ROUNDING:
                return True
        return not exact_sum(known) <= most

    def _uses(self, price: float) -> Iterator[float]:
        """Yield the bandwidth that parts of the sources use at a price."""
        for part, numerics in self.parts:
            cost = self.problem.sources.refresh_cost[part]
            yield float(np.sum(cost * self._responses(part, numerics, np.full(len(cost), price))))

    def _responses(self, part: slice, numerics: Numerics, paid: Array) -> Array:
        """Return the best responses of a part of the sources to prices."""
        problem = self.problem
        cost, lower = problem.sources.refresh_cost[part], problem.lower[part]
        rates = numerics.inverse_marginal(cost * paid)
        # No finite rate satisfies a source whose marginal stays above the price: it takes twice the
        # bandwidth.
        rates = np.where(np.isinf(rates), 2.0 * problem.bandwidth / cost, rates)
        rates = np.clip(rates, lower, problem.upper[part])
        if self.fixed_at_lower is not None:
            rates = np.where(self.fixed_at_lower[part], lower, rates)
        if self.host_price is not None and self.host_rates is not None:
            rates = np.where(self.host_price[part] > paid, self.host_rates[part], rates)
        return rates

    def solve_bandwidth(self, start: float | None) -> tuple[Array, float, int]:
        """Return rates that use up the bandwidth, price and evaluations."""
        target = np.array([self.problem.bandwidth * (1.0 + ROUNDED)])
        found = search_prices(
            lambda prices: np.array([self.demand(float(prices[0]))]),
            target,
            np.array([self._guess(start)]),
            self.width,
        )
        low, high = float(found.low[0]), float(found.high[0]) * BEYOND
        generous, frugal = self.rates(low), self.rates(high)
        rates, share = self._mix(generous, frugal, self.problem.bandwidth)
        price = high + share * (low - high)
        if bool(np.any(generous >= 2.0 * self.problem.bandwidth / self.problem.sources.refresh_cost)):
            # Below the marginal value of a source that no rate satisfies nothing bounds its demand.
            price = high
        return rates, price, found.evaluations + 2

    def solve_hosts(self, start: float | None) -> tuple[Array, int]:
        """Return λ_h of all limited hosts, 0 where slack, and evaluations."""
        problem, hosts = self.problem, self.problem.hosts
        if not len(hosts):
            return np.empty(0), 0
        cost = problem.sources.refresh_cost

        def demand(prices: Array) -> Array:
            return hosts.totals(cost * self.rates(hosts.broadcast_to_sources(prices, 1.0)))

        fixed = hosts.totals(cost * problem.lower) >= hosts.limits * (1.0 - FEW_ULP)
        most = hosts.limits * (1.0 + ROUNDED)
        binds = ~(demand(np.full(len(hosts), TINY_PRICE)) <= most) & ~fixed
        prices = np.zeros(len(hosts))
        if bool(np.any(fixed)):
            edge = edge_prices(problem, self.numerics)
            member: BoolArray = fixed[np.minimum(hosts.codes, len(hosts) - 1)] & (hosts.codes < len(hosts))
            require_finite(problem, self.numerics, "a host's limit", member)
            self.fixed_at_lower = member
            np.maximum.at(prices, hosts.codes[member], edge[member])
        lowest = self.rates(np.inf)
        if bool(np.any(binds)):
            targets = np.where(binds, most, 1.0)

            def binding_demand(trial: Array) -> Array:
                return np.where(binds, demand(trial), 1.0)

            found = search_prices(
                binding_demand, targets, np.full(len(hosts), self._guess(start)), self.width
            )
            high = found.high * BEYOND
            generous, frugal = (
                self.rates(hosts.broadcast_to_sources(found.low, 1.0)),
                self.rates(hosts.broadcast_to_sources(high, 1.0)),
            )
            above, below = hosts.totals(cost * generous), hosts.totals(cost * frugal)
            share = _share(hosts.limits, above, below)
            mixed = frugal + hosts.broadcast_to_sources(share) * (generous - frugal)
            unbounded = hosts.totals((generous >= 2.0 * problem.bandwidth / cost).astype(float)) > 0.0
            prices = np.where(binds, high + np.where(unbounded, 0.0, share) * (found.low - high), prices)
            lowest = np.where(hosts.broadcast_to_sources(binds.astype(float)) > 0.0, mixed, lowest)
            evaluations = found.evaluations + 3
        else:
            evaluations = 1
        self.host_price, self.host_rates = hosts.broadcast_to_sources(prices), lowest
        return prices, evaluations

    def at_lower_bounds(self) -> tuple[Array, float, int]:
        """Return min_rate for all sources and the least price for it."""
        problem = self.problem
        rates = np.array(problem.lower)
        everyone = np.ones(len(rates), dtype=np.bool_)
        require_finite(problem, self.numerics, f"the bandwidth {problem.bandwidth:g}", everyone)
        return rates, float(np.max(edge_prices(problem, self.numerics))), 1

    def _guess(self, start: float | None) -> float:
        """Return a price to start from, given or at equal shares."""
        if start is not None and 0.0 < start < np.inf:
            return start
        problem = self.problem
        share = problem.bandwidth / total(problem.sources.refresh_cost)
        slope = self.numerics.marginal(np.full(len(problem.sources), share)) / problem.sources.refresh_cost
        usable = slope[(slope > 0.0) & np.isfinite(slope)]
        return float(np.exp(median(np.log(usable)))) if len(usable) else 1.0

    def _mix(self, generous: Array, frugal: Array, target: float) -> tuple[Array, float]:
        """Return the mixture that uses `target`, and the generous one's share."""
        cost = self.problem.sources.refresh_cost
        share = float(_share(target, total(cost * generous), total(cost * frugal)))
        return frugal + share * (generous - frugal), share


def _share(target: Array | float, above: Array | float, below: Array | float) -> Array:
    """Return θ with θ·above + (1−θ)·below = target, within 0..1."""
    span = np.subtract(above, below)
    return np.clip(np.where(span > 0.0, (target - below) / np.where(span > 0.0, span, 1.0), 0.0), 0.0, 1.0)
