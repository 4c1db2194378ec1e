"""`read_access_log`: requests of a web server's or proxy's access log.

Read are the common and the combined log format of Apache [1]_, which are also the default of nginx [2]_, with
or without the virtual host before it. A crawler that asks conditionally (If-None-Match, If-Modified-Since)
gets 304 where nothing has changed and 200 where something has: the log tells both.

Cost: a few passes of regular expressions over the lines; 10⁷ lines take about half a minute.

References
----------
.. [1] https://httpd.apache.org/docs/2.4/logs.html#accesslog
.. [2] https://nginx.org/en/docs/http/ngx_http_log_module.html
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from freshopt.errors import SourceDataError, shown, warn
from freshopt.formatting import count
from freshopt.logs.client_copies import ALL, WHOSE, Client, requests_of_client
from freshopt.logs.tables import parsing
from freshopt.numerics.arrays import IntArray

if TYPE_CHECKING:
    import polars

# A separator that no line holds, so that polars reads each line as one cell.
_NOTHING = "\x01"
_LINE = (
    r"^(?:(?P<host>[^\s:\[]+|\[[0-9A-Fa-f:]+\]):[0-9]+ )?(?P<client>\S+) \S+ [^\[]*\[(?P<moment>[^\]]+)\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>[0-9]{3}) (?:[0-9]+|-)'
    r'(?: "(?:[^"\\]|\\.)*" "(?P<agent>(?:[^"\\]|\\.)*)".*| .*)?$'
)
_REQUEST = r"^(?:GET|HEAD) (?P<url>\S+)(?: HTTP/[0-9.]+)?$"
_MOMENT = "%d/%b/%Y:%H:%M:%S %z"
FORMATS = "common or combined format (Apache's, and nginx's default)"


class Requests(NamedTuple):
    """Requests of an access log that fetch a URL.

    Attributes
    ----------
    frame : DataFrame
        Columns source, time, status, and host where the log has virtual hosts; client and agent where
        there are several clients and none was chosen.
    line : ndarray of int
        Line of each row, from 0.
    """

    frame: polars.DataFrame
    line: IntArray


def read_access_log(path: Path, client: Client = ALL) -> Requests:
    """Read the requests of an access log, GET and HEAD.

    Warns
    -----
    SourceDataWarning
        If some lines are in none of the formats; they are left out, and counted.
    """
    import polars
    from polars import col

    with parsing(path, "text"):
        lines = polars.read_csv(
            path,
            has_header=False,
            separator=_NOTHING,
            quote_char=None,
            schema={"line": polars.String},
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
            glob=False,
        )["line"]
    lines = lines.str.strip_chars_end("\r").fill_null("")
    parts = lines.str.extract_groups(_LINE).struct.unnest().with_row_index("row")
    moment = col("moment").str.to_datetime(_MOMENT, time_unit="us", strict=False).dt.replace_time_zone(None)
    parts = parts.with_columns(moment.alias("time"))
    _report(path, lines, parts["time"].is_null())
    asked = parts.with_columns(col("request").str.extract(_REQUEST, 1).alias("url"))
    asked = asked.filter(col("url").is_not_null() & col("time").is_not_null())
    if asked.height == 0:
        raise SourceDataError(f"{path} has no request by GET or HEAD. Check that it is a crawler's log.")
    line = asked["row"].to_numpy().astype(np.int64)
    asked, kept = requests_of_client(asked, client, path)
    absolute = col("url").str.contains("^[A-Za-z][A-Za-z0-9+.-]*://")
    hosted = asked["host"].is_not_null().any()
    source = (
        polars.when(absolute | col("host").is_null()).then(col("url")).otherwise(col("host") + col("url"))
    )
    frame = asked.select(
        source.alias("source"),
        "time",
        col("status").cast(polars.Float64),
        *([col("host").alias("host")] if hosted else []),
        *(key for key in WHOSE if key in asked.columns),
    )
    return Requests(frame, line[kept])


def _report(path: Path, lines: polars.Series, wrong: polars.Series) -> None:
    """Warn of malformed lines; raise if all are.

    Empty lines are no lines.
    """
    wrong = wrong & (lines.str.len_bytes() > 0)
    many, filled = int(wrong.sum()), int((lines.str.len_bytes() > 0).sum())
    if filled == 0:
        raise SourceDataError(f"{path} is empty. An access log has a line for each request.")
    if many == 0:
        return
    k = int(wrong.arg_true()[0])
    example = f"line {k + 1}: {shown(lines[k])}"
    if many == filled:
        raise SourceDataError(
            f"no line of {path} is in {FORMATS}, such as {example}. Write the log in one of them, or a table "
            "with columns source, time, status."
        )
    left = f"{count(many, 'line')} of {filled:,} not in {FORMATS} left out"
    warn(f"{path}: {left}, such as {example}")
