"""`Replay`: measured cost of a schedule, with standard errors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from freshopt.errors import ObjectiveError
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.modelling.objective import Objective
from freshopt.numerics.arrays import Array
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.problems.accumulated_delay import AccumulatedDelay
from freshopt.problems.age import Age
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.problems.harmonic_staleness import HarmonicStaleness

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


@frozen_value(repr=False)
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
    requests : float
        How many requests were counted, per run; 0 of a schedule. Of copies that are refreshed on request,
        `costs` and `per_source` are means over requests and not over time.
    time_average : dict of str to Measured
        The same costs averaged over time, of copies that are refreshed on request; else empty, as `costs` are
        averages over time.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.5, 2.0], names=["a", "b"])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), sources, bandwidth=3.0)
    >>> times = fo.schedule(fo.solve(problem), horizon=10.0)
    >>> fo.replay(times, fo.World.poisson(sources, seed=1)).to_frame().columns
    ['cost', 'value', 'error', 'mean']
    """

    costs: dict[str, Measured]
    per_source: dict[str, Array]
    begin: float
    end: float
    time_unit: str
    refreshes: float
    on_signal: float
    runs: int
    requests: float = 0.0
    time_average: dict[str, Measured] = field(default_factory=dict)

    def __repr__(self) -> str:
        fresh, n = self.costs["binary"], len(self.per_source["binary"])
        runs = "" if self.runs == 1 else f", {self.runs} runs"
        spread = fresh.error * abs(fresh.mean / fresh.value) if fresh.value else fresh.error
        asked, over = "", ""
        if self.time_average:
            asked = f"{self.requests:.0f} requests, "
            over = f" of requests, {self.time_average['binary'].mean:.4f} of time"
        return (
            f"Replay({asked}{self.refreshes:.0f} refreshes of {count(n, 'source', 'd')} in {self.begin:g}.."
            f"{self.end:g} {self.time_unit}s{runs}: fresh {fresh.mean:.4f} ± {spread:.1g}{over})"
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

        Its columns are ``cost``, ``value``, ``error`` and ``mean``; of copies that are refreshed on request
        also ``over``, with "requests" or "time".
        """
        names = ["cost", "value", "error", "mean"]
        kinds = [("requests", self.costs), ("time", self.time_average)]
        rows = [
            (name, found.value, found.error, found.mean, over)
            for over, costs in kinds
            for name, found in costs.items()
        ]
        frame = polars.DataFrame(rows, schema=[*names, "over"], orient="row")
        return frame if self.time_average else frame.select(names)
