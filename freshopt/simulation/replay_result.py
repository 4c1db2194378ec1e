"""`Replay`: measured cost of a schedule, with standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freshopt.errors import ObjectiveError
from freshopt.formatting import count
from freshopt.modelling.objective import Objective
from freshopt.numerics.arrays import Array
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.age import Age
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness

if TYPE_CHECKING:
    import polars

NAMED: dict[type[Objective], str] = {
    BinaryFreshness: "binary",
    HarmonicStaleness: "harmonic",
    AccumulatedDelay: "delay",
    Age: "age",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One measured objective.

    Attributes
    ----------
    value : float
        In the declared sense, Σ w·(time average), as `Solution.value` is.
    error : float
        Its standard error; NaN if it cannot be estimated.
    mean : float
        The value over the sum of the importances.
    """

    value: float
    error: float
    mean: float

    def z(self, predicted: float) -> float:
        """Return the z-score against a predicted value.

        By how many standard errors the value exceeds it.

        Examples
        --------
        >>> Measured(value=12.0, error=0.5, mean=1.2).z(11.0)
        2.0
        """
        return float(np.divide(self.value - predicted, self.error))


@frozen_arrays
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Replay:
    """Measured costs of a schedule in a world.

    Made by `fo.replay`.

    Attributes
    ----------
    costs : dict of str to Measured
        "binary" (freshness), "harmonic", "delay" and "age", "requests" if requests were replayed, and the
        requested objective by its repr.
    per_source : dict of str to ndarray, shape (n,)
        Time average of each cost ("binary": of being stale), for unit importance; NaN of a source that was
        never there.
    begin, end : float
        The window in the world's time.
    time_unit : str
    refreshes, on_signal : float
        How many refreshes there were in the window, and how many of them followed a signal; per run.
    runs : int
        How many worlds were replayed.
    """

    costs: dict[str, Measured]
    per_source: dict[str, Array]
    begin: float
    end: float
    time_unit: str
    refreshes: float
    on_signal: float
    runs: int

    def __repr__(self) -> str:
        """Return the size and the freshness, never the arrays."""
        fresh, n = self.costs["binary"], len(self.per_source["binary"])
        runs = "" if self.runs == 1 else f", {self.runs} runs"
        spread = fresh.error * abs(fresh.mean / fresh.value) if fresh.value else fresh.error
        return (
            f"Replay({self.refreshes:.0f} refreshes of {count(n, 'source', 'd')} in {self.begin:g}.."
            f"{self.end:g} {self.time_unit}s{runs}: fresh {fresh.mean:.4f} ± {spread:.1g})"
        )

    def of(self, objective: Objective) -> Measured:
        """Return the measured value of an objective.

        Whatever its discipline.

        Raises
        ------
        ObjectiveError
            If the objective is not one of the four named, nor was asked for.
        """
        name = NAMED.get(type(objective), repr(objective))
        if name not in self.costs:
            raise ObjectiveError(
                f"{objective!r} was not measured. Replay with objective=, to measure it beside the others."
            )
        return self.costs[name]

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table with one row per cost.

        Its columns are ``cost``, ``value``, ``error`` and ``mean``.
        """
        import polars

        rows = [(name, found.value, found.error, found.mean) for name, found in self.costs.items()]
        return polars.DataFrame(rows, schema=["cost", "value", "error", "mean"], orient="row")
