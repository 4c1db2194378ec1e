"""Buffer of a run's crawls, with its fitted estimator.

Rows are kept epoch after epoch, within an epoch source after source. Each has its crawl interval, so that any
part of them is a log without baselines. An online estimator is updated epoch by epoch; when a run
is resumed it is updated again from the rows, which gives the same bits, and none of its state is saved.

Visit times of a round, and its followed signals. Under Poisson refreshes a round has a whole number of
*slots*, as many as the bandwidth allows, at independent uniform times, and each slot goes to a source sampled
in proportion to the rates: a Poisson process for each source, given that their total is what was allowed. A
signal that is followed is answered at once and pays with the next slot, which is then not used; a signal for
which no slot is left in the round is not followed. So the crawls of a round are exactly those allowed,
signalled sources included, and no decision depends on the future. Where refreshes differ in cost, a slot
costs the mean of those that slots are drawn for, a signal pays with as many as its own refresh costs, and
what it owes at the end of a round is paid in the next.

Under periodic refreshes a source is due whenever its expected number of visits since the start passes a whole
number; the phases of the sources are spread evenly, so that equal rates make sweeps. Signals are counted, and
one is followed whenever the sum of the shares to be followed passes a whole number.

Cost: a few passes over the round's crawls.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from freshopt.estimators.estimator import Estimator
from freshopt.estimators.known_crawl_rate import KnownCrawlRate
from freshopt.logs.clock import Clock
from freshopt.logs.crawl_log import CrawlLog, derived_log
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.online.learner import State

# A part of a slot that is rounding.
ROUNDED = 1e-6
NO_ROWS: State = {
    "row_source": np.empty(0, dtype=np.int64),
    "row_time": np.empty(0),
    "row_interval": np.empty(0),
    "row_changed": np.empty(0, dtype=np.bool_),
    # How often it had changed, as long as the other columns for an estimator of counts and empty otherwise.
    "row_changes": np.empty(0),
    # Rate at which the source was crawled.
    "row_rate": np.empty(0),
    "epoch_rows": np.empty(0, dtype=np.int64),
}


def with_rows(
    state: State,
    source: npt.NDArray[np.int64],
    time: Array,
    found: npt.NDArray[Any],
    *,
    counted: bool = False,
) -> State:
    """Return a state with an epoch's crawls added.

    They come source after source, each with the crawl interval before it. What they found is whether the
    source had changed, or how often.
    """
    order = np.lexsort((time, source))
    source, time, found = source[order], time[order], found[order]
    first = np.ones(len(source), dtype=np.bool_)
    np.not_equal(source[1:], source[:-1], out=first[1:])
    interval = np.diff(time, prepend=0.0)
    interval[first] = time[first] - state["last"][source[first]]
    last = state["last"].copy()
    final = np.ones(len(source), dtype=np.bool_)
    np.not_equal(source[1:], source[:-1], out=final[:-1])
    last[source[final]] = time[final]
    known = interval > 0.0  # a crawl at the very moment of the one before tells nothing
    more = {
        "row_source": source,
        "row_time": time,
        "row_interval": interval,
        "row_changed": found > 0,
        "row_rate": state["rates"][source],
    }
    if counted:
        more["row_changes"] = found.astype(np.float64)
    added = {key: np.concatenate([state[key], column[known]]) for key, column in more.items()}
    epochs = np.append(state["epoch_rows"], np.count_nonzero(known))
    return {**state, **added, "last": last, "epoch_rows": epochs}


class LogReader:
    """Estimator, a copy of the prototype, kept fitted to rows."""

    def __init__(self, prototype: Estimator, time_unit: str) -> None:
        self.prototype, self.time_unit = prototype, time_unit
        self.estimator: Estimator | None = None  # that has learnt from `learnt` epochs
        self.learnt = -1

    def fitted(self, state: State, memory: float | None = None) -> Estimator | None:
        """Return an estimator fitted to all epochs, None without crawls."""
        ends = np.cumsum(state["epoch_rows"])
        if len(ends) == 0 or ends[-1] == 0:
            return None
        if memory is not None or not hasattr(self.prototype, "partial_fit"):
            since = -np.inf if memory is None else float(state["now"]) - memory
            log = self._log(state, np.flatnonzero(state["row_time"] > since))
            if log is None:
                return None
            estimator: Any = copy.deepcopy(self.prototype)
            if isinstance(estimator, KnownCrawlRate):
                return estimator.fit(log, crawl_rate=self._rates_of(state, since))
            fitted: Estimator = estimator.fit(log)
            return fitted
        if self.estimator is None or self.learnt != len(ends) - 1:  # a run resumed: learn again what it knew
            self.estimator, self.learnt = copy.deepcopy(self.prototype), 0
        for epoch in range(self.learnt, len(ends)):
            rows = np.arange(ends[epoch] - state["epoch_rows"][epoch], ends[epoch])
            log = self._log(state, rows)
            if log is not None:
                self._partial_fit(state, rows, log)
        self.learnt = len(ends)
        return self.estimator if getattr(self.estimator, "change_rate_", None) is not None else None

    def _partial_fit(self, state: State, rows: npt.NDArray[np.int64], log: CrawlLog) -> None:
        estimator: Any = self.estimator
        if isinstance(estimator, KnownCrawlRate):
            first = rows[np.searchsorted(state["row_source"][rows], log.names)]
            estimator.partial_fit(log, crawl_rate=state["row_rate"][first])
        else:
            estimator.partial_fit(log)

    def _rates_of(self, state: State, since: float) -> Array:
        """Return the crawl rate of rows later than `since`, in order."""
        rows = np.flatnonzero(state["row_time"] > since)
        order = np.lexsort((state["row_time"][rows], state["row_source"][rows]))
        rates: Array = state["row_rate"][rows][order]
        return rates

    def _log(self, state: State, rows: npt.NDArray[np.int64]) -> CrawlLog | None:
        if not len(rows):
            return None
        columns = {
            "source": state["row_source"][rows],
            "time": state["row_time"][rows],
            "elapsed": state["row_interval"][rows],
            "changed": state["row_changed"][rows],
        }
        if len(state["row_changes"]):
            columns["changes"] = state["row_changes"][rows]
        return derived_log(columns, clock=Clock(self.time_unit))


def drawn(rates: Array, slots: int, rng: np.random.Generator) -> IntArray:
    """Return the source of each slot, sampled by rate.

    Independently and in proportion to the rates.

    Examples
    --------
    >>> drawn(np.array([0.0, 2.0, 0.0]), 3, np.random.default_rng(0)).tolist()
    [1, 1, 1]
    """
    share = np.cumsum(rates)
    source = np.searchsorted(share, rng.uniform(0.0, share[-1], slots), side="right")
    last: IntArray = np.minimum(source, np.flatnonzero(rates)[-1])
    return last


def periodic_visits(rates: Array, done: Array, start: float, end: float) -> tuple[IntArray, Array]:
    """Return equally spaced visits in (start, end], by time.

    Visits done are those expected before `start`: the rates so far times how long they held.

    Examples
    --------
    >>> source, time = periodic_visits(np.array([1.0, 1.0]), np.zeros(2), 0.0, 2.0)
    >>> source.tolist(), time.tolist()
    ([0, 1, 0, 1], [0.25, 0.75, 1.25, 1.75])
    """
    n = len(rates)
    before = done + (1.0 - (np.arange(n) + 0.5) / n)  # the first is due after (k+½)/n of a period
    count = np.floor(before + rates * (end - start)) - np.floor(before)
    counts = np.maximum(count, 0.0).astype(np.int64)
    source = np.repeat(np.arange(n), counts)
    rank = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    time = start + (np.floor(before)[source] + 1.0 + rank - before[source]) / rates[source]
    order = np.lexsort((source, time))
    return source[order], np.minimum(time[order], end)


def every_nth(origin: IntArray, share: Array, owed: Array) -> tuple[BoolArray, Array]:
    """Return which signals are followed, and what is owed after them.

    Of a share 1/N it is every N-th of a source; of others N and N + 1 alternate.

    Examples
    --------
    >>> every_nth(np.array([0, 1, 0, 0, 1, 0]), np.array([0.5, 1.0]), np.array([0.0, 0.5]))
    (array([False,  True,  True, False,  True,  True]), array([0. , 0.5]))
    """
    order = np.argsort(origin, kind="stable")
    own = origin[order]
    number = np.arange(len(own)) - np.searchsorted(own, own)
    before, after = (np.floor(owed[own] + k * share[own]) for k in (number, number + 1))
    wanted = np.empty(len(own), dtype=np.bool_)
    wanted[order] = after > before
    return wanted, (owed + np.bincount(origin, minlength=len(share)) * share) % 1.0


def serve(
    signal_time: Array, slot_time: Array, price: Array, debt: float
) -> tuple[BoolArray, BoolArray, float]:
    """Return the followed signals, the remaining slots, and the new debt.

    Each signal takes the slots that pay for it, `price` of them; `debt` is what earlier ones owe.

    Times are sorted.

    Notes
    -----
    With D the whole slots that have not been paid yet, a signal raises D by its price and a slot pays one if
    D > 0: a random walk S reflected at 0, D = S − min(0, min S). Signals are paid in their order, and those
    for which no slot has been paid at the end are not followed.

    Examples
    --------
    >>> times = np.array([0.5, 0.6, 3.0]), np.array([0.1, 1.0, 2.0, 2.5])
    >>> followed, free, debt = serve(*times, np.ones(3), 0.0)
    >>> followed.tolist(), free.tolist(), debt
    ([True, True, False], [True, False, False, True], 0.0)
    >>> followed, free, debt = serve(*times, np.full(3, 2.5), 0.0)
    >>> followed.tolist(), free.tolist(), debt
    ([True, True, False], [True, False, False, False], 2.0)
    """
    order = np.argsort(np.concatenate([signal_time, slot_time]), kind="stable")
    signal = order < len(signal_time)
    owed = debt + np.concatenate([[0.0], np.cumsum(price)])
    whole = np.ceil(owed - ROUNDED)
    steps = np.full(len(order), -1.0)
    steps[signal] = np.diff(whole)
    walk = np.concatenate([whole[:1], whole[0] + np.cumsum(steps)])
    unpaid = walk - np.minimum(np.minimum.accumulate(walk), 0.0)
    free = np.ones(len(slot_time), dtype=np.bool_)
    paying = order[~signal & (unpaid[:-1] > 0.0)] - len(signal_time)
    free[paying] = False
    followed = owed[:-1] < len(paying) - ROUNDED
    return followed, free, float(owed[np.count_nonzero(followed)] - len(paying))
