"""Equal intervals with independent random phases."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.errors import expect_settings
from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.refresh_order import order_refreshes, points, points_before


@dataclass(frozen=True, slots=True)
class IndependentPhases:
    """Equally spaced refreshes, each source's phase uniform and its own.

    Parameters
    ----------
    seed : int
        Seed of the phases.

    Notes
    -----
    Under these the product of the periodic cells holds in a pipeline, on average over the phases. `Periodic`
    spreads phases instead, so that the load is even.

    Examples
    --------
    >>> source, time = IndependentPhases(seed=0).times(np.array([1.0, 2.0]), 2.0)
    >>> source.tolist(), np.diff(time[source == 1]).round(9).tolist()
    ([1, 1, 0, 1, 1, 0], [0.5, 0.5, 0.5])
    """

    seed: int = 0

    def __post_init__(self) -> None:
        """Raise if the seed is invalid."""
        expect_settings(self)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        phase = np.random.default_rng(self.seed).random(len(rates))
        many = points_before(horizon, rates, phase)
        return order_refreshes(many, points(many, phase, rates))

    def redrawn(self, run: int) -> IndependentPhases:
        """Return the method with a later seed, its own for run 0."""
        return replace(self, seed=(self.seed + run) % 2**64)
