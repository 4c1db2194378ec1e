"""Web archives: an index of captures (CDX) as a crawl log.

Each capture of a page is a crawl, and the digest of its content tells whether it had changed. An index comes
as the Wayback Machine's server writes it [1]_ (text, CSV, or JSON with the names first), as a CDX file, whose
first line says what each letter stands for [2]_, or as CDXJ of pywb and Common Crawl. Revisit records, which
have no status of their own, have the digest of what they found again.

Captures of one page are those with one key (``urlkey``): http and https, with and without www. It is called
as its last capture is.

References
----------
.. [1] https://github.com/internetarchive/wayback/tree/master/wayback-cdx-server
.. [2] https://archive.org/web/researcher/cdx_legend.php
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from freshopt.errors import SourceDataError, shown
from freshopt.heavy import msgspec, polars
from freshopt.logs.crawl_log import CrawlLog
from freshopt.logs.read_crawls import read_log
from freshopt.logs.schema import naming
from freshopt.units import check_time_unit

# What is read, by the names of servers, the letters of CDX files and the keys of CDXJ.
_NAMES = {
    "key": ("urlkey", "N"),
    "time": ("timestamp", "b"),
    "source": ("original", "url", "a"),
    "status": ("statuscode", "status", "s"),
    "hash": ("digest", "k"),
}
_SERVED = ("urlkey", "timestamp", "original", "mimetype", "statuscode", "digest", "length")
_LEGEND = "CDX"
_GZIP = b"\x1f\x8b"
# Digits of a moment in full; archives shorten them from behind.
_WHOLE = "00000101000000"


def read_wayback(path: str | os.PathLike[str], time_unit: str = "day") -> CrawlLog:
    """Read an index of captures as a crawl log.

    Parameters
    ----------
    path : path
        Lines of a CDX server or file, CDXJ, CSV with a line of names, or the server's JSON; also gzipped.
    time_unit : str
        "second", "minute", "hour", "day" or "week".

    Returns
    -------
    CrawlLog
        Sources are URLs. Captures of pages that could not be had are no evidence.

    Raises
    ------
    SourceDataError
        If the file cannot be read or is no such index, or no page has two captures; names the line.
    """
    check_time_unit(time_unit)
    path = Path(path)
    rows = list(_captures(path))
    if not rows:
        raise SourceDataError(f"{path} has no captures. Ask the archive for its index (CDX) of some URLs.")
    frame = polars.DataFrame(rows, schema=dict.fromkeys(_NAMES, polars.String), orient="row")
    frame = frame.with_columns(
        time=polars.col("time") + polars.lit(_WHOLE).str.slice(polars.col("time").str.len_chars())
    )
    frame = frame.with_columns(
        polars.col("time").str.to_datetime("%Y%m%d%H%M%S", time_unit="us", strict=False)
    )
    wrong = frame["time"].is_null().arg_true()
    if len(wrong):
        told = rows[int(wrong[0])][1]
        raise SourceDataError(
            f"{path}: {shown(str(told))} is no moment of a capture, such as 20230307092216."
        )
    last = frame.sort("time").group_by("key").agg(polars.col("source").last())
    frame = frame.drop("source").join(last, on="key", how="left").select("source", "time", "status", "hash")
    with naming(path):
        return read_log(frame.unique(maintain_order=True), time_unit)


def _captures(path: Path) -> Iterator[Sequence[Any]]:
    """Yield what each capture tells, in the order of `_NAMES`."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
        with gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8") as file:
            begin = file.read(1)
            file.seek(0)
            if begin == "[":
                names, *rows = msgspec.json.decode(file.read(), type=list[list[Any]])
                yield from _named(path, names, rows)
            else:
                yield from _of_lines(path, file)
    except (OSError, EOFError, UnicodeDecodeError, msgspec.DecodeError, ValueError, RecursionError) as error:
        if isinstance(error, SourceDataError):
            raise
        raise SourceDataError(
            f"{path} cannot be read as an index of captures: {error}. Ask for it anew."
        ) from error


def _of_lines(path: Path, file: IO[str]) -> Iterator[Sequence[Any]]:
    """Yield the captures of a text, by what its first line is."""
    first = file.readline()
    file.seek(0)
    if first.split()[:1] == [_LEGEND]:
        file.readline()
        yield from _named(path, first.split()[1:], (line.split() for line in file))
    elif "," in first and "timestamp" in first and "{" not in first:
        names, *rows = csv.reader(file)
        yield from _named(path, names, rows)
    elif "{" in first:
        for line in file:
            key, stamp, told = line.split(" ", 2)
            own: Mapping[str, Any] = msgspec.json.decode(told)
            yield (
                key,
                stamp,
                *(next((own[n] for n in names if n in own), None) for names in [*_NAMES.values()][2:]),
            )
    else:
        yield from _named(path, _SERVED, (line.split() for line in file))


def _named(path: Path, names: Sequence[str], rows: Any) -> Iterator[Sequence[Any]]:  # noqa: ANN401 - of cells
    """Yield what is read of rows with named cells."""
    places = {
        field: next((names.index(each) for each in known if each in names), None)
        for field, known in _NAMES.items()
    }
    places["key"] = places["source"] if places["key"] is None else places["key"]
    missing = [_NAMES[field][0] for field in ("time", "source", "hash") if places[field] is None]
    if missing:
        raise SourceDataError(
            f"{path} has no {', '.join(missing)}; it has {', '.join(names)}. Ask the archive for these "
            "fields."
        )
    for row in rows:
        if not row:
            continue
        if len(row) < len(names):
            raise SourceDataError(f"{path}: {shown(' '.join(map(str, row)))} has not {len(names)} fields.")
        yield [None if place is None else row[place] for place in places.values()]
