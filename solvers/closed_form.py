"""Closed form: the rules that need no search.

* Accumulated delay, s·w·Δ/ρ² = cost·λ (s = ½ for periodic refreshes): the square-root rule ρ ∝ √(wΔ/cost).
* Harmonic staleness of sources that all announce their changes, w/ρ = cost·λ: ρ ∝ w/cost.
* Harmonic staleness and binary freshness where w/Δ is the same for all sources, under either discipline: the
  marginal is (w/Δ)·g(Δ/ρ), so ρ ∝ Δ makes all of them equal.
* The polling knapsack where w is the same for all, in both forms: x ∝ a.

The bandwidth fixes the factor. Two passes. A rule holds only where no bound and no limit binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from freshopt.arrays import Array, total
from freshopt.errors import list_offenders
from freshopt.model import FEW_ULP, Problem
from freshopt.objective import Refresh
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness
from freshopt.problems.polling_knapsack import PollingKnapsack
from freshopt.result import Answer, Solution, Status
from freshopt.verdict import DEFAULT, Terms, conclude


class Rule(NamedTuple):
    """Rates proportional to `shape`, and the price as a function of the factor where it has a formula."""

    shape: Array
    price_factor: float | None  # λ = (price_factor / B)², None where the marginal gives the price


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """The rules above, where one applies; refuses everything else.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6075, Eq 25.
    .. [2] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019, Propositions 5 and 9.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, ClosedForm()).rates
    array([1., 2.])
    """

    def supports(self, problem: Problem) -> str | None:
        """Return None where a rule applies; bounds are checked against the answer."""
        return None if _rule(problem) is not None else _why_not(problem)

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Apply the rule and certify."""
        return conclude(self, problem, terms, _apply)


def _rule(problem: Problem) -> Rule | None:
    """Return the rule that applies to the problem, if any."""
    objective, sources = problem.objective, problem.sources
    w, cost, signalled = sources.importance, sources.cost, sources.signalled
    if isinstance(objective, AccumulatedDelay):
        factor = 0.5 if objective.refresh is Refresh.PERIODIC else 1.0
        worth = factor * w * sources.change_rate
        return Rule(np.sqrt(worth / cost), total(np.sqrt(worth * cost)))
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
    """Tell whether all values are one positive number, to rounding."""
    low, high = float(np.min(values)), float(np.max(values))
    return bool(0.0 < high <= low * (1.0 + FEW_ULP))


def _apply(problem: Problem, _: float | None) -> Answer:
    sources, hosts = problem.sources, problem.hosts
    rule = _rule(problem)
    weight = 0.0 if rule is None else total(sources.cost * rule.shape)
    if rule is None or weight == 0.0:
        return Answer(np.array(problem.lower), 0.0, dict.fromkeys(hosts.names, 0.0))
    rates = rule.shape * (problem.bandwidth / weight)
    outside = np.flatnonzero((rates < problem.lower) | (rates > problem.upper))
    if len(outside):
        where = list_offenders(map(sources.label, outside))
        return Answer(
            None, status=Status.REFUSED, note=f"ClosedForm does not apply: bounds bind for {where}."
        )
    over = np.flatnonzero(hosts.totals(sources.cost * rates) > hosts.limits * (1.0 + FEW_ULP))
    if len(over):
        where = list_offenders(repr(hosts.names[k]) for k in over)
        return Answer(
            None, status=Status.REFUSED, note=f"ClosedForm does not apply: limits bind for {where}."
        )
    return Answer(rates, _price(problem, rule, rates), dict.fromkeys(hosts.names, 0.0))


def _price(problem: Problem, rule: Rule, rates: Array) -> float | None:
    """Return the price at the rates: by the rule's formula, or the marginal that all sources share."""
    if rule.price_factor is not None:
        return (rule.price_factor / problem.bandwidth) ** 2
    if problem.numerics is None:
        return None
    k = np.array([int(np.argmax(rates))])
    marginal = problem.numerics.take(k).marginal(rates[k]) / problem.sources.cost[k]
    return float(marginal[0])
