"""`Schedule` of all refresh times, and `schedule`, which makes one.

Rates give the frequencies; a method gives the times. A source that signals its changes is not refreshed on a
clock: it gets the probability with which each of its signals is followed by a crawl.

Cost: that of the method (one sort of the refreshes); 10⁷ refreshes of 10⁶ sources take about one second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, expect
from freshopt.estimators.week_clock import utc_moment
from freshopt.formatting import count, number
from freshopt.frames import POLARS, framed
from freshopt.heavy import polars
from freshopt.logs.clock import moments_after
from freshopt.numerics.arrays import (
    Array,
    IntArray,
    as_number,
    as_vector,
    label_array,
    read_only,
    shape_of,
)
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.plots import BLUE, ORANGE, Plotted
from freshopt.renamed import keywords
from freshopt.scheduling.periodic import Periodic
from freshopt.scheduling.rate_table import read_rates
from freshopt.scheduling.refresh_order import check_size
from freshopt.units import SECONDS, Time, check_horizon, check_time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from freshopt.certificates.solution import Solution

# Refreshes that become Python objects at once when a schedule is iterated.
_AT_ONCE = 8192
# Parts of the horizon whose load is drawn.
PARTS = 60
# Longest horizon: microseconds since 1970 reach 292 000 years.
MOST_SECONDS = 100_000 * 31_557_600.0


class Method(Protocol):
    """Scheduling method: a frozen record of its settings.

    It turns rates into times.
    """

    def times(self, rates: Array, horizon: float) -> tuple[IntArray, Array]:
        """Return sources and times of all refreshes in order.

        They are in [0, horizon), sorted by time, then source.
        """
        ...


@runtime_checkable
class RandomMethod(Method, Protocol):
    """Scheduling method whose times are random.

    They are independent between sources.
    """

    def redrawn(self, run: int) -> RandomMethod:
        """Return the method with random numbers of its own for each run.

        Run 0 has those of the method itself.
        """
        ...


@runtime_checkable
class StartedMethod(Method, Protocol):
    """Scheduling method whose times depend on the moment of time 0."""

    def starting(
        self, start: float | datetime | np.datetime64 | None, weight: Array | None, time_unit: str
    ) -> tuple[Method, np.datetime64 | None]:
        """Return the method for a beginning, and its moment if known."""
        ...


class Visit(NamedTuple):
    """One refresh of a schedule.

    It has an offset in time units, and the source's name or position.
    """

    time: float
    source: Any


@frozen_value(init=False, repr=False)
class Schedule(Plotted):
    """Refresh times of all sources over a horizon.

    They count from the schedule's start at time 0.

    Iterating yields a `Visit` (time, source) for each refresh in turn.

    Parameters
    ----------
    source : array_like of int, shape (refreshes,)
        Position of the refreshed source.
    time : array_like of float, shape (refreshes,)
        Offset from the schedule's start in time units, in [0, horizon); sorted, equal times by source.
    horizon : float
        Length in time units.
    rates : array_like of float, shape (n,)
        The rates that it realises, in refreshes per time unit.
    names : array_like, shape (n,), optional
        Names of the sources. Default: their positions.
    time_unit : str
        The clock: "second", "minute", "hour", "day" or "week".
    method : str
        The method that made it, as it prints.
    crawl_probability : array_like of float, shape (n,), optional
        For a signalled source the share of its signalled changes that are followed by a crawl, NaN for the
        others; beside equal gaps these are equally spaced, every second one for 0.5. None if no source is
        signalled.
    importance : array_like, scalar or shape (n,), optional
        Weight of each source, with which `replay` measures costs. None if the rates came without.
    start : datetime or datetime64, optional
        The moment of time 0; without a time zone it is UTC.
    random_method : RandomMethod, optional
        What drew the times, if they are random: `replay` draws others from it. A part of a schedule has none.

    Raises
    ------
    SourceDataError
        If the arrays do not fit together or are out of order.

    Examples
    --------
    >>> Schedule(source=[0, 1, 0], time=[0.0, 0.5, 1.0], horizon=2.0, rates=[1.0, 0.5])
    Schedule(3 refreshes of 2 sources in 2 days)
    >>> plan = Schedule([0, 1, 0], [0.0, 0.5, 1.0], horizon=2.0, rates=[1.0, 0.5], names=["a", "b"])
    >>> [(time, source) for time, source in plan.between(0.5, 2.0)]
    [(0.5, 'b'), (1.0, 'a')]
    """

    source: IntArray
    time: Array
    horizon: float
    rates: Array
    names: npt.NDArray[Any] | None
    time_unit: str
    method: str
    crawl_probability: Array | None
    importance: Array | None
    start: np.datetime64 | None
    random_method: RandomMethod | None
    library: str = field(init=False)

    def __init__(
        self,
        source: npt.ArrayLike,
        time: npt.ArrayLike,
        horizon: float,
        rates: npt.ArrayLike,
        names: npt.ArrayLike | None = None,
        time_unit: str = "day",
        method: str = "",
        crawl_probability: npt.ArrayLike | None = None,
        importance: npt.ArrayLike | None = None,
        start: datetime | np.datetime64 | None = None,
        random_method: RandomMethod | None = None,
    ) -> None:
        store: Callable[[str, object], None] = lambda key, value: object.__setattr__(self, key, value)  # noqa: E731
        for what, given in (("source", source), ("time", time), ("rates", rates), ("names", names)):
            shape_of(given, what)
        refreshes, n = np.size(time), np.size(rates)
        labels = None if names is None else label_array(names)
        if np.shape(source) != (refreshes,) or (labels is not None and labels.shape != (n,)):
            raise SourceDataError(
                f"{refreshes} times have sources of shape {np.shape(source)}, {n} rates have names of shape "
                f"{None if labels is None else labels.shape}. Give one source per time and one name per rate."
            )
        store("time_unit", check_time_unit(time_unit))
        store("horizon", check_horizon(horizon, time_unit))
        store("source", read_only(np.asarray(source, dtype=np.int64)))
        store("time", as_vector(time, refreshes, "time"))
        store("rates", as_vector(rates, n, "rates"))
        store("names", None if labels is None else read_only(labels))
        store("method", method)
        p = crawl_probability
        store("crawl_probability", None if p is None else as_vector(p, n, "crawl_probability"))
        store("importance", None if importance is None else as_vector(importance, n, "importance"))
        store("start", None if start is None else utc_moment(start))
        expect(random_method, (RandomMethod, NoneType), "random_method", "Pass a method with redrawn(run)")
        store("random_method", random_method)
        store("library", POLARS)
        self._check_order()

    def __len__(self) -> int:
        """Return the number of refreshes."""
        return len(self.time)

    def __iter__(self) -> Iterator[Visit]:
        """Yield the refreshes in turn."""
        for begin in range(0, len(self.time), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            names = self.source[part] if self.names is None else self.names[self.source[part]]
            yield from map(Visit, self.time[part].tolist(), names.tolist())

    def _draw(self, axes: Axes) -> None:
        """Draw the load over the horizon, and its mean."""
        edges = np.linspace(0.0, self.horizon, PARTS + 1)
        load = np.histogram(self.time, edges)[0] / np.diff(edges)
        since = "" if self.start is None else f" since {np.datetime_as_string(self.start, 'm')} UTC"
        axes.stairs(load, edges, fill=True, color=BLUE, alpha=0.75)
        mean = len(self.time) / self.horizon
        axes.axhline(mean, color=ORANGE, linestyle="--", label=f"mean {number(mean)}")
        axes.set(xlabel=f"{self.time_unit}s{since}", ylabel=f"refreshes per {self.time_unit}")
        axes.set(xlim=(0.0, self.horizon), ylim=(0.0, None))
        axes.legend(frameon=False)

    def between(
        self, begin: float | datetime | np.datetime64, end: float | datetime | np.datetime64
    ) -> Schedule:
        """Return the refreshes in [begin, end).

        Parameters
        ----------
        begin, end : float, datetime or datetime64
            Offsets in time units; or moments, if the schedule has a `start`.

        Returns
        -------
        Schedule
            On the same clock: times still count from the start of the whole.

        Raises
        ------
        SourceDataError
            If a moment is given and the schedule has no `start`, or `end` comes before `begin`.
        """
        first, last = self._offset(begin, "begin"), self._offset(end, "end")
        if not first <= last:
            raise SourceDataError(f"the end, {last:g}, comes before the begin, {first:g}. Swap them.")
        return self._part(*np.searchsorted(self.time, [first, last], side="left").tolist())

    def due(
        self, now: float | datetime | np.datetime64, since: float | datetime | np.datetime64 | None = None
    ) -> Schedule:
        """Return the refreshes due by now, those in (since, now].

        A crawler that asks again and again, each time since it last asked, misses none and gets none twice.

        Parameters
        ----------
        now, since : float, datetime or datetime64
            As in `between`; without `since` all up to now are due.

        Raises
        ------
        SourceDataError
            As `between`.

        Examples
        --------
        >>> begin = np.datetime64("2026-01-01")
        >>> plan = Schedule([0, 1, 0], [0.0, 0.5, 1.0], horizon=2.0, rates=[1.0, 0.5], start=begin)
        >>> plan.due(np.datetime64("2026-01-01T12:00")).source.tolist()
        [0, 1]
        >>> plan.due(1.0, since=0.5).source.tolist()
        [0]
        """
        first = -np.inf if since is None else self._offset(since, "since")
        last = self._offset(now, "now")
        if not first <= last:
            raise SourceDataError(f"now, {last:g}, comes before since, {first:g}. Swap them.")
        return self._part(*np.searchsorted(self.time, [first, last], side="right").tolist())

    def __repr__(self) -> str:
        span = count(self.horizon, self.time_unit, "g")
        many, n = count(len(self), "refresh", "d"), len(self.rates)
        parts = [f"{many} of {count(n, 'source', 'd')} in {span}"]
        if self.crawl_probability is not None:
            parts.append(f"{np.count_nonzero(~np.isnan(self.crawl_probability))} crawled on signal")
        return f"Schedule({', '.join([*parts, *filter(None, [self.method])])})"

    @property
    def counts(self) -> IntArray:
        """The number of refreshes of each source, shape (n,)."""
        return np.bincount(self.source, minlength=len(self.rates)).astype(np.int64)

    @framed
    def to_frame(self, origin: datetime | np.datetime64 | None = None) -> polars.DataFrame:
        """Return the schedule as a dataframe, in the library of its rates.

        Parameters
        ----------
        origin : datetime or datetime64, optional
            The moment of time 0; without a time zone it is UTC. By default the schedule's own `start`.

        Returns
        -------
        dataframe
            ``source`` (name or position), ``time`` (offset in time units) and, given an origin, ``timestamp``
            (UTC, to the microsecond).

        Examples
        --------
        >>> plan = Schedule([0, 1], [0.0, 0.5], horizon=1.0, rates=[1.0, 1.0], names=["a", "b"])
        >>> plan.to_frame(np.datetime64("2026-01-01"))["timestamp"].to_list()[1].isoformat()
        '2026-01-01T12:00:00+00:00'
        """
        named = self.source if self.names is None else polars.Series(self.names.tolist())[self.source]
        table = polars.DataFrame({"source": named, "time": self.time})
        origin = self.start if origin is None else utc_moment(origin)
        if origin is None:
            return table
        latest = self.horizon * SECONDS[self.time_unit]
        if latest > MOST_SECONDS:
            raise SourceDataError(
                f"a horizon of {self.horizon:g} {self.time_unit}s goes beyond the timestamps that can be "
                f"written (100 000 years). Leave out the start, or shorten the horizon."
            )
        stamp = polars.Series("timestamp", moments_after(origin, self.time, self.time_unit))
        return table.with_columns(stamp.dt.replace_time_zone("UTC"))

    def of_library(self, library: str) -> Schedule:
        """Return the schedule itself, whose table is a dataframe of a library."""
        object.__setattr__(self, "library", library)
        return self

    def _part(self, first: int, last: int) -> Schedule:
        """Return some of the refreshes, in turn, on the same clock."""
        part = slice(first, last)
        own = replace(self, source=self.source[part], time=self.time[part], random_method=None)
        return own.of_library(self.library)

    def _offset(self, time: float | datetime | np.datetime64, what: str) -> float:
        """Return a time as an offset from the start."""
        if not isinstance(time, datetime | np.datetime64):
            offset = as_number(time, what, "Pass an offset in time units, or a moment.")
            if np.isnan(offset):
                raise SourceDataError(f"{what} is nan. Pass an offset in {self.time_unit}s, or a moment.")
            return offset
        if self.start is None:
            raise SourceDataError(
                f"{what} is a moment, but the schedule does not know when it starts. Pass an offset in "
                f"{self.time_unit}s, or make the schedule with start=."
            )
        return float((utc_moment(time) - self.start) / np.timedelta64(1, "us")) / (
            SECONDS[self.time_unit] * 1e6
        )

    def _check_order(self) -> None:
        """Raise if positions, times in the horizon, or their order are invalid."""
        source, time, n = self.source, self.time, len(self.rates)
        if len(time) == 0:
            return
        if source.min() < 0 or source.max() >= n:
            raise SourceDataError(
                f"source ranges over {source.min()}..{source.max()}, but there are {n}. Use 0..{n - 1}."
            )
        later = (time[1:] > time[:-1]) | ((time[1:] == time[:-1]) & (source[1:] >= source[:-1]))
        if not later.all():
            k = int(np.argmin(later))
            raise SourceDataError(
                f"refresh {k + 1} at {time[k + 1]:g} comes after one at {time[k]:g}. "
                "Sort by time, then source."
            )
        if not (time[0] >= 0 and time[-1] < self.horizon):
            raise SourceDataError(
                f"times range over {time[0]:g}..{time[-1]:g}, outside [0, {self.horizon:g}). "
                "Shift them or lengthen the horizon."
            )


@keywords()
def schedule(
    rates: Solution | Mapping[Any, float] | Any,  # noqa: ANN401 - any dataframe library's frame
    horizon: Time,
    method: Method | None = None,
    *,
    time_unit: str | None = None,
    start: float | datetime | np.datetime64 | None = None,
) -> Schedule:
    """Turn rates into refresh times.

    Parameters
    ----------
    rates : Solution, mapping or dataframe
        A solution of a problem; or names mapped to rates; or a table with columns ``source`` and ``rate``,
        and ``signalled`` with ``change_rate`` if some sources signal their changes.
    horizon : float, str or timedelta
        Length of the schedule, > 0: in time units, or with its unit such as "7d".
    method : Method, optional
        How the refreshes of a source follow each other; by default ``Periodic()``, at equal intervals, which
        costs less than any random intervals of the same rates.
    time_unit : str, optional
        The unit of rates and horizon. A solution brings its own; otherwise the default is "day".
    start : datetime or datetime64 or number, optional
        The moment of time 0; without a time zone it is UTC. With a weekly profile also a number, on the clock
        of the log that the profile was learnt from.

    Returns
    -------
    Schedule
        Refreshes of the unsignalled sources, and crawl probabilities ρ/Δ of the signalled ones.

    Raises
    ------
    SourceDataError
        If the horizon or a rate cannot be used, or the schedule would not fit in the memory that is free.

    Examples
    --------
    >>> from freshopt.scheduling import Carousel
    >>> schedule({"news": 2.0, "archive": 0.5}, horizon=7.0)
    Schedule(17 refreshes of 2 sources in 7 days, Periodic())
    >>> schedule({"news": 2.0, "archive": 0.5}, horizon=7.0, method=Carousel())
    Schedule(17 refreshes of 2 sources in 7 days, Carousel())
    >>> schedule({"news": 2.0, "archive": 0.5}, "1w").horizon
    7.0
    """
    table = read_rates(rates, time_unit)
    length = check_horizon(horizon, table.time_unit)
    clocked = table.rates if table.signalled is None else np.where(table.signalled, 0.0, table.rates)
    check_size(clocked, length, table.time_unit)
    method = Periodic() if method is None else method
    if isinstance(method, type) or not hasattr(method, "times"):
        raise SourceDataError(f"method is {method!r}. Pass an instance of a method, such as Periodic().")
    timed: tuple[Method, np.datetime64 | None]
    if isinstance(method, StartedMethod):
        timed = method.starting(start, table.weight, table.time_unit)
    else:
        timed = method, None if start is None else utc_moment(start)
    source, time = timed[0].times(clocked, length)
    return Schedule(
        source=source,
        time=time,
        horizon=length,
        rates=table.rates,
        names=table.names,
        time_unit=table.time_unit,
        method=repr(method),
        crawl_probability=table.crawl_probability,
        importance=table.importance,
        start=timed[1],
        random_method=method if isinstance(method, RandomMethod) else None,
    ).of_library(table.library)
