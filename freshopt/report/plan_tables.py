"""Readers of a plan's tables: source columns and load.

Tables are one file each, Parquet or CSV, or folders of Parquet parts, as `freshopt.distributed` writes them.
They are read a part at a time, and only the columns that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freshopt.errors import SourceDataError
from freshopt.logs.tables import column_names, read_table, table_ending
from freshopt.numerics.arrays import Array

if TYPE_CHECKING:
    import polars


class Part(NamedTuple):
    """Columns of one part of the sources.

    Attributes
    ----------
    change_rate, lower, upper, rate : ndarray, shape (m,)
    importance : ndarray, shape (m,), or None
        None where all weigh alike.
    names : list of str, or None
        Where they were asked for.
    crawl_rate : ndarray, shape (m,), or None
        How often a log crawled each source, NaN after a single crawl; None where nobody crawled.
    """

    change_rate: Array
    lower: Array
    upper: Array
    rate: Array
    importance: Array | None
    names: list[str] | None
    crawl_rate: Array | None = None


def parts(folder: Path, *, names: bool = False, planned: str = "rates") -> Iterator[Part]:
    """Yield the sources' columns, one part at a time.

    `planned` is the table that has the rates.

    Raises
    ------
    SourceDataError
        If a table is missing, is not what `freshopt plan` writes, or does not go with the other.
    """
    ours, theirs = files(folder, "change_rates"), files(folder, planned)
    if len(ours) != len(theirs):
        many = f"{len(ours)} parts of change_rates and {len(theirs)} of {planned}"
        raise SourceDataError(f"{folder} has {many}. {_AGAIN}")
    for one, other in zip(ours, theirs, strict=True):
        known = ["change_rate", "lower", "upper", *(["source"] if names else [])]
        weighed = "importance" in column_names(one)
        first = read_columns(one, [*known, *(["importance"] if weighed else [])])
        second = read_columns(other, ["rate"])
        if len(first) != len(second):
            raise SourceDataError(f"{one} has {len(first)} rows and {other} has {len(second)}. {_AGAIN}")
        yield Part(
            numbers_of(first, "change_rate", one),
            numbers_of(first, "lower", one),
            numbers_of(first, "upper", one),
            numbers_of(second, "rate", other),
            numbers_of(first, "importance", one) if weighed else None,
            [str(name) for name in first["source"].to_list()] if names else None,
            _crawl_rate(folder, len(first)) if len(ours) == 1 else None,
        )


def names(folder: Path, needed: Sequence[str] = ("change_rates", "rates", "schedule")) -> list[str]:
    """Return a file of each table that a plan has."""
    known = [each.name for table in needed for each in files(folder, table)[:1]]
    more = [folder / f"{table}{ending}" for table in MORE for ending in (".parquet", ".csv")]
    return known + [each.name for each in more if each.is_file()]


def _crawl_rate(folder: Path, n: int) -> Array | None:
    """Return how often a log crawled each source, if known."""
    file = _per_source(folder)
    if file is None or "crawl_rate" not in column_names(file):
        return None
    frame = read_columns(file, ["crawl_rate"])
    if len(frame) != n:
        raise SourceDataError(f"{file} has {len(frame)} rows and the other tables {n}. {_AGAIN}")
    return numbers_of(frame, "crawl_rate", file, gaps=True)


def _per_source(folder: Path) -> Path | None:
    """Return the file of the table per_source, if any."""
    found = (folder / f"per_source{ending}" for ending in (".parquet", ".csv"))
    return next((file for file in found if file.is_file()), None)


def held_out(
    folder: Path, own: Sequence[str], others: Sequence[str]
) -> tuple[list[str], str, Array, Array] | None:
    """Return what sources cost in a back-test under two policies, if known.

    Parameters
    ----------
    folder : Path
    own, others : sequence of str
        Policies; of each the first that was measured counts.

    Returns
    -------
    names : list of str
    other : str
        The other policy.
    mine, theirs : ndarray, shape (n,)
        NaN where a source was not replayed.
    """
    found = (folder / f"held_out{ending}" for ending in (".parquet", ".csv"))
    file = next((each for each in found if each.is_file()), None)
    if file is None:
        return None
    there = column_names(file)
    mine, other = (next((name for name in given if name in there), None) for given in (own, others))
    if mine is None or other is None or "source" not in there:
        return None
    frame = read_columns(file, ["source", mine, other])
    sources = [str(name) for name in frame["source"].to_list()]
    return sources, other, numbers_of(frame, mine, file, gaps=True), numbers_of(frame, other, file, gaps=True)


class Change(NamedTuple):
    """A source's rate before and after; NaN where there was none."""

    source: str
    old: float
    rate: float
    gain: float


def largest_changes(folder: Path, at_most: int) -> list[Change]:
    """Return the changes of earlier rates that bring most, if known."""
    found = (folder / f"changes{ending}" for ending in (".parquet", ".csv"))
    file = next((each for each in found if each.is_file()), None)
    if file is None:
        return []
    frame = read_columns(file, ["source", "old_rate", "rate", "gain"])
    old, rate, gain = (
        numbers_of(frame, key, file, gaps=True).tolist() for key in ("old_rate", "rate", "gain")
    )
    rows = zip((str(each) for each in frame["source"].to_list()), old, rate, gain, strict=True)
    changed = (Change(*row) for row in rows if row[3] > 0.0)
    return sorted(changed, key=lambda each: -each.gain)[:at_most]


def most(
    folder: Path, by: Sequence[str], at_most: int, planned: str = "rates"
) -> tuple[polars.DataFrame, int]:
    """Return the rows of the sources that have most of something.

    Parameters
    ----------
    folder : Path
    by : sequence of str
        Columns by which to choose; the first that is there counts.
    at_most : int
    planned : str
        The table of what is planned, "rates" or "lifetimes".

    Returns
    -------
    frame : DataFrame
        Columns of both tables, numbers as such, the largest first.
    n : int
    """
    import polars

    chosen: list[polars.DataFrame] = []
    n, own = 0, _per_source(folder)
    for one, other in zip(files(folder, "change_rates"), files(folder, planned), strict=True):
        wanted = [(one, SOURCE), (other, PLANNED), *([] if own is None else [(own, FURTHER)])]
        there = ((file, [key for key in keys if key in column_names(file)]) for file, keys in wanted)
        pieces = [read_columns(file, keys) for file, keys in there]
        if len({len(piece) for piece in pieces}) != 1:
            raise SourceDataError(f"{folder}: tables of one plan differ in their rows. {_AGAIN}")
        frame = polars.concat(pieces, how="horizontal")
        numeric = [key for key in frame.columns if key not in TEXTS]
        frame = frame.with_columns(polars.col(numeric).cast(polars.Float64, strict=False))
        n += len(frame)
        key = next(each for each in by if each in frame.columns)
        place = polars.concat([*chosen, frame]) if chosen else frame
        chosen = [place.sort(key, descending=True, nulls_last=True, maintain_order=True).head(at_most)]
    return chosen[0], n


def lifetimes(folder: Path) -> tuple[list[str], dict[str, Array]]:
    """Return names, and change rates, request rates and lifetimes, infinite without end."""
    ours, theirs = (files(folder, table)[0] for table in ("change_rates", "lifetimes"))
    first = read_columns(ours, ("source", "change_rate", "request_rate"))
    life = numbers_of(read_columns(theirs, ("lifetime",)), "lifetime", theirs, gaps=True)
    columns = {key: numbers_of(first, key, ours) for key in ("change_rate", "request_rate")}
    columns["lifetime"] = np.where(np.isnan(life), np.inf, life)
    return [str(name) for name in first["source"].to_list()], columns


def load(folder: Path, edges: Array) -> Array:
    """Return refresh counts between edges, shape (len(edges) − 1,).

    Raises
    ------
    SourceDataError
        If the schedule is missing or is not what `freshopt plan` writes.
    """
    many = np.zeros(len(edges) - 1)
    for file in files(folder, "schedule"):
        time = numbers_of(read_columns(file, ["time"]), "time", file)
        many += np.histogram(time, edges)[0]
    return many


def load_by_host(folder: Path, edges: Array, at_most: int) -> tuple[list[str], Array, list[int], int] | None:
    """Return refresh counts of the hosts with most refreshes, if any.

    Returns
    -------
    hosts : list of str
        The highest load first.
    many : ndarray, shape (len(hosts), len(edges) − 1)
    sources : list of int
        Of each host.
    of : int
        Hosts in all.
    """
    import polars

    known, times = files(folder, "change_rates"), files(folder, "schedule")
    if len(known) != len(times) or "host" not in column_names(known[0]):
        return None
    columns = len(edges) - 1
    found: list[polars.DataFrame] = []
    size: list[polars.DataFrame] = []
    for one, other in zip(known, times, strict=True):
        sources = read_columns(one, ["source", "host"]).with_columns(polars.all().cast(polars.String))
        made = read_columns(other, ["source", "time"]).with_columns(polars.col("source").cast(polars.String))
        made = made.with_columns(polars.col("time").cast(polars.Float64, strict=False)).join(
            sources, on="source"
        )
        after = np.searchsorted(edges, made["time"].to_numpy(), "right") - 1
        place = polars.Series("column", np.clip(after, 0, columns - 1))
        found.append(made.select("host").with_columns(place).group_by("host", "column").len())
        size.append(sources.group_by("host").len())
    counted = polars.concat(found).group_by("host", "column").agg(polars.col("len").sum())
    sources = polars.concat(size).group_by("host").agg(polars.col("len").sum())
    whole = (
        counted.group_by("host").agg(polars.col("len").sum()).sort("len", "host", descending=[True, False])
    )
    hosts = whole["host"].head(at_most).to_list()
    if not hosts:
        return None
    many = np.zeros((len(hosts), columns))
    row = {host: k for k, host in enumerate(hosts)}
    for host, at, each in counted.filter(polars.col("host").is_in(hosts)).iter_rows():
        many[row[host], at] = each
    own = dict(sources.filter(polars.col("host").is_in(hosts)).iter_rows())
    return hosts, many, [own[host] for host in hosts], len(sources)


def files(folder: Path, table: str) -> list[Path]:
    """Return the files of a table.

    Raises
    ------
    SourceDataError
        If there is none.
    """
    for ending in (".parquet", ".csv"):
        if (folder / f"{table}{ending}").is_file():
            return [folder / f"{table}{ending}"]
    found = sorted((folder / table).glob("part-*.parquet"))
    if not found:
        raise SourceDataError(f"{folder} holds no table {table}. {_AGAIN}")
    return found


# Tables of some plans, beside those of every one.
MORE = ("per_source", "constraints", "changes", "held_out")
# Columns of change_rates, rates or lifetimes, and per_source that tell of a source; those that are texts.
SOURCE = ("source", "host", "change_rate", "lower", "upper", "request_rate", "importance", "flag")
PLANNED, FURTHER = ("rate", "lifetime"), ("crawl_rate", "cost", "fresh")
TEXTS = ("source", "host", "flag")
_AGAIN = "Plan again, with --overwrite."


def read_columns(file: Path, columns: Sequence[str]) -> polars.DataFrame:
    """Return columns of a table, or raise SourceDataError."""
    frame = read_table(file, columns=columns, as_text=table_ending(file) != ".parquet")
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise SourceDataError(f"{file} has no column '{missing[0]}'. {_AGAIN}")
    return frame


def numbers_of(frame: polars.DataFrame, column: str, file: Path, *, gaps: bool = False) -> Array:
    """Return a column as numbers >= 0; infinity is one.

    With `gaps` numbers may be missing, and are NaN.
    """
    import polars

    given = frame[column]
    if given.dtype == polars.String or given.dtype.is_numeric():
        values = given.cast(polars.Float64, strict=False).to_numpy()
        there = values[~np.isnan(values)] if gaps else values
        if bool(np.all(there >= 0.0)):
            return np.asarray(values, dtype=np.float64)
    raise SourceDataError(f"column '{column}' of {file} does not hold numbers >= 0. {_AGAIN}")
