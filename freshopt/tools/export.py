"""`export`: rates or lifetimes as an atomic file or folder.

`ToolFormat` is what it asks of a format.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from freshopt.errors import expect
from freshopt.logs.atomic_output import complete_file, complete_folder

if TYPE_CHECKING:
    from freshopt.certificates.solution import Solution
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from freshopt.scheduling.rate_table import LifetimeTable, RateTable

Table = TypeVar("Table", RateTable, LifetimeTable)


@dataclass(frozen=True, slots=True)
class Exported:
    """Summary of what was written.

    Attributes
    ----------
    sources : int
        With an interval.
    never : int
        Sources that are never refreshed.
    never_words : str
        What was written of those.
    planned, realised : float
        Total refreshes per `time_unit`: by the rates, and by what was written. Realised is never more.
    largest_loss : float
        Largest relative shortfall of the rate of one source.
    time_unit : str
    """

    sources: int
    never: int
    never_words: str
    planned: float
    realised: float
    largest_loss: float
    time_unit: str


class ToolFormat(ABC, Generic[Table]):
    """Format of a tool, a frozen record of its settings.

    Attributes
    ----------
    files : tuple of str
        Files of the folder; none for a single file.
    """

    __slots__ = ()
    files: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def read(self, given: Any, time_unit: str | None) -> Table:  # noqa: ANN401 - any dataframe library's frame
        """Return what the format is made of, as a checked table."""

    @abstractmethod
    def write(self, table: Table, path: Path) -> Exported:
        """Write to a file, or into an empty folder."""


def export(
    rates: Solution | Mapping[Any, float] | Any,  # noqa: ANN401 - any dataframe library's frame
    target: ToolFormat[Any],
    path: str | os.PathLike[str],
    *,
    time_unit: str | None = None,
    overwrite: bool = False,
    retry_at_once: bool = False,
) -> Exported:
    r"""Write each source's interval or lifetime for a tool.

    Parameters
    ----------
    rates : Solution, mapping or dataframe
        As `fo.schedule` takes them. For a cache, a solution of copies that are refreshed on request,
        lifetimes by name, or a table with columns source and lifetime.
    target : ToolFormat
        For example ``Nutch()``, or ``CacheControl()``.
    path : path
        A file; a folder if the format has several files.
    time_unit : str, optional
        The unit of the rates. A solution brings its own; otherwise the default is "day".
    overwrite : bool
        Whether an earlier result may be replaced.
    retry_at_once : bool
        Of rates of attempts, which may fail: whether the tool repeats a failed fetch at once. The intervals
        are then those of successes, for as many attempts. Rates that are optimal for such a tool are those of
        `freshopt.scheduling.retried_at_once`, which need no such option.

    Returns
    -------
    Exported
        With the total rate that comes of intervals in whole seconds or minutes.

    Raises
    ------
    SourceDataError
        If a source has a name or an interval that the format cannot hold, or waits for signals; or the path
        cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from freshopt.tools import StormCrawler
    >>> path = Path(tempfile.mkdtemp()) / "seeds.txt"
    >>> done = export({"https://example.org/": 7.0}, StormCrawler(), path)
    >>> path.read_text(), round(done.realised, 3)
    ('https://example.org/\tscheduler.delay.mins=206\n', 6.99)
    """
    if not isinstance(target, ToolFormat):
        kind = type(target).__name__
        raise TypeError(f"target is of type {kind}. Pass an instance, such as freshopt.tools.Crontab().")
    expect(overwrite, bool, "overwrite", "Pass True or False")
    expect(retry_at_once, bool, "retry_at_once", "Pass True or False")
    table = target.read(rates, time_unit)
    if retry_at_once:
        table = table.of_successes()
    if not target.files:
        with complete_file(path, overwrite) as file:
            return target.write(table, file)
    with complete_folder(path, overwrite, marker=target.files[0], files=target.files) as folder:
        return target.write(table, folder)
