"""Fetches that fail in a held-out window.

The chances that a window's plan knows are learnt from the statuses before it. In the window a fetch ends as
the recorded fetch of its source that is nearest in time did, whoever makes it: a host that was down for a day
is down for all policies. Where nothing is recorded, a coin with the chance of success decides, which depends
on seed, source and moment alone, so that policies that fetch at one moment see the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, list_offenders
from freshopt.estimators.success_rates import SuccessRates, status_columns
from freshopt.logs.row_outcomes import ended, failed
from freshopt.numerics.arrays import Array, BoolArray, IntArray
from freshopt.numerics.frozen_arrays import frozen_value
from freshopt.numerics.random_streams import uniforms
from freshopt.numerics.segments import first_beyond
from freshopt.planning.held_out_window import HeldOutWindow
from freshopt.planning.wishes import Wishes
from freshopt.simulation.replaying import FETCHES

RECORDED = (
    "Fetches fail as recorded: each ends as the recorded fetch of its source that is nearest in time, so "
    "that attempts in quick succession fail together. Chances are those of the statuses before each window."
)
DRAWN = "Fetches fail at random, with the chances that the plan knows."
AT_ONCE = (
    "Fetches that fail are repeated at once, and the repetition is taken to succeed in the end: rates are of "
    "successes."
)


class Statuses(NamedTuple):
    """Recorded fetches, on the clock of a log.

    - `source` (rows,): Names.
    - `status` (rows,): HTTP statuses; 0 where there was no answer, NaN where nothing is known.
    - `time` (rows,)
    """

    source: npt.NDArray[Any]
    status: Array
    time: Array

    @classmethod
    def of(cls, source: npt.ArrayLike, status: npt.ArrayLike, time: npt.ArrayLike) -> Statuses:
        """Return the record of fetches, checked."""
        return cls(*status_columns(source, status, time))

    def before(self, moment: float) -> SuccessRates:
        """Return the chances of success that are known at a moment."""
        known = self.time <= moment
        if not np.any(known):
            raise SourceDataError(
                f"no fetch is recorded up to {moment:g}, where a held-out window begins. Pass statuses of "
                "the whole log, or success in their place."
            )
        return SuccessRates.from_statuses(self.source[known], self.status[known], self.time[known])


@frozen_value(repr=False)
class Outcomes:
    """Which fetches of a window's sources succeed.

    By recorded fetches, in the order of positions and times; where none is recorded, with a chance.
    """

    chance: Array
    seed: int
    source: IntArray
    time: Array
    succeeded: BoolArray

    def of(self, source: IntArray, time: Array) -> BoolArray:
        """Return which fetches succeed.

        Examples
        --------
        >>> none = np.zeros(1)
        >>> known = Outcomes(none, 0, np.zeros(2, np.int64), np.array([1.0, 3.0]), np.array([True, False]))
        >>> known.of(np.zeros(3, np.int64), np.array([0.0, 1.9, 2.1])).tolist()
        [True, True, False]
        """
        coin = uniforms(self.seed % 2**64 ^ FETCHES, source, np.ascontiguousarray(time).view(np.int64))
        found: BoolArray = coin < self.chance[source]
        if not len(self.time):
            return found
        many = np.bincount(self.source, minlength=len(self.chance))
        first = np.cumsum(many) - many
        later = first_beyond(self.time, first[source], (first + many)[source], time)
        before = np.maximum(later - 1, first[source])
        after = np.minimum(later, np.maximum((first + many)[source] - 1, 0))
        near = np.where(np.abs(self.time[after] - time) < np.abs(time - self.time[before]), after, before)
        return np.where(many[source] > 0, self.succeeded[near], found)


def with_failures(
    window: HeldOutWindow, request: Wishes, statuses: Statuses | None
) -> tuple[HeldOutWindow, Wishes]:
    """Return window and request with what is known of failures."""
    if statuses is not None:
        request = replace(request, success=statuses.before(window.begin).success_of)
    if request.success is None:
        return window, request
    chance = np.asarray(request.success(window.past.names), dtype=np.float64)
    _require_chances(chance, window.past.names)
    if request.retry_at_once or not bool(np.any(chance < 1.0)):
        return window, request
    outcomes = _outcomes(window, chance, request.seed, statuses)
    drawn = tuple(replace(one, outcomes=outcomes) for one in window.drawn)
    return replace(window, outcomes=outcomes, drawn=drawn), request


def failure_words(request: Wishes, statuses: Statuses | None) -> str:
    """Return how fetches fail in a back-test, or nothing."""
    if request.success is None and statuses is None:
        return ""
    return AT_ONCE if request.retry_at_once else DRAWN if statuses is None else RECORDED


def recorded_attempts(window: HeldOutWindow, statuses: Statuses) -> IntArray:
    """Return how many fetches of each source are recorded in its window."""
    source, time, _ = _rows(window, statuses)
    inside = (time >= window.changes.first[source]) & (time <= window.changes.until[source])
    return np.bincount(source[inside], minlength=len(window.past.names))


def _outcomes(window: HeldOutWindow, chance: Array, seed: int, statuses: Statuses | None) -> Outcomes:
    nothing = np.zeros(0, dtype=np.int64)
    if statuses is None:
        return Outcomes(chance, seed, nothing, np.zeros(0), np.zeros(0, dtype=np.bool_))
    return Outcomes(chance, seed, *_rows(window, statuses))


def _rows(window: HeldOutWindow, statuses: Statuses) -> tuple[IntArray, Array, BoolArray]:
    """Return the recorded fetches of a window's sources, source by source."""
    names = window.past.names
    place = np.minimum(np.searchsorted(names, statuses.source), len(names) - 1)
    ours = (names[place] == statuses.source) & ~ended(statuses.status) & ~np.isnan(statuses.status)
    source, time, lost = place[ours], statuses.time[ours], failed(statuses.status[ours])
    order = np.lexsort((time, source))
    return source[order], time[order], ~lost[order]


def _require_chances(chance: Array, names: npt.NDArray[Any]) -> None:
    wrong = np.flatnonzero(~((chance > 0.0) & (chance <= 1.0))).tolist()
    if wrong:
        shown = list_offenders(f"'{names[k]}' ({chance[k]:g})" for k in wrong)
        raise SourceDataError(f"success is not in (0, 1] for {shown}. Correct it.")
