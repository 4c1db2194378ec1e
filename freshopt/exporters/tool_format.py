"""`ToolFormat`: what `export` asks of a format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from freshopt.scheduling.lifetime_table import LifetimeTable
from freshopt.scheduling.rate_table import RateTable

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
        """Write to a file, or into an empty folder.

        Parameters
        ----------
        table : RateTable or LifetimeTable
            With the names and the time unit of the sources.
        path : Path
            The file, or the folder.

        Returns
        -------
        Exported
            What was written, and how far rounding took the refreshes per time unit.

        Raises
        ------
        SourceDataError
            If a name, an interval or a lifetime cannot be written; names the sources.
        """
