"""Projected gradient: Euclidean steps under the bandwidth.

The step is r_k = q_k − ηg_k − λ, clipped to the bounds: the point of {Σr ≤ B, lo ≤ r ≤ hi} nearest to
q − ηg. Rates of 0 are reached exactly, in finitely many steps. The ordinary smoothness J'' ≤ L on which its
convergence rests holds for binary staleness (L = 2w/Δ²) but not near rate 0 for costs that grow without bound
there; they are smooth where the cost is no higher than at the start, with a large L, and the learning rates
adapt to what is met on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array
from freshopt.model import Problem
from freshopt.result import Solution
from freshopt.solvers.bregman_step import checked_step
from freshopt.solvers.budgets import Budgets
from freshopt.solvers.descent import descend, refusal
from freshopt.verdict import DEFAULT, Terms, conclude


@dataclass(frozen=True, slots=True)
class ProjectedGradient:
    """Descent by exact projections, to a certified gap.

    Bounds, host limits, unequal costs and signalled sources are carried. With unequal costs the
    projection is in spending, cost × rate, not in rates.

    Parameters
    ----------
    tolerance : float
        Certified relative gap at which to stop.
    limit : int
        Evaluations of the cost of all sources.

    References
    ----------
    .. [1] Birgin, Martínez and Raydan, "Nonmonotone spectral projected gradient methods on convex sets",
       SIAM J. Optim. 10, 2000, doi:10.1137/S1052623497330963.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.solvers.projected_gradient import ProjectedGradient
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), fo.Sources([1.0, 2.0, 50.0]), bandwidth=1.0)
    >>> fo.solve(problem, ProjectedGradient()).rates.round(4)
    array([0.6569, 0.3431, 0.    ])
    """

    tolerance: float = 1e-7
    limit: int = 10_000

    def supports(self, problem: Problem) -> str | None:
        """Refuse costs with kinks, and objectives whose derivatives are unknown."""
        return refusal(problem)

    def solve(self, problem: Problem, terms: Terms = DEFAULT) -> Solution:
        """Descend and certify. A price to start from is of no use here and is ignored."""
        enough = max(self.tolerance, terms.tolerance)
        return conclude(
            self, problem, terms, lambda *_: descend(problem, Euclid(), self.tolerance, enough, self.limit)
        )

    @staticmethod
    def step(
        rates: npt.ArrayLike,
        gradient: npt.ArrayLike,
        bandwidth: float,
        min_rate: npt.ArrayLike,
        max_rate: npt.ArrayLike,
        learning_rate: float,
        host: npt.ArrayLike | None = None,
        host_limits: npt.ArrayLike | None = None,
    ) -> Array:
        """Return argmin η⟨g, r⟩ + ½‖r − q‖² over Σr ≤ bandwidth, host limits and min_rate ≤ r ≤ max_rate.

        Parameters
        ----------
        rates : array_like, shape (n,)
            q ≥ 0, where the step starts; it need not be feasible.
        gradient : array_like, shape (n,)
            g, cost per rate; negative where more refreshes help. May be an estimate.
        bandwidth : float
        min_rate, max_rate : array_like, scalar or shape (n,)
            0 ≤ min_rate ≤ max_rate ≤ inf.
        learning_rate : float
            η ≥ 0; 0 projects the rates.
        host : array_like of int, shape (n,), optional
            Position of each source's host in `host_limits`, H for sources without a limit: the `codes` of
            `freshopt.hosts.HostLimits`.
        host_limits : array_like, shape (H,), optional
            What each host may take, > 0.

        Returns
        -------
        ndarray, shape (n,)
            Exact to rounding; bandwidth and host limits, where they bind, are filled to a few ulp.

        Raises
        ------
        SourceDataError
            If an argument is not a number, of the wrong length or outside its range.
        InfeasibleProblemError
            If min_rate alone needs more than the bandwidth or a host's limit.

        Examples
        --------
        >>> ProjectedGradient.step([1.0, 1.0], [-1.0, 0.0], 2.0, 0.0, 10.0, learning_rate=0.5)
        array([1.25, 0.75])
        >>> ProjectedGradient.step([1.0, 1.0], [-1.0, 0.0], 2.0, 0.0, 10.0, 0.5, [0, 1], [1.1])
        array([1.1, 0.9])
        """
        return checked_step(
            Euclid(), rates, gradient, bandwidth, min_rate, max_rate, learning_rate, host, host_limits
        )


@dataclass(frozen=True, slots=True)
class Euclid:
    """The map φ(r) = r²/2, which is its own dual."""

    positive: bool = False

    def dual(self, rates: Array) -> Array:
        """Return r."""
        return rates

    def primal(self, dual: Array) -> Array:
        """Return θ."""
        return dual

    def levels(self, behind: Array, budgets: Budgets) -> Array:
        """Return c with Σ (c − behind) = amount, per group."""
        return (budgets.amounts + budgets.totals(behind)) / budgets.sizes

    def first_rate(self, spending: Array, gradient: Array) -> float:
        """Return min z/|g| over z > 0 and g ≠ 0, or 1."""
        usable = (spending > 0.0) & (gradient != 0.0)
        if not bool(np.any(usable)):
            return 1.0
        return float(np.min(spending[usable] / np.abs(gradient[usable])))

    def divergence(self, before: Array, after: Array) -> float:
        """Return ‖after − before‖²."""
        return float(np.sum((after - before) ** 2))
