"""Replay of caches with lifetimes: what requests saw, counted one by one.

Every source is followed from a fresh copy, request by request and change by change. What a request meets is
counted for it (`freshopt.simulation.request_replay`); the average over time, another number, is integrated
beside it between the same fetches (`freshopt.simulation.staleness_integrals`). Neither uses a formula of the
cells that it is compared with.

A request of a source counts w/ζ, its importance over its request rate, so that a mean over requests is an
estimate of Σw·J/Σw. By default it counts 1: the mean is then simply the share of all requests.

Standard errors are those of `freshopt.simulation.standard_errors`. Worlds of the next seeds are independent
samples of changes and requests; a comparison of lifetimes meets the same ones with each, so that the error
of a difference is far below that of its terms.

Cost: that of drawing the changes and requests twice, 20 ns each, and 100 ns a request to add up.

States of copies that requests meet, under schedules or lifetimes. Where requests are a Poisson process
independent of the copies (PASTA), the share of them that meet a fresh copy is the time average of freshness,
weighted by the rate of requests. Where they come in waves, or when something has changed, it is not: then
each request is matched with the state of its copy (`fresh_requests`).

In a cache a request that finds its copy older than the lifetime T fetches it and meets a fresh one. With a
window σ of stale-while-revalidate a request at an age in T..T + σ still meets the old copy, and has it
fetched meanwhile. Fetches take no time.

Cost: of a schedule a sort of requests and refreshes, 10-100 ns each; of a cache 20 ns a request and change,
compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_float64
from freshopt.problems.expected_penalty import ExpectedPenalty
from freshopt.problems.synchronization_cost import SynchronizationCost
from freshopt.simulation.change_processes import PoissonChanges
from freshopt.simulation.loops import Events, loops
from freshopt.simulation.replay_result import NAMED, Measured, Replay
from freshopt.simulation.staleness_integrals import (
    Refreshes,
    Window,
    after,
    expected_events,
    grouped_integrals,
    parts_of,
    require_measured,
    sources_of,
    window_of,
)
from freshopt.simulation.standard_errors import Run, drawn_world, measured_runs, runs_wanted, weights_of
from freshopt.simulation.world import World

if TYPE_CHECKING:
    from freshopt.certificates.solution import Solution

Requests: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]

# Largest number of requests that are sampled: 16 GB of them.
MOST = 10**9


class Met(NamedTuple):
    """What each request meets, source by source.

    Changes that the copy has missed, the age of the oldest of them (0 if there is none), the age of the copy,
    and whether it is fetched because of the request.
    """

    missed: IntArray
    oldest: Array
    age: Array
    fetched: BoolArray


def met(requests: Events, changes: Events, begin: Array, life: Array, grace: Array) -> Met:
    """Return what each request meets, from fresh copies on.

    Examples
    --------
    Requests at 1, 3 and 4 of a copy that lives 2 and changes at 0.5: the second request fetches it.

    >>> requests = Events(np.array([0, 3]), np.array([1.0, 3.0, 4.0]))
    >>> changes = Events(np.array([0, 1]), np.array([0.5]))
    >>> met(requests, changes, begin=np.zeros(1), life=np.array([2.0]), grace=np.zeros(1)).missed
    array([1, 0, 0])
    """
    many = len(requests.times)
    found = Met(
        np.zeros(many, dtype=np.int64), np.zeros(many), np.zeros(many), np.zeros(many, dtype=np.bool_)
    )
    loops()["serve"](requests, changes, begin, life, grace, *found)
    return found


def fresh_requests(
    world: World, refreshes: Refreshes, wanted: Requests | int, weight: Array, window: Window, seed: int
) -> tuple[Array, Array]:
    """Return the numbers of fresh and of all requests, per source.

    `wanted` are which, or how many, drawn at rates in proportion to the weights.
    """
    source, time = _drawn(wanted, weight, window, seed) if isinstance(wanted, int) else _given(wanted, window)
    if not len(source):
        raise SourceDataError("there are no requests in the window. Pass some, or a number of them.")
    n = len(world)
    start = np.maximum(world.start, window.begin)
    late = refreshes[1] >= start[refreshes[0]]
    # All copies are fresh at first; at one moment a request comes after a refresh.
    who = np.concatenate([np.arange(n), refreshes[0][late], source])
    when = np.concatenate([start, refreshes[1][late], time])
    keep = np.zeros(len(who), dtype=np.bool_)
    keep[n + np.count_nonzero(late) :] = True
    order = np.argsort(when, kind="stable")
    who, when, keep = who[order], when[order], keep[order]
    missed = world.changes.poll(world.changes.begin(np.arange(n)), who, when, keep)
    asked = who[keep]
    fresh = asked[missed[keep] == 0]
    return as_float64(np.bincount(fresh, minlength=n)), as_float64(np.bincount(asked, minlength=n))


def _drawn(many: int, weight: Array, window: Window, seed: int) -> tuple[IntArray, Array]:
    """Return Poisson requests, given their total number."""
    if not 0 <= many <= MOST:
        raise SourceDataError(f"requests is {many}. Pass at most {MOST} requests.")
    random = np.random.default_rng([seed, 1])
    edges = np.cumsum(weight * window.span)
    source = np.searchsorted(edges, random.random(many) * edges[-1], side="right")
    return source, window.first[source] + random.random(many) * window.span[source]


def _given(wanted: Requests, window: Window) -> tuple[IntArray, Array]:
    """Return the given requests that fall into the window."""
    try:
        given, moments = wanted
        time = np.asarray(moments, dtype=np.float64)
        places = np.asarray(given, dtype=np.float64)
        source = np.where(np.isfinite(places), places, -1.0).astype(np.int64)
    except (TypeError, ValueError, OverflowError):
        raise SourceDataError(
            "requests must be a number, or a pair: positions of sources, and times. Pass (source, time)."
        ) from None
    n = len(window.first)
    if source.shape != time.shape or source.ndim != 1 or not np.isfinite(time).all():
        raise SourceDataError(
            f"requests have sources of shape {source.shape} and times of shape {time.shape}. Give each both."
        )
    if len(source) and not (source.min() >= 0 and source.max() < n):
        raise SourceDataError(f"requested sources range over {source.min()}..{source.max()}. Use 0..{n - 1}.")
    inside = (time >= window.first[source]) & (time <= window.until[source])
    return source[inside], time[inside]


# Fetches of an average source in a Poisson world, unless an end is given.
FETCHES = 1000.0


class CachePolicy(NamedTuple):
    """Lifetimes of copies, and how long expired ones are served."""

    life: Array
    grace: Array

    @classmethod
    def of(cls, solution: Solution, world: World) -> CachePolicy:
        """Return the lifetimes of a solution for a world."""
        sources, n = solution.problem.sources, len(world)
        life = solution.lifetimes
        if world.requests is None:
            raise SourceDataError(
                "the world has no requests, and lifetimes count from them. Make it by World.on_request."
            )
        if len(life) != n or sources.time_unit != world.time_unit:
            raise SourceDataError(
                f"the solution is for {len(life)} sources per {sources.time_unit}, the world has {n} per "
                f"{world.time_unit}. Replay it in the world of its own sources."
            )
        grace = sources.stale_while_revalidate
        return cls(life, np.zeros(n) if grace is None else np.array(grace, dtype=np.float64))


class Seen(NamedTuple):
    """What the requests of each source saw, and when copies were fetched."""

    costs: dict[str, Array]
    asked: Array
    fetches: Events


def replay_on_request(
    solution: Solution,
    world: World,
    *,
    skip: float = 0.0,
    end: npt.ArrayLike | None = None,
    importance: npt.ArrayLike | None = None,
    objective: Objective | None = None,
    runs: int | None = None,
) -> Replay:
    """Measure what requests saw; see `freshopt.simulation.replaying.replay`."""
    measured = _objective_of(solution) if objective is None else objective
    require_measured(measured)
    policy = CachePolicy.of(solution, world)
    window = _window(world, solution, skip, end)
    sources = solution.problem.sources
    weight = weights_of(sources.importance if importance is None else importance, len(world))
    drawn, wanted = runs_wanted(world, runs)

    def one(run: int) -> Run:
        here = drawn_world(world, run)
        found = seen_by_requests(here, policy, window, measured)
        costs = grouped_integrals(here, found.fetches, window, measured)
        return Run(costs, window.count(found.fetches), seen=found.costs, asked=found.asked)

    found = measured_runs(
        one, weight, window, drawn=drawn, wanted=wanted, each_request=weight / sources.asked
    )
    first, last = float(np.min(window.first)), float(np.max(window.until))
    return found.replay(first, last, world.time_unit, over_requests=True)


def compare_lifetimes(
    solutions: Mapping[str, Solution],
    world: World,
    *,
    skip: float = 0.0,
    end: npt.ArrayLike | None = None,
    runs: int | None = None,
) -> dict[str, Measured]:
    """Measure by how much each solution's requests fare better than the first's.

    All meet the same changes and requests, and differences are taken source by source.

    Parameters
    ----------
    solutions : mapping of str to Solution
        Of one problem; at least two.
    world, skip, end, runs
        As `freshopt.replay` takes them. The default end is the first solution's.

    Returns
    -------
    dict of str to Measured
        One for each solution but the first: the objective's value less the first's, in the declared sense.
        It is negative where a maximised objective fares worse.

    Raises
    ------
    SourceDataError
        As `freshopt.replay`; or if there are fewer than two solutions.
    ObjectiveError
        As `freshopt.replay`; or if the objectives differ.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[0.1, 4.0], request_rate=[3.0, 2.0])
    >>> fresh = fo.problems.BinaryFreshness(fo.Refresh.ON_REQUEST)
    >>> problem = fo.Problem(fresh, sources, bandwidth=1.0)
    >>> rules = {"optimal": fo.solve(problem), "one lifetime": fo.solve(problem, fo.solvers.LifetimeRule())}
    >>> world = fo.World.on_request(sources, seed=1)
    >>> found = fo.simulation.compare_lifetimes(rules, world, end=2000.0, skip=100.0)
    >>> found["one lifetime"].value < -10.0 * found["one lifetime"].error
    True
    """
    names = list(solutions)
    if len(names) < 2:
        raise SourceDataError(f"there are {len(names)} solutions to compare. Pass two or more.")
    base = solutions[names[0]]
    others = {repr(solution.problem.objective) for solution in solutions.values()}
    if len(others) > 1:
        raise ObjectiveError(f"the solutions have {len(others)} objectives. Solve them for one.")
    objective, sources = base.problem.objective, base.problem.sources
    key = NAMED.get(type(objective), repr(objective))
    sign = -1.0 if objective.sense == "maximise" else 1.0
    policies = [CachePolicy.of(solution, world) for solution in solutions.values()]
    window = _window(world, base, skip, end)
    weight = weights_of(sources.importance, len(world))
    drawn, wanted = runs_wanted(world, runs)

    def one(run: int) -> Run:
        here = drawn_world(world, run)
        first, *rest = (seen_by_requests(here, each, window, _objective_of(base)) for each in policies)
        differences = {
            name: found.costs[key] - first.costs[key] for name, found in zip(names[1:], rest, strict=True)
        }
        return Run(seen=differences, asked=first.asked)

    found = measured_runs(
        one, weight, window, drawn=drawn, wanted=wanted, each_request=weight / sources.asked
    )
    return {name: Measured(sign * one.value, one.error, sign * one.mean) for name, one in found.seen.items()}


def seen_by_requests(world: World, policy: CachePolicy, window: Window, objective: Objective | None) -> Seen:
    """Return what the requests in a window saw.

    Their costs are sums per source, for unit importance.
    """
    n, latest = len(world), float(np.max(window.until))
    asked, counts = np.zeros(n), np.zeros(n + 1, dtype=np.int64)
    costs: dict[str, list[Array]] = {}
    times: list[Array] = []
    asking = world.requests
    if asking is None:
        raise TypeError("a world without requests. Make it by World.on_request.")
    for part in parts_of(expected_events(world.changes, latest) + expected_events(asking, latest)):
        index = np.arange(part.start, part.stop)
        begin = np.array(world.start[part])
        changes = after(begin, *world.events(-np.inf, latest, index))
        requests = after(begin, *asking.collect(asking.begin(index), index, latest))
        found = met(requests, changes, begin, policy.life[part], policy.grace[part])
        source, time = sources_of(requests), requests.times
        inside = (time > window.first[part][source]) & (time <= window.until[part][source])
        asked[part] = np.bincount(source[inside], minlength=len(index))
        for name, cost in _costs(found, source, objective, world.sources, part).items():
            each = np.bincount(source[inside], cost[inside], len(index)).astype(np.float64)
            costs.setdefault(name, []).append(each)
        counts[part.start + 1 : part.stop + 1] = np.bincount(source[found.fetched], minlength=len(index))
        times.append(time[found.fetched])
    sums = {name: np.concatenate(parts) for name, parts in costs.items()}
    return Seen(sums, asked, Events(np.cumsum(counts), np.concatenate(times)))


def _costs(
    found: Met, source: IntArray, objective: Objective | None, sources: Sources | None, part: slice
) -> dict[str, Array]:
    """Return each cost of each request."""
    most = int(found.missed.max(initial=0))
    numbers = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1.0, most + 1.0))])
    costs = {
        "binary": (found.missed > 0).astype(np.float64),
        "harmonic": numbers[found.missed],
        "delay": found.missed.astype(np.float64),
        "age": found.oldest,
    }
    if isinstance(objective, ExpectedPenalty):
        table = np.asarray(objective.penalty(np.arange(most + 1.0)), dtype=np.float64)
        costs[repr(objective)] = table[found.missed]
    elif isinstance(objective, SynchronizationCost) and sources is not None:
        curve = objective.curve(sources.take(part)).take(source)
        costs[repr(objective)] = np.asarray(curve.at(found.age, *curve.parameters), dtype=np.float64)
    return costs


def _objective_of(solution: Solution) -> Objective | None:
    """Return a solution's objective if it is measured beside the four."""
    objective = solution.problem.objective
    return objective if isinstance(objective, ExpectedPenalty | SynchronizationCost) else None


def _window(world: World, solution: Solution, skip: float, end: npt.ArrayLike | None) -> Window:
    """Return the window in which requests count."""
    n, begin = len(world), float(np.min(world.start))
    if end is None:
        end = world.horizon
        if world.horizon == np.inf:
            rates = solution.rates if np.any(solution.rates > 0.0) else solution.problem.sources.asked
            end = begin + skip + FETCHES * n / float(np.sum(rates))
    window = window_of(world, begin, skip, end, world.horizon)
    for process in (world.changes, world.requests):
        if isinstance(process, PoissonChanges):
            process.require_few(np.zeros(1), np.arange(n), float(np.max(window.until)), np.sum)
    return window


def is_on_request(policy: object) -> bool:
    """Return whether it is a solution of copies refreshed on request."""
    objective = getattr(getattr(policy, "problem", None), "objective", None)
    return getattr(objective, "refresh", None) is Refresh.ON_REQUEST
