"""Costs of policies in one held-out window.

Static rates are replayed exactly (`freshopt.simulation.static_costs`): no phase is drawn, and copies have the
ages that the rates give them. Of costs that are no function of missed changes schedules are replayed over
several beginnings instead, each after a run-in as long as the window, or as the record reaches back. So are
attempts of which some fail, from where the record begins.

Where crawls hid changes, a policy is measured in each sample of them (`HeldOutWindow.drawn`), and its cost is
the mean; beside it stands by how much it exceeds the cost of the changes as they were found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from freshopt.estimators.estimator import Estimator
from freshopt.logs.crawl_log import CrawlLog
from freshopt.modelling.fetches.conditional_fetches import changed_costs
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.objective_numerics import numerics_of
from freshopt.modelling.phased_objective import PhasedObjective
from freshopt.modelling.problem import Problem
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, SMALLEST, Array, BoolArray, IntArray
from freshopt.planning.failing_window import Statuses, recorded_attempts
from freshopt.planning.good_phases import phase_savings
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.hindsight import best_rates
from freshopt.planning.plan_steps import method_of
from freshopt.planning.policy_cost import Measurement, PolicyCost
from freshopt.planning.wishes import Wishes
from freshopt.problems.binary_freshness import BinaryFreshness
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.refresh_order import points, points_before
from freshopt.scheduling.schedule import Schedule
from freshopt.simulation.replay_result import NAMED
from freshopt.simulation.replay_window import Refreshes, Window, integrals
from freshopt.simulation.replaying import replay
from freshopt.simulation.static_costs import ChangeWindow, has_static_cost, static_costs

# From one of a window's worlds, by its number, and a part of it to what each source cost there, and for how
# long its copy was stale.
Costs = Callable[[int, ChangeWindow], tuple[Array, Array]]
# Gauss nodes of the sources' posteriors and their weights.
Nodes = tuple[Array, Array]
# Beginnings of a replayed schedule, shared among a window's worlds; with more refreshes its gaps are short,
# and one is enough.
BEGINNINGS, MOST_REFRESHES = 9, 2_000_000


@dataclass(frozen=True, slots=True, eq=False)
class PolicyReplay:
    """A policy's measured cost in one window.

    Attributes
    ----------
    policy : str
    window : HeldOutWindow
    bandwidth : float
    refreshes : float
        Per time unit, of the sources that are there (`HeldOutWindow.per_time`).
    predicted : float or None
        Cost of these sources, also of a maximised objective.
    cost : Measurement
    stale : float
        Share of the time that copies were stale, weighted by importance.
    per_source : ndarray, shape (N,)
        Of each source of the log its cost over its window, by importance; 0 of those that are not there.
    over_time : ndarray, shape (parts,)
        Cost in each part of the window, of the sources that are there; NaN where it is not measured.
    """

    policy: str
    window: HeldOutWindow
    bandwidth: float
    refreshes: float
    predicted: float | None
    cost: Measurement
    stale: float
    per_source: Array
    over_time: Array


def replay_rates(
    policy: str,
    window: HeldOutWindow,
    request: Wishes,
    problem: Problem,
    rates: Array,
    bandwidth: float,
    *,
    nodes: Nodes | None = None,
    predicted: bool = True,
) -> PolicyReplay:
    """Return the cost of static rates in a window.

    It is predicted under the posterior whose nodes are given, or at the problem's change rates.
    """
    objective = request.objective
    fresh = BinaryFreshness(objective.refresh)

    def costs(world: int, changes: ChangeWindow) -> tuple[Array, Array]:
        if has_static_cost(objective):
            return static_costs(changes, rates, objective), static_costs(changes, rates, fresh)
        each = window.worlds[world]
        if changes is each.changes:
            return _scheduled(each, request, problem, rates, beginnings(window))
        # Replays of several beginnings for each part would take long.
        return np.full(len(rates), np.nan), np.full(len(rates), np.nan)

    expected = predicted_cost(window, problem, rates, nodes) if predicted else None
    weight, refreshes = problem.sources.importance, used_rate(window, rates)
    if window.outcomes is not None:
        tried = attempted_costs(window, objective, rates, request.seed)
        return measured(policy, window, weight, bandwidth, refreshes, expected, tried)
    return measured(policy, window, weight, bandwidth, refreshes, expected, costs)


def used_rate(window: HeldOutWindow, rates: Array) -> float:
    """Return the refreshes per time unit of the sources that are there."""
    return window.per_time(rates * window.span)


def predicted_cost(
    window: HeldOutWindow, problem: Problem, rates: Array, nodes: Nodes | None = None
) -> float | None:
    """Return the cost that is expected of rates.

    Of the sources that are there.

    None where the problem has no formula for it, or it is infinite.

    Parameters
    ----------
    window : HeldOutWindow
    problem : Problem
    rates : ndarray, shape (n,)
    nodes : (ndarray, ndarray), optional
        Change rates and their probabilities, shape (n, number); by default the problem's change rates.
    """
    sources, phased = problem.sources, problem.objective
    objective = phased.objective if isinstance(phased, PhasedObjective) else phased
    at, weights = nodes if nodes is not None else (sources.change_rate[:, None], np.ones((len(rates), 1)))
    amount = np.zeros(len(rates))
    for rate, weight in zip(at.T, weights.T, strict=True):
        own = sources.with_change_rate(rate)
        numerics = numerics_of(objective, own)[0]
        if numerics is None:
            return None
        with np.errstate(all="ignore"):
            amount += weight * numerics.cost(rates)
        if objective is not phased:
            amount -= weight * phase_savings(problem, rates, own)
    total = window.per_time(amount * window.span, sources.importance)
    return total if np.isfinite(total) else None


def nodes_of(estimate: Estimator) -> Nodes:
    """Return the Gauss nodes of an estimator's posteriors.

    At the estimate where there is none.
    """
    nodes, weights = estimate.nodes()
    blank = ~np.isfinite(nodes)
    at = np.where(blank, estimate.change_rate_[:, None], nodes)
    return np.clip(at, SMALLEST, LARGEST), np.where(np.isnan(weights), 1.0 / weights.shape[1], weights)


def replay_crawls(
    policy: str,
    window: HeldOutWindow,
    objective: Objective,
    weight: Array,
    crawls: Sequence[Refreshes],
    bandwidth: float | None,
) -> PolicyReplay:
    """Return the cost of crawls at given times.

    In each of a window's worlds.

    They are given source by source; without a bandwidth they are it. Where fetches fail, they are attempts.
    """
    refreshes, runs = [], []
    for source, moment in crawls:
        inside = (moment >= window.changes.first[source]) & (moment <= window.changes.until[source])
        many = np.bincount(source[inside], minlength=len(window.span))
        refreshes.append(mean_rate(window, many, window.span))
        answered = np.ones(len(source), dtype=np.bool_)
        if window.outcomes is not None:
            answered = window.outcomes.of(source, moment)
        runs.append([(source[answered], moment[answered])])
    mean = float(np.mean(refreshes[-len(window.drawn) :] if window.drawn else refreshes))
    used = mean if bandwidth is None else bandwidth
    return measured(policy, window, weight, used, mean, None, crawl_costs(window, objective, runs))


def mean_rate(window: HeldOutWindow, count: Array | IntArray, time: Array) -> float:
    """Return counts over times per source that is there, times their number."""
    there = window.there
    return float(np.count_nonzero(there) * np.sum(count[there]) / np.sum(time[there]))


def crawl_costs(window: HeldOutWindow, objective: Objective, runs: Sequence[Sequence[Refreshes]]) -> Costs:
    """Return what crawls that succeed cost.

    Over several runs in each of a window's worlds.
    """
    # All copies are fresh when their records begin, and crawls before the window are there.
    begin = float(np.min(window.world.start))
    name = NAMED.get(type(objective), repr(objective))
    other = None if type(objective) in NAMED else objective

    def costs(world: int, changes: ChangeWindow) -> tuple[Array, Array]:
        within = Window(begin, changes.first, changes.until)
        found = [integrals(window.worlds[world].world, each, within, other) for each in runs[world]]
        cost, stale = (np.mean([one[key] for one in found], axis=0) for key in (name, "binary"))
        return cost, stale

    return costs


def attempted_costs(window: HeldOutWindow, objective: Objective, rates: Array, seed: int) -> Costs:
    """Return what attempts at static rates cost, of which some fail.

    Equal gaps begin at several phases that divide a gap evenly, after a random one of each source.
    """
    assert window.outcomes is not None, "asked before"
    begin = float(np.min(window.world.start))
    length = window.end - begin
    shared = beginnings(window)
    many = shared if shared * float(np.sum(rates)) * length <= MOST_REFRESHES else 1
    first = np.random.default_rng([seed, 23]).random(len(rates))
    runs = []
    for k in range(many):
        if objective.refresh is Refresh.PERIODIC:
            phase = (first + k / many) % 1.0
            count = points_before(length, rates, phase)
            source, time = np.repeat(np.arange(len(rates)), count), points(count, phase, rates)
        else:
            count, time = PoissonArrivals(seed + k).arrivals(rates, length)
            source = np.repeat(np.arange(len(rates)), count)
            order = np.lexsort((time, source))
            time = time[order]
        succeed = window.outcomes.of(source, begin + time)
        runs.append((source[succeed], begin + time[succeed]))
    return crawl_costs(window, objective, [runs] * len(window.worlds))


def beginnings(window: HeldOutWindow) -> int:
    """Return at how many phases schedules begin.

    In each of a window's worlds.
    """
    return -(-BEGINNINGS // len(window.worlds))


def replay_partly(
    policy: str,
    window: HeldOutWindow,
    problem: Problem,
    rates: Array,
    placed: BoolArray,
    crawls: Refreshes,
    bandwidth: float,
    predicted: float | None,
) -> PolicyReplay:
    """Return the cost of rates of which some have given times.

    The crawls are of the sources that are `placed`, source by source; the others have a random phase.
    """
    objective = problem.objective
    kinds = (objective, BinaryFreshness(objective.refresh))
    of_crawls = crawl_costs(window, objective, [[crawls]] * len(window.worlds))

    def costs(world: int, changes: ChangeWindow) -> tuple[Array, Array]:
        cost, stale = (
            np.where(placed, each, static_costs(changes, rates, kind))
            for each, kind in zip(of_crawls(world, changes), kinds, strict=True)
        )
        return cost, stale

    weight, used = problem.sources.importance, used_rate(window, rates)
    return measured(policy, window, weight, bandwidth, used, predicted, costs)


def hindsight_rates(
    window: HeldOutWindow, objective: Objective, problem: Problem, refreshes: float | None = None
) -> Array:
    """Return the best static rates for the changes of the window itself.

    Parameters
    ----------
    window : HeldOutWindow
    objective : Objective
    problem : Problem
    refreshes : float, optional
        Per time unit, of the sources that are there; by default the problem's bandwidth.
    """
    weight, there, span = problem.sources.importance, window.there, window.span
    bandwidth = float(problem.bandwidth) if refreshes is None else refreshes
    # Refreshes of a source that leaves early take a smaller part of the bandwidth, those of one gone none.
    part = np.where(there, span / np.mean(span[there]), 1.0)
    known = window.drawn or (window,)
    taken = best_rates(
        lambda used: (
            weight * np.mean([static_costs(one.changes, used / part, objective) for one in known], axis=0)
        ),
        bandwidth,
        np.where(there, problem.lower * part, 0.0),
        np.where(there, problem.upper * part, 0.0),
    )
    return taken / part


def replay_own_crawls(
    policy: str,
    window: HeldOutWindow,
    request: Wishes,
    sources: Sources,
    log: CrawlLog,
    statuses: Statuses | None = None,
) -> PolicyReplay:
    """Return the cost of a log's own crawls, at their own bandwidth.

    Parameters
    ----------
    policy : str
    window : HeldOutWindow
    request : Wishes
    sources : Sources
        Of the window.
    log : CrawlLog
    statuses : Statuses, optional
        The fetches behind the log, with those that failed.
    """
    rows, (source, moment) = own_crawls(log, window)
    inside = (moment >= window.changes.first[source]) & (moment <= window.changes.until[source])
    n = len(window.span)
    answered = np.bincount(source[inside], minlength=n).astype(np.float64)
    asked = answered
    if statuses is not None:
        asked = recorded_attempts(window, statuses).astype(np.float64)
    elif request.success is not None:
        asked = answered / request.success(window.past.sources_)
    found = np.bincount(source[inside], weights=log.changed[rows][inside], minlength=n)
    time = window.span + _unseen(log, window)
    refreshes = mean_rate(window, answered if request.retry_at_once else asked, time)
    used = mean_rate(window, asked + changed_costs(sources) * found, time)
    costs = crawl_costs(window, request.objective, [[(source, moment)]] * len(window.worlds))
    return measured(policy, window, sources.importance, used, refreshes, None, costs)


def own_crawls(log: CrawlLog, window: HeldOutWindow) -> tuple[IntArray, Refreshes]:
    """Return a log's crawls of a window's sources, with their rows."""
    place = np.full(len(log.sources_), -1)
    place[window.index] = np.arange(len(window.index))
    source = place[log.source_index]
    rows = np.flatnonzero(source >= 0)
    return rows, (source[rows], log.time[rows])


def _unseen(log: CrawlLog, window: HeldOutWindow) -> Array:
    """Return the time that a source was there after its last crawl.

    Where its window ends with its last crawl, crawls over its length are too many: a record that is cut at
    random ends Σ gap²/2Σ gap after a crawl on average.
    """
    gap = np.nan_to_num(log.interval)
    whole, squares = (np.bincount(log.source_index, each, len(log.sources_)) for each in (gap, gap**2))
    rest = np.divide(squares, 2.0 * whole, out=np.zeros(len(whole)), where=whole > 0.0)
    return np.where(window.changes.until == log.last_crawl[window.index], rest[window.index], 0.0)


def saving(found: Sequence[PolicyReplay], plan: Sequence[PolicyReplay]) -> Measurement:
    """Return the share of the plan's cost that a policy saves."""
    mean = Measurement.mean([one.cost for one in plan])
    return mean.saved_by(Measurement.mean([one.cost for one in found]))


def mean_row(
    found: Sequence[PolicyReplay], plan: Sequence[PolicyReplay] | None, *, maximised: bool
) -> PolicyCost:
    """Return the mean of a policy over windows, in the objective's sense."""
    cost = Measurement.mean([one.cost for one in found])
    saved = None if plan is None else saving(found, plan)
    known = [one.predicted for one in found if one.predicted is not None]
    predicted = float(np.mean(known)) if len(known) == len(found) else None
    realised = cost.value
    if maximised:
        whole = float(np.mean([one.cost.everything for one in found]))
        predicted, realised = None if predicted is None else whole - predicted, whole - realised
    return PolicyCost(
        found[0].policy,
        found[0].window.begin,
        found[-1].window.end,
        float(np.mean([one.bandwidth for one in found])),
        predicted,
        realised,
        cost.error,
        float(np.mean([one.refreshes for one in found])),
        float(1.0 - np.mean([one.stale for one in found])),
        None if saved is None or not np.isfinite(saved.value) else saved.value,
        None if saved is None or not np.isfinite(saved.error) else saved.error,
        float(np.divide(cost.hidden, cost.value)) if cost.value else 0.0,
    )


def measured(
    policy: str,
    window: HeldOutWindow,
    weight: Array,
    bandwidth: float,
    refreshes: float,
    predicted: float | None,
    costs: Costs,
) -> PolicyReplay:
    """Return a policy's measured cost, by what it cost in changes."""
    where = (window.span, window.index, window.total)
    # The changes as they were found come first; of all that are known there is nothing else.
    worlds = list(enumerate(window.worlds))
    drawn = worlds[1:] or worlds
    cost, stale = _mean([costs(k, one.changes) for k, one in drawn])
    found = Measurement.of(weight, cost, *where)
    if window.drawn:
        shown = Measurement.of(weight, costs(0, window.changes)[0], *where)
        found = replace(found, hidden=found.value - shown.value)
    late = Measurement.of(weight, stale, *where)
    share = float(np.divide(late.value, late.everything)) if late.everything else float("nan")
    per_source = np.zeros(window.total)
    per_source[window.index] = weight * cost
    over_time = np.array(
        [
            _mean_cost(weight, _mean([costs(k, one.parts[number]) for k, one in drawn])[0], part.span)
            for number, part in enumerate(window.parts)
        ]
    )
    return PolicyReplay(policy, window, bandwidth, refreshes, predicted, found, share, per_source, over_time)


def _mean(found: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return the means of costs and of stale times."""
    cost, stale = (np.mean(each, axis=0) for each in zip(*found, strict=True))
    return cost, stale


def _mean_cost(weight: Array, cost: Array, span: Array) -> float:
    """Return Σw·(∫cost)/(∫ of all importances), of the sources that are there."""
    there = span > 0.0
    with np.errstate(invalid="ignore"):
        mean = np.divide(weight[there] @ cost[there], weight[there] @ span[there])
    return float(np.sum(weight[there]) * mean)


def _scheduled(
    window: HeldOutWindow, request: Wishes, problem: Problem, rates: Array, phases: int
) -> tuple[Array, Array]:
    """Return costs and stale times of schedules, replayed from several phases."""
    length = window.end - window.begin
    origin = max(window.begin - length, float(np.min(window.world.start)))
    horizon = window.end - origin
    method = method_of(request)
    plan = Schedule(
        *method.times(rates, 2.0 * horizon),
        2.0 * horizon,
        rates,
        window.past.sources_,
        window.past.time_unit,
        repr(method),
    )
    many = phases if len(plan) * phases <= MOST_REFRESHES else 1
    found = [
        replay(
            _part(plan, k / many * horizon, horizon),
            window.world,
            origin=origin,
            skip=window.begin - origin,
            end=window.changes.until,
            importance=problem.sources.importance,
            objective=request.objective,
        )
        for k in range(many)
    ]
    name, span = repr(request.objective), window.span
    cost, stale = (
        np.nan_to_num(np.mean([run.per_source[key] for run in found], axis=0)) * span
        for key in (name, "binary")
    )
    return cost, stale


def _part(plan: Schedule, begin: float, length: float) -> Schedule:
    """Return a part of a schedule as one of its own."""
    kept = (plan.time >= begin) & (plan.time < begin + length)
    time = np.minimum(plan.time[kept] - begin, np.nextafter(length, 0.0))
    return Schedule(plan.source[kept], time, length, plan.rates, plan.names, plan.time_unit, plan.method)
