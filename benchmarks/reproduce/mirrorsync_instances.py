"""Instances of MirrorSync's experiments, and the three learners' costs on them.

The numbers are the defaults of the code that the authors published with the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

import freshopt as fo
from freshopt.online import AsyncMirrorSync, AsyncProjectedGradientSync, MirrorSync, RunHistory
from freshopt.online.gradient_probes import Descent, with_exploration
from freshopt.online.rate_evaluation import value_of
from freshopt.problems import BinaryCost, PowerCost, SynchronizationCost
from freshopt.simulation import AgeCosts, Crawler

Array: TypeAlias = npt.NDArray[np.float64]
# Halvings of the multiplier's bracket, which is at most some 10⁵ wide: to rounding.
HALVINGS = 64


@dataclass(frozen=True)
class Bisection:
    """A step of descent: argmin η⟨g, r⟩ + D(r, q) with a given Σ r, D of −Σ log r or ½Σ r²."""

    mirrored: bool

    def step(
        self,
        rates: npt.ArrayLike,
        gradient: npt.ArrayLike,
        bandwidth: float,
        min_rate: npt.ArrayLike,
        max_rate: npt.ArrayLike,
        learning_rate: float,
    ) -> Array:
        """Return the rates after a step; the bounds are those of all sources."""
        row = np.array(rates, dtype=np.float64)[None]
        push = learning_rate * np.asarray(gradient, dtype=np.float64)[None]
        ends = float(np.min(min_rate)), float(np.min(max_rate))
        return np.asarray(stepped(row, push, bandwidth, *ends, mirrored=self.mirrored)[0])


def stepped(
    rates: Array, push: Array, total: float, least: float, most: float, *, mirrored: bool = True
) -> Array:
    """Return r with φ'(r) = φ'(q) − ηg − λ, clipped to its bounds, whose sum is the total, row by row."""
    answer: Array = _loop()(rates, push, float(total), float(least), float(most), mirrored)
    return answer


@cache
def _loop() -> Callable[..., Any]:
    @njit(cache=True)  # type: ignore[untyped-decorator]
    def loop(rates, push, total, least, most, mirrored):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        answer = np.empty_like(rates)
        low_end, high_end = (1.0 / most, 1.0 / least) if mirrored else (least, most)
        for row in range(rates.shape[0]):
            # The multiplier moves gaps up (mirrored) or rates down; all are at an end at its bounds.
            at = 1.0 / rates[row] + push[row] if mirrored else rates[row] - push[row]
            sign = 1.0 if mirrored else -1.0
            low = low_end - at.max() if mirrored else at.min() - high_end
            high = high_end - at.min() if mirrored else at.max() - low_end
            for _ in range(HALVINGS):
                middle = 0.5 * (low + high)
                found = 0.0
                for k in range(at.size):
                    value = min(max(at[k] + sign * middle, low_end), high_end)
                    found += 1.0 / value if mirrored else value
                if found > total:
                    low = middle
                else:
                    high = middle
            for k in range(at.size):
                value = min(max(at[k] + sign * high, low_end), high_end)
                answer[row, k] = 1.0 / value if mirrored else value
        return answer

    return loop


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
        kind = type(learner)
        stepping = type(kind.__name__, (kind,), {"__slots__": (), "descent": descent})
        own = stepping(**{each.name: getattr(learner, each.name) for each in fields(learner)})
        history: RunHistory = own.run(self.world(), self.problem, rounds * ROUND, truth=self.problem)
        return history

    def curve(self, history: RunHistory, rounds: int) -> Array:
        """Return the cost of the rates in force after 0, 1, ... rounds."""
        per_round = len(history) // rounds
        return np.append(history.value[::per_round], value_of(self.problem, history.final))

    def explored(self) -> float:
        """Return the cost of the best rates beside exploration."""
        return fo.solve(with_exploration(self.problem, EXPLORATION)).value


@dataclass(frozen=True, eq=False)
class Curves:
    """Costs of the learners on instances of a kind, and of the best rates beside exploration and without.

    `learnt` is after each round, shape (3, runs, rounds+1); `spent` and `resets`, shape (3, runs), are shares
    of the bandwidth: used, and used by resets.
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
