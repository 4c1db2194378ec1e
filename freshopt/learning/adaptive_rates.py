"""`AdaptiveRates`: crawl a batch, correct the change rates a little, crawl the next batch at better rates.

Rates decide what is learnt: a source left out would never be looked at again. So every source keeps a small
rate, and every estimate stays above 0.

Cost: a batch's crawls once through the estimator, and one solve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from freshopt.errors import SourceDataError, expect_settings
from freshopt.learning.campaign import Campaign
from freshopt.learning.estimator import Estimator
from freshopt.learning.history import History
from freshopt.learning.law_of_large_numbers import LawOfLargeNumbers
from freshopt.learning.phased_epsilon_greedy import equal_legs
from freshopt.model import Problem
from freshopt.simulation import Crawler, World
from freshopt.units import convert_time
from freshopt.verdict import Solver


@dataclass(frozen=True, slots=True)
class AdaptiveRates:
    """Equal rates for the first batch, then the rates that are optimal for the estimates, batch by batch.

    Parameters
    ----------
    batch : float
        Length of a batch in time units.
    estimator : Estimator
        Any of `freshopt.learning`, not fitted. One with ``partial_fit`` is carried on from batch to batch;
        one that asks for the rate of the crawling process is told that of each batch.
    floor : float
        Least refreshes per *day* of each source, whatever the time unit; 0 for none.
    solver : Solver, optional
    seed : int
        Of the visits.

    Notes
    -----
    [1]_ section 5, where a batch is 50 crawls of each source, each on its own clock; here all sources have
    one clock, and a source crawled more often is learnt faster. Estimators of known crawl rates suppose
    exponential gaps: an objective under periodic refreshes needs `MaximumLikelihood` or `MomentMatching`.

    References
    ----------
    .. [1] Avrachenkov, Patil, Thoppe, "Online algorithms for estimating change rates of web pages",
       Performance Evaluation 153, 2022, doi:10.1016/j.peva.2021.102261.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.2, 1.0, 0.5], importance=[1.0, 2.0, 3.0])
    >>> guess = fo.Problem(fo.problems.BinaryFreshness(), fo.Sources(1.0, sources.importance), bandwidth=2.0)
    >>> history = AdaptiveRates(batch=50.0).run(fo.World.poisson(sources, seed=1), guess, 500.0)
    >>> history.time[:3].tolist(), bool(history.shortfall[-1] < 0.1 * history.shortfall[0])
    ([50.0, 100.0, 150.0], True)
    """

    batch: float
    estimator: Estimator = field(default_factory=LawOfLargeNumbers)
    floor: float = 1e-3
    solver: Solver | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a length that is not positive and a floor below 0."""
        expect_settings(self)
        if not 0.0 < self.batch < math.inf:
            raise SourceDataError(f"batch is {self.batch}. Pass a time > 0.")
        if not 0.0 <= self.floor < math.inf:
            raise SourceDataError(f"floor is {self.floor}. Pass refreshes per day, 0 or more.")

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
        """Learn until the horizon, one round per batch; see `Learner.run`.

        The problem's change rates stand in for sources not crawled yet; the last batch may be shorter.
        """
        floor = self.floor / convert_time(1.0, "day", problem.sources.time_unit)
        campaign = Campaign(
            world, problem, self.estimator, solver=self.solver, floor=floor, seed=self.seed, truth=truth
        )
        return campaign.run(self, equal_legs(self.batch, horizon, 0.0), checkpoint, progress)
