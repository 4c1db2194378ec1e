"""`Truth`: oracle value of rates under the true parameters.

With the value of the best rates.

It is known in simulations only. A Poisson world's change rates take the place of those in the problem that
the policy was given, at every moment that they change; the best rates are then solved for, certified.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.modelling.objective import value_at
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import SMALLEST, Array, total
from freshopt.simulation import Crawler, SimulatedCrawler, World
from freshopt.simulation.change_processes import PoissonChanges
from freshopt.solving import solve


@dataclass(slots=True, eq=False)
class Truth:
    """True problem behind a run, at each time.

    Without a world the problem's own change rates are true.
    """

    problem: Problem
    world: World | None
    _epoch: int = -1
    _now: Problem = field(init=False)
    _best: float = field(init=False)

    @classmethod
    def of(cls, problem: Problem, world: World | Crawler, truth: Problem | None = None) -> Truth | None:
        """Return the truth behind a run, or None if unknown."""
        if truth is not None:
            return cls(truth, None)
        inside = world.world if isinstance(world, SimulatedCrawler) else world
        if isinstance(inside, World) and len(inside) != len(problem.sources):
            raise SourceDataError(
                f"the world has {len(inside)} sources and the problem {len(problem.sources)}. Pass a problem "
                "over the sources of the world."
            )
        if isinstance(inside, World) and isinstance(inside.changes, PoissonChanges):
            return cls(problem, inside)
        return None

    def value(self, time: float, rates: Array) -> float:
        """Return the value of rates at a time.

        In the sense of the objective.
        """
        return value_of(self._at(time), rates)

    def best(self, time: float) -> float:
        """Return the value of the best rates at a time."""
        self._at(time)
        return self._best

    def _at(self, time: float) -> Problem:
        """Return the problem that holds at a time."""
        epoch = 0
        if self.world is not None and isinstance(self.world.changes, PoissonChanges):
            epoch = max(int(np.searchsorted(self.world.changes.edges, time, side="right")) - 1, 0)
        if epoch != self._epoch:
            now = self.problem
            if self.world is not None:
                # A source that has stopped changing counts as one that hardly ever changes.
                now = now.with_change_rate(np.maximum(self.world.change_rate(time), SMALLEST))
            self._epoch, self._now, self._best = epoch, now, solve(now).value
        return self._now


def value_of(problem: Problem, rates: Array) -> float:
    """Return an objective's value at rates, in its own sense."""
    if problem.numerics is None:
        raise SourceDataError(f"the objective cannot be evaluated: {problem.unknown_atom}.")
    cost = total(problem.numerics.cost(rates))
    return value_at(problem.objective, problem.numerics, problem.sources, rates, cost)
