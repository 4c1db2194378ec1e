"""Files of crawl logs as frames; several of them as one.

CSV and JSON come as text, Parquet as it is typed, access logs as their requests. Each file is read by its
own: what parts its cells, its names of columns and how it writes times.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from freshopt.errors import SourceDataError, expect, list_offenders, shortened, warn
from freshopt.heavy import polars
from freshopt.logs.access_log import is_access_text, read_access_log
from freshopt.logs.cells import Cells
from freshopt.logs.client_copies import ALL, WHOSE, Client, requests_of_client
from freshopt.logs.file_kinds import CSV, JSON_LINES, Frame, Stream, as_path, is_frame, kind_of
from freshopt.logs.source_index import joined_names
from freshopt.logs.synonyms import SYNONYMS, by_content, guessed, plain
from freshopt.logs.tables import column_names, read_table, without_blank_end
from freshopt.logs.timestamps import Moments

# A path, ``-`` for the standard input, a folder of logs, a stream, or several of them.
Given: TypeAlias = str | os.PathLike[str] | IO[Any] | Sequence[Any] | Any
# Names of tables, packed or not; lines of JSON may be an access log.
_TABLE = re.compile(r"\.(csv|tsv|json|parquet)(\.(gz|xz|bz2|zst))?$")
_LINES = re.compile(r"\.(jsonl|ndjson)(\.(gz|xz|bz2|zst))?$")
_DAY = "date"
# What follows an option --columns, and what follows Python's.
_ALSO = {False: ", or columns={...} in Python.", True: "."}
_FOUND = ("source", "time", "changed", "hash", "status")
# Rows that tell what columns are.
_HEAD = 1000
_OR_HISTORY = (
    " Where each row is a change, and none is missing: freshopt import history {} --out log.parquet."
)
# What is no name of a column: an address, or a date.
_VALUE = r"://|^[0-9]{4}-[0-9]{2}-[0-9]{2}"
# Names that a source has within a host, a schema and so on, and those of what they are within.
_WITHIN = ("path", "table", "tablename", "name")
_HOSTS = ("host", "hostname", "domain", "netloc")
_OUTER = (*_HOSTS, "database", "dataset", "schema", "schemaname")
_CLOCK = r"^\s*[0-9]{1,2}:[0-9]{2}"


def log_frame(
    path: Path,
    wanted: tuple[str, ...] | None = None,
    columns: Mapping[str, str] | None = None,
    client: Client | None = None,
    *,
    access: bool = True,
    alone: bool = True,
) -> tuple[polars.DataFrame, Cells]:
    """Return wanted columns by a log's names, and the cells.

    - `wanted`: Columns to read, where present. Default: all of a table.
    - `columns`: Names of the file's columns to names of a log's.
    - `client`: Whose requests are wanted, where an access log or a table's `columns` tell: one's, or
      everybody's, then with the columns client and agent where there are several.
    - `access`: Whether it may be an access log.
    - `alone`: Whether it is the only file of its log.
    """
    if wanted is not None and access and _holds_requests(path, columns, client):
        if columns:
            raise SourceDataError(f"{path} is an access log, whose columns are known. Name no columns.")
        frame, line = read_access_log(path, client)
        chosen = [name for name in frame.columns if name in (wanted if client is None else wanted + WHOSE)]
        return frame.select(chosen), Cells(path, tuple(frame.columns), 0, line)
    own = column_names(path)
    taken = _renamed(path, own, own if wanted is None else wanted, columns, whose=client is not None)
    days = [name for name in own if plain(name) == _DAY and name not in taken and "time" in taken.values()]
    kind = kind_of(path)
    outer = [] if wanted is None else _outer(own, taken, columns)
    table = read_table(path, columns=[*taken, *days, *outer], as_text=True)
    if outer:
        table = _within(path, table, taken, outer, alone=alone)
        table = table.drop(name for name in outer if name not in taken)
    frame = table.rename(taken)
    if days:
        frame = _with_days(frame, days[0])
    head = {CSV: kind.before + 1, JSON_LINES: 0}.get(kind.form)
    frame = frame if head is None else without_blank_end(frame)
    present = tuple(taken.get(name, name) for name in own)
    cells = Cells(path, present, head, comma=kind.form == CSV and kind.separator == ";", own=tuple(own))
    if wanted is not None and set(WHOSE) & set(frame.columns):
        frame, line = requests_of_client(frame, client or ALL, path)
        cells = cells.of_rows(line)
    elif client:
        raise SourceDataError(
            f"{path} does not tell clients. Name the columns that do, such as --columns remote_addr=client,"
            "user_agent=agent, or leave the choice out."
        )
    return frame, cells


def may_have(
    path: Path,
    wanted: tuple[str, ...],
    columns: Mapping[str, str] | None = None,
    client: Client | None = None,
) -> frozenset[str]:
    """Return which wanted columns a file may have, rows unread."""
    if _holds_requests(path, columns, client):
        return frozenset(wanted)
    return frozenset(_renamed(path, column_names(path), wanted, columns).values())


def logs_of(given: Given) -> tuple[Path, ...]:
    """Return the files, streams and frames of a log, in order."""
    if isinstance(given, str | os.PathLike):
        path = as_path(given)
        if str(path) == "-":
            return (Stream.standard_input(),)
        return _in_folder(path) if path.is_dir() else (path,)
    if hasattr(given, "read"):
        return (Stream.of(cast("IO[Any]", given)),)
    if is_frame(given) or isinstance(given, Mapping) or not isinstance(given, Iterable):
        return (Frame.of(given),)
    found = tuple(each for one in given for each in logs_of(one))
    if not found:
        raise SourceDataError("there are no files of a log. Pass at least one path.")
    return found


def called(logs: Sequence[Path]) -> str:
    """Return what a log is called in messages.

    Examples
    --------
    >>> called([Path("a.csv"), Path("b.csv")])
    'a.csv and 1 more'
    """
    return str(logs[0]) if len(logs) == 1 else f"{logs[0]} and {len(logs) - 1} more"


def _in_folder(folder: Path) -> tuple[Path, ...]:
    """Return the logs of a folder, without hidden and empty files."""
    every = (path for path in sorted(folder.rglob("*")) if path.is_file())
    found = tuple(
        path
        for path in every
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        and (is_table(path) or _is_access_name(path.name.lower()) or path.suffix == ".txt")
        and path.stat().st_size > 0
    )
    if not found:
        raise SourceDataError(
            f"{folder} is a folder without logs: none of its files is called .csv, .tsv, .txt, .json, "
            ".jsonl, .parquet or .log. Name the files, or make a log of what another tool has recorded: "
            "freshopt import."
        )
    return found


def log_hosts(logs: Given, columns: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return each source's host by a column host, None without one."""
    wanted, every = ("source", "host"), logs_of(logs)
    told = (each for each in every if may_have(each, wanted, _of_two(columns)).issuperset(wanted))
    frames = [log_frame(each, wanted, _of_two(columns))[0] for each in told]
    both = [
        frame.select(polars.col(*wanted).cast(polars.String)).unique()
        for frame in frames
        if {*wanted} <= {*frame.columns}
    ]
    if not both:
        return None
    pairs = polars.concat(both).unique()
    pairs = pairs.filter(polars.col("host").is_not_null() & (polars.col("host") != ""))
    several = pairs.filter(polars.col("source").is_duplicated()).sort("source", "host")
    if several.height:
        source = several["source"][0]
        hosts = several.filter(polars.col("source") == source)["host"].to_list()
        raise SourceDataError(
            f"source {source!r} of {called(every)} has the hosts {list_offenders(hosts)}. Keep one, or name "
            "sources by host too."
        )
    return dict(pairs.iter_rows())


def _of_two(columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return the names of the columns source and host."""
    return {name: to for name, to in (columns or {}).items() if to in ("source", "host")}


def is_access_log(path: Path) -> bool:
    """Return whether a file is an access log, rotated or not.

    Its lines tell, or its name, such as access.log, access.log.1, access_log and site.access.log.2.gz, where
    it is no table.
    """
    name = path.name.lower()
    if _TABLE.search(name):
        return False
    if not path.exists() or path.is_dir():
        return _is_access_name(name)
    lines = kind_of(path).form in (CSV, JSON_LINES) and is_access_text(path)
    return lines or (_is_access_name(name) and not _has_columns(path))


def _is_access_name(name: str) -> bool:
    return not _LINES.search(name) and (".log" in name or "access_log" in name)


def _has_columns(path: Path) -> bool:
    """Return whether a file has the columns of a log."""
    try:
        own = column_names(path)
    except SourceDataError:
        return False
    guess = guessed(own, ("source", "time"), {})
    return {"source", "time"} <= {*guess.found.values(), *guess.several}


def _holds_requests(path: Path, columns: Mapping[str, str] | None, client: Client | None) -> bool:
    """Return whether a log is an access log, and no table."""
    if isinstance(path, Frame):
        return False
    if client is not None and client.pattern is not None:
        return True
    return not (columns and _LINES.search(path.name.lower())) and is_access_log(path)


def is_table(path: Path) -> bool:
    """Return whether a name is a table's."""
    name = path.name.lower()
    return bool(_TABLE.search(name) or _LINES.search(name))


def _renamed(
    path: Path,
    own: list[str],
    wanted: Sequence[str],
    columns: Mapping[str, str] | None,
    *,
    whose: bool = False,
) -> dict[str, str]:
    """Return the file's columns to read, with their names in a log.

    A column that is named for it takes the place of one that has the name. `whose` requests rows are is read
    only where it is named.
    """
    given = dict(columns or {})
    expect(columns if columns is not None else {}, Mapping, "columns", "Pass a mapping of names to names")
    absent = [name for name in given if name not in own]
    if absent:
        raise SourceDataError(
            f"{path} has no column {list_offenders(map(repr, absent))}; it has "
            f"{list_offenders(map(repr, own))}. Name columns of the file, as in url=source."
        )
    unknown = [name for name in given.values() if name not in (*wanted, *WHOSE, "host")]
    if unknown:
        raise SourceDataError(
            f"columns: {list_offenders(map(repr, unknown))} is no column of a log. Write the file's name "
            f"first, as in url=source, then one of {', '.join(wanted)}."
        )
    twice = [name for name in given.values() if list(given.values()).count(name) > 1]
    if twice:
        raise SourceDataError(f"columns: {twice[0]!r} is named for two columns of {path}. Keep one of them.")
    named = (*wanted, *WHOSE) if whose else wanted
    taken = {name: to for name, to in given.items() if to in named}
    if wanted is own:
        return taken | {name: name for name in own if name not in given}
    guess = guessed(own, wanted, given)
    if guess.several:
        column, names = next(iter(guess.several.items()))
        some = {each[0]: to for to, each in guess.several.items()}
        python = isinstance(path, Frame)
        line = columns_line(own, given, {**guess.found, **some}, python=python)
        raise SourceDataError(
            f"{path} has {len(names)} columns that may be the {column}, {list_offenders(map(repr, names))}. "
            f"Say which it is: {line}{_ALSO[python]}"
        )
    return taken | guess.found


def columns_line(
    own: Sequence[str], given: Mapping[str, str], found: Mapping[str, str], *, python: bool = False
) -> str:
    """Return --columns, or Python's, for names that are not a log's.

    Examples
    --------
    >>> columns_line(["Fetched At", "hash"], {}, {"Fetched At": "time", "hash": "hash"})
    '--columns "Fetched At=time"'
    """
    both = {**found, **given}.items()
    named = {shortened(name): to for name, to in both if name != to and name in own}
    if python:
        return f"columns={named!r}"
    pairs = ",".join(f"{name}={to}" for name, to in named.items())
    return "--columns " + (pairs if re.fullmatch(r"[\w.@,=/:-]+", pairs) else f'"{pairs}"')


def naming_line(path: Path, columns: Mapping[str, str] | None, missing: Sequence[Sequence[str]]) -> str:
    """Return the line to paste where columns are missing.

    What is missing is found by its cells, where they look like it.
    """
    own, given = column_names(path), dict(columns or {})
    frame = read_table(path, as_text=True).head(_HEAD)
    cells = frame.select(
        (polars.selectors.string() | polars.selectors.numeric() | polars.selectors.temporal()).cast(
            polars.String
        )
    )
    if any(re.search(_VALUE, name) for name in own):
        names = by_content(cells, _FOUND)
        line = ",".join(names.get(name, f"column{k}") for k, name in enumerate(own, start=1))
        return f"The first line has cells where names should be. Write {line} in a line before it."
    found = guessed(own, [*SYNONYMS], given).found
    looks = by_content(cells.drop(*found, *given, strict=False), [name for each in missing for name in each])
    lost = {f"YOUR_{each[0].upper()}": each[0] for each in missing if not {*each} & {*looks.values()}}
    python = isinstance(path, Frame)
    line = columns_line([*own, *lost], given, {**found, **looks, **lost}, python=python)
    alone = [each[0] for each in missing] == ["changed"]
    changes = "" if python or not alone else _OR_HISTORY.format(path)
    return f"Say which are which: {line}{_ALSO[python]}{changes}"


def _outer(own: Sequence[str], taken: Mapping[str, str], columns: Mapping[str, str] | None) -> list[str]:
    """Return columns of what a guessed source may be within."""
    source = next((name for name, to in taken.items() if to == "source"), "")
    if source in (columns or {}) or plain(source) not in _WITHIN:
        return []
    return [name for name in own if plain(name) in _OUTER and taken.get(name) in (None, "host")]


def _within(
    path: Path, table: polars.DataFrame, taken: Mapping[str, str], outer: Sequence[str], *, alone: bool
) -> polars.DataFrame:
    """Return a table whose sources are named with their hosts or schemas.

    So they are if one stands in several. Of several files each would decide for itself: there the user has
    to.
    """
    source = next(name for name, to in taken.items() if to == "source")
    for name in outer:
        pairs = table.select(source, name).drop_nulls().unique()
        twice = pairs[source].filter(pairs[source].is_duplicated()).sort()
        if len(twice) and (not alone or plain(source) == "name"):
            python = isinstance(path, Frame)
            line = columns_line([*table.columns, "NAME"], {}, {"NAME": "source"}, python=python)
            raise SourceDataError(
                f"{path}: {source} {twice[0]!r} stands beside several values of {name}. Write a "
                f"column with both and say which it is: {line}{_ALSO[python]}"
            )
        if len(twice):
            return table.with_columns(_full_name(path, source, outer))
    return table


def _full_name(path: Path, source: str, outer: Sequence[str]) -> polars.Expr:
    """Return a source's name within its host or schema: a.example/x, or sales.orders."""
    own = polars.col(source).cast(polars.String).str.strip_chars()
    ranked = sorted(outer, key=lambda name: _OUTER.index(plain(name)))
    of_host = plain(source) == "path" and plain(ranked[0]) in _HOSTS
    around = ranked[:1] if of_host else ranked
    sign = (
        polars.when(own.str.starts_with("/")).then(polars.lit("")).otherwise(polars.lit("/"))
        if of_host
        else polars.lit(".")
    )
    warn(
        f"{path}: sources are named by {' and '.join([*around, source])} together, as one {source} stands in "
        f"several."
    )
    parts = [
        part for name in around for part in (polars.col(name).cast(polars.String).str.strip_chars(), sign)
    ]
    return polars.concat_str([*parts, own]).alias(source)


def _with_days(frame: polars.DataFrame, days: str) -> polars.DataFrame:
    """Return times with their dates, if those are a column."""
    time = frame["time"]
    if time.dtype == polars.String and time.drop_nulls().head(1).str.contains(_CLOCK).any():
        frame = frame.with_columns(
            time=polars.col(days).str.strip_chars() + " " + polars.col("time").str.strip_chars()
        )
    return frame.drop(days)


class LogPart(NamedTuple):
    """The rows of one file.

    - `names`: Sources.
    - `columns` dict of str to ndarray of length rows: ``source`` (positions among the names), ``changed``,
      ``time``, ``status`` and so on, where they are told.
    - `row_name`: How a row is called in messages.
    - `seen`: ``hash`` and ``etag``, where they are told.
    - `whose`: Client and agent of each row.
    """

    names: npt.NDArray[Any]
    columns: dict[str, npt.NDArray[Any]]
    row_name: Callable[[int], str]
    seen: Mapping[str, polars.Series] = MappingProxyType({})
    whose: polars.DataFrame | None = None


def joined(parts: Sequence[LogPart]) -> LogPart:
    """Return the rows of several files as those of one."""
    if len(parts) == 1:
        return parts[0]
    rows = [len(part.columns["source"]) for part in parts]
    names, codes = joined_names([part.names for part in parts], [part.columns["source"] for part in parts])
    columns = {"source": codes}
    for key in dict.fromkeys(name for part in parts for name in part.columns if name != "source"):
        columns[key] = joined_times([part.columns.get(key) for part in parts], rows, key)
    seen = {
        key: polars.concat(
            part.seen[key].cast(polars.String)
            if key in part.seen
            else polars.Series(key, [None] * many, dtype=polars.String)
            for part, many in zip(parts, rows, strict=True)
        )
        for key in dict.fromkeys(name for part in parts for name in part.seen)
    }
    clients = None
    if any(part.whose is not None for part in parts):
        clients = polars.concat(
            part.whose if part.whose is not None else polars.DataFrame(dict.fromkeys(WHOSE, ["-"] * many))
            for part, many in zip(parts, rows, strict=True)
        )
    return LogPart(names, columns, joined_rows([part.row_name for part in parts], rows), seen, clients)


def joined_times(columns: Sequence[Moments | None], rows: Sequence[int], what: str) -> Moments:
    """Return columns one after another, empty where a file has none."""
    known = [
        each for each in columns if each is not None and (each.dtype.kind == "M" or not np.isnan(each).all())
    ]
    dated = {each.dtype.kind == "M" for each in known}
    if len(dated) > 1:
        raise SourceDataError(
            f"{what} has dates in some files of the log and numbers in others. Write all the same way."
        )
    empty = np.datetime64("NaT", "us") if True in dated else np.float64(np.nan)
    return np.concatenate(
        [
            each if each is not None and (each.dtype.kind == "M") in dated else np.full(many, empty)
            for each, many in zip(columns, rows, strict=True)
        ]
    )


def joined_rows(names: Sequence[Callable[[int], str]], rows: Sequence[int]) -> Callable[[int], str]:
    """Return how rows of several files are called in messages."""
    begins = [0, *accumulate(rows)]

    def row_name(k: int) -> str:
        part = bisect_right(begins, k, hi=len(rows)) - 1
        return names[part](k - begins[part])

    return row_name
