"""Nodes right after their parents: optimal rates, common ladder of periods.

With independent phases a node copies parents that are on average half a period old, and so they of theirs:
the ages along a path add up. Where periods divide each other and all nodes count from the same moment, a node
is refreshed right after its parents; then the age along a path is that of its slowest node alone.

Periods are rounded to base·2^k, to the nearest on a logarithmic scale, and scaled so that the whole uses the
bandwidth of the rates, no more. Of rates of `aligned_problem` the base is taken that moves them least. Other
rates are made for independent phases: there periods may also be spread less than those of the rates, down to
one for all, and taken are those with the least −log freshness at the age of each node's slowest input. A node
whose inputs all come more slowly is refreshed as they are: in between it would copy the same state again.

Where periods nest and no node is refreshed more often than a parent, the age of a node with respect to every
root upstream is that since its own last refresh. It is then one copy of one source that changes at the total
rate D of its roots, for any graph and any separable objective; what couples the nodes is u_child ≤ u_parent.
So intermediate nodes have their own importance, mostly 0, and are refreshed because others need them.

Cost: a pass over the nodes for all bases, or four for a given ladder; `aligned_problem` is a problem with a
row for each edge between nodes that are refreshed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from freshopt.errors import SourceDataError, expect, expect_settings
from freshopt.modelling.constraints.ratio import Ratio
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import (
    LARGEST,
    SMALLEST,
    Array,
    BoolArray,
    IntArray,
    as_number,
    as_vector,
    shape_of,
)
from freshopt.numerics.special_functions import log_freshness_loss
from freshopt.pipelines.pipeline import Pipeline
from freshopt.scheduling.refresh_order import order_refreshes, points, points_before

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


# Bases that are tried between 1 and 2: steps of 4 %, finer ones change the cost by less than 1e-3.
BASES = 16
# A rate above an input's by less, relatively, is the solver's rounding.
NEAR = 1e-6
# How far periods are spread against those of the rates, on a logarithmic scale; at 0 all are equal.
SPREADS = (1.0, 0.75, 0.5, 0.25, 0.0)
# Factors of the periods that are tried at a time, and how often between two of them.
SECTIONS, ROUNDS = 64, 4
# Exponent of a root, below all others.
ALWAYS = -(2**40)


@dataclass(frozen=True, slots=True, repr=False)
class AfterParents:
    """Periods on a common ladder, each node refreshed right after its parents.

    Parameters
    ----------
    pipeline : Pipeline
        Whose sources the rates are of.
    periods : tuple of float, optional
        A ladder to round to, in time units, increasing, each a multiple of the one before, such as those that
        cron has. Default: 1, 2, 4, ... times the base that suits the rates.
    lag : float
        Time from a node's refresh to those of its children, ≥ 0; about that of a run.

    Raises
    ------
    SourceDataError
        If a period is no multiple of the one before, or the longest needs more bandwidth than the rates.

    Notes
    -----
    All copies are made at time 0; the first refreshes are one period later, so that no horizon has more than
    its bandwidth. The load comes in bursts, as that of any run of a whole pipeline does.

    Examples
    --------
    >>> import freshopt as fo
    >>> chain = fo.pipeline([("root", "a"), ("a", "b")], change_rate={"root": 1.0})
    >>> method = AfterParents(chain)
    >>> method.rates(np.array([3.0, 2.0])).round(3)
    array([3.333, 1.667])
    >>> [(round(time, 3), str(node)) for time, node in fo.schedule({"a": 3.0, "b": 2.0}, 1.0, method)]
    [(0.3, 'a'), (0.6, 'a'), (0.6, 'b'), (0.9, 'a')]
    """

    pipeline: Pipeline
    periods: tuple[float, ...] | None = None
    lag: float = 0.0

    def __post_init__(self) -> None:
        expect(self.pipeline, Pipeline, "pipeline", "Pass what fo.pipeline returns")
        lag = as_number(self.lag, "lag", "Pass a time of 0 or more.")
        if not 0.0 <= lag < np.inf:
            raise SourceDataError(f"lag is {lag:g}. Pass a time of 0 or more.")
        object.__setattr__(self, "lag", lag)
        if self.periods is None:
            return
        shape = shape_of(self.periods, "periods")
        ladder = np.array(as_vector(self.periods, shape[0] if shape else 1, "periods"))
        if not (len(ladder) and np.all((ladder >= SMALLEST) & (ladder <= LARGEST))):
            raise SourceDataError("periods must be numbers > 0, at least one. Correct them.")
        with np.errstate(over="ignore"):
            times = ladder[1:] / ladder[:-1]
        wrong = np.flatnonzero((times < 1.5) | (np.abs(times - np.rint(times)) > 1e-9 * times)).tolist()
        if wrong:
            k = wrong[0]
            raise SourceDataError(
                f"period {ladder[k + 1]:g} is no multiple of {ladder[k]:g} before it. Each period of a "
                "ladder is a multiple of the one before."
            )
        object.__setattr__(self, "periods", tuple(ladder.tolist()))

    def __repr__(self) -> str:
        ladder = "" if self.periods is None else f", {len(self.periods)} periods"
        return f"AfterParents({self.pipeline!r}{ladder})"

    def rates(self, rates: Array) -> Array:
        """Return the rates on the ladder, shape (m,).

        Parameters
        ----------
        rates : ndarray, shape (m,)
        """
        cost = self.pipeline.sources.refresh_cost
        if np.shape(rates) != cost.shape:
            raise SourceDataError(
                f"{np.size(rates)} rates for {len(cost)} sources of the pipeline. Pass those of its solution."
            )
        live = rates > 0.0
        if not live.any():
            return np.zeros(len(rates))
        with np.errstate(divide="ignore"):
            wanted = np.where(live, 1.0 / rates, np.inf)
        budget = float(cost @ rates)
        if self.periods is None:
            return self._on_own_ladder(wanted, live, budget)
        return self._on_given_ladder(np.array(self.periods), wanted, live, budget)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        found = self.rates(rates)
        with np.errstate(divide="ignore"):
            period = 1.0 / found
        late = self.lag * self._depth()
        many = np.zeros(len(found), dtype=np.int64)
        live = found > 0.0
        many[live] = np.maximum(np.ceil((horizon - late[live]) / period[live] * (1.0 - 1e-12)) - 1.0, 0.0)
        # Multiples of the finest period, the same numbers for all: parents come first at equal times.
        time = points(many, np.ones(len(found)), np.where(live, found, 1.0))
        if live.any():
            finest = float(np.min(period[live]))
            time = np.rint(time / finest) * finest
        time = time + np.repeat(late, many)
        inside = time < horizon
        many = np.bincount(np.repeat(np.arange(len(found)), many)[inside], minlength=len(found))
        return order_refreshes(many.astype(np.int64), time[inside])

    def _on_own_ladder(self, wanted: Array, live: BoolArray, budget: float) -> Array:
        """Return rates on the ladder of the best base and spread."""
        cost = self.pipeline.sources.refresh_cost
        aligned = self._is_aligned(wanted)
        bases, spreads = np.meshgrid(np.arange(BASES) / BASES, SPREADS[:1] if aligned else SPREADS)
        steps = np.log2(wanted / np.median(wanted[live]), where=live, out=np.zeros(len(wanted)))
        exponent = np.rint(steps[:, None] * spreads.ravel() - bases.ravel()).astype(np.int64)
        exponent = self._no_faster_than_inputs(np.where(live[:, None], exponent, ALWAYS))
        rated = np.where(live[:, None], exponent, 0).astype(np.float64)
        found = np.where(live[:, None], 2.0**-rated, 0.0)
        found *= budget / (cost @ found)
        if aligned:
            # Their optimum is known: kept is what uses the bandwidth.
            moved = np.log(found[live] * wanted[live, None]) ** 2
            lost = (cost[live] / wanted[live]) @ moved
        else:
            lost = self._staleness(found, live)
        best: Array = found[:, int(np.argmin(lost))]
        return best

    def _is_aligned(self, wanted: Array) -> bool:
        """Return whether each input is refreshed as often as its node."""
        line = self.pipeline
        slowest = np.zeros(len(line))
        slowest[line.position] = wanted
        for k in range(len(line)):
            parents = line.graph.parents(k)
            if len(parents):
                above = float(slowest[parents].max())
                if line.view[k]:
                    slowest[k] = above
                elif slowest[k] < above * (1.0 - NEAR):
                    return False
        return True

    def _staleness(self, rates: Array, live: BoolArray) -> Array:
        """Return the −log freshness of rates, by each node's slowest input."""
        line = self.pipeline
        age = np.zeros((len(line), rates.shape[1]))
        age[line.position[live]] = 1.0 / rates[live]
        for k in range(len(line)):
            parents = line.graph.parents(k)
            if len(parents):
                age[k] = np.maximum(age[k], age[parents].max(axis=0))
        return np.asarray(line.importance @ log_freshness_loss(line.change_rate[:, None] * age))

    def _on_given_ladder(self, ladder: Array, wanted: Array, live: BoolArray, budget: float) -> Array:
        """Return rates on a ladder: periods over the largest feasible factor."""
        cost = self.pipeline.sources.refresh_cost
        low, high = float(np.min(wanted[live])) / ladder[-1], float(np.max(wanted[live])) / ladder[0]
        factors = np.geomspace(low * (1.0 - 1e-9), high * (1.0 + 1e-9), SECTIONS)
        for _ in range(ROUNDS):
            rung = np.searchsorted(ladder, wanted[:, None] / factors * (1.0 - 1e-12))
            rung = np.where(live[:, None], np.minimum(rung, len(ladder) - 1), ALWAYS)
            rung = self._no_faster_than_inputs(rung)
            rates = np.where(live[:, None], 1.0 / ladder[np.maximum(rung, 0)], 0.0)
            used = cost @ rates
            last = int(np.searchsorted(used, budget * (1.0 + 1e-12), side="right")) - 1
            if last < 0:
                raise SourceDataError(
                    f"refreshing each node once in {ladder[-1]:g} {self.pipeline.sources.time_unit}s needs a "
                    f"bandwidth of {used[0]:.4g}, the rates use {budget:.4g}. Raise the bandwidth, or add a "
                    "longer period."
                )
            if last == SECTIONS - 1:
                break
            factors = np.geomspace(factors[last], factors[last + 1], SECTIONS)
        best: Array = rates[:, last]
        return best

    def _no_faster_than_inputs(self, exponent: IntArray) -> IntArray:
        """Return exponents, none below the least among a node's inputs.

        A copy that is never refreshed brings nothing, nor does a root that never changes.
        """
        line = self.pipeline
        own = np.full((len(line), exponent.shape[1]), ALWAYS, dtype=np.int64)
        own[line.position] = exponent
        still = line.change_rate == 0.0
        still[line.position] = exponent[:, 0] == ALWAYS
        for k in range(len(line)):
            parents = line.graph.parents(k)
            inputs = parents[~still[parents]]
            if len(inputs) and not still[k]:
                own[k] = np.maximum(own[k], own[inputs].min(axis=0))
        return own[line.position]

    def _depth(self) -> Array:
        """Return the refreshed nodes above each source, on its longest path."""
        line = self.pipeline
        counted = np.zeros(len(line), dtype=np.int64)
        counted[line.position] = 1
        depth = np.zeros(len(line), dtype=np.int64)
        for k in range(len(line)):
            parents = line.graph.parents(k)
            if len(parents):
                depth[k] = int(depth[parents].max()) + counted[k]
        return np.asarray(depth[line.position] - 1, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class IndependentPhases:
    """Equally spaced refreshes, each source's phase uniform and its own.

    Parameters
    ----------
    seed : int
        Seed of the phases.

    Notes
    -----
    Under these the product of the periodic cells holds in a pipeline, on average over the phases. `Periodic`
    spreads phases instead, so that the load is even.

    Examples
    --------
    >>> source, time = IndependentPhases(seed=0).times(np.array([1.0, 2.0]), 2.0)
    >>> source.tolist(), np.diff(time[source == 1]).round(9).tolist()
    ([1, 1, 0, 1, 1, 0], [0.5, 0.5, 0.5])
    """

    seed: int = 0

    def __post_init__(self) -> None:
        expect_settings(self)

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return the refreshes in [0, horizon); see `Method.times`."""
        phase = np.random.default_rng(self.seed).random(len(rates))
        many = points_before(horizon, rates, phase)
        return order_refreshes(many, points(many, phase, rates))

    def redrawn(self, run: int) -> IndependentPhases:
        """Return the method with a later seed, its own for run 0."""
        return replace(self, seed=(self.seed + run) % 2**64)
