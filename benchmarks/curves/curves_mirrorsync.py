"""Figures 1-4 of MirrorSync: cost by round, and by how much learners that meet the same changes differ."""

from collections.abc import Iterator

import numpy as np

from benchmarks.curves.mean_curve import Axis, Curve, averaged, measured_curves
from benchmarks.reproduce.claims import Table
from benchmarks.reproduce.mirrorsync_instances import ROUNDS
from benchmarks.reproduce.mirrorsync_instances import curves as learnt

NAMES = ("MirrorSync", "Async", "PSGD")
EVERY = 4  # rounds between the points that are kept
FIGURES = {"power": ("Fig 1", "Fig 2"), "binary": ("Fig 3", "Fig 4")}
BRIEF, QUICK = 60, 6  # rounds and instances of the quick form


def curves(runs: int = 0, few: bool = False, seed: int = 0) -> Iterator[Curve]:
    """Yield costs of each learner, the gap that each closes, their differences, and the best."""
    rounds = BRIEF if few else ROUNDS
    kept = np.arange(0, rounds + 1, EVERY)
    for kind, (first, second) in FIGURES.items():
        stated = Table.read("mirrorsync").claims[f"converged-{kind}"].runs
        found = learnt(kind, QUICK if few else runs or stated, rounds, seed)
        cost: Axis = (first, kind, "round", "cost J")
        left: Axis = (first, f"{kind}, gap", "round", "cost above the best beside exploration")
        share: Axis = (first, f"{kind}, closed", "round", "share of the gap closed")
        for k, name in enumerate(NAMES):
            yield averaged(cost, name, kept, found.learnt[k][:, kept])
            yield averaged(left, name, kept, found.learnt[k][:, kept] - found.explored[:, None])
            yield averaged(share, name, kept, found.closed(k)[:, kept])
        for name, level in (("best beside exploration", found.explored), ("best", found.best)):
            yield averaged(cost, name, [0, rounds], np.column_stack([level, level]))
        for figure, (one, other) in ((first, (1, 0)), (second, (1, 2))):
            # In shares of each run's gap, of which the one has closed less than the other.
            apart = found.closed(other) - found.closed(one)
            axis: Axis = (figure, f"{kind}, difference", "round", "difference in shares of the gap")
            yield averaged(axis, f"{NAMES[one]} − {NAMES[other]}", kept, apart[:, kept])


BENCH = measured_curves("mirrorsync", curves)
