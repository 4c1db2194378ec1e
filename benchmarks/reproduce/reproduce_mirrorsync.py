"""MirrorSync (Kolobov, Bubeck, Zimmert, ICML 2020).

The paper: "Online Learning for Active Cache Synchronization". A run is an instance of its own: K = 100,
B = 40, r_min = 0.025, ε = 0.05, 240 rounds of 40. These and the other parameters are the defaults of the
code that the authors published with the paper. Power costs a·τ^p have p = 1/(1+e^{−5U}), mean a = U,
noise ±10 % and r_max = 3 (U uniform in 0..1); binary costs have Δ uniform in 0.005..5 and r_max = 6. Learning
rates (and cycles): power 2.7, Async 1.6 (20), PSGD 0.08 (20); binary 5, Async 1.3 (8), PSGD 0.5 (40). All
learners of a run meet the same changes and the same noise. Costs are J under the true parameters, of the
rates in force after a round; the gap closed is that between the start and the best rates beside exploration.

As run here, MirrorSync averages all samples of a round, the sources that Async updates keep the sum of their
rates (line 35 as printed is run too, and does not work), and resets are of updated sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from statements import Statement, always, below, equals, within

import freshopt as fo
from freshopt.bounds import mirror_sync_regret_bound
from freshopt.online import AsyncMirrorSync, AsyncProjectedGradientSync, MirrorSync, RunHistory
from freshopt.online.async_updates import run_cycles
from freshopt.online.gradient_probes import Synchronization, with_exploration
from freshopt.online.oracle import value_of
from freshopt.problems import BinaryCost, PowerCost, SynchronizationCost
from freshopt.simulation import AgeCosts, Crawler, SimulatedCrawler
from freshopt.solvers.mirror_descent import MirrorDescent

Array = npt.NDArray[np.float64]
K, BANDWIDTH, LEAST, EXPLORATION, ROUND, ROUNDS = 100, 40.0, 0.025, 0.05, 40.0, 240
RUNS = {"power": 60, "binary": 300}  # binary costs are nearer to one another
BRIEF, FEW, QUICK = 60, 30, 6  # rounds of the quick form; instances of side issues, and of the quick form
LARGEST = {"power": 40.0, "binary": 1.0}  # U, the largest cost
LEARNERS = {
    "power": (MirrorSync(2.7), AsyncMirrorSync(1.6, 20.0), AsyncProjectedGradientSync(0.08, 20.0)),
    "binary": (MirrorSync(5.0), AsyncMirrorSync(1.3, 8.0), AsyncProjectedGradientSync(0.5, 40.0)),
}


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
        cost, rates, most = None, np.ones(K), 6.0
        if kind == "power":
            exponent = 1.0 / (1.0 + np.exp(-5.0 * rng.random(K)))
            cost, most = PowerCost(rng.random(K), exponent), 3.0
        else:
            rates = rng.uniform(0.005, 5.0, K)
        sources = fo.Sources(rates, importance=1.0 / K, min_rate=LEAST, max_rate=most)
        problem = fo.Problem(SynchronizationCost(cost or BinaryCost()), sources, BANDWIDTH)
        return cls(problem, cost, 1000 * seed + run)

    def world(self) -> fo.World | Crawler:
        """Return the world, in which nothing has happened."""
        if self.cost is None:
            return fo.World.poisson(self.problem.sources, self.seed)
        return AgeCosts(self.cost.curve(self.problem.sources), K, noise=0.1, seed=self.seed)

    def run(
        self, learner: MirrorSync | AsyncMirrorSync | AsyncProjectedGradientSync, rounds: int
    ) -> RunHistory:
        """Run a learner for some rounds."""
        return learner.run(self.world(), self.problem, rounds * ROUND, truth=self.problem)

    def curve(self, history: RunHistory, rounds: int) -> Array:
        """Return the cost of the rates in force after 0, 1, ... rounds."""
        per_round = len(history) // rounds
        return np.append(history.value[::per_round], value_of(self.problem, history.final))


@dataclass(frozen=True, eq=False)
class Curves:
    """Costs after each round, shape (3, runs, rounds+1), and the costs of the best rates, shape (runs,)."""

    learnt: Array
    explored: Array  # the best beside exploration
    best: Array
    spent: Array  # share of the bandwidth, shape (3, runs)

    def closed(self, learner: int) -> Array:
        """Return the share of the gap to the best beside exploration that is closed at the end."""
        start, end = self.learnt[learner, :, 0], self.learnt[learner, :, -1]
        return (start - end) / (start - self.explored)

    def lead(self, ahead: int, behind: int, after: int) -> Array:
        """Return by how much one learner's cost is below another's after a round."""
        return self.learnt[behind, :, after] - self.learnt[ahead, :, after]


@cache
def curves(kind: str, runs: int, rounds: int, seed: int) -> Curves:
    """Run the three learners on instances of a kind; kept, for those who draw what was stated."""
    learnt, spent = np.empty((3, runs, rounds + 1)), np.empty((3, runs))
    explored, best = np.empty(runs), np.empty(runs)
    for run in range(runs):
        instance = Instance.drawn(kind, seed, run)
        explored[run] = fo.solve(with_exploration(instance.problem, EXPLORATION)).value
        best[run] = fo.solve(instance.problem).value
        for k, settings in enumerate(LEARNERS[kind]):
            history = instance.run(settings, rounds)
            learnt[k, run] = instance.curve(history, rounds)
            spent[k, run] = history.spent.sum() / history.allowed.sum()
    return Curves(learnt, explored, best, spent)


def alike(figure: str, kind: str, found: Curves, most: float) -> Statement:
    """State that two mean curves are near one another: where half of the runs say they differ most."""
    apart = found.learnt[1] - found.learnt[0]
    worst = int(np.argmax(np.abs(apart[::2].mean(axis=0))))
    text = (
        f"{kind}: MirrorSync and Async differ in mean by this at every round (the other half of the runs, at "
        "the round where one half differs most)"
    )
    return within(figure, text, apart[1::2, worst], -most, most, said=f"within {most:g}")


def power(found: Curves, rounds: int) -> Iterator[Statement]:
    """Decide Figures 1 and 2."""
    if rounds == ROUNDS:
        yield alike("Fig 1", "power", found, 0.0035)
        for k, name in enumerate(("MirrorSync", "Async")):
            text = f"power: {name} closes this share of the gap to the best beside exploration in 240 rounds"
            yield equals("Fig 1", text, 0.94, found.closed(k), 0.02)
    yield equals(
        "Fig 2", "power: Async is below PSGD by this after round 31", 0.017, found.lead(1, 2, 31), 0.002
    )
    for other in (15, 60):
        text = f"power: its lead is larger after round 31 than after round {other}"
        yield below("Fig 2", text, found.lead(1, 2, other), found.lead(1, 2, 31))
    if rounds == ROUNDS:
        for after in (100, 130):
            yield below(
                "Fig 2", f"power: Async is below PSGD after round {after}", *_pair(found, 1, 2, after)
            )
        yield below("Fig 2", "power: PSGD is below Async after round 180", *_pair(found, 2, 1, 180))
        text = "power: PSGD is below Async by this after round 240 (similar in the end)"
        yield equals("Fig 2", text, 0.002, found.lead(2, 1, ROUNDS), 0.001)


def binary(found: Curves, rounds: int) -> Iterator[Statement]:
    """Decide Figures 3 and 4."""
    if rounds == ROUNDS:
        yield alike("Fig 3", "binary", found, 0.001)
        for k, name in enumerate(("MirrorSync", "Async")):
            text = f"binary: {name} closes this share of the gap to the best beside exploration in 240 rounds"
            yield equals("Fig 3", text, 0.61, found.closed(k), 0.02)
    text = "binary: Async is below PSGD by this after round 50"
    yield equals("Fig 4", text, 0.0034, found.lead(1, 2, 50), 0.0009)
    if rounds == ROUNDS:
        text = "binary: Async and PSGD differ by this after round 240"
        yield within("Fig 4", text, found.lead(1, 2, ROUNDS), -0.001, 0.001, said="a tie, within 0.001")


def _pair(found: Curves, ahead: int, behind: int, after: int) -> tuple[Array, Array]:
    return found.learnt[ahead, :, after], found.learnt[behind, :, after]


def lemmas(kind: str, found: Curves, runs: int, seed: int) -> Iterator[Statement]:
    """Decide Lemmas 2 and 3."""
    text = f"{kind}: error of the gradient estimates of 2000 intervals per source at ε = ½, Σ r(ĝ−g)/Σ r|g|"
    errors = [slope_error(Instance.drawn(kind, seed, run)) for run in range(runs)]
    yield equals("Lemma 2", text, 0.0, errors, 0.01)
    gap = found.explored - found.best
    size, tolerance = {"power": (0.022, 0.002), "binary": (0.007, 0.0005)}[kind]
    yield equals("Lemma 3", f"{kind}: exploration gap", size, gap, tolerance)
    bound = 2 * EXPLORATION * LARGEST[kind]
    text = f"{kind}: exploration gap below a tenth of its bound 2εU"
    yield always("Lemma 3", text, gap < 0.1 * bound, said=f"below {0.1 * bound:g}")


def slope_error(instance: Instance) -> float:
    """Return by how much gradient estimates at random rates are off in sum, relative to the gradient."""
    intervals, problem = 2000, instance.problem
    terms = Synchronization.of(problem, "benchmark", 0.5, seed=instance.seed)  # more probes, less noise
    rng = np.random.default_rng(instance.seed)
    rates = np.exp(rng.uniform(np.log(LEAST), np.log(terms.upper)))
    source, number = np.repeat(np.arange(K), intervals), np.tile(np.arange(intervals), K)
    gap = 1.0 / rates[source]
    at = (number + terms.probe_point(source, number)) * gap
    probe = np.where(terms.is_probed(source, number), at, np.nan)
    world = instance.world()
    crawler: Crawler = SimulatedCrawler(world) if isinstance(world, fo.World) else world
    polled = terms.play(crawler, source, probe, (number + 1) * gap)
    estimate = terms.samples(polled, gap).reshape(K, intervals).mean(axis=1)
    h = 1e-6 * rates  # the true slope by differences of J, K times the problem's per-source costs
    numerics = problem.numerics
    slope = K * (numerics.cost(rates + h) - numerics.cost(rates - h)) / (2.0 * h)
    return float(np.sum(rates * (estimate - slope)) / np.sum(rates * np.abs(slope)))


def steps(runs: int, seed: int) -> Iterator[Statement]:
    """Decide that rates start and move as the algorithm says."""
    terms = Synchronization.of(Instance.drawn("power", seed, 0).problem, "benchmark", EXPLORATION, seed=0)
    first = terms.first_rates()
    yield always("Alg 1", "the start is uniform, 0.380952", [np.max(np.abs(first - 40 / 105)) < 1e-12])
    good = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        rates = np.clip(first * np.exp(rng.normal(size=K)), LEAST, 3 / 1.05)
        gradient = -rng.exponential(size=K) / rates
        step = MirrorDescent.step(rates, gradient, rates.sum(), LEAST, 3 / 1.05, 0.01 * (1 + run % 5))
        good.append(np.max(np.abs(step - by_bisection(rates, 0.01 * (1 + run % 5) * gradient))) < 1e-9)
    text = "a mirror step equals the solution of its one-constraint problem, by bisection, to 1e-9"
    yield always("Alg 1", text, good)


def by_bisection(rates: Array, push: Array) -> Array:
    """Return the r with 1/r = 1/q + ηg + λ, clipped, whose sum is that of q, in extended precision."""
    q, p = rates.astype(np.longdouble), push.astype(np.longdouble)
    low, high = np.longdouble(-1e6), np.longdouble(1e6)
    most = np.longdouble(3.0) / np.longdouble(1.05)
    for _ in range(130):
        middle = (low + high) / 2
        inverse = 1 / q + p + middle
        answer = np.clip(np.where(inverse > 0, 1 / np.where(inverse > 0, inverse, 1), most), LEAST, most)
        low, high = (middle, high) if answer.sum() > q.sum() else (low, middle)
    return np.asarray(answer, dtype=np.float64)


class Withering:
    """A mirror step under the local constraint as printed: Σ r/(1+ε) of what was Σ r."""

    def step(
        self,
        rates: npt.ArrayLike,
        gradient: npt.ArrayLike,
        bandwidth: float,  # noqa: ARG002
        min_rate: npt.ArrayLike,
        max_rate: npt.ArrayLike,
        learning_rate: float,
    ) -> Array:
        """Return where the step leads."""
        budget = max(float(np.sum(rates)) / (1.0 + EXPLORATION), float(np.sum(min_rate)))
        return MirrorDescent.step(rates, gradient, budget, min_rate, max_rate, learning_rate)


def printed(runs: int, seed: int) -> Iterator[Statement]:
    """Decide what line 35 of Algorithm 2 does as printed."""
    costs: list[float] = []
    for run in range(runs):
        instance = Instance.drawn("power", seed, run)
        learner = LEARNERS["power"][1]
        history = run_cycles(
            learner,
            Withering(),
            instance.world(),
            instance.problem,
            BRIEF * ROUND,
            instance.problem,
            None,
            progress=False,
        )
        costs.append(value_of(instance.problem, history.final))
    text = "power: cost after 60 rounds with the local constraint of line 35 as printed"
    yield equals("Alg 2", text, 7.0, costs, 0.5, said="7, rates wither")


def bandwidth(found: Curves) -> Iterator[Statement]:
    """Decide what the learners spend."""
    yield within(
        "Alg 1", "share of the bandwidth that MirrorSync uses, free resets apart", found.spent[0], 0.95, 1.0
    )
    yield equals(
        "Alg 2", "share of the bandwidth that Async uses, resets and all", 1.0, found.spent[1], 0.002
    )


def regret(runs: int, seed: int) -> Iterator[Statement]:
    """Decide Corollary 1, at the learning rate and exploration that it asks for."""
    spread = np.log(BANDWIDTH / (K * LEAST))
    exploration = float((spread / ROUNDS) ** (1 / 3))
    eta = K / LARGEST["binary"] * float(np.sqrt(spread * exploration / ROUNDS))
    lost, bound = [], np.inf
    for run in range(runs):
        instance = Instance.drawn("binary", seed, run)
        history = instance.run(MirrorSync(eta, exploration), ROUNDS)
        lost.append(float(np.sum(history.shortfall)))
        bound = mirror_sync_regret_bound(instance.problem, ROUNDS, LARGEST["binary"])
    text = "binary: regret over 240 rounds, at the corollary's η and ε (with the constant 4)"
    yield within("Cor 1", text, lost, high=bound, said=f"≤ {bound:.0f}")


def statements(runs: int | None, quick: bool, seed: int) -> Iterator[Statement]:
    """Decide every statement; the quick form runs a quarter of the rounds."""
    rounds = BRIEF if quick else ROUNDS
    wanted = {kind: QUICK if quick else runs or many for kind, many in RUNS.items()}
    few = min(FEW, *wanted.values())
    yield from steps(few, seed)
    found = {kind: curves(kind, many, rounds, seed) for kind, many in wanted.items()}
    yield from power(found["power"], rounds)
    yield from binary(found["binary"], rounds)
    if not quick:
        yield from bandwidth(found["power"])
        yield from printed(few, seed)
        yield from regret(few, seed)
    for kind, each in found.items():
        yield from lemmas(kind, each, few, seed)
