"""`aligned_problem`: optimal rates for nodes that are refreshed right after their parents.

Where periods nest and no node is refreshed more often than a parent, the age of a node with respect to every
root upstream is that since its own last refresh. It is then one copy of one source that changes at the total
rate D of its roots, for any graph and any separable objective; what couples the nodes is u_child ≤ u_parent.
So intermediate nodes have their own importance, mostly 0, and are refreshed because others need them.

Cost: that of a problem with a row for each edge between nodes that are refreshed.
"""

from __future__ import annotations

import numpy as np

from freshopt.errors import expect
from freshopt.modelling.constraints.ratio import Ratio
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array
from freshopt.numerics.special_functions import log_freshness_loss
from freshopt.pipelines.pipeline import Pipeline

# Cost of a view's row, relative to the cheapest refresh: it takes part in the bounds, not in the bandwidth.
# At 1e-9 the interior point lost its steps at 7 of 26 bandwidths of the page's shop, at 1e-6 at none.
FREE = 1e-6


def aligned_problem(pipeline: Pipeline, objective: Objective, bandwidth: float) -> Problem:
    """Declare the problem of refreshes right after the parents.

    Parameters
    ----------
    pipeline : Pipeline
    objective : Objective
        With periodic refreshes, such as ``BinaryFreshness(Refresh.PERIODIC)``, the weighted share of time
        fresh.
    bandwidth : float

    Returns
    -------
    Problem
        Of the pipeline's `sources`, and after them its views of importance, which are as fresh as the least
        often refreshed of their parents. Its solution is one for `AfterParents`.

    Notes
    -----
    Periods are real numbers here; on the ladder of `AfterParents` they are rounded. A node is not allowed to
    be refreshed more often than a slow parent, for the sake of a fast one; with such nodes more is possible.

    Examples
    --------
    >>> import freshopt as fo
    >>> chain = fo.pipeline([("root", "a"), ("a", "b")], {"root": 1.0}, cost={"a": 1.0, "b": 3.0})
    >>> objective = fo.problems.BinaryFreshness(fo.Refresh.PERIODIC)
    >>> fo.solve(aligned_problem(chain, objective, bandwidth=8.0)).rates.round(6)
    array([2., 2.])
    """
    expect(pipeline, Pipeline, "pipeline", "Pass what fo.pipeline returns")
    own = pipeline.sources
    shown = np.flatnonzero(pipeline.view & (pipeline.importance > 0.0) & (pipeline.change_rate > 0.0))
    where = np.concatenate([pipeline.position, shown])
    place = dict(zip(pipeline.position.tolist(), range(len(own)), strict=True))
    reads: list[set[int]] = []
    for k in range(len(pipeline)):
        found: set[int] = set()
        for up in pipeline.graph.parents(k).tolist():
            found |= {place[up]} if up in place else reads[up] if pipeline.view[up] else set()
        reads.append(found)
    rows = [sorted(reads[k]) for k in where.tolist()]
    limits = [
        Ratio([row[turn] if turn < len(row) else -1 for row in rows], name=f"parent {turn + 1}")
        for turn in range(max(map(len, rows)))
    ]
    free = np.full(len(shown), FREE * float(np.min(own.refresh_cost)))
    # What serves no node of importance, to be 0 and not what an interior point leaves of it.
    used = np.concatenate([own.importance > 0.0, np.ones(len(shown), dtype=np.bool_)])
    sources = Sources(
        pipeline.change_rate[where],
        pipeline.importance[where],
        pipeline.names[where],
        refresh_cost=np.concatenate([own.refresh_cost, free]),
        max_rate=np.where(used, np.inf, 0.0),
        time_unit=own.time_unit,
    )
    return Problem(objective, sources, bandwidth, constraints=limits)


def aligned_freshness(pipeline: Pipeline, rates: object) -> Array:
    """Return each node's share of time fresh, refreshed right after its parents.

    Parameters
    ----------
    pipeline : Pipeline
    rates : Solution, mapping, dataframe or array_like
        As `Pipeline.rates_of` takes them, on a ladder as those of `AfterParents` are.

    Returns
    -------
    ndarray, shape (n,)
        (1 − e^{−x})/x with x = D/u, u the rate of the slowest node from the roots to it. Exact on any graph
        where no node is refreshed more often than a parent, as of the solutions of `aligned_problem`;
        elsewhere a lower bound, as roots past the slow parent may be read more often.

    Examples
    --------
    >>> import freshopt as fo
    >>> chain = fo.pipeline([("root", "a"), ("a", "b")], {"root": 1.0})
    >>> aligned_freshness(chain, {"a": 2.0, "b": 1.0}).round(3)
    array([1.   , 0.787, 0.632])
    """
    expect(pipeline, Pipeline, "pipeline", "Pass what fo.pipeline returns")
    slowest = np.full(len(pipeline), np.inf)
    slowest[pipeline.position] = pipeline.rates_of(rates)
    for k in range(len(pipeline)):
        above = pipeline.graph.parents(k)
        # What never changes is fresh however seldom it is read.
        above = above[pipeline.change_rate[above] > 0.0]
        if len(above):
            slowest[k] = min(float(slowest[k]), float(slowest[above].min()))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        changes = np.where(pipeline.change_rate > 0.0, pipeline.change_rate / slowest, 0.0)
        return np.where(changes < np.inf, np.exp(-log_freshness_loss(changes)), 0.0)
