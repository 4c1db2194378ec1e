"""`AgeThresholds`: when to crawl, by the times of the signals since."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.compiled.backend import plain_or_compiled
from freshopt.errors import SourceDataError
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.noisy_signals import cycle_terms, expected_age
from freshopt.noisy_signals.expected_age import age_rise, time_left
from freshopt.noisy_signals.wait_rule import WaitRule
from freshopt.numerics.arrays import Array, IntArray, shape_of
from freshopt.numerics.frozen_arrays import frozen_value


def due_after(times: Iterable[float], threshold: float, unheard: float, precision: float) -> float:
    """Return the time from a crawl to the next.

    Examples
    --------
    >>> due_after([], 1.0, 0.0, 0.5), due_after([3.0, 4.0], 1.0, 0.0, 0.5)
    (inf, 4.666666666666667)
    """
    at, left, fresh = 0.0, threshold, 1.0
    for time in sorted(times):
        wait = time_left(left, fresh, unheard)
        if at + wait <= time:
            break
        left -= age_rise(time - at, fresh, unheard)
        fresh *= math.exp(-unheard * (time - at)) * (1.0 - precision)
        at = time
    return at + time_left(left, fresh, unheard)


def follow_ages(
    offsets: IntArray,
    times: Array,
    _coins: Array,
    threshold: Array,
    unheard: Array,
    precision: Array,
    share: Array,
    begin: Array,
    horizon: float,
    counts: IntArray,
    out: Array,
) -> None:
    """Write or count the crawls of each source.

    They are only counted, in `counts[1:]`, if there is no room.
    """
    at = 0
    for k in range(len(threshold)):
        now, left, fresh = begin[k], threshold[k], 1.0
        for e in range(offsets[k], offsets[k + 1] + 1 if share[k] > 0.0 else offsets[k]):
            signal = times[e] if e < offsets[k + 1] else horizon
            while True:  # crawls that are due before the signal
                due = now + time_left(left, fresh, unheard[k])
                if not (due < signal and (due > now or fresh < 1.0)):
                    break
                if len(out):
                    out[at] = due
                at += 1
                now, left, fresh = due, threshold[k], 1.0
            left -= age_rise(signal - now, fresh, unheard[k])
            fresh *= math.exp(-unheard[k] * (signal - now)) * (1.0 - precision[k])
            now = signal
        counts[k + 1] = at


@frozen_value(repr=False, init=False)
class AgeThresholds(WaitRule):
    """When to crawl sources by their copies' expected age; made by `WithNoisySignals.rule`.

    A crawler keeps two numbers of a copy, age 0 and fresh 1 after a crawl. In a time t without a signal the
    age grows by t − fresh·(1 − e^{−ut})/u, u = `unheard` (by (1 − fresh)·t where that is 0), and fresh falls
    to fresh·e^{−ut}; a signal multiplies fresh by 1 − `precision`. A crawl is due once age is `threshold`.

    Parameters
    ----------
    threshold : array_like, shape (n,)
        Expected time since the first missed change at which a copy is crawled; inf for never.
    unheard : array_like, shape (n,)
        Changes per time unit that no signal announces.
    precision : array_like, shape (n,)
        Share of signals that are true, in [0, 1].
    names : array_like, shape (n,), optional
    time_unit : str

    Raises
    ------
    SourceDataError
        If columns differ in length or are no such numbers.

    Examples
    --------
    A crawl one day after a signal that is surely true, and each 10 days of a source without any.

    >>> rule = AgeThresholds([1.0, 9.0], unheard=[0.0, 1.0], precision=1.0)
    >>> rule.waiting().round(3).tolist(), rule.waiting([[3.0], []]).round(3).tolist()
    ([inf, 10.0], [4.0, 10.0])
    """

    threshold: Array
    unheard: Array
    precision: Array
    names: npt.NDArray[Any] | None
    time_unit: str

    def __init__(
        self,
        threshold: npt.ArrayLike,
        unheard: npt.ArrayLike,
        precision: npt.ArrayLike,
        names: npt.ArrayLike | None = None,
        time_unit: str = "day",
    ) -> None:
        columns = {"threshold": threshold, "unheard": unheard, "precision": precision}
        remedy = "Pass what WithNoisySignals.rule returns: ages and rates >= 0, shares up to 1."
        n = math.prod(shape_of(threshold, "threshold"))
        self._set(columns, ("precision",), n, names, time_unit, ("ages", remedy))

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.threshold)

    def __repr__(self) -> str:
        finite = self.threshold[np.isfinite(self.threshold)]
        span = f", ages {finite.min():.3g}..{finite.max():.3g} {self.time_unit}s" if len(finite) else ""
        return f"AgeThresholds({count(len(self), 'source', 'd')}{span})"

    def waiting(self, signals: npt.ArrayLike | Sequence[npt.ArrayLike] = 0.0) -> Array:
        """Return the times from a crawl to the next, shape (n,).

        Parameters
        ----------
        signals : 0 or a sequence of n array_like
            0 for none so far, or of each source the times of its signals since its last crawl: how many there
            were does not tell how old a copy is.
        """
        none = isinstance(signals, int | float) and signals == 0.0
        heard: Any = [()] * len(self) if none else signals
        if (
            isinstance(heard, int | float)
            or len(heard) != len(self)
            or any(np.ndim(own) != 1 for own in heard)
        ):
            raise SourceDataError(
                "signals are numbers of signals, and the age of a copy depends on when they came. Pass 0, or "
                f"a list of times for each of {count(len(self), 'source', 'd')}."
            )
        columns = zip(heard, self.threshold, self.unheard, self.precision, strict=True)
        return np.array([due_after(map(float, times), *map(float, own)) for times, *own in columns])

    def _followed(self) -> tuple[Callable[..., None], tuple[Array, ...], Array, Array]:
        columns = (self.threshold, self.unheard, self.precision)
        share = np.where(np.isfinite(self.threshold), 1.0, 0.0)
        return _loops()["follow_ages"], columns, share, self.waiting()

    def to_frame(self) -> polars.DataFrame:
        """Return the table that a crawler loads.

        Returns
        -------
        polars.DataFrame
            ``source``, ``age`` at which it is crawled (null for never), ``unheard``, and ``wait``, the time
            to the next crawl while no signal comes (null for not before one).
        """
        columns = {"age": self.threshold, "unheard": self.unheard, "wait": self.waiting()}
        return self._framed(columns, ("age", "wait"))


_loops = plain_or_compiled((follow_ages,), (cycle_terms, expected_age, sys.modules[__name__]))
