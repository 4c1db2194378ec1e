"""`ExploreThenCommit`: exploration at equal rates, then certainty equivalence.

The policy visits all sources in turn for a time τ, then keeps the rates that are optimal for the estimates.

Exploration has a regret proportional to its length τ, and commitment one that falls with it: with estimation
errors of order 1/√τ the regret per time unit is of order 1/τ (`sensitivity_bound`). The sum is least for τ of
order √T, and so is the regret. An unknown horizon T is guessed, and the guess doubled when it has passed (the
doubling trick); each new exploration adds to the data.

Cost: one or two fits and solves per guess of the horizon.

`best_exploration`: optimal length of exploration before committing. The expected regret of exploring for a
number of sweeps and committing is computed, not bounded. That of exploration is known exactly. That of
commitment is a Monte Carlo mean over samples of what exploration finds: after N visits at an interval a, a
source was found changed Binomial(N, 1 − e^{−aΔ}) times, and its estimate is −ln(1 − share)/a.

Cost: one solve per sample and candidate length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from freshopt.certificates.solver_protocol import Solver
from freshopt.errors import ObjectiveError, SourceDataError, check_seed, expect
from freshopt.estimators.estimator import Estimator, check_bounds
from freshopt.estimators.moment_matching import MomentMatching
from freshopt.estimators.sufficient_statistics import LEAST
from freshopt.many import solve_many
from freshopt.modelling.objective import Refresh
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import SMALLEST, Array, as_numbers, as_whole, read_only, total
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.online.epochs import Epoch, EpochLearner, require_time
from freshopt.online.rate_evaluation import equal_rates, value_under, with_rates
from freshopt.solving import solve
from freshopt.units import check_horizon

# A sample is a solve for each length: a quarter of an hour at the very least.
MOST_DRAWS = 1_000_000
# float64 does not represent all integers beyond 2^53.
MOST_SWEEPS = 1e15
# Lengths between one sweep and the horizon, equally spaced in the logarithm.
CANDIDATES = 25


@frozen_value(repr=False)
class Exploration:
    """Lengths of exploration and their expected regret.

    - `length`: The best of `lengths`, in time units.
    - `regret`: Mean regret there, in units of the objective times time.
    - `lengths` (m,)
    - `regrets` (draws, m): One per sample and length.
    """

    length: float
    regret: float
    lengths: Array
    regrets: Array

    def __repr__(self) -> str:
        return f"Exploration({self.length:g} of {len(self.lengths)} lengths, regret {self.regret:.4g})"


def best_exploration(
    problem: Problem,
    horizon: float,
    *,
    sweeps: Sequence[int] | None = None,
    bounds: tuple[float, float] | None = None,
    draws: int = 8,
    seed: int = 0,
) -> Exploration:
    """Search the exploration length of least expected regret.

    At a horizon.

    Parameters
    ----------
    problem : Problem
        With change rates like those expected; without signalled sources.
    horizon : float
        T, in time units.
    sweeps : sequence of int, optional
        Candidates: how often each source is visited. By default 25 from one to the horizon.
    bounds : (float, float), optional
        Between which estimates are clipped, in changes per time unit; by default they are what
        `MomentMatching` makes of sources that never or always changed.
    draws : int
        Samples of what exploration finds; all lengths have common random numbers.
    seed : int

    Returns
    -------
    Exploration

    Raises
    ------
    ObjectiveError
        If sources are signalled, or the objective has no periodic cell.
    SourceDataError
        If the horizon is shorter than a sweep, or there are no draws.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(np.linspace(0.1, 1.0, 100), importance=np.exp(2.0 * np.sin(np.arange(100))))
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.POISSON), sources, bandwidth=50.0)
    >>> [round(best_exploration(problem, horizon).length) for horizon in (1e3, 1e4, 1e5)]
    [76, 142, 702]
    """
    expect(problem, Problem, "problem", "Pass a freshopt.Problem")
    seed, draws = check_seed(seed), as_whole(draws, "draws", 1, MOST_DRAWS)
    if bool(np.any(problem.sources.signalled)):
        raise ObjectiveError("exploration is searched for silent sources. Pass signalled=False.")
    if not hasattr(problem.objective, "refresh") or not hasattr(problem.objective, "curve"):
        raise ObjectiveError(
            f"{problem.objective!r} has no periodic cell to tell what exploration costs. Pass the length of "
            "exploration yourself."
        )
    least, clip = (LEAST, (0.0, math.inf)) if bounds is None else (0.0, check_bounds(bounds))
    sources = problem.sources
    sweep = total(sources.refresh_cost) / problem.bandwidth
    horizon = check_horizon(horizon)
    if not sweep <= horizon <= MOST_SWEEPS * sweep:
        raise SourceDataError(
            f"horizon is {horizon:g}. Pass at least one sweep over all sources, {sweep:g}, and at most "
            f"{MOST_SWEEPS:g} of them."
        )
    most = math.floor(horizon / sweep)
    given = np.geomspace(1, most, CANDIDATES).round() if sweeps is None else as_numbers(sweeps, "sweeps")
    numbers = np.unique(given[(given >= 1) & (given <= most)]).astype(np.int64)
    if not len(numbers):
        raise SourceDataError(f"sweeps has no number from 1 to {most}. Pass one at least, or None.")
    best = solve(problem)
    sign = 1.0 if problem.objective.sense == "minimise" else -1.0
    even = np.maximum(equal_rates(problem), SMALLEST)
    exploring = sign * (value_under(problem, even, Refresh.PERIODIC) - best.value)
    chance = -np.expm1(-sources.change_rate / even)
    regrets = np.empty((draws, len(numbers)))
    for draw in range(draws):
        estimated = []
        for number in numbers.tolist():
            visits = np.maximum(1, np.rint(number * sweep * even).astype(np.int64))
            found = np.random.default_rng([seed, draw, number]).binomial(visits, chance)
            with np.errstate(divide="ignore"):
                share = np.clip(found, least, visits - least) / visits
                estimate = np.clip(-np.log1p(-share) * even, *clip)
            estimated.append(with_rates(problem, problem.objective, estimate, sources.min_rate))
        for k, planned in enumerate(solve_many(estimated)):
            lost = sign * (value_under(problem, planned.rates, problem.objective.refresh) - best.value)
            length = int(numbers[k]) * sweep
            regrets[draw, k] = exploring * length + lost * (horizon - length)
    mean = regrets.mean(axis=0)
    k = int(np.argmin(mean))
    lengths = np.asarray(numbers * sweep, dtype=np.float64)
    return Exploration(float(lengths[k]), float(mean[k]), read_only(lengths), read_only(regrets))


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
    .. [1] Upadhyay et al., "Learning to Crawl", AAAI 2020, doi:10.1609/aaai.v34i04.6067.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources([0.2, 1.0, 0.5], importance=[1.0, 2.0, 3.0])
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.POISSON)
    >>> guess = fo.Problem(objective, fo.Sources(1.0, sources.importance), bandwidth=2.0)
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
