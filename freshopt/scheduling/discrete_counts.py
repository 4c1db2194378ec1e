"""`DiscreteCounts`: optimal integer numbers of equally spaced refreshes.

They are best if a horizon has only so many refreshes.

Rates are optimal in the long run. Over a horizon in which many sources get one refresh or two, or none, the
counts themselves are what is to be optimised (`freshopt.scheduling.integer_counts`).
Cost: that of the counts and of one sort of the refreshes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from freshopt.errors import SourceDataError, expect, expect_settings
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, IntArray, total
from freshopt.scheduling.integer_counts import ULP, crawl_counts
from freshopt.scheduling.phases import flat_phases
from freshopt.scheduling.refresh_order import order_refreshes, ordinals


@dataclass(frozen=True, slots=True)
class DiscreteCounts:
    """Optimal integer number of equally spaced refreshes per source.

    Of the rates only their sum is used.

    Parameters
    ----------
    problem : Problem
        As `crawl_counts` takes it.
    repeats : bool
        True: the schedule repeats, x refreshes lie at (φ + j)·T/x with phases that spread the load. False:
        all copies are fresh at the beginning, and x refreshes lie at j·T/(x + 1), j = 1..x, the best for this
        horizon alone; the load is not flat then, as they all meet at T/2, T/3 and so on.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 10.0])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(), sources, bandwidth=1.5)
    >>> source, time = DiscreteCounts(problem, repeats=False).times(np.array([0.5, 1.0, 0.0]), 2.0)
    >>> source.tolist(), time.tolist()
    ([1, 1, 1], [0.5, 1.0, 1.5])
    """

    problem: Problem
    repeats: bool = True

    def __post_init__(self) -> None:
        """Raise if `problem` is not a Problem."""
        expect(self.problem, Problem, "problem", "Pass a freshopt.Problem")
        expect_settings(self)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        n = len(self.problem.sources)
        if len(rates) != n:
            raise SourceDataError(f"there are {len(rates)} rates for {n} sources. Pass the problem's own.")
        spend = int(total(rates) * horizon * (1.0 + ULP))
        count = crawl_counts(self.problem, horizon, refreshes=spend, repeats=self.repeats)
        interval = horizon / np.maximum(count + (0 if self.repeats else 1), 1)
        phase = flat_phases(count / horizon, horizon) if self.repeats else np.ones(n)
        below = np.nextafter(horizon, 0.0)  # (φ + x − 1)·T/x may round up to T
        source, ordinal = ordinals(count)
        return order_refreshes(count, np.minimum((phase[source] + ordinal) * interval[source], below))
