"""`PlanFolder`: a plan's tables, source columns and load.

Tables are one file each, Parquet or CSV, or folders of Parquet parts, as `freshopt.distributed` writes them.
They are read on use, a part at a time, and only the columns that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.heavy import polars
from freshopt.logs.tables import column_names, read_table, table_ending
from freshopt.numerics.arrays import Array
from freshopt.report.context import Context
from freshopt.report.load_charts import Clock, HostLoad, load_edges
from freshopt.report.source_sample import POINTS, Survey, survey

# Tables of some plans, beside those of every one.
MORE = ("per_source", "constraints", "changes", "held_out")
# Columns of change_rates, rates or lifetimes, and per_source that tell of a source; those that must be there,
# and those that are texts.
SOURCE = ("source", "host", "change_rate", "lower", "upper", "request_rate", "importance", "flag")
PLANNED, FURTHER = ("rate", "lifetime"), ("crawl_rate", "cost", "fresh")
NEEDED = ("source", "change_rate", "lower", "upper", "rate")
TEXTS = ("source", "host", "flag")
# Numbers >= 0, and those of which some may be missing.
WHOLE, GAPS = (
    ("change_rate", "lower", "upper", "importance", "rate"),
    ("request_rate", "lifetime", "crawl_rate"),
)
# Hosts that are drawn and listed, those with the highest load.
HOSTS = 12
_AGAIN = "Plan again, with --overwrite."


class Change(NamedTuple):
    """A source's rate before and after; NaN where there was none."""

    source: str
    old: float
    rate: float
    gain: float


@dataclass(frozen=True)
class PlanFolder:
    """A plan's folder, whose tables are read on use."""

    path: Path
    told: Context

    @property
    def planned(self) -> str:
        """The table of what is planned."""
        return "lifetimes" if self.told.shares == "requests" else "rates"

    @cached_property
    def seen(self) -> Survey:
        """The sources, drawn one by one or counted."""
        found = survey(partial(self.sources, listed=self.told.sources <= POINTS))
        if found.n != self.told.sources:
            raise SourceDataError(
                f"{self.path}: the tables have {found.n:,} sources and the summary has "
                f"{self.told.sources:,}. They are not of one plan. Plan again, with --overwrite."
            )
        return found

    @cached_property
    def clock(self) -> Clock:
        """The steps of the schedule's time."""
        told = self.told
        edges = load_edges(told.facts.positive("horizon"), told.unit, told.counts.whole("refreshes"))
        return Clock(edges, told.unit, told.moment("end"), told.date("end"))

    @cached_property
    def load(self) -> Array:
        """Refreshes between the edges of the clock."""
        edges = self.clock.edges
        many = np.zeros(len(edges) - 1)
        for file in self._files("schedule"):
            time = _numbers(_columns(file, ["time"]), "time", file)
            many += np.histogram(time, edges)[0]
        return many

    @cached_property
    def hosts(self) -> HostLoad | None:
        """Refreshes of the hosts with most of them, if any."""
        known, times = self._files("change_rates"), self._files("schedule")
        if len(known) != len(times) or "host" not in column_names(known[0]):
            return None
        edges = self.clock.edges
        columns = len(edges) - 1
        found: list[polars.DataFrame] = []
        size: list[polars.DataFrame] = []
        for one, other in zip(known, times, strict=True):
            sources = _columns(one, ["source", "host"]).with_columns(polars.all().cast(polars.String))
            made = _refreshes(other).join(sources, on="source")
            after = np.searchsorted(edges, made["time"].to_numpy(), "right") - 1
            place = polars.Series("column", np.clip(after, 0, columns - 1))
            found.append(made.select("host").with_columns(place).group_by("host", "column").len())
            size.append(sources.group_by("host").len())
        counted = polars.concat(found).group_by("host", "column").agg(polars.col("len").sum())
        sources = polars.concat(size).group_by("host").agg(polars.col("len").sum())
        whole = counted.group_by("host").agg(polars.col("len").sum())
        hosts = whole.sort("len", "host", descending=[True, False])["host"].head(HOSTS).to_list()
        if not hosts:
            return None
        many = np.zeros((len(hosts), columns))
        row = {host: k for k, host in enumerate(hosts)}
        for host, at, each in counted.filter(polars.col("host").is_in(hosts)).iter_rows():
            many[row[host], at] = each
        own = dict(sources.filter(polars.col("host").is_in(hosts)).iter_rows())
        return HostLoad(hosts, many, [own[host] for host in hosts], len(sources))

    @cached_property
    def names(self) -> list[str]:
        """The files of the tables, one of each."""
        needed = ("change_rates", self.planned, *(["schedule"] if self.planned == "rates" else []))
        known = [self._files(table)[0].name for table in needed]
        return known + [each.name for table in MORE if (each := self._file(table)) is not None]

    @property
    def listed(self) -> list[str]:
        """The files that have every source's row."""
        if self.planned == "lifetimes":
            return self.names
        return self.names[:2] + [each for each in self.names if each.startswith("per_source")]

    def sources(self, *, listed: bool = True) -> Iterator[polars.DataFrame]:
        """Yield what the tables tell of the sources, by parts."""
        ours, theirs = self._files("change_rates"), self._files(self.planned)
        own = self._file("per_source")
        if len(ours) != len(theirs):
            many = f"{len(ours)} parts of change_rates and {len(theirs)} of {self.planned}"
            raise SourceDataError(f"{self.path} has {many}. {_AGAIN}")
        for one, other in zip(ours, theirs, strict=True):
            wanted = [(one, SOURCE), (other, PLANNED)]
            if own is not None and len(ours) == 1:
                wanted.append((own, FURTHER))
            pieces: list[polars.DataFrame] = []
            for file, keys in wanted:
                there = {*column_names(file), *NEEDED}
                chosen = [key for key in keys if key in there and (listed or key not in TEXTS)]
                if not chosen:
                    continue
                piece = _columns(file, chosen)
                if pieces and len(piece) != len(pieces[0]):
                    lengths = f"{one} has {len(pieces[0])} rows and {file} has {len(piece)}"
                    raise SourceDataError(f"{lengths}. {_AGAIN}")
                checked = [key for key in chosen if key in (*WHOLE, *GAPS)]
                columns = {key: _numbers(piece, key, file, gaps=key in GAPS) for key in checked}
                others = [key for key in chosen if key not in (*checked, *TEXTS)]
                piece = piece.with_columns(polars.col(others).cast(polars.Float64, strict=False))
                pieces.append(piece.with_columns([polars.Series(key, each) for key, each in columns.items()]))
            frame = polars.concat(pieces, how="horizontal")
            texts = [key for key in TEXTS if key in frame.columns]
            yield frame.with_columns(polars.col(texts).cast(polars.String))

    def most(self, by: Sequence[str], at_most: int) -> tuple[polars.DataFrame, int]:
        """Return the rows of the sources that have most of something."""
        chosen: list[polars.DataFrame] = []
        n = 0
        for frame in self.sources():
            n += len(frame)
            key = next(each for each in by if each in frame.columns)
            place = polars.concat([*chosen, frame])
            chosen = [place.sort(key, descending=True, nulls_last=True, maintain_order=True).head(at_most)]
        return chosen[0], n

    def next_refreshes(self, sources: Sequence[str]) -> dict[str, float]:
        """Return when sources are refreshed first in the schedule."""
        found: dict[str, float] = {}
        for file in self._files("schedule"):
            some = polars.col("source").is_in(list(sources)) & polars.col("time").is_finite()
            own = _refreshes(file).filter(some)
            for source, time in own.group_by("source").agg(polars.col("time").min()).iter_rows():
                found[source] = min(time, found.get(source, time))
        return found

    def held_out(self, others: Sequence[str]) -> tuple[list[str], str, Array, Array] | None:
        """Return what sources cost in a back-test under two policies, if known."""
        file = self._file("held_out")
        if file is None:
            return None
        there = column_names(file)
        other = next((name for name in others if name in there), None)
        if other is None or "plan" not in there or "source" not in there:
            return None
        frame = _columns(file, ["source", "plan", other])
        sources = [str(name) for name in frame["source"].to_list()]
        return (
            sources,
            other,
            _numbers(frame, "plan", file, gaps=True),
            _numbers(frame, other, file, gaps=True),
        )

    def largest_changes(self, at_most: int) -> list[Change]:
        """Return the changes of earlier rates that bring most, if known."""
        file = self._file("changes")
        if file is None:
            return []
        frame = _columns(file, ["source", "old_rate", "rate", "gain"])
        old, rate, gain = (
            _numbers(frame, key, file, gaps=True).tolist() for key in ("old_rate", "rate", "gain")
        )
        rows = zip((str(each) for each in frame["source"].to_list()), old, rate, gain, strict=True)
        changed = (Change(*row) for row in rows if row[3] > 0.0)
        return sorted(changed, key=lambda each: -each.gain)[:at_most]

    def _file(self, table: str) -> Path | None:
        """Return the file of a table that not every plan has."""
        found = (self.path / f"{table}{ending}" for ending in (".parquet", ".csv"))
        return next((file for file in found if file.is_file()), None)

    def _files(self, table: str) -> list[Path]:
        """Return the files of a table."""
        whole = self._file(table)
        if whole is not None:
            return [whole]
        found = sorted((self.path / table).glob("part-*.parquet"))
        if not found:
            raise SourceDataError(f"{self.path} holds no table {table}. {_AGAIN}")
        return found


def _refreshes(file: Path) -> polars.DataFrame:
    """Return the refreshes of a part of the schedule: source and time."""
    return _columns(file, ["time", "source"]).with_columns(
        polars.col("source").cast(polars.String), polars.col("time").cast(polars.Float64, strict=False)
    )


def _columns(file: Path, columns: Sequence[str]) -> polars.DataFrame:
    """Return columns of a table, or raise SourceDataError."""
    frame = read_table(file, columns=columns, as_text=table_ending(file) != ".parquet")
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise SourceDataError(f"{file} has no column '{missing[0]}'. {_AGAIN}")
    return frame


def _numbers(frame: polars.DataFrame, column: str, file: Path, *, gaps: bool = False) -> Array:
    """Return a column as numbers >= 0, perhaps infinite, NaN for `gaps`."""
    given = frame[column]
    if given.dtype == polars.String or given.dtype.is_numeric():
        values = given.cast(polars.Float64, strict=False).to_numpy()
        there = values[~np.isnan(values)] if gaps else values
        if bool(np.all(there >= 0.0)):
            return np.asarray(values, dtype=np.float64)
    raise SourceDataError(f"column '{column}' of {file} does not hold numbers >= 0. {_AGAIN}")
