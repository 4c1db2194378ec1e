"""Lifetimes in whole seconds, one per source.

That is what caches hold: HTTP, nginx, Redis and DNS count whole seconds. A lifetime is rounded up, never
down: 1/(T + 1/ζ) falls with T, so that no source is fetched more often than planned and the total stays
within the bandwidth. What is never fetched again (an infinite lifetime) has no line.

The longest lifetime is 2³¹ − 1 seconds, 68 years, which RFC 9111 (max-age) and RFC 2181 (TTLs) ask of
caches. Longer ones are written as that: one more fetch in 68 years.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from freshopt.errors import SourceDataError, list_offenders
from freshopt.numerics.arrays import Array, IntArray, total
from freshopt.scheduling.rate_table import LifetimeTable, read_lifetimes
from freshopt.tools.export import Exported, ToolFormat
from freshopt.tools.text_lines import has_surrogate, text_of, write_lines
from freshopt.tools.whole_intervals import ROUNDING, largest_loss
from freshopt.units import SECONDS

if TYPE_CHECKING:
    import polars

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
        import polars

        text = text_of(table.names)
        wrong = [repr(table.names[k][:80]) for k in self._unheld(table.names, text)]
        if wrong:
            raise SourceDataError(f"source {list_offenders(wrong)} {self.refusal}")
        seconds = whole_lifetimes(table, self.shortest)
        rows = polars.DataFrame({"name": text, "seconds": seconds, "window": whole_windows(table)})
        rows = rows.filter(polars.col("seconds") != FOREVER)
        head, end = self.around(text, rows.height)
        write_lines(path, rows, self.line(), head=head, end=end)
        return exported_lifetimes(table, seconds)

    def _unheld(self, names: list[str], text: polars.Series) -> list[int]:
        """Return the positions of names that cannot be written.

        What UTF-8 has not is a zero byte in the column.
        """
        lone = [k for k in (text == "\0").arg_true().to_list() if has_surrogate(names[k])]
        return sorted({*(~self.holds(text)).arg_true().to_list(), *lone})


def whole_lifetimes(table: LifetimeTable, shortest: int = 0) -> IntArray:
    """Return each source's lifetime in whole seconds.

    `FOREVER` where it is infinite.

    Examples
    --------
    >>> from freshopt.scheduling.rate_table import read_lifetimes
    >>> whole_lifetimes(read_lifetimes({"a": 1.0, "b": 0.01, "c": np.inf, "d": 0.0}, "minute")).tolist()
    [60, 1, -1, 0]
    """
    return _rounded(table.lifetime, table.time_unit, shortest)


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


def exported_lifetimes(table: LifetimeTable, seconds: IntArray) -> Exported:
    """Return the report on lifetimes that were written.

    Rates are NaN where the table does not tell how often sources are requested.
    """
    active = seconds != FOREVER
    never = len(seconds) - int(np.count_nonzero(active))
    real = np.where(active, seconds / float(SECONDS[table.time_unit]), np.inf)
    planned, realised = table.rates(table.lifetime), table.rates(real)
    if planned is None or realised is None:
        return Exported(len(seconds) - never, never, "no line", np.nan, np.nan, 0.0, table.time_unit)
    return Exported(
        len(seconds) - never,
        never,
        "no line",
        total(planned),
        total(realised),
        max(largest_loss(planned, realised), 0.0),
        table.time_unit,
    )


def _rounded(lifetime: Array, unit: str, shortest: int) -> IntArray:
    finite = np.isfinite(lifetime)
    with np.errstate(over="ignore"):
        exact = np.where(finite, lifetime, 0.0) * SECONDS[unit]
    seconds = np.clip(np.ceil(np.minimum(exact, LONGEST) * (1.0 - ROUNDING)), shortest, LONGEST)
    whole: IntArray = np.where(finite, seconds, FOREVER).astype(np.int64)
    return whole
