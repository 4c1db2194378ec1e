"""Share of requests that find a copy older than a given age.

Under Poisson refreshes of rate ρ the age of a copy is exponential, P(age > d) = e^{−ρd}; under periodic ones
it is uniform on 0..1/ρ, P(age > d) = max(0, 1 − ρd). Of periodic attempts that succeed with chance s it is
q^k·(1 − s(ρd − k)), q = 1 − s, k = ⌊ρd⌋: the deadline of `PiecewiseLinearCost`, whose numerics it has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from freshopt.compiled import cost_functions, demand_functions, proof_functions
from freshopt.cvx import Expression, cp
from freshopt.errors import ObjectiveError, shown
from freshopt.modelling.cost_curve import Cell
from freshopt.modelling.objective import Objective, Refresh, require_discipline
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    Index,
    as_numbers,
    as_vector,
    is_scalar,
    repeated,
)
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.problems.piecewise_linear_cost import KINKED, deadline_cost
from freshopt.separable.kernel import Kernel


@frozen_value(repr=False)
class LaterThan(Objective):
    """Minimise Σ w·P(age of the copy > d).

    Mostly used in a `Target`: at most 1 % of the requests, weighted by importance, find a copy older than d.

    Parameters
    ----------
    age : float or array_like, shape (n,)
        d > 0, in the sources' time unit; of all sources, or each its own.
    refresh : Refresh
        ``PERIODIC`` (default), max(0, 1 − ρd), or ``POISSON``, e^{−ρd}.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0], importance=[1.0, 2.0])
    >>> objective = LaterThan(3.0, refresh=fo.Refresh.POISSON)
    >>> fo.solve(fo.Problem(objective, sources, bandwidth=1.0)).rates.round(6)
    array([0.384475, 0.615525])
    >>> each = LaterThan([3.0, 1.0], refresh=fo.Refresh.POISSON)
    >>> fo.solve(fo.Problem(each, sources, bandwidth=1.0)).rates.round(6)
    array([0.351366, 0.648634])
    """

    age: float | Array
    refresh: Refresh = Refresh.PERIODIC

    if TYPE_CHECKING:

        def __init__(self, age: npt.ArrayLike, refresh: Refresh = Refresh.PERIODIC) -> None: ...

    def __post_init__(self) -> None:
        require_discipline(self)
        remedy = "Pass a number > 0, in the sources' time unit, or one for each source."
        ages = as_numbers(self.age, "age of LaterThan")
        if ages.ndim > 1 or isinstance(self.age, bool):
            raise ObjectiveError(f"age of LaterThan is {shown(self.age)}. {remedy}")
        bad = np.flatnonzero(~((ages >= SMALLEST) & (ages <= LARGEST)))
        if len(bad):
            where = f" of source {bad[0]}" if ages.ndim else ""
            raise ObjectiveError(f"age of LaterThan{where} is {np.atleast_1d(ages)[bad[0]]:g}. {remedy}")
        object.__setattr__(self, "age", ages if ages.ndim else float(ages))

    def __repr__(self) -> str:
        shown_age = f"<{np.size(self.age)} values>" if np.ndim(self.age) else repr(self.age)
        return f"LaterThan(age={shown_age}, refresh={self.refresh})"

    def take(self, index: Index) -> LaterThan:
        """Return the objective for some of the sources."""
        return replace(self, age=np.asarray(self.age)[index]) if np.ndim(self.age) else self

    def _ages(self, sources: Sources) -> Array:
        """Return d of each source; raise SourceDataError for another number of them."""
        return as_vector(self.age, len(sources), "age of LaterThan")

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare w·P(age > d)."""
        if self.refresh is Refresh.PERIODIC:
            return cp.multiply(sources.importance, cp.pos(1.0 - cp.multiply(self._ages(sources), rate)))
        return cp.multiply(sources.importance, cp.exp(-cp.multiply(self._ages(sources), rate)))

    def kernel(self, sources: Sources) -> Kernel:
        """Return the exact numerics under the discipline."""
        importance, age = sources.column("importance"), self._ages(sources)
        if self.refresh is Refresh.PERIODIC:
            # A deadline's cost: d is gained below the kink 1/d, and nothing is left there.
            rate = repeated(1.0 / float(age[0]), len(age)) if is_scalar(age) else 1.0 / age
            return KINKED.kernel(importance, (repeated(0.0, len(age)), rate, age))
        return POISSON.kernel(importance, (age,))

    def attempt_kernel(self, sources: Sources, success: Array) -> Kernel:
        """Return the numerics of periodic attempts."""
        curve = deadline_cost(self.age).curve(sources)
        return curve.kernel(sources.column("importance"), Refresh.PERIODIC, success=success)


POISSON = Cell.compiled(demand_functions.later, proof_functions.LATER, cost_functions.later_cost)
