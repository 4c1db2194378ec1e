"""`ReplanEvery`: plans made anew from the crawls of the plans before.

A plan is certainty-equivalent: the optimum at the change rates estimated from all crawls so far, under a
prior that is learnt from them as well. It explores by itself. No source is thought to never change, and a
posterior mean has room for what was not seen; under resets the belief about a source that is no longer
crawled returns to the prior, and with it the source to the plan.

Cost: an epoch's crawls, a prior and a fit of all crawls so far, one solve.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import Any, Self

import numpy as np

from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import expect
from freshopt.estimators.default_prior import default_prior
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.maximum_likelihood import MaximumLikelihood
from freshopt.inference.gamma_prior import GammaPrior
from freshopt.inference.rate_distribution import RateDistribution
from freshopt.inference.reset_filter import Resets, check_reset
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.problem import Problem
from freshopt.online.epochs import Epoch, EpochLearner, equal_epochs, require_time
from freshopt.online.rate_evaluation import floor_rates, require_floor


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
        Of the visits and of which signals are followed.

    Notes
    -----
    Sources that were not crawled yet have the mean of the prior. Signalled sources are estimated by counting,
    as in `LambdaLearnAndCrawl`, which has any estimator, and none of this. Measured on simulated sources with
    and without resets: ``benchmarks/accuracy/resets.py``.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.1, 3.0, 0.5], importance=[1.0, 2.0, 3.0])
    >>> guess = fo.Problem(fo.problems.HarmonicStaleness(), fo.Sources(1.0, sources.importance), 2.0)
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
        """Raise if settings are out of range."""
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
        """Return the settings."""
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
