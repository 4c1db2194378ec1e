"""`require_room`: feasibility of bounds, bandwidth and host limits, by arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freshopt.errors import InfeasibleProblemError, list_offenders
from freshopt.numerics.arrays import BoolArray, is_scalar, once, total
from freshopt.separable.kernel import Numerics
from freshopt.units import least_rates_need, looser_bound

if TYPE_CHECKING:
    from freshopt.modelling.problem import Problem

# Sums of any length here are correct to a few ulp; so are constraints.
FEW_ULP = 8 * np.finfo(np.float64).eps


def require_room(problem: Problem) -> None:
    """Raise InfeasibleProblemError if no rates are feasible, by arithmetic."""
    unit, lower = problem.sources.time_unit, problem.lower
    _require_open(problem)
    if is_scalar(lower) and lower[0] == 0.0:
        return
    crossed = np.flatnonzero(lower > problem.upper)
    if len(crossed):
        where = list_offenders(
            f"{problem.sources.label(k)}: {lower[k]:g} > {problem.upper[k]:g}" for k in crossed
        )
        asked = problem.sources.request_rate
        if asked is not None and bool(np.all(problem.upper[crossed] == asked[crossed])):
            raise InfeasibleProblemError(
                f"min_rate exceeds the request rate of {where}. Lower min_rate: a copy that is refreshed on "
                "request is refreshed at most once per request."
            )
        if not bool(np.all(problem.sources.signalled[crossed])):
            raise InfeasibleProblemError(
                f"constraints of single sources leave no rates to {where}. Lower the lower bound, or "
                "raise the upper one."
            )
        raise InfeasibleProblemError(
            f"min_rate exceeds the change rate of signalled sources {where}. Lower min_rate: a "
            f"signalled source is refreshed at most once per change."
        )
    name, group = problem.labels
    needs = [(name, problem.bandwidth, total(problem.sources.refresh_cost * lower), int(np.argmax(lower)))]
    host_needs = problem.hosts.totals(problem.sources.refresh_cost * lower)
    for k in np.flatnonzero(host_needs > problem.hosts.limits * (1 + FEW_ULP)):
        members = np.flatnonzero(problem.hosts.codes == k)
        largest = int(members[np.argmax(lower[members])])
        needs.append(
            (
                f"the limit of {group} {problem.hosts.names[k]!r}",
                problem.hosts.limits[k],
                host_needs[k],
                largest,
            )
        )
    for what, available, needed, largest in needs:
        if needed > available * (1 + FEW_ULP):
            advice = looser_bound(problem.sources.label(largest), float(lower[largest]), unit)
            raise InfeasibleProblemError(
                f"{least_rates_need()} {needed:.6g} refreshes/{unit} but {what} is {available:.6g} (short "
                f"by {needed - available:.3g}). Raise it to >= {needed:.6g} or {advice}."
            )


def _require_open(problem: Problem) -> None:
    """Raise InfeasibleProblemError where max_rate 0 costs infinitely much."""
    if np.minimum.reduce(once(problem.upper)) > 0.0:
        return
    closed = np.flatnonzero(problem.upper == 0.0)
    if len(closed) and problem.numerics is not None:
        costs = problem.numerics.take(closed).cost(np.zeros(len(closed)))
        unbounded = closed[~np.isfinite(costs)]
        if len(unbounded):
            raise InfeasibleProblemError(
                f"max_rate is 0 for {list_offenders(map(problem.sources.label, unbounded))}, whose cost is "
                f"infinite when never refreshed. Drop these sources or set their importance to 0."
            )


def require_finite(problem: Problem, numerics: Numerics, what: str, members: BoolArray) -> None:
    """Raise InfeasibleProblemError where min_rate uses up a limit at infinite cost."""
    starved = np.flatnonzero(members & ~np.isfinite(numerics.cost(np.array(problem.lower))))
    if len(starved):
        raise InfeasibleProblemError(
            f"min_rate uses up {what} and leaves nothing for "
            f"{list_offenders(map(problem.sources.label, starved))}, whose cost is then infinite. "
            "Raise the bandwidth or the limit, or lower min_rate."
        )
