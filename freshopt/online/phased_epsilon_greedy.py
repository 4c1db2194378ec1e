"""`PhasedEpsilonGreedy`: ε-greedy policy with phases of fixed rates.

Each is a mixture of the certainty-equivalent rates and equal rates.

The equal share explores: every source stays visited, so that all estimates converge, however wrong they were
at first; the regret is linear in time for a constant ε. Phases must be long enough for freshness to settle at
its stationary value: (1/Δ_min)·ln(2Σw/ε') brings it to within ε' of that.

Cost: one fit and one solve a phase.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from freshopt.certificates.solver_protocol import Solver, check_solver
from freshopt.errors import SourceDataError, expect, expect_settings
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.moment_matching import MomentMatching
from freshopt.modelling.problem import Problem
from freshopt.online.epochs import Epoch, EpochRun
from freshopt.online.run_history import RunHistory
from freshopt.simulation import Crawler, World
from freshopt.units import check_horizon

# Largest number of epochs. Each is a fit and a solve: a quarter of an hour at the very least.
MOST_EPOCHS = 1_000_000
# Share of Σw to which freshness has settled at the end of a phase of default length.
SETTLED = 0.01


@dataclass(frozen=True, slots=True)
class PhasedEpsilonGreedy:
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
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6075.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.2, 1.0, 0.5], importance=[1.0, 2.0, 3.0])
    >>> guess = fo.Problem(fo.problems.BinaryFreshness(), fo.Sources(1.0, sources.importance), bandwidth=2.0)
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
        expect_settings(self)
        check_solver(self.solver)
        expect(self.estimator, Estimator, "estimator", "Pass one, such as MaximumLikelihood()")
        if not 0.0 <= self.epsilon <= 1.0:
            raise SourceDataError(f"epsilon is {self.epsilon}. Pass a share in 0..1.")
        if self.phase is not None and not 0.0 < self.phase < math.inf:
            raise SourceDataError(f"phase is {self.phase}. Pass a time > 0, or None.")

    def run(
        self,
        world: World | Crawler,
        problem: Problem,
        horizon: float,
        *,
        truth: Problem | None = None,
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> RunHistory:
        """Learn until the horizon, one round per phase; see `Learner.run`.

        The problem's change rates are a guess, of use only for the length of a phase. The last may be
        shorter.
        """
        epoch_run = EpochRun(world, problem, self.estimator, solver=self.solver, seed=self.seed, truth=truth)
        phase = self.phase
        if phase is None:
            phase = math.log(2.0 / SETTLED) / float(np.min(problem.sources.change_rate))
        epochs = equal_epochs(phase, horizon, self.epsilon)
        return epoch_run.run(self, epochs, checkpoint, progress)


def equal_epochs(length: float, horizon: float, explore: float, first: float = 1.0) -> list[Epoch]:
    """Return epochs of one length until the horizon.

    The first may have another share of equal rates.
    """
    horizon = check_horizon(horizon)
    count = horizon / length * (1.0 - 1e-12)
    if count > MOST_EPOCHS:
        raise SourceDataError(
            f"horizon {horizon:g} takes {count:.3g} rounds of {length:g} each, and at most {MOST_EPOCHS} are "
            f"played. Pass a horizon of at most {MOST_EPOCHS * length:.3g}, or longer rounds."
        )
    ends = [min((k + 1) * length, horizon) for k in range(max(1, math.ceil(count)))]
    return [Epoch(end, explore if k else first) for k, end in enumerate(ends)]
