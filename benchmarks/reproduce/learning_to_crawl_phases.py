"""Figure 2 of Learning to Crawl: phased ε-greedy against the best explore-then-commit."""

from __future__ import annotations

import numpy as np

import freshopt as fo
from benchmarks.reproduce.claims import Measured, Plan
from benchmarks.reproduce.learning_to_crawl_instances import (
    BINARY,
    PAPER_BOUNDS,
    PHASED,
    PHASES,
    SOURCES,
    Array,
    N,
    measure,
    paper_instance,
    phases,
)
from freshopt.estimators import MomentMatching
from freshopt.online import PhasedEpsilonGreedy, best_exploration

# Phases after which the two are compared: few, and as many as are run.
FEW, SWEEPS = 4, (2, 10, 50)


@measure.of(
    *(f"fig-2-{when}-{sweeps}" for sweeps in SWEEPS[:2] for when in ("behind", "ahead")),
)
def small(plan: Plan) -> Measured:
    """Measure the lead of ε-greedy on small instances, in phases of 2 and of 10 sweeps."""
    for sweeps in SWEEPS[:2]:
        yield from leads(plan, sweeps, PHASED[0], f"fig-2-{{}}-{sweeps}")


@measure.of("fig-2-behind-50", "fig-2-ahead-50")
def long(plan: Plan) -> Measured:
    """Measure the lead of ε-greedy on small instances, in phases of 50 sweeps."""
    yield from leads(plan, 50, PHASED[0], "fig-2-{}-50")


@measure.of("fig-2-ahead-wide", "fig-2-ahead-narrow")
def more_bandwidth(plan: Plan) -> Measured:
    """Measure the lead of ε-greedy at a bandwidth of a refresh for each source and time unit."""
    for name, setting in zip(("fig-2-ahead-wide", "fig-2-ahead-narrow"), PHASED[1:], strict=True):
        regret, best = phases(plan.seed, plan.runs(name), *setting, 10.0, (PHASES,))
        yield name, (best[:, -1] - regret[:, -1]) / N


def leads(plan: Plan, sweeps: int, setting: tuple[float, float], name: str) -> Measured:
    """Yield what ε-greedy has lost less than the best ETC, after few phases and after all."""
    ids = name.format("behind"), name.format("ahead")
    regret, best = phases(plan.seed, plan.runs(*ids), *setting, float(sweeps), (FEW, PHASES))
    for k, after in enumerate((FEW, PHASES)):
        yield ids[k], (best[:, k] - regret[:, after - 1]) / N


@measure.of("fig-2-paper-behind-2", "fig-2-paper-ahead-2")
def paper_short(plan: Plan) -> Measured:
    """Measure the lead on the paper's instances at R = 1000, in phases of 2 sweeps."""
    yield from paper(plan, 2)


@measure.of("fig-2-paper-behind-10", "fig-2-paper-ahead-10")
def paper_long(plan: Plan) -> Measured:
    """Measure the lead on the paper's instances at R = 1000, in phases of 10 sweeps."""
    yield from paper(plan, 10)


def paper(plan: Plan, sweeps: int) -> Measured:
    """Yield the leads after few phases and after all."""
    ids = tuple(f"fig-2-paper-{when}-{sweeps}" for when in ("behind", "ahead"))
    rows = np.array([paper_run(plan.seed, run, sweeps) for run in range(plan.runs(*ids))])
    yield from zip(ids, rows.T, strict=True)


def paper_run(seed: int, run: int, sweeps: int) -> Array:
    """Return what ε-greedy has lost less than the best ETC, after few phases and after all."""
    bandwidth = 1000.0
    phase = sweeps * SOURCES / bandwidth
    problem = paper_instance(np.random.default_rng([seed, 12, run]), bandwidth)
    guess = fo.Problem(BINARY, fo.Sources(0.5, problem.sources.importance), bandwidth)
    learner = PhasedEpsilonGreedy(0.1, phase, MomentMatching(PAPER_BOUNDS), seed=run)
    world = fo.World.poisson(problem.sources, seed=1000 * seed + run)
    regret = learner.run(world, guess, PHASES * phase).regret
    found = [
        best_exploration(problem, k * phase, bounds=PAPER_BOUNDS, draws=3, seed=run).regret - regret[k - 1]
        for k in (FEW, PHASES)
    ]
    return np.array(found) / SOURCES
