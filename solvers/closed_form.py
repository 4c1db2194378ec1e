"""Closed form: the square-root rule of accumulated delay.

With marginal s·w·Δ/ρ² (s = ½ for periodic refreshes), s·w·Δ/ρ² = cost·λ gives ρ ∝ √(wΔ/cost), and the
bandwidth fixes the factor: √λ = Σ√(s·w·Δ·cost)/B. Two passes. The rule holds only where no bound and no limit
binds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.arrays import total
from freshopt.errors import list_offenders
from freshopt.model import FEW_ULP, Problem
from freshopt.objective import Refresh
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.result import Answer, Solution, Status
from freshopt.verdict import DEFAULT, Terms, conclude


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """Accumulated delay without binding bounds; refuses everything else.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6075, Eq 25.

    Examples
    --------
    >>> import freshopt as fo
    >>> problem = fo.Problem(fo.problems.AccumulatedDelay(), fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, ClosedForm()).rates
    array([1., 2.])
    """

    def supports(self, problem: Problem) -> str | None:
        """Return None for accumulated delay; bounds are checked against the answer."""
        if isinstance(problem.objective, AccumulatedDelay):
            return None
        return f"there is no closed form for {type(problem.objective).__name__}, only for AccumulatedDelay"

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Apply the rule and certify."""
        return conclude(self, problem, terms, _square_root_rule)


def _square_root_rule(problem: Problem, _: float | None) -> Answer:
    sources, hosts = problem.sources, problem.hosts
    factor = 0.5 if problem.objective.refresh is Refresh.PERIODIC else 1.0
    worth = factor * sources.importance * sources.change_rate
    weight = total(np.sqrt(worth * sources.cost))
    if weight == 0.0:
        return Answer(np.array(problem.lower), 0.0, dict.fromkeys(hosts.names, 0.0))
    rates = np.sqrt(worth / sources.cost) * (problem.bandwidth / weight)
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
    return Answer(rates, (weight / problem.bandwidth) ** 2, dict.fromkeys(hosts.names, 0.0))
