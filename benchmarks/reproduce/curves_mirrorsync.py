"""Figures 1-4 of MirrorSync: cost by round, and by how much learners that meet the same changes differ."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from mean_curve import Axis, Curve, averaged
from reproduce_mirrorsync import BRIEF, QUICK, ROUNDS, RUNS
from reproduce_mirrorsync import curves as learnt

NAMES = ("MirrorSync", "Async", "PSGD")
EVERY = 4  # rounds between the points that are kept
FIGURES = {"power": ("Fig 1", "Fig 2"), "binary": ("Fig 3", "Fig 4")}


def curves(runs: int | None, quick: bool, seed: int) -> Iterator[Curve]:
    """Yield costs of each learner, their differences, and the best that exploration leaves."""
    rounds = BRIEF if quick else ROUNDS
    kept = np.arange(0, rounds + 1, EVERY)
    for kind, (first, second) in FIGURES.items():
        found = learnt(kind, QUICK if quick else runs or RUNS[kind], rounds, seed)
        cost: Axis = (first, kind, "round", "cost J")
        left: Axis = (first, f"{kind}, gap", "round", "cost above the best beside exploration")
        for k, name in enumerate(NAMES):
            yield averaged(cost, name, kept, found.learnt[k][:, kept])
            yield averaged(left, name, kept, found.learnt[k][:, kept] - found.explored[:, None])
        for name, level in (("best beside exploration", found.explored), ("best", found.best)):
            yield averaged(cost, name, [0, rounds], np.column_stack([level, level]))
        for figure, (one, other) in ((first, (1, 0)), (second, (1, 2))):
            apart = found.learnt[one] - found.learnt[other]
            axis: Axis = (figure, f"{kind}, difference", "round", "difference of costs")
            yield averaged(axis, f"{NAMES[one]} − {NAMES[other]}", kept, apart[:, kept])
