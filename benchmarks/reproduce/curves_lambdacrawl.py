"""Figure 3 of LambdaCrawl: what learners cost, relative to the optimum of their instance, by epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from mean_curve import Axis, Curve, averaged
from reproduce_lambdacrawl import learners


def curves(runs: int | None, quick: bool, seed: int) -> Iterator[Curve]:
    """Yield the cost of each learner after 0, 1, ... 20 epochs."""
    found, _ = learners(seed, max((2 if quick else runs or 400) // 16, 2))
    axis: Axis = ("Fig 3", "harmonic", "epoch, days", "cost over that of LC")
    for name, ratio in found.items():
        yield averaged(axis, name, np.arange(ratio.shape[1]), ratio)
