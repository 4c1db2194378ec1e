"""The bridge between plain arrays and freshopt's names, and the known optima as plain arrays.

The optima are those of `freshopt.testing.known_optima`, which come from equations and not from solvers; the
tests hold them against the ground truth before they judge a solver by them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import freshopt as fo
from freshopt.problems import AccumulatedDelay, BinaryFreshness, HarmonicStaleness
from freshopt.testing import KnownOptimum, known_optima
from tests.ground_truth.truth import Instance, instance

Floats = npt.NDArray[np.float64]
OBJECTIVES: dict[str, Callable[..., fo.Objective]] = {
    "binary": BinaryFreshness,
    "harmonic": HarmonicStaleness,
    "count": AccumulatedDelay,
}
REFRESHES = {
    "poisson": fo.Refresh.POISSON,
    "periodic": fo.Refresh.PERIODIC,
    "on request": fo.Refresh.ON_REQUEST,
}


def objective_of(problem: Instance) -> fo.Objective:
    return OBJECTIVES[problem.curve](refresh=REFRESHES[problem.discipline])


def as_problem(problem: Instance) -> fo.Problem:
    """Return the freshopt problem of an instance; host h is called 'h', sources of no limited host 'free'."""
    sources = fo.Sources(
        change_rate=problem.change_rate,
        importance=problem.importance,
        min_rate=problem.lower,
        max_rate=problem.upper,
        refresh_cost=problem.cost,
        signalled=problem.signalled,
        host=[str(h) if h >= 0 else "free" for h in problem.host],
        success=problem.success if np.any(problem.success < 1.0) else None,
        changed_cost=problem.changed,
        request_rate=problem.asked if problem.discipline == "on request" else None,
        stale_while_revalidate=problem.window if problem.discipline == "on request" else None,
    )
    present = {str(h) for h in problem.host}
    limits = {str(h): float(x) for h, x in enumerate(problem.limits) if str(h) in present}
    return fo.Problem(objective_of(problem), sources, problem.bandwidth, limits)


def as_cost(problem: Instance, value: float) -> float:
    """Return Σ w·J of a value in the declared sense (binary freshness is maximised)."""
    return float(np.sum(problem.importance)) - value if problem.curve == "binary" else value


def as_instance(problem: fo.Problem) -> Instance:
    """Return a freshopt problem of one of the three curves as plain arrays."""
    names = {owner: curve for curve, owner in OBJECTIVES.items()}
    disciplines = {refresh: name for name, refresh in REFRESHES.items()}
    sources = problem.sources
    position = {host: h for h, host in enumerate(problem.host_limits)}
    host = (
        [-1] * len(sources) if sources.host is None else [position.get(h, -1) for h in sources.host.tolist()]
    )
    return instance(
        names[type(problem.objective)],
        disciplines[problem.objective.refresh],
        sources.change_rate,
        problem.bandwidth,
        importance=sources.importance,
        lower=sources.min_rate,
        upper=sources.max_rate,
        cost=sources.refresh_cost,
        signalled=sources.signalled,
        host=host,
        limits=list(problem.host_limits.values()),
        success=1.0 if sources.success is None else sources.success,
        changed=0.0 if sources.changed_cost is None else sources.changed_cost,
        asked=np.inf if sources.request_rate is None else sources.request_rate,
        window=0.0 if sources.stale_while_revalidate is None else sources.stale_while_revalidate,
    )


@dataclass(frozen=True, eq=False)
class Case:
    """A known optimum of one of the three curves, and its instance."""

    known: KnownOptimum
    problem: Instance

    @property
    def name(self) -> str:
        return self.known.name


CASES = [
    Case(known, as_instance(known.problem))
    for known in known_optima()
    if type(known.problem.objective) in OBJECTIVES.values()
]
