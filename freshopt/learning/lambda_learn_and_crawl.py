"""`LambdaLearnAndCrawl`: every epoch, solve for the change rates estimated so far and crawl accordingly.

Harmonic staleness leaves no changing source without refreshes, so that its own optimum explores enough: all
estimates converge, and the rates with them. That cannot be said of binary freshness, whose optimum starves
fast sources; there a floor, a share of the mean rate, takes the place of exploration.

Cost: an epoch's crawls, a fit of the whole log, one solve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from freshopt.arrays import total
from freshopt.errors import SourceDataError, expect_settings
from freshopt.learning.campaign import Campaign
from freshopt.learning.estimator import Estimator
from freshopt.learning.history import History
from freshopt.learning.maximum_likelihood import MaximumLikelihood
from freshopt.learning.phased_epsilon_greedy import equal_legs
from freshopt.model import Problem
from freshopt.objective import Objective
from freshopt.simulation import Crawler, World
from freshopt.solvers.lambda_crawl_approx import LambdaCrawlApprox
from freshopt.verdict import Solver


@dataclass(frozen=True, slots=True)
class LambdaLearnAndCrawl:
    """Learn change rates and crawl at once, in epochs.

    Parameters
    ----------
    approximate : bool
        Give silent sources shares of importance, as is optimal where importance is proportional to change
        rate: what is not known of them then matters only for how much is left to signalled ones.
    objective : Objective, optional
        What the rates are to optimise, if that is not the problem's objective, which always judges them.
    epoch : float
        Length of an epoch, in time units.
    memory : float, optional
        How far back crawls are used, in time units, for change rates that drift. By default all are.
    floor : float
        Least rate of each source, as a share of the mean rate bandwidth/n: 0..1.
    estimator : Estimator
        Any of `freshopt.learning`, not fitted. Signalled sources are estimated by counting in any case,
        (U+½)/(S+½ day) for U signals in a time S.
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
    `freshopt.learning.visits`).

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
    floor: float = 0.0
    estimator: Estimator = field(default_factory=MaximumLikelihood)
    solver: Solver | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings out of range."""
        expect_settings(self)
        for what, value in (("epoch", self.epoch), ("memory", self.memory)):
            if value is not None and not 0.0 < value < math.inf:
                raise SourceDataError(f"{what} is {value}. Pass a time > 0.")
        if not 0.0 <= self.floor <= 1.0:
            raise SourceDataError(f"floor is {self.floor}. Pass a share of the mean rate in 0..1.")
        if self.approximate and self.solver is not None:
            raise SourceDataError(
                f"approximate=True chooses LambdaCrawlApprox, but the solver is {self.solver!r}. Pass one of "
                "the two."
            )

    def run(
        self,
        world: World | Crawler,
        problem: Problem,
        horizon: float,
        *,
        truth: Problem | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> History:
        """Learn until the horizon, one round per epoch; see `Learner.run`.

        The first epoch has the rates that are optimal for the problem's change rates, the first guess. The
        world needs ``signals(start, end)`` if sources are signalled.
        """
        campaign = Campaign(
            world,
            problem,
            self.estimator,
            objective=self.objective,
            solver=LambdaCrawlApprox() if self.approximate else self.solver,
            floor=self.floor * problem.bandwidth / total(problem.sources.cost),
            seed=self.seed,
            truth=truth,
            memory=self.memory,
        )
        return campaign.run(self, equal_legs(self.epoch, horizon, 0.0, first=0.0), checkpoint, progress)
