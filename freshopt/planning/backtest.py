"""Out-of-sample evaluation of a plan on its own log.

The last part of the log is held out. Change rates are learnt from what is before it and refresh rates are
solved for, as `make_plan` does; the schedules are then replayed against the changes of the held-out part,
with those of equal and of proportional rates at the same bandwidth, and with the crawls that the log itself
has there: the current policy. Nothing of the held-out part is known to the plan, and no cost is predicted by
a formula: it is integrated from the times of changes and refreshes.

Copies have the ages that a policy itself gives them: each schedule runs for as long before the held-out part
as that is long, or as the log reaches back, before costs count. When exactly it began is chance, and matters
where intervals are long: costs are means over several beginnings. Their standard error is that of a mean over
sources that are a sample of more such ones, under the same rates: what the choice of rates owes to chance is
not in it.
The current policy may crawl more or less than the bandwidth; so that it can be compared with a plan of as
many refreshes, there is a row for that too.

Each source counts until its last crawl in the log. When a source changed, a crawl log does not tell, unless
the change is dated (`last_modified`): a change is put in the middle of the gap in which it was found, several
of them evenly. Changes that one crawl found as one are one. All costs are then too low, and most so those of
the current policy, whose own crawls end the gaps: what the table says in favour of a plan is less than the
truth. Where all changes are known (`history`) nothing of this applies.
Cost: a plan, and a replay for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from freshopt.certificates.solution import Solution
from freshopt.certificates.solver_protocol import SolveOptions
from freshopt.errors import SourceDataError
from freshopt.estimators.estimator import Estimator
from freshopt.logs.change_history import ChangeHistory
from freshopt.logs.crawl_log import OPTIONAL, CrawlLog, derived_log
from freshopt.modelling.objective import Objective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, as_number
from freshopt.planning.plan import TOLERANCE, learn, method_of
from freshopt.planning.request import Log, PlanRequest, as_crawl_log, request_of
from freshopt.scheduling.schedule import Schedule, schedule
from freshopt.simulation.replay_result import NAMED, Measured, Replay
from freshopt.simulation.replaying import replay
from freshopt.simulation.standard_errors import error_over_sources
from freshopt.simulation.world import World
from freshopt.solvers.proportional import Proportional
from freshopt.solvers.uniform import Uniform
from freshopt.solving import solve
from freshopt.units import SECONDS

if TYPE_CHECKING:
    import polars

SHARE = 0.25  # of the log's time that is held out
BEGINNINGS, MOST_REFRESHES = (
    9,
    2_000_000,
)  # of a schedule; with more refreshes its gaps are short, and one is enough


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """What a policy cost in the held-out part.

    Attributes
    ----------
    policy : str
        "plan", "uniform", "proportional", "current" or "plan at current".
    refreshes : float
        Per time unit.
    cost : Measured
        Of the plan's objective.
    fresh : float
        Share of the time that copies were fresh, weighted by importance.
    """

    policy: str
    refreshes: float
    cost: Measured
    fresh: float


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A plan held against the last part of its log.

    Attributes
    ----------
    begin, end : float
        The part that was held out, on the log's clock.
    sources, left_out : int
        Those that were replayed, and those that were not crawled both before and after `begin`.
    rows : tuple of PolicyCost
    """

    begin: float
    end: float
    sources: int
    left_out: int
    rows: tuple[PolicyCost, ...]

    def to_frame(self) -> polars.DataFrame:
        """Return a polars table (policy, refreshes, value, error, fresh)."""
        import polars

        cells = [(row.policy, row.refreshes, row.cost.value, row.cost.error, row.fresh) for row in self.rows]
        return polars.DataFrame(
            cells, schema=["policy", "refreshes", "value", "error", "fresh"], orient="row"
        )

    def facts(self) -> dict[str, Any]:
        """Return it in numbers, as `summary.json` has it."""
        rows = [
            {
                "policy": row.policy,
                "refreshes": row.refreshes,
                "value": row.cost.value,
                "error": None if np.isnan(row.cost.error) else row.cost.error,
                "fresh": row.fresh,
            }
            for row in self.rows
        ]
        window = {"begin": self.begin, "end": self.end}
        return {"held_out": {**window, "sources": self.sources, "left_out": self.left_out, "policies": rows}}


def known_changes(data: CrawlLog | ChangeHistory) -> World:
    """Return the recorded changes as a world to replay.

    A history has all changes; of a crawl log they are placed within the crawl intervals in which they were
    found.

    Examples
    --------
    >>> log = CrawlLog(source=["a"] * 3, time=[0.0, 2.0, 4.0], changed=[0, 1, 0])
    >>> known_changes(log).events(0.0, 4.0)[1].tolist()
    [1.0]
    """
    if isinstance(data, ChangeHistory):
        start, end = data.start, float(np.max(data.end))
        source, time = data.source_index, data.time
    else:
        source, time = _middles(data)
        first = data.offsets[:-1]
        gap = data.interval[first]
        start, end = data.time[first] - np.where(np.isnan(gap), 0.0, gap), data.end
    names = data.sources_
    return World.from_events(
        {"source": names[source], "time": time},
        names=names,
        start=start,
        horizon=end,
        time_unit=data.time_unit,
    )


def backtest(
    log: Log,
    bandwidth: float | str,
    *,
    objective: Objective | None = None,
    importance: Any = None,  # noqa: ANN401 - whatever names sources
    hosts: Any = None,  # noqa: ANN401
    host_limits: Mapping[Any, float | str] | None = None,
    min_rate: float | str = 0.0,
    max_rate: float | str | None = None,
    estimator: Estimator | Callable[[CrawlLog], Estimator] | None = None,
    seed: int = 0,
    share: float = SHARE,
    time_unit: str | None = None,
) -> HeldOut:
    """Evaluate a plan on the held-out last part of its log.

    Parameters
    ----------
    log : CrawlLog, ChangeHistory, path or dataframe
        As `plan` takes it. Of a `ChangeHistory` all changes are known; otherwise a change counts from the
        middle of the crawl interval in which it was found.
    bandwidth, objective, importance, hosts, host_limits, min_rate, max_rate, estimator, seed, time_unit
        As in `plan`.
    share : float
        Of the log's time that is held out, in (0, 1).

    Returns
    -------
    HeldOut
        The costs of the plan, of uniform and proportional rates and of the log's own crawls; ``to_frame()``.

    Raises
    ------
    SourceDataError
        If the share is none, or no source has crawls before and time after it begins.

    Examples
    --------
    >>> import freshopt as fo
    >>> rng = np.random.default_rng(1)
    >>> rows = [(k, day, rng.random() < p) for k, p in ((0, 0.1), (1, 0.7)) for day in range(200)]
    >>> source, time, changed = zip(*rows, strict=True)
    >>> found = fo.backtest(fo.CrawlLog(source, time, changed), bandwidth="2/day")
    >>> [row.policy for row in found.rows]
    ['plan', 'uniform', 'proportional', 'current', 'plan at current']
    """
    crawls, history = as_crawl_log(log, time_unit)
    request = request_of(
        crawls,
        bandwidth,
        1.0,  # of a schedule; it is replayed over the part that is held out
        objective=objective,
        importance=importance,
        hosts=hosts,
        host_limits=host_limits,
        min_rate=min_rate,
        max_rate=max_rate,
        estimator=estimator,
        confidence=0.95,
        seed=seed,
        draws=0,
    )
    return hold_out(crawls, request, history, share)


def hold_out(
    log: CrawlLog, request: PlanRequest, history: ChangeHistory | None = None, share: float = SHARE
) -> HeldOut:
    """Evaluate the plan of a request on the held-out part.

    Where the changes of the sources are known, `history` has all of them.
    """
    if request.constraints is not None:
        raise SourceDataError(
            "a backtest compares rates under a bandwidth and host limits, and no declared constraints. Leave "
            "them out."
        )
    share = as_number(share, "share", "Pass a number between 0 and 1.")
    if not 0.0 < share < 1.0:
        raise SourceDataError(f"the share that is held out is {share}. Pass a number between 0 and 1.")
    begin, end = float(np.min(log.time)), log.end
    split = end - share * (end - begin)
    past = log.time <= split
    kept = np.unique(log.source_index[past])
    if not split > begin:
        raise SourceDataError("the log has no time to hold out. Replay a log of more than one crawl.")
    if not np.any(past & ~np.isnan(log.interval)):
        raise SourceDataError(
            f"no source has a second crawl before {split:g} {log.time_unit}s, where the part held out "
            "begins. There is nothing to learn from. Replay a longer log."
        )
    names = log.sources_[kept]
    *_, sources = learn(_first_part(log, past, kept), request)
    problem = Problem(request.objective, sources, request.bandwidth, _limits(request, sources))
    world = _among(known_changes(log if history is None else history), _shift(log, history), names)
    known_until = log.last_crawl if history is None else history.end + _shift(log, history)
    until = known_until[kept]
    run_in = min(split - begin, end - split)
    origin = max(split - run_in, float(np.min(world.start)))
    horizon = end - origin
    span = np.maximum(np.minimum(until, end) - np.maximum(world.start, split), 0.0)

    def measure(policy: str, *plans: Schedule) -> PolicyCost:
        found = [
            replay(
                plan,
                world,
                origin=origin,
                skip=split - origin,
                end=until,
                importance=sources.importance,
                objective=request.objective,
            )
            for plan in plans
        ]
        return _mean(policy, found, request.objective, sources.importance, span)

    def scheduled(policy: str, solution: Solution) -> PolicyCost:
        plan = schedule(solution, 2.0 * horizon, method_of(request))
        many = BEGINNINGS if len(plan) * BEGINNINGS <= MOST_REFRESHES else 1
        return measure(policy, *(_window(plan, k / many * horizon, horizon) for k in range(many)))

    rows = [scheduled("plan", solve(problem, tolerance=TOLERANCE))]
    for name, solver in (("uniform", Uniform()), ("proportional", Proportional())):
        rows.append(scheduled(name, solver.solve(problem, SolveOptions(certify=False))))
    if history is None:
        rows.append(measure("current", _current(log, kept, origin, horizon)))
        if rows[-1].refreshes > 0.0 and not np.any(problem.lower > 0.0):
            as_many = problem.with_bandwidth(rows[-1].refreshes)
            rows.append(scheduled("plan at current", solve(as_many, tolerance=TOLERANCE)))
    there = int(np.count_nonzero(until > split))
    return HeldOut(split, end, there, len(log.sources_) - there, tuple(rows))


def _window(plan: Schedule, begin: float, length: float) -> Schedule:
    """Return a part of a schedule as one of its own."""
    kept = (plan.time >= begin) & (plan.time < begin + length)
    time = np.minimum(plan.time[kept] - begin, np.nextafter(length, 0.0))
    return Schedule(plan.source[kept], time, length, plan.rates, plan.names, plan.time_unit, plan.method)


def _mean(policy: str, found: list[Replay], objective: Objective, weight: Array, span: Array) -> PolicyCost:
    """Return what a policy cost on average over its beginnings."""
    costs = [run.of(objective) for run in found]
    value, mean = np.mean([(cost.value, cost.mean) for cost in costs], axis=0).tolist()
    # The beginnings meet the same changes: each source's mean over them is one observation.
    name = NAMED.get(type(objective), repr(objective))
    each = np.nan_to_num(np.mean([run.per_source[name] for run in found], axis=0)) * span
    error = float(np.sum(weight[span > 0.0])) * error_over_sources(weight, each, span)
    refreshes = float(np.mean([run.refreshes / (run.end - run.begin) for run in found]))
    fresh = float(np.mean([run.costs["binary"].mean for run in found]))
    return PolicyCost(policy, refreshes, Measured(value, error, mean), fresh)


def _limits(request: PlanRequest, sources: Sources) -> dict[Any, float] | None:
    """Return the limits of hosts with sources to plan for.

    These hosts have a source before the held-out part.
    """
    if request.host_limits is None or sources.host is None:
        return None
    there = set(np.asarray(sources.host).tolist())
    return {host: limit for host, limit in request.host_limits.items() if host in there} or None


def _middles(log: CrawlLog) -> tuple[np.typing.NDArray[np.int64], Array]:
    """Return sources and imputed times of changes.

    They are spread evenly over the crawl intervals in which they were found.
    """
    found = np.flatnonzero(log.changed & ~np.isnan(log.interval))
    many = np.ones(len(found), dtype=np.int64)
    if log.changes is not None:
        told = log.changes[found]
        many = np.where(np.isnan(told), 1.0, np.maximum(told, 1.0)).astype(np.int64)
    row = np.repeat(found, many)
    turn = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
    place = (turn + 0.5) / np.repeat(many, many)
    moment = log.time[row] - (1.0 - place) * log.interval[row]
    if log.last_modified is not None:
        moment = np.where(np.isnan(log.last_modified[row]), moment, log.last_modified[row])
    return log.source_index[row], moment


def _first_part(log: CrawlLog, past: BoolArray, kept: np.typing.NDArray[np.int64]) -> CrawlLog:
    """Return the crawls that are not held out."""
    columns = {
        "source": np.searchsorted(kept, log.source_index[past]),
        "time": log.time[past],
        "elapsed": log.interval[past],
        "changed": log.changed[past],
    }
    for key in OPTIONAL:
        if getattr(log, key) is not None:
            columns[key] = getattr(log, key)[past]
    return derived_log(columns, log.sources_[kept], log.time_unit)


def _shift(log: CrawlLog, history: ChangeHistory | None) -> float:
    """Return the offset of a history's clock against the log's.

    It is added to the history's times; day 0 of the two may differ.
    """
    if history is None or history.origin is None or log.origin is None:
        return 0.0
    return (history.origin - log.origin).total_seconds() / SECONDS[log.time_unit]


def _among(world: World, shift: float, names: np.typing.NDArray[np.generic]) -> World:
    """Return some sources of a recorded world, on another clock."""
    own = np.arange(len(world)) if world.names is None else world.names
    index = np.searchsorted(own, names)
    offsets, time = world.events(-np.inf, np.inf, index)
    return World.from_events(
        {"source": np.repeat(names, np.diff(offsets)), "time": time + shift},
        names=names,
        start=world.start[index] + shift,
        horizon=world.horizon + shift,
        time_unit=world.time_unit,
    )


def _current(log: CrawlLog, kept: np.typing.NDArray[np.int64], origin: float, horizon: float) -> Schedule:
    """Return the log's own crawls as a schedule."""
    place = np.full(len(log.sources_), -1)
    place[kept] = np.arange(len(kept))
    source, time = place[log.source_index], log.time - origin
    inside = np.flatnonzero((source >= 0) & (time >= 0.0) & (time < horizon))
    order = inside[np.lexsort((source[inside], time[inside]))]
    rates = np.bincount(source[order], minlength=len(kept)) / horizon
    return Schedule(
        source[order], time[order], horizon, rates, log.sources_[kept], log.time_unit, "the log's own crawls"
    )
