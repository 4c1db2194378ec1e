"""Simulation of noisy change signals and of crawlers.

Some of a world's changes are missing and some signals are false.

A change is announced with the probability that is its source's recall; a Bernoulli variable of its own
decides, a hash of seed, source and number, so that compared rules receive the same signals (common random
numbers). False signals are a Poisson process of their own, at the rate lΔ(1−p)/p at which a share p of all
signals is true; where rates jump so does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, check_seed, expect
from freshopt.noisy_signals.wait_rule import WaitRule
from freshopt.numerics.arrays import Array, IntArray, as_number, as_vector
from freshopt.numerics.random_streams import uniforms
from freshopt.simulation.change_processes import PoissonChanges
from freshopt.simulation.replay_result import Replay
from freshopt.simulation.staleness_integrals import Window, integrals
from freshopt.simulation.standard_errors import Run, drawn_world, measured_runs, runs_wanted, weights_of
from freshopt.simulation.world import World

# Keys that make the random streams of false signals, recall and rules independent of the changes'.
FALSE, COINS, DRAWS = 0x5DEECE66D, 0x2545F4914F6CDD1D, 0xB7E151628AED2A6B


class SignalRule(Protocol):
    """Crawl rule with signals: `SignalThresholds` or `SignalGreedy`."""

    def crawls(
        self,
        source: npt.ArrayLike,
        time: npt.ArrayLike,
        horizon: float,
        draws: npt.ArrayLike | None = None,
    ) -> tuple[IntArray, Array]:
        """Return the crawls in [0, horizon), given the signals.

        Sources and times; signals are sorted by time.
        """


def noisy_signals(
    world: World,
    recall: npt.ArrayLike,
    precision: npt.ArrayLike,
    end: float,
    seed: int = 0,
    delay: npt.ArrayLike = 0.0,
) -> tuple[IntArray, Array]:
    """Return the noisy signals of a world's sources.

    Up to a time.

    Parameters
    ----------
    world : World
        Its own ``signalled`` is not used.
    recall : scalar or array_like, shape (n,)
        Share of the changes that are announced, in [0, 1].
    precision : scalar or array_like, shape (n,)
        Share of the announcements that are true, in (0, 1].
    end : float
    seed : int
        Decides which changes are announced, and the false signals.
    delay : scalar or array_like, shape (n,)
        Time ≥ 0 from a change to its signal; what would come after the end is left out.

    Returns
    -------
    source : ndarray of int
    time : ndarray
        Sorted by time.

    Raises
    ------
    SourceDataError
        If a share is out of range, or there is no such end.

    Notes
    -----
    A recorded source's false signals come at a constant rate, in proportion to its number of changes.

    Examples
    --------
    >>> world = World.from_events({"source": [0, 0, 1], "time": [1.0, 3.0, 2.0]}, horizon=4.0)
    >>> noisy_signals(world, recall=[1.0, 0.0], precision=1.0, end=4.0)
    (array([0, 0]), array([1., 3.]))
    """
    expect(world, World, "world", "Pass a freshopt.World")
    end = as_number(end, "end", "Pass a finite time.")
    n, seed = len(world), check_seed(seed)
    told, true = as_vector(recall, n, "recall"), as_vector(precision, n, "precision")
    for key, share, good in (
        ("recall", told, (told >= 0.0) & (told <= 1.0)),
        ("precision", true, (true > 0.0) & (true <= 1.0)),
    ):
        if not bool(np.all(good)):
            k = int(np.argmin(good))
            raise SourceDataError(f"{key} of source {k} is {share[k]:g}. It is a share. Correct it.")
    if not float(np.min(world.start)) < end <= world.horizon or not np.isfinite(end):
        raise SourceDataError(
            f"signals are asked for up to {end:g} of a world that ends at {world.horizon:g}. Choose a finite "
            "end in it."
        )
    offsets, time = world.events(-np.inf, end)
    source = np.repeat(np.arange(n), np.diff(offsets))
    number = np.arange(len(time)) - offsets[source]
    heard = uniforms(seed ^ COINS, source, number) < told[source]
    with np.errstate(over="ignore"):  # more false signals than can be sampled raise below
        ratio = told * (1.0 - true) / true
    changes = world.changes
    if isinstance(changes, PoissonChanges):
        edges, rates = changes.edges, changes.rates * ratio[:, None]
        mixed = (changes.seed * 3 + seed + FALSE) % 2**64
    else:
        edges = np.zeros(1)
        rates = (ratio * np.diff(offsets) / (end - world.start))[:, None]
        mixed = (seed + FALSE) % 2**64
    noise = PoissonChanges.of(mixed, edges, np.ascontiguousarray(rates))
    some = np.flatnonzero(np.any(rates > 0.0, axis=1))
    shift = 0.0 if isinstance(changes, PoissonChanges) else float(np.min(world.start))
    places, false = noise.collect(noise.begin(some), some, end - shift)
    false_source = np.repeat(some, np.diff(places))
    false = false + shift
    there = false > world.start[false_source]
    late = as_vector(delay, n, "delay")
    if not bool(np.all((late >= 0.0) & (late < np.inf))):
        raise SourceDataError("delay is no time >= 0 for some source. Pass how much later signals come.")
    who = np.concatenate([source[heard], false_source[there]])
    when = np.concatenate([time[heard] + late[source[heard]], false[there]])
    early = when < end
    who, when = who[early], when[early]
    order = np.lexsort((who, when))
    return who[order], when[order]


def replay_signals(
    rule: SignalRule,
    world: World,
    recall: npt.ArrayLike | None,
    precision: npt.ArrayLike | None,
    horizon: float,
    *,
    delay: npt.ArrayLike = 0.0,
    signals: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    origin: float | None = None,
    skip: float = 0.0,
    end: npt.ArrayLike | None = None,
    importance: npt.ArrayLike | None = None,
    runs: int | None = None,
    seed: int = 0,
) -> Replay:
    """Measure a signal rule's freshness in a world.

    Parameters
    ----------
    rule : SignalThresholds, SignalWaits or SignalGreedy
        Or anything with a method ``crawls(source, time, horizon, draws)``.
    world : World
        `World.poisson`, or `World.from_events`, from time 0 on unless there is an origin.
    recall, precision : scalar or array_like, shape (n,)
        As the signals really are, whatever the rule believes; None of recorded ones.
    horizon : float
        How long the rule is followed.
    delay : scalar or array_like, shape (n,)
        As in `noisy_signals`.
    signals : (source, time), optional
        Recorded signals in place of drawn ones: positions among the world's sources, and the world's times.
    origin : float, optional
        The world's time at which crawls by thresholds or waits begin; all copies are fresh then. Default: 0.
    skip : float
        How much time passes before costs count.
    end : scalar or array_like, shape (n,), optional
        Until when, in the world's time, costs of a source count; by default all the time.
    importance : array_like, scalar or shape (n,), optional
        Default: that of the world's sources, or 1.
    runs : int, optional
        Worlds that are replayed: this one and those of the next seeds. Default: 1 if it is recorded; else
        as many as give the standard errors 20 degrees of freedom: 4 for thresholds or waits of many sources,
        21 for any other rule, under which sources may share slots, so that only the runs' totals are
        independent.
    seed : int
        Of the signals.

    Returns
    -------
    Replay
        Its ``on_signal`` counts the crawls at the very moment of a signal.

    Examples
    --------
    >>> import freshopt as fo
    >>> sources = fo.Sources(change_rate=[1.0, 4.0])
    >>> objective = fo.noisy_signals.NoisySignalFreshness(recall=0.6, precision=0.8)
    >>> solution = fo.solve(fo.Problem(objective, sources, bandwidth=3.0))
    >>> rule = objective.thresholds(solution.rates, sources)
    >>> found = replay_signals(rule, fo.World.poisson(sources, seed=1), 0.6, 0.8, horizon=2000.0)
    >>> abs(found.costs["binary"].z(solution.value)) < 4
    True
    """
    expect(world, World, "world", "Pass a freshopt.World")
    if isinstance(rule, type) or not hasattr(rule, "crawls"):
        raise TypeError(f"rule is of type {type(rule).__name__}. Pass SignalThresholds or a SignalGreedy.")
    seed = check_seed(seed)
    n = len(world)
    skip, horizon = (
        as_number(skip, "skip", "Pass a time."),
        as_number(horizon, "horizon", "Pass a finite time."),
    )
    drawn, wanted = runs_wanted(world, runs)
    begin = 0.0 if origin is None else as_number(origin, "origin", "Pass a time.")
    until = begin + horizon
    if not (0.0 <= skip < horizon and until <= world.horizon and np.isfinite(until)):
        raise SourceDataError(
            f"nothing is left to count from {begin + skip:g} to {until:g} in a world that ends at "
            f"{world.horizon:g}. Choose another horizon or skip."
        )
    if origin is None and float(np.min(world.start)) < 0.0:
        raise SourceDataError("the world begins before time 0. Shift its times, or pass an origin.")
    if begin != 0.0 and not isinstance(rule, WaitRule):
        raise SourceDataError(f"an origin is for thresholds or waits, and not for {type(rule).__name__}.")
    heard = _drawn_or_recorded(recall, precision, delay, signals, n, begin, until)
    own = 1.0 if world.sources is None else world.sources.importance
    weight = weights_of(own if importance is None else importance, n)
    ends = np.minimum(as_vector(until if end is None else end, n, "end"), until)
    window = Window(begin, np.maximum(world.start, begin + skip), ends)
    if not bool(np.any(window.span > 0.0)):
        raise SourceDataError("no source is left to count. Choose another end or skip.")
    shared = not isinstance(rule, WaitRule)

    def one(run: int) -> Run:
        each = drawn_world(world, run)
        source, time = heard(each, (seed + run) % 2**64)
        draws = uniforms((seed + run) % 2**64 ^ DRAWS, source, np.arange(len(source)))
        more = {"last": begin} if begin != 0.0 else {}
        who, when = rule.crawls(source, time, until, draws, **more)
        counted = when[(when >= window.first[who]) & (when <= window.until[who])]
        costs = integrals(each, (who, when), window, None)
        return Run(costs, len(counted), int(np.count_nonzero(np.isin(counted, time))))

    found = measured_runs(one, weight, window, drawn=drawn, wanted=wanted, shared=shared)
    return found.replay(begin + skip, float(np.max(window.until)), world.time_unit)


def _drawn_or_recorded(
    recall: npt.ArrayLike | None,
    precision: npt.ArrayLike | None,
    delay: npt.ArrayLike,
    signals: tuple[npt.ArrayLike, npt.ArrayLike] | None,
    n: int,
    begin: float,
    end: float,
) -> Callable[[World, int], tuple[IntArray, Array]]:
    """Return what makes signals of a world and a seed."""
    if signals is None:
        if recall is None or precision is None:
            raise SourceDataError(
                "signals are to be drawn, but recall or precision is None. Pass both, or "
                "signals=(source, time)."
            )

        def drawn(world: World, seed: int) -> tuple[IntArray, Array]:
            source, time = noisy_signals(world, recall, precision, end, seed, delay)
            return source[time >= begin], time[time >= begin]

        return drawn
    source, time = np.asarray(signals[0], dtype=np.int64), as_vector(signals[1], np.size(signals[1]), "time")
    if source.shape != time.shape or not bool(np.all((source >= 0) & (source < n))):
        raise SourceDataError(
            f"signals are of sources 0 to {n - 1}, one for each time. Pass positions among the world's "
            "sources."
        )
    some = np.flatnonzero((time >= begin) & (time < end))
    order = some[np.lexsort((source[some], time[some]))]
    return lambda _world, _seed: (source[order], time[order])
