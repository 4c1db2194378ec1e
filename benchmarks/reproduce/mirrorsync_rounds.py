"""Algorithm 1 of MirrorSync line by line, on many instances at once.

A round takes the first interval of each source only, as printed; freshopt's `MirrorSync` averages all of
them. Costs may change from round to round: of each source they are multiplied by a factor in 0..1 that an
oblivious adversary has fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

import freshopt as fo
from benchmarks.reproduce.mirrorsync_instances import (
    BANDWIDTH,
    LARGEST,
    LEAST,
    MOST,
    NOISE,
    Array,
    Instance,
    K,
    stepped,
)
from freshopt.online.gradient_probes import with_exploration

# The factors of all sources in a round, shape (runs, K).
Adversary: TypeAlias = Callable[[int], Array]


@dataclass(frozen=True, eq=False)
class Batch:
    """Instances of a kind; `shape` are powers' scales and exponents or change rates, (…, runs, K)."""

    kind: str
    shape: Array
    least: float = LEAST

    @classmethod
    def drawn(cls, kind: str, seed: int, runs: int) -> Batch:
        """Take the instances that the learners have."""
        made = [Instance.drawn(kind, seed, run) for run in range(runs)]
        if kind == "power":
            costs = [each.cost for each in made if each.cost is not None]
            columns = [[each.scale for each in costs], [each.exponent for each in costs]]
            return cls(kind, np.array(columns, dtype=np.float64))
        return cls(kind, np.array([each.problem.sources.change_rate for each in made]))

    def __len__(self) -> int:
        """Return the number of instances."""
        return int(self.shape.shape[-2])

    @property
    def spread(self) -> float:
        """L = ln(B/(K r_min))."""
        return math.log(BANDWIDTH / (K * self.least))

    def cost(self, rates: Array) -> Array:
        """Return r·C̄(1/r) of each source, in closed form."""
        if self.kind == "power":
            scale, exponent = self.shape
            return np.asarray(scale * rates**-exponent / (exponent + 1.0))
        u = self.shape / rates
        return 1.0 + np.expm1(-u) / u

    def sample(self, rates: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return costs observed by a probe at a uniform point of an interval, and at its end."""
        point, length = rng.random(rates.shape), 1.0 / rates
        if self.kind == "power":
            scale, exponent = self.shape
            end = scale * (1.0 + NOISE * rng.uniform(-1.0, 1.0, rates.shape)) * length**exponent
            return end * point**exponent, end
        change = rng.exponential(size=rates.shape) / self.shape
        return (change < point * length).astype(np.float64), (change < length).astype(np.float64)

    def problems(self, weight: Array | None = None) -> list[fo.Problem]:
        """Return the instances as problems, at each source's mean factor if there is one."""
        answer = []
        for run in range(len(self)):
            drawn = Instance.drawn(self.kind, 0, run).problem
            objective, rates = drawn.objective, np.ones(K)
            if self.kind == "power":
                cost = fo.problems.PowerCost(*self.shape[:, run])
                objective = fo.problems.SynchronizationCost(cost)
            else:
                rates = self.shape[run]
            share = np.ones(K) if weight is None else weight[run]
            sources = fo.Sources(rates, importance=share / K, min_rate=self.least, max_rate=MOST[self.kind])
            answer.append(fo.Problem(objective, sources, BANDWIDTH))
        return answer

    def best(self, exploration: float = 0.0, weight: Array | None = None) -> Array:
        """Return the cost of the best fixed rates of each instance, beside exploration."""
        return np.array(
            [fo.solve(with_exploration(each, exploration)).value for each in self.problems(weight)]
        )

    def one(self, run: int, source: int | slice = slice(None)) -> Batch:
        """Return one instance, or one of its sources."""
        chosen = slice(source, source + 1) if isinstance(source, int) else source
        return replace(self, shape=self.shape[..., run : run + 1, chosen])

    def with_least(self, least: float) -> Batch:
        """Return the same costs under another r_min."""
        return replace(self, least=least)


def corollary(batch: Batch, rounds: int) -> tuple[float, float]:
    """Return Corollary 1's learning rate and exploration."""
    exploration = (batch.spread / rounds) ** (1.0 / 3.0)
    return K / LARGEST[batch.kind] * math.sqrt(batch.spread * exploration / rounds), exploration


def corollary_bound(batch: Batch, rounds: int) -> float:
    """Return Corollary 1's bound as printed, with the constant 3."""
    return 3.0 * LARGEST[batch.kind] * math.cbrt(rounds) ** 2 * math.cbrt(batch.spread)


def first_rates(batch: Batch, exploration: float) -> Array:
    """Return the rates that Algorithm 1 begins with, equal ones, shape (runs, K)."""
    return np.full((len(batch), K), BANDWIDTH / (1.0 + exploration) / K)


def stay(batch: Batch, rounds: int, exploration: float, weight: Array | None = None) -> Array:
    """Return the cost over all rounds of rates that stay as at first, at each source's mean factor."""
    costs = batch.cost(first_rates(batch, exploration))
    return np.asarray(rounds * np.mean(costs if weight is None else weight * costs, axis=1))


def play(
    batch: Batch,
    rounds: int,
    rate: float,
    exploration: float,
    seed: int,
    adversary: Adversary | None = None,
) -> tuple[Array, Array]:
    """Run Algorithm 1; return each run's cost, summed over the rounds, and its last rates."""
    rng = np.random.default_rng([seed, rounds, batch.kind == "power"])
    least, most = batch.least, MOST[batch.kind] / (1.0 + exploration)
    total = BANDWIDTH / (1.0 + exploration)
    rates = first_rates(batch, exploration)
    paid = np.zeros(len(batch))
    for number in range(rounds):
        factor = 1.0 if adversary is None else adversary(number)
        paid += np.mean(factor * batch.cost(rates), axis=1)
        probe, end = batch.sample(rates, rng)
        probed = rng.random(rates.shape) < exploration
        gradient = np.where(probed, factor * (probe - end) / (exploration * rates * K), 0.0)
        rates = stepped(rates, rate * gradient, total, least, most)
    return paid, rates
