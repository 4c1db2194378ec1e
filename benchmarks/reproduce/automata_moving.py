"""Trees of automata whose pages swap ranks, and trees of all sizes: Figures 9, 10 and 12 of H-TRAA."""

from __future__ import annotations

import numpy as np

from benchmarks.reproduce.automata_runs import (
    HARD,
    LEARNT,
    MANY,
    OFTEN,
    SELDOM,
    Floats,
    N,
    best,
    estimated_while_moving,
    followed,
    hazards,
    polls_to,
    proportional,
    relearning,
    seeds,
)
from benchmarks.reproduce.claims import Measured, Measurements, Plan
from freshopt.automata import AutomataTree, SimulatedSources

measure = Measurements()
# Windows of realised rewards; so many make up the time between two swaps of Fig 9.
WINDOW = 20_000
BETWEEN = SELDOM // WINDOW
# Numbers of pages between those of Fig 8 and of Fig 12.
SIZES = (N, 2048, 8192, MANY)
# Lengths of the Estimator's phase.
PHASES = (1000, 10_000, 100_000, 500_000)
# How near to its optimal share an automaton has settled.
NEAR = 0.05


def settling(seed: int, step: int = 50) -> Floats:
    """Return after how many polls each automaton above page 1 has first come near its optimal share."""
    hazard = hazards(*HARD)
    tree, sources = AutomataTree(N, seed=seed), SimulatedSources(hazard)
    widths = 2 ** np.arange(tree.depth)
    optimal = np.array([hazard[:k].sum() / hazard[: 2 * k].sum() for k in widths])
    first = np.zeros(len(widths))
    while not first.all():
        tree.simulate(sources, step)
        shares = np.cumsum(tree.shares())
        near = np.abs(shares[widths - 1] / shares[2 * widths - 1] - optimal) < NEAR
        first = np.where((first == 0.0) & near, tree.polls, first)
    return first


@measure.of("levels-together", quick=3)
def levels(plan: Plan) -> Measured:
    """Yield whether the automata of all depths settle together."""
    found = [settling(seed) for seed in seeds(plan, "levels-together")]
    yield "levels-together", [float(each.max() / each.min()) for each in found]


@measure.of("recovers", "adaptation")
def recovery(plan: Plan) -> Measured:
    """Yield how long trees take to learn, and to learn anew when the first two ranks swap."""
    drawn = seeds(plan, "recovers", "adaptation")
    small, large = ([relearning(n, seed) for seed in drawn] for n in (N, MANY))
    yield "recovers", small
    yield "adaptation", (np.log2(large), np.log2(small))


FIGURES = (
    "swaps-ends",
    "swaps-at-random",
    "swaps-seldom-better",
    "often-steady",
    "often-short",
    "often-estimator",
)


@measure.of(*FIGURES)
def swaps(plan: Plan) -> Measured:
    """Yield Figures 9 and 10."""
    hazard, drawn = hazards(*HARD), seeds(plan, *FIGURES)
    seldom = [followed(SELDOM, seed, WINDOW) for seed in drawn]
    often = [followed(OFTEN, seed, WINDOW) for seed in drawn]
    ends = np.array([expected[BETWEEN - 1 :: BETWEEN] for _, expected in seldom])
    yield "swaps-ends", ends.mean(axis=1) - proportional(hazard)
    means = [np.array([found.mean() for found, _ in some]) for some in (seldom, often)]
    random = [followed(SELDOM, seed, WINDOW, regular=False)[0].mean() for seed in drawn]
    yield "swaps-at-random", np.array(random) - means[0]
    yield "swaps-seldom-better", means[0] - means[1]
    rewards = np.array([expected for _, expected in often])
    half = rewards.shape[1] // 2
    yield "often-steady", (rewards[:, half:].mean(axis=1) - rewards[:, 1:half].mean(axis=1)) / best(hazard)
    yield "often-short", rewards.mean(axis=1) - proportional(hazard)
    rivals = [max(estimated_while_moving(OFTEN, seed, phase) for phase in PHASES) for seed in drawn]
    yield "often-estimator", rewards.mean(axis=1) - rivals


@measure.of("sub-linear", "logarithmic")
def sizes(plan: Plan) -> Measured:
    """Yield Figure 12: how the time to learn grows with the number of pages."""
    rows = [
        [polls_to(LEARNT, hazards(*HARD, n), seed, 100) for n in SIZES]
        for seed in seeds(plan, "sub-linear", "logarithmic")
    ]
    slopes = np.polyfit(np.log(SIZES), np.log(rows).T, 1)[0]
    yield "sub-linear", slopes
    times = np.array(rows, dtype=np.float64)
    yield "logarithmic", times[:, -1] / times[:, 0] - np.log(MANY) / np.log(N)
