"""Rates as whole intervals, one per source.

That is what a tool that keeps one interval per source can hold.

An interval is rounded up to the tool's step, never down: no source is then refreshed more often than its
rate, no host more than its limit, and the total stays within the bandwidth. What that leaves unused is
reported as the realised rate. Where a step is long against an interval, that is much, and the report says so;
what is shorter than a step, or longer than the tool can keep, is an error with its name.

Cost: a pass over the rates, and one over the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.numerics.arrays import Array, IntArray, total
from freshopt.scheduling.rate_table import RateTable, read_rates
from freshopt.tools.export import Exported, ToolFormat
from freshopt.units import SECONDS

# An interval above a whole number of steps by less, relatively, is rounded to that number.
ROUNDING = 1e-9
# Interval of a source that is not refreshed.
NEVER = 0


class IntervalFormat(ToolFormat[RateTable]):
    """Format of a tool that keeps one interval per source."""

    __slots__ = ()

    def read(self, given: Any, time_unit: str | None) -> RateTable:  # noqa: ANN401 - any dataframe library's frame
        """Return rates, checked."""
        return read_rates(given, time_unit)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a tool's intervals, in seconds; its name in messages.

    `remedy` is what to do about an interval that is too long.
    """

    tool: str
    step: int
    longest: int
    shortest: int
    remedy: str


def labels(table: RateTable) -> list[str]:
    """Return the names of the sources, else their positions."""
    if table.names is None:
        return [str(k) for k in range(len(table.rates))]
    return [str(name) for name in table.names.tolist()]


def whole_intervals(table: RateTable, limits: Limits) -> IntArray:
    """Return each source's interval in whole steps.

    In seconds, a multiple of the step; `NEVER` at rate 0.

    Examples
    --------
    >>> from freshopt.scheduling.rate_table import read_rates
    >>> minutes = Limits("a tool", step=60, longest=86400, shortest=60, remedy="Raise its min_rate.")
    >>> whole_intervals(read_rates({"a": 24.0, "b": 0.0, "c": 7.0}), minutes).tolist()
    [3600, 0, 12360]
    """
    require_clocked(table, limits.tool)
    second = SECONDS[table.time_unit]
    with np.errstate(divide="ignore", over="ignore"):  # beyond all floats is too long
        exact = second / table.rates
    silent = table.rates == 0.0
    steps = np.ceil(np.where(silent, 0.0, exact) / limits.step * (1.0 - ROUNDING))
    seconds = steps * limits.step
    # A sentence begins with it: an article gets a large letter, and the name of a tool stays as it is.
    article, _, rest = limits.tool.partition(" ")
    tool = f"{article.capitalize()} {rest}" if article in ("a", "the") else limits.tool
    short = np.flatnonzero(~silent & (exact < limits.shortest * (1.0 - ROUNDING)))
    if len(short):
        raise SourceDataError(
            f"{_every(table, short, exact)}. {tool} has no intervals below {_span(limits.shortest)}. "
            f"Give these sources a max_rate of {second / limits.shortest:.6g} per {table.time_unit}."
        )
    long = np.flatnonzero(seconds > limits.longest)
    if len(long):
        raise SourceDataError(
            f"{_every(table, long, exact)}. {tool} has no intervals above {_span(limits.longest)}. "
            f"{limits.remedy}"
        )
    whole: IntArray = np.where(silent, NEVER, np.maximum(seconds, limits.shortest)).astype(np.int64)
    return whole


def exported(table: RateTable, seconds: IntArray, never_words: str) -> Exported:
    """Return the report on intervals that were written."""
    active = seconds != NEVER
    realised = np.zeros(len(seconds))
    realised[active] = SECONDS[table.time_unit] / seconds[active].astype(np.float64)
    count = int(np.count_nonzero(active))
    return Exported(
        count,
        len(seconds) - count,
        never_words,
        total(table.rates),
        total(realised),
        largest_loss(table.rates, realised),
        table.time_unit,
    )


def largest_loss(rates: Array, realised: Array) -> float:
    """Return the largest relative shortfall of a source's rate.

    Examples
    --------
    >>> largest_loss(np.array([4.0, 0.0, 1.0]), np.array([3.0, 0.0, 1.0]))
    0.25
    """
    active = rates > 0.0
    return float(np.max(1.0 - realised[active] / rates[active], initial=0.0))


def require_clocked(table: RateTable, tool: str) -> None:
    """Raise if sources are refreshed on their signals.

    A clock cannot do that.
    """
    if table.signalled is None:
        return
    names = labels(table)
    waiting = [repr(names[k]) for k in np.flatnonzero(table.signalled).tolist()]
    raise SourceDataError(
        f"source {list_offenders(waiting)} is refreshed on its signals. {tool} refreshes by the clock. "
        "Take it out of the table and crawl it when it signals, or solve with signalled false."
    )


def _every(table: RateTable, offenders: IntArray, exact: np.typing.NDArray[np.float64]) -> str:
    names = labels(table)
    where = list_offenders(f"{names[k]!r} every {_span(exact[k])}" for k in offenders.tolist())
    return f"to be refreshed are {where}"


def _span(seconds: float) -> str:
    """Return a time as people read it.

    Examples
    --------
    >>> _span(30.0), _span(5400.0), _span(7776000.0)
    ('30 s', '1.5 hours', '90 days')
    """
    for unit in ("day", "hour"):
        if seconds >= SECONDS[unit]:
            return f"{seconds / SECONDS[unit]:.6g} {unit}{'' if seconds == SECONDS[unit] else 's'}"
    return f"{seconds:.3g} s"
