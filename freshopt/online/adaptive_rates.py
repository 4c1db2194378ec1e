"""`AdaptiveRates`: certainty-equivalent rates after each batch of crawls.

Crawl a batch, update the estimates, crawl the next batch at the rates that are optimal for them.

Certainty equivalence alone does not explore: a source at rate 0 would never be crawled again. So every source
keeps a small rate, and every estimate stays above 0.

Cost: a batch's crawls once through the estimator, and one solve.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import SourceDataError
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.law_of_large_numbers import LawOfLargeNumbers
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST
from freshopt.online.epochs import Epoch, EpochLearner, equal_epochs, require_time
from freshopt.units import convert_time


@dataclass(frozen=True, slots=True)
class AdaptiveRates(EpochLearner):
    """Certainty-equivalent policy that re-estimates after each batch.

    The first batch has equal rates, then come the rates that are optimal for the estimates.

    Parameters
    ----------
    batch : float
        Length of a batch in time units.
    estimator : Estimator
        Any of `freshopt.estimators`, not fitted. One with ``partial_fit`` is updated from batch to batch;
        one that needs the rate of the crawling process is given that of each batch.
    floor : float
        Lower bound on the refreshes per *day* of each source, whatever the time unit; 0 for none.
    solver : Solver, optional
    seed : int
        Of the visits.

    Notes
    -----
    [1]_ section 5, where a batch is 50 crawls of each source, each on its own clock; here all sources have
    one clock, and the estimate of a source crawled more often converges faster. Estimators of known crawl
    rates assume exponential crawl intervals: an objective under periodic refreshes needs `MaximumLikelihood`
    or `MomentMatching`.

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
        """Raise if batch or floor is out of range."""
        self._check()
        require_time("batch", self.batch)
        if self.floor != 0.0 and not SMALLEST <= self.floor <= LARGEST:
            raise SourceDataError(f"floor is {self.floor}. Pass refreshes per day, 0 or more.")

    def epochs(self, problem: Problem, horizon: float) -> list[Epoch]:  # noqa: ARG002 - all are of one length
        """Return the batches until the horizon.

        The last may be shorter. The problem's change rates stand in for sources not crawled yet.
        """
        return equal_epochs(self.batch, horizon, 0.0)

    def _choice(self, problem: Problem) -> dict[str, Any]:
        floor = self.floor / convert_time(1.0, "day", problem.sources.time_unit)
        return {"estimator": self.estimator, "floor": floor}
