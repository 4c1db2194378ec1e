"""Figures 5-10 and 12 of H-TRAA: reward by polls of the tree and of the policies, steady and moving."""

from collections.abc import Iterator

import numpy as np

from benchmarks.curves.mean_curve import Array, Axis, Curve, averaged, exactly, measured_curves, spaced
from benchmarks.reproduce import automata_runs as trees
from freshopt.automata import Update

POLLS = spaced(100, 1_000_000, 41)
ESTIMATED = spaced(1000, 1_000_000, 7)
FIGURES = dict(zip(trees.CASES, ("Fig 6", "Fig 7", "Fig 8"), strict=True))
WINDOW = 20_000  # polls over which a reward is realised
SIZES = (trees.N, 2048, 8192, trees.MANY)


def rewards(hazard: Array, seeds: list[int], polls: Array, **settings: object) -> Array:
    """Return the reward of the tree after numbers of polls, shape (runs, polls)."""
    return np.array([trees.learnt(hazard, seed, polls.tolist(), **settings) for seed in seeds])


def updates(seeds: list[int], polls: Array) -> Iterator[Curve]:
    """Yield Figure 5."""
    axis: Axis = ("Fig 5", "α = 0.9, β = 1.5", "polls", "reward per poll")
    for update in Update:
        yield averaged(
            axis, update.value, polls, rewards(trees.hazards(*trees.HARD), seeds, polls, update=update)
        )


def policies(seeds: list[int], polls: Array) -> Iterator[Curve]:
    """Yield Figures 6-8: the tree, in order and perturbed, and the four policies."""
    for case, figure in FIGURES.items():
        hazard = trees.hazards(*case)
        axis: Axis = (figure, "α = {:g}, β = {:g}".format(*case), "polls", "reward per poll")
        yield averaged(axis, "tree", polls, rewards(hazard, seeds, polls))
        for swaps in (10_000, 1_000_000) if len(polls) > 2 else ():
            rows = [
                trees.learnt(trees.perturbed(hazard, swaps, seed), seed, polls.tolist()) for seed in seeds
            ]
            yield averaged(axis, f"tree, {swaps:,} perturbations", polls, rows)
        phases = [count for count in ESTIMATED.tolist() if count <= polls[-1]]
        yield averaged(axis, "Estimator", phases, [trees.estimated(hazard, phases, seed) for seed in seeds])
        ends = polls[[0, -1]]
        for name, level in (
            ("Optimal", trees.best(hazard)),
            ("Proportional", trees.proportional(hazard)),
            ("Uniform", trees.uniform(hazard)),
        ):
            yield exactly(axis, name, ends, [level, level])


def dynamic(seeds: list[int]) -> Iterator[Curve]:
    """Yield Figures 9 and 10: what is realised while ranks swap."""
    for figure, every in (("Fig 9", trees.SELDOM), ("Fig 10", trees.OFTEN)):
        axis: Axis = (figure, f"ranks swap every {every:,} polls", "polls", "reward realised per poll")
        rows = [trees.moved(every, seed, WINDOW) for seed in seeds]
        ends = WINDOW * np.arange(1, len(rows[0]) + 1)
        yield averaged(axis, "tree", ends, rows)


def scaling(seeds: list[int]) -> Iterator[Curve]:
    """Yield Figure 12: the share of the optimum by polls, for trees of four sizes."""
    polls = spaced(100, 100_000, 31)
    axis: Axis = ("Fig 12", "α = 0.9, β = 1.5", "polls", "share of the optimum")
    for n in SIZES:
        hazard = trees.hazards(*trees.HARD, n)
        yield averaged(axis, f"n = {n:,}", polls, rewards(hazard, seeds, polls) / trees.best(hazard))


def curves(runs: int = 0, few: bool = False, seed: int = 0) -> Iterator[Curve]:
    """Yield every curve of the trees."""
    seeds = [100 * seed + k for k in range(2 if few else runs or trees.RUNS)]
    polls = np.array([100, 2000]) if few else POLLS
    yield from updates(seeds, polls)
    yield from policies(seeds, polls)
    if not few:
        yield from dynamic(seeds)
        yield from scaling(seeds)


BENCH = measured_curves("automata", curves)
