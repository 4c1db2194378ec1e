"""Figure 3 of LambdaCrawl: what learners cost, relative to the optimum of their instance, by epoch."""

from collections.abc import Iterator

import numpy as np

from benchmarks.curves.mean_curve import Axis, Curve, averaged, measured_curves
from benchmarks.reproduce.claims import Table
from benchmarks.reproduce.reproduce_lambdacrawl import learners


def curves(runs: int = 0, few: bool = False, seed: int = 0) -> Iterator[Curve]:
    """Yield the cost of each learner after 0, 1, ... 20 epochs."""
    own = Table.read("lambdacrawl").claims["llc-last"].runs
    harmonic, _, _ = learners(seed, 2 if few else runs or own)
    axis: Axis = ("Fig 3", "harmonic", "epoch, days", "cost over that of LC")
    for name, ratio in harmonic.items():
        yield averaged(axis, name, np.arange(ratio.shape[1] - 1), ratio[:, :-1])


BENCH = measured_curves("lambdacrawl", curves)
