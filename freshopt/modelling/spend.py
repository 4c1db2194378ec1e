"""Bandwidth itself, to be as small as constraints allow: the cheapest plan."""

from __future__ import annotations

from dataclasses import dataclass

from freshopt.cvx import Expression, cp
from freshopt.modelling.objective import Objective
from freshopt.modelling.sources import Sources


@dataclass(frozen=True, slots=True)
class Spend(Objective):
    """Minimise Σ cost·ρ, the bandwidth used.

    The cheapest rates that meet the constraints beside it; without any, none are refreshed.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> fresh = fo.Target(fo.problems.BinaryFreshness(fo.Refresh.POISSON), at_least=0.5)
    >>> round(fo.solve(fo.Problem(Spend(), sources, constraints=[fresh])).value, 9)
    4.0
    """

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare cost·ρ."""
        return cp.multiply(sources.refresh_cost, rate)

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare cost·ρ."""
        return self.per_source(rate, sources)
