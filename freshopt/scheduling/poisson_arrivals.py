"""Refreshes at random times: the discipline behind every POISSON cost.

Given how many refreshes a Poisson process has in [0, T), their times are independent and uniform. So the
counts are drawn first, then all times at once. Cost: one draw per refresh and one sort.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.arrays import Array, IntArray
from freshopt.errors import expect_settings
from freshopt.scheduling.dealing import deal


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """Independent Poisson processes, one per source, of the source's rate.

    Parameters
    ----------
    seed : int
        Seed of the generator; the same seed gives the same schedule.

    Notes
    -----
    Gaps are exponential with mean 1/ρ. The bandwidth is met on average only: over a horizon T the number of
    refreshes has standard deviation √(T·Σρ).

    Examples
    --------
    >>> source, time = PoissonArrivals(seed=0).times(np.array([100.0, 0.0, 300.0]), 1.0)
    >>> np.bincount(source, minlength=3)
    array([104,   0, 256])
    """

    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a seed that no generator takes."""
        expect_settings(self)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        random = np.random.default_rng(self.seed)
        count = random.poisson(rates * horizon)
        return deal(count, lambda source, _: random.random(len(source)) * horizon)
