"""`SignalThresholds`: threshold policy of a crawler with noisy signals.

A table of when each source is to be crawled, and a rule.

The rule is evaluated on events: at each signal, and when the waiting time has passed without one, compare. It
is kept as a number of signals n, a time x and a bonus b: with k signals since the last crawl a crawl is due
when the time since then is at least x + (n−k)b. That is equivalent to "elapsed + bonus·signals ≥ threshold"
with the threshold nb + x, also where the bonus is inf or so large that adding it swallows the time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.compiled.backend import plain_or_compiled
from freshopt.formatting import count
from freshopt.heavy import polars
from freshopt.noisy_signals.wait_rule import WaitRule
from freshopt.numerics.arrays import (
    Array,
    IntArray,
    as_vector,
    shape_of,
)
from freshopt.numerics.frozen_arrays import frozen_value


def waiting_time(heard: float, signals: float, wait: float, bonus: float) -> float:
    """Return the waiting time from a crawl to the next.

    With so many signals heard.

    Examples
    --------
    >>> waiting_time(0.0, 1.0, 0.5, 2.0), waiting_time(1.0, 1.0, 0.5, 2.0), waiting_time(2.0, 1.0, 0.5, 2.0)
    (2.5, 0.5, 0.0)
    """
    if heard == signals or bonus == 0.0:
        return wait
    if heard > signals:
        return 0.0 if bonus == math.inf else max(0.0, wait - (heard - signals) * bonus)
    return wait + (signals - heard) * bonus


def follow(
    offsets: IntArray,
    times: Array,
    coins: Array,
    signals: Array,
    wait: Array,
    bonus: Array,
    share: Array,
    begin: Array,
    horizon: float,
    counts: IntArray,
    out: Array,
) -> None:
    """Write or count the crawls of each source.

    Source by source; they are only counted, in `counts[1:]`, if there is no room.
    """
    at = 0
    for k in range(len(wait)):
        last, heard = begin[k], 0.0
        for e in range(offsets[k], offsets[k + 1] + 1):
            signal = times[e] if e < offsets[k + 1] else horizon
            while share[k] > 0.0:  # crawls that are due before the next signal
                due = last + waiting_time(heard, signals[k], wait[k], bonus[k])
                if not (due < signal and due > last):
                    break
                if len(out):
                    out[at] = due
                at += 1
                last, heard = due, 0.0
            if e < offsets[k + 1]:
                heard += 1.0
                late = signal - last >= waiting_time(heard, signals[k], wait[k], bonus[k])
                if late and share[k] > 0.0 and (share[k] == 1.0 or coins[e] < share[k]):
                    if len(out):
                        out[at] = signal
                    at += 1
                    last, heard = signal, 0.0
        counts[k + 1] = at


@frozen_value(repr=False, init=False)
class SignalThresholds(WaitRule):
    """When to crawl sources with noisy signals; made by `NoisySignalFreshness.thresholds`.

    Parameters
    ----------
    signals : array_like, shape (n,)
        n: so many signals, 0 or more, are part of the threshold.
    wait : array_like, shape (n,)
        x ≥ 0: so much time is the rest; inf for never, or not before a signal.
    bonus : array_like, shape (n,)
        b: the time that a signal counts as; inf where one alone is enough, 0 where there are none.
    crawl_probability : array_like, shape (n,)
        Share of the crawls that are due which are made: below 1 where signals are true and bandwidth does not
        suffice for all of them.
    names : array_like, shape (n,), optional
    time_unit : str

    Raises
    ------
    SourceDataError
        If columns differ in length or are no such numbers.
    """

    signals: Array
    wait: Array
    bonus: Array
    crawl_probability: Array
    names: npt.NDArray[Any] | None
    time_unit: str

    def __init__(
        self,
        signals: npt.ArrayLike,
        wait: npt.ArrayLike,
        bonus: npt.ArrayLike,
        crawl_probability: npt.ArrayLike = 1.0,
        names: npt.ArrayLike | None = None,
        time_unit: str = "day",
    ) -> None:
        columns = {"signals": signals, "wait": wait, "bonus": bonus, "crawl_probability": crawl_probability}
        remedy = "Thresholds are numbers >= 0, probabilities at most 1. Correct it."
        n, shares = math.prod(shape_of(wait, "wait")), ("crawl_probability",)
        self._set(columns, shares, n, names, time_unit, ("thresholds", remedy))

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.wait)

    def __repr__(self) -> str:
        n, finite = len(self), self.threshold[np.isfinite(self.threshold)]
        span = f", thresholds {finite.min():.3g}..{finite.max():.3g} {self.time_unit}s" if len(finite) else ""
        heard = np.count_nonzero(self.bonus > 0.0)
        return f"SignalThresholds({count(n, 'source', 'd')}, {heard} with signals{span})"

    @property
    def threshold(self) -> Array:
        """Crawl threshold in effective time, shape (n,).

        i = n·b + x; inf for never or not before a signal.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            whole: Array = np.where(self.signals > 0.0, self.signals * self.bonus, 0.0) + self.wait
        return whole

    def waiting(self, signals: npt.ArrayLike) -> Array:
        """Return the times from a crawl to the next, shape (n,).

        Parameters
        ----------
        signals : array_like, scalar or shape (n,)
            Signals since the last crawl.

        Examples
        --------
        >>> SignalThresholds(signals=[1.0, 0.0], wait=[0.5, 3.0], bonus=[2.0, np.inf]).waiting(0).tolist()
        [2.5, 3.0]
        """
        missing = self.signals - as_vector(signals, len(self), "signals")
        with np.errstate(invalid="ignore"):
            rest = np.where(missing == 0.0, 0.0, missing * self.bonus)
            waiting = np.where(missing == 0.0, self.wait, np.maximum(self.wait + rest, 0.0))
        return np.where((missing < 0.0) & np.isinf(self.bonus), 0.0, waiting)

    def _followed(self) -> tuple[Callable[..., None], tuple[Array, ...], Array, Array]:
        columns = (self.signals, self.wait, self.bonus)
        return _loops()["follow"], columns, self.crawl_probability, self.threshold

    def to_frame(self) -> polars.DataFrame:
        """Return the table that a crawler loads.

        Returns
        -------
        polars.DataFrame
            ``source``, ``threshold`` and ``bonus`` (crawl once elapsed time + bonus · signals reaches the
            threshold), the same rule as ``signals`` and ``wait`` (crawl once elapsed time reaches wait +
            (signals − those heard) · bonus), and ``crawl_probability``; null for inf.
        """
        columns = {
            "threshold": self.threshold,
            "bonus": self.bonus,
            "signals": self.signals.astype(np.int64) if np.all(self.signals < 2.0**62) else self.signals,
            "wait": self.wait,
            "crawl_probability": self.crawl_probability,
        }
        return self._framed(columns, ("threshold", "bonus", "wait"))


_loops = plain_or_compiled((follow,), (sys.modules[__name__],))
