"""`LambdaLearnAndCrawl`: certainty-equivalent policy with fixed epochs.

Every epoch the problem is solved for the change rates estimated so far.

The optimum of harmonic staleness refreshes every changing source, so that it explores enough by itself: all
estimates converge, and the rates with them. The optimum of binary freshness starves fast sources, and those
that seem fast by chance would stay so for good; there a floor, a share of the mean rate, takes the place of
exploration.

Cost: an epoch's crawls, a fit of the whole log, one solve.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import ObjectiveError, SourceDataError, shortened
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.online.epochs import Epoch, EpochLearner, equal_epochs, require_time
from freshopt.online.rate_evaluation import floor_rates, require_floor
from freshopt.solvers.lambda_crawl_approx import LambdaCrawlApprox


@dataclass(frozen=True, slots=True)
class LambdaLearnAndCrawl(EpochLearner):
    """Certainty-equivalent policy in epochs of one length.

    Parameters
    ----------
    approximate : bool
        Give silent sources shares of importance, as is optimal where importance is proportional to change
        rate: their estimation errors then matter only for the bandwidth that remains to signalled ones.
    objective : Objective, optional
        Objective that the rates optimise, if not the problem's, under which they are evaluated.
    epoch : float
        Length of an epoch, in time units.
    memory : float, optional
        How far back crawls and signals are used, in time units, for change rates that drift: the history
        suffix S(n) of Algorithm 4. By default all are.
    floor : float, optional
        Lower bound on each rate, as a share of the mean rate bandwidth/n: 0..1. By default a tenth where the
        objective leaves sources without refreshes, as binary freshness does, of which nothing would be learnt
        again; 0 elsewhere.
    estimator : Estimator
        Any of `freshopt.estimators`, not fitted. Signalled sources are estimated by counting in any case,
        (U+½)/(S+½ day) for U signals in a time S (at most the memory).
    solver : Solver, optional
        By default `solvers.Auto`, or `solvers.LambdaCrawlApprox` if approximate.
    seed : int
        Of the visits and of which signals are followed.

    Notes
    -----
    [1]_ Algorithm 4; `approximate` is its LLCA, ``objective=BinaryFreshness(), floor=0.4`` its BLLC. Instead
    of Algorithm 3 any solver of the problem will do, for any objective. The first epoch's rates are optimal
    for the problem's own change rates, the guess. A source that has not been crawled yet keeps its guess. An
    epoch has exactly as many crawls as the bandwidth allows, those that follow signals included (see
    `freshopt.online.visit_times`).

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019, Algorithm 4 and Proposition 8.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.1, 3.0, 0.5], importance=[1.0, 2.0, 3.0], signalled=[0, 0, 1])
    >>> given = fo.Sources(1.0, sources.importance, signalled=sources.signalled)
    >>> guess = fo.Problem(fo.problems.HarmonicStaleness(), given, bandwidth=2.0)
    >>> history = LambdaLearnAndCrawl().run(fo.World.poisson(sources, seed=1), guess, 30.0)
    >>> len(history), float(history.spent.sum() / history.allowed.sum())
    (30, 1.0)
    >>> bool(history.shortfall[-1] < 0.2 * history.shortfall[0])
    True
    """

    approximate: bool = False
    objective: Objective | None = None
    epoch: float = 1.0
    memory: float | None = None
    floor: float | None = None
    estimator: Estimator = field(default_factory=MaximumLikelihood)
    solver: Solver | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise if settings are out of range."""
        self._check()
        if self.objective is not None and not isinstance(self.objective, Objective):
            raise ObjectiveError(
                f"{shortened(repr(self.objective))} is not an Objective instance. Pass one, or None."
            )
        require_time("epoch", self.epoch)
        require_time("memory", self.memory, optional=True)
        require_floor(self.floor)
        if self.approximate and self.solver is not None:
            raise SourceDataError(
                f"approximate=True chooses LambdaCrawlApprox, but the solver is {self.solver!r}. Pass one of "
                "the two."
            )

    def epochs(self, problem: Problem, horizon: float) -> list[Epoch]:  # noqa: ARG002 - all are of one length
        """Return the epochs until the horizon.

        The first has the rates that are optimal for the problem's change rates, the first guess. The world
        needs ``signals(start, end)`` if sources are signalled.
        """
        return equal_epochs(self.epoch, horizon, 0.0, first=0.0)

    def _choice(self, problem: Problem) -> dict[str, Any]:
        return {
            "estimator": self.estimator,
            "objective": self.objective,
            "solver": LambdaCrawlApprox() if self.approximate else self.solver,
            "floor": floor_rates(problem, self.objective or problem.objective, self.floor),
            "memory": self.memory,
        }
