"""Files of crawl logs as frames with a log's columns.

CSV and JSON lines come as text, Parquet as it is typed, access logs as their requests. Columns may be
renamed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from freshopt.errors import SourceDataError, expect, list_offenders, shown
from freshopt.logs.access_log import read_access_log
from freshopt.logs.cells import Cells
from freshopt.logs.client_copies import ALL, WHOSE, Client, requests_of_client
from freshopt.logs.tables import (
    ENDINGS,
    column_names,
    parsing,
    read_table,
    require_file,
    table_ending,
    without_blank_end,
)

if TYPE_CHECKING:
    import polars

JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
# Rows of JSON lines that tell which columns there are.
_HEAD = 1000


def log_frame(
    path: Path,
    wanted: tuple[str, ...] | None = None,
    columns: Mapping[str, str] | None = None,
    client: Client | None = None,
    *,
    access: bool = True,
) -> tuple[polars.DataFrame, Cells]:
    """Return wanted columns by a log's names, and the cells.

    Parameters
    ----------
    path : Path
    wanted : tuple of str, optional
        Columns to read, where present. Default: all of a table.
    columns : mapping of str to str, optional
        Names of the file's columns to names of a log's.
    client : Client, optional
        Whose requests are wanted, where an access log or a table's `columns` tell: one's, or everybody's,
        then with the columns client and agent where there are several.
    access : bool
        Whether it may be an access log.
    """
    if wanted is not None and access and is_access_log(path):
        if columns:
            raise SourceDataError(f"{path} is an access log, whose columns are known. Name no columns.")
        frame, line = read_access_log(path, client or ALL)
        chosen = [name for name in frame.columns if name in (wanted if client is None else wanted + WHOSE)]
        return frame.select(chosen), Cells(path, tuple(frame.columns), 0, line)
    own = _own_names(path, access=access and wanted is not None)
    taken = _renamed(path, own, own if wanted is None else wanted, columns, whose=client is not None)
    head: int | None = 0
    if path.name.lower().endswith(JSON_LINES):
        frame = without_blank_end(_read_json(path, list(taken))).rename(taken)
    else:
        head = 1 if table_ending(path) != ".parquet" else None
        frame = read_table(path, columns=list(taken), as_text=head is not None).rename(taken)
        frame = frame if head is None else without_blank_end(frame)
    cells = Cells(path, tuple(taken.get(name, name) for name in own), head)
    if wanted is not None and set(WHOSE) & set(frame.columns):
        frame, line = requests_of_client(frame, client or ALL, path)
        cells = cells.of_rows(line)
    elif client:
        raise SourceDataError(
            f"{path} does not tell clients. Name the columns that do, such as --columns remote_addr=client,"
            "user_agent=agent, or leave the choice out."
        )
    return frame, cells


def may_have(path: Path, wanted: tuple[str, ...], columns: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return which wanted columns a file may have, rows unread.

    What an access log has beside requests only its lines tell.
    """
    if is_access_log(path):
        return frozenset(wanted)
    return frozenset(_renamed(path, _own_names(path), wanted, columns).values())


def _own_names(path: Path, *, access: bool = True) -> list[str]:
    """Return the names of a file's columns."""
    if path.name.lower().endswith(JSON_LINES):
        return _json_names(path)
    require_file(path)
    if not path.name.lower().endswith(ENDINGS):
        found = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        kind, last = ("Logs", "or an access log (.log)") if access else ("Tables", f"or {JSON_LINES[1]}")
        first = (*ENDINGS, *JSON_LINES[:2]) if access else (*ENDINGS, JSON_LINES[0])
        raise SourceDataError(f"{path} {found}. {kind} are {', '.join(first)} {last}. Rename it.")
    return column_names(path)


def log_hosts(path: Path, columns: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return the host of each source by a log's column host.

    None where there is no such column.
    """
    from polars import String, col

    wanted = ("source", "host")
    if not may_have(path, wanted, _of_two(columns)).issuperset(wanted):
        return None
    frame, cells = log_frame(path, wanted, _of_two(columns))
    if not {*wanted} <= {*cells.present}:
        return None
    pairs = frame.select(col("source", "host").cast(String)).unique()
    pairs = pairs.filter(col("host").is_not_null() & (col("host") != ""))
    several = pairs.filter(col("source").is_duplicated()).sort("source", "host")
    if several.height:
        source = several["source"][0]
        both = several.filter(col("source") == source)["host"].to_list()
        raise SourceDataError(
            f"source {source!r} of {path} has the hosts {list_offenders(both)}. Keep one, or name sources "
            "by host too."
        )
    return dict(pairs.iter_rows())


def _of_two(columns: Mapping[str, str] | None) -> dict[str, str]:
    """Return the names of the columns source and host."""
    return {name: to for name, to in (columns or {}).items() if to in ("source", "host")}


def is_access_log(path: Path) -> bool:
    """Return whether a name is an access log's, rotated or not.

    Such as access.log, access.log.1, access_log and site.access.log.2.gz.
    """
    name = path.name.lower()
    known = name.endswith((*ENDINGS, *JSON_LINES))
    return not known and (".log" in name or "access_log" in name)


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
    same = {name: name for name in own if name in wanted and name not in (*given, *given.values())}
    named = (*wanted, *WHOSE) if whose else wanted
    return {name: to for name, to in given.items() if to in named} | same


def _json_names(path: Path) -> list[str]:
    """Return the columns of JSON lines, those of the first rows."""
    import polars

    with _json_lines(path):
        return polars.read_ndjson(path, n_rows=_HEAD, infer_schema_length=_HEAD).columns


def _read_json(path: Path, names: list[str]) -> polars.DataFrame:
    """Return columns of JSON lines as text."""
    import polars

    if not names:
        return polars.DataFrame()
    with _json_lines(path):
        return polars.read_ndjson(path, schema=dict.fromkeys(names, polars.String))


@contextmanager
def _json_lines(path: Path) -> Iterator[None]:
    """Raise errors of JSON lines with the first line that is none."""
    try:
        with parsing(path, "JSON"):
            yield
    except SourceDataError as error:
        if error.__cause__ is None:
            raise
        if path.is_file() and path.stat().st_size == 0:
            raise SourceDataError(f"{path} is empty. JSON lines have an object for each crawl.") from None
        where = _first_wrong(path)
        if where is None:
            raise
        raise SourceDataError(
            f"{path}: {where} is no JSON object. Write one object a line, with the same keys."
        ) from error


def _first_wrong(path: Path) -> str | None:
    """Return the first line that is no JSON object, with its number."""
    zipped = path.name.lower().endswith(".gz")
    with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) if zipped else nullcontext(raw) as file:
        for k, line in enumerate(file):
            if not line.strip():
                continue
            try:
                if isinstance(json.loads(line), dict):
                    continue
            except ValueError:
                pass
            return f"line {k + 1}: {shown(line.decode('utf-8', 'replace').strip())}"
    return None
