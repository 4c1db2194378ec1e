"""Problems that share what was checked and prepared of another one.

A bandwidth of its own, or some of the sources alone, change nothing of what was checked of each source, nor
of its numerics. What depends on bandwidth and bounds together is checked anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freshopt.modelling.bounds_check import require_room
from freshopt.modelling.domain_check import require_domain
from freshopt.modelling.host_limits import HostLimits
from freshopt.numerics.frozen_arrays import altered

if TYPE_CHECKING:
    from freshopt.modelling.problem import Problem


def changed_problem(problem: Problem, **values: object) -> Problem:
    """Return a problem with other values of some fields.

    - raises InfeasibleProblemError: if the bounds need more than the bandwidth.
    - raises ObjectiveError: if the objective is undefined at rates that are feasible now.
    """
    other = altered(problem, **values)
    if other.per_bandwidth is None:
        require_room(other)
        require_domain(other)
    return other


def problem_of_some(whole: Problem, some: slice, bandwidth: float) -> Problem:
    """Return the problem of some sources, under their own bandwidth.

    - `whole`: Of bandwidth and bounds alone.
    """
    sources = whole.sources.take(some)
    return changed_problem(
        whole,
        objective=whole.objective.take(some),
        sources=sources,
        bandwidth=bandwidth,
        hosts=HostLimits.of(sources, None),
        lower=whole.lower[some],
        upper=whole.upper[some],
        numerics=None if whole.numerics is None else whole.numerics.take(some),
    )
