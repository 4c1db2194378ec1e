"""Instances of Learning to Crawl, and what exploring them for how long loses."""

from functools import cache

import numpy as np

import freshopt as fo
from freshopt.estimators import MomentMatching
from freshopt.many import solve_many
from freshopt.modelling.objective import Refresh
from freshopt.online import PhasedEpsilonGreedy, best_exploration
from freshopt.online.explore_then_commit import Exploration
from freshopt.problems import BinaryFreshness

Array = np.ndarray
BINARY = BinaryFreshness(Refresh.POISSON)

# The small instances: as many sources, and the bounds of the estimates around their change rates.
N, BOUNDS = 100, (0.05, 2.0)
HORIZONS = (1e3, 1e4, 1e5, 1e6)
PHASES = 60
# Phases after which the best explore-then-commit is computed.
CHECKED = tuple(np.unique(np.geomspace(4, PHASES, 14).round()).astype(int).tolist())
# Bandwidths and spreads of the importances of the small instances of Figure 2.
PHASED = ((20.0, 1.5), (100.0, 1.5), (100.0, 0.5))

# The paper's own: sources, bounds of the estimates, days of a crawl a day, horizons.
SOURCES, PAPER_BOUNDS, CRAWLS = 5000, (1e-9, 25.0), 98
DECADES = np.arange(2.0, 6.5, 0.5)
# Of the change rates a day before the paper's selection, as in LambdaCrawl's stand-in for the Bing pages.
LOG_MEAN, LOG_SPREAD = -1.2479, 2.0138
# Lengths of exploration between one sweep and the last horizon, and samples of what each finds.
LENGTHS, DRAWS = 48, 4


def instance(rng: np.random.Generator, bandwidth: float = 50.0, spread: float = 1.5) -> fo.Problem:
    """Return a small instance."""
    sources = fo.Sources(rng.uniform(0.1, 1.0, N), np.exp(rng.normal(0.0, spread, N)))
    return fo.Problem(BINARY, sources, bandwidth)


def paper_instance(rng: np.random.Generator, bandwidth: float) -> fo.Problem:
    """Return an instance of the paper's size, its rates estimated and selected as there.

    Pages are crawled once a day for 14 weeks; those that never or always changed are left out; the rate is
    the maximum likelihood estimate.
    """
    rates = np.exp(LOG_MEAN + LOG_SPREAD * rng.normal(size=2 * SOURCES))
    found = rng.binomial(CRAWLS, -np.expm1(-rates))
    found = found[(found > 0) & (found < CRAWLS)][:SOURCES]
    sources = fo.Sources(-np.log1p(-found / CRAWLS), np.exp(rng.normal(size=SOURCES)))
    return fo.Problem(BINARY, sources, bandwidth)


def equal_gaps(problem: fo.Problem) -> float:
    """Return the freshness of visits in turn."""
    x = problem.sources.change_rate * len(problem.sources) / problem.bandwidth
    return float(problem.sources.importance @ (-np.expm1(-x) / x))


@cache
def explorations(seed: int, runs: int) -> list[tuple[fo.Problem, list[Exploration]]]:
    """Return small instances with what exploring for how long costs at each horizon."""
    found = []
    for run in range(runs):
        problem = instance(np.random.default_rng([seed, 4, run]))
        sweeps = np.unique(np.geomspace(2, 3000, 40).round()).astype(int).tolist()
        each = [
            best_exploration(problem, horizon, sweeps=sweeps, bounds=BOUNDS, draws=6, seed=run)
            for horizon in HORIZONS
        ]
        found.append((problem, each))
    return found


@cache
def commitments(
    seed: int, runs: int, bandwidth: float, *, counted: bool = False
) -> tuple[list[fo.Problem], Array, Array, Array]:
    """Return the paper's instances, lengths, and losses a time unit of exploring and of each commitment.

    Shapes (runs,), (lengths,), (runs,) and (runs, lengths). Nothing depends on the horizon: the regret is
    affine in it. With `counted` exploration finds how often sources changed.
    """
    sweep = SOURCES / bandwidth
    end = 10.0 ** DECADES[-1]
    numbers = np.unique(np.geomspace(1, np.floor(0.999 * end / sweep), LENGTHS).round()).astype(int)
    problems, exploring, committed = [], [], []
    for run in range(runs):
        problem = paper_instance(np.random.default_rng([seed, 8, run]), bandwidth)
        best = fo.solve(problem).value
        if counted:
            lost = best - after_counting(problem, numbers * sweep, run)
        else:
            found = best_exploration(
                problem, end, sweeps=numbers.tolist(), bounds=PAPER_BOUNDS, draws=DRAWS, seed=run
            )
            kept = found.regrets - (best - equal_gaps(problem)) * found.lengths
            lost = np.mean(kept / (end - found.lengths), axis=0)
        problems.append(problem)
        exploring.append(best - equal_gaps(problem))
        committed.append(lost)
    return problems, numbers * sweep, np.array(exploring), np.array(committed)


def after_counting(problem: fo.Problem, lengths: Array, seed: int) -> Array:
    """Return the mean freshness committed to after counting changes for these times."""
    rng, sources, values = np.random.default_rng([seed, 5]), problem.sources, []
    for _ in range(DRAWS):
        guesses = [np.clip(rng.poisson(sources.change_rate * t) / t, *PAPER_BOUNDS) for t in lengths]
        planned = solve_many(
            [fo.Problem(BINARY, fo.Sources(x, sources.importance), problem.bandwidth) for x in guesses]
        )
        rates = np.array([each.rates for each in planned])
        values.append(np.sum(sources.importance * rates / (rates + sources.change_rate), axis=1))
    return np.asarray(np.mean(values, axis=0))


def best_lengths(found: tuple[list[fo.Problem], Array, Array, Array], horizons: Array) -> tuple[Array, Array]:
    """Return the best lengths and their regrets, each of shape (runs, horizons)."""
    _, lengths, exploring, committed = found
    best, regret = [], []
    for horizon in horizons:
        inside = lengths <= horizon
        lost = exploring[:, None] * lengths + committed * (horizon - lengths)
        at = np.argmin(lost[:, inside], axis=1)
        best.append(lengths[at])
        regret.append(lost[np.arange(len(at)), at])
    return np.array(best).T, np.array(regret).T


def slopes(x: Array, rows: Array) -> Array:
    """Return the slope of each row's logarithm in that of x, NaN where a value is not positive."""
    found, positive = np.full(len(rows), np.nan), np.all(rows > 0.0, axis=1)
    found[positive] = np.polyfit(np.log(x), np.log(rows[positive]).T, 1)[0]
    return found


@cache
def phases(
    seed: int,
    runs: int,
    bandwidth: float,
    spread: float,
    sweeps: float = 10.0,
    checked: tuple[int, ...] = CHECKED,
) -> tuple[Array, Array]:
    """Return regrets of ε-greedy, shape (runs, PHASES), and of the best ETC, shape (runs, len(checked))."""
    phase, own, others = sweeps * N / bandwidth, [], []
    for run in range(runs):
        problem = instance(np.random.default_rng([seed, 6, run]), bandwidth, spread)
        guess = fo.Problem(BINARY, fo.Sources(0.5, problem.sources.importance), problem.bandwidth)
        learner = PhasedEpsilonGreedy(0.1, phase, MomentMatching(BOUNDS), seed=run)
        world = fo.World.poisson(problem.sources, seed=seed + run)
        own.append(learner.run(world, guess, PHASES * phase).regret)
        others.append(
            [best_exploration(problem, k * phase, bounds=BOUNDS, draws=3, seed=run).regret for k in checked]
        )
    return np.array(own), np.array(others)


def phased_runs(runs: int, setting: tuple[float, float]) -> int:
    """Return the number of instances of a setting: the time of overtaking varies, that it does less."""
    return 3 * runs if setting == PHASED[0] else max(runs // 4, 4)
