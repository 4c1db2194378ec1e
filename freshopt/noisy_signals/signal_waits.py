"""`SignalWaits`: when to crawl, by the number of signals since."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.compiled.backend import plain_or_compiled
from freshopt.errors import SourceDataError
from freshopt.formatting import count
from freshopt.heavy import polars, special
from freshopt.noisy_signals.wait_rule import WaitRule
from freshopt.numerics.arrays import Array, IntArray, as_vector, read_only
from freshopt.numerics.frozen_arrays import frozen_value


def follow_waits(
    offsets: IntArray,
    times: Array,
    coins: Array,
    waits: Array,
    share: Array,
    begin: Array,
    horizon: float,
    counts: IntArray,
    out: Array,
) -> None:
    """Write or count the crawls of each source.

    They are only counted, in `counts[1:]`, if there is no room.
    """
    at, most = 0, waits.shape[1]
    for k in range(len(waits)):
        last, heard = begin[k], 0
        # The number of signals at which a crawl is due at once, whatever the time.
        enough = 0
        while enough < most and waits[k, enough] > 0.0:
            enough += 1
        for e in range(offsets[k], offsets[k + 1] + 1 if share[k] > 0.0 else offsets[k]):
            signal = times[e] if e < offsets[k + 1] else horizon
            while heard < enough:  # crawls that are due before the next signal
                due = last + waits[k, heard]
                if not (due < signal and due > last):
                    break
                if len(out):
                    out[at] = due
                at += 1
                last, heard = due, 0
            if e < offsets[k + 1]:
                heard += 1
                late = heard > enough or (heard == enough and coins[e] < share[k])
                if late or (heard < enough and signal - last >= waits[k, heard]):
                    if len(out):
                        out[at] = signal
                    at += 1
                    last, heard = signal, 0
        counts[k + 1] = at


@frozen_value(repr=False, init=False)
class SignalWaits(WaitRule):
    """When to crawl sources with noisy signals; made by `WithNoisySignals.rule`.

    With k signals since the last crawl a crawl is due once so much time has passed since then.

    Parameters
    ----------
    waits : array_like, shape (n, K)
        τ_0 ≥ τ_1 ≥ ... ≥ 0 of each source: the time after which a copy with k signals is crawled; 0 at once,
        as with K signals and more, inf not before a signal.
    share : array_like, scalar or shape (n,)
        How often the first number of signals whose wait is 0 is enough; else it takes one more. A source of
        share 0 is never crawled.
    names : array_like, shape (n,), optional
    time_unit : str

    Raises
    ------
    SourceDataError
        If the waits are no such table, or shares are no probabilities.

    Examples
    --------
    >>> rule = SignalWaits([[3.0, 1.0], [5.0, 0.0]])
    >>> rule.due([0, 1], [2.0, 0.1]), rule.crawls([0, 0], [0.5, 3.0], horizon=4.0)[1].tolist()
    (array([False,  True]), [1.0, 3.0])
    """

    waits: Array
    share: Array
    names: npt.NDArray[Any] | None
    time_unit: str

    def __init__(
        self,
        waits: npt.ArrayLike,
        share: npt.ArrayLike = 1.0,
        names: npt.ArrayLike | None = None,
        time_unit: str = "day",
    ) -> None:
        try:
            table = np.array(waits, dtype=np.float64)
        except (TypeError, ValueError):
            table = np.empty(0)
        if table.ndim != 2 or not table.size or not bool(np.all(table >= 0.0)):
            raise SourceDataError(
                "waits are no table of times >= 0, a row for each source. Pass what WithNoisySignals.rule "
                "returns."
            )
        falling = np.all(table[:, 1:] <= table[:, :-1], axis=1)
        if not bool(np.all(falling)):
            raise SourceDataError(
                f"waits of source {int(np.argmin(falling))} rise with the number of signals. Sort them."
            )
        object.__setattr__(self, "waits", read_only(table))
        what = "rows of waits", "It is not in [0, 1]. Correct it."
        self._set({"share": share}, ("share",), len(table), names, time_unit, what)

    def __len__(self) -> int:
        """Return the number of sources."""
        return len(self.waits)

    def __repr__(self) -> str:
        most = int(np.max(np.count_nonzero(self.waits > 0.0, axis=1)))
        sources, signals = count(len(self), "source", "d"), count(most, "signal", "d")
        return f"SignalWaits({sources}, at most {signals} before a crawl)"

    def waiting(self, signals: npt.ArrayLike) -> Array:
        """Return the times from a crawl to the next, shape (n,).

        Parameters
        ----------
        signals : array_like, scalar or shape (n,)
            Signals since the last crawl.

        Examples
        --------
        >>> SignalWaits([[3.0, 1.0], [5.0, 0.0]]).waiting([0, 1]).tolist()
        [3.0, 0.0]
        """
        padded = np.column_stack([self.waits, np.zeros(len(self))])
        k = np.maximum(as_vector(signals, len(self), "signals"), 0.0)
        at = np.minimum(k, padded.shape[1] - 1).astype(np.int64)
        return np.where(self.share > 0.0, padded[np.arange(len(self)), at], np.inf)

    def _followed(self) -> tuple[Callable[..., None], tuple[Array, ...], Array, Array]:
        return _loops()["follow_waits"], (self.waits,), self.share, self.waits[:, 0]

    def to_frame(self) -> polars.DataFrame:
        """Return the table that a crawler loads.

        Returns
        -------
        polars.DataFrame
            ``source``, ``signals`` (0, 1, ...) and ``wait``, a row for each number of signals with a wait > 0
            (null for not before a signal); with more signals a crawl is due at once, with the first such
            number only so often as ``share`` tells, and never where that is 0.
        """
        source, signals = np.nonzero(self.waits > 0.0)
        labels = source if self.names is None else self.names[source].tolist()
        columns = {"wait": self.waits[source, signals], "share": self.share[source]}
        table = polars.DataFrame({"source": labels, "signals": signals, **columns})
        wait = polars.col("wait")
        return table.with_columns(polars.when(wait.is_finite()).then(wait))


def stale_between(rule: SignalWaits, rate: Array, d: Array, recall: Array, precision: Array) -> Array:
    """Return each copy's stale share of time at these rates, shape (n,).

    A copy with k signals is fresh until the time τ_k while all of them were false and no change was silent:
    ∫₀^τ_k e^{−at}((1−p)gt)^k/k! dt, with g signals and a = (1−l)Δ + g per time, is a Gamma distribution's.
    """
    g = recall * d / precision
    a = (1.0 - recall) * d + g
    k = np.arange(rule.waits.shape[1] + 1)
    within = special.gammainc(k + 1.0, a[:, None] * np.column_stack([rule.waits, np.zeros(len(rule))]))
    # One more signal is waited for, however long it takes, where two numbers alternate.
    rows, enough = np.arange(len(rule)), np.count_nonzero(rule.waits > 0.0, axis=1)
    within[rows, enough] = np.where(rule.share > 0.0, 1.0 - rule.share, 0.0)
    fresh = np.sum(within * ((1.0 - precision) * g / a)[:, None] ** k, axis=1) / a
    return np.where(rate > 0.0, np.clip(1.0 - rate * fresh, 0.0, 1.0), 1.0)


_loops = plain_or_compiled((follow_waits,), (sys.modules[__name__],))
