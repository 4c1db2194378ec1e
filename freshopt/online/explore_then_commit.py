"""`ExploreThenCommit`: exploration at equal rates, then certainty equivalence.

The policy visits all sources in turn for a time τ, then keeps the rates that are optimal for the estimates.

Exploration has a regret proportional to its length τ, and commitment one that falls with it: with estimation
errors of order 1/√τ the regret per time unit is of order 1/τ (`sensitivity_bound`). The sum is least for τ of
order √T, and so is the regret. An unknown horizon T is guessed, and the guess doubled when it has passed (the
doubling trick); each new exploration adds to the data.

Cost: one or two fits and solves per guess of the horizon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import SourceDataError, expect
from freshopt.estimators.estimator import Estimator
from freshopt.estimators.moment_matching import MomentMatching
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import total
from freshopt.online.epochs import Epoch, EpochLearner, require_time
from freshopt.online.exploration_length import best_exploration
from freshopt.units import check_horizon


@dataclass(frozen=True, slots=True)
class ExploreThenCommit(EpochLearner):
    """Explore-then-commit policy.

    Explore at equal intervals for a time τ, then commit to the rates that are optimal for the estimates.

    Parameters
    ----------
    exploration : float, optional
        τ in time units; rounded up to whole sweeps of Σcost/bandwidth. By default it is searched with
        `best_exploration` on the problem's own change rates, the guess.
    doubling : float, optional
        First guess of the horizon, for an unknown one: after it has passed the next stretch is as long as
        all before. The j-th stretch begins with τ·2^{j/2} of exploration.
    estimator : Estimator
        Any of `freshopt.estimators`, not fitted; crawl intervals are equal, so it should not need exponential
        ones. `FullObservation` needs a crawler that counts changes, as that of a world does.
    solver : Solver, optional
    seed : int
        Of Poisson visits after exploration.

    Notes
    -----
    [1]_ section 5; doubling as mentioned there. After exploration sources are refreshed as the problem's
    objective says. Regret is against its best rates; while exploring it can be negative, as equal intervals
    are better than the Poisson refreshes that the best rates are of.

    References
    ----------
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6075.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.2, 1.0, 0.5], importance=[1.0, 2.0, 3.0])
    >>> guess = fo.Problem(fo.problems.BinaryFreshness(), fo.Sources(1.0, sources.importance), bandwidth=2.0)
    >>> history = ExploreThenCommit(exploration=60.0).run(fo.World.poisson(sources, seed=1), guess, 400.0)
    >>> history.time.tolist(), history.rates.round(2).tolist()
    ([60.0, 400.0], [[0.67, 0.67, 0.67], [0.34, 0.68, 0.98]])
    """

    exploration: float | None = None
    doubling: float | None = None
    estimator: Estimator = field(default_factory=MomentMatching)
    solver: Solver | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise if times are not positive."""
        self._check()
        require_time("exploration", self.exploration, optional=True)
        require_time("doubling", self.doubling, optional=True)

    def epochs(self, problem: Problem, horizon: float) -> list[Epoch]:
        """Return the stretches until the horizon, each an epoch or two.

        The problem's change rates are a guess, of use only to choose τ. With `doubling` the horizon only says
        when to stop.
        """
        expect(problem, Problem, "problem", "Pass a freshopt.Problem")
        horizon, sweep = check_horizon(horizon), total(problem.sources.refresh_cost) / problem.bandwidth
        if not sweep <= horizon < math.inf:
            raise SourceDataError(
                f"horizon is {horizon}. Pass a finite time of at least one sweep over all sources, {sweep:g}."
            )
        explored = self._exploration(problem, self.doubling or horizon)
        if self.doubling is None:
            return _cut([(explored, 1.0), (horizon, 0.0)], sweep, horizon)
        ends, begin, guess, turn = [], 0.0, self.doubling, 0
        while begin < horizon:
            ends += [(begin + explored * 2.0 ** (turn / 2.0), 1.0), (begin + guess, 0.0)]
            begin, guess, turn = begin + guess, begin + guess, turn + 1
        return _cut(ends, sweep, horizon)

    def _exploration(self, problem: Problem, horizon: float) -> float:
        if self.exploration is not None:
            return self.exploration
        return best_exploration(problem, horizon, seed=self.seed).length


def _cut(ends: list[tuple[float, float]], sweep: float, horizon: float) -> list[Epoch]:
    """Split stretches into epochs.

    A stretch is (end, share of exploration); exploration comes in whole sweeps, and no epoch is too long.
    """
    epochs: list[Epoch] = []
    begin = 0.0
    for end, explore in ends:
        if explore:
            sweeps = max(1, math.ceil((end - begin) / sweep * (1.0 - 1e-12)))
            epoch = Epoch(min(begin + sweeps * sweep, horizon), 1.0, Refresh.PERIODIC)
        else:
            epoch = Epoch(min(end, horizon))
        if epoch.end > begin:
            epochs.append(epoch)
            begin = epoch.end
    return epochs
