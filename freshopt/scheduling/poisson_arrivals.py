"""Refreshes at random times: the discipline behind every POISSON cost.

Given how many refreshes a Poisson process has in [0, T), their times are independent and uniform. So the
counts are sampled first, then all times at once. Cost: one random number per refresh and one sort.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.errors import expect_settings
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.refresh_order import order_refreshes


@dataclass(frozen=True, slots=True)
class PoissonArrivals:
    """Independent Poisson processes, one per source, of the source's rate.

    Parameters
    ----------
    seed : int
        Seed of the generator; the same seed gives the same schedule.

    Notes
    -----
    Refresh intervals are exponential with mean 1/ρ. The bandwidth is met on average only: over a horizon T
    the number of refreshes has standard deviation √(T·Σρ).

    Examples
    --------
    >>> source, time = PoissonArrivals(seed=0).times(np.array([100.0, 0.0, 300.0]), 1.0)
    >>> np.bincount(source, minlength=3)
    array([104,   0, 256])
    """

    seed: int = 0

    def __post_init__(self) -> None:
        expect_settings(self)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        return order_refreshes(*self.arrivals(rates, horizon))

    def arrivals(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return how many refreshes each source has, and their times.

        The times come source by source, in no order within a source.
        """
        random = np.random.default_rng(self.seed)
        count = random.poisson(rates * horizon)
        time = random.random(int(np.sum(count)))
        time *= horizon
        return count, time

    def redrawn(self, run: int) -> PoissonArrivals:
        """Return the method with a later seed, its own for run 0."""
        return replace(self, seed=(self.seed + run) % 2**64)
