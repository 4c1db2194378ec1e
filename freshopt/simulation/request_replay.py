"""Replay of caches with lifetimes: what requests saw, counted one by one.

Every source is followed from a fresh copy, request by request and change by change. What a request meets is
counted for it (`freshopt.simulation.request_states`); the average over time, another number, is integrated
beside it between the same fetches (`freshopt.simulation.staleness_integrals`). Neither uses a formula of the
cells that it is compared with.

A request of a source counts w/ζ, its importance over its request rate, so that a mean over requests is an
estimate of Σw·J/Σw. By default it counts 1: the mean is then simply the share of all requests.

Standard errors are those of `freshopt.simulation.standard_errors`. Worlds of the next seeds are independent
samples of changes and requests; a comparison of lifetimes meets the same ones with each, so that the error
of a difference is far below that of its terms.

Cost: that of drawing the changes and requests twice, 20 ns each, and 100 ns a request to add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, SourceDataError
from freshopt.modelling.objective import Objective, Refresh
from freshopt.modelling.sources import Sources
from freshopt.numerics.arrays import LARGEST, Array, IntArray, as_vector
from freshopt.problems.expected_penalty import ExpectedPenalty
from freshopt.problems.synchronization_cost import SynchronizationCost
from freshopt.simulation.change_columns import Asked, Grouped
from freshopt.simulation.change_processes import Changes, PoissonChanges
from freshopt.simulation.replay_result import NAMED, Measured, Replay
from freshopt.simulation.replay_window import Window, grouped_integrals
from freshopt.simulation.request_states import Met, met
from freshopt.simulation.standard_errors import CostSums, enough_runs
from freshopt.simulation.world import World

if TYPE_CHECKING:
    from freshopt.certificates.solution import Solution

# Requests and changes that are in memory at once: 200 MB.
_TOGETHER = 4_000_000.0
# Fetches of an average source in a Poisson world, unless an end is given.
FETCHES = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class CachePolicy:
    """Lifetimes of copies, and how long expired ones are served.

    Attributes
    ----------
    life, grace : ndarray, shape (n,)
        T ≥ 0, which may be infinite, and σ ≥ 0.
    """

    life: Array
    grace: Array

    @classmethod
    def of(cls, solution: Solution, world: World) -> CachePolicy:
        """Return the lifetimes of a solution for a world.

        Raises
        ------
        SourceDataError
            If world and solution do not fit together.
        ObjectiveError
            If the solution's copies are not refreshed on request.
        """
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


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Sums over what the requests of each source saw in one run.

    Attributes
    ----------
    costs : dict of str to ndarray, shape (n,)
    asked : ndarray, shape (n,)
        How many requests there were.
    fetches : Grouped
        When copies were fetched, also before the window.
    """

    costs: dict[str, Array]
    asked: Array
    fetches: Grouped


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
    if measured is not None and type(measured) not in {*NAMED, ExpectedPenalty, SynchronizationCost}:
        raise ObjectiveError(
            f"{measured!r} cannot be measured. Pass an ExpectedPenalty or a SynchronizationCost, or none."
        )
    policy = CachePolicy.of(solution, world)
    window = _window(world, solution, skip, end)
    weight, each_request = _weights(solution.problem.sources, importance, len(world))
    seen: dict[str, CostSums] = {}
    averages: dict[str, CostSums] = {}
    number = CostSums(each_request)
    first: dict[str, float] = {}
    drawn, wanted = _is_drawn(world), _wanted(world, runs)
    run = refreshed = 0
    while not enough_runs([*seen.values(), *averages.values()], run, wanted):
        here = drawn_world(world, run)
        found = seen_by_requests(here, policy, window, measured)
        number.add(found.asked)
        for name, cost in found.costs.items():
            # Relative to the first run's mean: how many requests a source has then adds no variance.
            mean = first.setdefault(name, _mean(cost, found.asked, each_request))
            seen.setdefault(name, CostSums(each_request)).add(cost - mean * found.asked)
        for name, cost in grouped_integrals(here, found.fetches, window, measured).items():
            averages.setdefault(name, CostSums(weight)).add(cost)
        refreshed += window.count(found.fetches)
        run += 1
    everything = float(np.sum(weight[window.span > 0.0]))
    costs = {}
    for name, sums in seen.items():
        more, error = sums.ratio(number.mean, drawn=drawn)
        costs[name] = Measured(everything * (first[name] + more), everything * error, first[name] + more)
    times = {name: sums.measured(window.span, drawn=drawn) for name, sums in averages.items()}
    for found_costs in (costs, times):
        stale = found_costs["binary"]
        found_costs["binary"] = Measured(everything - stale.value, stale.error, 1.0 - stale.mean)
    with np.errstate(invalid="ignore", divide="ignore"):
        per_source = {
            name: np.where(number.mean > 0.0, sums.mean / number.mean + first[name], np.nan)
            for name, sums in seen.items()
        }
    return Replay(
        costs,
        per_source,
        float(np.min(window.first)),
        float(np.max(window.until)),
        world.time_unit,
        refreshed / run,
        0.0,
        run,
        float(np.sum(number.mean)),
        times,
    )


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
    objective = base.problem.objective
    key = NAMED.get(type(objective), repr(objective))
    sign = -1.0 if objective.sense == "maximise" else 1.0
    policies = {name: CachePolicy.of(solution, world) for name, solution in solutions.items()}
    window = _window(world, base, skip, end)
    weight, each_request = _weights(base.problem.sources, None, len(world))
    sums = {name: CostSums(each_request) for name in names[1:]}
    number = CostSums(each_request)
    first: dict[str, float] = {}
    drawn, wanted = _is_drawn(world), _wanted(world, runs)
    run = 0
    while not enough_runs(sums.values(), run, wanted):
        here = drawn_world(world, run)
        found = {
            name: seen_by_requests(here, policy, window, _objective_of(base))
            for name, policy in policies.items()
        }
        asked = found[names[0]].asked
        number.add(asked)
        for name, own in sums.items():
            cost = found[name].costs[key] - found[names[0]].costs[key]
            mean = first.setdefault(name, _mean(cost, asked, each_request))
            own.add(cost - mean * asked)
        run += 1
    everything = float(np.sum(weight[window.span > 0.0]))
    result = {}
    for name, own in sums.items():
        more, error = own.ratio(number.mean, drawn=drawn)
        mean = sign * (first[name] + more)
        result[name] = Measured(everything * mean, everything * error, mean)
    return result


def seen_by_requests(world: World, policy: CachePolicy, window: Window, objective: Objective | None) -> Seen:
    """Return what the requests in a window saw.

    Their costs are sums per source, for unit importance.
    """
    n, latest = len(world), float(np.max(window.until))
    asked, counts = np.zeros(n), np.zeros(n + 1, dtype=np.int64)
    costs: dict[str, list[Array]] = {}
    times: list[Array] = []
    for part in _parts(world, latest):
        index = np.arange(part.start, part.stop)
        begin = np.array(world.start[part])
        asking = _requests(world)
        offsets, changes = _after(begin, *world.events(-np.inf, latest, index))
        firsts, requests = _after(begin, *asking.collect(asking.begin(index), index, latest))
        here = Asked(firsts, requests, offsets, changes, begin)
        found = met(here, policy.life[part], policy.grace[part])
        source = np.repeat(np.arange(len(index)), np.diff(firsts))
        inside = (requests > window.first[part][source]) & (requests <= window.until[part][source])
        asked[part] = np.bincount(source[inside], minlength=len(index))
        for name, cost in _costs(found, source, objective, world.sources, part).items():
            each = np.bincount(source[inside], cost[inside], len(index)).astype(np.float64)
            costs.setdefault(name, []).append(each)
        counts[part.start + 1 : part.stop + 1] = np.bincount(source[found.fetched], minlength=len(index))
        times.append(requests[found.fetched])
    sums = {name: np.concatenate(parts) for name, parts in costs.items()}
    return Seen(sums, asked, Grouped(np.cumsum(counts), np.concatenate(times)))


def _after(begin: Array, offsets: IntArray, times: Array) -> tuple[IntArray, Array]:
    """Return the events of each source after its beginning."""
    late = times > np.repeat(begin, np.diff(offsets))
    if late.all():
        return offsets, times
    return np.concatenate([[0], np.cumsum(late)])[offsets], times[late]


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


def drawn_world(world: World, run: int) -> World:
    """Return the world, or an independent sample of it.

    What is Poisson in it has the seeds after its own.
    """

    def sampled(process: Changes | None) -> Changes | None:
        if run == 0 or not isinstance(process, PoissonChanges):
            return process
        return replace(process, seed=(process.seed + run) % 2**64)

    changes = sampled(world.changes)
    return world if changes is None else replace(world, changes=changes, requests=sampled(world.requests))


def _objective_of(solution: Solution) -> Objective | None:
    """Return a solution's objective if it is measured beside the four."""
    objective = solution.problem.objective
    return objective if isinstance(objective, ExpectedPenalty | SynchronizationCost) else None


def _requests(world: World) -> Changes:
    if world.requests is None:
        raise TypeError("a world without requests. Make it by World.on_request.")
    return world.requests


def _is_drawn(world: World) -> bool:
    """Return whether another seed would be another sample."""
    return isinstance(world.changes, PoissonChanges) or isinstance(world.requests, PoissonChanges)


def _wanted(world: World, runs: int | None) -> int | None:
    """Return the number of runs; None for as many as errors need."""
    if runs is not None and runs > 1 and not _is_drawn(world):
        raise SourceDataError(f"runs is {runs}. Pass 1 or none; a recorded history happened once.")
    return runs if _is_drawn(world) else 1


def _mean(cost: Array, asked: Array, weight: Array) -> float:
    """Return the weighted mean over requests, of which there must be some."""
    whole = float(weight @ asked)
    if whole <= 0.0:
        raise SourceDataError("there are no requests in the window. Choose a later end.")
    return float(weight @ cost) / whole


def _weights(sources: Sources, importance: npt.ArrayLike | None, n: int) -> tuple[Array, Array]:
    """Return the weights of sources, and of their requests."""
    weight = as_vector(sources.importance if importance is None else importance, n, "importance")
    if not bool(np.all((weight >= 0.0) & (weight <= LARGEST))) or not np.any(weight > 0.0):
        raise SourceDataError(f"importance must be numbers in 0..{LARGEST:g}, not all 0. Correct them.")
    return weight, weight / sources.asked


def _window(world: World, solution: Solution, skip: float, end: npt.ArrayLike | None) -> Window:
    """Return the window in which requests count."""
    n, begin = len(world), float(np.min(world.start))
    if end is None and world.horizon == np.inf:
        rates = solution.rates if np.any(solution.rates > 0.0) else solution.problem.sources.asked
        end = begin + skip + FETCHES * n / float(np.sum(rates))
    until = np.minimum(as_vector(world.horizon if end is None else end, n, "end"), world.horizon)
    first = np.maximum(world.start, begin + skip)
    if not (skip >= 0.0 and np.isfinite(until).all() and np.any(first < until)):
        raise SourceDataError(
            f"nothing is left to count from {begin + skip:g} to {float(np.max(until)):g}. Choose another "
            "skip or end."
        )
    for process in (world.changes, world.requests):
        if isinstance(process, PoissonChanges):
            process.require_few(np.zeros(1), np.arange(n), float(np.max(until)), np.sum)
    return Window(begin, first, until)


def _parts(world: World, end: float) -> Iterator[slice]:
    """Yield slices of sources whose events fit in memory."""
    expected = np.zeros(len(world))
    for process in (world.changes, world.requests):
        if isinstance(process, PoissonChanges):
            expected = expected + process.rates[:, 0] * end
    turn = np.floor(np.cumsum(expected + 1.0) / _TOGETHER)
    edges = [0, *(np.flatnonzero(np.diff(turn)) + 1).tolist(), len(world)]
    for a, b in pairwise(edges):
        if b > a:
            yield slice(a, b)


def is_on_request(policy: object) -> bool:
    """Return whether it is a solution of copies refreshed on request."""
    objective = getattr(getattr(policy, "problem", None), "objective", None)
    return getattr(objective, "refresh", None) is Refresh.ON_REQUEST
