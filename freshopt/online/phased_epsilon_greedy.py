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

import numpy as np

from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import SourceDataError
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.moment_matching import MomentMatching
from freshopt.modelling.problem import Problem
from freshopt.online.epochs import Epoch, EpochLearner, equal_epochs, require_time

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
