"""`Objective`: what a modeller declares. `Refresh`: the discipline that turns a rate into refresh times."""

from __future__ import annotations

import enum
from typing import ClassVar, Literal, TypeAlias

from freshopt.arrays import Array
from freshopt.cvx import Expression
from freshopt.errors import ObjectiveError
from freshopt.kernel import Index, Kernel
from freshopt.sources import Sources

ConeForm: TypeAlias = tuple[Expression, list[Expression]]


class Refresh(enum.Enum):
    """How a rate ρ becomes refresh times.

    ``POISSON``: independent exponential gaps of mean 1/ρ. ``PERIODIC``: equal gaps 1/ρ. ``ON_SIGNAL``: each
    announced change is followed by a refresh with probability ρ/Δ.
    """

    POISSON = "poisson"
    PERIODIC = "periodic"
    ON_SIGNAL = "on signal"

    def __repr__(self) -> str:
        """Return the name as it is written in code."""
        return f"Refresh.{self.name}"


class Objective:
    """Base class of objectives: subclass it, write `per_source`, and hand an instance to `Problem`.

    Attributes
    ----------
    sense : {"minimise", "maximise"}
        Whether the sum over sources is to be small or large.
    refresh : Refresh
        The discipline under which `per_source` is the cost of a rate.

    Notes
    -----
    From `per_source` alone freshopt derives the CVXPY problem, value, slope and curvature of every source,
    and hence solvers for any number of sources and the certificate of any answer. All convex and concave
    elementwise atoms of CVXPY are known, kinks included; `freshopt.elementwise.register` adds others.
    `kernel` may add hand-written numerics; it is obligatory when `per_source` returns auxiliary constraints.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.cvx import cp
    >>> class SquaredDelay(fo.Objective):
    ...     def per_source(self, rate, sources):
    ...         return cp.multiply(sources.importance * sources.change_rate, cp.power(rate, -2))
    >>> problem = fo.Problem(SquaredDelay(), fo.Sources(change_rate=[1.0, 8.0]), bandwidth=3.0)
    >>> fo.solve(problem).rates.round(9)
    array([1., 2.])

    A cone form with a variable of its own, t ≥ 1/ρ, and the kernel that it asks for: cost, marginal and
    inverse marginal for unit importance.

    >>> import numpy as np
    >>> from freshopt.kernel import Kernel
    >>> class Delay(fo.Objective):
    ...     def per_source(self, rate, sources):
    ...         t = cp.Variable(len(sources))
    ...         return cp.multiply(sources.importance * sources.change_rate, t), [cp.inv_pos(rate) <= t]
    ...     def kernel(self, sources):
    ...         return Kernel(
    ...             sources.importance,
    ...             (sources.change_rate,),
    ...             lambda rate, d: d / rate,
    ...             lambda rate, d: d / rate**2,
    ...             lambda price, d: np.sqrt(d / price),
    ...         )
    >>> problem = fo.Problem(Delay(), fo.Sources(change_rate=[1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem).rates.round(9), fo.solve(problem, fo.solvers.Conic()).rates.round(3)
    (array([1., 2.]), array([1., 2.]))
    """

    sense: ClassVar[Literal["minimise", "maximise"]] = "minimise"
    refresh: Refresh = Refresh.POISSON

    def __repr__(self) -> str:
        """Return the name; a dataclass writes a repr of its own, with its fields."""
        return f"{type(self).__name__}()"

    def per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare the objective of each source.

        Parameters
        ----------
        rate : cvxpy expression, affine, shape (n,)
            The refresh rates, ≥ 0. Not necessarily a `cvxpy.Variable`.
        sources : Sources
            Their n change rates and importances.

        Returns
        -------
        cvxpy expression of shape (n,), or (expression, list of constraints)
            Convex if minimised, concave if maximised; entry k uses entry k of `rate` only.
        """
        raise ObjectiveError(
            f"{type(self).__name__} declares no per_source(rate, sources). Write that method."
        )

    def signalled_per_source(self, rate: Expression, sources: Sources) -> Expression:
        """Declare the cell of sources that announce their changes; None where there is no such cell."""
        return None

    def cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return the total at ρ = typical·y as a cone solver likes it best, or None for `per_source`.

        Parameters
        ----------
        y : cvxpy expression, affine, shape (n,)
            Relative rates; near 1 at the optimum, to a factor of about two.
        sources : Sources
        typical : ndarray, shape (n,)
            Rates > 0.

        Returns
        -------
        (scalar expression, list of constraints), or None
            Equal to the sum of `per_source` up to a constant and to an error that does not matter near y = 1.
        """
        return None

    def signalled_cone_form(self, y: Expression, sources: Sources, typical: Array) -> ConeForm | None:
        """Return the same for sources that announce their changes."""
        return None

    def take(self, index: Index) -> Objective:
        """Return the objective for some of the sources; override it if it holds arrays of length n."""
        return self

    def kernel(self, sources: Sources) -> Kernel | None:
        """Return hand-written numerics equal to `per_source`, or None to have them derived from it."""
        return None

    def signalled_kernel(self, sources: Sources) -> Kernel | None:
        """Return hand-written numerics equal to `signalled_per_source`, or None."""
        return None

    def refuses_signals(self) -> str | None:
        """Return why signalled sources cannot be used with this objective, or None."""
        if type(self).signalled_per_source is Objective.signalled_per_source:
            return f"{type(self).__name__} declares no signalled_per_source(rate, sources)"
        return None

    def value_from_cost(self, cost: float, sources: Sources) -> float:
        """Return the value in the declared sense from the total cost that the numerics minimise."""
        return cost if self.sense == "minimise" else -cost
