"""Certainty-equivalent policies in epochs: one class each.

Every epoch the problem is solved for the change rates estimated so far, as if they were true.

`LambdaLearnAndCrawl`: epochs of one length. The optimum of harmonic staleness refreshes every changing
source, so that it explores enough by itself: all estimates converge, and the rates with them. The optimum of
binary freshness starves fast sources, and those that seem fast by chance would stay so for good; there a
floor, a share of the mean rate, takes the place of exploration.

Cost: an epoch's crawls, a fit of the whole log, one solve.

`PhasedEpsilonGreedy`: ε-greedy policy with phases of fixed rates. The equal share explores: every source
stays visited, so that all estimates converge, however wrong they were at first; the regret is linear in time
for a constant ε. Phases must be long enough for freshness to settle at its stationary value:
(1/Δ_min)·ln(2Σw/ε') brings it to within ε' of that.

Cost: one fit and one solve a phase.

`AdaptiveRates`: certainty-equivalent rates after each batch of crawls. Crawl a batch, update the estimates,
crawl the next batch at the rates that are optimal for them.

Certainty equivalence alone does not explore: a source at rate 0 would never be crawled again. So every source
keeps a small rate, and every estimate stays above 0.

Cost: a batch's crawls once through the estimator, and one solve.

`ReplanEvery`: plans made anew from the crawls of the plans before. A plan is certainty-equivalent: the
optimum at the change rates estimated from all crawls so far, under a prior that is learnt from them as well.
It explores by itself. No source is thought to never change, and a posterior mean has room for what was not
seen; under resets the belief about a source that is no longer crawled returns to the prior, and with it the
source to the plan.

Cost: an epoch's crawls, a prior and a fit of all crawls so far, one solve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Self

import numpy as np

from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import SourceDataError, expect
from freshopt.estimators.default_prior import default_prior
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.gamma_prior import GammaPrior
from freshopt.estimators.known_crawl_rate import LawOfLargeNumbers
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.estimators.moment_matching import MomentMatching
from freshopt.estimators.rate_distribution import RateDistribution
from freshopt.estimators.reset_filter import Resets, check_reset
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.objective import Objective, as_objective
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import LARGEST, SMALLEST
from freshopt.online.epochs import Epoch, EpochLearner, equal_epochs, require_time
from freshopt.online.rate_evaluation import floor_rates, require_floor
from freshopt.solvers.lambda_crawl_approx import LambdaCrawlApprox
from freshopt.units import convert_time


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
        Of the visits and, beside random ones, of which signals are followed.

    Notes
    -----
    [1]_ Algorithm 4; `approximate` is its LLCA, ``objective=BinaryFreshness(...), floor=0.4`` its BLLC. In
    place of Algorithm 3 any solver of the problem will do, for any objective. The first epoch's rates are
    optimal for the problem's own change rates, the guess. A source that has not been crawled yet keeps it. An
    epoch has exactly as many crawls as the bandwidth allows, those that follow signals included (see
    `freshopt.online.epoch_crawls`).

    References
    ----------
    .. [1] Kolobov et al., "Staying up to Date with Online Content Changes Using Reinforcement Learning for
       Scheduling", NeurIPS 2019, Algorithm 4 and Proposition 8.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.1, 3.0, 0.5], importance=[1.0, 2.0, 3.0], signalled=[0, 0, 1])
    >>> given = fo.Sources(1.0, sources.importance, signalled=sources.signalled)
    >>> guess = fo.Problem(fo.problems.HarmonicStaleness(fo.Refresh.POISSON), given, bandwidth=2.0)
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
        self._check()
        if self.objective is not None:
            object.__setattr__(self, "objective", as_objective(self.objective))
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


# Share of Σw to which freshness has settled at the end of a phase of default length.
SETTLED = 0.01


@dataclass(frozen=True, slots=True)
class PhasedEpsilonGreedy(EpochLearner):
    """Phased ε-greedy policy.

    Equal rates in the first phase, then (1−ε) of the certainty-equivalent rates plus ε of equal rates.

    Parameters
    ----------
    epsilon : float
        ε, the share of equal rates, 0..1.
    phase : float, optional
        Length of a phase in time units. By default (1/Δ_min)·ln(2/0.01) of the guessed change rates.
    estimator : Estimator
        Any of `freshopt.estimators`, not fitted.
    solver : Solver, optional
    seed : int
        Of the visits.

    Notes
    -----
    [1]_ section 6.2; estimates use the crawls of all phases. With ε = 0 a source that the best rates leave
    out is never crawled again.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6067.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.2, 1.0, 0.5], importance=[1.0, 2.0, 3.0])
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> guess = fo.Problem(objective, fo.Sources(1.0, sources.importance), bandwidth=2.0)
    >>> history = PhasedEpsilonGreedy(phase=30.0).run(fo.World.poisson(sources, seed=1), guess, 120.0)
    >>> history.rates.round(2).tolist()
    [[0.67, 0.67, 0.67], [0.4, 0.62, 0.98], [0.38, 0.68, 0.93], [0.38, 0.68, 0.94]]
    """

    epsilon: float = 0.1
    phase: float | None = None
    estimator: Estimator = field(default_factory=MomentMatching)
    solver: Solver | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise if a share or length is out of range.

        A share is in 0..1, and a length positive.
        """
        self._check()
        if not 0.0 <= self.epsilon <= 1.0:
            raise SourceDataError(f"epsilon is {self.epsilon}. Pass a share in 0..1.")
        require_time("phase", self.phase, optional=True)

    def epochs(self, problem: Problem, horizon: float) -> list[Epoch]:
        """Return the phases until the horizon.

        The last may be shorter. The problem's change rates are a guess, of use only for the length of a
        phase.
        """
        phase = self.phase
        if phase is None:
            phase = math.log(2.0 / SETTLED) / float(np.min(problem.sources.change_rate))
        return equal_epochs(phase, horizon, self.epsilon)


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
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> guess = fo.Problem(objective, fo.Sources(1.0, sources.importance), bandwidth=2.0)
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


@dataclass(frozen=True, slots=True)
class ReplanEvery(EpochLearner):
    """Certainty-equivalent policy under a learnt prior.

    The first epoch has equal rates, then come the rates that are optimal for the estimates.

    Parameters
    ----------
    epoch : float
        Time between two plans, in time units.
    reset : float or "auto", optional
        For change rates that do not last: resets per *day*, whatever the time unit, or the rate of resets
        that predicts the crawls so far best; see `MaximumLikelihood`.
    prior : GammaPrior, optional
        Of the change rates. By default it is learnt for each plan, from all crawls so far.
    floor : float, optional
        Lower bound on each rate, as a share of the mean rate bandwidth/n: 0..1. By default a tenth where the
        objective leaves sources without refreshes, as binary freshness does, of which nothing would be learnt
        again; 0 elsewhere.
    solver : Solver, optional
    seed : int
        Of the visits and, beside random ones, of which signals are followed.

    Notes
    -----
    Sources that were not crawled yet have the mean of the prior. Signalled sources are estimated by counting,
    as in `LambdaLearnAndCrawl`, which has any estimator, and none of this. Measured on simulated sources with
    and without resets: ``benchmarks/accuracy/resets.py``.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.1, 3.0, 0.5], importance=[1.0, 2.0, 3.0])
    >>> objective = fo.problems.HarmonicStaleness(fo.Refresh.POISSON)
    >>> guess = fo.Problem(objective, fo.Sources(1.0, sources.importance), 2.0)
    >>> history = ReplanEvery(7.0).run(fo.World.poisson(sources, seed=1), guess, 210.0)
    >>> len(history), bool(history.shortfall[-1] < 0.05 * history.shortfall[0])
    (30, True)
    """

    epoch: float
    reset: Resets | None = None
    prior: GammaPrior | None = None
    floor: float | None = None
    solver: Solver | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._check()
        check_reset(self.reset)
        expect(self.prior, (GammaPrior, NoneType), "prior", "Pass a GammaPrior, or None to learn one")
        require_time("epoch", self.epoch)
        require_floor(self.floor)

    def epochs(self, problem: Problem, horizon: float) -> list[Epoch]:  # noqa: ARG002 - all are of one length
        """Return the epochs until the horizon.

        The last may be shorter. The problem's change rates are not used, unless an epoch passes without any
        crawl.
        """
        return equal_epochs(self.epoch, horizon, 0.0)

    def _choice(self, problem: Problem) -> dict[str, Any]:
        floor = floor_rates(problem, problem.objective, self.floor)
        return {"estimator": _UnderPrior(self.reset, self.prior), "floor": floor}


class _UnderPrior(Estimator):
    """Maximum likelihood under a prior learnt from the same log."""

    unseen_rate_: float | None = None

    def __init__(self, reset: Resets | None, prior: GammaPrior | None) -> None:
        self.reset, self.prior = reset, prior
        self._model: MaximumLikelihood | None = None

    def __repr__(self) -> str:
        prior = "learnt" if self.prior is None else self.prior
        return f"MaximumLikelihood(prior={prior}, reset={self.reset!r})"

    def fit(self, log: CrawlLog) -> Self:
        """Learn the prior, and the rates under it."""
        prior = default_prior(log, self.reset) if self.prior is None else self.prior
        reset = None if prior is None else self.reset
        model = self._model = MaximumLikelihood(prior=prior, reset=reset).fit(log)
        if prior is not None:
            one = prior.parameters(log)
            self.unseen_rate_ = float(one.shape[0] / one.exposure[0])
        return self._publish(model.sources_, model.time_unit_, np.array(model.change_rate_), model.flag_)

    def _distribution(self) -> RateDistribution:
        if self._model is None:
            raise self._not_fitted()
        return self._model._distribution()
