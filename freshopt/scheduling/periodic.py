"""Refreshes at equal gaps: the discipline behind every PERIODIC cost.

A copy's cost rate c does not fall with its age, so the cost of a gap, ∫₀^I c, is convex in the gap's length
I: of all ways to place a given number of refreshes, equal gaps cost least. What is left to choose is the
phase of each source. Few refreshes get the golden-ratio sequence in order of the rates (`spread_phases`),
many the phases for which the load is flat in each short slot of the horizon
(`freshopt.scheduling.flat_phases`).
Cost: one sort of the sources, one of the refreshes, eight more moments each where they are many.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshopt.arrays import Array, IntArray
from freshopt.scheduling.dealing import deal, points_before
from freshopt.scheduling.flat_phases import flat_phases


@dataclass(frozen=True, slots=True)
class Periodic:
    """Equal gaps 1/ρ, the first refresh after a fraction of a gap that spreads the load.

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
        return deal(count, lambda source, ordinal: (phase[source] + ordinal) / rates[source])
