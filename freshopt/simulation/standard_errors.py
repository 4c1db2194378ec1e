"""Standard errors of replayed costs: over runs, or over sources.

Runs are independent samples of everything that is random: changes, signals, refresh times. Where sources do
not influence each other, a few runs give each source's variance, and the variances of a weighted sum add up.
Where they share slots the runs' totals are compared instead.

A variance estimate has ν degrees of freedom, and z-scores then follow Student's t, of standard deviation
√(ν/(ν−2)). Of a sum Σ w·c over sources with sample variances v of R runs it is ν = (R−1)·(Σw²v)²/Σ(w²v)²
(Satterthwaite [1]_): three for one source in four runs (standard deviation 1.7), three hundred for a hundred
equal ones. Hence there are as many runs as make it `FREEDOM`.

Of a recorded history there is one run; its error is that of a mean over sources that are a sample of more
such ones.

References
----------
.. [1] Satterthwaite, "An approximate distribution of estimates of variance components", Biometrics 2, 1946.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.numerics.arrays import Array, chunks
from freshopt.simulation.replay_result import Measured

# Fewest runs unless their number is given.
RUNS = 4
# Degrees of freedom of every standard error: z-scores then have a standard deviation of at most 1.054.
FREEDOM = 20


class CostSums:
    """Mean and squared deviations of a cost over runs, per source.

    Parameters
    ----------
    weight : ndarray, shape (n,)
    shared : bool
        Whether sources influence each other within a run.
    """

    def __init__(self, weight: Array, *, shared: bool = False) -> None:
        n = len(weight)
        self.weight, self.shared, self.runs = weight, shared, 0
        self.mean, self.squares, self.squares_of_total = np.zeros(n), np.zeros(n), 0.0

    def add(self, cost: Array) -> None:
        """Add the integrals of one more run."""
        self.runs += 1
        before = float(self.weight @ (cost - self.mean)) if self.shared else 0.0
        for part in chunks(len(cost)):
            step = cost[part] - self.mean[part]
            self.mean[part] += step / self.runs
            self.squares[part] += step * (cost[part] - self.mean[part])
        if self.shared:
            self.squares_of_total += before * float(self.weight @ (cost - self.mean))

    @property
    def variance(self) -> float:
        """Estimated variance of the weighted mean over runs.

        NaN for a single run.
        """
        if self.runs < 2:
            return float("nan")
        squares = self.squares_of_total if self.shared else float(np.sum(self.weight**2 * self.squares))
        return squares / (self.runs - 1) / self.runs

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance; infinite if nothing varies."""
        own = self.weight**2 * self.squares
        whole = float(np.sum(own))
        if whole <= 0.0:
            return np.inf if self.runs > 1 else 0.0
        shares = 1.0 if self.shared else float(np.sum((own / whole) ** 2))
        return (self.runs - 1) / shares

    def ratio(self, span: Array, *, drawn: bool) -> tuple[float, float]:
        """Return the weighted cost over the weighted span, with its standard error.

        Parameters
        ----------
        span : ndarray, shape (n,)
        drawn : bool
            Whether runs are samples of changes: then the error is over runs. If not, or if there was a single
            run, it is over sources.
        """
        whole = float(self.weight @ span)
        if whole <= 0.0:
            raise SourceDataError("no source of importance > 0 is there in the window. Choose another.")
        mean = float(self.weight @ self.mean) / whole
        if drawn and self.runs > 1:
            return mean, float(np.sqrt(self.variance)) / whole
        return mean, error_over_sources(self.weight, self.mean, span)

    def measured(self, span: Array, *, drawn: bool) -> Measured:
        """Return the cost of all sources that are there; see `ratio`."""
        mean, error = self.ratio(span, drawn=drawn)
        total = float(np.sum(self.weight[span > 0.0]))
        return Measured(total * mean, total * error, mean)


def error_over_sources(weight: Array, cost: Array, span: Array) -> float:
    """Return the standard error of Σw·cost/Σw·span for a sample of independent sources.

    NaN if there is only one.

    Examples
    --------
    >>> error_over_sources(np.ones(2), np.array([1.0, 3.0]), np.ones(2))
    1.0
    """
    there = span > 0.0
    n, whole = int(np.count_nonzero(there)), float(weight @ span)
    if n < 2:
        return float("nan")
    off = (weight * (cost - float(weight @ cost) / whole * span))[there]
    return float(np.sqrt(n / (n - 1) * np.sum(off**2))) / whole


def enough_runs(sums: Iterable[CostSums], run: int, wanted: int | None) -> bool:
    """Return whether so many runs suffice.

    They do if as many were wanted; or else if every variance has `FREEDOM` degrees of freedom.
    """
    if wanted is not None:
        return run >= wanted
    return run > FREEDOM or (run >= RUNS and all(found.freedom >= FREEDOM for found in sums))
