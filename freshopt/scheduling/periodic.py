"""`Periodic`: equally spaced refreshes.

The discipline behind every PERIODIC cost.

A copy's cost rate c does not fall with its age, so the cost of a refresh interval, ∫₀^I c, is convex in its
length I: by Jensen's inequality, equal intervals minimise the cost of a given number of refreshes. The free
variable is the phase of each source. Few refreshes get the golden-ratio sequence in order of the rates
(`spread_phases`), many the phases for which the load is flat in each short slot of the horizon
(`freshopt.scheduling.phases`).
Cost: one sort of the sources, one of the refreshes, eight more moments each where they are many.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshopt.numerics.arrays import Array, IntArray
from freshopt.scheduling.phases import flat_phases
from freshopt.scheduling.refresh_order import order_refreshes, points_before


@dataclass(frozen=True, slots=True)
class Periodic:
    """Equally spaced refreshes, with phases that spread the load.

    Intervals are 1/ρ; the first refresh is after a fraction of one.

    Notes
    -----
    Refresh j = 0, 1, ... of a source falls on (φ + j)/ρ with its phase φ in [0, 1), as long as that is below
    the horizon: ρ·horizon refreshes, rounded up or down. Sources of rate 0 are absent.

    Examples
    --------
    >>> import numpy as np
    >>> source, time = Periodic().times(np.array([1.0, 0.0, 2.0]), 2.0)
    >>> source
    array([0, 2, 2, 0, 2, 2])
    >>> np.diff(time[source == 2])
    array([0.5, 0.5, 0.5])
    """

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        phase = flat_phases(rates, horizon)
        count = points_before(horizon, rates, phase)
        return order_refreshes(count, lambda source, ordinal: (phase[source] + ordinal) / rates[source])
