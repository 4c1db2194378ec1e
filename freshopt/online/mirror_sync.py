"""`MirrorSync`: mirror descent from periodic refreshes with random probes.

A mirror step follows each round.

A round is as long as the longest refresh interval allowed, 1/r_min, so that every source has at least one
whole interval in it and thereby an unbiased sample of its slope (see `freshopt.online.gradient_probes`).
Under the log barrier −Σ log r a step changes a rate by a share of itself, which fits slopes that grow like
1/r.

Cost: one step per round, 1 ms at a hundred sources; polls as fast as the crawler answers.

`AsyncMirrorSync`, `AsyncProjectedGradientSync`: asynchronous descent for refresh rates. No round has to be
long enough for the slowest source, and no copies are made fresh for free. What it takes instead: a step of
some sources shares out anew what these have together, and an interval during which the rate changed is of no
use as a sample. Such an interval has lost its chance to be probed, and that chance is spent on the update:
with probability ε the source is refreshed at once, else at its new interval after its last refresh.

Of every source the interval that is under way is known: when it began, how long it is to be, its number
(which decides whether and where it is probed), what a probe of it saw, and whether it is whole, that is
not touched by an update. Between two updates all intervals that end are polled at once; those that are whole
are samples. Then the sources with samples take a step, and their intervals are adapted.

The Euclidean steps, in place of mirror steps, are the rival of [1]_: the nearest feasible rates to q − ηg.
One learning rate then serves slopes near rate 0 and at large rates alike, though they differ by decades; so
it has to be small, and progress at first is slow. It needs long cycles, whose averages are less noisy.

Cost: as `MirrorSync`, a step per update.

.. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.modelling.problem import Problem
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.online.gradient_probes import (
    SLACK,
    Descent,
    Polled,
    Spent,
    Synchronization,
    SyncLearner,
    seen_cost,
)
from freshopt.online.learner import State
from freshopt.simulation import Crawler
from freshopt.solvers.mirror_descent import MirrorDescent
from freshopt.solvers.projected_gradient import ProjectedGradient


@dataclass(frozen=True, slots=True)
class MirrorSync(SyncLearner):
    """Synchronous mirror descent from observed costs.

    Learns periodic refresh rates, all sources in step.

    Parameters
    ----------
    learning_rate : float
        η ≥ 0, for the gradient of the weighted mean cost Σ w J/Σ w.
    exploration : float
        ε, the probability with which an interval is probed.
    seed : int
        Of the probes.

    Notes
    -----
    [1]_ takes the first sample of a round; here all of them are averaged, as for its published results. Every
    round begins with all copies fresh, and the refreshes for that are free, as in [1]_: they are counted in
    the history's column ``resets`` and not in ``spent``. `AsyncMirrorSync` does without.

    References
    ----------
    .. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020,
       doi:10.48550/arXiv.2002.12014, Algorithm 1.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.problems import BinaryCost, SynchronizationCost
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 9.0], min_rate=0.1)
    >>> problem = fo.Problem(SynchronizationCost(BinaryCost()), sources, bandwidth=3.0)
    >>> learner = MirrorSync(learning_rate=0.1, seed=1)
    >>> history = learner.run(fo.World.poisson(sources, seed=1), problem, horizon=4000.0)
    >>> history.value[[0, -1]].round(3).tolist(), round(float(history.best[0]), 3)
    ([1.326, 1.274], 1.245)
    """

    learning_rate: float
    exploration: float = 0.05
    seed: int = 0
    descent: ClassVar[Descent] = MirrorDescent()
    _period: ClassVar[str] = "round"

    def __post_init__(self) -> None:
        self._check()

    def _length(self, problem: Problem) -> float:
        return 1.0 / float(np.min(problem.lower))

    def _first(self, rates: Array, origin: float) -> State:  # noqa: ARG002 - each round is begun anew
        return {"interval": np.zeros(len(rates), dtype=np.int64)}

    def _step(
        self, terms: Synchronization, crawler: Crawler, state: State, begin: float, end: float
    ) -> tuple[State, Spent]:
        # All copies fresh, then whole intervals of length 1/r.
        n, rates = len(terms), state["rates"]
        crawler.refresh(np.arange(n), np.full(n, begin))
        counts = (self._length(terms.problem) * rates + SLACK).astype(np.int64)
        source = np.repeat(np.arange(n), counts)
        j = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = state["interval"][source] + j
        interval = 1.0 / rates[source]
        probed = np.where(
            terms.is_probed(source, at), begin + (j + terms.probe_point(source, at)) * interval, np.nan
        )
        polled = terms.play(
            crawler, source, np.minimum(probed, end), np.minimum(begin + (j + 1) * interval, end)
        )
        sums = np.bincount(source, weights=terms.samples(polled, interval), minlength=n)
        gradient = terms.weight * sums / counts
        probes = int(np.count_nonzero(~np.isnan(probed)))
        after: State = {
            "rates": terms.step(
                self.descent, rates, gradient, self.learning_rate, np.ones(n, dtype=np.bool_)
            ),
            "interval": state["interval"] + counts,
            "seen_cost": seen_cost(state["seen_cost"], source, polled.probed),
        }
        return after, Spent(len(source) + probes, probes, n)


@dataclass(frozen=True, slots=True)
class CyclicLearner(SyncLearner):
    """Learner that updates the sampled sources at fixed times."""

    learning_rate: float
    cycle: float
    exploration: float = 0.05
    seed: int = 0
    _period: ClassVar[str] = "cycle"

    def __post_init__(self) -> None:
        self._check()
        if not 0.0 < self.cycle < np.inf:
            raise SourceDataError(f"cycle is {self.cycle}. Pass a time between updates > 0.")

    def _length(self, problem: Problem) -> float:  # noqa: ARG002 - it is a setting
        return float(self.cycle)

    def _first(self, rates: Array, origin: float) -> State:
        n = len(rates)
        return {
            "begin": np.full(n, origin),
            "length": 1.0 / rates,
            "number": np.zeros(n, dtype=np.int64),
            "whole": np.ones(n, dtype=np.bool_),
            "probed": np.full(n, np.nan),
        }

    def _step(
        self, terms: Synchronization, crawler: Crawler, state: State, begin: float, end: float
    ) -> tuple[State, Spent]:
        intervals = Intervals.until(state, end)
        polled, probes = _polls(terms, crawler, state, intervals, begin, end)
        done = ~intervals.last & intervals.whole
        source = intervals.source[done]
        ended = Polled(polled.probed[done], polled.refreshed[done])
        sums = np.bincount(source, weights=terms.samples(ended, intervals.length[done]), minlength=len(terms))
        counts = np.bincount(source, minlength=len(terms))
        chosen = counts > 0
        share = terms.weight * (len(terms) / max(int(np.count_nonzero(chosen)), 1))
        gradient = share * sums / np.maximum(counts, 1)
        rates = state["rates"]
        if chosen.any():
            rates = terms.step(self.descent, rates, gradient, self.learning_rate, chosen)
        last = intervals.last
        after: State = {
            "rates": rates,
            "begin": intervals.begin[last],
            "length": intervals.length[last],
            "number": intervals.number[last],
            "whole": intervals.whole[last],
            "probed": polled.probed[last],
            "seen_cost": seen_cost(state["seen_cost"], source, ended.probed),
        }
        reset = _adapt(terms, crawler, after, chosen, end)
        return after, Spent(int(np.count_nonzero(~last)) + probes + reset, probes, reset)


@dataclass(frozen=True, slots=True)
class AsyncMirrorSync(CyclicLearner):
    """Asynchronous mirror descent from observed costs.

    Learns periodic refresh rates, each source when it has been sampled.

    Parameters
    ----------
    learning_rate : float
        η ≥ 0, for the gradient of the mean cost of the sources that are updated.
    cycle : float
        Time between updates, in time units.
    exploration : float
        ε, the probability with which an interval is probed.
    seed : int
        Of the probes.

    Notes
    -----
    [1]_ Algorithm 2 gives the updated sources Σ r/(1+ε) of what was Σ r, at each update anew: so printed,
    rates wither. Here they keep Σ r. Resets are of updated sources only.

    References
    ----------
    .. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020,
       Algorithm 2.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.problems import BinaryCost, SynchronizationCost
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 9.0], min_rate=0.1)
    >>> problem = fo.Problem(SynchronizationCost(BinaryCost()), sources, bandwidth=3.0)
    >>> learner = AsyncMirrorSync(learning_rate=0.05, cycle=5.0, seed=1)
    >>> history = learner.run(fo.World.poisson(sources, seed=1), problem, horizon=4000.0)
    >>> history.value[[0, -1]].round(3).tolist(), round(float(history.best[0]), 3)
    ([1.326, 1.262], 1.245)
    """

    descent: ClassVar[Descent] = MirrorDescent()


@dataclass(frozen=True, slots=True)
class AsyncProjectedGradientSync(CyclicLearner):
    """Asynchronous projected gradient descent from observed costs.

    Learns periodic refresh rates, each source when it has been sampled.

    Parameters
    ----------
    learning_rate : float
        η ≥ 0, for the gradient of the mean cost of the sources that are updated.
    cycle : float
        Time between updates, in time units.
    exploration : float
        ε, the probability with which an interval is probed.
    seed : int
        Of the probes.

    References
    ----------
    .. [1] Kolobov, Bubeck and Zimmert, "Online Learning for Active Cache Synchronization", ICML 2020,
       section 8.

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.problems import BinaryCost, SynchronizationCost
    >>> sources = fo.Sources(change_rate=[0.1, 1.0, 9.0], min_rate=0.1)
    >>> problem = fo.Problem(SynchronizationCost(BinaryCost()), sources, bandwidth=3.0)
    >>> learner = AsyncProjectedGradientSync(learning_rate=0.2, cycle=20.0, seed=1)
    >>> history = learner.run(fo.World.poisson(sources, seed=1), problem, horizon=4000.0)
    >>> history.value[[0, -1]].round(3).tolist(), round(float(history.best[0]), 3)
    ([1.326, 1.27], 1.245)
    """

    descent: ClassVar[Descent] = ProjectedGradient()


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """Refresh intervals, source by source in order of time.

    The last of each is under way.

    - `whole`: Whether no update touched it.
    - `last`: Whether it ends after the window.
    """

    source: IntArray
    number: IntArray
    begin: Array
    length: Array
    whole: BoolArray
    last: BoolArray

    @classmethod
    def until(cls, state: State, end: float) -> Intervals:
        """Return intervals begun before `end`, at the state's rates."""
        rates, first = state["rates"], state["begin"] + state["length"]
        ended = np.where(first <= end, (np.maximum(end - first, 0.0) * rates + SLACK).astype(np.int64) + 1, 0)
        source = np.repeat(np.arange(len(rates)), ended + 1)
        j = np.arange(len(source)) - np.repeat(np.cumsum(ended + 1) - ended - 1, ended + 1)
        own, interval = j == 0, 1.0 / rates[source]
        return cls(
            source,
            state["number"][source] + j,
            # Rounding may put the last refresh an ulp behind the window's end.
            np.where(own, state["begin"][source], np.minimum(first[source] + (j - 1) * interval, end)),
            np.where(own, state["length"][source], interval),
            ~own | state["whole"][source],
            j == ended[source],
        )


def _polls(
    terms: Synchronization, crawler: Crawler, state: State, intervals: Intervals, begin: float, end: float
) -> tuple[Polled, int]:
    """Probe and refresh the intervals between updates; count the probes."""
    source, number = intervals.source, intervals.number
    probe = intervals.begin + terms.probe_point(source, number) * intervals.length
    # Of the interval under way at `begin`, an earlier window has seen to a probe that lies before.
    now = intervals.whole & terms.is_probed(source, number) & (probe > begin) & (probe <= end)
    refresh = np.where(intervals.last, np.nan, np.minimum(intervals.begin + intervals.length, end))
    polled = terms.play(crawler, source, np.where(now, probe, np.nan), refresh)
    own = np.flatnonzero(np.diff(source, prepend=-1))
    earlier = np.isnan(polled.probed[own])
    polled.probed[own[earlier]] = state["probed"][earlier]
    return polled, int(np.count_nonzero(now))


def _adapt(terms: Synchronization, crawler: Crawler, state: State, chosen: BoolArray, now: float) -> int:
    """Adapt intervals under way in place; return sources refreshed at once."""
    updated = np.flatnonzero(chosen)
    interval = 1.0 / state["rates"][updated]
    reset = terms.is_reset(updated, state["number"][updated])
    begin = np.where(reset, now, state["begin"][updated])
    state["begin"][updated] = begin
    state["length"][updated] = np.where(reset, interval, np.maximum(begin + interval, now) - begin)
    state["number"][updated] += 1
    state["whole"][updated] = reset
    state["probed"][updated] = np.nan
    at_once = updated[reset]
    crawler.refresh(at_once, np.full(len(at_once), now))
    return len(at_once)
