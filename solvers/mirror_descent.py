"""Mirror descent under the log barrier F(r) = −Σ log r.

The step is 1/r_k = 1/q_k + ηg_k + λ, clipped to the bounds, with λ the multiplier (η times the price, the
dual variable) of the bandwidth. It moves every rate by about its own size whatever the scale of the rates, as
costs near rate 0 ask for. What makes it converge is smoothness relative to F, r²J'' ≤ L (Bauschke, Bolte and
Teboulle, Math. Oper. Res. 42, 2017), where the ordinary bound J'' ≤ L fails at r = 0. Poisson refreshes:
harmonic staleness has r²J'' ≤ w, binary staleness r²J'' ≤ 8w/27 (at r = 2Δ), and accumulated delay r²J'' =
2J, which is bounded where the cost is no higher than at the start.

In the other direction F is steeper than bounded costs: a source with a rate near 0, but not 0, moves slowly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import DEFAULT, SolveOptions, certified_solution, check_search
from freshopt.errors import expect_settings
from freshopt.first_order.bregman_step import checked_step
from freshopt.first_order.budget_groups import Budgets
from freshopt.first_order.descent import descend, refusal
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, IntArray

# Newton steps per level: 8 were the most in 10⁵ random levels of up to 60 sources over 24 decades.
_NEWTON = 60
# Relative distance from the target at which the level is as good as rounding allows.
_ULP = 4e-16


@dataclass(frozen=True, slots=True)
class MirrorDescent:
    """Mirror descent by exact steps, to a certified duality gap.

    Bounds, host limits, unequal costs and signalled sources are carried. The last iterate is
    the answer, not an average.

    Parameters
    ----------
    tolerance : float
        Certified relative duality gap at which to stop.
    limit : int
        Evaluations of the cost of all sources.

    Notes
    -----
    Rates stay positive under this map; a min_rate of 0 is reached by holding a source there while its
    marginal at 0 is below the price. A million sources are better left to `WaterFilling`: this solver is
    for comparison and for its steps, which learners use with estimated gradients.

    References
    ----------
    .. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020,
       Algorithm 1, lines 42-47.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.solvers.mirror_descent import MirrorDescent
    >>> objective = fo.problems.AccumulatedDelay(fo.Refresh.POISSON)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 4.0]), bandwidth=3.0)
    >>> fo.solve(problem, MirrorDescent()).rates.round(4)
    array([1., 2.])
    """

    conditional_fetches: ClassVar[bool] = True

    tolerance: float = 1e-7
    limit: int = 10_000

    def __post_init__(self) -> None:
        expect_settings(self)
        check_search(self.tolerance, self.limit)

    def supports(self, problem: Problem) -> str | None:
        """Return why descent does not apply, or None.

        Costs with kinks and objectives with unknown derivatives are unsupported.
        """
        return refusal(problem)

    def solve(self, problem: Problem, options: SolveOptions = DEFAULT) -> Solution:
        """Descend to the tolerance and certify.

        A price to start from is of no use here and is ignored.
        """
        enough = max(self.tolerance, options.tolerance)
        return certified_solution(
            self,
            problem,
            options,
            lambda *_: descend(problem, LogBarrier(), self.tolerance, enough, self.limit),
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
        """Return the exact mirror step from given rates.

        It is argmin η⟨g, r⟩ + Σ (r/q − 1 − log(r/q)) over Σr ≤ bandwidth, host limits and bounds.

        Parameters
        ----------
        rates : array_like, shape (n,)
            q > 0, where the step starts; it need not be feasible.
        gradient : array_like, shape (n,)
            g, cost per rate; negative where more refreshes help. May be an estimate.
        bandwidth : float
        min_rate, max_rate : array_like, scalar or shape (n,)
            0 ≤ min_rate ≤ max_rate ≤ inf. At min_rate 0 the answer is still positive.
        learning_rate : float
            η ≥ 0.
        host : array_like of int, shape (n,), optional
            Position of each source's host in `host_limits`, H for sources without a limit: the `codes` of
            `freshopt.modelling.host_limits.HostLimits`.
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

        Notes
        -----
        [1]_ has a budget that is always used up; here it need not be, if gradients are positive.

        Examples
        --------
        >>> MirrorDescent.step([1.0, 1.0], [-1.0, 0.0], 2.0, 0.0, 10.0, learning_rate=0.5).round(9)
        array([1.23606798, 0.76393202])
        >>> MirrorDescent.step([1.0, 1.0], [-1.0, 0.0], 2.0, 0.0, 10.0, 0.5, [0, 1], [1.1])
        array([1.1, 0.9])
        """
        return checked_step(
            LogBarrier(), rates, gradient, bandwidth, min_rate, max_rate, learning_rate, host, host_limits
        )


@dataclass(frozen=True, slots=True)
class LogBarrier:
    """Mirror map φ(r) = −log r, with dual φ'(r) = −1/r."""

    positive: bool = True

    def take(self, _: IntArray, /) -> LogBarrier:
        """Return the same mirror map."""
        return self

    def dual(self, rates: Array) -> Array:
        """Return the dual coordinate −1/r."""
        with np.errstate(divide="ignore"):
            return -1.0 / rates

    def primal(self, dual: Array) -> Array:
        """Return the primal coordinate −1/θ, inf for θ ≥ 0."""
        with np.errstate(divide="ignore"):
            return np.where(dual < 0.0, -1.0 / dual, np.inf)

    def levels(self, behind: Array, budgets: Budgets) -> Array:
        """Return −μ with Σ 1/(μ + behind) = amount, per group.

        1/Σ is concave in μ, so that Newton's method on it rises to the root without passing it, from any
        point below. Two such points: a single source needs no more than the amount, and by convexity of
        1/x the sum is at least that of equal terms.
        """
        target, sizes = budgets.amounts, budgets.sizes
        mu = np.maximum(1.0 / target, sizes / target - budgets.totals(behind) / sizes)
        for _ in range(_NEWTON):
            rates = 1.0 / (budgets.broadcast_to_sources(mu) + behind)
            amount = budgets.totals(rates)
            excess = amount / target - 1.0
            longer = mu + excess * amount / budgets.totals(rates * rates)
            met = (excess <= _ULP) | (longer == mu)
            if bool(np.all(met)):
                break
            mu = np.where(met, mu, longer)
        return -mu

    def first_rate(self, spending: Array, gradient: Array) -> float:
        """Return the first learning rate 1/max |z·g|, or 1."""
        largest = float(np.max(spending * np.abs(gradient)))
        return 1.0 / largest if largest > 0.0 else 1.0

    def divergence(self, before: Array, after: Array) -> float:
        """Return Σ (after − before)²/(before·after), 0 where both are 0."""
        moved = before != after
        return float(np.sum((after - before)[moved] ** 2 / before[moved] / after[moved]))
