"""Lines of cron for a table of rates."""

from __future__ import annotations

import math

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.exporters.cron_fields import MOST, Repetition, repetition, time_fields
from freshopt.exporters.tool_format import Exported
from freshopt.exporters.whole_intervals import ROUNDING, labels, largest_loss, require_clocked
from freshopt.numerics.arrays import total
from freshopt.scheduling.rate_table import RateTable
from freshopt.units import SECONDS

_DAY = SECONDS["day"]


def cron_lines(table: RateTable, tool: str, *, seconds: bool = False) -> tuple[list[list[str]], Exported]:
    """Return the cron lines of each source, and the report on them.

    Parameters
    ----------
    table : RateTable
    tool : str
        Its name, as it stands in a message.
    seconds : bool
        Whether the tool also knows ``N seconds``, for what is refreshed more than once a minute.

    Raises
    ------
    SourceDataError
        If a rate is above what the tool knows, or below one in 365 days, or a source waits for signals.

    Examples
    --------
    >>> from freshopt.scheduling.rate_table import read_rates
    >>> cron_lines(read_rates({"a": 8000.0, "b": 2.0, "c": 0.0}), "a tool", seconds=True)[0]
    [['11 seconds'], ['30 3,15 * * *'], []]
    """
    require_clocked(table, tool)
    names = labels(table)
    rates = (table.rates * (_DAY / SECONDS[table.time_unit])).tolist()
    fast = [_whole_seconds(rate) if seconds else None for rate in rates]
    repeated = [
        _repetition(name, rate, tool, seconds) if own is None else None
        for name, rate, own in zip(names, rates, fast, strict=True)
    ]
    lines = [
        fields if own is None else [f"{own} seconds"]
        for own, fields in zip(fast, time_fields(repeated), strict=True)
    ]
    per_day = [
        _DAY / own if own is not None else 0.0 if each is None else each.per_day
        for own, each in zip(fast, repeated, strict=True)
    ]
    realised = np.array(per_day) * (SECONDS[table.time_unit] / _DAY)
    never = rates.count(0.0)
    done = Exported(
        len(names) - never,
        never,
        "left out",
        total(table.rates),
        total(realised),
        largest_loss(table.rates, realised),
        table.time_unit,
    )
    return lines, done


def _whole_seconds(rate: float) -> int | None:
    """Return the whole seconds of an interval below a minute, else None."""
    if not MOST * (1.0 + ROUNDING) < rate <= _DAY * (1.0 + ROUNDING):
        return None
    return math.ceil(_DAY / rate * (1.0 - ROUNDING))


def _repetition(name: str, rate: float, tool: str, seconds: bool) -> Repetition | None:
    """Return what a rate per day becomes; None for 0."""
    repeated = repetition(rate) if rate else None
    if repeated is None and rate:
        raise SourceDataError(
            f"source {name!r} is to be refreshed {rate:.4g} times a day. {tool} goes from once in 365 days "
            f"to once a {'second' if seconds else 'minute'}. "
            f"{'Lower its max_rate' if rate > 1.0 else 'Raise its min_rate'}, or leave it out."
        )
    return repeated
