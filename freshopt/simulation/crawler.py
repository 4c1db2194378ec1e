"""`Crawler` protocol of policies, and `SimulatedCrawler` in a world.

A policy has no access to the world, only to a crawler: it sends refreshes and probes and receives one
observation each. A real crawler can observe the same by fetching at the requested times: so a policy that was
tested in a simulation runs unchanged against the web. The observation is "has the source changed?"; a crawler
whose observations are numbers (the cost of a stale copy at that moment) serves policies that learn costs.

Cost: that of the world's passes, 20-250 ns a poll in batches of a million; 20 µs in calls of one poll.

`AgeCosts`: crawler that observes costs by age. This is the feedback of a policy that learns costs [1]_: not
whether a source changed, but the cost of a copy of this age, with noise. The noise is one factor per copy, so
that of two observations of one copy the later one costs no less; mean 1, so that the expected cost is the
curve. Like changes, a factor belongs to (seed, source, number of the copy), whenever it is observed.

Cost: sorts the polls of a batch, 200 ns a poll.

References
----------
.. [1] Kolobov et al., "Online Learning for Active Cache Synchronization", ICML 2020, Assumptions 1-3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, check_seed, expect
from freshopt.numerics.arrays import Array, BoolArray, IntArray, as_number, as_whole
from freshopt.numerics.random_streams import uniforms
from freshopt.simulation.change_processes import Changes, State
from freshopt.simulation.world import World

if TYPE_CHECKING:
    from freshopt.modelling.cost_curve import Curve

_YES, _NO = np.ones(1, dtype=np.bool_), np.zeros(1, dtype=np.bool_)


@runtime_checkable
class Crawler(Protocol):
    """Crawler that holds copies, refreshes and probes sources.

    Times are in the sources' time unit, sorted within a call, and no call goes back behind an earlier one.
    A source may occur several times in one call.
    """

    def refresh(self, source: IntArray, time: Array) -> npt.NDArray[Any]:
        """Refresh the sources at these times.

        What is fetched becomes the copy.

        Returns
        -------
        ndarray of bool, shape (m,)
            True if the source had changed since its copy was last refreshed.
        """
        ...

    def probe(self, source: IntArray, time: Array) -> npt.NDArray[Any]:
        """Probe the sources at these times.

        What is fetched is compared, and the copies stay as they are.

        Returns
        -------
        ndarray of bool, shape (m,)
            True if the copy held is stale.
        """
        ...


@runtime_checkable
class SignallingCrawler(Crawler, Protocol):
    """Crawler that also receives announced changes.

    Signalled sources announce them.
    """

    def signals(self, start: float, end: float) -> tuple[IntArray, Array]:
        """Return sources and times of announcements, by time.

        Those in (start, end].
        """
        ...


@runtime_checkable
class CountingCrawler(Crawler, Protocol):
    """Crawler that is told how many changes a refresh found.

    Feeds and version numbers tell; estimators of counts need them.
    """

    def count(self, source: IntArray, time: Array) -> npt.NDArray[Any]:
        """Refresh as `Crawler.refresh` does, and count.

        Returns
        -------
        ndarray of int, shape (m,)
            How often the source had changed since its copy was last refreshed.
        """
        ...


class SimulatedCrawler:
    """Crawler of a simulated world.

    All copies are fresh when it begins.

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
    >>> crawler = SimulatedCrawler(World.from_events({"source": [0, 0], "time": [1.0, 5.0]}))
    >>> crawler.probe([0, 0], [0.5, 1.5]).tolist(), crawler.refresh([0, 0], [2.0, 3.0]).tolist()
    ([False, True], [True, False])
    >>> crawler.count([0], [5.0]).tolist()
    [1]
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
        return (
            f"SimulatedCrawler({len(self.world)} sources at {self.world.time_unit} {self.clock:g}, "
            f"{self.refreshes} refreshes, {self.probes} probes)"
        )

    def refresh(self, source: npt.ArrayLike, time: npt.ArrayLike) -> BoolArray:
        """See `Crawler.refresh`."""
        return self.poll(source, time, _NO)

    def count(self, source: npt.ArrayLike, time: npt.ArrayLike) -> IntArray:
        """See `CountingCrawler.count`."""
        return self.missed(source, time, _NO)

    def probe(self, source: npt.ArrayLike, time: npt.ArrayLike) -> BoolArray:
        """See `Crawler.probe`."""
        return self.poll(source, time, _YES)

    def poll(self, source: npt.ArrayLike, time: npt.ArrayLike, keep: npt.ArrayLike) -> BoolArray:
        """Probe where `keep` is true and refresh elsewhere.

        In one pass.

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
        """Poll and return the changes each copy had missed.

        As `poll` does otherwise.

        A real crawler cannot tell unless it is a `CountingCrawler`; this is for costs.
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
        """Return the state for a checkpoint, arrays by name."""
        done = np.array([self.refreshes, self.probes])
        return {**{k: v.copy() for k, v in self._state.items()}, "clock": np.array(self.clock), "done": done}

    def restore(self, state: State) -> None:
        """Restore a state of a crawler of the same world."""
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
    """Probe where `keep` is true and refresh elsewhere.

    Whatever the crawler.

    A crawler with a method ``poll(source, time, keep)`` gets all at once; any other gets its probes and
    refreshes in runs, in the order of time.
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
        return SimulatedCrawler(world)
    if isinstance(world, Crawler):
        return world
    raise SourceDataError(
        f"{type(world).__name__} is neither a World nor a crawler. A crawler has methods "
        "refresh(source, time) and probe(source, time)."
    )


class _Signals:
    """Position up to which the announcements are read."""

    def __init__(self, changes: Changes, index: IntArray) -> None:
        self.changes, self.index, self.until = changes, index, -np.inf
        self.state = changes.begin(index)

    def advance(self, end: float) -> tuple[IntArray, Array]:
        """Return the unread changes up to `end`."""
        offsets, times = self.changes.collect(self.state, self.index, end)
        self.until = end
        source = np.repeat(self.index, np.diff(offsets))
        order = np.lexsort((source, times))
        return source[order], times[order]


# Largest number of sources: two columns of them take 16 GB.
MOST = 10**9


class AgeCosts:
    """Crawler that observes noisy costs of age.

    An observation is c(age)·(1 + noise·U), U uniform in (−1, 1) for each copy.

    Parameters
    ----------
    curve : Curve
        The expected cost of age of n sources, such as ``PowerCost(scale, exponent).curve(sources)``.
    n : int
        The number of sources.
    noise : float
        In 0..1.
    seed : int

    Examples
    --------
    >>> import freshopt as fo
    >>> from freshopt.problems import PowerCost
    >>> sources = fo.Sources(change_rate=[1.0, 1.0])
    >>> costs = AgeCosts(PowerCost([1.0, 2.0], 0.5).curve(sources), n=2, noise=0.0, seed=1)
    >>> costs.refresh([0, 1, 0], [4.0, 4.0, 5.0])
    array([2., 4., 1.])
    """

    def __init__(self, curve: Curve, n: int, *, noise: float = 0.1, seed: int = 0) -> None:
        noise = as_number(noise, "noise", "Pass a share from 0 to 1.")
        n = as_whole(n, "n", 1, MOST)
        if not 0.0 <= noise <= 1.0:
            raise SourceDataError(f"noise is {noise}. Pass a share from 0 to 1, so that no cost is negative.")
        self._curve, self._noise, self._seed = curve, noise, check_seed(seed)
        self._refreshed = np.zeros(n)
        self._copies = np.zeros(n, dtype=np.int64)

    def __repr__(self) -> str:
        return f"AgeCosts({len(self._copies)} sources, noise {self._noise:g}, seed {self._seed})"

    def refresh(self, source: npt.ArrayLike, time: npt.ArrayLike) -> Array:
        """Return the costs of the copies just before their refresh."""
        return self.poll(source, time, np.zeros(np.size(time), dtype=np.bool_))

    def probe(self, source: npt.ArrayLike, time: npt.ArrayLike) -> Array:
        """Return the costs of the copies."""
        return self.poll(source, time, np.ones(np.size(time), dtype=np.bool_))

    def poll(self, source: npt.ArrayLike, time: npt.ArrayLike, keep: npt.ArrayLike) -> Array:
        """Probe where `keep` is true and refresh elsewhere.

        Parameters
        ----------
        source : array_like of int, shape (m,)
        time : array_like, shape (m,)
            Sorted; of each source not before its latest refresh.
        keep : array_like of bool, shape (m,)

        Raises
        ------
        SourceDataError
            If a time runs backwards.
        """
        sources, times = np.asarray(source, dtype=np.int64), np.asarray(time, dtype=np.float64)
        order = np.argsort(sources, kind="stable")
        k, t, renewed = sources[order], times[order], ~np.asarray(keep, dtype=np.bool_)[order]
        m = len(k)
        if m == 0:
            return np.empty(0)
        since, copies = self._before(k, t, renewed)
        age = t - since
        if not (age >= 0.0).all():
            at = int(np.argmin(age))
            raise SourceDataError(
                f"source {k[at]} is polled at {t[at]:g}, before its refresh at {since[at]:g}. Sort polls "
                "by time."
            )
        curve = self._curve.take(k)
        factor = 1.0 + self._noise * (2.0 * uniforms(self._seed, k, copies) - 1.0)
        with np.errstate(all="ignore"):
            costs = np.where(age > 0.0, curve.at(np.where(age > 0.0, age, 1.0), *curve.parameters), 0.0)
        answer = np.empty(m)
        answer[order] = factor * costs
        last = np.flatnonzero(renewed)
        self._refreshed[k[last]] = t[last]  # of several the last one, as NumPy assigns in order
        self._copies += np.bincount(k[last], minlength=len(self._copies))
        return answer

    def state(self) -> State:
        """Return the state for a checkpoint."""
        return {"refreshed": self._refreshed.copy(), "copies": self._copies.copy()}

    def restore(self, state: State) -> None:
        """Restore the records of `state`."""
        if {key: np.shape(array) for key, array in state.items()} != {
            key: array.shape for key, array in self.state().items()
        }:
            raise SourceDataError(
                f"the saved state is not one of costs of {len(self._copies)} sources. Restore it with the "
                "costs that it was saved with."
            )
        self._refreshed, self._copies = state["refreshed"].copy(), state["copies"].copy()

    def _before(self, k: IntArray, t: Array, renewed: npt.NDArray[np.bool_]) -> tuple[Array, IntArray]:
        """Return each poll's latest earlier refresh and its copy.

        The copy is given by its number; polls come source by source.
        """
        m = len(k)
        head = np.ones(m, dtype=np.bool_)
        np.not_equal(k[1:], k[:-1], out=head[1:])
        begins = np.maximum.accumulate(np.where(head, np.arange(m), 0))
        earlier = np.zeros(m, dtype=np.int64)  # 1 + position of the latest refresh before, 0 if none
        earlier[1:] = np.maximum.accumulate(np.where(renewed, np.arange(1, m + 1), 0))[:-1]
        here = earlier > begins
        since = np.where(here, t[earlier - 1], self._refreshed[k])
        count = np.concatenate([[0], np.cumsum(renewed)[:-1]])
        return since, self._copies[k] + count - count[begins]
