"""`replay`: cost of a schedule under recorded or simulated changes.

All copies are fresh when the replay begins. Every cost is integrated exactly between the times of refreshes
and changes (`freshopt.simulation.staleness_integrals`), so that the predictions of an objective are compared
with values that do not depend on its formulas. Signalled sources are refreshed at each of their changes with
the schedule's crawl probability. Where fetches may fail, a coin decides for each.

Where standard errors come from (`freshopt.simulation.standard_errors`). A Poisson world with another seed is
an independent sample of the same process, and so are the refresh times of a random method with another seed:
each run draws both anew, and the spread between runs covers both. Refresh times that stayed the same would be
a sample of one: at a horizon of 60 intervals they contribute as much to the variance of a mean over four runs
as the changes do for binary freshness, and nine times as much for age.

Cost: the refreshes grouped by source, then 20 ns a change and refresh and run, compiled.
"""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from types import NoneType
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from freshopt.compiled import backend
from freshopt.errors import SourceDataError, check_seed, expect, list_offenders
from freshopt.modelling.objective import Objective
from freshopt.numerics.arrays import Array, as_number, as_vector
from freshopt.numerics.random_streams import uniforms
from freshopt.renamed import keywords
from freshopt.scheduling.poisson_arrivals import PoissonArrivals
from freshopt.scheduling.schedule import Schedule
from freshopt.simulation.loops import Events, loops
from freshopt.simulation.replay_result import Replay
from freshopt.simulation.request_replay import Requests, fresh_requests, is_on_request, replay_on_request
from freshopt.simulation.staleness_integrals import Window, grouped, grouped_integrals, sources_of, window_of
from freshopt.simulation.standard_errors import Run, drawn_world, measured_runs, runs_wanted, weights_of
from freshopt.simulation.world import World

if TYPE_CHECKING:
    from freshopt.certificates.solution import Solution
    from freshopt.scheduling.schedule import RandomMethod

# Key that makes the coins of signals independent of the changes of a world with the same seed.
COINS = 0x9FB21C651E98DF25
# The same of the coins that decide which fetches succeed.
FETCHES = 0xD1B54A32D192ED03


@keywords()
def replay(
    schedule: Schedule | Solution,
    world: World,
    *,
    origin: float | None = None,
    skip: float = 0.0,
    end: npt.ArrayLike | None = None,
    importance: npt.ArrayLike | None = None,
    objective: Objective | None = None,
    requests: Requests | int | None = None,
    runs: int | None = None,
    seed: int = 0,
    redraw: bool = True,
    success: npt.ArrayLike | None = None,
) -> Replay:
    """Measure what a schedule costs in a world.

    Under every objective.

    Parameters
    ----------
    schedule : Schedule or Solution
        Of the world's sources, in the world's order and time unit. A solution of copies that are refreshed on
        request has lifetimes instead of a schedule: then what requests saw is counted.
    world : World
        `World.poisson`, or `World.from_events`; `World.on_request` for lifetimes.
    origin : float, optional
        The world's time at which the schedule begins; all copies are fresh then. Default: when the world
        does.
    skip : float
        How much time passes before costs count; by then copies have the ages that the schedule gives them.
    end : scalar or array_like of shape (n,), optional
        Until when, in the world's time, costs count: the end of each source's history. Default: the end of
        the schedule, or of the world if that is earlier; with lifetimes in a Poisson world 1000 fetches of
        an average source.
    importance : array_like, scalar or shape (n,), optional
        Default: that of the world's sources; in a recorded world that of the schedule, or 1.
    objective : Objective, optional
        One to be measured beside the four named: an `ExpectedPenalty`, or a `SynchronizationCost`, whose cost
        is of the copy's age alone.
    requests : int or (source, time), optional
        Share of requests that meet a fresh copy. A number of requests in each run, of Poisson processes with
        rates in proportion to the importances; or each request's source and time, in the world's time.
    runs : int, optional
        Worlds that are replayed: this one and those of the next seeds. Default: 1 if it is recorded; else at
        least 4, and as many as give the standard errors 20 degrees of freedom: 21 for a single source.
    seed : int
        Decides which signals are crawled, and when requests come.
    redraw : bool
        Whether refresh times that a random method drew are drawn anew after the first run: the value is then
        that of the method at these rates. False: the value of these very times, whose expectation
        `freshopt.scheduling.expected_cost` knows. A schedule that was read from a file has only these.
    success : array_like, scalar or shape (n,), optional
        Chance in (0, 1] that a fetch succeeds, independently of all others; one that fails leaves the copy as
        it is, and counts as a refresh all the same. Default: what a Poisson world's sources say, else 1.

    Returns
    -------
    Replay
        A source that is there for a part of the window counts for that part: values are
        Σw·(∫ of all costs)/(∫ of all importances). With lifetimes, costs are means over requests, and
        `Replay.time_average` is beside them.

    Notes
    -----
    A solution's value is the limit of long horizons. Measured from the beginning, costs are lower, as all
    copies are fresh then: under Poisson refreshes at rate ρ by a share of at most 1/(ρ·horizon), for age
    2/(ρ·horizon). After `skip` a copy remembers its beginning with probability exp(−ρ·skip).

    Raises
    ------
    SourceDataError
        If schedule and world do not fit together, or the window is not one of the world.
    ObjectiveError
        If the objective is none that can be measured.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> problem = fo.Problem(fo.problems.BinaryFreshness(fo.Refresh.PERIODIC), sources, bandwidth=10.0)
    >>> solution = fo.solve(problem)
    >>> plan = fo.schedule(solution, horizon=1000.0, method=fo.scheduling.Periodic())
    >>> found = fo.replay(plan, fo.World.poisson(sources, seed=1))
    >>> found
    Replay(10001 refreshes of 2 sources in 0..1000 days, 14 runs: fresh 0.8085 ± 0.0007)
    >>> abs(found.of(problem.objective).z(solution.value)) < 4
    True
    """
    expect(world, World, "world", "Pass a freshopt.World")
    expect(redraw, (bool, np.bool_), "redraw", "Pass True or False")
    for what, number in (("skip", skip), ("origin", origin)):
        expect(number, (Real, NoneType), what, "Pass one number")
        as_number(0.0 if number is None else number, what, "Pass a smaller one.")
    if is_on_request(schedule):
        given = {"origin": origin, "requests": requests}
        unused = [name for name, value in given.items() if value is not None]
        if unused:
            raise SourceDataError(
                f"{unused[0]} is for schedules. Lifetimes are replayed with the requests of the world, from "
                "its beginning. Leave it out."
            )
        return replay_on_request(
            cast("Solution", schedule),
            world,
            skip=skip,
            end=end,
            importance=importance,
            objective=objective,
            runs=runs,
        )
    if not isinstance(schedule, Schedule):
        kind = type(schedule).__name__
        raise TypeError(
            f"schedule is of type {kind}. Pass what freshopt.schedule returns, or a solution of copies that "
            "are refreshed on request."
        )
    n, seed = len(world), check_seed(seed)
    _require_fit(schedule, world)
    begin = float(np.min(world.start)) if origin is None else float(origin)
    horizon = min(begin + schedule.horizon, world.horizon)
    window = window_of(world, begin, skip, horizon if end is None else end, horizon)
    drawn, wanted = runs_wanted(replace(world, requests=None), runs)
    sources = world.sources
    if success is None and sources is not None:
        success = sources.failing
    chance = None if success is None else as_vector(success, n, "success")
    if chance is not None and not bool(np.all((chance > 0.0) & (chance <= 1.0))):
        raise SourceDataError(
            "a success is not in (0, 1]. Correct it, or leave out sources that never answer."
        )
    if importance is None:
        importance = schedule.importance if sources is None else sources.importance
    weight = weights_of(1.0 if importance is None else importance, n)
    clocked = grouped(schedule.source, begin + schedule.time, n)

    def one(run: int) -> Run:
        each, regular = drawn_world(world, run), clocked
        taken = _on_signal(schedule, each, window, seed + run)
        if run and redraw and schedule.random_method is not None:
            regular = _redrawn(schedule, schedule.random_method.redrawn(run), begin)
        refreshes, signals = _merged(regular, taken), 0 if taken is None else window.count(taken)
        if chance is not None:
            refreshes = _succeeded(refreshes, chance, seed + run)
        found = Run(
            grouped_integrals(each, refreshes, window, objective), window.count(regular) + signals, signals
        )
        if requests is None:
            return found
        pairs = sources_of(refreshes), refreshes.times
        fresh, asked = fresh_requests(each, pairs, requests, weight, window, seed + run)
        return found._replace(seen={"requests": fresh}, asked=asked)

    found = measured_runs(one, weight, window, drawn=drawn, wanted=wanted)
    return found.replay(begin + skip, float(np.max(window.until)), world.time_unit)


def _require_fit(schedule: Schedule, world: World) -> None:
    """Raise if a schedule does not fit the world.

    It must be of the same sources, in the same clock, and without signals that do not exist.
    """
    n = len(world)
    if len(schedule.rates) != n:
        raise SourceDataError(
            f"the schedule is for {len(schedule.rates)} sources, the world has {n}. "
            "Replay it in its own world."
        )
    if schedule.time_unit != world.time_unit:
        raise SourceDataError(
            f"the schedule counts {schedule.time_unit}s, the world {world.time_unit}s. Convert one of them."
        )
    if schedule.names is not None and world.names is not None:
        other = np.flatnonzero(np.asarray(schedule.names != world.names)).tolist()
        if other:
            k = other[0]
            raise SourceDataError(
                f"source {k} is {str(schedule.names[k])!r} in the schedule and {str(world.names[k])!r} in "
                "the world. Pass names= to World.from_events in the schedule's order."
            )
    if schedule.crawl_probability is not None:
        silent = np.flatnonzero(~np.isnan(schedule.crawl_probability) & ~world.signalled).tolist()
        if silent:
            raise SourceDataError(
                f"the schedule waits for signals of source {list_offenders(map(str, silent))}, but the world "
                "says that there are none. Pass signalled= when it is made."
            )


def _redrawn(schedule: Schedule, method: RandomMethod, origin: float) -> Events:
    """Return other random refreshes at the schedule's rates, in the world's time."""
    known = schedule.crawl_probability
    rates = schedule.rates if known is None else np.where(np.isnan(known), schedule.rates, 0.0)
    if isinstance(method, PoissonArrivals) and backend.compiled():
        # Their order over all sources is not needed: sorting each source's own is a tenth of the work.
        count, time = method.arrivals(rates, schedule.horizon)
        firsts = np.concatenate([[0], np.cumsum(count)])
        loops()["sort_each"](firsts, time)
        return Events(firsts, origin + time)
    source, time = method.times(rates, schedule.horizon)
    return grouped(source, origin + time, len(schedule.rates))


def _succeeded(refreshes: Events, success: Array, seed: int) -> Events:
    """Return the fetches that succeed, by a Bernoulli draw of each."""
    firsts, times = refreshes
    source = sources_of(refreshes)
    number = np.arange(len(times)) - firsts[:-1][source]
    kept = uniforms(seed % 2**64 ^ FETCHES, source, number) < success[source]
    return Events(np.concatenate([[0], np.cumsum(kept)])[firsts], times[kept])


def _on_signal(schedule: Schedule, world: World, window: Window, seed: int) -> Events | None:
    """Return the refreshes that follow signals.

    Beside random times each change is followed or not by a Bernoulli draw of its own, beside equal gaps
    changes are counted: of a share 1/N every N-th is followed, the first at random. None where there are no
    signals.
    """
    if schedule.crawl_probability is None:
        return None
    heard = np.flatnonzero(schedule.crawl_probability > 0.0)  # NaN is not
    offsets, time = world.events(window.begin, float(np.max(window.until)), heard)
    number = np.arange(len(time)) - np.repeat(offsets[:-1], np.diff(offsets))
    source = np.repeat(heard, np.diff(offsets))
    share = schedule.crawl_probability[source]
    if schedule.random_method is not None:
        taken = uniforms(seed % 2**64 ^ COINS, source, number) < share
    else:
        counted = number * share + uniforms(seed % 2**64 ^ COINS, source, np.zeros(len(source), np.int64))
        taken = np.floor(counted + share) > np.floor(counted)
    return grouped(source[taken], time[taken], len(world))


def _merged(first: Events, second: Events | None) -> Events:
    """Return refreshes of two kinds of sources, source by source."""
    if second is None or not len(second.times):
        return first
    both = first, second
    source = np.concatenate([sources_of(refreshes) for refreshes in both])
    order = np.argsort(source, kind="stable")
    times = np.concatenate([refreshes.times for refreshes in both])
    return Events(first.firsts + second.firsts, times[order])
