"""`Crawler`, what a learner asks of the world, and `SimulatedCrawler`, which answers from a simulated one.

A learner never sees the world, only a crawler: it sends refreshes and probes and gets one answer each. What
a simulated crawler answers, a real one can answer too, by fetching at the times asked for: so a learner that
has been tried on a world runs unchanged against the web. The answer is "has the source changed?"; a crawler
whose answers are numbers (what a stale copy cost at that moment) serves learners of costs.

Cost: that of the world's passes, 20-250 ns a poll in batches of a million; 20 µs in calls of one poll.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from freshopt.arrays import Array, BoolArray, IntArray
from freshopt.errors import SourceDataError, expect
from freshopt.simulation.changes import Changes, State
from freshopt.simulation.world import World

_YES, _NO = np.ones(1, dtype=np.bool_), np.zeros(1, dtype=np.bool_)


@runtime_checkable
class Crawler(Protocol):
    """Holds a copy of each source; refreshes and probes them when told to.

    Times are in the sources' time unit, sorted within a call, and no call goes back behind an earlier one.
    A source may occur several times in one call.
    """

    def refresh(self, source: IntArray, time: Array) -> npt.NDArray[Any]:
        """Fetch the sources at these times and keep what is found.

        Returns
        -------
        ndarray of bool, shape (m,)
            True if the source had changed since its copy was last refreshed.
        """
        ...

    def probe(self, source: IntArray, time: Array) -> npt.NDArray[Any]:
        """Fetch the sources at these times, compare, and keep the copies as they are.

        Returns
        -------
        ndarray of bool, shape (m,)
            True if the copy held is stale.
        """
        ...


@runtime_checkable
class SignallingCrawler(Crawler, Protocol):
    """A crawler that also receives the changes which signalled sources announce."""

    def signals(self, start: float, end: float) -> tuple[IntArray, Array]:
        """Return sources and times of the announcements in (start, end], sorted by time."""
        ...


class SimulatedCrawler:
    """The crawler of a world; all copies are fresh when it begins.

    Parameters
    ----------
    world : World

    Attributes
    ----------
    world : World
    clock : float
        Time of the latest poll.
    refreshes, probes : int
        How many there have been.

    Examples
    --------
    >>> crawler = World.from_events({"source": [0, 0], "time": [1.0, 5.0]}).crawler()
    >>> crawler.probe([0, 0], [0.5, 1.5]).tolist(), crawler.refresh([0, 0], [2.0, 3.0]).tolist()
    ([False, True], [True, False])
    """

    def __init__(self, world: World) -> None:
        expect(world, World, "world", "Pass a freshopt.World")
        self.world = world
        self.clock = float(np.min(world.start))
        self.refreshes = 0
        self.probes = 0
        self._state = world.changes.begin(np.arange(len(world)))
        self._signals: _Signals | None = None

    def __repr__(self) -> str:
        """Return the clock and what has been done."""
        return (
            f"SimulatedCrawler({len(self.world)} sources at {self.world.time_unit} {self.clock:g}, "
            f"{self.refreshes} refreshes, {self.probes} probes)"
        )

    def refresh(self, source: npt.ArrayLike, time: npt.ArrayLike) -> BoolArray:
        """See `Crawler.refresh`."""
        return self.poll(source, time, _NO)

    def probe(self, source: npt.ArrayLike, time: npt.ArrayLike) -> BoolArray:
        """See `Crawler.probe`."""
        return self.poll(source, time, _YES)

    def poll(self, source: npt.ArrayLike, time: npt.ArrayLike, keep: npt.ArrayLike) -> BoolArray:
        """Probe where `keep` is true and refresh elsewhere, in one pass.

        Parameters
        ----------
        source : array_like of int, shape (m,)
        time : array_like, shape (m,)
            Sorted, from `clock` on.
        keep : array_like of bool, shape (m,) or (1,)

        Raises
        ------
        SourceDataError
            If a source does not exist, or time runs backwards or beyond the horizon.
        """
        return self.missed(source, time, keep) > 0

    def missed(self, source: npt.ArrayLike, time: npt.ArrayLike, keep: npt.ArrayLike) -> IntArray:
        """Poll as `poll` does and return how many changes each copy had missed.

        A real crawler cannot tell; this is for costs.
        """
        sources, times, keeps = self._checked(source, time, keep)
        out = self.world.changes.poll(self._state, sources, times, keeps)
        if len(times):
            self.clock = float(times[-1])
        kept = int(np.count_nonzero(keeps)) if len(keeps) == len(sources) else len(sources) * int(keeps[0])
        self.probes += kept
        self.refreshes += len(sources) - kept
        return out

    def signals(self, start: float, end: float) -> tuple[IntArray, Array]:
        """Return the changes that signalled sources announce in (start, end].

        Returns
        -------
        source : ndarray of int
        time : ndarray
            Sorted. A refresh at the time of a signal finds the change that it announced.
        """
        if not start <= end <= self.world.horizon:
            raise SourceDataError(
                f"signals are asked for from {start:g} to {end:g}, but the world ends at "
                f"{self.world.horizon:g}. Ask for a window inside it."
            )
        announced = self._signals
        if announced is None or announced.until > start:
            announced = _Signals(self.world.changes, np.flatnonzero(self.world.signalled))
        if announced.until < start:
            announced.advance(start)
        self._signals = announced
        return announced.advance(end)

    def state(self) -> State:
        """Return what a checkpoint has to keep, as arrays by name."""
        done = np.array([self.refreshes, self.probes])
        return {**{k: v.copy() for k, v in self._state.items()}, "clock": np.array(self.clock), "done": done}

    def restore(self, state: State) -> None:
        """Take over a state from `state`, of a crawler of the same world."""
        wrong = [key for key, now in self._state.items() if key not in state or state[key].shape != now.shape]
        if wrong or "clock" not in state or "done" not in state:
            raise SourceDataError(
                f"the saved state is not one of a crawler of this world of {len(self.world)} sources. "
                "Restore it with the world that it was saved with."
            )
        self._state = {key: state[key].astype(now.dtype) for key, now in self._state.items()}
        self.clock = float(state["clock"])
        self.refreshes, self.probes = (int(count) for count in state["done"])
        self._signals = None

    def _checked(
        self, source: npt.ArrayLike, time: npt.ArrayLike, keep: npt.ArrayLike
    ) -> tuple[IntArray, Array, BoolArray]:
        sources = np.ascontiguousarray(source, dtype=np.int64)
        times = np.ascontiguousarray(time, dtype=np.float64)
        keeps = np.ascontiguousarray(keep, dtype=np.bool_)
        if sources.ndim != 1 or times.shape != sources.shape or keeps.shape not in ((1,), sources.shape):
            raise SourceDataError(
                f"sources of shape {sources.shape} are polled at times of shape {times.shape}. "
                "Pass one time per source."
            )
        if not len(sources):
            return sources, times, keeps
        low, high, n = int(sources.min()), int(sources.max()), len(self.world)
        if low < 0 or high >= n:
            raise SourceDataError(f"polled sources range over {low}..{high}. Use 0..{n - 1}.")
        if not (times[1:] >= times[:-1]).all() or not times[0] >= self.clock:
            back = np.flatnonzero(~(times >= np.append(self.clock, times[:-1])))[0]
            before = self.clock if back == 0 else times[back - 1]
            raise SourceDataError(
                f"poll {back} is at {times[back]:.15g}, after one at {before:.15g}. Sort polls by time."
            )
        if not times[-1] <= self.world.horizon:
            raise SourceDataError(
                f"a poll at {times[-1]:g} lies beyond the end of the recorded changes at "
                f"{self.world.horizon:g}. Stop there."
            )
        return sources, times, keeps


def poll(crawler: Crawler, source: IntArray, time: Array, keep: BoolArray) -> npt.NDArray[Any]:
    """Probe where `keep` is true and refresh elsewhere, whatever the crawler.

    A crawler with a method ``poll(source, time, keep)`` gets all at once; any other gets its probes and
    refreshes in runs, in the order of time.

    Returns
    -------
    ndarray, shape (m,)
        The answers, in the order asked.
    """
    whole = getattr(crawler, "poll", None)
    if whole is not None:
        return np.asarray(whole(source, time, keep))
    edges = np.concatenate([[0], np.flatnonzero(np.diff(keep)) + 1, [len(source)]])
    answers = [
        np.asarray((crawler.probe if keep[a] else crawler.refresh)(source[a:b], time[a:b]))
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        if b > a
    ]
    return np.concatenate(answers) if answers else np.empty(0, dtype=np.bool_)


def as_crawler(world: World | Crawler) -> Crawler:
    """Return the crawler of a world, or the crawler."""
    if isinstance(world, World):
        return world.crawler()
    if isinstance(world, Crawler):
        return world
    raise SourceDataError(
        f"{type(world).__name__} is neither a World nor a crawler. A crawler has methods "
        "refresh(source, time) and probe(source, time)."
    )


class _Signals:
    """How far the announcements have been read."""

    def __init__(self, changes: Changes, index: IntArray) -> None:
        self.changes, self.index, self.until = changes, index, -np.inf
        self.state = changes.begin(index)

    def advance(self, end: float) -> tuple[IntArray, Array]:
        """Return the changes up to `end` that have not been returned."""
        offsets, times = self.changes.collect(self.state, self.index, end)
        self.until = end
        source = np.repeat(self.index, np.diff(offsets))
        order = np.lexsort((source, times))
        return source[order], times[order]
