"""`PhasedEpsilonGreedy`: phases of fixed rates, each a mixture of the best rates known and equal rates.

The equal share keeps every source visited, so that all change rates become known in the end, however wrong
they were at first; its price is a loss that does not end. Phases must be long enough for freshness to settle
at what the rates promise: (1/Δ_min)·ln(2Σw/ε') brings it to within ε' of that.

Cost: one fit and one solve a phase.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from freshopt.errors import SourceDataError, expect_settings
from freshopt.learning.campaign import Campaign, Leg
from freshopt.learning.estimator import Estimator
from freshopt.learning.history import History
from freshopt.learning.moment_matching import MomentMatching
from freshopt.learning.playing import check_horizon
from freshopt.model import Problem
from freshopt.simulation import Crawler, World
from freshopt.verdict import Solver

MOST_LEGS = 1_000_000  # each is a fit and a solve: a quarter of an hour at the very least
SETTLED = 0.01  # share of Σw to which freshness has settled at the end of a phase of default length


@dataclass(frozen=True, slots=True)
class PhasedEpsilonGreedy:
    """Equal rates in the first phase, then (1−ε) of the best rates known plus ε of equal rates.

    Parameters
    ----------
    epsilon : float
        ε, the share of equal rates, 0..1.
    phase : float, optional
        Length of a phase in time units. By default (1/Δ_min)·ln(2/0.01) of the guessed change rates.
    estimator : Estimator
        Any of `freshopt.learning`, not fitted.
    solver : Solver, optional
    seed : int
        Of the visits.

    Notes
    -----
    [1]_ section 6.2; estimates use the crawls of all phases. With ε = 0 a source that the best rates leave
    out is never looked at again.

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
        """Refuse a share outside 0..1 and a length that is not positive."""
        expect_settings(self)
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
    ) -> History:
        """Learn until the horizon, one round per phase; see `Learner.run`.

        The problem's change rates are a guess, of use only for the length of a phase. The last may be
        shorter.
        """
        campaign = Campaign(world, problem, self.estimator, solver=self.solver, seed=self.seed, truth=truth)
        phase = self.phase
        if phase is None:
            phase = math.log(2.0 / SETTLED) / float(np.min(problem.sources.change_rate))
        legs = equal_legs(phase, horizon, self.epsilon)
        return campaign.run(self, legs, checkpoint, progress)


def equal_legs(length: float, horizon: float, explore: float, first: float = 1.0) -> list[Leg]:
    """Return legs of one length until the horizon; the first may have another share of equal rates."""
    horizon = check_horizon(horizon)
    count = horizon / length * (1.0 - 1e-12)
    if count > MOST_LEGS:
        raise SourceDataError(
            f"horizon {horizon:g} takes {count:.3g} rounds of {length:g} each, and at most {MOST_LEGS} are "
            f"played. Pass a horizon of at most {MOST_LEGS * length:.3g}, or longer rounds."
        )
    ends = [min((k + 1) * length, horizon) for k in range(max(1, math.ceil(count)))]
    return [Leg(end, explore if k else first) for k, end in enumerate(ends)]
