"""Share of requests that find a copy older than a given age.

Under Poisson refreshes of rate ρ the age of a copy is exponential, P(age > d) = e^{−ρd}; under periodic ones
it is uniform on 0..1/ρ, P(age > d) = max(0, 1 − ρd). Of periodic attempts that succeed with chance s it is
q^k·(1 − s(ρd − k)), q = 1 − s, k = ⌊ρd⌋: the deadline of `PiecewiseLinearCost`, whose numerics it has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.compiled import cost_functions, demand_functions, proof_functions
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, shortened, shown
from freshopt.modelling.cost_curve import Cell
from freshopt.modelling.objective import Objective, Refresh, require_discipline
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array
from freshopt.problems.piecewise_linear_cost import KINKED, deadline_cost
from freshopt.separable.kernel import Kernel


@dataclass(frozen=True, slots=True)
class LaterThan(Objective):
    """Minimise Σ w·P(age of the copy > d).

    Mostly used in a `Target`: at most 1 % of the requests, weighted by importance, find a copy older than d.

    Parameters
    ----------
    age : float
        d > 0, in the sources' time unit.
    refresh : Refresh
        ``PERIODIC`` (default), max(0, 1 − ρd), or ``POISSON``, e^{−ρd}.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0], importance=[1.0, 2.0])
    >>> objective = LaterThan(3.0, refresh=fo.Refresh.POISSON)
    >>> fo.solve(fo.Problem(objective, sources, bandwidth=1.0)).rates.round(6)
    array([0.384475, 0.615525])
    """

    age: float
    refresh: Refresh = Refresh.PERIODIC

    def __post_init__(self) -> None:
        """Raise ObjectiveError unless age and discipline are usable."""
        require_discipline(self)
        remedy = "Pass a number > 0, in the sources' time unit."
        if isinstance(self.age, bool) or not isinstance(self.age, int | float | np.number):
            raise ObjectiveError(f"age of LaterThan is {shown(self.age)}. {remedy}")
        if not SMALLEST <= self.age <= LARGEST:
            raise ObjectiveError(f"age of LaterThan is {shortened(str(self.age))}. {remedy}")

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·P(age > d)."""
        if self.refresh is Refresh.PERIODIC:
            return cp.multiply(sources.importance, cp.pos(1.0 - self.age * rate))
        return cp.multiply(sources.importance, cp.exp(-self.age * rate))

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics under the discipline."""
        importance, n = sources.column("importance"), len(sources)
        if self.refresh is Refresh.PERIODIC:
            # A deadline's cost: d is gained below the kink 1/d, and nothing is left there.
            own = (0.0, 1.0 / self.age, self.age)
            return KINKED.kernel(importance, tuple(np.broadcast_to(np.float64(one), (n,)) for one in own))
        return POISSON.kernel(importance, (np.broadcast_to(np.float64(self.age), (n,)),))

    def attempt_kernel(self, sources: Sources, success: Array) -> Kernel:
        """Return the numerics of periodic attempts."""
        curve = deadline_cost(self.age).curve(sources)
        return curve.kernel(sources.column("importance"), Refresh.PERIODIC, success=success)


POISSON = Cell.compiled(demand_functions.later, proof_functions.LATER, cost_functions.later_cost)
