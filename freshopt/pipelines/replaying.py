"""`replay_pipeline`: a schedule of a pipeline, event by event.

Changes of the roots and refreshes are taken in order; at equal times changes come first, and parents before
children. A copy is fresh if no root upstream has changed since it was read, and counts for the time that it
is. The window is cut into batches of equal length, whose means give the standard errors; two schedules that
are replayed in one world are compared batch by batch, which removes most of what is random.

Cost: some 50 ns an event and edge, compiled; 10⁶ events of 10 000 nodes take about a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from freshopt.compiled.backend import fast
from freshopt.errors import SourceDataError, expect
from freshopt.formatting import count
from freshopt.numerics.arrays import Array, as_number
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.pipelines import loops
from freshopt.pipelines.pipeline import Pipeline
from freshopt.scheduling.schedule import Schedule
from freshopt.simulation.replay_result import Measured
from freshopt.simulation.world import World

# Fewest and most batches.
BATCHES = (4, 1000)


@frozen_value(repr=False)
class PipelineReplay:
    """Measured freshness of the nodes of a pipeline.

    Made by `replay_pipeline`.

    Attributes
    ----------
    share : ndarray, shape (batches, n)
        Share of time that each node was fresh, batch by batch.
    importance : ndarray, shape (n,)
    begin, end : float
        The window in the world's time.
    time_unit : str
    cost : float
        Bandwidth used per time unit, over the whole horizon.
    """

    share: Array
    importance: Array
    begin: float
    end: float
    time_unit: str
    cost: float

    def __repr__(self) -> str:
        fresh, nodes = self.fresh, count(self.share.shape[1], "node", "d")
        spread = fresh.error * abs(fresh.mean / fresh.value) if fresh.value else fresh.error
        window = f"{self.begin:g}..{self.end:g} {self.time_unit}s"
        return f"PipelineReplay({nodes} in {window}: fresh {fresh.mean:.4f} ± {spread:.1g})"

    @property
    def per_node(self) -> Array:
        """Share of time that each node was fresh, shape (n,)."""
        return np.asarray(self.share.mean(axis=0))

    @property
    def error(self) -> Array:
        """Standard error of `per_node`, shape (n,)."""
        return np.asarray(self.share.std(axis=0, ddof=1) / np.sqrt(len(self.share)))

    @property
    def fresh(self) -> Measured:
        """Measured Σ w·(share of time fresh)."""
        return self._measured(self._fresh, self.share)

    @property
    def staleness(self) -> Measured:
        """Measured Σ w·(−log of the share of time fresh)."""
        return self._measured(self._staleness, self.share)

    def against(self, other: PipelineReplay) -> tuple[Measured, Measured]:
        """Return the differences in freshness and staleness, with paired errors.

        Parameters
        ----------
        other : PipelineReplay
            Of another schedule in the same world and window.

        Returns
        -------
        fresh, staleness : Measured
            Differences of `fresh` and of `staleness`, this one's less the other's.

        Raises
        ------
        SourceDataError
            If the two are of different nodes or windows.
        """
        expect(other, PipelineReplay, "other", "Pass a PipelineReplay")
        same = self.share.shape == other.share.shape and (self.begin, self.end) == (other.begin, other.end)
        if not same:
            raise SourceDataError(
                "the replays are of different nodes, windows or batches. Replay both alike."
            )
        both = np.stack([self.share, other.share], axis=1)
        return (
            self._measured(lambda mean: self._fresh(mean[0]) - self._fresh(mean[1]), both),
            self._measured(lambda mean: self._staleness(mean[0]) - self._staleness(mean[1]), both),
        )

    def _fresh(self, mean: Array) -> float:
        return float(self.importance @ mean)

    def _staleness(self, mean: Array) -> float:
        some = self.importance > 0.0
        with np.errstate(divide="ignore"):
            return -float(self.importance[some] @ np.log(mean[some]))

    def _measured(self, value: Callable[[Array], float], share: Array) -> Measured:
        """Return a function of the batches' mean, with jackknife standard error."""
        batches, total = len(share), share.sum(axis=0)
        found = value(total / batches)
        others = np.array([value((total - one) / (batches - 1)) for one in share])
        with np.errstate(invalid="ignore"):
            error = float(np.sqrt((batches - 1) / batches * np.sum((others - others.mean()) ** 2)))
        weight = float(self.importance.sum())
        return Measured(found, error, found / weight if weight else float("nan"))


def replay_pipeline(
    pipeline: Pipeline, schedule: Schedule, world: World, *, skip: float = 0.0, batches: int = 20
) -> PipelineReplay:
    """Measure how fresh a schedule keeps the nodes of a pipeline.

    Parameters
    ----------
    pipeline : Pipeline
    schedule : Schedule
        Of the pipeline's `sources`.
    world : World
        Of its `roots`: ``World.poisson(pipeline.roots, seed)``, or recorded changes in their order.
    skip : float
        Time from the beginning, when all copies are fresh, that does not count.
    batches : int
        Equal parts of the window, 4 or more, each long against the time between refreshes.

    Raises
    ------
    SourceDataError
        If schedule or world are of other sources, or nothing is left to count.

    Examples
    --------
    >>> import freshopt as fo
    >>> chain = fo.pipeline([("root", "a"), ("a", "b")], change_rate={"root": 1.0})
    >>> plan = fo.schedule({"a": 2.0, "b": 2.0}, 20000.0, fo.scheduling.PoissonArrivals())
    >>> replay_pipeline(chain, plan, fo.World.poisson(chain.roots, seed=1)).per_node.round(2)
    array([1.  , 0.67, 0.45])
    """
    expect(pipeline, Pipeline, "pipeline", "Pass what fo.pipeline returns")
    expect(schedule, Schedule, "schedule", "Pass what fo.schedule returns")
    expect(world, World, "world", "Pass a freshopt.World")
    many = as_number(batches, "batches", "Pass a whole number.")
    if not (BATCHES[0] <= many <= BATCHES[1] and many == int(many)):
        raise SourceDataError(f"batches is {batches}. Pass a whole number, {BATCHES[0]} to {BATCHES[1]}.")
    _require_names(schedule.names, pipeline.sources.names, len(schedule.rates), "schedule", "sources")
    _require_names(world.names, pipeline.roots.names, len(world), "world", "roots")
    if schedule.time_unit != pipeline.sources.time_unit or world.time_unit != schedule.time_unit:
        raise SourceDataError("pipeline, schedule and world have different time units. Convert them.")
    origin = float(np.min(world.start))
    end = min(origin + schedule.horizon, world.horizon)
    begin = origin + as_number(skip, "skip", "Pass a time of 0 or more.")
    if not origin <= begin < end:
        raise SourceDataError(f"nothing is left to count from {begin:g} to {end:g}. Choose another skip.")
    offsets, changes = world.events(origin, end)
    which = np.repeat(np.flatnonzero(pipeline.root_rate > 0.0), np.diff(offsets))
    at = origin + schedule.time
    inside = at < end
    time = np.concatenate([changes, at[inside]])
    node = np.concatenate([which, pipeline.position[schedule.source[inside]]])
    order = np.argsort(time, kind="stable")
    edges = np.linspace(begin, end, int(many) + 1)
    share = np.zeros((int(many), len(pipeline)))
    graph = pipeline.graph
    fast(loops.replay_events)(
        time[order],
        node[order],
        (graph.first, graph.parent, *graph.children()),
        np.array(pipeline.view),
        np.ones(len(pipeline), dtype=np.bool_),
        edges,
        share,
    )
    used = float(pipeline.sources.refresh_cost[schedule.source[inside]].sum())
    return PipelineReplay(
        share / np.diff(edges)[:, None],
        pipeline.importance,
        begin,
        end,
        world.time_unit,
        used / (end - origin),
    )


def _require_names(given: object, own: object, many: int, what: str, of: str) -> None:
    """Raise SourceDataError unless names are those of a pipeline, in its order."""
    known = np.asarray(own)
    if many != len(known) or (given is not None and not np.array_equal(np.asarray(given).astype(str), known)):
        raise SourceDataError(
            f"the {what} is of other sources than the pipeline's {of}, or in another order. Make it of "
            f"pipeline.{of}."
        )
