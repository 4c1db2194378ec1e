"""Intervals and lifetimes in whole seconds, one per source.

That is what a tool that keeps one interval per source can hold. An interval is rounded up to the tool's step,
never down: no source is then refreshed more often than its rate, no host more than its limit, and the total
stays within the bandwidth. What that leaves unused is reported as the realised rate. Where a step is long
against an interval, that is much, and the report says so; what is shorter than a step, or longer than the
tool can keep, is an error with its name.

Caches hold lifetimes: HTTP, nginx, Redis and DNS count whole seconds. A lifetime is rounded up, too:
1/(T + 1/ζ) falls with T. What is never fetched again (an infinite lifetime) has no line. The longest lifetime
is 2³¹ − 1 seconds, 68 years, which RFC 9111 (max-age) and RFC 2181 (TTLs) ask of caches. Longer ones are
written as that: one more fetch in 68 years.

Cost: a pass over the rates or lifetimes, and one over the names.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.heavy import polars
from freshopt.numerics.arrays import Array, BoolArray, IntArray, total
from freshopt.scheduling.rate_table import LifetimeTable, RateTable, read_lifetimes, read_rates
from freshopt.tools.export import Exported, ToolFormat, has_surrogate, refuse, text_of, write_lines
from freshopt.units import SECONDS

# An interval above a whole number of steps by less, relatively, is rounded to that number.
ROUNDING = 1e-9
# Interval of a source that is not refreshed.
NEVER = 0


class IntervalFormat(ToolFormat[RateTable]):
    """Format of a tool that keeps one interval per source.

    A file of lines states the tool's `limits`, what is written of sources that are `never` refreshed, and
    what stands before, between and behind lines; others have a `write` of their own.
    """

    __slots__ = ()
    limits: ClassVar[Limits]
    never: ClassVar[str] = "left out"
    around: ClassVar[tuple[str, str, str]] = ("", "", "")

    def read(self, given: Any, time_unit: str | None) -> RateTable:  # noqa: ANN401 - any dataframe library's frame
        """Return rates, checked."""
        return read_rates(given, time_unit)

    def text(self, names: list[str]) -> polars.Series:
        """Return names as text; raise for those that cannot be written."""
        raise NotImplementedError

    def line(self) -> polars.Expr:
        """Return the text of sources, of the columns ``name`` and ``seconds``."""
        raise NotImplementedError

    def write(self, table: RateTable, path: Path) -> Exported:
        """Write to a file; see `ToolFormat.write`."""
        names, seconds = labels(table), whole_intervals(table, self.limits)
        rows = polars.DataFrame({"name": self.text(names), "seconds": seconds})
        head, between, end = self.around
        write_lines(path, rows, self.line(), head=head, between=between, end=end)
        return exported(table, seconds, self.never)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a tool's intervals, in seconds; its name in messages.

    `remedy` is what to do about an interval that is too long.
    """

    tool: str
    step: int
    longest: int
    shortest: int
    remedy: str = "Raise their min_rate."


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
    return report(table.rates, realised, active, never_words, table.time_unit)


def report(
    planned: Array | None, realised: Array | None, active: BoolArray, never_words: str, time_unit: str
) -> Exported:
    """Return the report on what was written, NaN for unknown rates."""
    many, rates = int(np.count_nonzero(active)), (np.nan, np.nan, 0.0)
    if planned is not None and realised is not None:
        rates = total(planned), total(realised), largest_loss(planned, realised)
    return Exported(many, len(active) - many, never_words, *rates, time_unit)


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
    """Raise if sources are refreshed on their signals, not by clock."""
    if table.signalled is None:
        return
    names = labels(table)
    waiting = [repr(names[k]) for k in np.flatnonzero(table.signalled).tolist()]
    raise SourceDataError(
        f"source {list_offenders(waiting)} is refreshed on its signals. {tool} refreshes by the clock. "
        "Take it out of the table and crawl it when it signals, or solve with signalled false."
    )


def on_ladder(seconds: IntArray, ladder: Iterable[int]) -> IntArray:
    """Return intervals, at most the last, rounded up to a ladder."""
    steps = np.array([*ladder])
    up: IntArray = np.where(seconds == NEVER, NEVER, steps[np.searchsorted(steps, seconds)])
    return up


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


# Seconds: 68 years.
LONGEST = 2**31 - 1
# In place of a lifetime that is infinite.
FOREVER = -1


class LifetimeFormat(ToolFormat[LifetimeTable]):
    """Format of a cache that keeps one lifetime per source.

    `tool` is its name in messages, `file` that of its file in the folder of a plan, `refusal` what is wrong
    with a name that it does not hold, `shortest` in seconds; `windows` are of stale-while-revalidate.
    """

    __slots__ = ()
    tool: ClassVar[str]
    file: ClassVar[str]
    refusal: ClassVar[str]
    shortest: ClassVar[int] = 0
    windows: ClassVar[bool] = False

    @abstractmethod
    def holds(self, names: polars.Series) -> polars.Series:
        """Return whether each name can be written."""

    @abstractmethod
    def line(self) -> polars.Expr:
        """Return the lines of sources, with their ends.

        Columns are ``name``, ``seconds`` and ``window``, as in `whole_lifetimes` and `whole_windows`.
        """

    def around(self, names: polars.Series, lines: int) -> tuple[str, str]:  # noqa: ARG002
        """Return what stands before and behind some sources' lines."""
        return "", ""

    def read(self, given: Any, time_unit: str | None) -> LifetimeTable:  # noqa: ANN401 - any dataframe library's frame
        """Return lifetimes, checked."""
        return read_lifetimes(given, time_unit)

    def write(self, table: LifetimeTable, path: Path) -> Exported:
        """Write to a file."""
        if not self.windows:
            _require_no_windows(table, self.tool)
        text = text_of(table.names)
        lone = [k for k in (text == "\0").arg_true().to_list() if has_surrogate(table.names[k])]
        refuse(table.names, sorted({*(~self.holds(text)).arg_true().to_list(), *lone}), self.refusal)
        seconds = whole_lifetimes(table, self.shortest)
        rows = polars.DataFrame({"name": text, "seconds": seconds, "window": whole_windows(table)})
        rows = rows.filter(polars.col("seconds") != FOREVER)
        head, end = self.around(text, rows.height)
        write_lines(path, rows, self.line(), head=head, end=end)
        active = seconds != FOREVER
        real = np.where(active, seconds / float(SECONDS[table.time_unit]), np.inf)
        return report(table.rates(table.lifetime), table.rates(real), active, "no line", table.time_unit)


def whole_lifetimes(table: LifetimeTable, shortest: int = 0) -> IntArray:
    """Return each source's lifetime in whole seconds.

    `FOREVER` where it is infinite.

    Examples
    --------
    >>> from freshopt.scheduling.rate_table import read_lifetimes
    >>> whole_lifetimes(read_lifetimes({"a": 1.0, "b": 0.01, "c": np.inf, "d": 0.0}, "minute")).tolist()
    [60, 1, -1, 0]
    """
    finite = np.isfinite(table.lifetime)
    with np.errstate(over="ignore"):
        exact = np.where(finite, table.lifetime, 0.0) * SECONDS[table.time_unit]
    seconds = np.clip(np.ceil(np.minimum(exact, LONGEST) * (1.0 - ROUNDING)), shortest, LONGEST)
    whole: IntArray = np.where(finite, seconds, FOREVER).astype(np.int64)
    return whole


def whole_windows(table: LifetimeTable) -> IntArray:
    """Return windows of stale-while-revalidate, rounded down to seconds."""
    if table.stale is None:
        return np.zeros(len(table.names), dtype=np.int64)
    seconds = np.floor(np.minimum(table.stale * SECONDS[table.time_unit] * (1.0 + ROUNDING), LONGEST))
    return seconds.astype(np.int64)


def _require_no_windows(table: LifetimeTable, tool: str) -> None:
    """Raise if there are windows of stale-while-revalidate."""
    if table.stale is not None and np.any(table.stale):
        wrong = [repr(table.names[k]) for k in np.flatnonzero(table.stale).tolist()]
        raise SourceDataError(
            f"source {list_offenders(wrong)} has a window of stale-while-revalidate. {tool} has none for "
            "each source. Export as cache-control, or solve without stale_while_revalidate."
        )
