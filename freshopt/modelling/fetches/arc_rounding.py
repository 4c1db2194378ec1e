"""`problems_on_arcs`: bandwidths moved off the segments of a hull.

Where costs are concave between two bandwidths, optimal bandwidths of the hull lie on convex arcs, but for
those of sources whose segment has the price as its slope. Filling such segments in turn leaves at most one
source inside for each limit that binds. With every source held on the arc where it is, the problem is convex
and exact, and what that one frees goes where its marginal value is largest. It is solved with that source
on its left arc, on its right arc, and where it is. The best of the three loses no more than that one's
distance from the hull.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from freshopt.errors import InfeasibleProblemError
from freshopt.modelling.fetches.conditional_fetches import within
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, BoolArray
from freshopt.separable.conditional_hull import ConditionalHull
from freshopt.separable.hull_numerics import ROUNDING, filled_in_turn

# What a solution says of rates that are not proved to be optimal.
NOT_CONVEX = (
    "Of costs that are not convex in the bandwidth used the gap is that to their lower convex hull; a "
    "tolerance above it accepts these rates."
)


def problems_on_arcs(
    problem: Problem, hull: ConditionalHull, rates: Array, host_prices: Mapping[Any, float]
) -> Iterator[Problem]:
    """Yield convex problems near a solution of the hull's.

    There is none if no source is inside a segment; where several are, one for each limit, they move alike.

    - `problem`: Over bandwidth used.
    - `hull`: Its numerics.
    - `rates` (n,): Bandwidths that solve the hull's problem.
    - `host_prices`: Dual variables of the limited hosts.
    - yields: With every source on an arc, or where it is.
    """
    used = _filled(problem, hull, rates, host_prices)
    segment = hull.left < hull.right
    slack = ROUNDING * np.where(segment, hull.right, 0.0)
    before, after = segment & (used <= hull.left + slack), segment & (used >= hull.right - slack)
    between = segment & ~before & ~after
    if not bool(np.any(hull.inside(rates) & (np.abs(rates - used) > slack) | between)):
        return
    nowhere = np.zeros(len(used), dtype=np.bool_)
    sides = [(between, nowhere), (nowhere, between), (nowhere, nowhere)] if bool(np.any(between)) else []
    for down, up in sides or [(nowhere, nowhere)]:
        fixed = between & ~down & ~up
        bounds = _bounds(problem, hull, before | down, after | up)
        lower, upper = (np.where(fixed, used, bound) for bound in bounds)
        try:
            yield problem.restated(within(problem.sources, lower, upper))
        except InfeasibleProblemError:
            continue


def _bounds(
    problem: Problem, hull: ConditionalHull, left: BoolArray, right: BoolArray
) -> tuple[Array, Array]:
    """Return the bounds that hold sources on their arcs."""
    first, last = hull.arcs()
    upper = np.where(left, np.clip(first, problem.lower, problem.upper), problem.upper)
    lower = np.where(right, np.clip(last, problem.lower, problem.upper), problem.lower)
    return lower, upper


def _filled(problem: Problem, hull: ConditionalHull, rates: Array, host_prices: Mapping[Any, float]) -> Array:
    """Return the bandwidths with segments filled in turn."""
    hosts, used = problem.hosts, np.array(rates)
    limit = np.full(len(used), len(hosts), dtype=np.int64)
    if len(hosts):
        binding = np.append([host_prices[name] > 0.0 for name in hosts.names], False)
        limit = np.where(binding[hosts.codes], hosts.codes, len(hosts))
    some = np.flatnonzero(hull.inside(used))
    if len(some):
        ends = hull.left[some], hull.right[some]
        used[some] = filled_in_turn(np.ones(len(some)), *ends, used[some], limit[some])
    return used
