"""Closed-form optima: rules that need no search.

Each rule solves stationarity, marginal value = cost·λ, with the dual variable (price) λ of the bandwidth:

* Accumulated delay, s·w·Δ/ρ² = cost·λ (s = ½ for periodic refreshes): the square-root rule ρ ∝ √(wΔ/cost).
* Harmonic staleness of sources that all announce their changes, w/ρ = cost·λ: ρ ∝ w/cost.
* Harmonic staleness and binary freshness where w/Δ is the same for all sources, under either discipline: the
  marginal is (w/Δ)·g(Δ/ρ), so ρ ∝ Δ makes all of them equal.
* The polling knapsack where w is the same for all, in both forms: x ∝ a.

Primal feasibility, Σ cost·ρ = B, fixes the factor. Two passes. A rule holds only where no bound and no limit
binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshopt.certificates.solution import Answer, Solution, Status
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution
from freshopt.errors import list_offenders
from freshopt.modelling.objective import Refresh, counts_signals
from freshopt.modelling.problem import FEW_ULP, Problem
from freshopt.numerics.arrays import Array, total
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.problems.polling_knapsack import PollingKnapsack


class Rule(NamedTuple):
    """Closed-form rule: rates proportional to `shape`, and their price.

    The price is a function of the factor where it has a formula.
    """

    shape: Array
    # λ = (price_factor / B)²; None where the marginal gives the price.
    price_factor: float | None


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """Closed-form solver; supports only problems with a rule.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6067, Eq 25.
    .. [2] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019, Propositions 5 and 9.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, ClosedForm()).rates
    array([1., 2.])
    """

    def supports(self, problem: Problem) -> str | None:
        """Return None where a rule applies, else why not.

        Bounds are checked against the answer.
        """
        if problem.sources.failing is not None:
            return "its formulas are for fetches that succeed"
        if problem.objective.refresh is Refresh.ON_REQUEST:
            return "its formulas are for refreshes that wait for no request, use WaterFilling"
        return None if _rule(problem) is not None else _why_not(problem)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Apply the closed-form rule and certify."""
        return certified_solution(self, problem, options, _apply)


def _rule(problem: Problem) -> Rule | None:
    """Return the closed-form rule of the problem, or None."""
    objective, sources = problem.objective, problem.sources
    w, cost, signalled = sources.importance, sources.refresh_cost, sources.signalled
    if counts_signals(objective) and bool(np.any(signalled)):
        return None
    if isinstance(objective, AccumulatedDelay):
        factor = 0.5 if objective.refresh is Refresh.PERIODIC else 1.0
        weight = factor * w * sources.change_rate
        return Rule(np.sqrt(weight / cost), total(np.sqrt(weight * cost)))
    if isinstance(objective, HarmonicStaleness) and bool(np.all(signalled)):
        return Rule(w / cost, None)
    if bool(np.any(signalled)) or not _same(cost):
        return None
    if isinstance(objective, HarmonicStaleness | BinaryFreshness) and _same(w / sources.change_rate):
        return Rule(sources.change_rate, None)
    if isinstance(objective, PollingKnapsack) and _same(w):
        return Rule(sources.change_rate, None)
    return None


def _why_not(problem: Problem) -> str:
    name = type(problem.objective).__name__
    if isinstance(problem.objective, HarmonicStaleness | BinaryFreshness):
        return f"{name} has a closed form only where importance/change_rate and cost are the same for all"
    if isinstance(problem.objective, PollingKnapsack):
        return f"{name} has a closed form only where importance and cost are the same for all"
    return f"there is no closed form for {name}"


def _same(values: Array) -> bool:
    """Return whether all values are one positive number, to rounding."""
    low, high = float(np.min(values)), float(np.max(values))
    return bool(0.0 < high <= low * (1.0 + FEW_ULP))


def _apply(problem: Problem, _: float | None) -> Answer:
    sources, hosts = problem.sources, problem.hosts
    rule = _rule(problem)
    weight = 0.0 if rule is None else total(sources.refresh_cost * rule.shape)
    if rule is None or weight == 0.0:
        return Answer(np.array(problem.lower), 0.0, dict.fromkeys(hosts.names, 0.0))
    rates = rule.shape * (problem.bandwidth / weight)
    outside = np.flatnonzero((rates < problem.lower) | (rates > problem.upper))
    if len(outside):
        where = list_offenders(map(sources.label, outside))
        return Answer(
            None, status=Status.REFUSED, note=f"ClosedForm does not apply: bounds bind for {where}."
        )
    over = np.flatnonzero(hosts.totals(sources.refresh_cost * rates) > hosts.limits * (1.0 + FEW_ULP))
    if len(over):
        where = list_offenders(repr(hosts.names[k]) for k in over)
        return Answer(
            None, status=Status.REFUSED, note=f"ClosedForm does not apply: limits bind for {where}."
        )
    return Answer(rates, _price(problem, rule, rates), dict.fromkeys(hosts.names, 0.0))


def _price(problem: Problem, rule: Rule, rates: Array) -> float | None:
    """Return the dual variable, by rule or the sources' marginal."""
    if rule.price_factor is not None:
        return (rule.price_factor / problem.bandwidth) ** 2
    if problem.numerics is None:
        return None
    k = np.array([int(np.argmax(rates))])
    marginal = problem.numerics.take(k).marginal(rates[k]) / problem.sources.refresh_cost[k]
    return float(marginal[0])
