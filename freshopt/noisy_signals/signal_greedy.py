"""`SignalGreedy`: greedy index policy at a constant total rate.

It crawls the source of largest marginal value, given time and signals.

At the optimal thresholds every source is crawled when the index w·V of its effective time reaches the price
(dual variable) of the bandwidth (`freshopt.noisy_signals.renewal_cycle`). Giving each slot to the source with
the largest w·V at that moment converges to the same thresholds by itself, and holds the total rate constant,
which thresholds do only on average. Without signals it is `Greedy`; where all changes and nothing else is
announced it crawls on signals alone, those first whose importance per change is largest.

Only few sources contend for the slots of a block: an index only grows until its source is crawled, so that
whoever is picked has, by the end of the block, at least the index that the m-th had when m slots began.
Cost: 0.1 ms a slot of 10³ sources, 0.2 ms of 10⁴; `SignalCrawler` evaluates all sources, 0.5 μs each and
pick.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from freshopt.errors import ObjectiveError, SourceDataError, expect
from freshopt.modelling.problem import Problem
from freshopt.noisy_signals.noisy_signal_freshness import NoisySignalFreshness
from freshopt.noisy_signals.renewal_cycle import index
from freshopt.noisy_signals.wait_rule import MOST_CRAWLS
from freshopt.numerics.arrays import Array, IntArray, as_number, as_vector
from freshopt.numerics.frozen_arrays import frozen_arrays
from freshopt.scheduling.refresh_order import slots


@dataclass(frozen=True, slots=True, eq=False)
class SignalGreedy:
    """Greedy index policy with noisy signals.

    One crawl is in the middle of every slot of length 1/B, of the source with the largest w·V.

    Parameters
    ----------
    problem : Problem
        Of `NoisySignalFreshness`; its sources have equal costs and no bounds or host limits, which greedy
        picks would violate.

    Raises
    ------
    ObjectiveError
        If the problem has another objective.
    SourceDataError
        If it has bounds, host limits or unequal costs.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = NoisySignalFreshness(recall=[0.5, 0.0], precision=0.9)
    >>> greedy = SignalGreedy(fo.Problem(objective, fo.Sources([1.0, 1.0]), bandwidth=1.0))
    >>> greedy.crawls([0], [2.2], horizon=5.0)[0].tolist()  # at 2.5 the signal decides
    [1, 0, 0, 1, 0]
    """

    problem: Problem

    def __post_init__(self) -> None:
        expect(self.problem, Problem, "problem", "Pass a freshopt.Problem")
        problem, sources = self.problem, self.problem.sources
        if not isinstance(problem.objective, NoisySignalFreshness):
            raise ObjectiveError(
                f"{problem.objective!r} knows no signals. Pass a problem of NoisySignalFreshness, or use "
                "Greedy."
            )
        bounded = np.any(sources.min_rate > 0.0) or np.any(np.isfinite(sources.max_rate))
        if bounded or len(problem.hosts) or bool(np.any(sources.refresh_cost != sources.refresh_cost[0])):
            raise SourceDataError(
                "the problem has bounds, host limits or unequal costs, which greedy picks do not keep to. "
                "Use the thresholds of its solution."
            )

    def crawls(
        self,
        source: npt.ArrayLike,
        time: npt.ArrayLike,
        horizon: float,
        draws: npt.ArrayLike | None = None,  # noqa: ARG002 - a rule as SignalThresholds is one
    ) -> tuple[IntArray, Array]:
        """Return the crawls given the signals.

        When which source is crawled, all copies fresh at 0.

        Parameters
        ----------
        source : array_like of int, shape (m,)
        time : array_like, shape (m,)
            The signals in [0, horizon), sorted by time. A signal counts from the slot at or after it on.
        horizon : float
        draws : ignored

        Returns
        -------
        source : ndarray of int
        time : ndarray
            The middles of slots of length cost/B.
        """
        sources, times = np.asarray(source, dtype=np.int64), as_vector(time, np.size(time), "time")
        if not bool(np.all(times[1:] >= times[:-1])):
            raise SourceDataError("the signals are not sorted by time. Sort them.")
        load = self.problem.bandwidth / float(self.problem.sources.refresh_cost[0])
        horizon = as_number(horizon, "horizon", "Pass a finite time > 0.")
        if not 0.0 < horizon < math.inf or load * horizon > MOST_CRAWLS:
            raise SourceDataError(
                f"horizon is {horizon:g}. Pass a time > 0 with at most {MOST_CRAWLS:g} crawls, which is "
                f"{MOST_CRAWLS / load:.3g}."
            )
        crawler = SignalCrawler(self)
        moments = slots(load, horizon)
        n, many = len(self.problem.sources), max(1, math.isqrt(len(self.problem.sources)))
        until = np.searchsorted(times, moments, side="right")
        picked, heard = np.zeros(len(moments), dtype=np.int64), 0
        for begin in range(0, len(moments), many):
            end = min(begin + many, len(moments))
            crawler.hear(sources[heard : until[begin]])
            heard = int(until[begin])
            rest = np.bincount(sources[heard : until[end - 1]], minlength=n)
            who = np.arange(n)
            if n > end - begin:
                now = crawler.index(moments[begin])
                mark = np.partition(now, n - (end - begin))[n - (end - begin)]
                who = np.flatnonzero(crawler.index(moments[end - 1], more=rest) >= mark)
            for slot in range(begin, end):
                crawler.hear(sources[heard : until[slot]])
                heard = int(until[slot])
                picked[slot] = crawler.pick(moments[slot], who)
        return picked, moments


@frozen_arrays
class SignalCrawler:
    """State of a greedy crawler that receives signals.

    Parameters
    ----------
    greedy : SignalGreedy
    last : array_like, scalar or shape (n,)
        When each copy was crawled last.

    Examples
    --------
    >>> import freshopt as fo
    >>> objective = NoisySignalFreshness(recall=0.5, precision=0.9)
    >>> problem = fo.Problem(objective, fo.Sources([1.0, 1.0, 1.0]), bandwidth=1.0)
    >>> crawler = SignalCrawler(SignalGreedy(problem))
    >>> crawler.hear([2])
    >>> crawler.pick(1.0), crawler.pick(2.0)
    (2, 0)
    """

    def __init__(self, greedy: SignalGreedy, last: npt.ArrayLike = 0.0) -> None:
        expect(greedy, SignalGreedy, "greedy", "Pass a SignalGreedy")
        problem = greedy.problem
        n, objective = len(problem.sources), problem.objective
        self._rate = np.ascontiguousarray(problem.sources.change_rate)
        self._weight = problem.sources.importance / self._rate
        quality = objective._quality(n) if isinstance(objective, NoisySignalFreshness) else ()
        self._quality = tuple(map(np.array, quality))
        self.last = np.array(as_vector(last, n, "last"))
        self.signals = np.zeros(n)

    def hear(self, source: npt.ArrayLike) -> None:
        """Count signals of these sources.

        One each time that a source occurs.
        """
        np.add.at(self.signals, np.asarray(source, dtype=np.int64), 1.0)

    def index(self, time: float, who: IntArray | None = None, more: Array | IntArray | float = 0.0) -> Array:
        """Return the index w·V of sources at a time.

        Should so many more signals have come by then.
        """
        at = slice(None) if who is None else who
        elapsed = np.maximum(time - self.last[at], 0.0) * self._rate[at]
        recall, precision = (own[at] for own in self._quality)
        signals: Array = np.asarray(self.signals + more)
        value: Array = self._weight[at] * index(signals[at], elapsed, recall, precision)
        return value

    def pick(self, time: float, who: IntArray | None = None) -> int:
        """Return the source to crawl now.

        Among some or all; it counts as crawled.
        """
        best = int(np.argmax(self.index(time, who)))
        best = best if who is None else int(who[best])
        self.last[best], self.signals[best] = time, 0.0
        return best
