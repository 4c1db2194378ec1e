"""Instances of MirrorSync's experiments, and the three learners' costs on them.

The numbers are the defaults of the code that the authors published with the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from mirrorsync_steps import Bisection

import freshopt as fo
from freshopt.online import AsyncMirrorSync, AsyncProjectedGradientSync, MirrorSync, RunHistory
from freshopt.online.gradient_probes import Descent, run_periods, with_exploration
from freshopt.online.oracle import value_of
from freshopt.problems import BinaryCost, PowerCost, SynchronizationCost
from freshopt.simulation import AgeCosts, Crawler

Array: TypeAlias = npt.NDArray[np.float64]
Cyclic: TypeAlias = AsyncMirrorSync | AsyncProjectedGradientSync
Learner: TypeAlias = MirrorSync | Cyclic

K, BANDWIDTH, LEAST, EXPLORATION, ROUND, ROUNDS = 100, 40.0, 0.025, 0.05, 40.0, 240
KINDS = ("power", "binary")
# The paper's U.
LARGEST = {"power": 40.0, "binary": 1.0}
MOST = {"power": 3.0, "binary": 6.0}
NOISE = 0.1
LEARNERS: dict[str, tuple[Learner, ...]] = {
    "power": (MirrorSync(2.7), AsyncMirrorSync(1.6, 20.0), AsyncProjectedGradientSync(0.08, 20.0)),
    "binary": (MirrorSync(5.0), AsyncMirrorSync(1.3, 8.0), AsyncProjectedGradientSync(0.5, 40.0)),
}
MIRROR, ASYNC, PSGD = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Instance:
    """A drawn problem and the world that it is learnt in."""

    problem: fo.Problem
    cost: PowerCost | None
    seed: int

    @classmethod
    def drawn(cls, kind: str, seed: int, run: int) -> Instance:
        """Draw the costs of one run."""
        rng = np.random.default_rng([seed, run])
        cost, rates = None, np.ones(K)
        if kind == "power":
            exponent = 1.0 / (1.0 + np.exp(-5.0 * rng.random(K)))
            cost = PowerCost(rng.random(K), exponent)
        else:
            rates = rng.uniform(0.005, 5.0, K)
        sources = fo.Sources(rates, importance=1.0 / K, min_rate=LEAST, max_rate=MOST[kind])
        problem = fo.Problem(SynchronizationCost(cost or BinaryCost()), sources, BANDWIDTH)
        return cls(problem, cost, 1000 * seed + run)

    def world(self) -> fo.World | Crawler:
        """Return the world, in which nothing has happened."""
        if self.cost is None:
            return fo.World.poisson(self.problem.sources, self.seed)
        return AgeCosts(self.cost.curve(self.problem.sources), K, noise=NOISE, seed=self.seed)

    def run(self, learner: Learner, rounds: int) -> RunHistory:
        """Run a learner for some rounds."""
        if isinstance(learner, MirrorSync):
            return learner.run(self.world(), self.problem, rounds * ROUND, truth=self.problem)
        return self.run_by(Bisection(mirrored=isinstance(learner, AsyncMirrorSync)), learner, rounds)

    def run_by(self, descent: Descent, learner: Cyclic, rounds: int) -> RunHistory:
        """Run a learner with cyclic updates, by a step of one's own."""
        horizon, world, truth = rounds * ROUND, self.world(), self.problem
        return run_periods(learner, descent, world, truth, horizon, truth, None, progress=False)

    def curve(self, history: RunHistory, rounds: int) -> Array:
        """Return the cost of the rates in force after 0, 1, ... rounds."""
        per_round = len(history) // rounds
        return np.append(history.value[::per_round], value_of(self.problem, history.final))

    def explored(self) -> float:
        """Return the cost of the best rates beside exploration."""
        return fo.solve(with_exploration(self.problem, EXPLORATION)).value


@dataclass(frozen=True, eq=False)
class Curves:
    """Costs of the learners on instances of a kind.

    Attributes
    ----------
    learnt : ndarray, shape (3, runs, rounds+1)
        After each round, by learner.
    explored, best : ndarray, shape (runs,)
        Of the best rates, beside exploration and without.
    spent, resets : ndarray, shape (3, runs)
        Shares of the bandwidth: used, and used by resets.
    """

    learnt: Array
    explored: Array
    best: Array
    spent: Array
    resets: Array

    @property
    def gap(self) -> Array:
        """Each run's distance at the start from the best beside exploration."""
        return np.asarray(self.learnt[MIRROR, :, 0] - self.explored)

    def closed(self, learner: int) -> Array:
        """Return the share of the gap that is closed after each round, shape (runs, rounds+1)."""
        return np.asarray((self.learnt[learner, :, :1] - self.learnt[learner]) / self.gap[:, None])

    def rounds_to(self, learner: int, share: float) -> Array:
        """Return the round after which a share of the gap is closed first; the last one if it never is."""
        reached = self.closed(learner) >= share
        reached[:, -1] = True
        return np.argmax(reached, axis=1).astype(np.float64)


@cache
def curves(kind: str, runs: int, rounds: int, seed: int) -> Curves:
    """Run the three learners on instances of a kind; kept, for what is drawn of the same runs."""
    learnt = np.empty((3, runs, rounds + 1))
    spent, resets = np.empty((3, runs)), np.empty((3, runs))
    explored, best = np.empty(runs), np.empty(runs)
    for run in range(runs):
        instance = Instance.drawn(kind, seed, run)
        explored[run] = instance.explored()
        best[run] = fo.solve(instance.problem).value
        for k, settings in enumerate(LEARNERS[kind]):
            history = instance.run(settings, rounds)
            learnt[k, run] = instance.curve(history, rounds)
            spent[k, run] = history.spent.sum() / history.allowed.sum()
            resets[k, run] = history.extra["resets"].sum() / history.allowed.sum()
    return Curves(learnt, explored, best, spent, resets)
