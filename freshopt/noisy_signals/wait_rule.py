"""`WaitRule`: what rules have in common that wait for time and signals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.numerics.arrays import (
    Array,
    IntArray,
    as_number,
    as_vector,
    label_array,
    read_only,
    shape_of,
    total,
)
from freshopt.units import check_time_unit

# Largest number of crawls: 16 GB of them.
MOST_CRAWLS = 1e9


class WaitRule(ABC):
    """Rule of what is due, by last crawls and signals since.

    A rule has `waiting` and `_followed`.
    """

    __slots__ = ()
    names: npt.NDArray[Any] | None
    time_unit: str

    @abstractmethod
    def waiting(self, signals: npt.ArrayLike) -> Array:
        """Return the times from a crawl to the next, shape (n,)."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of sources."""

    @abstractmethod
    def _followed(self) -> tuple[Callable[..., None], tuple[Array, ...], Array, Array]:
        """Return the loop, its columns, shares, and waits without signals."""

    def _set(
        self,
        columns: Mapping[str, npt.ArrayLike],
        shares: Sequence[str],
        n: int,
        names: npt.ArrayLike | None,
        time_unit: str,
        what: tuple[str, str],
    ) -> None:
        """Set columns of numbers >= 0, names and the time unit.

        Those of `shares` are up to 1. `what` is what an entry is called, and what to do about a wrong one.
        """
        for key, value in columns.items():
            column = as_vector(value, n, key)
            wrong = np.flatnonzero(~((column >= 0.0) & (column <= (1.0 if key in shares else np.inf))))
            if len(wrong):
                raise SourceDataError(f"{key} of source {wrong[0]} is {column[wrong[0]]:g}. {what[1]}")
            object.__setattr__(self, key, column)
        if names is not None:
            shape_of(names, "names")
        labels = None if names is None else read_only(label_array(names))
        if labels is not None and labels.shape != (n,):
            raise SourceDataError(
                f"there are {n} {what[0]} and names of shape {labels.shape}. Give one each."
            )
        object.__setattr__(self, "names", labels)
        object.__setattr__(self, "time_unit", check_time_unit(time_unit))

    def _framed(self, columns: Mapping[str, Any], finite: Sequence[str]) -> polars.DataFrame:
        """Return columns by source, some without what is not finite."""
        source = np.arange(len(self)) if self.names is None else self.names.tolist()
        known = [polars.when(polars.col(key).is_finite()).then(polars.col(key)) for key in finite]
        return polars.DataFrame({"source": source, **columns}).with_columns(known)

    def due(self, signals: npt.ArrayLike, elapsed: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return which sources are to be crawled now.

        Parameters
        ----------
        signals, elapsed : array_like, scalar or shape (n,)
            Signals and time since the last crawl of each source.

        Examples
        --------
        >>> from freshopt.noisy_signals import SignalThresholds
        >>> rule = SignalThresholds(signals=[1.0, 0.0], wait=[0.5, 3.0], bonus=[2.0, np.inf])
        >>> rule.due([1, 0], 0.6), rule.due([0, 1], 2.4)
        (array([ True, False]), array([False,  True]))
        """
        return np.asarray(as_vector(elapsed, len(self), "elapsed") >= self.waiting(signals))

    def crawls(
        self,
        source: npt.ArrayLike,
        time: npt.ArrayLike,
        horizon: float,
        draws: npt.ArrayLike | None = None,
        last: npt.ArrayLike = 0.0,
    ) -> tuple[IntArray, Array]:
        """Return the crawls of a crawler that follows the rule.

        They begin after each source's last crawl, by default at 0.

        Parameters
        ----------
        source : array_like of int, shape (m,)
        time : array_like, shape (m,)
            The signals from the last crawls up to the horizon, sorted by time.
        horizon : float
        draws : array_like, shape (m,), optional
            Numbers uniform in (0, 1), one per signal, where some crawls on signal are left out or wait for
            one more.
        last : array_like, scalar or shape (n,)
            When each source was crawled last.

        Returns
        -------
        source : ndarray of int
        time : ndarray
            Sorted by time, then source.

        Examples
        --------
        >>> from freshopt.noisy_signals import SignalThresholds
        >>> rule = SignalThresholds(signals=[1.0], wait=[0.5], bonus=[2.0])
        >>> rule.crawls([0, 0], [1.0, 3.0], horizon=8.0)[1].tolist()
        [1.0, 3.0, 5.5]
        """
        sources = np.asarray(source, dtype=np.int64)
        times = as_vector(time, len(sources), "time")
        horizon = as_number(horizon, "horizon", f"Pass a finite number of {self.time_unit}s.")
        begin = np.array(as_vector(last, len(self), "last"))
        if not float(np.min(begin)) < horizon < np.inf or not bool(np.all(np.isfinite(begin))):
            raise SourceDataError(
                f"horizon is {horizon} {self.time_unit}s. Pass a finite number after the last crawls."
            )
        loop, columns, share, longest = self._followed()
        if draws is None and bool(np.any((share < 1.0) & (share > 0.0))):
            raise SourceDataError(
                "some crawls on signal are to be left out at random, but there are no draws. "
                "Pass one number uniform in (0, 1) per signal."
            )
        coins = as_vector(0.0 if draws is None else draws, len(sources), "draws")
        with np.errstate(over="ignore"):  # where the wait is 0, crawls follow signals alone
            length = np.maximum(horizon - begin, 0.0)
            many = total(np.divide(length, longest, out=np.zeros(len(self)), where=longest > 0.0))
        if not many <= MOST_CRAWLS:
            raise SourceDataError(
                f"up to {horizon:g} {self.time_unit}s there may be {many:.3g} crawls, and at most "
                f"{MOST_CRAWLS:g} are followed. Pass a shorter horizon, or longer waits."
            )
        order = np.argsort(sources, kind="stable")
        offsets = np.searchsorted(sources[order], np.arange(len(self) + 1)).astype(np.int64)
        given = [np.array(own, order="C") for own in (times[order], coins[order], *columns, share, begin)]
        counts = np.zeros(len(self) + 1, dtype=np.int64)
        loop(offsets, *given, horizon, counts, np.empty(0))
        found = np.empty(int(counts[-1]))
        loop(offsets, *given, horizon, counts, found)
        who = np.repeat(np.arange(len(self)), np.diff(counts))
        by_time = np.lexsort((who, found))
        return who[by_time], found[by_time]
